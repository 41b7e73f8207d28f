"""The what-ifs: each a small change of the replay's inputs; those that put more tokens into a step (larger
batches, speculative decoding), and those on a mixture of experts.

``apply(fix, inputs, work, scenario, lean)`` returns the changed inputs. `lean` is -1 for the
pessimistic reading of what the fix does, 0 for the one described in `knowledge/whatifs.yaml`, 1 for
the optimistic one. A fix that cannot be estimated here raises NoEstimate with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from advisor.facts import limits as fact_limits
from advisor.gain import fixes_copies, fixes_device, fixes_host, fixes_speed, fixes_transfers, limits
from advisor.gain.changes import CHANGES, what_if
from advisor.gain.inputs import NEVER, Inputs, with_own_code
from advisor.gain.profiler import Scenario
from advisor.gain.replay_ops import NoEstimate, Work, require
from advisor.gain.whatifs import Fix, catalogue, constant
from advisor.knowledge.gpus import gpu_has
from advisor.metrics import limits as metric_limits
from advisor.metrics.budgeted.experts import Routing, loose_experts
from advisor.metrics.budgeted.step_times import decode_batch
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.stepped.load import logged_requests
from advisor.model.arrays import Array, among, distinct, percentiles
from advisor.model.gain import HOLDS_MUCH
from advisor.model.numbers import percent
from advisor.sources.schema import DTOH, HTOD, Call

#: Kernels that read more weights in a larger batch.
#: The modules of what-ifs, each of which registers its own.
MODULES = (fixes_copies, fixes_device, fixes_host, fixes_speed, fixes_transfers)
_EXPERTS = frozenset(("moe",))


@what_if()
def batch(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Products grow from the ridge on, other kernels once they fill the device or its bandwidth.

    Optimistic: blocks limit nothing, and levels lie at the low end of what the samples allow.
    Pessimistic: blocks limit from half of the device on, levels lie at the high end, and attention whose
    level was not measured grows in proportion. More tokens need more experts, so the bytes of their
    weights grow in proportion, too, except in the optimistic reading. A short kernel takes at least
    `batch_ramp` longer (nothing in the optimistic reading, twice that in the pessimistic one)."""
    if (work.kind == Kind.GRAPH_RUN).any():
        raise NoEstimate(
            "how the kernels inside CUDA graphs grow cannot be derived from whole graphs: capture "
            "with --cuda-graph-trace=node"
        )
    n = fix.number("n")
    level, blur = work.dram_blur
    level = np.clip(np.nan_to_num(level) - lean * blur, 0.0, fact_limits.ACHIEVABLE_RATIO)
    filling = work.filling * {-1: 2.0, 0: 1.0, 1: 0.0}[lean]
    if lean < 0:
        filling = np.where(work.attention & np.isnan(work.dram[0]), 1.0, filling)
    grown = np.clip(n * np.maximum(filling, level / fact_limits.ACHIEVABLE_RATIO), 1.0, n)
    kernel = work.kind == Kind.KERNEL
    dense = work.matmul & (~work.family(_EXPERTS) | (lean > 0))
    factor = np.where(kernel, np.where(dense, _products(work, n, grown, lean), grown), 1.0)
    factor = np.where(among(work.direction, (HTOD, DTOH)), n, factor)
    before = inputs.ops.duration
    ramp = (1 - lean) * constant("batch_ramp") if n > 1 else 0.0
    least = np.where(kernel & (before > 0) & (before < limits.SHORT_KERNEL_NS), before + ramp, 0.0)
    return inputs.with_ops(duration=np.maximum(before * factor, least))


def room_for_batch(work: Work) -> tuple[float, str]:
    """By which factor the batch may grow, and why: a power of two that tokens and memory allow, at most
    `unmeasured_batch` if neither is measured, and at most the requests that the engine's log shows. Raises
    NoEstimate if the factor is below 2."""
    mine = work.decode if work.decode.any() else np.ones(len(work), bool)
    time, level, peak = work.taken.inputs.ops.duration, work.dram[0], work.peak
    most, why = [], []
    # Samples that are off a little give a short kernel the level of its neighbours.
    sharp = mine & (time >= limits.SHARP_FACTOR * constant("sample_skew"))
    products = sharp & work.matmul & ~np.isnan(work.tokens)
    measured = bool(time[products].sum() >= time[mine & work.matmul].sum() / 2)
    running = decode_batch(work.a, work.a.window_steps)
    if products.any() and measured and work.ridge:
        tokens = float(np.average(work.tokens[products], weights=time[products]))
        limit = work.ridge * fact_limits.ACHIEVABLE_RATIO
        most.append(limit / max(tokens, 1.0))
        why.append(f"products work on about {tokens:.0f} tokens and wait for weights up to {limit:.0f}")
    elif running and work.ridge:
        limit = work.ridge * fact_limits.ACHIEVABLE_RATIO
        most.append(min(limit / running, constant("unmeasured_batch")))
        why.append(
            f"decode steps run {running:.0f} sequences by their ranges and wait for weights up to {limit:.0f}"
        )
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
        most.append(constant("unmeasured_batch"))
        why.append("assumed, as the capture does not show how much there is")
    n = 2.0 ** math.floor(math.log2(max(min(most), 1.0)))
    if n < 2:
        raise NoEstimate(f"there is no room for a larger batch: {'; '.join(why)}")
    if (load := logged_requests(work.a)) is not None:
        runs, waits = load
        found = f"{waits:.3g} requests wait by the log while {runs:.3g} run"
        n = min(n, math.floor((runs + waits) / runs))
        if n < 2:
            raise NoEstimate(f"too few requests wait for a batch twice as large: {found}")
        why.append(found)
    return n, "; ".join(why)


