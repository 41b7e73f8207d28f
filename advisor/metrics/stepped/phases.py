"""Phases of the steps of a language model: prefill, decode, mixed.

The name of a step's range decides if it can. Else, in this order: attention kernels made for one phase; the
number of attention blocks per token; the number of tokens; the shape of the matrix products. The shape
comes last, as a decode of 64 sequences needs wide products too, and the products of experts are wide
however few tokens each of them gets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from advisor.knowledge.files import KernelFamily, step_patterns
from advisor.metrics import limits
from advisor.metrics.loaded.kernels import Names, sums_of
from advisor.metrics.loaded.operations import Kind, Operations
from advisor.metrics.steps.model import Steps
from advisor.model.arrays import Array
from advisor.sources.schema import Summed
from advisor.sources.trace import Trace


def guess_phases(trace: Trace, names: Names, group: Array, groups: int) -> tuple[str, ...]:
    """The phase indicated by the kernels of each group. `group` has one entry a kernel row, -1 for rows
    outside; ``unknown`` if nothing shows it."""
    start, end, grid = trace.columns("kernels", ("start", "end", "blocks")).values()

    def rows(wanted: Callable[[KernelFamily], bool]) -> Array:
        return np.asarray((group >= 0) & names.mask(wanted)[names.index])

    def time(wanted: Callable[[KernelFamily], bool]) -> Array:
        mine = np.flatnonzero(rows(wanted))
        return np.bincount(group[mine], (end[mine] - start[mine]).astype(float), groups)

    def median_blocks(wanted: Callable[[KernelFamily], bool]) -> Array:
        """NaN if unknown; of two the lower one: a norm of each head has more rows than there are tokens."""
        mine = np.flatnonzero(rows(wanted) & (grid > 0))
        count = np.bincount(group[mine], minlength=groups)
        ranked = grid[mine[np.lexsort((grid[mine], group[mine]))]]
        middle = np.cumsum(count) - count + (count - 1) // 2
        return np.where(count > 0, np.append(ranked, np.nan)[middle], np.nan)

    decode = time(lambda k: k.family == "attention" and k.phase == "decode")
    prefill = time(lambda k: k.family == "attention" and k.phase == "prefill")
    few_rows = time(lambda k: k.family == "gemv" or (k.family == "gemm" and "skinny" in k.traits))
    products = few_rows + time(lambda k: k.family == "gemm" and "skinny" not in k.traits)
    tokens = median_blocks(lambda k: "row_blocks" in k.traits)
    blocks = median_blocks(lambda k: k.family == "attention")
    with np.errstate(invalid="ignore"):  # NaN fits no case
        share, few = decode / (decode + prefill), few_rows / products
    cases = (
        ((share > limits.kernels.MIXED_RATIO) & (share < 1 - limits.kernels.MIXED_RATIO), "mixed"),
        (tokens > limits.kernels.DECODE_SEQUENCES, "prefill"),
        ((share >= 0.5) | (blocks / tokens >= limits.kernels.DECODE_BLOCKS), "decode"),
        # Attention for many queries also serves a batch of single ones if its heads fill the GPU.
        ((share < 0.5) & ~(few >= limits.kernels.CLEAR_RATIO), "prefill"),
        (tokens <= limits.kernels.DECODE_TOKENS, "decode"),
        (products == 0, "unknown"),
        (few >= limits.kernels.CLEAR_RATIO, "decode"),
        (few <= 1 - limits.kernels.CLEAR_RATIO, "prefill"),
    )
    found = np.select([mask for mask, _ in cases], [phase for _, phase in cases], "mixed")
    return tuple(found.tolist())


def with_phases(
    steps: Steps, trace: Trace, ops: Operations, names: Names, language_model: bool | None
) -> Steps:
    """Steps with the phase of their kernels if their ranges name none. Programs that are no language model
    have no phases; None: only ranges are known."""
    if language_model is False:
        return replace(steps, phase=("unknown",) * len(steps))
    if language_model is None or "unknown" not in steps.phase:
        return steps
    kernel = ops.kind == Kind.KERNEL
    group = np.full(len(names.index), -1, np.int64)
    group[ops.row[kernel]] = steps.op_step[kernel]
    guess = guess_phases(trace, names, group, len(steps))
    phase = tuple(g if p == "unknown" else p for p, g in zip(steps.phase, guess, strict=True))
    return replace(steps, phase=phase)


def phase_times(steps: Steps, trace: Trace, names: Names) -> tuple[tuple[str, ...], Array]:
    """Phases of the steps and the time (ns) of each; if no step has one, the phase indicated by the kernels
    of the whole capture, and in sums the time of the ranges that name one."""
    if trace.summed:
        ranges = sums_of(trace, Summed.RANGES)
        found = [step_patterns().step(name) for name in ranges.names]
        return tuple((hit and hit.phase) or "unknown" for hit in found), ranges.total
    if set(steps.phase) - {"unknown"} or not trace.has("kernels"):
        return steps.phase, np.asarray(steps.gpu_end - steps.gpu_start)
    return guess_phases(trace, names, np.zeros(len(names.index), np.int64), 1), np.ones(1)
