"""The rest of the report: kernels, what is in order, what could not be looked at, what is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len

from advisor.model.findings import Diagnosis, Healthy, NotEvaluated
from advisor.reports.finding_text import evidence
from advisor.reports.layout import GLUE, Page, Segment, cut_end, cut_middle, name_text, pad
from advisor.reports.numbers import amount, column, condition_text, fact_unit, heading_parts, value_text
from advisor.reports.phrases import by_reason
from advisor.reports.shell import shell_lines
from advisor.reports.wording import remedy_lead

TOP_KERNELS = 5
TOP_HEALTHY = 8
#: More causes than these that one thing stopped are counted, not named.
MANY_STOPPED = 8
#: Kernel time that only a catch-all names is worth a line from this share on.
UNNAMED = 0.01
#: Columns of the kernel table that a report shows, under any of their names, in this order.
KERNEL_COLUMNS = (("share",), ("calls", "count"), ("p50",), ("operation",), ("kernel", "name"))


def kernels(page: Page, diagnosis: Diagnosis, verbosity: int) -> None:
    """The kernels that hold the GPU's time and what to measure next, whatever was found."""
    table = diagnosis.tables.get("kernels")
    if table is not None and table.rows:
        page.heading("Top kernels", "share of kernel time")
        rows = table.rows[: 20 if verbosity > 0 else TOP_KERNELS]
        at = {heading_parts(heading)[0]: i for i, heading in enumerate(table.columns)}
        shown = [next((at[n] for n in names if n in at), None) for names in KERNEL_COLUMNS]
        made = [column(table.columns[i], [r[i] for r in rows]) for i in shown if i is not None]
        page.table([m[0] for m in made], [(m[1], m[2]) for m in made])
    if unnamed := _unnamed(diagnosis):
        share = value_text(unnamed, "ratio")
        page.labelled("unnamed", f"{share} of kernel time, in kernels that no pattern knows")
    target = diagnosis.next_target
    if target is not None:
        if table is None or not table.rows:
            page.heading("Next target")
        share = value_text(target.share, "ratio")
        text = f"{target.family} ({share} of kernel time): {target.why}"
        page.labelled("optimise", text)
        # The whole name is in the JSON document; here the command says which kernel it is.
        name = cut_middle(name_text(target.kernel), page.width - 12, page.glyphs.ellipsis)
        page.line(("  " + pad("measure", 10), "dim"), name)
        for line in shell_lines(target.command, page.width, 4):
            page.line((line, "bold"))


def _unnamed(diagnosis: Diagnosis) -> float:
    """The share of kernel time that only a catch-all names, of the device where it is largest; 0
    where it is not worth a line."""
    shares = [
        float(f.value)
        for f in diagnosis.facts
        if f.name == "kernel.unmapped_ratio" and isinstance(f.value, int | float)
    ]
    return max((s for s in shares if s >= UNNAMED), default=0.0)


def healthy(page: Page, diagnosis: Diagnosis, verbosity: int) -> None:
    """Looked at: what is in order and what is close to a finding, the most telling first."""
    if diagnosis.ticks:
        page.heading("In order", f"{len(diagnosis.ticks)} checked and found well")
        _looked_at(page, diagnosis.ticks, page.glyphs.ok, verbosity)
    if diagnosis.close:
        page.heading("Close", "no finding, but near a threshold or 3 % of the step and more")
        _looked_at(page, diagnosis.close, "~", verbosity)


def _looked_at(page: Page, entries: Sequence[Healthy], sign: str, verbosity: int) -> None:
    shown = entries if verbosity > 0 else entries[:TOP_HEALTHY]
    times = Counter(entry.code for entry in entries)
    for entry in shown:
        # Name and scope take room on the line; a scope matters where a code is said of several.
        where = entry.scope.label() if times[entry.code] > 1 or verbosity > 0 else ""
        name = f" {entry.cause}" if verbosity > 0 else ""
        head = f"{sign} {entry.code}{name}{f' ({where})' if where else ''}: "
        room = page.width - len(head) - 2
        text = entry.text if verbosity > 0 else cut_end(entry.text, room, page.glyphs.ellipsis)
        page.wrapped(text, ["  ", head], 6)
        if verbosity > 0:
            for condition in entry.conditions:
                page.line("      ", (condition_text(condition), "dim"))
    if len(shown) < len(entries):
        page.line("  ", (f"and {len(entries) - len(shown)} more (-v)", "dim"))


def not_judged(page: Page, diagnosis: Diagnosis, verbosity: int) -> None:
    """What was stopped, by what stopped it, and what this capture cannot answer, by what would
    make it answer; most first."""
    if not diagnosis.not_evaluated:
        return
    count = len({e.code for e in diagnosis.not_evaluated})
    # Of a capture that answers next to nothing, the way to a better one is all that matters.
    void = any(f.invalidates for f in diagnosis.findings)
    page.heading("Not judged", f"{amount(count, 'cause')}, stopped or for lack of facts")
    for stopped_by, flag, entries in by_reason(diagnosis):
        names = list(dict.fromkeys(f"{e.code}{GLUE}{e.cause}" for e in entries))
        if (void or (stopped_by and len(names) > MANY_STOPPED)) and verbosity <= 0:
            names = [amount(len(names), "cause")]
        lead: list[Segment] = ["  no option helps"]
        if stopped_by:
            lead = ["  stopped by ", (stopped_by, "bold")]
        elif flag:
            lead = [f"  {remedy_lead(flag)} ", (flag, "bold")]
        used = sum(cell_len(s if isinstance(s, str) else s[0]) for s in lead)
        if used + 2 + len(names[0]) <= page.width:
            page.wrapped(", ".join(names), [*lead, ": "], 4)
        else:
            page.wrapped(f"{stopped_by or flag}:", lead[:1], 4, "bold")
            page.wrapped(", ".join(names), ["    "], 4)
        if verbosity > 0:
            for entry in entries:
                if entry.why or not stopped_by:
                    _why(page, entry)


def _why(page: Page, entry: NotEvaluated) -> None:
    where = entry.scope.label()
    why = entry.why or f"needs {', '.join(entry.missing)}"
    page.wrapped(f"{why}{f' ({where})' if where else ''}", [f"    {entry.code}: "], 6, "dim")


def thresholds(page: Page, diagnosis: Diagnosis) -> None:
    changed = [t for t in diagnosis.thresholds if t.value != t.default]
    if not changed:
        return
    page.heading("Changed thresholds")
    for t in changed:
        page.line(
            f"  {t.code}.{t.param} = {value_text(t.value, t.unit)}",
            (f"  (default {value_text(t.default, t.unit)}, {t.origin})", "dim"),
        )


def facts(page: Page, diagnosis: Diagnosis) -> None:
    """Every fact with its value: what the rules saw."""
    if not diagnosis.facts:
        return
    page.heading("Facts", f"{amount(len(diagnosis.facts), 'value')} that the rules saw")
    width = min(44, page.width // 2 + 4)
    for fact in diagnosis.facts:
        where = fact.scope.label()
        name = pad(cut_end(fact.name, width, page.glyphs.ellipsis), width)
        shown = value_text(fact.value, fact_unit(fact.name, fact.unit))
        page.line(f"  {name} {shown}", (f"  {where}" if where else "", "dim"))
    for name, table in diagnosis.tables.items():
        if name != "kernels":
            page.blank()
            evidence(page, table, 20)
