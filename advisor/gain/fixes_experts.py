"""What-ifs on a mixture of experts: fused kernels, balanced routing."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.gain.catalog import Fix, constant
from advisor.gain.inputs import Inputs
from advisor.gain.profiler import Scenario
from advisor.gain.work import NoEstimate, Work
from advisor.metrics.experts import Routing, loose_experts
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import Call

#: Groups of alike layers that are listed.
_GROUPS = 4


def fuse_experts(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Of a layer's small kernels and of what launching them costs the share stays that a fused
    layer's kernels are of them; optimistic: two thirds of that, pessimistic: twice. Products keep
    their time; what is read back inside the layer, and the waits for it, go."""
    inside = np.zeros(len(work), bool)
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
        stays = np.where(mine, np.minimum(fused / found.kernels[layer], 1.0), stays)
    if not inside.any():
        raise NoEstimate("the replayed steps hold no layer of experts made of single operators")
    ops, calls = inputs.ops, inputs.calls
    kept = np.where(inside & work.to_host, 0.0, stays)
    duration = np.where(inside & ~work.matmul, ops.duration * kept, ops.duration)
    # A call stays as far as the operation that it issues.
    issued = inside & (ops.call >= 0)
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


def balance_experts(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Kernels of experts take the time of an even layer; of what collectives take beyond their quickest
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
        out[mine] = np.maximum(duration[mine] - np.percentile(duration[mine], 10), 0.0)
    return out


def routing_numbers(fix: Fix, work: Work) -> list[str]:
    """What launches say of tokens and experts, for the reader of a balanced routing."""
    out = [_numbers(each) for each in work.routing]
    if len(out) > _GROUPS:
        out[_GROUPS:] = [f"{len(out) - _GROUPS} further groups of alike layers"]
    if not work.communication.any():
        return [*out, "no collectives: no other GPU waits for the fullest expert here"]
    waiting = _waiting(work, work.taken.inputs.ops.duration).sum() / work.steps / 1e6
    return [*out, f"collectives take {waiting:.3g} ms a step beyond the quickest tenth of each"]


def _numbers(each: Routing) -> str:
    layers, (quick, slow) = len(each.time), np.percentile(each.time / 1e3, (10, 90))
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
