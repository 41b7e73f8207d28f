"""Collects facts: checks each against the catalogue and records where it came from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from typing import Self

import numpy as np

from advisor.facts.missing import reason
from advisor.facts.spec import EVIDENCE_TABLES, FactSpec
from advisor.metrics.analysis import Analysis
from advisor.model.facts import TRACE, Fact, FactBase, Interval, Row, Scope, Table, Value
from advisor.sources.schema import MISSING


class FactWriter:
    """Fills a `FactBase`. None and NaN mean that the value cannot be known: it stays missing."""

    def __init__(
        self,
        catalogue: Mapping[str, FactSpec],
        window: tuple[int, int] | None = None,
        tables: frozenset[str] = frozenset(),
    ) -> None:
        """`tables` are those that the capture holds."""
        self.base = FactBase()
        self._scope = TRACE
        self._catalogue = catalogue
        self._window = window
        self._tables = tables

    def at(self, scope: Scope) -> FactWriter:
        """Fills the same base; what is not about the whole trace is about this scope."""
        own = copy(self)
        own._scope = scope
        return own

    def put(self, name: str, value: Value | None) -> None:
        """Store a value. Raises KeyError for a name that the catalogue lacks, ValueError where this is
        the writer of a scope of another level: both are programming errors."""
        spec = self._catalogue[name]
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return
        scope = self._scope_of(name)
        if scope.level != spec.level:
            raise ValueError(f"{name} is a fact about a {spec.level}, not about {scope}")
        if isinstance(value, float):
            value = float(value)
        tables, columns = spec.sources(self._tables)
        window = self._window if spec.windowed else None
        self.base.add(Fact(name, value, spec.unit, scope, tables, columns, spec.how, window))

    def _scope_of(self, name: str) -> Scope:
        return TRACE if self._catalogue[name].level == "trace" else self._scope

    def value(self, name: str) -> float | None:
        """A number that was put before; None for what is missing or no number."""
        found = self.base.value(name, self._scope_of(name))
        return float(found) if isinstance(found, int | float) else None

    def __ior__(self, values: Mapping[str, Value | None]) -> Self:
        """`put` for each."""
        for name, value in values.items():
            self.put(name, value)
        return self

    def put_between(self, values: dict[str, tuple[float, float]]) -> None:
        """Shares of which (least, most) are known: the least is stored, the most decides whether
        a verdict may rest on it."""
        for name, (least, most) in values.items():
            self.put(name, least)
            if most > least:
                self.base.ranges[name, self._scope] = (least, most)

    def table(
        self,
        name: str,
        rows: Sequence[Sequence[Value | None]],
        *,
        title: str | None = None,
        columns: str | None = None,
    ) -> None:
        """Keep an evidence table; an empty one is left out. Title and columns (apart by commas) are
        those of `EVIDENCE_TABLES` unless given."""
        if name not in EVIDENCE_TABLES:
            raise ValueError(f"unknown evidence table {name}; add it to EVIDENCE_TABLES")
        if rows:
            usual = EVIDENCE_TABLES[name]
            heads = tuple((columns or usual[1]).split(", "))
            table = Table(title or usual[0], heads, tuple(tuple(r) for r in rows))
            self.base.tables[name, self._scope] = table

    def places(self, name: str, intervals: Sequence[Interval]) -> None:
        if intervals:
            self.base.intervals[name, self._scope] = list(intervals)

    def entity(self, name: str, rows: Sequence[Row]) -> None:
        self.base.entities.setdefault(name, []).extend(rows)

    def explain_missing(self, a: Analysis) -> None:
        """Say why each catalogue entry without a value has none, in all scopes or in some."""

        @cache
        def empty(table: str, column: str) -> bool:
            values = a.trace.columns(table, (column,))[column]
            return not np.any(~np.isnan(values) if values.dtype.kind == "f" else values != MISSING)

        present = {name for name, _ in self.base.facts}
        sampled = sorted({s.device for _, s in self.base.facts if s.device is not None})
        for name, spec in self._catalogue.items():
            if spec.level in ("trace", "rank"):
                lacking = [] if name in present else [a]
            else:
                devices = a.devices or (sampled if "samples" in spec.columns else [])
                devices = devices or ([a.main_device] if "sums" in spec.columns else [])
                lacking = [
                    a.on(d)
                    for d in devices
                    if spec.level != "device" or (name, Scope(device=d)) not in self.base.facts
                ]
            if name not in present or spec.level != "trace":
                self.base.missing[name] = reason(spec, a.trace.tables, empty, lacking)
