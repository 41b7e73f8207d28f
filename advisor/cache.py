"""Parsed rules and knowledge, kept between runs in the user's cache folder.

Parsing and checking them takes longer than the analysis of a small capture. The files are pickles, as
nothing else restores models without checking them again; reading one can only make objects of our own
data classes, so no file can run code. A file that is damaged, of another version or unreadable is
ignored; a read-only folder costs time, nothing else.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from tempfile import NamedTemporaryFile
from time import time
from typing import Any, TypeVar

from advisor import __version__

_T = TypeVar("_T")

#: Modules whose classes a cached file may contain.
_MODULES = ("advisor.model.", "advisor.knowledge.", "advisor.gain.whatifs", "advisor.engine.")
#: At most this many files of a name stay, the newest: several versions or checkouts can share the folder.
_KEPT = 8
#: A later change of a file whose last change is older than this has different times on any file system.
_SETTLED_NS = 3_000_000_000
#: The most that is read of one file for its digest; a larger file is refused as rules.
_MOST_READ = 1 << 20
#: Suffix of a file that is being written; after an hour its process was killed.
_PART, _PART_S = ".part", 3_600


def folder() -> Path | None:
    """The folder of cached files in ``$XDG_CACHE_HOME``, ``%LOCALAPPDATA%`` or ``~/.cache``, if there is
    one."""
    chosen = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        return (Path(chosen) if chosen else Path.home() / ".cache") / "inference-advisor"
    except RuntimeError:
        return None


def cached(name: str, content: Iterable[bytes], make: Callable[[], _T]) -> _T:
    """The result of `make`, from the cache if it was made from this content before. Errors are not kept."""
    where = folder()
    if where is None:
        return make()
    path = where / f"{name}-{_digest(content)}.pickle"
    with suppress(Exception):  # whatever a broken file raises, the content can be made anew
        if path.is_file():  # no pipe, no device
            with path.open("rb") as file:
                found: _T = _Reader(file).load()
            return found
    made = make()
    with suppress(OSError):
        _write(path, pickle.dumps(made, pickle.HIGHEST_PROTOCOL))
        _remove_old(where, name)
    return made


def content_of(paths: Iterable[str]) -> bytes:
    """A digest of the content of files. They are read again only if the size, inode or times of a file have
    changed since, or one had just changed when they were read: the next change may have the same times.
    For special files and files that cannot be read, size, inode and times are the content."""
    stamps: list[tuple[str, Any]] = []
    newest = 0
    for path in paths:
        try:
            known = os.stat(path)
        except OSError as error:
            stamps.append((path, error.errno))
            continue
        newest = max(newest, known.st_mtime_ns, known.st_ctime_ns)
        times = known.st_mtime_ns, known.st_ctime_ns
        stamps.append((path, (known.st_mode, known.st_ino, known.st_size, *times)))
    if time() * 1e9 - newest < _SETTLED_NS:
        return _read(stamps)
    return cached("content", [repr(stamps).encode()], lambda: _read(stamps))


def _read(stamps: Iterable[tuple[str, Any]]) -> bytes:
    digest = blake2b(digest_size=16)
    for path, known in stamps:
        what = repr(known).encode()
        if isinstance(known, tuple) and S_ISREG(known[0]) and known[2] <= _MOST_READ:
            with suppress(OSError), open(path, "rb") as file:
                what = file.read(_MOST_READ)
        digest.update(len(what).to_bytes(8, "little"))
        digest.update(what)
    return digest.digest()


def _digest(content: Iterable[bytes]) -> str:
    """The hash of the content and of the code that made it: a checkout changes without a new version."""
    digest = blake2b(repr((__version__, sys.version_info, _stamps())).encode(), digest_size=16)
    for part in content:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


@cache
def _stamps() -> list[tuple[str, int, int]]:
    """Name, time and size of the modules that define or check cached classes."""
    package = Path(__file__).parent
    entries = (
        entry for part in ("model", "knowledge", "engine", "gain") for entry in os.scandir(package / part)
    )
    known = ((entry.path, entry.stat()) for entry in entries if entry.name.endswith(".py"))
    return sorted((path, stat.st_mtime_ns, stat.st_size) for path, stat in known)


class _Reader(pickle.Unpickler):
    """Makes objects of our own data classes only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("msgspec._utils", "rebuild"):  # calls a class with its fields by name
            return super().find_class(module, name)
        if module.startswith(_MODULES) and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not a data class of the advisor")


def _write(path: Path, data: bytes) -> None:
    """Write the whole file or none, as several processes may write at once."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, suffix=_PART, delete=False) as file:
        pass
    try:
        Path(file.name).write_bytes(data)
        os.replace(file.name, path)
    except BaseException:  # Ctrl-C, too
        os.unlink(file.name)
        raise


def _remove_old(where: Path, name: str) -> None:
    found = sorted(where.glob(f"{name}-*.pickle"), key=lambda path: path.stat().st_mtime)
    old = time() - _PART_S
    parts = [path for path in where.glob(f"*{_PART}") if path.stat().st_mtime < old]
    for path in (*found[:-_KEPT], *parts):
        path.unlink()
