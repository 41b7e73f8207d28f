"""From a capture to the inputs of a replay.

Every captured delay is kept and attached to the one constraint that was binding: an operation that
started late after its call although its stream was free waited for its launch, one whose launch was long
past waited for its predecessor. The other constraint gets the usual delay of such operations, but never
more than was seen. So the unchanged replay reproduces the capture, and a changed one knows what else
would have delayed an operation. The time between two capture ranges of one file is left out, and so are
the calls of threads for devices independent of the analysed one.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.gain import limits
from advisor.gain.excerpt import NoReplay, Replayed, host_spans, left_out
from advisor.gain.inputs import (
    NEVER,
    NONE,
    Calls,
    CallTimes,
    Handovers,
    Inputs,
    Joins,
    Ops,
    Waits,
    find_waits,
)
from advisor.gain.recording import recordings, step_marks
from advisor.gain.slack import unrecorded_waits, with_waits
from advisor.gain.streams import before_each, dense_streams, in_line, usual_delays
from advisor.gain.whatifs import constant
from advisor.metrics import limits as metric_limits
from advisor.metrics.budgeted.sharing import threads_elsewhere
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage, Spans, joined
from advisor.metrics.loaded.operations import Kind, Operations
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.recording import Recording
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, among, distinct, marked
from advisor.sources.schema import Call

#: Calls that issue work, wait or allocate; all others are host time.
_ACTING = (Call.LAUNCH, Call.GRAPH_LAUNCH, Call.SYNC, Call.COPY, Call.MEMSET, Call.ALLOC, Call.FREE)


class Extract(Struct, frozen=True):
    """Inputs of the unchanged replay, with what they were made from."""

    excerpt: Replayed
    inputs: Inputs
    main: int  # dense stream on which steps end, NONE if any


def extract(a: Budgeted, excerpt: Replayed) -> Extract:
    """The excerpt's calls, operations and waits. Raises NoReplay."""
    spans = host_spans(a, excerpt)
    lo = int(spans.start[0])
    elsewhere = threads_elsewhere(a)
    at = _operations(a, spans, a.steps.gpu_end[[j for _, j in excerpt.stretches]], excerpt.alone)
    if elsewhere is not None:
        at = at[a.ops.device[at] == a.main_device]
    if len(at) == 0:
        raise NoReplay("the steps hold no GPU operations to replay")
    ops = in_line(a.ops.take(at))
    step = a.steps.op_step[at]
    step = np.where(excerpt.holds(step), step, NONE)
    times = _calls(a, ops, spans, elsewhere)
    call = np.full(len(at), NONE, np.int64)
    known = ops.api >= 0
    order = np.argsort(times.row, kind="stable")
    if len(times.row):
        found = np.minimum(np.searchsorted(times.row[order], ops.api), len(times.row) - 1)
        hit = known & (times.row[order][found] == ops.api)
        call = np.where(hit, order[found], NONE)
    issues = (call != NONE) & (step != NONE)
    issued = np.full(len(times.row), NONE, np.int64)  # the step whose work each call issues
    issued[call[issues]] = step[issues]
    paused = Coverage(left_out(a))
    # The host goes on from one stretch to the next.
    passed = Coverage(joined(left_out(a), Spans(spans.end[:-1], spans.start[1:])))
    calls, begin = _host(a, times, lo, issued, passed)
    built, ready, ranked = _device(a, ops, at, call, step, times, spans, paused)
    taken = ops.take(ranked)
    moved = _moved(a, excerpt)[_stretch(spans, times.start) - 1]
    in_a_row, taken_in_a_row = _in_a_row(times, taken, built, moved)
    waits, own = find_waits(a, in_a_row, taken_in_a_row, built, paused, moved)
    calls = replace(calls, own=own)
    joins, built = _joins(built, taken)
    handovers, calls = _handovers(calls, times, spans)
    more = unrecorded_waits(calls, in_a_row, waits, built, taken_in_a_row)
    calls, waits = with_waits(calls, waits, more)
    calls = replace(calls, apart=_apart(calls, built, waits))
    inputs = Inputs(calls, built, waits, joins, handovers, begin, ready)
    return Extract(excerpt, inputs, _main_stream(a, built, taken, excerpt))


