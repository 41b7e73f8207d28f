"""Facts about steps that get longer or shorter from the first to the last."""

from __future__ import annotations

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.pace import MIN_STEPS, find_drift

_THIRDS = "median of the last third of the steps against that of the first"
_LIKE = "calls of one kernel and launch shape, as often in both thirds"

FACTS = group("device", needs.CUDA, [
    Entry("drift.step_ratio", "ratio", "kernels", "Change of the step from the first third of the steps to the last; positive is longer", _THIRDS),
    Entry("drift.size_ratio", "ratio", "kernels", "The same, longer or shorter", _THIRDS),
    Entry("drift.order_ratio", "ratio", "kernels", "How far the steps keep getting longer, or shorter: their rank correlation with their order, without its sign", "Spearman"),
    Entry("drift.kernels_ratio", "ratio", "kernels", "Share of that change that kernels make, called as often and with the same launch shape", _LIKE),
    Entry("drift.idle_ratio", "ratio", "kernels", "Share of that change that idle time makes", "idle parts of the budget, by step"),
    Entry("drift.alike_ratio", "ratio", "kernels", "Share of the kernel time in kernels that changed by at least half of the mean change", _LIKE),
    Entry("drift.kernel_change", "text", "kernels", "How much longer or shorter these kernels take at the end", _LIKE),
    Entry("drift.step_change", "text", "kernels", "How much longer or shorter a step takes at the end", _THIRDS),
    Entry("drift.lost_ratio", "ratio", "kernels", "Time of the steps above the median of the faster third, over the window", "sum of the excess / window"),
], columns={"kernels": f"{origin.SPAN} name_id {origin.SHAPE}"}, needs=(*needs.more_steps(MIN_STEPS, f"{MIN_STEPS} steps of one phase"), needs.KERNELS))  # fmt: skip


def drift_facts(a: Analysis, device: int, out: FactWriter) -> None:
    if not a.trace.has("kernels") or a.step_count < MIN_STEPS:
        return
    found = find_drift(a, device)
    if found is None:
        return
    out |= {
        "drift.step_ratio": found.change,
        "drift.size_ratio": abs(found.change),
        "drift.order_ratio": abs(found.order),
        "drift.kernels_ratio": found.kernels,
        "drift.idle_ratio": found.idle,
        "drift.alike_ratio": found.alike,
        "drift.kernel_change": _words(found.kernel_change),
        "drift.step_change": _words(found.change),
        "drift.lost_ratio": min(found.lost_ns / a.budgets[device].window.nonzero_length, 1.0),
    }


def _words(change: float) -> str:
    """``60 % longer``"""
    return f"{abs(change):.0%} {'longer' if change > 0 else 'shorter'}".replace("%", " %")
