"""Tables that a narrow terminal wrapped: each of their lines is several lines of the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from advisor.sources.pasted.header import Header, header_of

_DASHES = re.compile(r"^[ \t|+]*--[ \t|+\-]*$")
#: How a row begins: with its share of the time, behind a frame or not.
_BEGINS = re.compile(r"^[ \t]*(?:\|[ \t]*)?\d{1,3}[.,]\d+%?(?:\s|$)")


def unwrapped(text: str) -> str:
    """The text with the lines of wrapped tables joined. Lines outside of them stay as they are."""
    lines, out, at = text.splitlines(), list[str](), 0
    while at < len(lines):
        rules = _rules(lines, at)
        head = _joined(lines[at - rules : at]) if rules > 1 and at >= rules else ""
        header = header_of(head) if head else None
        if header is None:
            out.append(lines[at])
            at += 1
            continue
        del out[-rules:]
        width = max(map(len, lines[at - rules : at + rules]))
        out += [head, _joined(lines[at : at + rules], width)]
        at += rules
        row: list[str] = []
        while at < len(lines) and lines[at].strip():
            if row and _BEGINS.match(lines[at]) and _complete(row, width, header):
                out.append(_joined(row, width))
                row = []
            row.append(lines[at])
            at += 1
        out.append(_joined(row, width))
    return "\n".join(out)


def _rules(lines: Sequence[str], at: int) -> int:
    """How many lines of dashes follow each other from here on."""
    n = 0
    while at + n < len(lines) and _DASHES.match(lines[at + n]):
        n += 1
    return n


def _joined(parts: Sequence[str], width: int | None = None) -> str:
    """The parts as one line; spaces at the end of a part may have been cut off."""
    width = width or max(map(len, parts), default=0)
    return "".join(part.ljust(width) for part in parts)


def _complete(parts: Sequence[str], width: int, header: Header) -> bool:
    """Whether these parts hold a cell for each column."""
    text = _joined(parts, width)
    if header.delimiter:
        return text.count(header.delimiter) > len(header.columns)
    return len(text.split()) >= len(header.columns)
