"""Losses: launches whose work is missing, work from before the recording, and traces that hold only a
part of the events of each step."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.intervals import EMPTY, Coverage, Spans, joined, union
from advisor.metrics.loaded.captured import Captured
from advisor.metrics.loaded.kernels import dense, heaviest
from advisor.metrics.loaded.operations import (
    GOOD_RESULTS,
    Kind,
    Operations,
    calls_named,
    combinations,
    first_work,
)
from advisor.model.arrays import Array, among, bounds_of, distinct, marked, median_of, ordered, where
from advisor.sources.schema import MISSING, OPERATIONS, Call
from advisor.sources.trace import Trace

#: nsys numbers a node by its graph in the upper half of this many bits and its place in the lower: the
#: places of every graph of the labelled captures are 0 to n-1 without a gap.
PLACE_BITS = 32
_NEVER = np.iinfo(np.int64).min
#: Calls that return when all work of their device or context has ended.
WAITS_FOR_ALL = re.compile(r"(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize|cudaThreadSynchronize")


def earlier_work(trace: Trace, ops: Operations) -> Spans:
    """Stretches in which the first operation of a stream was queued and its device ran nothing recorded:
    work launched before the recording began, which leaves no rows, held it up. A process that creates its
    context in the capture has none."""
    first, _ = combinations(ops.device, ops.stream)
    first = first[(ops.api[first] >= 0) & ~np.isin(ops.process[first], _fresh(trace, ops))]
    queued = trace.columns("api_calls", ("end",))["end"][ops.api[first]]
    late = ops.start[first] - queued >= limits.recording.FIRST_WAIT_NS
    first, queued = first[late], queued[late]
    found = EMPTY
    for device in distinct(ops.device[first]).tolist():
        mine, ran = ops.device[first] == device, ops.device == device
        start, end = queued[mine], ops.start[first[mine]]
        worked = Coverage(union(ops.start[ran], ops.end[ran])).within(start, end)
        idle = worked <= limits.recording.HELD_UP_RATIO * (end - start)
        found = joined(found, union(start[idle], end[idle]))
    return found


def _fresh(trace: Trace, ops: Operations) -> Array:
    """The processes that create their context, by a call of that length, before their first work."""
    calls = trace.columns("api_calls", ("start", "end", "process", "call"))
    slow = calls["end"] - calls["start"] >= limits.window.CONTEXT_NS
    at = np.flatnonzero(slow & among(calls["call"], (Call.ALLOC, Call.OTHER)))
    keys, of = dense(calls["process"][at])
    first = first_work(keys, ops.process, ops.start)[of]
    return distinct(keys[of[calls["start"][at] < first]])


# ---------------------------------------------------------------- launches without their work


class Losses(Struct, frozen=True):
    """Launch calls that succeeded and were due to leave GPU work, and those that left none.

    `rowless_graphs` left nothing; `lost_graphs` should have left rows, `opaque_graphs` were
    recorded as one block or not at all because the capture was not asked for their nodes.
    `lost_kernels` counts for each lost graph as many kernels as the others have in the mean, and the
    `lost_nodes` of replays that left some of their `nodes` and not the others.
    Of the `kernels` among those that have their call, `lost_calls` have none.
    Of the `copies` that calls were due to leave, those of the rows `lost_copies` of api_calls are missing.
    """

    launches: int
    lost_launches: int
    graph_launches: int
    rowless_graphs: int
    lost_graphs: int
    opaque_graphs: int
    lost_kernels: int
    nodes: int
    lost_nodes: int
    kernels: int
    lost_calls: int
    copies: int
    lost_copies: Array

    @property
    def share(self) -> float:
        """Share of the launches, of kernels or of graphs, whose work is missing."""
        graphs = self.lost_graphs / max(self.graph_launches, 1)
        return max(self.lost_launches / max(self.launches, 1), graphs)


def find_losses(trace: Trace, ops: Operations, captured: Captured) -> Losses:
    """Counts launch and copy calls that left no work on the GPU; calls recorded into a graph do not count.
    Needs `api_calls`."""
    calls = trace.columns("api_calls", ("call", "result"))
    succeeded = among(calls["result"], GOOD_RESULTS)  # a failed call issues no work
    rows, joined = len(succeeded), ops.api >= 0
    of_kernel = ops.api[joined & (ops.kind == Kind.KERNEL)]
    kernels = marked(rows, of_kernel)
    runs = marked(rows, ops.api[joined & (ops.kind == Kind.GRAPH_RUN)])
    left_work = marked(rows, ops.api[joined])
    graph = (calls["call"] == Call.GRAPH_LAUNCH) & succeeded
    succeeded &= ~captured.inside if captured.sure else True
    launch, copy = ((calls["call"] == kind) & succeeded for kind in (Call.LAUNCH, Call.COPY))
    lost, rowless, lost_copy = launch & ~kernels, graph & ~left_work, copy & ~left_work
    if lost.any() or rowless.any() or lost_copy.any():
        tail = _find_tail(trace, ops)
        cut, cut_copies = tail.cut_off(lost | rowless), tail.cut_off(lost_copy)
        launch, graph, lost, rowless = (mask & ~cut for mask in (launch, graph, lost, rowless))
        copy, lost_copy = copy & ~cut_copies, lost_copy & ~cut_copies
    # Whether each graph launch must have left a row: by the option that was recorded, else as others did.
    mode = trace.capture.graph_trace_mode
    as_others = bool(kernels[graph].any()) if mode is None else mode == "node"
    by_row = trace.has("graph_runs") or as_others
    lost_graphs = int(rowless.sum()) if by_row else 0
    replayed = np.bincount(of_kernel, minlength=rows)[graph & kernels] if graph.any() else of_kernel[:0]
    nodes = round(float(replayed.mean())) if len(replayed) else 1
    held, callless = _without_calls(trace, ops)
    expected, lost_nodes = (0, 0) if trace.has("graph_runs") else _lost_nodes(trace, ops)
    return Losses(
        launches=int(launch.sum()),
        lost_launches=int(lost.sum()),
        graph_launches=int(graph.sum()),
        rowless_graphs=int(rowless.sum()),
        lost_graphs=lost_graphs,
        opaque_graphs=int((graph & runs if by_row else rowless).sum()),
        lost_kernels=int(lost.sum()) + lost_graphs * nodes + lost_nodes,
        nodes=expected,
        lost_nodes=lost_nodes,
        kernels=held,
        lost_calls=callless,
        copies=int(copy.sum()),
        lost_copies=np.flatnonzero(lost_copy),
    )


def _lost_nodes(trace: Trace, ops: Operations) -> tuple[int, int]:
    """Rows that the replays of traced graphs should have left, and how many of these are missing. The last
    replay of a process may be cut off, and the first one if its launch was not recorded either."""
    at = np.flatnonzero((ops.graph_node >> PLACE_BITS > 0) & (ops.correlation != MISSING))
    if not len(at):
        return 0, 0
    plain = (ops.kind == Kind.KERNEL) & (ops.api >= 0) & (ops.graph_node == 0)
    unnamed = trace.columns("api_calls", ("call",))["call"][ops.api[plain]] == Call.GRAPH_LAUNCH
    if unnamed.any():  # kernels of graphs name no node
        return 0, 0
    node, process = ops.graph_node[at], dense(ops.process[at])[1]
    place = node & ((1 << PLACE_BITS) - 1)
    graph = dense((process << PLACE_BITS) + (node >> PLACE_BITS))[1]
    _, first, replay = np.unique(
        (graph << PLACE_BITS) + dense(ops.correlation[at])[1], return_index=True, return_inverse=True
    )
    places = np.zeros(int(graph.max()) + 1, np.int64)
    np.maximum.at(places, graph, place + 1)
    seen = np.bincount(distinct((graph << PLACE_BITS) + place) >> PLACE_BITS, minlength=len(places))
    seen = np.where(places - seen >= limits.recording.NEVER_SEEN_RATIO * places, places, seen)
    due = np.where(places >= limits.recording.GRAPH_NODES, seen, 0)[graph[first]]
    began, process, called = ops.start[at][first], process[first], ops.api[at][first] >= 0
    earliest, last = bounds_of(int(process.max()) + 1, process, began, began)
    due = np.where((began == last[process]) | (began == earliest[process]) & ~called, 0, due)
    missing = np.maximum(due - np.bincount(replay, minlength=len(first)), 0)
    return int(due.sum()), int(missing.sum())


def _without_calls(trace: Trace, ops: Operations) -> tuple[int, int]:
    """Kernels between the first and the last of their process that have a call, and how many of them have
    none. Kernels before and after these belong to a slice whose calls lie outside; so do kernels queued
    when the slice began: those before the first kernel with a call on their stream, within the longest
    delay from call to kernel. A process without any call was not traced."""
    kernel, joined = ops.kind == Kind.KERNEL, ops.api >= 0
    call_start = trace.columns("api_calls", ("start",))["start"]
    stream = dense(ops.stream)[1]
    held = callless = 0
    for process in distinct(ops.process[kernel & joined]).tolist():
        own = kernel & (ops.process == process)
        ran = own & joined
        if not (own & ~joined).any():
            held += int(own.sum())
            continue
        start, called = ops.start[ran], call_start[ops.api[ran]]
        first = np.full(int(stream.max()) + 1, start.min())
        first[stream[ran]] = np.iinfo(np.int64).max
        np.minimum.at(first, stream[ran], start)
        # No later than the last, so that times that cannot be stay in 64 bits.
        queued = min(int(called.min()) + max(int((start - called).max()), 0), int(start.max()))
        begins = np.minimum(first[stream], queued)
        inside = own & (ops.start >= begins) & (ops.start <= start.max())
        held += int(inside.sum())
        callless += int((inside & ~joined).sum())
    return held, callless


class _Tail(Struct, frozen=True):
    """Calls at the end of a capture, one entry a call: `open` marks those behind the last launch of their
    thread that left work, which no call has waited for; `thread` numbers their threads. No recorded operation
    took longer from its call to its end than the time from `since` (ns) to the last call."""

    open: Array
    thread: Array
    start: Array
    since: int

    def cut_off(self, unmatched: Array) -> Array:
        """Of calls without work (a mask) those still queued where the capture was cut: open ones of a
        thread, none of which began earlier than `since`. Copies behind them may have run on another
        stream."""
        tail = unmatched & self.open
        first = np.full(int(self.thread.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, self.thread[tail], self.start[tail])
        return np.asarray(tail & (first[self.thread] >= self.since))


def _find_tail(trace: Trace, ops: Operations) -> _Tail:
    names = "start", "end", "thread", "process", "call", "result"
    start, end, thread, process, call, result = trace.columns("api_calls", names).values()
    threads, of_thread = combinations(process, thread)
    ran = np.flatnonzero(ops.api >= 0)
    if not len(ran):
        return _Tail(np.zeros(len(start), bool), of_thread, start, 0)
    waits = np.flatnonzero((call == Call.SYNC) & among(result, GOOD_RESULTS))
    waits = waits[calls_named(trace, waits, WAITS_FOR_ALL)]
    processes, of_process = dense(process)
    api = ops.api[ran]
    places = combinations(of_process[api], ops.device[ran])[0]
    several = np.bincount(of_process[api[places]], minlength=len(processes)) > 1
    waits = waits[~several[of_process[waits]]]  # else the wait was for one of its devices
    waited = np.full(len(processes), _NEVER)
    np.maximum.at(waited, of_process[waits], start[waits])
    last_ran = np.full(len(threads), _NEVER)
    launched = api[among(ops.kind[ran], (Kind.KERNEL, Kind.GRAPH_RUN))]
    np.maximum.at(last_ran, of_thread[launched], start[launched])
    behind = (start > last_ran[of_thread]) & (end > waited[of_process])
    longest = int((ops.end[ran] - start[api]).max())
    return _Tail(behind, of_thread, start, int(start.max()) - longest)


# --- traces without a part of the events of each step: the rest looks far apart, so idle time and launching
# are overstated. Gaps in the numbers of records show the loss

#: Operators that always launch a kernel on a GPU.
_PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm"))


class Thinned(Struct, frozen=True):
    """Missing shares (0..1): of the operators and of the CUDA calls by their numbers, and of matrix
    products of PyTorch that launched nothing where others did. 0 if nothing shows a loss."""

    operators: float = 0.0
    calls: float = 0.0
    products: float = 0.0

    @property
    def share(self) -> float:
        return max(self.operators, self.calls, self.products)


def find_thinned(trace: Trace) -> Thinned:
    """Looks at the numbers of operators and calls, and at products without a launch."""
    ranges = trace.columns("ranges", ("process", "number"))
    operators = _gaps(ranges["process"], ranges["number"], limits.recording.NUMBERED_OPERATORS)
    calls = trace.columns("api_calls", ("process", "correlation"))
    if trace.capture.vendor == "AMD":
        ids = _gaps(calls["process"], calls["correlation"], limits.recording.NUMBERED_CALLS)
        return Thinned(_left_out(operators), _left_out(ids))
    ids = _gaps(
        calls["process"], calls["correlation"], limits.recording.NUMBERED_CALLS, limits.recording.WIDE_MEAN
    )
    mean, median = (float(ids.mean()), median_of(ids)) if len(ids) else (0.0, 0.0)
    sparse = mean >= limits.recording.MISSING_MEAN and median >= limits.recording.MISSING_MEDIAN
    return Thinned(
        _left_out(operators),
        1 - limits.recording.WHOLE_IDS_PER_CALL / mean if sparse else 0.0,
        _products_left_out(trace) if mean >= limits.recording.WIDE_MEAN else 0.0,
    )


def _gaps(process: Array, number: Array, least: int, wide: float = 0.0) -> Array:
    """Steps from number to number of the process with most of them, without the widest; empty for fewer
    than `least` numbers, or if they are less than `wide` on average."""
    known = number != MISSING
    if not known.any():
        return number[:0]
    process, number = process[at := where(known)], number[at]
    numbers = distinct(number[where(process == heaviest(process))])
    if len(numbers) < least or int(numbers[-1]) - int(numbers[0]) < wide * (len(numbers) - 1):
        return number[:0]
    gaps = np.diff(numbers)
    return np.asarray(gaps[gaps <= np.percentile(gaps, limits.recording.PAUSES_PERCENTILE)])


def _left_out(gaps: Array) -> float:
    """Share of numbers missing from a sequence that should be consecutive."""
    if not len(gaps) or float((gaps == 1).mean()) >= limits.recording.FOLLOWING_RATIO:
        return 0.0
    return 1 - 1 / float(gaps.mean())


def _products_left_out(trace: Trace) -> float:
    """Share of the matrix products without a call, if they lie among others that have one: a model on the
    CPU runs its products one after the other."""
    ranges = trace.columns("ranges", ("start", "end", "thread", "domain", "text_id"))
    at = np.flatnonzero(ranges["domain"] == OPERATIONS)
    names, of = dense(ranges["text_id"][at])
    at = at[np.array([t.partition(",")[0] in _PRODUCTS for t in trace.texts(names.tolist())], bool)[of]]
    calls = trace.columns("api_calls", ("start", "thread"))
    lost = changes = count = 0
    for thread in distinct(ranges["thread"][at]).tolist():
        begun = np.sort(calls["start"][calls["thread"] == thread])
        mine = at[ranges["thread"][at] == thread]
        start, end = ranges["start"][mine], ranges["end"][mine]
        within = (start >= begun.min(initial=end.max())) & (end <= begun.max(initial=0))
        mine = ordered(start[within])
        start, end = start[within][mine], end[within][mine]
        empty = np.searchsorted(begun, start) == np.searchsorted(begun, end)
        lost, count = lost + int(empty.sum()), count + len(empty)
        changes += int((empty[1:] != empty[:-1]).sum())
    if count < limits.recording.PRODUCTS:
        return 0.0
    share = lost / count
    return share if changes >= share * (1 - share) * count > 1 else 0.0


# --- steps, or replays of one graph, of which no two run the same kernels ---------------------------


def uneven_share(trace: Trace, ops: Operations, op_name: Array, op_step: Array) -> float:
    """Share of the kernels left out at random, by counts in steps, else in replays; 0 if none shows."""
    replays = np.append(trace.columns("api_calls", ("call",))["call"] == Call.GRAPH_LAUNCH, False)  # of none
    replay = np.where(replays[ops.api], ops.api, MISSING)
    return max(_random_loss(group, op_name) for group in (op_step, replay))


def _random_loss(group: Array, name: Array) -> float:
    """Counts of kernels thinned at random with probability p vary by 1 - p: the share lost."""
    inside = np.flatnonzero((group >= 0) & (name >= 0))
    groups, row = dense(group[inside])
    names, column = dense(name[inside])
    del inside  # large, and no longer needed
    total = np.bincount(row, minlength=len(groups))
    alike = (
        np.abs(total - median_of(total)) <= limits.recording.ALIKE_SIZE_RATIO * median_of(total)
        if len(total)
        else total > 0
    )
    if alike.sum() < max(limits.recording.ALIKE_STEPS, limits.recording.ALIKE_STEPS_RATIO * len(groups)):
        return 0.0
    row *= len(names)
    row += column
    counts = np.bincount(row, minlength=len(groups) * len(names))
    counts = counts.reshape(len(groups), len(names))[alike]
    counts = counts[:, counts.mean(axis=0) >= limits.recording.COUNTED_CALLS]
    if counts.shape[1] < limits.recording.COUNTED_KERNELS:
        return 0.0
    mean, spread = counts.mean(axis=0), counts.var(axis=0, ddof=1)
    loss = float(spread.sum() / mean.sum())
    varying = float(mean[spread > 0].sum() / mean.sum())
    apart = median_of(spread / mean) >= loss / 2
    if (
        varying < limits.recording.VARYING_RATIO
        or not apart
        or counts.sum(axis=1).var(ddof=1) > limits.recording.TOGETHER_FACTOR * spread.sum()
    ):
        return 0.0
    return loss if limits.recording.LEAST_LOSS_RATIO <= loss <= limits.recording.MOST_SPREAD else 0.0
