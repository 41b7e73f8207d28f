"""What a replay runs on: calls of host threads, operations in streams, and the dependencies between them;
and which calls waited for the device.

Times are ns as float64, so that fixes may scale them; a capture's int64 ns fit without loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.gain import limits
from advisor.gain.whatifs import constant
from advisor.metrics import limits as metric_limits
from advisor.metrics.intervals import Coverage
from advisor.metrics.loaded.operations import Operations, Rows
from advisor.metrics.loaded.stage import Loaded
from advisor.model.arrays import Array, among, distinct, median_of, merged
from advisor.sources.schema import Call

#: No such call or operation.
NONE = -1
#: A constraint that never binds.
NEVER = -np.inf
#: Results that are kept for the next replays.
_REMEMBERED = 32

T = TypeVar("T")


class Remembered:
    """Results by the identity of the arrays they were computed from: scenarios and what-ifs change times,
    rarely streams and dependencies, so most replays share these results."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[tuple[Array, ...], Any]] = {}

    def __call__(self, make: Callable[..., T], *given: Array) -> T:
        """`make(*given)`, computed once for the same array objects; they must not be modified."""
        key = (make, *map(id, given))
        found = self._known.pop(key, None) or (given, make(*given))
        self._known[key] = found  # last in the order of use; keeps the arrays alive, so that ids stay unique
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        result: T = found[1]
        return result


class Calls(Rows, frozen=True):
    """Calls in the order in which they began, over all threads.

    A call begins `pre` after the thread's previous call returned and takes `own` unless it waits. `gc`,
    `gil` and `os` are the parts of `pre` that those explain; `between` marks calls between the last work
    of one step and the first of the next. `operators`: how many operators of a framework a profiler
    recorded since the begin of the thread's previous call, and `recorded`: the most that recording these
    and Python calls, and marking steps, cost, ns. `marking` is the part of `pre` that the profiler surely
    took, between two of its marks of steps. `slack`: host time before the call that is taken for a wait that
    no call records (advisor.gain.slack), and is no part of `pre`. `apart` marks calls of a stretch without a
    launch or a wait whose host code, all calls together, is as long as a host gap."""

    thread: Array  # dense, indexes Inputs.origin
    pre: Array
    own: Array
    kind: Array  # advisor.sources.schema.Call
    row: Array  # in api_calls
    step: Array  # NONE outside steps
    between: Array
    gc: Array
    gil: Array
    os: Array
    operators: Array
    recorded: Array
    marking: Array
    slack: Array
    apart: Array

    @property
    def explained(self) -> Array:
        """How much of `pre` a collection, the GIL or the operating system takes."""
        return np.asarray(np.minimum(self.gc + self.gil + self.os, self.pre))

    @property
    def host_code(self) -> Array:
        """Mask of the calls preceded by host code of their own, beyond what a call costs: between steps,
        and if it is as long as a host gap, without the time that operators of a framework take to launch."""
        return np.asarray(self.between | self.apart | (self.code >= metric_limits.host.LONG_HOST_NS))

    @property
    def code(self) -> Array:
        """How much of `pre`, ns, nothing explains and launching operators of a framework does not take."""
        return np.maximum(self.pre - self.explained - constant("operator_time") * self.operators, 0.0)

    @property
    def own_code(self) -> Array:
        """How much of `pre` no call causes: what explains it, and host code except what launching an operator
        takes."""
        launching = constant("launch_floor") + constant("operator_time") * self.operators
        return np.where(self.host_code, np.maximum(self.pre - launching, self.explained), self.explained)


class Ops(Rows, frozen=True):
    """GPU operations in the order of their calls; those of one stream run in this order.

    An operation starts `latency` after its call returned (after it began if `by_start`), and `gap` after
    its predecessor on the stream ended, whichever is later. `latency` is NEVER if the call does not delay
    it: inside a graph run, or if the call is unknown."""

    call: Array  # position in Calls; where no call is known, the position in time
    stream: Array  # dense, indexes Inputs.ready
    duration: Array
    latency: Array
    gap: Array
    by_start: Array
    at: Array  # position in Loaded.ops
    step: Array
    node: Array  # inside a graph run, and not its first operation

    def calls_of(self, mine: Array) -> Array:
        """The calls that issued these operations and whose end they wait for."""
        return self.call[mine & (self.latency > NEVER)]

    def last_of_call(self, op: int) -> int:
        """The last operation of the same call and stream, whose end state is kept."""
        until = int(np.searchsorted(self.call, self.call[op], "right"))
        return op + int(np.flatnonzero(self.stream[op:until] == self.stream[op])[-1])


class Waits(Rows, frozen=True):
    """Calls that return no earlier than `lag` after an operation ended, ascending by call."""

    call: Array
    op: Array
    lag: Array


class Handovers(Rows, frozen=True):
    """Calls that begin no earlier than `delay` after a call of another thread returned, ascending."""

    call: Array
    after: Array
    delay: Array


