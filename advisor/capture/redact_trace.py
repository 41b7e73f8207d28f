"""A capture read without what is private in it (`--redact`), or without its credentials (`doctor`)."""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from advisor.capture import redact_command
from advisor.capture.redact_names import commands, file_names, names_of
from advisor.capture.redact_text import MARK, Scrubber, credentials, is_identifying
from advisor.model.arrays import distinct
from advisor.model.capture import Capture
from advisor.sources.schema import MISSING
from advisor.sources.trace import Around, Source, Trace

#: Columns with names of kernels, in which a word is no person.
_OF_KERNELS = ("name_id", "short_name_id")


def without_private(trace: Trace) -> Trace:
    """The same capture; nothing made of it contains a folder, secret, address or name of a user."""
    return Trace(Redacted(trace.source))


def without_credentials(trace: Trace) -> Trace:
    """The same capture; nothing made of it contains a credential that its shape or name gives away."""
    return Trace(Masked(trace.source))


def names_here() -> Iterator[str]:
    """Names of this machine and its user."""
    yield from (platform.node(), platform.node().partition(".")[0])
    with suppress(OSError, KeyError):
        yield getpass.getuser()


def unread_name(path: Path) -> str:
    """The name of a file that cannot be read, without names of this machine and of the one that wrote it."""
    return without_names(path.name, {*names_here(), *file_names(path.name)})


def without_names(name: str, words: Iterable[str]) -> str:
    """The name of a file, in which dashes and underscores part words."""
    for word in sorted(filter(is_identifying, words), key=len, reverse=True):
        name = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", MARK, name)
    return name


class Redacted(Around):
    """Another source, whose texts go through a `Scrubber` that knows the names in the file's own rows."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        given, owner = source.capture, source.owner()
        processes = tuple(name for _, name in (*given.processes, *given.threads))
        texts = (given.path, *given.command, *processes, *given.options.values(), *owner.texts)
        lines = list(commands(owner.settings)) or [list(given.command)]
        found = [names_of(owner.settings, texts), *(names_of((), (), line) for line in lines)]
        words = {word for names in found for word in names.words}
        self._words = {*words, *names_here(), *file_names(Path(given.path).name)}
        self._scrubber = Scrubber(self._words, {s for names in found for s in names.secrets})
        self._kernels: frozenset[int] | None = None
        self.capture = self._clean(given)

    def text(self, ids: Sequence[int]) -> list[str]:
        kernels, scrubber, given = self._kernel_names(), self._scrubber, self._source.text(ids)
        clean = [
            scrubber.name(text) if number in kernels else scrubber.text(text)
            for number, text in zip(map(int, ids), given, strict=True)
        ]
        return [
            text or (old and MARK) for text, old in zip(clean, given, strict=True)
        ]  # an empty name is damage

    def _kernel_names(self) -> frozenset[int]:
        """Ids of the names of kernels."""
        if self._kernels is None:
            found: set[int] = set()
            if "kernels" in self._source.tables():
                for column in self._source.read_columns("kernels", _OF_KERNELS).values():
                    found.update(distinct(column).tolist())
            self._kernels = frozenset(found - {MISSING})
        return self._kernels

    def _clean(self, capture: Capture) -> Capture:
        scrubber = self._scrubber
        return capture.replaced(
            path=scrubber.text(without_names(Path(capture.path).name, self._words)),
            command=tuple(redact_command.clean(capture.command, scrubber)),
            options={key: scrubber.text(value) for key, value in capture.options.items()},
            processes=tuple((pid, scrubber.program(name)) for pid, name in capture.processes),
            threads=tuple((thread, scrubber.text(name)) for thread, name in capture.threads),
            warnings=tuple(map(scrubber.text, capture.warnings)),
        )


class Masked(Around):
    """Another source, from whose command line, settings and texts credentials are taken out."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        given = source.capture
        self.capture = given.replaced(
            command=tuple(masked(given.command)),
            options={key: credentials(value) for key, value in given.options.items()},
            processes=tuple((pid, credentials(name)) for pid, name in given.processes),
            threads=tuple((thread, credentials(name)) for thread, name in given.threads),
            warnings=tuple(map(credentials, given.warnings)),
        )

    def text(self, ids: Sequence[int]) -> list[str]:
        return [credentials(text) for text in self._source.text(ids)]


def masked(command: Sequence[str]) -> Iterator[str]:
    """The words of a command line without credentials."""
    for number, word in enumerate(command):
        yield redact_command.without_credential(
            word, command[max(number - redact_command.BEFORE, 0) : number]
        )
