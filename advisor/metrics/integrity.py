"""Rows that cannot be true: counted, never repaired.

Every check is an invariant of what CUDA and a profiler can record. No real capture that
it was measured on (nsys 2022 to 2026, PyTorch on NVIDIA and AMD) breaks one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.metrics.damage import PLACE_BITS
from advisor.metrics.kernels import dense
from advisor.metrics.operations import Operations
from advisor.model.arrays import Array, among, distinct, ordered, picked, sorting
from advisor.sources.schema import ISSUING, MISSING, SAMPLE_RATIOS, TABLES, Call
from advisor.sources.trace import FAR_NS, Trace

#: By how much the clocks of host and device may differ, and stamps be rounded. Measured: no
#: operation of a real capture begins before its call.
SKEW_NS = 5_000
#: Kernels of one stream may overlap by the rounding of their stamps.
_ROUNDING_NS = 1_000
#: Calls by which a kernel may ask to begin before the one ahead has ended (programmatic dependent
#: launch); it still ends after it. Every overlap but one of the real captures is of these.
_DEPENDENT = "LaunchKernelEx"
#: Samplers round and average; a share of a peak beyond this is invalid.
FULL = 1.05

_GPU = ("kernels", "copies", "memsets", "graph_runs")
_TIMED = (*_GPU, "api_calls", "ranges", "host_calls", "overheads")


class Invalid(Struct, frozen=True):
    """Rows that break an invariant: how many by (check, table), and the largest share of the rows
    of one table that break any. Tables that are views are named in `views`."""

    counts: dict[tuple[str, str], int]
    worst_ratio: float
    views: tuple[str, ...] = ()

    def of(self, check: str) -> int:
        """Rows of all tables that break one invariant."""
        return sum(n for (name, _), n in self.counts.items() if name == check)


def find_invalid(trace: Trace, ops: Operations) -> Invalid:
    """Checks every table that holds times, and the samples."""
    counts: dict[tuple[str, str], int] = {}
    worst, usual = 0.0, _usual_time(trace)
    for table in (*_TIMED, "samples"):
        rows = trace.rows(table)
        if not rows:
            continue
        broken = np.zeros(rows, bool)
        for check, mask in _checks(trace, ops, table, usual):
            if found := int(np.count_nonzero(mask)):
                counts[check, table] = found
                broken |= mask
        if left_out := trace.left_out.get(table, 0):
            counts["left out", table] = left_out
        worst = max(worst, (int(broken.sum()) + left_out) / (rows + left_out))
    views = trace.capture.views
    if views or any(check == "times apart" for check, _ in counts):
        worst = 1.0  # one such time stretches the capture, and a view may hold anything
    return Invalid(counts, worst, views)


def _checks(trace: Trace, ops: Operations, table: str, usual: float) -> Iterator[tuple[str, Array]]:
    """(what is broken, mask over the rows of the table); `usual` is a time of this capture."""
    if table == "samples":
        yield "above 100 %", _overfull(trace)
        return
    start, end = trace.columns(table, ("start", "end")).values()
    yield "end before start", end < start
    if max(usual - int(start.min()), int(start.max()) - usual) > FAR_NS:
        yield "times apart", np.abs(start.astype(float) - usual) > FAR_NS
    if table in _GPU:
        at = _of_table(ops, table)
        yield "before its launch", _before_launch(trace, ops, at)
    if table in ("kernels", "copies", "memsets", "api_calls"):
        yield "recorded twice", _repeated(trace, table)
    if table == "kernels":
        rows = _launched_alone(trace, ops, at)
        yield "overlap on a stream", _overlapping(trace, ops.api[at], rows)
        yield "one launch for several", _sharing_a_launch(ops, at, rows)
    if table == "api_calls":
        yield "correlation id repeated", _same_id(trace, ops)
    if table in ("kernels", "api_calls"):
        yield from _wrong_names(trace, table)


def _usual_time(trace: Trace) -> float:
    """The median start of the largest table; 0 where there is none."""
    largest = max(_TIMED, key=trace.rows)
    start = trace.columns(largest, ("start",))["start"]
    if len(start) and isinstance(sorting(start), slice):
        start = start[(len(start) - 1) // 2 : len(start) // 2 + 1]
    return float(np.median(start)) if len(start) else 0.0


def _of_table(ops: Operations, table: str) -> Array:
    """Positions in `ops` of a table's rows, in the order of the table."""
    at = np.flatnonzero(ops.kind == _GPU.index(table))
    return np.asarray(at[sorting(ops.row[at])])


def _before_launch(trace: Trace, ops: Operations, at: Array) -> Array:
    api = ops.api[at]
    if not (api >= 0).any():
        return np.zeros(len(at), bool)
    called = trace.columns("api_calls", ("start",))["start"].take(api)  # of any call where there is none
    return np.asarray((api >= 0) & (ops.start[at] < called - SKEW_NS))


#: What a repeated row has in common with the one before.
_SAME = (
    "start", "end", "device", "stream", "process", "thread", "correlation", "graph_node", "name_id", "bytes",
)  # fmt: skip


