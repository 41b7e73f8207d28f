"""A document as a tree of blocks, built once and written by each format."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from rich.cells import cell_len

from advisor.model.facts import Cell, Interval
from advisor.model.findings import Budget
from advisor.model.numbers import column, value_text
from advisor.model.records import Frozen

#: Texts that are aligned like numbers, and cells allowed among them.
_AMOUNT = re.compile(r"[+-]?[\d,]+(?:\.\d+)?(?: (?:%|x|[num]?s|[kMGT]?i?B|tok/s))?")
_NONE = frozenset(("", "-", "new", "gone"))


class Title(Struct, frozen=True):
    """The name of the following blocks, on one line: a path is cut in the middle."""

    text: str


class Heading(Struct, frozen=True):
    text: str
    note: str = ""


class Paragraph(Struct, frozen=True):
    """Sentences. If they are `dense` no empty line precedes them."""

    text: str
    strong: bool = False
    dense: bool = False


class Labelled(Struct, frozen=True):
    """A label and its text; with `url` the text is a link."""

    label: str
    text: str
    url: str = ""

    @property
    def shown(self) -> str:
        """Text and address, for formats without links."""
        return f"{self.text} {self.url}".strip()


def labelled(*lines: tuple[str, str | None]) -> Iterator[Labelled]:
    """Labels with their texts; empty texts are left out."""
    return (Labelled(label, text) for label, text in lines if text)


def listed(label: str, texts: Iterable[str]) -> Iterator[Labelled]:
    """Lines under one label."""
    return (Labelled("" if i else label, text) for i, text in enumerate(texts))


class Command(Struct, frozen=True):
    """A line for the shell."""

    text: str


class Number(Struct, frozen=True):
    """A cell that brings its own unit."""

    value: Cell
    unit: str


class Grid(Struct, frozen=True):
    """A table; heads contain units like those of evidence: ``before:ms``, ``share:ratio``. A column
    `severity` shows levels with their sign, `level` the sign alone, `called from` is never cut;
    `wrapped`: the last column may take several lines. `title` marks it as evidence; `item` names a row of
    a long table, for formats that can search in it; `levels` is the depth of each row of a tree, parents
    first, for formats that can fold."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell | Number, ...], ...]
    more: int = 0
    wrapped: bool = False
    title: str = ""
    item: str = ""
    levels: tuple[int, ...] = ()


class Places(Struct, frozen=True):
    """Places in the capture, most relevant first: times, texts, the number of `more` places, the clock."""

    texts: tuple[str, ...]
    ranges: tuple[Interval, ...]
    more: int = 0
    clock: str = ""

    @property
    def labelled(self) -> tuple[Labelled, ...]:
        """One line a place."""
        more = f"and {self.more} more" if self.more else ""
        clock = f"({self.clock})" if self.clock else ""
        return tuple(listed("where", filter(None, (*self.texts, more, clock))))


class Bars(Struct, frozen=True):
    """Budgets of devices: bars with the largest parts, or not `brief` with all of them. The short form draws
    `ranks` where it cannot draw all; none named: the least and the most busy."""

    budgets: tuple[Budget, ...]
    brief: bool = True
    ranks: tuple[int, ...] = ()


class Heat(Struct, frozen=True):
    """Activity from `begin` to `end`: lanes (name, mean in %, shares of 0 to 1 by bin, None if unknown)."""

    lanes: tuple[tuple[str, str, tuple[float | None, ...]], ...]
    begin: str
    end: str


class Item(Struct, frozen=True):
    """A list item: a sign (ok, no, partly, a level or another), a code, a text and its notes; `tick`:
    done or not, in a list of things to do; `below`: blocks indented under it."""

    text: str
    sign: str = ""
    code: str = ""
    notes: tuple[str, ...] = ()
    below: tuple[Block, ...] = ()
    url: str = ""
    tick: bool | None = None


class Do(Struct, frozen=True):
    """Advice: what to do, options that carry it out (engine, line, remark), how to verify it."""

    text: str
    lines: tuple[tuple[str, str, str], ...] = ()
    note: str = ""
    verify: str = ""
    label: str = "fix"


class Rule(Struct, frozen=True):
    """A line across the page, between documents."""


class Gap(Struct, frozen=True):
    """An empty line on a page of text."""


class Next(Struct, frozen=True):
    """A thing to type: the next one, or `when` another time comes."""

    text: str
    when: str = "Next:"


def fits(text: str, room: int) -> bool:
    """Whether it takes no more columns than there are."""
    return cell_len(text) <= room


def command(verb: str, path: str, rest: str, room: int) -> str:
    """``advisor show FILE 1``, with TRACE for a path that has no room: a command is never cut."""
    text = f"{verb} {shlex.quote(path)}{rest}"
    return text if fits(text, room) else f"{verb} TRACE{rest}"


def comparison(before: str, after: str, room: int) -> str:
    """``advisor compare FILE FILE``; without room for the paths, with BEFORE and AFTER."""
    text = f"advisor compare {shlex.quote(before)} {shlex.quote(after)}"
    return text if fits(text, room) else "advisor compare BEFORE AFTER"


class Entry(Struct, frozen=True):
    """A finding: number, level, name, its share in a few words (`cost`), and details that open on demand."""

    number: int
    level: str
    name: str
    note: str
    state: str
    blocks: tuple[Block, ...]
    cost: str = ""


class Fold(Struct, frozen=True):
    """A part with a heading of its own, which opens on demand in formats that can fold."""

    text: str
    note: str
    blocks: tuple[Block, ...]


Block = (
    Title
    | Heading
    | Paragraph
    | Labelled
    | Command
    | Grid
    | Places
    | Bars
    | Heat
    | Item
    | Do
    | Rule
    | Gap
    | Next
    | Entry
    | Fold
)
#: Levels of findings, and the word for those that are no fault.
LEVEL_STYLE = {"high": "bold red", "medium": "yellow", "low": "cyan", "info": "dim", "limit": "bold blue"}
STATE_STYLE = {"new": "bold magenta", "worse": "bold magenta"}


def columns(grid: Grid) -> list[tuple[str, list[str], bool]]:
    """Head, cells and whether they are numbers (or texts of numbers) of each column."""
    rows = [[value_text(c.value, c.unit) if isinstance(c, Number) else c for c in row] for row in grid.rows]
    made = [column(h, [row[i] for row in rows]) for i, h in enumerate(grid.heads)]
    return [(h, cells, n or all(c in _NONE or _AMOUNT.fullmatch(c) for c in cells)) for h, cells, n in made]


def first(rows: Sequence[tuple[Cell, ...]], limit: int | None) -> tuple[tuple[tuple[Cell, ...], ...], int]:
    """The first rows, and how many are left out."""
    kept = rows if limit is None else rows[:limit]
    return tuple(kept), len(rows) - len(kept)


class Report(Struct, frozen=True):
    """The result of a verb. `blocks`: by the width of the page in columns; `whole`: every block, if that
    is more. `details`: versions for a comment with a size limit, longest first; the first that fits is
    used. `many`: write a list even of one document; `level`: of the first heading."""

    documents: Sequence[Frozen]
    blocks: Callable[[int], Iterable[Block]]
    title: str = "advisor"
    many: bool = False
    details: Sequence[Callable[[], Iterable[Block]]] = ()
    whole: Callable[[], Iterable[Block]] | None = None
    level: int = 1
