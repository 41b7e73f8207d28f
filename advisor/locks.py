"""Locks on kept files and folders: of two processes that change one, the second waits for the first.

The lock is a file beside it (`.NAME.lock`), held with `flock`, on Windows with `LockFile`: the system frees
it when its process ends, however that ends. Where the system or the disk has no such locks nobody waits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from advisor.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: How long to wait for another process, in seconds: a file is read, changed and written within a tenth.
WAIT_S = 60.0
#: How often to try again.
_LOOK_S = 0.02


class InUse(InputError):
    """Another process holds the lock."""


def take(descriptor: int) -> bool:
    """Lock an open file for this process; False if another has it. Raises OSError without such locks."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True


@contextmanager
def locked(path: Path, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Hold the lock of a file or folder, which need not exist; whether there are such locks here. Folders
    that are missing above it are made, and removed if they stay empty. Raises InUse if another process still
    has it after `wait_s`, and InputError if nothing can be written there.

    Nothing may wait for a person inside."""
    real = Path(os.path.realpath(path))
    file = real.parent / f".{real.name[:100]}.lock"
    made = [p for p in file.parents if not p.exists()]
    until = monotonic() + wait_s
    try:
        while (held := _attempt(file)) is None:
            if monotonic() >= until:
                raise InUse(f"{path}: another advisor is changing it; try again when that has ended")
            sleep(_LOOK_S)
        descriptor, sure = held
        try:
            yield sure
        finally:
            _release(file, descriptor)
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def _attempt(file: Path) -> tuple[int, bool] | None:
    """The open lock file, and whether it could be locked; None if another process has it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_CREAT | os.O_RDWR, 0o666)
    except FileNotFoundError:  # another process has removed the folder again
        return None
    except OSError as error:
        raise InputError(f"cannot write in {file.parent}: {error.strerror or error}") from error
    sure = True
    try:
        free = take(descriptor)
    except OSError:
        free, sure = True, False
    # Who held it before has removed the file: a third process could lock another of this name.
    if free and _is(file, descriptor):
        return descriptor, sure
    os.close(descriptor)
    return None


def _is(file: Path, descriptor: int) -> bool:
    """Whether this is the file that was opened."""
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _release(file: Path, descriptor: int) -> None:
    if fcntl is not None:
        with suppress(OSError):
            file.unlink()
    os.close(descriptor)
    if fcntl is None:  # Windows removes no open file, and so none that another process waits for
        with suppress(OSError):
            file.unlink()