def batch_numbers(fix: Fix, work: Work) -> list[str]:
    """How many more sequences there is room for, and what the estimate leaves out, for the report."""
    try:
        n, why = room_for_batch(work)
        room = f"there is room for {n:.0f} times as much work a step: {why}"
    except NoEstimate as full:
        room = str(full)
    return [room, *_left_out(work)]


def _left_out(work: Work) -> list[str]:
    """That collectives and exchanges carry more with a larger batch, where they hold much of the work."""
    time = work.taken.inputs.ops.duration
    held = float(time[work.communication].sum()) / max(float(time.sum()), 1.0)
    if held < HOLDS_MUCH:
        return []
    return [
        f"collectives and exchanges between GPUs are {percent(held)} of the GPU's time: they carry more with "
        "a larger batch, which the estimate leaves out as their sizes and the links' rates are not known"
    ]


def _products(work: Work, n: float, grown: Array, lean: int) -> Array:
    """How much longer matrix products take for n times the tokens: not at all while their weights stream, up
    to the limit of the tensor cores; in proportion past the ridge, where tensor cores are busier than DRAM.
    `grown`, by their blocks, counts if neither samples nor a decode step show it."""
    dram, tensor = work.pipes
    # Few tokens are padded, so the tensor cores do the work of `padded_tokens` already.
    padded = constant("padded_tokens")
    tokens = work.tokens
    few = np.where(np.isnan(tokens), work.decode, tokens < 2 * padded)
    more = n if lean < 0 else np.where(few, max(1.0, n / padded), n)
    factor = np.clip(tensor * more / fact_limits.ACHIEVABLE_RATIO, 1.0, n)
    if lean <= 0:
        factor = np.where(tensor > dram, n, factor)
    if lean < 0 or work.ridge is None:
        assumed = grown
    else:
        assumed = np.clip(padded / work.ridge * more / fact_limits.ACHIEVABLE_RATIO, 1.0, n)
    blind = np.where(work.decode, assumed, grown)
    return np.where(np.isnan(tensor) | np.isnan(dram), blind, factor)


