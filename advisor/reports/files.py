"""Writing a report to a file: whole or not at all, and never over something by accident."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from advisor.errors import InputError
from advisor.model.options import FORMATS

STDOUT = Path("-")

#: Suffix -> the options and formats that write such files.
SUFFIXES = {".xlsx": ["--xlsx"], ".html": ["--html"], ".htm": ["--html"]}
for _format in FORMATS:
    for _suffix in _format.suffixes:
        SUFFIXES.setdefault(_suffix, []).append(_format.name)


def check_suffix(option: str, path: Path, format: str = "") -> None:
    """Raise where the suffix names another kind of file than `option`, or `-o` in `format`, writes."""
    fitting = [suffix for suffix, kinds in SUFFIXES.items() if option in kinds]
    if path == STDOUT or (path.exists() and not path.is_file()):
        return
    if fitting and path.suffix and path.suffix.lower() not in fitting:
        raise InputError(f"{option} {path}: the name must end with {' or '.join(fitting)}")
    kinds = SUFFIXES.get(path.suffix.lower())
    if format and kinds and format not in kinds:
        instead = f"{kinds[0]} {path}" if kinds[0].startswith("--") else f"--format {kinds[0]}"
        raise InputError(f"{option} {path}: the report is in the format {format}; use {instead}")


def check_target(path: Path, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Raise where `path` cannot be written, so that one learns it before a long analysis."""
    if _open_already(path):
        return
    real = Path(os.path.realpath(path))
    if any(real == Path(os.path.realpath(i)) for i in inputs):
        raise InputError(f"{path} is the capture itself; choose another file for the report")
    if real.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    if not real.parent.is_dir():
        raise InputError(f"{path}: there is no folder {real.parent}; create it first")
    if real.exists() and _regular(real) and not force:
        raise InputError(f"{path} exists; add --force to replace it")


def check_targets(
    targets: Mapping[str, Path | None], force: bool, inputs: Sequence[Path] = (), format: str = ""
) -> None:
    """Every file can be written, and none twice; `targets` are by the option that names them, of which
    -o gets the `format`."""
    taken: dict[Path, str] = {}
    for name, target in targets.items():
        if target is None:
            continue
        if target != STDOUT:
            check_target(target, force, inputs)
        other = taken.setdefault(target.resolve(), name)
        if other != name:
            raise InputError(f"{name} and {other} both name {target}; give each a file of its own")
    for name, target in targets.items():
        if target is not None:
            check_suffix(name, target, format if name == "-o" else "")


def write_atomic(path: Path, data: bytes | Iterable[bytes], force: bool = False) -> None:
    """Write a temporary file in the same folder, then rename it over `path`; `data` may come in pieces."""
    check_target(path, force)
    real = Path(os.path.realpath(path))
    pieces = (data,) if isinstance(data, bytes) else data
    try:
        if _open_already(path) or (real.exists() and not _regular(real)):
            # A device or pipe (/dev/null, /dev/stdout) is written, not replaced.
            with path.open("wb") as stream:
                stream.writelines(pieces)
            return
        _replace(real, pieces)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask()
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


def _open_already(path: Path) -> bool:
    """Whether it stands for an open descriptor, whose pipe has no path and whose file exists."""
    return str(path).startswith(("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/"))


def _regular(path: Path) -> bool:
    return stat.S_ISREG(path.stat().st_mode)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
