"""A capture whose texts are read without what is private in them, for reports that are passed on."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from advisor.capture.redact_text import Scrubber, path_users
from advisor.model.capture import Capture
from advisor.sources.trace import Source, Trace


def without_private(trace: Trace) -> Trace:
    """The same capture; whatever is made of it holds no folder, secret, address or name of a user."""
    return Trace(Redacted(trace.source))


def names_here() -> Iterator[str]:
    """What this machine and its user are called."""
    yield from (platform.node(), platform.node().partition(".")[0])
    with suppress(OSError, KeyError):
        yield getpass.getuser()


class Redacted:
    """Another source, each text of which goes through a `Scrubber`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        given = source.capture
        private = (
            given.path,
            *given.command,
            *(name for _, name in given.processes),
            *given.options.values(),
        )
        users = (user for text in private for user in path_users(text))
        self._scrubber = Scrubber((*names_here(), *users))
        self.capture = self._clean(given)
        self.devices = source.devices
        self.ledger = source.ledger
        self.tables = source.tables
        self.read_columns = source.read_columns
        self.close = source.close

    def text(self, ids: Sequence[int]) -> list[str]:
        return [self._scrubber.text(text) for text in self._source.text(ids)]

    def _clean(self, capture: Capture) -> Capture:
        scrubber, command = self._scrubber, capture.command
        return capture.model_copy(
            update={
                "path": scrubber.text(Path(capture.path).name),
                "command": tuple(scrubber.argument(w, " ".join(command[:i])) for i, w in enumerate(command)),
                "options": {key: scrubber.text(value) for key, value in capture.options.items()},
                "processes": tuple((pid, scrubber.program(name)) for pid, name in capture.processes),
                "warnings": tuple(map(scrubber.text, capture.warnings)),
            }
        )
