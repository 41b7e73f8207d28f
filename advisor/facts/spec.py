"""What a catalogue entry says about a fact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.model.facts import Level, Unit


@dataclass(frozen=True, slots=True)
class FactSpec:
    """One fact: what it is called, measured in, about, made from and how.

    `tables` are the trace tables without which it has no value; `flag` is the capture option that
    supplies them. `adds` says how values of two windows combine: ``sum`` and ``max`` do,
    ``ratio`` is a quotient of sums, ``sketch`` needs the distribution.
    """

    name: str
    unit: Unit
    level: Level
    meaning: str
    tables: tuple[str, ...]
    how: str
    adds: Literal["sum", "max", "ratio", "sketch"] = "ratio"
    flag: str = ""


@dataclass(frozen=True, slots=True)
class EntitySpec:
    """A table of rows that rules may join: its level and typed fields."""

    name: str
    level: Level
    meaning: str
    fields: dict[str, type]
