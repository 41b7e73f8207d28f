"""What runs beside collectives, and what runs without any."""

from __future__ import annotations

import numpy as np

from advisor.metrics import limits
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage, union
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, distinct


def uncovered(a: Stepped, at: Array) -> Array:
    """Share (0..1) of the captured time of each of these operations, positions in `ops`, in which, in the
    window, no collective of its device runs."""
    ops, window, out = a.ops, a.window, np.zeros(len(at))
    start, end = (np.clip(t[at], window.start, window.end) for t in (ops.start, ops.end))
    length = np.maximum(ops.length[at], 1)
    for device in distinct(ops.device[at]).tolist():
        mine = ops.device[at] == device
        held = a.communication & (ops.device == device)
        beside = Coverage(union(ops.start[held], ops.end[held])).within(start[mine], end[mine])
        out[mine] = (end[mine] - start[mine] - beside) / length[mine]
    return out


def overlaps(a: Budgeted) -> bool:
    """Whether other kernels run beside `OVERLAPPING_RATIO` of the time of collectives in the window."""
    beside, whole = 0, 0
    for device, budget in a.budgets.items():
        at = np.flatnonzero(a.communication & (a.ops.device == device) & a.in_window)
        start, end = a.ops.start[at], a.ops.end[at]
        beside += int(Coverage(budget.compute).within(start, end).sum())
        whole += int((end - start).sum())
    return beside >= limits.kernels.OVERLAPPING_RATIO * max(whole, 1)
