"""Whether what repeats lies inside something longer that repeats: then parts stick out at a constant
stride, by their size or by the pause before them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.knowledge.files import StepPatterns
from advisor.metrics.host import Ranges
from advisor.metrics.steps.model import Level, Steps, Work, graph_launches
from advisor.metrics.steps.sequence import (
    ENDED,
    LONGER,
    MIN_REPEATS,
    PAUSE_NS,
    SPREAD,
    constant_stride,
    copied,
    segmented,
)
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import DTOH

#: A level repeats the same number of times in this share of the steps.
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
    """Its number of repeats in a step; 0 where that differs from step to step."""
    count = np.bincount(step[step >= 0], minlength=len(steps))
    usual = int(np.median(count))
    return usual if float((count == usual).mean()) >= _ALIKE else 0


#: Parts that hold layers are passes of a model, of which at most so many make a step: drafts and their
#: verification, two networks in turn. At a longer stride a loop does something more every so often.
_PASSES = 8
#: Confidence of steps that may themselves be parts of longer ones.
_CONFIDENCE = 0.5


def outer_steps(work: Work, steps: Steps) -> Steps | None:
    """The longer steps that contain these as parts; None where nothing suggests any."""
    if len(steps) < 2 * MIN_REPEATS:
        return None
    size = steps.size
    layered = any(repeated_kernels(work, steps))
    odd = np.abs(size - usual_size(size)) > (SPREAD * usual_size(size) if layered or work.lost else 0)
    # The capture may begin and end within a part.
    odd[[0, -1]] = False
    at = _first_of_each(np.flatnonzero(odd))
    stride = constant_stride(at, len(steps))
    if layered and (stride >= _PASSES or _read_back(work, steps)):
        return None
    if not stride and not layered:
        pause = _pauses(work, steps)
        at = _first_of_each(np.flatnonzero(pause > PAUSE_NS + LONGER * np.median(pause)))
        stride = constant_stride(at, len(steps)) if len(at) >= MIN_REPEATS else 0
    if not stride:
        return None
    if len(steps) - at[-1] >= ENDED * stride:
        at = np.append(at, len(steps))
    main = work.main_stream
    reached = np.maximum.accumulate(steps.op_step[main])
    last = main[np.searchsorted(reached, at - 1, "right") - 1]
    found = segmented(work, last, steps.method, _CONFIDENCE)
    return replace(found, thread=steps.thread) if len(found) >= MIN_REPEATS else None


def _read_back(work: Work, steps: Steps) -> bool:
    """True where results of almost every part go to the host, which decides what comes next."""
    held = steps.op_step[copied(work, DTOH)]
    return len(distinct(held[held >= 0])) >= ENDED * len(steps)


def _first_of_each(at: Array) -> Array:
    """The first place of each run of neighbours."""
    return at[np.diff(at, prepend=-2) > 1]


def _pauses(work: Work, steps: Steps) -> Array:
    """The longest time that the main stream idles before an operation of each part, ns."""
    main = work.main_stream
    part = steps.op_step[main]
    idle = np.append(0, work.ops.start[main][1:] - work.ops.end[main][:-1])
    longest = np.zeros(len(steps), np.int64)
    np.maximum.at(longest, part[part >= 0], idle[part >= 0])
    longest[0] = 0
    return longest


def usual_size(size: Array) -> float:
    """The size that most parts have, or nearly."""
    known = distinct(size)
    ranked = np.sort(size)
    most = np.searchsorted(ranked, known * (1 + SPREAD), "right") - np.searchsorted(
        ranked, known * (1 - SPREAD), "left"
    )
    return float(known[np.argmax(most)])
