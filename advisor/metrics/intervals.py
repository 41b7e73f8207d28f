"""Interval algebra on int64 arrays. Half-open, sorted by start; a *merged* set is also disjoint.

Busy time is always the measure of a union, never a sum of durations: operations overlap.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.model.arrays import Array, begins_run, distinct, inserted, pieces

try:
    from advisor.sources.sqlite import _pages as compiled
except ImportError:  # installed without a C compiler
    compiled = None  # type: ignore[assignment]

Ints = NDArray[np.int64]


def positions(ranked: Array, wanted: Array, side: Literal["left", "right"] = "left") -> Ints:
    """`np.searchsorted`, in a third of the time if the wanted values ascend as well: each search begins
    where the last one ended."""
    if compiled is None or not _plain(ranked, wanted):
        return np.searchsorted(ranked, wanted, side)
    out = np.empty(len(wanted), np.int64)
    compiled.search(ranked, wanted, side == "right", out)
    return out


def _plain(*arrays: Array) -> bool:
    """Whether the compiled functions can read them."""
    return all(array.dtype == np.int64 and array.flags.c_contiguous for array in arrays)


class Spans(NamedTuple):
    """A merged interval set: equal-length starts and ends, ascending, not touching."""

    start: Ints
    end: Ints

    @property
    def total(self) -> int:
        """Measure of the set in ns."""
        return int((self.end - self.start).sum())

    def holds(self, time: Array) -> NDArray[np.bool_]:
        """Which times (ns) lie in the set."""
        if len(self) == 0:
            return np.zeros(len(time), bool)
        at = positions(self.start, time, "right") - 1
        return (at >= 0) & (time < self.end[at])

    def __len__(self) -> int:
        return len(self.start)


EMPTY = Spans(np.empty(0, np.int64), np.empty(0, np.int64))

#: A set this many times longer than another is cut by it piece by piece.
_LONGER = 200
#: A set this many times shorter than the other is compared with part of it only.
_FEWER = 8
#: Up to one time for so many intervals, sums of all of these are not worth keeping.
_MANY = 100


def union(start: Array, end: Array) -> Spans:
    """Merge any intervals into a set; empty and negative ones vanish, touching ones join."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if len(start) == 0:
        return EMPTY
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    apart = start[1:] > end[:-1]
    if not apart.all():
        reach = np.maximum.accumulate(end)
        last = np.flatnonzero(start[1:] > reach[:-1])
        start, end = start[np.append(0, last + 1)], reach[np.append(last, len(reach) - 1)]
    return Spans(start.astype(np.int64, copy=False), end.astype(np.int64, copy=False))


def joined(*sets: Spans) -> Spans:
    """The union of merged sets."""
    some = sorted((s for s in sets if len(s)), key=len)
    if len(some) < 2:
        return union(*some[0]) if some else EMPTY
    *others, most = some
    more = union(*map(np.concatenate, zip(*others, strict=True)))
    at = positions(most.start, more.start)
    return union(*inserted(at, (most.start, more.start), (most.end, more.end)))


def union_by(key: Array, start: Array, end: Array) -> dict[int, Spans]:
    """The union of the intervals of each value of the key."""
    keys = distinct(key).tolist()
    if len(keys) == 1:
        return {int(keys[0]): union(start, end)}
    return {int(k): union(start[key == k], end[key == k]) for k in keys}


def clip(spans: Spans, lo: int, hi: int) -> Spans:
    """The part of a merged set inside [lo, hi): a view of it where nothing has to be cut."""
    a = int(np.searchsorted(spans.end, lo, "right"))
    b = int(np.searchsorted(spans.start, hi, "left"))
    if a >= b or hi <= lo:
        return EMPTY
    start, end = spans.start[a:b], spans.end[a:b]
    start = start if start[0] >= lo else np.maximum(start, lo)
    return Spans(start, end if end[-1] <= hi else np.minimum(end, hi))


def gaps(spans: Spans, lo: int, hi: int) -> Spans:
    """The complement of a merged set within [lo, hi): in views of it where nothing has to be added."""
    if hi <= lo:
        return EMPTY
    start, end = clip(spans, lo, hi)
    starts_later, ends_sooner = not len(start) or start[0] > lo, not len(end) or end[-1] < hi
    after = np.concatenate(([lo], end)) if starts_later else end
    before = np.concatenate((start, [hi])) if ends_sooner else start
    # From the end of each interval to the start of the next one: views of both, where nothing is added.
    after, before = after[: None if ends_sooner else -1], before[0 if starts_later else 1 :]
    keep = before > after
    return Spans(after, before) if keep.all() else Spans(after[keep], before[keep])


def within_reach(a: Spans, b: Spans) -> slice:
    """The intervals of merged set `a` between the begin of the first and the end of the last interval of `b`
    (not empty): no other interval overlaps `b`."""
    first = int(np.searchsorted(a.end, b.start[0], "right"))
    return slice(first, max(int(np.searchsorted(a.start, b.end[-1])), first))


