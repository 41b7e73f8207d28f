"""Lines of a fixed width: wrapping, cutting and small tables, in terminal cells.

Text from a capture (kernel names, ranges, paths) is data: nothing in it is read as markup, and control
characters never reach the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from rich.cells import cell_len, chop_cells, set_cell_size

from advisor.model.kernel_labels import kernel_label
from advisor.reports.output_file import clean

if TYPE_CHECKING:
    from rich.console import Console

#: A number and its unit stay on one line.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[num]?s|[kKMGT]?i?B(?:/s)?|[kMG]?Hz|x)(?![\w-]))")
#: A space at which a line is not broken.
GLUE = "\u00a0"
#: A text column is not made narrower than this, nor one that is wrapped.
TEXT_COLUMN, WRAPPED_COLUMN = 12, 16
#: Characters between two columns of a table.
_GAP = 2

Segment = str | tuple[str, str]


class Glyphs(Struct, frozen=True):
    """Signs of a page; the plain set is for streams that cannot encode the others."""

    levels: dict[str, str]
    ok: str
    no: str
    partly: str
    arrow: str
    ellipsis: str
    dot: str
    rule: str
    bar: str


UNICODE = Glyphs(
    {"high": "▲", "medium": "◆", "low": "▽", "info": "·"}, "✓", "✗", "~", "→", "…", "·", "─", "█"
)
PLAIN = Glyphs(
    {"high": "!!", "medium": "! ", "low": "- ", "info": ". "}, "+", "x", "~", "->", "...", "|", "-", "#"
)
_ASCII = str.maketrans({UNICODE.arrow: PLAIN.arrow, UNICODE.dot: PLAIN.dot, UNICODE.ellipsis: PLAIN.ellipsis})


def wrap(text: str, width: int, first: int | None = None) -> list[str]:
    """Greedy word wrap in cells; longer words are broken. `first` is the room on the first line."""
    room = width if first is None else first
    lines: list[str] = []
    line = ""
    for word in _UNIT.sub(GLUE, clean(text)).split(" "):
        if not word:
            continue
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= room:
            line = joined
            continue
        if line or (not lines and room < width):
            lines.append(line)
            room = width
        while cell_len(word) > room:
            lines.append(chop_cells(word, room)[0])
            word = word[len(lines[-1]) :]
            room = width
        line = word
    return [part.replace(GLUE, " ") for part in (*lines, line)]


def cut_middle(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` in at most `width` cells; kernel names differ at both ends, so the middle goes."""
    text = clean(text)
    if cell_len(text) <= width:
        return text
    room = width - cell_len(ellipsis)
    if room < 2:
        return set_cell_size(text, width)
    tail = ""
    for char in reversed(text):
        if cell_len(char + tail) > room // 2:
            break
        tail = char + tail
    return set_cell_size(text, room - cell_len(tail)) + ellipsis + tail


