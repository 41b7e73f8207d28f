"""One SQLite file, opened so that nothing is ever written to it or beside it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from advisor.errors import InputError
from advisor.reading import Scratch
from advisor.sources.schema import MISSING, Ints
from advisor.sources.sqlite import pages
from advisor.sources.sqlite.leaf_pages import NotPlain
from advisor.sources.sqlite.pages import quoted, source_of_rows
from advisor.sources.trace import ALL, NOT_WHOLE, Is, Keep, Ledger, Rows

MAGIC = b"SQLite format 3\0"

#: Below this many leaf pages SQL answers as fast as decoding pages.
_FEW_PAGES = 8

#: SQLite opens no file whose whole path is longer than 512 bytes, with the ending of a journal.
_LONGEST_PATH = 500

#: SQLite's smallest default limit on bound values is 999.
_AT_ONCE = 900


def stated_size(head: bytes) -> int:
    """Bytes of the file that begins so, by its header; 0 if the header does not know."""
    page = int.from_bytes(head[16:18], "big")
    # The page count in the header counts only if the last writer of the file knew of it.
    known = len(head) >= 100 and head[24:28] == head[92:96]
    return (65536 if page == 1 else page) * int.from_bytes(head[28:32], "big") if known else 0


def distrust(db: sqlite3.Connection) -> None:
    """For a schema that is not ours: its views call no function with side effects, and every cell is
    checked against its page (https://sqlite.org/security.html)."""
    db.execute("pragma trusted_schema = off")
    db.execute("pragma cell_size_check = on")


class SqliteFile:
    """`RawTables` of an SQLite file; damage surfaces as :class:`InputError`."""

    what = "a SQLite database"

    def __init__(self, path: Path, shown: Path | None = None, hint: str = "") -> None:
        """`shown` is the path for messages if `path` is a copy; `hint` is the command that makes such a
        file."""
        self.hint = hint
        self.ledger = Ledger()
        self.path = path.resolve()  # SQLite keeps its journals beside the real file
        self.shown = shown or path
        self._private: Scratch | None = None
        self._check_length()
        self._db = self._connect()
        self._opened = self._stamp()
        self._columns: dict[str, tuple[str, ...]] = {}
        self._pages: pages.PageReader | None = None
        try:
            with self._damage_reported(opening=True):
                kinds = self._db.execute("select type, name from sqlite_master").fetchall()
                self.tables = frozenset(name for kind, name in kinds if kind == "table")
                self.views = frozenset(name for kind, name in kinds if kind == "view")
            if self._private is None:
                self._pages = pages.PageReader(self.path)
        except BaseException:
            self.close()
            raise

    def _check_length(self) -> None:
        """Refuses a file shorter than its header says, which SQLite would notice only midway."""
        with self.path.open("rb") as file:
            stated = stated_size(file.read(100)) or 100
            size = file.seek(0, 2)
        if size < stated:
            raise InputError(
                f"{self.shown}: the database is cut short ({size:,} of {stated:,} bytes); "
                f"copy it again{self._way_out(', or ')}"
            )

    def _stamp(self) -> tuple[int, int]:
        about = self.path.stat()
        return about.st_size, about.st_mtime_ns

    def _way_out(self, joint: str) -> str:
        return f"{joint}export it again: {self.hint}" if self.hint else ""

    def _connect(self) -> sqlite3.Connection:
        """Opens the file, or a private copy where a journal beside it holds part of the data."""
        flags = "mode=ro&immutable=1"
        beside = [self.path.with_name(self.path.name + end) for end in ("-wal", "-journal")]
        if any(side.is_file() and side.stat().st_size for side in beside):
            # SQLite would write beside the capture to read these: let it do so elsewhere.
            self._private = Scratch()
            copy = self._private.path / self.path.name
            for file in (self.path, *beside):
                if file.is_file():
                    shutil.copyfile(file, copy.with_name(file.name))
            self.path, flags = copy, "mode=rw"
        try:
            db = sqlite3.connect(f"{self.path.as_uri()}?{flags}", uri=True, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise self._not_opened(error) from error
        distrust(db)
        # Names and paths come from other people's machines: not every byte is UTF-8.
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        return db

    def _not_opened(self, error: Exception) -> InputError:
        why, way_out = " ".join(str(error).split()), ""
        if len(os.fsencode(self.path)) > _LONGEST_PATH:
            why, way_out = f"its path has more than {_LONGEST_PATH} bytes", "; move it to a shorter one"
        return InputError(f"{self.shown}: SQLite cannot open it ({why}){way_out}")

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query; for small tables and aggregates only."""
        with self._damage_reported():
            return self._db.execute(sql, tuple(values)).fetchall()

    def has(self, table: str) -> bool:
        return table in self.tables and bool(self.rows(f"select 1 from {source_of_rows(table)} limit 1"))

    def columns(self, table: str) -> tuple[str, ...]:
        if table not in self._columns:
            info = self.rows(f"pragma table_info({quoted(table)})") if table in self.tables else []
            self._columns[table] = tuple(row[1] for row in info)
        return self._columns[table]

    def read(
        self, table: str, columns: Sequence[str], keep: Keep | None = None, narrow: Collection[str] = ()
    ) -> list[Ints]:
        """Integer columns in the order of the file, by pages where they are plain, else by SQL."""
        with self._damage_reported():
            if self._pages is not None:
                with suppress(NotPlain):
                    return self._pages.read_columns(self._db, table, columns, keep, _FEW_PAGES, narrow)
            self._note_not_whole(table, columns)
            return pages.read_columns(self._db, table, columns, keep)

    def _note_not_whole(self, table: str, columns: Sequence[str]) -> None:
        odd = " or ".join(f"typeof({quoted(c)}) not in ('integer', 'null')" for c in columns)
        sql = f"select count(*), total({odd}) from {source_of_rows(table)}"
        ((rows, count),) = self._db.execute(sql).fetchall()
        self.ledger.note("repaired", NOT_WHOLE, table, int(count), rows)

    def size_bytes(self) -> int:
        """Size of the file that the user gave."""
        return self.shown.stat().st_size

    def records(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return self.rows(f"select {', '.join(map(quoted, columns))} from {quoted(table)}")

    def blobs(self, table: str, column: str) -> list[bytes | None]:
        cast = f"cast({quoted(column)} as blob)"
        return [row[0] for row in self.rows(f"select {cast} from {source_of_rows(table)}")]

    def count(self, table: str, rows: Rows, at_most: int | None = None) -> int:
        chosen = f"select 1 from {source_of_rows(table)} where {_condition(rows)}"
        if at_most is not None:
            chosen += f" limit {at_most}"
        return int(self.rows(f"select count(*) from ({chosen})")[0][0])

    def first(self, table: str, column: str) -> int | None:
        rows = f"{source_of_rows(table)} where typeof({quoted(column)}) = 'integer' limit 1"
        return next((int(value) for (value,) in self.rows(f"select {quoted(column)} from {rows}")), None)

    def text_codes(
        self, table: str, column: str, rows: Rows = ALL, unless: str | None = None
    ) -> tuple[Ints, list[str]]:
        text = f"cast({quoted(column)} as text)"  # damage may have left a number there
        if unless is not None:
            text = f"case when {pages.as_integer(unless)} = {MISSING} then {text} end"
        codes = _Codes({None: MISSING})  # of texts as the bytes of the file, decoded once each
        sql = f"select cast({text} as blob) from {source_of_rows(table)} where {_condition(rows)}"
        with self._damage_reported():
            values = chain.from_iterable(self._db.execute(sql))
            found = np.fromiter(map(codes.__getitem__, values), np.int64)
            ((encoding,),) = self._db.execute("pragma encoding").fetchall()
            return found, [text.decode(encoding, "replace") for text in codes if text is not None]

    def texts(self, table: str, ids: Sequence[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        if not {"id", "value"} <= set(self.columns(table)):
            return found
        for at in range(0, len(ids), _AT_ONCE):
            part = ids[at : at + _AT_ONCE]
            marks = ",".join("?" * len(part))
            sql = f"select id, value from {quoted(table)} where id in ({marks})"
            found.update((i, "" if v is None else str(v)) for i, v in self.rows(sql, part))
        return found

    def last_id(self, table: str) -> int:
        if "id" not in self.columns(table):
            return 0
        whole = f"select max(id) from {quoted(table)} where typeof(id) = 'integer'"
        return max(self.rows(whole)[0][0] or 0, 0)

    @contextmanager
    def _damage_reported(self, opening: bool = False) -> Iterator[None]:
        """Turns damage, which any read may notice, and a file that changes into one line for the user."""
        try:
            yield
            self._check_unchanged()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            self._check_unchanged()
            # Damage may reach names and SQLite's own messages: these then fail to decode.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
            if isinstance(error, sqlite3.ProgrammingError):
                raise  # a closed connection: our bug, not the user's file
            if code == sqlite3.SQLITE_ERROR and not opening:
                raise  # a wrong statement; while opening it means a header of unknown format
            message = " ".join(str(error).split())
            if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
                raise self._not_opened(error) from error
            raise InputError(
                f"{self.shown}: the database is damaged ({message}){self._way_out('; ')}"
            ) from error

    def _check_unchanged(self) -> None:
        try:
            changed = self._stamp() != self._opened
        except FileNotFoundError:
            raise InputError(f"{self.shown}: it was deleted while it was read") from None
        if changed:
            raise InputError(f"{self.shown}: it changed while it was read; wait until nothing writes to it")

    def close(self) -> None:
        self._db.close()
        if self._pages is not None:
            self._pages.close()
        if self._private is not None:
            self._private.close()


class _Codes(dict[bytes | None, int]):
    """Numbers texts in the order they are first met."""

    def __missing__(self, text: bytes | None) -> int:
        code = self[text] = len(self) - 1
        return code


def _condition(rows: Rows) -> str:
    """SQL for `rows`."""
    conditions = (" and ".join(_answers(*pair) for pair in each.items()) for each in rows)
    return " or ".join(f"({each})" for each in conditions) or "1"


def _answers(column: str, answer: Is | tuple[int, ...]) -> str:
    if isinstance(answer, Is):
        return f"{quoted(column)} {answer.value}"
    return f"{quoted(column)} in ({', '.join(map(str, answer))})"
