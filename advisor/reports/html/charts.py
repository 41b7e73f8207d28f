"""Drawings of the HTML report: budgets, step times, kernel latencies, gains, events, both sides of a
comparison. Their values are texts and positions for the templates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from types import SimpleNamespace as View
from typing import NamedTuple

from advisor.model.comparison import Comparison, PartChange
from advisor.model.facts import Table
from advisor.model.findings import Budget, Diagnosis
from advisor.model.kernel_labels import kernel_label
from advisor.model.numbers import IN_NS, amount, heading_parts, milliseconds, percent, times, value_text
from advisor.model.parts import PARTS, Dots, PartSpec, Stripes
from advisor.model.work import Excerpt
from advisor.reports.budget_bar import COLUMNS, shares, signs, unanswered, words
from advisor.reports.compare_blocks import change
from advisor.reports.finding_text import times_text
from advisor.reports.layout import cut_middle
from advisor.reports.output_file import clean

#: A part below this share of every bar is added to the other small ones.
SMALL = 0.0005
#: From this share on a piece of the bar is wide enough for its sign and number.
LABELLED = 0.055
#: With more bars there is no room for times beside the shares.
ROOMY = 4
#: Parts of a comparison smaller than this share of the longer side are only in the tables.
COMPARED = 0.005


def _piece(part: str, sign: str, share: float, percent: str, ms: str) -> View:
    """A piece of a budget bar; `css` names its colour and pattern."""
    css = f"p-{part if part in PARTS else 'unknown'}"
    return View(
        words=words(part), sign=sign, css=css, share=share, percent=percent, ms=ms, labelled=share >= LABELLED
    )


def budget_view(budgets: Sequence[Budget]) -> View:
    """A bar a device or phase; a row of the `legend` has a cell for each of `columns`, the bars."""
    held = shares(budgets, SMALL)
    given = signs(list(held.cells), "C")  # compute needs a letter too, so that every piece has a sign

    def piece(part: str, share: float, ms: float) -> View:
        return _piece(part, given[part][0], share, percent(share), f"{milliseconds(ms)} ms")

    bars = [
        View(
            label=f"{clean(b.phase)}, {b.place}" if b.phase else b.place,
            window=value_text(b.window_ms, "ms"),
            pieces=[piece(p.part, p.share, p.ms) for p in b.parts if p.share > 0],
        )
        for b in budgets
    ]
    shown = budgets if len(bars) <= ROOMY else ()
    ms = {(p.part, i): f" · {milliseconds(p.ms)} ms" for i, b in enumerate(shown) for p in b.parts}
    legend = []
    for part in held.parts:
        known = enumerate(held.cells[part])
        cells = ["" if s is None else f"{percent(s)}{ms.get((part, i), '')}" for i, s in known]
        legend.append((piece(part, held.largest[part], 0.0), cells))
    columns = ["least", "median", "most"] if held.many else [b.label for b in bars]
    small = [p for p in held.cells if 0 < held.largest[p] < SMALL]
    below = [f"Below 0.05 %: {', '.join(words(p) for p in small)}."] if small else []
    rest = " ".join([*unanswered(budgets), *below])
    return View(bars=bars, columns=columns, legend=legend, rest=rest, many=len(bars) > COLUMNS)


def piece_pattern(part: PartSpec) -> str:
    """The CSS of the pattern over a part's colour."""
    match part.pattern:
        case Stripes(degrees, tone, width, every):
            ink = f"var(--{'x' if tone == 'light' else 'y'}) 0 {width}px"
            stops = f"{degrees}deg, {ink}, transparent {width}px {every}px"
            return f" background-image: repeating-linear-gradient({stops});"
        case Dots(radius, edge, every):
            image = f"radial-gradient(var(--y) {radius:g}px, transparent {edge:g}px)"
            return f" background-image: {image}; background-size: {every}px {every}px;"
    return ""


