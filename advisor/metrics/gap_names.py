"""What the host did in its gaps: the range, Python function or operator that explains them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from advisor.metrics.host import Ranges
from advisor.metrics.intervals import Coverage, Spans
from advisor.sources.trace import Trace


class GapName(NamedTuple):
    text: str
    covered_ns: int  # of the gaps, at most their length


def name_of_gaps(
    trace: Trace, ranges: Ranges, thread: int, gaps: Spans, around: Collection[int]
) -> GapName | None:
    """The name that explains the gaps (ascending, disjoint) of a thread: of those that cover at
    least half as much as any does, the one with the largest share of its own time in gaps, if that
    is more than half. `around` are texts of `ranges` that stand around whole steps."""
    if not len(gaps):
        return None
    lo, hi = int(gaps.start[0]), int(gaps.end[-1])
    rows = ranges.of_thread(thread, lo, hi)
    inner = ~np.isin(rows["text"], list(around))
    kinds, kind_of = ranges.kinds
    start, end, kind = rows["start"][inner], rows["end"][inner], kind_of[rows["text"][inner]]
    names = list(kinds)
    if trace.has("python_calls"):
        calls = trace.columns("python_calls", ("start", "end", "thread", "text_id"))
        at = (calls["thread"] == thread) & (calls["start"] < hi) & (calls["end"] > lo)
        ids, function = np.unique(calls["text_id"][at], return_inverse=True)
        start = np.concatenate((start, calls["start"][at]))
        end = np.concatenate((end, calls["end"][at]))
        kind = np.concatenate((kind, len(names) + function))
        names += trace.texts(ids.tolist())
    if not len(kind):
        return None
    inside = np.bincount(kind, Coverage(gaps).within(start, end))
    length = np.bincount(kind, end - start)
    own = np.where(2 * inside >= inside.max(), inside / np.maximum(length, 1), 0)
    best = int(np.argmax(own))
    if 2 * inside[best] <= length[best]:
        return None
    return GapName(names[best], min(int(inside[best]), gaps.total))
