"""Tables that a narrow terminal wrapped: each of their lines is several lines of the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from advisor.sources.pasted.header import Header, header_of

_DASHES = re.compile(r"^[ \t|+]*--[ \t|+\-]*$")
#: A line of dashes alone, and a piece of one, which a break may leave with a single dash.
_RULE, _PIECE = re.compile(r"^ *---[ \-]*$"), re.compile(r"^ *-[ \-]*$")
_ENDS = re.compile(r"^Self \w+ time total:|^```|^\s*$")
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


def unwrapped_between(text: str, is_head: Callable[[str], bool]) -> str:
    """The text with the rows joined of tables whose headings stand between two lines of dashes, as those of
    the PyTorch profiler do, and whose rows are all as wide as these. `is_head` knows a line of headings."""
    lines, out, at = text.splitlines(), list[str](), 0
    while at < len(lines):
        parts = _pieces(lines, at)
        width = max(map(len, lines[at : at + parts]), default=0)
        head = _joined(lines[at + parts : at + 2 * parts], width)
        if parts < 2 or not is_head(head):
            out.append(lines[at])
            at += 1
            continue
        rule = _joined(lines[at : at + parts], width)
        out += [rule, head, rule]
        at += 2 * parts + _pieces(lines, at + 2 * parts)
        while at < len(lines) and not _pieces(lines, at) and not _ENDS.match(lines[at]):
            out.append(_joined(lines[at : at + parts], width))
            at += parts
        out.append(rule)
        at += _pieces(lines, at)
    return "\n".join(out)


def _pieces(lines: Sequence[str], at: int) -> int:
    """How many lines from here on are pieces of one line of dashes."""
    n = 0
    while at + n < len(lines) and (_RULE if n == 0 else _PIECE).match(lines[at + n]):
        n += 1
    return n
