"""Searches the ends of collectives of one rank among those of another."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from advisor.model.arrays import Array, median_of

#: Length of the run of collectives that is searched for, and its minimum.
_PATTERN, MIN_PATTERN = 32, 3
#: Places whose misfit is within this factor or time of the best are examined more closely: at most this
#: many places, by at most this many collectives each.
_TIE, _TIE_NS = 3.0, 2_000
_PROPOSED, _LOOKED_AT = 24, 500
#: Misfits are capped at this: events lost on one rank must not decide.
_CAP_NS = 1_000_000
#: Distances between the ends of one collective that are tried, ns, by clock and kind.
LEVELS_NS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
#: Shifts whose evidence differs by less are ranked by their misfit.
SIGMA = 1.0
#: Share of the values that are assumed to agree when their centre is determined.
_CORE = 0.1
#: With this much evidence no other run is tried.
_CERTAIN = 12.0
_NONE = -(1 << 62)


def centre(values: Array) -> int:
    """The middle of where values are closest together: the median of the densest tenth. Unlike the median
    of all values it is right even if most values are outliers."""
    ranked = np.sort(values)
    size = max(MIN_PATTERN, int(np.ceil(_CORE * len(ranked))))
    if len(ranked) <= size:
        return int(median_of(ranked))
    at = int(np.argmin(ranked[size - 1 :] - ranked[: len(ranked) - size + 1]))
    return int(median_of(ranked[at : at + size]))


def spacing(ends: Array) -> float:
    """Median time from one end to the next, ns; `ends` ascending."""
    return max(median_of(np.diff(ends)), 1.0) if len(ends) > 1 else 1.0


def evidence(apart: Array, real: Array, gap: float) -> Array:
    """By row, how much more often values of `apart` (where `real`) are close to 0 than by chance when
    ends come `gap` ns after each other; in standard deviations, at the level that shows it best."""
    count = real.sum(axis=-1)
    best = np.full(count.shape, -np.inf)
    for level in LEVELS_NS:
        close = ((apart <= level) & real).sum(axis=-1)
        chance = count * min(2 * level / gap, 1.0)
        best = np.maximum(best, (close - chance) / np.sqrt(chance + 1.0))
    return best


def best_shift(a: Array, code_a: Array, b: Array, code_b: Array, limit: int | None) -> tuple[int, int] | None:
    """(index shift, time shift) under which the ends `b` match those of `a`; both ascending, `code_*` is
    the kind of each. `limit`: how far they may be apart in time, ns.

    A run of them proposes shifts. Inside one step any other step fits a run as well, so the agreement of
    all of them decides: steps do not take equally long.
    """
    length = min(_PATTERN, len(b))
    room = len(b) - length
    best = (-np.inf, 0, 0)
    # A run from the middle, and others where that one is not in the other rank's capture.
    for start in dict.fromkeys((room // 2, room // 4, 3 * room // 4)):
        run = slice(start, start + length)
        proposed = _places(a, code_a, b[run], code_b[run], limit) - start
        best = max(best, _best_of(a, code_a, b, code_b, proposed, limit) or best, key=lambda f: f[0])
        if best[0] >= _CERTAIN:
            break
    return None if best[0] == -np.inf else (best[1], best[2])


def _best_of(
    a: Array, code_a: Array, b: Array, code_b: Array, proposed: Array, limit: int | None
) -> tuple[float, int, int] | None:
    """(evidence, index shift, time shift) of the proposed index shift under which all agree best."""
    if len(proposed) == 0:
        return None
    own = np.arange(len(b))[:: max(len(b) // _LOOKED_AT, 1)]
    at = own + proposed[:, None]
    inside = (at >= 0) & (at < len(a))
    at = np.clip(at, 0, len(a) - 1)
    inside &= code_a[at] == code_b[own]
    rows = np.flatnonzero(inside.sum(axis=1) >= MIN_PATTERN)
    if len(rows) == 0:
        return None
    inside = inside[rows]
    delta = a[at[rows]] - b[own]
    shift = np.array([centre(d[i]) for d, i in zip(delta, inside, strict=True)])
    rest = np.abs(delta - shift[:, None])
    seen = evidence(rest, inside, spacing(a))
    # The mean, not the median: a wrong shift shows where steps begin, and these are few.
    misfit = (np.minimum(rest, _CAP_NS) * inside).sum(axis=1) / inside.sum(axis=1)
    alike = np.flatnonzero(seen >= seen.max() - SIGMA)
    alike = alike[misfit[alike] <= float(misfit[alike].min()) * 1.25 + _TIE_NS / 10]
    index = proposed[rows][alike]
    first = np.abs(shift[alike]) if limit is not None else misfit[alike]
    best = alike[np.lexsort((index, first))[0]]
    return float(seen[best]), int(proposed[rows[best]]), int(shift[best])


def _places(a: Array, code_a: Array, run: Array, code: Array, limit: int | None) -> Array:
    """Positions in `a` at which the run may lie, a few; it may hang over either end of `a`."""
    length = len(run)
    low, high = -(length - MIN_PATTERN), len(a) - MIN_PATTERN + 1
    if limit is not None:
        # By the middle of the run, which lies inside `a` unless the run hangs over.
        middle = length // 2
        low = max(low, int(np.searchsorted(a, run[middle] - limit)) - middle)
        high = min(high, int(np.searchsorted(a, run[middle] + limit, "right")) - middle + 1)
    if high <= low:
        return np.empty(0, np.int64)
    rows = np.arange(low, high)
    before, after = max(-low, 0), max(high - 1 + length - len(a), 0)
    part = slice(max(low, 0), min(high - 1 + length, len(a)))
    origin = int(run[0])
    times = np.pad((a[part] - origin).astype(float), (before, after), constant_values=np.nan)
    codes = np.pad(code_a[part], (before, after), constant_values=_NONE)
    delta = sliding_window_view(times, length) - (run - origin)
    delta[sliding_window_view(codes, length) != code] = np.nan
    valid = np.isfinite(delta).sum(axis=1)
    enough = valid >= max(MIN_PATTERN, 0.6 * int(valid.max(initial=0)))
    # Kinds in another order are not a match: a few calls fit anywhere by chance.
    rows, delta = rows[enough], delta[enough]
    if len(rows) == 0:
        return np.asarray(rows)
    shift = _row_medians(delta)
    misfit = _row_medians(np.abs(delta - shift[:, None]))
    if limit is not None:
        near = np.abs(shift) <= limit
        rows, shift, misfit = rows[near], shift[near], misfit[near]
        if len(rows) == 0:
            return np.asarray(rows)
    alike = np.flatnonzero(misfit <= max(_TIE * float(misfit.min()), _TIE_NS))
    first = np.abs(shift[alike]) if limit is not None else misfit[alike]
    return np.asarray(rows[alike[np.argsort(first, kind="stable")[:_PROPOSED]]])


def _row_medians(values: Array) -> Array:
    """Median of each row without its NaNs; NaN for a row that holds nothing else."""
    ranked = np.sort(values, axis=1)  # NaNs come last
    count = np.isfinite(values).sum(axis=1)
    rows = np.arange(len(values))
    low = ranked[rows, np.maximum(count - 1, 0) // 2]
    return np.asarray((low + ranked[rows, np.minimum(count // 2, values.shape[1] - 1)]) / 2)
