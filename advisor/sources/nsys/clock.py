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
    """The file's time of our 0, ns: 0 if its times count from the session's start. Times that count from 1970
    or from the start of the machine are counted from the first call instead, or from the first kernel
    without calls."""
    table, first = _first(raw)
    if first < _LATEST_NS:
        return 0
    (start,) = raw.read(table, ["start"])
    start = start[start != MISSING]
    return int(start[np.abs(start.astype(float) - median_of(start)) <= FAR_NS].min(initial=first))


def began_early(raw: RawTables) -> bool:
    """Whether the first recorded work is dated before the session."""
    return _first(raw)[1] < 0


def _first(raw: RawTables) -> tuple[str, int]:
    """The table of calls, or else of work or ranges, and the start in its first row; 0 if there is none."""
    table = next((t for t in _WORK if raw.has(t) and "start" in raw.columns(t)), None)
    return ("", 0) if table is None else (table, raw.first(table, "start") or 0)


def from_zero(read: Columns, zero: int) -> Columns:
    """The columns with their times counted from `zero` on."""
    if not zero:
        return read
    moved = {n: np.where(read[n] == MISSING, MISSING, read[n] - zero) for n in TIMES & read.keys()}
    return read | moved
