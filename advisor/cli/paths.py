"""The captures that the paths of a command line stand for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from advisor.cli.messages import message
from advisor.errors import InputError
from advisor.reading import STDIN, hold, is_descriptor, similar

if TYPE_CHECKING:
    from advisor.config import Settings

#: All names of standard input, and the stream that was read to its end.
_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_read: object = None


def expand(paths: Sequence[Path], together: bool = False) -> list[Path]:
    """The captures: files as given, folders as all captures below them, each once. A missing file among
    several stays: its reader reports it, and the others are diagnosed."""
    from advisor.sources.open import as_captures, is_export_folder, searched

    found: list[Path] = []
    for path in paths:
        pipe = is_pipe(path)
        if len(paths) == 1 and not pipe:
            check_exists(path)
        if pipe or not path.is_dir() or is_export_folder(path):
            found.append(path)
            continue
        try:
            inside = _inside(path, list(_folders(path)))
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error
        if not inside:
            report = next(path.rglob("*.nsys-rep"), "REPORT.nsys-rep")
            raise InputError(
                f"{path}: no captures (exports and traces *{', *'.join(searched())}) in this folder "
                f"or below it; make one with 'nsys export --type sqlite {report}'"
            )
        found += inside
    return as_captures(list(dict.fromkeys(found)), together)


def check_exists(path: Path) -> None:
    """Raise InputError for a path that does not exist, with the nearest name beside it."""
    if path == STDIN:
        raise InputError("-: standard input is not read here; save it to disk first")
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: no such file or folder{similar(path)}") from None
    except OSError as error:  # links in a circle, a name that is too long
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def as_pair(paths: Sequence[Path], settings: Settings) -> tuple[Path, Settings]:
    """The capture; with --together the PyTorch trace of the same program is in the settings."""
    if len(paths) == 1 + settings.pair:
        from advisor.sources.open import is_profiler_json

        swap = settings.pair and is_profiler_json(paths[0]) and not is_profiler_json(paths[1])
        first, *second = reversed(paths) if swap else paths
        return first, replace(settings, together=second[0] if second else None)
    if settings.pair:
        raise InputError(f"--together takes two recordings of one program, not {len(paths)}")
    raise InputError(f"takes one capture, not {len(paths)}; for two recordings of one program add --together")


def _folders(root: Path) -> Iterator[Path]:
    """The folder and all below it, without hidden ones and folders that are one capture."""
    from advisor.sources.open import is_export_folder

    def refuse(error: OSError) -> None:
        raise error

    for place, below, _ in os.walk(root, onerror=refuse):
        folder = Path(place)
        yield folder
        below[:] = sorted(n for n in below if n[0] != "." and not is_export_folder(folder / n))


def is_pipe(path: Path) -> bool:
    """Whether the path is standard input or another pipe; its content is then read and kept."""
    if path != STDIN and not (path.is_fifo() and is_descriptor(path)):
        return False
    hold(path, _standard_input(path) if str(path) in _STANDARD_INPUT else path.read_bytes())
    return True


def hold_pipes(paths: Iterable[str | Path]) -> None:
    """Read the pipes among the paths, so that each can be opened as a file."""
    for path in paths:
        is_pipe(Path(path))


def _standard_input(path: Path) -> bytes:
    """Raises InputError if it is closed, or was read before: a pipe gives its content once."""
    global _read
    if sys.stdin is None:
        raise InputError(f"{path}: standard input is closed; pipe a capture into it, or name a file")
    if sys.stdin is _read:
        raise InputError(f"{path}: standard input can be read once; name the other input as a file")
    if sys.stdin.isatty():
        message("paste the tables; Ctrl-D on a line of its own ends them")
    _read = sys.stdin
    return sys.stdin.buffer.read()


def _inside(root: Path, folders: Sequence[Path]) -> list[Path]:
    """The captures in the folders, with the files and empty folders that belong to a series by name: a rank
    that cannot be read must not go unnoticed."""
    from advisor.sources.open import in_folder, searched

    found: list[Path] = []
    others: list[Path] = []
    for folder in folders:
        entries = sorted(folder.iterdir())
        captures = [each for each in entries if in_folder(each)]
        others += [e for e in entries if e not in captures and e.name.endswith(searched()) and not e.is_dir()]
        found += captures + _reports(folder, captures)
    series = {_series(root, path) for path in found}
    known = {p for path in found for p in (*path.parents, path.parent / path.name.partition(".")[0])}
    others += [folder for folder in folders if folder not in known and re.search(r"\d", folder.name)]
    series |= {name.partition(".")[0] for name in series} | {_series(root, path.parent) for path in found}
    found += [path for path in others if _series(root, path) in series]
    order = {folder: i for i, folder in enumerate(folders)}
    return sorted(found, key=lambda path: order[path.parent])


def _series(root: Path, path: Path) -> str:
    """The name without its numbers: equal for the files of one recording."""
    name = str(path.relative_to(root)).removesuffix(".gz").removesuffix(".xz")
    return re.sub(r"\d+", "#", name)


def _reports(folder: Path, captures: Sequence[Path]) -> list[Path]:
    """Reports of nsys that are not exported yet, if nsys is installed; otherwise a note names them."""
    exported = {path.name.partition(".")[0] for path in captures}
    found = [p for p in sorted(folder.glob("*.nsys-rep")) if p.name.partition(".")[0] not in exported]
    if not found or which("nsys"):
        return found
    for path in found:
        message(f"note: {path}: left out, there is no nsys to export it: nsys export --type sqlite {path}")
    return []
