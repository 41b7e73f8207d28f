"""What a framework's profiler does on the host's threads: operators and Python calls that it records, and the
marks that it puts around steps."""

from __future__ import annotations

import re

import numpy as np

from advisor.gain.whatifs import constant
from advisor.metrics.intervals import Spans, union
from advisor.metrics.loaded.stage import Loaded
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import OPERATIONS

#: Marks of steps by PyTorch's profiler: `step()` ends one and begins the next.
_STEP_MARK = re.compile(r"^ProfilerStep#(\d+)$")


def recordings(a: Loaded) -> dict[int, list[tuple[Array, Array, bool]]]:
    """Operators and Python calls recorded on each thread by a profiler of a framework: when each began
    (ascending), and the most that recording all before the n-th cost, ns."""
    shapes = constant("shapes_trace_cost")
    kinds = []
    if a.trace.has("ranges"):
        columns = a.trace.columns("ranges", ("start", "thread", "domain", "operands_id"))
        written, sized = (texts[a.ranges.text_of] for texts in a.ranges.operator_texts)
        mine = (columns["domain"] == OPERATIONS) | written
        sizes = (columns["operands_id"] >= 0) | sized
        cost = np.where(written, constant("nvtx_operator_cost"), constant("operator_trace_cost"))
        each = (cost + shapes * sizes)[mine]
        kinds.append((columns["start"][mine], columns["thread"][mine], each, True))
    if a.trace.has("python_rows"):
        columns = a.trace.columns("python_rows", ("start", "thread"))
        each = np.full(len(columns["start"]), constant("python_trace_cost"))
        kinds.append((columns["start"], columns["thread"], each, False))
    found: dict[int, list[tuple[Array, Array, bool]]] = {}
    for start, thread, each, operator in kinds:
        for name in distinct(thread).tolist():
            at = np.flatnonzero(thread == name)
            at = at[np.argsort(start[at], kind="stable")]
            found.setdefault(name, []).append((start[at], np.append(0.0, np.cumsum(each[at])), operator))
    return found


def step_marks(a: Loaded) -> dict[int, Spans]:
    """By thread: the time between the marks of two steps of which one is numbered after the other, which the
    profiler's `step()` takes. Between others lie steps that it did not record."""
    found = a.ranges.matching(_STEP_MARK.match) if a.trace.has("ranges") else {}
    rows = a.ranges.rows(list(found))
    number = np.array([int(found[text][1]) for text in rows["text"].tolist()], np.int64)
    out: dict[int, Spans] = {}
    for thread in distinct(rows["thread"]).tolist():
        mine = np.flatnonzero(rows["thread"] == thread)
        follows = np.diff(number[mine]) == 1
        out[thread] = union(rows["end"][mine[:-1][follows]], rows["start"][mine[1:][follows]])
    return out
