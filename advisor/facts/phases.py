"""Facts about the phases of a device's steps: prefill, decode, mixed; how fast each matrix product of a
decode step reads its weights; and kernels of a pass of the model that others could replace.

A step of a dense decoder makes the same products in every layer and one of the output head. If the number
of products of each step fits the config, their order identifies them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import compress

import numpy as np

from advisor.facts import limits
from advisor.facts.activity import read_ratio
from advisor.facts.device import at_dram_limit, is_skinny
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import KernelFamily
from advisor.metrics.budgeted.budget import BUSY_COLUMNS, IDLE_PARTS, LAUNCHING, PARTS
from advisor.metrics.budgeted.experts import adapter_kernels, is_adapter
from advisor.metrics.budgeted.layers import concatenations, full_splits
from advisor.metrics.budgeted.matmuls import REDUCTION, Decoder
from advisor.metrics.budgeted.passes import (
    cache_reorders,
    embedding_lookups,
    narrowed_weights,
    quantised_inputs,
    sampling_kernels,
    sampling_sorts,
    widened_caches,
    widened_weights,
)
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.step_times import held_by_prompts, step_times
from advisor.metrics.loaded.kernels import (
    ATTENTION,
    MATMUL,
    UNFUSED,
    is_combining,
    is_dequantising,
    is_unknown,
)
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.besides import other_work
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, by_label, distinct, marked, median_of, nearest_rank
from advisor.model.facts import Scope

_IDLE = [PARTS.index(p) for p in IDLE_PARTS]
_LAUNCH = [PARTS.index(p) for p in LAUNCHING]
_PROFILER, _STARTUP = PARTS.index("profiler"), PARTS.index("startup")


#: Operations whose kernels work on tiles of many queries, beside those of prefill.
_WIDE = frozenset(("attention (memory-efficient)", "attention (cuDNN SDPA)"))


@predicate
def one_phase(a: Stepped) -> bool:
    return len(set(a.window_phases.tolist())) == 1


def _prompt_steps(a: Budgeted, phases: Array, program_times: Array, whole: int, out: FactWriter) -> None:
    """How long the sequences of decode steps wait for steps that read prompts, besides their decodes or
    between them. `program_times` are the times of the steps, ns, without what the profiler took."""
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
    _encoders(a, held, out)
    # A token waits for its own step and for the steps of prompts alone since the one before.
    yields = np.flatnonzero(decode | mixed)
    waited = np.diff(np.cumsum(np.where(decode | held, times, 0))[yields], prepend=0)
    stalled = np.diff(np.cumsum(held)[yields], prepend=0) > 0
    stall = median_of(np.maximum(waited[stalled] - usual, 0.0))
    slowest = nearest_rank(waited, 99)
    longer = np.maximum(program_times[mixed] - median_of(program_times[decode]), 0.0)
    out |= {
        "serving.decode_step_ms": usual / 1e6,
        "serving.stall_ms": stall / 1e6,
        "serving.stall_decode_steps": stall / max(usual, 1.0),
        "serving.token_p99_ms": slowest / 1e6,
        "serving.held_window_ratio": min((longer.sum() + program_times[held & ~mixed].sum()) / whole, 1.0),
    }


def _encoders(a: Budgeted, held: Array, out: FactWriter) -> None:
    """Of the steps `held` (a mask of the window's): the part of their GPU time that was issued in a range
    of an encoder, and that range."""
    texts = [i for i, role in a.roles.items() if role == "encoder"]
    at = a.device_ops(a.main_device)
    at = at[np.isin(a.steps.op_step[at], a.window_steps[held]) & (a.ops.api[at] >= 0)]
    if not texts or not len(at):
        return
    calls = a.trace.columns("api_calls", ("start", "thread"))
    issued, thread = (values[a.ops.api[at]] for values in calls.values())
    length = a.ops.length[at].astype(float)
    by_text = {a.ranges.texts[i]: float(length[a.ranges.hold([i], thread, issued)].sum()) for i in texts}
    name, time = max(by_text.items(), key=lambda kv: kv[1])
    out |= {"serving.stall_encoder_ratio": time / max(length.sum(), 1.0), "serving.stall_encoder": name}


def _besides(a: Stepped, times: Array, steps: Array, whole: int, out: FactWriter) -> None:
    """Work that few of these `steps` (a mask) run besides all that the others do. `times` in ns."""
    found = other_work(a, a.window_steps[steps], times[steps])
    by_step = found.sum(axis=1)
    mine = by_step > 0
    out.put("besides.step_count", int(mine.sum()))
    if not mine.any():
        return
    length, usual = median_of(by_step[mine]), median_of(times[steps][~mine])
    operations, (time,) = by_label(a.names.operations, found.sum(axis=0))
    total = float(time.sum())
    most = (time >= limits.BESIDES_NAMED_RATIO * total).tolist()
    out |= {
        "besides.ms": length / 1e6,
        "besides.usual_steps": length / max(usual, 1.0),
        "besides.window_ratio": min(total / whole, 1.0),
        "besides.operations": ", ".join(compress(operations, most)),
    }


def phase_facts(a: Profiled, device: int, out: FactWriter, weight_bytes: int | None = None) -> None:
    budget = a.budgets[device]
    window = budget.program_ns
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
    # A step that loads a module tries kernels or runs new ones.
    _besides(a, times, ~np.isin(phases, ("prefill", "mixed")) & (rows[:, _STARTUP] == 0), window, out)
    _launching(a, device, phases, rows[:, _LAUNCH].sum(axis=1), out)
    for phase in sorted(set(phases.tolist())):
        own, steps = out.at(Scope(device=device, phase=phase)), phases == phase
        parts = rows[steps].sum(axis=0)
        length = max(parts.sum(), 1.0)
        own |= {
            "phase.is_decode": phase == "decode",
            "phase.is_prefill": phase == "prefill",
            "phase.step_ratio": times[steps].sum() / window,
            "phase.busy_ratio": parts[BUSY_COLUMNS].sum() / length,
            "phase.idle_ratio": parts[_IDLE].sum() / length,
            "phase.launch_idle_ratio": parts[_LAUNCH].sum() / max(length - parts[_PROFILER], 1.0),
        }
        _kernel_shares(a, device, steps, weight_bytes, own)
        if phase == "decode":
            reads = own.value("phase.attention_dram_ratio")
            out.put("kernel.decode_attention_dram_ratio", reads)


def _launching(a: Budgeted, device: int, phases: Array, idle: Array, out: FactWriter) -> None:
    """The phase whose steps hold nearly all of the idle time of launching, if others hold hardly any. `idle`
    in ns a step, `phases` and `idle` of the steps of the window."""
    names, of = np.unique(phases, return_inverse=True)
    held, count = np.bincount(of, idle), np.bincount(of)
    most = int(held.argmax())
    if (
        names[most] == "unknown"
        or not held[most]
        or held[most] < limits.ALL_IN_STEPS_RATIO * held.sum()
        or 2 * count[most] > len(phases)
        or count[most] < limits.NAMED_STEPS
    ):
        return
    kernels = a.kernels(device)
    mine = marked(len(a.steps) + 1, a.window_steps[of == most])[kernels.step]
    at = kernels.at[mine & (kernels.step >= 0)]
    out |= {
        "launch.idle_phase": str(names[most]),
        "launch.idle_phase_ratio": held[most] / held.sum(),
        "launch.idle_phase_steps": count[most],
    }
    if len(at):
        alone = (a.ops.graph_node[at] == 0) & (a.ops.api[at] >= 0)
        out.put("launch.idle_phase_eager_ratio", alone.sum() / len(at))


def _kernel_shares(a: Profiled, device: int, steps: Array, weight_bytes: int | None, out: FactWriter) -> None:
    """What kinds of kernels take of a phase and of the window. `steps` is a mask of those in the window."""
    kernels, window = a.kernels(device), a.budgets[device].program_ns
    mine = marked(len(a.steps) + 1, a.window_steps[steps])[kernels.step]
    mine &= kernels.step >= 0
    name, time = kernels.name[mine], kernels.length[mine]
    total = float(time.sum())
    if not total:
        return
    held = partial(_held, a, np.bincount(name, time, minlength=len(a.names.ids)))
    attention = held(lambda k: k.family in ATTENTION)
    gemm = held(lambda k: k.family in MATMUL)
    unfused = held(lambda k: k.family in UNFUSED)
    exchanges = held(lambda k: k.family == "communication")
    wide = held(_is_wide)
    # Operations in few of the steps are an encoder that runs besides them.
    if 2 * len(distinct(kernels.step[mine][a.names.mask(_is_wide)[name]])) < steps.sum():
        wide = 0.0
    # Samples are resolved over the window, so they speak for a phase that fills it.
    found = a.activity.get(device) if steps.all() else None
    dram = found.of("gemm", "dram") if found else None
    if dram is None and weight_bytes:
        dram = read_ratio(a, device, weight_bytes * int(steps.sum()), gemm)
    spare = None if dram is None else max(1.0 - dram / limits.ACHIEVABLE_RATIO, 0.0)
    unknown = held(is_unknown) / total
    shares = {
        "phase.attention_ratio": attention / total,
        "phase.gemm_ratio": gemm / total,
        "phase.skinny_gemm_ratio": held(is_skinny) / total,
        "phase.norm_activation_ratio": held(lambda k: k.family in ("norm", "activation")) / total,
        "phase.unfused_ratio": unfused / total,
        "phase.other_ratio": max(total - attention - gemm - unfused - exchanges - unknown * total, 0.0)
        / total,
    }
    out.put_between({n: (s, min(s + unknown, 1.0)) for n, s in shares.items()})
    families = {"gemm": MATMUL, "attention": ATTENTION}
    for what, names in families.items():
        whose = mine & a.names.mask(lambda k, names=names: k.family in names)[kernels.name]
        out.kernels(kernels.length, {f"phase.{what}_window_ratio": whose})
    out |= {
        "phase.gemm_window_ratio": min(gemm / window, 1.0),
        "phase.attention_window_ratio": min(attention / window, 1.0),
        "phase.wide_attention_ratio": wide / attention if attention else None,
        "phase.wide_attention_window_ratio": min(wide / window, 1.0),
        **_unsplit(a, device, mine, attention, window, out),
        "phase.gemm_dram_ratio": dram,
        "phase.gemm_headroom_window_ratio": None if spare is None else min(gemm / window, 1.0) * spare,
        "phase.attention_dram_ratio": found.of("attention", "dram") if found else None,
    }


def _held(a: Loaded, by_name: Array, wanted: Callable[[KernelFamily], bool]) -> float:
    return float(by_name[a.names.mask(wanted)].sum())


def _unsplit(
    a: Profiled, device: int, mine: Array, attention: float, window: int, out: FactWriter
) -> dict[str, float]:
    """Attention of a phase, whose kernels are `mine` (a mask), in launches of fewer blocks than half the
    SMs that do not read at the limit of DRAM."""
    kernels, sms = a.kernels(device), a.device(device).sm_count
    if not sms or not attention:
        return {}
    few = mine & a.names.mask(lambda k: k.family in ATTENTION)[kernels.name] & ~at_dram_limit(a, device)
    if not (kernels.blocks[few] > 0).all():
        return {}
    few &= 2 * kernels.blocks < sms
    held = float(kernels.length[few].sum())
    out.kernels(kernels.length, {"phase.small_attention_window_ratio": few})
    return {
        "phase.small_attention_ratio": held / attention,
        "phase.small_attention_window_ratio": min(held / window, 1.0),
    }


def _is_wide(kernel: KernelFamily) -> bool:
    """Attention of many queries at a time."""
    return kernel.family in ATTENTION and (kernel.phase == "prefill" or kernel.operation in _WIDE)


# --- how fast each matrix product of a decode step reads its weights, by a model's config ---------


def product_facts(a: Budgeted, device: int, out: FactWriter, decoder: Decoder | None) -> None:
    """Rates of the products of decode steps, where `decoder` says what they read."""
    if not a.step_count or not a.trace.has("kernels"):
        return
    out = out.at(Scope(device=device, phase="decode"))
    if decoder is None or not _of_decoder(a, device, out, decoder):
        out.put("phase.slowest_product_ratio", out.value("phase.gemm_dram_ratio"))


def _of_decoder(a: Budgeted, device: int, out: FactWriter, decoder: Decoder) -> bool:
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
    window, spare = a.budgets[device].program_ns, 0.0
    rows: list[tuple[str, int, int, float, float, float]] = []
    for i, (name, parameters) in enumerate(names):
        time, size = length[kind == i], round(parameters * decoder.bytes_each)
        rate = read_ratio(a, device, size, median_of(time))
        if rate is None:
            return False
        spare += float(time.sum()) * max(1.0 - rate / limits.ACHIEVABLE_RATIO, 0.0)
        rows.append((name, size, len(time), median_of(time) / 1e3, rate, float(time.sum()) / window))
    slowest = min(rows[:-1], key=lambda row: row[4])
    apart = {"query", "gate"} & {name for name, _ in names}
    out.at(Scope(device=device)).put("kernel.joined_products", not apart)
    out |= {
        "phase.slowest_product": slowest[0],
        "phase.slowest_product_ratio": slowest[4],
        "phase.product_headroom_window_ratio": min(spare / window, 1.0),
    }
    out.table("kernels.products", rows)
    return True


# --- kernels of a pass of the model that others could replace; without steps the window is one pass ---


#: The shares that names alone show: all that sums contain.
BY_NAME: dict[str, Callable[[KernelFamily], bool]] = {
    "kernel.dequantise_ratio": is_dequantising,
    "kernel.adapter_ratio": is_adapter,
}


def pass_facts(a: Profiled, device: int, out: FactWriter) -> None:
    if not a.trace.has("kernels") or not len(a.kernels(device).at):
        return
    kernels, budget = a.kernels(device), a.budgets[device]
    at, name, length, pieces = kernels.at, kernels.name, kernels.length, kernels.attention_pieces
    busy, window = max(budget.busy_ns, 1), budget.program_ns
    placed = at, kernels.passes
    unknown = min(float(length[a.names.mask(is_unknown)[name]].sum()), busy)

    def held(mine: Array) -> float:
        return min(float(length[mine].sum()), busy)

    widened_cache, narrowed = widened_caches(a, *placed, pieces), narrowed_weights(a, *placed, pieces)
    widened = a.names.mask(is_dequantising)[name] | widened_weights(a, *placed, pieces) | widened_cache
    operands = (("weights", (widened & ~widened_cache).any()), ("keys and values", widened_cache.any()))
    adapting = adapter_kernels(a, at)
    quantising = quantised_inputs(a, *placed)
    joining = np.isin(at, concatenations(a.names, kernels, a.layers(device)))
    combining, attention = (
        a.names.mask(wanted)[name] for wanted in (is_combining, lambda k: k.family in ATTENTION)
    )
    if attends := float(length[attention & ~combining].sum()):
        out.put("kernel.kv_combine_ratio", length[combining].sum() / attends)
    subjects = "dequantise", "weight_cast", "adapter", "quantise", "concatenation"
    shares = {}
    for subject, mine in zip(subjects, (widened, narrowed, adapting, quantising, joining), strict=True):
        spent = held(mine)
        out.kernels(length, {f"kernel.{subject}_window_ratio": mine})
        for what, whole in (("ratio", busy), ("window_ratio", window)):
            # Unidentified kernels may belong to them or not.
            shares[f"kernel.{subject}_{what}"] = spent / whole, min(spent + unknown, busy) / whole
    out.put_between(shares)
    lookups = embedding_lookups(a, *placed)
    counts = {"kernel.attention_pieces": pieces.count, "embedding.lookups": int(lookups.of.sum())}
    small = a.names.mask(lambda k: k.family in UNFUSED)[name] & (a.step_count == 0)
    named = small & (pieces.inner | widened | narrowed | quantising | joining)
    of_window = {
        "kernel.kv_combine_window_ratio": combining,
        "kernel.full_split_window_ratio": full_splits(a, device),
        "kernel.prompt_split_window_ratio": full_splits(a, device, prompts=True),
        "kernel.attention_pieces_window_ratio": pieces.inner,
        "kernel.cache_reorder_window_ratio": cache_reorders(a, *placed).of,
    }
    if a.step_count:
        for subject, find in (("sampling_sort", sampling_sorts), ("sampling", sampling_kernels)):
            of_window[f"kernel.{subject}_window_ratio"] = find(a, at, kernels.step)
    out.kernels(length, of_window)
    out |= {what: held(mine) / window for what, mine in of_window.items()}
    out |= {
        "kernel.adapter_count_ratio": adapting.mean(),
        "kernel.widened_operands": " and ".join(what for what, found in operands if found) or None,
        "embedding.lookup_window_ratio": min((lookups.end - lookups.start).sum() / window, 1.0),
        "kernel.unfused_named_ratio": length[named].sum() / max(length[small].sum(), 1),
        **a.rates(device, counts),
    }
