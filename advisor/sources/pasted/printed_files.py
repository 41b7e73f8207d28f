"""Files of printed tables that belong to one recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.errors import InputError
from advisor.reading import decoded, hold
from advisor.sources.packed import HEAD_BYTES
from advisor.sources.pasted.printed_tables import is_tables, read_tables


def as_one_recording(paths: Sequence[Path], together: bool) -> list[Path]:
    """The paths, with tables that `nsys stats` printed into several files as one capture: files without a
    report in common belong to one recording; with `together` the user said so."""
    read = {path: _pasted(path) for path in paths}
    texts = {path: text for path, text in read.items() if text is not None}
    seen: dict[str, Path] = {}
    for path, text in texts.items():
        tables = read_tables(text)
        for table in tables:
            first = seen.setdefault(table.kind, path)
            if first != path and together:
                raise InputError(f"--together: {first} and {path} both have sums of {table.report}")
            if first != path:
                return list(paths)
        if not tables and together:
            raise InputError(f"--together: {path}: no table of nsys stats with a row that can be read")
        if not tables:
            return list(paths)
    if len(texts) < 2:
        return list(paths)
    joined = Path(" + ".join(str(path) if i == 0 else path.name for i, path in enumerate(texts)))
    # nsys names files for their reports, which headings alone do not always tell.
    headed = (f"# {path.name.replace('_cuda', ' cuda')}\n{text}" for path, text in texts.items())
    hold(joined, "\n\n".join(headed).encode())
    return [joined if path in texts else path for path in paths if path not in [*texts][1:]]


def _pasted(path: Path) -> str | None:
    """The text of a file of printed tables; None for other files and for faults that the reader reports."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            return decoded(head + file.read()) if is_tables(head) else None
    except OSError:
        return None
