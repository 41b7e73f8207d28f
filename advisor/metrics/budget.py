"""The budget: the window of a device divided into exclusive parts that add up to 100 %.

The owner of a gap is the thread that issued the operation that ends it; the gap goes to what that
thread was doing (docs/definitions.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from advisor.metrics.gaps import LONG_HOST_NS, Gaps, device_gaps
from advisor.metrics.host import HostStates, Threads, held_by_others
from advisor.metrics.intervals import (
    EMPTY,
    Coverage,
    Spans,
    intersect,
    joined,
    meeting,
    positions,
    split,
    subtract,
    union,
    within_reach,
)
from advisor.metrics.operations import Kind, Operations, directions
from advisor.metrics.window import Window
from advisor.model import parts
from advisor.model.arrays import Array, among, distinct, run_of, spliced
from advisor.model.once import cached_property
from advisor.sources.schema import DTOH, HTOD, MIGRATIONS, MISSING, Call

if TYPE_CHECKING:
    from advisor.metrics.analysis import Analysis

#: Part, start and end in session time (ns).
Slice = tuple[str, int, int]

BUSY_PARTS, IDLE_PARTS, PARTS = tuple(parts.BUSY), tuple(parts.IDLE), tuple(parts.PARTS)
BUSY_COLUMNS = [PARTS.index(p) for p in BUSY_PARTS]
#: Idle that launching kernels one by one causes.
LAUNCHING = ("launch_call", "launch_latency", "host_between_launches")

#: Cost of a graph launch when its nodes are not traced (measured on graph-mode captures:
#: calibration#graph-launch). What a node-traced call takes beyond it is the profiler's.
UNTRACED_GRAPH_LAUNCH_NS = 70_000
#: Idle after a synchronize call counts as its refill up to this; longer is the host's own work.
REFILL_NS = 100_000
#: Idle before a migration of unified memory counts as waiting for its pages up to this: the driver takes 20
#: to 50 us for a batch of faults; longer is the host's own work before it touches them.
FAULT_NS = 100_000

_CALL_PART = {
    Call.ALLOC: "alloc", Call.FREE: "alloc", Call.SYNC: "sync", Call.COPY: "copy_call",
    Call.MEMSET: "copy_call", Call.GRAPH_LAUNCH: "graph_launch_call",
}  # fmt: skip
#: Gaps are processed in pieces that fit into the cache.
_CHUNK = 1 << 17
#: What a thread is doing during a call, by its number in `thread_states`.
THREAD_STATES = ("alloc", "sync", "copy_call", "graph_launch_call", "launch_call")


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

    @cached_property
    def busy(self) -> Spans:
        """When the device runs something, in the recorded part of the window."""
        return subtract(_recorded(self.window), Spans(self.gaps.start, self.gaps.end))

    def idle_inside(self, spans: Spans) -> int:
        """ns of a merged set that lie in the recorded part of the window while the device runs nothing."""
        return intersect(self.window.cut(spans), Spans(self.gaps.start, self.gaps.end)).total

    @property
    def busy_ns(self) -> int:
        return sum(self.ns[p] for p in BUSY_PARTS)

    @property
    def busy_ratio(self) -> float:
        return self.busy_ns / self.window.nonzero_length

    @property
    def idle_ns(self) -> int:
        return sum(self.ns[p] for p in IDLE_PARTS)

    def share(self, *names: str) -> float:
        """Parts over window, 0..1."""
        return sum((self.ns[name] / self.window.nonzero_length for name in names), 0.0)


def device_budget(a: Analysis) -> DeviceBudget:
    """Budget of the device that the analysis is about."""
    trace, window, device, step_end = a.trace, a.window, a.main_device, a.steps.gpu_end
    ops, communication, op_step = a.ops, a.communication, a.steps.op_step
    mine = np.flatnonzero(ops.device == device)
    if len(mine) < len(ops):
        ops, communication, op_step = ops.take(mine), communication[mine], op_step[mine]
    direction = directions(trace, ops)
    others = held_by_others(trace, device, ops.start)
    found, busy = device_gaps(trace, ops, op_step, window, among(direction, MIGRATIONS), others or EMPTY)
    spans = _busy_parts(ops, busy, communication, direction, window)
    del busy, direction  # large, and no longer needed
    bounds = np.concatenate(
        ([window.start], np.clip(step_end, window.start, window.end), [window.end])
    ).astype(np.int64)
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
    ops: Operations, busy: Spans, communication: Array, direction: Array, window: Window
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
    taken: list[Spans] = []
    recorded = _recorded(window) if len(window.holes) else None
    for name, mask in masks.items():
        if not mask.any():
            out[name] = EMPTY
            continue
        whole = mask.all()
        own = window.cut(busy if whole else union(ops.start[mask], ops.end[mask]))
        if recorded is not None:
            own = intersect(own, recorded)
        for other in taken:
            own = subtract(own, other)
        taken.append(own)
        out[name] = own
    return out


#: Work starts within microseconds of its launch, within 3 ms if its module is loaded first; after longer
#: the device held it back.
HELD_NS = 10_000_000
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
    until = np.where(migrated, np.maximum(found.start, found.end - FAULT_NS), until)
    latency, memory, queue = map(IDLE_PARTS.index, ("launch_latency", "unified_memory", "queued"))
    held = open_ & ((found.end - until > HELD_NS) | found.held)
    after = np.full(len(found), latency, np.int8)
    after[held], after[migrated] = queue, memory
    return before, until, after


def _split_idle(found: Gaps, threads: Threads, states: HostStates) -> dict[str, Array]:
    """Idle ns of each gap by part; over the parts they add up to the gap's length."""
    # The parts of a gap add up to its length, so sums of them fit as well; they stay to the end.
    short = int(found.length.max(initial=0)) <= np.iinfo(np.int32).max
    zero = np.zeros(len(found), np.int32 if short else np.int64)
    zero.setflags(write=False)  # shared by the parts that hold nothing
    out: dict[str, Array] = dict.fromkeys(IDLE_PARTS, zero)

    def book(part: str, at: Array | slice, values: Array) -> None:
        if values.any():
            if out[part] is zero:
                out[part] = np.zeros_like(zero)
            out[part][at] += values.astype(zero.dtype)

    before, until, after = _edges(found)
    for edge, lo, hi in ((before, found.start, until), (after, until, found.end)):
        for code in distinct(edge[hi > lo]).tolist():
            if code != _THREAD:
                at = np.flatnonzero(edge == code)
                book(IDLE_PARTS[code], at, hi[at] - lo[at])
    host = before == _THREAD
    for thread in distinct(found.thread[host]).tolist():
        mine = np.flatnonzero(host & (found.thread == thread))
        states_of = _ThreadStates(threads, thread, int(found.process[mine[0]]), states)
        for rows in np.array_split(mine, max(len(mine) // _CHUNK, 1)):
            some = run_of(rows)
            part = states_of.split(found.start[some], until[some])
            code = part.pop("host")
            long = states_of.long_host.within(found.start[some], until[some])
            apart = found.crosses_step[some] | (code >= LONG_HOST_NS) | (long > code // 2)
            part["host_gap"] = np.where(apart, code, 0)
            part["host_between_launches"] = np.where(apart, 0, code)
            if states.node_traced:
                own = np.minimum(part["graph_launch_call"], UNTRACED_GRAPH_LAUNCH_NS)
                book("profiler", some, part["graph_launch_call"] - own)
                part["graph_launch_call"] = own
            for name, values in part.items():
                book(name, some, values)
    return out


def gap_slices(
    budget: DeviceBudget, threads: Threads, states: HostStates, which: Sequence[int]
) -> list[list[Slice]]:
    """Single gaps as slices in order of time: where in the gap the parts lie that the budget booked for it;
    they add up to it."""
    found, booked = budget.gaps.take(np.asarray(which, np.int64)), budget.gap_parts
    before, until, after = _edges(found)
    known: dict[int, _ThreadStates] = {}
    out = []
    for i, gap in enumerate(which):
        thread = int(found.thread[i])
        start, cut, end = int(found.start[i]), int(until[i]), int(found.end[i])
        if before[i] != _THREAD:
            slices = [(IDLE_PARTS[before[i]], start, cut)]
        else:
            if thread not in known:
                process, among = int(found.process[i]), Spans(found.start, found.end)
                known[thread] = _ThreadStates(threads, thread, process, states, among)
            host = "host_gap" if booked["host_gap"][gap] else "host_between_launches"
            slices = list(
                _cut_launches(known[thread].slices(start, cut, host), int(booked["graph_launch_call"][gap]))
            )
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


class _ThreadStates:
    """What one thread was doing: at any time the first of profiler, start-up, garbage collection, GIL, a
    CUDA call, an operating-system call that applies; else its own code."""

    def __init__(
        self, threads: Threads, thread: int, process: int, states: HostStates, among: Spans | None = None
    ) -> None:
        """From all calls of the thread, or only from the calls that overlap `among`."""
        explained = EMPTY
        own: dict[str, Spans] = {}
        for name, spans in (
            ("profiler", states.overhead.get(process, EMPTY)),
            ("startup", states.cold.get(thread, EMPTY)),
            ("gc", states.gc.get(thread, EMPTY)),
            ("gil", states.gil.get(thread, EMPTY)),
        ):
            if len(rest := subtract(spans, explained)):
                own[name], explained = rest, joined(explained, rest)
        start, end, state, refills = _states_of_calls(threads, thread)
        if among is not None:
            first, last = np.searchsorted(end, among.start, "right"), np.searchsorted(start, among.end)
            at = distinct(np.concatenate([np.arange(*ends) for ends in zip(first, last, strict=True)]))
            start, end, state = start[at], end[at], state[at]
        if len(blocked := states.os.get(thread, EMPTY)):
            called = joined(Spans(start, end), refills)
            own["os"] = subtract(subtract(blocked, called), explained)
        self._names = [*own, *THREAD_STATES]
        state = state.astype(np.int32) + np.int32(len(own))
        # What is explained takes the place of calls and refills.
        cut = distinct(meeting(explained, Spans(start, end))[1])
        rest, refills = subtract(Spans(start[cut], end[cut]), explained), subtract(refills, explained)
        states_of = state[cut][positions(start[cut], rest.start, "right") - 1]
        others: list[tuple[Spans, Array | int]] = [(spans, i) for i, spans in enumerate(own.values())]
        others += [(rest, states_of), (refills, self._names.index("sync"))]
        label = np.concatenate([np.full(len(spans), which, np.int32) for spans, which in others])
        begin, until = (np.concatenate([spans[i] for spans, _ in others]) for i in (0, 1))
        order = np.argsort(begin, kind="stable")
        begin, until, label = begin[order], until[order], label[order]
        columns = (start, begin), (end, until), (state, label)
        start, end, self._label = spliced(cut, positions(start, begin), *columns)
        self._spans = Spans(start, end)

    @cached_property
    def long_host(self) -> Coverage:
        """Own code of the thread that lasts LONG_HOST_NS or more: the device may have worked off its queue
        for most of it."""
        start, end = self._spans
        after = np.flatnonzero(start[1:] - end[:-1] >= LONG_HOST_NS)
        return Coverage(Spans(end[after], start[after + 1]))

    def split(self, lo: Array, hi: Array) -> dict[str, Array]:
        """ns of each [lo, hi) (ascending, disjoint) by state; `host` is the rest."""
        found = split(self._spans, self._label, len(self._names), lo, hi)
        return {**dict(zip(self._names, found, strict=True)), "host": hi - lo - found.sum(axis=0)}

    def slices(self, lo: int, hi: int, host: str) -> Iterator[Slice]:
        """[lo, hi) by state, in order of time; the rest is called `host`."""
        inside = within_reach(self._spans, Spans(np.array([lo]), np.array([hi])))
        rows = (column[inside].tolist() for column in (*self._spans, self._label))
        for start, end, label in zip(*rows, strict=True):
            if lo < start:
                yield host, lo, start
            yield self._names[label], max(lo, start), min(end, hi)
            lo = end
        if lo < hi:
            yield host, lo, hi


def _states_of_calls(threads: Threads, thread: int) -> tuple[Array, Array, Array, Spans]:
    """Begin, end and state of the outermost calls of a thread; and the refills after its waits."""
    calls = threads.of(thread)
    code = np.full(max(Call) + 1, THREAD_STATES.index("launch_call"), np.int8)
    for call, part in _CALL_PART.items():
        code[call] = THREAD_STATES.index(part)
    sync = np.flatnonzero(calls.call[:-1] == Call.SYNC)
    begin, end = calls.end[sync], calls.start[sync + 1]
    short = (end - begin <= REFILL_NS) & (end > begin)
    return calls.start, calls.end, code[calls.call], Spans(begin[short], end[short])
