"""Steps without ranges: passes that stand apart in time, as those of a service between its requests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.metrics import limits
from advisor.metrics.loaded.kernels import heaviest
from advisor.metrics.steps.model import Steps, Work
from advisor.metrics.steps.sequence import once_each, segmented
from advisor.model.arrays import Array, median_of


def passes_apart(work: Work, attention: Array) -> Iterator[Steps]:
    """The segmentation by the waits of the thread that feeds the main stream, or by those of them behind
    which the device idles, if the parts are of one size and stand apart; those that hold one of the
    operations `attention` each may be layers."""
    main = work.main_stream
    api = work.ops.api[main]
    if len(main) < limits.steps.APART_PASSES * limits.steps.STEP_OPERATIONS or not (api >= 0).any():
        return
    thread, rows = work.calls["thread"], work.waits
    rows = rows[thread[rows] == heaviest(thread[api[api >= 0]])]
    order = main[np.argsort(work.launched[main], kind="stable")]
    awaited = np.isin(main, work.last_before(order, rows))
    reach = np.maximum.accumulate(work.ops.end[main])
    idle = np.append(np.maximum(work.ops.start[main][1:] - reach[:-1], 0), 0)
    last = np.flatnonzero(awaited)
    for at in (last, last[(idle[last] >= limits.steps.APART_NS) | (last == len(main) - 1)]):
        size = np.diff(at)
        if len(size) < limits.steps.APART_PASSES or median_of(size) < limits.steps.STEP_OPERATIONS:
            continue
        even = np.abs(size - median_of(size)) <= limits.steps.SPREAD_RATIO * median_of(size)
        if even.mean() < limits.steps.APART_EQUAL_RATIO or size.sum() < limits.steps.APART_WHOLE_RATIO * len(
            main
        ):
            continue
        inside = np.maximum.reduceat(np.where(np.isin(np.arange(len(main)), at), 0, idle), at[:-1] + 1)
        behind = idle[at[:-1]]
        steps = segmented(work, main[at], "pauses", limits.steps.APART_CONFIDENCE)
        apart = behind >= max(limits.steps.APART_NS, limits.steps.APART_FACTOR * median_of(inside))
        if apart.mean() < limits.steps.APART_RATIO or once_each(steps, attention):
            continue
        yield steps
        return
