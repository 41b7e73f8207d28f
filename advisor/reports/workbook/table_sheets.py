"""Sheets that are tables, declared as data: kernels, steps, rules, facts, thresholds, several captures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from openpyxl.formatting.rule import FormulaRule
from openpyxl.utils import get_column_letter

from advisor.model.facts import Scope, Table
from advisor.model.findings import ConditionDoc, Diagnosis
from advisor.model.numbers import fact_unit, limit_text
from advisor.reports import phrases
from advisor.reports.blocks import Number
from advisor.reports.budget_bar import words
from advisor.reports.workbook.evidence import Captures
from advisor.reports.workbook.sheet import Column, Sheet, shown
from advisor.reports.workbook.style import LEVELS, MUTED, UNDER, align, fill, font

#: Tables that have a place of their own.
OWN = ("kernels", "steps")


class RuleRow(NamedTuple):
    """One rule in one scope: fired, in order, close to firing, or not judged."""

    state: str
    code: str
    cause: str
    scope: Scope
    text: str
    remedy: str | None = None
    missing: tuple[str, ...] = ()
    conditions: tuple[ConditionDoc, ...] = ()


def _where(record: Any) -> str:
    return record.scope.label() or "whole capture"


STEPS = (
    Column("device", 9, "device"),
    Column("phase", 16, "phase"),
    Column("steps", 9, "count"),
    Column("median (ms)", 13, "median_ms", "fixed"),
    Column("mean (ms)", 12, "mean_ms", "fixed"),
    Column("p99 (ms)", 12, "p99_ms", "fixed"),
    Column("p99 over median", 12, lambda s: s.p99_ms / s.median_ms if s.median_ms else None, "times"),
)
BUDGET = (
    Column("device", 16, lambda bp: bp[0].place),
    Column("phase", 9, lambda bp: bp[0].phase or "all"),
    Column("part", 24, lambda bp: words(bp[1].part)),
    Column("share", 12, lambda bp: bp[1].share, "ratio"),
    Column("time (ms)", 12, lambda bp: bp[1].ms, "fixed"),
)
RULES = (
    Column("State", 12, "state"),
    Column("Code", 10, "code"),
    Column("Cause", 26, "cause"),
    Column("Where", 22, _where),
    Column("Result or reason", 64, "text", wrap=True),
    Column("To judge it", 44, "remedy", wrap=True),
    Column("Missing facts", 40, lambda j: ", ".join(j.missing), wrap=True),
    Column("Numbers", 60, lambda j: "\n".join(map(limit_text, j.conditions)) or None, wrap=True),
)
FACTS = (
    Column("Fact", 36, "name"),
    Column("Value", 18, lambda f: Number(f.value, fact_unit(f.name, f.unit))),
    Column("Unit", 13, "unit"),
    Column("Where", 26, _where, wrap=True),
    Column("How", 54, lambda f: f.method or None, wrap=True),
    Column("From", 42, lambda f: ", ".join(f.tables) or None, wrap=True),
)
#: A threshold, a condition that used it, and the outcome of its rule.
THRESHOLDS = (
    Column("Code", 10, lambda r: r[0].code),
    Column("Parameter", 25, lambda r: r[0].param),
    Column("Value", 13, lambda r: Number(r[0].value, r[0].unit)),
    Column("Default", 13, lambda r: Number(r[0].default, r[0].unit)),
    Column("Unit", 13, lambda r: r[0].unit),
    Column("Origin", 12, lambda r: r[0].origin),
    Column("Source", 24, lambda r: r[0].title or r[0].source),
    Column("Fact", 36, lambda r: r[1] and r[1].fact),
    Column("Measured", 14, lambda r: r[1] and Number(r[1].value, fact_unit(r[1].fact, r[1].unit))),
    Column("Outcome", 12, lambda r: r[2]),
)


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
    """Kernels by time, with a filter; what to measure next and the other tables below."""
    table = stacked(captures, "kernels")
    if table is None:
        sheet.text(1, "No kernel was recorded.", color=MUTED, italic=True, down=2)
    else:
        area = sheet.table(*shown(table), filter=True, freeze=True)
        if "share" in area.at:
            area.bars("share")
    for target in filter(None, (d.next_target for d in captures.diagnoses)):
        sheet.text(1, f"Next: {target.family}", bold=True, down=1)
        sheet.text(1, target.why, down=1)
        sheet.text(1, target.command, color=MUTED, down=2)
    for name in dict.fromkeys(k for d in captures.diagnoses for k in d.tables if k not in OWN):
        table = stacked(captures, name)
        if table is not None:
            sheet.heading(table.title)
            sheet.table(*shown(table))


def steps(sheet: Sheet, captures: Captures) -> None:
    """Steps by phase, then the budget of each device and phase."""
    sheet.heading("Steps", "times of the capture; a run without the profiler is faster")
    captures.table(sheet, STEPS, lambda d: d.steps, empty="no steps were found")
    sheet.heading("Budget", "exclusive parts of the window, which add up to it")
    area = captures.table(sheet, BUDGET, lambda d: [(b, p) for b in d.budget for p in b.parts if p.ms > 0])
    if any(d.budget for d in captures.diagnoses):
        area.bars("share")


def rules(sheet: Sheet, captures: Captures) -> None:
    """Every rule with its state: fired, close, observed, in order, does not apply, or not judged and why."""
    captures.table(sheet, RULES, judged, filter=True, freeze=True, empty="no rule was evaluated")
    sheet.page(large=True)


def judged(d: Diagnosis) -> Iterable[RuleRow]:
    """The rules of a diagnosis by state."""
    for f in d.findings:
        yield RuleRow("fired", f.code, f.cause, f.scope, f.message, conditions=f.conditions)
    for h in (*d.healthy, *d.observed, *d.not_applicable):
        state = "close" if h.close else h.state
        yield RuleRow(state, h.code, h.cause, h.scope, h.text, conditions=h.conditions)
    for n in d.not_evaluated:
        why = phrases.why_not_judged(n)
        remedy = None if n.stopped_by else phrases.remedy_text(n.flag) if n.flag else "no option helps"
        yield RuleRow("not judged", n.code, n.cause, n.scope, why, remedy, n.missing)


def facts(sheet: Sheet, captures: Captures) -> None:
    """Every fact that the rules saw; the value is a number, its unit is beside it."""
    captures.table(sheet, FACTS, lambda d: d.facts, filter=True, freeze=True)
    sheet.page(large=True, tall=True)


def thresholds(own: Sheet | None, below: Sheet, captures: Captures) -> None:
    """Every threshold with what was compared with it; changed ones stand out."""
    sheet = own or below
    sheet.page(large=True, tall=own is not None)
    if own is None:
        sheet.heading("Thresholds")
    area = captures.table(sheet, THRESHOLDS, _compared, filter=own is not None, freeze=own is not None)
    value, default = (f"${get_column_letter(area.at[head])}{area.first}" for head in ("Value", "Default"))
    rule = FormulaRule(formula=[f"{value}<>{default}"], fill=fill(LEVELS["medium"][1]))
    sheet.ws.conditional_formatting.add(area.column("Value"), rule)


def _compared(d: Diagnosis) -> Iterable[tuple[Any, ConditionDoc | None, str | None]]:
    """Each threshold with every condition that used it."""
    found: dict[tuple[str, str], list[tuple[ConditionDoc | None, str | None]]] = {}
    for rule in judged(d):
        for c in rule.conditions:
            known = found.setdefault((rule.code, c.param or ""), [])
            if (c, rule.state) not in known:
                known.append((c, rule.state))
    for t in d.thresholds:
        for condition, outcome in found.get((t.code, t.param), [(None, None)]):
            yield t, condition, outcome


#: A fact is compared if it has one value in each capture.
COMPARED_FACTS = (
    "step.time_median_ms",
    "kernel.per_step",
    "budget.busy_ratio",
    "budget.idle_ratio",
    "launch.idle_ratio",
    "graph.kernel_ratio",
    "sync.idle_ratio",
    "copy.exposed_ratio",
    "alloc.calls_per_step",
    "activity.sm_busy_ratio",
    "activity.tensor_busy_ratio",
    "activity.dram_busy_ratio",
    "comm.exposed_ratio",
    "host.gap_ratio",
    "capture.overhead_idle_ratio",
)


OVERVIEW = (
    Column("Capture", 36, wrap=True),
    Column("Share", 13, unit="ratio"),
    Column("Step, median (ms)", 13, unit="fixed"),
    Column("GPU busy", 13, unit="ratio"),
    Column("Kernels a step", 13),
    Column("High", 13),
    Column("Medium", 13),
    Column("Not judged", 13),
    Column("First finding", 34, wrap=True),
)


def comparison(sheet: Sheet, captures: Captures) -> None:
    """Captures, then findings by share, then facts; changes are formulas over the first one."""
    rows = []
    for label, d in captures:
        top, entry = d.findings[0] if d.findings else None, d.inputs[0]
        step = max(d.steps, key=lambda s: s.count).median_ms if d.steps else None
        kernels = None if entry.kernels_per_step is None else round(entry.kernels_per_step, 1)
        counts = (sum(f.severity == s for f in d.findings) for s in ("high", "medium"))
        first = f"{top.code} {top.cause}" if top else "nothing to fix"
        share, silent = top.share if top else None, d.not_judged
        rows.append([label, share, step, entry.busy_share, kernels, *counts, silent, first])
    sheet.table(OVERVIEW, rows)
    _matrix(sheet, captures)
    _facts(sheet, captures)


def _matrix(sheet: Sheet, captures: Captures) -> None:
    """A row a cause, a column a capture; the cell is the share of the step that it holds."""
    shares: dict[tuple[str, str], dict[str, float | str]] = {}
    for label, d in captures:
        for f in d.findings:
            cells = shares.setdefault((f.code, f.cause), {})
            now = cells.setdefault(label, "found" if f.share is None else f.share)
            if f.share is not None:
                cells[label] = max(f.share, now) if isinstance(now, float) else f.share
    sheet.heading("Findings", "the share of the step that each cause holds; empty: not found")
    columns = [Column("Code and cause", 36), *(Column(label, 16, unit="ratio") for label in captures.labels)]

    def order(cause: tuple[str, str]) -> tuple[float, tuple[str, str]]:
        return -max((c for c in shares[cause].values() if isinstance(c, float)), default=0.0), cause

    rows = [
        [" ".join(cause), *map(shares[cause].get, captures.labels)] for cause in sorted(shares, key=order)
    ]
    area = sheet.table(columns, rows)
    for label in captures.labels:
        area.bars(label)


def _facts(sheet: Sheet, captures: Captures) -> None:
    """Important facts, and how the others differ from the first capture."""
    sheet.heading("Facts", "changes are formulas: against the first capture, shares in points")
    heads = [*captures.labels, *(f"{label}: change" for label in captures.labels[1:])]
    columns = [Column("Fact", 36), *(Column(head, 16) for head in heads)]
    diagnoses = captures.diagnoses
    rows: list[list[Any]] = []
    shares: list[bool] = []
    for name in COMPARED_FACTS:
        cells: list[Number | None] = []
        for d in diagnoses:
            found = [f for f in d.facts if f.name == name]
            value = found[0].value if len(found) == 1 else None
            known = None if isinstance(value, bool | str | None) else Number(float(value), found[0].unit)
            cells.append(known)
        if any(cells):
            rows.append([name, *cells, *[None] * (len(diagnoses) - 1)])
            shares.append(any(c is not None and c.unit == "ratio" for c in cells))
    area = sheet.table(columns, rows)
    if not rows:
        return
    for row, share in enumerate(shares, area.first):
        base = f"$B{row}"
        for i in range(1, len(diagnoses)):
            other = f"{get_column_letter(2 + i)}{row}"
            cell = sheet.ws.cell(row, 1 + len(diagnoses) + i)
            change = f'IF({other}={base},0,IF({base}<>0,{other}/{base}-1,""))'
            change, form = (f"ROUND(100*({other}-{base}),1)", '0.0" pts"') if share else (change, "0.0%")
            cell.value = f'=IF(AND(ISNUMBER({base}),ISNUMBER({other})),{change},"")'
            cell.number_format = f'+{form};-{form};"="'
            cell.font, cell.border = font(), UNDER
            cell.alignment = align(right=True)
    sheet.text(1, "A comparison with a verdict: advisor compare BEFORE AFTER", color=MUTED, down=2)
