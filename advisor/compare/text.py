"""Words and numbers of the sentences that comparisons say."""

from __future__ import annotations

from advisor.model.comparison import PhaseChange
from advisor.model.findings import Span
from advisor.model.numbers import milliseconds, signed


def ratio(value: float, sign: bool = True) -> str:
    """``-83.7 %``, ``+2.3 %``, ``+513 %``."""
    return f"{signed(value, sign)} %"


def interval(span: Span) -> str:
    """``-86.5 to -79.1 %``"""
    return f"{signed(span.low)} to {ratio(span.high)}"


def phase_words(phase: str) -> str:
    """A step of the phase, in words."""
    known = {"unknown": "step", "window": "window"}
    return known.get(phase, f"{phase} step")


def step_times(phase: PhaseChange) -> str:
    """``from 12.73 to 2.08 ms``"""
    assert phase.before is not None
    assert phase.after is not None
    before, after = (milliseconds(s.median_ms) for s in (phase.before, phase.after))
    return f"from {before} to {after} ms"
