"""Facts about mixture-of-experts layers that no kernel of a library runs as one."""

from __future__ import annotations

from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.experts import loose_experts
from advisor.model.facts import Scope


def expert_facts(a: Analysis, device: int, out: FactWriter) -> None:
    found = loose_experts(a, device)
    if found is None:
        return
    window = max(a.budgets[device].window.length, 1)
    out.put_all({
        "experts.topk_per_step": found.topk,
        "experts.grouping_per_step": found.grouping,
        "experts.combine_per_step": found.combine,
        "experts.loose_window_ratio": min(float((found.end - found.start).sum()) / window, 1.0),
        "experts.kernels_per_layer": float(found.kernels.mean()) if len(found.kernels) else None,
    }, Scope(device=device))  # fmt: skip
