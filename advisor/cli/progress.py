"""Progress on stderr: only on a terminal, only when it takes more than a second."""

from __future__ import annotations

import sys
from threading import Timer
from types import TracebackType

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
