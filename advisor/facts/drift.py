"""Facts about steps that get longer or shorter from the first to the last, and about few slow ones."""

from __future__ import annotations

from advisor.facts.writer import FactWriter
from advisor.metrics import limits as metric_limits
from advisor.metrics.profiled.pace import compare_slower, find_drift, slower_steps
from advisor.metrics.profiled.stage import Profiled
from advisor.model.numbers import percent


def drift_facts(a: Profiled, device: int, out: FactWriter) -> None:
    if not a.trace.has("kernels"):
        return
    steps = slower_steps(a) if device == a.main_device else None
    if steps is not None and not steps[2].any():
        out |= {"drift.slow_steps": 0, "drift.slow_step_ratio": 0.0, "drift.slow_time_ratio": 0.0}
    elif steps is not None and (slow := compare_slower(a, steps)) is not None:
        out |= {
            "drift.slow_steps": slow.count,
            "drift.slow_step_ratio": slow.ratio,
            "drift.slow_time_ratio": min(slow.lost_ns / a.budgets[device].program_ns, 1.0),
            "drift.slow_kernels_ratio": slow.kernels,
            "drift.slow_alike_ratio": slow.alike,
            "drift.slow_kernel_change": _longer_or_shorter(slow.kernel_change),
        }
    if a.step_count < metric_limits.kernels.DRIFT_STEPS or (found := find_drift(a, device)) is None:
        return
    out |= {
        "drift.step_ratio": found.change,
        "drift.size_ratio": abs(found.change),
        "drift.order_ratio": abs(found.order),
        "drift.kernels_ratio": found.kernels,
        "drift.idle_ratio": found.idle,
        "drift.alike_ratio": found.alike,
        "drift.kernel_change": _longer_or_shorter(found.kernel_change),
        "drift.step_change": _longer_or_shorter(found.change),
        "drift.lost_ratio": min(found.lost_ns / a.budgets[device].program_ns, 1.0),
    }


def _longer_or_shorter(change: float) -> str:
    """``60 % longer``"""
    return f"{percent(abs(change), 2)} {'longer' if change > 0 else 'shorter'}"
