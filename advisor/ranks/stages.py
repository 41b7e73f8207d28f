"""How long the stages of a pipeline wait for each other: in the transfers that they share, and where one has
nothing to do while another one computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.metrics.collectives import POINT_TO_POINT
from advisor.metrics.intervals import EMPTY, Coverage, Spans, clip, gaps, intersect, joined, subtract, union
from advisor.metrics.sharing import alone
from advisor.model.arrays import Array
from advisor.ranks.align import UNKNOWN, RankRows
from advisor.ranks.match import between_stages, of_kinds

#: Ranks that compute together for this share of the time of the one that computes less are one stage.
_TOGETHER = 0.5
#: Stages take turns where a single one computes for this share of the time in which any does, and none of
#: them computes for less than this share of what the one does that computes most.
_ALONE, _TAKES_PART = 0.8, 0.05
#: Turns that a stage has at least, and for each of its steps.
_TURNS, _OF_STEPS = 3, 0.5
#: A shorter pause between kernels ends no turn.
_PAUSE_NS = 20_000


class Stages(Struct, frozen=True):
    """Waiting of each rank, in the order of the ranks. `wait` has ns a call, UNKNOWN for one that is no
    transfer between stages; `waited` are ns of the window in which the rank computes nothing and waits for
    another stage. `of_idle`: the part of the time in which ranks run no kernel that another stage computes
    in, None if stages do not take turns."""

    wait: tuple[Array, ...]
    waited: tuple[int, ...]
    of_idle: float | None

    @property
    def found(self) -> bool:
        return any(bool((w != UNKNOWN).any()) for w in self.wait)


def find_stages(ranks: Sequence[RankRows], *, one_clock: bool) -> Stages:
    """By turns in which the ranks compute, else by transfers whose ends they share; `one_clock` says that
    the captures count from one moment."""
    turns = _turns(ranks, one_clock)
    wait = between_stages(ranks, one_clock=one_clock, known=turns is not None)
    if turns is not None:  # what a stage does beside computing is waited for as well
        wait = [np.maximum(own, w) for own, w in zip(turns.wait, wait, strict=True)]
    exposed = [int(np.minimum(r.exposed, np.maximum(w, 0)).sum()) for r, w in zip(ranks, wait, strict=True)]
    if turns is None:
        return Stages(tuple(wait), tuple(exposed), None)
    waited = tuple(max(pair) for pair in zip(turns.waited, exposed, strict=True))
    return replace(turns, wait=tuple(wait), waited=waited)


def _turns(ranks: Sequence[RankRows], one_clock: bool) -> Stages | None:
    """The waiting of ranks that send to each other and of which one stage at a time computes."""
    sends = of_kinds(ranks, POINT_TO_POINT)
    if sum(bool(s.any()) for s in sends) < 2 or (not one_clock and any(r.zero is None for r in ranks)):
        return None
    zero = [0 if one_clock else r.zero or 0 for r in ranks]
    low = max(z + r.window[0] for z, r in zip(zero, ranks, strict=True))
    high = min(z + r.window[1] for z, r in zip(zero, ranks, strict=True))
    if high <= low:
        return None
    busy = [
        clip(Spans(r.busy.start + z, r.busy.end + z), low, high) for z, r in zip(zero, ranks, strict=True)
    ]
    of = _grouped(busy)
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


def _grouped(busy: Sequence[Spans]) -> list[int]:
    """The stage of each rank. Ranks that compute at the same time belong to the same stage."""
    of: list[int] = []
    leaders: list[Spans] = []
    for own in busy:
        shared = [intersect(own, o).total / max(min(own.total, o.total), 1) for o in leaders]
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