class Joins(Rows, frozen=True):
    """Operations that start no earlier than `delay` after one of another stream ended (events)."""

    op: Array
    on: Array
    delay: Array


class Inputs(Struct, frozen=True):
    """`origin`: when the clock of each thread starts; `ready`: when each stream is free; `beside`: how long
    work that fixes moved off these threads and streams takes a step, ns, which runs beside the rest."""

    calls: Calls
    ops: Ops
    waits: Waits
    joins: Joins
    handovers: Handovers
    origin: Array
    ready: Array
    beside: float = 0.0

    def with_calls(self, **columns: Array) -> Inputs:
        return replace(self, calls=replace(self.calls, **columns))

    def with_ops(self, **columns: Array) -> Inputs:
        return replace(self, ops=replace(self.ops, **columns))

    def same_work(self, other: Inputs) -> bool:
        """Whether both are equal except for the times of calls and the waits of the host."""
        tables = (self.ops, other.ops), (self.joins, other.joins), (self.handovers, other.handovers)
        pairs = [(getattr(a, n), getattr(b, n)) for a, b in tables for n in a.__struct_fields__]
        pairs += [
            (self.calls.thread, other.calls.thread),
            (self.origin, other.origin),
            (self.ready, other.ready),
        ]
        return self.beside == other.beside and all(a is b or np.array_equal(a, b) for a, b in pairs)

    def no_longer_than(self, other: Inputs) -> bool:
        """Whether each call and operation is one of the other's and takes no more time than there."""
        if len(self.calls) != len(other.calls) or len(self.ops) != len(other.ops):
            return False
        pairs = ((self.calls, other.calls, ("pre", "own")), (self.ops, other.ops, ("duration", "gap")))
        shorter = all((getattr(a, n) <= getattr(b, n)).all() for a, b, names in pairs for n in names)
        return shorter and np.array_equal(self.ops.stream, other.ops.stream)


def with_own_code(after: Inputs, before: Inputs) -> Inputs:
    """The inputs `after` a fix, with as much of the own code of each thread in each step as `before` it: what
    is missing comes back in front of the step's first call."""
    calls, pre = before.calls, after.calls.pre
    if pre is calls.pre or not len(calls):
        return after
    steps = int(calls.step.max()) + 2
    key = calls.thread * steps + calls.step + 1
    missing = np.bincount(key, calls.own_code) - np.bincount(key, pre)
    if missing.max() < 1.0:
        return after
    known, first = np.unique(key, return_index=True)
    pre = pre.copy()
    pre[first] += np.maximum(missing[known], 0.0)
    return after.with_calls(pre=pre)


# --- which calls waited for the device ------------------------------------------------------------


class CallTimes(Rows, frozen=True):
    """Captured times of the acting calls, ascending by begin; ns of the session."""

    thread: Array
    start: Array
    end: Array
    kind: Array
    row: Array
    process: Array


def find_waits(
    a: Loaded, times: CallTimes, taken: Operations, ops: Ops, paused: Coverage, moved: Array
) -> tuple[Waits, Array]:
    """All waits, and each call's own time without waiting, what is `paused` left out. `taken` are the
    operations of `ops`; all times are those recorded and what each call is `moved` by.

    A synchronising call returns when its work is done. Exports do not say reliably what it waited for
    (`syncType` lies), but when it returned: it waited for the last operation issued on each stream before
    it, as far as those had ended by then. A copy that ran inside its call held it. A launch call that took
    long while hundreds of operations were queued waited for room in the queue."""
    start, end = times.start - moved, times.end - moved
    own = (end - start - paused.within(start, end)).astype(float)
    if len(times.row) == 0 or len(ops) == 0:
        return Waits.none(), own
    found = [(int(ops.call[i]), int(i)) for i in np.flatnonzero(ops.by_start)]  # held by its own copy
    asks = np.flatnonzero(
        (times.kind == Call.SYNC)
        | (among(times.kind, (Call.ALLOC, Call.FREE, Call.MEMSET)) & (own > limits.IMPLICIT_WAIT_NS))
    )
    memsets = np.flatnonzero((times.kind == Call.MEMSET) & (own <= limits.IMPLICIT_WAIT_NS))
    asks = merged(asks, memsets[~_named(a, times, memsets, "Async")])
    found += _synchronised(a, times, taken, ops, asks)
    found += _blocked_launches(times, taken, ops, own)
    if not found:
        return Waits.none(), own
    call, op = np.array(found).T
    ended = taken.end[op].astype(float)
    waited = ended > times.start[call]
    lag = times.end[call] - ended
    lag -= np.where(waited, paused.within(np.minimum(taken.end[op] - moved[call], end[call]), end[call]), 0)
    # If nothing was left to wait for, a changed replay may still have to: with the usual delay.
    usual = median_of(lag[waited]) if waited.any() else constant("sync_return")
    lag = np.where(waited, lag, np.minimum(lag, usual))
    own = own.copy()
    for kind in distinct(times.kind[call[waited]]).tolist():
        mine = call[waited & (times.kind[call] == kind)]
        free = (times.kind == kind) & ~np.isin(np.arange(len(own)), mine) & (own <= limits.BLOCKED_NS)
        usual_call = constant("copy_call" if kind == Call.COPY else "sync_call")
        typical = median_of(own[free]) if free.sum() >= limits.TYPICAL_CALLS else usual_call
        own[mine] = np.minimum(own[mine], typical)
    return Waits(call, op, lag).take(np.argsort(call, kind="stable")), own  # as `replay` needs them


