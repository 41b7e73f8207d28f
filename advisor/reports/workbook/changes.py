"""Workbooks of comparisons: the verdict first, then a sheet for each thing that was compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openpyxl import Workbook
from openpyxl.chart import BarChart, Reference
from openpyxl.chart.shapes import GraphicalProperties
from openpyxl.utils import get_column_letter

from advisor.model.comparison import (
    Comparability,
    Comparison,
    ContextScaling,
    FrameworkTable,
    PartChange,
    RouterExperiment,
    SideDoc,
    StepTimes,
)
from advisor.model.facts import Cell
from advisor.model.findings import Finding, Healthy, Span, Threshold
from advisor.reports.budget_bar import words
from advisor.reports.layout import cut_middle, name_text
from advisor.reports.numbers import CHANGES, fact_unit
from advisor.reports.phrases import UNKNOWN
from advisor.reports.workbook.package import Names, package
from advisor.reports.workbook.sheet import LONG_NAME, Area, Column, Number, Sheet
from advisor.reports.workbook.style import MUTED, UNDER, align, font

Document = Comparison | ContextScaling | FrameworkTable | RouterExperiment
#: A relative change: what has not moved is an equals sign.
CHANGE = '+0.0%;-0.0%;"="'
_WIDE = 6


@dataclass
class _Book:
    """The workbook and the names of its sheets."""

    book: Workbook
    names: Names

    def sheet(self, name: str, title: str = "", note: str = "") -> Sheet:
        made = self.book.create_sheet(self.names.take(name))
        return Sheet(made, title or name, note)


def render(document: Document, title: str) -> bytes:
    """The workbook as a file; the same document gives the same bytes."""
    book = _Book(Workbook(), Names())
    first = book.book.active
    assert first is not None
    first.title = book.names.take("Summary")
    first.sheet_properties.tabColor = "1F3A57"
    summary = Sheet(first, title, back=False)
    _widen(summary, 26, 30, 22, 22, 14, 14)
    summary.paragraph(document.summary, _WIDE)
    summary.row += 1
    for note in document.notes:
        summary.paragraph(note, _WIDE, color=MUTED)
    summary.row += 1
    if isinstance(document, Comparison):
        _comparison(book, summary, document)
    elif isinstance(document, ContextScaling):
        _context(book, summary, document)
    elif isinstance(document, FrameworkTable):
        _frameworks(book, summary, document)
    else:
        _router(book, summary, document)
    return package(book.book)


def _widen(sheet: Sheet, *widths: float) -> None:
    for column, width in enumerate(widths, 1):
        sheet.widen(column, width)


# ---------------------------------------------------------------- before and after


def _comparison(book: _Book, summary: Sheet, doc: Comparison) -> None:
    _steps(summary, doc)
    _sides(summary, ("before", doc.before), ("after", doc.after))
    _advice(summary, doc.findings, doc.healthy)
    _comparability(book, doc.comparability)
    _budget(book, doc.budget, ("before", "after"))
    sheet = book.sheet("Operations", note="kernels matched by what they do; calls and "
                       "milliseconds a step")  # fmt: skip
    area = sheet.table([
        Column("operation", 40), Column("family", 14), Column("phase", 12), Column("what", 15),
        Column("calls before", 11), Column("calls after", 11), Column("before (ms)", 12),
        Column("after (ms)", 12), Column("change (ms)", 12), Column("kernel before", 50),
        Column("kernel after", 50),
    ], [
        [o.operation, o.family, o.phase, o.status, o.calls_before, o.calls_after, o.before_ms,
         o.after_ms, o.change_ms, *(_kernel(k) for k in (o.kernels_before, o.kernels_after))]
        for o in doc.operations
    ], filter=True, freeze=True)  # fmt: skip
    _signed(sheet, area, 9, form="+#,##0.0000;-#,##0.0000;0")
    sheet.page(large=True)
    book.sheet("API calls", "CUDA API calls", "calls and milliseconds a step").table([
        Column("call", 34), Column("calls before", 13), Column("calls after", 13),
        Column("before (ms)", 13, "fixed"), Column("after (ms)", 13, "fixed"),
    ], [[c.call, c.calls_before, c.calls_after, c.before_ms, c.after_ms] for c in doc.calls],
        filter=True, freeze=True)  # fmt: skip
    _findings(book, doc)
    _promises(book, doc)
    _thresholds(book, doc.thresholds)


def _steps(sheet: Sheet, doc: Comparison) -> None:
    rows: list[list[Any]] = []
    for p in doc.phases:
        for name, change in (("typical (median)", p.typical), ("mean", p.mean)):
            rows.append([
                p.phase, name, _time(p.before, name), _time(p.after, name), *_span(change),
                p.before.steps if p.before else None, p.after.steps if p.after else None,
                p.resolution, p.verdict, p.why or None,
            ])  # fmt: skip
    note = "typical: the median ratio over all pairs of steps; intervals hold with 98 %"
    sheet.heading("Steps", note)
    area = sheet.table([
        Column("phase", 26), Column("step", 30), Column("before (ms)", 22, "fixed"),
        Column("after (ms)", 22, "fixed"), Column("change", 14), Column("from", 14),
        Column("to", 14), Column("steps before", 14), Column("steps after", 14),
        Column("slow-down that would have shown", 16, "ratio"), Column("verdict", 16),
        Column("why", 40, wrap=True),
    ], rows)  # fmt: skip
    _signed(sheet, area, 5, 6, 7)


def _time(times: StepTimes | None, name: str) -> float | None:
    if times is None:
        return None
    return times.mean_ms if name == "mean" else times.median_ms


def _span(change: Span | None) -> list[float | None]:
    return [None] * 3 if change is None else [change.mid, change.low, change.high]


def _kernel(names: Sequence[str]) -> str | None:
    return cut_middle(name_text(names[0]), LONG_NAME) if names else None


def _findings(book: _Book, doc: Comparison) -> None:
    rows = [
        [c.status, c.code, c.cause, c.scope.label() or None, c.severity_before, c.share_before,
         c.ms_before, c.severity_after, c.share_after, c.ms_after, c.note or None]
        for c in doc.changes
    ]  # fmt: skip
    note = "a finding is gone only where its rule could look again"
    book.sheet("Findings", note=note).table([
        Column("what", 11), Column("code", 10), Column("cause", 30), Column("scope", 20),
        Column("before", 10), Column("share", 10, "ratio"), Column("ms a step", 11, "fixed"),
        Column("after", 10), Column("share", 10, "ratio"), Column("ms a step", 11, "fixed"),
        Column("note", 40, wrap=True),
    ], rows, filter=True, freeze=True)  # fmt: skip


def _promises(book: _Book, doc: Comparison) -> None:
    """Numbers that recommendations told to watch, and predicted gains beside measured ones."""
    note = "did the number move as promised, and did the step get as fast?"
    sheet = book.sheet("Promises", "What was recommended before", note)
    sheet.table([
        Column("outcome", 18), Column("code", 10), Column("cause", 28), Column("advice", 26),
        Column("fact", 32), Column("promised", 12), Column("before", 13), Column("after", 13),
    ], [
        [c.outcome, c.code, c.cause, c.id, c.verify.fact, CHANGES[c.verify.expect],
         *(Number(v, fact_unit(c.verify.fact, c.unit)) for v in (c.before, c.after))]
        for c in doc.checks
    ])  # fmt: skip
    sheet.heading("Gains", "predicted against measured, milliseconds a step")
    rows: list[list[Any]] = []
    for g in doc.gains:
        after = g.predicted.step_after_ms
        if after is not None:
            rows.append([
                g.outcome, g.code, g.cause, g.predicted.what_if or None, None, None,
                Number(g.measured_before_ms, "fixed"), Number(g.measured_after_ms, "fixed"),
                Number(g.measured_speedup, "times"), after.low, after.mid, after.high,
            ])  # fmt: skip
    sheet.table([
        Column("outcome", 18), Column("code", 10), Column("cause", 28), Column("what-if", 26),
        Column("", 32), Column("", 12), Column("before", 13), Column("after", 13),
        Column("speed-up", 12), Column("predicted, low", 12, "fixed"),
        Column("middle", 12, "fixed"), Column("high", 12, "fixed"),
    ], rows)  # fmt: skip


# ---------------------------------------------------------------- the other documents


def _context(book: _Book, summary: Sheet, doc: ContextScaling) -> None:
    rows: list[list[Any]] = [
        [name, *(Number(v, unit) for v in (span.mid, span.low, span.high))]
        for name, span, unit in (
            ("growth of the step", doc.growth, "ratio"),
            ("growth (ms a step)", doc.growth_ms, "fixed"),
            ("TPOT growth (ms per 1,000 tokens)", doc.growth_per_1k_ms, ""),
        )
        if span is not None
    ]  # fmt: skip
    if rows:
        summary.table([Column("measure", 34), Column("value"), Column("from"), Column("to")], rows)
    _sides(summary, ("short", doc.short), ("long", doc.long))
    _advice(summary, doc.findings, doc.healthy)
    sheet = book.sheet("Operations", note="milliseconds a step at both contexts")
    area = sheet.table([
        Column("operation", 40), Column("family", 14), Column("", 12), Column("calls short", 11),
        Column("calls long", 11), Column("short (ms)", 12), Column("long (ms)", 12),
        Column("growth", 12), Column("of the step", 12),
    ], [
        [r.operation, r.family, "attention" if r.attention else "grows" if r.grows else None,
         r.calls_short, r.calls_long, r.short_ms, r.long_ms, r.growth, r.step_growth]
        for r in doc.operations
    ], filter=True, freeze=True)  # fmt: skip
    _signed(sheet, area, 8, 9)
    _budget(book, doc.budget, ("short", "long"))
    _comparability(book, doc.comparability)
    _thresholds(book, doc.thresholds)


def _frameworks(book: _Book, summary: Sheet, doc: FrameworkTable) -> None:
    summary.heading("What the differences mean")
    for text in doc.differences:
        summary.paragraph(text, _WIDE)
    summary.row += 1
    _sides(summary, *((c.name, c) for c in doc.columns))
    names = [Column(c.name, 22, wrap=True) for c in doc.columns]
    book.sheet("Engines", "Engines side by side", f"{doc.phase} steps").table(
        [Column("group", 13), Column("metric", 28), *names],
        [[m.group, m.name, *(_value(v, m.unit) for v in m.values)] for m in doc.metrics],
        freeze=True,
    )


def _value(value: Cell, unit: str) -> Any:
    """Times of kernels are short: nanoseconds, which the format turns into what fits."""
    if isinstance(value, str):
        return value
    if unit == "ms" and value is not None:
        return Number(float(value) * 1e6, "ns")
    return Number(value, unit)


def _router(book: _Book, summary: Sheet, doc: RouterExperiment) -> None:
    rows: list[list[Any]] = [
        ["gain of throughput", Number(doc.gain, "ratio")],
        ["98 % interval, from", Number(doc.gain_low, "ratio")],
        ["98 % interval, to", Number(doc.gain_high, "ratio")],
        ["certain", "yes" if doc.certain else "no: repeat both sides"],
    ]
    summary.table([Column("measure", 26), Column("value", 30)], rows)
    _advice(summary, doc.findings, doc.healthy)
    runs = [
        [side.name, source, value]
        for side in (doc.learned, doc.perfect)
        for source, value in zip(side.sources, side.values, strict=True)
    ]
    head = f"{doc.learned.metric} ({doc.learned.unit})"
    book.sheet("Runs").table([Column("router"), Column("run", 60), Column(head, 30)], runs)
    if doc.experts:
        book.sheet("Experts", "Expert kernels", "as the captures show them").table([
            Column("router"), Column("capture", 40), Column("share", 11, "ratio"),
            Column("max over p50", 11, "times"), Column("p99 over p50", 11, "times"),
            Column("largest over mean launch", 14, "times"), Column("kernel", 20),
            Column("note", 60, wrap=True),
        ], [
            [e.name, e.path, e.expert_share, e.max_over_p50, e.p99_over_p50, e.imbalance, e.kernel,
             e.note or None]
            for e in doc.experts
        ])  # fmt: skip
    _thresholds(book, doc.thresholds)


# ---------------------------------------------------------------- parts that several share


def _sides(summary: Sheet, *named: tuple[str, SideDoc]) -> None:
    rows: list[list[Any]] = [
        [name, i.path, *(known or UNKNOWN for known in (
            i.device, i.producer, i.driver, i.cuda, i.serving_engine)), i.steps, i.busy_share]
        for name, side in named for i in side.inputs
    ]  # fmt: skip
    summary.heading("Captures")
    summary.table([
        Column("side", 26), Column("capture", 30, wrap=True), Column("device", 22, wrap=True),
        Column("recorded by", 22, wrap=True), Column("driver", 14), Column("CUDA", 14),
        Column("serving engine", 14), Column("steps", 9), Column("GPU busy", 11, "ratio"),
    ], rows)  # fmt: skip


def _advice(summary: Sheet, findings: Sequence[Finding], healthy: Sequence[Healthy]) -> None:
    """What the rules of the comparison say, and recommend."""
    if findings or healthy:
        summary.heading("What the rules say")
    for f in findings:
        summary.paragraph(f"{f.code} {f.cause} ({f.severity}): {f.message}", _WIDE)
    for h in healthy:
        summary.paragraph(f"{h.code} {h.cause}: {h.text}", _WIDE)
    actions = dict.fromkeys(a.action for f in findings for a in f.recommendations)
    for action in actions:
        summary.paragraph(f"To do: {action}", _WIDE)
    summary.row += 1


def _comparability(book: _Book, doc: Comparability) -> None:
    sheet = book.sheet("Comparability", f"Comparability {doc.score:.0%}".replace("%", " %"),
                       "the product of the factors of the phase that compares best")  # fmt: skip
    sheet.table([
        Column("check", 16), Column("phase", 12), Column("state", 12), Column("factor", 10),
        Column("before", 34, wrap=True), Column("after", 34, wrap=True),
        Column("what differs", 50, wrap=True),
    ], [
        [r.check, r.phase, r.state, r.score, r.before, r.after, r.text or None]
        for r in doc.reasons
    ])  # fmt: skip


def _budget(book: _Book, parts: Sequence[PartChange], names: tuple[str, str]) -> None:
    sheet = book.sheet("Budget", note="milliseconds a step, mean over steps and devices")
    area = sheet.table([
        Column("phase", 12), Column("part", 28), Column(f"{names[0]} (ms)", 14, "fixed"),
        Column(f"{names[1]} (ms)", 14, "fixed"), Column("change (ms)", 14), Column("change", 12),
    ], [
        [p.phase or "all", words(p.part), p.before_ms, p.after_ms, p.change_ms,
         p.after_ms / p.before_ms - 1 if p.before_ms > 0 and p.after_ms > 0 else None]
        for p in parts
    ])  # fmt: skip
    if not parts:
        return
    _signed(sheet, area, 5, form="+#,##0.00;-#,##0.00;0")
    _signed(sheet, area, 6)
    whole = [i for i, p in enumerate(parts) if p.phase is None]
    sheet.row -= 1
    sheet.text(2, "sum of all", bold=True)
    first, last = area.first + whole[0], area.first + whole[-1]
    for column in (3, 4, 5):
        letter = get_column_letter(column)
        cell = sheet.ws.cell(sheet.row, column, f"=SUM({letter}{first}:{letter}{last})")
        cell.number_format = "+#,##0.00;-#,##0.00;0" if column == 5 else "#,##0.00"
        cell.font, cell.border, cell.alignment = font(bold=True), UNDER, align(right=True, indent=1)
    chart = BarChart()
    chart.type, chart.height, chart.width = "bar", max(6.0, 0.9 * len(whole)), 18.0
    chart.add_data(
        Reference(sheet.ws, min_col=3, max_col=4, min_row=area.head, max_row=last),
        titles_from_data=True,
    )
    chart.set_categories(Reference(sheet.ws, min_col=2, min_row=first, max_row=last))
    for series, colour in zip(chart.series, ("9AA7B3", "0072B2"), strict=True):
        series.graphicalProperties = GraphicalProperties(solidFill=colour)
    chart.y_axis.majorGridlines = None
    chart.x_axis.scaling.orientation = "maxMin"  # the first part on top
    chart.x_axis.delete = chart.y_axis.delete = False
    chart.legend.position = "t"
    sheet.ws.add_chart(chart, f"H{area.head}")
    sheet.row += 3


def _signed(sheet: Sheet, area: Area, *numbers: int, form: str = CHANGE) -> None:
    """Numbers of these columns carry their sign."""
    for row in range(area.first, area.last + 1):
        for column in numbers:
            sheet.ws.cell(row, column).number_format = form


def _thresholds(book: _Book, thresholds: Sequence[Threshold]) -> None:
    book.sheet("Thresholds", note="in force; change one with --param CODE.name=value").table([
        Column("parameter", 34), Column("value", 12), Column("default", 12), Column("origin", 12),
        Column("source", 40),
    ], [
        [f"{t.code}.{t.param}", Number(t.value, t.unit), Number(t.default, t.unit), t.origin,
         t.source]
        for t in thresholds
    ])  # fmt: skip
