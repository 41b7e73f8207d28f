"""Facts about what a program uses already, so that no advice asks for it."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.device import of_older_architecture
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import ATTENTION, MATMUL, UNFUSED, dense
from advisor.model.arrays import Array
from advisor.model.facts import Scope

_OLD = Need("no kernel of an older architecture ran in the window")
_SMALL = Need("no elementwise, copy, activation, rope, softmax or norm kernel ran in the window")
_ATTENTION = Need("no attention kernel ran in the window")
_NAMED = 3

FACTS = (
    *group("device", needs.CUDA, [
        Entry("kernel.current_architecture", "flag", "kernels", "A GEMM or attention kernel built for this generation of SM ran: the libraries know the GPU", "sm number in names against the major compute capability", needs=(needs.KERNELS, needs.CAPABILITY)),
        Entry("kernel.old_attention_ratio", "ratio", "kernels", "Share of the time of kernels built for an older generation that attention holds", "as kernel.old_architecture_ratio, family attention", needs=(needs.KERNELS, needs.CAPABILITY, _OLD)),
        Entry("kernel.compiled_ratio", "ratio", "kernels", "Share of the elementwise, copy, activation, rope, softmax and norm kernels that torch.compile generated", "count, by names", needs=(needs.KERNELS, _SMALL)),
        Entry("kernel.unfused_operations", "text", "kernels", "The operations that hold most of the time of these kernels, each with its share of the busy time", "the three largest", needs=(needs.KERNELS, _SMALL)),
        Entry("kernel.static_cache_attention", "flag", "kernels", "Attention runs over a static KV cache: at least one index_copy into it for every attention kernel", "count by operation, split-KV combines left out", needs=(needs.KERNELS, _ATTENTION)),
        Entry("comm.nccl_ratio", "ratio", "kernels", "Share of the collective time in kernels of NCCL or RCCL; the rest are one-shot kernels of PyTorch or an engine", "names", needs=(needs.COLLECTIVES,)),
    ], columns={"kernels": f"{origin.SPAN} name_id"}),
)  # fmt: skip


def in_use_facts(a: Analysis, device: int, out: FactWriter) -> None:
    if not a.trace.has("kernels"):
        return
    at = a.device_kernels(device)
    scope, name = Scope(device=device), a.op_name[at]
    duration = (a.ops.end - a.ops.start)[at].astype(float)
    capability, old = a.device(device).compute_capability, of_older_architecture(a, device)
    _attention(a, name, scope, out)
    nccl = a.names.mask(lambda k: k.operation.startswith(("NCCL", "RCCL")))[name]
    if whole := float(duration[a.communication[at]].sum()):
        out.put("comm.nccl_ratio", float(duration[nccl].sum()) / whole, scope)
    if capability and old is not None and len(at):
        own = a.names.mask(
            lambda k: k.family in MATMUL | ATTENTION and k.sm is not None and k.sm // 10 >= capability[0]
        )[name]
        attention = a.names.mask(lambda k: k.family in ATTENTION)[name]
        out.put("kernel.current_architecture", bool(own.any()), scope)
        older = float(duration[old].sum())
        if older:
            share = float(duration[old & attention].sum()) / older
            out.put("kernel.old_attention_ratio", share, scope)
    small = a.names.mask(lambda k: k.family in UNFUSED)[name]
    if not small.any():
        return
    compiled = a.names.mask(lambda k: "(Inductor" in k.operation)[name]
    out.put("kernel.compiled_ratio", float(compiled[small].mean()), scope)
    busy = max(a.budgets[device].busy_ns, 1)
    names, of = dense(name[small])
    time: dict[str, float] = {}
    for i, ns in zip(names.tolist(), np.bincount(of, duration[small]).tolist(), strict=True):
        time[a.names.operations[i]] = time.get(a.names.operations[i], 0.0) + ns
    largest = sorted(time, key=lambda operation: (-time[operation], operation))[:_NAMED]
    texts = (f"{operation} {time[operation] / busy:.1%}" for operation in largest)
    out.put("kernel.unfused_operations", ", ".join(texts).replace("%", " %"), scope)


def _attention(a: Analysis, name: Array, scope: Scope, out: FactWriter) -> None:
    calls = a.names.mask(lambda k: k.family in ATTENTION and "combine" not in k.operation)[name]
    writes = a.names.mask(lambda k: k.operation.startswith("index_copy"))[name]
    if calls.any():
        out.put("kernel.static_cache_attention", int(writes.sum()) >= int(calls.sum()), scope)
