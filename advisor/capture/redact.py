"""``advisor redact``: a copy of an nsys SQLite export without the private data in it.

Known private data is removed (environments, other processes, program output, files); strings that no
event refers to are removed, because exports keep whole environments there; every other text is searched.
The copy is rewritten from its first page to its last, so nothing stays in free pages, and it is searched
for the removed secrets before it gets its name.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from advisor.capture.redact_kept import Kept
from advisor.capture.redact_tables import take_out
from advisor.capture.redact_text import Scrubber
from advisor.errors import InputError
from advisor.reading import Scratch
from advisor.sources.nsys.export import EXPORT_HINT
from advisor.sources.nsys.table_map import is_nsys_table
from advisor.sources.packed import HEAD_BYTES, opener, unpack
from advisor.sources.sqlite.file import MAGIC, SqliteFile, distrust
from advisor.writing import rename

Opener = Callable[..., Any]
PACKED: dict[str, Opener] = {".gz": gzip.open, ".xz": lzma.open}


class Removed(Struct, frozen=True):
    """`count` entries of one kind, removed from or changed in one table."""

    what: str
    table: str
    count: int


class Redaction(Struct, frozen=True):
    source: Path
    target: Path
    bytes_before: int
    bytes_after: int
    removed: tuple[Removed, ...]
    kept: tuple[Kept, ...]


def redact(source: Path, target: Path, force: bool = False, check: Sequence[str] = ()) -> Redaction:
    """Write a redacted copy of an nsys export; `source` is only read. Raises InputError if it is not such an
    export, or if a secret, or a string of `check`, cannot be removed."""
    if target.exists() and not target.is_file():  # a device would be replaced by the copy
        raise InputError(f"{target}: not a regular file; name another for the copy")
    folder = Path(os.path.realpath(target)).parent
    with Scratch(folder, ".advisor-redact-") as scratch:
        work = scratch / "copy"
        with _faults_reported(source):
            with _plain_file(source, scratch) as path:
                _copy(path, work, source)
            counts, kept, scrubber = take_out(work)
        _search(work, scrubber, source, check)
        finished = _packed(work, target.suffix.lower())
        if force and target.exists():
            shutil.copymode(target, finished)
        size = finished.stat().st_size
        try:
            rename(finished, Path(os.path.realpath(target)), new=not force)
        except FileExistsError:
            raise InputError(f"{target} exists; add --force to replace it") from None
    removed = tuple(Removed(*key, count=n) for key, n in sorted(counts.items()) if n)
    return Redaction(source, target, source.stat().st_size, size, removed, kept)


@contextmanager
def _plain_file(source: Path, folder: Path) -> Iterator[Path]:
    """The export, unpacked if it is compressed."""
    if source.exists() and not source.is_file():
        raise InputError(f"{source}: not a regular file; save it to disk first")
    with source.open("rb") as file:
        head = file.read(HEAD_BYTES)
    path, open_packed = source, opener(head)
    if open_packed is not None:
        path = folder / "unpacked"
        with open_packed(source) as packed:
            head = unpack(source, packed, path, lambda head: head.startswith(MAGIC))
    if not head.startswith(MAGIC):
        raise InputError(f"{source}: not an nsys SQLite export; redact reads no other format")
    yield path
    if path != source:
        path.unlink()


def _copy(path: Path, work: Path, shown: Path) -> None:
    """Everything that the export holds, without its free pages."""
    with closing(SqliteFile(path, shown, EXPORT_HINT)) as db:
        if not any(map(is_nsys_table, db.tables)):
            raise InputError(f"{shown}: a SQLite database, but not an Nsight Systems export")
        # In write-ahead mode SQLite makes files beside the database unless it is opened as immutable. A
        # database that already has such a file was copied: `db.path` is that copy, which is not immutable.
        with db.path.open("rb") as file:
            wal = file.read(20)[18:] == b"\2\2" and db.path == path.resolve()
        uri = f"{db.path.as_uri()}?mode=ro{'&immutable=1' * wal}"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.5)) as plain:
            distrust(plain)
            plain.execute("vacuum into ?", (str(work),))


@contextmanager
def _faults_reported(source: Path) -> Iterator[None]:
    """Turns faults that SQLite finds in the export, or on the disk, into one line."""
    try:
        yield
    except (sqlite3.Error, UnicodeEncodeError) as error:
        what, code = " ".join(str(error).split()), getattr(error, "sqlite_errorcode", 0) & 0xFF
        way_out = f"the export is damaged; export it again: {EXPORT_HINT}"
        if isinstance(error, UnicodeEncodeError):
            what = "a table or column has a name that is not UTF-8"
        elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            way_out = "close the program that writes to it"
        elif code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
            way_out = "make room beside OUT, at a path of at most 500 bytes, for two copies of it"
        raise InputError(f"{source}: cannot be copied ({what}); {way_out}") from error


def _packed(work: Path, suffix: str) -> Path:
    if suffix not in PACKED:
        return work
    packed = work.with_name("packed")
    with work.open("rb") as plain, PACKED[suffix](packed, "wb") as out:
        shutil.copyfileobj(plain, out, 1 << 20)
    return packed


def _search(work: Path, scrubber: Scrubber, source: Path, check: Sequence[str]) -> None:
    """Raise if a secret value, or a string that must be gone, is still anywhere in the file."""
    for text in _found(work, [s.encode() for s in check if s]):
        number = 1 + list(check).index(text.decode())
        raise InputError(f"{source}: string {number} of --check is still in the copy; nothing was written")
    wanted = [s.encode("utf-8", "surrogateescape") for s in scrubber.secrets if len(s) >= 8]
    for secret in _found(work, wanted):
        raise InputError(
            f"{source}: a secret of {len(secret)} characters cannot be taken out of it; "
            "nothing was written. Replace the secret, and capture again without it"
        )


def _found(path: Path, wanted: Sequence[bytes]) -> Iterator[bytes]:
    if not wanted:
        return
    pattern, overlap, tail = re.compile(b"|".join(map(re.escape, wanted))), max(map(len, wanted)), b""
    with path.open("rb") as file:
        while chunk := file.read(1 << 24):
            if hit := pattern.search(tail + chunk):
                yield hit[0]
            tail = chunk[-overlap:]
