"""Times of steps, steps far slower than the rest, and what single pauses cost."""

from __future__ import annotations

import numpy as np

from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import PARTS, DeviceBudget
from advisor.metrics.intervals import Coverage
from advisor.model.arrays import Array

#: Slow steps are single pauses where at most this part of the steps (or one) is slow, of so many
#: steps at least (calibration#hst105).
FEW, EVEN_STEPS = 0.1, 6


def step_times(a: Analysis) -> Array:
    """Times of the window's steps, ns, without what was not recorded; the first step of a capture
    counts from its first work."""
    begin = a.steps.begin[a.window_steps]
    end = a.steps.gpu_end[a.window_steps]
    return np.asarray(end - begin - Coverage(a.window.holes).within(begin, end))


def slow_steps(a: Analysis) -> tuple[Array, Array, Array] | None:
    """Steps of the phase that holds most of them: position in `a.steps`, time without start-up (ns),
    and whether the step is far slower than the rest; None where fewer than three are certain."""
    if a.step_count < 3:
        return None
    phases = a.window_phases
    names, count = np.unique(phases, return_counts=True)
    mine = phases == names[np.argmax(count)]
    times = step_times(a)[mine]
    if a.main_device in a.budgets:  # a step that loads a module is slow for a reason that is named
        times = times - a.budgets[a.main_device].by_step[a.window_steps[mine], PARTS.index("startup")]
    if len(times) < 3:
        return None
    slow = times > 1.5 * np.median(times)
    rest = times[~slow]
    slow &= times > rest.mean() + 3 * rest.std()
    return a.window_steps[mine], times, slow


def pause_ns(a: Analysis, budget: DeviceBudget) -> float:
    """What few slow steps among even ones lose in host gaps, beyond the gap of a median step; 0
    where many are slow: that is how the program runs."""
    found = slow_steps(a)
    if found is None:
        return 0.0
    step, _, slow = found
    if not slow.any() or slow.sum() > max(len(step) * FEW, 1) or len(step) < EVEN_STEPS:
        return 0.0
    held = budget.by_step[step, PARTS.index("host_gap")]
    return float(np.maximum(held[slow] - np.median(held[~slow]), 0).sum())
