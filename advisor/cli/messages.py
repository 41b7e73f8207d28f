"""Messages on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

#: Whether `--debug` was given: tracebacks, and every error is raised.
debug = False


def message(text: str) -> None:
    """Print `advisor: text` on stderr. Names of files and SQLite's messages may contain control
    characters: these never reach the terminal. An unwritable stderr is not an error."""
    from advisor.reports.output_file import clean

    lines = "\n".join(clean(line) for line in text.splitlines())
    with suppress(OSError):
        print(f"advisor: {lines}", file=sys.stderr, flush=True)


#: Captures with the same error: up to this many have a line each; of more, this many are named.
_FEW = 3


def errors(lines: Sequence[str]) -> None:
    """Print an error a capture, `NAME: REASON; HINT`; of many, one line a reason."""
    alike: dict[str, list[str]] = {}
    for line in lines:
        alike.setdefault(line.partition(";")[0].rpartition(": ")[2], []).append(line)
    for reason, found in alike.items():
        if len(found) > _FEW:
            names = ", ".join(line.partition(f": {reason}")[0] for line in found[:_FEW])
            found = [f"{reason} ({len(found)} captures): {names}, ..."]
        for line in found:
            message(f"error: {line}")
