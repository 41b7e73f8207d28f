"""Numbers in texts: what a pattern caught in a line of a log, a table or a report becomes a number here.
Patterns catch more than Python converts (`,,,`, thousands of digits), and no such line may end its file.
"""

from __future__ import annotations

import math

#: More digits than any number in a file of a tool has; Python refuses whole numbers of 4,301.
_MOST_DIGITS = 400
#: Whole numbers leave 64 bits here: no column holds them.
_MOST = 2**63


def read_float(text: str | None) -> float | None:
    """The finite number that a text states, commas between thousands allowed; None if it states none."""
    if text is None or len(text) > _MOST_DIGITS:
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_int(text: str | None, base: int = 10) -> int | None:
    """The same for a whole number of at most 64 bits."""
    if text is None or len(text) > _MOST_DIGITS:
        return None
    try:
        value = int(text.replace(",", ""), base)
    except ValueError:
        return None
    return value if abs(value) < _MOST else None


def finite(value: object) -> float | None:
    """A number of a JSON document; None for other values, and for what no `float` holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _MOST else None  # nan is not smaller
