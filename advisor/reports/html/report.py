"""One HTML file with everything in it: no network, light and dark, printable.

Templates escape all values. The document itself is embedded twice: packed, to be saved, and the part
drawn in the timeline as JSON. A policy in the page lets only our own script run, under any name of a
kernel.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from itertools import groupby
from types import SimpleNamespace as View
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct, field
from msgspec.structs import replace

from advisor import __version__
from advisor.model import facts
from advisor.model.comparison import Comparison, ContextScaling
from advisor.model.findings import Diagnosis
from advisor.model.kernel_labels import kernel_label
from advisor.model.numbers import heading_parts, milliseconds, value_text
from advisor.model.parts import PARTS
from advisor.reports import blocks as b
from advisor.reports import (
    diagnosis_blocks,
    finding_text,
    json_report,
    manager,
    phrases,
    rank_blocks,
    summary,
)
from advisor.reports.finding_text import Detail, grid
from advisor.reports.html import charts
from advisor.reports.layout import UNICODE, cut_middle
from advisor.reports.output_file import clean

LEVELS = UNICODE.levels
#: Signs of items; words beside them say the same.
SIGNS = {"ok": "✓", "no": "✗", "partly": "~", "?": "?"} | LEVELS
SCRIPTS = ("page.js", "viewport.js", "timeline.js", "events.js")


def document(report: b.Report) -> bytes:
    """One page; several captures stand one after the other under a list of them."""
    known = environment()
    shown = parts(report)
    assert known.loader is not None
    script = "".join(known.loader.get_source(known, name)[0] for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = known.get_template("page.html.j2").render(
        parts=shown,
        title=report.title or shown[0].title,
        version=__version__,
        script=Markup(script),
        script_hash=Markup(f"sha256-{digest}"),
    )
    return text.encode("utf-8", "replace")


@cache
def environment() -> Environment:
    """Templates and what they may call."""
    made = Environment(
        loader=PackageLoader("advisor.reports.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Finished markup is unchanged.
        finalize=lambda v: clean(v) if isinstance(v, str) and not isinstance(v, Markup) else v,
    )
    made.globals |= {"levels": LEVELS, "signs": SIGNS, "colours": PARTS, "most_places": PLACES}
    made.filters |= {
        "anchor": charts.anchor,
        "budgets": charts.budget_view,
        "cut": cut_middle,
        "embedded": embedded,
        "in_page": in_page,
        "is_link": lambda url: url.startswith(("https://", "http://")),
        "ms": milliseconds,
        "pattern": charts.piece_pattern,
        "prose": prose,
        "tree": tree,
    }
    return made


def prose(text: str) -> Markup:
    """Text of a rule, which quotes commands in backticks; names of options are not broken at a dash."""
    pieces = map(_options, re.split(r"`([^`]+)`", clean(text)))
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(pieces))


def _options(text: str) -> Markup:
    pieces = re.split(r"(?<![\w-])(--?[a-z][\w-]*)", text)
    whole = Markup('<span class="option">{}</span>')
    return Markup("").join(whole.format(p) if i % 2 else p for i, p in enumerate(pieces))


def in_page(value: Any) -> Markup:
    """JSON that ends no element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def embedded(diagnosis: Diagnosis) -> tuple[Markup, str]:
    """The document in a page: what its scripts draw, and all of it packed, to be saved from there."""
    document = json_report.render([diagnosis])
    whole = json.loads(document.decode("utf-8", "backslashreplace"))
    drawn = {key: whole[key] for key in ("inputs", "findings", "timeline")}
    packed = base64.b64encode(gzip.compress(document, mtime=0)).decode()
    return in_page(drawn), packed


#: Number of findings unfolded when the page opens, and of places listed without unfolding.
OPEN, PLACES = 3, 6
#: Rows of a tree, and its levels that are unfolded when the page opens.
BRANCHES, UNFOLDED = 500, 2
#: The list of several captures.
INDEX = "index"
#: Width that blocks are made for.
WIDTH = 80
#: Sections of a diagnosis by heading: their ids for links, and their names in the bar on top.
LINKS = {
    "Findings": ("findings", "Findings"),
    "Budget of the window": ("budget", "Budget"),
    "Timeline of the window": ("timeline", "Timeline"),
    "Events": ("exact", "Events"),
    "Top kernels": ("kernels", "Kernels"),
    "Latency distributions": ("latency", "Latency"),
    "Healthy": ("healthy", "Healthy"),
    "Close": ("close", ""),
    "Observed": ("observed", ""),
    "Does not apply": ("away", ""),
    "Not judged": ("missing", "Not judged"),
    "Near a threshold": ("near", ""),
    "About": ("about", "About"),
}


