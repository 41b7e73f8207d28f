"""Rows that cannot be true: counted, never repaired.

Every check is an invariant of what CUDA and a profiler can record. No real capture tested (nsys 2022 to
2026, PyTorch on NVIDIA and AMD) breaks one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.intervals import positions
from advisor.metrics.loaded.losses import PLACE_BITS, WAITS_FOR_ALL
from advisor.metrics.loaded.operations import (
    Kind,
    Operations,
    call_keys,
    calls_named,
    combinations,
    contexts,
    join,
)
from advisor.model.arrays import (
    Array,
    among,
    begins_run,
    bounds_of,
    distinct,
    marked,
    median_of,
    ordered,
    picked,
    pieces,
    sorting,
    where,
)
from advisor.sources.schema import ISSUING, MISSING, SAMPLE_RATIOS, TABLES, Call, classify
from advisor.sources.trace import FAR_NS, TIMELESS, Trace

#: Calls by which a kernel may ask to begin before the one ahead has ended (programmatic dependent
#: launch); it still ends after it. Every overlap but one of the real captures is of these.
_DEPENDENT = re.compile("LaunchKernelEx")
#: Calls that return when all work of one stream has ended; which one, the table of waits says.
_WAITS_FOR_STREAM = re.compile(r"StreamSynchronize")
#: By `Kind`, calls that issue none of it: no operation of a real capture has the id of one. AMD copies and
#: fills with kernels.
_IDLE_CALLS = (Call.SYNC, Call.FREE, Call.EVENT, Call.PROFILER)
_OTHER_WORK = {
    Kind.KERNEL: (*_IDLE_CALLS, Call.COPY, Call.MEMSET),
    Kind.COPY: (*_IDLE_CALLS, Call.MEMSET),
    Kind.MEMSET: (*_IDLE_CALLS, Call.COPY),
    Kind.GRAPH_RUN: (*_IDLE_CALLS, Call.COPY, Call.MEMSET, Call.LAUNCH),
}
#: Columns of each table that hold a size; readers write `MISSING` where a row has none.
_SIZES = {"kernels": ("blocks", "threads"), "copies": ("bytes",), "memsets": ("bytes",)}

_GPU = ("kernels", "copies", "memsets", "graph_runs")
_TIMED = (*_GPU, "api_calls", "ranges", "waits", "host_calls", "overheads")


class Invalid(Struct, frozen=True):
    """Rows that break an invariant: how many by (check, table), and the largest share of the rows of one
    table that break any, or of the calls whose work does. Tables that are views are named in `views`."""

    counts: dict[tuple[str, str], int]
    worst_ratio: float
    views: tuple[str, ...] = ()

    def of(self, check: str) -> int:
        """Rows of all tables that break one invariant."""
        return sum(n for (name, _), n in self.counts.items() if name == check)


def find_invalid(trace: Trace, ops: Operations) -> Invalid:
    """Checks every table that holds times, and the samples."""
    counts: dict[tuple[str, str], int] = {}
    of_ops, usual = _checks_of_ops(trace, ops), _usual_time(trace)
    worst = _share_of_calls(ops, [*of_ops.values()])
    for table in (*_TIMED, "samples"):
        rows = trace.rows(table)
        if timeless := trace.ledger.get(("dropped", TIMELESS, table), (0, 0))[0]:
            counts["no time", table] = timeless
            worst = max(worst, timeless / (rows + timeless))
        if not rows:
            continue
        broken = np.zeros(rows, bool)
        for check, mask in _checks(trace, ops, of_ops, table, usual):
            if found := int(np.count_nonzero(mask)):
                counts[check, table] = counts.get((check, table), 0) + found
                broken |= mask
        if left_out := trace.left_out.get(table, 0):
            counts["left out", table] = left_out
        worst = max(worst, (int(broken.sum()) + left_out) / (rows + left_out))
    views = trace.capture.views
    if views or any(check == "times apart" for check, _ in counts):
        worst = 1.0  # one such time stretches the capture, and a view may hold anything
    return Invalid(counts, worst, views)


def _checks(
    trace: Trace, ops: Operations, of_ops: dict[str, Array], table: str, usual: float
) -> Iterator[tuple[str, Array]]:
    """(what is broken, mask over the rows of the table); `usual` is a time of this capture."""
    if table == "samples":
        shares = trace.columns(table, SAMPLE_RATIOS).values()
        yield (
            "above 100 %",
            np.any([v > limits.recording.FULL_RATIO for v in shares], axis=0),
        )  # false for NaN: not sampled
        return
    start, end = trace.columns(table, ("start", "end")).values()
    yield "no time", start == MISSING
    yield "end before start", end < start
    if max(usual - int(start.min()), int(start.max()) - usual, int(end.max()) - usual) > FAR_NS:
        apart = np.maximum(np.abs(start.astype(float) - usual), end.astype(float) - usual)
        yield "times apart", apart > FAR_NS
    if table in _GPU:
        at = np.flatnonzero(ops.kind == _GPU.index(table))
        at = at[sorting(ops.row[at])]
        yield from ((check, mask[at]) for check, mask in of_ops.items() if mask.any())
    if table in _SIZES:
        sizes = trace.columns(table, _SIZES[table]).values()
        yield "negative size", np.any([(v < 0) & (v != MISSING) for v in sizes], axis=0)
    if table in ("kernels", "copies", "memsets", "api_calls"):
        yield "recorded twice", _repeated(trace, table)
    if table in ("kernels", "api_calls") and _counts_finely(start):
        yield "without length", start == end
    if table == "api_calls":
        yield "correlation id repeated", _same_id(trace, ops)
        yield "overlap on a thread", _crossing(trace)
        if not of_ops:  # the times of work that is joined by its ids show whether these are right
            yield "ids in no order", _disordered(trace)
    if table in ("kernels", "api_calls"):
        yield from _wrong_names(trace, table)


def _checks_of_ops(trace: Trace, ops: Operations) -> dict[str, Array]:
    """What is broken of operations of any table: masks over `ops`."""
    calls = trace.columns("api_calls", ("start", "call"))
    joined = ops.api >= 0
    if not joined.any():
        return {}
    api, alone = np.maximum(ops.api, 0), _launched_alone(trace, ops, calls["call"])
    return {
        "before its launch": joined & (ops.start < calls["start"][api] - limits.recording.SKEW_NS),
        "overlap on a stream": _overlapping(trace, ops, alone),
        "one launch for several": _sharing_a_launch(ops, alone[ops.kind[alone] == Kind.KERNEL]),
        "overlap of replays": _overlapping_replays(trace, ops, calls["call"], alone),
        "after its wait": _outlasting(trace, ops, calls["call"]),
        "issued by another kind of call": joined & _misissued(trace, ops.kind, calls["call"][api]),
    }


def _share_of_calls(ops: Operations, broken: list[Array]) -> float:
    """Of the calls that issued work, the share of those with a broken row: one launch of a graph has many."""
    calls = [distinct(ops.api[(ops.api >= 0) & mask]) for mask in broken if mask.any()]
    return len(distinct(np.concatenate(calls))) / len(distinct(ops.api[ops.api >= 0])) if calls else 0.0


def _misissued(trace: Trace, kind: Array, call: Array) -> Array:
    """Which operations are of a kind that their call does not issue."""
    other = {k: _IDLE_CALLS if trace.capture.vendor == "AMD" else v for k, v in _OTHER_WORK.items()}
    return np.asarray(np.logical_or.reduce([(kind == k) & among(call, v) for k, v in other.items()]))


def _counts_finely(start: Array) -> bool:
    """Whether the clock counts fewer ns than those by which coarse ones go on: most show it at once."""
    return any(
        bool(((some - start[0]) % limits.recording.FINE_NS).any())
        for some in (start[: limits.recording.FIRST_STAMPS], start[limits.recording.FIRST_STAMPS :])
    )


def _usual_time(trace: Trace) -> float:
    """The median start of the largest table; 0 if there is none."""
    largest = max(_TIMED, key=trace.rows)
    start = trace.columns(largest, ("start",))["start"]
    if len(start) and isinstance(sorting(start), slice):
        start = start[(len(start) - 1) // 2 : len(start) // 2 + 1]
    return median_of(start) if len(start) else 0.0


#: What a repeated row has in common with the one before.
_SAME = (
    "start",
    "end",
    "device",
    "stream",
    "process",
    "thread",
    "correlation",
    "graph_node",
    "name_id",
    "bytes",
)


def _repeated(trace: Trace, table: str) -> Array:
    """Rows that equal an earlier one in time, place, correlation and name."""
    columns = trace.columns(table, [c for c in _SAME if c in TABLES[table]])
    order = sorting(columns["start"])
    start = columns["start"][order]
    at_once = start[1:] == start[:-1]
    rows = np.flatnonzero(np.append(at_once, False) | np.append(False, at_once))  # few: spares the sort
    rows = rows if isinstance(order, slice) else order[rows]
    values = [c[rows] for c in columns.values()]
    if "graph_node" in columns:  # readers number the nodes that a profiler does not, each row for itself
        node = columns["graph_node"][rows].astype(np.int64)
        values[[*columns].index("graph_node")] = np.where(node >> PLACE_BITS > 0, node, 0)
    order = np.lexsort(tuple(values))
    return marked(len(start), rows[order[~begins_run(*(v[order] for v in values))]])


def _alike(rows: Array, others: Array, *columns: Array) -> Array:
    """Which of the rows equal another one in all columns."""
    same = [column[rows] == column[others] for column in columns]
    return np.asarray(np.logical_and.reduce(same))


def _launched_alone(trace: Trace, ops: Operations, call: Array) -> Array:
    """Positions in `ops` of operations with a call of their own: nodes of a graph run side by side under
    the number of one stream. Tools for AMD name no stream of copies."""
    call = call[np.maximum(ops.api, 0)]
    own = (call == Call.LAUNCH) & (ops.kind == Kind.KERNEL)
    if trace.capture.vendor != "AMD":
        own |= among(call, (Call.COPY, Call.MEMSET))
    return np.flatnonzero(own & (ops.api >= 0) & (ops.graph_node == 0)).astype(np.int32)


def _overlapping(trace: Trace, ops: Operations, at: Array) -> Array:
    """Of these operations, those that begin before the one ahead on their stream has ended; where the
    launch allows that, those that also end before it."""
    context = contexts(trace, ops)
    order = at[sorting(*(picked(v, at) for v in (ops.start, ops.stream, context, ops.device, ops.process)))]
    start, end = ops.start[order], ops.end[order]
    # Few overlap the one ahead: only these are examined closely.
    beside = np.minimum(end[:-1], end[1:])
    beside -= start[1:]
    after = np.flatnonzero(beside > limits.recording.ROUNDING_NS) + 1
    sooner = end[after] < end[after - 1]
    mine, ahead = order[after], order[after - 1]
    wrong = _alike(mine, ahead, ops.stream, context, ops.device, ops.process)
    wrong &= ~calls_named(trace, ops.api[mine], _DEPENDENT) | sooner
    # One call may copy many places at once.
    wrong &= (ops.kind[mine] == Kind.KERNEL) | (ops.api[mine] != ops.api[ahead])
    return marked(len(ops), mine[wrong])


def _overlapping_replays(trace: Trace, ops: Operations, call: Array, alone: Array) -> Array:
    """Work of a graph launch that begins before what is ahead on its stream has ended, and work that begins
    before a graph launch ahead has: CUDA runs one after the other. Nodes of some graphs run on several
    streams, whose numbers may be those of other work: only launches of that graph follow each other there."""
    replayed = np.flatnonzero((ops.api >= 0) & (ops.kind != Kind.GRAPH_RUN))
    replayed = replayed[call[ops.api[replayed]] == Call.GRAPH_LAUNCH]
    if not len(replayed):
        return np.zeros(len(ops), bool)
    at = np.concatenate((replayed, alone[ops.stream[alone] != MISSING]))
    # What was launched by one call comes as one.
    one = np.concatenate((ops.api[replayed], -1 - np.arange(len(at) - len(replayed))))
    _, first, of, count = np.unique(one, return_index=True, return_inverse=True, return_counts=True)
    start, end = bounds_of(len(first), of, ops.start[at], ops.end[at])
    elsewhere = marked(len(first), of[ops.stream[at] != ops.stream[at[first]][of]])
    graph = first < len(replayed)
    name = np.zeros(len(first), np.int64)
    kernel = elsewhere & (ops.kind[at[first]] == Kind.KERNEL)
    name[kernel] = trace.columns("kernels", ("name_id",))["name_id"][ops.row[at[first[kernel]]]]
    context = contexts(trace, ops)
    place = (v[at[first]] for v in (ops.stream, context, ops.device, ops.process))
    same = np.where(elsewhere, count, 0), name, *place
    order = ordered(start, *same)
    start, end, graph = start[order], end[order], graph[order]
    wrong = ~begins_run(*(v[order] for v in same))
    wrong[1:] &= np.minimum(end[:-1], end[1:]) - start[1:] > limits.recording.ROUNDING_NS
    wrong[1:] &= graph[1:] | graph[:-1]
    dependent = calls_named(trace, ops.api[at[first]][order], _DEPENDENT)
    wrong[1:] &= ~dependent[1:] | (end[1:] < end[:-1])
    return marked(len(ops), at[marked(len(first), order[wrong])[of]])


def _outlasting(trace: Trace, ops: Operations, call: Array) -> Array:
    """Work that ends after the return of a call that waited for it, and began after the return of the call
    that issued it: any work of the process, unless it uses several devices, or that of one stream."""
    mask = np.zeros(len(ops), bool)
    names = "start", "end", "process", "result", "correlation"
    start, end, process, result, correlation = trace.columns("api_calls", names).values()
    syncs = np.flatnonzero((call == Call.SYNC) & ((result == 0) | (result == MISSING)))
    syncs = syncs[sorting(start[syncs])]
    joined = np.flatnonzero(ops.api >= 0)

    def check(waits: Array, work: Array) -> None:
        begun, over = start[waits], end[waits]
        for piece in pieces(len(work)):  # an operation takes 40 bytes here
            some = work[piece]
            after = positions(begun, end[ops.api[some]])
            some, after = some[after < len(waits)], after[after < len(waits)]
            mask[some] |= ops.end[some] - limits.recording.LATE_END_NS > over[after]

    for_all = syncs[calls_named(trace, syncs, WAITS_FOR_ALL)]
    for one in distinct(process[for_all]).tolist():
        work = joined[where(picked(ops.process, joined) == one)]
        if len(distinct(ops.device[work])) == 1:
            check(for_all[process[for_all] == one], work)
    of_stream = syncs[calls_named(trace, syncs, _WAITS_FOR_STREAM)]
    if trace.has("waits") and len(of_stream):
        waits = trace.columns("waits", ("process", "correlation", "context", "stream"))
        keys = call_keys(waits["process"], waits["correlation"], process[of_stream], correlation[of_stream])
        row = np.where(correlation[of_stream] == MISSING, MISSING, join(*keys))
        of_stream, row = of_stream[row != MISSING], row[row != MISSING]
        waited = (waits[name][row] for name in ("process", "context", "stream"))
        here = (column[joined] for column in (ops.process, contexts(trace, ops), ops.stream))
        place = combinations(*(np.concatenate(pair) for pair in zip(waited, here, strict=True)))[1]
        place, of_work = place[: len(row)], place[len(row) :]
        for one in distinct(place[waits["stream"][row] != MISSING]).tolist():
            check(of_stream[place == one], joined[of_work == one])
    return mask


def _crossing(trace: Trace) -> Array:
    """Calls that begin inside the call ahead on their thread and end after it."""
    columns = trace.columns("api_calls", ("start", "end", "thread", "process"))
    start, end, thread, process = columns.values()
    order = sorting(-end, start, thread, process)
    start, end = start[order], end[order]
    after = (
        np.flatnonzero(
            (end[:-1] - start[1:] > limits.recording.ROUNDING_NS)
            & (end[1:] - end[:-1] > limits.recording.ROUNDING_NS)
        )
        + 1
    )
    mine, ahead = (after, after - 1) if isinstance(order, slice) else (order[after], order[after - 1])
    wrong = _alike(mine, ahead, thread, process) & (thread[mine] != MISSING)
    return marked(len(thread), mine[wrong])


def _disordered(trace: Trace) -> Array:
    """Calls that carry a lower id than the call ahead on their thread: ids are given when calls begin."""
    columns = trace.columns("api_calls", ("start", "thread", "process", "correlation"))
    start, thread, process, correlation = columns.values()
    order = ordered(correlation, start, thread, process)
    wrong = ~begins_run(thread[order], process[order]) & (thread[order] != MISSING)
    wrong[1:] &= (np.diff(correlation[order]) < 0) & (correlation[order][1:] != MISSING)
    wrong[1:] &= start[order][1:] > start[order][:-1]
    return marked(len(order), order[wrong])


def _sharing_a_launch(ops: Operations, at: Array) -> Array:
    """Of the kernels at these positions, those whose launch call already has a kernel on the device."""
    api, device = ops.api[at], ops.device[at]
    order = ordered(ops.start[at], device, api)
    return marked(len(ops), at[order[~begins_run(api[order], device[order])]])


def _same_id(trace: Trace, ops: Operations) -> Array:
    """Issuing calls that carry the id of an earlier one of their process, which had returned (a call inside
    another may share its id): of the one right ahead, or, as ids may begin anew, of any if they have no
    work."""
    names = ("process", "correlation", "start", "end", "call")
    process, correlation, start, end, call = trace.columns("api_calls", names).values()
    rows = np.flatnonzero(among(call, ISSUING) & (correlation != MISSING))
    rows = rows[sorting(start[rows], correlation[rows], process[rows])]
    again = ~begins_run(process[rows], correlation[rows])
    if not again.any():
        return np.zeros(len(call), bool)
    again[1:] &= start[rows][1:] >= end[rows][:-1]
    worked = marked(len(call), ops.api[ops.api >= 0])
    # Calls whose id no call has any work for hide none.
    number = np.cumsum(begins_run(process[rows], correlation[rows]))
    some = np.bincount(number, worked[rows])[number] > 0
    mask = marked(len(call), rows[again & some]) & ~worked
    rows = rows[ordered(start[rows], process[rows])]
    ahead = ~begins_run(process[rows], correlation[rows])
    ahead[1:] &= start[rows][1:] >= end[rows][:-1]
    mask[rows[ahead]] = True
    return mask


def _wrong_names(trace: Trace, table: str) -> Iterator[tuple[str, Array]]:
    name_id = trace.columns(table, ("name_id",))["name_id"]
    used = np.array(trace.distinct(table, "name_id"), np.int64)
    names = trace.texts(used.tolist())
    if table == "kernels":
        calls = set(trace.texts(trace.distinct("api_calls", "name_id"))) - {""}
        like_other = [name in calls or classify(name) != Call.OTHER for name in names]
        check = "named like a call"
    else:  # calls are functions of C, without types
        check, like_other = "named like a kernel", ["(" in name or "<" in name for name in names]
    for what, found in (("name without text", [not name for name in names]), (check, like_other)):
        yield what, among(name_id, used[np.array(found, bool) & (used != MISSING)].tolist())
