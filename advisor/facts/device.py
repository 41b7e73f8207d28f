"""Facts about a device: its budget, the launch path, its kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.facts.writer import FactWriter
from advisor.knowledge.files import KernelFamily
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import IDLE_PARTS, PARTS, DeviceBudget
from advisor.metrics.gaps import empty_queue_share, replay_gaps
from advisor.metrics.intervals import Coverage
from advisor.metrics.kernels import ATTENTION, MATMUL, UNFUSED, is_unknown, weight_bits
from advisor.metrics.operations import Kind
from advisor.model.facts import Interval, Scope
from advisor.sources.schema import Call

Array = NDArray[Any]

_SHORT_NS = 10_000
#: A persistent kernel launches one block per SM; from this length on it fills the device.
_LONG_KERNEL_NS = 50_000
#: Share of the peak DRAM bandwidth that kernels reach at best (calibration#dram).
ACHIEVABLE = 0.92
#: From here on a kernel counts as limited by DRAM: 80 % of what is achievable (peers-18).
DRAM_LIMIT = 0.8 * ACHIEVABLE
_PLACES = 50


def device_facts(a: Analysis, device: int, out: FactWriter) -> None:
    scope, budget = Scope(device=device), a.budgets[device]
    window = max(budget.window.length, 1)
    out.put("budget.idle_ratio", budget.idle_ns / window, scope)
    unavoidable = sum(budget.share(p) for p in ("graph_internal", "profiler", "startup"))
    out.put("budget.waiting_ratio", max(budget.idle_ns / window - unavoidable, 0.0), scope)
    out.put("budget.busy_ratio", budget.busy_ns / window, scope)
    for part in PARTS:
        out.put(f"budget.{part}_ratio", budget.share(part), scope)
    if a.step_count:
        times = step_times(a)
        out.put("step.time_median_ms", float(np.median(times)) / 1e6, scope)
        out.put("step.gpu_busy_ms", budget.busy_ns / 1e6 / a.step_count, scope)
        if a.steps.method == "ranges":
            host = (a.steps.host_end - a.steps.host_start)[a.window_steps]
            out.put("step.host_range_median_ms", float(np.median(host)) / 1e6, scope)
    _launch(a, device, budget, scope, out)
    if a.trace.has("kernels"):
        _kernels(a, device, budget, scope, out)
    _places(a, device, budget, scope, out)


def step_times(a: Analysis) -> Array:
    """Times of the window's steps, ns, without what was not recorded; the first step of a capture
    counts from its first work."""
    begin = a.steps.begin[a.window_steps]
    end = a.steps.gpu_end[a.window_steps]
    return np.asarray(end - begin - Coverage(a.window.holes).within(begin, end))


def _launch(a: Analysis, device: int, budget: DeviceBudget, scope: Scope, out: FactWriter) -> None:
    if not a.trace.has("api_calls"):
        return
    window, steps = max(budget.window.length, 1), a.step_count
    out.put("launch.process_count", len(np.unique(a.ops.process[a.device_ops(device)])), scope)
    out.put("launch.idle_ratio",
            budget.share("launch_call") + budget.share("launch_latency")
            + budget.share("host_between_launches"), scope)  # fmt: skip
    out.put("launch.empty_queue_ratio", empty_queue_share(budget.gaps), scope)
    calls = a.trace.columns("api_calls", ("start", "end", "thread", "call"))
    feeder = a.feeder(device)
    rows = a.calls_of(Call.LAUNCH)
    rows = rows[calls["thread"][rows] == feeder]
    host = max(a.host_window[1] - a.host_window[0], 1)
    length = (calls["end"] - calls["start"])[rows]
    out.put("launch.calls_per_s", len(rows) * 1e9 / host, scope)
    out.put("launch.call_time_ratio", float(length.sum()) / host, scope)
    if len(rows):
        out.put("launch.call_p50_ns", float(np.median(length)), scope)
    if steps:
        out.put("launch.calls_per_step", len(rows) / steps, scope)
    graphs = a.calls_of(Call.GRAPH_LAUNCH)
    graphs = graphs[calls["thread"][graphs] == feeder]
    if steps:
        out.put("graph.launches_per_step", len(graphs) / steps, scope)
    replay = replay_gaps(budget.gaps)
    parts = budget.gap_parts
    others = sum(parts[p] for p in ("profiler", "startup", "gc", "gil", "os"))
    idle = int((budget.gaps.length - others)[replay].sum())
    code = int((parts["host_gap"] + parts["host_between_launches"])[replay].sum())
    out.put("graph.replay_idle_ratio", idle / window, scope)
    out.put("graph.replay_call_idle_ratio", (idle - code) / window, scope)
    at = a.device_ops(device)
    at = at[(a.ops.kind[at] == Kind.KERNEL) & (a.ops.api[at] >= 0)]
    alone = at[a.ops.graph_node[at] == 0]
    if len(at):
        out.put("launch.eager_kernel_ratio", len(alone) / len(at), scope)
    if len(alone):
        queue = np.maximum(a.ops.start[alone] - calls["end"][a.ops.api[alone]], 0)
        out.put("launch.queue_p50_ns", float(np.median(queue)), scope)
        run = int((a.ops.end - a.ops.start)[alone].sum())
        out.put("launch.queue_over_kernel", float(queue.sum()) / max(run, 1), scope)


def _kernels(a: Analysis, device: int, budget: DeviceBudget, scope: Scope, out: FactWriter) -> None:
    at = a.device_kernels(device)
    if len(at) == 0:
        return
    row, name = a.ops.row[at], a.op_name[at]
    duration = (a.ops.end - a.ops.start)[at]
    blocks = a.trace.columns("kernels", ("blocks",))["blocks"][row]
    busy, window = max(budget.busy_ns, 1), max(budget.window.length, 1)
    total = float(duration.sum())
    out.put_all({
        "kernel.duration_p50_ns": float(np.median(duration)),
        "kernel.short_ratio": float((duration < _SHORT_NS).mean()),
        "kernel.per_step": len(at) / a.step_count if a.step_count else None,
        "graph.kernel_ratio": float(duration[a.ops.graph_node[at] != 0].sum()) / total,
    }, scope)  # fmt: skip

    def held(wanted: Any) -> float:
        """ns of kernels whose family satisfies `wanted`, at most the busy time."""
        return min(float(duration[a.names.mask(wanted)[name]].sum()), busy)

    by_operation: dict[str, float] = {}
    time = np.bincount(name, duration, minlength=len(a.names.ids))
    for operation, t in zip(a.names.operations, time.tolist(), strict=True):
        by_operation[operation] = by_operation.get(operation, 0.0) + t
    unfused, matmul = held(lambda k: k.family in UNFUSED), held(lambda k: k.family in MATMUL)
    fp32 = held(lambda k: k.family in MATMUL and k.traits.get("simt_fp32") is True)
    unknown = held(is_unknown)
    if matmul:
        narrow = held(lambda k: k.family in MATMUL and weight_bits(k) < 16)
        out.put("kernel.quantised_matmul_ratio", narrow / matmul, scope)

    def between(time: float, whole: float) -> tuple[float, float]:
        """Share of a family: what no one knows may belong to it or not."""
        return time / whole, min(time + unknown, busy, whole) / whole

    out.put_between({
        "kernel.matmul_attention_ratio":
            between(held(lambda k: k.family in MATMUL | ATTENTION), total),
        "kernel.matmul_gemm_ratio": between(matmul, busy),
        "kernel.matmul_gemm_window_ratio": between(matmul, window),
        "kernel.moe_ratio": between(held(lambda k: k.family == "moe"), busy),
        "kernel.skinny_gemm_ratio": between(held(is_skinny), busy),
        "kernel.unfused_ratio": between(unfused, busy),
        "kernel.unfused_window_ratio": between(unfused, window),
        "kernel.fp32_matmul_ratio": between(fp32, busy),
        "kernel.fp32_matmul_window_ratio": between(fp32, window),
    }, scope)  # fmt: skip
    small = a.names.mask(lambda k: k.family in UNFUSED)[name]
    of_framework = a.names.mask(lambda k: k.of_framework)[name]
    out.put_all({
        "kernel.unfused_p50_ns": float(np.median(duration[small])) if small.any() else None,
        "kernel.framework_ratio": float(of_framework.mean()),
        "kernel.top_operation_ratio": max(by_operation.values()) / total,
        "kernel.unmapped_ratio": unknown / total,
    }, scope)  # fmt: skip
    about = a.device(device)
    old = of_older_architecture(a, device)
    if old is not None:
        older = min(float(duration[old].sum()), busy)
        out.put("kernel.old_architecture_ratio", older / busy, scope)
        out.put("kernel.old_architecture_window_ratio", older / window, scope)
    # Some tracers do not record launch shapes: what is not known is not small.
    if about.sm_count and (blocks > 0).all():
        _grids(a, device, at, blocks, duration, about.sm_count, budget, scope, out)


def of_older_architecture(a: Analysis, device: int) -> Array | None:
    """Which of the device's kernels a newer build could replace; None where its compute capability
    is not known. Names tell the first member of a generation: sm80 kernels are the native ones of
    sm86 and sm89. What streams at the DRAM limit has nothing to win."""
    capability = a.device(device).compute_capability
    if not capability:
        return None
    old = a.names.mask(lambda k: _has_newer_build(k, capability[0]))
    return np.asarray(old[a.op_name[a.device_kernels(device)]] & ~at_dram_limit(a, device))


def _has_newer_build(kernel: KernelFamily, major: int) -> bool:
    """True for a matrix kernel of an older generation than `major` of which libraries have one of
    this generation. They have none in FP32, which newer tensor cores do not take either; and on
    sm_120, which has neither wgmma nor tcgen05, the 16-bit products are still those of sm80."""
    if kernel.family not in MATMUL | ATTENTION or kernel.sm is None or kernel.sm // 10 >= major:
        return False
    precision = kernel.traits.get("precision")
    if precision == "fp32":
        return False
    return not (major == 12 and kernel.sm >= 80 and precision in (None, "bf16", "fp16"))


def at_dram_limit(a: Analysis, device: int) -> Array:
    """Which of the device's kernels belong to a group that the samples show at the DRAM limit."""
    activity = a.activity.get(device)
    if activity is None or "dram" not in activity.level:
        return np.zeros(len(a.device_kernels(device)), bool)
    group, labels = a.kernel_groups(device)
    high = activity.resolved("dram") & (activity.level["dram"] >= DRAM_LIMIT)
    limited = {g for g, h in zip(activity.groups, high, strict=True) if h and g[1]}
    return np.asarray(np.array([label in limited for label in labels], bool)[group])


