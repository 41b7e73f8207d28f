"""Steps without ranges: passes that stand apart in time, as those of a service between its requests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.metrics.kernels import heaviest
from advisor.metrics.steps.model import MIN_LENGTH, Steps, Work
from advisor.metrics.steps.sequence import SPREAD, once_each, segmented
from advisor.model.arrays import Array, median_of

#: Passes stand apart if behind most of them the device idles for this long, ns, and for this many times as
#: long as anywhere inside: host code between layers takes less. This many passes or more, this
#: share of them of one size, hold this share of the operations (calibration#hst111).
_APART_NS, _TIMES, _MOST = 500_000, 10.0, 0.5
_LEAST, _EQUAL, _WHOLE = 6, 0.95, 0.9


def passes_apart(work: Work, attention: Array) -> Iterator[Steps]:
    """The segmentation by the waits of the thread that feeds the main stream, or by those of them behind
    which the device idles, if the parts are of one size and stand apart; those that hold one of the
    operations `attention` each may be layers."""
    main = work.main_stream
    api = work.ops.api[main]
    if len(main) < _LEAST * MIN_LENGTH or not (api >= 0).any():
        return
    thread, rows = work.calls["thread"], work.waits
    rows = rows[thread[rows] == heaviest(thread[api[api >= 0]])]
    order = main[np.argsort(work.launched[main], kind="stable")]
    awaited = np.isin(main, work.last_before(order, rows))
    reach = np.maximum.accumulate(work.ops.end[main])
    idle = np.append(np.maximum(work.ops.start[main][1:] - reach[:-1], 0), 0)
    last = np.flatnonzero(awaited)
    for at in (last, last[(idle[last] >= _APART_NS) | (last == len(main) - 1)]):
        size = np.diff(at)
        if len(size) < _LEAST or median_of(size) < MIN_LENGTH:
            continue
        even = np.abs(size - median_of(size)) <= SPREAD * median_of(size)
        if even.mean() < _EQUAL or size.sum() < _WHOLE * len(main):
            continue
        inside = np.maximum.reduceat(np.where(np.isin(np.arange(len(main)), at), 0, idle), at[:-1] + 1)
        behind = idle[at[:-1]]
        steps = segmented(work, main[at], "pauses", 0.7)
        if (behind >= max(_APART_NS, _TIMES * median_of(inside))).mean() < _MOST or once_each(
            steps, attention
        ):
            continue
        yield steps
        return
