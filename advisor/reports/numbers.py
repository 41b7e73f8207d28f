"""Values as people read them: percent, fitting units of time, binary sizes, decimal rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from advisor.model.facts import Cell
from advisor.model.findings import ConditionDoc

TIMES = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
SIZES = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))
BANDWIDTHS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
RATES = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
IN_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
#: Units that the name of a fact or column ends in.
SUFFIXES = ("ratio", "bytes_per_s", "bytes", "per_s", "ns", "us", "ms", "hz")
#: Columns that hold a name made of digits, not an amount.
IDS = frozenset({"device", "process", "thread", "stream", "context", "graph", "rank"})
OPS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!=", "one_of": "in",
       "known": "is known:"}  # fmt: skip
UNKNOWN = "unknown"
#: How a fact must move, as `verify` names it.
CHANGES = {"decrease": "falls", "increase": "rises", "present": "appears", "absent": "disappears"}


def value_text(value: Cell, unit: str = "", digits: int = 3) -> str:
    """A value with its unit: ``value_text(0.523, "ratio")`` is ``52.3 %``."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not math.isfinite(value):
        return str(value)
    if unit == "ratio":
        return f"{percent(value, digits)} %"
    if unit == "times":
        return f"{significant(value, digits)} x"
    if unit in IN_NS:
        return _scaled(value * IN_NS[unit], TIMES, digits)
    if unit == "bytes":
        return _scaled(value, SIZES, digits)
    if unit == "bytes_per_s":
        return f"{_scaled(value, BANDWIDTHS, digits)}/s"
    if unit == "count_per_s":
        return f"{_scaled(value, RATES, digits)}/s".replace(" /s", "/s")
    if unit == "hz":
        return f"{_scaled(value, RATES, digits)}Hz"
    return grouped(value, digits)


def percent(ratio: float, digits: int = 3) -> str:
    """``0.523`` as ``52.3``, with at least one decimal, and as many as a small value needs not to
    read as zero: ``0.000234`` as ``0.02``."""
    fewest = max(1, digits - 2)
    for decimals in range(fewest, 7):
        text = f"{100.0 * ratio:.{decimals}f}"
        if ratio == 0.0 or float(text):
            return text
    return f"{100.0 * ratio:.{fewest}f}"


def grouped(value: float, digits: int = 3) -> str:
    """A count with thousands separators, with decimals only where it has some."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return significant(value, digits)


def significant(value: float, digits: int = 3) -> str:
    """Fixed point with about `digits` significant digits and thousands separators."""
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{min(max(decimals, 0), 9)}f}"


def _scaled(value: float, units: Sequence[tuple[str, float]], digits: int) -> str:
    name, size = next((u for u in units if abs(value) >= u[1]), units[-1])
    if value == 0:
        name, size = units[-1]
    scaled = value / size
    number = f"{int(scaled)}" if size == 1.0 and scaled == int(scaled) else None
    return f"{number or significant(scaled, digits)} {name}"


def amount(count: int, word: str) -> str:
    """``1 cause``, ``2 causes``."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def milliseconds(value: float) -> str:
    """A time without its unit: two decimals below 100, so that times compare at a glance."""
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.1f}"


def session_time(ns: int) -> str:
    """A place on the timeline as the Nsight Systems GUI shows it: ``1.234567s``."""
    return f"{ns / 1e9:.6f}s"


def fact_unit(fact: str, unit: str) -> str:
    """``operation.max_over_p50`` is a ratio, but 3.2 x says more than 320 %."""
    return "times" if unit == "ratio" and "_over_" in fact else unit


def named_unit(fact: str) -> str:
    """The unit that the name of a fact ends in, for values that come without one."""
    for suffix in SUFFIXES:
        if fact.endswith(f"_{suffix}"):
            return "count_per_s" if suffix == "per_s" else suffix
    return fact_unit(fact, "ratio" if "_over_" in fact else "")


def condition_parts(condition: ConditionDoc) -> tuple[str, str, str]:
    """Value, comparison and threshold, with as many digits as it takes to tell them apart."""
    c, unit = condition, fact_unit(condition.fact, condition.unit)
    limits = c.threshold if isinstance(c.threshold, tuple) else (c.threshold,)
    value, threshold = value_text(c.value, unit), ", ".join(value_text(t, unit) for t in limits)
    for digits in range(4, 9):
        # 9.96 % against 10 % must not read as 10.0 % < 10.0 %.
        if value == threshold and c.value != c.threshold and len(limits) == 1:
            value, threshold = value_text(c.value, unit, digits), value_text(limits[0], unit, digits)
    return value, OPS.get(c.op, c.op), threshold


def condition_text(condition: ConditionDoc) -> str:
    """The inequality with both its numbers: ``launch.idle_ratio 52.3 % >= 10.0 %``."""
    kind, _, name = condition.fact.partition(":")
    if name:
        return f"{kind} {name} {value_text(condition.value)}"  # symptom:queue-empty has fired
    value, op, threshold = condition_parts(condition)
    if isinstance(condition.threshold, tuple):
        threshold = f"[{threshold}]"
    return f"{condition.fact} {value} {op} {threshold}"


def heading_parts(heading: str) -> tuple[str, str]:
    """Name and unit of a column: ``total:ms`` says it, ``idle_ns`` or ``share`` end in it."""
    name, _, unit = heading.partition(":")
    if unit:
        return name.replace("_", " "), unit
    if heading == "share":
        return heading, "ratio"
    for suffix in SUFFIXES:
        if heading == suffix or heading.endswith(f"_{suffix}"):
            unit = "count_per_s" if suffix == "per_s" else suffix
            return (heading.removesuffix(suffix).rstrip("_") or suffix).replace("_", " "), unit
    return heading.replace("_", " "), ""


def column(heading: str, cells: Sequence[Cell]) -> tuple[str, list[str], bool]:
    """One column of a table: its head, its cells as text, and whether they are numbers.

    Times of one column share one unit, which the head names, so that they compare at a glance.
    """
    name, unit = heading_parts(heading)
    known = [c for c in cells if c is not None]
    if not known or any(isinstance(c, str | bool) for c in known):
        return name, [value_text(c) for c in cells], False

    def each(form: Callable[[float], str]) -> list[str]:
        return [UNKNOWN if c is None else form(float(c)) for c in cells]

    if unit in IN_NS:
        if name in ("at", "start", "end"):
            return name, each(lambda c: session_time(int(c * IN_NS[unit]))), True
        shown, size = _common_unit([abs(float(c)) * IN_NS[unit] for c in known])
        return f"{name} {shown}", each(lambda c: milliseconds(c * IN_NS[unit] / size)), True
    if name in IDS:
        return name, each(lambda c: str(int(c))), True
    return name, each(lambda c: value_text(c, unit)), True


def _common_unit(ns: Sequence[float]) -> tuple[str, float]:
    """The largest unit in which the smallest value shows, unless the largest gets too long."""
    positive = [n for n in ns if n > 0]
    if not positive:
        return "ms", 1e6
    low, high = min(positive), max(positive)
    for name, size in TIMES[:-1]:
        if low / size >= 0.1 or high / (size / 1e3) >= 1e5:
            return name, size
    return ("us", 1e3) if low >= 10 else ("ns", 1.0)
