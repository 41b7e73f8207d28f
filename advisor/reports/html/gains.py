"""The what-if table of the HTML report: each fix alone, then the top ones together."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model.findings import Diagnosis, Finding, Gain, Span
from advisor.model.numbers import milliseconds, times
from advisor.reports import phrases
from advisor.reports.gain_text import span_text, times_text
from advisor.reports.layout import clean


@dataclass(frozen=True)
class WhatIf:
    """An estimate; `low`, `mid` and `high` are places of the speed-up on a scale of 0..100. What
    counts tokens a second has no place on the scale of step times (`drawn`)."""

    rank: int
    code: str
    cause: str
    text: str
    before: str
    after: str
    speedup: str
    low: float
    mid: float
    high: float
    drawn: bool
    assumptions: str


@dataclass(frozen=True)
class Together:
    """One of the combined fixes: the step with it and all before it."""

    code: str
    cause: str
    text: str
    after: str
    won: str
    share: float
    speedup: str
    note: str


@dataclass(frozen=True)
class GainView:
    what_ifs: list[WhatIf]
    together: list[Together]
    total: str
    bound: str
    assumptions: str
    top: str


def gain_view(diagnosis: Diagnosis) -> GainView | None:
    """None where nothing has been estimated."""
    rows = [(f, f.gain) for f in diagnosis.findings if f.gain and f.gain.speedup]
    combined = diagnosis.combined
    if not rows and combined is None:
        return None
    ends = [g.speedup for _, g in rows if g.speedup and g.measure != "throughput"]
    top = max([max(s.low, s.high) for s in ends] + [1.1])
    together = [
        Together(
            code=clean(s.code or ""),
            cause=clean(s.cause or ""),
            text=phrases.what_if(s.what_if, s.params),
            after=milliseconds(s.step_after_ms),
            won=milliseconds(s.marginal_ms),
            share=s.marginal_share,
            speedup=f"{times(s.speedup)} x",
            note=clean(s.note or ""),
        )
        for s in (combined.steps if combined else ())
    ]
    bound = ""
    if combined is not None:
        bound = (
            f"The GPU alone needs {span_text(combined.bound_ms)} ms a step then, however fast the "
            f"host: {times_text(combined.bound_speedup)} is the most (Amdahl)."
        )
    return GainView(
        what_ifs=[_row(f, g, top) for f, g in rows],
        together=together,
        total=phrases.combined(diagnosis),
        bound=bound,
        assumptions=clean("; ".join(combined.assumptions)) if combined else "",
        top=f"{top:.1f} x",
    )


def _row(found: Finding, gain: Gain, top: float) -> WhatIf:
    speedup = gain.speedup or Span(low=1.0, mid=1.0, high=1.0)
    low, high = sorted((speedup.low, speedup.high))
    places = [_place(v, top) for v in (low, speedup.mid, high)]
    return WhatIf(
        rank=found.rank,
        code=clean(found.code),
        cause=clean(found.cause),
        text=phrases.what_if(gain.what_if, gain.params),
        before=span_text(gain.step_before_ms) if gain.step_before_ms else "",
        after=span_text(gain.step_after_ms) if gain.step_after_ms else "",
        speedup=times_text(speedup) + (" in tokens/s" if gain.measure == "throughput" else ""),
        low=places[0],
        mid=places[1],
        high=places[2],
        drawn=gain.measure != "throughput",
        assumptions=clean("; ".join(gain.assumptions)),
    )


def _place(speedup: float, top: float) -> float:
    return round(max(min(100 * (speedup - 1.0) / (top - 1.0), 100.0), 0.0), 2)
