"""What the host does while a device is idle: the thread that runs the loop, the ranges and the
operating-system calls that it is in; and gaps in which it computes on what the GPU hands it."""

from __future__ import annotations

import numpy as np

from advisor.knowledge.files import step_patterns
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import DeviceBudget
from advisor.metrics.gaps import GapName, name_of_gaps
from advisor.metrics.intervals import Coverage, Spans
from advisor.metrics.kernels import dense, heaviest
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array
from advisor.sources.schema import DTOH, HTOD, MISSING, Call


def loop_thread(budget: DeviceBudget, feeder: int) -> int:
    """The thread whose next call ends most of the host gaps: the one that runs the loop, while an
    autograd thread may launch most of the kernels. The feeding thread where there are no such gaps."""
    gap = budget.gap_parts["host_gap"]
    return heaviest(budget.gaps.thread[gap > 0], gap[gap > 0]) if gap.any() else feeder


def gap_name(a: Analysis, thread: int, gaps: Spans) -> GapName | None:
    """The range, function or operator inside the steps that explains these gaps of a thread."""
    patterns = step_patterns()
    around = a.ranges.matching(lambda t: patterns.step(t) or patterns.is_container(t) or None)
    calls = a.threads.of(thread)
    launches = calls.start[np.isin(calls.call, (Call.LAUNCH, Call.GRAPH_LAUNCH))]
    return name_of_gaps(a.trace, a.ranges, thread, gaps, around, launches)


def os_time(a: Analysis, thread: int, spans: Spans) -> tuple[list[str], Array]:
    """Operating-system calls of a thread by name, and their time inside the spans, ns."""
    calls = a.trace.columns("host_calls", ("start", "end", "thread", "name_id"))
    mine = calls["thread"] == thread
    inside = Coverage(spans).within(calls["start"][mine], calls["end"][mine])
    ids, of_call = dense(calls["name_id"][mine])
    return a.trace.texts(ids.tolist()), np.bincount(of_call, inside, minlength=len(ids))


# --- gaps in which the host computes on what the GPU hands it, and hands the result back ----------


#: What is copied is data from this size on (bytes); less is a token or a flag (calibration#exchange).
_DATA = 4096


def exchanges(a: Analysis, budget: DeviceBudget) -> tuple[Array, Array]:
    """Masks of the gaps that begin with the end of a copy of data to the host and end with a copy to
    the device, and of those among them whose copy to the device is data as well."""
    mine = np.flatnonzero(a.ops.device == budget.device)
    ops = a.ops.take(mine)
    copied, direction = np.zeros(len(ops), np.int64), np.zeros(len(ops), np.int64)
    copies = ops.kind == Kind.COPY
    columns = a.trace.columns("copies", ("kind", "bytes"))
    direction[copies] = columns["kind"][ops.row[copies]]
    copied[copies] = columns["bytes"][ops.row[copies]]
    before, after = budget.gaps.prev_op, budget.gaps.next_op
    known = (before != MISSING) & (after != MISSING)
    down = known & (direction[before] == DTOH) & (copied[before] >= _DATA)
    both = down & (direction[after] == HTOD)
    return both, both & (copied[after] >= _DATA)
