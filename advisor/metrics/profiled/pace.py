"""Calls of the same kernels: how fast they run in the last steps beside the first, and on the devices of a
job."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.budgeted.budget import BUSY_COLUMNS, PARTS
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.step_times import JudgedSteps
from advisor.metrics.loaded.kernels import ATTENTION, MATMUL, call_key, dense, distribution, launch_shape
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.profiled.stage import Profiled
from advisor.model.arrays import Array, marked, median_of, rows_at


def alike_ratio(time: Array, change: Array, mean: float) -> float:
    """Share of the time (by kernel) in kernels whose `change` is at least half of the mean change."""
    return float(time[change >= limits.kernels.LIKE_THE_REST_RATIO * mean].sum() / max(time.sum(), 1.0))


# --- kernels that other devices of a job run as well ----------------------------------------------

#: Number of kernels compared, the heaviest first: they hold nearly all of the time of real models.
_MOST = 200


class KernelPace(Struct, frozen=True):
    """One kernel with one launch shape: calls and time (ns) a step, or in the window where no steps
    are known, and the median duration (ns). `key` is the same on every rank."""

    key: int
    name: str
    calls: float
    time: float
    median: float
    family: str = ""


def kernel_paces(a: Budgeted, device: int) -> tuple[KernelPace, ...]:
    """The heaviest kernels of the device in the window, without communication."""
    at = a.device_kernels(device)
    at = at[~a.communication[at]]
    if not len(at) or a.trace.summed:
        return ()
    name, shape = a.op_name[at], launch_shape(a.trace, a.ops.row[at])
    keys, group = dense(call_key(name, shape))
    spread = distribution(group, a.ops.length[at], len(keys))
    of = np.zeros((2, len(keys)), np.int64)  # name and shape of each group
    of[:, group] = name, shape
    steps = max(a.step_count, 1)
    most = np.argsort(-spread.total, kind="stable")[:_MOST]
    columns, families = (*of, spread.count / steps, spread.total / steps, spread.p50), a.names.families
    return tuple(
        KernelPace(
            key=crc32(f"{a.names.texts[i]} {shape_of}".encode()),
            name=a.names.short[i],
            calls=calls,
            time=time,
            median=median,
            family=families[i],
        )
        for i, shape_of, calls, time, median in rows_at(most, *columns)
    )


# --- steps that get longer or shorter from the first to the last ----------------------------------


class Drift(Struct, frozen=True):
    """Change from the first third of the steps to the last; positive is longer.

    `change`: of the median step over the first third's; `order`: rank correlation of step times with
    their order, -1 to 1; `kernels` and `idle`: share of the change that like kernels, and idle time,
    make; `alike`: share of the kernel time in kernels that changed along with the rest, which changed
    by `kernel_change`; `lost_ns`: time above the median of the `fastest` steps, over all.
    """

    steps: int
    change: float
    order: float
    kernels: float
    idle: float
    alike: float
    kernel_change: float
    lost_ns: float


def find_drift(a: Budgeted, device: int) -> Drift | None:
    """None for fewer than `DRIFT_STEPS` steps of the commonest phase."""
    inside, _ = a.kernels(device).of_one_phase
    number, step = dense(a.kernels(device).step[inside])
    step = step.astype(np.int32)
    count, third = len(number), len(number) // 3
    if count < limits.kernels.DRIFT_STEPS:
        return None
    held = a.budgets[device].by_step[number]
    times = held.sum(axis=1) - held[:, PARTS.index("profiler")]
    busy = held[:, BUSY_COLUMNS].sum(axis=1)
    first, last = np.arange(count) < third, np.arange(count) >= count - third
    before, after = median_of(times[first]), median_of(times[last])
    grown = after - before
    kernels, alike, mean = _of_like_kernels(a, device, inside, first[step], last[step], third, grown)
    idle = float(median_of((times - busy)[last]) - median_of((times - busy)[first]))
    return Drift(
        steps=count,
        change=grown / max(before, 1.0),
        order=rank_correlation(times),
        kernels=kernels,
        idle=_share(idle, grown),
        alike=alike,
        kernel_change=mean,
        lost_ns=float(np.maximum(times - median_of(times[fastest(count, grown)]), 0).sum()),
    )


def fastest(count: int, change: float) -> Array:
    """Which of so many steps were taken before their time changed: a few at the shorter end."""
    few = max(count // limits.kernels.FASTEST_PART, limits.kernels.FASTEST_STEPS)
    return np.arange(few) if change > 0 else np.arange(count - few, count)


class SlowSteps(Struct, frozen=True):
    """How the `count` steps that are slower than the rest, of which they are the share `ratio`, differ from
    them: `kernels` is the share of the difference that like kernels make, `alike` the share of kernel time in
    kernels that changed along with the rest, which changed by `kernel_change`; `lost_ns`: their time above
    the median."""

    count: int
    ratio: float
    lost_ns: float
    kernels: float
    alike: float
    kernel_change: float


def slower_steps(a: Profiled) -> JudgedSteps | None:
    """The steps of :meth:`Profiled.slow_steps`, also those slow that are not far slower than the rest, but by
    more than these differ among themselves. Only who compares their kernels knows that they do the same."""
    found = a.slow_steps
    if found is None or len(found[1]) < limits.kernels.EVEN_STEPS:
        return found
    step, times, slow = found
    median = median_of(times)
    spread = limits.kernels.DEVIATIONS_OF_MEDIAN * median_of(np.abs(times - median))
    spread = max(spread, limits.kernels.LEAST_SPREAD_RATIO * median)
    more = slow | (times > median + limits.kernels.OUTLYING_DEVIATIONS * spread)
    return (step, times, more) if 2 * more.sum() <= len(more) else found


def compare_slower(a: Budgeted, found: JudgedSteps) -> SlowSteps | None:
    """How the slower ones of these steps (`slower_steps`) differ from the rest; None if none or most are."""
    step, times, slow = found
    if not 0 < (count := int(slow.sum())) <= len(slow) // 2:
        return None
    kernels = a.kernels(a.main_device)
    inside, _ = kernels.of_one_phase
    usual, slower = (marked(len(a.steps), step[mine])[kernels.step[inside]] for mine in (~slow, slow))
    others, grown = len(step) - count, float(times[slow].mean() - times[~slow].mean())
    part, alike, mean = _of_like_kernels(
        a, a.main_device, inside, usual, slower, others, grown, others / count
    )
    return SlowSteps(
        count=count,
        ratio=count / len(step),
        lost_ns=float((times[slow] - median_of(times)).sum()),
        kernels=part,
        alike=alike if mean > 0 else 0.0,
        kernel_change=mean,
    )


def _share(part: float, whole: float) -> float:
    return float(np.clip(part / whole, 0.0, 1.0)) if whole else 0.0


def _same_sizes(a: Loaded, name: Array, group: Array, calls: list[Array], like: Array) -> bool:
    """Whether the kernels whose launches follow the number of tokens were launched with the same shapes on
    both sides: most of their calls are `like`. Products often run as many blocks as the device has SMs,
    whatever their size, and attention grows with the context, so neither tells; without others nothing
    speaks against it."""
    of_group = np.zeros(len(like), np.int64)
    of_group[group] = name
    by_rows = ~a.names.mask(lambda k: k.family in MATMUL | ATTENTION)[of_group]
    counted = (calls[0] + calls[1]) * by_rows
    return bool(2 * counted[like].sum() >= counted.sum())


def _of_like_kernels(
    a: Budgeted,
    device: int,
    inside: Array | slice,
    first: Array,
    last: Array,
    steps: int,
    grown: float,
    times: float = 1.0,
) -> tuple[float, float, float]:
    """What like kernels (one name and launch shape, called about equally often in the first and the last
    steps) make of the time `grown` (ns) by which a step changes: their share of it, the share of their time
    in those that change along with the rest, and by how much they all change. `first` and `last` are masks
    over the kernels `inside`; there are so many first `steps`, `times` as many as last ones. Nothing is said
    (three zeros) of steps whose launches show work of other sizes."""
    kernels = a.kernels(device)
    group = dense(call_key(kernels.name[inside], kernels.shape[inside]))[1]
    size = int(group.max(initial=-1)) + 1
    thirds = [(group[mine], kernels.length[inside][mine]) for mine in (first, last)]
    time = [np.bincount(of, length, size) for of, length in thirds]
    calls = [np.bincount(of, minlength=size) * n for (of, _), n in zip(thirds, (1, times), strict=True)]
    like = (calls[0] > 0) & (np.abs(calls[1] - calls[0]) <= limits.kernels.LIKE_CALLS_RATIO * calls[0])
    if not _same_sizes(a, kernels.name[inside], group, calls, like):
        return 0.0, 0.0, 0.0
    old, new = time[0][like], time[1][like] * calls[0][like] * times / np.maximum(calls[1][like], 1)
    mean = float((new - old).sum() / max(old.sum(), 1.0))
    change = (new / np.maximum(old, 1.0) - 1) * np.sign(mean)
    return _share(float((new - old).sum()) / steps, grown), alike_ratio(old, change, abs(mean)), mean


def rank_correlation(values: Array) -> float:
    """Spearman's rank correlation of values with their order, -1 to 1; 0 if all are equal."""
    value, back, count = np.unique(values, return_inverse=True, return_counts=True)
    if len(value) < 2:
        return 0.0
    rank = (np.cumsum(count) - (count - 1) / 2)[back]  # equal values share their mean rank
    return float(np.corrcoef(rank, np.arange(len(values)))[0, 1])


def trend_ratio(duration: Array) -> float | None:
    """Share of the time above the median of similar calls that disappears when each run of calls is
    compared with its own median, if the runs drift; 0 if they do not. None for too few calls."""
    runs = min(limits.kernels.DRIFT_RUNS, len(duration) // limits.kernels.DRIFT_RUN_CALLS)
    if runs < limits.kernels.DRIFT_RUNS // 2:
        return None
    parts = np.array_split(duration, runs)
    medians = np.array([median_of(p) for p in parts])
    if abs(rank_correlation(medians)) < limits.kernels.DRIFT_ORDER:
        return 0.0
    whole = float(np.maximum(duration - median_of(duration), 0).sum())
    left = sum(float(np.maximum(p - m, 0).sum()) for p, m in zip(parts, medians, strict=True))
    return max(1.0 - left / whole, 0.0) if whole else 0.0
