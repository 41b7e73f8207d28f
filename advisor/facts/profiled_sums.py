"""Facts of sums that count the host as well, as the table of the PyTorch profiler does: what the host works
beside the GPU, what it reads back, loads and does once.

The host's own times add up to the profiled time of its threads; the time of kernels is at most that of a busy
GPU. So the GPU idles at least for the difference, which only a trace can place.
"""

from __future__ import annotations

import re

import numpy as np

from advisor.facts import limits
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import step_patterns
from advisor.metrics.loaded.kernels import Sums, steps_of, sums_of
from advisor.metrics.loaded.stage import Loaded
from advisor.model.arrays import Array, rows_at
from advisor.model.facts import Value
from advisor.model.numbers import percent, value_text
from advisor.sources.schema import (
    BETWEEN_EVENTS,
    BY_OPERATOR,
    GPU_TOTAL,
    HOST_TOTAL,
    ISSUING,
    Call,
    Summed,
    base_name,
    classify,
)

_ROWS, _NAMED = 40, 3
#: Operators whose result the host reads, each time with a copy and a wait.
_READS = re.compile(r"^aten::(?:_local_scalar_dense|nonzero|_unique2?|unique_consecutive)$")
#: The names under which programs call them.
_CALLED_AS = re.compile(r"^aten::(?:item|is_nonzero|nonzero|equal|_unique2?|unique_consecutive)$")
#: The backward pass runs on a thread of its own while the first one waits.
_BACKWARD = re.compile(r"^autograd::engine::|Backward\d*$")


@predicate
def host_times(a: Loaded) -> bool:
    return len(sums_of(a.trace, Summed.OPERATORS)) > 0


def host_total(a: Loaded) -> float:
    """Time (ns) of the host in all it did, 0 if that was not printed."""
    return _totals(a).get(HOST_TOTAL, float(sums_of(a.trace, Summed.OPERATORS).total.sum()))


def gpu_columns(a: Loaded) -> bool:
    """Whether the sums count the GPU at all."""
    return GPU_TOTAL in _totals(a) or len(sums_of(a.trace, Summed.KERNELS)) > 0


def by_operator(a: Loaded) -> bool:
    """Whether GPU time is that of operators, because kernels were not listed."""
    return BY_OPERATOR in _totals(a)


def between_events(a: Loaded) -> bool:
    """Whether GPU time holds the pauses between kernels, as the first PyTorch profilers measured it."""
    return BETWEEN_EVENTS in _totals(a)


def rows_cut(a: Loaded) -> bool:
    """Whether rows of the host are missing from the table: what they are is unknown."""
    own = sums_of(a.trace, Summed.OPERATORS)
    return bool((own.count == 0).any())


def recorder_facts(a: Loaded) -> dict[str, Value | None]:
    """Which tool summed it up, and that no GPU work was recorded if the table has no column for it."""
    if not len(sums_of(a.trace, Summed.OPERATORS)):
        return {"capture.nsys_recorded": True}
    facts: dict[str, Value | None] = {"capture.nsys_recorded": False}
    if not gpu_columns(a):
        launched = any(classify(n) in ISSUING for n in sums_of(a.trace, Summed.CALLS).names)
        facts |= {
            "capture.gpu_work_count": 0,
            "capture.ran_on": "gpu" if launched else None,
            "capture.ran_on_signs": "the table has no columns of the GPU, "
            + ("though it launched work" if launched else "as without ProfilerActivity.CUDA, or on a CPU"),
        }
    return facts


def _totals(a: Loaded) -> dict[str, float]:
    totals = sums_of(a.trace, Summed.TOTALS)
    return dict(zip(totals.names, totals.total.tolist(), strict=True))


def usual_call(calls: Sums) -> Array:
    """The usual length (ns) of a call of each name: the median, else the mean, of which a launch takes at
    most 10 us: longer ones wait for room in the queue of the GPU."""
    usual = np.where(np.isnan(calls.median), calls.mean, calls.median)
    launches = np.array([classify(n) == Call.LAUNCH for n in calls.names], bool)
    return np.asarray(
        np.where(launches & np.isnan(calls.most), np.minimum(usual, limits.LAUNCH_MOST_NS), usual)
    )


