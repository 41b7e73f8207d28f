"""How fast the same kernels run: in the last steps beside the first, and on the devices of a job."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from msgspec import Struct

from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import BUSY_PARTS, PARTS
from advisor.metrics.kernels import call_key, dense, distribution, launch_shape
from advisor.metrics.phases import kernels_of_one_phase
from advisor.model.arrays import Array

#: A kernel changes like the rest where it changes by at least this part of the mean change.
_LIKE = 0.5


def alike_ratio(time: Array, change: Array, mean: float) -> float:
    """Share of the time (by kernel) in kernels whose `change` is at least half of the mean change."""
    return float(time[change >= _LIKE * mean].sum() / max(time.sum(), 1.0))


# --- kernels that other devices of a job run as well ----------------------------------------------

#: Kernels that are compared, the heaviest first: they hold nearly all of the time of real models.
_MOST = 200


class KernelPace(Struct, frozen=True):
    """One kernel with one launch shape: calls and time (ns) a step, or in the window where no steps
    are known, and the median duration (ns). `key` is the same on every rank."""

    key: int
    name: str
    calls: float
    time: float
    median: float


def kernel_paces(a: Analysis, device: int) -> tuple[KernelPace, ...]:
    """The heaviest kernels of the device in the window, without communication."""
    at = a.device_kernels(device)
    at = at[~a.communication[at]]
    if not len(at) or a.trace.summed:
        return ()
    shape = launch_shape(a.trace, a.ops.row[at])
    keys, group = dense(call_key(a.op_name[at], shape))
    spread = distribution(group, (a.ops.end - a.ops.start)[at], len(keys))
    example = np.zeros(len(keys), np.int64)
    example[group] = np.arange(len(at))
    steps = max(a.step_count, 1)
    return tuple(
        KernelPace(
            crc32(f"{a.names.texts[a.op_name[at[example[i]]]]} {shape[example[i]]}".encode()),
            a.names.short[a.op_name[at[example[i]]]],
            int(spread.count[i]) / steps,
            float(spread.total[i]) / steps,
            float(spread.p50[i]),
        )
        for i in np.argsort(-spread.total, kind="stable")[:_MOST].tolist()
    )


# --- steps that get longer or shorter from the first to the last ----------------------------------


#: Fewer steps than this show no drift: each third holds at least four.
MIN_STEPS = 12
#: Like calls are compared in so many runs of equal length, of at least five calls each.
_RUNS, _RUN = 8, 5
#: Runs that drift keep their order in rank: two levels in a row of eight reach 0.87.
_IN_ORDER = 0.8


class Drift(Struct, frozen=True):
    """Change from the first third of the steps to the last; positive is longer.

    `change`: of the median step over the first third's; `order`: rank correlation of step times with
    their order, -1 to 1; `kernels` and `idle`: share of the change that like kernels, and idle time,
    make; `alike`: share of the kernel time in kernels that changed along with the rest, which changed
    by `kernel_change`; `lost_ns`: time above the faster third's median, over all steps.
    """

    steps: int
    change: float
    order: float
    kernels: float
    idle: float
    alike: float
    kernel_change: float
    lost_ns: float


def find_drift(a: Analysis, device: int) -> Drift | None:
    """None for fewer than `MIN_STEPS` steps of the commonest phase."""
    at, _ = kernels_of_one_phase(a, device)
    held = a.budgets[device].by_step
    number, step = dense(a.steps.op_step[at])
    count = len(number)
    if count < MIN_STEPS:
        return None
    times = held[number].sum(axis=1)
    busy = held[number][:, [PARTS.index(p) for p in BUSY_PARTS]].sum(axis=1)
    third = count // 3
    first, last = np.arange(count) < third, np.arange(count) >= count - third
    before, after = float(np.median(times[first])), float(np.median(times[last]))
    grown = after - before
    old, new, ratio = _like_kernels(a, at, step, first, last)
    mean = float((new - old).sum() / max(old.sum(), 1.0))
    idle = float(np.median((times - busy)[last]) - np.median((times - busy)[first]))
    return Drift(
        steps=count,
        change=grown / max(before, 1.0),
        order=rank_correlation(times),
        kernels=_share(float((new - old).sum()) / third, grown),
        idle=_share(idle, grown),
        alike=alike_ratio(old, (ratio - 1) * np.sign(mean), abs(mean)),
        kernel_change=mean,
        lost_ns=float(np.maximum(times - min(before, after), 0).sum()),
    )


def _share(part: float, whole: float) -> float:
    return float(np.clip(part / whole, 0.0, 1.0)) if whole else 0.0


def _like_kernels(
    a: Analysis, at: Array, step: Array, first: Array, last: Array
) -> tuple[Array, Array, Array]:
    """Time (ns) in the first and the last third, and the ratio of the mean durations, of each kernel
    name and launch shape that is called about as often in both."""
    group = dense(call_key(a.op_name[at], launch_shape(a.trace, a.ops.row[at])))[1]
    duration = (a.ops.end - a.ops.start)[at]
    size = int(group.max(initial=-1)) + 1
    time, calls = (
        [np.bincount(group[mine], weights[mine], minlength=size) for mine in (first[step], last[step])]
        for weights in (duration, np.ones(len(duration)))
    )
    like = (calls[0] > 0) & (np.abs(calls[1] - calls[0]) <= 0.1 * calls[0])
    old, new = time[0][like], time[1][like] * calls[0][like] / np.maximum(calls[1][like], 1)
    return old, new, new / np.maximum(old, 1.0)


def rank_correlation(values: Array) -> float:
    """Spearman's rank correlation of values with their order, -1 to 1; 0 where all are equal."""
    value, back, count = np.unique(values, return_inverse=True, return_counts=True)
    if len(value) < 2:
        return 0.0
    rank = (np.cumsum(count) - (count - 1) / 2)[back]  # equal values share their mean rank
    return float(np.corrcoef(rank, np.arange(len(values)))[0, 1])


def trend_ratio(duration: Array) -> float | None:
    """Share of the time above the median of like calls, in their order, that goes when each run of calls is
    compared with its own median, where the runs drift; 0 where they do not. None for too few calls."""
    runs = min(_RUNS, len(duration) // _RUN)
    if runs < _RUNS // 2:
        return None
    parts = np.array_split(duration, runs)
    medians = np.array([np.median(p) for p in parts])
    if abs(rank_correlation(medians)) < _IN_ORDER:
        return 0.0
    whole = float(np.maximum(duration - np.median(duration), 0).sum())
    left = sum(float(np.maximum(p - m, 0).sum()) for p, m in zip(parts, medians, strict=True))
    return max(1.0 - left / whole, 0.0) if whole else 0.0
