"""What a redacted copy keeps of an export's texts, so that its owner can judge it before passing it on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from advisor.capture.redact_command import kept_words
from advisor.capture.redact_names import commands
from advisor.capture.redact_text import MARK, Scrubber
from advisor.sources.nsys.table_map import KERNEL, NVTX, STRINGS
from advisor.sources.sqlite.pages import quoted

#: As many texts of one kind are shown, more where one may name a person, and so many letters of each.
_SHOWN, _DOUBTFUL, _LETTERS = 5, 20, 48
#: Kernels, ranges and threads: table, column with a text or the id of one, and where all of them are listed.
_NAMES = (
    ("names of kernels", KERNEL, ("demangledName", "shortName"), "advisor stats {} -r kernels"),
    ("texts of NVTX ranges", NVTX, ("text", "textId"), "advisor stats {} -r nvtx"),
    ("names of threads", "ThreadNames", ("nameId",), ""),
    ("names of processes", "PROCESSES", ("name",), ""),
)


class Kept(Struct, frozen=True):
    """`count` texts of a kind that stay, some of them in `shown`; `listed` is the command that prints all."""

    what: str
    count: int
    shown: tuple[str, ...]
    listed: str = ""


def kept_of(
    db: sqlite3.Connection,
    tables: Mapping[str, Sequence[str]],
    scrubber: Scrubber,
    ranks: Sequence[str],
    settings: Sequence[tuple[str, str]],
) -> Iterator[Kept]:
    """What stays in the copy: `ranks` are variables, `settings` those of META_DATA_CAPTURE."""
    if ranks:
        yield Kept("numbers of variables that tell the rank", len(ranks), tuple(ranks))
    words = [word for line in commands(settings) for word in kept_words(line)]
    if words := list(dict.fromkeys(words)):
        yield Kept("words of the command line", len(words), tuple(words))
    for what, table, columns, listed in _NAMES:
        texts = _texts(db, tables, table, [c for c in columns if c in tables.get(table, ())])
        if texts:
            yield Kept(what, len(texts), tuple(map(_cut, texts[:_SHOWN])), listed)
        if table == KERNEL and (
            doubtful := [(t, at) for t in texts if (at := scrubber.names_someone(t)) is not None]
        ):
            yield Kept(
                "names of kernels with a name that went elsewhere",
                len(doubtful),
                tuple(_cut(text, at) for text, at in doubtful[:_DOUBTFUL]),
                listed,
            )


def _cut(text: str, at: int = 0) -> str:
    """Some letters of a text, those about a place in it."""
    begin = max(at - _LETTERS // 2, 0) if len(text) > _LETTERS else 0
    end = begin + _LETTERS
    return f"{'…' * bool(begin)}{text[begin:end]}{'…' * (end < len(text))}"


def _texts(
    db: sqlite3.Connection, tables: Mapping[str, Sequence[str]], table: str, columns: Sequence[str]
) -> list[str]:
    """The different texts of a table that are more than a mark."""
    found: dict[str, None] = {}
    for column in columns:
        name = quoted(column)
        rows = db.execute(f"select distinct {name} from {quoted(table)} where typeof({name}) = 'text'")
        found.update((text, None) for (text,) in rows)
        if {"id", "value"} <= set(tables.get(STRINGS, ())):
            ids = f"select {name} from {quoted(table)} where typeof({name}) = 'integer'"
            rows = db.execute(f"select distinct value from {STRINGS} where id in ({ids}) order by id")
            found.update((text, None) for (text,) in rows if isinstance(text, str))
    return [text for text in found if text.strip() not in ("", MARK, f"/{MARK}")]
