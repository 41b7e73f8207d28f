"""nsys SQLite exports as a :class:`Source`."""

from __future__ import annotations

from pathlib import Path

from advisor.sources.nsys.export import NsysExport
from advisor.sources.sqlite.file import SqliteFile

FORMAT = "nsys-sqlite"
EXPORT_HINT = "nsys export --type=sqlite -o NAME.sqlite FILE.nsys-rep"


class NsysSqlite(NsysExport):
    """An export with `--type=sqlite`."""

    def __init__(self, path: Path, shown: Path | None = None) -> None:
        """`shown` is the path the user gave, where `path` is a decompressed copy of it."""
        super().__init__(SqliteFile(path, shown, EXPORT_HINT), FORMAT)
