"""The captures of a workbook by name; the evidence of each finding, all on one sheet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from advisor.model.findings import Diagnosis, Finding
from advisor.model.numbers import OPS, amount, fact_unit, first_few, value_text
from advisor.reports import phrases
from advisor.reports.blocks import Number
from advisor.reports.finding_text import cost_text, params_text
from advisor.reports.workbook.sheet import Area, Column, Link, Sheet, shown
from advisor.reports.workbook.style import LEFT, LEVELS, MUTED, align, fill, font

#: File suffixes that the names leave out.
_ENDINGS = (".xz", ".gz", ".sqlite", ".json", ".nsys-rep")


class Captures(Struct, frozen=True, dict=True):
    """The captures; tables name them if there are several."""

    diagnoses: tuple[Diagnosis, ...]

    @property
    def many(self) -> bool:
        return len(self.diagnoses) > 1

    def __iter__(self) -> Iterator[tuple[str, Diagnosis]]:
        return iter(zip(self.labels, self.diagnoses, strict=True))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """File names without suffixes; with their folder, or a number, if they are equal."""
        short = [_short(d) for d in self.diagnoses]
        if len(set(short)) < len(short):
            paths = (d.inputs[0].path if d.inputs else "" for d in self.diagnoses)
            folders = [p.replace("\\", "/").strip("/").rpartition("/")[0].rpartition("/")[2] for p in paths]
            short = [f"{folder}/{name}".lstrip("/") for folder, name in zip(folders, short, strict=True)]
        out: list[str] = []
        for name in short:
            number = 2
            while name in out:
                name, number = f"{name.rpartition(' #')[0] or name} #{number}", number + 1
            out.append(name)
        return tuple(out)

    def table(
        self,
        sheet: Sheet,
        fields: Sequence[Column],
        records: Callable[[Diagnosis], Iterable[Any]],
        **options: Any,
    ) -> Area:
        """A table of the records of every capture, with the capture in front if there are several."""
        rows = [
            [*([label] if self.many else []), *(f.of(record) for f in fields)]
            for label, diagnosis in self
            for record in records(diagnosis)
        ]
        front = [Column("Capture", 24, wrap=True)] if self.many else []
        return sheet.table([*front, *fields], rows, **options)


class Row(Struct, frozen=True):
    """A finding of a capture; `cells` and `advice`: where evidence and recommendations of each begin."""

    label: str
    diagnosis: Diagnosis
    finding: Finding
    cells: dict[str, str]
    advice: dict[tuple[str, str], str]

    @property
    def actions(self) -> Link | None:
        """The number of recommendations, as a link to them."""
        cell = self.advice.get((self.label, self.finding.identity))
        count = amount(len(self.finding.recommendations), "action")
        return Link(count, sheet="Recommendations", cell=cell) if cell else None

    @property
    def proof(self) -> Link:
        """The code, as a link to its evidence."""
        return Link(self.finding.code, sheet="Evidence", cell=self.cells[self.finding.code])

    @property
    def has_steps(self) -> bool:
        return bool(self.diagnosis.steps)

    @property
    def capture(self) -> str:
        return ", ".join(i.path for i in self.diagnosis.inputs)

    @property
    def fix(self) -> str | None:
        return next((advice.action for advice in self.finding.recommendations), None)


def _short(diagnosis: Diagnosis) -> str:
    names = [phrases.capture_name(i) for i in diagnosis.inputs] or ["capture"]
    for ending in _ENDINGS:
        names = [name.removesuffix(ending) for name in names]
    if len(names) == 1:
        return names[0]
    return f"{len(names)} ranks: {first_few(names, 3)}"


#: Tables of all kinds are stacked: three columns for texts, the rest for numbers.
TEXTS = (42.0, 22.0, 14.0)
NUMBERS = 12.0
#: Columns that a paragraph spans.
ACROSS = 6


def evidence(sheet: Sheet, rows: Sequence[Row], many: bool) -> dict[str, str]:
    """The findings below each other; returns the cell where each code begins."""
    most = max((len(t.columns) for r in rows for t in r.finding.evidence), default=6)
    for column, width in enumerate((*TEXTS, *[NUMBERS] * max(most, 6)), 1):
        sheet.widen(column, width)
    sheet.page(large=True, tall=True)
    cells: dict[str, str] = {}
    for row in sorted(rows, key=lambda r: [x.finding.code for x in rows].index(r.finding.code)):
        cells.setdefault(row.finding.code, f"A{sheet.row}")
        _finding(sheet, row, many)
    return cells


def _finding(sheet: Sheet, row: Row, many: bool) -> None:
    f = row.finding
    sheet.text(1, f"{f.rank}. {f.code} {f.title}", size=12, bold=True, down=1)
    ink, ground = LEVELS[f.severity]
    cell = sheet.ws.cell(sheet.row, 1, f.severity)
    cell.font, cell.fill = font(10.5, ink, bold=True), fill(ground)
    cell.alignment = align(indent=1)
    capture = f"{row.label}, " if many else ""
    where = phrases.scope(f) or "whole capture"
    sheet.text(2, f"{capture}{where}, confidence {value_text(f.confidence, 'ratio')}", color=MUTED, down=1)
    sheet.paragraph(f.message, ACROSS)
    sheet.row += 1
    conditions: list[list[Any]] = []
    for c in f.conditions:
        unit, holds = fact_unit(c.fact, c.unit), {None: "unknown", True: "yes", False: "no"}[c.holds]
        both = (", ".join(map(str, v)) if isinstance(v, tuple) else v for v in (c.value, c.threshold))
        value, limit = (Number(v, unit) for v in both)
        conditions.append([c.fact, c.param, holds, value, OPS.get(c.op, c.op), limit])
    note, heads = (
        "every inequality of the rule with both its numbers",
        "fact,parameter,holds,value,is,threshold",
    )
    _records(sheet, "Because", note, heads, conditions)
    if cost := cost_text(f, bool(row.diagnosis.steps)):
        sheet.text(1, f"Cost: {cost}", down=2)
    _gain(sheet, f)
    for table in f.evidence:
        if table.rows:
            sheet.heading(table.title)
            _lay(sheet, *shown(table))
    places: list[list[Any]] = []
    for p in f.time_ranges:
        names = (None if number is None else str(number) for number in (p.stream, p.thread))
        times = Number(p.start_ns / 1e9, "s"), Number(p.end_ns - p.start_ns, "ns")
        places.append([p.label or None, *names, *times])
    _records(sheet, "Where", phrases.clock(*row.diagnosis.inputs), "what,stream,thread,at,for", places)
    if f.explains:
        sheet.heading("Explains", "symptoms that this cause accounts for")
        for symptom in f.explains:
            sheet.text(1, f"{symptom.code} {symptom.cause}")
            sheet.text(2, symptom.message, down=1)
        sheet.row += 1
    references = [r for r in f.references if r.url]
    if references:
        sheet.heading("References")
    for reference in references:
        url = reference.url if (reference.url or "").startswith(("https://", "http://")) else None
        if url:
            sheet.link(sheet.row, 1, Link(reference.title or reference.id, url=url))
        else:
            sheet.text(1, reference.title or reference.id)
        sheet.row += 1
    sheet.row += 1


def _lay(sheet: Sheet, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
    """A table on the grid: its leading texts fill the first three columns."""
    cells = [[row[i] for row in rows] for i in range(len(columns))]
    leading = zip(columns, cells, TEXTS, strict=False)
    is_text = [c.unit in LEFT or all(isinstance(v, str | None) for v in own) for c, own, _ in leading]
    texts = [*is_text, False].index(False)
    spans = [1] * len(columns)
    longest = [max((len(str(v or "")) for v in own), default=0) for own in cells[:texts]]
    # The remaining room goes to the longest of them.
    spans[longest.index(max(longest)) if longest else 0] += len(TEXTS) - max(texts, 1)
    sheet.table(columns, rows, spans=spans)


def _records(sheet: Sheet, title: str, note: str, heads: str, rows: Sequence[Sequence[Any]]) -> None:
    """A table with its title, if it has rows."""
    if rows:
        sheet.heading(title, note)
        _lay(sheet, [Column(head) for head in heads.split(",")], rows)


def _gain(sheet: Sheet, finding: Finding) -> None:
    gain = finding.gain
    if gain is None:
        return
    if gain.speedup is None and gain.step_after_ms is None:
        if gain.reason:
            sheet.text(1, f"Gain: not estimated, {gain.reason}", color=MUTED, down=2)
        return
    tokens = gain.measure == "throughput"
    what, unit = ("tokens a second", "throughput") if tokens else (f"speed-up of a {gain.of}", "times")
    rows = [
        [name, *(Number(v, of) for v in (span.low, span.mid, span.high))]
        for name, span, of in (
            (f"untraced {gain.of} before", gain.step_before_ms, "ms"),
            (f"untraced {gain.of} after", gain.step_after_ms, "ms"),
            (what, gain.speedup, unit),
        )
        if span is not None
    ]
    note = f"what-if {gain.what_if}{params_text(gain.params)}" if gain.what_if else ""
    _records(sheet, "What a fix would win", note, "estimate,low,middle,high", rows)
    sheet.row -= 1
    for assumption in gain.assumptions:
        sheet.paragraph(f"assumes: {assumption}", ACROSS, color=MUTED)
    sheet.row += 1
