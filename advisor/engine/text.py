"""Placeholders ``{fact|format}`` and ``{param.NAME|format}`` of messages, and their formats.

A passage in ``[[double brackets]]`` is left out where a value in it is not known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from advisor.model.facts import Value

UNKNOWN = "(unknown)"
_PLACEHOLDER = re.compile(r"\{(param\.)?([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*)\|([a-z]+)\}")
#: How nsys writes environment variables in the names of files, which advice quotes.
_NSYS_VARIABLE = re.compile(r"%q\{[A-Z_]+\}")
_PASSAGE = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_TIME_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
#: Units each format makes sense for; None: any number, or anything for `text`.
FORMATS: dict[str, frozenset[str] | None] = {
    "pct": frozenset({"ratio"}),
    "ns": frozenset(_TIME_NS),
    "us": frozenset(_TIME_NS),
    "ms": frozenset(_TIME_NS),
    "bytes": frozenset({"bytes"}),
    "rate": frozenset({"count_per_s", "bytes_per_s", "hz"}),
    "int": None,
    "num": None,
    "text": None,
}


class Placeholder(NamedTuple):
    """`name` is a fact, or a parameter where `is_param`."""

    is_param: bool
    name: str
    format: str


class Shown(NamedTuple):
    """A value ready to be shown, with its unit."""

    value: Value | tuple[str, ...]
    unit: str


def placeholders(template: str) -> Iterator[Placeholder]:
    for match in _PLACEHOLDER.finditer(template):
        yield Placeholder(match[1] is not None, match[2], match[3])


def stray_brace(template: str) -> str | None:
    """The text around a brace that belongs to no placeholder, or None."""
    rest = template
    for known in (_PLACEHOLDER, _NSYS_VARIABLE):
        rest = known.sub(lambda m: " " * len(m[0]), rest)
    at = min((i for i in (rest.find("{"), rest.find("}")) if i >= 0), default=-1)
    return None if at < 0 else template[max(0, at - 10) : at + 30]


def render(template: str, lookup: Callable[[Placeholder], Shown | None]) -> str:
    """The template with its values; an unknown value is named as unknown."""

    def one(match: re.Match[str]) -> str:
        wanted = Placeholder(match[1] is not None, match[2], match[3])
        found = lookup(wanted)
        return UNKNOWN if found is None else show(found, wanted.format)

    def kept(match: re.Match[str]) -> str:
        told = all(lookup(p) is not None for p in placeholders(match[1]))
        return match[1] if told else ""

    return " ".join(_PLACEHOLDER.sub(one, _PASSAGE.sub(kept, template)).split())


def show(shown: Shown, form: str) -> str:
    """One value as people read it."""
    value, unit = shown
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if form == "pct":
        return percent(float(value))
    if form == "ns":
        return duration(value * _TIME_NS.get(unit, 1.0))
    if form in ("us", "ms"):
        return f"{_digits(value * _TIME_NS.get(unit, 1.0) / _TIME_NS[form])} {form}"
    if form == "bytes":
        return _scaled(float(value), 1024.0, ("B", "KiB", "MiB", "GiB", "TiB"))
    if form == "rate":
        tail = {"bytes_per_s": "B/s", "hz": "Hz"}.get(unit, "/s")
        return _scaled(float(value), 1000.0, tuple(p + tail for p in ("", "k", "M", "G", "T")))
    if form == "int":
        return f"{round(value):,}"
    return _digits(float(value))


def natural(value: Value | tuple[str, ...] | None, unit: str) -> str:
    """The format that fits the unit, for lists of conditions and explanations."""
    if value is None:
        return UNKNOWN
    form = {"ratio": "pct", "ns": "ns", "us": "us", "ms": "ms", "bytes": "bytes"}.get(unit)
    if form is None:
        form = "rate" if unit in ("count_per_s", "bytes_per_s", "hz") else "num"
    return show(Shown(value, unit), form)


def percent(ratio: float) -> str:
    """0.0312 -> "3.12 %", 0.34 -> "34 %"."""
    return f"{_digits(round(100.0 * ratio, 2))} %"


def duration(ns: float) -> str:
    """Nanoseconds in the unit that reads best."""
    for limit, size, name in ((1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if abs(ns) < limit:
            return f"{_digits(ns / size)} {name}"
    for limit, size, name in ((300e9, 1e9, "s"), (7200e9, 60e9, "min"), (2 * 86400e9, 3600e9, "h")):
        if abs(ns) < limit:
            return f"{_digits(ns / size)} {name}"
    return f"{_digits(ns / 86400e9)} days"


def _scaled(value: float, step: float, names: tuple[str, ...]) -> str:
    at = 0
    while abs(value) >= step and at < len(names) - 1:
        value /= step
        at += 1
    return f"{_digits(value)} {names[at]}"


def _digits(value: float) -> str:
    """Three significant digits, whole numbers in full."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
