"""What-ifs about copies."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.facts import limits as fact_limits
from advisor.gain.changes import what_if
from advisor.gain.fixes_host import launched_ahead, unheld
from advisor.gain.inputs import NEVER, Inputs
from advisor.gain.profiler import Scenario
from advisor.gain.replay_ops import NoEstimate, Work, require
from advisor.gain.resources import time_alone
from advisor.gain.whatifs import Fix, constant
from advisor.metrics import limits as metric_limits
from advisor.metrics.budgeted.callsites import small_runs
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import Kind
from advisor.model.arrays import Array, among, begins_run, distinct, marked, median_of, without
from advisor.sources.schema import DTOH, HTOD, MISSING, PTOP, Call


@what_if()
def pin_memory(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Pessimistic: the link is slower than the table of GPUs has it; optimistic: faster."""
    mine = require(work.pageable, "the replayed steps copy nothing from or to pageable memory")
    changed = _at_pinned_rate(fix, inputs, work, mine, lean)
    # The host reads what comes down, and waits for it as before.
    return launched_ahead(fix, _unblocked(changed, mine & (work.direction == HTOD)), work)


@what_if()
def full_link_rate(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Pessimistic: the link is slower than the table of GPUs has it; optimistic: faster."""
    mine = require(work.large_pinned, "the replayed steps make no large copies from or to pinned memory")
    rate = work.link_rate() * (1 + constant("link_rate_spread")) ** lean
    return _at_rate(inputs, work, mine, rate)


@what_if()
def overlap_copy(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Small results that the host reads stay, and so does the wait for them. Pessimistic: the kernels
    lose the time in which the copies use the DRAM, and copies both ways take turns."""
    result = (work.direction == DTOH) & (work.copied <= constant("result_size"))
    moved = among(work.direction, (HTOD, DTOH)) & ~result
    if (between := fix.params["between"]) == "gpus":
        moved = work.direction == PTOP
    require(moved, f"the replayed steps copy nothing between {between} but small results")
    if (moved & work.pageable).any():
        inputs = _at_pinned_rate(fix, inputs, work, moved & work.pageable, 0)
    if work.answers_on_host:
        # Host code that uses the data precedes the device work that uses its answer.
        beside = max(inputs.beside, time_alone(work, inputs.ops.duration, moved))
        return replace(inputs.with_ops(duration=np.where(moved, 0.0, inputs.ops.duration)), beside=beside)
    # Uploads in many pieces keep the host busy whenever it issues them.
    inputs = _off_the_path(inputs, moved & (_small_runs(inputs, work)[1] == MISSING))
    ops = inputs.ops
    # Each stream that copies gets partners for its copies, one for those to the host.
    partner = np.where((work.direction == DTOH) & (lean >= 0), 2, 1) * len(inputs.ready)
    changed = inputs.with_ops(
        stream=np.where(moved, ops.stream + partner, ops.stream), gap=np.where(moved, 0.0, ops.gap)
    )
    changed = replace(changed, ready=np.tile(inputs.ready, 3))
    changed = _joined_ahead(changed, moved, work, lean)
    if lean < 0 and work.peak:
        taken = float(work.copied[moved].sum()) / (fact_limits.ACHIEVABLE_RATIO * work.peak) * 1e9
        kernels = (work.kind == Kind.KERNEL) & ~moved
        share = taken / max(float(ops.duration[kernels].sum()), 1.0)
        longer = np.where(kernels, ops.duration * (1 + share), ops.duration)
        changed = changed.with_ops(duration=longer)
    return launched_ahead(fix, changed, work)


@what_if()
def coalesce_copies(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """The first copy of each run moves all of its bytes; the other calls go, and the waits between them.
    Pessimistic: it reaches only the rate of the quickest of them."""
    of_call, run = _small_runs(inputs, work)
    mine = np.flatnonzero(run != MISSING)
    if not len(mine):
        raise NoEstimate("the replayed steps hold no small copies to the device that follow each other")
    calls, ops = inputs.calls, inputs.ops
    known, of = dense(run[mine])
    size = work.copied[mine].astype(float)
    took = np.maximum(ops.duration[mine], 1.0)
    total, rate = np.bincount(of, size), np.zeros(len(known))
    np.maximum.at(rate, of, size / took)
    if lean >= 0:
        rate = np.maximum(rate, work.link_rate() / 1e9)
    first = mine[begins_run(of)]
    duration = ops.duration.copy()
    duration[mine] = 0.0
    duration[first] = np.maximum(total / np.maximum(rate, 1e-9), ops.duration[first])
    # The waits between them, too, but none in front of the first.
    begins = np.zeros(int(of_call.max()) + 1, np.int64)
    begins[run[first]] = ops.call[first]
    between = (of_call != MISSING) & (np.arange(len(calls)) > begins[of_call])
    gap = np.where(marked(len(ops), without(mine, first)), 0.0, ops.gap)
    # The host still makes what is copied; what comes with a call goes with it.
    with_call = np.minimum(constant("launch_floor") + constant("operator_time") * calls.operators, calls.pre)
    changed = inputs.with_ops(duration=duration, gap=gap).with_calls(
        own=np.where(between, 0.0, calls.own), pre=np.where(between, calls.pre - with_call, calls.pre)
    )
    waits = inputs.waits
    return replace(changed, waits=waits.take(~between[waits.call]))


def _small_runs(inputs: Inputs, work: Work) -> tuple[Array, Array]:
    """The run of small copies to the device of each call, and of each operation; MISSING for none."""
    calls, ops = inputs.calls, inputs.ops
    small = (
        (work.direction == HTOD)
        & (work.copied > 0)
        & (work.copied <= metric_limits.host.SMALL_COPY_BYTES)
        & (ops.latency > NEVER)
    )
    of_call = small_runs(calls.thread, np.arange(len(calls)), calls.kind, marked(len(calls), ops.call[small]))
    of_op = np.full(len(ops), MISSING)
    of_op[small] = of_call[ops.call[small]]
    return of_call, of_op


@what_if()
def remove_copy(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    gone = among(work.direction, (HTOD, DTOH)) & (work.copied >= fix.number("at_least"))
    require(gone, "the replayed steps copy nothing of that size between host and device")
    inputs = _off_the_path(inputs, gone)
    ops = inputs.ops
    changed = inputs.with_ops(
        duration=np.where(gone, 0.0, ops.duration),
        gap=np.where(gone, 0.0, ops.gap),
        latency=np.where(gone, NEVER, ops.latency),
    )
    joins = changed.joins
    changed = replace(changed, joins=joins.take(~gone[joins.op] & ~gone[joins.on]))
    return launched_ahead(fix, changed, work)


def _joined_ahead(inputs: Inputs, moved: Array, work: Work, lean: int) -> Inputs:
    """What waited for one of the `moved` copies through an event waits for the one that was waited for
    before it on the copy's stream, which is issued a step, or a layer, ahead. Uploads no longer wait for
    kernels: they fill a second buffer. Pessimistic: none is issued a step ahead, so that the first one of
    each step is waited for as before."""
    joins, ops = inputs.joins, inputs.ops
    if not len(joins):
        return inputs
    on, held = joins.on.copy(), (moved & (work.direction == HTOD))[joins.op]
    kept = ~held
    if lean < 0:
        at = np.flatnonzero(held)
        at = at[np.argsort(joins.op[at], kind="stable")]
        key = ops.stream[joins.op[at]] * (ops.step.max() + 2) + ops.step[joins.op[at]]
        kept[at[np.unique(key, return_index=True)[1]]] = True
    waited = moved[joins.on]
    kept &= ~waited
    for stream in distinct(ops.stream[joins.on[waited]]).tolist():
        mine = np.flatnonzero(waited & (ops.stream[joins.on] == stream))
        known, at = np.unique(joins.on[mine], return_inverse=True)
        before = known[np.maximum(at - 1, 0)]
        first = ops.step[before] != ops.step[joins.on[mine]]
        on[mine] = np.where(first & (lean < 0), joins.on[mine], before)
        kept[mine] = at > 0
    return replace(inputs, joins=replace(joins, on=on).take(kept))


def _at_rate(inputs: Inputs, work: Work, mine: Array, rate: float) -> Inputs:
    """These copies at `rate` bytes a second, if that is faster."""
    if (work.copied[mine] == MISSING).any():
        raise NoEstimate("the capture does not say how many bytes its copies move")
    duration = np.where(mine, work.copied / rate * 1e9, np.inf)
    return inputs.with_ops(duration=np.minimum(inputs.ops.duration, duration))


def _at_pinned_rate(fix: Fix, inputs: Inputs, work: Work, mine: Array, lean: int) -> Inputs:
    """These copies at the rate of pinned ones; one from the table of GPUs is a rounded figure."""
    for direction in (HTOD, DTOH):
        at = mine & (work.direction == direction)
        if at.any():
            rate = fix.number("gb_per_s") * 1e9
            if not rate:
                rate, measured = work.pinned_rate(direction)
                rate *= 1.0 if measured else (1 + constant("link_rate_spread")) ** lean
            inputs = _at_rate(inputs, work, at, rate)
    return inputs


def _unblocked(inputs: Inputs, mine: Array) -> Inputs:
    """Calls of these copies return at once, and the waits right behind them go."""
    calls, ops, waits = inputs.calls, inputs.ops, inputs.waits
    copying = marked(len(calls), ops.calls_of(mine))
    waiting = marked(len(calls), waits.call)
    free = (calls.kind == Call.COPY) & ~waiting
    usual = median_of(calls.own[free]) if free.any() else constant("copy_call")
    own, pre = np.where(copying, np.minimum(calls.own, usual), calls.own), calls.pre.copy()
    # The wait belongs to the blocking copy, and so does the little time between them.
    behind = mine[waits.op] & (calls.kind[waits.call] == Call.SYNC)
    own[waits.call[behind]] = 0.0
    pre[waits.call[behind]] = np.maximum(pre[waits.call[behind]] - constant("launch_floor"), 0.0)
    return unheld(inputs.with_calls(own=own, pre=pre), mine & ops.by_start, copying[waits.call] | behind)


def _off_the_path(inputs: Inputs, mine: Array) -> Inputs:
    """These copies cost the host no time between two kernels: they are issued while kernels run, or not
    at all. An operation costs the host at least `launch_floor`."""
    inputs = _unblocked(inputs, mine)
    calls = inputs.calls
    at = distinct(inputs.ops.calls_of(mine))
    own, pre = calls.own.copy(), calls.pre.copy()
    own[at] = 0.0
    pre[at] = np.maximum(pre[at] - constant("launch_floor"), 0.0)
    return inputs.with_calls(own=own, pre=pre)
