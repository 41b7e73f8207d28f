"""A sampler's log as a source: it fills the table `samples` and nothing else; and a trace with the samples of
such a log, joined on absolute time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from advisor.errors import InputError
from advisor.model.capture import Capture, Device, Recorder
from advisor.reading import LONGEST_LINE, decoded, short_lines
from advisor.sources.nsys.samples import with_coarser
from advisor.sources.ranges import possible, share_factor
from advisor.sources.samplers import rows as log_rows
from advisor.sources.samplers.layouts import Row, processes
from advisor.sources.samplers.rows import Layout, Stamp, measured, number, read_stamp
from advisor.sources.schema import FLOAT_COLUMNS, TABLES, Ints
from advisor.sources.trace import Around, Columns, InMemory, Ledger, Source

RECORDER = Recorder(clock="times from the first sample of the log on", samples_only=True)
#: Period of samplers that print no time: the default of both `dmon` tools.
_DEFAULT_PERIOD_NS = 1_000_000_000
_DAY_NS = 86_400 * 10**9
_LAST_GPU = 1_000_000
#: More than a hundred years from 1970: no clock shows it, and differences would leave 64 bits.
_LAST_NS = 2**62


#: Columns of ours that a log should have -> what nvidia-smi and DCGM (number of the field, and its name) call
#: them.
_WANTED = {
    "gr_active": ("utilization.gpu", "203 (DCGM_FI_DEV_GPU_UTIL)"),
    "sm_clock_hz": ("clocks.sm", "100 (DCGM_FI_DEV_SM_CLOCK)"),
    "sm_clock_max_hz": ("clocks.max.sm", "113 (DCGM_FI_DEV_MAX_SM_CLOCK)"),
    "power_w": ("power.draw", "155 (DCGM_FI_DEV_POWER_USAGE)"),
    "power_limit_w": ("power.limit", "160 (DCGM_FI_DEV_POWER_MGMT_LIMIT)"),
    "throttled": ("clocks_throttle_reasons.active", "112 (DCGM_FI_DEV_CLOCK_THROTTLE_REASONS)"),
    "temperature_c": ("temperature.gpu", "150 (DCGM_FI_DEV_GPU_TEMP)"),
    "memory_used_bytes": ("memory.used", "252 (DCGM_FI_DEV_FB_USED)"),
    "memory_total_bytes": ("memory.total", "250 (DCGM_FI_DEV_FB_TOTAL)"),
}
#: Where the documentation has the commands that record all that is read.
_PAGE = "docs/run.md, 'Samples of the GPU', has the line to copy"


class Sample(NamedTuple):
    """One sample of one GPU; `stamp` is None if the tool prints none."""

    stamp: Stamp | None
    device: int
    values: dict[str, float]
    name: str | None = None
    bus_id: str | None = None


class SampleLog(InMemory):
    """The samples of one log as a `Source` of its own; times count from its first sample. `begin_ns` is that
    sample's time since 1970, None if the log does not record it. It is `local` if stamps name no time zone:
    then it is local time."""

    def __init__(
        self, path: Path, layout: Layout, samples: Sequence[Sample], lines: int = 0, longer: int = 0
    ) -> None:
        """`lines`: number of lines of the log that may hold a sample, if it was read from one; `longer`: of
        those that are too long to be one."""
        super().__init__()
        format_name = layout.name
        if not samples:
            raise InputError(f"{path}: a {format_name} log without a single sample")
        found, lines = len(samples), max(lines, len(samples))
        samples = _possible(path, format_name, samples, self.ledger)
        stamps = [s.stamp for s in samples if s.stamp is not None]
        dated = len(stamps) == len(samples) and all(s.dated for s in stamps)
        self.local = not all(s.zoned for s in stamps)
        times, known = _times(samples)
        self.begin_ns = int(np.min(times)) if dated else None
        self._tables["samples"] = columns = _as_columns(samples, times - np.min(times))
        names = {s.device: s.name for s in samples if s.name}
        buses = {s.device: s.bus_id for s in samples if s.bus_id}
        backwards = (columns[name][::-1].tolist() for name in ("device", "memory_total_bytes"))
        sizes = {device: int(total) for device, total in zip(*backwards, strict=True) if total == total}
        self.devices = tuple(
            Device(id=d, name=names.get(d), bus_id=buses.get(d), memory_bytes=sizes.get(d))
            for d in sorted({s.device for s in samples})
        )
        warning = "the log has no time stamps: its samples are taken to be a second apart"
        tool, lost = format_name.split()[0], lines - found
        self.lacking = () if layout.fixed else _lacking(format_name, columns)
        self.capture = Capture(
            path=str(path),
            format=format_name,
            recorder=RECORDER,
            size_bytes=path.stat().st_size if path.exists() else 0,
            producer=tool,
            start_utc_ns=self.begin_ns,
            device_numbers=layout.numbers or f"those of {tool}, in the order of the PCI bus",
            warnings=(*(() if known else (warning,)), *self.lacking),
        )
        self.ledger.note("dropped", "lines cut short or without a value", "samples", lost, lines)
        self.ledger.note(
            "dropped", f"lines of more than {LONGEST_LINE:,} characters", "samples", longer, lines + longer
        )


def _lacking(kind: str, columns: Columns) -> tuple[str, ...]:
    """The columns that the log lacks, by the names of its tool, in one sentence; none if it has all."""
    dcgm = "dcgm" in kind.lower()
    names = [of[dcgm] for column, of in _WANTED.items() if np.isnan(columns[column]).all()]
    if not names:
        return ()
    add = "to `dcgmi dmon -e` or the list of the exporter" if dcgm else "to `nvidia-smi --query-gpu`"
    return (f"columns that the log lacks: {', '.join(names)}; add them {add} ({_PAGE})",)


def looks_like_log(head: bytes) -> bool:
    """True when the beginning of a file is that of a sampler's log."""
    return log_rows.recognise(_lines(head)[0]) is not None


