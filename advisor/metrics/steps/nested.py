"""Whether what repeats lies inside something longer that repeats: then parts stick out at a constant
stride, by their size or by the pause before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.metrics.steps.levels import repeated_kernels
from advisor.metrics.steps.model import Steps, Work
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

#: Parts that hold layers are passes of a model, of which at most so many make a step: drafts and their
#: verification, two networks in turn. At a longer stride a loop does something more every so often.
_PASSES = 8
#: Nothing tells that this is a step, and not a part of one again.
_CONFIDENCE = 0.5


def outer_steps(work: Work, steps: Steps) -> Steps | None:
    """The longer parts that these lie in, None where nothing shows any."""
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
