"""The type of columns, and rows of several of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: One column of a table; its docstring or name gives its meaning and unit.
Array = NDArray[Any]


def is_narrow(values: Array) -> bool:
    """Whether the values, of which there are some, and sums of two fit in 32 bits."""
    return len(values) > 0 and max(int(values.max()), -int(values.min())) < 1 << 30


def distinct(values: Array) -> Array:
    """The different values in ascending order, like `np.unique`, which hashes or sorts and imports masked
    arrays: integers that lie close are looked up in a table."""
    values = values.ravel()
    if len(values) and values.dtype.kind == "i":
        lo, hi = int(values.min()), int(values.max())
        if lo == hi:
            return values[:1].copy()
        if hi - lo <= 4 * len(values) + 1000:
            seen = marked(hi - lo + 1, values - np.int64(lo))
            return np.asarray(np.flatnonzero(seen) + lo, values.dtype)
    ascending = bool((values[1:] >= values[:-1]).all())
    ranked: Array = values if ascending else np.sort(values)
    return np.asarray(ranked[begins_run(ranked)])


def median_of(values: Array | Sequence[int]) -> float:
    """Like `np.median` of all values, to the last bit, without its checks: these take longer than the
    rest for some thousand values, and import masked arrays."""
    values = np.asarray(values)
    if not _simple(values):
        return float(np.median(values))
    low, high = (values.size - 1) // 2, values.size // 2
    ranked = _ranked(values, {low, high})
    return (float(ranked[low]) + float(ranked[high])) / 2.0 if low < high else float(ranked[low])


def percentiles(values: Array, *wanted: float) -> list[float]:
    """The same for `np.percentile`, which interpolates linearly."""
    if not _simple(values):
        return [float(x) for x in np.percentile(values, wanted)]
    last = values.size - 1
    place = [last * (each / 100) for each in wanted]
    around = [(int(x), min(int(x) + 1, last)) for x in place]
    ranked = _ranked(values, {at for pair in around for at in pair})
    found = []
    for x, (i, j) in zip(place, around, strict=True):
        low, high, share = ranked[i], ranked[j], x - i
        found.append(float(high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share))
    return found


def nearest_rank(values: Array, percent: int) -> float:
    """The percentile that is one of the values: the one of rank ceil(percent x n / 100), counted from 1, in
    ascending order. What is printed as the duration of a step or a call has been one."""
    rank = max(-(-percent * len(values) // 100) - 1, 0)
    return float(_ranked(values, {rank})[rank])


def _simple(values: Array) -> bool:
    """Whole numbers or doubles, none of them missing."""
    if not values.size:
        return False
    return values.dtype.kind in "iu" or (values.dtype == np.float64 and not np.isnan(values.max()))


def _ranked(values: Array, at: set[int]) -> Array:
    """The values, partitioned so that those of these ranks are in sorted position."""
    ranked: Array = values.flatten()
    end = len(ranked)
    for rank in sorted(at, reverse=True):  # for one rank NumPy takes a tenth of the time of two
        ranked[:end].partition(rank)
        end = rank
    return ranked


def rounded(values: Array, digits: int) -> Array:
    """Like Python's `round` of each value, to the last bit; values near a tie use it."""
    scale = 10.0**digits
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.asarray(values, np.float64) * scale
        found: Array = np.rint(scaled) / scale
        sure = (np.abs(scaled - np.floor(scaled) - 0.5) > 1e-6) & (np.abs(scaled) < 1e9)
    for i in np.flatnonzero(~sure & np.isfinite(values)):
        found[i] = round(float(values[i]), digits)
    return found


def merged(*values: Array) -> Array:
    """The different values of several arrays in ascending order."""
    return distinct(np.concatenate(values))


def without(values: Array, others: Array) -> Array:
    """The different values that are none of the others, in ascending order."""
    known, out = distinct(values), distinct(others)
    if not len(out):
        return known
    at = np.minimum(np.searchsorted(out, known), len(out) - 1)
    return np.asarray(known[out[at] != known])


def marked(size: int, at: Array | Sequence[int]) -> Array:
    """A mask of `size` entries, true at these positions."""
    mask = np.zeros(size, bool)
    mask[at] = True
    return mask


#: Up to one change for so many rows, the rows between changes are copied as pieces.
_FEW = 200


def inserted(at: Array, *columns: tuple[Array, Array | int]) -> list[Array]:
    """`np.insert` of values into several columns before the same ascending positions. NumPy would look the
    positions up for each column, with a mask."""
    return spliced(at[:0], at, *columns)


def spliced(gone: Array, at: Array, *columns: tuple[Array, Array | int]) -> list[Array]:
    """Several columns with values inserted before ascending positions (`at`), and without the rows `gone`
    (ascending, all different)."""
    rows = len(columns[0][0])
    new, size = at + np.arange(len(at)) - np.searchsorted(gone, at), rows - len(gone) + len(at)
    pieces: list[tuple[Array | slice, Array | slice]]
    if (len(at) + len(gone)) * _FEW < rows:
        cuts = merged(at, gone, gone + 1, np.array([0, rows]))
        first, last = (ends[~marked(rows + 1, gone)[cuts[:-1]]] for ends in (cuts[:-1], cuts[1:]))
        to = first - np.searchsorted(gone, first) + np.searchsorted(at, first, "right")
        ends = zip(first.tolist(), last.tolist(), to.tolist(), strict=True)
        pieces = [(slice(k, k + j - i), slice(i, j)) for i, j, k in ends]
    else:
        kept = np.flatnonzero(~marked(rows, gone)) if len(gone) else slice(None)
        pieces = [(np.flatnonzero(~marked(size, new)), kept)]
    out = []
    for column, values in columns:
        whole = np.empty(size, column.dtype)
        for place, part in pieces:
            whole[place] = column[part]
        whole[new] = values
        out.append(whole)
    return out


