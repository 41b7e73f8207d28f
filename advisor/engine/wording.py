"""The words of a rule with the values of a capture: messages, and conditions with their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from advisor.engine.infer import Inference
from advisor.engine.interpret import Checked
from advisor.engine.judge import doubts_of
from advisor.model.facts import Scope, Value
from advisor.model.findings import ConditionDoc
from advisor.model.gain import WORTH, Choice, Timed
from advisor.model.numbers import IN_NS, digits, duration, percent, times, value_text
from advisor.model.rules import RuleSpec

# --- placeholders ``{fact|format}`` and ``{param.NAME|format}`` of messages, and their formats ----
# A passage in ``[[double brackets]]`` is left out if a value in it is unknown, or a share is 0 %.

UNKNOWN = "(unknown)"
_NOTHING = percent(0.0)
_PLACEHOLDER = re.compile(r"\{(param\.)?([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*)\|([a-z]+)\}")
#: How nsys writes environment variables in file names, which advice quotes.
_NSYS_VARIABLE = re.compile(r"%q\{[A-Z_]+\}")
_PASSAGE = re.compile(r"\[\[(.{0,1000}?)\]\]", re.DOTALL)
_TIMES = frozenset(("ns", "us", "ms"))
#: Units that each format accepts; None: any number, or anything for `text`.
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
        found = ((lookup(p), p.format) for p in placeholders(match[1]))
        complete = all(v is not None and (form != "pct" or show(v, form) != _NOTHING) for v, form in found)
        return match[1] if complete else ""

    return " ".join(_PLACEHOLDER.sub(one, _PASSAGE.sub(kept, template)).split())


def show(shown: Shown, form: str) -> str:
    """One value as printed."""
    value, unit = shown
    if isinstance(value, bool | str | tuple):
        return value_text(value)
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


def without_fault(
    options: Sequence[Choice] | None, load: str, captures: str, bound: str = "", of: Timed = "step"
) -> str:
    """The verdict without a fault: possible improvements (`options`; None if nothing can be predicted
    from the `captures`), or how busy the GPU is (`load`)."""
    if options:
        offered = ", ".join(f"{o.title} {times(o.speedup.mid)} x" for o in options)
        return f"No fault{bound}. Options: {offered}."
    if options is None:
        return f"No fault found: {load}{bound}. What a fix would win cannot be predicted from {captures}."
    return f"Nothing to fix above {percent(WORTH)} of the {of}: {load}{bound}."


def worded(inference: Inference, spec: RuleSpec, template: str, scope: Scope) -> str:
    """A message with the values of its placeholders."""
    return render(template, lambda p: _shown(inference, spec, scope, p))


def message_of(inference: Inference, spec: RuleSpec, scope: Scope) -> str:
    """The rule's message, followed by what the capture cannot show."""
    doubts = (d.text for d in doubts_of(inference, spec, scope))
    return worded(inference, spec, " ".join((spec.message, *doubts)), scope)


def _shown(inference: Inference, spec: RuleSpec, scope: Scope, wanted: Placeholder) -> Shown | None:
    if wanted.is_param:
        value = inference.program.params.get((spec.code, wanted.name))
        return None if value is None else Shown(value, spec.params[wanted.name].unit)
    fact = inference.view.fact(wanted.name, scope)
    return None if fact is None else Shown(fact.value, fact.unit)


def condition_docs(checked: Iterable[Checked]) -> tuple[ConditionDoc, ...]:
    """Conditions with both their numbers, each once."""
    return tuple(dict.fromkeys(c.doc for c in checked))
