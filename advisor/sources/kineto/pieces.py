"""A large PyTorch profiler trace read in pieces: its JSON is never held whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from advisor.reading import READING
from advisor.sources.kineto.decode import BYTE_ORDER_MARK, HEAD, RAW_EVENTS, Head, TraceJson

#: Files of at least this many bytes are read in pieces, of this many bytes each.
LARGE = 64 << 20
_PIECE = 4 << 20
#: Places at which a piece is tried to be cut, and how many pieces may come without one.
_TRIES, _UNCUT = 4, 3

_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_AFTER_AN_EVENT = re.compile(rb"\}\s*,\s*\Z")
#: White space between two events is shorter.
_BETWEEN = 64


class NotPlain(Exception):
    """The file has another form, or a fault: only the whole of it can be judged."""


class InPieces(TraceJson):
    """The JSON of one trace, read in pieces. `head` has what stands before the events, and once all parts are
    read also what stands behind them. Raises NotPlain, at any time, if it has to be read at once."""

    def __init__(self, path: Path, shown: Path) -> None:
        self._begin_of(shown)
        self._path = path
        with path.open("rb") as file:
            first = file.read(_PIECE)
        begin = _BEGIN.search(first)
        if begin is None:
            raise NotPlain
        self.head = _decoded(first[: begin.start()].removeprefix(BYTE_ORDER_MARK) + b'"traceEvents":[]}')
        self._offset = begin.end()

    def _events(self) -> Iterator[list[msgspec.Raw]]:
        size, rest = self._path.stat().st_size, b""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while block := file.read(_PIECE):
                rest += block
                READING.doing = f"reading events, {100 * (file.tell() - len(rest)) / size:.0f} %"
                events, cut = _cut(rest)
                if cut:
                    yield events
                    rest = rest[cut:]
                elif len(rest) > _UNCUT * _PIECE:
                    raise NotPlain
        if b'"traceEvents"' in rest:  # twice
            raise NotPlain
        behind = _decoded(b'{"traceEvents":[' + rest)
        yield behind.traceEvents or []
        found = {n: v for n in Head.__struct_fields__ if (v := getattr(behind, n)) is not None}
        self.head = replace(self.head, **found | {"traceEvents": []})


def _cut(text: bytes) -> tuple[list[msgspec.Raw], int]:
    """The whole events at the begin of a text that begins with an event, and where the next one begins; none
    and 0 if no such place is found. What reads as a list of values up to there ends with one."""
    at = len(text)
    for _ in range(_TRIES):
        while (at := text.rfind(b"{", 0, at)) > 0:
            if hit := _AFTER_AN_EVENT.search(text, max(at - _BETWEEN, 0), at):
                break
        else:
            break
        try:
            return RAW_EVENTS.decode(b"[" + text[: hit.start() + 1] + b"]"), at
        except (msgspec.DecodeError, RecursionError):
            continue
    return [], 0


def _decoded(text: bytes) -> Head:
    try:
        return HEAD.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotPlain from error
