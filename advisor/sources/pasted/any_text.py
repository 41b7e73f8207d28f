"""Any text: what it holds may stand far below its beginning, behind a log or a conversation, or in the markup
of a page or a notebook."""

from __future__ import annotations

from pathlib import Path

from advisor.errors import InputError
from advisor.reading import decoded
from advisor.sources.pasted.markup import as_text
from advisor.sources.pasted.printed_tables import read_listed
from advisor.sources.pasted.profiler_sums import ProfilerSums
from advisor.sources.pasted.profiler_tables import has_headings
from advisor.sources.serving.server import ServerLoad, holds_load
from advisor.sources.trace import InMemory

_MOST_BYTES = 512 << 20


def open_text(path: Path, shown: Path) -> InMemory:
    """The table, the list or the load of a server that a text holds. Raises InputError for any other text,
    with what it looks like and what to give in its place."""
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{shown}: too large for a pasted text (more than {_MOST_BYTES >> 20} MiB)")
    text = as_text(decoded(path.read_bytes()))
    if has_headings(text):
        return ProfilerSums(shown, text)
    if holds_load(text):
        return ServerLoad(shown, text)
    return read_listed(shown, text)
