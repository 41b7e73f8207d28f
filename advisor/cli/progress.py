"""What stderr shows while a verb works: progress on a terminal, and notes, each once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from types import TracebackType

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


PATIENCE_S = 1.0


class Progress:
    """Shows ``name: stage`` on one line that is wiped at the end."""

    def __init__(self, name: str) -> None:
        from advisor.reports.layout import clean

        self._name = clean(name)
        self._stage = "reading"
        self._shown = False
        self._timer = Timer(PATIENCE_S, self._first) if sys.stderr.isatty() else None

    def __call__(self, stage: str) -> None:
        """Tell what is being done now."""
        self._stage = stage
        if self._shown:
            self._write()

    def __enter__(self) -> Progress:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _first(self) -> None:
        self._shown = True
        self._write()

    def _write(self) -> None:
        sys.stderr.write(f"\r\x1b[K{self._name[-40:]}: {self._stage[:36]}")
        sys.stderr.flush()
