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
    """How many kernels choose the experts of a token (`topk`), group tokens by expert
    (`grouping`) and add results up (`combine`). `start` and `end` (ns) of each stretch from a top-k
    to the last combining kernel before the next one of its step; `kernels` counts those inside."""

    topk: int
    grouping: int
    combine: int
    start: Array
    end: Array
    kernels: Array


def loose_experts(a: Analysis, device: int) -> LooseExperts | None:
    """In the steps of the window, else in all of it; None where the device has no kernels there."""
    at = a.device_kernels(device)
    step = a.steps.op_step[at] if a.step_count else np.zeros(len(at), np.int64)
    at, step = at[step >= 0], step[step >= 0]
    if len(at) == 0:
        return None

    def rows(wanted: frozenset[str], family: str) -> Array:
        def is_one(kernel: KernelFamily) -> bool:
            return kernel.family == family and kernel.operation in wanted

        return np.flatnonzero(a.names.mask(is_one)[a.op_name[at]])

    topk = rows(frozenset(("top-k",)), "scan_sort")
    grouping, combine = rows(_GROUPING, "scan_sort"), rows(_COMBINE, "index")
    # The last combining kernel before the next top-k.
    last = np.searchsorted(combine, np.append(topk[1:], len(at))[: len(topk)]) - 1
    opens, closes = topk[last >= 0], combine[last[last >= 0]]
    whole = (closes > opens) & (step[closes] == step[opens])
    opens, closes = opens[whole], closes[whole]
    return LooseExperts(
        len(topk),
        len(grouping),
        len(combine),
        a.ops.start[at[opens]],
        a.ops.end[at[closes]],
        closes - opens + 1,
    )
