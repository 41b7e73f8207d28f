"""What-ifs on the speed of the GPU: kernels that take longer in some steps, or more and more."""

from __future__ import annotations

import numpy as np

from advisor.gain import limits
from advisor.gain.changes import what_if
from advisor.gain.inputs import NONE, Inputs
from advisor.gain.profiler import Scenario
from advisor.gain.replay_ops import NoEstimate, Work
from advisor.gain.whatifs import Fix
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded.kernels import call_key, dense
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.profiled.pace import fastest, find_drift, slower_steps
from advisor.metrics.profiled.stage import Profiled
from advisor.model.arrays import Array, distinct, marked


@what_if()
def even_gpu_speed(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Kernels of one name and launch shape take as long a call in every step as in the fast ones, in the
    median of these; pessimistic in their slower quarter, optimistic in their faster one."""
    a = work.a
    fast, slow = _drifting(a) if fix.params["of"] == "drift" else _slow_at_times(a)
    step = inputs.ops.step
    mine = (work.kind == Kind.KERNEL) & ~work.communication & (work.device == a.main_device)
    mine &= (step != NONE) & marked(len(a.steps) + 1, slow)[step]
    factor = np.ones(len(step))
    factor[mine] = _shorter(work, mine, fast, limits.FAST_STEPS_QUANTILE[lean + 1])
    if not (factor < 1).any():
        raise NoEstimate("the replayed steps hold none of the slow ones")
    return inputs.with_ops(duration=inputs.ops.duration * factor)


def _slow_at_times(a: Profiled) -> tuple[Array, Array]:
    """Positions of the steps of usual length, and of those that are slower."""
    found = slower_steps(a)
    if found is None or not found[2].any() or found[2].all():
        raise NoEstimate("no step is slower than the rest")
    step, _, slow = found
    return step[~slow], step[slow]


def _drifting(a: Budgeted) -> tuple[Array, Array]:
    """The first or last steps of this phase, at whichever end the GPU is faster, and all others."""
    found = find_drift(a, a.main_device)
    if found is None:
        raise NoEstimate("there are too few steps of one phase")
    kernels = a.kernels(a.main_device)
    inside, _ = kernels.of_one_phase
    step = distinct(kernels.step[inside])
    few = fastest(len(step), found.change)
    fast = marked(len(step), few)
    return step[fast], step[~fast]


def _shorter(work: Work, mine: Array, fast: Array, quantile: float) -> Array:
    """What remains of the time of each of these replayed kernels: a quantile of the mean call of its kernel
    in a fast step, over that of the mean call in its own step; at most 1."""
    a = work.a
    kernels = a.kernels(a.main_device)
    group = dense(call_key(kernels.name, kernels.shape))[1]
    steps = len(a.steps)
    key, each = dense(group.astype(np.int64) * (steps + 1) + kernels.step + 1)
    mean = np.bincount(each, kernels.length, len(key)) / np.bincount(each, minlength=len(key))
    of_group, of_step = np.divmod(key, steps + 1)
    usual = np.full(int(group.max(initial=-1)) + 1, np.inf)
    known = marked(steps + 1, fast + 1)[of_step]
    for one in distinct(of_group[known]).tolist():
        usual[one] = np.quantile(mean[known & (of_group == one)], quantile)
    at = np.minimum(np.searchsorted(kernels.at, work.at[mine]), len(kernels.at) - 1)
    own = mean[each[at]]
    found = (kernels.at[at] == work.at[mine]) & (own > 0)
    return np.where(found, np.minimum(usual[group[at]] / np.maximum(own, 1.0), 1.0), 1.0)
