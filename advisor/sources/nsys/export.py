"""nsys exports, schema 2.9 of 2022 to 3.28 of 2026, as a :class:`Source`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor.model.arrays import Array, distinct
from advisor.model.capture import Capture, Device
from advisor.sources.nsys import payloads
from advisor.sources.nsys import samples as nsys_samples
from advisor.sources.nsys import table_map as nsys
from advisor.sources.nsys.clock import from_zero, zero_of
from advisor.sources.nsys.metadata import read_capture, read_devices, read_owner
from advisor.sources.schema import (
    MISSING,
    NARROW_COLUMNS,
    TABLES,
    Ints,
    Owner,
    classify,
    inner_rows,
    shared_bases,
)
from advisor.sources.sqlite.file import SqliteFile
from advisor.sources.trace import ALL, Columns, Is, RawTables, Rows, rows_of

_MEMORY_COLUMNS = frozenset({"src_memory", "dst_memory", "memory"})

#: The largest span of ids for a table indexed by id.
_DENSE = 1 << 22

#: Ids from here on leave no room for those of interned texts.
_LAST_ID = 1 << 62


class StringPool:
    """Ids of StringIds as the file has them; interned texts get ids beyond the file's largest."""

    def __init__(self, raw: RawTables) -> None:
        self._raw = raw
        self._interned: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._next: int | None = None

    def text(self, ids: Sequence[int]) -> list[str]:
        """The strings behind ids; an unknown id reads as an empty string."""
        wanted = {int(i) for i in ids}
        found = {i: self._interned[i] for i in wanted if i in self._interned}
        if absent := sorted(wanted - found.keys()):
            found |= self._raw.texts(nsys.STRINGS, absent)
        return [found.get(int(i), "") for i in ids]

    def merged(self, ids: Ints, known: Sequence[int], codes: Ints, texts: Sequence[str]) -> Ints:
        """`ids`, and for missing ones the id of the row's own text: the one in `texts` with its code. `known`
        are the distinct ids: a text equal to one of their strings gets that id, any other text one id however
        often it occurs."""
        by_text = {text: number for number, text in zip(known, self.text(known), strict=True)}
        numbers = [by_text[text] if text in by_text else self.intern(text) for text in texts]
        own = np.array([*numbers, MISSING], np.int64)[codes]  # code -1, no text: the last one
        return np.where(ids == MISSING, own, ids)

    def intern(self, text: str) -> int:
        """An id beyond the file's own for this text, always the same one."""
        if text not in self._ids:
            if self._next is None:
                last = self._raw.last_id(nsys.STRINGS)
                if last >= _LAST_ID:
                    raise InputError(
                        f"{nsys.STRINGS} holds the id {last}, which no nsys writes; export the capture again"
                    )
                self._next = last + 1
            self._ids[text] = self._next
            self._interned[self._next] = text
            self._next += 1
        return self._ids[text]


