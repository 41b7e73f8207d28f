"""Pipes among the paths of a command line: each is read to its end, and kept under its name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from advisor.cli.messages import message
from advisor.errors import InputError
from advisor.reading import STDIN, hold, is_descriptor

#: All names of standard input, and the stream that was read to its end.
_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_read: object = None


def hold_pipes(paths: Iterable[str | Path]) -> None:
    """Read the pipes among the paths, so that each can be opened as a file. Raises InputError for standard
    input that is closed or was read before."""
    for path in map(Path, paths):
        if path == STDIN or (path.is_fifo() and is_descriptor(path)):
            hold(path, _standard_input(path) if str(path) in _STANDARD_INPUT else path.read_bytes())


def _standard_input(path: Path) -> bytes:
    """Raises InputError if it is closed, or was read before: a pipe gives its content once."""
    global _read
    if sys.stdin is None:
        raise InputError(f"{path}: standard input is closed; pipe a capture into it, or name a file")
    if sys.stdin is _read:
        raise InputError(f"{path}: standard input can be read once; name the other input as a file")
    if sys.stdin.isatty():
        message("paste the tables; Ctrl-D on a line of its own ends them")
    _read = sys.stdin
    return sys.stdin.buffer.read()