def _moved(a: Recording, excerpt: Replayed) -> Array:
    """By how much each stretch is moved so that what is not replayed before it ends with the stretch before
    it, ns. What a call waited for there is then found at the same place of the stretch before."""
    begins = np.array([i for i, _ in excerpt.stretches[1:]], np.int64)
    ends = np.array([j for _, j in excerpt.stretches[:-1]], np.int64)
    left = a.steps.gpu_end[begins - 1] - a.steps.gpu_end[ends]
    return np.concatenate((np.zeros(1, np.int64), -np.cumsum(left)))


def _in_a_row(times: CallTimes, taken: Operations, ops: Ops, moved: Array) -> tuple[CallTimes, Operations]:
    """Times of calls and operations moved so (`moved`: by what each call is)."""
    if not moved.any():
        return times, taken
    times = replace(times, start=times.start + moved, end=times.end + moved)
    by = moved[ops.call]
    return times, replace(taken, start=taken.start + by, end=taken.end + by)


def _operations(a: Stepped, spans: Spans, until: Array, queued: bool) -> Array:
    """Positions in `ops` of operations issued by the calls in each [start, end) of host times that began in
    time, outside pauses; with those `queued` before, which then wait for no call."""
    each = zip(spans.start.tolist(), spans.end.tolist(), until.tolist(), strict=True)
    return np.unique(np.concatenate([_issued(a, *one, queued) for one in each]))


def _issued(a: Stepped, lo: int, hi: int, until: int, queued: bool) -> Array:
    """Those of one stretch."""
    first, last = np.searchsorted(a.ops.start, (lo, until))
    at = np.arange(first, last)
    at = at[~a.pauses.holds(a.ops.start[at])]
    if not a.trace.has("api_calls"):
        return at
    start = a.trace.columns("api_calls", ("start",))["start"]
    api = a.ops.api[at]
    begun = np.where(api >= 0, start[np.maximum(api, 0)], a.ops.start[at])
    return np.asarray(at[(queued | (begun >= lo)) & (begun < hi)])


def _calls(a: Stepped, ops: Operations, spans: Spans, elsewhere: Array | None) -> CallTimes:
    """Calls that begin in these spans and act on the device, by begin, without those of threads
    `elsewhere`."""
    lo, hi = int(spans.start[0]), int(spans.end[-1])
    parts: list[tuple[Array, ...]] = []
    if not a.trace.has("api_calls"):
        return CallTimes.none()
    columns = a.trace.columns("api_calls", ("start", "thread", "process"))
    issues = marked(len(columns["start"]), ops.api[ops.api >= 0])
    inside = (columns["start"] >= lo) & (columns["start"] < hi)
    if elsewhere is not None:
        inside &= ~np.isin(columns["thread"], elsewhere)
    for thread in distinct(columns["thread"][inside]).tolist():
        calls = a.threads.of(thread)
        i, j = np.searchsorted(calls.start, (lo, hi))
        if i == j:
            continue
        acts = among(calls.call[i:j], _ACTING) | issues[calls.row[i:j]]
        acts &= spans.holds(calls.start[i:j]) & ~a.pauses.holds(calls.start[i:j])
        mine = np.flatnonzero(acts) + i
        if len(mine):
            own, row = (calls.start[mine], calls.end[mine], calls.call[mine]), calls.row[mine]
            parts.append((np.full(len(mine), thread, np.int64), *own, row, columns["process"][row]))
    if not parts:
        return CallTimes.none()
    joined = CallTimes(*map(np.concatenate, zip(*parts, strict=True)))
    return joined.take(np.argsort(joined.start, kind="stable"))


