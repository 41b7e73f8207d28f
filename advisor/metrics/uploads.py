"""Small copies to the device that one call after the other makes."""

from __future__ import annotations

import numpy as np

from advisor.model.arrays import Array, among, begins_run, ordered
from advisor.sources.schema import MISSING, Call

#: Copies of at most this many bytes cost a call and its latency rather than their transfer.
SMALL = 64 << 10
#: This many in a row are inputs that could be packed into one.
_MANY = 8


def small_runs(thread: Array, start: Array, kind: Array, small: Array) -> Array:
    """For each call the number of the run of small copies that it belongs to, MISSING for none: eight calls
    or more of one thread that are `small` copies, with only waits between them. `kind` is that of
    `api_calls.call`; calls that neither issue work nor wait nor allocate are ignored."""
    acting = np.flatnonzero(~among(kind, (Call.OTHER, Call.EVENT, Call.PROFILER)))
    order = acting[ordered(start[acting], thread[acting])]
    inside = small[order] | (kind[order] == Call.SYNC)
    run = np.cumsum(begins_run(thread[order], inside))
    many = np.bincount(run, small[order] & inside, minlength=1) >= _MANY
    out = np.full(len(kind), MISSING, np.int64)
    out[order] = np.where(inside & many[run], run, MISSING)
    return out
