"""Ranks that come late to collectives together: which, by how much, what takes longer there, and what the
others would wait less without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from advisor.jobs.align import UNKNOWN, RankRows
from advisor.metrics.budgeted.collectives import EXPERTS, KERNELS
from advisor.metrics.loaded.kernels import dense
from advisor.model.arrays import Array

#: The origin of a lateness before the first collective of the window.
UNSEEN = "what lies before its window"
#: Ranks are late together where they wait for less than two fifths as long as the others: those that take
#: turns at being late wait half as long, or longer.
_STEADY = 0.6
#: Most of the waiting for a group. Choice: the rest is noise of many collectives.
_MOSTLY = 0.8


class Calls(NamedTuple):
    """Judged collectives, one row a call, those of a collective side by side, which `first` and `size` say:
    position `of` its rank, ns of waiting (`wait`; `bare`: with no other kernel beside it) and what the device
    did before (`lead`, UNKNOWN in `lead[:, 0]` where that is not known). `kind` and `noisy` have one entry a
    collective: what it does, and whether nobody is late to it."""

    of: Array
    first: Array
    size: Array
    wait: Array
    bare: Array
    lead: Array
    kind: Array
    noisy: Array

    @classmethod
    def taken(
        cls,
        ranks: Sequence[RankRows],
        of: Array,
        calls: Array,
        first: Array,
        wait: Array,
        bare: Array,
        noisy: Array,
    ) -> Calls:
        """`calls` are positions in the rows of all ranks, one rank after the other; `of`, `wait` and `bare`
        have an entry for each of them."""
        names = sorted({kind for rows in ranks for kind in rows.kinds})
        kinds = [np.array([names.index(k) for k in r.kinds] or [0], np.int64)[r.kind] for r in ranks]
        lead, kind = np.concatenate([r.lead for r in ranks])[calls], np.concatenate(kinds)[calls]
        size = np.diff(np.append(first, len(calls)))
        return cls(of, first, size, wait, bare, lead, kind[first], noisy)

    def each(self, of_collective: Array) -> Array:
        """A value of each collective for each of its calls."""
        return np.repeat(of_collective, self.size)

    def sums(self, values: Array, where: Array) -> Array:
        """Sum over the calls of each collective `where` the mask holds."""
        return np.asarray(np.add.reduceat(np.where(where, values, 0), self.first))


class LateGroup(Struct, frozen=True):
    """Ranks (positions) that come late together to `calls` collectives, by `late` ns on average.

    `steady` is by member how much less it waits than the ranks outside in the same collectives, 0..1.
    `lead` and `others` are what the members and the ranks outside did since the collective before, by
    `RankRows.leads`, mean ns a call; `unseen` is the part of the lateness (ns, over all calls) before which
    the window shows nothing. Of the waiting with no other kernel beside it, the unseen left out, `ahead` is
    by collective what ends when the members come with the last of the others, `kernels` how long the
    kernels of the last member ran since the one before; `even` is what ends over all of them when every
    rank comes at their mean on average, and `spread` when every rank does each time."""

    members: tuple[int, ...]
    steady: tuple[float, ...]
    calls: int
    late: float
    lead: Array
    others: Array
    unseen: float
    ahead: Array
    kernels: Array
    even: int
    spread: int

    @property
    def caught_up(self) -> int:
        """The waiting that ends if the members come with the last of the others, ns."""
        return int(self.ahead.sum())

    @property
    def spread_ratio(self) -> float | None:
        """The share of the collectives that hold most of that waiting; None if there is none."""
        held = np.cumsum(np.sort(self.ahead)[::-1])
        if not len(held) or held[-1] <= 0:
            return None
        return float((np.searchsorted(held, _MOSTLY * held[-1]) + 1) / len(held))

    def part(self, leads: Sequence[str]) -> str | None:
        """What takes most longer there than on the others; None if nothing does."""
        longer = ((self.lead - self.others) * self.calls).tolist()
        more = dict(zip(leads, longer, strict=True)) | {UNSEEN: self.unseen}
        name = max(more, key=lambda n: (more[n], n))
        return name if more[name] > 0 else None


def late_together(calls: Calls, count: int) -> tuple[int, ...]:
    """The ranks (of `count`) on the late side of the widest gap between their mean arrivals, if they wait
    for less than `1 - _STEADY` of what the others do; else none."""
    if not len(calls.first):
        return ()
    mean = calls.each(np.add.reduceat(calls.wait, calls.first) / calls.size)
    number = np.bincount(calls.of, minlength=count)
    later = np.bincount(calls.of, mean - calls.wait, count) / np.maximum(number, 1)
    order = [i for i in np.argsort(-later, kind="stable").tolist() if number[i]]
    if len(order) < 2:
        return ()
    cut = int(np.argmax(-np.diff(later[order]))) + 1
    group = late_group(calls, tuple(sorted(order[:cut])), ())
    return group.members if group is not None and min(group.steady) >= _STEADY else ()


def late_group(calls: Calls, members: tuple[int, ...], leads: Sequence[str]) -> LateGroup | None:
    """These ranks beside the others that they meet; None if nobody waits where both take part."""
    late = np.isin(calls.of, members)
    number = np.add.reduceat(late.astype(np.int64), calls.first)
    outside = calls.size - number
    both = (number > 0) & (outside > 0) & ~calls.noisy
    if not both.any():
        return None
    wait_of_late = calls.sums(calls.wait, late) / np.maximum(number, 1)
    wait_outside = calls.sums(calls.wait, ~late) / np.maximum(outside, 1)
    later = wait_outside - wait_of_late

    def steady(i: int) -> float:
        own = calls.each(both) & (calls.of == i)
        theirs = float(calls.each(wait_outside)[own].sum())
        return max(1.0 - float(calls.wait[own].sum()) / theirs, 0.0) if theirs else 0.0

    known = calls.lead[:, 0] != UNKNOWN
    seen = both & (np.add.reduceat((late & known).astype(np.int64), calls.first) == number)
    shown, place = calls.each(seen) & known, np.arange(len(calls.of))
    lead, others = (
        calls.lead[mine].mean(axis=0) if mine.any() else np.zeros(calls.lead.shape[1])
        for mine in (shown & late, shown & ~late)
    )
    most = np.iinfo(np.int64).max
    nearest, last = (
        np.minimum.reduceat(np.where(mine, calls.bare, most), calls.first)[seen] for mine in (~late, late)
    )
    # The last member is the one that waits least; calls of a collective are sorted by that.
    at = np.minimum.reduceat(np.where(late, place, len(place)), calls.first)[seen]
    works = [i for i, name in enumerate(leads) if name in (KERNELS, EXPERTS)]
    return LateGroup(
        members,
        tuple(map(steady, members)),
        int(both.sum()),
        float(later[both].mean()),
        lead,
        others,
        float(np.maximum(later[both & ~seen], 0).sum()),
        np.maximum(nearest - last, 0),
        calls.lead[at][:, works].sum(axis=1, dtype=np.int64),
        *_even(calls, members, seen),
    )


def _even(calls: Calls, members: Sequence[int], seen: Array) -> tuple[int, int]:
    """ns of waiting that end when every rank comes at the mean of all: on average, which is by kind of
    collective the lateness of the member that is latest on average, as chance stays; and each time."""
    mean = np.add.reduceat(calls.bare, calls.first) / calls.size
    kinds, kind = dense(calls.kind)
    here = calls.each(seen)
    table = np.zeros((len(kinds), int(calls.of.max()) + 1))
    np.add.at(table, (calls.each(kind)[here], calls.of[here]), (calls.each(mean) - calls.bare)[here])
    even = int(np.maximum(table[:, list(members)].max(axis=1), 0).sum())
    return even, max(int(mean[seen].sum()), even)
