"""How the values of facts are collected: each function of `advisor/facts/` writes the facts that a file of
`knowledge/facts/` declares, by name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from msgspec import UNSET

from advisor.knowledge.facts import FactSpec, evidence_tables
from advisor.model.arrays import Array
from advisor.model.facts import TRACE, Fact, FactBase, Interval, Row, Scope, Table, Unit, Value
from advisor.model.gain import whole
from advisor.model.held import HeldKernels
from advisor.sources.ranges import MOST_NS

_FINITE = sys.float_info.max
#: Unit -> the most that a capture can hold: ten years, an exbibyte, 10 PB/s, the whole numbers of a float. A
#: damaged file may give more.
_MOST: Mapping[Unit, float] = {
    "ms": MOST_NS / 1e6,
    "us": MOST_NS / 1e3,
    "ns": float(MOST_NS),
    "bytes": 2.0**60,
    "bytes_per_s": 1e16,
    "count": 2.0**53,
    "count_per_s": 2.0**53,
}


def _plain(value: Any) -> Value | None:
    """A NumPy scalar as a plain value; None for NaN."""
    found: Value | None = getattr(value, "item", lambda: value)()
    return None if found != found else found


class FactWriter:
    """Fills a `FactBase`. A value that is None, NaN or beyond what its unit can hold is unknown and stays
    missing."""

    def __init__(
        self,
        catalogue: Mapping[str, FactSpec],
        window: tuple[int, int] | None = None,
        tables: frozenset[str] = frozenset(),
        has_steps: bool = False,
    ) -> None:
        """`tables` are the tables of the capture."""
        self.base = FactBase()
        self._scope = TRACE
        self._catalogue = catalogue
        self._window = window
        self._tables = tables
        self._whole = whole(has_steps)

    def at(self, scope: Scope) -> FactWriter:
        """A writer to the same base; facts that are not about the whole trace get this scope."""
        own = copy(self)
        own._scope = scope
        return own

    def put(self, name: str, value: Any) -> None:
        """Store a value. Raises KeyError for a name that is not in the catalogue, ValueError if this
        writer is for a scope of another level: both are programming errors."""
        spec = self._catalogue[name]
        value = _plain(value)
        if value is None or (isinstance(value, int | float) and abs(value) > _MOST.get(spec.unit, _FINITE)):
            return
        scope = self._scope_of(name)
        if scope.level != spec.level:
            raise ValueError(f"{name} is a fact about a {spec.level}, not about {scope}")
        tables, columns = spec.sources(self._tables)
        window = self._window if spec.windowed and self._window else UNSET
        self.base.add(Fact(name, value, spec.unit, scope, tables, columns, spec.how, window))

    def _scope_of(self, name: str) -> Scope:
        return TRACE if self._catalogue[name].level == "trace" else self._scope

    def value(self, name: str) -> float | None:
        """A number that was put before; None if it is missing or no number."""
        found = self.base.value(name, self._scope_of(name))
        return float(found) if isinstance(found, int | float) else None

    def __ior__(self, values: Mapping[str, Any]) -> Self:
        """`put` for each."""
        for name, value in values.items():
            self.put(name, value)
        return self

    def put_between(self, values: dict[str, tuple[float, float]], unknown: str | None = None) -> None:
        """Shares known as (least, most): the least is stored, the most decides whether a verdict may rest
        on it. `unknown` names what may count or not, unless it is unnamed kernels."""
        for name, (least, most) in values.items():
            self.put(name, least)
            if unknown is not None:
                self.base.unknown[name] = unknown
            if most > least:
                self.base.ranges[name, self._scope] = (least, most)

    def table(
        self,
        name: str,
        rows: Sequence[Sequence[Any]],
        *,
        title: str | None = None,
        columns: str | None = None,
        note: str = "",
    ) -> None:
        """Keep an evidence table; an empty one is left out. Title and columns (separated by commas) are
        those of ``knowledge/tables.yaml`` unless given; `note` follows the title."""
        usual = evidence_tables().get(name)
        if usual is None:
            raise ValueError(f"unknown evidence table {name}; add it to knowledge/tables.yaml")
        if rows:
            heads = tuple(columns.split(", ")) if columns else usual.columns
            named = (title or usual.title.format(whole=self._whole)) + note
            table = Table(named, heads, tuple(tuple(map(_plain, row)) for row in rows))
            self.base.tables[name, self._scope] = table

    def places(self, name: str, intervals: Sequence[Interval]) -> None:
        if intervals:
            self.base.intervals[name, self._scope] = list(intervals)

    def kernels(self, length: Array, chosen: Mapping[str, Array]) -> None:
        """Of which of the device's kernels, whose times are `length`, facts are shares, by name: a mask or
        positions."""
        for name, mine in chosen.items():
            mask = np.zeros(len(length), bool)
            mask[mine] = True
            self.base.held[name, self._scope] = HeldKernels(np.packbits(mask), length)

    def entity(self, name: str, rows: Sequence[Row]) -> None:
        self.base.entities.setdefault(name, []).extend(rows)
