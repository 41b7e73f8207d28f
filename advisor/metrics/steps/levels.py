"""What repeats inside a step: pieces of a graph, micro-batches, layers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.knowledge.files import StepPatterns
from advisor.metrics.host import Ranges
from advisor.metrics.steps.model import Level, Steps, Work, graph_launches
from advisor.metrics.steps.sequence import MIN_REPEATS
from advisor.model.arrays import Array, distinct

#: A level comes equally often in this share of the steps.
_ALIKE = 0.8
#: The operations between two returns of a kernel number the same in this share of the returns, and
#: the repeats hold so much of the step.
_REGULAR, _HELD = 0.75, 0.5
#: A layer has at least this many operations; what is shorter is a loop over one kernel or two.
_MIN_LAYER = 4


def step_levels(work: Work, steps: Steps, ranges: Ranges, patterns: StepPatterns) -> tuple[Level, ...]:
    """The levels inside the steps, outer ones first; none where the steps are not believed."""
    if not len(steps) or not steps.believed:
        return ()
    found = [
        *_graphs(work, steps),
        *_inner_ranges(work, steps, ranges, patterns),
        *repeated_kernels(work, steps),
    ]
    return tuple(sorted(found, key=lambda level: level.per_step))


def _graphs(work: Work, steps: Steps) -> Iterator[Level]:
    """Graph launches: a model that was compiled in pieces launches one for each."""
    launched = work.calls["start"][graph_launches(work)]
    if (count := _per_step(np.searchsorted(steps.host_start, launched, "right") - 1, steps)) > 1:
        yield Level("graph launches", count)


def _inner_ranges(work: Work, steps: Steps, ranges: Ranges, patterns: StepPatterns) -> Iterator[Level]:
    """Ranges that number layers, blocks or micro-batches."""
    kinds, kind_of = ranges.kinds
    numbered = [i for i, kind in enumerate(kind_of.tolist()) if "#" in kinds[kind]]
    chosen = [i for i in numbered if patterns.is_inner(ranges.texts[i])]
    if not chosen:
        return
    rows = ranges.rows(chosen)
    kind = kind_of[rows["text"]]
    at = np.searchsorted(steps.host_start, rows["start"], "right") - 1
    inside = (rows["process"] == work.process) & (rows["start"] < steps.host_end[np.maximum(at, 0)])
    for number in distinct(kind).tolist():
        mine = inside & (kind == number)
        if (count := _per_step(at[mine], steps)) > 1:
            yield Level(f"ranges {kinds[number]}", count)


def repeated_kernels(work: Work, steps: Steps) -> Iterator[Level]:
    """The longest run of kernels that returns again and again in a step of the usual size."""
    main = work.main_stream[work.name[work.main_stream] >= 0]
    size = np.bincount(np.maximum(steps.op_step[main] + 1, 0), minlength=len(steps) + 1)[1:]
    usual = int(np.argmin(np.abs(size - np.median(size))))
    sequence = work.name[main[steps.op_step[main] == usual]]
    if len(sequence) < MIN_REPEATS * _MIN_LAYER:
        return
    names, count = np.unique(sequence, return_counts=True)
    for n in distinct(count[(count >= MIN_REPEATS)]).tolist():
        for name in names[count == n].tolist():
            period = np.diff(np.flatnonzero(sequence == name))
            length = int(np.median(period))
            regular = float((period == length).mean()) >= _REGULAR
            if regular and length >= _MIN_LAYER and n * length >= _HELD * len(sequence):
                yield Level(f"repeats of {length} kernels", n)
                return


def _per_step(step: Array, steps: Steps) -> int:
    """How often it comes in a step; 0 where that differs from step to step."""
    count = np.bincount(step[step >= 0], minlength=len(steps))
    usual = int(np.median(count))
    return usual if float((count == usual).mean()) >= _ALIKE else 0
