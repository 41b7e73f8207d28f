"""Words and numbers of the sentences that comparisons say."""

from __future__ import annotations

from advisor.model.comparison import PhaseChange
from advisor.model.findings import Span


def ratio(value: float, sign: bool = True) -> str:
    """``-83.7 %``, ``+2.3 %``, ``+513 %``."""
    percent = 100.0 * value
    digits = 0 if abs(percent) >= 100 else 1
    text = f"{percent:+,.{digits}f}" if sign else f"{percent:,.{digits}f}"
    return f"{text} %"


def interval(span: Span) -> str:
    """``-86.5 to -79.1 %``"""
    return f"{ratio(span.low)[:-2]} to {ratio(span.high)}"


def phase_words(phase: str) -> str:
    """A step of the phase, in words."""
    known = {"unknown": "step", "window": "window"}
    return known.get(phase, f"{phase} step")


def milliseconds(value: float) -> str:
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def duration(ms: float) -> str:
    """``2.08 ms``, ``3.57 us``"""
    if 0 < abs(ms) < 0.1:
        return f"{ms * 1e3:.3g} us"
    return f"{milliseconds(ms)} ms"


def times(phase: PhaseChange) -> str:
    """``from 12.73 to 2.08 ms``"""
    assert phase.before is not None
    assert phase.after is not None
    before, after = (milliseconds(s.median_ms) for s in (phase.before, phase.after))
    return f"from {before} to {after} ms"
