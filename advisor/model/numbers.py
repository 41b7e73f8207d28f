"""Values as printed, in messages and in every report: the one place where a number becomes text.

Percent, fitting units of time, binary sizes, decimal rates; three significant digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from advisor.model.facts import Cell
from advisor.model.findings import ConditionDoc, Finding, Gain
from advisor.model.gain import perhaps_saved

#: Significant digits of a value in a text.
MOST = 3
TIMES = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
#: Up to how many nanoseconds each unit is used, and its length.
_DURATIONS = (
    (1e3, "ns", 1.0), (1e6, "us", 1e3), (1e9, "ms", 1e6), (300e9, "s", 1e9), (7200e9, "min", 60e9),
    (172800e9, "h", 3600e9),
)  # fmt: skip
#: Unit -> the factor between its multiples and their names.
_SCALES: dict[str, tuple[float, tuple[str, ...]]] = {
    "bytes": (1024.0, ("B", "KiB", "MiB", "GiB", "TiB")),
    "bytes_per_s": (1000.0, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")),
    "count_per_s": (1000.0, ("/s", "k/s", "M/s", "G/s", "T/s")),
    "hz": (1000.0, ("Hz", "kHz", "MHz", "GHz", "THz")),
}
IN_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
#: Units that the name of a fact or column ends in.
SUFFIXES = ("ratio", "bytes_per_s", "bytes", "per_s", "ns", "us", "ms", "hz")
#: Columns that hold a name made of digits, not an amount.
IDS = frozenset({"device", "process", "thread", "stream", "context", "graph", "rank"})
OPS = {
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "=",
    "ne": "!=",
    "one_of": "in",
    "known": "is known:",
}
#: What stands before the threshold of a condition that does not hold.
_LIMITS = {
    "gt": "limit",
    "ge": "limit",
    "lt": "minimum",
    "le": "minimum",
    "eq": "a finding if",
    "ne": "a finding if not",
    "one_of": "a finding if one of",
}
UNKNOWN = "unknown"
#: How a fact must move, as `verify` names it.
CHANGES = {"decrease": "falls", "increase": "rises", "present": "appears", "absent": "disappears"}


def value_text(value: Cell | tuple[Cell, ...], unit: str = "", most: int = MOST) -> str:
    """A value with its unit, in `most` significant digits: ``value_text(0.523, "ratio")`` is ``52.3 %``."""
    if value is None:
        return UNKNOWN
    if isinstance(value, tuple):
        return ", ".join(value_text(v, unit, most) for v in value)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not math.isfinite(value):
        return str(value)
    if unit == "ratio":
        return percent(value, most)
    if unit == "times":
        return f"{times(value) if most == MOST else digits(value, most)} x"
    if unit in IN_NS:
        return duration(value * IN_NS[unit], most)
    if unit in _SCALES:
        return _scaled(value, *_SCALES[unit], most)
    return digits(value, most)


def percent(ratio: float, most: int = MOST) -> str:
    """``0.0312`` as ``3.12 %``, ``0.34`` as ``34 %``, ``0.000234`` as ``0.02 %``."""
    value = 100.0 * ratio
    # Only what is below 1 % is cut at a hundredth: rounded twice, 11.4528 would be 11.4.
    return f"{digits(value if abs(value) >= 1 else round(value, most - 1), most)} %"


def perhaps_text(gain: Gain | None) -> str:
    """``perhaps up to 26 % of the step: time one run without the profiler (--unprofiled-step)``; empty where
    the fix saves much, or surely little."""
    most = perhaps_saved(gain)
    if gain is None or most is None:
        return ""
    how = ": time one run without the profiler (--unprofiled-step)" if gain.traced else ""
    return f"perhaps up to {percent(most)} of the {gain.of}{how}"


def certainty(ratio: float) -> str:
    """A confidence of 0..1 in words: ``71 % sure``."""
    return f"{round(100.0 * ratio)} % sure"


def percent_range(ratios: Sequence[float]) -> str:
    """The least and the greatest: ``14.4 to 59.9 %``; one number if both are printed alike."""
    ends = dict.fromkeys(percent(r) for r in (min(ratios), max(ratios)))
    return " to ".join(ends).replace(" %", "", len(ends) - 1)


def signed(ratio: float, sign: bool = True) -> str:
    """A change in per cent, without the sign for it: ``-83.7``, ``+2.3``, ``+513``."""
    return difference(100.0 * ratio, 0 if abs(ratio) >= 1 else 1, sign)


def difference(value: float, decimals: int, sign: bool = True) -> str:
    """A change, with its sign if asked for; one that is rounded to nothing is not negative."""
    value = round(value, decimals) + 0.0
    return f"{value:+,.{decimals}f}" if sign else f"{value:,.{decimals}f}"


def times(value: float) -> str:
    """How many times as fast or large: two decimals, so that speed-ups are easy to compare."""
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"


def duration(ns: float, most: int = MOST) -> str:
    """Nanoseconds in a fitting unit."""
    name, size = next(((n, size) for limit, n, size in _DURATIONS if abs(ns) < limit), ("days", 86400e9))
    return f"{digits(ns / size, most)} {name}"


def megahertz(hz: float) -> str:
    """A clock as data sheets state it: ``1,980 MHz``."""
    return f"{hz / 1e6:,.0f} MHz"


def digits(value: float, most: int = MOST) -> str:
    """At most this many significant digits, whole numbers in full, thousands separated."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    decimals = min(max(most - 1 - math.floor(math.log10(abs(value))), 0), 9)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def _scaled(value: float, step: float, names: tuple[str, ...], most: int) -> str:
    at = 0
    while abs(value) >= step and at < len(names) - 1:
        value /= step
        at += 1
    return f"{digits(value, most)} {names[at]}"


