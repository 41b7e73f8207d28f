"""Placeholders ``{fact|format}`` and ``{param.NAME|format}`` of messages, and their formats.

A passage in ``[[double brackets]]`` is left out where a value in it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from advisor.model.facts import Value
from advisor.model.numbers import IN_NS, digits, duration, percent, value_text

UNKNOWN = "(unknown)"
_PLACEHOLDER = re.compile(r"\{(param\.)?([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*)\|([a-z]+)\}")
#: How nsys writes environment variables in the names of files, which advice quotes.
_NSYS_VARIABLE = re.compile(r"%q\{[A-Z_]+\}")
_PASSAGE = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_TIMES = frozenset(("ns", "us", "ms"))
#: Units each format makes sense for; None: any number, or anything for `text`.
FORMATS: dict[str, frozenset[str] | None] = {
    "pct": frozenset({"ratio"}),
    "ns": _TIMES,
    "us": _TIMES,
    "ms": _TIMES,
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
        return duration(value * IN_NS.get(unit, 1.0))
    if form in ("us", "ms"):
        return f"{digits(value * IN_NS.get(unit, 1.0) / IN_NS[form])} {form}"
    if form in ("bytes", "rate"):
        return value_text(value, "bytes" if form == "bytes" else unit)
    if form == "int":
        return f"{round(value):,}"
    return digits(float(value))