def cut_end(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` in at most `width` cells, the end cut at a word where that costs little."""
    text = clean(text)
    if cell_len(text) <= width:
        return text
    if width <= cell_len(ellipsis):
        return ellipsis[:width]
    kept = set_cell_size(text, width - cell_len(ellipsis))
    at_word = kept.rsplit(" ", 1)[0]
    return (at_word if len(at_word) > 0.7 * len(kept) else kept).rstrip(" ,;:") + ellipsis


def pad(text: str, width: int, right: bool = False) -> str:
    """`text` filled up with spaces to `width` cells."""
    missing = width - cell_len(text)
    if missing <= 0:
        return set_cell_size(text, width)
    return " " * missing + text if right else text + " " * missing


class Styled(NamedTuple):
    """The style of the characters from `start` to `end`."""

    start: int
    end: int
    style: str


class Line(NamedTuple):
    """A finished line. It becomes one of rich only for colours: importing rich takes as long as a report."""

    plain: str
    spans: tuple[Styled, ...] = ()


class Page:
    """A growing list of lines, each at most `width` cells."""

    def __init__(self, width: int = 80, unicode: bool = True) -> None:
        self.width = max(width, 40)
        self.glyphs = UNICODE if unicode else PLAIN
        self.lines: list[Line] = []
        self._margin = 0

    @contextmanager
    def indented(self, cells: int) -> Iterator[None]:
        """Lines that begin `cells` further right."""
        self._margin += cells
        self.width -= cells
        yield
        self._margin -= cells
        self.width += cells

    def spelled(self, text: str) -> str:
        """`text` with the signs of this page in place of ours."""
        return text if self.glyphs is UNICODE else text.translate(_ASCII)

    def line(self, *segments: Segment) -> None:
        """One line of plain or ``(text, style)`` segments; text that does not fit is cut."""
        text = " " * self._margin
        spans: list[Styled] = []
        room = self.width
        for segment in segments:
            part, style = (segment, "") if isinstance(segment, str) else segment
            part = self.spelled(clean(part))
            if cell_len(part) > room:
                part = cut_end(part, room, self.glyphs.ellipsis)
            room -= cell_len(part)
            if style and part:
                spans.append(Styled(len(text), len(text) + len(part), style))
            text += part
        text = text.rstrip()
        shown = (s._replace(end=min(s.end, len(text))) for s in spans if s.start < len(text))
        self.lines.append(Line(text, tuple(shown)))

    def blank(self) -> None:
        """An empty line, never two in a row and never the first."""
        if self.lines and self.lines[-1].plain:
            self.lines.append(Line(""))

    def heading(self, text: str, note: str = "") -> None:
        self.blank()
        self.line((text, "bold underline"), (f"  {note}" if note else "", "dim"))

    def command(self, text: str) -> None:
        """A line for the shell, broken so that it can be pasted: the rest of a word that is broken begins in
        the first column, however far the page is indented."""
        margin = self._margin
        with self.indented(-margin):
            for line in shell_lines(text, self.width, margin + 2):
                self.line((line, "bold"))

    def wrapped(self, text: str, lead: Sequence[Segment] = (), indent: int = 0, style: str = "") -> None:
        """Wrapped text; `lead` precedes its first line, the others start at `indent`."""
        before = sum(cell_len(s if isinstance(s, str) else s[0]) for s in lead)
        parts = wrap(self.spelled(text), max(self.width - indent, 20), max(self.width - before, 8))
        self.line(*lead, (parts[0], style))
        for part in parts[1:]:
            self.line(" " * indent, (part, style))

    def labelled(self, label: str, text: str, indent: int = 2, label_width: int = 10) -> None:
        """A dim label and wrapped text indented behind it."""
        lead = " " * indent + pad(label, label_width)
        self.wrapped(text, [(lead, "dim")], indent + label_width)

    def table(
        self,
        heads: Sequence[str],
        columns: Sequence[tuple[list[str], bool]],
        indent: int = 2,
        styles: Mapping[str, str] = MappingProxyType({}),
        wrapped: bool = False,
        whole: bool = False,
        first: bool = False,
    ) -> None:
        """Aligned columns of ``(cells, is_number)``; text columns share the room that numbers leave.

        Columns for which there is no room are left out, from the right. `styles` are by the text of a
        cell; with `wrapped` the last column continues in the next line instead of being cut, with `whole`
        text too long for the first column gets lines of its own above the row; with `first` that column
        is made narrower last.
        """
        if not columns or not columns[0][0]:
            return
        room = self.width - indent
        widths = _widths(heads, columns, room, wrapped, whole, first)
        last = len(widths) - 1
        heads, columns, wrapped = heads[: last + 1], columns[: last + 1], wrapped and not columns[last][1]

        def row(cells: Sequence[str], style: str) -> None:
            out: list[Segment] = []
            below: list[str] = []
            if whole and cell_len(name := kernel_label(clean(cells[0]))) > widths[0]:
                for text in wrap(name, room):
                    self.line(" " * indent, text)
                cells = ["", *cells[1:]]
            for i, cell in enumerate(cells):
                number = columns[i][1]
                if i == last and wrapped:
                    shown, *below = wrap(cell, widths[i])
                else:
                    shown = cut_middle(kernel_label(cell), widths[i], self.glyphs.ellipsis)
                filled = shown if i == last and not number else pad(shown, widths[i], number)
                out += [" " * (_GAP if i else indent), (filled, style or styles.get(cell, ""))]
            self.line(*out)
            for text in below:
                self.line(" " * (indent + sum(widths[:last]) + _GAP * last), text)

        row(heads, "dim")
        for cells in zip(*(c for c, _ in columns), strict=True):
            row(cells, "")


def _widths(
    heads: Sequence[str],
    columns: Sequence[tuple[list[str], bool]],
    room: int,
    wrapped: bool,
    whole: bool,
    first: bool,
) -> list[int]:
    """How wide each column of :meth:`Page.table` is in lines of `room` characters; only those that fit."""
    widths = [
        max(cell_len(kernel_label(clean(c))) for c in (head, *cells))
        for head, (cells, _) in zip(heads, columns, strict=True)
    ]
    least = [w if columns[i][1] else min(w, TEXT_COLUMN) for i, w in enumerate(widths)]
    if wrapped:
        least[-1] = min(widths[-1], WRAPPED_COLUMN)
    while len(least) > 1 and sum(least) + _GAP * (len(least) - 1) > room:
        least.pop()
    widths = widths[: len(least)]
    last = len(widths) - 1
    wrapped = wrapped and not columns[last][1]
    while sum(widths) + _GAP * (len(widths) - 1) > room:
        spare = [widths[i] - least[i] for i in range(len(widths))]
        if wrapped and spare[last]:
            spare = [0] * last + spare[last:]
        elif whole and spare[0]:
            spare = spare[:1] + [0] * last
        elif first and any(spare[1:]):
            spare[0] = 0
        if max(spare) == 0:
            break
        widths[spare.index(max(spare))] -= 1
    return widths


def print_lines(console: Console, lines: Iterable[Line]) -> None:
    """Print finished lines unchanged; the console decides on colour."""
    from rich.text import Span, Text

    for line in lines:
        text = Text(line.plain, no_wrap=True, overflow="ignore", end="", spans=[Span(*s) for s in line.spans])
        console.print(text, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)


#: Words as the shell sees them: quotes keep spaces together, one that is not closed up to the end.
_WORD = re.compile(r"""(?s)(?:[^\s"']|"(?:\\.|[^"\\])*+(?:"|\\?\Z)|'[^']*+(?:'|\Z))+""")


def shell_lines(command: str, width: int, indent: int) -> list[str]:
    """The command on lines of at most `width`, each but the last ended by a backslash. A longer word is
    broken, too: a backslash before the line end joins it, in single quotes after the quote is closed."""
    words = list(_units(_WORD.findall(command), width - indent - 6))
    lines: list[str] = []
    line = " " * indent
    margin = " " * (indent + 2)
    for word in words:
        glue = "" if not line.strip() else " "
        if len(line) + len(glue) + len(word) <= width - 2:
            line += glue + word
            continue
        if line.strip():
            lines.append(f"{line} \\")
            line = margin
        pieces = _pieces(word, width - len(line) - 4, width - 4)
        for piece in pieces[:-1]:
            lines.append(f"{line}{piece}\\")
            line = ""
        line += pieces[-1]
    return [*lines, line]


def _units(words: Sequence[str], room: int) -> Iterator[str]:
    """The words; an option stays with the value behind it."""
    left = list(words)
    while left:
        word = left.pop(0)
        takes = word.startswith("-") and "=" not in word and left and not left[0].startswith("-")
        if takes and len(word) + 1 + len(left[0]) <= room:
            word += f" {left.pop(0)}"
        yield word


def _pieces(word: str, first: int, room: int) -> list[str]:
    if len(word) <= first:
        return [word]
    pieces: list[str] = []
    piece, quoted, limit = "", False, first
    for char in word:
        if len(piece) >= limit:
            pieces.append(piece + "'" if quoted else piece)
            piece, limit = "'" if quoted else "", room
        if char == "'":
            quoted = not quoted
        piece += char
    return [*pieces, piece]
