"""Facts that cannot be: shares beyond 0 to 1, counts below 0, totals that no capture reaches."""

from __future__ import annotations

import math
from typing import Any

#: Ratios of two quantities that are no parts of each other, by what their names hold.
_NO_SHARES = ("_over_", "_per_", "drift.", "rate_ratio")
#: Differences, which may lie below 0.
_SIGNED = ("drift.", "offset", "skew")
#: Sums of shares are rounded.
_ROUNDED = 1e-6
#: Unit -> what no capture holds more of: ten years, an exbibyte, 10 PB/s, the whole numbers of a float.
_MOST = {
    "ms": 10 * 365 * 86_400e3,
    "ns": 10 * 365 * 86_400e9,
    "bytes": 2.0**60,
    "bytes_per_s": 1e16,
    "count": 2.0**53,
    "count_per_s": 2.0**53,
}


def impossible(document: dict[str, Any]) -> list[str]:
    """`name = value` of each fact of `facts --format json` that cannot be."""
    found = []
    for fact in document["facts"]:
        name, value, unit = fact["name"], fact["value"], fact["unit"]
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        share = unit == "ratio" and not any(word in name for word in _NO_SHARES)
        most = 1 + _ROUNDED if share else _MOST.get(unit, math.inf)
        least = -math.inf if any(word in name for word in _SIGNED) else -_ROUNDED
        if not (math.isfinite(value) and least <= value <= most):
            found.append(f"{name} = {value:g}")
    return found


def called_damaged(document: dict[str, Any]) -> bool:
    """Whether a diagnosis says that its capture is damaged."""
    return any(f["cause"] == "damaged-capture" for f in document.get("findings", ()))
