"""Facts about mixture-of-experts layers that no kernel of a library runs as one."""

from __future__ import annotations

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.experts import loose_experts
from advisor.model.facts import Scope

_COUNT = "count in the steps of the window / steps"
_STRETCH = Need("no top-k kernel of a framework is followed by one that combines results")

FACTS = (
    *group("device", needs.CUDA, [
        *needs.counted("experts.topk", "kernels", "Top-k kernels of a framework", _COUNT, needs=(needs.KERNELS,)),
        *needs.counted("experts.grouping", "kernels", "Sort, histogram and select kernels", _COUNT, needs=(needs.KERNELS,)),
        *needs.counted("experts.combine", "kernels", "Kernels that add rows up by index or scatter them,", _COUNT, needs=(needs.KERNELS,)),
        Entry("experts.loose_window_ratio", "ratio", "kernels", "Share of the window from a top-k kernel to the last such kernel before the next top-k (of the step)", "sum / window"),
        Entry("experts.kernels_per_layer", "count", "kernels", "Kernels in such a stretch", "mean", needs=(needs.KERNELS, _STRETCH)),
    ], columns={"kernels": f"{origin.SPAN} name_id"}, needs=(needs.KERNELS,)),
)  # fmt: skip


def expert_facts(a: Analysis, device: int, out: FactWriter) -> None:
    found = loose_experts(a, device)
    if found is None:
        return
    counts: dict[str, float | None] = {
        "experts.topk": found.topk,
        "experts.grouping": found.grouping,
        "experts.combine": found.combine,
    }
    window = max(a.budgets[device].window.length, 1)
    out.put_all(
        {
            **a.rates(device, counts),
            "experts.loose_window_ratio": min(float((found.end - found.start).sum()) / window, 1.0),
            "experts.kernels_per_layer": float(found.kernels.mean()) if len(found.kernels) else None,
        },
        Scope(device=device),
    )
