"""What-ifs on the device's side: copies, bytes, fusion, communication."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from advisor.facts.device import ACHIEVABLE, DRAM_LIMIT, is_skinny
from advisor.gain.catalog import Fix, constant
from advisor.gain.fixes_host import launched_ahead
from advisor.gain.inputs import NEVER, Inputs
from advisor.gain.profiler import Scenario, usual_node_gaps
from advisor.gain.work import SHORT_NS, NoEstimate, Work
from advisor.knowledge.shapes import Precision
from advisor.metrics.kernels import ATTENTION, UNFUSED, is_simt_fp32, is_tf32
from advisor.metrics.lookups import cache_reorders, embedding_lookups
from advisor.metrics.operations import Kind
from advisor.metrics.passes import narrowed_weights, sampling_sorts
from advisor.metrics.workload import TRAINING
from advisor.model.arrays import Array, among, distinct, marked, median_of
from advisor.sources.schema import DTOH, HTOD, MISSING, PTOP, Call

#: Overlap that is poor and that is very good, around the one asked for (nsys-ai).
_OVERLAP_SPREAD = 0.3
#: Idle time of this length before an operation is a wait, not a cost of the operation, ns.
_WAIT_NS = 10_000
#: Bytes of an operand in memory.
_BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}


# ---------------------------------------------------------------- copies


def pin_memory(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Pessimistic: the link is slower than the table of GPUs has it; optimistic: faster."""
    if not work.pageable.any():
        raise NoEstimate("the replayed steps copy nothing from or to pageable memory")
    changed = _at_pinned_rate(fix, inputs, work, work.pageable, lean)
    # What comes down is read on the host, which waits for it as before.
    return launched_ahead(fix, _unblocked(changed, work.pageable & (work.direction == HTOD)), work)