def read_log(path: Path, shown: Path | None = None) -> SampleLog:
    """Read a sampler's log; `shown` is how the user named it. Raises InputError for anything else."""
    shown = shown or path
    try:
        lines, longer = _lines(path.read_bytes())
    except OSError as fault:
        raise InputError(f"{shown}: cannot be read ({fault.strerror or fault})") from fault
    layout = log_rows.recognise(lines)
    if layout is None:
        raise InputError(
            f"{shown}: no sampler log that is known here; make one with `nvidia-smi --format=csv "
            "--query-gpu=timestamp,index,utilization.gpu,clocks.sm,power.draw,memory.used -lms 100`"
        )
    try:
        samples = list(_samples(shown, layout.rows(lines)))
        if layout.shares == "either":
            samples = _with_shares(samples)
        elif layout.shares == "ratios":
            samples = _with_ratios(samples)
        log = SampleLog(shown, layout, samples, _of_samples(lines) if layout.lines_count else 0, longer)
        if run := processes(lines):  # which screens of nvidia-smi list
            log.capture = log.capture.replaced(options={"processes": " ".join(run)})
        return log
    except csv.Error as fault:
        raise InputError(
            f"{shown}: not a {layout.name} log that can be read ({fault}); record it again"
        ) from fault


def _with_shares(samples: list[Sample]) -> list[Sample]:
    """Scripts write shares as a ratio or in percent: the values show which."""
    factors = {}
    for column, factor in (
        ("gr_active", 0.01),
        ("sm_active", 1.0),
        ("tensor_active", 1.0),
        ("dram_read", 1.0),
    ):
        given = [s.values[column] / factor for s in samples if column in s.values]
        # Whole numbers up to 1 are what the heading says: percent of a utilisation, ratios of an activity.
        in_percent = max(given, default=0) > 1 or (factor < 1 and not any(v % 1 for v in given))
        factors[column] = (0.01 if in_percent else 1.0) / factor
    return [s._replace(values={c: v * factors.get(c, 1.0) for c, v in s.values.items()}) for s in samples]


def _with_ratios(samples: list[Sample]) -> list[Sample]:
    """Shares of DCGM's profiling fields are ratios; some exporters state percent under their names."""
    columns = ("gr_active", "sm_active", "tensor_active", "dram_read")
    factors = {c: share_factor(s.values[c] for s in samples if c in s.values) for c in columns}
    return [s._replace(values={c: v * factors.get(c, 1.0) for c, v in s.values.items()}) for s in samples]


def _possible(path: Path, kind: str, samples: Sequence[Sample], ledger: Ledger) -> list[Sample]:
    """The samples whose values can be; InputError if there are none."""
    rows = possible([s.values for s in samples], "samples", ledger)
    kept = [s._replace(values=row) for s, row in zip(samples, rows, strict=True) if row]
    if not kept:
        raise InputError(
            f"{path}: a {kind} log of values that cannot be, such as shares above 100 % or below 0; "
            "give the log as the tool wrote it"
        )
    return kept


def _lines(data: bytes) -> tuple[list[str], int]:
    """The non-empty lines, and how many are too long to be one."""
    lines, longer = short_lines(decoded(data))
    return [line for line in lines if line.strip()], longer


