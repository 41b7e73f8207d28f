"""Tables of `nsys stats` as a source: it fills the table `sums` and nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor.model.capture import Capture, Device, Recorder
from advisor.sources.pasted.tables import Table, looks_like_tables, read_tables
from advisor.sources.schema import TABLES, Summed
from advisor.sources.trace import Columns, Ledger

RECORDER = Recorder(clock="no times: sums of the whole recording")
#: More than all reports of the longest capture that anyone printed.
_MOST_BYTES = 256 << 20
_VERSION = re.compile(r"nsight-systems(?:-cli)?/(\d{4}\.\d+(?:\.\d+)?)")


class PastedTables:
    """The sums of one text as a `Source`. They are of all GPUs and processes of the recording
    together, which are taken for one device."""

    def __init__(self, shown: Path, text: str) -> None:
        tables = read_tables(text)
        if not tables:
            raise InputError(
                f"{shown}: no sampler log that is known and no table of nsys stats with a row that can "
                "be read; print it with its headings: nsys stats --format csv REPORT.nsys-rep"
            )
        self._texts: list[str] = []
        self._columns = self._filled(tables)
        self.devices: tuple[Device, ...] = ()
        version = _VERSION.search(text)
        torn, rows = sum(t.torn for t in tables), sum(len(t.rows) for t in tables)
        self.ledger = Ledger()
        self.ledger.note(
            "dropped", "lines inside the tables that could not be read", "sums", torn, rows + torn
        )
        self.capture = Capture(
            path=str(shown),
            format="nsys-stats",
            recorder=RECORDER,
            size_bytes=len(text.encode("utf-8", "replace")),
            producer="nsys stats",
            producer_version=version[1] if version else None,
            device_numbers="all GPUs of the recording together",
        )

    def _filled(self, tables: Sequence[Table]) -> Columns:
        rows = [(Summed[t.report.upper()], row) for t in tables for row in t.rows]
        ids: dict[str, int] = {}
        columns: Columns = {
            "report": np.array([report for report, _ in rows], np.int64),
            "name_id": np.array([ids.setdefault(row.name, len(ids)) for _, row in rows], np.int64),
        }
        for name in TABLES["sums"][2:]:
            columns[name] = np.array([row.values.get(name, math.nan) for _, row in rows])
        self._texts = list(ids)
        return columns

    def tables(self) -> frozenset[str]:
        return frozenset({"sums"})

    def read_columns(self, table: str, columns: Sequence[str]) -> Columns:
        if table != "sums":
            raise KeyError(table)
        return {name: self._columns[name] for name in columns}

    def text(self, ids: Sequence[int]) -> list[str]:
        return [self._texts[i] if 0 <= i < len(self._texts) else "" for i in ids]

    def close(self) -> None:
        """Nothing is held open."""


def open_tables(path: Path, shown: Path) -> PastedTables:
    """The tables of a file. Raises InputError, in one line, where it holds none."""
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{shown}: too large for tables of nsys stats (more than {_MOST_BYTES >> 20} MiB)")
    return PastedTables(shown, decoded(path.read_bytes()))


def decoded(data: bytes) -> str:
    """Text in UTF-8 or, as PowerShell redirects it, UTF-16."""
    coding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(coding, "replace")


def is_tables(head: bytes) -> bool:
    """True where a file begins like the output of `nsys stats`."""
    return is_text(head) and looks_like_tables(decoded(head))


def is_text(head: bytes) -> bool:
    """True for UTF-8 or UTF-16; the last character may be cut."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    return bool(head.strip()) and b"\0" not in head and "\ufffd" not in head.decode("utf-8", "replace")[:-1]
