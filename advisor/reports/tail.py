"""The rest of the report: kernels, what is in order, what could not be judged, what the rules saw."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.model.advice import Flip
from advisor.model.findings import Diagnosis, Healthy, NotEvaluated
from advisor.model.numbers import amount, condition_text, fact_unit, heading_parts, value_text
from advisor.reports.blocks import Block, Command, Fold, Grid, Heading, Item, Labelled, Number
from advisor.reports.finding_text import grid
from advisor.reports.layout import GLUE, name_text
from advisor.reports.phrases import by_reason, remedy_lead

TOP_KERNELS = 20
#: Kernel time that only a catch-all names is worth a line from this share on.
UNNAMED = 0.01
#: Columns of the kernel table that a report shows, under any of their names, in this order.
KERNEL_COLUMNS = (("share",), ("calls", "count"), ("p50",), ("operation",), ("kernel", "name"))


def kernels(diagnosis: Diagnosis, rows: int | None = TOP_KERNELS) -> Iterator[Block]:
    """The kernels that hold the GPU's time and what to measure next, whatever was found; None: every
    row and column."""
    parts = list(_kernels(diagnosis, rows))
    if parts:
        yield Fold("Top kernels", "share of kernel time", tuple(parts))


def _kernels(diagnosis: Diagnosis, rows: int | None) -> Iterator[Block]:
    table = diagnosis.tables.get("kernels")
    if table is not None and table.rows and rows is None:
        yield replace(grid(table, item="kernel"), title="")
    elif table is not None and table.rows:
        at = {heading_parts(heading)[0]: i for i, heading in enumerate(table.columns)}
        found = (next((at[n] for n in names if n in at), None) for names in KERNEL_COLUMNS)
        shown = [i for i in found if i is not None]
        cells = tuple(tuple(row[i] for i in shown) for row in table.rows[:rows])
        yield Grid(tuple(table.columns[i] for i in shown), cells)
    if unnamed := _unnamed(diagnosis):
        yield Labelled(
            "unnamed", f"{value_text(unnamed, 'ratio')} of kernel time, in kernels that no pattern knows"
        )
    if (target := diagnosis.next_target) is not None:
        share = value_text(target.share, "ratio")
        yield Labelled("optimise", f"{target.family} ({share} of kernel time): {target.why}")
        yield Labelled("measure", name_text(target.kernel))
        yield Command(target.command)


def _unnamed(diagnosis: Diagnosis) -> float:
    """The share of kernel time that only a catch-all names, of the device where it is largest; 0
    where it is not worth a line."""
    shares = [
        float(f.value)
        for f in diagnosis.facts
        if f.name == "kernel.unmapped_ratio" and isinstance(f.value, int | float)
    ]
    return max((s for s in shares if s >= UNNAMED), default=0.0)


def healthy(diagnosis: Diagnosis, conditions: bool = True) -> Iterator[Block]:
    """Looked at: what is in order and what is close to a finding, the most relevant first."""
    for title, note, sign, entries in (
        ("Healthy", f"{len(diagnosis.ticks)} checked, in order", "ok", diagnosis.ticks),
        ("Close", "no finding, but near a threshold or 3 % of the step and more", "partly", diagnosis.close),
    ):
        if entries:
            yield Fold(title, note, tuple(_looked_at(e, sign, conditions) for e in entries))


def _looked_at(entry: Healthy, sign: str, conditions: bool) -> Item:
    where = f" ({entry.scope.label()})" if entry.scope.label() else ""
    notes = tuple(map(condition_text, entry.conditions)) if conditions else ()
    return Item(entry.text, sign, f"{entry.code} {entry.cause}{where}", notes)


def not_judged(diagnosis: Diagnosis, why: bool = True) -> Iterator[Block]:
    """What was stopped, by what stopped it, and what this capture cannot answer, by what would
    make it answer; most first."""
    if not diagnosis.not_evaluated:
        return
    count = len({e.code for e in diagnosis.not_evaluated})
    items = []
    for stopped_by, flag, entries in by_reason(diagnosis):
        names = dict.fromkeys(f"{e.code}{GLUE}{e.cause}" for e in entries)
        lead = f"stopped by {stopped_by}" if stopped_by else "no option helps"
        if flag and not stopped_by:
            lead = f"{remedy_lead(flag)} {flag}"
        notes = [_why(e) for e in entries if e.why or not stopped_by] if why else []
        items.append(Item(", ".join(names), code=lead, notes=tuple(dict.fromkeys(notes))))
    yield Fold("Not judged", f"{amount(count, 'cause')}, stopped or for lack of facts", tuple(items))


def _why(entry: NotEvaluated) -> str:
    where = f" ({entry.scope.label()})" if entry.scope.label() else ""
    return f"{entry.code}: {entry.why or f'needs {chr(44).join(entry.missing)}'}{where}"


def thresholds(diagnosis: Diagnosis, unchanged: bool = False) -> Iterator[Block]:
    """Changed thresholds, and on demand the others as well."""
    changed = sum(t.value != t.default for t in diagnosis.thresholds)
    shown = [t for t in diagnosis.thresholds if unchanged or t.value != t.default]
    if not shown:
        return
    rows = tuple(
        (
            f"{t.code}.{t.param}",
            Number(t.value, t.unit),
            Number(t.default, t.unit),
            f"{t.origin}, {t.source}" if unchanged and t.source else t.origin,
        )
        for t in shown
    )
    listed = Grid(("parameter", "value", "default", "origin"), rows, item="threshold")
    if unchanged:
        yield Fold("Thresholds", f"{len(rows)}, {changed} changed; set with `--param`", (listed,))
    else:
        yield Fold("Changed thresholds", amount(changed, "parameter"), (listed,))


def facts(diagnosis: Diagnosis) -> Iterator[Block]:
    """Every fact with its value: what the rules saw; then the tables."""
    if not diagnosis.facts:
        return
    rows = tuple(
        (f.name, Number(f.value, fact_unit(f.name, f.unit)), f.scope.label()) for f in diagnosis.facts
    )
    listed = Grid(("fact", "value", "scope"), rows, item="fact")
    yield Fold("Facts", f"{amount(len(rows), 'value')} that the rules saw", (listed,))


def tables(diagnosis: Diagnosis, rows: int | None = None) -> Iterator[Block]:
    """The tables of the document but for the kernels, at most so many rows of each."""
    for name, table in diagnosis.tables.items():
        if name != "kernels" and table.rows:
            yield grid(table, rows)


def todo(diagnosis: Diagnosis) -> Iterator[Block]:
    """What to do, in an order that works."""
    if diagnosis.do:
        yield Heading("Do, in this order")
    for i, item in enumerate(diagnosis.do, 1):
        saved = [] if item.saved is None else [f"saves {value_text(item.saved, 'ratio')} alone"]
        if item.saved_in_plan is not None:
            saved.append(f"{value_text(item.saved_in_plan, 'ratio')} in the plan")
        note = "; ".join(t for t in (", ".join([item.cause, *saved]), item.because) if t)
        yield Item(item.action, f"{i}.", notes=(note,))


def sensitivity(diagnosis: Diagnosis, changes: int | None = None) -> Iterator[Block]:
    """An entry a threshold: the number, the threshold tried, and what would become of what."""
    flips = diagnosis.sensitivity
    if flips is None:
        return
    items = [_flip(f, changes) for f in flips]
    none = Item("no verdict: every number is further than a tenth from its threshold")
    yield Fold("Near a threshold", "what a tenth more or less would change", tuple(items or [none]))


def _flip(flip: Flip, limit: int | None) -> Item:
    found = {(c.code, c.before, c.after): c for c in flip.changes}
    changes = []
    for c in list(found.values())[:limit]:
        where = f" ({c.scope.label()})" if c.scope.label() else ""
        changes.append(
            f"{c.code} {c.cause}{where} {c.before} → {c.after}".replace("not_evaluated", "not evaluated")
        )
    if len(changes) < len(found):
        changes.append(f"and {len(found) - len(changes)} more (-v)")
    unit = fact_unit(flip.facts[0].fact if flip.facts else "", flip.unit)
    old, new = value_text(flip.threshold, unit), value_text(flip.moved_to, unit)
    notes = [f"threshold {flip.code}.{flip.param} {old}, tried {new}"]
    for fact in flip.facts:
        where = f" ({fact.scope.label()})" if fact.scope.label() else ""
        notes.append(
            f"number {fact.fact} is {value_text(fact.value, fact_unit(fact.fact, fact.unit))}{where}"
        )
    if flip.first_before or flip.first_after:
        notes.append(f"first {flip.first_after or 'nothing'} instead of {flip.first_before or 'nothing'}")
    return Item("; ".join(changes), notes=tuple(notes))
