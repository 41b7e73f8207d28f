"""From what was typed to the captures that are meant."""

from __future__ import annotations

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
            inside = _inside(path) or _below(path)
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


def _inside(folder: Path) -> list[Path]:
    found = [each for each in sorted(folder.iterdir()) if _is_capture(each)]
    return found + _reports(folder, found)


def _below(folder: Path) -> list[Path]:
    shown = (each for each in sorted(folder.iterdir()) if not each.name.startswith("."))
    return [capture for each in shown if each.is_dir() for capture in _inside(each)]


def _is_capture(path: Path) -> bool:
    """True for what a folder of captures may hold."""
    from advisor.sources.open import is_export_folder, is_profiler_json

    if path.is_dir():
        return is_export_folder(path)
    if path.name.endswith(SUFFIXES):
        return path.is_file()
    return path.name.endswith(JSON_SUFFIXES) and path.is_file() and is_profiler_json(path)


def _reports(folder: Path, captures: Sequence[Path]) -> list[Path]:
    """Reports of nsys that nobody has exported yet, where there is an nsys to read them."""
    if which("nsys") is None:
        return []
    exported = {path.name.partition(".")[0] for path in captures}
    return [
        p for p in sorted(folder.glob("*.nsys-rep")) if p.name.partition(".")[0] not in exported
    ]
