"""What-ifs that put more tokens into a step: larger batches, speculative decoding."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from advisor.facts.device import ACHIEVABLE
from advisor.gain.catalog import Fix, constant
from advisor.gain.inputs import Inputs
from advisor.gain.profiler import Scenario
from advisor.gain.work import SHORT_NS, NoEstimate, Work
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import DTOH, HTOD

#: Kernels of which a larger batch reads more weights.
_EXPERTS = frozenset(("moe",))
#: Samples tell the levels of kernels so many times as long as their stamps may be off.
_SHARP = 10


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
