"""Facts about the phases of a device's steps: prefill, decode, mixed; how fast each matrix product of a
decode step reads its weights; steps that get longer or shorter; and kernels of a pass of the model that others
could replace.

A step of a dense decoder makes the same products in every layer and one of the output head. If the number
of products of each step fits the config, their order identifies them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from advisor.facts import needs
from advisor.facts.activity import read_ratio
from advisor.facts.device import ACHIEVABLE, is_skinny
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.knowledge.files import KernelFamily
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import BUSY_COLUMNS, IDLE_PARTS, LAUNCHING, PARTS
from advisor.metrics.experts import adapter_kernels, is_adapter
from advisor.metrics.kernels import ATTENTION, MATMUL, UNFUSED, is_combining, is_dequantising, is_unknown
from advisor.metrics.layers import concatenations
from advisor.metrics.matmuls import REDUCTION, Decoder
from advisor.metrics.pace import MIN_STEPS, find_drift, find_slow_steps
from advisor.metrics.passes import (
    cache_reorders,
    embedding_lookups,
    narrowed_weights,
    quantised_inputs,
    sampling_sorts,
    widened_caches,
    widened_weights,
)
from advisor.metrics.phases import held_by_prompts, step_times
from advisor.model.arrays import Array, distinct, marked, median_of, percentiles
from advisor.model.facts import Scope

_IDLE = [PARTS.index(p) for p in IDLE_PARTS]
_LAUNCH = [PARTS.index(p) for p in LAUNCHING]
_PROFILER = PARTS.index("profiler")

ONE_PHASE = Need("the samples are not resolved by phase where there are several", None, lambda a: len(set(a.window_phases.tolist())) == 1)  # fmt: skip
RESOLVE = Need("the samples do not resolve the kernels of one phase", needs.FASTER)

#: Operations whose kernels work on tiles of many queries, beside those of prefill.
_WIDE = frozenset(("attention (memory-efficient)", "attention (cuDNN SDPA)"))

FACTS = (
    *group("device", needs.CUDA, [
        Entry("serving.mixed_step_count", "count", "kernels", "Steps in which prompts are read beside decodes", "phases of the steps", needs=(needs.STEPS,)),
        Entry("serving.stall_count", "count", "kernels", "Steps that read prompts while sequences that are being decoded wait: besides their decodes, or alone between two decode steps of a server", "phases and sizes of the steps", needs=(needs.STEPS,)),
        Entry("serving.stall_ms", "ms", "kernels", "How much later than usual a token comes for whose sequence such steps were in the way", "median of the waits beyond serving.decode_step_ms"),
        Entry("serving.stall_decode_steps", "ratio", "kernels", "The same in decode steps", "serving.stall_ms / serving.decode_step_ms"),
        Entry("serving.token_p99_ms", "ms", "kernels", "99th percentile of the time from one token of a sequence to the next", "decode step and steps of prompts before it"),
        Entry("serving.decode_step_ms", "ms", "kernels", "Median step of decodes alone", "step times by phase"),
        Entry("serving.mixed_step_ms", "ms", "kernels", "Median step that reads prompts, too", "step times by phase"),
        Entry("serving.mixed_over_decode", "ratio", "kernels", "The second over the first", "quotient of the medians"),
        Entry("serving.held_window_ratio", "ratio", "kernels", "Share of the untraced step for which such steps keep decoding sequences waiting", "sum of the differences of mixed steps to serving.decode_step_ms, and of the times of steps of prompts alone"),
        Entry("serving.decode_window_ratio", "ratio", "kernels", "Share of the untraced step in steps of decodes alone", "range names, else kernel families; 0 where no step is known for one", needs=(needs.KERNELS,)),
    ], columns=needs.STEP_COLUMNS, needs=(needs.STEPS, Need("no steps that read prompts beside steps of decodes alone"))),
    *group("phase", needs.CUDA, [
        Entry("phase.is_decode", "flag", "", "The phase is decode", "range names, else kernel families", needs=(needs.STEPS,)),
        Entry("phase.is_prefill", "flag", "", "The phase is prefill", "range names, else kernel families", needs=(needs.STEPS,)),
        Entry("phase.step_ratio", "ratio", "", "Share of the untraced step in steps of this phase", "sum of step times / untraced window", needs=(needs.STEPS,)),
        Entry("phase.busy_ratio", "ratio", "", "Busy share inside the steps of this phase", "budget of the phase", needs=(needs.STEPS,)),
        Entry("phase.idle_ratio", "ratio", "", "Idle share inside the steps of this phase", "budget of the phase", needs=(needs.STEPS,)),
        Entry("phase.launch_idle_ratio", "ratio", "kernels api_calls", "Idle that launching one by one causes, inside the phase", "as launch.idle_ratio", needs=(needs.STEPS,)),
        Entry("phase.attention_ratio", "ratio", "kernels", "Attention's share of kernel time", "families"),
        Entry("phase.gemm_ratio", "ratio", "kernels", "Share of GEMM and GEMV kernels in kernel time", "families"),
        Entry("phase.skinny_gemm_ratio", "ratio", "kernels", "Share of GEMV and skinny GEMM kernels (few output columns) in kernel time", "names and launch shapes"),
        Entry("phase.norm_activation_ratio", "ratio", "kernels", "Share of norm and activation kernels in kernel time", "families"),
        Entry("phase.unfused_ratio", "ratio", "kernels", "Share of elementwise, copy, cast and norm kernels in kernel time", "families"),
        Entry("phase.other_ratio", "ratio", "kernels", "Share of kernel time in kernels of known families outside GEMM, GEMV, attention and elementwise", "families"),
        Entry("phase.gemm_window_ratio", "ratio", "kernels", "Time of GEMM and GEMV kernels of the phase over the untraced step", "families"),
        Entry("phase.attention_window_ratio", "ratio", "kernels", "Time of attention kernels of the phase over the untraced step", "families"),
        Entry("phase.wide_attention_ratio", "ratio", "kernels", "How much of the time of the phase's attention kernels is in such as are made for many queries: prefill kernels, memory-efficient and cuDNN kernels with tiles of 64 queries and more; none where they come in less than half of its steps", "operations by kernel name", needs=(needs.STEPS, needs.KERNELS, Need("no attention kernel is known by name"))),
        Entry("phase.wide_attention_window_ratio", "ratio", "kernels", "The same time over the untraced step", "operations by kernel name"),
    ], columns=needs.STEP_COLUMNS, needs=(needs.STEPS, needs.KERNELS)),
    *group("phase", needs.SAMPLES, [
        Entry("phase.gemm_headroom_window_ratio", "ratio", "samples kernels", "Time that the GEMM and GEMV kernels of the phase would save at the achievable DRAM bandwidth, over the untraced step", "phase.gemm_window_ratio x (1 - phase.gemm_dram_ratio / 0.92)"),
        Entry("phase.gemm_dram_ratio", "ratio", "samples kernels", "DRAM activity inside the GEMM and GEMV kernels, of the device's peak; where samples do not show it and the size of the weights is given, their bytes over the time of these kernels", "bounded least squares, else weight bytes / GEMM time / peak (none above 1)"),
        Entry("phase.attention_dram_ratio", "ratio", "samples kernels", "DRAM activity inside the attention kernels, of the device's peak", "bounded least squares", needs=(needs.STEPS, ONE_PHASE, RESOLVE)),
        Entry("phase.slowest_product_ratio", "ratio", "samples kernels", "At which share of peak bandwidth the slowest product of decode reads its weights; all products together where no config.json tells them apart", "bytes of the weights by config.json / median time / peak, else phase.gemm_dram_ratio"),
    ], columns=needs.DRAM, needs=(needs.STEPS, ONE_PHASE, RESOLVE)),
    *group("phase", needs.CUDA, [
        Entry("phase.slowest_product", "text", "kernels", "The product whose weights are read slowest", "order of the products in a step, against config.json"),
        Entry("phase.product_headroom_window_ratio", "ratio", "kernels", "Time that all products would save at the achievable DRAM bandwidth, over the untraced step", "sum of time x (1 - rate / 0.92)"),
    ], columns=needs.STEP_COLUMNS, needs=(needs.STEPS, needs.KERNELS, Need("no config.json was given (--weight-bytes), or the products of the steps are not those of the model"))),
    *group("device", needs.CUDA, [
        Entry("kernel.dequantise_ratio", "ratio", "kernels", "Share of the busy time in kernels that only widen quantised values: by name, or kernels of a framework before a product or attention that take as long as reading its weights or cache", "names; place and length"),
        Entry("kernel.dequantise_window_ratio", "ratio", "kernels", "The same as a share of the untraced step", "x busy share"),
        Entry("kernel.weight_cast_ratio", "ratio", "kernels", "Share of the busy time in casts from FP32 to 16 bits before a product that take about as long as reading its weights", "names; place and length"),
        Entry("kernel.weight_cast_window_ratio", "ratio", "kernels", "The same as a share of the untraced step", "x busy share"),
        Entry("kernel.quantise_ratio", "ratio", "kernels", "Share of the busy time in kernels that only quantise what a matrix product reads (scales, casts to FP8 or FP4)", "names; at most three other kernels before the product"),
        Entry("kernel.quantise_window_ratio", "ratio", "kernels", "The same as a share of the untraced step", "x busy share"),
        Entry("kernel.kv_combine_ratio", "ratio", "kernels", "Time of kernels that add up what attention made of the parts of a sequence (split-KV, flash decoding), over that of the attention kernels themselves", "names; sum / sum", needs=(needs.KERNELS, Need("no attention kernel is known by name"))),
        Entry("kernel.kv_combine_window_ratio", "ratio", "kernels", "The same kernels' share of the untraced step", "sum / untraced window"),
        Entry("kernel.concatenation_ratio", "ratio", "kernels", "Share of the busy time in kernels that only concatenate tensors, those that append to the KV cache left out", "names; place before attention"),
        Entry("kernel.concatenation_window_ratio", "ratio", "kernels", "The same as a share of the untraced step", "x busy share"),
        Entry("kernel.adapter_ratio", "ratio", "kernels", "Share of the busy time in kernels of low-rank adapters (LoRA)", "names, or two unlike products behind one that takes as long or longer, each time with a multiplication and an addition behind them"),
        Entry("kernel.adapter_window_ratio", "ratio", "kernels", "The same as a share of the untraced step", "x busy share"),
        Entry("kernel.adapter_count_ratio", "ratio", "kernels", "Share of the kernels that belong to low-rank adapters", "as kernel.adapter_ratio"),
        Entry("kernel.widened_operands", "text", "kernels", "What these kernels widen: weights, or keys and values (before attention), or both", "the kernel after them", needs=(needs.KERNELS, Need("no kernel only widens quantised values"))),
        Entry("kernel.attention_pieces_window_ratio", "ratio", "kernels", "Share of the untraced step in kernels, a softmax among them, between two matrix products of a layer, and in long copies just before: attention that no single kernel computes", "sum / untraced window"),
        *needs.counted("kernel.attention_pieces", "kernels", "Attention that no single kernel computes", "count / steps", needs=(needs.KERNELS,)),
        Entry("kernel.cache_reorder_window_ratio", "ratio", "kernels", "Share of the untraced step in gathers of rows in a language model of which eight or more follow each other without a product between them: caches of beams that changed places", "names and place; 3 us each or more"),
        Entry("embedding.lookup_window_ratio", "ratio", "kernels", "Share of the untraced step from the first to the last of eight or more embedding kernels (outside language models gathers of rows, too) without a product between them", "sum of the stretches / untraced window"),
        *needs.counted("embedding.lookups", "kernels", "Embedding kernels of such stretches", "count / steps", needs=(needs.KERNELS,)),
        Entry("kernel.unfused_named_ratio", "ratio", "kernels", "Share of the time of elementwise, copy, cast and norm kernels in those between the products of attention, in casts of weights and caches, and in those that quantise for a product or concatenate; 0 with steps, which tell what each of these wins", "sum / sum"),
        Entry("kernel.sampling_sort_window_ratio", "ratio", "kernels", "Share of the untraced step in sorts and scans behind the last matrix product of a step: sampling that orders the vocabulary", "sum / untraced window", needs=(needs.KERNELS, needs.STEPS)),
    ], columns={"kernels": f"{needs.SPAN} name_id"}, needs=(needs.KERNELS,)),
)  # fmt: skip


def _prompt_steps(a: Analysis, phases: Array, untraced: Array, whole: int, out: FactWriter) -> None:
    """How long the sequences of decode steps wait for steps that read prompts, besides their decodes or
    between them. `untraced` are the times of the steps, ns, without what the profiler took."""
    times = step_times(a)
    decode, mixed = phases == "decode", phases == "mixed"
    out.put("serving.mixed_step_count", int(mixed.sum()))
    held = held_by_prompts(a)
    out.put("serving.stall_count", int(held.sum()))
    if not decode.any() or not held.any():
        return
    usual = median_of(times[decode])
    if mixed.any():
        with_prompts = median_of(times[mixed])
        out |= {
            "serving.mixed_step_ms": with_prompts / 1e6,
            "serving.mixed_over_decode": with_prompts / max(usual, 1.0),
        }
    # A token waits for its own step and for the steps of prompts alone since the one before.
    yields = np.flatnonzero(decode | mixed)
    waited = np.diff(np.cumsum(np.where(decode | held, times, 0))[yields], prepend=0)
    stalled = np.diff(np.cumsum(held)[yields], prepend=0) > 0
    stall = median_of(np.maximum(waited[stalled] - usual, 0.0))
    (slowest,) = percentiles(waited, 99)
    longer = np.maximum(untraced[mixed] - median_of(untraced[decode]), 0.0)
    out |= {
        "serving.decode_step_ms": usual / 1e6,
        "serving.stall_ms": stall / 1e6,
        "serving.stall_decode_steps": stall / max(usual, 1.0),
        "serving.token_p99_ms": slowest / 1e6,
        "serving.held_window_ratio": min((longer.sum() + untraced[held & ~mixed].sum()) / whole, 1.0),
    }


def phase_facts(a: Analysis, device: int, out: FactWriter, weight_bytes: int | None = None) -> None:
    budget = a.budgets[device]
    window = budget.untraced_ns
    if not a.trace.has("kernels"):
        return
    if not a.step_count:
        out.put("serving.decode_window_ratio", 0.0)
        return
    phases, rows = a.window_phases, budget.by_step[a.window_steps]
    times = np.maximum(step_times(a) - rows[:, _PROFILER], 0)
    decodes = phases == "decode"
    out.put("serving.decode_window_ratio", min(times[decodes].sum() / window, 1.0))
    _prompt_steps(a, phases, times, window, out)
    kernels = a.kernels(device)
    step, distinct_phases = kernels.step, sorted(set(phases.tolist()))
    found = a.activity.get(device) if len(distinct_phases) == 1 else None
    for phase in distinct_phases:
        own, steps = out.at(Scope(device=device, phase=phase)), phases == phase
        mine = marked(len(a.steps) + 1, a.window_steps[steps])[step]
        mine &= step >= 0
        parts = rows[steps].sum(axis=0)
        length = max(parts.sum(), 1.0)
        name, time = kernels.name[mine], kernels.length[mine]
        total = float(time.sum())
        own |= {
            "phase.is_decode": phase == "decode",
            "phase.is_prefill": phase == "prefill",
            "phase.step_ratio": times[steps].sum() / window,
            "phase.busy_ratio": parts[BUSY_COLUMNS].sum() / length,
            "phase.idle_ratio": parts[_IDLE].sum() / length,
            "phase.launch_idle_ratio": parts[_LAUNCH].sum() / max(length - parts[_PROFILER], 1.0),
        }
        if not total:
            continue
        held = partial(_held, a, np.bincount(name, time, minlength=len(a.names.ids)))
        attention = held(lambda k: k.family in ATTENTION)
        gemm = held(lambda k: k.family in MATMUL)
        unfused = held(lambda k: k.family in UNFUSED)
        wide = held(_is_wide)
        # Operations in few of the steps are an encoder that runs besides them.
        if 2 * len(distinct(step[mine][a.names.mask(_is_wide)[name]])) < steps.sum():
            wide = 0.0
        dram = found.of("gemm", "dram") if found else None
        if dram is None and weight_bytes:
            dram = read_ratio(a, device, weight_bytes * int(steps.sum()), gemm)
        spare = None if dram is None else max(1.0 - dram / ACHIEVABLE, 0.0)
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
            "phase.gemm_headroom_window_ratio": None if spare is None else min(gemm / window, 1.0) * spare,
            "phase.attention_dram_ratio": found.of("attention", "dram") if found else None,
        }


def _held(a: Analysis, by_name: Array, wanted: Callable[[KernelFamily], bool]) -> float:
    return float(by_name[a.names.mask(wanted)].sum())


def _is_wide(kernel: KernelFamily) -> bool:
    """Attention of many queries at a time."""
    return kernel.family in ATTENTION and (kernel.phase == "prefill" or kernel.operation in _WIDE)


# --- how fast each matrix product of a decode step reads its weights, by a model's config ---------


def product_facts(a: Analysis, device: int, out: FactWriter, decoder: Decoder | None) -> None:
    """Rates of the products of decode steps, where `decoder` says what they read."""
    if not a.step_count or not a.trace.has("kernels"):
        return
    out = out.at(Scope(device=device, phase="decode"))
    if decoder is None or not _of_decoder(a, device, out, decoder):
        out.put("phase.slowest_product_ratio", out.value("phase.gemm_dram_ratio"))


def _of_decoder(a: Analysis, device: int, out: FactWriter, decoder: Decoder) -> bool:
    """Writes the rates of the products; False if the products of the steps, or their sizes, cannot be those
    of the model, or the peak is unknown."""
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
    kind, length = np.tile(step, len(decode)), a.ops.length[at].astype(float)
    window, spare, rows = (
        a.budgets[device].untraced_ns,
        0.0,
        list[tuple[str, int, int, float, float, float]](),
    )
    for i, (name, parameters) in enumerate(names):
        time, size = length[kind == i], round(parameters * decoder.bytes_each)
        rate = read_ratio(a, device, size, median_of(time))
        if rate is None:
            return False
        spare += float(time.sum()) * max(1.0 - rate / ACHIEVABLE, 0.0)
        rows.append((name, size, len(time), median_of(time) / 1e3, rate, float(time.sum()) / window))
    slowest = min(rows[:-1], key=lambda row: row[4])
    out |= {
        "phase.slowest_product": slowest[0],
        "phase.slowest_product_ratio": slowest[4],
        "phase.product_headroom_window_ratio": min(spare / window, 1.0),
    }
    out.table("kernels.products", rows)
    return True


# --- steps that get longer or shorter from the first to the last ----------------------------------


_THIRDS = "median of the last third of the steps against that of the first"
_ALSO_SLOW = "steps above 1.5 x the median and mean + 3 sigma of the rest against the rest"
_LIKE = "calls of one kernel and launch shape, as often in both thirds"

_SLOW = Need("no few steps are far slower than the rest")
DRIFT_FACTS = (*group("device", needs.CUDA, [
    Entry("drift.step_ratio", "ratio", "kernels", "Change of the step from the first third of the steps to the last; positive is longer", _THIRDS),
    Entry("drift.size_ratio", "ratio", "kernels", "The same, longer or shorter", _THIRDS),
    Entry("drift.order_ratio", "ratio", "kernels", "How far the steps keep getting longer, or shorter: their rank correlation with their order, without its sign", "Spearman"),
    Entry("drift.kernels_ratio", "ratio", "kernels", "Share of that change that kernels make, called as often and with the same launch shape", _LIKE),
    Entry("drift.idle_ratio", "ratio", "kernels", "Share of that change that idle time makes", "idle parts of the budget, by step"),
    Entry("drift.alike_ratio", "ratio", "kernels", "Share of the kernel time in kernels that changed by at least half of the mean change", _LIKE),
    Entry("drift.kernel_change", "text", "kernels", "How much longer or shorter these kernels take at the end", _LIKE),
    Entry("drift.step_change", "text", "kernels", "How much longer or shorter a step takes at the end", _THIRDS),
    Entry("drift.lost_ratio", "ratio", "kernels", "Time of the steps above the median of the faster third, over the untraced step", "sum of the excess / untraced window"),
], columns={"kernels": f"{needs.SPAN} name_id {needs.SHAPE}"}, needs=(*needs.more_steps(MIN_STEPS, f"{MIN_STEPS} steps of one phase"), needs.KERNELS)), *group("device", needs.CUDA, [
    Entry("drift.slow_kernels_ratio", "ratio", "kernels", "Share of what the slow steps take longer that kernels make, called as often in a step and with the same launch shape", _ALSO_SLOW),
    Entry("drift.slow_alike_ratio", "ratio", "kernels", "Share of the kernel time in kernels that are slower in them by at least half of the mean change", _ALSO_SLOW),
    Entry("drift.slow_kernel_change", "text", "kernels", "How much longer these kernels take in them", _ALSO_SLOW),
], columns={"kernels": f"{needs.SPAN} name_id {needs.SHAPE}"}, needs=(*needs.more_steps(3, "three steps of one phase"), needs.KERNELS, _SLOW)))  # fmt: skip


def drift_facts(a: Analysis, device: int, out: FactWriter) -> None:
    if not a.trace.has("kernels"):
        return
    if device == a.main_device and (slow := find_slow_steps(a)) is not None:
        out.put("drift.slow_kernels_ratio", slow.kernels)
        out.put("drift.slow_alike_ratio", slow.alike)
        out.put("drift.slow_kernel_change", _words(slow.kernel_change))
    if a.step_count < MIN_STEPS or (found := find_drift(a, device)) is None:
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
        "drift.lost_ratio": min(found.lost_ns / a.budgets[device].untraced_ns, 1.0),
    }


def _words(change: float) -> str:
    """``60 % longer``"""
    return f"{abs(change):.0%} {'longer' if change > 0 else 'shorter'}".replace("%", " %")


# --- kernels of a pass of the model that others could replace; without steps the window is one pass ---


#: The shares that names alone show: all that sums contain.
BY_NAME: dict[str, Callable[[KernelFamily], bool]] = {
    "kernel.dequantise_ratio": is_dequantising,
    "kernel.adapter_ratio": is_adapter,
}


def pass_facts(a: Analysis, device: int, out: FactWriter) -> None:
    if not a.trace.has("kernels") or not len(a.kernels(device).at):
        return
    kernels, budget = a.kernels(device), a.budgets[device]
    at, name, length, pieces = kernels.at, kernels.name, kernels.length, kernels.attention_pieces
    busy, window = max(budget.busy_ns, 1), budget.untraced_ns
    placed = at, kernels.passes
    unknown = min(float(length[a.names.mask(is_unknown)[name]].sum()), busy)

    def held(mine: Array) -> float:
        return min(float(length[mine].sum()), busy)

    widened_cache, narrowed = widened_caches(a, *placed, pieces), narrowed_weights(a, *placed, pieces)
    widened = a.names.mask(is_dequantising)[name] | widened_weights(a, *placed, pieces) | widened_cache
    operands = (("weights", (widened & ~widened_cache).any()), ("keys and values", widened_cache.any()))
    adapting = adapter_kernels(a, at)
    quantising = quantised_inputs(a, *placed)
    joining = np.isin(at, concatenations(a, device))
    combining, attention = (
        a.names.mask(wanted)[name] for wanted in (is_combining, lambda k: k.family in ATTENTION)
    )
    if attends := float(length[attention & ~combining].sum()):
        out.put("kernel.kv_combine_ratio", length[combining].sum() / attends)
    subjects = "dequantise", "weight_cast", "adapter", "quantise", "concatenation"
    shares = {}
    for subject, mine in zip(subjects, (widened, narrowed, adapting, quantising, joining), strict=True):
        spent = held(mine)
        for what, whole in (("ratio", busy), ("window_ratio", window)):
            # Unidentified kernels may belong to them or not.
            shares[f"kernel.{subject}_{what}"] = spent / whole, min(spent + unknown, busy) / whole
    out.put_between(shares)
    lookups = embedding_lookups(a, *placed)
    counts = {"kernel.attention_pieces": pieces.count, "embedding.lookups": int(lookups.of.sum())}
    small = a.names.mask(lambda k: k.family in UNFUSED)[name] & (a.step_count == 0)
    named = small & (pieces.inner | widened | narrowed | quantising | joining)
    out |= {
        "kernel.adapter_count_ratio": adapting.mean(),
        "kernel.kv_combine_window_ratio": held(combining) / window,
        "kernel.widened_operands": " and ".join(what for what, found in operands if found) or None,
        "kernel.attention_pieces_window_ratio": held(pieces.inner) / window,
        "kernel.cache_reorder_window_ratio": held(cache_reorders(a, *placed).of) / window,
        "embedding.lookup_window_ratio": min((lookups.end - lookups.start).sum() / window, 1.0),
        "kernel.unfused_named_ratio": length[named].sum() / max(length[small].sum(), 1),
        **a.rates(device, counts),
    }
    if a.step_count:
        out.put("kernel.sampling_sort_window_ratio", held(sampling_sorts(a, at, kernels.step)) / window)
