"""How long the stages of a pipeline wait for each other: in the transfers that they share, and where one has
nothing to do while another one computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.jobs.align import UNKNOWN, RankRows
from advisor.jobs.clocks import on_common_clock
from advisor.jobs.match import between_stages, of_kinds
from advisor.metrics.budgeted.collectives import POINT_TO_POINT
from advisor.metrics.budgeted.sharing import alone
from advisor.metrics.intervals import EMPTY, Coverage, Spans, clip, gaps, intersect, joined, subtract, union
from advisor.model.arrays import Array

#: Ranks that compute together for this share of the time of the one that computes less are one stage.
_TOGETHER = 0.5
#: Stages take turns where a single one computes for this share of the time in which any does, and none of
#: them computes for less than this share of what the one does that computes most.
_ALONE, _TAKES_PART = 0.8, 0.05
#: Turns that a stage has at least, and for each of its steps.
_TURNS, _OF_STEPS = 3, 0.5
#: The token comes back through the hosts if most of the idle time (this share) ends within this share of it,
#: or this long, after a piece of another stage.
_MOSTLY, _SOON, _SOON_NS = 0.8, 0.1, 100_000
#: Messages between stages take less. In a longer pause of all stages the host of the next one works.
_HOST_NS = 100_000
#: A host that takes this share of the time is shown; and it paces a rank if the pieces of that follow each
#: other this much steadier than those of others.
_SLOW_HOST, _STEADIER = 0.05, 0.5
#: A shorter pause between kernels ends no turn.
_PAUSE_NS = 20_000


class SlowHost(NamedTuple):
    """A rank (its position) whose GPU waits for its own host, and for which share of the time; then which
    share of it all stages of the pipeline compute, added up, and the one that computes most."""

    rank: int
    share: float
    stages: float
    slowest: float


class Stages(Struct, frozen=True):
    """Waiting of each rank, in the order of the ranks. `wait` has ns a call, UNKNOWN for one that is no
    transfer between stages; `waited` are ns of the window in which the rank computes nothing and waits for
    another stage. `of_idle`: the part of the time in which ranks run no kernel that another stage computes
    in, None if stages do not take turns. `by_host`: whose GPU waits longest for its own host while it has a
    batch; None if no host is slow."""

    wait: tuple[Array, ...]
    waited: tuple[int, ...]
    of_idle: float | None
    by_host: SlowHost | None = None

    @property
    def found(self) -> bool:
        return any(bool((w != UNKNOWN).any()) for w in self.wait)


def find_stages(ranks: Sequence[RankRows], *, one_clock: bool) -> Stages:
    """By turns in which the ranks compute, else by transfers whose ends they share; `one_clock` says that
    the captures count from one moment."""
    given = ranks
    ranks, one_clock = on_common_clock(given, one_clock)
    common = _common(ranks, one_clock)
    turns = None if common is None else _turns(ranks, common, moved=ranks is not given)
    if common is not None and turns is not None and _paced_by_a_host(ranks, common):
        turns = None  # several batches, of which by chance no two are computed at once
    wait = between_stages(ranks, one_clock=one_clock, known=turns is not None)
    paused = None
    if common is not None and turns is not None:
        # What a stage does beside computing is waited for as well, but for its host. Clocks that were moved
        # may be off by a whole turn.
        paused = _paused(ranks, common) if ranks is given else None
        wait = [np.maximum(own, w) for own, w in zip(turns.wait, wait, strict=True)]
        by_host = _rest_of_turns(ranks, common) if paused is None else paused.by_host
        turns = replace(turns, by_host=by_host)
    exposed = [int(np.minimum(r.exposed, np.maximum(w, 0)).sum()) for r, w in zip(ranks, wait, strict=True)]
    if turns is None:
        transfers = any(bool((w != UNKNOWN).any()) for w in wait)
        returns = _returns(ranks, common) if common is not None and transfers else None
        if returns is None:
            return Stages(tuple(wait), tuple(exposed), None)
        both = zip(exposed, returns.waited, strict=True)
        waited = tuple(round(e * returns.of_waits) + w for e, w in both)
        return Stages(tuple(wait), waited, returns.of_idle, returns.by_host)
    if paused is not None:
        exposed = [
            int(np.minimum(r.exposed, np.maximum(w - of_host, 0)).sum())
            for r, w, of_host in zip(ranks, wait, paused.of_calls, strict=True)
        ]
    elif turns.by_host is not None:
        left = (1 - turns.by_host.share) * np.array([r.window[1] - r.window[0] for r in ranks])
        busy = [clip(r.busy, *r.window).total for r in ranks]
        exposed = [min(e, max(round(ns) - b, 0)) for e, ns, b in zip(exposed, left, busy, strict=True)]
    waited = tuple(max(pair) for pair in zip(turns.waited, exposed, strict=True))
    return replace(turns, wait=tuple(wait), waited=waited)


class _Paused(Struct, frozen=True):
    """`of_calls`: how long (ns) each call of each rank lies in pauses of all stages; `by_host` as of
    `Stages`."""

    of_calls: tuple[Array, ...]
    by_host: SlowHost | None


def _paused(ranks: Sequence[RankRows], common: _Common) -> _Paused:
    """Long pauses in which no stage computes or exchanges anything within itself. The rank whose kernel ends
    one is the one whose host was at work."""
    zero, low, high, busy = common
    sends = of_kinds(ranks, POINT_TO_POINT)
    own = [
        union((r.start + z)[~sent], (r.start + r.duration + z)[~sent])
        for r, z, sent in zip(ranks, zero, sends, strict=True)
    ]
    still = gaps(clip(joined(*busy, *own), low, high), low, high)
    long = still.end - still.start > _HOST_NS
    still = Spans(still.start[long], still.end[long])
    inside = [
        Coverage(still).within(r.start + z, r.start + r.duration + z)
        for r, z in zip(ranks, zero, strict=True)
    ]
    held = [int((still.end - still.start)[np.isin(still.end, b.start)].sum()) for b in busy]
    most = int(np.argmax(held))
    by_host = _slow_host(ranks, common, most, held[most]) if held[most] else None
    return _Paused(tuple(inside), by_host)


def _slow_host(ranks: Sequence[RankRows], common: _Common, rank: int, ns: int) -> SlowHost:
    """The rank for whose host its GPU waits for so many ns of the common window."""
    busy, whole = common.clipped(), common.high - common.low
    stages = _lengths(busy, _grouped(busy, ranks, moved=False))
    return SlowHost(rank, ns / whole, sum(stages) / whole, max(stages) / whole)


def _lengths(busy: Sequence[Spans], of: Sequence[int]) -> list[int]:
    """How long each stage computes, ns: the longest of its ranks."""
    return [max(b.total for b, k in zip(busy, of, strict=True) if k == stage) for stage in set(of)]


def _rest_of_turns(ranks: Sequence[RankRows], common: _Common) -> SlowHost | None:
    """`Stages.by_host` of stages that take turns on clocks that may be wrong: the time that is left of the
    window of a rank beside what all stages compute, if its host launches nothing for so long."""
    zero, low, high, _ = common
    busy = common.clipped()
    stages = _lengths(busy, _grouped(busy, ranks, moved=True))
    idle = [_without_calls(r, z, b, low, high) for r, z, b in zip(ranks, zero, busy, strict=True)]
    most = int(np.argmax([i.total for i in idle]))
    left = high - low - sum(stages)
    if left <= _HOST_NS * max(len(idle[most]), 1) or left > idle[most].total:
        return None
    return _slow_host(ranks, common, most, left)


class _Returns(Struct, frozen=True):
    """`waited`, `of_idle` and `by_host` as of `Stages`, and which part of the waiting in transfers is for
    other stages: the rest is for that host."""

    waited: tuple[int, ...]
    of_idle: float | None
    by_host: SlowHost | None
    of_waits: float


def _returns(ranks: Sequence[RankRows], common: _Common) -> _Returns | None:
    """The waiting of ranks whose idle time, outside of transfers, ends just after another stage has computed
    a piece: its result reaches them through the hosts. Several batches are then in flight, but fewer than
    there are stages. Where it does not, the host of that rank is at work. None if no rank waits so."""
    zero, low, high, busy = common
    done = _done(ranks, zero, busy)
    waited, bare, of_bare, hosts = [], 0, 0, []
    for rank, (r, z) in enumerate(zip(ranks, zero, strict=True)):
        without = _without_calls(r, z, busy[rank], low, high)
        others = [d for k, d in enumerate(done) if k != rank and len(busy[k])]
        mine = bool(len(busy[rank])) and any(_ends_with(without, other) for other in others)
        mine = mine and not _own_pace(without, others)
        host = _host_part(without, others) if len(busy[rank]) and not mine else 0
        hosts.append((host, without.total))
        bare += without.total
        of_bare += without.total if mine else 0
        held = without.total if mine else 0
        waited.append(round(held * (r.window[1] - r.window[0]) / (high - low)))
    most = max(range(len(hosts)), key=lambda k: hosts[k][0])
    host, idle = hosts[most]
    slow = host >= _SLOW_HOST * (high - low)
    if not of_bare and not slow:
        return None
    if slow:  # the rest of its idle time is until a batch comes back to it
        window = ranks[most].window
        waited[most] = round((idle - host) * (window[1] - window[0]) / (high - low))
    return _Returns(
        tuple(waited),
        of_bare / max(bare, 1) if of_bare else None,
        _slow_host(ranks, common, most, host) if slow else None,
        1 - host / idle if slow else 1.0,
    )


def _done(ranks: Sequence[RankRows], zero: Sequence[int], busy: Sequence[Spans]) -> list[Array]:
    """When each stage is done with a piece: it ends with a pause or with the begin of its next transfer."""
    return [
        np.sort(np.concatenate((b.end, (r.start + z)[sent])))
        for r, z, b, sent in zip(ranks, zero, busy, of_kinds(ranks, POINT_TO_POINT), strict=True)
    ]


def _without_calls(rank: RankRows, zero: int, busy: Spans, low: int, high: int) -> Spans:
    """Where the rank neither computes nor transfers, but for short pauses."""
    idle = gaps(clip(busy, low, high), low, high)
    without = subtract(idle, union(rank.start + zero, rank.start + rank.duration + zero))
    long = without.end - without.start > _PAUSE_NS
    return Spans(without.start[long], without.end[long])


def _since(idle: Spans, done: Array) -> Array:
    """How long (ns) before the end of each idle span another stage was done."""
    at = np.searchsorted(done, idle.end, "right") - 1
    ended = np.where(at >= 0, done[np.maximum(at, 0)], idle.start)
    return np.asarray(idle.end - ended)


def _spread(values: Array) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def _host_part(idle: Spans, others: Sequence[Array]) -> int:
    """How much of the idle time of a rank its host works, ns: from the end of its own last piece on, or from
    when another stage is done with one, whichever is steadier, as a host takes about as long each time."""
    if len(idle) < _TURNS:
        return 0
    whole = idle.end - idle.start
    found = [whole, *(np.minimum(whole, _since(idle, done)) for done in others)]
    return int(min(found, key=_spread).sum())


def _paced_by_a_host(ranks: Sequence[RankRows], common: _Common) -> bool:
    """Whether a rank begins its pieces a steady time after its own last one, and not after that of any
    other stage: what it waits for is its host."""
    zero, low, high, busy = common
    done = _done(ranks, zero, busy)
    for rank, (r, z) in enumerate(zip(ranks, zero, strict=True)):
        idle = _without_calls(r, z, busy[rank], low, high)
        if len(idle) < _TURNS or idle.total < _SLOW_HOST * (high - low):
            continue
        if _own_pace(idle, [d for k, d in enumerate(done) if k != rank and len(busy[k])]):
            return True
    return False


def _own_pace(idle: Spans, others: Sequence[Array]) -> bool:
    """Whether idle spans are much steadier from their begin on than from what others have done last."""
    if not len(idle) or not others:
        return False
    since = min(_spread(_since(idle, done)) for done in others)
    return _spread(idle.end - idle.start) < _STEADIER * since


def _ends_with(idle: Spans, done: Array) -> bool:
    """Whether most of these idle spans end just after another stage is `done` with a piece inside them."""
    if len(idle) < _TURNS:
        return False
    length, since = idle.end - idle.start, _since(idle, done)
    late = (since > length) | (since > np.maximum(_SOON * length, _SOON_NS))
    return bool(length[late].sum() <= (1 - _MOSTLY) * idle.total)


class _Common(NamedTuple):
    """The zero of each rank's clock on a common one, the window that all share, ns, and on that clock when
    each rank computes."""

    zero: list[int]
    low: int
    high: int
    busy: list[Spans]

    def clipped(self) -> list[Spans]:
        """When each rank computes inside the window."""
        return [clip(spans, self.low, self.high) for spans in self.busy]


def _common(ranks: Sequence[RankRows], one_clock: bool) -> _Common | None:
    """Of ranks that send to each other; None without such ranks, clock or window."""
    sends = of_kinds(ranks, POINT_TO_POINT)
    if sum(bool(s.any()) for s in sends) < 2 or (not one_clock and any(r.zero is None for r in ranks)):
        return None
    zero = [0 if one_clock else r.zero or 0 for r in ranks]
    low = max(z + r.window[0] for z, r in zip(zero, ranks, strict=True))
    high = min(z + r.window[1] for z, r in zip(zero, ranks, strict=True))
    busy = [Spans(r.busy.start + z, r.busy.end + z) for z, r in zip(zero, ranks, strict=True)]
    return _Common(zero, low, high, busy) if high > low else None


def _turns(ranks: Sequence[RankRows], common: _Common, *, moved: bool) -> Stages | None:
    """The waiting of ranks that send to each other and of which one stage at a time computes."""
    (zero, low, high, _), sends = common, of_kinds(ranks, POINT_TO_POINT)
    busy = common.clipped()
    of = _grouped(busy, ranks, moved=moved)
    stages = [
        joined(*(b for b, k in zip(busy, of, strict=True) if k == stage)) for stage in range(max(of) + 1)
    ]
    if not _one_at_a_time(stages, ranks, of):
        return None
    waits, waited, bare, of_bare = [], [], 0, 0
    for r, z, own, stage, sent in zip(ranks, zero, busy, of, sends, strict=True):
        others = joined(*(spans for k, spans in enumerate(stages) if k != stage))
        idle = gaps(own, low, high)
        elsewhere = intersect(idle, others)
        start, end = r.start + z, r.start + r.duration + z
        spent = np.minimum(Coverage(elsewhere).within(start, end), r.duration)
        # A broadcast of the token is waited for as a transfer is.
        waits.append(np.where(sent | (2 * spent > r.duration), spent, UNKNOWN))
        waited.append(round(elsewhere.total * (r.window[1] - r.window[0]) / (high - low)))
        without = subtract(idle, union(start, end))
        bare, of_bare = bare + without.total, of_bare + intersect(without, others).total
    return Stages(tuple(waits), tuple(waited), of_bare / max(bare, 1))


def _grouped(busy: Sequence[Spans], ranks: Sequence[RankRows], *, moved: bool) -> list[int]:
    """The stage of each rank. Ranks that compute at the same time belong to the same stage if they exchange
    anything beside what stages hand over, or on clocks that were `moved`: by a whole turn too far or not."""
    of: list[int] = []
    leaders: list[Spans] = []
    within = [moved or not bool(sent.all()) for sent in of_kinds(ranks, POINT_TO_POINT)]
    for own, exchanges in zip(busy, within, strict=True):
        shared = [exchanges * intersect(own, o).total / max(min(own.total, o.total), 1) for o in leaders]
        if shared and max(shared) >= _TOGETHER:
            of.append(int(np.argmax(shared)))
        else:
            of.append(len(leaders))
            leaders.append(own)
    return of


def _one_at_a_time(stages: Sequence[Spans], ranks: Sequence[RankRows], of: Sequence[int]) -> bool:
    """Whether there are several stages, each with turns in its steps, and mostly a single one computes."""
    if len(stages) < 2 or min(s.total for s in stages) < _TAKES_PART * max(s.total for s in stages):
        return False
    length, which = alone(stages)
    if length.sum() < _ALONE * joined(*stages).total:
        return False
    # Turns: how often another stage takes over from this one.
    changes = np.flatnonzero(np.diff(which, append=-1))
    turns = np.bincount(which[changes], minlength=len(stages))
    return all(turns[k] >= max(_TURNS, _OF_STEPS * r.steps) for r, k in zip(ranks, of, strict=True))


def work_of(compute: Spans, kinds: Sequence[str]) -> Spans:
    """The stretches in which a rank computes that sends or receives, short pauses included; none of others,
    which are no stages."""
    if not len(compute) or not POINT_TO_POINT.intersection(kinds):
        return EMPTY
    pause = compute.start[1:] - compute.end[:-1] > _PAUSE_NS
    return Spans(compute.start[np.append(True, pause)], compute.end[np.append(pause, True)])
