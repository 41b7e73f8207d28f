"""Numbers in texts: what a pattern caught in a line of a log, a table or a report becomes a number here.
Patterns catch more than Python converts (`,,,`, thousands of digits), and no such line may end its file.
"""

from __future__ import annotations

import math
import re

#: Commas between thousands; any others say something else, such as the decimals of a locale.
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?![\d,])")
#: More digits than any number in a file of a tool has; Python refuses whole numbers of 4,301.
_MOST_DIGITS = 400
#: Whole numbers leave 64 bits here: no column holds them.
_MOST = 2**63


def read_float(text: str | bytes | None, commas: bool = True) -> float | None:
    """The finite number that a text states, with commas between thousands if they are allowed; None if it
    states none. What people type is read without: they may mean decimals."""
    plain = _plain(text, commas)
    try:
        value = math.nan if plain is None else float(plain)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_int(text: str | bytes | None, base: int = 10, commas: bool = True) -> int | None:
    """The same for a whole number of at most 64 bits."""
    plain = _plain(text, commas)
    try:
        value = None if plain is None else int(plain, base)
    except ValueError:
        return None
    return value if value is not None and abs(value) < _MOST else None


def _plain(text: str | bytes | None, commas: bool) -> str | None:
    """The text as Python converts it; None for what no tool means as a number."""
    if text is None or len(text) > _MOST_DIGITS:
        return None
    plain = text.decode("latin-1") if isinstance(text, bytes) else text
    if "," in plain:
        if not commas or not _THOUSANDS.match(plain.strip()):
            return None
        plain = plain.replace(",", "")
    return None if "_" in plain else plain


def finite(value: object) -> float | None:
    """A number of a JSON document; None for other values, and for what no `float` holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _MOST else None  # nan is not smaller
