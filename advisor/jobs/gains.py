"""What the job wins where the late ranks are on time, or where transfers are hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil

import numpy as np

from advisor.jobs.late_group import LateGroup
from advisor.jobs.late_ranks import pattern
from advisor.jobs.waiting import Waits
from advisor.model.findings import Finding
from advisor.model.gain import Gain, Span, over_all
from advisor.model.numbers import percent

# A replay takes one capture. Ranks that meet in collectives go at one pace: what a rank waits less is
# what each step of all of them is shorter, unless the host was what they waited for all along.

#: A smaller share of the step is no saving; and a stage that waits for less of it for others does not.
_LEAST, _LEAST_WAIT = 0.001, 0.02

_UNSEEN = (
    "the reason is before its window; a capture that begins and ends together on all ranks would show it"
)
_PER_STEP = Gain(measure="latency", per="step")
_BALANCED = (
    "half to all of the waiting that uneven experts cause ends: the experts of each rank then take the "
    "mean of all",
)
_PACE = (
    "all ranks go at one pace; waiting that another kernel hides, and what came before the windows, is not "
    "counted"
)
_LATE = (
    "the range is from the surplus of the late ranks shared among all ranks to late ranks that are as early "
    "as the last of the others",
    _PACE,
)
_EVEN = (
    "every rank has the mean of the work of all; at the low end a fifth of the difference stays, as loads "
    "change while it is spread",
    _PACE,
)
_AS_FAST = (
    "its kernels take as long as the same ones of the other ranks; the range is from nine tenths of that "
    "saving to all of its delay behind the last of the others",
)
#: In a job of four ranks, one of them slowed by 10 to 40 %, four times: within 11 % of the measured gain.
_LEAST_OF_SLOWED, _TOWARDS_MOST = 0.9, 0.25
#: Patterns of lateness whose work a router or balancer spreads over the ranks.
BALANCED = ("data-parallel attention", "experts")
#: The part of the gain that is left where it does so badly. Choice: a fifth of the difference stays.
_LEAST_MOVED = 0.8
#: Patterns of lateness whose work moves to other ranks, or ends.
MOVED = ("work", "copies")


def arrival_gain(waits: Waits, rank: int | None, untraced: Span | None = None) -> Gain:
    """Step time of the job once this rank, and those that are late with it, are late no more: requests and
    experts move until every rank has the mean of all, a slow host catches up. `rank` None: of the ranks that
    are late together. `untraced`: without the profiler, if known."""
    before = untraced or _before(waits)
    if before is None:
        return Gain(reason="these captures hold no steps in which it could be won")
    group = late_with(waits, rank)
    if group is None:
        return Gain(reason="it is never the last to reach a collective")
    even, spread, caught_up = (_job_share(waits, ns) for ns in (group.even, group.spread, group.caught_up))
    if max(even, caught_up) < _LEAST:
        return Gain(reason=_UNSEEN)
    reason = pattern(waits, group)
    least, most = sorted((even, caught_up))
    if reason in BALANCED:
        return _gain(_PER_STEP, before, (_LEAST_MOVED * even, even, spread), _EVEN)
    return _gain(
        _PER_STEP, before, (least, (least + most) / 2 if reason in MOVED else caught_up, most), _LATE
    )


def late_with(waits: Waits, rank: int | None) -> LateGroup | None:
    """The ranks that this one is late with, itself included."""
    if rank is None:
        return waits.groups[waits.together[0]] if waits.together else None
    return waits.groups[next(i for i, r in enumerate(waits.ranks) if r.rank == rank)]


#: A batch more in flight than fits is one that begins or ends in the window, within this part. Choice.
_PART_OF_BATCH = 0.1
#: Stages with what they hand over, over their kernels alone. Choice: some 10 us of a stage of 1 ms.
_WITH_TRANSFERS = 1.01
_IN_TURN = (
    "each batch passes through all stages of the pipeline as before: only its time on this host is saved"
)
_IN_FLIGHT = (
    "how many batches wait for this host is not recorded: from as few as the stages show to as many as keep "
    "the slowest stage busy",
)


def stage_host_gain(waits: Waits, rank: int | None, alone: Gain) -> Gain:
    """The estimate for the rank of a pipeline whose GPU waits for its own host, which by itself does not know
    of the other stages. A batch takes as long as its host and all stages together; as many batches as are in
    flight share that time, and no step is shorter than the slowest stage needs."""
    slow = waits.stage_host
    if slow is None or alone.speedup is None or alone.step_before_ms is None:
        return alone
    rows = waits.ranks[slow.rank]
    if rows.rank != rank or not slow.stages:
        return alone
    passed = slow.stages + slow.share
    waited = waits.staged[slow.rank] / max(rows.program_ns, 1)
    fewest = max(passed if waited >= _LEAST_WAIT else ceil(passed - _PART_OF_BATCH), 1.0)
    most = 1 - slow.slowest
    least = min(1 - _WITH_TRANSFERS * slow.stages / fewest, most)
    low, mid, high = (1 - 1 / max(s, 1.0) for s in (alone.speedup.low, alone.speedup.mid, alone.speedup.high))
    if waited >= _LEAST_WAIT:
        part = min(least / mid, 1.0) if mid else 1.0
        return _gain(
            alone, alone.step_before_ms, (part * low, part * mid, part * high), (*alone.assumptions, _IN_TURN)
        )
    saved = min(least, low), min((least + most) / 2, mid), min(most, high)
    return _gain(alone, alone.step_before_ms, saved, (*alone.assumptions, *_IN_FLIGHT))


def pace_gain(waits: Waits, rank: int | None, untraced: Span | None = None) -> Gain:
    """Step time of the job with GPUs as fast as the others: before each collective their kernels take
    less, and they come with the last of the others at best."""
    gain, group = arrival_gain(waits, rank, untraced), late_with(waits, rank)
    paces = [p for k in (group.members if group else ()) if (p := waits.paces[k]) is not None]
    if gain.step_before_ms is None or group is None or not paces:
        return gain
    less = group.kernels * (1 - 1 / max(p.slowdown for p in paces))
    share = _job_share(waits, int(np.minimum(group.ahead, less).sum()))
    most = _job_share(waits, group.caught_up)
    mid = share + _TOWARDS_MOST * (most - share)
    return _gain(_PER_STEP, gain.step_before_ms, (_LEAST_OF_SLOWED * share, mid, most), _AS_FAST)


def expert_gain(waits: Waits, untraced: Span | None = None) -> Gain:
    """Step time of the job with an equal amount of work for the experts of every rank; at least half of
    that, since replicas balance the past load."""
    shares = [waits.window_share(i, ns) for i, ns in enumerate(waits.experts)]
    most = sum(shares) / max(len(shares), 1)
    before = untraced or _before(waits)
    if before is None or most < _LEAST:
        return Gain(reason="these captures hold no steps in which it could be won")
    return _gain(_PER_STEP, before, (most / 2, most * 3 / 4, most), _BALANCED)


def _before(waits: Waits) -> Span | None:
    """The step time of the ranks, one step alone counting as its window; None without steps."""
    steps = [r.program_ns / r.steps / 1e6 for r in waits.ranks if r.steps]
    return Span(low=min(steps), mid=sum(steps) / len(steps), high=max(steps)) if steps else None


def transfer_gain(alone: Gain, transfer: float, exposed: float) -> Gain:
    """The estimate for one rank by itself, which hides waiting as well, for its transfers only:
    `transfer` and `exposed` are the shares of the window with and without the waiting."""
    if alone.speedup is None or alone.step_before_ms is None or exposed <= 0:
        return alone
    part, speedup = min(transfer / exposed, 1.0), alone.speedup
    low, mid, high = (part * (1 - 1 / max(s, 1.0)) for s in (speedup.low, speedup.mid, speedup.high))
    assumption = f"{percent(part, 2)} of the exposed time is transfer; the waiting for late ranks stays"
    return _gain(alone, alone.step_before_ms, (low, mid, high), (*alone.assumptions, assumption))


def with_arrivals(
    findings: Iterable[Finding], waits: Waits, steps: Sequence[Span | None]
) -> tuple[Finding, ...]:
    """The findings, those about late ranks and uneven experts with the estimate for the job; `steps`:
    of each capture without the profiler, ms."""
    untraced = over_all(steps)
    gains: dict[str, Callable[[Finding], Gain | None]] = {
        "rank-arrival-skew": lambda f: arrival_gain(waits, f.scope.rank, untraced),
        "one-gpu-slower": lambda f: pace_gain(waits, f.scope.rank, untraced),
        "expert-imbalance": lambda _: expert_gain(waits, untraced),
        "host-gap": lambda f: f.gain and stage_host_gain(waits, f.scope.rank, f.gain),
    }
    return tuple(f.replaced(gain=gains[f.cause](f)) if f.cause in gains else f for f in findings)


def _job_share(waits: Waits, ns: int) -> float:
    """Share of the window that `ns` of waiting in the matched calls makes, mean over the ranks."""
    count = len(waits.ranks)
    return sum(waits.window_share(i, ns) for i in range(count)) / count


def _gain(gain: Gain, before: Span, saved: tuple[float, float, float], assumptions: tuple[str, ...]) -> Gain:
    low, mid, high = (min(s, 0.95) for s in saved)
    after = Span(low=before.low * (1 - high), mid=before.mid * (1 - mid), high=before.high * (1 - low))
    return gain.replaced(
        step_before_ms=before,
        step_after_ms=after,
        speedup=Span(low=1 / (1 - low), mid=1 / (1 - mid), high=1 / (1 - high)),
        assumptions=assumptions,
    )
