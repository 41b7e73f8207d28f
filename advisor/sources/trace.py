"""What readers share: `Trace`, a lazy catalogue of columns, not a bag of loaded frames; the interface of a
source of them; and that of a file of tables, whether SQLite or columnar files hold them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from advisor import process
from advisor.model.arrays import Array, distinct, is_narrow, median_of
from advisor.model.capture import Capture, Device, LedgerKind, LedgerRow
from advisor.reading import READING
from advisor.sources.schema import MISSING, NARROW_COLUMNS, NEEDED, TABLES, Ints, Owner

if TYPE_CHECKING:
    import pandas as pd


Column = Array
Columns = dict[str, Column]
Window = tuple[int, int]

#: No capture lasts so long: times further apart come from two clocks or from a damaged row.
FAR_NS = 30 * 86_400 * 10**9
#: Up to this share of a table's rows far-off rows are dropped, and the rest is analysed.
FEW = 0.01
#: Files of at least this many bytes are read, and their facts computed, on several threads.
_LARGE = 32 << 20
#: Of files of at least this many bytes (8 M kernels of nsys) facts are computed on one thread: two parts at a
#: time take 0.12 more memory (10 M kernels).
_HUGE = 2 << 30
#: Memory of a diagnosis over the size of the capture.
_TIMES = 2


class Source(Protocol):
    """The interface of a reader. Tables and columns are named as in :mod:`advisor.sources.schema`."""

    capture: Capture
    devices: tuple[Device, ...]
    ledger: Ledger

    def tables(self) -> frozenset[str]:
        """Tables that hold at least one row."""

    def read_columns(self, table: str, columns: Sequence[str]) -> Columns:
        """The columns as contiguous arrays of equal length, in the order of the file."""

    def text(self, ids: Sequence[int]) -> list[str]:
        """The strings behind ids; an unknown id reads as an empty string."""

    def owner(self) -> Owner:
        """What names people and machines in the file."""

    def close(self) -> None: ...


class InMemory:
    """A source that is read at once when it is opened: columns by table, and its texts by id."""

    capture: Capture
    devices: tuple[Device, ...] = ()

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._tables: dict[str, Columns] = {}
        self._texts: list[str] = []

    def tables(self) -> frozenset[str]:
        return frozenset(self._tables)

    def read_columns(self, table: str, columns: Sequence[str]) -> Columns:
        """The columns; a column that the source does not have reads `MISSING`."""
        read = self._tables[table]
        rows = len(next(iter(read.values())))
        return {name: read[name] if name in read else np.full(rows, MISSING, np.int64) for name in columns}

    def text(self, ids: Sequence[int]) -> list[str]:
        texts = self._texts
        return [texts[i] if 0 <= i < len(texts) else "" for i in map(int, ids)]

    def owner(self) -> Owner:
        return Owner((), self._texts)

    def close(self) -> None:
        """Nothing is held open."""


class Around:
    """Another source, of which a subclass changes something."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.capture = source.capture
        self.devices = source.devices
        self.ledger = source.ledger

    def tables(self) -> frozenset[str]:
        return self._source.tables()

    def read_columns(self, table: str, columns: Sequence[str]) -> Columns:
        return self._source.read_columns(table, columns)

    def text(self, ids: Sequence[int]) -> list[str]:
        return self._source.text(ids)

    def owner(self) -> Owner:
        return self._source.owner()

    def close(self) -> None:
        self._source.close()