def _host(a: Stepped, times: CallTimes, lo: int, issued: Array, paused: Coverage) -> tuple[Calls, Array]:
    """Host time before every call, and what explains it. All clocks start at `lo`."""
    count = len(times.row)
    threads, dense = np.unique(times.thread, return_inverse=True)
    begin = np.full(len(threads), float(lo))
    pre, step = np.zeros(count), np.full(count, NONE, np.int64)
    between = np.zeros(count, bool)
    operators, recorded, marked_by = np.zeros(count), np.zeros(count), np.zeros(count)
    explained = {name: np.zeros(count) for name in ("gc", "gil", "os")}
    states = {"gc": a.states.gc, "gil": a.states.gil, "os": a.states.os}
    recording, marking = recordings(a), step_marks(a)
    for k, thread in enumerate(threads.tolist()):
        mine = np.flatnonzero(dense == k)
        ends = np.concatenate(([begin[k]], times.end[mine][:-1]))
        pre[mine] = times.start[mine] - ends - paused.within(ends, times.start[mine])
        for name, by_thread in states.items():
            spans: Spans | None = by_thread.get(thread)
            if spans is not None and len(spans):
                held = Coverage(spans).within(ends.astype(np.int64), times.start[mine])
                explained[name][mine] = np.minimum(held, pre[mine])
        since = np.concatenate(([begin[k]], times.start[mine][:-1]))
        for start, cost, operator in recording.get(thread, ()):
            first, last = np.searchsorted(start, (since, times.start[mine]))
            recorded[mine] += cost[last] - cost[first]
            operators[mine] += (last - first) * operator
        if thread in marking:
            marked_by[mine] = Coverage(marking[thread]).within(ends.astype(np.int64), times.start[mine])
        step[mine], between[mine] = _between(issued[mine])
    own, kind = (times.end - times.start).astype(float), times.kind.astype(np.int64)
    what = dense.astype(np.int64), pre, own, kind, times.row, step, between
    recorded += constant("step_mark_cost") * marked_by + _stacks(a, times, own, dense)
    of_pre = explained["gc"], explained["gil"], explained["os"], operators, recorded, marked_by
    return Calls(*what, *of_pre, slack=np.zeros(count), apart=np.zeros(count, bool)), begin


def _apart(calls: Calls, ops: Ops, waits: Waits) -> Array:
    """Mask of the calls of stretches whose host code is as long as a host gap, as the budget of the device
    adds it up: from behind a call that launches or waits up to the thread's next such call."""
    count = len(calls)
    ends = marked(count, ops.call[ops.latency > NEVER])
    ends |= marked(count, waits.call)
    order = np.argsort(calls.thread, kind="stable")
    thread, ends = calls.thread[order], ends[order]
    begins = np.concatenate(([False], (thread[1:] != thread[:-1]) | ends[:-1])) if count else ends
    stretch = np.cumsum(begins)
    long = np.bincount(stretch, calls.code[order], minlength=1) >= metric_limits.host.LONG_HOST_NS
    out = np.zeros(count, bool)
    out[order] = long[stretch]
    return out


def _stacks(a: Loaded, times: CallTimes, own: Array, thread: Array) -> Array:
    """The most that recording the stacks of launch calls cost, ns, by the call of the same thread that
    follows: all that such a call took beyond what a launch costs at least."""
    out = np.zeros(len(own))
    chain = a.trace.columns("api_calls", ("callchain",))["callchain"][times.row]
    stacked = (chain >= 0) & (times.kind == Call.LAUNCH)
    for one in distinct(thread[stacked]).tolist():
        mine = np.flatnonzero(thread == one)
        spent = np.where(stacked[mine], np.maximum(own[mine] - constant("launch_floor"), 0.0), 0.0)
        out[mine[1:]] = spent[:-1]
    return out


