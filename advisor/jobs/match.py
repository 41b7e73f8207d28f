"""Which calls on different ranks are one collective, and which pass data between stages of a pipeline."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.jobs.align import UNKNOWN, Clock, RankRows, belongs, keys_of, kinds_of, nearest_pairs
from advisor.metrics.budgeted.collectives import RECEIVE, SEND
from advisor.model.arrays import Array, distinct

#: A set of ranks that occurs in this share of the collectives is a communicator; a rarer one lacks lost
#: calls, and must hold this share of a communicator.
_OFTEN, _COMPLETE = 0.01, 0.9
_MIN_CALLS = 2
#: Number of communicators searched for among the calls of one kind.
_MAX_GROUPS = 64


class Matches(Struct, frozen=True):
    """Calls of all ranks, one after the other (`of` is the position of the call's rank). `collective` numbers
    the collective that the call belongs to, UNKNOWN if no other rank's call was found; `complete` says by
    collective whether all participating ranks are there."""

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
    """By communicator and sequence number if they are known, else by kind and the time at which they end."""
    of = np.repeat(np.arange(len(ranks)), [len(r) for r in ranks])
    ends = [c(r.start + r.duration) for r, c in zip(ranks, clocks, strict=True)]
    end, kind, keyed = _joined(ends), _joined(kinds_of(ranks)), _joined(map(_once, keys_of(ranks)))
    families = list(_by_key(keyed, of))
    for code in distinct(kind[keyed == UNKNOWN]).tolist():
        mine = np.flatnonzero((kind == code) & (keyed == UNKNOWN))
        mine = mine[np.lexsort((end[mine], of[mine]))]
        families += _by_end([mine[of[mine] == i] for i in range(len(ranks))], end)
    collective = np.full(len(of), UNKNOWN, np.int64)
    complete = []
    total = 0
    for family in families:
        for calls, places in zip(family.calls, family.places, strict=True):
            collective[calls] = places + total
        complete.append(_complete(family))
        total += family.size
    return Matches(of, collective, np.concatenate([np.empty(0, bool), *complete]))


def _joined(parts: Iterable[Array]) -> Array:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _once(keys: Array) -> Array:
    """The keys, UNKNOWN for one that a rank uses twice (after a restart): it identifies nothing."""
    _, back, count = np.unique(keys, return_inverse=True, return_counts=True)
    return np.where(count[back] == 1, keys, UNKNOWN)


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
    """Calls of one kind by rank, ascending by end. The rank with most of them leads; those whose calls
    end with its own are of one communicator with it, and the rest is matched again."""
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
            if found.any():
                family.calls.append(mine[own[found]])
                family.places.append(near[found])
            rest.append(np.delete(mine, own[found]))
        if len(family.calls) > 1:
            yield family
        left = rest


def _complete(family: _Family) -> Array:
    """By collective: whether all ranks that take part in it are there, at least two. Frequent sets show which
    ranks belong together. A set that lacks ranks of a larger one is complete only if these were recording:
    then it is a communicator of its own."""
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


# --- transfers between neighbouring stages of a pipeline -------------------------------------------
# They are known where the tracer recorded the name of the call. The kernel of a send, of a receive and
# of an all-to-all has one name (``ncclDevKernel_SendRecv``). An all-to-all ends at once on all of its
# ranks, always the same ones; a transfer ends on the ranks of two stages, and a stage in the middle has
# another partner each time. Two stages alone take turns in waiting.

#: Ends of one transfer are this many times closer than those of the next one, and mostly at most this far
#: apart.
_TIMES, _MOST_NS = 5.0, 20_000
#: This many calls, and neighbours of each, show how close ends of one transfer are.
_SAMPLE, _NEIGHBOURS = 500, 64
#: Number of transfers that are examined, from the beginning.
_TRANSFERS = 5_000
#: A set of ranks that occurs in this share of the transfers is one of stages, not chance; and such sets
#: must make up this share of them.
_REPEATED, _MOST = 0.05, 0.8
#: This share of the transfers between two stages follows one for which the other stage was late.
_IN_TURN = 0.8
#: With fewer transfers random sets look alike.
_LEAST = 12


def between_stages(ranks: Sequence[RankRows], *, one_clock: bool, known: bool = False) -> list[Array]:
    """How long each call of each rank waits that passes data from stage to stage, ns, UNKNOWN for others. If
    their names are not recorded, ends are compared on the absolute clocks, or on the `one_clock` that all
    share: without these, or if they differ by more than a transfer takes, none is found.

    Of a call of which no other rank's end is known, all is waiting. `known`: the ranks are stages, whatever
    their ends show."""
    named = of_kinds(ranks, (SEND, RECEIVE))
    ended = _ended_together(ranks, one_clock=one_clock, known=known)
    return [
        np.where(wait != UNKNOWN, wait, np.where(is_named, r.duration, UNKNOWN))
        for r, is_named, wait in zip(ranks, named, ended, strict=True)
    ]


def of_kinds(ranks: Sequence[RankRows], kinds: Container[str]) -> list[Array]:
    """Masks of the calls of each rank that are of these kinds."""
    return [np.array([k in kinds for k in r.kinds], bool)[r.kind] for r in ranks]


def _ended_together(ranks: Sequence[RankRows], *, one_clock: bool, known: bool) -> list[Array]:
    """The waiting of sends and receives whose ends show stages: of those that end together the shortest is
    the transfer, the rest of the others is waiting."""
    kind = of_kinds(ranks, ("send-recv",))
    none = [np.full(len(r), UNKNOWN, np.int64) for r in ranks]
    if (not one_clock and any(r.zero is None for r in ranks)) or sum(bool(k.any()) for k in kind) < 2:
        return none
    end = np.concatenate(
        [((r.zero or 0) + r.start + r.duration)[k] for r, k in zip(ranks, kind, strict=True)]
    )
    of = np.repeat(np.arange(len(ranks)), [int(k.sum()) for k in kind])
    order = np.argsort(end, kind="stable")
    end, of = end[order], of[order]
    close = _closeness(end, of)
    if close <= 0:
        return none
    group = np.cumsum(np.diff(end, prepend=end[0]) > close)
    shared = (np.bincount(group) > 1)[group]
    if 2 * int(shared.sum()) < len(of):
        return none
    duration = np.concatenate([r.duration[k] for r, k in zip(ranks, kind, strict=True)])[order]
    shortest = np.full(int(group[-1]) + 1, duration.max())
    np.minimum.at(shortest, group, duration)
    transfer = np.where(shared, shortest[group], np.median(shortest[distinct(group[shared])]))
    wait = np.empty(len(of), np.int64)
    wait[order] = np.maximum(duration - transfer, 0)
    first = np.cumsum([0, *(int(k.sum()) for k in kind)])
    found = [np.full(len(r), UNKNOWN, np.int64) for r in ranks]
    for i, mask in enumerate(kind):
        found[i][mask] = wait[first[i] : first[i + 1]]
    if known:
        return found
    group = np.cumsum(np.diff(group[shared], prepend=-1) != 0) - 1
    some = group < _TRANSFERS
    group, of, duration = group[some], of[shared][some], duration[shared][some]
    there = np.zeros((int(group[-1]) + 1, len(ranks)), bool)
    there[group, of] = True
    length = np.zeros(there.shape)
    length[group, of] = duration
    stages = len(there) >= _LEAST and (_of_stages(there) or _in_turns(there, length))
    return found if stages else none


def _closeness(end: Array, of: Array) -> float:
    """The distance that separates ends of one transfer from others, ns: above the first large step between
    distances to the nearest, second nearest and further ends of other ranks, however far off these are; 0
    without one, or where the nearest are too far. `end` is ascending."""
    at = np.linspace(0, len(end) - 1, min(len(end), _SAMPLE)).astype(np.int64)
    reach = np.concatenate((np.arange(-_NEIGHBOURS, 0), np.arange(1, _NEIGHBOURS + 1)))
    near = at[:, None] + reach
    inside = (near >= 0) & (near < len(end))
    near = np.clip(near, 0, len(end) - 1)
    apart = np.abs(end[near] - end[at][:, None]).astype(float)
    apart[~inside | (of[near] == of[at][:, None])] = np.inf
    median = np.maximum(np.median(np.sort(apart, axis=1)[:, :_NEIGHBOURS], axis=0), 1.0)
    median = median[np.isfinite(median)]
    if len(median) < 2:
        return 0.0
    far = np.flatnonzero(median[1:] >= _TIMES * median[:-1])
    if not len(far) or median[far[0]] > _MOST_NS:
        return 0.0
    near, further = median[far[0]], median[far[0] + 1]
    return float(min(np.sqrt(near * further), max(_MOST_NS, _TIMES * near)))


def _of_stages(there: Array) -> bool:
    """Whether ranks end together as three or more stages of a pipeline do; a row a transfer."""
    sets, count = np.unique(there, axis=0, return_counts=True)
    pairs = np.empty((0, there.shape[1]), bool)
    known = 0
    for at in np.argsort(-count, kind="stable")[:_SAMPLE].tolist():
        one = sets[at]
        part = bool((pairs >= one).all(axis=1).any())  # calls of some ranks were lost
        # Transfers of other stages may end at the same time.
        several = bool((pairs[(pairs <= one).all(axis=1)].any(axis=0) == one).all())
        if not part and not several and count[at] >= _REPEATED * len(there):
            pairs, several = np.vstack((pairs, one)), True
        known += int(count[at]) * (part or several)
    sizes = pairs.sum(axis=1)
    partners = bool((pairs.sum(axis=0) > 1).any())
    return partners and int(sizes.min()) == int(sizes.max()) and known >= _MOST * len(there)


def _in_turns(there: Array, length: Array) -> bool:
    """Whether ranks end together as two stages do: one waits (its call of `length` takes long) while
    the other works, then the other way round."""
    late = there & (2 * length < length.max(axis=1, keepdims=True))
    turns = 0
    sets, count = np.unique(there, axis=0, return_counts=True)
    for one in sets[count >= _REPEATED * len(there)]:
        mine = np.flatnonzero((there == one).all(axis=1))
        here = late[mine]
        other = here[1:] == (one & ~here[:-1])
        turns += int((other.all(axis=1) & here[1:].any(axis=1) & here[:-1].any(axis=1)).sum())
    return turns >= _IN_TURN * len(there)
