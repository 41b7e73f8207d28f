"""Work that some steps run beyond all that the others do: an encoder between decodes, a prompt that no range
marks, an optimiser step after several passes."""

from __future__ import annotations

import numpy as np

from advisor.metrics import limits
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, median_of


def work_besides(a: Stepped, steps: Array) -> Array:
    """ns of kernels that each of these steps (positions in `a.steps`), ascending, runs beyond the median
    calls of each kernel (steps by names of `a.names`), where it runs all the others do.

    A step of another batch or phase runs other kernels in place of the usual ones: it has none."""
    # By time: what ends before a step does, launched in its range or before it, makes its end late.
    of = np.searchsorted(a.steps.gpu_end[steps], a.ops.start, "right")
    begin = np.append(a.steps.begin[steps], np.iinfo(np.int64).max)[of]
    at = np.flatnonzero((a.ops.start >= begin) & (a.op_name >= 0) & (a.ops.device == a.main_device))
    names = len(a.names.ids)
    cell = of[at] * names + a.op_name[at]
    count, time = (
        np.bincount(cell, each, minlength=len(steps) * names).reshape(len(steps), names)
        for each in (None, a.ops.length[at])
    )
    usual = np.median(count, axis=0)
    missing = np.maximum(usual - count, 0).sum(axis=1)
    out: Array = time * (np.maximum(count - usual, 0) / np.maximum(count, 1))
    out[missing > limits.kernels.MISSING_WORK_RATIO * usual.sum()] = 0
    return out


def other_work(a: Stepped, steps: Array, times: Array) -> Array:
    """ns of such kernels by step and name; none in steps (of these `times`, ns) that run little of them."""
    usual = median_of(times) if len(times) >= limits.kernels.EVEN_STEPS else np.inf
    if not (times > (1 + limits.kernels.BESIDES_RATIO) * usual).any():
        return np.zeros((len(steps), len(a.names.ids)))
    found = work_besides(a, steps)
    found[found.sum(axis=1) < limits.kernels.BESIDES_RATIO * usual] = 0
    return found
