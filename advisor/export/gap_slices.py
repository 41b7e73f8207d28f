"""The largest idle gaps of a device, cut into the parts of the budget where they happened."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import Slice, gap_slices
from advisor.sources.schema import MISSING


class GapSlices(Struct, frozen=True):
    """One gap; `parts` cover it without overlap, in order of time. `thread` issued its end."""

    start: int
    end: int
    thread: int | None
    parts: tuple[Slice, ...]


def largest_gaps(analysis: Analysis, device: int, most: int) -> list[GapSlices]:
    """The `most` largest gaps of a device in order of time."""
    budget = analysis.budgets[device]
    gaps = budget.gaps
    largest = np.sort(np.argsort(-gaps.length, kind="stable")[:most]).tolist()
    slices = gap_slices(budget, analysis.threads, analysis.states, largest)
    return [
        GapSlices(
            start=int(gaps.start[i]),
            end=int(gaps.end[i]),
            thread=None if gaps.thread[i] == MISSING else int(gaps.thread[i]),
            parts=tuple(parts),
        )
        for i, parts in zip(largest, slices, strict=True)
    ]
