"""Facts about the phases of a device's steps: prefill, decode, mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.facts.activity import read_ratio
from advisor.facts.device import ACHIEVABLE, is_skinny, step_times
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import BUSY_PARTS, IDLE_PARTS, PARTS
from advisor.metrics.kernels import ATTENTION, MATMUL, UNFUSED, is_unknown
from advisor.model.facts import Scope

Array = NDArray[Any]

_BUSY = [PARTS.index(p) for p in BUSY_PARTS]
_IDLE = [PARTS.index(p) for p in IDLE_PARTS]
_LAUNCH = [PARTS.index(p) for p in ("launch_call", "launch_latency", "host_between_launches")]


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
    out.put_all({
        "serving.decode_step_ms": usual / 1e6,
        "serving.mixed_step_ms": float(np.median(times[mixed])) / 1e6,
        "serving.mixed_over_decode": float(np.median(times[mixed])) / max(usual, 1.0),
        "serving.held_window_ratio": min(float(longer.sum()) / window, 1.0),
    }, scope)  # fmt: skip


def phase_facts(a: Analysis, device: int, out: FactWriter, weight_bytes: int | None = None) -> None:
    budget = a.budgets[device]
    if not a.step_count or not a.trace.has("kernels"):
        return
    phases = a.window_phases
    times = step_times(a)
    _mixed_steps(phases == "decode", phases == "mixed", times, Scope(device=device), out,
                 max(budget.window.length, 1))  # fmt: skip
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
        out.put_all({
            "phase.is_decode": phase == "decode",
            "phase.is_prefill": phase == "prefill",
            "phase.step_ratio": float(times[phases == phase].sum()) / window,
            "phase.busy_ratio": float(parts[_BUSY].sum()) / length,
            "phase.idle_ratio": float(parts[_IDLE].sum()) / length,
            "phase.launch_idle_ratio": float(parts[_LAUNCH].sum()) / length,
        }, scope)  # fmt: skip
        if not total:
            continue
        by_name = np.bincount(name, time, minlength=len(a.names.ids))

        def held(wanted: object, by_name: object = by_name) -> float:
            return float(by_name[a.names.mask(wanted)].sum())  # type: ignore[index]

        attention = held(lambda k: k.family in ATTENTION)
        gemm = held(lambda k: k.family in MATMUL)
        unfused = held(lambda k: k.family in UNFUSED)
        dram = found.of("gemm", "dram") if found else None
        if dram is None and weight_bytes:
            read = weight_bytes * int((phases == phase).sum())
            dram = read_ratio(a, device, read, gemm)
        unknown = held(is_unknown) / total
        shares = {
            "phase.attention_ratio": attention / total,
            "phase.gemm_ratio": gemm / total,
            "phase.skinny_gemm_ratio": held(is_skinny) / total,
            "phase.norm_activation_ratio":
                held(lambda k: k.family in ("norm", "activation")) / total,
            "phase.unfused_ratio": unfused / total,
            "phase.other_ratio":
                max(total - attention - gemm - unfused - unknown * total, 0.0) / total,
        }  # fmt: skip
        out.put_between({n: (s, min(s + unknown, 1.0)) for n, s in shares.items()}, scope)
        out.put_all({
            "phase.gemm_window_ratio": min(gemm / window, 1.0),
            "phase.attention_window_ratio": min(attention / window, 1.0),
            # Samples are resolved over the window, so they speak for a phase that fills it.
            "phase.gemm_dram_ratio": dram,
            "phase.gemm_headroom_window_ratio": None if dram is None else
                min(gemm / window, 1.0) * max(1.0 - dram / ACHIEVABLE, 0.0),
            "phase.attention_dram_ratio": found.of("attention", "dram") if found else None,
        }, scope)  # fmt: skip
