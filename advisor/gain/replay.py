"""Runs calls and operations again: a max-plus recurrence, solved by running maxima.

Host: a thread's clock adds up `pre` and `own` of its calls; a waiting call returns at ``max(begin + own,
end(op) + lag)``, one that takes over from another thread begins no earlier than `delay` after that thread's
call returned. Device: ``end_i = max(submitted_i + latency_i, end_{i-1} + gap_i) + duration_i`` along a
stream. With ``C_i`` the running sum of gaps and durations this is ``end_i = C_i + max over k <= i of
(submitted_k + latency_k + duration_k - C_k)``, a running maximum, as long as the clocks are only shifted. So
the calls are cut into segments that end with a wait; all within a segment is vectorised over the whole
capture at once, and only one number a segment, stream and thread is carried along in plain Python. A million
operations take well under a second (benchmarks/gains.py).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.gain.inputs import Inputs, Remembered
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Coverage
from advisor.model.arrays import Array, begins_run, distinct, marked


class Played:
    """When everything happened: one entry a call and an operation of the inputs, ns."""

    def __init__(self, replay: _Replay, op_end: Array) -> None:
        self._replay = replay
        self.op_start, self.op_end = op_end - replay.inputs.ops.duration, op_end

    @cached_property
    def _calls(self) -> tuple[Array, Array]:
        return self._replay.calls()  # step times do not need them

    @property
    def call_start(self) -> Array:
        return self._calls[0]

    @property
    def call_end(self) -> Array:
        return self._calls[1]


def replay(inputs: Inputs, remembered: Remembered | None = None) -> Played:
    """Times of all calls and operations. Waits must be ascending by call."""
    return _Replay(inputs, remembered or Remembered()).run()


class _Replay:
    def __init__(self, inputs: Inputs, remembered: Remembered) -> None:
        self.inputs, self.remembered = inputs, remembered
        calls, ops = inputs.calls, inputs.ops
        self.threads = max(len(inputs.origin), 1)
        #: End of each call if nothing waited, by its thread's own clock.
        self.clock = _running(calls.pre + calls.own, calls.thread, inputs.origin)
        self.total = _running(ops.gap + ops.duration, ops.stream, np.zeros(len(inputs.ready)))
        submitted = self.clock.take(ops.call) if len(calls) else np.zeros(len(ops))
        if len(calls) and ops.by_start.any():
            submitted -= np.where(ops.by_start, calls.own.take(ops.call), 0.0)
        #: The demand of each operation on its stream's running maximum, unshifted.
        self.asked = submitted + ops.latency + ops.duration - self.total

    @cached_property
    def segment(self) -> Array:
        inputs = self.inputs
        waits, joins, calls = inputs.waits, inputs.joins, inputs.handovers.call
        given = inputs.calls.thread, inputs.ops.call, waits.call, waits.op, joins.op, joins.on, calls
        return self.remembered(_segments, *given)

    def run(self) -> Played:
        inputs, ops = self.inputs, self.inputs.ops
        shift_of_op, joined = self._walk()
        asked = self.asked if shift_of_op is None else self.asked + shift_of_op
        if len(inputs.joins):
            np.maximum.at(asked, inputs.joins.op, joined)
        end = np.empty(len(ops))
        for stream, at in self.remembered(_groups, ops.stream):
            reached = np.maximum.accumulate(np.maximum(asked[at], inputs.ready[stream]))
            end[at] = reached + self.total[at]
        return Played(self, end)

    def _walk(self) -> tuple[Array | None, Array]:
        """Carries stream and clock state from segment to segment. Returns the shift of each operation's clock
        (None if nothing waits) and what each join asks of its stream; keeps the shifts of waits and
        handovers."""
        inputs, ops, waits, joins = self.inputs, self.inputs.ops, self.inputs.waits, self.inputs.joins
        if not (len(waits) or len(joins) or len(inputs.handovers)):  # nothing shifts a clock
            self.wait_shift, self.hand_shift = np.empty(0), np.empty(0)
            return None, np.empty(0)
        # One group of operations for each segment, stream and thread: their highest demand.
        sizes = inputs.origin, inputs.ready
        order, (of_op, first, size, *of_group) = self.remembered(
            _groups_of_segments, self.segment, ops.call, ops.stream, inputs.calls.thread, *sizes
        )
        highest = np.maximum.reduceat(self.asked[order], first) if len(first) else np.empty(0)
        group = iter(_listed(*of_group, highest))
        keeps = distinct(np.concatenate((waits.op, joins.on)))
        keep_at = np.argsort(of_op[keeps], kind="stable")
        kept = keeps[keep_at]
        keep = _listed(of_op[kept], kept, ops.stream[kept], self.total[kept])
        join_at = np.argsort(of_op[joins.op], kind="stable")
        until = joins.delay + ops.duration[joins.op] - self.total[joins.op]
        op, on = joins.op[join_at], joins.on[join_at]
        join = _listed(of_op[op], on, ops.stream[op], until[join_at], join_at)
        call, after, delay = inputs.handovers.call, inputs.handovers.after, inputs.handovers.delay
        thread = inputs.calls.thread
        offset = self.clock[after] + delay - self.clock[call] + inputs.calls.own[call]
        hand = _listed(self.segment[call], thread[after], thread[call], offset)
        at, early = waits.call, self.remembered(_early, thread, ops.call, waits.call, waits.op)
        wait = _listed(self.segment[at], waits.op, thread[at], waits.lag, self.clock[at], early)
        level = inputs.ready.tolist()
        shift = [0.0] * self.threads
        ended: dict[int, float] = {}
        group_shift: list[float] = []
        wait_shift: list[float] = []
        hand_shift: list[float] = []
        joined = [0.0] * len(joins)

        def returns(_segment: int, op: int, thread: int, lag: float, clock: float, _early: bool) -> None:
            shift[thread] = max(shift[thread], ended[op] + lag - clock)
            wait_shift.append(shift[thread])

        k = j = w = h = 0
        pending = next(group, None)
        last = int(self.segment[-1]) if len(self.segment) else 0
        for s in range(last + 1):
            while h < len(hand) and hand[h][0] == s:
                _, giver, taker, offset = hand[h]
                # The thread that hands over made no call since, so its clock is unchanged.
                shift[taker] = max(shift[taker], shift[giver] + offset)
                hand_shift.append(shift[taker])
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
                _, stream, thread, height = pending
                group_shift.append(shift[thread])
                level[stream] = max(level[stream], height + shift[thread])
                pending = next(group, None)
            while k < len(keep) and keep[k][0] == s:
                _, op, stream, total = keep[k]
                ended[op] = level[stream] + total
                k += 1
            while w < len(wait) and wait[w][0] == s:
                returns(*wait[w])
                w += 1
        shift_of_op = np.empty(len(ops))
        if len(first):
            shift_of_op[order] = np.repeat(np.array(group_shift), size)
        self.wait_shift, self.hand_shift = np.array(wait_shift), np.array(hand_shift)
        return shift_of_op, np.array(joined)

    def calls(self) -> tuple[Array, Array]:
        """Begin and end of every call: its clock, shifted by its thread's latest wait or handover.
        A handover shifts its call's begin, a wait the end alone."""
        calls, waits, hands = self.inputs.calls, self.inputs.waits, self.inputs.handovers
        before, after = np.zeros(len(calls)), np.zeros(len(calls))
        at = np.concatenate((2 * hands.call, 2 * waits.call + 1))
        order = np.argsort(at, kind="stable")
        at, shifts = at[order], np.concatenate((self.hand_shift, self.wait_shift))[order]
        thread = calls.thread[at // 2] if len(at) else at
        for one in distinct(thread).tolist():
            mine = np.flatnonzero(calls.thread == one)
            shift = np.concatenate(([0.0], shifts[thread == one]))
            place = at[thread == one]
            before[mine] = shift[np.searchsorted(place, 2 * mine, "right")]
            after[mine] = shift[np.searchsorted(place, 2 * mine + 1, "right")]
        return self.clock - calls.own + before, self.clock + after


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
    """Mask of the waits for earlier work by calls that also launch work: that work waits, too. Copies
    that hold their own call are not included."""
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


# --- which steps are replayed: all of a small capture, else the stretch that looks most like it ---

#: A diagnosis replays at most this many operations: some 25 steps of a small decoder. A what-if requested
#: by the user replays up to `MOST_OPS`.
DIAGNOSIS_OPS = 20_000
MOST_OPS = 200_000
#: Steps before the measured ones, so that the first of these starts as it did.
_LEAD = 1
#: With this share of the kernels missing, the rest of a step is not the step (`min_lost_rows` of
#: damaged-capture).
_LOST = 0.05
#: A stretch holds at least this many steps.
_LEAST_STEPS = 3


class Replayed(Struct, frozen=True):
    """Steps `first`..`last` are replayed and `measured` of them (positions whose predecessor is replayed
    too) are timed. `whole` is the number of steps in the window."""

    first: int
    last: int
    measured: Array
    whole: int

    @property
    def note(self) -> str | None:
        """A note for readers if not all steps were replayed."""
        if len(self.measured) == self.whole:
            return None
        return f"{len(self.measured)} of {self.whole} steps were replayed, those most like the rest"


class NoReplay(Exception):
    """The capture cannot be replayed; the text says why."""


def choose_steps(a: Analysis, limit: int = DIAGNOSIS_OPS) -> Replayed:
    """The steps of the window, or, if they hold more than `limit` operations, the stretch of them whose
    mean step time is nearest to the window's. Raises NoReplay."""
    if len(a.ops) == 0:
        raise NoReplay("the capture holds no GPU operations to replay")
    lost = a.losses.lost_kernels
    if a.thinned.share or lost >= _LOST * (a.losses.kernels + lost) > 0:
        raise NoReplay("a part of the events is missing all along, so the timeline cannot be replayed")
    if len(a.window.cut(a.damage.holes)):
        raise NoReplay("events were lost inside the window, so the timeline cannot be replayed")
    if a.steps.method == "none" or len(a.window_steps) == 0:
        raise NoReplay("no steps were found, so there is no step time to predict")
    steps = a.window_steps[a.window_steps >= _LEAD]
    if len(steps) == 0:
        raise NoReplay("one step alone shows no step time: nothing comes before it")
    # Steps of one phase may lie apart; a stretch includes the steps between them.
    lo, hi = int(steps[0]), int(steps[-1])
    size = np.bincount(a.steps.op_step[a.steps.op_step >= 0], minlength=len(a.steps))
    total = np.concatenate(([0], np.cumsum(size[lo - _LEAD : hi + 1])))
    if total[-1] <= limit:
        return Replayed(lo - _LEAD, hi, steps, len(steps))
    wide = int(np.searchsorted(total, limit, "right")) - 1 - _LEAD
    wide = min(max(wide, _LEAST_STEPS), hi - lo + 1)
    time = np.diff(recorded_ends(a))[lo - _LEAD : hi]  # of steps lo..hi
    inside = marked(hi - lo + 1, steps - lo)
    sums = _rolling(np.where(inside, time, 0), wide)
    count = _rolling(inside.astype(np.int64), wide)
    mean = float(time[inside].mean())
    off = np.abs(sums / np.maximum(count, 1) - mean)
    off[count == 0] = np.inf
    begin = lo + int(np.argmin(off))
    chosen = steps[(steps >= begin) & (steps < begin + wide)]
    return Replayed(begin - _LEAD, begin + wide - 1, chosen, len(steps))


def recorded_ends(a: Analysis) -> Array:
    """When each step ended, ns of recorded time: the stretches between capture ranges are left out."""
    return np.asarray(a.steps.gpu_end - Coverage(a.pauses)(a.steps.gpu_end))


def _rolling(values: Array, wide: int) -> Array:
    total = np.concatenate(([0], np.cumsum(values)))
    return np.asarray(total[wide:] - total[:-wide])


def host_span(a: Analysis, excerpt: Replayed) -> tuple[int, int]:
    """Host times [from, to) of the calls that belong to the steps: from the first call of the
    first step to the last call that these steps need."""
    first = _first_call(a, excerpt.first)
    if excerpt.last + 1 < len(a.steps):
        return first, _first_call(a, excerpt.last + 1)
    return first, max(int(a.steps.gpu_end[excerpt.last]), first + 1)


def _first_call(a: Analysis, step: int) -> int:
    """When the host began with a step: its range, else its first call, else its first work."""
    steps = a.steps
    if steps.method in ("ranges", "graph launches"):
        return int(steps.host_start[step])
    lo, hi = np.searchsorted(a.ops.start, (steps.gpu_start[step], steps.gpu_end[step]))
    api = a.ops.api[lo:hi][(steps.op_step[lo:hi] == step)]
    api = api[api >= 0]
    if len(api) == 0:
        return int(steps.gpu_start[step])
    return int(a.trace.columns("api_calls", ("start",))["start"][api].min())
