"""Drawings of the HTML report: step times, kernel latencies, gains, events, both sides of a comparison."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from msgspec import Struct

from advisor.model.comparison import Comparison
from advisor.model.facts import Table
from advisor.model.findings import Diagnosis
from advisor.model.numbers import IN_NS, amount, heading_parts, milliseconds, times, value_text
from advisor.model.work import Excerpt
from advisor.reports.characters import clean
from advisor.reports.finding_text import times_text
from advisor.reports.layout import cut_middle, name_text

#: Characters of a name; the middle of longer ones is left out.
EVENT_NAME = 240


class Drawn(NamedTuple):
    """`titles` are those of the excerpts, in order; `data` holds them for the script."""

    titles: list[str]
    data: dict[str, object]


def drawn(diagnosis: Diagnosis) -> Drawn:
    """The excerpts of a diagnosis, places named by their finding."""
    found = {
        (r.start_ns, r.end_ns): f"{f.rank}. {f.code}, place {number}"
        for f in reversed(diagnosis.findings)
        for number, r in enumerate(f.time_ranges, 1)
    }
    named = [(e, found.get(e.place) if e.place else "") for e in diagnosis.excerpts]
    return together([(e, ": ".join(filter(None, (name, e.title)))) for e, name in named if name is not None])


def together(excerpts: Sequence[tuple[Excerpt, str]]) -> Drawn:
    """Excerpts with their titles."""
    texts: dict[str, int] = {}
    made: list[dict[str, object]] = []
    for x, _ in excerpts:
        at = [texts.setdefault(cut_middle(clean(t), EVENT_NAME), len(texts)) for t in x.texts]
        events = [[e.track, e.start, e.length, at[e.name], at[e.note], e.call] for e in x.events]
        about = {"start": x.start_ns, "end": x.end_ns, "tracks": [clean(t) for t in x.tracks]}
        made.append({**about, "total": x.total, "place": x.place, "events": events})
    return Drawn([clean(title) for _, title in excerpts], {"texts": list(texts), "excerpts": made})


#: Size of the drawing of step times, in its own units.
WIDTH, HEIGHT = 720.0, 150.0
LEFT, BOTTOM, TOP = 46.0, 18.0, 22.0
#: Fewest and most bars of the histogram.
BINS = (8, 30)
MOST_KERNELS = 20
NAME = 50


class Phase(Struct, frozen=True):
    """The steps of one phase: `bars` and `histogram` are SVG paths."""

    name: str
    css: str
    count: int
    bars: str
    histogram: str
    median: str
    p99: str
    median_x: float
    p99_x: float
    median_y: float

    @property
    def p99_apart(self) -> bool:
        """Whether both labels fit beside each other."""
        return self.p99_x - self.median_x > 150


class StepChart(Struct, frozen=True):
    """Steps in order of time, and how their times are distributed."""

    phases: list[Phase]
    ticks: list[tuple[float, str]]
    x_ticks: list[tuple[float, str]]
    time_ticks: list[tuple[float, str]]
    shown: int
    total: int
    most: int
    most_y: float


class LatencyRow(Struct, frozen=True):
    """One kernel: numbers as text and as positions on a common logarithmic scale of 0..100."""

    name: str
    full: str
    calls: str
    p50: str
    p99: str
    max: str
    ratio: str
    at_p50: float
    at_p95: float | None
    at_p99: float
    at_max: float


def step_chart(diagnosis: Diagnosis) -> StepChart | None:
    """None if the document has fewer than two step marks."""
    marks = diagnosis.timeline.marks
    times = [(m.end_ns - m.start_ns) / 1e6 for m in marks]
    if len(times) < 2 or max(times) <= 0:
        return None
    top = _nice(max(times))
    low, high = min(times), max(times)
    span = (high - low) or high or 1.0
    edge_low, edge_high = max(low - 0.02 * span, 0.0), high + 0.02 * span
    width = (WIDTH - LEFT) / len(times)
    names = list(dict.fromkeys(m.label for m in marks))
    summary = {s.phase: s for s in diagnosis.main_steps}
    bins = min(max(round(2 * math.sqrt(len(times))), BINS[0]), BINS[1])
    own = {n: [(i, t) for i, t in enumerate(times) if marks[i].label == n] for n in names}
    by_phase = {n: counts([t for _, t in mine], edge_low, edge_high, bins) for n, mine in own.items()}
    most = max(max(c) for c in by_phase.values())
    phases = []
    for number, (name, mine) in enumerate(own.items()):
        known = summary.get(name)
        ordered = sorted(t for _, t in mine)
        median = known.median_ms if known else ordered[len(ordered) // 2]
        p99 = known.p99_ms if known else ordered[-1]
        phases.append(
            Phase(
                name=clean(name) or "steps",
                css=f"s{number % 4}",
                count=known.count if known else len(mine),
                bars="".join(_bar(LEFT + i * width, width, t / top) for i, t in mine),
                histogram=histogram(by_phase[name], most),
                median=milliseconds(median),
                p99=milliseconds(p99),
                median_x=place(median, edge_low, edge_high),
                p99_x=place(p99, edge_low, edge_high),
                median_y=_y(median / top),
            )
        )
    total = sum(s.count for s in diagnosis.main_steps)
    return StepChart(
        phases=phases,
        ticks=[(_y(f), milliseconds(top * f)) for f in (0.0, 0.5, 1.0)],
        x_ticks=_steps(len(times)),
        time_ticks=[(place(v, edge_low, edge_high), milliseconds(v)) for v in (low, (low + high) / 2, high)],
        shown=len(times),
        total=max(total, len(times)),
        most=most,
        most_y=_y(1.0),
    )


def latencies(kernels: Table) -> list[LatencyRow]:
    """The first kernels of the table, with their p50, p99 and largest time."""
    at = {heading_parts(h)[0]: i for i, h in enumerate(kernels.columns)}
    units = {name: heading_parts(kernels.columns[i])[1] for name, i in at.items()}
    label = next((n for n in ("kernel", "name") if n in at), None)
    wanted = ("p50", "p99", "max")
    if label is None or any(w not in at or units[w] not in IN_NS for w in wanted):
        return []

    def ns(row: Sequence[object], name: str) -> float:
        """0 if it is unknown."""
        value = row[at[name]] if name in at else None
        return value * IN_NS[units[name]] if isinstance(value, int | float) and value > 0 else 0.0

    first = kernels.rows[:MOST_KERNELS]
    known = [(row, ns(row, "p50"), ns(row, "p95"), ns(row, "p99"), ns(row, "max")) for row in first]
    rows = [(row, p50, p95, p99, most) for row, p50, p95, p99, most in known if min(p50, p99, most) > 0]
    if not rows:
        return []
    low = math.log10(min(r[1] for r in rows)) - 0.05
    high = math.log10(max(r[4] for r in rows)) + 0.05

    def on_scale(value: float) -> float:
        return round(max(min(100 * (math.log10(value) - low) / (high - low), 100.0), 0.0), 2)

    out = []
    for row, p50, p95, p99, most in rows:
        full = clean(str(row[at[label]]))
        out.append(
            LatencyRow(
                name=cut_middle(name_text(full), NAME),
                full=full,
                calls=value_text(row[at["calls"]] if "calls" in at else None),
                p50=value_text(p50, "ns"),
                p99=value_text(p99, "ns"),
                max=value_text(most, "ns"),
                ratio=f"{times(most / p50)} x",
                at_p50=on_scale(p50),
                at_p95=on_scale(p95) if p95 else None,
                at_p99=on_scale(p99),
                at_max=on_scale(most),
            )
        )
    return out


class Estimate(Struct, frozen=True):
    """The gain of a fix: `low`, `mid` and `high` on a scale of 0..100, which ends at a speed-up of `top`."""

    rank: int
    name: str
    speedup: str
    low: float
    mid: float
    high: float
    top: str


def estimates(diagnosis: Diagnosis) -> list[Estimate]:
    """The gain of each finding in step time; gains in tokens a second have no place on that scale."""
    found = [
        (f, f.gain.speedup)
        for f in diagnosis.findings
        if f.gain is not None and f.gain.speedup is not None and f.gain.measure != "throughput"
    ]
    top = max([max(s.low, s.high) for _, s in found] + [1.1])

    def place(speedup: float) -> float:
        return round(max(min(100 * (speedup - 1.0) / (top - 1.0), 100.0), 0.0), 2)

    out = []
    for f, s in found:
        low, high = sorted((s.low, s.high))
        places = (place(low), place(s.mid), place(high))
        out.append(Estimate(f.rank, f"{f.code} {f.cause}", times_text(s), *places, f"{top:.1f} x"))
    return out


def _bar(x: float, width: float, part: float) -> str:
    """One step as a closed path; a gap between bars if there is room for one."""
    gap = 1.0 if width > 4 else 0.2
    left, right = x + gap / 2, x + max(width - gap / 2, 0.4)
    return f"M{left:.1f} {_y(0.0)}V{_y(part)}H{right:.1f}V{_y(0.0)}z"


def _y(part: float) -> float:
    return round(HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP), 1)


def place(value: float, low: float, high: float) -> float:
    """Where a value of an axis is drawn."""
    return round(max(min((value - low) / ((high - low) or 1.0), 1.0), 0.0) * (WIDTH - LEFT), 1) + LEFT


def anchor(x: float) -> str:
    """How a label at `x` is set so that it stays inside the drawing."""
    return "start" if x < LEFT + 50 else "end" if x > WIDTH - 50 else "middle"


def counts(times: Sequence[float], low: float, high: float, bins: int) -> list[int]:
    """Times of each bin between two edges."""
    at = Counter(min(int((time - low) / ((high - low) or 1.0) * bins), bins - 1) for time in times)
    return [at[i] for i in range(bins)]


def histogram(counts: Sequence[int], most: int) -> str:
    """Bars of counts as an SVG path."""
    width = (WIDTH - LEFT) / len(counts)
    return "".join(_bar(LEFT + i * width, width, n / max(most, 1)) for i, n in enumerate(counts) if n)


def _steps(count: int) -> list[tuple[float, str]]:
    """Numbers under a few of the steps."""
    every = max(round(_nice(count / 8)), 1)
    width = (WIDTH - LEFT) / count
    return [(round(LEFT + (i + 0.5) * width, 1), str(i + 1)) for i in range(0, count, every)]


def _nice(value: float) -> float:
    """The next round number at or above `value`: 1, 2, 2.5, 5 times a power of ten."""
    size = 10.0 ** math.floor(math.log10(value))
    return next(m * size for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if m * size >= value * 0.999)


SIDE_BINS = 60


class SideChart(Struct, frozen=True):
    """`bars` is an SVG path; the median is at `x`."""

    name: str
    css: str
    bars: str
    steps: str
    median: str
    x: float


class SketchView(Struct, frozen=True):
    phase: str
    sides: list[SideChart]
    ticks: list[tuple[float, str]]
    events: Drawn | None


def sketch_view(doc: object) -> SketchView | None:
    """None if the document compares no steps."""
    if not isinstance(doc, Comparison) or (sketch := doc.sketch) is None:
        return None
    if min(len(sketch.before), len(sketch.after)) < 2:
        return None
    high = max(*sketch.before, *sketch.after) * 1.02
    before = _side(doc.before.name, "s0", sketch.before, high)
    sides = [before, _side(doc.after.name, "s1", sketch.after, high)]
    ticks = [(place(high * i / 4, 0.0, high), milliseconds(high * i / 4)) for i in range(5)]
    steps = together([(sketch.steps, sketch.steps.title)]) if sketch.steps else None
    return SketchView(clean(sketch.phase), sides, ticks, steps)


def _side(name: str, css: str, times: Sequence[float], high: float) -> SideChart:
    found = counts(times, 0.0, high, SIDE_BINS)
    typical, steps = median(times), amount(len(times), "step")
    at = place(typical, 0.0, high)
    return SideChart(name, css, histogram(found, max(found)), steps, milliseconds(typical), at)
