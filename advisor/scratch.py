"""Temporary folders for copies of captures; folders left by killed runs are removed by the next one."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from advisor.errors import InputError

try:
    import fcntl
except ImportError:  # Windows has no such locks, and nothing is swept there
    fcntl = None  # type: ignore[assignment]

#: A name that no other program gives a lock: `.lock` occurs in environments of uv, for one.
_LOCK = ".advisor-scratch"


class Scratch:
    """A folder in the temporary folder, or in `parent`, removed when it is closed.

    Its process holds a lock on it. Folders without a lock were left by killed runs, and are removed when
    the next one is made beside them. InputError if none can be made.
    """

    def __init__(self, parent: Path | None = None, prefix: str = "advisor-") -> None:
        import tempfile  # most captures are read where they lie

        parent = parent or Path(tempfile.gettempdir())
        _sweep(parent, prefix)
        while True:
            try:
                self._folder = tempfile.TemporaryDirectory(
                    prefix=prefix, dir=parent, ignore_cleanup_errors=True
                )
            except OSError as error:  # which names the folder that could not be made
                raise InputError(f"cannot write in {parent}: {error.strerror}") from error
            self.path = Path(self._folder.name)
            self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if (self.path / _LOCK).exists():  # else another run swept it before it was locked
                break
            os.close(self._lock)

    def close(self) -> None:
        self._folder.cleanup()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _sweep(parent: Path, prefix: str) -> None:
    """Remove the folders of dead runs of this user."""
    if fcntl is None:
        return
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
