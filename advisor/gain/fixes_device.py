"""What-ifs on the device's side: copies, bytes, batch, fusion, experts, communication."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from advisor.facts.device import ACHIEVABLE, DRAM_LIMIT, is_skinny
from advisor.gain.catalog import Fix, constant
from advisor.gain.fixes_host import launched_ahead
from advisor.gain.inputs import NEVER, Inputs
from advisor.gain.profiler import Scenario, usual_node_gaps
from advisor.gain.work import SHORT_NS, NoEstimate, Work
from advisor.knowledge.shapes import Precision
from advisor.metrics.kernels import MATMUL
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import DTOH, HTOD, Call

#: Overlap that is poor and that is very good, around the one asked for (peers-7).
_OVERLAP_SPREAD = 0.3
#: Kernels of which a larger batch reads more weights.
_EXPERTS = frozenset(("moe",))
#: Samples tell the levels of kernels so many times as long as their stamps may be off.
_SHARP = 10
#: Bytes of an operand in memory.
_BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}


# ---------------------------------------------------------------- copies


def pin_memory(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Pessimistic: the link is slower than the table of GPUs has it; optimistic: faster."""
    if not work.pageable.any():
        raise NoEstimate("the replayed steps copy nothing from or to pageable memory")
    changed = _at_pinned_rate(fix, inputs, work, work.pageable, lean)
    return launched_ahead(fix, _unblocked(changed, work.pageable), work)


