"""The budget: the window of a device divided into exclusive parts that add up to 100 %.

The owner of a gap is the thread that issued the operation that ends it; the gap goes to what that
thread was doing (docs/definitions.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from advisor.metrics import limits
from advisor.metrics.intervals import EMPTY, Coverage, Spans, gaps, intersect, positions, subtract, union
from advisor.metrics.loaded.host import HostStates, Slice, Threads, ThreadStates, held_by_others
from advisor.metrics.loaded.operations import Kind, Operations, Rows, of_copies, times_of
from advisor.metrics.stepped.stage import Stepped
from advisor.metrics.stepped.window import Window
from advisor.model import parts
from advisor.model.arrays import Array, among, distinct, run_of
from advisor.sources.schema import DTOH, HTOD, MIGRATIONS, MISSING, Call
from advisor.sources.trace import Trace

BUSY_PARTS, IDLE_PARTS, PARTS = tuple(parts.BUSY), tuple(parts.IDLE), tuple(parts.PARTS)
BUSY_COLUMNS = [PARTS.index(p) for p in BUSY_PARTS]
#: Idle that launching kernels one by one causes.
LAUNCHING = ("launch_call", "launch_latency", "host_between_launches")


#: Gaps are processed in pieces that fit into the cache.
_CHUNK = 1 << 17


class Gaps(Rows, frozen=True):
    """One entry a gap, ascending. `next_op` indexes the device's operations, MISSING if the
    gap ends at the window's or a hole's edge, `prev_op` the one whose end began it; call columns
    belong to the call that issued `next_op`."""

    start: Array
    end: Array
    next_op: Array
    prev_op: Array
    call_end: Array
    call: Array
    thread: Array
    process: Array
    internal: Array  # between two nodes of one graph run
    crosses_step: Array
    migrated: Array  # ends with a migration of unified memory
    held: Array  # a process outside the capture has the device for most of it, after the call's return

    @property
    def length(self) -> Array:
        return self.end - self.start

    @property
    def queued(self) -> Array:
        """Gaps that began when the next operation had long been launched."""
        return np.asarray((self.call != MISSING) & (self.call_end + limits.host.LATE_LAUNCH_NS <= self.start))


def device_gaps(
    trace: Trace, ops: Operations, op_step: Array, window: Window, migration: Array, others: Spans
) -> tuple[Gaps, Spans]:
    """Gaps and busy union of one device's operations (sorted by start) inside the window;
    `migration` is a mask of operations that move pages of unified memory, `others` when a process outside
    the capture has the device."""
    busy = union(ops.start, ops.end)
    idle = subtract(gaps(busy, window.start, window.end), window.holes)
    after = positions(ops.start, idle.end)
    at = np.minimum(after, len(ops) - 1)
    known = (after < len(ops)) & (ops.start[at] == idle.end)
    # The operation that ended last before the gap.
    prev = np.maximum(at - 1, 0)
    if (ops.end[1:] < ops.end[:-1]).any():
        latest = ops.end >= np.maximum.accumulate(ops.end)
        prev = np.maximum.accumulate(np.where(latest, np.arange(len(ops)), 0))[prev]
    has_prev = known & (at > 0)
    internal = np.zeros(len(at), bool)
    if ops.graph_node.any():
        internal = has_prev & (ops.graph_node[at] != 0) & (ops.graph_node[prev] != 0)
        internal &= (ops.correlation[at] == ops.correlation[prev]) & (ops.process[at] == ops.process[prev])
    crosses = has_prev & (op_step[at] != op_step[prev])
    migrated = known & migration[at]
    api = np.where(known & ~migrated, ops.api[at], MISSING)
    if trace.has("api_calls"):
        calls = trace.columns("api_calls", ("end", "call", "thread"))
        call_end, call, thread = (column.take(api) for column in calls.values())
        for column in (call_end, call, thread):
            column[api < 0] = MISSING
        if migrated.any():
            # The driver moves pages upon a fault: of the host thread that called CUDA last.
            begun = trace.columns("api_calls", ("start",))["start"]
            last = np.searchsorted(begun, idle.start[migrated], "right") - 1
            thread[migrated] = np.where(last >= 0, calls["thread"][last], MISSING)
    else:
        call_end = call = thread = np.full(len(idle), MISSING, np.int64)
    issued = np.clip(call_end, idle.start, idle.end)
    held = np.zeros(len(idle), bool)
    if len(others):
        held = (call != MISSING) & (2 * Coverage(others).within(issued, idle.end) > idle.end - issued)
    process, following, before = (
        np.where(mask, value, MISSING).astype(np.int32)
        for mask, value in ((known, ops.process[at]), (known, at), (has_prev, prev))
    )
    found = Gaps(
        start=idle.start,
        end=idle.end,
        next_op=following,
        prev_op=before,
        call_end=call_end,
        call=call.astype(np.int8),
        thread=thread.astype(np.int32),
        process=process,
        internal=internal,
        crosses_step=crosses,
        migrated=migrated,
        held=held,
    )
    return found, busy


def empty_queue_share(found: Gaps) -> float | None:
    """Share of the gaps (graph-internal ones left out) whose next operation had not been launched
    2 us before the gap began; None without gaps that have a launch."""
    mine = ~found.internal & (found.call != MISSING)
    if not mine.any():
        return None
    return float((~found.queued[mine]).mean())


def replay_gaps(found: Gaps) -> Array:
    """Mask of the gaps that end with the first node of a graph replay."""
    return np.asarray((found.call == Call.GRAPH_LAUNCH) & ~found.internal)


class DeviceBudget(Struct, frozen=True, dict=True):
    """Parts of one device's window in ns. `by_step[i]` holds PARTS of step i, the last row what
    lies outside steps. `gap_parts` keeps idle parts by gap for those that facts ask about."""

    device: int
    window: Window
    ns: dict[str, int]
    by_step: Array
    compute: Spans
    gaps: Gaps
    gap_parts: dict[str, Array] = field(default_factory=dict)

    @property
    def busy(self) -> Spans:
        """When the device runs something, in the recorded part of the window: the opposite of its gaps, which
        takes as much memory, and is quickly worked out."""
        return subtract(_recorded(self.window), Spans(self.gaps.start, self.gaps.end))

    def idle_inside(self, spans: Spans) -> int:
        """ns of a merged set that lie in the recorded part of the window while the device runs nothing, the
        profiler's part left out: of each gap at most what the profiler left."""
        idle = Coverage(self.window.cut(spans)).within(self.gaps.start, self.gaps.end)
        if self.ns["profiler"]:
            left = self.gaps.length
            left -= self.gap_parts["profiler"]
            np.minimum(idle, left, out=idle)
        return int(idle.sum())

    def without_kernels(self, spans: Spans) -> int:
        """ns of a merged set in the window in which no compute runs, the profiler's part left out."""
        rest = subtract(self.window.cut(spans), self.compute)
        return intersect(rest, self.busy).total + self.idle_inside(rest)

    @property
    def program_ns(self) -> int:
        """What every share that decides is a share of, ns, at least 1: the window without what the profiler
        took of it. The window runs from the end of one step to that of another, so it is as much as its
        steps take where there are steps (docs/definitions.md)."""
        return max(self.window.length - self.ns["profiler"], 1)

    @property
    def busy_ns(self) -> int:
        return sum(self.ns[p] for p in BUSY_PARTS)

    @property
    def busy_ratio(self) -> float:
        """Busy time over the window, 0..1."""
        return self.busy_ns / self.window.nonzero_length

    @property
    def idle_ns(self) -> int:
        return sum(self.ns[p] for p in IDLE_PARTS)

    def share(self, *names: str) -> float:
        """Parts over `program_ns`, 0..1; the profiler's part over the window."""
        return sum((self.ns[name] / self._whole(name) for name in names), 0.0)

    def _whole(self, part: str) -> int:
        return self.window.nonzero_length if part == "profiler" else self.program_ns


