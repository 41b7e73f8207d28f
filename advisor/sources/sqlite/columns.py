"""Integer columns of an SQLite table as NumPy arrays, through SQL.

This is the definition of what a column holds; `sqlite_pages` must give the same arrays faster.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain, islice

import numpy as np

from advisor.sources.raw import Ints, Keep
from advisor.sources.schema import MISSING

#: Rows fetched at once: bounds the row-wise array that is turned into columns.
_CHUNK = 1 << 17


def quoted(name: str) -> str:
    """A table or column name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def as_integer(column: str) -> str:
    """SQL for an integer column: NULL reads as `MISSING`, text and reals are cast."""
    return f"coalesce(cast({quoted(column)} as integer), {MISSING})"


def source_of_rows(table: str) -> str:
    """SQL for all rows in the order of the file, ignoring indexes."""
    return f"{quoted(table)} not indexed"


def read_columns(
    db: sqlite3.Connection, table: str, columns: Sequence[str], keep: Keep | None = None
) -> list[Ints]:
    """The columns in the order of the file. Raises sqlite3.DatabaseError on a damaged file."""
    sql = f"select {', '.join(map(as_integer, columns))} from {source_of_rows(table)}"
    if keep is not None:
        sql += f" where {quoted(keep.column)} in ({', '.join(map(str, keep.values))})"
    return fetch_columns(db, sql, len(columns))


def fetch_columns(db: sqlite3.Connection, sql: str, width: int) -> list[Ints]:
    """A query of `width` integer columns, without a Python loop over its rows."""
    values = chain.from_iterable(db.execute(sql))
    parts: list[list[Ints]] = [[] for _ in range(width)]
    while True:
        rows = np.fromiter(islice(values, _CHUNK * width), np.int64).reshape(-1, width)
        for part, column in zip(parts, rows.T, strict=True):
            part.append(np.ascontiguousarray(column))
        if len(rows) < _CHUNK:
            break
    return [joined(part) for part in parts]


class _Codes(dict[bytes | None, int]):
    """Numbers texts in the order they are first met."""

    def __missing__(self, text: bytes | None) -> int:
        code = self[text] = len(self) - 1
        return code


def fetch_text_codes(db: sqlite3.Connection, sql: str) -> tuple[Ints, list[str]]:
    """A query of one text column as codes and the texts they stand for; `MISSING` for NULL.

    Texts are compared as the bytes of the file and decoded once each.
    """
    codes = _Codes({None: MISSING})
    decode, db.text_factory = db.text_factory, bytes
    try:
        values = chain.from_iterable(db.execute(sql))
        rows = np.fromiter(map(codes.__getitem__, values), np.int64)
    finally:
        db.text_factory = decode
    return rows, [text.decode("utf-8", "replace") for text in codes if text is not None]


def joined(parts: list[Ints]) -> Ints:
    """The parts as one array; empties `parts`, so that each is freed once copied."""
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    parts.clear()  # one column at a time exists twice, not all of them
    return whole
