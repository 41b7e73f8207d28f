"""Sheets that are tables: kernels, steps, facts, thresholds, what could not be judged, about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from openpyxl.formatting.rule import FormulaRule

from advisor.model.facts import Scope, Table
from advisor.model.findings import UNREADABLE, ConditionDoc, Diagnosis, Healthy, Input, Threshold
from advisor.reports import phrases
from advisor.reports.budget_bar import words
from advisor.reports.layout import clean
from advisor.reports.numbers import condition_text, fact_unit
from advisor.reports.wording import remedy_text
from advisor.reports.workbook.captures import Captures
from advisor.reports.workbook.findings import bars
from advisor.reports.workbook.sheet import Column, Number, Sheet, column_of
from advisor.reports.workbook.style import LEVELS, MUTED, fill

#: Tables that have a sheet of their own.
OWN = ("kernels", "steps")


def stacked(captures: Captures, key: str) -> Table | None:
    """The same table of all captures, one below the other, with the capture in front."""
    found = [(label, d.tables[key]) for label, d in captures if key in d.tables and d.tables[key].rows]
    if not found:
        return None
    if not captures.many:
        return found[0][1]
    columns = found[0][1].columns
    rows = [(label, *row) for label, t in found if t.columns == columns for row in t.rows]
    return Table(title=found[0][1].title, columns=("capture", *columns), rows=tuple(rows))


def kernels(sheet: Sheet, captures: Captures) -> None:
    """Kernels by time, with a filter; what to measure next below."""
    table = stacked(captures, "kernels")
    if table is None:
        sheet.text(1, "No kernel was recorded.", color=MUTED, italic=True)
        sheet.row += 2
    else:
        area = sheet.evidence(table, filter=True, freeze=True)
        heads = [column_of(h, ()).head for h in table.columns]
        if "share" in heads:
            bars(sheet, area.column(heads.index("share") + 1))
    for _, diagnosis in captures:
        target = diagnosis.next_target
        if target is not None:
            sheet.text(1, f"Next: {target.family}", bold=True)
            sheet.row += 1
            sheet.text(1, f"{target.why}")
            sheet.row += 1
            sheet.text(1, target.command, color=MUTED)
            sheet.row += 2


def steps(sheet: Sheet, captures: Captures) -> None:
    """Steps by phase, then the budget of each device and phase."""
    columns = [
        *captures.column(),
        Column("device", 9),
        Column("phase", 16),
        Column("steps", 9),
        Column("median (ms)", 13, "fixed"),
        Column("mean (ms)", 12, "fixed"),
        Column("p99 (ms)", 12, "fixed"),
        Column("p99 over median", 12, "times"),
    ]
    rows = [
        [
            *captures.lead(label),
            s.device,
            s.phase,
            s.count,
            s.median_ms,
            s.mean_ms,
            s.p99_ms,
            s.p99_ms / s.median_ms if s.median_ms else None,
        ]
        for label, d in captures
        for s in d.steps
    ]
    sheet.table(columns, rows, freeze=True, empty="no steps were found")
    sheet.text(
        1, "Times are those of the capture; a run without the profiler is faster.", color=MUTED, italic=True
    )
    sheet.row += 2
    sheet.heading("Budget", "exclusive parts of the window, which add up to it")
    columns = [
        *captures.column(),
        Column("device", 16),
        Column("phase", 9),
        Column("part", 24),
        Column("share", 12, "ratio"),
        Column("time (ms)", 12, "fixed"),
    ]
    rows = [
        [*captures.lead(label), b.place, b.phase or "all", words(p.part), p.share, p.ms]
        for label, d in captures
        for b in d.budget
        for p in b.parts
        if p.ms > 0
    ]
    area = sheet.table(columns, rows)
    if rows:
        bars(sheet, area.column(4 + captures.many))


def other_tables(sheet: Sheet, captures: Captures) -> None:
    """Families, calls, copies, activity: whatever else the document holds."""
    names = dict.fromkeys(k for d in captures.diagnoses for k in d.tables if k not in OWN)
    for name in names:
        table = stacked(captures, name)
        if table is not None:
            sheet.heading(table.title)
            sheet.evidence(table)


def facts(sheet: Sheet, captures: Captures) -> None:
    """Every fact that the rules saw; the value is a number, its unit is beside it."""
    columns = [
        *captures.column(),
        Column("Fact", 36),
        Column("Value", 18),
        Column("Unit", 13),
        Column("Where", 34, wrap=True),
        Column("How", 54, wrap=True),
        Column("From", 30, wrap=True),
    ]
    rows = [
        [
            *captures.lead(label),
            f.name,
            Number(f.value, fact_unit(f.name, f.unit)),
            f.unit,
            _scope(f.scope),
            f.method or None,
            ", ".join(f.tables) or None,
        ]
        for label, d in captures
        for f in d.facts
    ]
    sheet.table(columns, rows, filter=True, freeze=True)


def thresholds(sheet: Sheet, captures: Captures) -> None:
    """Every threshold with the value that was held against it; changed ones stand out."""
    columns = [
        *captures.column(),
        Column("Code", 10),
        Column("Parameter", 25),
        Column("Value", 13),
        Column("Default", 13),
        Column("Unit", 13),
        Column("Origin", 12),
        Column("Source", 24),
        Column("Fact", 36),
        Column("Measured", 14),
        Column("Outcome", 12),
    ]
    rows: list[list[Any]] = []
    for label, d in captures:
        measured = _measured(d)
        for t in d.thresholds:
            rows += [[*captures.lead(label), *row] for row in _threshold(t, measured)]
    area = sheet.table(columns, rows, filter=True, freeze=True)
    if rows:
        value, default = f"$C{area.first}", f"$D{area.first}"
        if captures.many:
            value, default = f"$D{area.first}", f"$E{area.first}"
        ground = fill(LEVELS["medium"][1])
        changed = FormulaRule(formula=[f"{value}<>{default}"], fill=ground)
        sheet.ws.conditional_formatting.add(area.column(3 + captures.many), changed)


def _threshold(t: Threshold, measured: dict[tuple[str, str], list[Any]]) -> Iterable[list[Any]]:
    known = [t.code, t.param, Number(t.value, t.unit), Number(t.default, t.unit), t.unit, t.origin, t.source]
    for condition, outcome in measured.get((t.code, t.param)) or [(None, None)]:
        if condition is None:
            yield [*known, None, None, None]
        else:
            unit = fact_unit(condition.fact, condition.unit)
            yield [*known, condition.fact, Number(condition.value, unit), outcome]


def _measured(d: Diagnosis) -> dict[tuple[str, str], list[Any]]:
    """The conditions that a parameter took part in, by code and name."""
    found: dict[tuple[str, str], list[Any]] = {}
    sources: list[tuple[str, Sequence[ConditionDoc], str]] = [
        *((f.code, f.conditions, "fired") for f in d.findings),
        *((h.code, h.conditions, _state(h)) for h in d.healthy),
    ]
    for code, conditions, outcome in sources:
        for c in conditions:
            entry = (c, outcome)
            if c.param and entry not in found.setdefault((code, c.param), []):
                found[(code, c.param)].append(entry)
    return found


def not_evaluated(sheet: Sheet, captures: Captures) -> None:
    """What these captures cannot answer, and what would make them."""
    columns = [
        *captures.column(),
        Column("Code", 10),
        Column("Cause", 26),
        Column("Where", 22),
        Column("What would answer it", 52, wrap=True),
        Column("Missing facts", 52, wrap=True),
        Column("Why", 44, wrap=True),
    ]
    rows = [
        [
            *captures.lead(label),
            e.code,
            e.cause,
            _scope(e.scope),
            remedy_text(e.flag) if e.flag else "no option helps",
            ", ".join(e.missing),
            phrases.why_not_judged(e) if e.stopped_by else e.why,
        ]
        for label, d in captures
        for e in d.not_evaluated
    ]
    sheet.table(columns, rows, filter=True, freeze=True, empty="every rule could look")


def in_order(sheet: Sheet, captures: Captures) -> None:
    """What was looked at and found well, or close to a finding."""
    columns = [
        *captures.column(),
        Column("Code", 10),
        Column("Cause", 26),
        Column("Where", 22),
        Column("State", 10),
        Column("What was seen", 64, wrap=True),
        Column("Numbers", 64, wrap=True),
    ]
    rows = [
        [*captures.lead(label), h.code, h.cause, _scope(h.scope), _state(h), h.text, _numbers(h)]
        for label, d in captures
        for h in d.healthy
    ]
    sheet.table(columns, rows, freeze=True)


def _state(entry: Healthy) -> str:
    return "close" if entry.close else "in order"


def _numbers(healthy: Healthy) -> str | None:
    return "\n".join(condition_text(c) for c in healthy.conditions) or None


def _scope(scope: Scope) -> str:
    return scope.label() or "whole capture"


def about(sheet: Sheet, captures: Captures) -> None:
    """What was read, with what, and how to make this workbook again."""
    entries: list[list[Any]] = []
    for d in captures.diagnoses[:1]:
        tool = d.tool
        entries.append(["Made by", f"{tool.name} {tool.version}, rule engine {tool.engine}"])
        entries.append(["Document", f"schema version {d.schema_version}"])
    paths = [i.path for d in captures.diagnoses for i in d.inputs]
    if paths:
        named = " ".join(f"'{p}'" if " " in p else p for p in paths)
        entries.append(["Command", f"advisor diagnose {named} --xlsx FILE"])
        entries.append(["Explain a code", "advisor explain CODE --trace CAPTURE"])
    entries.append(["After the review", "advisor review import FILE --format markdown"])
    sheet.table([Column("What", 20), Column("Value", 96, wrap=True)], entries)
    for d in captures.diagnoses:
        for entry in d.inputs:
            sheet.heading(phrases.capture_name(entry))
            sheet.table([Column("What", 20), Column("Value", 96, wrap=True)], list(_input(entry)))


def _input(entry: Input) -> Iterable[list[Any]]:
    yield ["File", entry.path]
    yield ["Format", entry.format]
    if entry.format != UNREADABLE:
        for label, value in phrases.described(entry):
            yield [label if label == "told by" else label[0].upper() + label[1:], value]
    if entry.steps:
        yield ["Steps", str(entry.steps)]
    yield ["Ranks", str(entry.ranks)]
    yield from (["Warning", clean(w)] for w in dict.fromkeys(entry.warnings))
