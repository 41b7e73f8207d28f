"""From what was typed to the captures that are meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.errors import InputError

SUFFIXES = (".sqlite", ".sqlite.xz", ".sqlite.gz")


def expand(paths: Sequence[Path]) -> list[Path]:
    """The captures: files as given, folders as the captures that lie in them, each once."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.name.endswith(SUFFIXES) and p.is_file())
            if not inside:
                raise InputError(
                    f"{path}: no captures (*{', *'.join(SUFFIXES)}) in this folder; "
                    "make one with 'nsys export --type sqlite REPORT.nsys-rep'"
                )
            found += inside
        elif not path.exists():
            raise InputError(f"{path}: no such file or folder")
        else:
            found.append(path)
    return list(dict.fromkeys(found))
