"""Facts about the layers of a model, how many there are and what their parts take, and about mixtures of
experts that no kernel of a library runs as one."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.experts import loose_experts
from advisor.metrics.layers import PARTS, find_layers, in_norms
from advisor.model.arrays import Array

_ROWS = 30
_LAYERS = Need("no layers with attention show in modules, ranges, or the order of the kernels", "torch.profiler.profile(with_stack=True), or ranges that number the layers")  # fmt: skip
_HOW = "median over layers and steps of the commonest phase"
_EXPERT_COUNT = "count in the steps of the window / steps"
_STRETCH = Need("no top-k kernel of a framework is followed by one that combines results")

FACTS = (
    *group("device", "", [
        Entry("layer.count", "count", "kernels", "Layers of a step that hold attention", "modules of one class, numbered ranges, or repeats of the kernels"),
        Entry("layer.source", "text", "kernels", "How the layers were found: by Python modules, ranges, or the order of the kernels", "the first of them that shows any"),
        Entry("layer.time_ns", "ns", "kernels", "Kernel time of a layer", _HOW),
        Entry("layer.attention_ns", "ns", "kernels", "Kernel time of the attention part of a layer, with its projections", _HOW),
        Entry("layer.ffn_ns", "ns", "kernels", "Kernel time of the feed-forward network or the experts of a layer", _HOW),
        Entry("layer.norm_ratio", "ratio", "kernels", "Share of the kernel time of layers in norms and activations that are kernels of their own", "time by family"),
        Entry("layer.cache_join_ratio", "ratio", "kernels", "Share of the kernel time of layers in concatenations that append to the KV cache", "concatenations with attention next, without rotation, product or cache write between"),
    ], columns={"kernels": f"{origin.SPAN} name_id"}, needs=(needs.KERNELS, _LAYERS)),
    *group("device", needs.CUDA, [
        *needs.counted("experts.topk", "kernels", "Top-k kernels of a framework", _EXPERT_COUNT, needs=(needs.KERNELS,)),
        *needs.counted("experts.grouping", "kernels", "Sort, histogram and select kernels", _EXPERT_COUNT, needs=(needs.KERNELS,)),
        *needs.counted("experts.combine", "kernels", "Kernels that add rows up by index or scatter them,", _EXPERT_COUNT, needs=(needs.KERNELS,)),
        Entry("experts.loose_window_ratio", "ratio", "kernels", "Share of the window from a top-k kernel to the last such kernel before the next top-k (of the step)", "sum / window"),
        Entry("experts.kernels_per_layer", "count", "kernels", "Kernels in such a stretch", "mean", needs=(needs.KERNELS, _STRETCH)),
    ], columns={"kernels": f"{origin.SPAN} name_id"}, needs=(needs.KERNELS,)),
)  # fmt: skip


def layer_facts(a: Analysis, device: int, out: FactWriter) -> None:
    found = find_layers(a, device) if a.trace.has("kernels") else None
    if found is None:
        return
    length = a.ops.end - a.ops.start
    duration = length[found.at]
    times = found.times(duration)
    whole = float(duration.sum()) or 1.0
    attention, ffn, _ = np.median(times, axis=(0, 1)).tolist()
    out |= {
        "layer.count": found.count,
        "layer.source": found.by,
        "layer.time_ns": float(np.median(times.sum(axis=2))),
        "layer.attention_ns": attention,
        "layer.ffn_ns": ffn or None,
        "layer.norm_ratio": float(duration[in_norms(a, found)].sum()) / whole,
        "layer.cache_join_ratio": float(length[found.joins].sum()) / whole,
    }
    kinds, of_name = np.unique([*a.names.operations, "KV cache append by concatenation"], return_inverse=True)
    of = of_name[a.op_name[found.at]]
    of[np.isin(found.at, found.joins)] = of_name[-1]
    layers = times.shape[0] * found.count
    rows = []
    for part, name in enumerate(PARTS):
        mine = found.part == part
        rows += _rows(name, kinds.tolist(), of[mine], duration[mine], layers, whole)
    out.table(
        "layers.parts",
        sorted(rows, key=lambda row: -row[4])[:_ROWS],
        title=f"What a layer of {found.count} takes, by the {found.by}",
    )


def _rows(
    part: str, kinds: list[str], of: Array, duration: Array, layers: int, whole: float
) -> list[tuple[str, str, float, float, float]]:
    time, count = np.bincount(of, duration, len(kinds)), np.bincount(of, minlength=len(kinds))
    return [
        (part, kind, count[i] / layers, time[i] / layers / 1e3, time[i] / whole)
        for i, kind in enumerate(kinds)
        if count[i]
    ]


# --- mixture-of-experts layers that no kernel of a library runs as one ----------------------------


def expert_facts(a: Analysis, device: int, out: FactWriter) -> None:
    found = loose_experts(a, device)
    if found is None:
        return
    counts: dict[str, float | None] = {
        "experts.topk": found.topk,
        "experts.grouping": found.grouping,
        "experts.combine": found.combine,
    }
    window = a.budgets[device].window.nonzero_length
    out |= {
        **a.rates(device, counts),
        "experts.loose_window_ratio": min(float((found.end - found.start).sum()) / window, 1.0),
        "experts.kernels_per_layer": float(found.kernels.mean()) if len(found.kernels) else None,
    }
