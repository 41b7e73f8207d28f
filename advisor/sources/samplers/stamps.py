"""Time stamps of samplers, of every shape they come in."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

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
