"""Sampled GPU activity, attributed to kernels.

A 100 us sample covers some 40 decode kernels, so no sample belongs to one kernel. Samples are a
mixture: activity = sum over families of (time share in the sample's interval) x (activity inside
that family). Solved by least squares with bounds 0..1 for each kernel and launch shape that
matters: large GEMMs come out at 87-93 % DRAM where the window mean says 50 %.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.metrics.design import Runs, bounded_least_squares, robust_covariance
from advisor.metrics.intervals import Coverage, Spans
from advisor.metrics.kernels import Names, dense, is_unknown
from advisor.metrics.window import Window
from advisor.model.arrays import Array, grouped, median_of
from advisor.sources.schema import MISSING, SAMPLE_RATIOS
from advisor.sources.trace import Trace

#: A group is resolved when the standard error of its activity is at most this.
RESOLVED_ERROR = 0.05
#: A level whose error is at most this still shows on which side of a limit a kernel probably is.
LIKELY_ERROR = 0.15
#: Families that are split by kernel and launch shape.
HEAVY = frozenset(("gemm", "gemv", "attention", "moe", "conv"))
#: Groups with less than this share of the kernel time (five times it for lighter families) go into
#: ``rest``.
_MIN_SHARE = 0.02
_MAX_GROUPS = 12
#: Above this correlation the samples cannot tell the groups apart.
_MAX_CONDITION = 1e4
_MIN_SAMPLES = 30
#: By how much the stamps of samples and kernels differ: the best fit is 1 us late at 10 and at 100 kHz.
_STAMP_NS = 1_000
#: How much of a kernel's memory traffic may fall outside of it, as time: it ends up to 1 us early or late.
_EDGE_NS = 500
#: Single kernels get a column from this share of the time on; at most this many, and one per ten samples.
_MIN_SINGLE_SHARE = 0.004
_MAX_SINGLE = 40
#: Where no source gives busy time itself, a sample counts as busy from this activity on.
_ACTIVE = 0.01
#: Number of samples used to find the lag, over the whole capture; more do not change it.
_LAG_SAMPLES = 20_000


class Samples(Struct, frozen=True):
    """Samples of one device inside a window; a stamp t covers [t, t + period)."""

    time: Array
    period: int
    values: dict[str, Array]

    def __len__(self) -> int:
        return len(self.time)

    def mean(self, name: str) -> float | None:
        """Mean of a column, 0..1; None if the device does not report it."""
        column = self.values.get(name)
        if column is None or len(column) == 0 or np.isnan(column).all():
            return None
        return float(np.nanmean(column))

    @property
    def busy(self) -> Array | None:
        """How much of each sample the device was busy, 0..1, as far as samples show it: GR Active;
        where that is not sampled, the whole of every sample in which SMs or DRAM were active."""
        if "gr_active" in self.values:
            return np.nan_to_num(self.values["gr_active"])
        found = [v for v in (self.values.get("sm_active"), self.dram) if v is not None]
        if not found:
            return None
        return np.asarray(np.max(np.nan_to_num(found), axis=0) >= _ACTIVE, np.float64)

    @property
    def dram(self) -> Array | None:
        """DRAM read + write, 0..1 of peak."""
        if "dram_read" not in self.values:
            return None
        write = self.values.get("dram_write")
        return self.values["dram_read"] + (0 if write is None else np.nan_to_num(write))


def device_samples(trace: Trace, device: int, window: Window) -> Samples | None:
    """Samples of a device that lie wholly inside the window and begin in no hole of it; None if
    there are none."""
    if not trace.has("samples"):
        return None
    columns = trace.columns("samples", ("time", "device", *SAMPLE_RATIOS))
    time = columns["time"]
    mine = columns["device"] == device
    if not mine.any():
        return None
    all_times = time[mine]
    period = int(median_of(np.diff(all_times))) if len(all_times) > 1 else 0
    if period <= 0:
        return None
    mine &= (time >= window.start) & (time + period <= window.end) & ~window.holes.holds(time)
    rows = np.flatnonzero(mine)
    if len(rows) == 0:
        return None
    together = int(rows[-1] - rows[0]) + 1 == len(rows)  # one device: avoids a copy
    inside = slice(int(rows[0]), int(rows[-1]) + 1) if together else rows
    values = {n: columns[n][inside] for n in SAMPLE_RATIOS if not np.isnan(columns[n][inside]).all()}
    return Samples(time[inside], period, values)


class Activity(Struct, frozen=True):
    """Activity inside groups of kernels, 0..1, with its standard error.

    A group is one kernel and launch shape of the heavy families (their members differ: a large GEMM streams
    at 90 % where a small one reaches 60 %), one lighter family, or the ``rest``. Level, error, covariance
    (the noise of the samples) and doubts are keyed by measure: sm, dram, tensor. A level is the mean of two
    solutions. A doubt is an error common to all samples: half of the difference between two solutions, with
    its sign, and the part of the level that lies at the edges of kernels.
    """

    groups: tuple[tuple[str, str], ...]  # family, label
    share: Array  # of the sampled time
    level: dict[str, Array]
    error: dict[str, Array]
    covariance: dict[str, Array]
    doubts: dict[str, tuple[Array, ...]]
    condition: float
    lag: float  # best lag of the samples against kernel occupancy, in periods

    def resolved(self, measure: str) -> Array:
        """Mask of the groups whose activity the samples resolve."""
        return np.asarray((self.error[measure] <= RESOLVED_ERROR) & self.safe(measure))

    def safe(self, measure: str) -> Array:
        """Mask of the groups whose level can be relied on: not at a bound, and not within one error of 0,
        where the solution would lie beyond. For tensor cores 0 is a valid level: most kernels use none."""
        level, error = self.level[measure], self.error[measure]
        above = (level - error > 0) | (measure == "tensor")
        return np.asarray(above & (level < 1))

    def of(self, family: str, measure: str) -> float | None:
        """Time-weighted activity inside a family; None if the samples do not resolve it."""
        if measure not in self.level:
            return None
        weight = self.share * np.array([f == family for f, _ in self.groups])
        if weight.sum() == 0:
            return None
        weight /= weight.sum()
        variance = float(weight @ self.covariance[measure] @ weight)
        variance += sum(float(weight @ doubt) ** 2 for doubt in self.doubts[measure])
        level = float(weight @ self.level[measure])
        error = math.sqrt(max(variance, 0.0))
        if error > RESOLVED_ERROR or (measure != "tensor" and level <= error):
            return None
        return level

    def reading(self, families: Collection[str], least: float) -> Activity:
        """The same, given that these families read at least `least` of the peak on average, 0..1: lower
        levels are raised to it by the smallest change that their errors allow."""
        weight = self.share * np.array([f in families for f, _ in self.groups])
        if "dram" not in self.level or weight.sum() == 0:
            return self
        weight /= weight.sum()
        lacks = least - float(weight @ self.level["dram"])
        moves = (self.covariance["dram"] + sum(np.outer(d, d) for d in self.doubts["dram"])) @ weight
        if lacks <= 0 or weight @ moves <= 0:
            return self
        moved = np.clip(self.level["dram"] + moves * lacks / (weight @ moves), 0.0, 1.0)
        return replace(self, level=self.level | {"dram": moved})

    def share_near(self, measure: str, level: float) -> tuple[float, float]:
        """Sampled time in groups that are probably at or above `level` (error at most `LIKELY_ERROR`), and
        in all groups that are within one error of it or above."""
        value, error = self.level[measure], self.error[measure]
        likely = (error <= LIKELY_ERROR) & self.safe(measure) & (value >= level)
        return float(self.share[likely].sum()), float(self.share[likely | (value + error >= level)].sum())

    def share_above(self, measure: str, level: float) -> tuple[float, float | None]:
        """Sampled time in resolved groups at or above a level, and their mean level."""
        high = self.resolved(measure) & (self.level[measure] >= level)
        time = float(self.share[high].sum())
        mean = float((self.share * self.level[measure])[high].sum() / time) if time else None
        return time, mean


def kernel_activity(
    samples: Samples,
    busy: Spans,
    start: Array,
    end: Array,
    group: Array,
    labels: Sequence[tuple[str, str]],
    kind: Array,
) -> Activity | None:
    """Least-squares activity by group. `group` gives each kernel's position in `labels`
    (family, label), `kind` numbers kernels of one name and launch shape, each within one group;
    kernels are sorted by start, `busy` is when any of them runs. None with too few samples, or
    where the samples do not follow the kernels in time.

    Errors hold more than the noise of the samples. Small differences between samples separate short
    kernels from their neighbours, and two things distort these: the clocks of samples and kernels
    differ by a microsecond, and the traffic inside a kernel is uneven (it starts late and ends
    early). Their effect is measured by solving again: with shifted stamps, and without bounds by
    single kernels, whose levels go below 0 after a kernel that ends early.
    """
    if len(samples) < _MIN_SAMPLES:
        return None
    lag = best_lag(samples, busy)
    if abs(lag) > 1.0:
        return None
    duration = end - start
    kept, column_of = _groups(group, duration, labels)
    if not kept:
        return None
    column = column_of.take(group)
    runs = Runs.of(start, end, column, len(kept))
    design = runs.shares(samples.time, samples.period)
    length = np.array([median_of(duration[mine]) for mine in grouped(column, len(kept))])
    edge = np.minimum(_EDGE_NS / np.maximum(length, 1), 1)
    gram = design.T @ design
    condition = float(np.linalg.cond(gram))
    if condition > _MAX_CONDITION:
        return None
    level, error, noise = {}, {}, {}
    doubts: dict[str, tuple[Array, ...]] = {}
    sampled = samples.values
    measures = {"sm": sampled.get("sm_active"), "dram": samples.dram, "tensor": sampled.get("tensor_active")}
    complete = {n: v for n, v in measures.items() if v is not None and not np.isnan(v).any()}
    late, early = (
        _bounded(runs.shares(samples.time + shift, samples.period), complete)
        for shift in (_STAMP_NS, -_STAMP_NS)
    )
    single = kind, column, len(kept)
    by_kernel = _by_single_kernels(samples, start, end, *single, list(complete.values()))
    for (name, values), free in zip(complete.items(), by_kernel, strict=True):
        bounded = bounded_least_squares(gram, design.T @ values)
        # Bounds take activity from short kernels whose neighbours would be negative; single kernels give it
        # back with all the noise: the truth lies between, and the mean is least off.
        level[name] = np.clip((bounded + free) / 2, 0.0, 1.0)
        noise[name] = robust_covariance(design, values - design @ bounded)
        doubts[name] = ((late[name] - early[name]) / 2, (bounded - free) / 2, level[name] * edge)
        variance = np.diag(noise[name]) + sum(d**2 for d in doubts[name])
        error[name] = np.sqrt(np.maximum(variance, 0))
    if not level:
        return None
    share = design.mean(axis=0)
    return Activity(tuple(kept), share, level, error, noise, doubts, condition, lag)


def _bounded(design: Array, values: Mapping[str, Array]) -> dict[str, Array]:
    """The level of each column of a design, 0..1, for each sampled value."""
    gram = design.T @ design
    return {name: bounded_least_squares(gram, design.T @ one) for name, one in values.items()}


def _groups(
    group: Array, duration: Array, labels: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], Array]:
    """Labels of the groups with enough time, the largest first and the rest last; and the group of each
    column."""
    time = np.bincount(group, duration, len(labels))
    kept: list[tuple[str, str]] = []
    column = np.full(len(labels), MISSING, np.int32)
    floor = _MIN_SHARE * float(time.sum())
    for i in np.argsort(-time, kind="stable").tolist():
        least = floor if labels[i][1] else 5 * floor
        if time[i] < least or len(kept) >= _MAX_GROUPS:
            continue
        column[i] = len(kept)
        kept.append(labels[i])
    rest = (column == MISSING) & (np.bincount(group, minlength=len(labels)) > 0)
    if rest.any():
        column[rest] = len(kept)
        kept.append(("rest", ""))
    return kept, column


def _by_single_kernels(
    samples: Samples,
    start: Array,
    end: Array,
    kind: Array,
    group: Array,
    groups: int,
    values: Sequence[Array],
) -> list[Array]:
    """Activity of the groups by unbounded least squares, for each of the measured `values`: one column per
    kernel and launch shape of some weight and one for the others, averaged by time into the groups."""
    duration = end - start
    time = np.bincount(kind, duration)
    most = max(min(_MAX_SINGLE, len(samples) // 10), 1)
    order = np.argsort(-time, kind="stable")[:most]
    order = order[time[order] >= _MIN_SINGLE_SHARE * time.sum()]
    column = np.full(len(time), len(order), np.int32)
    column[order] = np.arange(len(order))
    column = dense(column[kind])[1].astype(np.int32)
    runs = Runs.of(start, end, column, int(column.max()) + 1)
    solved = runs.least_squares(samples.time, samples.period, values)
    place = group.astype(np.int64) * runs.columns + column
    held = np.bincount(place, duration, groups * runs.columns).reshape(groups, runs.columns)
    weight = held / np.maximum(held.sum(axis=1, keepdims=True), 1)
    return [weight @ one for one in solved]


def best_lag(samples: Samples, busy: Spans) -> float:
    """Lag, in periods, at which SM activity follows occupancy best.

    A device that is busy throughout gives no contrast to align by; then the lag is 0, the documented
    meaning of the stamp (start of the interval).
    """
    values = samples.values.get("sm_active")
    if values is None or np.isnan(values).any():
        return 0.0
    some = slice(None, None, max(len(samples) // _LAG_SAMPLES, 1))
    time, values = samples.time[some], values[some]
    flat = values.std() < 1e-3
    apart = values - values.mean()
    norm = math.sqrt(apart @ apart)
    shifts = np.arange(-2.0, 2.01, 0.25)
    begin = np.array([round(shift * samples.period) for shift in shifts.tolist()])
    # All shifts of one sample at once: they are close together, so each search starts where the last one
    # ended.
    time = np.add.outer(time, np.concatenate((begin, begin + samples.period)))
    covered = Coverage(busy)(time.ravel()).reshape(time.shape).T
    correlations = []
    for until, since in zip(covered[len(begin) :], covered, strict=False):
        occupied = (until - since) / samples.period
        occupied -= occupied.mean()
        spread = math.sqrt(occupied @ occupied)
        steady = spread < 0.05 * math.sqrt(len(occupied))
        correlations.append(0.0 if flat or steady else float(occupied @ apart) / (spread * norm))
    top = int(np.argmax(correlations))
    return float(shifts[top]) if correlations[top] >= 0.5 else 0.0


def time_at_level(values: Array, busy: Array, level: float) -> float:
    """Share of the sampled busy time in which activity reaches `level`; `busy` (0..1) is the busy share of
    each sample."""
    known = np.nan_to_num(values)
    return float(busy[(busy > 0) & (known >= level * busy)].sum() / len(busy)) if len(busy) else 0.0


def unrecorded_ratio(samples: Samples, busy: Spans) -> float | None:
    """Share of the samples' GR Active that is further than one period from any recorded work (`busy`); None
    if it was not sampled, or the samples do not follow the work in time to its end."""
    active = samples.values.get("gr_active")
    if active is None or not len(busy) or samples.time[-1] + 2 * samples.period < busy.end[-1]:
        return None
    if abs(best_lag(samples, busy)) > 1.0:
        return None
    near = Coverage(busy).within(samples.time - samples.period, samples.time + 2 * samples.period)
    return float(np.nan_to_num(active[near == 0]).sum() / len(active))


def launch_kinds(name: Array, blocks: Array) -> Array:
    """Number of each launch's kernel and block count."""
    grid, most = _grids(blocks)
    return dense(name * most + grid)[1].astype(np.int32)


def _grids(blocks: Array) -> tuple[Array, int]:
    """Grids bounded so that a key with a name stays in 64 bits, and one more than the largest."""
    most = min(int(blocks.max(initial=0)), 1 << 40)
    return np.minimum(blocks, most), most + 1


def launch_groups(names: Names, name: Array, blocks: Array) -> tuple[Array, list[tuple[str, str]]]:
    """Group of each launch (`name` its position in `names`, `blocks` its grid, 0 if not recorded):
    kernel and block count in heavy families and where the family is unknown, else the family. Labels are
    (family, kernel x blocks)."""
    heavy = names.mask(lambda k: k.family in HEAVY or is_unknown(k))
    families = sorted(set(names.families))
    family = np.array([families.index(f) for f in names.families], np.int64)
    blocks, most = _grids(blocks)
    key = np.where(heavy[name], len(families) + name * most + blocks, family[name])
    keys, group = dense(key)
    labels = []
    for k in keys.tolist():
        if k < len(families):
            labels.append((families[k], ""))
        else:
            i, count = divmod(k - len(families), most)
            labels.append((names.families[i], f"{names.short[i]} x{count}"))
    return group.astype(np.int32), labels
