"""What-ifs on the host's side: launches, waits, allocations, gaps."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.gain import limits
from advisor.gain.changes import what_if
from advisor.gain.inputs import NEVER, NONE, Inputs
from advisor.gain.profiler import Scenario
from advisor.gain.replay_ops import NoEstimate, Work, require
from advisor.gain.whatifs import Fix, constant
from advisor.metrics.budgeted.other_calls import costly_calls, graph_builds
from advisor.metrics.budgeted.waited import kv_transfers, os_spans
from advisor.metrics.intervals import Coverage, Spans, union
from advisor.metrics.loaded.operations import Kind
from advisor.model.arrays import Array, among, distinct, marked, median_of
from advisor.sources.schema import DTOH, Call

#: What a graph can hold: kernels, memsets, copies inside the device.
_LAUNCHING = (Call.LAUNCH, Call.MEMSET, Call.COPY)


@what_if()
def cuda_graphs(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """One graph launch for each stretch of a step between two waits; host code, collections, waits for the
    GIL, calls into the operating system and allocations inside it stay: they have fixes of their own, which
    graphs require. Pessimistic: stretches whose launch shapes do not recur stay as they are."""
    waits = inputs.waits
    dropped = among(inputs.calls.kind[waits.call], (Call.LAUNCH, Call.GRAPH_LAUNCH))
    if fix.params["syncs"] == "removed":
        dropped |= _waits_in_steps(inputs)
    inputs = _without_waits(inputs, dropped)
    calls, ops = inputs.calls, inputs.ops
    eager = work.remembered(_eager, work.kind, ops.step, ops.latency, ops.call, calls.kind)
    if eager is None:
        raise NoEstimate("no kernel of these steps is launched by a call of its own")
    order = calls.thread, calls.kind, calls.step, inputs.waits.call, inputs.origin
    piece, first = work.remembered(_pieces, eager, *order)
    if lean < 0:
        piece, first = work.remembered(_repeated, piece, first, ops.call, work.shape)
    if len(first) == 0:
        return inputs
    inside, nodes, later, node_or_later = work.remembered(_nodes, piece, first, ops.call, ops.node)
    cost = constant("graph_launch") + constant("graph_launch_node") * nodes
    stays = np.where(calls.host_code, calls.pre, calls.explained)
    # Operators in front of a stretch's first launch are dispatched no more, either.
    stays[first] = calls.pre[first]
    if lean >= 0:
        dispatch = constant("operator_time") * calls.operators
        stays[first] = np.maximum(calls.pre - dispatch, calls.explained)[first]
    stays += np.where(among(calls.kind, (Call.ALLOC, Call.FREE)), calls.own, 0.0)
    before = np.bincount(piece[inside], stays[inside], minlength=len(first))
    # Launching a few nodes as a graph costs no more than launching them one by one did.
    singly = np.bincount(piece[inside], (calls.own + calls.pre)[inside], minlength=len(first))
    own = np.where(inside, 0.0, calls.own)
    pre = np.where(inside, 0.0, calls.pre)
    own[first], pre[first] = np.minimum(cost, singly - before), before
    gap = np.where(later, scenario.node_gap * constant("graph_node_gap"), ops.gap)
    latency = work.remembered(_never, later, ops.latency)
    changed = inputs.with_calls(own=own, pre=pre)
    return changed.with_ops(gap=gap, latency=latency, node=node_or_later)


def _eager(of_kind: Array, step: Array, latency: Array, call: Array, call_kind: Array) -> Array | None:
    """Mask of the calls that launch kernels of steps one by one; None if there are none."""
    eager = marked(len(call_kind), call[(of_kind != Kind.COPY) & (step != NONE) & (latency > NEVER)])
    eager &= call_kind != Call.GRAPH_LAUNCH
    return eager if eager.any() else None


def _nodes(piece: Array, first: Array, call: Array, node: Array) -> tuple[Array, Array, Array, Array]:
    """Mask of the calls in pieces; the number of nodes of each piece; mask of the operations after the first
    of their piece; mask of all graph nodes with these."""
    of_op = piece[call]
    nodes = np.bincount(of_op[of_op != NONE], minlength=len(first))
    own = (of_op != NONE) & ~node
    heads = np.unique(np.where(own, of_op, NONE), return_index=True)
    later = own.copy()
    later[heads[1][heads[0] != NONE]] = False
    return piece != NONE, nodes, later, node | later


def _never(mine: Array, latency: Array) -> Array:
    return np.where(mine, NEVER, latency)


def _repeated(piece: Array, first: Array, call: Array, shape: Array) -> tuple[Array, Array]:
    """Only the pieces whose kernels and launch shapes recur in another piece."""
    of_op = piece[call]
    mark = np.zeros(len(first), np.uint64)
    inside = of_op != NONE
    np.add.at(mark, of_op[inside], shape[inside])
    _, at, count = np.unique(mark, return_inverse=True, return_counts=True)
    kept = count[at] > 1
    number = np.append(np.where(kept, np.cumsum(kept) - 1, NONE), NONE)
    return np.asarray(number[piece]), first[kept]


def _pieces(
    eager: Array, of_thread: Array, kind: Array, step: Array, waiting: Array, origin: Array
) -> tuple[Array, Array]:
    """Piece of each call that becomes part of a graph (NONE for others) and each piece's first
    call. A piece is cut where a call waits, and at the end of a step."""
    waits = marked(len(kind), waiting)
    piece = np.full(len(kind), NONE)
    first: list[int] = []
    member = among(kind, _LAUNCHING) | among(kind, (Call.ALLOC, Call.FREE))
    for thread in range(len(origin)):
        mine = np.flatnonzero(of_thread == thread)
        if not eager[mine].any():
            continue
        cut = np.cumsum(waits[mine])
        key = step[mine] * (int(cut[-1]) + 2) + cut
        launch = eager[mine]
        keys, at = np.unique(key, return_inverse=True)
        lo = np.full(len(keys), len(mine))
        hi = np.full(len(keys), -1)
        np.minimum.at(lo, at[launch], np.flatnonzero(launch))
        np.maximum.at(hi, at[launch], np.flatnonzero(launch))
        place = np.arange(len(mine))
        inside = (place >= lo[at]) & (place <= hi[at]) & member[mine] & ~waits[mine]
        inside |= launch & ~waits[mine]
        used = distinct(at[inside])
        number = np.full(len(keys), NONE)
        number[used] = np.arange(len(used)) + len(first)
        piece[mine[inside]] = number[at[inside]]
        begin = np.full(len(keys), len(mine))
        np.minimum.at(begin, at[inside], np.flatnonzero(inside))
        first += mine[begin[used]].tolist()
    return piece, np.array(first, np.int64)


def _waits_in_steps(inputs: Inputs) -> Array:
    """Mask of the waits before the last work of a step."""
    return np.asarray(~inputs.calls.between[inputs.waits.call])


def _without_waits(inputs: Inputs, dropped: Array) -> Inputs:
    """The inputs without these waits; a copy that held its call is issued like any other."""
    calls, ops, waits = inputs.calls, inputs.ops, inputs.waits
    if not dropped.any():
        return inputs
    own = calls.own.copy()
    copies = waits.call[dropped][calls.kind[waits.call[dropped]] == Call.COPY]
    own[copies] = np.minimum(own[copies], constant("copy_call"))
    held = ops.by_start & marked(len(calls), copies)[ops.call]
    return unheld(inputs.with_calls(own=own), held, dropped)


def unheld(inputs: Inputs, held: Array, dropped: Array) -> Inputs:
    """The inputs without the `dropped` waits; copies that `held` their calls are issued like any other."""
    ops = inputs.ops
    latency = np.where(held, np.minimum(ops.latency, constant("launch_latency")), ops.latency)
    changed = inputs.with_ops(by_start=ops.by_start & ~held, latency=latency)
    return replace(changed, waits=inputs.waits.take(~dropped))


@what_if()
def faster_launches(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Launch and copy calls as short as on a healthy host. Pessimistic: half of the excess goes;
    optimistic: the host code between them becomes faster by the same ratio."""
    traced = work.taken.inputs.calls
    launch = traced.own[traced.kind == Call.LAUNCH]
    healthy = constant("healthy_launch")
    if not len(launch) or median_of(launch) <= healthy:
        raise NoEstimate("the launch calls are as short as on a healthy host")
    # Where the launches are slow by tracing, the step without it has been made shorter already.
    share = min(healthy / (median_of(launch) * scenario.pace(work.tracing_pace)), 1.0)
    share = (1 + share) / 2 if lean < 0 else share
    calls = inputs.calls
    mine = among(calls.kind, _LAUNCHING)
    pre = np.where(mine & ~calls.between, calls.pre * share, calls.pre) if lean > 0 else calls.pre
    return inputs.with_calls(own=np.where(mine, calls.own * share, calls.own), pre=pre)


