"""One normal form of values for both engines, so that their results can never differ.

An :data:`Atom` is a finite float or a text. Numbers and flags become floats (durable-rules compares
integers and floats through its own conversions), and a float whose shortest text the engine's
JSON reader refuses (``1e-05``, ``1e+16``) moves up to the next one that it reads: the same
small step for facts and thresholds, in both engines.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

Atom = float | str
Operand = Atom | tuple[str, ...]

#: Comparisons of two values of one class, by operator.
ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
_OPPOSITES = {"lt": "ge", "le": "gt", "eq": "ne"}
#: `unless` is compiled to presence and the complementary comparison: no negation in the engines.
COMPLEMENT = {**_OPPOSITES, **{b: a for a, b in _OPPOSITES.items()}, "one_of": "none_of"}


def atom(value: Any) -> Atom | None:
    """The normal form of a raw value; None (unknown) for NaN, infinities and anything but a scalar."""
    if isinstance(value, str):
        return value
    if not isinstance(value, bool | int | float) and hasattr(value, "item"):
        value = value.item()  # an unexpected NumPy scalar
    if not isinstance(value, bool | int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    text = repr(number)
    while "e" in text and "." not in text:
        number = math.nextafter(number, math.inf)
        text = repr(number)
    return number


def operand(value: Any) -> Operand:
    """The normal form of a threshold, which the rule schema has already validated."""
    if isinstance(value, tuple):
        return value
    found = atom(value)
    if found is None:
        raise ValueError(f"{value!r} is not a threshold")
    return found


def is_text(threshold: Operand) -> bool:
    return not isinstance(threshold, float)


def compare(value: Atom | None, op: str, threshold: Operand) -> bool | None:
    """``value op threshold`` in three-valued logic; a value of the wrong class is unknown. `known`
    asks whether there is a value, and is never unknown itself."""
    if op == "known":
        return (value is not None) == bool(threshold)
    if value is None or isinstance(value, str) != is_text(threshold):
        return None
    if isinstance(threshold, tuple):
        return (value in threshold) == (op == "one_of")
    return ORDER[op](value, threshold)


def key(value: Any) -> str | None:
    """Identity of a joined field: texts and integers only, and 1 is not "1"; None otherwise."""
    if isinstance(value, str):
        return f"s{value}"
    if not isinstance(value, bool | int | float) and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool):
        return f"i{value}"
    return None


def k_and(*values: bool | None) -> bool | None:
    """Kleene conjunction: one false decides, else one unknown leaves it open."""
    if any(v is False for v in values):
        return False
    return None if any(v is None for v in values) else True


def k_or(*values: bool | None) -> bool | None:
    """Kleene disjunction: one true decides, else one unknown leaves it open."""
    if any(v is True for v in values):
        return True
    return None if any(v is None for v in values) else False


def k_not(value: bool | None) -> bool | None:
    return None if value is None else not value
