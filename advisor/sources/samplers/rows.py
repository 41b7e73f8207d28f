"""Lines of a sampler's log -> rows of cells by name. Headers may come again, lines may be torn."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from advisor.sources.samplers.fields import DEVICE, FIELDS, TIME

# --- time stamps of samplers, of every shape they come in -----------------------------------------

_SECOND = 1_000_000_000

#: What `datetime.fromisoformat` does not take: dates as spreadsheets and old tools write them.
_SHAPES = (
    "%d.%m.%Y %H:%M:%S.%f", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%m/%d/%Y %I:%M:%S.%f %p",
    "%m/%d/%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S", "%a %b %d %H:%M:%S %Y",
)  # fmt: skip
_PLAIN = re.compile(r"\d+(?:\.\d+)?")
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
#: Seconds, ms, us or ns since 1970 by their size: the first is of the year 2001.
_EPOCHS = ((10**17, 1), (10**14, 10**3), (10**11, 10**6), (10**8, 10**9))


class Stamp(NamedTuple):
    """A moment in ns. `dated`: since 1970, else since midnight; `zoned`: it names its time zone,
    else it is what the clock on the wall showed, counted as if that were UTC."""

    ns: int
    dated: bool
    zoned: bool


def read_stamp(text: str) -> Stamp | None:
    """``2026/11/20 14:04:16.123``, ISO 8601, ns to seconds since 1970, or a time of day; None for
    anything else."""
    text = " ".join(text.strip().strip('"').split())
    if _PLAIN.fullmatch(text):
        return _epoch(text)
    clock = _TIME_OF_DAY.fullmatch(text)
    if clock:
        hours, minutes, seconds = (int(clock[i]) for i in (1, 2, 3))
        fraction = int((clock[4] or "0").ljust(9, "0"))
        return Stamp((hours * 3600 + minutes * 60 + seconds) * _SECOND + fraction, False, False)
    moment = _moment(text)
    if moment is None:
        return None
    zoned = moment.tzinfo is not None
    if not zoned:
        moment = moment.replace(tzinfo=UTC)
    whole = int(moment.replace(microsecond=0).timestamp())
    return Stamp(whole * _SECOND + moment.microsecond * 1_000, True, zoned)


def _epoch(text: str) -> Stamp | None:
    whole, _, fraction = text.partition(".")
    for least, factor in _EPOCHS:
        if int(whole) >= least:
            part = int((fraction or "0")[:9].ljust(9, "0")) * factor // _SECOND
            return Stamp(int(whole) * factor + part, True, True)
    return None


def _moment(text: str) -> datetime | None:
    dashed = re.sub(r"^(\d{4})/(\d{1,2})/(\d{1,2})", r"\1-\2-\3", text)
    packed = re.sub(r"^(\d{4})(\d\d)(\d\d) ", r"\1-\2-\3 ", dashed)
    try:
        return datetime.fromisoformat(packed.replace(",", "."))
    except ValueError:
        pass
    for shape in _SHAPES:
        try:
            return datetime.strptime(text, shape)
        except ValueError:
            continue
    return None


SMI_CSV, SMI_DMON, DCGMI_DMON, DCGM_CSV = (
    "nvidia-smi csv", "nvidia-smi dmon", "dcgmi dmon", "DCGM csv",
)  # fmt: skip

#: A header is looked for in so many lines: tools print greetings first.
_HEAD_LINES = 10
_DELIMITERS = (",", ";", "\t")
_BRACKET = re.compile(r"\s*\[.*")
_NUMBERED = re.compile(r"(?:GPU\s+)?(\d+)\b\s*(.*)", re.IGNORECASE)

Row = dict[str, str]


def recognise(lines: Sequence[str]) -> str | None:
    """Which tool wrote lines that begin so; None for anything else."""
    for line in lines[:_HEAD_LINES]:
        if line.lstrip().startswith("#"):
            names = _spaced(line)
            if not any(name in FIELDS for name in names):
                continue
            return DCGMI_DMON if _of_dcgm(names) else SMI_DMON
        names = _csv_names(line, _delimiter(line))
        if len(names) > 1 and any(name in FIELDS for name in names):
            if _of_dcgm(names):
                return DCGM_CSV
            # A single word such as `power` is in many tables: a time, a GPU or a dot speaks for it.
            known_fields = {n for n in names if n in FIELDS}
            if any("." in n for n in known_fields) or (
                set(names) & {*TIME, *DEVICE} and len(known_fields) > 1
            ):
                return SMI_CSV
    return None


def rows(lines: Sequence[str], kind: str) -> Iterator[Row]:
    """The samples in a log of the kind that `recognise` told."""
    if kind in (SMI_CSV, DCGM_CSV):
        return _csv_rows(lines)
    return _spaced_rows(lines, kind == DCGMI_DMON)


def _of_dcgm(names: Sequence[str]) -> bool:
    upper = ("entity", "smact", "gract", "gputl", "drama", "tenso", "fbusd", "smclk", "tmptr")
    return any(name in upper or name.startswith("dcgm_fi_") for name in names)


# ---------------------------------------------------------------- with a delimiter


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _csv_names(line: str, delimiter: str) -> list[str]:
    """``utilization.gpu [%]`` -> ``utilization.gpu``; ``"GPU ID"`` -> ``gpu_id``."""
    cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    bare = (_BRACKET.sub("", cell.strip().lower()) for cell in cells)
    return [re.sub(r"[\s-]+", "_", name) for name in bare]


def _csv_rows(lines: Sequence[str]) -> Iterator[Row]:
    names: list[str] = []
    delimiter = ","
    for line in lines:
        if not names:
            delimiter = _delimiter(line)
            found = _csv_names(line, delimiter)
            names = found if len(found) > 1 and any(n in FIELDS for n in found) else []
            continue
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
        if len(cells) != len(names) or _csv_names(line, delimiter) == names:
            continue  # a torn line, or a header that a restart wrote again
        yield dict(zip(names, cells, strict=True))


# ---------------------------------------------------------------- in columns of text


def _spaced(line: str) -> list[str]:
    return [w for w in re.split(r"[\s,]+", line.lstrip("# \t").strip().lower()) if w]


def _spaced_rows(lines: Sequence[str], dcgm: bool) -> Iterator[Row]:
    names: list[str] = []
    for line in lines:
        if line.lstrip().startswith("#"):
            found = _spaced(line)
            if any(name in FIELDS for name in found):  # else the line of units
                names = found
            continue
        if not names:
            continue
        cells = _entity_cells(line) if dcgm else re.split(r"[\s,]+", line.strip(" \t,"))
        if cells is None or len(cells) != len(names):
            continue
        yield dict(zip(names, cells, strict=True))


def _entity_cells(line: str) -> list[str] | None:
    """``GPU 0   100   0.998`` -> the number and the values; None for parts of a GPU (MIG)."""
    found = _NUMBERED.fullmatch(line.strip())
    return [found[1], *(c for c in re.split(r"[\s,]+", found[2]) if c)] if found else None
