"""One clock for the ranks of a pipeline, from the ends of what they send each other: a send and its receive
end together, on nodes whose clocks are apart by the same time each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from advisor.metrics.collectives import POINT_TO_POINT
from advisor.model.arrays import Array
from advisor.ranks.align import RankRows
from advisor.ranks.match import of_kinds

#: Clocks of nodes are apart by at most this, ns. Choice: NTP keeps them to some milliseconds.
_APART_NS = 20_000_000
#: The ends of one transfer lie within this, ns: as long as one over NVLink or RDMA takes at most.
_TOGETHER_NS = 10_000
#: Two ranks send to each other if this share of the transfers of the one that has fewer end together: a stage
#: shares half of its transfers with each neighbour.
_SHARED = 0.4
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
    ends = [np.sort((z + r.start + r.duration)[mine]) for z, r, mine in zip(zero, ranks, sends, strict=True)]
    known = _behind(ends)
    if not any(abs(apart) > _TOGETHER_NS for apart in known):
        return ranks, one_clock
    moved = [replace(r, zero=z - apart) for r, z, apart in zip(ranks, zero, known, strict=True)]
    return moved, False


def _behind(ends: Sequence[Array]) -> list[int]:
    """By how much (ns) the clock of each rank is ahead. Ranks are tied in the order of how far they are
    apart: neighbours by their clocks alone, others by what a stage takes, too."""
    count = len(ends)
    tied = [
        (apart, one, other)
        for one in range(count)
        for other in range(one + 1, count)
        if (apart := _apart(ends[one], ends[other])) is not None
    ]
    group, ahead = list(range(count)), [0] * count
    for apart, one, other in sorted(tied, key=lambda t: abs(t[0])):
        if group[one] == group[other]:
            continue
        moved, off = group[other], ahead[one] + apart - ahead[other]
        for k in range(count):
            if group[k] == moved:
                group[k], ahead[k] = group[one], ahead[k] + off
    return ahead


def _apart(one: Array, other: Array) -> int | None:
    """By how much (ns) the clock of the second is ahead of the first's: the smallest time by which enough
    ends of the one lie behind ends of the other; None if no time does."""
    spacing = [float(np.median(np.diff(e))) if len(e) > 1 else 0.0 for e in (one, other)]
    if min(spacing) < _SPARSE * _TOGETHER_NS:
        return None
    low = np.searchsorted(other, one - _APART_NS)
    count = np.searchsorted(other, one + _APART_NS) - low
    if not 0 < int(count.sum()) <= _PAIRS:
        return None
    at = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    apart = np.sort(other[at] - np.repeat(one, count))
    within = np.searchsorted(apart, apart + _TOGETHER_NS, "right") - np.arange(len(apart))
    enough = np.flatnonzero(within >= _SHARED * min(len(one), len(other)))
    if not len(enough):
        return None
    middle = apart[enough + within[enough] // 2]
    return int(middle[np.argmin(np.abs(middle))])
