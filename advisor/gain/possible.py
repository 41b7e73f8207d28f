"""What a step without the profiler can take at least and at most."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from advisor.gain import limits
from advisor.metrics.budgeted.budget import PARTS
from advisor.metrics.budgeted.sharing import threads_elsewhere
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage, union, union_by
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, distinct


class Possible(Struct, frozen=True):
    """What bounds a mean step of the window, ns: the GPU's own work, the traced step, and the part of that in
    which the device waited for the profiler."""

    gpu_ns: float
    traced_ns: float
    profiler_ns: float

    def step(self, replayed: float) -> float:
        """A replayed step without a fix, within what it can be."""
        return min(max(replayed, self.gpu_ns), self.traced_ns)

    def with_fixes(self, before: float, after: float) -> float:
        """The replayed step `after` fixes, if the one `before` them is what it can be. What that was too long
        by goes out of the time that fixes remove, so that the rest takes as long as replayed; but fixes keep
        `KEPT_SPEEDUP` of their speed-up (its logarithm)."""
        step = self.step(before)
        if step >= before or after >= before:
            return after * (step / before) if before > 0.0 else after
        return min(after, step * math.pow(after / before, limits.KEPT_SPEEDUP))

    def lost(self, step: float, share: float) -> float:
        """How much of such a step is this share of the time in which the device waited for the profiler: it
        goes wherever fixes leave the device waiting."""
        return min(step - (self.traced_ns - share * self.profiler_ns), step - self.gpu_ns)


def busy_ns(a: Stepped, at: Array) -> float:
    """How long the busiest device ran these operations in the window, ns."""
    ops, window = a.ops, a.window
    start, end = ops.start[at], ops.end[at]
    np.maximum(start, window.start, out=start)
    np.maximum(start, np.minimum(end, window.end, out=end), out=end)
    busy = union_by(ops.device[at], start, end).values()
    return float(max((spans.total for spans in busy), default=0))


def gpu_ns(a: Stepped, inflation: float) -> float:
    """Time in which kernels, copies and memsets of the process ran in a mean step of the window, ns, kernels
    as long as they are untraced: tracing made those of graphs `inflation` times as long. Copies that run
    beside kernels for the most part may do so all the time where the host is faster."""
    steps = a.window_steps
    inside = np.isin(a.steps.op_step, steps)
    if not a.selection.phase:  # beside the steps, such as copies of other threads
        inside |= a.in_window & (a.steps.op_step < 0) & (a.ops.process == a.main_process)
    if threads_elsewhere(a) is not None:  # the other devices work on their own
        inside &= a.ops.device == a.main_device
    mine = np.flatnonzero(inside)
    mine = mine[~_beside_kernels(a, mine)]
    busy = busy_ns(a, mine)
    if inflation > 1.0:
        busy -= busy_ns(a, mine[a.ops.kind[mine] == Kind.KERNEL]) * (1 - 1 / inflation)
    return busy / len(steps)


def _beside_kernels(a: Loaded, at: Array) -> Array:
    """Which of these operations are copies on a stream whose copies run beside kernels for at least
    `BESIDE_RATIO` of their time."""
    ops = a.ops.take(at)
    copies, kernels = ops.kind == Kind.COPY, ops.kind == Kind.KERNEL
    out = np.zeros(len(at), bool)
    for device in distinct(ops.device[copies]).tolist():
        here = kernels & (ops.device == device)
        beside = Coverage(union(ops.start[here], ops.end[here]))
        for stream in distinct(ops.stream[copies & (ops.device == device)]).tolist():
            mine = copies & (ops.device == device) & (ops.stream == stream)
            ran = union(ops.start[mine], ops.end[mine])
            if beside.within(ran.start, ran.end).sum() >= limits.BESIDE_RATIO * max(ran.total, 1):
                out |= mine
    return out


def profiler_ns(a: Budgeted) -> float:
    """Time in which the device waited for the profiler in a mean step of the window, ns."""
    if a.main_device not in a.budgets:
        return 0.0
    held = a.budgets[a.main_device].by_step[a.window_steps, PARTS.index("profiler")]
    return float(held.mean()) if len(held) else 0.0
