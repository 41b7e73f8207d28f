"""Facts for people: the catalogue, and values with their provenance."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model.facts import Fact
from advisor.model.numbers import amount, fact_unit, value_text
from advisor.reports.layout import Page

#: name, unit, level, meaning, how, flag
Entry = tuple[str, str, str, str, str, str]


def catalogue(page: Page, entries: Sequence[Entry]) -> None:
    """What each fact means, how it is computed, and the capture flag that supplies it."""
    group = ""
    for name, unit, level, meaning, how, flag in entries:
        if name.split(".")[0] != group:
            group = name.split(".")[0]
            page.heading(group)
        page.line("  ", (name, "bold"), (f"  {unit}, by {level}", "dim"))
        page.wrapped(f"{meaning} ({how})" if how else meaning, ["    "], 4)
        if flag:
            page.line("    ", (f"from {flag}", "dim"))
    page.blank()
    page.line((amount(len(entries), "fact"), "dim"))


def values(page: Page, facts: Sequence[Fact]) -> None:
    """Each value with its scope, the tables and columns read, and the method."""
    for fact in facts:
        where = fact.scope.label()
        shown = value_text(fact.value, fact_unit(fact.name, fact.unit))
        page.line((fact.name, "bold"), f" = {shown}", (f"  {where}" if where else "", "dim"))
        source = ", ".join(fact.tables)
        if fact.columns:
            source += f" ({', '.join(fact.columns)})"
        note = ": ".join(t for t in (source, fact.method) if t)
        if note:
            page.wrapped(note, ["    "], 4, "dim")
    page.blank()
    page.line((amount(len(facts), "value"), "dim"))