def _handovers(calls: Calls, times: CallTimes, spans: Spans) -> tuple[Handovers, Calls]:
    """Hand-overs from one thread of a process to another: neither made a call for a while, the second
    before and the first after. Autograd and executor threads take turns like this."""
    if len(distinct(calls.thread)) < 2:
        return Handovers.none(), calls
    count = len(calls)
    following = np.full(count, np.inf)  # host time behind each call until its thread's next one
    for thread in distinct(calls.thread).tolist():
        mine = np.flatnonzero(calls.thread == thread)
        following[mine[:-1]] = calls.pre[mine[1:]]
    call = np.arange(1, count)
    giver = call - 1
    turns = (
        (calls.thread[call] != calls.thread[giver])
        & (times.process[call] == times.process[giver])
        & (calls.pre[call] >= limits.HANDOVER_NS)
        & (following[giver] >= limits.HANDOVER_NS)
        & (times.end[giver] <= times.start[call])
        & (times.start[call] - calls.pre[call] <= times.start[giver])
        & (_stretch(spans, times.start[call]) == _stretch(spans, times.start[giver]))
    )
    call, giver = call[turns], giver[turns]
    if len(call) == 0:
        return Handovers.none(), calls
    delay = (times.start[call] - times.end[giver]).astype(float)
    pre = calls.pre.copy()
    pre[call] = np.minimum(pre[call], delay)
    capped = {n: np.minimum(getattr(calls, n), pre) for n in ("gc", "gil", "os")}
    return Handovers(call, giver, delay), replace(calls, pre=pre, **capped)


def _stretch(spans: Spans, time: Array) -> Array:
    """Number of the stretch in which each call began."""
    return np.searchsorted(spans.start, time, "right")


def _between(issued: Array) -> tuple[Array, Array]:
    """For one thread's calls: the step of each, and which lie between two steps: after the last call that
    issued work of one and up to the first that issues work of the next."""
    at = np.flatnonzero(issued != NONE)
    if len(at) == 0:
        return issued, np.zeros(len(issued), bool)
    position = np.arange(len(issued))
    before = at[np.maximum(np.searchsorted(at, position, "left") - 1, 0)]
    after = at[np.minimum(np.searchsorted(at, position, "left"), len(at) - 1)]
    crosses = (issued[before] != issued[after]) & (position > before)
    crosses |= (position <= at[0]) | (position > at[-1])
    return issued[after], crosses


def _device(
    a: Loaded,
    ops: Operations,
    at: Array,
    call: Array,
    step: Array,
    times: CallTimes,
    spans: Spans,
    paused: Coverage,
) -> tuple[Ops, Array, Array]:
    """Operations in the order of their calls, each delay on the constraint that was binding.

    A graph run is one chain on the stream that most of it ran on: the dependencies between its nodes are
    not recorded, so the order in which they ran is kept."""
    lo = int(spans.start[0])
    stream, count = dense_streams(ops, call)
    placed = _placed(ops, call, stream, times)
    order = np.lexsort((ops.start, placed))
    ops, at, call, step = ops.take(order), at[order], call[order], step[order]
    stream, placed = stream[order], placed[order]
    start, end = ops.start.astype(float), ops.end.astype(float)
    by_stream = np.argsort(stream, kind="stable")
    previous, same = np.empty(len(start)), np.zeros(len(start), bool)
    begun = np.where(call == NONE, ops.start, times.start[call] if len(times.row) else 0)
    stretch = _stretch(spans, begun)
    previous[by_stream], same[by_stream], ready = before_each(a, ops, stream, stretch, by_stream, count, lo)
    node = same & (ops.graph_node != 0) & (call != NONE)
    has = call != NONE
    back, begun = np.full(len(start), NEVER), np.full(len(start), NEVER)
    back[has], begun[has] = times.end[call[has]], times.start[call[has]]
    inside = np.minimum(end, back) - np.maximum(start, begun)
    by_start = has & (ops.kind == Kind.COPY) & (ops.graph_node == 0)
    by_start &= inside >= limits.HELD_CALL_RATIO * np.maximum(end - start, 1)
    submitted = np.where(by_start, begun, back)
    late = start - submitted - paused.within(np.where(has, submitted, start), start)
    gap = start - previous - paused.within(previous, start)
    typical_late, typical_gap = usual_delays(late, gap, submitted, previous, has & ~node & ~by_start)
    waits_for_stream = node | ~has | (previous >= submitted + typical_late)
    latency = np.where(waits_for_stream, np.minimum(late, typical_late), late)
    latency = np.where(node | ~has, NEVER, latency)
    at_once = np.minimum(gap, typical_gap)
    turns = has & _taking_turns(ops)
    at_once = np.where(turns, np.maximum(at_once, late - typical_late), at_once)
    gap = np.where(waits_for_stream, gap, at_once)
    built = Ops(placed, stream, end - start, latency, gap, by_start, at, step, node)
    return built, ready, order