def distance(off: float) -> str:
    """How far a value is from its threshold, relative to it: ``off by 5.4 % of the threshold``."""
    if off == 0.0:
        return "exactly on it"
    if off >= 10:
        return f"off by {digits(off)} times the threshold"
    return f"off by {percent(off, 3 if off >= 0.0001 else 7)} of the threshold"


def amount(count: int, word: str) -> str:
    """``1 cause``, ``2 causes``."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def first_few(texts: Sequence[str], most: int) -> str:
    """``a, b, c and 3 more``: at most this many of them."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def found_and_noted(findings: Sequence[Finding]) -> list[str]:
    """``["2 findings", "1 part of them", "1 note"]``: notes, those of severity info, and findings that are
    only a part of another one, only if there are any."""
    notes = sum(f.severity == "info" for f in findings)
    parts = sum(f.severity != "info" and f.only_part for f in findings)
    found = len(findings) - notes - parts
    more = [
        (parts, amount(parts, "part") + f" of {'it' if found == 1 else 'them'}"),
        (notes, amount(notes, "note")),
    ]
    return [amount(found, "finding"), *(text for count, text in more if count)]


def milliseconds(value: float) -> str:
    """A time without its unit: two decimals below 100, so that times compare easily, three below 1."""
    decimals = 1 if abs(value) >= 100 else 2 if abs(value) >= 1 or value == 0 else 3
    return f"{value:,.{decimals}f}"


def session_time(ns: int) -> str:
    """A place on the timeline as the Nsight Systems GUI shows it: ``1.234567s``."""
    return f"{ns / 1e9:.6f}s"


def fact_unit(fact: str, unit: str) -> str:
    """``operation.max_over_p50`` is a ratio, but 3.2 x says more than 320 %."""
    return "times" if unit == "ratio" and "_over_" in fact else unit


def named_unit(fact: str) -> str:
    """The unit in the suffix of a fact's name, for values without one."""
    suffix = _suffix_of(fact)
    return _unit_of(suffix) if suffix else fact_unit(fact, "ratio" if "_over_" in fact else "")


def _suffix_of(name: str) -> str:
    return next((s for s in SUFFIXES if name == s or name.endswith(f"_{s}")), "")


def _unit_of(suffix: str) -> str:
    return "count_per_s" if suffix == "per_s" else suffix


def condition_parts(condition: ConditionDoc) -> tuple[str, str, str]:
    """Value, comparison and threshold, with as many digits as it takes to tell them apart."""
    c, unit = condition, fact_unit(condition.fact, condition.unit)
    limits = c.threshold if isinstance(c.threshold, tuple) else (c.threshold,)
    value, threshold = value_text(c.value, unit), ", ".join(value_text(t, unit) for t in limits)
    for most in range(MOST + 1, 9):
        # 9.996 % against 10 % must not read as 10 % < 10 %.
        if value == threshold and c.value != c.threshold and len(limits) == 1:
            value, threshold = value_text(c.value, unit, most), value_text(limits[0], unit, most)
    return value, OPS.get(c.op, c.op), threshold


def condition_text(condition: ConditionDoc) -> str:
    """The inequality with both its numbers: ``launch.idle_ratio 52.3 % >= 10 %``."""
    kind, _, name = condition.fact.partition(":")
    if name:
        return f"{kind} {name} {value_text(condition.value)}"  # symptom:queue-empty has fired
    value, op, threshold = condition_parts(condition)
    if isinstance(condition.threshold, tuple):
        threshold = f"[{threshold}]"
    return f"{condition.fact} {value} {op} {threshold}"


def limit_text(condition: ConditionDoc) -> str:
    """A condition of a rule that found nothing: the inequality where it holds (``budget.busy_ratio 15.2 % <
    50 %``), else value and limit, as ``host.gap_ratio 0.46 %, limit 10 %``."""
    value, _, threshold = condition_parts(condition)
    if condition.holds and condition.op == "eq":
        return f"{condition.fact} {value}"
    lead = _LIMITS.get(condition.op)
    if condition.holds is not False or lead is None or ":" in condition.fact:
        return condition_text(condition)
    return f"{condition.fact} {value}, {lead} {threshold}"


def heading_parts(heading: str) -> tuple[str, str]:
    """Name and unit of a column: ``total:ms`` says it, ``idle_ns`` or ``share`` end in it."""
    name, _, unit = heading.partition(":")
    if unit:
        return name.replace("_", " "), unit
    if heading == "share":
        return heading, "ratio"
    suffix = _suffix_of(heading)
    return (heading.removesuffix(suffix).rstrip("_") or suffix).replace("_", " "), _unit_of(suffix)


def column(heading: str, cells: Sequence[Cell]) -> tuple[str, list[str], bool]:
    """One column of a table: its head, its cells as text, and whether they are numbers.

    Times of one column share one unit, which the head names, so that they compare at a glance."""
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
        return f"{name} {shown}", each(lambda c: aligned(c * IN_NS[unit] / size)), True
    if name in IDS:
        return name, each(lambda c: str(int(c))), True
    return name, each(lambda c: value_text(c, unit)), True


def aligned(value: float) -> str:
    """A number in a column of the same unit."""
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.1f}"


def _common_unit(ns: Sequence[float]) -> tuple[str, float]:
    """The largest unit that the largest value reaches and in which the smallest is visible, unless the
    largest gets too long in the next smaller one."""
    positive = [n for n in ns if n > 0]
    if not positive:
        return "ms", 1e6
    low, high = min(positive), max(positive)
    for name, size in TIMES[:-1]:
        if high >= size and (low / size >= 0.1 or high / (size / 1e3) >= 1e4):
            return name, size
    return ("us", 1e3) if low >= 10 else ("ns", 1.0)
