"""Facts about the phases of a device's steps: prefill, decode, mixed; throughput of the steps, how fast
each matrix product of a decode step reads its weights, and steps that get longer or shorter.

A step of a dense decoder makes the same products in every layer and one of the output head. If the number
of products of each step fits the config, their order identifies them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.facts import needs
from advisor.facts.activity import WEIGHT_BYTES, read_ratio
from advisor.facts.device import ACHIEVABLE, is_skinny
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.knowledge.files import StepName
from advisor.knowledge.gpus import gpu_of
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import BUSY_COLUMNS, IDLE_PARTS, LAUNCHING, PARTS
from advisor.metrics.kernels import ATTENTION, MATMUL, UNFUSED, is_unknown, launch_shape
from advisor.metrics.matmuls import REDUCTION, Decoder
from advisor.metrics.pace import MIN_STEPS, find_drift
from advisor.metrics.phases import step_sizes, step_times
from advisor.model.arrays import Array, distinct, marked, median_of
from advisor.model.facts import Scope

_IDLE = [PARTS.index(p) for p in IDLE_PARTS]
_LAUNCH = [PARTS.index(p) for p in LAUNCHING]

ONE_PHASE = Need("the samples are not resolved by phase where there are several", None, lambda a: len(set(a.window_phases.tolist())) == 1)  # fmt: skip
RESOLVE = Need("the samples do not resolve the kernels of one phase", needs.FASTER)

_ATTENDS = Need("no attention kernel is known by name")
#: Operations whose kernels work on tiles of many queries, beside those of prefill.
_WIDE = frozenset(("attention (memory-efficient)", "attention (cuDNN SDPA)"))
_PROMPTS = Need("no steps that read prompts beside steps of decodes alone")
_SIZES = Need("the names of the steps do not tell how many tokens they work on", "an NVTX range around each step that names its batch")  # fmt: skip
_REPLAYED = Need("no graph is replayed for batches of several sizes")
_CONFIG = Need("the number of parameters is not given", "--weight-bytes config.json")
_OF_MODEL = Need("no config.json was given (--weight-bytes), or the products of the steps are not those of the model")  # fmt: skip

FACTS = (
    *group("device", needs.CUDA, [
        Entry("serving.mixed_step_count", "count", "kernels", "Steps in which prompts are read beside decodes", "phases of the steps", needs=(needs.STEPS,)),
        Entry("serving.decode_step_ms", "ms", "kernels", "Median step of decodes alone", "step times by phase"),
        Entry("serving.mixed_step_ms", "ms", "kernels", "Median step that reads prompts, too", "step times by phase"),
        Entry("serving.mixed_over_decode", "ratio", "kernels", "The second over the first", "quotient of the medians"),
        Entry("serving.held_window_ratio", "ratio", "kernels", "Share of the window by which steps with prompts are longer than those without", "sum of the differences to serving.decode_step_ms"),
    ], columns=needs.STEP_COLUMNS, needs=(needs.STEPS, _PROMPTS)),
    *group("device", needs.CUDA, [
        Entry("serving.decode_window_ratio", "ratio", "kernels", "Share of the window in steps of decodes alone", "range names, else kernel families; 0 where no step is known for one"),
    ], columns=needs.STEP_COLUMNS, needs=(needs.KERNELS,)),
    *group("phase", needs.CUDA, [
        Entry("phase.is_decode", "flag", "", "The phase is decode", "range names, else kernel families", needs=(needs.STEPS,)),
        Entry("phase.is_prefill", "flag", "", "The phase is prefill", "range names, else kernel families", needs=(needs.STEPS,)),
        Entry("phase.step_ratio", "ratio", "", "Share of the window in steps of this phase", "sum of step times / window", needs=(needs.STEPS,)),
        Entry("phase.busy_ratio", "ratio", "", "Busy share inside the steps of this phase", "budget of the phase", needs=(needs.STEPS,)),
        Entry("phase.idle_ratio", "ratio", "", "Idle share inside the steps of this phase", "budget of the phase", needs=(needs.STEPS,)),
        Entry("phase.launch_idle_ratio", "ratio", "kernels api_calls", "Idle that launching one by one causes, inside the phase", "as launch.idle_ratio", needs=(needs.STEPS,)),
        Entry("phase.attention_ratio", "ratio", "kernels", "Attention's share of kernel time", "families"),
        Entry("phase.gemm_ratio", "ratio", "kernels", "Share of GEMM and GEMV kernels in kernel time", "families"),
        Entry("phase.skinny_gemm_ratio", "ratio", "kernels", "Share of GEMV and skinny GEMM kernels (few output columns) in kernel time", "names and launch shapes"),
        Entry("phase.norm_activation_ratio", "ratio", "kernels", "Share of norm and activation kernels in kernel time", "families"),
        Entry("phase.unfused_ratio", "ratio", "kernels", "Share of elementwise, copy, cast and norm kernels in kernel time", "families"),
        Entry("phase.other_ratio", "ratio", "kernels", "Share of kernel time in kernels of known families outside GEMM, GEMV, attention and elementwise", "families"),
        Entry("phase.gemm_window_ratio", "ratio", "kernels", "Time of GEMM and GEMV kernels of the phase over the window", "families"),
        Entry("phase.attention_window_ratio", "ratio", "kernels", "Time of attention kernels of the phase over the window", "families"),
        Entry("phase.wide_attention_ratio", "ratio", "kernels", "How much of the time of the phase's attention kernels is in such as are made for many queries: prefill kernels, memory-efficient and cuDNN kernels with tiles of 64 queries and more; none where they come in less than half of its steps", "operations by kernel name", needs=(needs.STEPS, needs.KERNELS, _ATTENDS)),
        Entry("phase.wide_attention_window_ratio", "ratio", "kernels", "The same time over the window", "operations by kernel name"),
    ], columns=needs.STEP_COLUMNS, needs=(needs.STEPS, needs.KERNELS)),
    *group("phase", needs.SAMPLES, [
        Entry("phase.gemm_headroom_window_ratio", "ratio", "samples kernels", "Time that the GEMM and GEMV kernels of the phase would save at the achievable DRAM bandwidth, over the window", "phase.gemm_window_ratio x (1 - phase.gemm_dram_ratio / 0.92)"),
        Entry("phase.gemm_dram_ratio", "ratio", "samples kernels", "DRAM activity inside the GEMM and GEMV kernels, of the device's peak; where samples do not show it and the size of the weights is given, their bytes over the time of these kernels", "bounded least squares, else weight bytes / GEMM time / peak (none above 1)"),
        Entry("phase.attention_dram_ratio", "ratio", "samples kernels", "DRAM activity inside the attention kernels, of the device's peak", "bounded least squares", needs=(needs.STEPS, ONE_PHASE, RESOLVE)),
    ], columns=needs.DRAM, needs=(needs.STEPS, ONE_PHASE, RESOLVE)),
    *group("device", needs.CUDA, [
        Entry("serving.tokens_per_s", "count_per_s", "ranges", "Tokens that the steps work on a second, as captured: prompts read and tokens generated", "tokens by range names over step times", needs=(needs.STEPS, _SIZES)),
        Entry("serving.model_bandwidth_ratio", "ratio", "kernels", "Model-bandwidth utilisation: bytes of the weights over the time of a decode step, over the peak bandwidth (needs --weight-bytes)", "weight bytes x decode steps / their time / peak; none above 1", needs=(needs.STEPS, needs.PEAK, WEIGHT_BYTES)),
        Entry("serving.model_flop_ratio", "ratio", "ranges kernels", "Model-FLOP utilisation: two operations a parameter and token over the time of the steps, over the dense 16-bit peak (needs --weight-bytes config.json)", "2 x parameters x tokens / step times / peak; attention is not counted", needs=(needs.STEPS, _SIZES, _CONFIG)),
        Entry("graph.padded_ratio", "ratio", "ranges kernels", "Share of the sequences that replayed decode graphs compute for nothing: batches of several sizes replay one graph, whose size is at least that of the largest", "sum of (largest - batch) / sum of largest, over the steps that replay the same kernels in the same launch shapes", needs=(needs.STEPS, _SIZES, _REPLAYED)),
        Entry("graph.padded_window_ratio", "ratio", "ranges kernels", "The same as a share of the window, if all time of these steps followed the batch", "padded share of the steps' busy time", needs=(needs.STEPS, _SIZES, _REPLAYED)),
    ], columns=needs.STEP_COLUMNS),
    *group("phase", needs.CUDA, [
        Entry("phase.slowest_product", "text", "kernels", "The product whose weights are read slowest", "order of the products in a step, against config.json"),
        Entry("phase.product_headroom_window_ratio", "ratio", "kernels", "Time that all products would save at the achievable DRAM bandwidth, over the window", "sum of time x (1 - rate / 0.92)"),
    ], columns=needs.STEP_COLUMNS, needs=(needs.STEPS, needs.KERNELS, _OF_MODEL)),
    *group("phase", needs.SAMPLES, [
        Entry("phase.slowest_product_ratio", "ratio", "samples kernels", "At which share of peak bandwidth the slowest product of decode reads its weights; all products together where no config.json tells them apart", "bytes of the weights by config.json / median time / peak, else phase.gemm_dram_ratio"),
    ], columns=needs.DRAM, needs=(needs.STEPS, ONE_PHASE, RESOLVE)),
)  # fmt: skip


def _mixed_steps(decode: Array, mixed: Array, times: Array, out: FactWriter, window: int) -> None:
    """How much longer a step takes that reads prompts besides its decodes: the extra wait of their
    sequences for a token."""
    out.put("serving.mixed_step_count", int(mixed.sum()))
    if not decode.any() or not mixed.any():
        return
    usual = median_of(times[decode])
    longer = np.maximum(times[mixed] - usual, 0.0)
    out |= {
        "serving.decode_step_ms": usual / 1e6,
        "serving.mixed_step_ms": median_of(times[mixed]) / 1e6,
        "serving.mixed_over_decode": median_of(times[mixed]) / max(usual, 1.0),
        "serving.held_window_ratio": min(float(longer.sum()) / window, 1.0),
    }


def phase_facts(a: Analysis, device: int, out: FactWriter, weight_bytes: int | None = None) -> None:
    budget = a.budgets[device]
    window = budget.window.nonzero_length
    if not a.trace.has("kernels"):
        return
    if not a.step_count:
        out.put("serving.decode_window_ratio", 0.0)
        return
    phases = a.window_phases
    times = step_times(a)
    decodes = phases == "decode"
    out.put("serving.decode_window_ratio", min(float(times[decodes].sum()) / window, 1.0))
    _mixed_steps(decodes, phases == "mixed", times, out, window)
    rows = budget.by_step[a.window_steps]
    kernels = a.kernels(device)
    duration, step = kernels.length, kernels.step
    one_phase = len(set(phases.tolist())) == 1
    found = a.activity.get(device) if one_phase else None
    for phase in sorted(set(phases.tolist())):
        own = out.at(Scope(device=device, phase=phase))
        chosen = marked(len(a.steps) + 1, a.window_steps[phases == phase])
        mine = chosen[step]
        mine &= step >= 0
        parts = rows[phases == phase].sum(axis=0)
        length = max(parts.sum(), 1.0)
        name, time = kernels.name[mine], duration[mine]
        total = float(time.sum())
        own |= {
            "phase.is_decode": phase == "decode",
            "phase.is_prefill": phase == "prefill",
            "phase.step_ratio": float(times[phases == phase].sum()) / window,
            "phase.busy_ratio": float(parts[BUSY_COLUMNS].sum()) / length,
            "phase.idle_ratio": float(parts[_IDLE].sum()) / length,
            "phase.launch_idle_ratio": float(parts[_LAUNCH].sum()) / length,
        }
        if not total:
            continue
        by_name = np.bincount(name, time, minlength=len(a.names.ids))

        def held(wanted: object, by_name: object = by_name) -> float:
            return float(by_name[a.names.mask(wanted)].sum())  # type: ignore[index]

        attention = held(lambda k: k.family in ATTENTION)
        gemm = held(lambda k: k.family in MATMUL)
        unfused = held(lambda k: k.family in UNFUSED)
        is_wide = a.names.mask(
            lambda k: k.family in ATTENTION and (k.phase == "prefill" or k.operation in _WIDE)
        )
        wide = float(by_name[is_wide].sum())
        # Operations in few of the steps are an encoder that runs besides them.
        if 2 * len(distinct(step[mine][is_wide[name]])) < (phases == phase).sum():
            wide = 0.0
        dram = found.of("gemm", "dram") if found else None
        if dram is None and weight_bytes:
            read = weight_bytes * int((phases == phase).sum())
            dram = read_ratio(a, device, read, gemm)
        unknown = held(is_unknown) / total
        shares = {
            "phase.attention_ratio": attention / total,
            "phase.gemm_ratio": gemm / total,
            "phase.skinny_gemm_ratio": held(is_skinny) / total,
            "phase.norm_activation_ratio": held(lambda k: k.family in ("norm", "activation")) / total,
            "phase.unfused_ratio": unfused / total,
            "phase.other_ratio": max(total - attention - gemm - unfused - unknown * total, 0.0) / total,
        }
        own.put_between({n: (s, min(s + unknown, 1.0)) for n, s in shares.items()})
        own |= {
            "phase.gemm_window_ratio": min(gemm / window, 1.0),
            "phase.attention_window_ratio": min(attention / window, 1.0),
            "phase.wide_attention_ratio": wide / attention if attention else None,
            "phase.wide_attention_window_ratio": min(wide / window, 1.0),
            # Samples are resolved over the window, so they speak for a phase that fills it.
            "phase.gemm_dram_ratio": dram,
            "phase.gemm_headroom_window_ratio": None
            if dram is None
            else min(gemm / window, 1.0) * max(1.0 - dram / ACHIEVABLE, 0.0),
            "phase.attention_dram_ratio": found.of("attention", "dram") if found else None,
        }


# --- what the steps deliver, and how fast each matrix product of a decode step reads its weights ---


def rate_facts(
    a: Analysis, device: int, out: FactWriter, weight_bytes: int | None, parameters: int | None
) -> None:
    """`weight_bytes` and `parameters` are those that one step reads, where the user gave them."""
    if not a.step_count:
        return
    times = step_times(a)
    seconds = float(times.sum()) / 1e9
    decode = a.window_phases == "decode"
    if weight_bytes and decode.any():
        read = read_ratio(a, device, weight_bytes * int(decode.sum()), float(times[decode].sum()))
        out.put("serving.model_bandwidth_ratio", read)
    sizes = step_sizes(a, a.window_steps)
    _padding(a, device, sizes, out)
    counts = [_tokens(size) for size in sizes]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or not seconds:
        return
    out.put("serving.tokens_per_s", sum(known) / seconds)
    about = gpu_of(a.device(device))
    peak = about.tensor_tflops.get("fp16") if about else None
    if parameters and peak:
        ratio = 2 * parameters * sum(known) / seconds / (peak * 1e12)
        out.put("serving.model_flop_ratio", ratio if ratio <= 1 else None)


def _tokens(size: StepName | None) -> int | None:
    """Tokens of one step: those in its name, else one for each sequence of a decode."""
    if size is None:
        return None
    if size.tokens is not None:
        return size.tokens + (size.generation_tokens or size.generation or 0)
    return size.batch if size.phase == "decode" or not size.context else None


def _padding(a: Analysis, device: int, sizes: list[StepName | None], out: FactWriter) -> None:
    """How far batches are below the largest that replays the same graph, if names show batches."""
    batch = np.array([s.batch or 0 if s is not None and s.phase == "decode" else 0 for s in sizes])
    at = a.device_kernels(device)
    at = at[a.ops.graph_node[at] != 0]
    if not batch.any() or not len(at):
        return
    number = np.full(len(a.steps) + 1, len(batch))
    number[a.window_steps] = np.arange(len(batch))
    step = number[a.steps.op_step[at]]
    shape = launch_shape(a.trace, a.ops.row[at]).astype(np.uint64)
    mark = (shape + np.uint64(1)) * (
        a.op_name[at].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    )
    graph = np.zeros(len(batch) + 1, np.uint64)
    np.add.at(graph, step, mark)  # wraps: a fingerprint of the kernels of the step
    mine = (batch > 0) & (graph[:-1] != 0)
    _, group = np.unique(graph[:-1][mine], return_inverse=True)
    largest = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.maximum.at(largest, group, batch[mine])
    bucket = largest[group]
    if (bucket == batch[mine]).all():
        return
    window = a.window.nonzero_length
    wasted = bucket - batch[mine]
    busy = np.bincount(step, a.ops.length[at], len(batch) + 1)[:-1][mine]
    out.put("graph.padded_ratio", float(wasted.sum() / bucket.sum()))
    out.put("graph.padded_window_ratio", min(float((busy * wasted / bucket).sum()) / window, 1.0))
    rows = sorted({(int(b), int(n)) for b, n in zip(bucket, batch[mine], strict=True)})
    out.table("graph.buckets", [[b, n, int(((bucket == b) & (batch[mine] == n)).sum())] for b, n in rows])


# --- how fast each matrix product of a decode step reads its weights, by a model's config ---------


def product_facts(a: Analysis, device: int, out: FactWriter, decoder: Decoder | None) -> None:
    """Rates of the products of decode steps, where `decoder` says what they read."""
    if not a.step_count or not a.trace.has("kernels"):
        return
    out = out.at(Scope(device=device, phase="decode"))
    if not _of_decoder(a, device, out, decoder):
        out.put("phase.slowest_product_ratio", out.value("phase.gemm_dram_ratio"))


def _of_decoder(a: Analysis, device: int, out: FactWriter, decoder: Decoder | None) -> bool:
    """Whether the products of the steps are those of the model; writes their rates."""
    if decoder is None:
        return False
    decode = a.window_steps[a.window_phases == "decode"]
    at = a.device_kernels(device)
    wanted = a.names.mask(lambda k: k.family in MATMUL and k.operation != REDUCTION)[a.op_name[at]]
    at = at[wanted & np.isin(a.steps.op_step[at], decode)]
    at = at[np.lexsort((a.ops.start[at], a.steps.op_step[at]))]
    count = len(at) // max(len(decode), 1)
    names = decoder.products(count)
    even = np.bincount(a.steps.op_step[at], minlength=len(a.steps))[decode] == count
    if not len(decode) or not names or not even.all():
        return False
    # The products of the layers in turn, then the output head.
    step = np.append(np.tile(np.arange(len(names) - 1), decoder.layers), len(names) - 1)
    products = [(name, round(parameters * decoder.bytes_each)) for name, parameters in names]
    return _product_rates(a, device, out, products, at, np.tile(step, len(decode)))


def _product_rates(
    a: Analysis, device: int, out: FactWriter, products: Sequence[tuple[str, int]], at: Array, kind: Array
) -> bool:
    """`products` are (name, bytes); operation `at[i]` is the product of number `kind[i]`. False if the
    sizes cannot be those of this model, or the peak is unknown."""
    length = a.ops.length[at].astype(float)
    window = a.window.nonzero_length
    rows: list[tuple[str, int, int, float, float, float]] = []
    spare = 0.0
    for i, (name, size) in enumerate(products):
        time = length[kind == i]
        rate = read_ratio(a, device, size, median_of(time))
        if rate is None:
            return False
        spare += float(time.sum()) * max(1.0 - rate / ACHIEVABLE, 0.0)
        rows.append((name, size, len(time), median_of(time) / 1e3, rate, float(time.sum()) / window))
    slowest = min(rows[:-1], key=lambda row: row[4])
    out.put("phase.slowest_product", slowest[0])
    out.put("phase.slowest_product_ratio", slowest[4])
    out.put("phase.product_headroom_window_ratio", min(spare / window, 1.0))
    out.table("kernels.products", rows)
    return True


# --- steps that get longer or shorter from the first to the last ----------------------------------


_THIRDS = "median of the last third of the steps against that of the first"
_LIKE = "calls of one kernel and launch shape, as often in both thirds"

DRIFT_FACTS = group("device", needs.CUDA, [
    Entry("drift.step_ratio", "ratio", "kernels", "Change of the step from the first third of the steps to the last; positive is longer", _THIRDS),
    Entry("drift.size_ratio", "ratio", "kernels", "The same, longer or shorter", _THIRDS),
    Entry("drift.order_ratio", "ratio", "kernels", "How far the steps keep getting longer, or shorter: their rank correlation with their order, without its sign", "Spearman"),
    Entry("drift.kernels_ratio", "ratio", "kernels", "Share of that change that kernels make, called as often and with the same launch shape", _LIKE),
    Entry("drift.idle_ratio", "ratio", "kernels", "Share of that change that idle time makes", "idle parts of the budget, by step"),
    Entry("drift.alike_ratio", "ratio", "kernels", "Share of the kernel time in kernels that changed by at least half of the mean change", _LIKE),
    Entry("drift.kernel_change", "text", "kernels", "How much longer or shorter these kernels take at the end", _LIKE),
    Entry("drift.step_change", "text", "kernels", "How much longer or shorter a step takes at the end", _THIRDS),
    Entry("drift.lost_ratio", "ratio", "kernels", "Time of the steps above the median of the faster third, over the window", "sum of the excess / window"),
], columns={"kernels": f"{needs.SPAN} name_id {needs.SHAPE}"}, needs=(*needs.more_steps(MIN_STEPS, f"{MIN_STEPS} steps of one phase"), needs.KERNELS))  # fmt: skip


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
        "drift.lost_ratio": min(found.lost_ns / a.window.nonzero_length, 1.0),
    }


def _words(change: float) -> str:
    """``60 % longer``"""
    return f"{abs(change):.0%} {'longer' if change > 0 else 'shorter'}".replace("%", " %")
