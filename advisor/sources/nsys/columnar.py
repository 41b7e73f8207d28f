"""nsys exports into folders of Parquet or Arrow files as a :class:`Source`. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InputError
from advisor.sources.nsys.export import NsysExport
from advisor.sources.nsys.table_map import is_nsys_table
from advisor.sources.schema import MISSING, Ints
from advisor.sources.trace import ALL, NOT_WHOLE, Column, Is, Keep, Ledger, Rows

#: Suffix of a file of one table -> the kind of a folder of them.
KINDS = {".parquet": "parquet", ".arrow": "arrow"}


def export_kind(folder: Path) -> str | None:
    """`parquet` or `arrow` for a folder that holds such an export, else None."""
    for path in folder.iterdir():
        if path.suffix in KINDS and is_nsys_table(path.stem):
            return KINDS[path.suffix]
    return None


class NsysColumnar(NsysExport):
    """An export with `--type=parquetdir` or `--type=arrowdir`."""

    def __init__(self, folder: Path, _shown: Path | None = None) -> None:
        """A folder is read where it is."""
        kind = export_kind(folder) or "parquet"
        super().__init__(ColumnarFolder(folder, kind), f"nsys-{kind}")


class ColumnarFolder:
    """`RawTables` of one file a table; columns are read on demand."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.shown = folder
        self.ledger = Ledger()
        self.what = f"a folder of {kind.capitalize()} files"
        self.hint = f"nsys export --type={kind}dir -o NAME FILE.nsys-rep"
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise InputError(
                f"{folder}: reading {self.what} needs pyarrow: pip install 'pyarrow>=15'; or "
                "export to SQLite: nsys export --type=sqlite -o NAME.sqlite FILE.nsys-rep"
            ) from error
        suffix = next(s for s, k in KINDS.items() if k == kind)
        self._files = {p.stem: p for p in sorted(folder.iterdir()) if p.suffix == suffix}
        self.tables = frozenset(self._files)
        self.views = frozenset[str]()
        self._shapes: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._pools: dict[str, tuple[Ints, Any]] = {}

    def size_bytes(self) -> int:
        """Size of all tables."""
        return sum(path.stat().st_size for path in self._files.values())

    def has(self, table: str) -> bool:
        return self._shape(table)[0] > 0

    def columns(self, table: str) -> tuple[str, ...]:
        return self._shape(table)[1]

    def read(
        self,
        table: str,
        columns: Sequence[str],
        keep: Keep | None = None,
        narrow: Collection[str] = (),  # noqa: ARG002
    ) -> list[Ints]:
        import pyarrow as pa

        wanted = [*columns, *([keep.column] if keep else [])]
        with self._damage_reported(table):
            found = self._load(table, wanted)
            read = {name: _integers(found.column(name)) for name in dict.fromkeys(wanted)}
            odd = [c for c in map(found.column, read) if pa.types.is_floating(c.type)]
            count = max((len(c) - c.null_count for c in odd), default=0)
            self.ledger.note("repaired", NOT_WHOLE, table, count, found.num_rows)
        if keep is not None:
            rows = np.isin(read[keep.column], keep.values)
            read = {name: values[rows] for name, values in read.items()}
        return [read[name] for name in columns]

    def records(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        with self._damage_reported(table):
            found = self._load(table, columns)
            return list(zip(*(_values(found.column(name)) for name in columns), strict=True))

    def blobs(self, table: str, column: str) -> list[bytes | None]:
        import pyarrow as pa

        with self._damage_reported(table):
            found = self._load(table, [column]).column(column)
            return [] if pa.types.is_null(found.type) else list(found.cast(pa.large_binary()).to_pylist())

    def count(self, table: str, rows: Rows, at_most: int | None = None) -> int:
        with self._damage_reported(table):
            counted = int(np.count_nonzero(self._mask(table, rows)))
        return counted if at_most is None else min(counted, at_most)

    def first(self, table: str, column: str) -> int | None:
        (values,) = self.read(table, [column])
        return next(iter(values[values != MISSING][:1].tolist()), None)

    def text_codes(
        self, table: str, column: str, rows: Rows = ALL, unless: str | None = None
    ) -> tuple[Ints, list[str]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        with self._damage_reported(table):
            texts = self._load(table, [column]).column(column)
            if unless is not None:
                (other,) = self.read(table, [unless])
                texts = pc.if_else(pa.array(other == MISSING), texts, None)
            if rows:
                texts = texts.filter(pa.array(self._mask(table, rows)))
            coded = texts.cast(pa.large_binary()).combine_chunks().dictionary_encode()
            codes = coded.indices.cast(pa.int64()).fill_null(MISSING).to_numpy(zero_copy_only=False)
            return np.asarray(codes, np.int64), list(map(_decoded, coded.dictionary.to_pylist()))

    def texts(self, table: str, ids: Sequence[int]) -> dict[int, str]:
        if not {"id", "value"} <= set(self.columns(table)):
            return {}
        known, texts = self._pool(table)
        if not len(known):
            return {}
        wanted = np.asarray(ids, np.int64)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        hit = known[at] == wanted
        found = texts.take(at[hit]).to_pylist()
        return dict(zip(wanted[hit].tolist(), map(_decoded, found), strict=True))

    def last_id(self, table: str) -> int:
        if not {"id", "value"} <= set(self.columns(table)):
            return 0
        known, _ = self._pool(table)
        return max(int(known[-1]), 0) if len(known) else 0

    def close(self) -> None:
        """Nothing stays open between reads."""

    def _pool(self, table: str) -> tuple[Ints, Any]:
        """Ids in order, and their texts."""
        import pyarrow as pa

        if table not in self._pools:
            with self._damage_reported(table):
                found = self._load(table, ["id", "value"])
                ids = _integers(found.column("id"))
                order = np.argsort(ids, kind="stable")
                texts = found.column("value").cast(pa.large_binary()).combine_chunks()
                self._pools[table] = ids[order], texts.take(order)
        return self._pools[table]

    def _mask(self, table: str, rows: Rows) -> NDArray[np.bool_]:
        """Which rows of the table are among `rows`."""
        mask = np.zeros(self._shape(table)[0], np.bool_)
        for each in rows:
            found = self._load(table, list(each))
            mask |= np.all([_answers(found.column(c), a) for c, a in each.items()], axis=0)
        return mask if rows else ~mask

    def _shape(self, table: str) -> tuple[int, tuple[str, ...]]:
        """Rows and column names of a table."""
        if table not in self._files:
            return 0, ()
        if table not in self._shapes:
            with self._damage_reported(table):
                self._shapes[table] = _shape_of(self._files[table])
        return self._shapes[table]

    def _load(self, table: str, columns: Sequence[str]) -> Any:
        """A pyarrow table of these columns."""
        path, wanted = self._files[table], list(dict.fromkeys(columns))
        if path.suffix == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.ParquetFile(path).read(columns=wanted)
        with _arrow_reader(path) as reader:
            found = reader.read_all().select(wanted)
            for chunk in (c for name in wanted for c in found.column(name).chunks):
                _validate(chunk)
            return found

    @contextmanager
    def _damage_reported(self, table: str) -> Iterator[None]:
        """Turns a damaged file into one line for the user."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError, SystemError, UnicodeDecodeError) as error:
            message = " ".join(str(error).split())[:120]
            raise InputError(
                f"{self._files[table]}: the file is damaged ({message}); copy it again, or export "
                f"again: {self.hint}"
            ) from error


def _shape_of(path: Path) -> tuple[int, tuple[str, ...]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet

        file = pyarrow.parquet.ParquetFile(path)
        return file.metadata.num_rows, tuple(file.schema_arrow.names)
    with _arrow_reader(path) as reader:
        found = reader.read_all()
        return found.num_rows, tuple(found.column_names)


def _validate(chunk: Any) -> None:
    """Raises ArrowInvalid if lengths or offsets of damaged data point outside of it; any text is valid."""
    import pyarrow as pa

    if pa.types.is_string(chunk.type):
        chunk = chunk.view(pa.binary())
    elif pa.types.is_large_string(chunk.type):
        chunk = chunk.view(pa.large_binary())
    chunk.validate(full=True)


@contextmanager
def _arrow_reader(path: Path) -> Iterator[Any]:
    """A reader of an Arrow file in either of its two forms."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        magic = source.read(6)
        source.seek(0)
        yield (pa.ipc.open_file if magic == b"ARROW1" else pa.ipc.open_stream)(source)


def _integers(column: Any) -> Ints:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    whole = column.cast(pa.int64(), safe=False).fill_null(MISSING)
    return np.ascontiguousarray(whole.to_numpy(), np.int64)


def _answers(column: Any, answer: Is | tuple[int, ...]) -> Column:
    known = column.is_valid().to_numpy()
    if answer is Is.SET:
        return np.asarray(known)
    if answer is Is.NULL:
        return np.asarray(~known)
    values = _integers(column)
    if answer is Is.NOT_MISSING:
        return np.asarray(values != MISSING)
    fits = values >= 0 if answer is Is.FROM_ZERO else np.isin(values, np.array(answer))
    return np.asarray(known & fits)


def _values(column: Any) -> list[Any]:
    """Python values; text that is not UTF-8 keeps its readable part, lists and records become None."""
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        return [None] * len(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else _decoded(value) for value in raw]
    values: list[Any] = column.to_pylist()
    return values


def _decoded(text: bytes | None) -> str:
    return "" if text is None else text.decode("utf-8", "replace")
