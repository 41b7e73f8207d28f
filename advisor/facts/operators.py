"""Facts about what operators with recorded sizes reach of the GPU's rates, and of what healthy kernels do."""

from __future__ import annotations

from typing import Any

from advisor.facts import limits
from advisor.facts.writer import FactWriter
from advisor.metrics.profiled.rates import OperatorRate, OperatorRates, SlowKernels, slow_kernels
from advisor.metrics.profiled.stage import Profiled

_ROWS = 12


def slow_operators(a: Profiled, device: int) -> SlowKernels | None:
    """The kernels of operators that reach less than half of what healthy ones do; None if there are none."""
    found = a.operator_rates(device)
    return None if found is None else slow_kernels(found, limits.HEALTHY_PART)


def operator_facts(a: Profiled, device: int, out: FactWriter) -> None:
    found = a.operator_rates(device)
    if found is None or not found.kernel_ns:
        return
    bounded = [(rate, least) for rate in found.rates if (least := rate.roofline_ns) is not None]
    spent = sum(rate.time_ns for rate, _ in bounded)
    damaged = sum(rate.time_ns for rate in found.rates if rate.is_impossible)
    out |= {
        "operator.sized_ratio": min(found.sized_ns / found.kernel_ns, 1.0),
        "operator.impossible_ratio": min(damaged / found.kernel_ns, 1.0),
        "operator.roofline_ratio": sum(least for _, least in bounded) / spent if spent else None,
    }
    _judged(a, device, found, out)
    out.table("operators.rates", [_row(rate, found.kernel_ns) for rate in found.rates[:_ROWS]])


def _judged(a: Profiled, device: int, found: OperatorRates, out: FactWriter) -> None:
    """Beside what healthy kernels reach at such sizes."""
    judged = [(rate.time_ns, *known) for rate in found.rates if (known := rate.judged) is not None]
    time = sum(ns for ns, _, _ in judged)
    if not time:
        return
    out |= {
        "operator.judged_ratio": min(time / found.kernel_ns, 1.0),
        "operator.healthy_ratio": sum(ns * min(of / rate.usual, 1.0) for ns, of, rate in judged) / time,
    }
    slow = slow_operators(a, device)
    held = 0.0 if slow is None else float(a.ops.length[slow.at].sum())
    out.put("operator.slow_window_ratio", min(held / a.budgets[device].program_ns, 1.0))
    if slow is None:
        return
    of = [(rate.time_ns, *known) for rate in slow.rates if (known := rate.judged) is not None]
    whole = sum(ns for ns, _, _ in of)
    first = slow.rates[0]
    out |= {
        "operator.slow_family": slow.family,
        "operator.slow_name": f"{first.name} ({first.work.shape})",
        "operator.slow_reach_ratio": sum(ns * reach for ns, reach, _ in of) / whole,
        "operator.slow_healthy_ratio": sum(ns * rate.usual for ns, _, rate in of) / whole,
        "operator.slow_source": of[0][2].source,
    }


def _row(rate: OperatorRate, whole: float) -> list[Any]:
    work, of_peak, moved = rate.work, rate.of_peak, rate.bytes_per_s
    known = not rate.is_impossible
    return [
        rate.name,
        work.shape,
        work.precision,
        rate.calls,
        rate.time_ns / 1e6,
        rate.flop_per_s / 1e12 if known and work.matrix else None,
        of_peak[0] if of_peak else None,
        moved / 1e9 if known and moved is not None else None,
        rate.of_roofline,
        rate.time_ns / whole,
    ]
