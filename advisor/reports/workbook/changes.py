"""Sheets of a comparison of two sides, and what the sheets of experiments share with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openpyxl import Workbook
from openpyxl.chart import BarChart, Reference
from openpyxl.chart.shapes import GraphicalProperties
from openpyxl.utils import get_column_letter

from advisor.model.comparison import Comparability, Comparison, PartChange, SideDoc, StepTimes
from advisor.model.findings import Finding, Healthy, Span, Threshold
from advisor.reports.budget_bar import words
from advisor.reports.layout import cut_middle, name_text
from advisor.reports.numbers import CHANGES, fact_unit
from advisor.reports.phrases import UNKNOWN
from advisor.reports.workbook.package import Names
from advisor.reports.workbook.sheet import LONG_NAME, Area, Column, Number, Sheet
from advisor.reports.workbook.style import UNDER, align, font

#: A relative change: what has not moved is an equals sign.
CHANGE = '+0.0%;-0.0%;"="'
WIDE = 6


@dataclass
class Book:
    """The workbook and the names of its sheets."""

    book: Workbook
    names: Names

    def sheet(self, name: str, title: str = "", note: str = "") -> Sheet:
        made = self.book.create_sheet(self.names.take(name))
        return Sheet(made, title or name, note)


def widen(sheet: Sheet, *widths: float) -> None:
    for column, width in enumerate(widths, 1):
        sheet.widen(column, width)


# ---------------------------------------------------------------- before and after


def add_comparison(book: Book, summary: Sheet, doc: Comparison) -> None:
    _steps(summary, doc)
    add_sides(summary, ("before", doc.before), ("after", doc.after))
    add_advice(summary, doc.findings, doc.healthy)
    add_comparability(book, doc.comparability)
    add_budget(book, doc.budget, ("before", "after"))
    sheet = book.sheet("Operations", note="kernels matched by what they do; calls and milliseconds a step")
    area = sheet.table(
        [
            Column("operation", 40),
            Column("family", 14),
            Column("phase", 12),
            Column("what", 15),
            Column("calls before", 11),
            Column("calls after", 11),
            Column("before (ms)", 12),
            Column("after (ms)", 12),
            Column("change (ms)", 12),
            Column("kernel before", 50),
            Column("kernel after", 50),
        ],
        [
            [
                o.operation,
                o.family,
                o.phase,
                o.status,
                o.calls_before,
                o.calls_after,
                o.before_ms,
                o.after_ms,
                o.change_ms,
                *(_kernel(k) for k in (o.kernels_before, o.kernels_after)),
            ]
            for o in doc.operations
        ],
        filter=True,
        freeze=True,
    )
    signed(sheet, area, 9, form="+#,##0.0000;-#,##0.0000;0")
    sheet.page(large=True)
    book.sheet("API calls", "CUDA API calls", "calls and milliseconds a step").table(
        [
            Column("call", 34),
            Column("calls before", 13),
            Column("calls after", 13),
            Column("before (ms)", 13, "fixed"),
            Column("after (ms)", 13, "fixed"),
        ],
        [[c.call, c.calls_before, c.calls_after, c.before_ms, c.after_ms] for c in doc.calls],
        filter=True,
        freeze=True,
    )
    _findings(book, doc)
    _promises(book, doc)
    add_thresholds(book, doc.thresholds)


def _steps(sheet: Sheet, doc: Comparison) -> None:
    rows: list[list[Any]] = []
    for p in doc.phases:
        for name, change in (("typical (median)", p.typical), ("mean", p.mean)):
            rows.append(
                [
                    p.phase,
                    name,
                    _time(p.before, name),
                    _time(p.after, name),
                    *_span(change),
                    p.before.steps if p.before else None,
                    p.after.steps if p.after else None,
                    p.resolution,
                    p.verdict,
                    p.why or None,
                ]
            )
    note = "typical: the median ratio over all pairs of steps; intervals hold with 98 %"
    sheet.heading("Steps", note)
    area = sheet.table(
        [
            Column("phase", 26),
            Column("step", 30),
            Column("before (ms)", 22, "fixed"),
            Column("after (ms)", 22, "fixed"),
            Column("change", 14),
            Column("from", 14),
            Column("to", 14),
            Column("steps before", 14),
            Column("steps after", 14),
            Column("slow-down that would have shown", 16, "ratio"),
            Column("verdict", 16),
            Column("why", 40, wrap=True),
        ],
        rows,
    )
    signed(sheet, area, 5, 6, 7)


def _time(times: StepTimes | None, name: str) -> float | None:
    if times is None:
        return None
    return times.mean_ms if name == "mean" else times.median_ms


def _span(change: Span | None) -> list[float | None]:
    return [None] * 3 if change is None else [change.mid, change.low, change.high]


def _kernel(names: Sequence[str]) -> str | None:
    return cut_middle(name_text(names[0]), LONG_NAME) if names else None


def _findings(book: Book, doc: Comparison) -> None:
    rows = [
        [
            c.status,
            c.code,
            c.cause,
            c.scope.label() or None,
            c.severity_before,
            c.share_before,
            c.ms_before,
            c.severity_after,
            c.share_after,
            c.ms_after,
            c.note or None,
        ]
        for c in doc.changes
    ]
    note = "a finding is gone only where its rule could look again"
    book.sheet("Findings", note=note).table(
        [
            Column("what", 11),
            Column("code", 10),
            Column("cause", 30),
            Column("scope", 20),
            Column("before", 10),
            Column("share", 10, "ratio"),
            Column("ms a step", 11, "fixed"),
            Column("after", 10),
            Column("share", 10, "ratio"),
            Column("ms a step", 11, "fixed"),
            Column("note", 40, wrap=True),
        ],
        rows,
        filter=True,
        freeze=True,
    )


def _promises(book: Book, doc: Comparison) -> None:
    """Numbers that recommendations told to watch, and predicted gains beside measured ones."""
    note = "did the number move as promised, and did the step get as fast?"
    sheet = book.sheet("Promises", "What was recommended before", note)
    sheet.table(
        [
            Column("outcome", 18),
            Column("code", 10),
            Column("cause", 28),
            Column("advice", 26),
            Column("fact", 32),
            Column("promised", 12),
            Column("before", 13),
            Column("after", 13),
        ],
        [
            [
                c.outcome,
                c.code,
                c.cause,
                c.id,
                c.verify.fact,
                CHANGES[c.verify.expect],
                *(Number(v, fact_unit(c.verify.fact, c.unit)) for v in (c.before, c.after)),
            ]
            for c in doc.checks
        ],
    )
    sheet.heading("Gains", "predicted against measured, milliseconds a step")
    rows: list[list[Any]] = []
    for g in doc.gains:
        after = g.predicted.step_after_ms
        if after is not None:
            rows.append(
                [
                    g.outcome,
                    g.code,
                    g.cause,
                    g.predicted.what_if or None,
                    None,
                    None,
                    Number(g.measured_before_ms, "fixed"),
                    Number(g.measured_after_ms, "fixed"),
                    Number(g.measured_speedup, "times"),
                    after.low,
                    after.mid,
                    after.high,
                ]
            )
    sheet.table(
        [
            Column("outcome", 18),
            Column("code", 10),
            Column("cause", 28),
            Column("what-if", 26),
            Column("", 32),
            Column("", 12),
            Column("before", 13),
            Column("after", 13),
            Column("speed-up", 12),
            Column("predicted, low", 12, "fixed"),
            Column("middle", 12, "fixed"),
            Column("high", 12, "fixed"),
        ],
        rows,
    )


# ---------------------------------------------------------------- the other documents


def add_sides(summary: Sheet, *named: tuple[str, SideDoc]) -> None:
    rows: list[list[Any]] = [
        [
            name,
            i.path,
            *(known or UNKNOWN for known in (i.device, i.producer, i.driver, i.cuda, i.serving_engine)),
            i.steps,
            i.busy_share,
        ]
        for name, side in named
        for i in side.inputs
    ]
    summary.heading("Captures")
    summary.table(
        [
            Column("side", 26),
            Column("capture", 30, wrap=True),
            Column("device", 22, wrap=True),
            Column("recorded by", 22, wrap=True),
            *_columns(("driver", 14), ("CUDA", 14), ("serving engine", 14), ("steps", 9)),
            Column("GPU busy", 11, "ratio"),
        ],
        rows,
    )


def add_advice(summary: Sheet, findings: Sequence[Finding], healthy: Sequence[Healthy]) -> None:
    """What the rules of the comparison say, and recommend."""
    if findings or healthy:
        summary.heading("What the rules say")
    for f in findings:
        summary.paragraph(f"{f.code} {f.cause} ({f.severity}): {f.message}", WIDE)
    for h in healthy:
        summary.paragraph(f"{h.code} {h.cause}: {h.text}", WIDE)
    actions = dict.fromkeys(a.action for f in findings for a in f.recommendations)
    for action in actions:
        summary.paragraph(f"To do: {action}", WIDE)
    summary.row += 1


def add_comparability(book: Book, doc: Comparability) -> None:
    sheet = book.sheet(
        "Comparability",
        f"Comparability {doc.score:.0%}".replace("%", " %"),
        "the product of the factors of the phase that compares best",
    )
    sheet.table(
        [
            *_columns(("check", 16), ("phase", 12), ("state", 12), ("factor", 10)),
            Column("before", 34, wrap=True),
            Column("after", 34, wrap=True),
            Column("what differs", 50, wrap=True),
        ],
        [[r.check, r.phase, r.state, r.score, r.before, r.after, r.text or None] for r in doc.reasons],
    )


def add_budget(book: Book, parts: Sequence[PartChange], names: tuple[str, str]) -> None:
    sheet = book.sheet("Budget", note="milliseconds a step, mean over steps and devices")
    area = sheet.table(
        [
            Column("phase", 12),
            Column("part", 28),
            Column(f"{names[0]} (ms)", 14, "fixed"),
            Column(f"{names[1]} (ms)", 14, "fixed"),
            Column("change (ms)", 14),
            Column("change", 12),
        ],
        [
            [
                p.phase or "all",
                words(p.part),
                p.before_ms,
                p.after_ms,
                p.change_ms,
                p.after_ms / p.before_ms - 1 if p.before_ms > 0 and p.after_ms > 0 else None,
            ]
            for p in parts
        ],
    )
    if not parts:
        return
    signed(sheet, area, 5, form="+#,##0.00;-#,##0.00;0")
    signed(sheet, area, 6)
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
        Reference(sheet.ws, min_col=3, max_col=4, min_row=area.head, max_row=last), titles_from_data=True
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


def signed(sheet: Sheet, area: Area, *numbers: int, form: str = CHANGE) -> None:
    """Numbers of these columns carry their sign."""
    for row in range(area.first, area.last + 1):
        for column in numbers:
            sheet.ws.cell(row, column).number_format = form


def add_thresholds(book: Book, thresholds: Sequence[Threshold]) -> None:
    book.sheet("Thresholds", note="in force; change one with --param CODE.name=value").table(
        _columns(("parameter", 34), ("value", 12), ("default", 12), ("origin", 12), ("source", 40)),
        [
            [f"{t.code}.{t.param}", Number(t.value, t.unit), Number(t.default, t.unit), t.origin, t.source]
            for t in thresholds
        ],
    )


def _columns(*named: tuple[str, float]) -> list[Column]:
    """Columns of a table from their headers and widths."""
    return [Column(name, width) for name, width in named]
