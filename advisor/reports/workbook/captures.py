"""The captures of a workbook with the names that they go by in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from advisor.model.findings import Diagnosis, Finding
from advisor.model.numbers import amount
from advisor.reports import phrases
from advisor.reports.workbook.sheet import Area, Column, Field, Link, Sheet

#: Endings that say nothing where everything is a capture.
_ENDINGS = (".xz", ".gz", ".sqlite", ".json", ".nsys-rep")


class Captures(Struct, frozen=True, dict=True):
    """One capture needs no name in tables, several do."""

    diagnoses: tuple[Diagnosis, ...]

    @property
    def many(self) -> bool:
        return len(self.diagnoses) > 1

    def __iter__(self) -> Iterator[tuple[str, Diagnosis]]:
        return iter(zip(self.labels, self.diagnoses, strict=True))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """File names without endings; with their folder, or a number, where they are alike."""
        short = [_short(d) for d in self.diagnoses]
        if len(set(short)) < len(short):
            short = [_long(d) for d in self.diagnoses]
        out: list[str] = []
        for name in short:
            number = 2
            while name in out:
                name, number = f"{name.rpartition(' #')[0] or name} #{number}", number + 1
            out.append(name)
        return tuple(out)

    def column(self) -> list[Column]:
        """The column in front of a table that mixes captures."""
        return [Column("Capture", 24, wrap=True)] if self.many else []

    def table(
        self,
        sheet: Sheet,
        fields: Sequence[Field],
        records: Callable[[Diagnosis], Iterable[Any]],
        **options: Any,
    ) -> Area:
        """A table of the records of every capture, with the capture in front where there are several."""
        rows = [
            [*([label] if self.many else []), *(f.of(record) for f in fields)]
            for label, diagnosis in self
            for record in records(diagnosis)
        ]
        return sheet.table([*self.column(), *fields], rows, **options)


class Row(Struct, frozen=True):
    """A finding of one of the captures; `cells` says where the evidence of each code begins, `advice`
    where the recommendations of each finding do."""

    label: str
    diagnosis: Diagnosis
    finding: Finding
    cells: dict[str, str]
    advice: dict[tuple[str, str], str]

    @property
    def actions(self) -> Link | None:
        """How many recommendations there are, as a link to them."""
        cell = self.advice.get((self.label, self.finding.identity))
        count = amount(len(self.finding.recommendations), "action")
        return Link(count, sheet="Recommendations", cell=cell) if cell else None

    @property
    def proof(self) -> Link:
        """The code, as a link to its evidence."""
        return Link(self.finding.code, sheet="Evidence", cell=self.cells[self.finding.code])

    @property
    def capture(self) -> str:
        return ", ".join(i.path for i in self.diagnosis.inputs)


def rows_of(captures: Captures, cells: dict[str, str], advice: dict[tuple[str, str], str]) -> list[Row]:
    """All findings, capture by capture, in their order."""
    return [Row(label, d, f, cells, advice) for label, d in captures for f in d.findings]


def _short(diagnosis: Diagnosis) -> str:
    names = [_plain(phrases.capture_name(i)) for i in diagnosis.inputs] or ["capture"]
    if len(names) == 1:
        return names[0]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{len(names)} ranks: {', '.join(names[:3])}{more}"


def _plain(name: str) -> str:
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name


def _long(diagnosis: Diagnosis) -> str:
    path = diagnosis.inputs[0].path.replace("\\", "/").strip("/") if diagnosis.inputs else ""
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return f"{folder}/{_short(diagnosis)}" if folder else _short(diagnosis)
