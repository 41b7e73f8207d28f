"""Which part of a capture is replayed: all steps of a small one, else the stretch that looks most like it, or
a window without repeated steps as one pass."""

from __future__ import annotations

from copy import copy

import numpy as np
from msgspec import Struct

from advisor.gain import limits
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import EMPTY, Coverage, Spans, intersect, joined
from advisor.metrics.operations import of_copies
from advisor.metrics.steps.model import Steps
from advisor.model.arrays import Array, among, marked
from advisor.model.gain import Timed
from advisor.model.numbers import percent
from advisor.model.once import forget
from advisor.sources.schema import MIGRATIONS, MISSING


class Replayed(Struct, frozen=True):
    """Steps `first`..`last` are replayed and `measured` of them (positions whose predecessor is replayed
    too) are timed. `whole` is the number of steps in the window; `of` what is timed."""

    first: int
    last: int
    measured: Array
    whole: int
    of: Timed = "step"

    @property
    def alone(self) -> bool:
        """Whether nothing is replayed before the measured pass."""
        return bool(self.measured[0] == self.first)

    @property
    def note(self) -> str | None:
        """A note for readers if not all steps were replayed."""
        if len(self.measured) == self.whole:
            return None
        return f"{len(self.measured)} of {self.whole} steps were replayed, those most like the rest"


class NoReplay(Exception):
    """The capture cannot be replayed; the text says why."""


def choose_steps(a: Analysis, limit: int = limits.DIAGNOSIS_OPS) -> Replayed:
    """The steps of the window, or, if they hold more than `limit` operations, the stretch of them whose
    mean step time is nearest to the window's. Raises NoReplay."""
    if len(a.ops) == 0:
        raise NoReplay("the capture holds no GPU operations to replay")
    lost = a.losses.lost_kernels
    if a.thinned.share or lost >= limits.LOST_RATIO * (a.losses.kernels + lost) > 0:
        raise NoReplay("a part of the events is missing all along, so the timeline cannot be replayed")
    if len(a.window.cut(a.damage.holes)):
        raise NoReplay("events were lost inside the window, so the timeline cannot be replayed")
    steps = a.window_steps[a.window_steps >= limits.LEAD_STEPS]
    if len(steps) == 0:
        return _alone(a, limit)
    # Steps of one phase may lie apart; a stretch includes the steps between them.
    lo, hi = int(steps[0]), int(steps[-1])
    size = np.bincount(a.steps.op_step[a.steps.op_step >= 0], minlength=len(a.steps))
    total = np.concatenate(([0], np.cumsum(size[lo - limits.LEAD_STEPS : hi + 1])))
    if total[-1] <= limit:
        return Replayed(lo - limits.LEAD_STEPS, hi, steps, len(steps))
    wide = int(np.searchsorted(total, limit, "right")) - 1 - limits.LEAD_STEPS
    wide = min(max(wide, limits.STRETCH_STEPS), hi - lo + 1)
    time = np.diff(recorded_ends(a))[lo - limits.LEAD_STEPS : hi]  # of steps lo..hi
    inside = marked(hi - lo + 1, steps - lo)
    sums = _rolling(np.where(inside, time, 0), wide)
    count = _rolling(inside.astype(np.int64), wide)
    mean = float(time[inside].mean())
    off = np.abs(sums / np.maximum(count, 1) - mean)
    off[count == 0] = np.inf
    begin = lo + int(np.argmin(off))
    chosen = steps[(steps >= begin) & (steps < begin + wide)]
    return Replayed(begin - limits.LEAD_STEPS, begin + wide - 1, chosen, len(steps))


def _alone(a: Analysis, limit: int) -> Replayed:
    """The only pass: it is timed from the begin of the window on, since nothing comes before it."""
    if len(a.window_steps) == 0:
        raise NoReplay("no work ran wholly in the window")
    only = int(a.window_steps[0])
    mine = a.steps.op_step == only
    if (size := int(mine.sum())) > max(limit, limits.MOST_ALONE_OPS):
        raise NoReplay(f"the window is one pass of {size:,} operations, too many to be replayed")
    if 2 * int(among(of_copies(a.trace, a.ops)[mine], MIGRATIONS).sum()) >= size:
        raise NoReplay("pages of unified memory move when they are touched, which a replay does not show")
    of: Timed = "step" if a.steps.believed else "window"
    if (share := a.window.cut(a.startup.spans).total / a.window.nonzero_length) >= limits.COLD_RATIO:
        raise NoReplay(
            f"start-up holds {percent(share)} of the {of}: what a warm one takes is not in the capture"
        )
    return Replayed(only, only, a.window_steps, 1, of)


def as_one_pass(a: Analysis) -> Analysis:
    """The analysis itself if it has steps in its window, else a view of it in which the window is one pass:
    all work of the process on the device that ran in the window."""
    ops, window = a.ops, a.window
    if len(a.window_steps) or not len(ops):
        return a
    mine = (ops.device == a.main_device) & (ops.process == a.main_process)
    mine &= a.in_window & (ops.start >= window.start) & (ops.end <= window.end)
    if not mine.any():
        return a
    host = np.array([window.start], np.int64), np.array([window.end], np.int64)
    gpu = ops.start[mine].min(keepdims=True), ops.end[mine].max(keepdims=True)
    view = copy(a)
    forget(view, "kernels")  # they know the steps of the analysis
    step = np.where(mine, 0, MISSING)
    view.__dict__["steps"] = Steps("single pass", 0.0, ("unknown",), *host, *gpu, step)
    view.__dict__["window_steps"] = np.zeros(1, np.int64)
    return view


def recorded_times(a: Analysis, excerpt: Replayed) -> Array:
    """How long each measured step took, ns of recorded time."""
    ends, at = recorded_ends(a), excerpt.measured
    if excerpt.alone:
        return np.asarray(ends[at] - _recorded(a, np.array([host_span(a, excerpt)[0]])))
    return np.asarray(ends[at] - ends[at - 1])


def recorded_ends(a: Analysis) -> Array:
    """When each step ended, ns of recorded time."""
    return _recorded(a, a.steps.gpu_end)


def _recorded(a: Analysis, time: Array) -> Array:
    """Times without the stretches before them that are left out."""
    return np.asarray(time - Coverage(left_out(a))(time))


def left_out(a: Analysis) -> Spans:
    """Stretches that no replay knows: what was not recorded, such as the time between capture ranges, and
    what the profiler took for itself."""
    return joined(a.pauses, profiler_writes(a))


def profiler_writes(a: Analysis) -> Spans:
    """When the profiler wrote down what it had collected of the process and the device ran out of work
    meanwhile, as the budget has it."""
    written = joined(a.states.overhead.get(a.main_process, EMPTY), *a.states.thread_overhead.values())
    if not len(written) or a.main_device not in a.budgets:
        return EMPTY
    budget = a.budgets[a.main_device]
    gaps = budget.gaps.take(np.flatnonzero(budget.gap_parts["profiler"]))
    return intersect(written, Spans(gaps.start, gaps.end))


def _rolling(values: Array, wide: int) -> Array:
    total = np.concatenate(([0], np.cumsum(values)))
    return np.asarray(total[wide:] - total[:-wide])


def host_span(a: Analysis, excerpt: Replayed) -> tuple[int, int]:
    """Host times [from, to) of the calls that belong to the steps: from the first call of the first step, or
    the begin of the window for a pass that is alone, to the last call that these steps need."""
    first = a.window.start if excerpt.alone else _first_call(a, excerpt.first)
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