def _of_samples(lines: Sequence[str]) -> int:
    """Number of lines that begin with a digit or name a GPU, which headers and notes do not."""
    return sum(line.lstrip(' "').lower().startswith((*"0123456789", "gpu ")) for line in lines)


def _samples(shown: Path, found: Iterable[Row]) -> Iterable[Sample]:
    numbers: dict[str, int] = {}
    seen: set[int] = set()
    for row in found:
        values = measured(row)
        if not values:
            continue
        name = next((row[n].strip() for n in log_rows.MODEL if n in row), None)
        device = _device(row, numbers)
        if name is None and device is None and "gpu" in row:
            name = row["gpu"].strip()  # which has no number
        stamp = _stamp(row)
        if device is None and any(n in row and number(row[n]) is not None for n in log_rows.DEVICE):
            continue  # no number of a GPU
        if stamp is not None and abs(stamp.ns) >= _LAST_NS:
            continue  # counted as an unreadable line
        if device is None:  # a log that does not distinguish them has one GPU
            if stamp is not None and stamp.ns in seen:
                raise InputError(
                    f"{shown}: several samples at one time and no column that identifies the GPU; "
                    "add `index` to --query-gpu"
                )
            if stamp is not None:
                seen.add(stamp.ns)
            device = 0
        bus_id = next((row[n].strip() for n in log_rows.BUS if n in row), None)
        yield Sample(stamp, device, values, name, bus_id)


def _device(row: Row, numbers: dict[str, int]) -> int | None:
    """The GPU's number; GPUs known by an identity only are numbered in order of appearance."""
    for name in log_rows.DEVICE:
        value = number(row[name].lower().removeprefix("gpu")) if name in row else None
        if value is not None:
            return int(value) if 0 <= value <= _LAST_GPU else None
    identity = next((row[n] for n in log_rows.IDENTITY if n in row), None)
    return None if identity is None else numbers.setdefault(identity, len(numbers))


def _stamp(row: Row) -> Stamp | None:
    if "date" in row and "time" in row:
        return read_stamp(f"{row['date']} {row['time']}")
    return next((found for n in log_rows.TIME if n in row and (found := read_stamp(row[n]))), None)