def device_budget(a: Stepped) -> DeviceBudget:
    """Budget of the device that these steps are of."""
    trace, window, device, step_end = a.trace, a.window, a.main_device, a.steps.gpu_end
    ops, communication, op_step = a.ops, a.communication, a.steps.op_step
    mine = np.flatnonzero(ops.device == device)
    if len(mine) < len(ops):
        ops, communication, op_step = ops.take(mine), communication[mine], op_step[mine]
    direction = of_copies(trace, ops)
    others = held_by_others(trace, device, ops.start)
    found, busy = device_gaps(trace, ops, op_step, window, among(direction, MIGRATIONS), others or EMPTY)
    spans = _busy_parts(trace, ops, busy, communication, direction, window)
    del mine, busy, direction  # large, and no longer needed
    inside = np.clip(step_end, window.start, window.end)
    bounds = np.concatenate(([window.start], inside, [window.end])).astype(np.int64)
    by_step = np.zeros((len(bounds) - 1, len(PARTS)))
    for name, part in spans.items():
        by_step[:, PARTS.index(name)] = Coverage(part).within(bounds[:-1], bounds[1:])
    split = _split_idle(found, a.threads, a.states)
    edges = np.concatenate(([0], np.searchsorted(found.start, step_end), [len(found)]))
    some = np.flatnonzero(np.diff(edges))
    for name, length in split.items():
        if length.any():
            by_step[some, PARTS.index(name)] = np.add.reduceat(length, edges[some], dtype=np.int64)
    ns = {p: int(v) for p, v in zip(PARTS, by_step.sum(axis=0), strict=True)}
    return DeviceBudget(device, window, ns, by_step, spans["compute"], found, split)