def full_link_rate(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Pessimistic: the link is slower than the table of GPUs has it; optimistic: faster."""
    mine = work.large_pinned
    if not mine.any():
        raise NoEstimate("the replayed steps make no large copies from or to pinned memory")
    rate = work.link_rate() * (1 + constant("link_rate_spread")) ** lean
    return _at_rate(inputs, work, mine, rate)


def overlap_copy(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Small results that the host reads stay, and so does its wait for them. Pessimistic: the kernels
    lose the time in which the copies use the DRAM."""
    result = (work.direction == DTOH) & (work.copied <= constant("result_size"))
    moved = among(work.direction, (HTOD, DTOH)) & ~result
    if fix.params["between"] == "gpus":
        moved = work.direction == PTOP
    if not moved.any():
        raise NoEstimate(f"the replayed steps copy nothing between {fix.params['between']} but small results")
    if (moved & work.pageable).any():
        inputs = _at_pinned_rate(fix, inputs, work, moved & work.pageable, 0)
    if work.computes_on_host:
        # What the host does with the data comes before what the device does with the answer.
        return inputs.with_ops(duration=np.where(moved, 0.0, inputs.ops.duration))
    inputs = _off_the_path(inputs, moved)
    ops = inputs.ops
    # Each stream that copies gets a partner for its copies.
    streams = len(inputs.ready)
    changed = inputs.with_ops(
        stream=np.where(moved, ops.stream + streams, ops.stream), gap=np.where(moved, 0.0, ops.gap)
    )
    changed = replace(changed, ready=np.concatenate((inputs.ready, inputs.ready)))
    if lean < 0 and work.peak:
        taken = float(work.copied[moved].sum()) / (ACHIEVABLE * work.peak) * 1e9
        kernels = (work.kind == Kind.KERNEL) & ~moved
        share = taken / max(float(ops.duration[kernels].sum()), 1.0)
        longer = np.where(kernels, ops.duration * (1 + share), ops.duration)
        changed = changed.with_ops(duration=longer)
    return launched_ahead(fix, changed, work)


def remove_copy(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    gone = among(work.direction, (HTOD, DTOH)) & (work.copied >= fix.number("at_least"))
    if not gone.any():
        raise NoEstimate("the replayed steps copy nothing of that size between host and device")
    inputs = _off_the_path(inputs, gone)
    ops = inputs.ops
    changed = inputs.with_ops(
        duration=np.where(gone, 0.0, ops.duration),
        gap=np.where(gone, 0.0, ops.gap),
        latency=np.where(gone, NEVER, ops.latency),
    )
    return launched_ahead(fix, changed, work)


def _at_rate(inputs: Inputs, work: Work, mine: Array, rate: float) -> Inputs:
    """These copies at `rate` bytes a second, where that is faster."""
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
    held = mine & ops.by_start
    copying = marked(len(calls), ops.calls_of(mine))
    waiting = marked(len(calls), waits.call)
    free = (calls.kind == Call.COPY) & ~waiting
    usual = median_of(calls.own[free]) if free.any() else constant("copy_call")
    own, pre = np.where(copying, np.minimum(calls.own, usual), calls.own), calls.pre.copy()
    # The wait belongs to the blocking copy, and so does the little time between them.
    behind = mine[waits.op] & (calls.kind[waits.call] == Call.SYNC)
    own[waits.call[behind]] = 0.0
    pre[waits.call[behind]] = np.maximum(pre[waits.call[behind]] - constant("launch_floor"), 0.0)
    dropped = copying[waits.call] | behind
    latency = np.where(held, np.minimum(ops.latency, constant("launch_latency")), ops.latency)
    return replace(
        inputs.with_calls(own=own, pre=pre).with_ops(by_start=ops.by_start & ~held, latency=latency),
        waits=waits.take(~dropped),
    )


def _off_the_path(inputs: Inputs, mine: Array) -> Inputs:
    """These copies cost the host nothing between two kernels: they are issued while kernels run,
    or not at all. An operation costs the host `launch_floor` at least."""
    inputs = _unblocked(inputs, mine)
    calls = inputs.calls
    at = distinct(inputs.ops.calls_of(mine))
    own, pre = calls.own.copy(), calls.pre.copy()
    own[at] = 0.0
    pre[at] = np.maximum(pre[at] - constant("launch_floor"), 0.0)
    return inputs.with_calls(own=own, pre=pre)


# ---------------------------------------------------------------- bytes


def fp8_weights(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Optimistic: kernels at the limit keep their bandwidth and take half the time. Pessimistic:
    each product is preceded by kernels that cast its input."""
    mine = _wide_weights(fix, work, 8)
    changed = _fewer_bytes(fix, inputs, work, mine, lean)
    if lean < 0:
        level = work.dram[0]
        gap = scenario.node_gap * constant("graph_node_gap")
        cast = constant("cast_kernels") * (work.short_kernel + gap)
        extra = np.where(mine & ~np.isnan(level), cast, 0.0)
        changed = changed.with_ops(duration=changed.ops.duration + extra)
    return changed


def int4_weights(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Of FP8 weights twice the share of the bytes stays. Pessimistic: widening the weights in the
    kernels takes a part of what the bytes save."""
    mine = _wide_weights(fix, work, 4)
    changed = _fewer_bytes(fix, inputs, work, mine, lean, np.where(work.weight_bits == 8, 2.0, 1.0))
    if lean < 0:
        before = inputs.ops.duration
        lost = constant("unpack_loss") * (before - changed.ops.duration)
        changed = changed.with_ops(duration=changed.ops.duration + lost)
    return changed


#: Two formats of 8 bits take the same bytes.
int8_weights = fp8_weights


def _wide_weights(fix: Fix, work: Work, bits: int) -> Array:
    """Matrix products whose weights have more bits than the fix gives them."""
    wide = work.matmul & (work.weight_bits > bits)
    if work.matmul.any() and not wide.any():
        raise NoEstimate(f"the weights are stored in {bits} bits or fewer already")
    return wide & ~work.once_a_step if fix.params["output_head"] == "keep" else wide


def fp8_kv_cache(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    return _fewer_bytes(fix, inputs, work, work.attention, lean)


int8_kv_cache = fp8_kv_cache


def faster_products(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    level, _ = work.dram
    mine = _with_level(work.select(is_skinny), level)
    reach = min(fix.number("reach") + lean * constant("product_reach_spread"), 1.0)
    factor = np.where(mine, np.minimum(np.nan_to_num(level) / reach, 1.0), 1.0)
    return inputs.with_ops(duration=inputs.ops.duration * factor)


def _with_level(mine: Array, level: Array) -> Array:
    """Those of these kernels whose DRAM activity is known. Raises NoEstimate where none is."""
    known = mine & ~np.isnan(level)
    if not known.any():
        raise NoEstimate(
            "how near these kernels are to the memory limit is not known: record GPU metrics, or "
            "give --weight-bytes"
        )
    return known


def _fewer_bytes(
    fix: Fix, inputs: Inputs, work: Work, mine: Array, lean: int, times: Array | float = 1.0
) -> Inputs:
    """A kernel at DRAM level L streams for L / ACHIEVABLE of its time; that part shrinks with the bytes (to
    `bytes_ratio` x `times`), the rest (launch, ramp, arithmetic that is not hidden) stays."""
    level, error = work.dram
    mine = _with_level(mine, level)
    saved = np.maximum(1.0 - fix.number("bytes_ratio") * times, 0.0)
    streams = np.clip((np.nan_to_num(level) + lean * np.nan_to_num(error)) / ACHIEVABLE, 0.0, 1.0)
    if lean > 0:
        streams = np.where(np.nan_to_num(level) >= DRAM_LIMIT, 1.0, streams)
    factor = np.where(mine, 1.0 - saved * streams, 1.0)
    return inputs.with_ops(duration=inputs.ops.duration * factor)


def tensor_rate(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Products take as much less time as the new rate is higher, as far as their kernels come as
    near to it. Optimistic: as near as to the old rate. Skinny ones wait for their bytes."""
    to: Precision = str(fix.params["precision"])  # type: ignore[assignment]
    simt = work.select(is_simt_fp32)
    of: dict[Precision, Array] = {"fp32": simt}
    if to == "bf16":
        of["tf32"] = work.select(is_tf32)
    if to in ("fp8", "int8", "fp4"):
        of = {"bf16": work.matmul & (work.weight_bits == 16) & ~simt}
    if to == "fp4":
        of["fp8"] = work.matmul & (work.weight_bits == 8)
    of = {precision: mine for precision, mine in of.items() if mine.any()}
    if not of:
        raise NoEstimate("the replayed steps hold no products that this changes")
    new, factor = work.flop_per_s(to), np.ones(len(inputs.ops))
    for precision, mine in of.items():
        old = work.flop_per_s(precision)
        if not old or not new:
            raise NoEstimate(f"the rate of this GPU in {to if old else precision} is not known")
        ratio = min(old / new * constant("rate_loss") ** (1 - lean), 1.0)
        least = max(_BYTES[to] / _BYTES[precision], ratio)
        factor[mine] = np.where(work.select(is_skinny), least, ratio)[mine]
    if to == "bf16":
        factor *= _half_as_wide(inputs, work, np.logical_or.reduce(list(of.values())), lean)
    return inputs.with_ops(duration=inputs.ops.duration * factor)


def _half_as_wide(inputs: Inputs, work: Work, products: Array, lean: int) -> Array:
    """What stays of the time of kernels beside products in FP32, where these hold most of the products' time:
    half of one that moves values of 32 bits, but for its start and end (pessimistic: three quarters). Mixed
    precision leaves norms, softmax and losses in FP32: of a training step three quarters stay (half to all).
    Attention in FP32 makes three products in TF32 of each; half of its time stays at most."""
    ops, factor = inputs.ops, np.ones(len(inputs.ops))
    if 2 * ops.duration[products].sum() < ops.duration[work.matmul].sum():
        return factor
    stays = {-1: 0.75, 0: 0.5, 1: 0.5}[lean]
    if work.a.program.kind == TRAINING:
        stays = {-1: 1.0, 0: 0.75, 1: 0.5}[lean]
    moved = UNFUSED | {"reduction"}
    wide = work.select(lambda k: k.family in moved and k.traits.get("precision") in (None, "fp32"))
    least = np.minimum(SHORT_NS / 2 / np.maximum(ops.duration, 1.0), 1.0)
    factor[wide] = np.maximum(least, stays)[wide]
    old, new = work.flop_per_s("tf32"), work.flop_per_s("bf16")
    if old and new:
        attention = work.select(lambda k: k.family in ATTENTION and k.traits.get("precision") == "fp32")
        factor[attention] = min(old / 3 / new * constant("rate_loss") ** (1 - lean), 0.5)
    return factor


# ---------------------------------------------------------------- fusion and communication


def fuse_elementwise(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Of the kernels of a chain the longest stays, and half of what the others take on the device and the
    host, but for host code; optimistic: nothing of the others, pessimistic: three quarters. The same copy or
    gather again and again moves as many tensors, such as the cache of each layer: their time stays."""
    stays = {-1: 0.75, 0: 0.5, 1: 0.0}[lean]
    ops = inputs.ops
    order = np.argsort(ops.stream, kind="stable")
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    candidate = (work.unfused & (ops.duration > 0))[order]
    stream, step = ops.stream[order], ops.step[order]
    waited = marked(len(ops), inputs.waits.op)
    waited[inputs.joins.on] = True
    cut = (stream[1:] != stream[:-1]) | (step[1:] != step[:-1]) | waited[order][:-1]
    follows = np.concatenate(([False], candidate[:-1] & ~cut)) & candidate
    if not follows.any():
        raise NoEstimate("no two elementwise kernels follow each other")
    # Chains are numbered; of each, the first of the longest kernels stays.
    chain = np.cumsum(candidate & ~follows) - 1
    duration = ops.duration[order]
    longest = np.zeros(int(chain[-1]) + 1)
    np.maximum.at(longest, chain[candidate], duration[candidate])
    at = np.flatnonzero(candidate & (duration == longest[np.maximum(chain, 0)]))
    keeper = marked(len(order), at[np.unique(chain[at], return_index=True)[1]])
    name = work.name[order]
    moves = work.family(frozenset(("index", "copy")))[order]
    alike = follows & moves & np.concatenate(([False], name[1:] == name[:-1]))
    gone = (candidate & ~keeper)[back]
    return _shortened(inputs, gone, np.where(gone & ~alike[back], stays, 1.0), stays)


def absorb_kernels(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Pessimistic: half of their time moves into other kernels. Products of attention on tensor cores wait
    for the scores that they write and read, which one kernel keeps: half of their time stays (pessimistic:
    all, and a quarter of the kernels between; optimistic: a quarter, as half of the scores are masked)."""
    which = fix.params["which"]
    pieces = which == "attention_pieces"
    stays = (0.25 if pieces else 0.5) if lean < 0 else 0.0
    kernels: dict[str, Callable[[], Array]] = {
        "dequantisation": lambda: work.dequantising,
        "weight_casts": lambda: narrowed_weights(*work.placed, work.attention_pieces),
        "sampling_sorts": lambda: sampling_sorts(*work.placed),
        "attention_pieces": lambda: work.attention_pieces.inner,
        "cache_joins": lambda: work.cache_joins,
        "cache_reorders": lambda: cache_reorders(*work.placed).of,
        "embedding_lookups": lambda: embedding_lookups(*work.placed).of,
    }
    mine = kernels[str(which)]()
    if not mine.any():
        raise NoEstimate(f"the replayed steps hold no kernels of that kind ({which})")
    if which == "cache_joins":
        # A kernel that writes one token stays for each.
        least = work.short_kernel / np.maximum(inputs.ops.duration, 1.0)
        return _shortened(inputs, mine, np.where(mine, np.clip(least, stays / 4, 1.0), 1.0), 1.0)
    share = np.where(mine, stays, 1.0)
    if which == "embedding_lookups":  # the rows are read as before, by one kernel
        share[mine] = {-1: 0.75, 0: 0.5, 1: 0.25}[lean]
    if pieces:
        products, slow = work.attention_pieces.products, work.select(is_simt_fp32)
        share[products] = {-1: 1.0, 0: 0.5, 1: 0.25}[lean]
        share[products & slow] = 0.5 if lean > 0 else 1.0
    return _shortened(inputs, mine, share, stays)


def merge_adapters(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    mine = work.adapters
    if not mine.any():
        raise NoEstimate("the replayed steps hold no kernels of adapters")
    return _shortened(inputs, mine, np.where(mine, 0.0, 1.0), 0.0)


def _shortened(inputs: Inputs, mine: Array, share: Array, stays: float) -> Inputs:
    """`share` of each operation's time stays, `stays` of what launching `mine` costs but for host code."""
    ops, calls = inputs.ops, inputs.calls
    launched = marked(len(calls), ops.calls_of(mine))
    launched &= calls.kind == Call.LAUNCH
    held = np.where(calls.host_code, calls.pre, calls.explained)
    gap = np.where(ops.gap < _WAIT_NS, ops.gap * share, ops.gap)
    return inputs.with_ops(duration=ops.duration * share, gap=gap).with_calls(
        own=np.where(launched, calls.own * stays, calls.own),
        pre=np.where(launched, held + (calls.pre - held) * stays, calls.pre),
    )


def shorten_node_gaps(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    usual = usual_node_gaps(inputs)
    if not usual.any():
        raise NoEstimate("no graph run was traced node by node")
    stays = {-1: 0.75, 0: 0.5, 1: 0.0}[lean]
    return inputs.with_ops(gap=np.where(usual, inputs.ops.gap * stays, inputs.ops.gap))


def overlap_communication(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    mine = work.communication
    if not mine.any():
        raise NoEstimate("the replayed steps hold no collectives")
    share = float(np.clip(fix.number("overlap") + lean * _OVERLAP_SPREAD, 0.0, 1.0))
    return inputs.with_ops(duration=inputs.ops.duration * np.where(mine, 1 - share * work.exposed, 1.0))


def one_shot_collectives(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Half of what one trip over NVLink can save of the exposed time; optimistic: all of it,
    pessimistic: a quarter."""
    mine = work.small_collectives
    if not mine.any():
        raise NoEstimate("the replayed steps hold no collectives that are known to be small")
    goes = constant("one_shot_saves") * {-1: 0.25, 0: 0.5, 1: 1.0}[lean]
    share = np.where(mine, goes * work.exposed, 0.0)
    return inputs.with_ops(duration=inputs.ops.duration * (1 - share))