class Picture(Struct, frozen=True):
    """A drawing that only HTML has: its template and data."""

    template: str
    view: Any


class Section(Struct):
    """A heading and what follows it; `id` is its place in the page, `link` its name in the bar."""

    id: str
    title: str
    note: str = ""
    link: str = ""
    blocks: list[b.Block | Picture] = field(default_factory=list)


class Part(Struct, frozen=True, dict=True):
    """One document of the page: its sections, of which the first has no heading."""

    id: str
    title: str
    sections: list[Section]
    diagnosis: Diagnosis | None = None

    @cached_property
    def at(self) -> Mapping[str, int]:
        """Printed rank of a finding -> its index in the document."""
        found = self.diagnosis.findings if self.diagnosis is not None else ()
        return {str(f.rank): i for i, f in enumerate(found)}

    def runs(self, blocks: Iterable[object]) -> list[tuple[str, list[Any]]]:
        """Consecutive blocks of one kind together: kind and blocks."""
        grouped = groupby((x for x in blocks if not isinstance(x, b.Gap)), lambda x: type(x).__name__.lower())
        return [(kind, list(some)) for kind, some in grouped]

    def table(self, grid: b.Grid) -> View:
        """A table; rows about captures or findings link to their section of the page."""
        view = table_view(grid)
        at = grid.heads.index("finding") if grid.heads[:1] == ("#",) else 0
        for i, row in enumerate(view.rows if at or self.id == INDEX else ()):
            row[at].link = f"{self.id}-f{row[0].text}" if at else f"c{i}"
        return view

    def opens(self, number: int) -> bool:
        """Whether a finding is unfolded at first: the few most important ones."""
        found = self.diagnosis.findings[number] if self.diagnosis is not None else None
        return found is None or (number < OPEN and (found.severity != "info" or found.invalidates))

    def strip(self, places: b.Places) -> list[tuple[float, float]]:
        """Start and length of ranges as parts of a thousand of the window, each wide enough to see."""
        if (d := self.diagnosis) is None:
            return []
        low, bins = d.timeline.start_ns, max((len(lane.values) for lane in d.timeline.lanes), default=0)
        high = low + bins * d.timeline.bin_ns
        if len(d.inputs) == 1 and d.inputs[0].window_ns is not None:
            low, high = d.inputs[0].window_ns
        if high <= low:
            return []
        times = ((r.start_ns, r.end_ns) for r in places.ranges)
        ends = ([max(min((t - low) / (high - low), 1.0), 0.0) for t in both] for both in times)
        return [(round(1000 * start, 2), round(max(1000 * (end - start), 1.2), 2)) for start, end in ends]


def parts(report: b.Report) -> list[Part]:
    """The documents of a report: diagnoses one by one, others as their blocks."""
    found = [d for d in report.documents if isinstance(d, Diagnosis)]
    if found:
        named = [(f"c{i}", phrases.title(d) or "advisor", d) for i, d in enumerate(found)]
        shown = [Part(id, title, _sections(id, _blocks(d)), d) for id, title, d in named]
        if len(shown) == 1:
            return shown
        listed = _sections(INDEX, summary.table(found, against=True))
        return [Part(INDEX, f"{len(found)} captures", listed), *shown]
    doc = report.documents[0]
    drawn: dict[str, Picture] = {}
    if isinstance(doc, Comparison | ContextScaling):
        names = ("before", "after") if isinstance(doc, Comparison) else ("short", "long")
        if (view := charts.change_view(doc.budget, names)) is not None:
            drawn = {"Budget": Picture("budget", view)}
    first, *sections = _sections("c0", report.whole() if report.whole else report.blocks(WIDTH), drawn)
    if (sketch := charts.sketch_view(doc)) is not None:
        note = f"{sketch.phase}, how many steps take how long, on one scale (ms)"
        added = [Section("c0-times", "Step times", note, "Step times", [Picture("sketch", sketch)])]
        if sketch.events is not None:
            note = "a typical step of each side, from one 0"
            added.append(Section("c0-exact", "Events", note, "Events", [Picture("events", sketch.events)]))
        sections = [*added, *sections]
    return [Part("c0", report.title, [first, *sections])]


