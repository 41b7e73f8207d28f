"""Workbooks of comparisons: the verdict first, then a declared table for each thing compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openpyxl import Workbook
from openpyxl.chart import BarChart, Reference
from openpyxl.chart.shapes import GraphicalProperties
from openpyxl.utils import get_column_letter

from advisor.model import comparison as m
from advisor.model.facts import Cell
from advisor.model.findings import Finding, Healthy, Threshold
from advisor.model.kernel_labels import kernel_label
from advisor.model.numbers import CHANGES, fact_unit, value_text
from advisor.reports.blocks import Number
from advisor.reports.budget_bar import words
from advisor.reports.experiment_blocks import KINDS, Document
from advisor.reports.layout import cut_middle
from advisor.reports.phrases import UNKNOWN
from advisor.reports.workbook.sheet import LONG_NAME, Area, Column, Sheet
from advisor.reports.workbook.style import MUTED, UNDER, align, font, package

#: A relative change: an unchanged value is an equals sign. And a change in milliseconds.
CHANGE, CHANGE_MS = '+0.0%;-0.0%;"="', "+#,##0.00;-#,##0.00;0"
FINE_MS = "+#,##0.0000;-#,##0.0000;0"
WIDE = 6
_ALL: dict[str, Any] = {"filter": True, "freeze": True}


def _kernel(names: Sequence[str]) -> str | None:
    return cut_middle(kernel_label(names[0]), LONG_NAME) if names else None


def _fact(check: Any, value: Cell) -> Number:
    return Number(value, fact_unit(check.verify.fact, check.unit))


def _number(value: float | None, unit: str) -> Number | None:
    return None if value is None else Number(value, unit)


def _known(name: str) -> Any:
    return lambda side: getattr(side[1], name) or UNKNOWN


#: A phase, the compared value of its steps (median or mean), and its change.
PHASES = (
    Column("phase", 26, lambda r: r[0].phase),
    Column("step", 30, lambda r: r[1]),
    Column("before (ms)", 22, lambda r: r[0].before and getattr(r[0].before, r[2]), "fixed"),
    Column("after (ms)", 22, lambda r: r[0].after and getattr(r[0].after, r[2]), "fixed"),
    Column("change", 14, lambda r: r[3] and r[3].mid),
    Column("from", 14, lambda r: r[3] and r[3].low),
    Column("to", 14, lambda r: r[3] and r[3].high),
    Column("steps before", 14, lambda r: r[0].before and r[0].before.steps),
    Column("steps after", 14, lambda r: r[0].after and r[0].after.steps),
    Column("smallest visible change", 16, lambda r: r[0].resolution, "ratio"),
    Column("verdict", 16, lambda r: r[0].verdict),
    Column("why", 40, lambda r: r[0].why, wrap=True),
)
SIDES = (
    Column("side", 26, lambda s: s[0]),
    Column("capture", 30, lambda s: s[1].path, wrap=True),
    Column("device", 22, _known("device"), wrap=True),
    Column("recorded by", 22, _known("producer"), wrap=True),
    Column("driver", 14, _known("driver")),
    Column("CUDA", 14, _known("cuda")),
    Column("serving engine", 14, _known("serving_engine")),
    Column("steps", 9, lambda s: s[1].steps),
    Column("GPU busy", 11, lambda s: s[1].busy_share, "ratio"),
)
#: Of recordings without steps.
VALUES = (
    Column("value", 26, "what"),
    Column("before", 30, lambda v: _number(v.before, v.unit)),
    Column("after", 22, lambda v: _number(v.after, v.unit)),
    Column("change", 22, "change"),
    Column("better", 14, "better"),
)
OPERATIONS = (
    Column("operation", 40, "operation"),
    Column("family", 14, "family"),
    Column("phase", 12, "phase"),
    Column("what", 15, "status"),
    Column("calls before", 11, "calls_before"),
    Column("calls after", 11, "calls_after"),
    Column("before (ms)", 12, "before_ms"),
    Column("after (ms)", 12, "after_ms"),
    Column("change (ms)", 12, "change_ms"),
    Column("kernel before", 50, lambda o: _kernel(o.kernels_before)),
    Column("kernel after", 50, lambda o: _kernel(o.kernels_after)),
)
CALLS = (
    Column("call", 34, "call"),
    Column("calls before", 13, "calls_before"),
    Column("calls after", 13, "calls_after"),
    Column("before (ms)", 13, "before_ms", "fixed"),
    Column("after (ms)", 13, "after_ms", "fixed"),
)
FINDINGS = (
    Column("what", 11, "status"),
    Column("code", 10, "code"),
    Column("cause", 30, "cause"),
    Column("scope", 20, lambda c: c.scope.label() or None),
    Column("before", 10, "severity_before"),
    Column("share", 10, "share_before", "ratio"),
    Column("ms a step", 11, "ms_before", "fixed"),
    Column("after", 10, "severity_after"),
    Column("share", 10, "share_after", "ratio"),
    Column("ms a step", 11, "ms_after", "fixed"),
    Column("note", 40, "note", wrap=True),
)
PROMISES = (
    Column("outcome", 18, "outcome"),
    Column("code", 10, "code"),
    Column("cause", 28, "cause"),
    Column("advice", 26, "id"),
    Column("fact", 32, "verify.fact"),
    Column("promised", 12, lambda c: CHANGES[c.verify.expect]),
    Column("before", 13, lambda c: _fact(c, c.before)),
    Column("after", 13, lambda c: _fact(c, c.after)),
)
GAINS = (
    Column("outcome", 18, "outcome"),
    Column("code", 10, "code"),
    Column("cause", 28, "cause"),
    Column("what-if", 26, "predicted.what_if"),
    Column("", 32, lambda _: None),
    Column("", 12, lambda _: None),
    Column("before", 13, "measured_before_ms", "fixed"),
    Column("after", 13, "measured_after_ms", "fixed"),
    Column("speed-up", 12, "measured_speedup", "times"),
    Column("predicted, low", 12, "predicted.step_after_ms.low", "fixed"),
    Column("middle", 12, "predicted.step_after_ms.mid", "fixed"),
    Column("high", 12, "predicted.step_after_ms.high", "fixed"),
)
SCALING = (
    Column("operation", 40, "operation"),
    Column("family", 14, "family"),
    Column("", 12, lambda r: "grows" if r.grows else "attention" if r.attention else None),
    Column("calls short", 11, "calls_short"),
    Column("calls long", 11, "calls_long"),
    Column("short (ms)", 12, "short_ms"),
    Column("long (ms)", 12, "long_ms"),
    Column("growth", 12, "growth"),
    Column("of the step", 12, "step_growth"),
)
REASONS = (
    Column("check", 16, "check"),
    Column("phase", 12, "phase"),
    Column("state", 12, "state"),
    Column("factor", 10, "score"),
    Column("before", 34, "before", wrap=True),
    Column("after", 34, "after", wrap=True),
    Column("what differs", 50, "text", wrap=True),
)
EXPERTS = (
    Column("router", 14, "name"),
    Column("capture", 40, "path"),
    Column("share", 11, "expert_share", "ratio"),
    Column("max over p50", 11, "max_over_p50", "times"),
    Column("p99 over p50", 11, "p99_over_p50", "times"),
    Column("largest over mean launch", 14, "imbalance", "times"),
    Column("kernel", 20, "kernel"),
    Column("note", 60, "note", wrap=True),
)
THRESHOLDS = (
    Column("parameter", 34, lambda t: f"{t.code}.{t.param}"),
    Column("value", 12, lambda t: Number(t.value, t.unit)),
    Column("default", 12, lambda t: Number(t.default, t.unit)),
    Column("origin", 12, "origin"),
    Column("source", 40, lambda t: t.title or t.source),
)


def render(document: Document) -> bytes:
    """The workbook as a file; the same document gives the same bytes."""
    book = Workbook()
    first = book.active
    assert first is not None
    first.title = "Summary"
    first.sheet_properties.tabColor = "1F3A57"
    summary = Sheet(first, KINDS[document.kind][0], back=False)
    for column, width in enumerate((26, 30, 22, 22, 14, 14), 1):
        summary.widen(column, width)
    summary.paragraph(document.summary, WIDE)
    summary.row += 1
    for note in document.notes:
        summary.paragraph(note, WIDE, color=MUTED)
    summary.row += 1
    fill: dict[str, Callable[[Workbook, Sheet, Any], None]] = {
        "comparison": _comparison,
        "context-scaling": _context,
        "frameworks": _frameworks,
        "moe-router": _router,
    }
    fill[document.kind](book, summary, document)
    return package(book)


def _sheet(book: Workbook, name: str, title: str = "", note: str = "") -> Sheet:
    return Sheet(book.create_sheet(name), title or name, note)


def _comparison(book: Workbook, summary: Sheet, doc: m.Comparison) -> None:
    if doc.values:
        summary.heading("Values", "what both sides hold")
        _signed(summary.records(VALUES, doc.values), "change")
        _sides(summary, ("before", doc.before), ("after", doc.after))
        note = "a finding is gone only where its rule could be judged again"
        _sheet(book, "Findings", note=note).records(FINDINGS, doc.changes, **_ALL)
        return
    rows = []
    for p in doc.phases:
        rows += [(p, "typical (median)", "median_ms", p.typical), (p, "mean", "mean_ms", p.mean)]
    summary.heading("Steps", "typical: the median ratio over all pairs of steps; intervals hold with 98 %")
    _signed(summary.records(PHASES, rows), "change", "from", "to")
    _sides(summary, ("before", doc.before), ("after", doc.after))
    _advice(summary, doc.findings, doc.healthy, [c.action for c in doc.contributions if c.action])
    _comparability(book, doc.comparability)
    _budget(book, doc.budget, ("before", "after"))
    sheet = _sheet(book, "Operations", note="kernels matched by what they do; calls and milliseconds a step")
    _signed(sheet.records(OPERATIONS, doc.operations, **_ALL), "change (ms)", form=FINE_MS)
    sheet.page(large=True)
    sheet = _sheet(book, "API calls", "CUDA API calls", "calls and milliseconds a step")
    sheet.records(CALLS, doc.calls, **_ALL)
    note = "a finding is gone only where its rule could be judged again"
    _sheet(book, "Findings", note=note).records(FINDINGS, doc.changes, **_ALL)
    note = "did the number move as promised, and did the step get as fast?"
    sheet = _sheet(book, "Promises", "What was recommended before", note)
    sheet.records(PROMISES, doc.checks)
    sheet.heading("Gains", "predicted against measured, milliseconds a step")
    sheet.records(GAINS, [g for g in doc.gains if g.predicted.step_after_ms is not None])
    _thresholds(book, doc.thresholds)


def _context(book: Workbook, summary: Sheet, doc: m.ContextScaling) -> None:
    rows = []
    for name, span, unit in (
        ("growth of the step", doc.growth, "ratio"),
        ("growth (ms a step)", doc.growth_ms, "fixed"),
        ("TPOT growth (ms per 1,000 tokens)", doc.growth_per_1k_ms, ""),
    ):
        if span is not None:
            rows.append([name, *(Number(v, unit) for v in (span.mid, span.low, span.high))])
    if rows:
        summary.table([Column("measure", 34), Column("value"), Column("from"), Column("to")], rows)
    _sides(summary, ("short", doc.short), ("long", doc.long))
    _advice(summary, doc.findings, doc.healthy)
    sheet = _sheet(book, "Operations", note="milliseconds a step at both contexts")
    _signed(sheet.records(SCALING, doc.operations, **_ALL), "growth", "of the step")
    _budget(book, doc.budget, ("short", "long"))
    _comparability(book, doc.comparability)
    _thresholds(book, doc.thresholds)


def _frameworks(book: Workbook, summary: Sheet, doc: m.FrameworkTable) -> None:
    summary.heading("What the differences mean")
    for text in doc.differences:
        summary.paragraph(text, WIDE)
    summary.row += 1
    _sides(summary, *((c.name, c) for c in doc.columns))
    names = [Column(c.name, 22, wrap=True) for c in doc.columns]
    _sheet(book, "Engines", "Engines side by side", f"{doc.phase} steps").table(
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


def _router(book: Workbook, summary: Sheet, doc: m.RouterExperiment) -> None:
    rows = (
        ("gain of throughput", Number(doc.gain, "ratio")),
        ("98 % interval, from", Number(doc.gain_low, "ratio")),
        ("98 % interval, to", Number(doc.gain_high, "ratio")),
        ("certain", "yes" if doc.certain else "no: repeat both sides"),
    )
    summary.table([Column("measure", 26), Column("value", 30)], rows)
    _advice(summary, doc.findings, doc.healthy)
    runs = [
        [side.name, source, value]
        for side in (doc.learned, doc.perfect)
        for source, value in zip(side.sources, side.values, strict=True)
    ]
    head = f"{doc.learned.metric} ({doc.learned.unit})"
    _sheet(book, "Runs").table([Column("router"), Column("run", 60), Column(head, 30)], runs)
    if doc.experts:
        _sheet(book, "Experts", "Expert kernels", "as the captures show them").records(EXPERTS, doc.experts)
    _thresholds(book, doc.thresholds)


def _sides(summary: Sheet, *named: tuple[str, m.SideDoc]) -> None:
    summary.heading("Captures")
    summary.records(SIDES, [(name, i) for name, side in named for i in side.inputs])


def _advice(
    summary: Sheet, findings: Sequence[Finding], healthy: Sequence[Healthy], first: Sequence[str] = ()
) -> None:
    """Messages and recommendations of the comparison's rules; `first` precedes them."""
    if findings or healthy:
        summary.heading("Findings of the comparison")
    for f in findings:
        summary.paragraph(f"{f.code} {f.cause} ({f.severity}): {f.message}", WIDE)
    for h in healthy:
        summary.paragraph(f"{h.code} {h.cause}: {h.text}", WIDE)
    for action in dict.fromkeys((*first, *(a.action for f in findings for a in f.recommendations))):
        summary.paragraph(f"To do: {action}", WIDE)
    summary.row += 1


