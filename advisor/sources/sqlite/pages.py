"""Integer columns of an SQLite table as NumPy arrays: through SQL, which defines what a column holds, and
faster, decoded from the pages of the file itself.

Event tables of captures hold millions of short rows of integers. Stepping through them row by
row costs SQLite and Python a microsecond each; here a block of leaf pages is decoded at once: by
the compiled `_pages`, and what that declines, or without it everything, by `records`.

Whatever is not a plain case raises :class:`NotPlain`, and the caller asks SQL instead. File format:
https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from advisor.model.arrays import is_narrow
from advisor.reading import READING
from advisor.sources.schema import MISSING, Ints
from advisor.sources.sqlite.leaf_pages import LEAF, Bytes, NotPlain, Table, decode
from advisor.sources.trace import Keep

try:
    from advisor.sources.sqlite import _pages as compiled
except ImportError:  # installed without a C compiler
    compiled = None  # type: ignore[assignment]
if not hasattr(compiled, "NARROW"):  # compiled in a checkout before it knew columns of 32 bits
    compiled = None  # type: ignore[assignment]


_INTERIOR = 5

#: Leaf pages decoded at once: 1 MiB of the usual 4 KiB pages; NumPy's functions take less time for more.
_BLOCK = 256 if compiled else 1024

_NO_VALUES = np.empty(0, np.int64)


class PageReader:
    """Reads columns of rowid tables of one file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._one_at_a_time = Lock()
        head = self._file.read(100)
        size = int.from_bytes(head[16:18], "big")
        self._size = 65536 if size == 1 else size
        self._pages = os.fstat(self._file.fileno()).st_size // self._size
        self._reserved = head[20]
        #: Pages that the compiled decoder left to NumPy.
        self.declined = 0

    def close(self) -> None:
        self._file.close()

    def read_columns(
        self,
        db: sqlite3.Connection,
        table: str,
        columns: Sequence[str],
        keep: Keep | None = None,
        few_pages: int = 0,
        narrow: Collection[str] = (),
    ) -> list[Ints]:
        """The same arrays as `read_columns` through SQL, or NotPlain; columns in `narrow` in 32 bits if they
        and sums of two fit.

        Tables of fewer than `few_pages` leaf pages count as not plain: SQL is quicker there.
        """
        if self._reserved:
            raise NotPlain("reserved bytes in pages")
        root, asked = self._place(db, table, columns, keep)
        try:
            leaves = self._leaves(root)
            if len(leaves) < few_pages:
                raise NotPlain("too small to be worth it")
            return self._read_leaves(leaves, asked, [np.int32 if c in narrow else np.int64 for c in columns])
        except (IndexError, ValueError) as error:  # the SQL reader reports the fault of the file
            raise NotPlain("pages point outside themselves") from error

    def _read_leaves(self, leaves: Ints, asked: Table, types: Sequence[type[Any]]) -> list[Ints]:
        """The first columns of what is asked, of these types, into arrays that grow with the rows at hand."""
        out: list[Ints] = [np.empty(0, one) for one in types]
        block = np.zeros(min(len(leaves), _BLOCK) * self._size + 8, np.uint8)
        rows = 0
        for at in range(0, len(leaves), _BLOCK):
            some = leaves[at : at + _BLOCK]
            raw = block[: len(some) * self._size + 8]  # a value at the very end is read as 8 bytes
            self._read_pages(memoryview(raw.data), some)
            needed = rows + self._most_rows(raw, len(some))
            if needed > len(out[0]):
                # About as many as on the pages so far; memory that stays untouched costs nothing.
                room = int(1.05 * needed * len(leaves) / (at + len(some)))
                for k, array in enumerate(out):
                    out[k] = np.empty(room, array.dtype)
                    out[k][:rows] = array[:rows]
            rows = self._append(out, rows, raw, len(some), asked)
        for array in out:
            array.resize(rows, refcheck=False)
        return out

    def _append(self, out: list[Ints], rows: int, raw: Bytes, pages: int, asked: Table) -> int:
        """Puts the rows of a block behind the first `rows`; how many there are then."""
        position, accepted = asked.keep or (-1, _NO_VALUES)
        if compiled is not None and len(asked.wanted) <= compiled.MOST_COLUMNS:
            places = np.array(asked.wanted, np.int32)
            while True:
                end = compiled.decode(raw[:-8], self._size, places, out, rows, MISSING, position, accepted)
                if end >= 0:
                    return end
                if end == -1:
                    break
                out[-2 - end] = _widened(out[-2 - end], rows)
            self.declined += pages
        parts = decode(raw, pages, self._size, asked)
        end = rows + len(parts[0])
        for k, part in enumerate(parts[: len(out)]):
            if out[k].dtype != np.int64 and len(part) and not is_narrow(part):
                out[k] = _widened(out[k], rows)
            out[k][rows:end] = part
        return end

    # ------------------------------------------------------------------ finding the pages

    def _place(
        self, db: sqlite3.Connection, table: str, columns: Sequence[str], keep: Keep | None
    ) -> tuple[int, Table]:
        """Root page of the table and the places of the columns in its records."""
        found = db.execute(
            "select rootpage from sqlite_master where type = 'table' and name = ?", (table,)
        ).fetchone()
        info = db.execute(f"pragma table_xinfo({quoted(table)})").fetchall()
        if not found or not found[0] or any(row[6] for row in info):
            raise NotPlain("no page of its own, or hidden or generated columns")
        place = {row[1]: row[0] for row in info}
        keys = {row[1] for row in info if row[5] and row[2].upper() == "INTEGER"}
        if sum(bool(row[5]) for row in info) > 1:
            keys = set()  # of several key columns none is the rowid
        names = [*columns, keep.column] if keep else list(columns)
        if keys & set(names) or not place.keys() >= set(names):
            raise NotPlain("a wanted column may stand for the rowid, or does not exist")
        wanted = tuple(dict.fromkeys(place[name] for name in names))
        if len(set(columns)) < len(columns):
            raise NotPlain("a column is wanted twice")
        kept = None
        if keep and MISSING in keep.values:
            raise NotPlain("a filter that cannot distinguish NULL from the value it reads as")
        if keep:
            kept = wanted.index(place[keep.column]), np.array(keep.values, np.int64)
        return int(found[0]), Table(wanted, {}, kept)

    def _page(self, number: int) -> bytes:
        page = bytearray(self._size)
        self._read_into(memoryview(page), number)
        return bytes(page)

    def _read_into(self, view: memoryview, first: int) -> None:
        """Fills `view` with whole pages, from page number `first` (counted from 1) on."""
        got = 0
        with self._one_at_a_time:
            self._file.seek((first - 1) * self._size)
            while got < len(view):
                count = self._file.readinto(view[got:])
                if not count:
                    raise NotPlain("the file ends early")
                got += count
            READING.count += got

    def _leaves(self, root: int) -> Ints:
        """Numbers of the table's leaf pages in the order of rows."""
        level = [root]
        for _ in range(20):  # deeper than any B-tree: a damaged one may go round in circles
            if not level or min(level) < 2 or max(level) > self._pages:
                raise NotPlain("page numbers out of range")
            page = self._page(level[0])
            if page[0] == LEAF:
                return np.array(level, np.int64)
            below: list[int] = []
            for number in level:
                page = self._page(number)
                if page[0] != _INTERIOR:
                    raise NotPlain("not a table's page")
                cells = int.from_bytes(page[3:5], "big")
                at = np.frombuffer(page, ">u2", cells, 12).astype(np.int64)
                octets = np.frombuffer(page, np.uint8)
                left = octets[at[:, None] + np.arange(4)].astype(np.int64)
                below += (left @ np.array([1 << 24, 1 << 16, 1 << 8, 1])).tolist()
                below.append(int.from_bytes(page[8:12], "big"))
            level = below
            if len(level) > self._pages:
                break
        raise NotPlain("a tree without leaves")

    # ------------------------------------------------------------------ decoding a block

    def _read_pages(self, view: memoryview, pages: Ints) -> None:
        cuts = [0, *(np.flatnonzero(np.diff(pages) != 1) + 1).tolist(), len(pages)]
        for i, j in pairwise(cuts):  # one read per run of neighbours
            self._read_into(view[i * self._size : j * self._size], int(pages[i]))

    def _most_rows(self, raw: Bytes, pages: int) -> int:
        """What the pages say of their cells, which is at most what fits."""
        head = raw[: pages * self._size].reshape(pages, self._size)[:, 3:5]
        cells = head.copy().view(">u2")
        return int(np.minimum(cells, self._size // 2).sum(dtype=np.int64))


def _widened(column: Ints, rows: int) -> Ints:
    """A column of the same length in 64 bits, with its first rows: the others are not touched yet."""
    wide = np.empty(len(column), np.int64)
    wide[:rows] = column[:rows]
    return wide


# --- through SQL ---------------------------------------------------------------------------------

#: Rows fetched at once: bounds the row-wise array that is turned into columns.
_CHUNK = 1 << 17


def quoted(name: str) -> str:
    """A table or column name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def as_integer(column: str) -> str:
    """SQL for an integer column: NULL and text without a number read as `MISSING`, other text and reals are
    cast."""
    name, text = quoted(column), f"cast({quoted(column)} as text)"
    odd = f"({text} glob '*[^-+0-9.eE ]*' or {text} not glob '*[0-9]*')"
    number = f"case when typeof({name}) in ('text', 'blob') and {odd} then null else {name} end"
    return f"coalesce(cast({number} as integer), {MISSING})"


def source_of_rows(table: str) -> str:
    """SQL for all rows in the order of the file, ignoring indexes."""
    return f"{quoted(table)} not indexed"


def read_columns(
    db: sqlite3.Connection, table: str, columns: Sequence[str], keep: Keep | None = None
) -> list[Ints]:
    """The columns in the order of the file, without a Python loop over its rows. Raises sqlite3.DatabaseError
    on a damaged file."""
    sql = f"select {', '.join(map(as_integer, columns))} from {source_of_rows(table)}"
    if keep is not None:
        sql += f" where {quoted(keep.column)} in ({', '.join(map(str, keep.values))})"
    values, width = chain.from_iterable(db.execute(sql)), len(columns)
    parts: list[list[Ints]] = [[] for _ in columns]
    while True:
        rows = np.fromiter(islice(values, _CHUNK * width), np.int64).reshape(-1, width)
        for part, column in zip(parts, rows.T, strict=True):
            part.append(np.ascontiguousarray(column))
        if len(rows) < _CHUNK:
            break
    out: list[Ints] = []
    while parts:  # one column at a time exists twice, not all of them
        out.append(np.concatenate(parts.pop(0)))
    return out
