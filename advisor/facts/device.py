"""Facts about a device: its budget, the launch path, its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from advisor.facts import limits
from advisor.facts.needs import predicate
from advisor.facts.operators import slow_operators
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import KernelFamily
from advisor.knowledge.kernel_names import function_name
from advisor.metrics.budgeted.budget import LAUNCHING, PARTS, DeviceBudget, empty_queue_share, replay_gaps
from advisor.metrics.budgeted.layers import is_layout_change
from advisor.metrics.budgeted.matmuls import own_products
from advisor.metrics.budgeted.passes import narrow_ns
from advisor.metrics.budgeted.sharing import processes_wait_ns, slowed_beside
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.step_times import pause_ns, step_times
from advisor.metrics.budgeted.waited import calls_by
from advisor.metrics.intervals import union_by
from advisor.metrics.loaded.kernels import (
    ATTENTION,
    MATMUL,
    UNFUSED,
    composition,
    convolves_slowly,
    is_simt_fp32,
    is_tf32,
    is_unknown,
    weight_bits,
)
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.profiled.preparation import preparing
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.recording import Recording
from advisor.metrics.stepped.stage import Stepped, on_device
from advisor.model.arrays import Array, lengths, median_of, nearest_rank, picked
from advisor.model.facts import Interval
from advisor.model.numbers import value_text
from advisor.model.parts import IDLE
from advisor.sources.schema import MISSING, Call

#: No compute capability allows a thread more registers than this.
_MOST_REGISTERS = 255
_PLACES = 50
#: Idle parts before a replay that have causes of their own.
_OWNED = ("profiler", "startup", "gc", "gil", "os", "sync", "alloc", "copy_call")


@predicate
def known_launch_calls(a: Budgeted) -> bool:
    return bool((a.ops.api[a.device_kernels(a.main_device)] >= 0).any())


@predicate
def sm_count(a: Recording) -> bool:
    return bool(a.device(a.main_device).sm_count)


def is_skinny(kernel: KernelFamily) -> bool:
    """GEMV, or a GEMM with few output columns: it reads weights for a handful of tokens."""
    return kernel.family == "gemv" or (kernel.family in MATMUL and kernel.traits.get("skinny") is True)


#: Shares of the busy time, or for sums alone of the kernel time, by kernel name.
FAMILY_SHARES: dict[str, Callable[[KernelFamily], bool]] = {
    "kernel.matmul_gemm_ratio": lambda k: k.family in MATMUL,
    "kernel.kv_cache_ratio": lambda k: k.family == "kv_cache",
    "kernel.moe_ratio": lambda k: k.family == "moe",
    "kernel.skinny_gemm_ratio": is_skinny,
    "kernel.unfused_ratio": lambda k: k.family in UNFUSED,
    "kernel.fp32_matmul_ratio": is_simt_fp32,
    "kernel.tf32_matmul_ratio": is_tf32,
    "kernel.fp32_operands_ratio": lambda k: is_simt_fp32(k) or is_tf32(k),
    "kernel.layout_ratio": is_layout_change,
    "kernel.slow_convolution_ratio": convolves_slowly,
}


def device_facts(a: Profiled, device: int, out: FactWriter) -> None:
    budget = a.budgets[device]
    window = budget.window.nonzero_length
    waiting = budget.idle_ns - sum(budget.ns[p] for p in ("graph_internal", "profiler", "startup"))
    out |= {
        "budget.idle_ratio": budget.idle_ns / window,
        "budget.waiting_ratio": waiting / budget.program_ns,
        "budget.busy_ratio": budget.busy_ns / window,
        **{f"budget.{part}_ratio": budget.share(part) for part in PARTS},
    }
    if a.step_count:
        out.put("step.time_median_ms", median_of(step_times(a)) / 1e6)
        out.put("step.gpu_busy_ms", budget.busy_ns / 1e6 / a.step_count)
        if a.steps.method == "ranges":
            host = (a.steps.host_end - a.steps.host_start)[a.window_steps]
            out.put("step.host_range_median_ms", median_of(host) / 1e6)
    uncalled = (budget.gaps.next_op != MISSING) & (budget.gaps.call == MISSING) & ~budget.gaps.migrated
    if (length := budget.gaps.length[uncalled & ~budget.gaps.internal]).any():
        out.put("idle.short_unexplained_ratio", length[length <= limits.SHORT_GAP_NS].sum() / length.sum())
    _launch(a, device, budget, out)
    _kernels(a, device, budget, out)
    _places(a, device, budget, out)


#: Of so many processes the steps are named.
_NAMED = 3


def _steps_of_each(a: Stepped, processes: Sequence[int]) -> str:
    """``100 in 12 steps of 2.31 ms``, by the steps of each process."""
    out = []
    for process in processes[:_NAMED]:
        own, found = on_device(a, a.main_device, process), "no steps"
        if own.step_count:
            found = f"{own.step_count} steps of {median_of(step_times(own)) / 1e6:.4g} ms"
        out.append(f"{process} in {found}")
    return ", ".join(out) + (f" and {len(processes) - _NAMED} more" if len(processes) > _NAMED else "")


def _processes(a: Stepped, mine: Array, budget: DeviceBudget, out: FactWriter) -> None:
    """How the processes that the operations `mine` belong to share the device."""
    own = union_by(*(picked(v, mine) for v in (a.ops.process, a.ops.start, a.ops.end)))
    out.put("launch.process_count", len(own))
    if len(own) < 2:
        return
    window, apart = budget.program_ns, sum(budget.window.cut(spans).total for spans in own.values())
    overlap, beside = apart / max(budget.busy_ns, 1) - 1, (apart - budget.busy_ns) / window
    waits = processes_wait_ns(a, mine, own, budget.window) / window
    turns = overlap <= limits.IN_TURNS_RATIO
    sharing = "the device switches between them in time slices" if turns else "they share its SMs"
    out |= {
        "launch.process_overlap_ratio": overlap,
        "launch.process_beside_ratio": beside,
        "launch.process_wait_ratio": waits,
        "launch.process_held_ratio": min(waits + beside, 1.0),
        "launch.process_sharing": sharing,
        "launch.process_slowed_ratio": slowed_beside(a, mine, own),
        "launch.process_steps": _steps_of_each(a, list(own)),
    }


def _launch(a: Profiled, device: int, budget: DeviceBudget, out: FactWriter) -> None:
    if not a.trace.has("api_calls"):
        return
    window, mine = budget.program_ns, a.device_ops(device)
    _processes(a, mine, budget, out)
    calls = a.trace.columns("api_calls", ("start", "end"))
    rows, graphs = (calls_by(a, a.feeder(device), kind) for kind in (Call.LAUNCH, Call.GRAPH_LAUNCH))
    host = max(a.host_window[1] - a.host_window[0], 1)
    length = lengths(calls["start"][rows], calls["end"][rows])
    prepares = np.append(preparing(a, device), False)[budget.gaps.next_op]  # the last one: no operation
    replay = np.flatnonzero(replay_gaps(budget.gaps) | prepares)
    ahead = sum(int(each[prepares].sum()) for part, each in budget.gap_parts.items() if part in LAUNCHING)
    parts = {part: int(each[replay].sum()) for part, each in budget.gap_parts.items()}
    code = parts["host_gap"] + parts["host_between_launches"]
    paused = min(int(pause_ns(a.slow_steps, budget)), code)
    idle = int(budget.gaps.length[replay].sum()) - sum(parts[p] for p in _OWNED) - paused
    out |= {
        "launch.idle_ratio": budget.share(*LAUNCHING),
        "launch.empty_queue_ratio": empty_queue_share(budget.gaps),
        "launch.calls_per_s": len(rows) * 1e9 / host,
        "launch.call_time_ratio": length.sum() / host,
        "launch.call_p50_ns": median_of(length) if len(rows) else None,
        "launch.call_p10_ns": nearest_rank(length, 10) if len(rows) else None,
        "graph.replay_idle_ratio": idle / window,
        "graph.replay_call_idle_ratio": (idle - (code - paused)) / window,
        "graph.preparation_ratio": ahead / sum(budget.ns[p] for p in LAUNCHING) if ahead else None,
    }
    if a.step_count:
        out.put("launch.calls_per_step", len(rows) / a.step_count)
        out.put("graph.launches_per_step", len(graphs) / a.step_count)
    _queue(a, mine, out)


def _queue(a: Loaded, mine: Array, out: FactWriter) -> None:
    """How long kernels (of the operations `mine`) that were launched one by one wait before they run."""
    returned = a.trace.columns("api_calls", ("end",))["end"]
    at = mine[(picked(a.ops.kind, mine) == Kind.KERNEL) & (picked(a.ops.api, mine) >= 0)]
    alone = at[picked(a.ops.graph_node, at) == 0]
    if len(at):
        out.put("launch.eager_kernel_ratio", len(alone) / len(at))
    if len(alone):
        queue = a.ops.start[alone]
        queue -= returned[a.ops.api[alone]]
        np.maximum(queue, 0, out=queue)
        out.put("launch.queue_p50_ns", median_of(queue))
        out.put("launch.queue_over_kernel", queue.sum() / max(a.ops.length[alone].sum(), 1))


def _kernels(a: Profiled, device: int, budget: DeviceBudget, out: FactWriter) -> None:
    kernels = a.kernels(device)
    at = kernels.at
    if len(at) == 0:
        return
    old = of_older_architecture(a, device)  # solves for the activity, which takes memory of its own
    name, duration = kernels.name, kernels.length
    busy, window = max(budget.busy_ns, 1), budget.program_ns
    total = max(float(duration.sum()), 1.0)
    _spills(a, kernels.row, duration, busy, window, out)
    time = np.bincount(name, duration, len(a.names.ids))

    def held(wanted: Any) -> float:
        """ns of kernels whose family satisfies `wanted`, at most the busy time."""
        return min(float(time[a.names.mask(wanted)].sum()), busy)

    by_operation = composition(a.names.operations, name, duration)
    unknown, matmul = held(is_unknown), held(lambda k: k.family in MATMUL)
    narrow = held(lambda k: k.family in MATMUL and weight_bits(k) < 16)
    convolving = held(lambda k: k.family == "conv")
    own = float(time[own_products(a.names.texts, a.names.known)].sum())

    def between(time: float, whole: float) -> tuple[float, float]:
        """Share of a family: unidentified kernels may belong to it or not."""
        return time / whole, min(time + unknown, busy, whole) / whole

    shares = {n: between(held(wanted), busy) for n, wanted in FAMILY_SHARES.items()}
    for subject in ("matmul_gemm", "unfused", "fp32_matmul", "fp32_operands", "layout", "slow_convolution"):
        wanted = FAMILY_SHARES[f"kernel.{subject}_ratio"]
        shares[f"kernel.{subject}_window_ratio"] = between(held(wanted), window)
        out.kernels(duration, {f"kernel.{subject}_window_ratio": a.names.mask(wanted)[name]})
    shares["kernel.matmul_attention_ratio"] = between(held(lambda k: k.family in MATMUL | ATTENTION), total)
    out.put_between(shares)
    small = a.names.mask(lambda k: k.family in UNFUSED)[name]
    out |= {
        "kernel.duration_p50_ns": median_of(duration),
        "kernel.short_ratio": (duration < limits.SHORT_KERNEL_NS).mean(),
        "kernel.per_step": len(at) / a.step_count if a.step_count else None,
        "graph.kernel_ratio": duration[a.ops.graph_node[at] != 0].sum() / total,
        "kernel.own_matmul_ratio": min(own, matmul) / max(matmul, 1.0),
        "kernel.quantised_matmul_ratio": narrow / matmul if matmul else None,
        "kernel.convolution_matmul_ratio": min(convolving, matmul) / max(matmul, 1.0),
        "kernel.slow_convolution_name": _heaviest_name(a, name, duration, convolves_slowly),
        "kernel.unfused_p50_ns": median_of(duration[small]) if small.any() else None,
        "kernel.framework_ratio": a.names.mask(lambda k: k.of_framework)[name].mean(),
        "kernel.top_operation_ratio": max(by_operation.values(), default=0.0) / total,
        "kernel.unmapped_ratio": unknown / total,
    }
    if old is not None:
        older = min(float(duration[old].sum()), busy)
        out.put("kernel.old_architecture_ratio", older / busy)
        out.put("kernel.old_architecture_window_ratio", older / window)
        out.kernels(duration, {"kernel.old_architecture_window_ratio": old})
    _grids(a, device, budget, out)


def _slow(a: Profiled, device: int) -> Array:
    """Mask of the kernels of operators that reach less than half of what healthy ones do."""
    found, at = slow_operators(a, device), a.kernels(device).at
    return np.zeros(len(at), bool) if found is None else np.isin(at, found.at)


def _fills_tensor_cores(kernel: KernelFamily) -> bool:
    """Main kernels, without convolutions that leave the tensor cores idle however long they run."""
    return kernel.family in MATMUL | ATTENTION and not convolves_slowly(kernel)


def _heaviest_name(
    a: Loaded, name: Array, duration: Array, wanted: Callable[[KernelFamily], bool]
) -> str | None:
    """The function name of the kernel of this kind that takes most time; None if there is none."""
    mine = a.names.mask(wanted)[name]
    if not mine.any():
        return None
    time = np.bincount(name[mine], duration[mine])
    return function_name(a.names.texts[int(time.argmax())]).own


def _spills(
    a: Loaded, row: Array | slice, duration: Array, busy: float, window: float, out: FactWriter
) -> None:
    """Kernels that keep values in local memory, by time, where all of them say it."""
    columns = a.trace.columns("kernels", ("local_bytes", "registers"))
    local, registers = columns["local_bytes"][row], columns["registers"][row]
    if not (local >= 0).all():
        return
    spilled = min(float(duration[local > 0].sum()), busy)
    out.put("kernel.local_memory_ratio", spilled / busy)
    out.put("kernel.local_memory_window_ratio", spilled / window)
    if spilled:
        full = float(duration[(local > 0) & (registers >= _MOST_REGISTERS)].sum())
        out.put("kernel.register_limit_ratio", full / float(duration[local > 0].sum()))


def of_older_architecture(a: Profiled, device: int) -> Array | None:
    """The device's kernels that a newer build could replace; None if its compute capability is unknown.
    Names give the first member of a generation: sm80 kernels are the native ones of sm86 and sm89.
    Kernels at the DRAM limit have nothing to gain."""
    capability = a.device(device).compute_capability
    if not capability:
        return None
    old = a.names.mask(lambda k: _has_newer_build(k, capability[0]))
    return np.asarray(old[a.kernels(device).name] & ~at_dram_limit(a, device))


def _has_newer_build(kernel: KernelFamily, major: int) -> bool:
    """True for a matrix kernel of an older generation than `major` that libraries provide for this
    generation. There is none in FP32, which newer tensor cores do not take either; and on sm_120, which
    has neither wgmma nor tcgen05, the 16-bit products are still those of sm80."""
    if kernel.family not in MATMUL | ATTENTION or kernel.sm is None or kernel.sm // 10 >= major:
        return False
    precision = kernel.traits.get("precision")
    if precision == "fp32":
        return False
    return not (major == 12 and kernel.sm >= 80 and precision in (None, "bf16", "fp16"))


def at_dram_limit(a: Profiled, device: int) -> Array:
    """The device's kernels in groups that the samples show at the DRAM limit."""
    activity = a.activity.get(device)
    if activity is None or "dram" not in activity.level:
        return np.zeros(len(a.device_kernels(device)), bool)
    group, labels = a.kernel_groups(device)
    high = activity.resolved("dram") & (activity.level["dram"] >= limits.DRAM_BOUND_RATIO)
    limited = {g for g, h in zip(activity.groups, high, strict=True) if h and g[1]}
    return np.array([label in limited for label in labels], bool).take(group)