@what_if()
def remove_sync(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Also between steps that copy nothing to the host: such waits are not needed to go on. Optimistic: their
    calls take no time. Pessimistic: these stay, as they may deliberately limit how far the host runs ahead,
    and so does a wait whose result the following host code needs, and the time of a call that has nothing to
    wait for. Many read-backs a step are treated as in `async_readback`."""
    calls, waits = inputs.calls, inputs.waits
    kind = calls.kind[waits.call]
    readback = work.direction[waits.op] == DTOH
    inner = _many_readbacks(inputs, work)
    dropped = (kind == Call.SYNC) | (readback & (kind == Call.COPY))
    if lean < 0:
        dropped &= (~readback | inner) & _waits_in_steps(inputs)
    if not len(work.taken.inputs.waits):
        raise NoEstimate("no call of the replayed steps waits for the device")
    if fix.params["which"] == "in_step":
        again = np.ones(len(waits), bool)  # the operation has been waited for before
        again[np.unique(waits.op, return_index=True)[1]] = False
        dropped &= _waits_in_steps(inputs) | _hands_over_nothing(inputs, work) | again
    gone = waits.call[dropped & (kind == Call.SYNC)]
    changed = _without_waits(inputs, dropped)
    if lean < 0:
        return changed
    own = changed.calls.own.copy()
    own[gone] = np.minimum(own[gone], constant("sync_call") if lean == 0 else 0.0)
    return _without_copies(changed.with_calls(own=own), work, waits.op[dropped & inner])


def _many_readbacks(inputs: Inputs, work: Work) -> Array:
    """Mask of the waits inside a step for small copies to the host, if there are more than its result
    needs."""
    op = inputs.waits.op
    small = (
        (work.direction[op] == DTOH) & (work.copied[op] <= limits.READBACK_BYTES) & _waits_in_steps(inputs)
    )
    many = len(distinct(op[small])) >= limits.READBACKS_A_STEP * len(distinct(inputs.ops.step))
    return np.asarray(small & many)


def _without_copies(inputs: Inputs, work: Work, ops: Array) -> Inputs:
    """The inputs without these copies and the calls that issue them."""
    calls, duration = inputs.calls, inputs.ops.duration.copy()
    own = calls.own.copy()
    issued = inputs.ops.call[ops]
    own[issued[issued >= 0]] = 0.0
    duration[ops] = 0.0
    return inputs.with_calls(own=own).with_ops(duration=duration)


def _hands_over_nothing(inputs: Inputs, work: Work) -> Array:
    """Mask of the waits for work of steps that copy nothing to the host."""
    step = inputs.ops.step
    return np.asarray(~np.isin(step[inputs.waits.op], distinct(step[work.to_host])))


@what_if()
def async_readback(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Many read-backs a step can be decided on the device: their copies go. Pessimistic: they stay."""
    require(work.to_host, "the replayed steps copy nothing to the host")
    waits = inputs.waits
    small = (work.direction[waits.op] == DTOH) & (work.copied[waits.op] <= limits.READBACK_BYTES)
    kind = inputs.calls.kind[waits.call]
    changed = _without_waits(inputs, small & ((kind == Call.SYNC) | (kind == Call.COPY)))
    if lean < 0:
        return changed
    return _without_copies(changed, work, waits.op[_many_readbacks(inputs, work)])


@what_if()
def remove_allocations(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    calls = inputs.calls
    mine = among(calls.kind, (Call.ALLOC, Call.FREE))
    require(mine, "the replayed steps neither allocate nor free")
    changed = inputs.with_calls(own=np.where(mine, 0.0, calls.own))
    return _without_waits(changed, mine[inputs.waits.call])


@what_if()
def async_memset(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    waits = (inputs.calls.kind == Call.MEMSET)[inputs.waits.call]
    require(waits, "no memset of the replayed steps waits for the device")
    return _without_waits(inputs, waits)


def launched_ahead(fix: Fix, inputs: Inputs, work: Work, all_waits: bool = False) -> Inputs:
    """How far the host runs ahead once nothing else delays it.

    A wait at the end of a step that copies nothing to the host has no result, so it is not needed to go
    on. A wait with a result is needed unless the next step is launched before the result of the last is
    read (`all_waits`). All waits stay while other host code or allocating calls between the steps remain:
    hiding those behind kernels is the gain of another fix."""
    calls, waits = inputs.calls, inputs.waits
    ends = calls.between[waits.call] & (calls.kind[waits.call] == Call.SYNC)
    busy = calls.between & among(calls.kind, (Call.ALLOC, Call.FREE))
    left = float(calls.pre[calls.between].sum() + calls.own[busy].sum())
    in_the_way = left > limits.HOST_LEFT_RATIO * float(inputs.ops.duration.sum())
    if fix.params["idle_waits"] == "kept" or in_the_way or not ends.any():
        return inputs
    if not all_waits:
        ends &= _hands_over_nothing(inputs, work)
    return _without_waits(inputs, ends)


@what_if()
def remove_host_gap(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Optimistic: the next step is launched before the result of the last one is read. Pessimistic, where
    the thread may wait for what comes at a fixed rate: nothing changes."""
    calls, before = inputs.calls, inputs
    if lean < 0 and fix.params["may_stay"] == "yes":
        return inputs
    if fix.params["what"] == "os":
        changed = _without_os_calls(inputs, work, str(fix.params["calls"]))
    elif fix.params["what"] == "calls":
        changed = _with_host_time(inputs, calls.pre - _in_costly_calls(inputs, work))
    elif fix.params["what"] == "transfers":
        changed = _without_transfers(inputs, work)
    elif fix.params["what"] == "graph_calls":
        changed = _without_graph_calls(inputs, work)
    else:
        if work.computes_on_host:
            raise NoEstimate(
                "the host computes on data between two copies: how long the GPU takes for it is not recorded"
            )
        changed = _with_host_time(inputs, np.where(calls.host_code, calls.explained, calls.pre))
    if fix.params["how"] == "moved" and lean <= 0:
        changed = replace(changed, beside=max(before.beside, _moved(before, changed, work)))
    return launched_ahead(fix, changed, work, all_waits=lean > 0)


def _without_os_calls(inputs: Inputs, work: Work, kind: str) -> Inputs:
    """The inputs without the time in which a thread is in blocking calls of one kind into the operating
    system, or of any."""
    calls = inputs.calls
    if kind == "any":
        reason = "no blocking calls into the operating system were recorded on these threads"
        return _explained_away(inputs, "os", reason)
    held = np.zeros(len(calls))
    for thread, spans in os_spans(work.a, kind).items():
        held += _inside(inputs, work, thread, spans)
    held = require(
        np.minimum(held, calls.os), f"no such calls ({kind}) come before a call of the replayed steps"
    )
    return _with_host_time(inputs, calls.pre - held, os=calls.os - held)


def _moved(before: Inputs, after: Inputs, work: Work) -> float:
    """How much host time went from the thread that lost most of it, ns a replayed step."""
    calls = before.calls
    gone = work.taken.excerpt.share(calls.step) * (calls.pre - after.calls.pre)
    return float(np.bincount(calls.thread, gone, minlength=1).max())


def _in_costly_calls(inputs: Inputs, work: Work) -> Array:
    """How much of the host time before each call the thread spends in calls that issue nothing and leave
    the device idle (`costly_calls`), as captured."""
    a, calls = work.a, inputs.calls
    feeder = a.feeder(a.main_device)
    rows = np.empty(0, np.int64) if feeder is None else costly_calls(a, a.main_device, feeder).rows
    start, end, thread = a.trace.columns("api_calls", ("start", "end", "thread")).values()
    held = np.zeros(len(calls))
    for one in distinct(thread[rows]).tolist():
        own = rows[thread[rows] == one]
        held += _inside(inputs, work, one, union(start[own], end[own]))
    return np.minimum(require(held, "no such call comes before a call of the replayed steps"), calls.pre)


def _without_graph_calls(inputs: Inputs, work: Work) -> Inputs:
    """The inputs without the time in which the thread captures, builds, updates or destroys graphs."""
    a, calls = work.a, inputs.calls
    feeder = a.feeder(a.main_device)
    if feeder is None:
        raise NoEstimate("the thread that launches is not known")
    built = graph_builds(a, feeder).spans
    start, end, thread = a.trace.columns("api_calls", ("start", "end", "thread")).values()
    held = np.minimum(_inside(inputs, work, feeder, built), calls.pre)
    # What is launched while a stream is captured runs later, as a part of the graph.
    issues = marked(len(calls), inputs.ops.call[inputs.ops.latency > NEVER])
    captured = Coverage(built).within(start[calls.row], end[calls.row]) > 0
    captured &= ~issues & (calls.kind == Call.LAUNCH) & (thread[calls.row] == feeder)
    require(held + captured, "no graph is built before a call of the replayed steps")
    return _with_host_time(inputs, calls.pre - held, own=np.where(captured, 0.0, calls.own))


def _without_transfers(inputs: Inputs, work: Work) -> Inputs:
    """The inputs without the time in which the thread waits for transfers of the KV cache."""
    a, calls = work.a, inputs.calls
    found, feeder = kv_transfers(a, a.main_device), a.feeder(a.main_device)
    if found is None or feeder is None:
        raise NoEstimate("no range of the launching thread waits for a transfer")
    held = np.minimum(_inside(inputs, work, feeder, found.asking), calls.pre)
    require(held, "no wait for a transfer comes before a call of the replayed steps")
    return _with_host_time(inputs, calls.pre - held, os=np.maximum(calls.os - held, 0.0))


def _inside(inputs: Inputs, work: Work, thread: int, spans: Spans) -> Array:
    """How much of the host time before each call of a thread lies inside the spans, as captured, ns."""
    start, end, of = work.a.trace.columns("api_calls", ("start", "end", "thread")).values()
    row, held = inputs.calls.row, np.zeros(len(inputs.calls))
    mine = np.flatnonzero(of[row] == thread)
    begun = start[row[mine]]
    since = np.concatenate((begun[:1], end[row[mine[:-1]]]))
    held[mine] = Coverage(spans).within(since, np.maximum(begun, since))
    return held


@what_if()
def remove_gc(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    reason = "no garbage collection was recorded on these threads"
    return launched_ahead(fix, _explained_away(inputs, "gc", reason), work)


@what_if()
def remove_gil_wait(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    reason = "no waits for the GIL were recorded on these threads"
    return launched_ahead(fix, _explained_away(inputs, "gil", reason), work)


def _explained_away(inputs: Inputs, part: str, otherwise: str) -> Inputs:
    """The inputs without this part of the host time. Raises NoEstimate if none was recorded."""
    calls = inputs.calls
    held = require(getattr(calls, part), otherwise)
    return _with_host_time(inputs, calls.pre - held, **{part: np.zeros(len(calls))})


def _with_host_time(inputs: Inputs, pre: Array, **parts: Array) -> Inputs:
    """The inputs with this time before each call. The removed time may lie between one thread's last call
    and another's first: that thread then takes over earlier by as much."""
    pre, turns = np.maximum(pre, 0.0), inputs.handovers
    sooner = (inputs.calls.pre - pre)[turns.call]
    changed = inputs.with_calls(pre=pre, **parts)
    return replace(changed, handovers=replace(turns, delay=np.maximum(turns.delay - sooner, 0.0)))