def _synchronised(
    a: Loaded, times: CallTimes, taken: Operations, ops: Ops, asks: Array
) -> list[tuple[int, int]]:
    """For each synchronising call the operation whose end it waited for: of the last ones issued on every
    stream of its process, the latest that had ended when it returned."""
    if len(asks) == 0:
        return []
    best = np.full(len(asks), NONE)
    best_end = np.full(len(asks), np.iinfo(np.int64).min)
    until = times.end[asks] + limits.SKEW_NS
    for stream in distinct(ops.stream).tolist():
        at = np.flatnonzero(ops.stream == stream)
        last = at[np.append(np.diff(ops.call[at]) > 0, True)]  # last operation of each call
        k = np.searchsorted(ops.call[last], asks, "left") - 1
        op = last[np.maximum(k, 0)]
        end = taken.end[op]
        fits = (k >= 0) & (taken.process[op] == times.process[asks])
        late = fits & (end > until)
        for i in np.flatnonzero(late & _named(a, times, asks, "EventSynchronize")).tolist():
            # Waiting for an event: an earlier operation, the latest that had ended.
            j = int(k[i])
            while j >= 0 and taken.end[last[j]] > until[i]:
                j -= 1
            if j >= 0:
                op[i], end[i], late[i] = last[j], taken.end[last[j]], False
            else:
                fits[i] = False
        fits &= ~late & (end > best_end)
        best[fits], best_end[fits] = op[fits], end[fits]
    # A call that allocates or clears waits only if the device ran out of work inside it.
    dry = (times.kind[asks] == Call.SYNC) | (best_end > times.start[asks])
    return [(int(c), int(o)) for c, o, d in zip(asks, best, dry, strict=True) if o != NONE and d]


def _named(a: Loaded, times: CallTimes, calls: Array, part: str) -> Array:
    """Which of the calls have `part` in their name."""
    names = a.trace.columns("api_calls", ("name_id",))["name_id"][times.row[calls]]
    ids, at = np.unique(names, return_inverse=True)
    return np.asarray(np.array([part in t for t in a.trace.texts(ids.tolist())], bool)[at])


def _blocked_launches(times: CallTimes, taken: Operations, ops: Ops, own: Array) -> list[tuple[int, int]]:
    """The last launch of each run of launches that waited for room in the queue, with the latest
    operation that had ended when it returned. The launches before it in the run lose their waiting time
    without a wait of their own (`own` is changed), so that a thousand blocked launches cost one segment."""
    launch = np.flatnonzero((times.kind == Call.LAUNCH) | (times.kind == Call.GRAPH_LAUNCH))
    if len(launch) == 0:
        return []
    short = own[launch][own[launch] <= limits.BLOCKED_NS]
    usual = median_of(short if len(short) else own[launch])
    long = launch[own[launch] > max(limits.BLOCKED_NS, limits.BLOCKED_FACTOR * usual)]
    if len(long) == 0:
        return []
    first_op = np.searchsorted(ops.call, long, "left")
    has = (first_op < len(ops)) & (ops.call[np.minimum(first_op, len(ops) - 1)] == long)
    long, first_op = long[has], first_op[has]
    blocked: list[tuple[int, int]] = []
    for stream in distinct(ops.stream[first_op]).tolist():
        at = np.flatnonzero(ops.stream == stream)
        ends = np.maximum.accumulate(taken.end[at])
        mine = ops.stream[first_op] == stream
        place = np.searchsorted(at, first_op[mine])
        done = np.searchsorted(ends, times.start[long[mine]], "right")
        full = place - done >= limits.QUEUED_OPS
        freed = np.searchsorted(ends, times.end[long[mine]] + limits.SKEW_NS, "right") - 1
        full &= (freed >= 0) & (freed < place)
        # Room appeared when an operation ended; a call that returned much later did something else.
        late = times.end[long[mine]] - ends[np.maximum(freed, 0)]
        full &= late <= limits.BLOCKED_NS
        for call, op in zip(long[mine][full].tolist(), at[freed[full]].tolist(), strict=True):
            blocked.append((call, op))
            own[call] = min(own[call], usual)
    blocked.sort()
    # Of neighbouring blocked launches of a thread only the last keeps its wait.
    kept = []
    place = np.searchsorted(launch, np.array([call for call, _ in blocked], np.int64))
    for i, (call, op) in enumerate(blocked):
        last = i + 1 == len(blocked)
        if last or place[i + 1] - place[i] > 2 or (times.thread[blocked[i + 1][0]] != times.thread[call]):
            kept.append((call, ops.last_of_call(op)))
    return kept
