"""The what-if on mixture-of-experts layers of single operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.gain.catalog import Fix, constant
from advisor.gain.inputs import Inputs
from advisor.gain.profiler import Scenario
from advisor.gain.work import NoEstimate, Work
from advisor.metrics.experts import loose_experts
from advisor.metrics.operations import Kind
from advisor.model.arrays import distinct
from advisor.sources.schema import Call


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
    held = np.minimum(calls.gc + calls.gil + calls.os, calls.pre)
    kernel = work.kind == Kind.KERNEL
    changed = inputs.with_ops(
        duration=duration,
        gap=np.where(inside & kernel, ops.gap * kept, ops.gap),
        by_start=ops.by_start & ~(inside & work.to_host),
    ).with_calls(own=calls.own * share, pre=held + (calls.pre - held) * share)
    return replace(changed, waits=waits.without(gone))