def is_skinny(kernel: Any) -> bool:
    """GEMV, or a GEMM with few output columns: it reads weights for a handful of tokens."""
    return kernel.family == "gemv" or (
        kernel.family in MATMUL and kernel.traits.get("skinny") is True
    )


def _grids(
    a: Analysis, device: int, at: Array, blocks: Array, duration: Array, sms: int,
    budget: DeviceBudget, scope: Scope, out: FactWriter,
) -> None:  # fmt: skip
    busy, window = max(budget.busy_ns, 1), max(budget.window.length, 1)
    # Collectives take few blocks by design: they wait for links and for other GPUs.
    # A kernel that streams at the limit is not held back by the number of its blocks.
    small = (blocks * 2 < sms) & ~a.communication[at] & ~at_dram_limit(a, device)
    held = min(float(duration[small].sum()), busy)
    out.put("kernel.small_grid_ratio", held / busy, scope)
    out.put("kernel.small_grid_window_ratio", held / window, scope)
    heavy = a.names.mask(lambda k: k.family in MATMUL | ATTENTION)[a.op_name[at]]
    waves = (blocks >= 2 * sms) | ((blocks * 10 >= 9 * sms) & (duration >= _LONG_KERNEL_NS))
    out.put("kernel.several_waves_ratio",
            min(float(duration[heavy & waves].sum()) / busy, 1.0), scope)  # fmt: skip


def _places(a: Analysis, device: int, budget: DeviceBudget, scope: Scope, out: FactWriter) -> None:
    """The largest gaps of each idle part, and the longest copies, as places on the timeline."""
    gaps, ops = budget.gaps, a.ops
    mine = np.flatnonzero(ops.device == device)
    for part in IDLE_PARTS:
        held = budget.gap_parts[part]
        top = np.argsort(-held, kind="stable")[:_PLACES] if len(held) < 4096 else _top(held)
        top = top[held[top] > 0]
        places = []
        for i in top.tolist():
            nxt = int(gaps.next_op[i])
            places.append(Interval(
                int(gaps.start[i]), int(gaps.end[i]),
                int(ops.stream[mine[nxt]]) if nxt >= 0 else None,
                int(gaps.thread[i]) if gaps.thread[i] >= 0 else None,
                f"{held[i] / 1e3:.1f} us {part.replace('_', ' ')}",
            ))  # fmt: skip
        out.places(part, scope, places)


def _top(values: Array) -> Array:
    part = np.argpartition(-values, _PLACES)[:_PLACES]
    return np.asarray(part[np.lexsort((part, -values[part]))])