def where(mask: Array) -> Array | slice:
    """An index of the rows of a mask: a slice, which copies no column, if they are all rows."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def run_of(rows: Array) -> Array | slice:
    """An index of ascending rows: a slice, which copies no column, if they are consecutive."""
    if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1:
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def picked(values: Array, rows: Array) -> Array:
    """`values[rows]` of ascending rows: a view if they are consecutive."""
    at = run_of(rows)
    return values[at] if isinstance(at, slice) else values.take(at)


#: Above so many values, looking them up in a table is quicker than comparing with each.
_COMPARED = 20


def among(values: Array, wanted: Sequence[Any]) -> Array:
    """Mask of the values that are one of these: for a few, one comparison each takes a tenth of `np.isin`,
    which would first turn a member of an enumeration into 64-bit integers."""
    if len(wanted) > _COMPARED:
        return np.isin(values, list(wanted))
    mask = np.zeros(len(values), bool)
    for one in wanted:
        mask |= values == (int(one) if isinstance(one, int) else one)
    return mask


def pairs(first: Array, second: Array) -> list[tuple[int, int]]:
    """The different pairs of two columns in ascending order."""
    return [(a, b) for a in distinct(first).tolist() for b in distinct(second[first == a]).tolist()]


def begins_run(*columns: Array) -> Array:
    """Mask of the rows that differ from the row before them in one of the columns; true for the first."""
    new = np.zeros(len(columns[0]), bool)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def grouped(group: Array, groups: int) -> list[Array]:
    """Positions of the entries of each group, ascending."""
    return np.split(by_number(group), np.cumsum(np.bincount(group, minlength=groups))[:-1])


def bounds_of(groups: int, group: Array, start: Array, end: Array) -> tuple[Array, Array]:
    """Least start and greatest end of each group; an empty one has the greatest and the least integer."""
    limits = np.iinfo(np.int64)
    first, last = np.full(groups, limits.max), np.full(groups, limits.min)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last


#: Entries of a long column that are worked on at once.
_PIECE = 1 << 17


def pieces(count: int) -> Iterator[slice]:
    """Slices of a column of so many entries, in order, for what would take much memory at once."""
    return (slice(at, at + _PIECE) for at in range(0, count, _PIECE))


def lengths(start: Array, end: Array) -> Array:
    """`end - start`, in 32 bits if all, and sums of two, fit, without a column of 64 bits on the way."""
    out = np.empty(len(start), np.int32)
    for piece in pieces(len(start)):
        some = end[piece] - start[piece]
        if not is_narrow(some):
            return np.asarray(end - start)
        out[piece] = some
    return out


def sums_from(values: Array, cuts: Array) -> Array:
    """`np.add.reduceat` in 64 bits of some segments at a time: it would first copy all narrower values."""
    out, at = np.empty(len(cuts), np.int64), 0
    while at < len(cuts):
        to = max(int(np.searchsorted(cuts, cuts[at] + _PIECE)), at + 1)
        some = values[cuts[at] : cuts[to] if to < len(cuts) else len(values)]
        out[at:to] = np.add.reduceat(some, cuts[at:to] - cuts[at], dtype=np.int64)
        at = to
    return out


def by_number(numbers: Array) -> Array:
    """Their stable order. NumPy sorts integers of 8 and 16 bits by digits, in a fraction of the time."""
    if numbers.dtype.kind == "i" and numbers.min(initial=0) >= 0 and numbers.max(initial=0) < 1 << 16:
        numbers = numbers.astype(np.uint8 if numbers.max(initial=0) < 1 << 8 else np.uint16)
    return np.argsort(numbers, kind="stable")


def ordered(*keys: Array) -> Array:
    """`np.lexsort(keys)`, the last key first; without sorting if the rows are in order, as in most
    captures."""
    order = sorting(*keys)
    return np.arange(len(keys[0])) if isinstance(order, slice) else order


def sorting(*keys: Array) -> Array | slice:
    """The same; a slice of all rows, which copies no column, if they are in order."""
    alike: Array = np.ones(max(len(keys[0]) - 1, 0), bool)  # to the row before, in all keys so far
    for key in reversed(keys):
        if (alike & (key[1:] < key[:-1])).any():
            before = sorting(*keys[:-1]) if len(keys) > 1 else slice(None)
            order = by_number(keys[-1][before])
            return order if isinstance(before, slice) else np.asarray(before[order])
        alike &= key[1:] == key[:-1]
        if not alike.any():
            break
    return slice(None)


def largest(values: Array, most: int | None = None, known: Array | None = None) -> Array:
    """Positions of the largest values, the largest first, equal ones in their order: at most `most`, and
    none of 0 (or with `known` of 0)."""
    order = np.argsort(-values, kind="stable")[:most]
    return np.asarray(order[(values if known is None else known)[order] != 0])


def rows_at(at: Array, *columns: Array | Sequence[Any]) -> list[list[Any]]:
    """Rows of plain Python values: the entries of each column at these positions."""
    wanted = at.tolist()
    found = (c[at].tolist() if isinstance(c, np.ndarray) else [c[i] for i in wanted] for c in columns)
    return [list(row) for row in zip(*found, strict=True)]


def by_label(labels: Sequence[str], *weights: Array) -> tuple[list[str], list[Array]]:
    """The different labels with the sum of each of their weights, the largest of the last one first."""
    known, of = np.unique(np.array(labels, str), return_inverse=True)
    sums = [np.bincount(of, w, len(known)) for w in weights]
    order = np.argsort(-sums[-1], kind="stable")
    return known[order].tolist(), [values[order] for values in sums]
