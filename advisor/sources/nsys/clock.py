"""What the times of an export count from: those of an edited or merged one may be on another clock."""

from __future__ import annotations

import numpy as np

from advisor.model.arrays import median_of
from advisor.sources.nsys import table_map as nsys
from advisor.sources.schema import MISSING
from advisor.sources.trace import FAR_NS, Columns, RawTables

#: Columns of our tables that hold times.
TIMES = frozenset(("start", "end", "time"))
#: Tables of which the first tells when the program's work began.
_WORK = (nsys.RUNTIME, nsys.KERNEL, nsys.GRAPH_TRACE, nsys.MEMCPY, nsys.NVTX)
#: No session lasts so long: a float still tells single ns apart up to here, so that differences of means stay
#: exact, and sums of a few times fit 64 bits. 2^52 ns are 52 days.
_LATEST_NS = 1 << 52


def zero_of(raw: RawTables) -> int:
    """The file's time of our 0, ns: 0 if its times count from the session's start. Times below 0, and those
    that count from 1970 or from the start of the machine, are counted from the first call instead, or from
    the first kernel without calls."""
    table = next((t for t in _WORK if raw.has(t) and "start" in raw.columns(t)), None)
    first = None if table is None else raw.first(table, "start")
    if table is None or first is None or 0 <= first < _LATEST_NS:
        return 0
    (start,) = raw.read(table, ["start"])
    start = start[start != MISSING]
    near = start[np.abs(start.astype(float) - median_of(start)) <= FAR_NS]
    return int(near.min()) if len(near) else 0


def from_zero(read: Columns, zero: int) -> Columns:
    """The columns with their times counted from `zero` on."""
    if not zero:
        return read
    moved = {n: np.where(read[n] == MISSING, MISSING, read[n] - zero) for n in TIMES & read.keys()}
    return read | moved
