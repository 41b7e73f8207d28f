"""What the package logs, as messages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from advisor.cli.messages import message


class Notes(logging.Handler):
    """Prints what the package logs, each line once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._shown:
            self._shown.add(text)
            message(f"note: {text}")


@contextmanager
def notes_printed() -> Iterator[None]:
    """Prints the notes of what runs inside."""
    notes = Notes()
    logging.getLogger("advisor").addHandler(notes)
    try:
        yield
    finally:
        logging.getLogger("advisor").removeHandler(notes)
