"""The analysed window: the steady state, unless the user names another; warm-up steps ahead of it; and long
stretches without a kernel between the steps: no request to serve, a checkpoint, an evaluation."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.errors import InputError
from advisor.metrics import limits
from advisor.metrics.intervals import EMPTY, Coverage, Spans, clip, gaps, intersect, joined, subtract, union
from advisor.metrics.loaded.host import HostStates, capture_ranges
from advisor.metrics.loaded.operations import Kind, Operations, Runs
from advisor.metrics.loaded.selection import nvtx_window, parse_window
from advisor.metrics.stepped.enclosed import enclosed
from advisor.metrics.stepped.recording import Recording
from advisor.metrics.stepped.startup import Startup, activity_span
from advisor.metrics.steps.model import Steps
from advisor.model.arrays import Array, among, distinct, median_of
from advisor.model.numbers import duration
from advisor.sources.schema import Call
from advisor.sources.trace import Trace


class Window(Struct, frozen=True):
    """[start, end) in ns; `holes` inside it were not recorded and are neither busy nor idle."""

    start: int
    end: int
    method: str
    holes: Spans = EMPTY

    @property
    def length(self) -> int:
        """Recorded time inside the window, ns."""
        return max(self.end - self.start - self.holes.total, 0)

    @property
    def nonzero_length(self) -> int:
        """The length to divide by: at least 1."""
        return max(self.length, 1)

    def without(self, lost: Spans) -> Window:
        """The same window with these holes."""
        holes = self.cut(lost)
        return Window(self.start, self.end, self.method, union(holes.start, holes.end))

    def cut(self, spans: Spans) -> Spans:
        return clip(spans, self.start, self.end)


def end_of_work(trace: Trace, ops: Operations, lo: int, hi: int) -> int:
    """Last GPU end of the work that was launched in [lo, hi)."""
    issued = np.flatnonzero(ops.api >= 0)
    begun = trace.columns("api_calls", ("start",))["start"][ops.api[issued]]
    return int(ops.end[issued[(begun >= lo) & (begun < hi)]].max(initial=hi))


def outside_phase(steps: Steps, phase: str, window: Window) -> Spans:
    """The parts of the window without a step of the phase. Raises InputError if no step is of it."""
    known = sorted(set(steps.phase))
    if phase not in known:
        raise InputError(f"--phase: no step is {phase}; the capture has {', '.join(known) or 'no steps'}")
    mine = np.array(steps.phase) == phase
    return gaps(union(steps.begin[mine], steps.gpu_end[mine]), window.start, window.end)


def _beside_pause(ops: Operations, lo: int, hi: int) -> tuple[int, int, int]:
    """[lo, hi) without its longest pause and the little work on the far side of it, and the length of that
    pause, 0 if there is none: a check on the host after a trial run, or at the end."""
    inside = (ops.start >= lo) & (ops.end <= hi)
    busy = union(ops.start[inside], ops.end[inside])
    idle = gaps(busy, lo, hi)
    pause = (idle.end - idle.start).max(initial=0)
    if pause <= max(limits.window.PAUSE_RATIO * (hi - lo), 0):
        return lo, hi, 0
    at = int(np.argmax(idle.end - idle.start))
    begin, end = int(idle.start[at]), int(idle.end[at])
    before = inside & (ops.end <= begin)
    worked = clip(busy, lo, begin).total
    sides = (before, worked, (end, hi)), (inside & ~before, busy.total - worked, (lo, begin))
    for rows, time, side in sides:
        if (
            rows.sum() <= limits.window.BESIDE_PAUSE_RATIO * inside.sum()
            and time <= limits.window.BESIDE_PAUSE_RATIO * busy.total
        ):
            return *side, int(pause)
    return lo, hi, 0


def steady_window(
    ops: Operations, steps: Steps, startup: Startup, holes: Spans, span: tuple[int, int], runs: Runs
) -> Window:
    """The steps without the first, which is up to 1.8 x slower; the only one whole, from the begin of its
    range after start-up; without certain steps, first to last GPU operation after start-up and after the cold
    part of repeated work. Lost stretches at the edges are cut off."""
    dropped = cold_steps(steps, startup, ops)
    if steps.believed and len(steps) >= 2:
        lo, hi = int(steps.gpu_end[dropped - 1]), int(steps.gpu_end[-1])
        method = "steps without the first" + (f" {dropped}" if dropped > 1 else "")
        if steps.method == "opaque graph launches":
            method = "graph launches without the first"
    elif steps.believed and len(steps) == 1:
        lo, hi = int(steps.gpu_start[0]), int(steps.gpu_end[0])
        if steps.method == "ranges":
            lo = min(lo, max(int(steps.host_start[0]), startup.end if startup.length else 0))
        method = "the one step"
    elif len(ops):
        held = ops.take(runs.holds(ops.start))
        ops = held if len(held) else ops  # none is in a run that takes no time
        lo = int(ops.start[0])
        lo = max(lo, startup.end, int(steps.gpu_end[dropped - 1]) if dropped else lo)
        hi = int(ops.end.max())
        if lo >= hi:
            lo = int(ops.start[0])
        first = int(np.searchsorted(ops.start, lo))
        # Work launched by the last cold call may still run.
        if first < len(ops) and int(ops.end[:first].max(initial=lo)) <= lo:
            lo = int(ops.start[first])
        method = "GPU activity after start-up" if startup.length else "first to last GPU operation"
        lo, hi, pause = _beside_pause(ops, lo, hi)
        if pause:
            method = f"GPU activity beside a pause of {duration(pause)}"
    else:
        lo, hi = span
        method = "whole capture"
    return Window(min(lo, hi), max(lo, hi), method).without(holes)


def find_window(a: Recording, startup: Startup, holes: Spans) -> Window:
    """The window that the user names, else the steady one, without holes (and pauses) and other phases."""
    choice, span = a.selection, activity_span(a.trace, a.ops)
    if choice.window:
        window = Window(*parse_window(choice.window, span), f"--window {choice.window}")
    elif choice.nvtx:
        lo, hi = nvtx_window(choice.nvtx, a.ranges)
        window = Window(lo, max(hi, end_of_work(a.trace, a.ops, lo, hi)), f"--nvtx {choice.nvtx}")
    else:
        window = steady_window(a.ops, a.repeated, startup, holes, span, a.runs)
    if choice.phase:
        holes = joined(holes, outside_phase(a.steps, choice.phase, window))
    return window.without(holes)


# --- GPU work that the capture holds and the analysed window leaves out ---------------------------

_END = int(np.iinfo(np.int64).max)


class OutsideWork(Struct, frozen=True):
    """Busy time of one device: `inside` the window in ns, and where it was busy outside the window and
    outside start-up, by kind of work. The places do not overlap."""

    inside: int
    places: dict[str, Spans]

    @property
    def outside(self) -> int:
        """Busy time outside the window and start-up, ns."""
        return sum(spans.total for spans in self.places.values())


def outside_work(busy: Spans, launched: Spans, window: Window, steps: Steps, startup: Startup) -> OutsideWork:
    """Where a device worked outside its window. `busy` is when it worked at all, `launched` when it
    ran, after the window, what the host launched within it.

    The first step is left out of the window on purpose: it counts only where it does other work
    than the steps that follow.
    """
    left = subtract(busy, gaps(window.holes, window.start, window.end))
    inside = busy.total - left.total
    left = subtract(left, startup.spans)
    first = EMPTY
    if len(steps) >= 2 and steps.gpu_end[0] <= window.start:
        first = Spans(steps.gpu_start[:1], steps.gpu_end[:1])
        worked = Coverage(busy).within(steps.begin, steps.gpu_end)
        if worked[0] <= limits.window.OTHER_WORK_FACTOR * worked[1:].max():
            left, first = subtract(left, first), EMPTY
    places = {}
    for name, where in {
        "launched inside the window, ran after it": clip(launched, window.end, _END),
        "a first step that does other work": first,
        "before the window": clip(left, -_END, window.start),
        "inside the window, where nothing was analysed": clip(left, window.start, window.end),
        "after the window": clip(left, window.end, _END),
    }.items():
        places[name] = intersect(left, where)
        left = subtract(left, where)
    return OutsideWork(inside, places)


# --- long stretches without a kernel between the steps --------------------------------------------

#: Calls whose own length explains why no kernel runs.
_EXPLAIN = (Call.ALLOC, Call.FREE, Call.SYNC, Call.LAUNCH, Call.GRAPH_LAUNCH)


class Stretches(Struct, frozen=True):
    """Stretches in which no kernel runs on any device: `long` interruptions between the steps, and `lone`
    ones that belong to a step: they begin and end inside its range, or there is but one, which is shorter
    and equally unrelated to the other steps."""

    long: Spans = EMPTY
    lone: Spans = EMPTY


def find_stretches(a: Recording, states: HostStates, waits: Spans) -> Stretches:
    """Stretches too long to be explained by the steps; none if the user names the window. A stretch half of
    which is garbage collection, loading of data, start-up, the profiler's, inside a call or among the
    `waits` for requests has a known cause, and is left out."""
    trace, ops, steps = a.trace, a.ops, a.repeated
    if not steps.believed or len(steps) < 2 or a.selection.window or a.selection.nvtx:
        return Stretches()
    median = median_of(steps.time)
    if steps.time.max() < 2 * median:
        return Stretches()
    busy = np.flatnonzero((ops.kind == Kind.KERNEL) | (ops.kind == Kind.GRAPH_RUN))
    found = gaps(union(ops.start[busy], ops.end[busy]), int(steps.gpu_end[0]), int(steps.gpu_end[-1]))
    length = found.end - found.start
    long = length >= max(limits.window.INTERRUPTION_NS, limits.window.INTERRUPTION_STEPS * median)
    if not long.any():
        once = length >= max(limits.window.INTERRUPTION_NS, limits.window.LONE_INTERRUPTION_STEPS * median)
        long = once if np.count_nonzero(once) == 1 else long
    stands_out = (2 * length >= length.max(initial=0)).sum() == 1
    if not long.any() and len(steps) >= limits.window.LONE_PAUSE_STEPS and stands_out:
        long = length >= max(median, length.max())
    found, length = Spans(found.start[long], found.end[long]), length[long]
    if not len(found) or len(found) > max(limits.window.INTERRUPTED_RATIO * len(steps), 1):
        return Stretches()
    begun, ended, call = trace.columns("api_calls", ("start", "end", "call")).values()
    held = among(call, _EXPLAIN) & (
        ended - begun > min(limits.window.INTERRUPTION_NS, int(length.min())) // 10
    )
    named = states.cold, states.gc, states.gil, states.overhead, states.thread_overhead, states.loading
    explained = [s for each in named for s in each.values()]
    known = joined(capture_ranges(trace), union(begun[held], ended[held]), waits, *explained)
    unknown = 2 * Coverage(known).within(found.start, found.end) < length
    start, end = found.start[unknown], found.end[unknown]
    # The call that issues the next work belongs to that work.
    issued = busy[ops.api[busy] >= 0]
    issued = issued[np.argsort(begun[ops.api[issued]], kind="stable")]
    work, at = ops.start[issued], begun[ops.api[issued]]
    inside = zip(np.searchsorted(at, start, "right"), np.searchsorted(at, end), strict=True)
    for i, (first, last) in enumerate(inside):
        end[i] = at[first:last][work[first:last] >= end[i]].min(initial=end[i])
    spans = Spans(start, end)
    threads = distinct(trace.columns("api_calls", ("thread",))["thread"][ops.api[issued]]).tolist()
    of_step = np.zeros(len(spans), bool)
    for one in threads:
        of_step |= enclosed(a.ranges, steps, one, spans, passes=True)
    if length.max() < limits.window.INTERRUPTION_NS:
        return Stretches(lone=spans)
    return Stretches(Spans(start[~of_step], end[~of_step]), Spans(start[of_step], end[of_step]))


# --- steps at the beginning that are warm-up --------------------------------------------------------


def cold_steps(steps: Steps, startup: Startup, ops: Operations) -> int:
    """How many steps at the beginning are warm-up: the first, which is up to 1.8 x slower, and those after
    it that are cold and slow, or leave the device idle for far longer than the last ones of their phase
    take, or are slow on a device whose clock still rises; the last step is always kept. A step that may
    only be a layer is warm-up only if it is cold."""
    if len(steps) < 2:
        return 0
    length, usual = steps.gpu_end - steps.begin, median_of((steps.gpu_end - steps.begin)[1:])
    cold = Coverage(startup.spans).within(steps.begin, steps.gpu_end)
    slow = (cold >= limits.window.COLD_STEP_RATIO * length) & (
        length > limits.window.SLOW_STEP_FACTOR * usual
    )
    if steps.believed:
        busy = np.bincount(steps.op_step + 1, ops.length, len(steps) + 1)[1:]
        alike = np.array(steps.phase) == steps.phase[-1]
        slow |= alike & (length - busy > limits.window.COLD_IDLE_FACTOR * usual)
        slow[0] = True
        later = median_of(busy[len(busy) // 2 :])
        even = np.abs(steps.size - median_of(steps.size)) <= limits.window.SAME_SIZE_RATIO * median_of(
            steps.size
        )
        rising = alike & even & (busy > limits.window.RISING_FACTOR * later)
        if rising.sum() == np.argmin(rising) <= limits.window.RAMP_RATIO * len(steps):
            slow |= rising
    return min(int(np.argmin(np.append(slow, False))), len(steps) - 1)


def warmup_steps(steps: Steps, startup: Startup, ops: Operations) -> Array:
    """Lengths, ns, of the steps at the beginning that do as much as the others and take longer."""
    length, size = steps.gpu_end - steps.begin, steps.size
    first = np.arange(len(steps)) < cold_steps(steps, startup, ops)
    if first.all():
        return length[:0]
    slow = length > limits.window.SLOW_STEP_FACTOR * median_of(length[~first])
    alike = np.abs(size - median_of(size)) <= limits.window.SAME_SIZE_RATIO * median_of(size)
    return np.asarray(length[first & slow & alike])
