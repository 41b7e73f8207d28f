"""Writing a report to a file: whole or not at all, and never over something by accident; and without
characters that could control a terminal, or that a format cannot contain."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from advisor.errors import InputError
from advisor.model.options import FORMATS
from advisor.writing import replace_file

STDOUT = Path("-")

#: Suffix -> the options and formats that write such files.
SUFFIXES = {".xlsx": ["--xlsx"], ".html": ["--html"], ".htm": ["--html"], ".csv": ["csv"]}
for _format in FORMATS:
    for _suffix in _format.suffixes:
        SUFFIXES.setdefault(_suffix, []).append(_format.name)
#: Suffixes of plain text, which any format may have.
_PLAIN = (".txt", ".text", ".log", ".out")


def check_suffix(path: Path, format: str, others: Container[str], chosen: bool) -> None:
    """Raise if -o names another kind of file than the `format` writes: one of the `others` (formats and
    options), or, unless the format was `chosen`, an unknown one."""
    suffix = path.suffix.lower()
    if path == STDOUT or suffix in _PLAIN or not suffix[1:].isalpha() or _special(path):
        return
    kinds = SUFFIXES.get(suffix, [])
    possible = [kind for kind in kinds if kind in others]
    if possible and format not in kinds:
        first = possible[0]
        instead = f"{first} {path}" if first.startswith("--") else f"--format {first}"
        raise InputError(f"-o {path}: the report is in the format {format}; use {instead}")
    if not possible and not chosen:
        raise InputError(f"-o {path}: no format of this report ends with {suffix}; choose one with --format")


def check_ending(option: str, path: Path, fitting: Collection[str]) -> None:
    """Raise if the path of an option has a suffix other than the `fitting` ones."""
    other = path.suffix and path.suffix.lower() not in fitting
    if fitting and other and path != STDOUT and not _special(path):
        raise InputError(f"{option} {path}: the name must end with {' or '.join(fitting)}")


def check_target(path: Path, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Raise InputError if `path` cannot be written, before a long analysis starts."""
    if _open_already(path):
        return
    if path.is_symlink() and not path.exists():
        raise InputError(f"{path} is a link to a file that does not exist; remove it, or name that file")
    real = Path(os.path.realpath(path))
    if any(real == Path(os.path.realpath(i)) for i in inputs):
        raise InputError(f"{path} is the capture itself; choose another file for the report")
    if real.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    if not real.parent.is_dir():
        raise InputError(f"{path}: there is no folder {real.parent}; create it first")
    if real.is_file() and not force and not _is_our_page(real):
        raise InputError(f"{path} exists; add --force to replace it")


def check_targets(targets: Mapping[str, Path | None], force: bool, inputs: Sequence[Path] = ()) -> None:
    """Every file can be written, and none twice; `targets` are by the option that names them."""
    given = {name: target for name, target in targets.items() if target is not None}
    taken: dict[Path, str] = {}
    for name, target in given.items():
        if target != STDOUT:
            check_target(target, force, inputs)
        other = taken.setdefault(target.resolve(), name)
        if other != name:
            raise InputError(f"{name} and {other} both name {target}; give each a file of its own")
    for name, target in given.items():
        check_ending(name, target, [suffix for suffix, kinds in SUFFIXES.items() if name in kinds])


def write_into_folder(path: Path, data: bytes, force: bool = False) -> None:
    """The same as `write_atomic`, with missing folders; these are removed if it fails."""
    made = [p for p in path.parents if not p.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, force)
    except (OSError, InputError) as error:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path.parent}: cannot be made ({error.strerror or error})") from error


def write_atomic(path: Path, data: bytes | Iterable[bytes], force: bool = False) -> None:
    """Write a temporary file in the same folder, then rename it over `path`; `data` may come in pieces."""
    check_target(path, force)
    real = Path(os.path.realpath(path))
    pieces = (data,) if isinstance(data, bytes) else data
    try:
        if _open_already(path) or _special(real):
            # A device or pipe (/dev/null, /dev/stdout) is written, not replaced.
            with path.open("wb") as stream:
                stream.writelines(pieces)
            return
        replace_file(real, pieces, new=not force and not real.exists())
    except FileExistsError:  # made while the report was
        raise InputError(f"{path} exists; add --force to replace it") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _is_our_page(path: Path) -> bool:
    """Whether a file is an HTML report of ours, in which nobody has written anything."""
    try:
        with path.open("rb") as file:
            return b'<meta name="generator" content="advisor ' in file.read(2048)
    except OSError:
        return False


def _open_already(path: Path) -> bool:
    """Whether the path names an open descriptor: a pipe has no folder, a file exists already."""
    return str(path).startswith(("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/"))


def _special(path: Path) -> bool:
    """A device or a pipe."""
    return path.exists() and not path.is_file()


#: Could move the cursor or reorder the line; JSON contains them unescaped.
_CONTROL = "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
_IN_JSON = re.compile(f"[{_CONTROL}]")
#: With those that JSON escapes, and those that XML cannot hold.
_UNSAFE = re.compile(f"[\x00-\x1f{_CONTROL}\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """`text` on one line, without control characters."""
    return _UNSAFE.sub(lambda m: " " if m.group() in "\t\r\n" else "?", text)


def escaped(document: str) -> str:
    """A JSON document of the same value, without characters that control a terminal."""
    if document.isascii() and "\x7f" not in document:  # most: takes no time
        return document
    return _IN_JSON.sub(lambda m: f"\\u{ord(m[0]):04x}", document)
