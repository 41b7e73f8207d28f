"""What stderr shows while a verb works: progress on a terminal, and notes, each once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from types import TracebackType

from advisor.cli.messages import message
from advisor.reading import READING


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


#: Nothing is shown before the first; then the line is refreshed at the second interval.
PATIENCE_S, EVERY_S = 1.0, 0.5


class Progress:
    """Shows ``name: reading kernels, 120 MiB, 12 s`` on one line that is wiped at the end."""

    def __init__(self, name: str) -> None:
        from advisor.reports.layout import clean

        self._name = clean(name)[-30:]
        self._stage = "reading"
        self._begun = monotonic()
        self._before = READING.count
        self._ended = Event()
        self._thread = Thread(target=self._show, daemon=True) if sys.stderr.isatty() else None

    def __call__(self, stage: str) -> None:
        """Name the current stage."""
        self._stage = stage

    def __enter__(self) -> Progress:
        READING.doing = self._stage
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._ended.wait(PATIENCE_S):
            return
        while True:
            sys.stderr.write(f"\r\x1b[K{self.line()[:79]}")
            sys.stderr.flush()
            if self._ended.wait(EVERY_S):
                break
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    def line(self) -> str:
        """The stage, or what is being read or measured; bytes read, and time since the beginning."""
        from advisor.model.numbers import value_text

        doing = READING.doing if self._stage == "reading" else self._stage[:36]
        count = READING.count - self._before
        parts = (doing, value_text(count, "bytes") if count else "")
        elapsed = f"{monotonic() - self._begun:.0f} s"
        return f"{self._name}: {', '.join(p for p in (*parts, elapsed) if p)}"
