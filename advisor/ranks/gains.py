"""What the job wins where the late rank is mended, or where transfers are hidden.

A replay takes one capture. Ranks that meet in collectives go at one pace: what a rank waits less is
what each step of all of them is shorter, unless the host was what they waited for all along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from advisor.model.findings import Finding
from advisor.model.gain import Gain, Span
from advisor.ranks.waits import Waits

#: A saving below this share of the step is none.
_LEAST = 0.001

_UNSEEN = (
    "the reason is before its window; a capture that begins and ends together on all ranks would show it"
)
_PER_STEP = Gain(measure="latency", per="step")
_BALANCED = (
    "half to all of the waiting that uneven experts cause ends; every rank has them as slow as the "
    "mean of all then",
)
_LATE = (
    "between the surplus of the late rank shared out among all of them and that rank as early as "
    "the last but one",
    "all ranks go at one pace; waiting that another kernel hides, and what came before the "
    "windows, is not counted",
)


def arrival_gain(waits: Waits, rank: int) -> Gain:
    """Step time of the job without the lateness of this rank."""
    i = next(i for i, r in enumerate(waits.ranks) if r.rank == rank)
    late = waits.late[i]
    before = _before(waits)
    if before is None:
        return Gain(reason="these captures hold no steps in which it could be won")
    if late is None:
        return Gain(reason="it is last to no collective")
    shares = [_job_share(waits, ns) for ns in sorted((late.surplus, late.shared))]
    if shares[-1] < _LEAST:
        return Gain(reason=_UNSEEN)
    low, high = shares
    return _gain(_PER_STEP, before, (low, (low + high) / 2, high), _LATE)


def expert_gain(waits: Waits) -> Gain:
    """Step time of the job with as much work for the experts of every rank; half of that at
    least, since replicas balance what they saw before."""
    shares = [waits.window_share(i, ns) for i, ns in enumerate(waits.experts)]
    most = sum(shares) / max(len(shares), 1)
    before = _before(waits)
    if before is None or most < _LEAST:
        return Gain(reason="these captures hold no steps in which it could be won")
    return _gain(_PER_STEP, before, (most / 2, most * 3 / 4, most), _BALANCED)


def _before(waits: Waits) -> Span | None:
    """The step time of the ranks, one step alone counting as its window; None without steps."""
    steps = [r.window_ns / r.steps / 1e6 for r in waits.ranks if r.steps]
    return Span(low=min(steps), mid=sum(steps) / len(steps), high=max(steps)) if steps else None


def transfer_gain(alone: Gain, transfer: float, exposed: float) -> Gain:
    """The estimate for one rank by itself, which hides waiting as well, for its transfers only:
    `transfer` and `exposed` are the shares of the window with and without the waiting."""
    if alone.speedup is None or alone.step_before_ms is None or exposed <= 0:
        return alone
    part = min(transfer / exposed, 1.0)
    saved = [part * (1 - 1 / max(s, 1.0)) for s in (alone.speedup.low, alone.speedup.mid, alone.speedup.high)]
    said = f"{part:.0%} of the exposed time is transfer; the waiting for late ranks stays"
    return _gain(alone, alone.step_before_ms, (saved[0], saved[1], saved[2]), (*alone.assumptions, said))


def with_gain(
    finding: Finding, waits: Waits, alone: Mapping[str, Gain], transfer: float, exposed: float
) -> Finding:
    """The finding with the job's estimate where there is one; `alone` are those of its rank by
    itself, by code."""
    if finding.cause == "rank-arrival-skew" and finding.scope.rank is not None:
        gain = arrival_gain(waits, finding.scope.rank)
    elif finding.cause == "expert-imbalance":
        gain = expert_gain(waits)
    elif finding.code in alone:
        gain = transfer_gain(alone[finding.code], transfer, exposed)
    else:
        return finding
    return finding.model_copy(update={"gain": gain})


def with_arrivals(findings: Iterable[Finding], waits: Waits) -> tuple[Finding, ...]:
    """The findings of one capture of several ranks, those about late ranks with an estimate."""
    return tuple(with_gain(f, waits, {}, 0.0, 0.0) for f in findings)


def _job_share(waits: Waits, ns: int) -> float:
    """Share of the window that `ns` of waiting in the matched calls makes, mean over the ranks."""
    count = len(waits.ranks)
    return sum(waits.window_share(i, ns) for i in range(count)) / count


def _gain(gain: Gain, before: Span, saved: tuple[float, float, float], assumptions: tuple[str, ...]) -> Gain:
    low, mid, high = (min(s, 0.95) for s in saved)
    return gain.model_copy(
        update={
            "step_before_ms": before,
            "step_after_ms": Span(
                low=before.low * (1 - high), mid=before.mid * (1 - mid), high=before.high * (1 - low)
            ),
            "speedup": Span(low=1 / (1 - low), mid=1 / (1 - mid), high=1 / (1 - high)),
            "assumptions": assumptions,
        }
    )
