"""A capture as a Perfetto trace: work on GPUs and threads, counters, and findings.

Not written: samples of the host and backtraces, records of CUDA events, diagnostics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from advisor.export import overlay
from advisor.export import packets as pb
from advisor.export.trace_file import Layer, Note, TraceFile
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import Kind, Operations, combinations
from advisor.model.arrays import Array, distinct
from advisor.model.findings import Diagnosis
from advisor.sources.schema import ALLOCATED, COPY_KIND_NAMES, MISSING, OPERATIONS, SAMPLE_RATIOS
from advisor.sources.trace import Trace

#: Sampled metrics by column: name and unit. A ratio is written in percent.
_COUNTERS = {name: (overlay.COUNTER_NAMES[name].removesuffix(" %"), "%") for name in SAMPLE_RATIOS} | {
    "sm_clock_hz": ("SM clock", "Hz"),
    "sm_clock_max_hz": ("SM clock limit", "Hz"),
    "power_w": ("power", "W"),
    "power_limit_w": ("power limit", "W"),
    "temperature_c": ("temperature", "C"),
    "memory_used_bytes": ("memory in use", "B"),
    "memory_total_bytes": ("memory", "B"),
    "throttled": ("clocks throttled", ""),
    "overheated": ("throttled by heat", ""),
    "slowed": ("slowed down by the hardware", ""),
    "performance_state": ("performance state", ""),
}
#: Process and thread ids that Perfetto accepts as such.
_LARGEST_ID = 1 << 31


def trace_packets(analysis: Budgeted, diagnosis: Diagnosis, gaps: int = overlay.GAPS) -> Iterator[bytes]:
    """The capture and its findings, piece by piece: the file is never held whole."""
    trace, ops = analysis.trace, analysis.ops
    file = TraceFile(trace.capture.zero_ns)
    yield from _found(file, overlay.events(analysis, diagnosis, gaps))
    tracks = _Tracks(file, trace)
    yield from _gpu_work(file, tracks, trace, ops)
    yield from _host_work(file, tracks, trace, ops)
    yield from _counters(file, tracks, trace)
    yield file.take()


class _Tracks:
    """Tracks of the capture, each described on first use."""

    def __init__(self, file: TraceFile, trace: Trace) -> None:
        self._file = file
        self._known: dict[tuple[object, ...], int] = {}
        self._processes = dict(trace.capture.processes)
        self._threads = dict(trace.capture.threads)
        self._devices = {d.id: d.name for d in trace.devices}

    def _give(self, key: tuple[object, ...], described: bytes) -> int:
        if key not in self._known:
            self._known[key] = self._file.track(described)
        return self._known[key]

    def device(self, device: int) -> int:
        name = f"GPU {device}" + (f", {self._devices[device]}" if self._devices.get(device) else "")
        return self._give(("device", device), pb.text(2, name))

    def below(self, parent: int, name: str, more: bytes = b"") -> int:
        return self._give((parent, name), pb.number(5, parent) + pb.text(2, name) + more)

    def process(self, process: int) -> int:
        name = self._processes.get(process, f"process {process}")
        described = pb.text(2, name)
        if 0 < process < _LARGEST_ID:
            described = pb.block(3, pb.number(1, process) + pb.text(6, name))
        return self._give(("process", process), described)

    def thread(self, process: int, thread: int) -> int:
        described = pb.text(2, self._threads.get(thread, f"thread {thread}"))
        if 0 < process < _LARGEST_ID and 0 <= thread < _LARGEST_ID:
            described = pb.block(4, pb.number(1, process) + pb.number(2, thread))
        return self._give(("thread", process, thread), pb.number(5, self.process(process)) + described)


def _gpu_work(file: TraceFile, tracks: _Tracks, trace: Trace, ops: Operations) -> Iterator[bytes]:
    """Kernels, copies, memsets and graph runs by device, process and stream, joined to their calls."""
    several = len(distinct(ops.process)) > 1

    def stream(device: int, process: int, number: int) -> int:
        name = f"stream {number}" + (f", process {process}" if several else "")
        return tracks.below(tracks.device(device), name)

    track = _by(stream, ops.device, ops.process, ops.stream)
    layers = []
    for kind, category, describe in KINDS:
        mine = np.flatnonzero(ops.kind == kind)
        if len(mine):
            described = describe(trace, ops.row[mine], ops.correlation[mine])
            flow = np.where(ops.api[mine] == MISSING, 0, ops.api[mine] + 1)
            layers.append(Layer(category, ops.start[mine], ops.end[mine], track[mine], *described, flow))
    yield from file.slices(layers)
    if trace.has("page_faults"):
        rows = trace.columns("page_faults", ("start", "end", "device", "count"))
        track = _by(lambda device: tracks.below(tracks.device(device), "page faults"), rows["device"])
        named = _named("page faults", rows["count"], {"count": rows["count"]})
        yield from file.slices([Layer("fault", rows["start"], rows["end"], track, *named)])


#: Name of each row among the names, these, and details.
Described = tuple[Array, Sequence[str], tuple[Note, ...]]


def _kernels(trace: Trace, row: Array, correlation: Array) -> Described:
    shape = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_bytes")
    columns = {n: c[row] for n, c in trace.columns("kernels", ("name_id", *shape)).items()}
    name, names = _texts(trace, columns["name_id"])
    sizes = []
    for what in ("grid", "block"):
        axes = [columns[f"{what}_{axis}"] for axis in "xyz"]
        if (axes[0] != MISSING).any():
            first, index = combinations(*axes)
            rows = zip(*(axis[first].tolist() for axis in axes), strict=True)
            sizes.append(Note(what, index, [" x ".join(map(str, row)) for row in rows]))
    numbers = {"registers": columns["registers"], "shared bytes": columns["shared_bytes"]}
    notes = (*sizes, *_given({**numbers, "correlation": correlation}))
    return name, names, notes


def _alike(title: str, table: str, column: str) -> Callable[[Trace, Array, Array], Described]:
    """What describes rows that all have one name and one number."""

    def describe(trace: Trace, row: Array, correlation: Array) -> Described:
        value = trace.columns(table, (column,))[column][row]
        return _named(title, row, {column: value, "correlation": correlation})

    return describe


def _copies(trace: Trace, row: Array, correlation: Array) -> Described:
    columns = trace.columns("copies", ("kind", "bytes"))
    kinds, name = dense(columns["kind"][row])
    names = [f"Memcpy {COPY_KIND_NAMES.get(k, f'of kind {k}')}" for k in kinds.tolist()]
    notes = _given({"bytes": columns["bytes"][row], "correlation": correlation})
    return name, names, notes


#: What runs on a GPU: kind, category, and what describes rows of its table.
KINDS = (
    (Kind.KERNEL, "kernel", _kernels),
    (Kind.COPY, "copy", _copies),
    (Kind.MEMSET, "memset", _alike("Memset", "memsets", "bytes")),
    (Kind.GRAPH_RUN, "graph", _alike("CUDA graph", "graph_runs", "graph")),
)


def _host_work(file: TraceFile, tracks: _Tracks, trace: Trace, ops: Operations) -> Iterator[bytes]:
    """CUDA calls on the tracks of their threads; ranges, Python and the rest on tracks below."""
    at = ("start", "end", "process", "thread")
    if trace.has("api_calls"):
        rows = trace.columns("api_calls", (*at, "name_id", "correlation", "result"))
        name, names = _texts(trace, rows["name_id"])
        flow = np.zeros(len(name), np.int64)
        issuing = ops.api[ops.api != MISSING]
        flow[issuing] = issuing + 1
        notes = _given({"correlation": rows["correlation"]})
        if rows["result"].any():
            notes += _given({"result": rows["result"]})
        track = _by(tracks.thread, rows["process"], rows["thread"])
        yield from file.slices([Layer("call", rows["start"], rows["end"], track, name, names, notes, flow)])
    for table, text, category, title in (
        ("ranges", "text_id", "range", ""),
        ("python_calls", "text_id", "python", "Python"),
        ("host_calls", "name_id", "host call", "OS calls"),
        ("overheads", "kind_id", "overhead", "profiler"),
    ):
        if not trace.has(table):
            continue
        domain = ("domain",) if table == "ranges" else ()
        rows = trace.columns(table, (*at, text, *domain))
        name, names = _texts(trace, rows[text])

        def below(process: int, thread: int, domain: int = 0, title: str = title) -> int:
            named = title or ("operators" if domain == OPERATIONS else "NVTX")
            if domain > 0:
                named += f", domain {domain}"
            return tracks.below(tracks.thread(process, thread), named)

        track = _by(below, rows["process"], rows["thread"], *(rows[d] for d in domain))
        yield from file.slices([Layer(category, rows["start"], rows["end"], track, name, names)])


def _counters(file: TraceFile, tracks: _Tracks, trace: Trace) -> Iterator[bytes]:
    """Every known sampled value, and the allocated bytes."""
    if trace.has("samples"):
        key = trace.columns("samples", ("time", "device"))
        for column, (name, unit) in _COUNTERS.items():
            described = pb.block(8, pb.text(6, unit) if unit else b"")
            value = trace.columns("samples", (column,))[column]
            for device in distinct(key["device"]).tolist():
                mine = (key["device"] == device) & ~np.isnan(value)
                if mine.any():
                    track = tracks.below(
                        tracks.device(device), name, pb.block(8, pb.text(6, unit) if unit else b"")
                    )
                    values = value[mine] * 100 if unit == "%" else value[mine]
                    yield from file.counter(track, key["time"][mine], values)
    if trace.has("allocations"):
        rows = trace.columns("allocations", ("time", "device", "bytes", "kind"))
        change = np.where(rows["kind"] == ALLOCATED, rows["bytes"], -rows["bytes"])
        order = np.argsort(rows["time"], kind="stable")
        for device in distinct(rows["device"]).tolist():
            mine = order[rows["device"][order] == device]
            title, described = "allocated since the capture began", pb.block(8, pb.text(6, "B"))
            track = tracks.below(tracks.device(device), title, described)
            yield from file.counter(track, rows["time"][mine], np.cumsum(change[mine]))


def _found(file: TraceFile, events: Iterable[overlay.Event]) -> Iterator[bytes]:
    """Findings, steps and idle gaps, on tracks before those of the capture."""
    tracks: dict[tuple[int, int], int] = {}
    slices: dict[tuple[str, ...], list[overlay.Slice]] = {}
    for event in events:
        if isinstance(event, overlay.Name):
            parent = pb.number(5, tracks[event.process, 0]) if event.track else b""
            tracks[event.process, event.track] = file.track(parent + pb.text(2, event.name))
        elif isinstance(event, overlay.Slice):
            slices.setdefault(tuple(event.details), []).append(event)
    yield from file.slices([_layer_of(rows, tracks) for rows in slices.values()])


def _layer_of(rows: Sequence[overlay.Slice], tracks: dict[tuple[int, int], int]) -> Layer:
    """Slices that have the same details."""
    names, name = np.unique([r.name for r in rows], return_inverse=True)
    notes = []
    for key in rows[0].details:
        values = [r.details[key] for r in rows]
        if all(isinstance(v, int) for v in values):
            notes.append(Note(key, np.array(values, np.int64)))
        else:
            texts, value = np.unique([str(v) for v in values], return_inverse=True)
            notes.append(Note(key, value, texts.tolist()))
    places = [(r.start, r.end, tracks[r.process, r.track]) for r in rows]
    start, end, track = np.array(places, np.int64).T
    return Layer("advisor", start, end, track, name, names.tolist(), tuple(notes))


def _named(title: str, rows: Array, notes: dict[str, Array]) -> Described:
    """Rows that all have one name."""
    return np.zeros(len(rows), np.int64), (title,), _given(notes)


def _given(columns: dict[str, Array]) -> tuple[Note, ...]:
    """Details from the columns that have values."""
    return tuple(Note(name, values) for name, values in columns.items() if (values != MISSING).any())


def _texts(trace: Trace, ids: Array) -> tuple[Array, list[str]]:
    """Position of each row's text among the distinct ones, and these."""
    known, name = dense(ids)
    return name, trace.texts(known.tolist())


def _by(track_of: Callable[..., int], *columns: Array) -> Array:
    """Id of the track of each row, looked up once for each combination of the columns."""
    first, index = combinations(*columns)
    rows = zip(*(c[first].tolist() for c in columns), strict=True)
    return np.array([track_of(*row) for row in rows], np.int64)[index]