def change_view(parts: Iterable[PartChange], names: tuple[str, str]) -> View | None:
    """A bar for each side, both to the scale of the longer one; None without parts."""
    rows = [p for p in parts if p.phase is None]
    whole = [sum(p.before_ms for p in rows), sum(p.after_ms for p in rows)]
    longest = max(whole, default=0.0)
    if longest <= 0:
        return None
    given = signs([p.part for p in rows], "C")

    def piece(part: str, ms: float) -> View:
        return _piece(part, given[part][0], ms / longest, f"{milliseconds(ms)} ms", "a step")

    bars = []
    for i, name in enumerate(names):
        pieces = [piece(p.part, (p.before_ms, p.after_ms)[i]) for p in rows]
        rest = longest - whole[i]
        if rest > COMPARED * longest:
            less = _piece("", "", rest / longest, f"{milliseconds(rest)} ms less", "a step")
            less.words, less.css = "shorter by", "p-none"
            pieces.append(less)
        shown = [p for p in pieces if p.share > 0]
        bars.append(View(label=name, window=f"{milliseconds(whole[i])} ms a step", pieces=shown))
    kept = [p for p in rows if max(p.before_ms, p.after_ms) >= COMPARED * longest]
    legend = []
    for p in sorted(kept, key=lambda p: -abs(p.change_ms)):
        ends = (p.before_ms, p.after_ms)
        legend.append((piece(p.part, 0.0), [*map(milliseconds, ends), f"{p.change_ms:+,.2f}", change(*ends)]))
    heads = [f"{names[0]}, ms a step", names[1], "change", ""]
    return View(bars=bars, columns=heads, legend=legend, rest="", many=False)


#: Characters of a name; the middle of longer ones is left out.
EVENT_NAME = 240
#: In the name of a track of the device.
GPU = "GPU "


class Drawn(NamedTuple):
    """`titles` are those of the excerpts, in order; `data` holds them for the script, with the short names of
    kernels (`labels`) by the number of their text."""

    titles: list[str]
    data: dict[str, object]


def drawn(diagnosis: Diagnosis) -> Drawn:
    """The excerpts of a diagnosis, places named by their finding."""
    found = {
        (r.start_ns, r.end_ns): f"{f.rank}. {f.code}, place {number}"
        for f in reversed(diagnosis.findings)
        for number, r in enumerate(f.time_ranges, 1)
    }
    named = [(e, found.get(e.place) if e.place else "") for e in diagnosis.excerpts or ()]
    return together([(e, ": ".join(filter(None, (name, e.title)))) for e, name in named if name is not None])


def together(excerpts: Sequence[tuple[Excerpt, str]]) -> Drawn:
    """Excerpts with their titles."""
    texts: dict[str, int] = {}
    labels: dict[int, str] = {}
    made: list[dict[str, object]] = []
    for x, _ in excerpts:
        at = [texts.setdefault(cut_middle(clean(t), EVENT_NAME), len(texts)) for t in x.texts]
        for e in x.events:
            if GPU in x.tracks[e.track] and (label := kernel_label(x.texts[e.name])) != x.texts[e.name]:
                labels[at[e.name]] = clean(label)
        events = [[e.track, e.start, e.length, at[e.name], at[e.note], e.call] for e in x.events]
        about = {"start": x.start_ns, "end": x.end_ns, "tracks": [clean(t) for t in x.tracks]}
        made.append({**about, "total": x.total, "place": x.place, "events": events})
    return Drawn(
        [clean(title) for _, title in excerpts], {"texts": list(texts), "labels": labels, "excerpts": made}
    )


#: Size of the drawing of step times, in its own units.
WIDTH, HEIGHT = 720.0, 150.0
LEFT, BOTTOM, TOP = 46.0, 18.0, 22.0
#: Fewest and most bars of the histogram.
BINS = (8, 30)


