"""Facts about who had the CPU of the loop, and who had the GPU, while the program waited for it."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.host import IN_GAPS
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import DeviceBudget
from advisor.metrics.idle_host import loop_thread
from advisor.metrics.intervals import EMPTY, Coverage, Spans, subtract, union
from advisor.metrics.switches import held_by_others, off_cpu
from advisor.model.arrays import Array

_SWITCHED = Need("no switch of the thread that runs the loop is recorded", needs.CPU_SWITCHES)
_ON_GPU = Need("no switch of a context on this GPU is recorded", needs.GPU_SWITCHES)

FACTS = (
    *group("device", needs.CPU_SWITCHES, [
        Entry("host.off_cpu_idle_ratio", "ratio", "cpu_switches host_calls api_calls", "Idle in host code while the thread of the loop has no CPU, though it waits in no CUDA call, in no operating-system call and for no page of unified memory: others have its CPU", "host gaps and host code between launches, inside times between a switch from a CPU and the next to one; calls, gaps that end where pages migrate, and switches in a waiting state left out"),
        Entry("host.off_cpu_of_gap_ratio", "ratio", "cpu_switches host_calls api_calls", "How much of the host gaps that is", "the same in host gaps alone / host gaps", needs=(needs.FEEDER, _SWITCHED, IN_GAPS)),
    ], columns={"cpu_switches": "time thread running state", "host_calls": "start end thread", **origin.GAPS}, needs=(needs.FEEDER, _SWITCHED)),
    *group("device", needs.GPU_SWITCHES, [
        Entry("launch.held_by_others_ratio", "ratio", "gpu_switches kernels api_calls", "Idle with work queued while a context that holds none of the work of the capture is on the device", "budget part queued, inside the times of contexts in which less than 1 % of the operations begin"),
    ], columns={"gpu_switches": "time device context kind", **origin.GAPS}, needs=(needs.FEEDER, _ON_GPU)),
)  # fmt: skip


def switch_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """What switches of threads and of contexts tell; nothing of a capture without them."""
    budget, feeder = a.budgets[device], a.feeder(device)
    length = max(budget.window.length, 1)
    if feeder is None:
        return
    thread = loop_thread(budget, feeder)
    away = off_cpu(a.trace, thread) if a.trace.has("host_calls") else None
    if away is not None:
        calls = a.threads.of(thread)
        away = subtract(subtract(away, union(calls.start, calls.end)), a.states.os.get(thread, EMPTY))
        on_pages = Spans(budget.gaps.start[budget.gaps.migrated], budget.gaps.end[budget.gaps.migrated])
        away = subtract(away, on_pages)
        lost, gaps = _inside(budget, away, ("host_gap", "host_between_launches")), budget.ns["host_gap"]
        out.put("host.off_cpu_idle_ratio", lost / length)
        out.put("host.off_cpu_of_gap_ratio", _inside(budget, away, ("host_gap",)) / gaps if gaps else None)
    held = held_by_others(a.trace, device, a.ops.start[a.device_ops(device)])
    if held is not None:
        lost = _inside(budget, held, ("queued",))
        out.put("launch.held_by_others_ratio", lost / length)


def _inside(budget: DeviceBudget, spans: Spans, parts: tuple[str, ...]) -> int:
    """ns of these idle parts that lie in `spans`; of each gap at most what it has of them."""
    gaps, covered = budget.gaps, Coverage(spans)
    most: Array = sum((budget.gap_parts[p] for p in parts), np.zeros(len(gaps), np.int64))
    return int(np.minimum(covered.within(gaps.start, gaps.end), most).sum())
