"""Messages on stderr."""

from __future__ import annotations

import sys
from contextlib import suppress

#: Whether `--debug` was given: tracebacks, and no error is passed over.
debug = False


def message(text: str) -> None:
    """Print `advisor: text` on stderr. Names of files and what SQLite says of them may hold control
    characters: these never reach the terminal. An unwritable stderr is not an error."""
    from advisor.reports.layout import clean

    lines = "\n".join(clean(line) for line in text.splitlines())
    with suppress(OSError):
        print(f"advisor: {lines}", file=sys.stderr, flush=True)