def subtract(a: Spans, b: Spans) -> Spans:
    """Points of merged set `a` that are not in merged set `b`."""
    if len(a) == 0 or len(b) == 0:
        return a
    if _LONGER * len(a) < len(b):  # between slices of the long set: indices would need more memory
        rest = [gaps(b, lo, hi) for lo, hi in zip(a.start.tolist(), a.end.tolist(), strict=True)]
        return rest[0] if len(rest) == 1 else Spans(*map(np.concatenate, zip(*rest, strict=True)))
    near = within_reach(a, b)
    if near.stop - near.start < len(a):
        cut = subtract(Spans(a.start[near], a.end[near]), b)
        parts = ((all_[: near.start], some, all_[near.stop :]) for all_, some in zip(a, cut, strict=True))
        return Spans(*map(np.concatenate, parts))
    lo, hi = int(min(a.start[0], b.start[0])), int(max(a.end[-1], b.end[-1]))
    if _FEWER * len(a) < len(b):  # only what meets it counts
        at = meeting(a, b)[1]
        at = at[begins_run(at)]
        b = Spans(b.start[at], b.end[at])
    return intersect(a, gaps(b, lo, hi))


def intersect(a: Spans, b: Spans) -> Spans:
    """Points that are in both merged sets."""
    if len(a) == 0 or len(b) == 0:
        return EMPTY
    if len(a) > len(b):
        a, b = b, a
    if _LONGER * len(a) < len(b):  # slices of the long set: indices would need more memory than they
        parts = [clip(b, lo, hi) for lo, hi in zip(a.start.tolist(), a.end.tolist(), strict=True)]
        return parts[0] if len(parts) == 1 else Spans(*map(np.concatenate, zip(*parts, strict=True)))
    mine, theirs = meeting(a, b)
    start, end = b.start[theirs], b.end[theirs]
    np.maximum(a.start[mine], start, out=start)
    return Spans(start, np.minimum(a.end[mine], end, out=end))


def meeting(a: Spans, b: Spans) -> tuple[Array, Array]:
    """Positions of the intervals of two merged sets that overlap, one pair a row, in the order of `a`."""
    first = positions(b.end, a.start, "right")
    last = positions(b.start, a.end)
    count = np.maximum(last - first, 0)
    total = int(count.sum())
    kind: type[np.signedinteger[Any]] = np.int32 if max(total, len(b)) < 1 << 31 else np.int64
    mine = np.repeat(np.arange(len(a), dtype=kind), count)
    theirs: Array = np.arange(total, dtype=kind)
    theirs += (first - np.cumsum(count) + count).astype(kind)[mine]
    return mine, theirs


class Coverage:
    """Measure of a merged set up to any time: `coverage(t)`; differences give overlaps."""

    def __init__(self, spans: Spans) -> None:
        self._start, self._end = spans

    @cached_property
    def _gaps_before(self) -> Array:
        """The gaps before each interval, in all, from time 0 on: the measure of the set up to a time inside
        the interval is that time less this."""
        held = self._end - self._start
        np.cumsum(held, out=held)
        return np.asarray(np.subtract(self._end, held, out=held))

    def __call__(self, time: Array) -> Ints:
        """Measure of the set in (-inf, t) for each t."""
        return self._measured(time)

    def within(self, lo: Array, hi: Array) -> Ints:
        """Measure of the set inside each [lo, hi)."""
        return self._measured(hi, lo)

    def of_rows(self, start: Array, end: Array, rows: Array) -> Ints:
        """`within` of these rows of two columns, gathered some at a time: all of them take as much memory as
        the result each."""
        out = np.empty(len(rows), np.int64)
        for piece in pieces(len(rows)):
            some = rows[piece]
            out[piece] = self.within(start[some], end[some])
        return out

    def _measured(self, time: Array, less: Array | None = None) -> Ints:
        """The measure before each time, less that before other times."""
        out = np.zeros(len(time), np.int64)
        if len(self._start) == 0:
            return out
        few = 0 < _MANY * len(time) < len(self._start) and _plain(self._start, self._end)
        for times, negative in ((time, False), (less, True)):
            if times is None:
                continue
            if not few and compiled is not None and _plain(self._start, self._end, times, out):
                compiled.measure(self._start, self._end, self._gaps_before, times, negative, out)
                continue
            at = positions(self._start, times, "right")
            at -= 1  # -1 for times before the set: taken out below
            covered = np.minimum(times, self._end.take(at))
            covered -= self._gaps_of_few(at) if few else self._gaps_before.take(at)
            if at.min(initial=0) < 0:
                covered[at < 0] = 0
            out = out - covered if negative else out + covered  # which may be no whole numbers
        return out

    def _gaps_of_few(self, at: Array) -> Array:
        """`_gaps_before` of a few intervals, without sums of all of them; anything for -1."""
        some = distinct(np.maximum(at, 0))
        after = np.append(0, some[:-1] + 1)  # sums of times overflow alike, so that their difference is right
        ends, starts = (np.add.reduceat(times[: some[-1] + 1], after) for times in (self._end, self._start))
        return np.asarray((self._end[some] - np.cumsum(ends - starts))[np.searchsorted(some, at)])


def split(spans: Spans, label: Array, labels: int, lo: Array, hi: Array) -> Ints:
    """Measure of the intervals of a merged set with each label inside each [lo, hi) (ascending, disjoint), a
    row a label."""
    if compiled is None or not len(lo):
        mine = (label == k for k in range(labels))
        found = [Coverage(Spans(spans.start[at], spans.end[at])).within(lo, hi) for at in mine]
        return np.array(found, np.int64).reshape(labels, len(lo))
    near = slice(int(np.searchsorted(spans.end, lo[0], "right")), int(np.searchsorted(spans.start, hi[-1])))
    out = np.zeros((labels, len(lo)), np.int64)
    at = label[near].astype(np.int32, copy=False)
    start, end, at, lo, hi = map(np.ascontiguousarray, (spans.start[near], spans.end[near], at, lo, hi))
    compiled.shares(start, end, at, lo, hi, labels, True, out)
    return out
