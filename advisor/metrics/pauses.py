"""Steps of the window: their times, those far slower than the rest, what single pauses cost, and the sizes
that range names tell."""

from __future__ import annotations

import numpy as np

from advisor.knowledge.files import StepName, step_patterns
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


def once_ratio(a: Analysis, budget: DeviceBudget) -> float:
    """How much of the host gaps the longest one holds, where the window lies between too few steps to
    show whether it recurs; 0 where there are enough, or nothing but one pass."""
    gap = budget.gap_parts["host_gap"]
    if not 0 < a.step_count < min(EVEN_STEPS, len(a.steps)):
        return 0.0
    return float(gap.max(initial=0)) / max(float(gap.sum()), 1.0)


def step_sizes(a: Analysis, steps: Array) -> list[StepName | None]:
    """What the range name of each step says of its batch and tokens."""
    none: list[StepName | None] = [None] * max(len(steps), 1)
    if a.steps.method != "ranges" or not len(steps):
        return none
    named = a.ranges.matching(step_patterns().step)
    rows = a.ranges.rows(list(named))
    mine = rows["thread"] == a.steps.thread
    start, text = rows["start"][mine], rows["text"][mine]
    at = np.searchsorted(start, a.steps.host_start[steps])
    found: list[StepName | None] = []
    for i, begin in zip(at.tolist(), a.steps.host_start[steps].tolist(), strict=True):
        hit = named[int(text[i])] if i < len(start) and start[i] == begin else None
        found.append(None if hit is None else _size(hit))
    return found


def _size(name: StepName) -> StepName:
    """The name with its batch filled in from the numbers of prompts and generations."""
    if name.batch is None and name.generation is not None:
        return name._replace(batch=(name.context or 0) + name.generation)
    return name