def _recorded(window: Window) -> Spans:
    return subtract(Spans(np.array([window.start]), np.array([window.end])), window.holes)


def _busy_parts(
    trace: Trace, ops: Operations, busy: Spans, communication: Array, direction: Array, window: Window
) -> dict[str, Spans]:
    """Busy time in order of precedence: compute hides communication, which hides copies. `busy` is all
    of it, `direction` that of each copy, 0 for other operations."""
    kernel = (ops.kind == Kind.KERNEL) | (ops.kind == Kind.GRAPH_RUN) | (ops.kind == Kind.MEMSET)
    copy = ops.kind == Kind.COPY
    migration = among(direction, MIGRATIONS)
    masks = {
        "compute": kernel & ~communication,
        "communication": kernel & communication,
        "htod": copy & (direction == HTOD),
        "dtoh": copy & (direction == DTOH),
        "other_copy": copy & (direction != HTOD) & (direction != DTOH) & ~migration,
        "migration": migration,
    }
    out: dict[str, Spans] = {}
    recorded = _recorded(window) if len(window.holes) else None
    for name, mask in masks.items():
        own = EMPTY
        if mask.any():
            own = window.cut(busy if mask.all() else union(*times_of(trace, ops, mask)))
        if recorded is not None:
            own = intersect(own, recorded)
        for other in out.values():
            own = subtract(own, other)
        out[name] = own
    return out


#: `_edges`: time that belongs to a thread.
_THREAD = -1


def _edges(found: Gaps) -> tuple[Array, Array, Array]:
    """Each gap cut in two: the part before the cut (`_THREAD`: what the thread did), the time of
    the cut, and the part after it; parts by their place in IDLE_PARTS."""
    migrated = found.migrated & ~found.internal
    orphan = ~found.internal & (found.call == MISSING) & ~(migrated & (found.thread != MISSING))
    open_ = ~(found.internal | orphan | migrated)
    queued = open_ & found.queued
    before = np.full(len(found), _THREAD, np.int8)
    for part, mask in (("graph_internal", found.internal), ("unknown", orphan), ("queued", queued)):
        before[mask] = IDLE_PARTS.index(part)
    # The driver issued migrations, upon a fault. Else back from the end: launch latency after the
    # call's return, queueing where that is long; all of it if the call returned before.
    until = np.where(open_ & ~queued, np.clip(found.call_end, found.start, found.end), found.end)
    until = np.where(migrated, np.maximum(found.start, found.end - limits.host.FAULT_WAIT_NS), until)
    latency, memory, queue = map(IDLE_PARTS.index, ("launch_latency", "unified_memory", "queued"))
    held = open_ & ((found.end - until > limits.host.HELD_BACK_NS) | found.held)
    after = np.full(len(found), latency, np.int8)
    after[held], after[migrated] = queue, memory
    return before, until, after


