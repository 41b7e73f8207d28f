"""Which calls on different ranks are one collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.model.arrays import Array, distinct
from advisor.ranks.align import UNKNOWN, Clock, RankRows, belongs, nearest_pairs

#: A set of ranks that comes in this share of the collectives is a communicator; one that comes
#: less often lacks calls that were lost, and must hold this share of a communicator.
_OFTEN, _COMPLETE = 0.01, 0.9
_MIN_CALLS = 2
#: Communicators that are looked for among the calls of one kind.
_MAX_GROUPS = 64


class Matches(Struct, frozen=True):
    """Calls of all ranks, one after the other (`of` is the position of the call's rank).

    `collective` numbers the collective that the call belongs to, UNKNOWN where no other rank's
    call was found; `complete` says by collective whether all ranks that take part are there.
    """

    of: Array
    collective: Array
    complete: Array

    @property
    def matched(self) -> Array:
        """Mask of the calls that belong to a complete collective."""
        if len(self.complete) == 0:
            return np.zeros(len(self.of), bool)
        return np.asarray((self.collective != UNKNOWN) & self.complete[np.maximum(self.collective, 0)])

    @property
    def count(self) -> int:
        """Complete collectives."""
        return int(self.complete.sum())


class _Family(Struct):
    """Collectives of one communicator, in order: positions of calls and of their collective."""

    size: int
    calls: list[Array]
    places: list[Array]


def match(ranks: Sequence[RankRows], clocks: Sequence[Clock]) -> Matches:
    """By communicator and sequence number where they are known, else by kind and the moment at
    which they end."""
    sizes = [len(r) for r in ranks]
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    of = np.repeat(np.arange(len(ranks)), sizes)
    ends = [c(r.start + r.duration) for r, c in zip(ranks, clocks, strict=True)]
    end = np.concatenate([np.empty(0, np.int64), *ends])
    keyed = _keys(ranks)
    kind = _kinds(ranks)
    families = list(_by_key(keyed, of))
    for code in distinct(kind[keyed == UNKNOWN]).tolist():
        calls = []
        for i in range(len(ranks)):
            mine = np.arange(first[i], first[i + 1])
            mine = mine[(kind[mine] == code) & (keyed[mine] == UNKNOWN)]
            calls.append(mine[np.argsort(end[mine], kind="stable")])
        families += _by_end(calls, end)
    collective = np.full(len(of), UNKNOWN, np.int64)
    complete = []
    total = 0
    for family in families:
        for calls_, places in zip(family.calls, family.places, strict=True):
            collective[calls_] = places + total
        complete.append(_complete(family))
        total += family.size
    return Matches(of, collective, np.concatenate([np.empty(0, bool), *complete]))


def _kinds(ranks: Sequence[RankRows]) -> Array:
    names = sorted({k for r in ranks for k in r.kinds})
    parts = [np.array([names.index(k) for k in r.kinds], np.int64)[r.kind] for r in ranks]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _keys(ranks: Sequence[RankRows]) -> Array:
    """One integer for communicator and sequence number, UNKNOWN where one of them is."""
    names = {name: i for i, name in enumerate(sorted({g for r in ranks for g in r.groups}))}
    parts = []
    for rows in ranks:
        known = (rows.group != UNKNOWN) & (rows.sequence != UNKNOWN)
        index = np.array([names[g] for g in rows.groups] or [0], np.int64)
        key = (index[np.maximum(rows.group, 0)] << 40) + rows.sequence
        # A number that a rank uses twice (after a restart) identifies nothing.
        _, back, count = np.unique(key, return_inverse=True, return_counts=True)
        parts.append(np.where(known & (count[back] == 1), key, UNKNOWN))
    return np.concatenate([np.empty(0, np.int64), *parts])


def _by_key(keys: Array, of: Array) -> Iterator[_Family]:
    known = np.flatnonzero(keys != UNKNOWN)
    group = keys[known] >> 40
    for one in distinct(group).tolist():
        mine = known[group == one]
        numbers, place = np.unique(keys[mine], return_inverse=True)
        family = _Family(len(numbers), [], [])
        for rank in distinct(of[mine]).tolist():
            here = of[mine] == rank
            family.calls.append(mine[here])
            family.places.append(place[here])
        yield family


def _by_end(calls: list[Array], end: Array) -> Iterator[_Family]:
    """Calls of one kind by rank, ascending by end. The rank with most of them leads; those whose
    calls end with its own are of one communicator with it, the rest is looked at again."""
    left = list(calls)
    for _ in range(_MAX_GROUPS):
        lead = max(range(len(left)), key=lambda i: (len(left[i]), -i), default=0)
        if not left or len(left[lead]) < _MIN_CALLS:
            return
        theirs = end[left[lead]]
        family = _Family(len(theirs), [left[lead]], [np.arange(len(theirs))])
        rest: list[Array] = []
        for i, mine in enumerate(left):
            if i == lead:
                rest.append(mine[:0])
                continue
            near, own = nearest_pairs(theirs, end[mine])
            within = (end[mine] >= theirs[0]) & (end[mine] <= theirs[-1])
            found = belongs(np.abs(theirs[near] - end[mine[own]]), theirs, int(within.sum()))
            if not found.any():
                rest.append(mine)
                continue
            family.calls.append(mine[own[found]])
            family.places.append(near[found])
            rest.append(np.delete(mine, own[found]))
        if len(family.calls) > 1:
            yield family
        left = rest


def _complete(family: _Family) -> Array:
    """By collective: whether all ranks that take part in it are there, two at least.

    Which ranks belong together shows in the sets that come often. A set that lacks ranks of a
    larger one is complete only where these were recording: then it is a communicator of its own.
    """
    ranks = len(family.places)
    there = np.zeros((ranks, family.size), bool)
    span = np.zeros((ranks, 2), np.int64)
    for i, places in enumerate(family.places):
        there[i, places] = True
        span[i] = (places.min(), places.max()) if len(places) else (0, -1)
    sets, of, count = np.unique(there.T, axis=0, return_inverse=True, return_counts=True)
    of = of.reshape(-1)
    often = count >= max(2, _OFTEN * family.size)
    often[np.argmax(count)] = True
    size, known = sets.sum(axis=1), sets[often]
    out = np.zeros(family.size, bool)
    for number, one in enumerate(sets):
        if size[number] < 2:
            continue
        here = np.flatnonzero(of == number)
        larger = known[(known >= one).all(axis=1) & (known != one).any(axis=1)]
        if len(larger) == 0:
            out[here] = True
        elif often[number]:
            lacking = (larger.any(axis=0) & ~one).nonzero()[0]
            first, last = span[lacking, 0].max(), span[lacking, 1].min()
            out[here] = (here >= first) & (here <= last)
        else:
            out[here] = size[number] >= _COMPLETE * int(larger.sum(axis=1).min())
    return out
