"""Parameters of rules: defaults, overrides, and the list that the diagnosis prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from advisor.engine.load import MOST_OF_A_FILE, RuleSet
from advisor.errors import RuleError, near
from advisor.model.facts import Value
from advisor.model.findings import Threshold
from advisor.model.operands import threshold
from advisor.model.rules import Param

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
    if not share or not isinstance(value, int | float) or not isfinite(value) or 0 <= value <= 1:
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
        for kind in (int, float):
            try:
                return kind(number) if number == text else float(number) / 100
            except ValueError:
                continue
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