def _grids(a: Profiled, device: int, budget: DeviceBudget, out: FactWriter) -> None:
    """Some tracers do not record launch shapes: an unknown grid is not small."""
    kernels, sms = a.kernels(device), a.device(device).sm_count
    blocks = kernels.blocks
    if not sms or not (blocks > 0).all():
        return
    duration, busy, window = kernels.length, max(budget.busy_ns, 1), budget.program_ns
    # Collectives take few blocks by design: they wait for links and for other GPUs. A kernel that streams
    # at the bandwidth limit is not held back by the number of its blocks.
    compute = ~a.communication[kernels.at]
    small = (blocks * 2 < sms) & compute & ~at_dram_limit(a, device)
    start, end = kernels.start, kernels.end
    if (start[1:] >= end[:-1]).all():
        held = float(duration[small].sum())
    else:  # kernels that run at once fill the device together
        filled = np.where(small, blocks, sms)[compute]
        held = narrow_ns(start[compute], end[compute], filled, sms)
    out.kernels(duration, {"kernel.small_grid_window_ratio": small})
    masks = (lambda k: k.family in UNFUSED), _fills_tensor_cores, is_skinny
    unfused, heavy, skinny = (a.names.mask(mask)[kernels.name] for mask in masks)
    heavy = heavy & ~_slow(a, device)
    waves = (blocks >= 2 * sms) | (
        (blocks >= limits.FILLING_BLOCKS_RATIO * sms) & (duration >= limits.LONG_KERNEL_NS)
    )
    out |= {
        "kernel.small_grid_ratio": min(held / busy, 1.0),
        "kernel.small_grid_window_ratio": min(held, busy) / window,
        "kernel.small_unfused_ratio": duration[small & unfused].sum()
        / max(duration[small | unfused].sum(), 1),
        "kernel.small_skinny_ratio": duration[small & skinny].sum() / max(duration[skinny].sum(), 1),
        "kernel.several_waves_ratio": min(duration[heavy & waves].sum() / busy, 1.0),
    }
    threads = a.trace.columns("kernels", ("threads",))["threads"][a.ops.row[kernels.at]]
    if (threads > 0).all():
        lanes = (threads < limits.WARP) & compute
        out.kernels(duration, {"kernel.sub_warp_window_ratio": lanes})
        out |= {
            "kernel.sub_warp_window_ratio": min(float(duration[lanes].sum()), busy) / window,
            "kernel.sub_warp_threads": int(threads[lanes][np.argmax(duration[lanes])])
            if lanes.any()
            else None,
        }
    if (alone := small & (blocks == 1)).any():
        out |= {"kernel.one_block_ratio": duration[alone].sum() / duration[small].sum()}