def profiled_facts(a: Loaded, waits: Array, gpu_ns: float, out: FactWriter) -> dict[str, float]:
    """The facts, and counts that become rates. `waits`: which of the CUDA calls wait; `gpu_ns`: time of all
    GPU work."""
    own, whole = sums_of(a.trace, Summed.OPERATORS), sums_of(a.trace, Summed.WHOLE)
    host = host_total(a)
    if not len(own) or not host:
        return {}
    calls = sums_of(a.trace, Summed.CALLS)
    waiters = calls.take(waits).names if len(calls) else []
    read = np.array([bool(_READS.match(n)) for n in own.names])
    # Without rows of CUDA calls, the operators that read hold the waits themselves.
    waited = float(calls.total[waits].sum()) if waits.any() else float(own.total[read].sum())
    queued = float((calls.total - np.minimum(calls.total, usual_call(calls) * calls.count)).sum())
    # What rows that were not pasted hold may be work, or waiting: an end of a range, never a number.
    cut = float(own.total[own.count == 0].sum())
    work = max(host - waited - queued - cut, 0.0)
    profiled = _profiled(a, whole, host)
    operators = own.total[_operators(own)].sum()
    launches = np.array([classify(n) in ISSUING for n in calls.names], bool) & ~waits
    path = operators + (usual_call(calls) * calls.count)[launches].sum()
    # Waits beyond all recorded work are for work that began before, or of other processes.
    wall = profiled and profiled - max(min(waited, profiled) - gpu_ns, 0.0)
    gpu_ns = 0.0 if between_events(a) else gpu_ns
    busy = min(gpu_ns / wall, 1.0) if wall and gpu_ns else None
    once = _once(own, waiters)
    loading = np.array([step_patterns().role(n) == "data_loading" for n in whole.names], bool)
    asked = [
        f"{n}, {int(c):,} calls" for n, c in zip(whole.names, whole.count, strict=True) if _CALLED_AS.match(n)
    ]
    out |= {
        "sums.host_ms": host / 1e6,
        "sums.busy_most_ratio": busy,
        "sums.idle_least_ratio": None if busy is None else 1.0 - busy,
        "sums.host_largest": _largest(own, host, waiters),
        "sums.loader_ratio": min(float(whole.total[loading].sum()) / (profiled or host), 1.0),
        "sums.readbacks": "; ".join(asked[:_NAMED]) or None,
        "sums.once_ratio": float(own.total[once].sum()) / host,
    }
    if gpu_ns:
        over = {"sums.host_work_over_kernel": work, "sums.launch_over_kernel": path}
        least_most = {name: (ns / gpu_ns, (ns + cut) / gpu_ns) for name, ns in over.items()}
        out.put_between(least_most, "rows of the host that were not pasted")
    if once.any():
        i = int(np.argmax(np.where(once, own.total, -1.0)))
        out.put("sums.once", f"{base_name(own.names[i])}, {value_text(float(own.total[i]), 'ns')}")
    shown = (own.count.astype(int), own.total / 1e6, own.total / host, own.mean / 1e3)
    out.table("operators.top", rows_at(np.arange(len(own))[:_ROWS], own.names, *shown))
    return (
        {"sums.readbacks": float(own.count[read].sum())} if steps_of(sums_of(a.trace, Summed.RANGES)) else {}
    )


def _profiled(a: Loaded, whole: Sums, host: float) -> float | None:
    """Profiled time (ns): of the ranges around steps, else of the host if one thread did it all."""
    found = [step_patterns().step(name) for name in whole.names]
    loops = np.array([hit is not None and hit.kind == "loop" for hit in found], bool)
    if loops.any():
        return float(whole.total[loops].sum())
    names = sums_of(a.trace, Summed.OPERATORS).names
    return None if any(_BACKWARD.search(name) for name in names) else host


def _operators(own: Sums) -> Array:
    """Which rows are operators that do little more than launch."""
    plain = [("::" in n or bool(_BACKWARD.search(n))) and not _READS.match(n) for n in own.names]
    return np.asarray(np.array(plain, bool) & (own.mean <= limits.OPERATOR_MOST_NS) & (own.count > 0))


def _once(own: Sums, waits: list[str]) -> Array:
    """Which rows ran once, took long, and are no waits and no ranges."""
    plain = [
        n not in waits and ("::" in n or classify(n) != Call.OTHER or n.startswith(("cu", "hip")))
        for n in own.names
    ]
    return np.asarray((own.count == 1) & (own.total >= limits.ONCE_NS) & np.array(plain, bool))


def _largest(own: Sums, host: float, waits: list[str]) -> str | None:
    """The rows with most time of the host itself, in words."""
    mine = [i for i, n in enumerate(own.names) if n not in waits and own.count[i] > 0][:_NAMED]
    named = (f"{base_name(own.names[i])} {percent(float(own.total[i]) / host)}" for i in mine)
    return ", ".join(named) or None
