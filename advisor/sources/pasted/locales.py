"""Numbers as locales write them: with points, commas, spaces or apostrophes between thousands, and a point
or a comma before decimals. `1,234` can be read in two ways; columns that add up decide for a whole table.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterator, Sequence
from typing import Any

from advisor.numerals import read_float
from advisor.sources.pasted.headings import Column, number, scale_of

#: A space that only separates thousands (U+00A0, U+2007, U+2009, U+202F) or an apostrophe of any kind.
_THIN = re.compile("(?<=\\d)[\u00a0\u2007\u2009\u202f'\u2019\u02bc](?=\\d{3}(?!\\d))")
_POINT = re.compile(
    r"[-+]?(?:\d+|[1-9]\d{0,2}(?:([,' ])\d{3})(?:\1\d{3})*|[1-9]\d?(?:,\d{2})*,\d{3})(?:\.\d*)?"
)
_COMMA = re.compile(r"[-+]?(?:\d+|[1-9]\d{0,2}(?:([.' ])\d{3})(?:\1\d{3})*)(?:,\d*)?")
#: What units are made of.
_LETTERS = string.ascii_letters + "\N{MICRO SIGN}\N{GREEK SMALL LETTER MU}%"
_EMPTY = ("", "-", "n/a", "N/A", "nan", "None", "null")
#: Attempts to join the words of one line, which is more than any real line needs.
_ATTEMPTS = 2_000

#: The ways to read a table: by a decimal point, by a decimal comma, and each cell as it looks.
WAYS = range(3)


def marked(text: str) -> str:
    """The text with apostrophes in place of the thin spaces between thousands."""
    return _THIN.sub("'", text)


def read(text: str, way: int) -> float:
    """A number read in one way; NaN for none. Raises ValueError for anything else."""
    text = text.strip().strip("\"'")
    if text in _EMPTY:
        return math.nan
    if way == 2:
        return number(text.replace("'", "").replace(" ", "") if re.search(r"\d[' ]\d{3}", text) else text)
    digits = text.rstrip(_LETTERS)
    unit = text[len(digits) :].lower()
    digits = digits.rstrip()
    if not (_POINT, _COMMA)[way].fullmatch(digits):
        if re.fullmatch(r"[-+]?[\d.,]+[eE][-+]?\d+", text):
            return number(text)
        raise ValueError(text)
    plain = re.sub("[,' ]" if way == 0 else "[.' ]", "", digits).replace(",", ".")
    if unit and scale_of(unit) == 1.0 and unit not in ("ns", "nsec", "b", "bytes", "%"):
        raise ValueError(text)
    if (value := read_float(plain)) is None:
        raise ValueError(text)
    return value * scale_of(unit)


def adds_up(row: dict[str, Any]) -> bool:
    """Whether the total is the count times the average."""
    count, total, average = (float(row.get(f, math.nan)) for f in ("count", "total", "average"))
    return abs(total - count * average) <= 0.01 * total + 1.0


def score(rows: Sequence[dict[str, Any] | None]) -> tuple[int, int, int]:
    """How well rows read in one way hold together: rows that could be read, those that add up, and those
    whose counts are whole numbers."""
    read_ = [row for row in rows if row is not None]
    whole = sum(float(row.get("count", 0)).is_integer() for row in read_)
    return len(read_), sum(map(adds_up, read_)), whole


def joined(words: Sequence[str], columns: Sequence[Column | None]) -> list[str] | None:
    """The cells of a line whose numbers have spaces between thousands, of which the last is text: the words
    that belong together are those with which the total is the count times the average; None if none are."""
    attempts = 0
    for cells, rest in _joins(list(words), len(columns) - 1):
        attempts += 1
        if attempts > _ATTEMPTS:
            return None
        for way in WAYS[:2]:
            try:
                known = zip(columns, cells, strict=False)
                row = {c.field: read(cell, way) * c.scale for c, cell in known if c and c.field != "word"}
            except ValueError:
                continue
            if adds_up(row) and _in_order(row):
                return [*cells, " ".join(rest)]
    return None


def _in_order(row: dict[str, float]) -> bool:
    """Whether the spread of the values is possible, as far as it is known."""
    least, most = row.get("least", 0.0), row.get("most", math.inf)
    between = all(least <= row.get(f, least) <= most for f in ("median", "average"))
    return between and row.get("deviation", 0.0) <= most


def _joins(words: list[str], wanted: int) -> Iterator[tuple[list[str], list[str]]]:
    """The ways to take `wanted` numbers from the beginning of `words`, and the words that are left."""
    if not wanted:
        if words and not re.fullmatch(r"\d[\d.,]*", words[0]):
            yield [], words
        return
    if words and re.match(r"0\d", words[0]):  # the middle of a number
        return
    for n in range(1, min(len(words), 7) + 1):
        if n > 1 and not (re.fullmatch(r"\d{3}(?:[.,]\d+)?", words[n - 1]) and _grouped(words[: n - 1])):
            return
        for cells, rest in _joins(words[n:], wanted - 1):
            yield [" ".join(words[:n]), *cells], rest


def _grouped(words: Sequence[str]) -> bool:
    """Whether these are the first groups of a number: up to three digits, then three each."""
    return re.fullmatch(r"[-+]?\d{1,3}", words[0]) is not None and all(
        re.fullmatch(r"\d{3}", w) for w in words[1:]
    )
