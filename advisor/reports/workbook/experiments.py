"""Workbooks of comparisons: the verdict first, then a sheet for each thing that was compared."""

from __future__ import annotations

from typing import Any

from openpyxl import Workbook

from advisor.model.comparison import Comparison, ContextScaling, FrameworkTable, RouterExperiment
from advisor.model.facts import Cell
from advisor.reports.workbook.changes import (
    WIDE,
    Book,
    add_advice,
    add_budget,
    add_comparability,
    add_comparison,
    add_sides,
    add_thresholds,
    signed,
    widen,
)
from advisor.reports.workbook.package import Names, package
from advisor.reports.workbook.sheet import Column, Number, Sheet
from advisor.reports.workbook.style import MUTED

Document = Comparison | ContextScaling | FrameworkTable | RouterExperiment


def render(document: Document, title: str) -> bytes:
    """The workbook as a file; the same document gives the same bytes."""
    book = Book(Workbook(), Names())
    first = book.book.active
    assert first is not None
    first.title = book.names.take("Summary")
    first.sheet_properties.tabColor = "1F3A57"
    summary = Sheet(first, title, back=False)
    widen(summary, 26, 30, 22, 22, 14, 14)
    summary.paragraph(document.summary, WIDE)
    summary.row += 1
    for note in document.notes:
        summary.paragraph(note, WIDE, color=MUTED)
    summary.row += 1
    if isinstance(document, Comparison):
        add_comparison(book, summary, document)
    elif isinstance(document, ContextScaling):
        _context(book, summary, document)
    elif isinstance(document, FrameworkTable):
        _frameworks(book, summary, document)
    else:
        _router(book, summary, document)
    return package(book.book)


def _context(book: Book, summary: Sheet, doc: ContextScaling) -> None:
    rows: list[list[Any]] = [
        [name, *(Number(v, unit) for v in (span.mid, span.low, span.high))]
        for name, span, unit in (
            ("growth of the step", doc.growth, "ratio"),
            ("growth (ms a step)", doc.growth_ms, "fixed"),
            ("TPOT growth (ms per 1,000 tokens)", doc.growth_per_1k_ms, ""),
        )
        if span is not None
    ]
    if rows:
        summary.table([Column("measure", 34), Column("value"), Column("from"), Column("to")], rows)
    add_sides(summary, ("short", doc.short), ("long", doc.long))
    add_advice(summary, doc.findings, doc.healthy)
    sheet = book.sheet("Operations", note="milliseconds a step at both contexts")
    area = sheet.table(
        [
            Column("operation", 40),
            Column("family", 14),
            Column("", 12),
            Column("calls short", 11),
            Column("calls long", 11),
            Column("short (ms)", 12),
            Column("long (ms)", 12),
            Column("growth", 12),
            Column("of the step", 12),
        ],
        [
            [
                r.operation,
                r.family,
                "attention" if r.attention else "grows" if r.grows else None,
                r.calls_short,
                r.calls_long,
                r.short_ms,
                r.long_ms,
                r.growth,
                r.step_growth,
            ]
            for r in doc.operations
        ],
        filter=True,
        freeze=True,
    )
    signed(sheet, area, 8, 9)
    add_budget(book, doc.budget, ("short", "long"))
    add_comparability(book, doc.comparability)
    add_thresholds(book, doc.thresholds)


def _frameworks(book: Book, summary: Sheet, doc: FrameworkTable) -> None:
    summary.heading("What the differences mean")
    for text in doc.differences:
        summary.paragraph(text, WIDE)
    summary.row += 1
    add_sides(summary, *((c.name, c) for c in doc.columns))
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


def _router(book: Book, summary: Sheet, doc: RouterExperiment) -> None:
    rows: list[list[Any]] = [
        ["gain of throughput", Number(doc.gain, "ratio")],
        ["98 % interval, from", Number(doc.gain_low, "ratio")],
        ["98 % interval, to", Number(doc.gain_high, "ratio")],
        ["certain", "yes" if doc.certain else "no: repeat both sides"],
    ]
    summary.table([Column("measure", 26), Column("value", 30)], rows)
    add_advice(summary, doc.findings, doc.healthy)
    runs = [
        [side.name, source, value]
        for side in (doc.learned, doc.perfect)
        for source, value in zip(side.sources, side.values, strict=True)
    ]
    head = f"{doc.learned.metric} ({doc.learned.unit})"
    book.sheet("Runs").table([Column("router"), Column("run", 60), Column(head, 30)], runs)
    if doc.experts:
        book.sheet("Experts", "Expert kernels", "as the captures show them").table(
            [
                Column("router"),
                Column("capture", 40),
                Column("share", 11, "ratio"),
                Column("max over p50", 11, "times"),
                Column("p99 over p50", 11, "times"),
                Column("largest over mean launch", 14, "times"),
                Column("kernel", 20),
                Column("note", 60, wrap=True),
            ],
            [
                [
                    e.name,
                    e.path,
                    e.expert_share,
                    e.max_over_p50,
                    e.p99_over_p50,
                    e.imbalance,
                    e.kernel,
                    e.note or None,
                ]
                for e in doc.experts
            ],
        )
    add_thresholds(book, doc.thresholds)


# ---------------------------------------------------------------- parts that several share