def _taking_turns(ops: Operations) -> Array:
    """Mask of the operations on devices that several processes use: these take turns, however early a launch
    comes."""
    pairs = np.unique(np.stack((ops.device.astype(np.int64), ops.process.astype(np.int64))), axis=1)
    devices, processes = np.unique(pairs[0], return_counts=True)
    return np.asarray(np.isin(ops.device, devices[processes > 1]))


def _placed(ops: Operations, call: Array, stream: Array, times: CallTimes) -> Array:
    """The call that is assumed to have issued each operation. Without a known call it is the one during
    which the operation began, and at the latest the one that issued what follows on its stream."""
    bare = call == NONE
    placed = np.where(bare, np.searchsorted(times.start, ops.start, "right") - 1, call)
    for one in distinct(stream[bare]).tolist():
        mine = np.flatnonzero(stream == one)
        mine = mine[np.argsort(ops.start[mine], kind="stable")][::-1]
        following = np.minimum.accumulate(np.where(bare[mine], len(times.row), call[mine]))
        placed[mine] = np.where(bare[mine], np.minimum(placed[mine], following), placed[mine])
    return np.maximum(placed, 0)


def _joins(ops: Ops, taken: Operations) -> tuple[Joins, Ops]:
    """Operations that waited for another stream: neither their launch nor their predecessor explains when
    they started, and another operation had just ended."""
    if len(distinct(ops.stream)) < 2:
        return Joins.none(), ops
    late = np.where(np.isfinite(ops.latency), ops.latency, 0.0)
    candidates = np.flatnonzero(
        ~ops.node & np.isfinite(ops.latency) & ((late > limits.JOIN_NS) | (ops.gap > limits.JOIN_NS))
    )
    by_end = np.argsort(taken.end, kind="stable")
    ends = taken.end[by_end]
    behind = np.clip(np.maximum(late, ops.gap) / 10, *limits.JOIN_AFTER_NS)
    chosen: list[tuple[int, int]] = []
    for i in candidates.tolist():
        k = int(np.searchsorted(ends, taken.start[i], "right")) - 1
        while k >= 0 and taken.start[i] - ends[k] <= behind[i]:
            other = int(by_end[k])
            if (
                ops.stream[other] != ops.stream[i]
                and taken.process[other] == taken.process[i]
                and ops.call[other] < ops.call[i]
            ):
                # Waits need the state of the last operation of its call and stream.
                chosen.append((i, ops.last_of_call(other)))
                break
            k -= 1
    if not chosen:
        return Joins.none(), ops
    op, on = np.array(chosen).T
    latency, gap = ops.latency.copy(), ops.gap.copy()
    latency[op] = np.minimum(latency[op], constant("launch_latency"))
    gap[op] = np.minimum(gap[op], constant("stream_gap"))
    changed = replace(ops, latency=latency, gap=gap)
    delay = taken.start[op] - taken.end[on].astype(float)
    return Joins(op, on, delay), changed


def _main_stream(a: Recording, ops: Ops, taken: Operations, excerpt: Replayed) -> int:
    """The dense stream on which the steps end; NONE if they end on several."""
    ends = a.steps.gpu_end[excerpt.holds(np.arange(len(a.steps)))]
    hit = (ops.step != NONE) & np.isin(taken.end, ends)
    streams = distinct(ops.stream[hit])
    return int(streams[0]) if len(streams) == 1 else NONE
