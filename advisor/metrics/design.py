"""Samples as a mixture of kernels: the design, and ways to solve it by least squares."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

import numpy as np
from msgspec import Struct

from advisor.metrics.intervals import positions, union
from advisor.model.arrays import Array

try:
    from advisor.sources.sqlite._pages import shares as compiled
except ImportError:  # installed without a C compiler
    compiled = None  # type: ignore[assignment]

#: Samples whose equations are worked into a solution at once: as many as fit into a core's cache.
_BLOCK = 1 << 11
#: Samples whose misfits are taken as related.
_RELATED_SAMPLES = 20


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
        return cls(start, end, column, columns, np.maximum.accumulate(end))

    def shares(self, lo: Array, period: int) -> Array:
        """Share of each [lo, lo + period), ascending by lo, that each column takes."""
        if compiled is not None:
            return self._shares(lo, period)
        blocks = (lo[at : at + _BLOCK] for at in range(0, len(lo), _BLOCK))
        return np.concatenate([self._shares(some, period) for some in blocks])

    def _shares(self, lo: Array, period: int) -> Array:
        hi = lo + period
        mine = slice(
            int(np.searchsorted(self.reach, lo[0], "right")), int(np.searchsorted(self.start, hi[-1]))
        )
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
    width = 1 + min(_RELATED_SAMPLES, len(misfit) // 10)
    summed = np.cumsum(design * misfit[:, None], axis=0)
    moving = np.pad(summed, ((0, width - 1), (0, 0)), mode="edge")
    moving[width:] -= summed[:-1]
    free = max(len(misfit) - design.shape[1], 1)
    return np.asarray(inverse @ (moving.T @ moving / width) @ inverse * len(misfit) / free)


def bounded_least_squares(gram: Array, moment: Array, upper: float = 1.0) -> Array:
    """Minimise x'Gx/2 - m'x for 0 <= x <= upper by coordinate descent: a dozen unknowns, so it
    converges in a few hundred cheap sweeps and needs no solver library."""
    rows, moments = gram.tolist(), moment.tolist()  # plain numbers: arrays of a dozen are slower
    diagonal = np.maximum(np.diag(gram), 1e-12).tolist()
    x = [0.0] * len(moments)
    for _ in range(2000):
        change = 0.0
        for i, row in enumerate(rows):
            step = (moments[i] - sum(map(mul, row, x))) / diagonal[i]
            value = min(max(x[i] + step, 0.0), upper)
            change = max(change, abs(value - x[i]))
            x[i] = value
        if change < 1e-7:
            break
    return np.array(x)