class Trace:
    """Columns of one capture, read on demand and kept. Times in ns from the capture's own zero. A few rows of
    a table that begin months from its others are left out; `left_out` counts them by table once it is
    read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tables = source.tables()
        self._kept: dict[str, Columns] = {}
        self._near: dict[str, Array | None] = {}
        self._ahead: dict[str, Future[Columns]] = {}
        self._readers: ThreadPoolExecutor | None = None
        self._one_at_a_time = RLock()  # reads of what was not read ahead
        self.left_out: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._distinct: dict[tuple[str, str], list[int]] = {}
        self.capture: Capture = source.capture
        self.devices: tuple[Device, ...] = source.devices
        self.ledger: Ledger = source.ledger

    def __repr__(self) -> str:
        return f"<Trace: {self.capture.path}, {self.capture.format}, {len(self.tables)} tables>"

    def has(self, table: str) -> bool:
        """True when the capture holds rows of this table."""
        return table in self.tables

    @property
    def summed(self) -> bool:
        """True if the capture holds sums by name only: no times, and no table that was not printed."""
        return "sums" in self.tables

    @property
    def warnings(self) -> tuple[str, ...]:
        """Rows left out of the tables read so far, in words."""
        left = sorted(self.left_out.items())
        far = (f"{t} that begin months from the others, left out: {n}" for t, n in left)
        return (*self.capture.warnings, *far)

    def read_ahead(self, *tables: str) -> None:
        """Begin to read tables of `NEEDED` of a large capture on threads: decoding lets other work run."""
        if self.capture.size_bytes < _LARGE:
            return
        if self._readers is None:
            process.expect(_TIMES * self.capture.size_bytes)
            self._readers = ThreadPoolExecutor(2)
        for table in tables:
            if self.has(table) and table not in self._kept:
                self._ahead[table] = self._readers.submit(self._read, table, NEEDED[table])

    @property
    def threads(self) -> ThreadPoolExecutor | None:
        """Two for a large capture once tables are read ahead, for work of which NumPy does most; none where
        memory counts for more."""
        return None if self.capture.size_bytes >= _HUGE else self._readers

    def columns(self, table: str, names: Iterable[str], window: Window | None = None) -> Columns:
        """Named columns of a table, all of one length; zero rows where the table is absent. With a `window`,
        rows that overlap it (``start < end_of_window and end > start_of_window``, or ``time`` inside it).
        Raises KeyError for a table or column that no source can fill."""
        wanted = list(names)
        unknown = [n for n in wanted if n not in TABLES[table]]
        if unknown:
            raise KeyError(f"{table} has no column {', '.join(unknown)}")
        if not self.has(table):
            return {n: np.empty(0, np.int64) for n in wanted}
        kept = self._kept.setdefault(table, {})
        if (ahead := self._ahead.get(table)) is not None:
            kept.update(ahead.result())
            self._ahead.pop(table, None)
        if any(n not in kept for n in wanted):
            with self._one_at_a_time:
                if absent := [n for n in wanted if n not in kept]:
                    kept.update(self._read(table, absent))
        READING.give_back()
        if window is None:
            return {n: kept[n] for n in wanted}
        lo, hi = window
        if "time" in TABLES[table]:
            time = self.columns(table, ["time"])["time"]
            inside = (time >= lo) & (time < hi)
        else:
            span = self.columns(table, ["start", "end"])
            inside = (span["start"] < hi) & (span["end"] > lo)
        return {n: kept[n][inside] for n in wanted}

    def _read(self, table: str, names: Sequence[str]) -> Columns:
        READING.doing = f"reading {table.replace('_', ' ')}"
        columns = self.source.read_columns(table, names)
        columns = narrowed(columns)
        READING.doing = "measuring"
        if "start" not in TABLES[table]:
            return columns
        if table not in self._near:
            if "start" not in columns:
                columns |= self.source.read_columns(table, ["start"])
            self._near[table] = near = _near(columns["start"])
            if near is not None:
                self.left_out[table] = len(columns["start"]) - len(near)
        near = self._near[table]
        return columns if near is None else {n: c[near] for n, c in columns.items()}

    def distinct(self, table: str, column: str) -> list[int]:
        """The different values of an integer column, ascending; found once."""
        if (table, column) not in self._distinct:
            self._distinct[table, column] = distinct(self.columns(table, (column,))[column]).tolist()
        return self._distinct[table, column]

    def rows(self, table: str) -> int:
        """Row count of a table, zero where it is absent."""
        if not self.has(table):
            return 0
        kept = self._kept.get(table)
        if kept and table not in self._ahead:
            return len(next(iter(kept.values())))
        return len(self.columns(table, TABLES[table][:1])[TABLES[table][0]])

    def text(self, text_id: int) -> str:
        """One string of the pool; empty if the id is unknown."""
        return self.texts([int(text_id)])[0]

    def texts(self, ids: Iterable[int]) -> list[str]:
        """Strings of the pool, in the order of the ids."""
        wanted = [int(i) for i in ids]
        absent = sorted({i for i in wanted if i not in self._texts})
        if absent:
            with self._one_at_a_time:
                self._texts.update(zip(absent, self.source.text(absent), strict=True))
        return [self._texts[i] for i in wanted]

    def frame(self, table: str) -> pd.DataFrame:
        """All columns of a table as a pandas data frame, for interactive work."""
        import pandas as pd

        return pd.DataFrame(self.columns(table, TABLES[table]))

    def close(self) -> None:
        if self._readers is not None:
            self._readers.shutdown(cancel_futures=True)  # waits for what reads from the source
        self.source.close()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def narrowed(columns: Columns) -> Columns:
    """The same values in less memory, where they fit."""
    return {n: halved(c) if n in NARROW_COLUMNS else c for n, c in columns.items()}


def halved(values: Column) -> Column:
    """The values in half of the memory, if they and sums of two fit."""
    return values.astype(np.int32) if values.dtype.itemsize > 4 and is_narrow(values) else values


def _near(start: Column) -> Column | None:
    """The rows except a few that begin months from the others; None if all are near."""
    if not len(start) or int(start.max()) - int(start.min()) <= FAR_NS:
        return None
    far = np.abs(start.astype(float) - median_of(start)) > FAR_NS
    return np.flatnonzero(~far) if 0 < far.mean() <= FEW else None


# --- what a reader had to drop or repair, counted while it reads ----------------------------------


class Ledger(dict[tuple["LedgerKind", str, str], tuple[int, int]]):
    """Rows by kind, fault and table: how many of how many. Of columns read apart the largest count wins."""

    def note(self, kind: LedgerKind, what: str, table: str, count: int, rows: int) -> None:
        if count > self.get((kind, what, table), (0, 0))[0]:
            self[kind, what, table] = count, max(rows, count)

    def rows(self) -> tuple[LedgerRow, ...]:
        # In a fixed order, whichever table was read first.
        noted = sorted(self.items(), key=lambda entry: (entry[0][0], entry[0][2]))
        return tuple(LedgerRow.of(*key, *numbers) for key, numbers in noted)

    def warnings(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Warnings for a report besides `told`; rows that cannot be true are reported by a rule."""
        known = tuple(texts)
        new = (r for r in self.rows() if not any(text.startswith(r.what) for text in known))
        return (*known, *(str(r) for r in new if r.severity == "warning" and r.kind != "doubted"))


# --- a file of tables ------------------------------------------------------------------------------


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

    def first(self, table: str, column: str) -> int | None:
        """The number in the first row that has one."""

    def text_codes(
        self, table: str, column: str, rows: Rows = ALL, unless: str | None = None
    ) -> tuple[Ints, list[str]]:
        """A text column as codes into its distinct texts; MISSING for null and where `unless` is set."""

    def texts(self, table: str, ids: Sequence[int]) -> dict[int, str]:
        """The texts (column `value`) of those of the ids (column `id`) that the table holds; none of a table
        without these columns."""

    def last_id(self, table: str) -> int:
        """The largest id in a table of texts; 0 without any, and without such a column."""

    def close(self) -> None: ...


#: The remark about rows without a time, which have no place in a table.
TIMELESS = "no time that can be read"
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
