"""Messages on stderr, and the guard of what is written to stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from advisor.errors import InputError, one_line

#: Whether `--debug` was given: tracebacks, and every error is raised.
debug = False


def message(text: str) -> None:
    """Print `advisor: text` on stderr. Names of files and SQLite's messages may contain control
    characters: these never reach the terminal. An unwritable stderr is not an error."""
    from advisor.reports.output_file import clean

    lines = "\n".join(clean(line) for line in text.splitlines())
    with suppress(OSError):
        print(f"advisor: {lines}", file=sys.stderr, flush=True)


def exit_code(failure: str) -> int:
    """The exit code of a gate: 1 after printing to stderr why it fails, also with -q, else 0."""
    if failure:
        message(failure)
    return int(bool(failure))


#: Captures with the same error: up to this many have a line each; of more, this many are named.
_FEW = 3


def errors(lines: Sequence[str]) -> None:
    """Print an error a capture, `NAME: REASON; HINT`; of many, one line a reason."""
    alike: dict[str, list[str]] = {}
    for line in map(one_line, lines):
        alike.setdefault(line.partition(";")[0].rpartition(": ")[2], []).append(line)
    for reason, found in alike.items():
        if len(found) > _FEW:
            names = ", ".join(line.partition(f": {reason}")[0] for line in found[:_FEW])
            found = [f"{reason} ({len(found)} captures): {names}, ..."]
        for line in found:
            message(f"error: {line}")


@contextmanager
def standard_output() -> Iterator[None]:
    """A reader that has gone away is not an error; a full disk or a closed stream is one. Either way the
    rest of the buffer is discarded: it would be written again at exit."""
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise InputError(
                f"standard output: cannot be written ({error.strerror}); redirect it or use -o FILE"
            ) from error


def say(text: str) -> None:
    """Print a text on stdout."""
    with standard_output():
        print(text, flush=True)
