"""A trace with the GPU samples of another log: the two are joined on absolute time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from advisor.errors import InputError
from advisor.model.arrays import distinct, median_of
from advisor.reading import similar
from advisor.sources.schema import FLOAT_COLUMNS
from advisor.sources.trace import Around, Columns, Source, Trace

if TYPE_CHECKING:
    from advisor.sources.samplers.log import SampleLog


#: The last sample of the log is valid for this many periods; after that the sampler was not running.
_HELD = 2.0
#: Time zones are a multiple of this from UTC, between these hours.
_ZONE_STEP_S = 900
_ZONES_S = range(-12 * 3600, 14 * 3600 + 1, _ZONE_STEP_S)


def with_samples(trace: Trace, log: Path, offset_ns: int | None) -> Trace:
    """`trace` with the samples of a sampler's log; closing it closes both. `offset_ns` is the start of
    the log in session time. Raises InputError if the two cannot be joined."""
    if not log.is_file():
        what = "not a regular file; save it to disk first" if log.exists() else f"no such file{similar(log)}"
        raise InputError(f"--gpu-metrics: {log}: {what}")
    from advisor.sources.samplers.log import read_log

    return Trace(WithSamples(trace.source, read_log(log), offset_ns))


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
        warnings = list(log.capture.warnings)
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


def with_coarser(own: Columns, other: Columns) -> Columns:
    """`own` samples; columns without values are filled from the latest of `other`, valid for two periods."""
    filled = dict(own)
    lacking = [n for n in own if n in other and n in FLOAT_COLUMNS and np.isnan(own[n]).all()]
    for device in distinct(other["device"]).tolist() if lacking else ():
        theirs = np.flatnonzero(other["device"] == device)
        mine = np.flatnonzero(own["device"] == device)
        time = other["time"][theirs]
        at = np.searchsorted(time, own["time"][mine], "right") - 1
        hold = _HELD * median_of(np.diff(time)) if len(time) > 1 else np.inf
        held = (at >= 0) & (own["time"][mine] - time[np.maximum(at, 0)] <= hold)
        for name in lacking:
            filled[name] = filled[name].copy()
            filled[name][mine[held]] = other[name][theirs[at[held]]]
    return filled


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
