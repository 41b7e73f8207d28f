"""Transfers between neighbouring stages of a pipeline: sends and receives of two stages at a time.

They are known where the tracer recorded the name of the call. The kernel of a send, of a receive and
of an all-to-all has one name (``ncclDevKernel_SendRecv``). An all-to-all ends at once on all of its
ranks, always the same ones; a transfer ends on the ranks of two stages, and a stage in the middle has
another partner each time. Two stages alone wait in turns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.metrics.collectives import RECEIVE, SEND
from advisor.model.arrays import Array
from advisor.ranks.align import RankRows

#: Ends of one transfer lie so many times closer than those of the next one, and at most this far apart.
_TIMES, _MOST_NS = 5.0, 20_000
#: So many calls, and neighbours of each, tell how close ends of one transfer lie.
_SAMPLE, _NEIGHBOURS = 500, 64
#: Transfers that are looked at, of the beginning.
_TRANSFERS = 5_000
#: A set of ranks that comes in this share of the transfers is one of stages, not chance; and such sets
#: must make so many of them.
_OFTEN, _MOST = 0.05, 0.8
#: So many transfers between two stages follow one for which the other stage was late.
_IN_TURN = 0.8
#: In fewer transfers sets that come by chance look alike.
_LEAST = 12


def between_stages(ranks: Sequence[RankRows], *, one_clock: bool) -> list[Array]:
    """Masks of the calls of each rank that pass data from stage to stage. Where their names are not
    recorded, ends are compared on the absolute clocks, or on the `one_clock` that all share: without
    these, or where they differ by more than a transfer takes, none is found."""
    named = [np.array([k in (SEND, RECEIVE) for k in r.kinds] or [False])[r.kind] for r in ranks]
    ended = _by_end(ranks, one_clock=one_clock)
    return [a | b for a, b in zip(named, ended, strict=True)]


def _by_end(ranks: Sequence[RankRows], *, one_clock: bool) -> list[Array]:
    kind = [np.array([k == "send-recv" for k in r.kinds] or [False])[r.kind] for r in ranks]
    none = [np.zeros(len(r), bool) for r in ranks]
    if (not one_clock and any(r.zero is None for r in ranks)) or sum(bool(k.any()) for k in kind) < 2:
        return none
    end = np.concatenate(
        [((r.zero or 0) + r.start + r.duration)[k] for r, k in zip(ranks, kind, strict=True)]
    )
    of = np.repeat(np.arange(len(ranks)), [int(k.sum()) for k in kind])
    order = np.argsort(end, kind="stable")
    end, of = end[order], of[order]
    close = _closeness(end, of)
    if not 0 < close <= _MOST_NS:
        return none
    group = np.cumsum(np.diff(end, prepend=end[0]) > close)
    shared = (np.bincount(group) > 1)[group]
    if 2 * int(shared.sum()) < len(of):
        return none
    duration = np.concatenate([r.duration[k] for r, k in zip(ranks, kind, strict=True)])[order]
    group = np.cumsum(np.diff(group[shared], prepend=-1) != 0) - 1
    some = group < _TRANSFERS
    group, of, duration = group[some], of[shared][some], duration[shared][some]
    there = np.zeros((int(group[-1]) + 1, len(ranks)), bool)
    there[group, of] = True
    length = np.zeros(there.shape)
    length[group, of] = duration
    if len(there) < _LEAST:
        return none
    return kind if _of_stages(there) or _in_turns(there, length) else none


def _closeness(end: Array, of: Array) -> float:
    """The distance that parts ends of one transfer from those of others, ns, by the first large step
    between the distances to the nearest, the second nearest and further ends of other ranks; 0 where
    there is none. `end` is ascending."""
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
    return float(np.sqrt(median[far[0]] * median[far[0] + 1])) if len(far) else 0.0


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
        if not part and not several and count[at] >= _OFTEN * len(there):
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
    for one in sets[count >= _OFTEN * len(there)]:
        mine = np.flatnonzero((there == one).all(axis=1))
        here = late[mine]
        other = here[1:] == (one & ~here[:-1])
        turns += int((other.all(axis=1) & here[1:].any(axis=1) & here[:-1].any(axis=1)).sum())
    return turns >= _IN_TURN * len(there)
