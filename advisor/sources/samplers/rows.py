"""Lines of a sampler's log -> rows of cells by name. Headers may be repeated, lines may be torn."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from advisor.numerals import read_float, read_int
from advisor.sources.samplers import layouts
from advisor.sources.samplers.layouts import Row


class Field(NamedTuple):
    """The column of ours that a field fills, and its factor to our unit."""

    column: str
    factor: float


_MIB, _MHZ = 2.0**20, 1e6

#: Our column and its factor <- the samplers' names for it, in lower case and without unit, in the order in
#: which they count: of nvidia-smi --query-gpu, its dmon, and DCGM (short names of `dcgmi dmon`, full names
#: of CSV exports).
_NAMES = (
    ("gr_active", 0.01, "utilization.gpu sm own.util"),
    ("gr_active", 1.0, "gract dcgm_fi_prof_gr_engine_active"),
    ("gr_active", 0.01, "gputl dcgm_fi_dev_gpu_util"),
    ("sm_active", 1.0, "smact dcgm_fi_prof_sm_active own.sm_active"),
    ("tensor_active", 1.0, "tenso dcgm_fi_prof_pipe_tensor_active own.tensor_active"),
    ("dram_read", 1.0, "drama dcgm_fi_prof_dram_active own.dram_active"),
    ("memory_used_bytes", _MIB, "memory.used fb fbusd dcgm_fi_dev_fb_used"),
    ("memory_total_bytes", _MIB, "memory.total fbttl dcgm_fi_dev_fb_total"),
    ("memory_used_bytes", 2.0**30, "own.used_gib"),
    ("memory_used_bytes", 1.0, "own.used_bytes"),
    ("memory_total_bytes", 2.0**30, "own.total_gib"),
    ("memory_total_bytes", 1.0, "own.total_bytes"),
    ("power_w", 1.0, "power.draw.instant power.draw power.draw.average pwr power"),
    ("power_w", 1.0, "dcgm_fi_dev_power_usage_instant dcgm_fi_dev_power_usage"),
    ("power_w", 1.0, "power_usage_instant power_usage"),
    ("power_w", 0.001, "own.power_mw"),
    ("power_limit_w", 1.0, "enforced.power.limit power.limit"),
    ("power_limit_w", 1.0, "dcgm_fi_dev_enforced_power_limit dcgm_fi_dev_power_mgmt_limit eplmt pmlmt"),
    ("sm_clock_hz", _MHZ, "clocks.sm clocks.current.sm pclk smclk dcgm_fi_dev_sm_clock"),
    ("sm_clock_max_hz", _MHZ, "clocks.max.sm dcgm_fi_dev_max_sm_clock smmax"),
    ("temperature_c", 1.0, "temperature.gpu gtemp temp tmptr dcgm_fi_dev_gpu_temp"),
)
FIELDS = {name: Field(column, factor) for column, factor, names in _NAMES for name in names.split()}

#: The parts that make up the size of the memory, besides the used part, if a log does not state it.
_FREE = ("memory.free", "dcgm_fi_dev_fb_free", "fbfre")
_PARTS_OF_MEMORY = (*_FREE, "memory.reserved", "dcgm_fi_dev_fb_reserved")

#: Columns that number the GPU, and others that name it if none does.
DEVICE = ("index", "gpu", "gpu_id", "gpuid", "gpu_index", "entity", "entity_id", "device")
IDENTITY = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "pci_bus_id", "serial")
BUS = ("pci.bus_id", "gpu_bus_id", "pci_bus_id", "dcgm_fi_dev_pci_busid")
MODEL = ("name", "gpu_name", "gpu_model", "modelname", "product_name")
TIME = ("timestamp", "timestampus", "time_stamp", "datetime", "date_time", "ts", "time", "date")

_NOT_A_NUMBER = frozenset(("", "-", "n/a", "[n/a]", "[not supported]", "not supported", "nan"))
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?")
#: DCGM writes its blank values (from 0x7ffffff0, as a float 2^47 on) for missing ones.
_BLANK = {0x7FFFFFF0, 0x7FFFFFF1, 0x7FFFFFF2, 0x7FFFFFF3}
_LEAST_BLANK = 2.0**47

#: Bits of nvmlClocksEventReasons (nvidia-ml-py 13.615) that limit the clock against the load's demand: power
#: cap, hardware and software slowdown, brake, limits of the board and for its reliability. Idle, application
#: clocks and sync boost are a choice. A slowdown of the hardware (0x08) that does not name heat, and its
#: brake (0x80), come from the supply or a fast protection: no limit that could be raised.
_HELD_BACK, _HEAT = 0x04 | 0x08 | 0x20 | 0x40 | 0x80 | 0x200 | 0x400, 0x20 | 0x40
_SLOWDOWN = 0x08 | 0x80
_REASONS = (
    "clocks_throttle_reasons.active",
    "clocks_event_reasons.active",
    "dcgm_fi_dev_clock_throttle_reasons",
    "dcgm_fi_dev_clocks_event_reasons",
    "current_clock_throttle_reasons",
    "dvcctr",
)
#: Performance states: P0 is the fastest, P15 the slowest.
_STATES = ("pstate", "dcgm_fi_dev_pstate")
_STATE = re.compile(r"[Pp]?(1[0-5]|\d)(?:\.0+)?")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")
_REASON = re.compile(r"clocks_(?:throttle|event)_reasons\.(sw|hw)_(.+)")


def number(text: str) -> float | None:
    """``85 %`` -> 85.0, ``690,10 W`` -> 690.1; None if a tool has no value."""
    text = text.strip()
    if text.lower() in _NOT_A_NUMBER:
        return None
    found = _NUMBER.match(text)
    value = read_float(found[0].replace(",", ".")) if found else None
    blank = value is not None and (value in _BLANK or abs(value) >= _LEAST_BLANK)
    return None if blank else value


def measured(row: Mapping[str, str]) -> dict[str, float]:
    """Our columns, as far as one row of a log (cells by name) contains them."""
    values: dict[str, float] = {}
    for name, field in FIELDS.items():
        if name in row and field.column not in values:
            value = number(row[name])
            if value is not None:
                values[field.column] = value * field.factor
    if "memory_total_bytes" not in values:
        parts = [number(row[n]) for n in _PARTS_OF_MEMORY if n in row]
        free = any(n in row for n in _FREE)
        if free and "memory_used_bytes" in values and None not in parts:
            rest = sum(p for p in parts if p is not None)
            values["memory_total_bytes"] = values["memory_used_bytes"] + rest * _MIB
    states = (_STATE.fullmatch(row[name].strip()) for name in _STATES if name in row)
    if (state := next(filter(None, states), None)) is not None:
        values["performance_state"] = float(state[1])
    limits = _limits(row)
    if limits is not None:
        values["throttled"], values["overheated"], values["slowed"] = map(float, limits)
    return values


def _limits(row: Mapping[str, str]) -> tuple[bool, bool, bool] | None:
    """Whether something limits the clock, whether it is heat, and whether it is a slowdown of the hardware
    that does not name heat; None if unknown."""
    for text in (row[name].strip() for name in _REASONS if name in row):
        # A bit mask as ``0x0000000000000004`` or as a plain number.
        bits = read_int(text, 16) if _HEX.fullmatch(text) else number(text)
        if bits is not None:
            hot = bool(int(bits) & _HEAT)
            return bool(int(bits) & _HELD_BACK), hot, bool(int(bits) & _SLOWDOWN) and not hot
    power, heat = (number(row[n]) if n in row else None for n in ("pviol", "tviol"))
    if power is not None or heat is not None:
        return bool(power) or bool(heat), bool(heat), False
    active = {
        found[2]: cell.strip().lower() == "active"
        for name, cell in row.items()
        if (found := _REASON.fullmatch(name)) and cell.strip().lower() in ("active", "not active")
    }
    if not active:
        return None
    hot = any(on and "thermal" in what for what, on in active.items())
    slow = any(active.get(name, False) for name in ("slowdown", "power_brake_slowdown"))
    return any(active.values()), hot, slow and not hot


# --- time stamps of samplers, of every shape they come in -----------------------------------------

_SECOND = 1_000_000_000

#: Formats that `datetime.fromisoformat` does not accept: dates as spreadsheets and old tools write them.
_SHAPES = (
    "%d.%m.%Y %H:%M:%S.%f",
    "%d.%m.%Y %H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%Y %I:%M:%S.%f %p",
    "%m/%d/%Y %H:%M:%S.%f",
    "%m/%d/%Y %H:%M:%S",
    "%a %b %d %H:%M:%S %Y",
)
_PLAIN = re.compile(r"\d+(?:\.\d+)?")
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
#: Seconds, ms, us or ns since 1970 by their size: the first is of the year 2001.
_EPOCHS = ((10**17, 1), (10**14, 10**3), (10**11, 10**6), (10**8, 10**9))


class Stamp(NamedTuple):
    """A moment in ns. `dated`: since 1970, else since midnight; `zoned`: it names its time zone, else it
    is local time, counted as if it were UTC."""

    ns: int
    dated: bool
    zoned: bool


def read_stamp(text: str) -> Stamp | None:
    """``2026/11/20 14:04:16.123``, ISO 8601, ns to seconds since 1970 or a time of day; else None."""
    text = " ".join(text.strip().strip('"').split())
    if _PLAIN.fullmatch(text):
        return _epoch(text)
    clock = _TIME_OF_DAY.fullmatch(text)
    if clock:
        hours, minutes, seconds = (read_int(clock[i]) or 0 for i in (1, 2, 3))
        fraction = read_int((clock[4] or "0").ljust(9, "0")) or 0
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
    count, part = read_int(whole), read_int((fraction or "0")[:9].ljust(9, "0"))
    for least, factor in _EPOCHS:
        if count is not None and part is not None and count >= least:
            return Stamp(count * factor + part * factor // _SECOND, True, True)
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


#: A header is searched for in this many lines: tools print greetings first.
_HEAD_LINES = 10
_DELIMITERS = (",", ";", "\t")
_NUMBERED = re.compile(r"(?:GPU\s+)?(\d+)\b\s*(.*)", re.IGNORECASE)


class Layout(NamedTuple):
    """How one tool writes samples. `begins` tells it by one of the first lines. `shares` are as the fields
    say (`stated`), ratios that some exporters write in per cent (`ratios`), or either, as the values show
    (`either`). `numbers`: whose the numbers of the GPUs are, where that is not the order of the PCI bus.
    `lines_count`: a line holds one sample. `fixed`: it prints what the board has, and no more on request."""

    name: str
    begins: Callable[[str], bool]
    rows: Callable[[Sequence[str]], Iterator[Row]]
    shares: Literal["stated", "ratios", "either"] = "stated"
    numbers: str | None = None
    lines_count: bool = True
    fixed: bool = False


def recognise(lines: Sequence[str]) -> Layout | None:
    """The layout of a log with this beginning; None if no tool that is known writes it."""
    found = (layout for line in lines[:_HEAD_LINES] for layout in LAYOUTS if layout.begins(line))
    return next(found, None)


def _of_dcgm(names: Sequence[str]) -> bool:
    upper = ("entity", "smact", "gract", "gputl", "drama", "tenso", "fbusd", "smclk", "tmptr")
    return any(name in upper or name.startswith("dcgm_fi_") for name in names)


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # of more than 128 KB
        return []


def _csv_names(line: str, delimiter: str) -> list[str]:
    """``utilization.gpu [%]`` -> ``utilization.gpu``; ``"GPU ID"`` -> ``gpu_id``."""
    bare = (re.split(r"[\[(]", cell)[0].strip().lower() for cell in _cells(line, delimiter))
    return [re.sub(r"[\s-]+", "_", name) for name in bare]


def _own_names(line: str, delimiter: str) -> list[str]:
    """The same for the headings of a script around NVML, by their meaning; [] for other tables."""
    names = layouts.own_names(_cells(line, delimiter))
    return [own or n for own, n in zip(names, _csv_names(line, delimiter), strict=True)] if any(names) else []


def _heads(names: Sequence[str]) -> bool:
    return any(name in FIELDS for name in names)


def _csv_rows(
    lines: Sequence[str],
    names_of: Callable[[str, str], list[str]] = _csv_names,
    heads: Callable[[Sequence[str]], bool] = _heads,
) -> Iterator[Row]:
    """The rows below a header, as whose names `heads` accepts what `names_of` reads."""
    names: list[str] = []
    delimiter = ","
    for line in lines:
        if not names:
            delimiter = _delimiter(line)
            found = names_of(line, delimiter)
            names = found if len(found) > 1 and heads(found) else []
            continue
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
        if len(cells) != len(names) or names_of(line, delimiter) == names:
            continue  # a torn line, or a header repeated after a restart
        yield dict(zip(names, cells, strict=True))


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


# --- the table of layouts ---------------------------------------------------------------------------


def _of_dmon(line: str, dcgm: bool) -> bool:
    names = _spaced(line) if line.lstrip().startswith("#") else []
    return _heads(names) and _of_dcgm(names) == dcgm


def _header(line: str) -> list[str]:
    """The names of a CSV header; [] for a comment."""
    return [] if line.lstrip().startswith("#") else _csv_names(line, _delimiter(line))


def _of_long(line: str) -> bool:
    names = _header(line)
    return layouts.is_long(names) and bool(set(names) & {*DEVICE, *IDENTITY})


def _of_csv(line: str, dcgm: bool) -> bool:
    """A single word such as `power` occurs in many tables: for nvidia-smi a time, a GPU or a dot confirms."""
    names = _header(line)
    known = {n for n in names if n in FIELDS}
    if len(names) < 2 or not known or _of_dcgm(names) != dcgm:
        return False
    timed = bool(set(names) & {*TIME, *DEVICE}) and len(known) > 1
    return dcgm or timed or any("." in n for n in known)


def _of_script(line: str) -> bool:
    return bool(set(_header(line)) & {*TIME, *DEVICE} and _own_names(line, _delimiter(line)))


SMI_CSV = Layout("nvidia-smi csv", lambda line: _of_csv(line, dcgm=False), _csv_rows)
#: Every layout, in the order in which a line is taken for one.
LAYOUTS = (
    Layout(
        "DCGM exporter",
        lambda line: layouts.EXPORTER.match(line) is not None,
        layouts.of_exporter,
        shares="ratios",
        lines_count=False,
    ),
    Layout(
        "dcgmi dmon",
        lambda line: _of_dmon(line, dcgm=True),
        lambda lines: _spaced_rows(lines, dcgm=True),
        shares="ratios",
    ),
    Layout(
        "nvidia-smi dmon",
        lambda line: _of_dmon(line, dcgm=False),
        lambda lines: _spaced_rows(lines, dcgm=False),
    ),
    Layout(
        "nvidia-smi screens",
        lambda line: layouts.SCREEN.match(line) is not None,
        layouts.of_screens,
        lines_count=False,
    ),
    Layout("tegrastats", layouts.is_tegrastats, layouts.of_tegrastats, numbers="0, the only one", fixed=True),
    Layout(
        "DCGM csv by metric",
        _of_long,
        lambda lines: layouts.joined(_csv_rows(lines, heads=layouts.is_long), TIME, DEVICE, IDENTITY),
        shares="ratios",
        numbers="those of the log, or the order in it where several machines number alike",
        lines_count=False,
    ),
    Layout("DCGM csv", lambda line: _of_csv(line, dcgm=True), _csv_rows, shares="ratios"),
    SMI_CSV,
    Layout(
        "sampler csv",
        _of_script,
        lambda lines: _csv_rows(lines, _own_names),
        shares="either",
        numbers="those of the log",
    ),
)
