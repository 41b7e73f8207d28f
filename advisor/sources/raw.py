"""The interface between readers and a file of tables, whether SQLite or columnar files hold them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.sources.schema import MISSING
from advisor.sources.trace import Ledger

Ints = NDArray[np.int64]


class Keep(NamedTuple):
    """Only rows whose `column` holds one of `values`."""

    column: str
    values: tuple[int, ...]


class Is(Enum):
    """Conditions on a value, apart from being one of several."""

    SET = "is not null"
    NOT_MISSING = f"!= {MISSING}"  # a number, and not the one that stands for an absent number
    NULL = "is null"
    FROM_ZERO = ">= 0"


#: Rows that satisfy one of the mappings, that is, all of its columns. No mapping: all rows.
Rows = Sequence[Mapping[str, Is | tuple[int, ...]]]
ALL: Rows = ()


class RawTables(Protocol):
    """Tables by their names in the file. Any read of a damaged file raises InputError."""

    shown: Path
    tables: frozenset[str]
    #: Names that stand for a query instead of rows.
    views: frozenset[str]
    #: What holds the tables, and how to make such a file, for messages.
    what: str
    hint: str
    ledger: Ledger

    def size_bytes(self) -> int:
        """Size of the capture on disk."""

    def has(self, table: str) -> bool:
        """True when the table exists and holds at least one row."""

    def columns(self, table: str) -> tuple[str, ...]:
        """Column names of a table, empty if it is absent."""

    def read(
        self, table: str, columns: Sequence[str], keep: Keep | None = None, narrow: Collection[str] = ()
    ) -> list[Ints]:
        """Integer columns in the order of the file; null reads as MISSING. Columns in `narrow` may be of 32
        bits if they and sums of two fit."""

    def records(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Rows of a small table, with the types that they have in the file."""

    def blobs(self, table: str, column: str) -> list[bytes | None]:
        """A column of bytes in the order of the file, also where it is declared as text."""

    def count(self, table: str, rows: Rows, at_most: int | None = None) -> int:
        """How many such rows there are, counted up to `at_most`."""

    def text_codes(
        self, table: str, column: str, rows: Rows = ALL, unless: str | None = None
    ) -> tuple[Ints, list[str]]:
        """A text column as codes into its distinct texts; MISSING for null and where `unless` is set."""

    def texts(self, table: str, ids: Sequence[int]) -> dict[int, str]:
        """The texts (column `value`) of those of the ids (column `id`) that the table holds."""

    def last_id(self, table: str) -> int:
        """The largest id in a table of texts, 0 without any."""

    def close(self) -> None: ...


#: The remark about a column of numbers that holds other values.
NOT_WHOLE = "texts or fractions where whole numbers belong"


def rows_of(raw: RawTables, table: str, **columns: type) -> Iterator[tuple[Any, ...]]:
    """Rows of a small table, with a value for each of `columns`. A `str` is the value as text, empty if
    the file has none; `object` is the value as stored. A row that lacks a number (`int`) is left out."""
    present = [c for c in columns if c in raw.columns(table)]
    for row in raw.records(table, present) if present else ():
        found = dict(zip(present, row, strict=True))
        values = [(found.get(name), kind) for name, kind in columns.items()]
        if all(kind is str or isinstance(value, kind) for value, kind in values):
            yield tuple(("" if v is None else str(v)) if kind is str else v for v, kind in values)
