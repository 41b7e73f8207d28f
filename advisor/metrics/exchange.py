"""Gaps in which the host computes on what the GPU hands it, and hands the result back."""

from __future__ import annotations

import numpy as np

from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import DeviceBudget
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array
from advisor.sources.schema import DTOH, HTOD, MISSING

#: What is copied is data from this size on (bytes); less is a token or a flag (calibration#exchange).
_DATA = 4096


def exchanges(a: Analysis, budget: DeviceBudget) -> tuple[Array, Array]:
    """Masks of the gaps that begin with the end of a copy of data to the host and end with a copy to
    the device, and of those among them whose copy to the device is data as well."""
    mine = np.flatnonzero(a.ops.device == budget.device)
    ops = a.ops.take(mine)
    copied, direction = np.zeros(len(ops), np.int64), np.zeros(len(ops), np.int64)
    copies = ops.kind == Kind.COPY
    columns = a.trace.columns("copies", ("kind", "bytes"))
    direction[copies] = columns["kind"][ops.row[copies]]
    copied[copies] = columns["bytes"][ops.row[copies]]
    before, after = budget.gaps.prev_op, budget.gaps.next_op
    known = (before != MISSING) & (after != MISSING)
    down = known & (direction[before] == DTOH) & (copied[before] >= _DATA)
    both = down & (direction[after] == HTOD)
    return both, both & (copied[after] >= _DATA)
