"""Collects facts: checks each against the catalogue and records where it came from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.facts.catalog import CATALOGUE
from advisor.facts.missing import reason
from advisor.facts.origins import over_window, sources
from advisor.model.facts import (
    TRACE,
    Fact,
    FactBase,
    Interval,
    Provenance,
    Row,
    Scope,
    Table,
    Value,
)


class FactWriter:
    """Fills a `FactBase`. None and NaN mean that the value cannot be known: it stays missing."""

    def __init__(
        self, window: tuple[int, int] | None, tables: frozenset[str] = frozenset()
    ) -> None:
        """`tables` are those that the capture holds."""
        self.base = FactBase()
        self._window = window
        self._tables = tables

    def put(self, name: str, value: Value | None, scope: Scope = TRACE) -> None:
        """Store a value. Raises KeyError for a name that the catalogue lacks, ValueError for a
        scope of another level: both are programming errors."""
        spec = CATALOGUE[name]
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return
        if scope.level != spec.level:
            raise ValueError(f"{name} is a fact about a {spec.level}, not about {scope}")
        if isinstance(value, float):
            value = float(value)
        tables, columns = sources(name, self._tables)
        window = self._window if over_window(name) else None
        origin = Provenance(tables, columns, window, spec.how)
        self.base.add(Fact(name, value, spec.unit, scope, origin))

    def value(self, name: str, scope: Scope = TRACE) -> float | None:
        """A number that was put before; None for what is missing or no number."""
        found = self.base.value(name, scope)
        return float(found) if isinstance(found, int | float) else None

    def put_all(self, values: dict[str, Value | None], scope: Scope = TRACE) -> None:
        for name, value in values.items():
            self.put(name, value, scope)

    def table(
        self,
        name: str,
        scope: Scope,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Value | None]],
    ) -> None:
        """Keep an evidence table; an empty one is left out."""
        if rows:
            self.base.tables[name, scope] = Table(
                title, tuple(columns), tuple(tuple(r) for r in rows)
            )

    def places(self, name: str, scope: Scope, intervals: Sequence[Interval]) -> None:
        if intervals:
            self.base.intervals[name, scope] = list(intervals)

    def entity(self, name: str, rows: Sequence[Row]) -> None:
        self.base.entities.setdefault(name, []).extend(rows)

    def explain_missing(self, tables: frozenset[str], measures: frozenset[str]) -> None:
        """Say why each catalogue entry without any value has none: `measures` are the columns that
        the samples fill."""
        present = {name for name, _ in self.base.facts}
        for name in CATALOGUE:
            if name not in present:
                self.base.missing[name] = reason(name, tables, measures)