#: Number of gaps among which the largest is examined first.
_BLOCK = 1 << 10


def _places(a: Loaded, device: int, budget: DeviceBudget, out: FactWriter) -> None:
    """The largest gaps of each idle part, and the longest copies, as places on the timeline."""
    gaps, ops = budget.gaps, a.ops
    mine = np.flatnonzero(ops.device == device)
    for part in IDLE:
        held = budget.gap_parts[part] if budget.ns[part] else np.empty(0, np.int64)
        blocks = np.maximum.reduceat(held, np.arange(0, len(held), _BLOCK)) if len(held) else held
        least = int(np.partition(blocks, -_PLACES)[-_PLACES]) if len(blocks) > _PLACES else 1
        some = np.flatnonzero(held >= max(least, 1))  # at least this many blocks have such a gap
        top = some[np.argsort(-held[some], kind="stable")[:_PLACES]]
        places = []
        for i in top.tolist():
            nxt, thread = int(gaps.next_op[i]), int(gaps.thread[i])
            where = int(ops.stream[mine[nxt]]) if nxt >= 0 else None, thread if thread >= 0 else None
            text = f"{value_text(float(held[i]), 'ns')} {IDLE[part].words}"
            places.append(Interval(int(gaps.start[i]), int(gaps.end[i]), *where, text))
        out.places(part, places)
