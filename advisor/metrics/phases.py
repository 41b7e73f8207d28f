"""Phases of steps whose ranges do not say, and what kind of work a capture holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.kernels import Names
from advisor.metrics.steps import Steps

Array = NDArray[Any]

#: A step is one phase when this much of its telling kernel time says so.
_CLEAR = 0.7


def phase_votes(names: Names) -> tuple[Array, Array]:
    """Masks over kernel names: those that speak for decode, and for prefill.

    GEMV and skinny GEMM serve few tokens at a time, wide GEMM many; attention kernels carry hints.
    """
    decode = names.mask(
        lambda k: (
            k.family == "gemv"
            or (k.family == "gemm" and k.traits.get("skinny") is True)
            or (k.family == "attention" and k.phase == "decode")
        )
    )
    prefill = names.mask(
        lambda k: (
            (k.family == "gemm" and k.traits.get("skinny") is not True)
            or (k.family == "attention" and k.phase == "prefill")
        )
    )
    return decode, prefill


def guess_phases(
    steps: Steps, names: Names, kernel_step: Array, duration: Array, language_model: bool
) -> tuple[str, ...]:
    """Phase of each step: from its range, else from the kernels in it; ``unknown`` stays where
    neither tells. `kernel_step` and `duration` have one entry a kernel row."""
    if not language_model or "unknown" not in steps.phase:
        return steps.phase
    decode, prefill = phase_votes(names)
    inside = kernel_step >= 0
    votes = []
    for mask in (decode, prefill):
        mine = inside & mask[names.index]
        votes.append(np.bincount(kernel_step[mine], duration[mine], minlength=len(steps)))
    told = votes[0] + votes[1]
    out = []
    for i, phase in enumerate(steps.phase):
        if phase != "unknown" or told[i] == 0:
            out.append(phase)
            continue
        share = votes[0][i] / told[i]
        out.append("decode" if share >= _CLEAR else "prefill" if share <= 1 - _CLEAR else "mixed")
    return tuple(out)


def workload(names: Names, time: dict[str, float], step_names_known: bool) -> str:
    """What the capture seems to hold: LLM inference, model inference, training, a single kernel
    test or GPU compute. `time` is kernel time by family."""
    whole = sum(time.values())
    if not whole:
        return "no GPU kernels"

    def share(*families: str) -> float:
        return sum(time.get(f, 0.0) for f in families) / whole

    backward = any("backward" in t.lower() or "_bwd" in t.lower() for t in names.texts)
    if time.get("optimizer", 0.0) or backward:
        return "training"
    if len(names.ids) <= 3 and not step_names_known:
        return "single kernel test"
    matmul = share("gemm", "gemv", "conv", "moe", "attention")
    transformer = {"attention", "rope", "kv_cache", "gemv", "sampling"} & set(time)
    if step_names_known and matmul > 0.1:
        return "LLM inference"
    if matmul > 0.2 and transformer and ({"norm", "softmax"} & set(time) or "gemv" in time):
        return "LLM inference"
    return "model inference" if matmul > 0.2 else "GPU compute"