def full_link_rate(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Pessimistic: the link is slower than the table of GPUs has it; optimistic: faster."""
    mine = work.large_pinned
    if not mine.any():
        raise NoEstimate("the replayed steps make no large copies from or to pinned memory")
    rate = work.link_rate() * (1 + constant("link_rate_spread")) ** lean
    return _at_rate(inputs, work, mine, rate)


def overlap_copy(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Pessimistic: the kernels lose the time in which the copies use the DRAM."""
    moved = np.isin(work.direction, (HTOD, DTOH))
    if not moved.any():
        raise NoEstimate("the replayed steps copy nothing between host and device")
    if (moved & work.pageable).any():
        inputs = _at_pinned_rate(fix, inputs, work, moved & work.pageable, 0)
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
    gone = np.isin(work.direction, (HTOD, DTOH)) & (work.copied >= fix.number("at_least"))
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
    copying = np.zeros(len(calls), bool)
    copying[ops.calls_of(mine)] = True
    waiting = np.zeros(len(calls), bool)
    waiting[waits.call] = True
    free = (calls.kind == Call.COPY) & ~waiting
    usual = float(np.median(calls.own[free])) if free.any() else constant("copy_call")
    own, pre = np.where(copying, np.minimum(calls.own, usual), calls.own), calls.pre.copy()
    # The wait belongs to the blocking copy, and so does the little time between them.
    behind = mine[waits.op] & (calls.kind[waits.call] == Call.SYNC)
    own[waits.call[behind]] = 0.0
    pre[waits.call[behind]] = np.maximum(pre[waits.call[behind]] - constant("launch_floor"), 0.0)
    dropped = copying[waits.call] | behind
    latency = np.where(held, np.minimum(ops.latency, constant("launch_latency")), ops.latency)
    return replace(
        inputs.with_calls(own=own, pre=pre).with_ops(by_start=ops.by_start & ~held, latency=latency),
        waits=waits.without(dropped),
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


def _fewer_bytes(
    fix: Fix, inputs: Inputs, work: Work, mine: Array, lean: int, times: Array | float = 1.0
) -> Inputs:
    """A kernel at DRAM level L streams for L / ACHIEVABLE of its time; that part shrinks with the
    bytes (to `bytes_ratio` x `times`), the rest (launch, ramp, arithmetic that is not hidden)
    stays."""
    level, error = work.dram
    mine = mine & ~np.isnan(level)
    if not mine.any():
        raise NoEstimate(
            "how near these kernels are to the memory limit is not known: record GPU metrics, or "
            "give --weight-bytes"
        )
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
    simt = work.select(lambda k: k.family in MATMUL and k.traits.get("simt_fp32") is True)
    of: dict[Precision, Array] = {"fp32": simt}
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
    return inputs.with_ops(duration=inputs.ops.duration * factor)


# ---------------------------------------------------------------- batch and fusion


def batch(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Products grow from the ridge on, other kernels once they fill the device or its bandwidth.
    Optimistic: blocks limit nothing, and levels lie at the low end of what the samples allow.
    Pessimistic: blocks limit from half of the device on, levels lie at the high end, and attention
    whose level was not measured grows in proportion. More tokens ask for more experts, so the bytes
    of their weights grow in proportion, too, but not in the optimistic reading. A short kernel
    takes `batch_ramp` longer at least (nothing in the optimistic reading, twice in the other)."""
    if (work.kind == Kind.GRAPH_RUN).any():
        raise NoEstimate(
            "how the kernels inside CUDA graphs grow cannot be derived from whole graphs: capture "
            "with --cuda-graph-trace=node"
        )
    n = fix.number("n")
    level, blur = work.dram_blur
    level = np.clip(np.nan_to_num(level) - lean * blur, 0.0, ACHIEVABLE)
    filling = work.filling * {-1: 2.0, 0: 1.0, 1: 0.0}[lean]
    if lean < 0:
        filling = np.where(work.attention & np.isnan(work.dram[0]), 1.0, filling)
    grown = np.clip(n * np.maximum(filling, level / ACHIEVABLE), 1.0, n)
    kernel = work.kind == Kind.KERNEL
    dense = work.matmul & (~work.family(_EXPERTS) | (lean > 0))
    factor = np.where(kernel, np.where(dense, _products(work, n, grown, lean), grown), 1.0)
    factor = np.where(np.isin(work.direction, (HTOD, DTOH)), n, factor)
    before = inputs.ops.duration
    ramp = (1 - lean) * constant("batch_ramp") if n > 1 else 0.0
    least = np.where(kernel & (before > 0) & (before < SHORT_NS), before + ramp, 0.0)
    return inputs.with_ops(duration=np.maximum(before * factor, least))


def room_for_batch(work: Work) -> tuple[float, str]:
    """Times as many sequences as measured tokens and memory allow (a power of two), and why;
    `unmeasured_batch` where a capture shows neither. Raises NoEstimate where there is no room."""
    mine = work.decode if work.decode.any() else np.ones(len(work), bool)
    time, level, peak = work.taken.inputs.ops.duration, work.dram[0], work.peak
    most, why = [], []
    # Samples stamped a little off give a short kernel the level of its neighbours.
    sharp = mine & (time >= _SHARP * constant("sample_skew"))
    products = sharp & work.matmul & ~np.isnan(work.tokens)
    measured = time[products].sum() >= time[mine & work.matmul].sum() / 2
    if products.any() and measured and work.ridge:
        tokens = float(np.average(work.tokens[products], weights=time[products]))
        limit = work.ridge * ACHIEVABLE
        most.append(limit / max(tokens, 1.0))
        why.append(f"products work on about {tokens:.0f} tokens and wait for weights up to {limit:.0f}")
    attention = sharp & work.attention & (level > 0)
    memory = work.a.device(work.a.main_device).memory_bytes
    if attention.any() and measured and peak and memory:
        steps = len(distinct(work.taken.inputs.ops.step[attention]))
        read = np.nan_to_num(level) * time / 1e9 * peak / steps
        cache, weights = float(read[attention].sum()), float(read[mine & work.matmul].sum())
        usable = memory * constant("usable_memory")
        most.append((usable - weights) / cache)
        why.append(
            f"a step reads {weights / 1e9:.3g} GB of weights and {cache / 1e9:.3g} GB of keys and values, "
            f"of {usable / 1e9:.3g} GB"
        )
    if not most:
        return constant("unmeasured_batch"), "neither its tokens nor its keys and values were measured"
    n = 2.0 ** math.floor(math.log2(max(min(most), 1.0)))
    if n < 2:
        raise NoEstimate(f"there is no room for a larger batch: {'; '.join(why)}")
    return n, "; ".join(why)


def batch_numbers(fix: Fix, work: Work) -> list[str]:
    """How many sequences there is room for."""
    try:
        n, why = room_for_batch(work)
    except NoEstimate as full:
        return [str(full)]
    return [f"there is room for {n:.0f} times as many sequences: {why}"]


def _products(work: Work, n: float, grown: Array, lean: int) -> Array:
    """How much longer matrix products take for n times the tokens: as before while their weights
    stream, until the tensor cores are at their limit; in proportion for those whose tensor cores
    are busier than their DRAM, which are past the ridge. `grown`: what their blocks ask for, which
    counts where neither samples nor a decode step tell."""
    dram, tensor = work.pipes
    # Few tokens are padded, so the tensor cores do the work of `padded_tokens` already.
    padded = constant("padded_tokens")
    tokens = work.tokens
    few = np.where(np.isnan(tokens), work.decode, tokens < 2 * padded)
    more = n if lean < 0 else np.where(few, max(1.0, n / padded), n)
    factor = np.clip(tensor * more / ACHIEVABLE, 1.0, n)
    if lean <= 0:
        factor = np.where(tensor > dram, n, factor)
    if lean < 0 or work.ridge is None:
        assumed = grown
    else:
        assumed = np.clip(padded / work.ridge * more / ACHIEVABLE, 1.0, n)
    blind = np.where(work.decode, assumed, grown)
    return np.where(np.isnan(tensor) | np.isnan(dram), blind, factor)


def speculate(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """As a batch of the tokens to check, but for attention: the sequences stay as many."""
    tokens = replace(fix, params={"n": fix.number("drafted") + 1})
    grown = batch(tokens, inputs, work, scenario, lean).ops.duration
    before = inputs.ops.duration
    kernel = work.kind == Kind.KERNEL
    duration = np.where(kernel & ~work.attention, grown, before)
    return inputs.with_ops(duration=duration + np.where(kernel, fix.number("draft_share"), 0) * before)


def fuse_elementwise(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Of the kernels of a chain the longest stays, and half of what the others take on the device
    and the host; optimistic: nothing of the others, pessimistic: three quarters."""
    stays = {-1: 0.75, 0: 0.5, 1: 0.0}[lean]
    ops, calls = inputs.ops, inputs.calls
    order = np.argsort(ops.stream, kind="stable")
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    candidate = (work.unfused & (ops.duration > 0))[order]
    stream, step = ops.stream[order], ops.step[order]
    waited = np.zeros(len(ops), bool)
    waited[inputs.waits.op] = True
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
    keeper = np.zeros(len(order), bool)
    keeper[at[np.unique(chain[at], return_index=True)[1]]] = True
    gone = (candidate & ~keeper)[back]
    share = np.where(gone, stays, 1.0)
    launched = np.zeros(len(calls), bool)
    launched[ops.calls_of(gone)] = True
    launched &= calls.kind == Call.LAUNCH
    held = np.minimum(calls.gc + calls.gil + calls.os, calls.pre)
    return inputs.with_ops(duration=ops.duration * share, gap=ops.gap * share).with_calls(
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
