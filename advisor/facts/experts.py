"""Facts about mixture-of-experts layers that no kernel of a library runs as one."""

from __future__ import annotations

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.experts import loose_experts
from advisor.model.facts import Scope

_STRETCH = Need("no top-k kernel of a framework is followed by one that combines results")

FACTS = (
    *group("device", needs.CUDA, [
        Entry("experts.topk_per_step", "count", "kernels", "Top-k kernels of a framework a step", "count in the steps of the window / steps"),
        Entry("experts.grouping_per_step", "count", "kernels", "Sort, histogram and select kernels a step", "as experts.topk_per_step"),
        Entry("experts.combine_per_step", "count", "kernels", "Kernels a step that add rows up by index or scatter them", "as experts.topk_per_step"),
        Entry("experts.loose_window_ratio", "ratio", "kernels", "Share of the window from a top-k kernel to the last such kernel before the next top-k of the step", "sum / window"),
        Entry("experts.kernels_per_layer", "count", "kernels", "Kernels in such a stretch", "mean", needs=(needs.STEPS, needs.KERNELS, _STRETCH)),
    ], columns={"kernels": f"{origin.SPAN} name_id"}, needs=(needs.STEPS, needs.KERNELS)),
)  # fmt: skip


def expert_facts(a: Analysis, device: int, out: FactWriter) -> None:
    found = loose_experts(a, device)
    if found is None:
        return
    window = max(a.budgets[device].window.length, 1)
    out.put_all(
        {
            "experts.topk_per_step": found.topk,
            "experts.grouping_per_step": found.grouping,
            "experts.combine_per_step": found.combine,
            "experts.loose_window_ratio": min(float((found.end - found.start).sum()) / window, 1.0),
            "experts.kernels_per_layer": float(found.kernels.mean()) if len(found.kernels) else None,
        },
        Scope(device=device),
    )
