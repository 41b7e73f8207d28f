"""Which steps are replayed: all of a small capture, else the stretch that looks most like it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Coverage
from advisor.model.arrays import Array

#: Operations that a diagnosis replays at most: some 25 steps of a small decoder. A what-if asked
#: for by the user replays up to `MOST_OPS`.
DIAGNOSIS_OPS = 20_000
MOST_OPS = 200_000
#: Steps before the ones that are measured, so that the first of these starts as it did.
_LEAD = 1
#: The step times must vary less than this between stretches to be told apart.
_LEAST_STEPS = 3


@dataclass(frozen=True)
class Excerpt:
    """Steps `first`..`last` are replayed and `measured` of them (positions, their predecessor is
    replayed too) are timed. `whole` is the number of steps that the window has."""

    first: int
    last: int
    measured: Array
    whole: int

    @property
    def note(self) -> str | None:
        """What a reader must know: that not all steps were replayed."""
        if len(self.measured) == self.whole:
            return None
        return f"{len(self.measured)} of {self.whole} steps were replayed, those most like the rest"


class NoReplay(Exception):
    """The capture cannot be replayed; the text says why."""


def choose_steps(a: Analysis, limit: int = DIAGNOSIS_OPS) -> Excerpt:
    """The steps of the window, or the stretch of them whose mean step time is nearest to the
    window's where they hold more than `limit` operations. Raises NoReplay."""
    if len(a.ops) == 0:
        raise NoReplay("the capture holds no GPU operations to replay")
    if len(a.window.cut(a.damage.holes)):
        raise NoReplay("events were lost inside the window, so the timeline cannot be replayed")
    if a.steps.method == "none" or len(a.window_steps) == 0:
        raise NoReplay("no steps were found, so there is no step time to predict")
    steps = a.window_steps[a.window_steps >= _LEAD]
    if len(steps) == 0:
        raise NoReplay("one step alone shows no step time: nothing comes before it")
    # Steps of one phase may lie apart; a stretch runs over what lies between.
    lo, hi = int(steps[0]), int(steps[-1])
    size = np.bincount(a.steps.op_step[a.steps.op_step >= 0], minlength=len(a.steps))
    total = np.concatenate(([0], np.cumsum(size[lo - _LEAD : hi + 1])))
    if total[-1] <= limit:
        return Excerpt(lo - _LEAD, hi, steps, len(steps))
    wide = int(np.searchsorted(total, limit, "right")) - 1 - _LEAD
    wide = min(max(wide, _LEAST_STEPS), hi - lo + 1)
    time = np.diff(recorded_ends(a))[lo - _LEAD : hi]  # of steps lo..hi
    inside = np.zeros(hi - lo + 1, bool)
    inside[steps - lo] = True
    sums = _rolling(np.where(inside, time, 0), wide)
    count = _rolling(inside.astype(np.int64), wide)
    mean = float(time[inside].mean())
    off = np.abs(sums / np.maximum(count, 1) - mean)
    off[count == 0] = np.inf
    begin = lo + int(np.argmin(off))
    chosen = steps[(steps >= begin) & (steps < begin + wide)]
    return Excerpt(begin - _LEAD, begin + wide - 1, chosen, len(steps))


def recorded_ends(a: Analysis) -> Array:
    """When each step ended, ns of recorded time: the stretches between capture ranges take none."""
    return np.asarray(a.steps.gpu_end - Coverage(a.pauses)(a.steps.gpu_end))


def _rolling(values: Array, wide: int) -> Array:
    total = np.concatenate(([0], np.cumsum(values)))
    return np.asarray(total[wide:] - total[:-wide])


def host_span(a: Analysis, excerpt: Excerpt) -> tuple[int, int]:
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
    lo, hi = np.searchsorted(a.ops.start, (steps.gpu_start[step] - 1, steps.gpu_end[step]))
    api = a.ops.api[lo:hi][(steps.op_step[lo:hi] == step)]
    api = api[api >= 0]
    if len(api) == 0:
        return int(steps.gpu_start[step])
    return int(a.trace.columns("api_calls", ("start",))["start"][api].min())
