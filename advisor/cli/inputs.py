"""From what was typed to the captures that are meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from shutil import which

from advisor.errors import InputError

SUFFIXES = (".sqlite", ".sqlite.xz", ".sqlite.gz")
#: Other JSON lies about, too, so these are looked into.
JSON_SUFFIXES = (".json", ".json.gz", ".json.xz")


def expand(paths: Sequence[Path]) -> list[Path]:
    """The captures: files as given, folders as the captures that lie in them, each once. Where none
    lies in a folder, those in its subfolders are meant: launchers make one for each rank."""
    from advisor.sources.open import is_export_folder

    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if not path.is_dir() or is_export_folder(path):
            found.append(path)
            continue
        try:
            inside = _inside(path, [path]) or _inside(path, _subfolders(path))
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error
        if not inside:
            raise InputError(
                f"{path}: no captures (*{', *'.join(SUFFIXES)}, *.json of the PyTorch profiler) "
                "in this folder or right below it; make one with "
                "'nsys export --type sqlite REPORT.nsys-rep'"
            )
        found += inside
    return list(dict.fromkeys(found))


def _subfolders(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.iterdir()) if p.is_dir() and not p.name.startswith(".")]


def _inside(root: Path, folders: Sequence[Path]) -> list[Path]:
    """The captures that lie in the folders, and the files that were meant to be some: a rank that
    cannot be read must not go unnoticed among the others."""
    found: list[Path] = []
    others: list[Path] = []
    for folder in folders:
        captures = []
        for each in sorted(folder.iterdir()):
            if _is_capture(each):
                captures.append(each)
            elif each.name.endswith(JSON_SUFFIXES) and each.is_file():
                others.append(each)
        found += captures + _reports(folder, captures)
    series = {_series(root, path) for path in found}
    found += [path for path in others if _series(root, path) in series]
    return sorted(found, key=lambda path: folders.index(path.parent))


def _series(root: Path, path: Path) -> str:
    """The name without its numbers: equal for the files of one recording."""
    name = str(path.relative_to(root)).removesuffix(".gz").removesuffix(".xz")
    return re.sub(r"\d+", "#", name)


def _is_capture(path: Path) -> bool:
    """True for what a folder of captures may hold, and for JSON that cannot be looked into."""
    from advisor.sources.open import begins_like_profiler_json, is_export_folder

    if path.is_dir():
        return is_export_folder(path)
    if path.name.endswith(SUFFIXES):
        return path.is_file()
    if not (path.name.endswith(JSON_SUFFIXES) and path.is_file()):
        return False
    try:
        return begins_like_profiler_json(path)
    except InputError:
        return True


def _reports(folder: Path, captures: Sequence[Path]) -> list[Path]:
    """Reports of nsys that are not exported yet, where there is an nsys to read them."""
    if which("nsys") is None:
        return []
    exported = {path.name.partition(".")[0] for path in captures}
    return [p for p in sorted(folder.glob("*.nsys-rep")) if p.name.partition(".")[0] not in exported]