def _comparability(book: Workbook, doc: m.Comparability) -> None:
    note = "the product of the factors of the phase that compares best"
    sheet = _sheet(book, "Comparability", f"Comparability {value_text(doc.score, 'ratio')}", note)
    sheet.records(REASONS, doc.reasons)


def _ratio(before: float, after: float) -> float | None:
    return after / before - 1 if min(before, after) > 0 else None


def _budget(book: Workbook, parts: Sequence[m.PartChange], names: tuple[str, str]) -> None:
    sheet = _sheet(book, "Budget", note="milliseconds a step, mean over steps and devices")
    columns = (
        Column("phase", 12, lambda p: p.phase or "all"),
        Column("part", 28, lambda p: words(p.part)),
        Column(f"{names[0]} (ms)", 14, "before_ms", "fixed"),
        Column(f"{names[1]} (ms)", 14, "after_ms", "fixed"),
        Column("change (ms)", 14, "change_ms"),
        Column("change", 12, lambda p: _ratio(p.before_ms, p.after_ms)),
    )
    area = sheet.records(columns, parts)
    if not parts:
        return
    _signed(area, "change (ms)", form=CHANGE_MS)
    _signed(area, "change")
    whole = [i for i, p in enumerate(parts) if p.phase is None]
    sheet.row -= 1
    sheet.text(2, "sum of all", bold=True)
    first, last = area.first + whole[0], area.first + whole[-1]
    for column in (3, 4, 5):
        letter = get_column_letter(column)
        cell = sheet.ws.cell(sheet.row, column, f"=SUM({letter}{first}:{letter}{last})")
        cell.number_format = CHANGE_MS if column == 5 else "#,##0.00"
        cell.font, cell.border, cell.alignment = font(bold=True), UNDER, align(right=True, indent=1)
    chart = BarChart()
    chart.type, chart.height, chart.width = "bar", max(6.0, 0.9 * len(whole)), 18.0
    values = Reference(sheet.ws, min_col=3, max_col=4, min_row=area.head, max_row=last)
    chart.add_data(values, titles_from_data=True)
    chart.set_categories(Reference(sheet.ws, min_col=2, min_row=first, max_row=last))
    for series, colour in zip(chart.series, ("9AA7B3", "0072B2"), strict=True):
        series.graphicalProperties = GraphicalProperties(solidFill=colour)
    chart.y_axis.majorGridlines = None
    chart.x_axis.scaling.orientation = "maxMin"  # the first part on top
    chart.x_axis.delete = chart.y_axis.delete = False
    chart.legend.position = "t"
    sheet.ws.add_chart(chart, f"H{area.head}")
    sheet.row += 3


def _signed(area: Area, *heads: str, form: str = CHANGE) -> None:
    """Numbers of these columns carry their sign."""
    for row in range(area.first, area.last + 1):
        for head in heads:
            area.cell(row, head).number_format = form


def _thresholds(book: Workbook, thresholds: Sequence[Threshold]) -> None:
    sheet = _sheet(book, "Thresholds", note="in force; change one with --param CODE.name=value")
    sheet.records(THRESHOLDS, thresholds)
