"""Waiting and transfer: the shortest duration of a collective over the ranks is its transfer, the rest of
the others is waiting for the rank that came last. And which rank runs the same kernels slower.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.jobs.align import UNKNOWN, Clock, RankRows, align
from advisor.jobs.late_group import Calls, LateGroup, late_group, late_together
from advisor.jobs.match import match
from advisor.jobs.stages import SlowHost, find_stages
from advisor.metrics.budgeted.collectives import EXPERTS
from advisor.metrics.profiled.pace import KernelPace, alike_ratio
from advisor.model.arrays import Array

#: Calls of a kernel in a step may differ by this much between ranks that run the same program.
_SAME_CALLS = 0.1
#: At least this share of the time of a rank's kernels must be in kernels that the others run as well, and
#: in this many of them: one kernel alone may work on more data.
_COMPARED, _KERNELS = 0.5, 3


class SlowerKernel(Struct, frozen=True):
    """One kernel of a rank beside the median of the others: ns a call, and ns a step."""

    name: str
    own: float
    others: float
    time: float

    @property
    def slowdown(self) -> float:
        """1 if it takes as long as on the other ranks."""
        return self.own / self.others


class Pace(Struct, frozen=True):
    """`slowdown` of the compared kernels of one rank together, and the share of their time that is slowed
    alike, with and without the heaviest kernel, whichever is less."""

    slowdown: float
    alike: float
    kernels: tuple[SlowerKernel, ...]


def paces(ranks: Sequence[RankRows], together: Collection[int] = ()) -> list[Pace | None]:
    """By rank, beside the others: of those that are late `together` (positions), none counts as another.
    None if too little of its time can be compared."""
    if len(ranks) < 2:
        return [None] * len(ranks)
    tables = [{k.key: k for k in rows.paces} for rows in ranks]
    shared = [key for key in tables[0] if all(key in t for t in tables)]
    calls, medians = (
        np.array([[getattr(t[key], field) for key in shared] for t in tables]).reshape(len(ranks), -1)
        for field in ("calls", "median")
    )
    apart = np.maximum(calls.max(axis=0) - calls, calls - calls.min(axis=0))
    like = (apart <= _SAME_CALLS * calls) & (medians > 0).all(axis=0)
    found = []
    for i, own in enumerate(tables):
        usable = np.flatnonzero(like[i]).tolist()
        rest = [k for k in range(len(ranks)) if k != i]
        others = [k for k in rest if k not in together] or rest
        beside = np.median(medians[others], axis=0)
        mine = [(own[shared[k]], float(beside[k])) for k in usable]
        found.append(_pace(own, [SlowerKernel(k.name, k.median, other, k.time) for k, other in mine]))
    return found


def _pace(own: dict[int, KernelPace], compared: list[SlowerKernel]) -> Pace | None:
    whole = sum(k.time for k in own.values())
    if len(compared) < _KERNELS or sum(k.time for k in compared) < _COMPARED * whole:
        return None
    compared.sort(key=lambda k: -k.time)
    time, slower = np.array([(k.time, k.slowdown) for k in compared]).T
    mean = float(time.sum() / (time / slower).sum())  # over their time at the pace of the others
    alike = min(alike_ratio(time[i:], slower[i:] - 1, mean - 1) for i in (0, 1))
    return Pace(mean, alike, tuple(compared))


#: No rank is late to a collective in which no rank waits longer than this, or this share of it.
_NOISE_NS, _NOISE_SHARE = 2_000, 0.05


class Late(Struct, frozen=True):
    """What one rank did before the collectives to which it came last, in ns summed over them.

    `lead` is its own time by `RankRows.leads`, `others` the mean of the other ranks; `unseen` is
    by how much it was late to collectives before which its window shows nothing.
    """

    calls: int
    late: int
    lead: Array
    others: Array
    unseen: int
    worst: tuple[tuple[int, int, int], ...]  # start, end in session time, waiting of the others


class Waits(Struct, frozen=True, dict=True):
    """Waiting of every rank, in the order of the ranks. `wait[i]` has one entry a call of rank i,
    ns, 0 if `found[i]` says that the call was not matched.

    Collectives that others entered before the window of a rank begins are left out of what is
    charged to ranks: what made that one late is not in its capture, and mostly it is the capture
    itself. `left_out` counts them by the rank whose window begins last; `began_later` is how long
    before it another had entered, at most, ns. Of the others `time` is their whole, `exposed` the
    part of the waits with no other kernel, and `experts` the part of that for which the kernels of
    experts on the rank that came last took longer, ns. `together` are the positions of the ranks
    that are late together, and `groups` has for each rank those that it is late with, itself
    included; None if nobody waits for them.

    Transfers between the stages of a pipeline are no collectives: nobody is late to them, and their
    waiting is charged to no rank. `staged` is how long each rank computes nothing because another stage
    is at it, `idle_staged` which part of their time without any kernel that is (`Stages.of_idle`), and
    `stage_host` the rank for whose host all stages wait.
    """

    ranks: tuple[RankRows, ...]
    clocks: tuple[Clock, ...]
    matched: int
    found: tuple[Array, ...]
    wait: tuple[Array, ...]
    exposed: tuple[int, ...]
    experts: tuple[int, ...]
    time: int
    caused: tuple[int, ...]
    last: tuple[int, ...]
    late: tuple[Late | None, ...]
    together: tuple[int, ...]
    groups: tuple[LateGroup | None, ...]
    left_out: tuple[int, ...]
    began_later: tuple[int, ...]
    staged: tuple[int, ...]
    idle_staged: float | None
    stage_host: SlowHost | None = None

    @property
    def judged(self) -> int:
        """Matched collectives that are not left out."""
        return self.matched - sum(self.left_out)

    @cached_property
    def paces(self) -> list[Pace | None]:
        """How fast each rank runs the kernels that all of them run."""
        return paces(self.ranks, self.together)

    @property
    def total(self) -> int:
        """All waiting that is charged to a rank, ns."""
        return sum(self.caused)

    @property
    def worst_first(self) -> list[int]:
        """Positions of the ranks, the one that causes most waiting first."""
        return sorted(range(len(self.ranks)), key=lambda i: (-self.caused[i], i))

    def offset(self, i: int) -> int | None:
        """The shift of the clock of rank i, ns; None without absolute times or a match."""
        if self.ranks[i].zero is None or self.clocks[i].spread is None:
            return None
        return self.clocks[i].offset

    def window_share(self, i: int, waited: int) -> float:
        """Share of the window of rank i that waiting of `waited` ns in its matched calls makes up. The
        waiting in its other calls is assumed to be alike: captures of the ranks seldom begin and end
        together."""
        rows = self.ranks[i]
        known = int(rows.duration[self.found[i]].sum())
        scale = float(rows.duration.sum()) / known if known else 0.0
        return min(waited * scale / rows.program_ns, 1.0)

    def longer_share(self, i: int) -> float:
        """Share of the window of rank i in which it waits longer in its matched calls than usually."""
        wait = self.wait[i][self.found[i]]
        usual = np.median(wait) if len(wait) else 0
        return self.window_share(i, int(np.maximum(wait - usual, 0).sum()))


def reduce_ranks(ranks: Sequence[RankRows], *, one_clock: bool = False) -> Waits:
    """Aligns the clocks (unless the ranks share one), matches the collectives and charges every wait to a
    rank. The result does not depend on the order of the given ranks: it is by number."""
    whole = tuple(r.unpacked() for r in sorted(ranks, key=lambda r: (r.rank, r.device)))
    stages = find_stages(whole, one_clock=one_clock)
    if not stages.found:
        return _of_collectives(whole, one_clock)
    passed = [w != UNKNOWN for w in stages.wait]
    waits = _of_collectives(tuple(r.take(~m) for r, m in zip(whole, passed, strict=True)), one_clock)
    found, wait = tuple(mask.copy() for mask in passed), stages.wait
    for i, mask in enumerate(passed):
        found[i][~mask], wait[i][~mask] = waits.found[i], waits.wait[i]
    return replace(
        waits,
        ranks=whole,
        found=found,
        wait=wait,
        staged=stages.waited,
        idle_staged=stages.of_idle,
        stage_host=stages.by_host,
    )


def _of_collectives(ordered: tuple[RankRows, ...], one_clock: bool) -> Waits:
    """The waiting in calls that are all collectives."""
    shared = tuple(Clock(r.zero or 0) for r in ordered)
    clocks = shared if one_clock else tuple(align(ordered))
    found = match(ordered, clocks)
    count = len(ordered)
    duration = np.concatenate([np.empty(0, np.int64), *(r.duration for r in ordered)])
    wait = np.zeros(len(duration), np.int64)
    matched = found.matched
    calls = np.flatnonzero(matched)
    # By collective, then shortest first: the first call is the one that came last.
    calls = calls[np.lexsort((found.of[calls], duration[calls], found.collective[calls]))]
    first = np.flatnonzero(np.diff(found.collective[calls], prepend=UNKNOWN - 1))
    size = np.diff(np.append(first, len(calls)))
    wait[calls] = duration[calls] - np.repeat(duration[calls[first]], size)
    begun_last, early = _begun_last(ordered, clocks, found.of[calls], calls, first)
    left_out = early > 0
    calls = calls[np.repeat(~left_out, size)]
    size = size[~left_out]
    first = np.cumsum(size) - size
    charged = found.of[calls[first]]
    by_collective = np.add.reduceat(wait[calls], first) if len(first) else first
    longest = duration[calls[first + size - 1]] if len(first) else first
    noise = np.maximum(_NOISE_NS, _NOISE_SHARE * longest)
    above_noise = longest - duration[calls[first]] > noise
    bare = np.minimum(wait, np.concatenate([duration[:0], *(r.exposed for r in ordered)]))[calls]
    uneven = _experts(ordered, calls, first, size, bare)
    judged = Calls.taken(ordered, found.of[calls], calls, first, wait[calls], bare, ~above_noise)
    together, leads = late_together(judged, count), next((r.leads for r in ordered), ())
    alone = ((i,) if i not in together else together for i in range(count))
    groups = {members: late_group(judged, members, leads) for members in alone} if len(first) else {}

    def by_rank(of: Array, values: Array | None = None) -> tuple[int, ...]:
        return tuple(int(v) for v in np.bincount(of, values, minlength=count))

    edges = np.cumsum([len(r) for r in ordered])[:-1]
    return Waits(
        ordered,
        clocks,
        found.count,
        tuple(np.split(matched, edges)),
        tuple(np.split(wait, edges)),
        by_rank(found.of[calls], bare),
        by_rank(found.of[calls], uneven),
        int(duration[calls].sum()),
        by_rank(charged, by_collective),
        by_rank(charged[above_noise]),
        _late(ordered, calls, first, size, wait, charged, above_noise),
        together,
        tuple(groups.get(together if i in together else (i,)) for i in range(count)),
        by_rank(begun_last[left_out]),
        tuple(int(early[begun_last == i].max(initial=0)) for i in range(count)),
        (0,) * count,
        None,
    )


def _begun_last(
    ranks: Sequence[RankRows], clocks: Sequence[Clock], of: Array, calls: Array, first: Array
) -> tuple[Array, Array]:
    """By collective the rank whose window begins last, and how long before it others entered, ns; or <= 0."""
    if len(calls) == 0:
        return first, first
    pairs = list(zip(ranks, clocks, strict=True))
    begin = np.array([int(clock(np.array([r.window[0]]))[0]) for r, clock in pairs])
    entered = np.concatenate([clock(r.start) for r, clock in pairs])[calls]
    latest = np.maximum.reduceat(begin[of], first)
    # Of ranks that begin at the same time, the first.
    rank = np.argmax(begin == latest[:, None], axis=1)
    return rank, latest - np.minimum.reduceat(entered, first)


def _experts(ranks: Sequence[RankRows], calls: Array, first: Array, size: Array, bare: Array) -> Array:
    """ns of each call's exposed wait (`bare`) for which the experts of the rank that came last took
    longer since the collective before than those of the rank that waits."""
    if not len(calls) or any(EXPERTS not in r.leads for r in ranks):
        return np.zeros(len(calls), np.int64)
    spent = np.concatenate([r.lead[:, r.leads.index(EXPERTS)].astype(np.int64) for r in ranks])
    own, last = spent[calls], np.repeat(spent[calls[first]], size)
    longer = np.where((own == UNKNOWN) | (last == UNKNOWN), 0, np.maximum(last - own, 0))
    return np.minimum(longer, bare)


def _late(
    ranks: Sequence[RankRows],
    calls: Array,
    first: Array,
    size: Array,
    wait: Array,
    charged: Array,
    above_noise: Array,
) -> tuple[Late | None, ...]:
    """For each rank that ever came last: what it did before, compared with the others."""
    if not above_noise.any():
        return (None,) * len(ranks)
    lead = np.concatenate([r.lead for r in ranks])
    offset = np.cumsum([0, *(len(r) for r in ranks)])
    values = lead[calls]
    known = np.asarray(values[:, 0] != UNKNOWN)
    values[~known] = 0
    # Sums over the others of each collective: all of its calls but the first.
    total = np.add.reduceat(values, first, dtype=np.int64) - values[first]
    number = np.add.reduceat(known.astype(np.int64), first) - known[first]
    waited = np.add.reduceat(wait[calls], first)
    lateness = waited / np.maximum(size - 1, 1)
    out: list[Late | None] = [None] * len(ranks)
    for i, rows in enumerate(ranks):
        mine = np.flatnonzero(above_noise & (charged == i))
        if len(mine) == 0:
            continue
        seen = mine[known[first[mine]] & (number[mine] > 0)]
        unseen = np.setdiff1d(mine, seen, assume_unique=True)
        worst = mine[np.argsort(-waited[mine], kind="stable")[:50]]
        own = calls[first[worst]] - offset[i]
        places = (rows.start[own], (rows.start + rows.duration)[own], waited[worst])
        out[i] = Late(
            len(mine),
            int(lateness[mine].sum()),
            values[first[seen]].sum(axis=0, dtype=np.int64),
            np.rint((total[seen] / number[seen][:, None]).sum(axis=0)).astype(np.int64),
            int(lateness[unseen].sum()),
            tuple(zip(*(ns.tolist() for ns in places), strict=True)),
        )
    return tuple(out)
