"""Start-up and tear-down: work at the beginning and end of a program that a steady state does not repeat.

Host time is cold while a thread creates a context, loads modules (at the first launch of a kernel, with lazy
loading), initialises a library, builds a graph, tries kernels, or is inside a range named warm-up, autotuning
or compilation. It is cold wherever it stands; cold time at the head of a capture is set aside whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from advisor.metrics import limits
from advisor.metrics.intervals import EMPTY, Coverage, Spans, joined, subtract, union, union_by
from advisor.metrics.loaded.captured import Captured
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import Kind, Operations, Runs, combinations, first_work
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.autotuning import compiled, trials
from advisor.metrics.steps.model import Steps
from advisor.model.arrays import Array, among, distinct, median_of, merged, picked, where, without
from advisor.sources.schema import HTOD, ISSUING, MISSING, PAGEABLE, Call
from advisor.sources.trace import Columns, Trace

#: The kinds of start-up, in order of precedence.
KINDS = ("context", "modules", "libraries", "graphs", "ranges", "upload", "allocation", "autotuning")


class Event(NamedTuple):
    """One stretch of start-up or tear-down, in ns; of a thread, MISSING if only calls name one."""

    kind: str
    what: str
    start: int
    end: int
    thread: int = MISSING


class Startup(Struct, frozen=True):
    """The steady part may begin at `end`. `cold` are the host times of start-up by thread, `parts` the
    exclusive time of each of KINDS, `teardown` the time after the last GPU work. `worked`, ns, is the time
    from start-up to that work, without pauses between the programs of the capture."""

    begin: int
    end: int
    worked: int
    events: tuple[Event, ...] = ()
    cold: dict[int, Spans] = field(default_factory=dict)
    parts: dict[str, Spans] = field(default_factory=dict)
    teardown: Spans = EMPTY

    @property
    def spans(self) -> Spans:
        """Start-up wherever it stands: the head of the capture, and cold calls after it."""
        head = Spans(np.array([self.begin]), np.array([max(self.end, self.begin)]))
        return joined(head, *self.cold.values())

    @property
    def length(self) -> int:
        return self.spans.total

    @property
    def warm(self) -> bool:
        """The program had run before: start-up is at most a few first launches or module loads."""
        mine = [e for e in self.events if e.kind != "teardown"]
        return len(mine) <= limits.window.STRAY_LOADS and all(e.kind == "modules" for e in mine)

    @property
    def capture_length(self) -> int:
        """Length that shares of the capture refer to, ns: calls far before and after do not count."""
        return self.worked + self.teardown.total


def activity_span(trace: Trace, ops: Operations) -> tuple[int, int]:
    """From the first to the last CUDA event recorded: calls and GPU operations; without any, from the first
    to the last GPU sample."""
    start, end = trace.columns("api_calls", ("start", "end")).values()
    if not len(ops) and not len(start):
        time = trace.columns("samples", ("time",))["time"]
        return (int(time.min()), int(time.max()) + 1) if len(time) else (0, 0)
    first = min(int(times.min()) for times in (ops.start, start) if len(times))
    return first, max(int(times.max()) for times in (ops.end, end) if len(times))


def work_span(trace: Trace, ops: Operations) -> tuple[int, int]:
    """From the first to the last GPU operation, or call that issues one, ns; the activity span if there is
    none. Other calls are left out: they may lie seconds before or after."""
    calls = trace.columns("api_calls", ("start", "end", "call"))
    issues = among(calls["call"], ISSUING)
    if not len(ops) and not issues.any():
        return activity_span(trace, ops)
    int64 = np.iinfo(np.int64)
    first = min(ops.start.min(initial=int64.max), calls["start"][issues].min(initial=int64.max))
    return int(first), int(max(ops.end.max(initial=int64.min), calls["end"][issues].max(initial=int64.min)))


def find_startup(a: Loaded, steps: Steps) -> Startup:
    """Start-up of a capture, as far as it lies before these steps."""
    trace, ops, ranges = a.trace, a.ops, a.ranges
    first, last = work_span(trace, ops)
    if not len(ops):
        return Startup(first, first, last - first)  # of an unknown program
    run = ops.take(where(a.runs.holds(ops.start)))
    time_of = _kernel_time_quantile(run)
    limit = late = time_of(limits.window.LATE_RATIO)
    if len(steps):
        # Loads by the steps themselves are cold, but no head of the capture; those of the only one are until
        # it has work.
        limit = min(limit, int((steps.host_start if len(steps) > 1 else steps.gpu_start)[0]))
    calls = trace.columns("api_calls", ("start", "end", "thread", "call", "name_id", "process"))
    found = _cold_calls(trace, calls, ops, a.op_name, a.runs) if len(calls["start"]) else {}
    events: list[Event] = []
    counted = np.empty(0, np.int64)
    for kind in (k for k in KINDS if k in found):
        events += _longest_calls(trace, calls, kind, without(found[kind], counted))
        counted = merged(counted, found[kind])
    if upload := _upload(trace, run, min(limit, time_of(limits.window.UPLOAD_UNTIL_RATIO)), a.runs):
        events.append(upload)
    spans = ranges.rows([i for i, role in a.roles.items() if role == "startup"])
    for text, *times in zip(*(spans[n][:20].tolist() for n in ("text", "start", "end")), strict=True):
        events.append(Event("ranges", ranges.texts[text], *times))
    tuned = [Event("autotuning", *row) for row in trials(a, calls, late, steps)]
    tuned += _captured(a.captured, calls)
    events += tuned
    mine = [e for e in events if a.runs.since <= e.start < a.runs.until]
    first = min([first, *(e.start for e in events)])
    begin = max(first, a.runs.since)
    # A range named start-up may hold most of the work, if some work follows.
    until = limit if len(steps) else time_of(limits.window.LATE_RANGE_RATIO)
    end = _head(begin, [e for e in mine if e.end <= (until if e.kind == "ranges" else limit)])
    # A kernel may run before its launch call, the last one that is cold, has returned.
    loads = found.get("modules", counted)
    ran = run.start[among(run.api, loads[calls["end"][loads] == end])]
    end = max(int(ran.min(initial=end)), begin)
    if len(steps) and end < steps.gpu_start[0]:
        end = max(end, min(int(steps.host_start[0]), int(steps.gpu_start[0]))) if end > begin else begin
    parts = _parts(calls, found, events)
    teardown = _teardown(calls, ops)
    if len(teardown):
        events.append(Event("teardown", "frees and unloads", int(teardown.start[0]), int(teardown.end[-1])))
    events.sort(key=lambda e: e.start)
    tried = np.array([(e.thread, e.start, e.end) for e in tuned], np.int64).reshape(-1, 3).T
    built = compiled(a, calls, found.get("modules", counted[:0]), first)
    columns = [(calls[n][counted], spans[n]) for n in ("thread", "start", "end")]
    parts_of = zip(columns, tried, built, strict=True)
    cold = union_by(*(np.concatenate((*some, *more)) for some, *more in parts_of))
    opens = np.sort(np.concatenate((ops.start, [e.start for e in events])), kind="stable")  # one merge
    pauses = int((opens[np.searchsorted(opens, a.runs.ends)] - a.runs.ends).sum())
    return Startup(begin, end, int(last) - int(first) - pauses, tuple(events), cold, parts, teardown)


def _cold_calls(
    trace: Trace, calls: Columns, ops: Operations, op_name: Array, runs: Runs
) -> dict[str, Array]:
    """Rows of api_calls that are start-up, by kind; kinds without any are left out."""
    whole = calls["end"] - calls["start"]
    long = np.flatnonzero(whole >= limits.window.MODULE_LOAD_NS)  # few, and all that may be start-up
    length, kind, start = whole[long], calls["call"][long], calls["start"][long]
    keys, process = dense(runs.keys(calls["process"][long], start))
    own = runs.keys(ops.process, ops.start)
    first = first_work(keys, own, ops.start)[process]
    ran = np.flatnonzero(ops.kind == Kind.KERNEL)
    kernel = first_work(keys, picked(own, ran), picked(ops.start, ran))[process]
    slow = (length >= limits.window.CONTEXT_NS) & (start < first)
    slow &= ~among(kind, (Call.SYNC, Call.COPY, Call.MODULE))
    at = np.flatnonzero(slow)
    at = at[np.lexsort((start[at], process[at]))]
    context = long[at[np.unique(process[at], return_index=True)[1]]]
    at = np.flatnonzero(
        (kind == Call.ALLOC) & (length >= limits.window.SETUP_CALL_NS) & (calls["end"][long] <= first)
    )
    allocation = without(long[at], context)
    loads = long[(kind == Call.MODULE) & (start < int(ops.end.max()))]
    modules = np.concatenate((loads, _first_launches(calls, ops, op_name, whole, own)))
    found: dict[str, Any] = {
        "context": context,
        "modules": modules,
        "allocation": allocation,
        "libraries": without(_library_calls(calls, long, first, kernel, modules), allocation),
        "graphs": _graph_calls(trace, calls, long),
    }
    return {k: np.asarray(rows, np.int64) for k, rows in found.items() if len(rows)}


def _library_calls(calls: Columns, long: Array, first: Array, kernel: Array, modules: Array) -> Array:
    """Handles and workspaces come with the first use of a library: before its last kernel is loaded, and all
    of them where the process has had no work yet; what is allocated or freed, before it ran a kernel. `first`
    work and first `kernel`: one time for each of the calls."""
    setup = among(calls["call"][long], (Call.ALLOC, Call.FREE, Call.OTHER))
    setup &= calls["end"][long] - calls["start"][long] >= limits.window.SETUP_CALL_NS
    never = np.iinfo(np.int64).max
    before = setup & (calls["end"][long] <= first) & (first < never)
    loading = calls["start"][long] < int(calls["end"][modules].max(initial=np.iinfo(np.int64).min))
    early = (calls["call"][long] != Call.OTHER) & (calls["end"][long] <= kernel) & (kernel < never)
    later = setup & ~before & (loading | early)
    rows = long[later]
    _, name, count = np.unique(calls["name_id"][rows], return_inverse=True, return_counts=True)
    return np.concatenate((long[before], rows[count[name] <= limits.window.SETUP_CALLS]))


def _graph_calls(trace: Trace, calls: Columns, long: Array) -> Array:
    """Calls that build graphs."""
    other = long[calls["call"][long] == Call.OTHER]
    names = trace.texts(calls["name_id"][other].tolist())
    builders = ("GraphInstantiate", "EndCapture", "GraphUpload")
    built = [i for i, name in zip(other.tolist(), names, strict=True) if any(b in name for b in builders)]
    return _before_replays(calls, np.array(built, np.int64))


def _before_replays(calls: Columns, rows: Array) -> Array:
    """Of calls that build graphs, those ahead of the first replay of their process, and the others if most
    replays build nothing and building does not come back: a loop that builds its graphs anew, in each step
    or in some all along, has no start-up of that kind."""
    if not len(rows):
        return rows
    replays = np.flatnonzero(calls["call"] == Call.GRAPH_LAUNCH)
    keys, process = dense(calls["process"])
    first = first_work(keys, calls["process"][replays], calls["start"][replays])
    early = calls["start"][rows] < first[process[rows]]
    late = rows[~early]
    # How many replays each was behind: calls without one between them build one graph.
    behind = distinct(np.searchsorted(np.sort(calls["start"][replays]), calls["start"][late]))
    again = len(behind) > limits.window.SETUP_CALLS and behind[-1] > len(replays) // 2
    often = len(late) > max(limits.window.SETUP_CALLS, len(replays) // 2)
    return rows[early] if again or often else rows


def _captured(found: Captured, calls: Columns) -> list[Event]:
    """Captures of graphs that are built once: the host runs the model, the device does not."""
    first, last = found.first, found.last
    kept = np.isin(first, _before_replays(calls, first))
    columns = calls["start"][first], calls["end"][last], calls["thread"][first]
    rows = zip(*(column[kept].tolist() for column in columns), strict=True)
    return [Event("graphs", "capture of a graph", *row) for row in rows]


def _first_launches(calls: Columns, ops: Operations, op_name: Array, length: Array, own: Array) -> Array:
    """Rows of calls that launch a kernel for the first time and take far longer than launches do. Calls
    that wait while the device works are blocked on a full queue, not cold."""
    at = np.flatnonzero((op_name >= 0) & (ops.api >= 0))
    if not len(at):
        return np.empty(0, np.int64)
    first, _ = combinations(picked(own, at), picked(op_name, at))
    rows = distinct(ops.api[at[first]])
    cold = []
    for kind, least in (
        (Call.LAUNCH, limits.window.MODULE_LOAD_NS),
        (Call.GRAPH_LAUNCH, limits.window.SETUP_CALL_NS),
    ):
        every = length[calls["call"] == kind]
        if len(every):
            usual = limits.window.COLD_LAUNCH_FACTOR * median_of(every)
            # Where most launches are first ones, their median is that of cold launches.
            limit = max(least, min(usual, limits.window.SETUP_CALL_NS) if kind == Call.LAUNCH else usual)
            cold.append(rows[(calls["call"][rows] == kind) & (length[rows] >= limit)])
    rows = np.concatenate(cold) if cold else np.empty(0, np.int64)
    if not len(rows):
        return rows
    busy = Coverage(union(ops.start, ops.end)).within(calls["start"][rows], calls["end"][rows])
    return np.asarray(rows[busy <= limits.window.COLD_BUSY_RATIO * length[rows]])


def _longest_calls(trace: Trace, calls: Columns, kind: str, rows: Array) -> list[Event]:
    """The longest of these calls, each with its name."""
    length = calls["end"][rows] - calls["start"][rows]
    rows = rows[np.argsort(-length, kind="stable")][:20]
    names = trace.texts(calls["name_id"][rows].tolist())
    times = calls["start"][rows].tolist(), calls["end"][rows].tolist()
    return [Event(kind, name, start, end) for name, start, end in zip(names, *times, strict=True)]


def _parts(calls: Columns, found: dict[str, Array], events: list[Event]) -> dict[str, Spans]:
    """Time of each kind of start-up; time of two kinds counts for the first in KINDS."""
    out: dict[str, Spans] = {}
    taken = EMPTY
    for kind in KINDS:
        times = [(e.start, e.end) for e in events if e.kind == kind]
        start, end = np.array(times, np.int64).reshape(-1, 2).T
        if kind in found:
            rows = found[kind]  # events name only the longest of them
            start, end = np.append(start, calls["start"][rows]), np.append(end, calls["end"][rows])
        own = union(start, end)
        alone = subtract(own, taken)
        if alone.total:
            out[kind] = alone
            taken = joined(taken, own)
    return out


def _head(begin: int, events: list[Event]) -> int:
    """Where the head of the capture ends: with an upload or a named range, or where most is cold."""
    loads = ("cuLibrary", "cuModule", "hipModule")
    whole = ("ranges", "upload", "allocation", "autotuning")
    end = max([begin, *(e.end for e in events if e.kind in whole or e.what.startswith(loads))])
    starts, ends = np.array([(e.start, e.end) for e in events], np.int64).reshape(-1, 2).T
    cold = Coverage(union(starts, ends)).within(np.full(len(ends), begin), ends)
    mostly = ends[cold >= limits.window.COLD_HEAD_RATIO * (ends - begin)]
    return max(end, int(mostly.max(initial=begin)))


def _teardown(calls: Columns, ops: Operations) -> Spans:
    """Frees, unloads and long calls of other kinds after the last GPU work."""
    late = np.flatnonzero(calls["start"] >= int(ops.end.max()))
    start, end, call = (calls[name][late] for name in ("start", "end", "call"))
    last = among(call, (Call.FREE, Call.MODULE)) | (
        (call == Call.OTHER) & (end - start >= limits.window.MODULE_LOAD_NS)
    )
    return union(start[last], end[last])


def _kernel_time_quantile(ops: Operations) -> Callable[[float], int]:
    """The time by which a share of the kernel time has run."""
    kernel = where(ops.kind == Kind.KERNEL)
    if not len(ops.kind[kernel]):
        return lambda _: int(np.iinfo(np.int64).max)
    done = np.cumsum(np.maximum(ops.length, 0)[kernel], dtype=float)  # times that cannot be leave 64 bits
    return lambda share: int(ops.end[kernel][np.searchsorted(done, share * done[-1])])


def _upload(trace: Trace, ops: Operations, limit: int, runs: Runs) -> Event | None:
    """The upload of weights: most of the uploaded bytes, before the work has got going."""
    if not trace.has("copies"):
        return None
    copies = trace.columns("copies", ("start", "end", "bytes", "kind", "src_memory"))
    htod = (copies["kind"] == HTOD) & runs.holds(copies["start"])
    early = htod & (copies["end"] <= limit)
    moved, all_bytes = copies["bytes"][early].sum(), copies["bytes"][htod].sum()
    if moved < limits.window.UPLOAD_BYTES or moved < limits.window.UPLOAD_RATIO * all_bytes:
        return None
    start, end = copies["start"][early], copies["end"][early]
    after = int(((ops.kind == Kind.KERNEL) & (ops.start >= int(end.max()))).sum())
    if after < max(limits.window.UPLOAD_KERNELS, int(early.sum())):
        return None
    rate = moved / max(union(start, end).total, 1)
    pageable = copies["bytes"][early & (copies["src_memory"] == PAGEABLE)].sum()
    kind = " from pageable memory" if pageable >= limits.window.UPLOAD_PAGEABLE_RATIO * moved else ""
    what = f"upload of {moved / 1e9:.2f} GB at {rate:.3g} GB/s{kind}"
    return Event("upload", what, int(start.min()), int(end.max()))
