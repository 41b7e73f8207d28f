"""The charts of a comparison: step times of both sides on one scale, and a step of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from advisor.model.comparison import Comparison
from advisor.model.numbers import amount, milliseconds
from advisor.model.work import Sketch
from advisor.reports.html.charts import counts, histogram, place
from advisor.reports.html.events import Drawn, together
from advisor.reports.layout import clean

BINS = 60


@dataclass(frozen=True)
class SideChart:
    """`bars` is an SVG path; the median is at `x`."""

    name: str
    css: str
    bars: str
    steps: str
    median: str
    x: float


@dataclass(frozen=True)
class SketchView:
    phase: str
    sides: list[SideChart]
    ticks: list[tuple[float, str]]
    events: Drawn | None


def sketch_view(doc: object) -> SketchView | None:
    """None where the document compares no steps."""
    if not isinstance(doc, Comparison) or doc.sketch is None or min(len(t) for t in _times(doc.sketch)) < 2:
        return None
    sketch, names = doc.sketch, (doc.before.name, doc.after.name)
    both = _times(sketch)
    high = max(map(max, both)) * 1.02
    sides = [
        _side(name, f"s{i}", times, high) for i, (name, times) in enumerate(zip(names, both, strict=True))
    ]
    ticks = [(place(high * i / 4, 0.0, high), milliseconds(high * i / 4)) for i in range(5)]
    steps = together([(sketch.steps, sketch.steps.title)]) if sketch.steps else None
    return SketchView(clean(sketch.phase), sides, ticks, steps)


def _times(sketch: Sketch) -> tuple[Sequence[float], Sequence[float]]:
    return sketch.before, sketch.after


def _side(name: str, css: str, times: Sequence[float], high: float) -> SideChart:
    found = counts(times, [True] * len(times), 0.0, high, BINS)
    typical = median(times)
    return SideChart(
        name,
        css,
        histogram(found, max(found)),
        amount(len(times), "step"),
        milliseconds(typical),
        place(typical, 0.0, high),
    )
