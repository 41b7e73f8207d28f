"""Runs calls and operations again: a max-plus recurrence, solved by running maxima.

Host: a thread's clock adds up `pre` and `own` of its calls; a waiting call returns at ``max(begin + own,
end(op) + lag)``, one that takes over from another thread begins no earlier than `delay` after that thread's
call returned. Device: ``end_i = max(submitted_i + latency_i, end_{i-1} + gap_i) + duration_i`` along a
stream. With ``C_i`` the running sum of gaps and durations this is ``end_i = C_i + max over k <= i of
(submitted_k + latency_k + duration_k - C_k)``, a running maximum, as long as the clocks are only shifted. So
the calls are cut into segments that end with a wait; all within a segment is vectorised over the whole
capture at once, and only one number a segment, stream and thread is carried along in plain Python. A million
operations take well under a second (benchmarks/gains.py). `StepTimes` reads how long steps take in a replay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.gain.excerpt import Replayed
from advisor.gain.inputs import NONE, Inputs, Remembered
from advisor.model.arrays import Array, begins_run, distinct, marked


def replay(inputs: Inputs, remembered: Remembered | None = None) -> Array:
    """When each operation ends, ns. Waits must be ascending by call."""
    remembered = remembered or Remembered()
    calls, ops = inputs.calls, inputs.ops
    # The end of each call if nothing waited, by its thread's own clock.
    clock = _running(calls.pre + calls.own, calls.thread, inputs.origin)
    total = _running(ops.gap + ops.duration, ops.stream, np.zeros(len(inputs.ready)))
    submitted = clock.take(ops.call) if len(calls) else np.zeros(len(ops))
    if len(calls) and ops.by_start.any():
        submitted -= np.where(ops.by_start, calls.own.take(ops.call), 0.0)
    # The demand of each operation on its stream's running maximum, unshifted.
    asked = submitted + ops.latency + ops.duration - total
    if len(inputs.waits) or len(inputs.joins) or len(inputs.handovers):
        shift, joined = _walk(inputs, remembered, clock, total, asked)
        asked = asked + shift
        if len(inputs.joins):
            np.maximum.at(asked, inputs.joins.op, joined)
    end = np.empty(len(ops))
    for stream, at in remembered(_groups, ops.stream):
        reached = np.maximum.accumulate(np.maximum(asked[at], inputs.ready[stream]))
        end[at] = reached + total[at]
    return end


def _walk(
    inputs: Inputs, remembered: Remembered, clock: Array, total: Array, asked: Array
) -> tuple[Array, Array]:
    """The shift of each operation's clock and what each join asks of its stream, segment by segment."""
    ops, waits, joins, hands = inputs.ops, inputs.waits, inputs.joins, inputs.handovers
    thread = inputs.calls.thread
    of_waits = waits.call, waits.op, joins.op, joins.on, hands.call
    segment = remembered(_segments, thread, ops.call, *of_waits)
    # One group of operations for each segment, stream and thread: their highest demand.
    of_ops = ops.call, ops.stream, thread, inputs.origin, inputs.ready
    order, (of_op, first, size, *of_group) = remembered(_groups_of_segments, segment, *of_ops)
    highest = np.maximum.reduceat(asked[order], first) if len(first) else np.empty(0)
    group = iter(_listed(*of_group, highest))
    keeps = distinct(np.concatenate((waits.op, joins.on)))
    keep_at = np.argsort(of_op[keeps], kind="stable")
    kept = keeps[keep_at]
    keep = _listed(of_op[kept], kept, ops.stream[kept], total[kept])
    join_at = np.argsort(of_op[joins.op], kind="stable")
    until = joins.delay + ops.duration[joins.op] - total[joins.op]
    op, on = joins.op[join_at], joins.on[join_at]
    join = _listed(of_op[op], on, ops.stream[op], until[join_at], join_at)
    call, after = hands.call, hands.after
    offset = clock[after] + hands.delay - clock[call] + inputs.calls.own[call]
    hand = _listed(segment[call], thread[after], thread[call], offset)
    at, early = waits.call, remembered(_early, thread, ops.call, waits.call, waits.op)
    wait = _listed(segment[at], waits.op, thread[at], waits.lag, clock[at], early)
    level = inputs.ready.tolist()
    shift = [0.0] * max(len(inputs.origin), 1)
    ended: dict[int, float] = {}
    group_shift: list[float] = []
    joined = [0.0] * len(joins)

    def returns(_segment: int, op: int, thread: int, lag: float, clock: float, _early: bool) -> None:
        shift[thread] = max(shift[thread], ended[op] + lag - clock)

    k = j = w = h = 0
    pending = next(group, None)
    last = int(segment[-1]) if len(segment) else 0
    for s in range(last + 1):
        while h < len(hand) and hand[h][0] == s:
            _, giver, taker, offset = hand[h]
            # The thread that hands over made no call since, so its clock is unchanged.
            shift[taker] = max(shift[taker], shift[giver] + offset)
            h += 1
        if w < len(wait) and wait[w][0] == s and wait[w][5]:
            # It also delays the work that its call launches; the call is alone in its segment.
            returns(*wait[w])
            w += 1
        while j < len(join) and join[j][0] == s:
            _, on, stream, offset, which = join[j]
            joined[which] = ended[on] + offset
            level[stream] = max(level[stream], joined[which])
            j += 1
        while pending is not None and pending[0] == s:
            _, stream, giver, height = pending
            group_shift.append(shift[giver])
            level[stream] = max(level[stream], height + shift[giver])
            pending = next(group, None)
        while k < len(keep) and keep[k][0] == s:
            _, op, stream, offset = keep[k]
            ended[op] = level[stream] + offset
            k += 1
        while w < len(wait) and wait[w][0] == s:
            returns(*wait[w])
            w += 1
    shift_of_op = np.empty(len(ops))
    if len(first):
        shift_of_op[order] = np.repeat(np.array(group_shift), size)
    return shift_of_op, np.array(joined)