def _repeated(trace: Trace, table: str) -> Array:
    """Rows that equal an earlier one in time, place, correlation and name."""
    columns = trace.columns(table, [c for c in _SAME if c in TABLES[table]])
    order = sorting(columns["start"])
    start = columns["start"][order]
    at_once = start[1:] == start[:-1]
    mask = np.zeros(len(start), bool)
    rows = np.flatnonzero(np.append(at_once, False) | np.append(False, at_once))  # few: spares the sort
    rows = rows if isinstance(order, slice) else order[rows]
    values = [c[rows] for c in columns.values()]
    if "graph_node" in columns:  # readers number the nodes that a profiler does not, each row for itself
        node = columns["graph_node"][rows].astype(np.int64)
        values[[*columns].index("graph_node")] = np.where(node >> PLACE_BITS > 0, node, 0)
    order = np.lexsort(tuple(values))
    mask[rows[order[_as_before(*(v[order] for v in values))]]] = True
    return mask


def _as_before(*columns: Array) -> Array:
    """Rows that equal the row before them in all columns."""
    equal = np.ones(len(columns[0]), bool)
    equal[:1] = False
    for column in columns:
        equal[1:] &= column[1:] == column[:-1]
    return equal


def _launched_alone(trace: Trace, ops: Operations, at: Array) -> Array:
    """Rows of `kernels` with a kernel-launch call of their own: the nodes of a graph run beside
    each other under the number of one stream. `at` are the positions of the rows in `ops`."""
    api = ops.api[at]
    if not (api >= 0).any():
        return np.empty(0, np.int64)
    call = trace.columns("api_calls", ("call",))["call"].take(api)
    return np.flatnonzero((api >= 0) & (call == Call.LAUNCH) & (ops.graph_node[at] == 0))


def _overlapping(trace: Trace, api: Array, rows: Array) -> Array:
    """Of these rows of `kernels`, those that begin before the previous kernel on their stream has ended;
    where the launch allows that, those that also end before it. `api` is the call of each row."""
    mask = np.zeros(len(api), bool)
    place = ("process", "device", "context", "stream")
    all_of = trace.columns("kernels", (*place, "start", "end"))
    columns = {n: picked(c, rows) for n, c in all_of.items()}
    order = sorting(columns["start"], *(columns[n] for n in place))
    start, end = columns["start"][order], columns["end"][order]
    wrong = _as_before(*(columns[n][order] for n in place))
    wrong[1:] &= np.minimum(end[:-1], end[1:]) - start[1:] > _ROUNDING_NS
    at = np.flatnonzero(wrong)
    inside = end[at] < end[at - 1]
    at = rows[at if isinstance(order, slice) else order[at]]
    ids, named = dense(trace.columns("api_calls", ("name_id",))["name_id"][api[at]])
    dependent = np.array([_DEPENDENT in n for n in trace.texts(ids.tolist())], bool)[named]
    mask[at[~dependent | inside]] = True
    return mask


def _sharing_a_launch(ops: Operations, at: Array, rows: Array) -> Array:
    """Of these rows of `kernels`, those whose launch call has already run one on the device. `at`
    are the positions of all rows in `ops`."""
    mask = np.zeros(len(at), bool)
    mine = at[rows]
    api, device = ops.api[mine], ops.device[mine]
    if len(distinct(api)) < len(api):
        order = ordered(ops.start[mine], device, api)
        mask[rows[order[_as_before(api[order], device[order])]]] = True
    return mask


def _same_id(trace: Trace, ops: Operations) -> Array:
    """Issuing calls without work that carry the id of an earlier one of their process, which had returned:
    a call inside another may share its id, and ids may begin anew."""
    names = ("process", "correlation", "start", "end", "call")
    process, correlation, start, end, call = trace.columns("api_calls", names).values()
    mask = np.zeros(len(call), bool)
    rows = np.flatnonzero(among(call, ISSUING) & (correlation != MISSING))
    order = sorting(start[rows], correlation[rows], process[rows])
    rows = rows if isinstance(order, slice) else rows[order]
    again = _as_before(process[rows], correlation[rows])
    if not again.any():
        return mask
    again[1:] &= start[rows][1:] >= end[rows][:-1]
    worked = np.zeros(len(call), bool)
    worked[ops.api[ops.api >= 0]] = True
    # Calls whose id no call has any work for hide none.
    first = np.flatnonzero(~_as_before(process[rows], correlation[rows]))
    some = np.logical_or.reduceat(worked[rows], first) if len(first) else worked[:0]
    some = np.repeat(some, np.diff(np.append(first, len(rows))))
    mask[rows[again & some]] = True
    mask[worked] = False
    return mask


def _wrong_names(trace: Trace, table: str) -> Iterator[tuple[str, Array]]:
    name_id = trace.columns(table, ("name_id",))["name_id"]
    used = np.array(trace.distinct(table, "name_id"), np.int64)
    names = trace.texts(used.tolist())
    if table == "kernels":
        calls = set(trace.texts(trace.distinct("api_calls", "name_id"))) - {""}
        check, like_other = "named like a call", [name in calls for name in names]
    else:  # calls are functions of C, without types
        check, like_other = "named like a kernel", ["(" in name or "<" in name for name in names]
    for what, found in (("name without text", [not name for name in names]), (check, like_other)):
        bad = used[np.array(found, bool) & (used != MISSING)]
        yield what, np.isin(name_id, bad) if len(bad) else np.zeros(len(name_id), bool)


def _overfull(trace: Trace) -> Array:
    columns = trace.columns("samples", SAMPLE_RATIOS)
    over = np.zeros(trace.rows("samples"), bool)
    for values in columns.values():
        over |= values > FULL  # false for NaN: not sampled
    return over
