"""Facts about start-up: what it was made of, and first steps that are slower than the rest."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.startup import KINDS, warmup_steps

#: Part of start-up -> its name, and what shortens it.
_WORDS = {
    "context": ("context creation", "driver persistence mode (nvidia-smi -pm 1), no device visible that is not used"),
    "modules": ("modules, first launches", "run every kernel once before the capture; "
                "CUDA_MODULE_LOADING=EAGER moves loads out of the first step"),
    "libraries": ("set-up of libraries", "create handles and workspaces before the first request"),
    "graphs": ("building of CUDA graphs", "capture graphs for the usual sizes before serving"),
    "ranges": ("warm-up, loading, compilation", "caches of compiled and tuned kernels that outlive the process"),
    "upload": ("upload of weights", "pinned memory, asynchronous copies, large pieces"),
    "allocation": ("allocations before work", "one pool instead of many allocations"),
    "autotuning": ("autotuning", "keep the chosen kernels: a cache of tuned kernels on disk, fewer shapes"),
    "rest": ("host code between these", "see it with --sample=process-tree or ranges of its own"),
}  # fmt: skip

_WARM_UP = Need("no first step is slower than the rest")

FACTS = (
    *group("trace", needs.CUDA, [
        Entry("startup.context_ratio", "ratio", "api_calls", "Share of the capture in which the context is created", "the first call of 10 ms or more before any GPU work"),
        Entry("startup.modules_ratio", "ratio", "api_calls", "Share of the capture in module loads and first launches of kernels", "calls from 100 us; first launches from ten times the median launch"),
        Entry("startup.libraries_ratio", "ratio", "api_calls", "Share of the capture in which libraries are set up", "allocations, frees and other calls from 1 ms before the last first launch, at most three a name"),
        Entry("startup.graphs_ratio", "ratio", "api_calls", "Share of the capture in which CUDA graphs are built", "graph instantiation calls, where graphs are then replayed"),
        Entry("startup.ranges_ratio", "ratio", "", "Share of the capture in ranges named warm-up, loading, autotuning or compilation", "names of knowledge/step_ranges.yaml"),
        Entry("startup.upload_ratio", "ratio", "", "Share of the capture in which weights are uploaded", "most of the uploaded bytes, before 1 % of the kernel time"),
        Entry("startup.autotuning_ratio", "ratio", "kernels", "Share of the capture in trials of kernels that no range names", "stretches of matrix products and convolutions that run several times in a row: 4 kernels and 12 runs at least, not seen again after half of the kernel time, unless that is done all along", columns={"kernels": "start end name_id correlation process", "api_calls": origin.CALLS}),
        Entry("startup.allocation_ratio", "ratio", "api_calls", "Share of the capture in allocations before the first GPU work", "allocation calls from 1 ms"),
        Entry("startup.in_window_ratio", "ratio", "", "Share of the window in which devices wait for start-up inside its steps", "mean over the devices of the start-up part of the budget"),
    ], columns={**origin.OPS, "api_calls": origin.CALLS}),
    *group("trace", needs.STEP_RANGES, [
        Entry("startup.warmup_step_count", "count", "", "First steps that are set aside as slower than the rest, though they do as much", "those before the window that take more than 1.3 times the median step and launch within 10 % of its operations"),
        Entry("startup.warmup_ratio", "ratio", "", "Share of the capture in these first steps", "as startup.warmup_step_count", needs=(_WARM_UP,)),
    ], columns={**origin.STEPS, **origin.OPS}, needs=(needs.STEPS,)),
)  # fmt: skip


def startup_facts(a: Analysis, span: int, out: FactWriter) -> None:
    """Start-up, tear-down, the steady part and the rest; they add up to the capture."""
    found = a.startup
    cold = min(found.length / span, 1.0)
    idle = np.mean([b.ns["startup"] for b in a.budgets.values()]) if a.budgets else 0.0
    steady = min(max(a.window.length - float(idle), 0.0) / span, 1.0 - cold)
    teardown = min(found.teardown.total / span, 1.0 - cold - steady)
    out |= {
        "capture.startup_ratio": cold,
        "capture.steady_ratio": steady,
        "capture.teardown_ratio": teardown,
        "capture.unused_ratio": max(1.0 - cold - steady - teardown, 0.0),
    }
    out.put("startup.in_window_ratio", float(idle) / a.window.length if a.window.length else None)
    parts = {kind: found.parts[kind].total if kind in found.parts else 0 for kind in KINDS}
    for kind, length in parts.items():
        out.put(f"startup.{kind}_ratio", length / span)
    parts["rest"] = max(found.length - sum(parts.values()), 0)
    if len(a.steps):
        slow = warmup_steps(a.steps, found, a.ops)
        out.put("startup.warmup_step_count", len(slow))
        out.put("startup.warmup_ratio", float(slow.sum()) / span if len(slow) else None)
    longest = sorted(((ns, _WORDS[kind]) for kind, ns in parts.items() if ns), key=lambda p: -p[0])
    out.table("capture.startup_parts", [[word, ns / 1e6, ns / span, how] for ns, (word, how) in longest])
    events = sorted(found.events, key=lambda e: e.start - e.end)[:20]
    out.table("capture.startup_events", [[e.what, (e.end - e.start) / 1e6, e.start / 1e9] for e in events])
