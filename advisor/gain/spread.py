"""How sure the mean of steps is, and ranges made of independent errors.

What a step differs by from the next one is no doubt about their mean: four milliseconds in every fourth step
cost as surely as one in each. The error of a mean is that of the means of blocks of steps, which hold what
comes at a rhythm alike (batch means; Law and Kelton, Simulation Modeling and Analysis, section 9.5.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from advisor.model.arrays import Array, distinct
from advisor.model.gain import Span


def error_of_mean(time: Array, phase: Array, weight: Array | None = None) -> float:
    """Standard error of the mean of `time`, one a step in their order, in its unit; 0 for a single step.

    Each `phase` has a mean of its own, of as many blocks as each holds steps: how many steps of each there
    are is the load's, not chance. `weight`: how many steps of the window each stands for, if not one."""
    weight = np.ones(len(time)) if weight is None else weight
    squared = 0.0
    for one in distinct(phase).tolist():
        mine = phase == one
        if (count := int(mine.sum())) < 2:
            continue
        parts = np.array_split(np.flatnonzero(mine), math.isqrt(count) if count >= 4 else count)
        blocks = [np.average(time[part], weights=weight[part]) for part in parts]
        error = float(np.std(blocks, ddof=1)) / math.sqrt(len(blocks))
        squared += (float(weight[mine].sum()) * error) ** 2
    return math.sqrt(squared) / float(weight.sum()) if len(time) else 0.0


def error_of_ratio(before: Array, after: Array, phase: Array, weight: Array | None = None) -> float:
    """Relative standard error of the mean of `before` over that of `after`, both one a step: what both share
    of the spread cancels."""
    weight = np.ones(len(after)) if weight is None else weight
    whole = float(np.average(after, weights=weight)) if len(after) else 0.0
    if whole <= 0.0:
        return 0.0
    ratio = float(np.average(before, weights=weight)) / whole
    error = error_of_mean(before - ratio * after, phase, weight)
    return error / (ratio * whole) if ratio > 0.0 else 0.0


def span(middle: float, ends: Sequence[float], noise: float) -> Span:
    """Middle value with the range of independent deviations (logarithms): pairs of `ends`, and noise."""
    down = up = noise**2
    logs = [math.log(e / middle) if e > 0 and middle > 0 else 0.0 for e in ends]
    for a, b in zip(logs[::2], logs[1::2], strict=True):
        down += min(a, b, 0.0) ** 2
        up += max(a, b, 0.0) ** 2
    return Span(low=middle * math.exp(-math.sqrt(down)), mid=middle, high=middle * math.exp(math.sqrt(up)))


def around(middle: float, center: float, ends: Sequence[float], noise: float) -> Span:
    """The `span` of deviations from `center`, with a middle value that may lie beside it."""
    wide = span(center, ends, noise)
    return Span(low=min(wide.low, middle), mid=middle, high=max(wide.high, middle))


def ratio_noise(before: float, after: float, noise: float) -> float:
    """Noise of a ratio of two step times. The variation of a step is at most what the fix removes, so a
    fix that removes little keeps a narrow range."""
    return min(noise, max(math.log(before / after), 0.0)) if before > 0 and after > 0 else 0.0
