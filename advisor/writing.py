"""Writing files whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a temporary file in the same folder, then rename it over `path`. Raises OSError; then the file is
    as it was."""
    os.umask(mask := os.umask(0))
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~mask
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(pieces)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
