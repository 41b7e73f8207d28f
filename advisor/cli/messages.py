"""Messages on stderr."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

#: Whether `--debug` was given: tracebacks, and no error is passed over.
debug = False


class Notes(logging.Handler):
    """Prints what the package logs, each line once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            message(f"note: {text}")


def message(text: str) -> None:
    """Print `advisor: text` on stderr. Names of files and what SQLite says of them may hold control
    characters: these never reach the terminal. A stderr that cannot be written is no error."""
    from advisor.reports.layout import clean

    lines = "\n".join(clean(line) for line in text.splitlines())
    with suppress(OSError):
        print(f"advisor: {lines}", file=sys.stderr, flush=True)