def step_chart(diagnosis: Diagnosis) -> View | None:
    """Steps in order of time, and how their times are distributed, by phase: `bars` and `histogram` are SVG
    paths. None if the document has fewer than two step marks."""
    marks = diagnosis.timeline.marks
    times = [(m.end_ns - m.start_ns) / 1e6 for m in marks]
    if len(times) < 2 or max(times) <= 0:
        return None
    top = _nice(max(times))
    low, high = min(times), max(times)
    span = (high - low) or high or 1.0
    edges = max(low - 0.02 * span, 0.0), high + 0.02 * span
    width = (WIDTH - LEFT) / len(times)
    summary = {s.phase: s for s in diagnosis.main_steps}
    bins = min(max(round(2 * math.sqrt(len(times))), BINS[0]), BINS[1])
    own: dict[str, list[tuple[int, float]]] = {}
    for i, time in enumerate(times):
        own.setdefault(marks[i].label, []).append((i, time))
    by_phase = {n: counts([t for _, t in mine], *edges, bins) for n, mine in own.items()}
    most = max(max(c) for c in by_phase.values())
    phases = []
    for number, (name, mine) in enumerate(own.items()):
        known = summary.get(name)
        ordered = sorted(t for _, t in mine)
        half, p99 = (known.median_ms, known.p99_ms) if known else (ordered[len(ordered) // 2], ordered[-1])
        median_x, p99_x = place(half, *edges), place(p99, *edges)
        phases.append(
            View(
                name=clean(name) or "steps",
                css=f"s{number % 4}",
                bars="".join(_bar(LEFT + i * width, width, t / top) for i, t in mine),
                histogram=histogram(by_phase[name], most),
                median=milliseconds(half),
                p99=milliseconds(p99),
                median_x=median_x,
                p99_x=p99_x,
                median_y=_y(half / top),
                p99_apart=p99_x - median_x > 150,  # both labels fit beside each other
            )
        )
    every = max(round(_nice(len(times) / 8)), 1)
    return View(
        phases=phases,
        ticks=[(_y(f), milliseconds(top * f)) for f in (0.0, 0.5, 1.0)],
        x_ticks=[(round(LEFT + (i + 0.5) * width, 1), str(i + 1)) for i in range(0, len(times), every)],
        time_ticks=[(place(v, *edges), milliseconds(v)) for v in (low, (low + high) / 2, high)],
        shown=len(times),
        total=max(sum(s.count for s in diagnosis.main_steps), len(times)),
        most=most,
        most_y=_y(1.0),
    )


MOST_KERNELS = 20
NAME = 50


def latencies(kernels: Table) -> list[View]:
    """The first kernels: p50, p99 and maximum, and places on a logarithmic scale of 0 to 100."""
    at = {heading_parts(h)[0]: i for i, h in enumerate(kernels.columns)}
    units = {name: heading_parts(kernels.columns[i])[1] for name, i in at.items()}
    label = next((n for n in ("kernel", "name") if n in at), None)
    if label is None or any(w not in at or units[w] not in IN_NS for w in ("p50", "p99", "max")):
        return []

    def ns(row: Sequence[object], name: str) -> float:
        """0 if it is unknown."""
        value = row[at[name]] if name in at else None
        return value * IN_NS[units[name]] if isinstance(value, int | float) and value > 0 else 0.0

    rows = []
    for row in kernels.rows[:MOST_KERNELS]:
        p50, p95, p99, most = (ns(row, name) for name in ("p50", "p95", "p99", "max"))
        if min(p50, p99, most) > 0:
            rows.append((row, p50, p95, p99, most))
    low = math.log10(min((r[1] for r in rows), default=1.0)) - 0.05
    high = math.log10(max((r[4] for r in rows), default=1.0)) + 0.05

    def on_scale(value: float) -> float:
        return round(max(min(100 * (math.log10(value) - low) / (high - low), 100.0), 0.0), 2)

    out = []
    for row, p50, p95, p99, most in rows:
        full = clean(str(row[at[label]]))
        calls = value_text(row[at["calls"]] if "calls" in at else None)
        texts = dict(zip(("p50", "p99", "max"), (value_text(v, "ns") for v in (p50, p99, most)), strict=True))
        ends = {"at_p50": on_scale(p50), "at_p95": on_scale(p95) if p95 else None}
        ends |= {"at_p99": on_scale(p99), "at_max": on_scale(most)}
        name, ratio = cut_middle(kernel_label(full), NAME), f"{times(most / p50)} x"
        out.append(View(name=name, full=full, calls=calls, ratio=ratio, **texts, **ends))
    return out


def estimates(diagnosis: Diagnosis) -> list[View]:
    """Gains in step time, not in tokens a second; 100 of the scale is a speed-up of `top`."""
    found = [
        (f, f.gain.speedup)
        for f in diagnosis.findings
        if f.gain is not None and f.gain.speedup is not None and f.gain.measure != "throughput"
    ]
    top = max([max(s.low, s.high) for _, s in found] + [1.1])
    out = []
    for f, s in found:
        ends = (min(s.low, s.high), s.mid, max(s.low, s.high))
        low, mid, high = (round(max(min(100 * (v - 1.0) / (top - 1.0), 100.0), 0.0), 2) for v in ends)
        about = {"rank": f.rank, "name": f"{f.code} {f.cause}", "speedup": times_text(s)}
        out.append(View(**about, low=low, mid=mid, high=high, top=f"{top:.1f} x"))
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


def _nice(value: float) -> float:
    """The next round number at or above `value`: 1, 2, 2.5, 5 times a power of ten."""
    size = 10.0 ** math.floor(math.log10(value))
    return next(m * size for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if m * size >= value * 0.999)


#: A strip of a chart over time: units of its drawing.
STRIP_WIDTH, STRIP_HEIGHT = 1000.0, 100.0


def strips(table: Table) -> list[View]:
    """A line over time for each column of a table whose first column is the time in s, named beside it, with
    its mean and ends; none for a column without two values."""
    time = [float(row[0] or 0.0) for row in table.rows]
    length = (max(time) - min(time)) or 1.0 if time else 1.0
    out = []
    for i, heading in enumerate(table.columns):
        known = [
            (t, float(v)) for t, v in zip(time, (r[i] for r in table.rows), strict=True) if v is not None
        ]
        if not i or len(known) < 2:
            continue
        name, unit = heading_parts(heading)
        values = [v for _, v in known]
        top = max(*values, 0.0) or 1.0
        points = [
            f"{(t - min(time)) / length * STRIP_WIDTH:.1f} {(1 - max(v, 0.0) / top) * STRIP_HEIGHT:.1f}"
            for t, v in known
        ]
        least, mean, most = (
            value_text(v, unit) for v in (min(values), sum(values) / len(values), max(values))
        )
        out.append(View(name=clean(name), line="M" + "L".join(points), least=least, mean=mean, most=most))
    return out


SIDE_BINS = 60


def sketch_view(doc: object) -> View | None:
    """How long the steps of each side take, a typical one of each; None if none are compared."""
    if not isinstance(doc, Comparison) or not (sketch := doc.sketch):
        return None
    if min(len(sketch.before), len(sketch.after)) < 2:
        return None
    high = max(*sketch.before, *sketch.after) * 1.02
    sides = []
    for name, css, own in (doc.before.name, "s0", sketch.before), (doc.after.name, "s1", sketch.after):
        found, typical = counts(own, 0.0, high, SIDE_BINS), median(own)
        about = {
            "name": name,
            "css": css,
            "bars": histogram(found, max(found)),
            "steps": amount(len(own), "step"),
        }
        sides.append(View(**about, median=milliseconds(typical), x=place(typical, 0.0, high)))
    ticks = [(place(high * i / 4, 0.0, high), milliseconds(high * i / 4)) for i in range(5)]
    events = together([(sketch.steps, sketch.steps.title)]) if sketch.steps else None
    return View(phase=clean(sketch.phase), sides=sides, ticks=ticks, events=events)