def _listed(*columns: Array) -> list[tuple[Any, ...]]:
    """The rows of the columns as plain numbers: the walk over them is pure Python."""
    return list(zip(*(c.tolist() for c in columns), strict=True))


def _segments(
    thread: Array, op_call: Array, wait_call: Array, wait_op: Array, join: Array, join_on: Array, hand: Array
) -> Array:
    """Segment of each call. A segment ends with a waiting call and with the call of an operation
    that something waits for, and begins with a call that takes over from another thread (`hand`), one
    that waits before it launches, and with the call of an operation that joins."""
    edge = marked(len(thread) + 1, wait_call + 1)
    edge[op_call[wait_op] + 1] = True
    edge[op_call[join_on] + 1] = True
    edge[op_call[join]] = True
    edge[hand] = True
    edge[wait_call[_early(thread, op_call, wait_call, wait_op)]] = True
    edge[0] = False
    return np.cumsum(edge[: len(thread)])


def _early(thread: Array, op_call: Array, wait_call: Array, wait_op: Array) -> Array:
    """Mask of the waits for earlier work by calls that also launch work, which then waits, too."""
    issues = marked(len(thread) + 1, op_call)
    return np.asarray((op_call[wait_op] < wait_call) & issues[wait_call])


def _groups_of_segments(
    segment: Array, call: Array, stream: Array, thread: Array, origin: Array, ready: Array
) -> tuple[Array | slice, tuple[Array, ...]]:
    """An order in which operations of the same segment, stream and thread are adjacent; then the segment of
    each operation, the begin of each such group in the order, its size, segment, stream and thread."""
    threads, streams = max(len(origin), 1), max(len(ready), 1)
    of_op = segment[call] if len(segment) else np.zeros(len(call), np.int64)
    of_thread = thread[call] if len(thread) else np.zeros(len(call), np.int64)
    key = (of_op * streams + stream) * threads + of_thread
    order = _by(key)
    ranked = key[order]
    first = np.flatnonzero(begins_run(ranked))
    at_stream, at_thread = np.divmod(ranked[first], threads)
    size = np.diff(np.append(first, len(ranked)))
    return order, (of_op, first, size, at_stream // streams, at_stream % streams, at_thread)


def _by(key: Array) -> Array | slice:
    """Positions in ascending order of the key, equal keys as they came; a slice if they are in order."""
    if len(key) < 2 or bool((key[1:] >= key[:-1]).all()):
        return slice(None)
    return np.argsort(key, kind="stable")


def _running(values: Array, group: Array, origin: Array) -> Array:
    """Running sum within each group, from the group's origin."""
    if len(values) == 0:
        return np.empty(0)
    if len(origin) <= 1:
        return np.asarray(np.cumsum(values) + (origin[0] if len(origin) else 0.0))
    order = _by(group)
    ranked, total = group[order], np.cumsum(values[order])
    first = np.flatnonzero(begins_run(ranked))
    before = np.concatenate(([0.0], total))[first]
    size = np.diff(np.append(first, len(ranked)))
    out = np.empty(len(values))
    out[order] = total - np.repeat(before, size) + origin[ranked]
    return out


def _groups(key: Array) -> list[tuple[int, Array | slice]]:
    """Each key with the positions that have it."""
    order = _by(key)
    ranked = key[order]
    first = np.flatnonzero(begins_run(ranked))
    if isinstance(order, slice):
        ends = np.append(first[1:], len(key)).tolist()
        return [(int(ranked[i]), slice(i, j)) for i, j in zip(first.tolist(), ends, strict=True)]
    return [(int(ranked[i]), at) for i, at in zip(first, np.split(order, first[1:]), strict=True)]


class StepTimes:
    """Times of the measured steps. The operations of each step are looked up once for all replays."""

    def __init__(self, excerpt: Replayed, main: int, remembered: Remembered, kernels: Array) -> None:
        """`main` is the stream that steps end on, NONE if it may be any; `kernels` a mask of the operations
        that are no copies."""
        self._excerpt, self._main, self._remembered, self._is_kernel = excerpt, main, remembered, kernels

    def ends(self, inputs: Inputs) -> Array:
        """When each replayed step ends on the stream that steps end on, ns."""
        op_end = replay(inputs, self._remembered)
        mine, begins = self._remembered(self._ending, inputs.ops.stream, inputs.ops.step)
        ends = np.full(self._excerpt.last - self._excerpt.first + 1, -np.inf)
        if len(mine):
            reached = np.maximum.reduceat(op_end[mine], begins)
            ends[inputs.ops.step[mine[begins]] - self._excerpt.first] = reached
        return np.maximum.accumulate(ends)

    def _ending(self, stream: Array, step: Array) -> tuple[Array, Array]:
        """The operations on that stream by step, and where each step begins."""
        # Streams that a fix added hold copies only; the steps end where they did.
        mine = np.flatnonzero((step != NONE) & ((stream == self._main) if self._main != NONE else True))
        mine = mine[np.argsort(step[mine], kind="stable")]
        return mine, np.flatnonzero(begins_run(step[mine]))

    def mean(self, inputs: Inputs) -> float:
        """Mean time of the measured steps in a replay, ns; no stream can run its work in less, and no thread
        what was moved to it."""
        each, known = self._each(inputs)
        weight = self._excerpt.weight[known]
        mean = float(np.average(each, weights=weight)) if len(each) else 0.0
        return max(mean, self.busiest(inputs), inputs.beside)

    def each(self, inputs: Inputs) -> Array:
        """Time of each measured step in a replay, ns."""
        return self._each(inputs)[0]

    def _each(self, inputs: Inputs) -> tuple[Array, Array]:
        """These times and a mask of the measured steps whose time is known."""
        ends = self.ends(inputs)
        # A pass that is alone begins where the replay does.
        begins = np.concatenate(([inputs.origin.min(initial=np.inf)], ends[:-1]))
        at = self._excerpt.measured - self._excerpt.first
        known = np.isfinite(begins[at])  # a damaged capture may begin with steps that left no work
        return np.asarray(ends[at[known]] - begins[at[known]]), known

    def busiest(self, inputs: Inputs) -> float:
        """Busy time of the busiest stream in a measured step, ns: nodes in branches of a graph overlap,
        though they are replayed as one chain. A kernel that ran long before the one launched before it
        takes no time away from the others: what counts is the latest end of each step's work."""
        ops = inputs.ops
        return self._remembered(_busiest, ops.stream, ops.duration, ops.gap, *self.measured(inputs))

    def work(self, inputs: Inputs) -> float:
        """The summed time of the kernels of a measured step, ns."""
        kernels = self.kernels(inputs)
        share = self._remembered(self._excerpt.share, inputs.ops.step)
        return self._remembered(_sum_of, inputs.ops.duration, share, kernels)

    def kernels(self, inputs: Inputs) -> Array:
        """The operations of the measured steps that are no copies."""
        return self._remembered(self._without_copies, self.measured(inputs)[0])

    def _without_copies(self, at: Array) -> Array:
        return np.asarray(at[self._is_kernel[at]])

    def measured(self, inputs: Inputs) -> tuple[Array, Array, Array]:
        """The operations of the measured steps by stream and step, where each of these begins, and the step's
        share of the window."""
        return self._remembered(self._by_stream, inputs.ops.stream, inputs.ops.step)

    def _by_stream(self, stream: Array, step: Array) -> tuple[Array, Array, Array]:
        mine = np.flatnonzero(np.isin(step, self._excerpt.measured))
        mine = mine[np.lexsort((step[mine], stream[mine]))]
        first = np.flatnonzero(begins_run(stream[mine], step[mine]))
        return mine, first, self._excerpt.share(step[mine[first]])


def _sum_of(values: Array, share: Array, at: Array) -> float:
    return float((values[at] * share[at]).sum())


def _busiest(stream: Array, duration: Array, gap: Array, mine: Array, first: Array, share: Array) -> float:
    """Busy time of the busiest stream in a measured step, ns."""
    if len(mine) == 0:
        return 0.0
    alone = duration[mine] + np.minimum(gap[mine], 0.0)
    reached = np.cumsum(alone)
    time = np.maximum.reduceat(reached, first) - (reached - alone)[first]
    return float(np.bincount(stream[mine[first]], share * np.maximum(time, 0.0)).max())