def _times(samples: Sequence[Sample]) -> tuple[Ints, bool]:
    """ns of each sample from a common zero, and whether the log states its times."""
    stamps = [s.stamp for s in samples]
    times = np.empty(len(samples), np.int64)
    if all(s is not None for s in stamps):
        times[:] = [s.ns for s in stamps if s is not None]
        if not any(s.dated for s in stamps if s is not None):  # midnight may lie in between
            times += _DAY_NS * np.cumsum(np.diff(times, prepend=times[0]) < -_DAY_NS // 2)
        return times, True
    count: dict[int, int] = {}
    for i, sample in enumerate(samples):
        seen = count[sample.device] = count.get(sample.device, -1) + 1
        times[i] = seen * _DEFAULT_PERIOD_NS
    return times, False


def _as_columns(samples: Sequence[Sample], times: Ints) -> Columns:
    columns: Columns = {"time": times, "device": np.array([s.device for s in samples], np.int64)}
    for name in TABLES["samples"]:
        if name in FLOAT_COLUMNS:
            columns[name] = np.array([s.values.get(name, np.nan) for s in samples])
    order = np.argsort(times, kind="stable")
    return {name: values[order] for name, values in columns.items()}


# --- a trace with the samples of a log -------------------------------------------------------------

#: Time zones are a multiple of this from UTC, between these hours.
_ZONE_STEP_S = 900
_ZONES_S = range(-12 * 3600, 14 * 3600 + 1, _ZONE_STEP_S)


class WithSamples(Around):
    """`source` with the samples of `log` in its table `samples`, in the source's own time. If it has
    samples itself, which are finer, the log only fills columns that these lack.

    GPUs are matched by their PCI address, which both tools share: numbers of CUDA, nsys and the driver
    may differ. If one of them does not record it, the numbers are assumed to agree. Raises InputError if
    the two share no clock and `offset_ns` is not given, or if they do not overlap.
    """

    def __init__(self, source: Source, log: SampleLog, offset_ns: int | None) -> None:
        super().__init__(source)
        self._log = log
        self.ledger.update(log.ledger)
        warnings = [w for w in log.capture.warnings if w not in log.lacking]
        self._own_number, note = _numbers(source, log)
        warnings += note
        if offset_ns is not None:
            self._shift = offset_ns
            if not _meets(source, log, offset_ns):
                raise _missed(source, log, offset_ns, None)
        elif log.begin_ns is not None and source.capture.start_utc_ns is not None:
            self._shift, note = _joined(source, log)
            warnings += note
        else:
            without = log.capture if log.begin_ns is None else source.capture
            raise InputError(
                f"--gpu-metrics: {without.path} does not record its absolute time; say where the log "
                "begins in session time with --gpu-metrics-offset, such as 1.5s"
            )
        self.capture = source.capture.replaced(
            warnings=(*source.capture.warnings, *(f"GPU samples: {w}" for w in warnings))
        )

    def tables(self) -> frozenset[str]:
        return self._source.tables() | {"samples"}

    def read_columns(self, table: str, columns: Sequence[str]) -> Columns:
        if table != "samples":
            return self._source.read_columns(table, columns)
        wanted = list(dict.fromkeys(("time", "device", *columns)))
        read = self._log.read_columns("samples", wanted)
        read["time"] = np.asarray(read["time"] + self._shift)
        if self._own_number:
            numbers = [self._own_number.get(d, d) for d in read["device"].tolist()]
            read["device"] = np.array(numbers, np.int64)
        if table in self._source.tables():
            read = with_coarser(self._source.read_columns("samples", wanted), read)
        return {name: read[name] for name in columns}


def _numbers(source: Source, log: SampleLog) -> tuple[dict[int, int], list[str]]:
    """The source's number of each GPU of the log that has another one there, and a remark about it. A GPU
    of the log that the source does not list gets an unused number."""
    own = {_address(d.bus_id): d.id for d in source.devices if d.bus_id}
    if own and all(d.bus_id for d in log.devices):
        free = 1 + max(own.values())
        wanted = {d.id: own.get(_address(d.bus_id), free + i) for i, d in enumerate(log.devices)}
        return {theirs: mine for theirs, mine in wanted.items() if theirs != mine}, []
    if max(len(source.devices), len(log.devices)) < 2:
        return {}, []
    note = "device numbers of the log are taken for those of the capture; record pci.bus_id to match them"
    return {}, [note]


def _address(bus_id: str | None) -> str:
    """One spelling of a PCI address: nvidia-smi writes the domain with eight digits."""
    domain, _, rest = (bus_id or "").lower().partition(":")
    return f"{domain.lstrip('0') or '0'}:{rest}" if rest.count(":") else (bus_id or "").lower()


def _joined(source: Source, log: SampleLog) -> tuple[int, list[str]]:
    """Session time of the log's first sample, and a remark about it. A log without time zones shows local
    time: that of the traced machine, else UTC. If the trace does not record its zone, it is the only one in
    which the two overlap."""
    begun = (log.begin_ns or 0) - (source.capture.start_utc_ns or 0)
    own = source.capture.utc_offset_s
    likely = dict.fromkeys((own or 0, 0)) if log.local else (0,)
    for zone in likely:
        if _meets(source, log, begun - zone * 10**9):
            return begun - zone * 10**9, []
    if log.local and own is None:
        fitting = [zone for zone in _ZONES_S if _meets(source, log, begun - zone * 10**9)]
        if len(fitting) == 1:
            note = f"their stamps are taken for {_zone(fitting[0])}, the only time zone in which"
            return begun - fitting[0] * 10**9, [f"{note} they meet the capture"]
    raise _missed(source, log, begun - (own or 0) * 10**9, source.capture.start_utc_ns)


def _zone(seconds: int) -> str:
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"UTC{'-' if seconds < 0 else '+'}{hours:02d}:{minutes:02d}"


def _span(source: Source, log: SampleLog, shift: int) -> tuple[int, int, int | None]:
    """First and last sample in session time, and the end of the capture, if recorded."""
    last = source.capture.duration_ns
    if last is None:
        held = source.tables() & {"kernels", "api_calls"}
        last = max((int(source.read_columns(t, ("end",))["end"].max()) for t in held), default=None)
    return shift, int(log.read_columns("samples", ("time",))["time"][-1]) + shift, last


def _meets(source: Source, log: SampleLog, shift: int) -> bool:
    begin, end, last = _span(source, log, shift)
    return end >= 0 and (last is None or begin <= last)


def _missed(source: Source, log: SampleLog, shift: int, zero: int | None) -> InputError:
    """`zero` is the absolute time of the session's 0, if they were joined by it."""
    begin, end, _ = _span(source, log, shift)
    if zero is None:
        when = f"run from {begin / 1e9:.3f}s to {end / 1e9:.3f}s of the session"
    else:
        when = f"are of {_moment(zero + begin)} to {_moment(zero + end)}, UTC, the capture of "
        when += _moment(zero)
    return InputError(
        f"--gpu-metrics: the samples {when}: they miss the capture; say where the log begins in "
        "session time with --gpu-metrics-offset"
    )


def _moment(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}"
