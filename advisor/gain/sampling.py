"""Which steps stand for a window that is too long to be replayed whole.

Steps are sorted by their kind (phase, and about how many operations they hold) and by their time, and cut
into portions that hold as much time each, so that few long steps have a portion of their own (probability
proportional to size; Cochran, Sampling Techniques, chapter 9A). Of each portion the step nearest to its mean
is replayed with its neighbours, and every step of the window counts for the replayed one that is most like
it. So a window that is recorded twice gives the same times as one.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.gain import limits
from advisor.model.arrays import Array, distinct


class Kinds(Struct, frozen=True):
    """The steps of a window, one entry each in their order: position, number of the phase, class of size,
    time in ns."""

    at: Array
    phase: Array
    size: Array
    time: Array


def in_proportion(
    kinds: Kinds, size: Array, lead: int, limit: int
) -> tuple[tuple[tuple[int, int], ...], Array, Array]:
    """The stretches to be replayed, the measured steps in them and how many steps of the window each of these
    stands for, as :class:`~advisor.gain.excerpt.Replayed` has them.

    `size`: operations of every step of the capture; `lead`: steps that are replayed before the measured ones.
    The stretches hold at most `limit` operations, but at least `STRETCH_STEPS` steps are measured."""
    lo, hi = int(kinds.at[0]), int(kinds.at[-1])
    each = max(float(size[lo : hi + 1].mean()), 1.0)
    lead = max(min(lead, int(limit / each) - limits.STRETCH_STEPS), limits.LEAD_STEPS)
    most = int(limit / (each * (lead + limits.STRETCH_STEPS)))
    total = np.concatenate(([0], np.cumsum(size)))
    chosen = _around(_middle(kinds, limits.STRETCH_STEPS), limits.STRETCH_STEPS, lead, lo, hi)
    for count in range(min(most, limits.MOST_STRETCHES), 0, -1):
        wide = max(int(limit / (each * count)) - lead, limits.STRETCH_STEPS)
        fitting = _fitting(kinds, count, wide, lead, limit, total)
        if fitting is not None:
            chosen = fitting
            break
    begins = [i + lead if i + 1 > lo else lo for i, _ in chosen]
    inside = [(kinds.at >= i) & (kinds.at <= j) for i, (_, j) in zip(begins, chosen, strict=True)]
    measured = np.flatnonzero(np.logical_or.reduce(inside))
    return chosen, kinds.at[measured], _weights(kinds, measured)


def _fitting(
    kinds: Kinds, count: int, wide: int, lead: int, limit: int, total: Array
) -> tuple[tuple[int, int], ...] | None:
    """About `count` stretches of at most `wide` measured steps that hold no more than `limit` operations;
    `total` is the running sum of the steps' operations. None if not even the shortest do."""
    lo, hi = int(kinds.at[0]), int(kinds.at[-1])
    while wide >= (1 if count > 1 else limits.STRETCH_STEPS):
        typical = _typical(kinds, count) if count > 1 else _middle(kinds, wide)
        chosen = _around(typical, wide, lead, lo, hi)
        if sum(total[j + 1] - total[i] for i, j in chosen) <= limit:
            return chosen
        wide = min(wide - 1, wide * 3 // 4)
    return None


def size_class(size: Array) -> Array:
    """Equal for steps of about as many operations: classes are a factor of 1.4 wide."""
    return np.asarray(np.rint(2 * np.log2(np.maximum(size, 1))), np.int64)


def _typical(kinds: Kinds, count: int) -> Array:
    """One step (position) of each of about `count` portions of the window's time, nearest to its mean."""
    order = np.lexsort((kinds.time, kinds.size, kinds.phase))
    time = np.maximum(kinds.time[order].astype(float), 1.0)
    until = np.cumsum(time) / time.sum()
    # A kind that holds less than half a portion joins the one before it.
    kind = np.cumsum(np.diff(kinds.phase[order], prepend=-1) | np.diff(kinds.size[order], prepend=-1) != 0)
    held = np.bincount(kind, time) / time.sum()
    begins = np.concatenate(([0.0], np.cumsum(held)[:-1]))
    own = 2 * count * held >= 1
    of = np.maximum.accumulate(np.where(own, np.arange(len(held)), 0))[kind]
    of = np.maximum(of, int(np.argmax(own)) if own.any() else 0)
    share = np.bincount(of, time, len(held)) / time.sum()
    portions = np.maximum(np.rint(count * share), 1)
    first = np.minimum.reduceat(begins[kind], np.flatnonzero(np.diff(of, prepend=-1)))
    started = dict(zip(distinct(of).tolist(), first.tolist(), strict=True))
    start = np.array([started[i] for i in of.tolist()])
    middle = (until - time / time.sum() / 2 - start) / share[of]
    portion = np.minimum((middle * portions[of]).astype(np.int64), portions[of] - 1)
    begin = np.flatnonzero((np.diff(of, prepend=-1) != 0) | (np.diff(portion, prepend=-1) != 0))
    found = []
    for i, j in zip(begin.tolist(), [*begin[1:].tolist(), len(order)], strict=True):
        found.append(int(order[i + int(np.argmin(np.abs(time[i:j] - time[i:j].mean())))]))
    return np.asarray(kinds.at[np.sort(np.array(found))])


def _middle(kinds: Kinds, wide: int) -> Array:
    """The step (position) in the middle of the stretch of `wide` steps whose mean time is nearest to that of
    all: that stretch alone is replayed."""
    total = np.concatenate(([0.0], np.cumsum(kinds.time)))
    until = np.searchsorted(kinds.at, kinds.at + wide)
    whole = kinds.at + wide - 1 <= kinds.at[-1]
    mean = (total[until] - total[:-1]) / (until - np.arange(len(kinds.at)))
    off = np.where(whole, np.abs(mean - kinds.time.mean()), np.inf)
    return np.array([int(kinds.at[np.argmin(off)]) + (wide - 1) // 2])


def _around(steps: Array, wide: int, lead: int, lo: int, hi: int) -> tuple[tuple[int, int], ...]:
    """Stretches of `wide` steps around each of these and `lead` steps before; those that touch are merged."""
    found: list[tuple[int, int]] = []
    for step in steps.tolist():
        begin = max(min(step - (wide - 1) // 2, hi - wide + 1), lo)
        first, last = max(begin - lead, lo - limits.LEAD_STEPS), min(begin + wide - 1, hi)
        if found and first <= found[-1][1] + 1:
            first, last = found[-1][0], max(last, found[-1][1])
            found.pop()
        found.append((first, last))
    return tuple(found)


def _weights(kinds: Kinds, measured: Array) -> Array:
    """How many steps of the window count for each measured one: those of its kind, else of its phase, that
    are nearest to it in time; steps alike are shared evenly."""
    weight = np.zeros(len(measured))
    count = len(kinds.at)
    left = np.ones(count, bool)
    nothing = np.zeros(count, np.int64)
    for key in (kinds.phase * (1 << 20) + kinds.size, kinds.phase, nothing):
        for one in distinct(key[measured]).tolist():
            of = np.flatnonzero(key[measured] == one)
            mine = left & (key == one)
            if not mine.any():
                continue
            times, at = np.unique(kinds.time[measured[of]], return_inverse=True)
            right = np.searchsorted((times[1:] + times[:-1]) / 2, kinds.time[mine])
            each = np.bincount(right, minlength=len(times)) / np.bincount(at)
            weight[of] += each[at]
            left &= ~mine
    return weight
