"""Values: one normal form for both engines, so that their results can never differ; the parameters of rules
(defaults, overrides, the list that the diagnosis prints); and how messages show values.

An :data:`Atom` is a finite float or a text. Numbers and flags become floats (durable-rules compares
integers and floats through its own conversions), and a float whose shortest text the engine's
JSON reader refuses (``1e-05``, ``1e+16``) moves up to the next one that it reads: the same
small step for facts and thresholds, in both engines.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from advisor.engine.load import RuleSet
from advisor.errors import RuleError, near
from advisor.knowledge.yaml_files import MOST_OF_A_FILE
from advisor.model.facts import Value
from advisor.model.findings import Threshold
from advisor.model.gain import whole
from advisor.model.numbers import IN_NS, digits, duration, percent, value_text
from advisor.model.operands import threshold
from advisor.model.rules import Param
from advisor.numerals import read_float, read_int

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


# --- parameters of rules --------------------------------------------------------------------------

ParamKey = tuple[str, str]
ParamValue = Value | tuple[str, ...]


def resolve_params(rules: RuleSet, overrides: Mapping[ParamKey, Any]) -> dict[ParamKey, ParamValue]:
    """Every parameter with the value in force; RuleError for an unknown one or a wrong type. An
    override of one that `sets` another holds for that one too, unless it has its own."""
    values: dict[ParamKey, ParamValue] = {
        (r.code, n): p.default for r in rules.active for n, p in sorted(r.params.items())
    }
    problems = []
    for key, value in overrides.items():
        name = f"{key[0]}.{key[1]}"
        if key not in values:
            hint = near(name, [f"{c}.{p}" for c, p in values], "see `advisor explain CODE`")
            problems.append(f"unknown parameter {name}; {hint}")
            continue
        try:
            checked = threshold(value)
        except ValueError as fault:
            problems.append(f"the parameter {name} cannot be {value!r}: {fault}")
            continue
        if _type_name(checked) != _type_name(values[key]):
            wanted = _type_name(values[key])
            problems.append(f"the parameter {name} cannot be {value!r}: give a {wanted}")
            continue
        values[key] = checked
    if problems:
        more = len(problems) - MOST_OF_A_FILE
        raise RuleError("\n".join(problems[:MOST_OF_A_FILE] + [f"and {more:,} more"] * (more > 0)))
    for rule in rules.active:
        for name, param in rule.params.items():
            if param.sets is not None and (rule.code, name) in overrides:
                code, _, other = param.sets.partition(".")
                if (code, other) in values and (code, other) not in overrides:
                    values[code, other] = values[rule.code, name]
    return values


def _check_share(param: Param, name: str, value: ParamValue) -> None:
    """RuleError for a share outside 0 to 1; a ratio that is 1 or more by default is a multiple."""
    default = param.default
    share = param.unit == "ratio" and isinstance(default, int | float) and default < 1
    if not share or not isinstance(value, int | float) or not math.isfinite(value) or 0 <= value <= 1:
        return
    hint = f"{value / 100:g} or {value:g}%" if 1 < value <= 100 else "0.2 or 20%"
    raise RuleError(f"the parameter {name} cannot be {value!r}: it is a share from 0 to 1, such as {hint}")


def parse_params(rules: RuleSet, texts: Iterable[str]) -> dict[ParamKey, ParamValue]:
    """``CODE.name=value`` as given on a command line -> overrides of the right type."""
    found: dict[ParamKey, ParamValue] = {}
    for text in texts:
        left, equals, right = text.partition("=")
        code, dot, name = left.strip().partition(".")
        if not (equals and dot and name):
            raise RuleError(f"--param {text}: write CODE.name=value")
        rule = rules.by_code.get(code.upper())
        param = None if rule is None else rule.params.get(name)
        value = _parse(right.strip(), param)
        if param is not None:
            _check_share(param, f"{code.upper()}.{name}", value)
        found[code.upper(), name] = value
    return found


def _parse(text: str, param: Param | None) -> ParamValue:
    """The text in the type of the default, `20%` as 0.2 for a ratio; unchanged where it does not fit."""
    default = None if param is None else param.default
    ratio = param is not None and param.unit == "ratio"
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if isinstance(default, bool):
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    if isinstance(default, int | float):
        number = text.removesuffix("%") if ratio else text
        whole, value = read_int(number, commas=False), read_float(number, commas=False)
        if number != text and value is not None:
            return value / 100
        if whole is not None:
            return whole
        return text if value is None else value
    return text


def _type_name(value: ParamValue) -> str:
    if isinstance(value, tuple):
        return "list of texts"
    if isinstance(value, bool):
        return "flag (true or false)"
    return "text" if isinstance(value, str) else "number"


def thresholds(rules: RuleSet, params: Mapping[ParamKey, ParamValue]) -> tuple[Threshold, ...]:
    """Every parameter with its value, default and origin, in order of code and name."""
    return tuple(
        Threshold(
            code=rule.code,
            param=name,
            value=_cell(params[rule.code, name]),
            default=_cell(param.default),
            unit=param.unit,
            origin=param.origin,
            source=param.source,
        )
        for rule in rules.active
        for name, param in sorted(rule.params.items())
    )


def _cell(value: ParamValue) -> Value:
    return ", ".join(value) if isinstance(value, tuple) else value


# --- placeholders ``{fact|format}`` and ``{param.NAME|format}`` of messages, and their formats ----
# A passage in ``[[double brackets]]`` is left out if a value in it is unknown, or a share is 0 %.

UNKNOWN = "(unknown)"
_NOTHING = percent(0.0)
_PLACEHOLDER = re.compile(r"\{(param\.)?([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*)\|([a-z]+)\}")
#: How nsys writes environment variables in file names, which advice quotes.
_NSYS_VARIABLE = re.compile(r"%q\{[A-Z_]+\}")
_PASSAGE = re.compile(r"\[\[((?:(?!\[\[|\]\]).)*+)\]\]", re.DOTALL)
_TIMES = frozenset(("ns", "us", "ms"))
#: The fact that tells whether there are steps.
STEP_COUNT = "capture.step_count"
#: Formats that print a share in per cent; `share` says as well what it is one of.
_SHARES = frozenset(("pct", "share"))
#: Units that each format accepts; None: any number, or anything for `text`.
FORMATS: dict[str, frozenset[str] | None] = {
    "pct": frozenset({"ratio"}),
    "share": frozenset({"ratio"}),
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


def render(template: str, lookup: Callable[[Placeholder], Shown | None], steps: Value | None = None) -> str:
    """The template with its values; an unknown value is named as unknown. `steps` is the value of
    `STEP_COUNT`, which says what a `share` is one of."""
    of = whole(isinstance(steps, int | float) and steps > 0)

    def one(match: re.Match[str]) -> str:
        wanted = Placeholder(match[1] is not None, match[2], match[3])
        found = lookup(wanted)
        text = UNKNOWN if found is None else show(found, wanted.format)
        return f"{text} of the {of}" if wanted.format == "share" else text

    def kept(match: re.Match[str]) -> str:
        found = ((lookup(p), p.format) for p in placeholders(match[1]))
        complete = all(
            v is not None and (form not in _SHARES or show(v, form) != _NOTHING) for v, form in found
        )
        return match[1] if complete else ""

    return " ".join(_PLACEHOLDER.sub(one, _PASSAGE.sub(kept, template)).split())


def show(shown: Shown, form: str) -> str:
    """One value as printed."""
    value, unit = shown
    if isinstance(value, bool | str | tuple):
        return value_text(value)
    if form in _SHARES:
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
