"""Values of decoded events -> columns: exact nanoseconds, integers, ids of texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.sources.kineto.decode import Inexact
from advisor.sources.schema import MISSING

Ints = NDArray[np.int64]

#: Stands for a time that is none; no clock shows it.
NO_TIME = int(np.iinfo(np.int64).min)

#: Below this many microseconds (101 days) a float is exact to the nanosecond.
_EXACT_FLOAT = 2.0**43
_RANK = re.compile(r"\[((?:TP|DP|PP|EP)\d+(?:-(?:TP|DP|PP|EP)\d+)*)\] ")
#: Times beyond this many microseconds are none.
_LATEST = 1 << 52


def nanoseconds(microseconds: Sequence[Any]) -> Ints:
    """Microseconds as written -> ns, exactly; NO_TIME for anything else.

    Raises Inexact for floats that have lost their nanoseconds: the numbers must then be read as
    decimals.
    """
    try:
        array = np.array(microseconds)
    except (ValueError, OverflowError):
        array = np.empty(0, object)
    if array.ndim != 1:
        array = np.empty(0, object)
    if array.dtype == np.int64 and (np.abs(array) < _LATEST).all():
        return np.asarray(array * 1000)
    if array.dtype == np.float64 and (np.abs(array) < _EXACT_FLOAT).all():
        whole = np.floor(array)
        fraction = np.rint((array - whole) * 1000).astype(np.int64)
        return np.asarray(whole.astype(np.int64) * 1000 + fraction)
    return np.array([_exact(value) for value in microseconds], np.int64)


def _exact(value: Any) -> int:
    if not isinstance(value, Decimal):
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return NO_TIME
        if isinstance(value, float) and abs(value) >= _EXACT_FLOAT and not value.is_integer():
            raise Inexact
        try:
            value = Decimal(str(value))
        except InvalidOperation:
            return NO_TIME
    if not value.is_finite() or abs(value) >= _LATEST:
        return NO_TIME
    return int((value * 1000).to_integral_value())


def integer(value: Any) -> int:
    """A whole number, also from text such as `stream 7`; MISSING for anything else."""
    if isinstance(value, str):
        digits = value.strip().rpartition(" ")[2]
        value = int(digits) if digits.isascii() and digits.isdigit() else MISSING
    if isinstance(value, float | Decimal):
        try:
            value = int(value)
        except (ValueError, OverflowError):
            return MISSING
    if isinstance(value, bool) or not isinstance(value, int):
        return MISSING
    return value if -(1 << 63) <= value < 1 << 63 else MISSING


def rank_label(pid: Any) -> str | None:
    """``TP00-DP01`` of ``[TP00-DP01] 123``, as SGLang writes process ids where it merges the traces
    of its ranks (sglang/srt/utils/profile_merger.py of 0.5.23); None for any other."""
    found = _RANK.match(pid) if isinstance(pid, str) else None
    return found[1] if found else None


def rank_order(label: str) -> tuple[int, ...]:
    """Ranks in the order of the merged file: by data, expert, pipeline, then tensor parallelism."""
    parts = {part[:2]: int(part[2:]) for part in label.split("-")}
    return tuple(parts.get(kind, 0) for kind in ("DP", "EP", "PP", "TP"))


def integers(values: Sequence[Any]) -> Ints:
    """`integer` of each value, at once where all of them are whole numbers."""
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        array = np.empty(0, object)
    if array.dtype == np.int64 and array.ndim == 1 and len(array):
        return array
    return np.array([integer(value) for value in values], np.int64)


def triples(values: Sequence[Any]) -> Ints:
    """Grid or block sizes, three a row; a row of MISSING for anything else."""
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        array = np.empty(0, object)
    if array.dtype == np.int64 and array.shape == (len(values), 3):
        return array
    rows = [
        [integer(n) for n in v] if isinstance(v, list | tuple) and len(v) == 3 else [MISSING] * 3
        for v in values
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def product(sizes: Ints) -> Ints:
    """x * y * z of `triples`; MISSING where one of them is."""
    return np.where((sizes < 0).any(axis=1), MISSING, sizes.prod(axis=1))


class Pool(dict[str, int]):
    """Ids of texts, given out as the texts are met."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def ids(self, texts: Sequence[str | None]) -> Ints:
        return np.array([self[text or ""] for text in texts], np.int64)
