"""One clock for the ranks of a pipeline, from the ends of what they send each other: a send and its receive
end together, on nodes whose clocks are apart by the same time each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from advisor.jobs.align import RankRows
from advisor.jobs.match import of_kinds
from advisor.metrics.budgeted.collectives import POINT_TO_POINT
from advisor.model.arrays import Array

#: Clocks of nodes are apart by at most this, ns. Choice: NTP keeps them to some milliseconds.
_APART_NS = 20_000_000
#: The ends of one transfer lie within this, ns: as long as one over NVLink or RDMA takes at most.
_TOGETHER_NS = 10_000
#: Ends of one transfer are closer than ends that only follow each other as regularly as stages compute:
#: counted within this, ns, and shifts with this share of the most such ends are as good.
_TIGHT_NS, _AS_GOOD = 3_000, 0.9
#: Two ranks send to each other if this share of the transfers of the one that has fewer end together: a stage
#: shares half of its transfers with each neighbour.
_SHARED = 0.4
#: Transfers in which a rank does not wait are at most as long as this quantile of its own, give or take
#: `_TOGETHER_NS`.
_SHORT = 0.1
#: Clocks on which this share of the ends lie together fit already; and two ranks are neighbours rather if
#: this share of the ends that are about together are close.
_FIT = 0.8
#: Ends that are denser than this many times `_TOGETHER_NS` are together by chance.
_SPARSE = 10
#: Pairs of ends that are compared at most.
_PAIRS = 2_000_000


def on_common_clock(ranks: Sequence[RankRows], one_clock: bool) -> tuple[Sequence[RankRows], bool]:
    """The ranks with zeros that let their transfers end together, and whether they then still count from one
    moment; as they are if they do already, or where nothing shows by how much clocks are apart."""
    sends = of_kinds(ranks, POINT_TO_POINT)
    if not one_clock and any(r.zero is None for r in ranks):
        return ranks, one_clock
    zero = [0 if one_clock else r.zero or 0 for r in ranks]
    known = _behind([_Ends.of(r, z, mine) for z, r, mine in zip(zero, ranks, sends, strict=True)])
    if not any(abs(apart) > _TOGETHER_NS for apart in known):
        return ranks, one_clock
    moved = [replace(r, zero=z - apart) for r, z, apart in zip(ranks, zero, known, strict=True)]
    return moved, False


class _Ends(NamedTuple):
    """When the transfers of a rank end, ns, ascending, and which of them are short: it waited in none of
    these."""

    time: Array
    short: Array

    @classmethod
    def of(cls, rank: RankRows, zero: int, mine: Array) -> _Ends:
        time, duration = (zero + rank.start + rank.duration)[mine], rank.duration[mine]
        order = np.argsort(time, kind="stable")
        usual = np.quantile(duration, _SHORT) if len(duration) else 0.0
        return cls(time[order], (duration <= usual + _TOGETHER_NS)[order])


def _behind(ends: Sequence[_Ends]) -> list[int]:
    """By how much (ns) the clock of each rank is ahead. Ranks are tied first whose ends are mostly close
    together, in the order of how far they are apart: neighbours by their clocks alone, others by what a
    stage takes, too."""
    count = len(ends)
    if count < 2 or _together(ends) >= _FIT:
        return [0] * count
    tied = [
        (found, one, other)
        for one in range(count)
        for other in range(one + 1, count)
        if (found := _apart(ends[one], ends[other])) is not None
    ]
    tied.sort(key=lambda t: (t[0].close < _FIT, abs(t[0].by)))
    ahead, used = _ties(tied, count)
    best = _in_pairs(ends, ahead)
    for left_out in used:  # stages that take equally long tie ranks that are no neighbours, too
        others, _ = _ties([t for t in tied if t is not left_out], count)
        if (pairs := _in_pairs(ends, others)) > best:
            ahead, best = others, pairs
    return ahead


def _together(ends: Sequence[_Ends]) -> float:
    """Share of the ends that lie together with one of another rank, as the clocks are."""
    near = total = 0
    for k, own in enumerate(ends):
        others = np.sort(np.concatenate([e.time for i, e in enumerate(ends) if i != k]))
        low, high = (np.searchsorted(others, own.time + by) for by in (-_TIGHT_NS, _TIGHT_NS))
        near, total = near + int((high > low).sum()), total + len(own.time)
    return near / max(total, 1)


def _ties(tied: Sequence[_Tie], count: int) -> tuple[list[int], list[_Tie]]:
    """By how much (ns) the clock of each of `count` ranks is ahead, and the ties that were used: in this
    order, each that joins two groups of ranks."""
    group, ahead, used = list(range(count)), [0] * count, list[_Tie]()
    for tie in tied:
        found, one, other = tie
        if group[one] == group[other]:
            continue
        used.append(tie)
        moved, off = group[other], ahead[one] + found.by - ahead[other]
        for k in range(count):
            if group[k] == moved:
                group[k], ahead[k] = group[one], ahead[k] + off
    return ahead, used


def _in_pairs(ends: Sequence[_Ends], ahead: Sequence[int]) -> int:
    """How many ends then lie together with just one other, as those of a send and its receive do; the rank
    that came last did not wait."""
    moved = np.concatenate([e.time - by for e, by in zip(ends, ahead, strict=True)])
    order = np.argsort(moved, kind="stable")
    moved, short = moved[order], np.concatenate([e.short for e in ends])[order]
    begins = np.flatnonzero(np.diff(moved, prepend=moved[:1] - _APART_NS) > _TOGETHER_NS)
    two = begins[np.diff(begins, append=len(moved)) == 2]
    return int((short[two] | short[two + 1]).sum())


class _Apart(NamedTuple):
    """By how much (ns) a clock is ahead, and the share of the ends within `_TOGETHER_NS` that then lie
    within `_TIGHT_NS`."""

    by: int
    close: float


#: How far two clocks are apart, and the places of their ranks.
_Tie = tuple[_Apart, int, int]


def _apart(first: _Ends, second: _Ends) -> _Apart | None:
    """By how much the clock of the second is ahead of the first's: of the times by which enough ends of the
    one lie behind ends of the other that with most of them close together, the smallest of several; None if
    no time does."""
    one, other = first.time, second.time
    spacing = [float(np.median(np.diff(e))) if len(e) > 1 else 0.0 for e in (one, other)]
    if min(spacing) < _SPARSE * _TOGETHER_NS:
        return None
    low = np.searchsorted(other, one - _APART_NS)
    count = np.searchsorted(other, one + _APART_NS) - low
    if not 0 < int(count.sum()) <= _PAIRS:
        return None
    at = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    apart = other[at] - np.repeat(one, count)
    apart = np.sort(apart[second.short[at] | np.repeat(first.short, count)])  # one of the two came last
    within = np.searchsorted(apart, apart + _TOGETHER_NS, "right") - np.arange(len(apart))
    enough = np.flatnonzero(within >= _SHARED * min(len(one), len(other)))
    if not len(enough):
        return None
    tight = np.searchsorted(apart, apart + _TIGHT_NS, "right") - np.arange(len(apart))
    good = np.flatnonzero(tight >= _AS_GOOD * tight.max())
    middle = apart[good + tight[good] // 2]
    best = int(np.argmin(np.abs(middle)))
    near = np.searchsorted(apart, middle[best] + np.array([-_TOGETHER_NS, _TOGETHER_NS]))
    return _Apart(int(middle[best]), float(tight[good[best]] / max(near[1] - near[0], 1)))