def _split_idle(found: Gaps, threads: Threads, states: HostStates) -> dict[str, Array]:
    """Idle ns of each gap by part; over the parts they add up to the gap's length."""
    # The parts of a gap add up to its length, so sums of them fit as well; they stay to the end.
    short = int(found.length.max(initial=0)) <= np.iinfo(np.int32).max
    out: dict[str, Array] = {
        part: np.zeros(len(found), np.int32 if short else np.int64) for part in IDLE_PARTS
    }

    def book(part: str, at: Array | slice, values: Array) -> None:
        if values.any():  # pages of zeros that are not written take no memory
            out[part][at] += values.astype(out[part].dtype)

    def book_edge(code: int, edge: Array, lo: Array, hi: Array) -> None:
        at = np.flatnonzero(edge == code)
        book(IDLE_PARTS[code], at, hi[at] - lo[at])

    before, until, after = _edges(found)
    for edge, lo, hi in ((before, found.start, until), (after, until, found.end)):
        for code in distinct(edge[hi > lo]).tolist():
            if code != _THREAD:
                book_edge(code, edge, lo, hi)
    host = before == _THREAD
    for thread in distinct(found.thread[host]).tolist():
        mine = np.flatnonzero(host & (found.thread == thread)).astype(np.int32)
        states_of = ThreadStates(threads, thread, int(found.process[mine[0]]), states)
        for rows in np.array_split(mine, max(len(mine) // _CHUNK, 1)):
            some = run_of(rows)
            part = states_of.split(found.start[some], until[some])
            code = part.pop("host")
            long = states_of.long_host.within(found.start[some], until[some])
            apart = found.crosses_step[some] | (code >= limits.host.LONG_HOST_NS) | (long > code // 2)
            part["host_gap"] = np.where(apart, code, 0)
            part["host_between_launches"] = np.where(apart, 0, code)
            if states.node_traced:
                own = np.minimum(part["graph_launch_call"], limits.host.UNTRACED_GRAPH_LAUNCH_NS)
                book("profiler", some, part["graph_launch_call"] - own)
                part["graph_launch_call"] = own
            for name, values in part.items():
                book(name, some, values)
    return out


def gap_slices(
    budget: DeviceBudget, threads: Threads, states: HostStates, which: Sequence[int]
) -> list[list[Slice]]:
    """Single gaps as slices in order of time, each of the part that the budget booked for it."""
    found, booked = budget.gaps.take(np.asarray(which, np.int64)), budget.gap_parts
    before, until, after = _edges(found)
    known: dict[int, ThreadStates] = {}
    out = []
    for i, gap in enumerate(which):
        thread = int(found.thread[i])
        start, cut, end = int(found.start[i]), int(until[i]), int(found.end[i])
        if before[i] != _THREAD:
            slices = [(IDLE_PARTS[before[i]], start, cut)]
        else:
            if thread not in known:
                process, among = int(found.process[i]), Spans(found.start, found.end)
                known[thread] = ThreadStates(threads, thread, process, states, among)
            host = "host_gap" if booked["host_gap"][gap] else "host_between_launches"
            parts_of = known[thread].slices(start, cut, host)
            slices = list(_cut_launches(parts_of, int(booked["graph_launch_call"][gap])))
        slices.append((IDLE_PARTS[after[i]], cut, end))
        out.append([s for s in slices if s[1] < s[2]])
    return out


def _cut_launches(slices: Iterable[Slice], left: int) -> Iterator[Slice]:
    """The first `left` ns of graph launches are their own, what follows is the profiler's."""
    for name, start, end in slices:
        if name != "graph_launch_call":
            yield name, start, end
            continue
        own = min(end - start, left)
        left -= own
        yield name, start, start + own
        yield "profiler", start + own, end
