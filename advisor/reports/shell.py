"""Long command lines, broken so that they can still be pasted into a shell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

#: Words as the shell sees them: quotes keep spaces together.
_WORD = re.compile(r"""(?:[^\s"']|"(?:\\.|[^"])*"|'[^']*')+""")


def shell_lines(command: str, width: int, indent: int) -> list[str]:
    """The command on lines of at most `width`, each but the last ended by a backslash.

    A word that is longer than a line is broken too: a backslash before the line end joins it
    again, inside single quotes only after the quote is closed.
    """
    words = list(_units(_WORD.findall(command), width - indent - 4))
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