def _sections(
    id: str, blocks: Iterable[b.Block | Picture], drawn: Mapping[str, Picture] | None = None
) -> list[Section]:
    """The blocks below each heading. A foldable part has a section of its own if the bar on top links to
    it. In a comparison charts of both sides replace tables: `drawn`, by heading."""
    out = [Section(f"{id}-top", "")]
    for block in blocks:
        here = out[-1].blocks
        if isinstance(block, b.Heading) or (isinstance(block, b.Fold) and block.text in LINKS):
            name, link = LINKS.get(block.text, (f"s{len(out)}", "" if drawn is None else block.text))
            inside: list[b.Block | Picture] = [*block.blocks] if isinstance(block, b.Fold) else []
            if drawn and block.text in drawn:
                inside.append(drawn[block.text])
            out.append(Section(f"{id}-{name}", block.text, block.note, link, inside))
        elif not (drawn and isinstance(block, b.Grid) and here and here[0] in drawn.values()):
            here.append(block)
    return out


def _blocks(d: Diagnosis) -> Iterator[b.Block | Picture]:
    """All blocks of the page of one diagnosis, in order."""
    for block in summary.head(d):
        yield block
        if isinstance(block, b.Paragraph) and block.strong:
            yield b.Paragraph(" ".join(manager.sentences(d)))
    if d.findings:
        note = "share: of the traced step; saves: of the untraced one" if d.steps else ""
        yield b.Heading("At a glance", note)
        yield from summary.findings(d)
    yield from diagnosis_blocks.todo(d)
    yield from diagnosis_blocks.gone(d)
    yield from diagnosis_blocks.budget(d)
    if phases := tuple(x for x in d.budget if x.phase is not None):
        yield b.Heading("Budget by phase")
        yield b.Bars(phases, brief=False)
    if d.findings:
        yield b.Heading("Findings")
    yield from map(_fix_first, diagnosis_blocks.entries(d, Detail()))
    yield from rank_blocks.ranks(d)
    lanes = []
    for lane in d.timeline.lanes:
        if known := [v for v in lane.values if v is not None]:
            name = clean(lane.name) + (f", device {lane.device}" if lane.device is not None else "")
            lanes.append((name, *(value_text(v, lane.unit) for v in (sum(known) / len(known), max(known)))))
    if lanes:
        yield b.Heading("Timeline of the window")
        yield Picture("timeline", (lanes, phrases.clock(*d.inputs)))
    yield from _over_time(d)
    if d.excerpts:
        yield b.Heading("Events", "each kernel, copy, CUDA call and range, exactly")
        yield Picture("events", charts.drawn(d))
    if ranges := charts.estimates(d):
        yield b.Heading("What a fix would win", "estimates: middle, and from low to high")
        yield Picture("estimates", ranges)
    yield from finding_text.combined(d)
    yield from diagnosis_blocks.kernels(d, None)
    kernels = d.tables.get("kernels")
    chart, latest = charts.step_chart(d), charts.latencies(kernels) if kernels is not None else []
    if chart is not None or latest:
        yield b.Heading("Latency distributions")
        yield Picture("latency", (d, chart, latest))
    yield from diagnosis_blocks.healthy(d)
    yield from diagnosis_blocks.not_judged(d)
    yield from diagnosis_blocks.sensitivity(d)
    if d.tables or d.thresholds or d.facts:
        yield b.Heading("Tables, thresholds and facts")
    for name, table in d.tables.items():
        if name != "kernels" and table.rows:
            names = [str(row[0]) for row in table.rows] if name == "modules" else []
            levels = tuple((len(text) - len(text.lstrip(". "))) // 2 for text in names)
            rows = replace(grid(table, item=f"row of {name}"), title="", levels=levels)
            yield b.Fold(table.title, f"{len(table.rows)} rows", (rows,))
    yield from diagnosis_blocks.thresholds(d, unchanged=True)
    yield from diagnosis_blocks.facts(d)
    yield b.Heading("About")
    yield from phrases.header(d, phrases.INPUTS)
    if d.findings:
        yield b.Labelled("explain", f"`advisor explain {d.findings[0].code}` says more of a finding")
    yield Picture("saved", d)


def _over_time(d: Diagnosis) -> Iterator[b.Block | Picture]:
    """The load of a server, and what samples hold, as lines over time."""
    for name, heading in (("load_over_time", "Load over time"), ("samples_over_time", "Samples over time")):
        table = d.tables.get(name)
        if table is not None and (lines := charts.strips(table)):
            merged = name == "samples_over_time" and sum(len(i.devices) for i in d.inputs) > 1
            mean = "means of all GPUs, " if merged else ""
            yield b.Heading(heading, f"{mean}each from 0 to its largest value")
            last = float(table.rows[-1][0] or 0.0)
            yield Picture("over_time", (lines, value_text(last * 1e9, "ns")))


def _fix_first(entry: b.Entry) -> b.Entry:
    """What is wrong, what to do, then the proof."""
    blocks = sorted(entry.blocks, key=lambda x: (not isinstance(x, b.Paragraph), not isinstance(x, b.Do)))
    return replace(entry, blocks=tuple(blocks))


NAME = 84
#: Up to this length a text stays on one line; from there on it may break anywhere.
SHORT, LONG = 22, 40


class Cell(Struct):
    """A cell: short `text`, the `full` name if it was cut, its number, its share, its target in the page."""

    text: str
    full: str = ""
    sort: float | None = None
    bar: float | None = None
    link: str = ""

    @property
    def is_long(self) -> bool:
        return len(self.text) > LONG

    @property
    def is_short(self) -> bool:
        return len(self.text) <= SHORT


def table_view(grid: b.Grid) -> View:
    """A table as it stands, with numbers to sort by and bars under shares: its `grid`, `heads` with whether
    their cells are numbers, `rows` of cells."""
    made = b.columns(grid)
    units = [heading_parts(head)[1] for head in grid.heads]
    rows = [
        [_cell(value, made[c][1][i], made[c][2], units[c]) for c, value in enumerate(row)]
        for i, row in enumerate(grid.rows)
    ]
    heads = [(clean(head), number) for head, _, number in made]
    return View(grid=grid, heads=heads, rows=rows, has_long_names=any(c.full for row in rows for c in row))


def _cell(value: facts.Cell | b.Number, text: str, number: bool, unit: str) -> Cell:
    if isinstance(value, b.Number):
        value = value.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value) if unit == "ratio" and 0 <= value <= 1 else None
        return Cell(clean(text), sort=float(value), bar=share)
    name = clean(text if number else kernel_label(text))
    short = cut_middle(name, NAME)
    return Cell(short, full=clean(text) if short != clean(text) else "")


def tree(grid: b.Grid) -> View:
    """A grid with levels as nested `branches`: the heaviest rows (`more` are left out), of which the first
    levels are unfolded; `numbers` of a row are its other cells with their heads."""
    view = table_view(grid)
    total = next(i for i, head in enumerate(grid.heads) if head.startswith("total"))
    order = sorted(range(len(view.rows)), key=lambda i: (-(view.rows[i][total].sort or 0.0), i))
    chosen = sorted(order[:BRANCHES])  # no row takes more than its parent, so no parent is missing
    path: list[list[View]] = [[]]
    for i in chosen:
        name, *rest = view.rows[i]
        level = min(grid.levels[i], len(path) - 1)
        numbers = [(head, cell) for (head, _), cell in zip(view.heads[1:], rest, strict=True)]
        plain = Cell(name.text.lstrip(". "), name.full.lstrip(". "), name.sort, name.bar, name.link)
        below: list[View] = []
        path[level].append(View(name=plain, numbers=numbers, is_open=level < UNFOLDED, below=below))
        path[level + 1 :] = [below]
    return View(branches=path[0], more=len(view.rows) - len(chosen))