@what_if()
def speculate(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """As a batch of the tokens to verify, except for attention: the number of sequences does not change."""
    tokens = replace(fix, params={"n": fix.number("drafted") + 1})
    grown = batch(tokens, inputs, work, scenario, lean).ops.duration
    before = inputs.ops.duration
    kernel = work.kind == Kind.KERNEL
    duration = np.where(kernel & ~work.attention, grown, before)
    return inputs.with_ops(duration=duration + np.where(kernel, fix.number("draft_share"), 0) * before)


# --- a mixture of experts: fused kernels, balanced routing ----------------------------------------

#: At most this many groups of similar layers are listed.
_GROUPS = 4


@what_if()
def fuse_experts(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Of a layer's small kernels and of the cost of launching them a share remains: a fused layer's
    kernels over theirs; optimistic: two thirds of that, pessimistic: twice. Products keep their time, but
    those of a loop over experts run side by side in one kernel: optimistic, as far as their blocks leave
    the device empty, in the middle half as far (as logarithms) as a block an SM does, pessimistic not at
    all. Read-backs inside the layer, and the waits for them, go."""
    inside, loop = np.zeros(len(work), bool), np.zeros(len(work), bool)
    stays = np.ones(len(work))
    start = work.a.ops.start[work.at]
    for device in distinct(work.device).tolist():
        found = loose_experts(work.a, device)
        if found is None or len(found.start) == 0:
            continue
        layer = np.maximum(np.searchsorted(found.start, start, "right") - 1, 0)
        mine = (work.device == device) & (start >= found.start[layer]) & (start < found.end[layer])
        fused = constant("fused_expert_kernels") * {-1: 2.0, 0: 1.0, 1: 2 / 3}[lean]
        inside |= mine
        loop |= mine & (found.loop[layer] | (found.readbacks[layer] >= metric_limits.steps.READBACKS_A_LAYER))
        stays = np.where(mine, np.minimum(fused / found.kernels[layer], 1.0), stays)
    require(inside, "the replayed steps hold no layer of experts made of single operators")
    ops, calls = inputs.ops, inputs.calls
    kept = np.where(inside & work.to_host, 0.0, stays)
    duration = np.where(inside & ~work.matmul, ops.duration * kept, ops.duration)
    if loop.any() and work.a.device(work.a.main_device).sm_count:
        waves = np.where(work.waves > 0, work.waves, 1.0)  # unknown: each fills the device
        filled = np.where(work.waves > 0, work.filling, 1.0) if lean > 0 else np.sqrt(waves)
        beside = np.clip(filled, 0.0, 1.0) if lean >= 0 else 1.0
        duration = np.where(loop & work.matmul, np.maximum(duration * beside, 1.0), duration)
    # A call stays as far as the operation that it issues.
    issued = inside & (ops.latency > NEVER)
    share = np.ones(len(calls))
    share[ops.call[issued]] = kept[issued]
    waits = inputs.waits
    gone = inside[waits.op] & ((calls.kind[waits.call] == Call.SYNC) | work.to_host[waits.op])
    share[waits.call[gone]] = 0.0
    held = np.where(calls.host_code, calls.pre, calls.explained)
    kernel = work.kind == Kind.KERNEL
    changed = inputs.with_ops(
        duration=duration,
        gap=np.where(inside & kernel, ops.gap * kept, ops.gap),
        by_start=ops.by_start & ~(inside & work.to_host),
    ).with_calls(own=calls.own * share, pre=held + (calls.pre - held) * share)
    return replace(changed, waits=waits.take(~gone))


@what_if()
def balance_experts(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Kernels of experts take the time of an even layer; of the time of collectives beyond their quickest
    tenth half goes, optimistic: all, pessimistic: nothing."""
    found = work.routing
    if not found:
        raise NoEstimate("the replayed steps hold no kernels that are known to be of experts")
    duration = inputs.ops.duration - (1 + lean) / 2 * _waiting(work, inputs.ops.duration)
    for each in found:
        factor = each.even()[1 - lean]
        duration = np.where(np.isin(work.at, each.at), duration * factor, duration)
    return inputs.with_ops(duration=duration)


def _waiting(work: Work, duration: Array) -> Array:
    """Time (ns) of each collective beyond the quickest tenth of its name and launch shape."""
    out = np.zeros(len(work))
    for shape in distinct(work.shape[work.communication]).tolist():
        mine = work.communication & (work.shape == shape)
        out[mine] = np.maximum(duration[mine] - percentiles(duration[mine], 10)[0], 0.0)
    return out


def routing_numbers(fix: Fix, work: Work) -> list[str]:
    """What launches show about tokens and experts, for readers of a balanced routing."""
    out = [_numbers(each) for each in work.routing]
    if len(out) > _GROUPS:
        out[_GROUPS:] = [f"{len(out) - _GROUPS} further groups of alike layers"]
    if not work.communication.any():
        return [*out, "no collectives: no other GPU waits for the fullest expert here"]
    waiting = _waiting(work, work.taken.inputs.ops.duration).sum() / work.steps / 1e6
    return [*out, f"collectives take {waiting:.3g} ms a step beyond the quickest tenth of each"]


def _numbers(each: Routing) -> str:
    layers, (quick, slow) = len(each.time), percentiles(each.time / 1e3, 10, 90)
    took = f"their kernels take {quick:.4g} to {slow:.4g} us from layer to layer"
    if each.by == "grouped":
        return f"{layers} launches of one grid for all experts do not tell the tokens of an expert; {took}"
    low, high = float(each.size.min()), float(each.size.max())
    if each.by == "padded":
        return (
            f"{layers} layers pad all experts to the fullest one: {low:.0f} to {high:.0f} {each.unit} for as "
            f"many tokens, up to {high / low:.2f} times the most even layer seen; {took}"
        )
    return (
        f"{layers} layers run experts one by one: {each.hit.mean():.3g} get tokens and read their weights "
        f"(at most {each.hit.max():.0f}), the fullest {each.uneven.mean():.2f} times the mean of its layer "
        f"({low:.0f} to {high:.0f} {each.unit}); {took}"
    )


# --- what a fix rests on, and its change ----------------------------------------------------------

#: At most this many lines about what a fix rests on in this capture.
NUMBERS: dict[str, Callable[[Fix, Work], list[str]]] = {
    "balance_experts": routing_numbers,
    "batch": batch_numbers,
    "halve_bytes": fixes_transfers.halved_numbers,
}


def settled(fix: Fix, work: Work) -> Fix:
    """The fix with the number of sequences that the capture has room for. Raises NoEstimate."""
    if fix.what_if != "batch" or fix.number("n"):
        return fix
    return replace(fix, params={"n": room_for_batch(work)[0]})


def apply(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int = 0) -> Inputs:
    """The inputs with one fix carried out, which leaves the host's own code unless that is what it takes.
    Raises NoEstimate."""
    spec = catalogue().whatifs[fix.what_if]
    if spec.feature is not None and gpu_has(spec.feature, work.a.device(work.a.main_device)) is False:
        raise NoEstimate(f"this GPU has no {spec.feature.upper()}")
    changed = CHANGES[fix.what_if](fix, inputs, work, scenario, lean)
    return changed if spec.takes_host_code else with_own_code(changed, inputs)