class NsysExport:
    """Fills every table of the schema that the export has rows for."""

    def __init__(self, raw: RawTables, format_name: str) -> None:
        """Raises InputError for tables that are no export; `raw` is closed then."""
        self._db = db = raw
        self.ledger = raw.ledger
        self._strings = StringPool(db)
        self._raw_names: dict[str, str] = {}
        self._kept_rows: dict[str, Ints | None] = {}
        #: Tables whose columns all come from one pass over the rows.
        self._whole: dict[str, Columns] = {}
        self.devices: tuple[Device, ...]
        self.capture: Capture
        try:
            if not any(map(nsys.is_nsys_table, db.tables)):
                raise InputError(
                    f"{db.shown}: {db.what}, but not an Nsight Systems export (no StringIds, "
                    f"CUPTI_*, NVTX_EVENTS or TARGET_INFO_* table); make one: {db.hint}"
                )
            self._zero = zero_of(db)
            self._present = frozenset(table for table in TABLES if self._has(table))
            self.devices, self._device_map = read_devices(db)
            self.capture = read_capture(db, format_name, self._warnings(), self._zero)
        except BaseException:
            db.close()
            raise

    def tables(self) -> frozenset[str]:
        """Tables that hold at least one row."""
        return self._present

    def read_columns(self, table: str, columns: Sequence[str]) -> Columns:
        """The columns as contiguous int64 or float64 arrays, in the order of the file."""
        return from_zero(self._as_in_file(table, columns), self._zero)

    def _as_in_file(self, table: str, columns: Sequence[str]) -> Columns:
        """The columns, their times as the file counts them."""
        read = self._read(table, columns)
        for name in _MEMORY_COLUMNS & set(columns):
            read[name] = self._memory_kinds(read[name])
        return {c: read[c] for c in columns}

    def _read(self, table: str, columns: Sequence[str]) -> Columns:
        """The columns, and possibly more."""
        at_once: dict[str, Callable[[], Columns]] = {
            "collectives": self._collectives,
            "network": lambda: nsys_samples.read_network(self._db),
            "samples": lambda: nsys_samples.read_samples(self._db, [d.id for d in self.devices]),
        }
        if table in at_once:
            if table not in self._whole:
                self._whole[table] = at_once[table]()
            return dict(self._whole[table])
        if table == "api_calls":
            return self._read_calls(columns)
        if table == "overheads":
            return self._read_overheads(columns)
        if table in nsys.JOINED_TABLES:
            return self._read_joined(table, columns)
        ordinals = "device" in columns and table != "gpu_switches"  # whose rows name the GPU itself
        renumbered = ordinals and not self._device_map.identity
        read = self._read_rows(table, [*columns, "process"] if renumbered else columns)
        if renumbered:
            read["device"] = self._device_map.apply(read["device"], read["process"])
        if table == "ranges":
            read = self._with_an_end(read)
        if "text_id" in columns:
            read["text_id"] = self._text_ids(table, read["text_id"])
        return read

    def text(self, ids: Sequence[int]) -> list[str]:
        """The strings behind ids; an unknown id reads as an empty string."""
        return self._strings.text(ids)

    def owner(self) -> Owner:
        return read_owner(self._db)

    def close(self) -> None:
        self._db.close()

    def _raw(self, table: str) -> str:
        """The table's name in the file: with a _V2 or _V3 suffix where only that one has rows."""
        if table not in self._raw_names:
            names = (table, f"{table}_V3", f"{table}_V2")
            self._raw_names[table] = next((n for n in names if self._db.has(n)), table)
        return self._raw_names[table]

    def _has(self, table: str) -> bool:
        special: dict[str, Callable[[], bool]] = {
            "samples": lambda: nsys_samples.recorded(self._db),
            "ranges": self._has_ranges,
            "network": lambda: nsys_samples.network_recorded(self._db),
            "collectives": self._has_collectives,
        }
        if table in special:
            return special[table]()
        # nsys samples stacks, it does not time functions.
        if table in ("python_calls", "python_rows", "modules", "sums", "load"):
            return False
        return any(
            self._db.has(raw) and needed <= set(self._db.columns(raw)) for raw, needed in self._needed(table)
        )

    def _read_rows(self, table: str, columns: Sequence[str]) -> Columns:
        raw, fills = nsys.ROW_TABLES[table]
        return self._read_filled(self._raw(raw), {c: fills[c] for c in columns})

    def _read_filled(self, raw: str, fills: dict[str, nsys.Filled]) -> Columns:
        """Columns made of raw columns; each is read once, an absent one reads `MISSING`."""
        present = self._db.columns(raw)
        wanted = dict.fromkeys(column for fill in fills.values() for column in fill.raw)
        found = [column for column in wanted if column in present]
        ids = (fill.raw for name, fill in fills.items() if name in NARROW_COLUMNS)
        narrow = {column for columns in ids for column in columns} - nsys.WIDE
        read = self._db.read(raw, found or present[:1], narrow=narrow)
        arrays = dict(zip(found, read, strict=False))
        for column in wanted:
            if column not in arrays:
                arrays[column] = np.full(len(read[0]), MISSING, np.int64)
        return {name: fill.make(*(arrays[c] for c in fill.raw)) for name, fill in fills.items()}

    def _read_joined(self, table: str, columns: Sequence[str]) -> Columns:
        joined = [(self._raw(raw), fills) for raw, fills in nsys.JOINED_TABLES[table]]
        held = [(raw, {c: fills[c] for c in columns}) for raw, fills in joined if self._db.has(raw)]
        parts = [self._read_filled(raw, fills) for raw, fills in held]
        return {c: np.concatenate([part[c] for part in parts]) for c in columns}

    def _kept(self, table: str, read: Columns) -> Columns:
        """The rows that `_kept_rows` lists for the table."""
        rows = self._kept_rows[table]
        return read if rows is None else {name: values[rows] for name, values in read.items()}

    def _memory_kinds(self, codes: Ints) -> Ints:
        """Codes in our numbering, if an export numbers its memory kinds differently."""
        other = {}
        for code, name in rows_of(self._db, "ENUM_CUDA_MEM_KIND", id=object, name=str):
            kind = nsys.MEMORY_CODES.get(name.rpartition("MEMORY_KIND_")[2].upper())
            if kind is not None and kind != code:
                other[code] = kind
        mapped = codes.copy() if other else codes
        for code, kind in other.items():
            mapped[codes == code] = kind
        return mapped

    def _read_calls(self, columns: Sequence[str]) -> Columns:
        first = "api_calls" not in self._kept_rows
        read = self._read_rows("api_calls", [*columns, "name_id"] if first else columns)
        if first:
            self._kept_rows["api_calls"] = self._outer_calls(read["name_id"])
        if "callchain" in columns:
            read["callchain"] = self._chain_ids(read["callchain"])
        read = self._kept("api_calls", read)
        if "call" in columns:
            ids = distinct(read["call"]).tolist()
            classes = [int(classify(text)) for text in self._strings.text(ids)]
            read["call"] = _replaced(read["call"], ids, classes)
        return read

    def _outer_calls(self, name_ids: Ints) -> Ints | None:
        """Rows to keep if the export holds a call once per layer, else None (all rows)."""
        ids = distinct(name_ids).tolist()
        codes = shared_bases(self._strings.text(ids))
        if max(codes, default=MISSING) == MISSING:
            return None
        names = ("globalTid", "correlationId", "start", "end")
        read = self._read_filled(self._raw(nsys.RUNTIME), {name: nsys.plain(name) for name in names})
        thread, correlation, start, end = (read[name] for name in names)
        inner = inner_rows(thread, correlation, _replaced(name_ids, ids, codes), start, end)
        return np.delete(np.arange(len(name_ids)), inner) if len(inner) else None

    def _chain_ids(self, chains: Ints) -> Ints:
        """Ids as CUDA_CALLCHAINS has them. In schema 2.9 calls count from 0, the table from 1:
        recognised by a single call with id 0, which the table lacks, and by the last ids."""
        table = self._raw(nsys.CUDA_CALLCHAINS)
        if np.count_nonzero(chains == 0) != 1 or "id" not in self._db.columns(table):
            return chains
        (ids,) = self._db.read(table, ["id"])
        if not len(ids) or int(np.min(ids)) != 1 or int(np.max(ids)) != int(np.max(chains)) + 1:
            return chains
        return np.where(chains == MISSING, MISSING, chains + 1)

    def _has_ranges(self) -> bool:
        raw = self._raw(nsys.NVTX)
        if not {"start", "eventType"} <= set(self._db.columns(raw)):
            return False
        return self._db.count(raw, self._range_rows(raw), at_most=1) > 0

    def _range_rows(self, raw: str) -> Rows:
        """The rows that are ranges with an end, or marks."""
        marks: Rows = [{"eventType": (nsys.NVTX_MARK,)}]
        if "end" not in self._db.columns(raw):
            return marks
        return [*marks, {"eventType": tuple(nsys.NVTX_RANGES), "end": Is.NOT_MISSING}]

    def _with_an_end(self, ranges: Columns) -> Columns:
        if "ranges" not in self._kept_rows:
            filled = self._read_filled(self._raw(nsys.NVTX), {c: nsys.plain(c) for c in ("eventType", "end")})
            kind, end = filled["eventType"], filled["end"]
            kept = (np.isin(kind, list(nsys.NVTX_RANGES)) & (end != MISSING)) | (kind == nsys.NVTX_MARK)
            self._kept_rows["ranges"] = None if kept.all() else np.flatnonzero(kept)
        return self._kept("ranges", ranges)

    def _text_ids(self, table: str, ids: Ints) -> Ints:
        """`ids`, completed for rows that hold their text themselves. Equal texts always share one id."""
        raw = self._raw(nsys.ROW_TABLES[table][0])
        if "text" not in self._db.columns(raw) or not (ids == MISSING).any():
            return ids
        known = [i for i in distinct(ids).tolist() if i != MISSING]
        rows = self._range_rows(raw) if table == "ranges" else ALL
        codes, texts = self._db.text_codes(raw, "text", rows, "textId" if known else None)
        return self._strings.merged(ids, known, codes, texts)

    def _has_collectives(self) -> bool:
        """Kernels carry no arguments; the NVTX ranges of NCCL may."""
        recorded = payloads.payloads_recorded(self._db, self._raw(nsys.NVTX))
        return recorded and self._has("kernels") and self._has("api_calls")

    def _collectives(self) -> Columns:
        columns = ("start", "device", "stream", "process", "correlation", "name_id")
        kernels = self._as_in_file("kernels", columns)
        names = distinct(kernels["name_id"]).tolist()
        texts = self._strings.text(names)
        of_nccl = [n for n, t in zip(names, texts, strict=True) if "nccl" in t.lower()]
        calls = self._as_in_file("api_calls", ("start", "process", "thread", "correlation", "call"))
        launched = np.flatnonzero(np.isin(kernels["name_id"], of_nccl))
        read = payloads.collectives(self._db, self._raw(nsys.NVTX), kernels, launched, calls)
        groups, at = np.unique(read.pop("communicator"), return_inverse=True)
        ids = [self._strings.intern(f"{int(g) & (1 << 64) - 1:#x}") for g in groups]
        return read | {"group_id": np.array(ids, np.int64)[at] if ids else np.empty(0, np.int64)}

    def _read_overheads(self, columns: Sequence[str]) -> Columns:
        """What the profiler cost; CUDA's own work is listed beside it. Rows without a name are named after
        their type."""
        read = self._read_joined("overheads", [*columns, nsys.OVERHEAD_TYPE])
        own = ~np.isin(read[nsys.OVERHEAD_TYPE], nsys.CUDA_OVERHEADS)
        read = {name: values[own] for name, values in read.items()}
        if "kind_id" in columns:
            stated = rows_of(self._db, "ENUM_CUPTI_OVERHEAD_TYPE", id=object, label=str)
            labels = nsys.OVERHEAD_TYPES | dict(stated)
            nameless = read["kind_id"] == MISSING
            for code in distinct(read[nsys.OVERHEAD_TYPE][nameless]).tolist():
                named = self._strings.intern(labels.get(code, "Unknown"))
                read["kind_id"][nameless & (read[nsys.OVERHEAD_TYPE] == code)] = named
        return read

    def _warnings(self) -> list[str]:
        """What the export lacks or cuts off, a line each."""
        warnings = []
        raw = self._raw(nsys.NVTX)
        if {"end", "eventType"} <= set(self._db.columns(raw)):
            unclosed = self._db.count(raw, [{"eventType": tuple(nsys.NVTX_RANGES), "end": Is.NULL}])
            if unclosed:
                rows = self._db.count(raw, ())
                self.ledger.note("dropped", "NVTX ranges without an end", raw, unclosed, rows)
                warnings.append(f"NVTX ranges without an end, left out: {unclosed}")
        if self._db.has(nsys.GPU_METRICS) and "samples" not in self._present:
            warnings.append(
                f"{nsys.GPU_METRICS} has rows, but none that {nsys.METRIC_NAMES} names as a known metric "
                "with a time in the session"
            )
        for raw, lacked in self._timeless():
            rows = self._db.count(raw, ())
            self.ledger.note("dropped", f"the table has no column '{lacked}'", raw, rows, rows)
        return warnings

    def _timeless(self) -> Iterator[tuple[str, str]]:
        """Tables whose rows have no place in time, as in a mangled export, and the column that they lack."""
        for table in {**nsys.ROW_TABLES, **nsys.JOINED_TABLES}:
            if table not in self._present and table != "ranges":  # a mark needs no end
                for raw, needed in self._needed(table):
                    lacks = sorted(needed - set(self._db.columns(raw)))
                    if lacks and self._db.has(raw):
                        yield raw, lacks[0]

    def _needed(self, table: str) -> Iterator[tuple[str, set[str]]]:
        """The tables of the file that fill one of ours, with the columns that give rows a place in time."""
        for raw, fills in nsys.JOINED_TABLES.get(table) or (nsys.ROW_TABLES[table],):
            yield self._raw(raw), {fills[name].raw[0] for name in ("start", "end") if name in fills}


def _replaced(values: Ints, old: list[int], new: Sequence[int]) -> Array:
    """Each of `old` (sorted) replaced by its partner in `new`, a code; every value is among `old`. Codes of
    less than 128 take a byte."""
    kind = np.int8 if max(new, default=0) < 128 else np.int32
    keys, partners = np.array(old, np.int64), np.array(new, kind)
    if old and old[-1] - old[0] < _DENSE:
        table = np.zeros(old[-1] - old[0] + 1, kind)
        table[keys - old[0]] = partners
        return table[values - old[0]]
    return partners[np.searchsorted(keys, values)]


FORMAT = "nsys-sqlite"
EXPORT_HINT = "nsys export --type=sqlite -o NAME.sqlite FILE.nsys-rep"


class NsysSqlite(NsysExport):
    """An export with `--type=sqlite`."""

    def __init__(self, path: Path, shown: Path | None = None) -> None:
        """`shown` is the path the user gave, where `path` is a decompressed copy of it."""
        super().__init__(SqliteFile(path, shown, EXPORT_HINT), FORMAT)
