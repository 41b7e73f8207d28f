"""Facts about the phases of a device's steps: prefill, decode, mixed."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.activity import read_ratio
from advisor.facts.device import ACHIEVABLE, is_skinny
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import step_patterns
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import BUSY_PARTS, IDLE_PARTS, PARTS
from advisor.metrics.intervals import union
from advisor.metrics.kernels import ATTENTION, MATMUL, UNFUSED, is_unknown
from advisor.metrics.pauses import step_times
from advisor.model.arrays import Array, distinct
from advisor.model.facts import Scope

_BUSY = [PARTS.index(p) for p in BUSY_PARTS]
_IDLE = [PARTS.index(p) for p in IDLE_PARTS]
_LAUNCH = [PARTS.index(p) for p in ("launch_call", "launch_latency", "host_between_launches")]

ONE_PHASE = Need(
    "the samples are not resolved by phase where there are several", None,
    lambda a: len(set(a.window_phases.tolist())) == 1,
)  # fmt: skip
RESOLVE = Need("the samples do not resolve the kernels of one phase", needs.FASTER)

_ATTENDS = Need("no attention kernel is known by name")
#: Operations whose kernels work on tiles of many queries, beside those of prefill.
_WIDE = frozenset(("attention (memory-efficient)", "attention (cuDNN SDPA)"))
_SPECULATES = Need("no range is named after drafting or verifying", "NVTX ranges around draft and verify")
_PROMPTS = Need("no steps that read prompts beside steps of decodes alone")

FACTS = (
    *group("device", needs.CUDA, [
        Entry("serving.mixed_step_count", "count", "kernels", "Steps in which prompts are read beside decodes", "phases of the steps", needs=(needs.STEPS,)),
        Entry("serving.decode_step_ms", "ms", "kernels", "Median step of decodes alone", "step times by phase"),
        Entry("serving.mixed_step_ms", "ms", "kernels", "Median step that reads prompts, too", "step times by phase"),
        Entry("serving.mixed_over_decode", "ratio", "kernels", "The second over the first", "quotient of the medians"),
        Entry("serving.held_window_ratio", "ratio", "kernels", "Share of the window by which steps with prompts are longer than those without", "sum of the differences to serving.decode_step_ms"),
    ], columns=origin.STEPS, needs=(needs.STEPS, _PROMPTS)),
    *group("device", needs.NVTX, [
        Entry("speculation.draft_ratio", "ratio", "ranges api_calls", "Share of the GPU time whose work was issued inside ranges around drafting", "time of those operations / time of all operations of the window"),
        Entry("speculation.verify_ratio", "ratio", "ranges api_calls", "Share of the GPU time whose work was issued inside ranges around verifying drafts", "as above"),
        Entry("speculation.draft_ms", "ms", "ranges api_calls", "GPU time of one draft", "time of those operations / ranges around drafting that begin on the host side of the window"),
        Entry("speculation.verify_ms", "ms", "ranges api_calls", "GPU time of one verification", "as above"),
    ], columns={"ranges": origin.RANGES, **origin.GAPS}, needs=(_SPECULATES,)),
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
        Entry("phase.wide_attention_ratio", "ratio", "kernels", "How much of the time of the phase's attention kernels is in such as are made for many queries: prefill kernels, memory-efficient and cuDNN kernels with tiles of 64 queries and more", "operations by kernel name", needs=(needs.STEPS, needs.KERNELS, _ATTENDS)),
        Entry("phase.wide_attention_window_ratio", "ratio", "kernels", "The same time over the window", "operations by kernel name"),
    ], columns=origin.STEPS, needs=(needs.STEPS, needs.KERNELS)),
    *group("phase", needs.SAMPLES, [
        Entry("phase.gemm_headroom_window_ratio", "ratio", "samples kernels", "Time that the GEMM and GEMV kernels of the phase would save at the achievable DRAM bandwidth, over the window", "phase.gemm_window_ratio x (1 - phase.gemm_dram_ratio / 0.92)"),
        Entry("phase.gemm_dram_ratio", "ratio", "samples kernels", "DRAM activity inside the GEMM and GEMV kernels, of the device's peak; where samples do not show it and the size of the weights is given, their bytes over the time of these kernels", "bounded least squares, else weight bytes / GEMM time / peak (none above 1)"),
        Entry("phase.attention_dram_ratio", "ratio", "samples kernels", "DRAM activity inside the attention kernels, of the device's peak", "bounded least squares", needs=(needs.STEPS, ONE_PHASE, RESOLVE)),
    ], columns=origin.DRAM, needs=(needs.STEPS, ONE_PHASE, RESOLVE)),
)  # fmt: skip


def _mixed_steps(
    decode: Array, mixed: Array, times: Array, scope: Scope, out: FactWriter, window: int
) -> None:
    """How much longer a step takes that reads prompts beside its decodes: so long their sequences
    wait for a token."""
    out.put("serving.mixed_step_count", int(mixed.sum()), scope)
    if not decode.any() or not mixed.any():
        return
    usual = float(np.median(times[decode]))
    longer = np.maximum(times[mixed] - usual, 0.0)
    out.put_all(
        {
            "serving.decode_step_ms": usual / 1e6,
            "serving.mixed_step_ms": float(np.median(times[mixed])) / 1e6,
            "serving.mixed_over_decode": float(np.median(times[mixed])) / max(usual, 1.0),
            "serving.held_window_ratio": min(float(longer.sum()) / window, 1.0),
        },
        scope,
    )


def phase_facts(a: Analysis, device: int, out: FactWriter, weight_bytes: int | None = None) -> None:
    budget = a.budgets[device]
    if not a.step_count or not a.trace.has("kernels"):
        return
    phases = a.window_phases
    times = step_times(a)
    _mixed_steps(
        phases == "decode", phases == "mixed", times, Scope(device=device), out, max(budget.window.length, 1)
    )
    rows = budget.by_step[a.window_steps]
    window = max(budget.window.length, 1)
    at = a.device_kernels(device)
    duration = (a.ops.end - a.ops.start)[at].astype(float)
    step = a.steps.op_step[at]
    one_phase = len(set(phases.tolist())) == 1
    found = a.activity.get(device) if one_phase else None
    for phase in sorted(set(phases.tolist())):
        scope = Scope(device=device, phase=phase)
        chosen = np.zeros(len(a.steps) + 1, bool)
        chosen[a.window_steps[phases == phase]] = True
        mine = chosen[step]
        mine &= step >= 0
        parts = rows[phases == phase].sum(axis=0)
        length = max(parts.sum(), 1.0)
        name, time = a.op_name[at][mine], duration[mine]
        total = float(time.sum())
        out.put_all(
            {
                "phase.is_decode": phase == "decode",
                "phase.is_prefill": phase == "prefill",
                "phase.step_ratio": float(times[phases == phase].sum()) / window,
                "phase.busy_ratio": float(parts[_BUSY].sum()) / length,
                "phase.idle_ratio": float(parts[_IDLE].sum()) / length,
                "phase.launch_idle_ratio": float(parts[_LAUNCH].sum()) / length,
            },
            scope,
        )
        if not total:
            continue
        by_name = np.bincount(name, time, minlength=len(a.names.ids))

        def held(wanted: object, by_name: object = by_name) -> float:
            return float(by_name[a.names.mask(wanted)].sum())  # type: ignore[index]

        attention = held(lambda k: k.family in ATTENTION)
        gemm = held(lambda k: k.family in MATMUL)
        unfused = held(lambda k: k.family in UNFUSED)
        wide = held(lambda k: k.family in ATTENTION and (k.phase == "prefill" or k.operation in _WIDE))
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
        out.put_between({n: (s, min(s + unknown, 1.0)) for n, s in shares.items()}, scope)
        out.put_all(
            {
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
            },
            scope,
        )


def speculation_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """GPU time of drafting and of verifying, by the ranges in which their work was issued."""
    parts = a.ranges.matching(step_patterns().speculation)
    at = a.device_ops(device)
    at = at[a.ops.api[at] >= 0]
    if not parts or not len(at):
        return
    calls = a.trace.columns("api_calls", ("start", "thread"))
    issued, thread = (calls[n][a.ops.api[at]] for n in ("start", "thread"))
    length = (a.ops.end - a.ops.start)[at].astype(float)
    first, last = a.host_window
    for part in ("draft", "verify"):
        rows = a.ranges.rows([i for i, found in parts.items() if found == part])
        inside = np.zeros(len(at), bool)
        for own in distinct(rows["thread"]).tolist():
            spans = union(rows["start"][rows["thread"] == own], rows["end"][rows["thread"] == own])
            i = np.searchsorted(spans.start, issued, "right") - 1
            inside |= (thread == own) & (i >= 0) & (issued < spans.end[np.maximum(i, 0)])
        if not inside.any():
            continue
        scope, time = Scope(device=device), float(length[inside].sum())
        out.put(f"speculation.{part}_ratio", time / float(length.sum()), scope)
        if count := int(((rows["start"] >= first) & (rows["start"] < last)).sum()):
            out.put(f"speculation.{part}_ms", time / count / 1e6, scope)
