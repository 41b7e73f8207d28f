"""Writing files whole or not at all, also where the machine loses power."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, pieces: Iterable[bytes], new: bool = False) -> None:
    """Write a temporary file in the same folder, then rename it over `path`. Raises OSError; then the file is
    as it was. With `new` an existing file is not replaced: FileExistsError, also if it came into being
    meanwhile. On return both the content and the name are on the disk, not only in its cache."""
    os.umask(mask := os.umask(0))
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~mask
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(pieces)
            stream.flush()
            _to_disk(stream.fileno())
        os.chmod(temporary, mode)
        rename(Path(temporary), path, new)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    with suppress(OSError):  # the file is there; some systems cannot open a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            _to_disk(folder)
        finally:
            os.close(folder)


#: What a file system says that has nothing to write out.
_NOT_NEEDED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def _to_disk(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_NEEDED:
            raise


def rename(source: Path, target: Path, new: bool = False) -> None:
    """Rename a file over another of the same folder; with `new` only if there is none, else FileExistsError.
    Raises OSError."""
    if not new:
        os.replace(source, target)
        return
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # no second names for a file on this disk: then two writers at once are not told apart
        if target.exists():
            raise FileExistsError(f"{target} exists") from None
        os.replace(source, target)
    else:
        os.unlink(source)
