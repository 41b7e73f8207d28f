"""Layers of experts that are built of single operators: top-k, grouping, products, combine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.knowledge.files import KernelFamily
from advisor.metrics.analysis import Analysis
from advisor.model.arrays import Array

_GROUPING = frozenset(("sort", "histogram", "select / compact"))
_COMBINE = frozenset(("index_add", "gather / scatter"))


@dataclass(frozen=True)
class LooseExperts:
    """Kernels a step that choose the experts of a token (`topk`), group tokens by expert
    (`grouping`) and add results up (`combine`). `start` and `end` (ns) of each stretch from a top-k
    to the last combining kernel before the next one of its step; `kernels` counts those inside."""

    topk: float
    grouping: float
    combine: float
    start: Array
    end: Array
    kernels: Array


def loose_experts(a: Analysis, device: int) -> LooseExperts | None:
    """None where the capture has no steps or the device no kernels in them."""
    at = a.device_kernels(device)
    at = at[a.steps.op_step[at] >= 0]
    if not a.step_count or len(at) == 0:
        return None

    def rows(wanted: frozenset[str], family: str) -> Array:
        def is_one(kernel: KernelFamily) -> bool:
            return kernel.family == family and kernel.operation in wanted

        return np.flatnonzero(a.names.mask(is_one)[a.op_name[at]])

    topk = rows(frozenset(("top-k",)), "scan_sort")
    grouping, combine = rows(_GROUPING, "scan_sort"), rows(_COMBINE, "index")
    step = a.steps.op_step[at]
    # The last combining kernel before the next top-k.
    last = np.searchsorted(combine, np.append(topk[1:], len(at))[: len(topk)]) - 1
    opens, closes = topk[last >= 0], combine[last[last >= 0]]
    whole = (closes > opens) & (step[closes] == step[opens])
    opens, closes = opens[whole], closes[whole]
    steps = a.step_count
    return LooseExperts(
        len(topk) / steps,
        len(grouping) / steps,
        len(combine) / steps,
        a.ops.start[at[opens]],
        a.ops.end[at[closes]],
        closes - opens + 1,
    )
