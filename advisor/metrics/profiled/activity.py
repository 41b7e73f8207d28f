"""Sampled GPU activity, attributed to kernels.

A 100 us sample covers some 40 decode kernels, so no sample belongs to one kernel. Samples are a
mixture: activity = sum over families of (time share in the sample's interval) x (activity inside
that family). Solved by least squares with bounds 0..1 for each kernel and launch shape that
matters: large GEMMs come out at 87-93 % DRAM where the window mean says 50 %.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from operator import mul

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.metrics import limits
from advisor.metrics.intervals import positions, union
from advisor.metrics.loaded.kernels import Names, dense, is_unknown
from advisor.metrics.profiled.sampled import Samples
from advisor.model.arrays import Array, grouped, median_of
from advisor.sources.schema import MISSING

try:
    from advisor.sources.sqlite._pages import shares as compiled
except ImportError:  # installed without a C compiler
    compiled = None  # type: ignore[assignment]

#: Samples whose equations are worked into a solution at once: as many as fit into a core's cache.
_BLOCK = 1 << 11
#: Families that are split by kernel and launch shape.
HEAVY = frozenset(("gemm", "gemv", "attention", "moe", "conv"))


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

    def resolved(self, measure: str) -> Array:
        """Mask of the groups whose activity the samples resolve."""
        return np.asarray((self.error[measure] <= limits.recording.RESOLVED_ERROR) & self.safe(measure))

    def weight(self, measure: str) -> Array:
        """How much each group's activity counts where a sum is made of it, 0..1: all where the samples
        resolve it, less the wider its error is, and nothing from twice the error of these on."""
        most = limits.recording.RESOLVED_ERROR
        return np.clip(2.0 - self.error[measure] / most, 0.0, 1.0) * self.safe(measure)

    def safe(self, measure: str) -> Array:
        """Mask of the groups whose level can be relied on: not at a bound, and not within one error of 0,
        where the solution would lie beyond. For tensor cores 0 is a valid level: most kernels use none."""
        level, error = self.level[measure], self.error[measure]
        above = (level - error > 0) | (measure == "tensor")
        return np.asarray(above & (level < 1))

    def _weights(self, families: Collection[str]) -> Array:
        """Weight of each group by time, adding up to 1 over these families; 0 if they take no time."""
        weight = self.share * np.array([f in families for f, _ in self.groups])
        return np.asarray(weight / (weight.sum() or 1.0))

    def of(self, family: str, measure: str) -> float | None:
        """Time-weighted activity inside a family; None if the samples do not resolve it."""
        weight = self._weights((family,))
        if measure not in self.level or not weight.any():
            return None
        variance = float(weight @ self.covariance[measure] @ weight)
        variance += sum(float(weight @ doubt) ** 2 for doubt in self.doubts[measure])
        level = float(weight @ self.level[measure])
        error = math.sqrt(max(variance, 0.0))
        if error > limits.recording.RESOLVED_ERROR or (measure != "tensor" and level <= error):
            return None
        return level

    def reading(self, families: Collection[str], least: float) -> Activity:
        """The same, given that these families read at least `least` of the peak on average, 0..1: lower
        levels are raised to it by the smallest change that their errors allow."""
        weight = self._weights(families)
        if "dram" not in self.level or not weight.any():
            return self
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
        likely = (error <= limits.recording.LIKELY_ERROR) & self.safe(measure) & (value >= level)
        return float(self.share[likely].sum()), float(self.share[likely | (value + error >= level)].sum())

    def share_above(self, measure: str, level: float) -> tuple[float, float | None]:
        """Sampled time in resolved groups at or above a level, and their mean level."""
        high = self.resolved(measure) & (self.level[measure] >= level)
        time = float(self.share[high].sum())
        mean = float((self.share * self.level[measure])[high].sum() / time) if time else None
        return time, mean


def kernel_activity(
    samples: Samples, start: Array, end: Array, group: Array, labels: Sequence[tuple[str, str]], kind: Array
) -> Activity | None:
    """Least-squares activity by group. `group` gives each kernel's position in `labels`
    (family, label), `kind` numbers kernels of one name and launch shape, each within one group;
    kernels are sorted by start. None with too few samples, or where these cannot tell the groups apart.

    Errors hold more than the noise of the samples. Small differences between samples separate short
    kernels from their neighbours, and two things distort these: the clocks of samples and kernels
    differ by a microsecond, and the traffic inside a kernel is uneven (it starts late and ends
    early). Their effect is measured by solving again: with shifted stamps, and without bounds by
    single kernels, whose levels go below 0 after a kernel that ends early.
    """
    if len(samples) < limits.recording.SAMPLES:
        return None
    duration = end - start
    kept, column_of = _groups(group, duration, labels)
    if not kept:
        return None
    column = column_of.take(group)
    length = np.array([median_of(duration[mine]) for mine in grouped(column, len(kept))])
    time = np.bincount(kind, duration)
    del duration  # large, and no longer needed
    runs = Runs.of(start, end, column, len(kept))
    design = runs.shares(samples.time, samples.period)
    edge = np.minimum(limits.recording.EDGE_NS / np.maximum(length, 1), 1)
    gram = design.T @ design
    condition = float(np.linalg.cond(gram))
    if condition > limits.recording.CONDITION:
        return None
    level, error, noise = {}, {}, {}
    doubts: dict[str, tuple[Array, ...]] = {}
    sampled = samples.values
    measures = {"sm": sampled.get("sm_active"), "dram": samples.dram, "tensor": sampled.get("tensor_active")}
    complete = {n: v for n, v in measures.items() if v is not None and not np.isnan(v).any()}
    shifted = (samples.time + limits.recording.STAMP_NS, samples.time - limits.recording.STAMP_NS)
    late, early = (_bounded(runs.shares(time, samples.period), complete) for time in shifted)
    group_of = np.zeros(len(time), np.int64)
    group_of[kind] = column
    del runs, column
    single = kind, time, group_of, len(kept)
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
    return Activity(tuple(kept), share, level, error, noise, doubts, condition)


def _bounded(design: Array, values: Mapping[str, Array]) -> dict[str, Array]:
    """The level of each column of a design, 0..1, for each sampled value."""
    gram = design.T @ design
    return {name: bounded_least_squares(gram, design.T @ one) for name, one in values.items()}


def _groups(
    group: Array, duration: Array, labels: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], Array]:
    """Labels of the groups with enough time, largest first and the rest last; and each column's group."""
    time = np.bincount(group, duration, len(labels))
    least = (
        limits.recording.GROUP_RATIO
        * float(time.sum())
        * np.where([bool(label) for _, label in labels], 1, 5)
    )
    order = np.argsort(-time, kind="stable")
    chosen = order[time[order] >= least[order]][: limits.recording.GROUPS]
    kept = [labels[i] for i in chosen.tolist()]
    column = np.full(len(labels), MISSING, np.int32)
    column[chosen] = np.arange(len(chosen))
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
    time: Array,
    group: Array,
    groups: int,
    values: Sequence[Array],
) -> list[Array]:
    """Activity of the groups by unbounded least squares, for each of the measured `values`: one column per
    kernel and launch shape of some weight and one for the others, averaged by time into the groups. `time`
    and `group` have one entry for each kind."""
    most = max(min(limits.recording.SINGLES, len(samples) // 10), 1)
    order = np.argsort(-time, kind="stable")[:most]
    order = order[time[order] >= limits.recording.SINGLE_RATIO * time.sum()]
    column = np.full(len(time), len(order), np.int32)
    column[order] = np.arange(len(order))
    column = dense(column)[1].astype(np.int32)
    runs = Runs.of(start, end, column[kind], int(column.max()) + 1)
    solved = runs.least_squares(samples.time, samples.period, values)
    held = np.bincount(group * runs.columns + column, time, groups * runs.columns)
    held = held.reshape(groups, runs.columns)
    weight = held / np.maximum(held.sum(axis=1, keepdims=True), 1)
    return [weight @ one for one in solved]


def launch_kinds(name: Array, blocks: Array) -> Array:
    """Number of each launch's kernel and block count."""
    grid, most = _grids(blocks)
    return dense(name.astype(np.int64) * most + grid)[1].astype(np.int32)


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
    key = np.where(heavy[name], len(families) + name.astype(np.int64) * most + blocks, family[name])
    keys, group = dense(key)
    labels = []
    for k in keys.tolist():
        if k < len(families):
            labels.append((families[k], ""))
        else:
            i, count = divmod(k - len(families), most)
            labels.append((names.families[i], f"{names.short[i]} x{count}"))
    return group.astype(np.int32), labels


# --- the design: samples as a mixture of kernels, and ways to solve it by least squares -------------


class Runs(Struct, frozen=True):
    """When the kernels of each column of a design run, sorted by start; `reach` is the latest end so far."""

    start: Array
    end: Array
    column: Array
    columns: int
    reach: Array

    @classmethod
    def of(cls, start: Array, end: Array, column: Array, columns: int) -> Runs:
        """Kernels sorted by start; those of one column that overlap count once."""
        if not (start[1:] >= end[:-1]).all():
            spans = [union(start[column == j], end[column == j]) for j in range(columns)]
            start, end = (np.concatenate([s[k] for s in spans]) for k in (0, 1))
            order = np.argsort(start, kind="stable")
            column = np.repeat(np.arange(columns), [len(s) for s in spans])[order]
            start, end = start[order], end[order]
        reach = end if (end[1:] >= end[:-1]).all() else np.maximum.accumulate(end)
        return cls(start, end, column, columns, reach)

    def shares(self, lo: Array, period: int) -> Array:
        """Share of each [lo, lo + period), ascending by lo, that each column takes."""
        if compiled is not None:
            return self._shares(lo, period)
        blocks = (lo[at : at + _BLOCK] for at in range(0, len(lo), _BLOCK))
        return np.concatenate([self._shares(some, period) for some in blocks])

    def _shares(self, lo: Array, period: int) -> Array:
        hi = lo + period
        first, last = np.searchsorted(self.reach, lo[0], "right"), np.searchsorted(self.start, hi[-1])
        mine = slice(int(first), int(last))
        start, end, column = self.start[mine], self.end[mine], self.column[mine]
        if compiled is not None and start.dtype == end.dtype == lo.dtype == np.int64:
            out = np.zeros((len(lo), self.columns), np.int64)
            compiled(start, end, column.astype(np.int32, copy=False), lo, hi, self.columns, False, out)
            return np.divide(out, period, out=out.view(np.float64))
        first = positions(hi, start, "right")
        held = np.minimum(end, hi.take(first)) - np.maximum(start, lo.take(first))
        cells = len(lo) * self.columns
        total = np.bincount(first * self.columns + column, np.maximum(held, 0), minlength=cells)
        # Most kernels lie in one sample. Of the others: the parts in the samples after the first.
        more = np.maximum(positions(lo, end) - first - 1, 0)
        run = np.repeat(np.arange(len(start)), more)
        sample = np.arange(len(run)) + (first + 1 - np.cumsum(more) + more)[run]
        held = np.minimum(end[run], hi[sample]) - np.maximum(start[run], lo[sample])
        total += np.bincount(sample * self.columns + column[run], held, minlength=cells)
        return np.asarray(total.reshape(len(lo), self.columns) / period)

    def least_squares(self, time: Array, period: int, values: Sequence[Array]) -> list[Array]:
        """The level of each column, without bounds, for each of the sampled `values`.

        The triangle of an orthogonal decomposition stands for all rows so far, so the design of a
        long capture is never held whole.
        """
        triangle: Array = np.empty((0, self.columns + len(values)))
        for at in range(0, len(time), _BLOCK):
            block = slice(at, at + _BLOCK)
            rows = np.column_stack([self._shares(time[block], period), *(v[block] for v in values)])
            triangle = np.asarray(np.linalg.qr(np.concatenate([triangle, rows]), mode="r"))
        cut = np.finfo(float).eps * max(len(time), self.columns)
        solved = np.linalg.lstsq(triangle[:, : self.columns], triangle[:, self.columns :], rcond=cut)[0]
        return list(solved.T)


def robust_covariance(design: Array, misfit: Array) -> Array:
    """Covariance of a least-squares solution whose misfits differ in size and follow each other
    (Newey and West: neighbouring samples weigh with their distance, so sums over a moving window
    hold every pair as often as it weighs)."""
    inverse = np.linalg.pinv(design.T @ design)
    width = 1 + min(limits.recording.RELATED_SAMPLES, len(misfit) // 10)
    summed = np.cumsum(design * misfit[:, None], axis=0)
    moving = np.pad(summed, ((0, width - 1), (0, 0)), mode="edge")
    moving[width:] -= summed[:-1]
    free = max(len(misfit) - design.shape[1], 1)
    return np.asarray(inverse @ (moving.T @ moving / width) @ inverse * len(misfit) / free)


def bounded_least_squares(gram: Array, moment: Array) -> Array:
    """Minimise x'Gx/2 - m'x for 0 <= x <= 1 by coordinate descent: a dozen unknowns, so it
    converges in a few hundred cheap sweeps and needs no solver library."""
    rows, moments = gram.tolist(), moment.tolist()  # plain numbers: arrays of a dozen are slower
    diagonal = np.maximum(np.diag(gram), 1e-12).tolist()
    x = [0.0] * len(moments)
    for _ in range(2000):
        change = 0.0
        for i, row in enumerate(rows):
            step = (moments[i] - sum(map(mul, row, x))) / diagonal[i]
            value = min(max(x[i] + step, 0.0), 1.0)
            change = max(change, abs(value - x[i]))
            x[i] = value
        if change < 1e-7:
            break
    return np.array(x)
