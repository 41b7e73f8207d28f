"""What range names say of the size of each step."""

from __future__ import annotations

import numpy as np

from advisor.knowledge.files import StepName, step_patterns
from advisor.metrics.analysis import Analysis
from advisor.model.arrays import Array


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
