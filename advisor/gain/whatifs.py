"""`knowledge/whatifs.yaml`: constants with their origin, what-ifs with parameters, and `--fix`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import Struct, field, to_builtins

from advisor.errors import InputError, near
from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, File, Text
from advisor.model.file_content import Constraint
from advisor.numerals import finite, read_float

Value = float | str

#: Upper limit of any time, size or count of a parameter.
_UNBOUNDED = 1e15
#: The end of a message about a name that is like none of the many known ones.
SEE_LISTS = "see 'advisor whatif --list' and 'advisor rules list'"


class Constant(Data, frozen=True, kw_only=True):
    """A number that no capture contains; times in ns."""

    value: Annotated[float, Constraint(ge=0)]
    unit: Literal["ns", "ratio", "count", "bytes"]
    meaning: Text
    origin: Text


class Param(Data, frozen=True, kw_only=True):
    """A parameter: a number from `least` to `most`, or one of `choices`; `always`: shown even at its
    default."""

    default: float | str
    unit: Text
    meaning: Text
    choices: tuple[str, ...] = ()
    least: float = 0.0
    most: float = _UNBOUNDED
    always: bool = False


#: Fields of a what-if that are in no document.
_FOR_REPLAYS = ("keeps_work", "shortens", "certain", "takes_host_code", "needs_ranks")


class WhatIf(Data, frozen=True, kw_only=True):
    """What a fix changes in the replay, and its assumptions; `once`: a second one in the same question,
    with whatever parameters, would scale the same times again.

    `option` is its name in a verdict without a fault, with `language_model` for language models only.
    `feature`: what the GPU must support (knowledge/gpus.yaml); `instead_of`: offered only if that what-if
    has no estimate. `perhaps_traced` is printed if an untraced step may be about as short as the GPU's
    own time, `why_more` if the fix gains more than the time of its cause. `assumptions_for` hold for one
    choice of a parameter. `keeps_work`, `shortens`, `certain` and `takes_host_code` are for replays;
    so is `needs_ranks`: it takes away time of collectives that only the other ranks tell from waiting."""

    title: Text
    option: Text | None = None
    language_model: bool = False
    feature: str | None = None
    instead_of: str | None = None
    measure: Literal["latency", "throughput"]
    once: bool = False
    keeps_work: bool = False
    shortens: bool = False
    certain: bool = False
    takes_host_code: bool = False
    needs_ranks: bool = False
    params: dict[str, Param]
    changes: Text
    perhaps_traced: Text | None = None
    why_more: Text | None = None
    assumptions: Annotated[list[Text], Constraint(min_length=1)]
    assumptions_for: dict[str, list[Text]] = field(default_factory=dict)

    @property
    def shown(self) -> dict[str, Any]:
        """It as documents show it."""
        return {k: v for k, v in to_builtins(self).items() if k not in _FOR_REPLAYS}


class WhatIfFile(File, frozen=True, kw_only=True):
    constants: dict[str, Constant]
    whatifs: dict[str, WhatIf]
    no_estimate: dict[str, Text]


class Fix(Struct, frozen=True):
    """A what-if with its parameters, as requested. `code` is that of the rule that named it."""

    what_if: str
    params: Mapping[str, Value]
    code: str | None = None
    cause: str | None = None

    def number(self, name: str) -> float:
        return float(self.params[name])

    @property
    def shown(self) -> dict[str, int | float | str]:
        """The parameters not at their default, as reports print them and `--fix` accepts them."""
        specs = catalogue().whatifs[self.what_if].params
        chosen = {k: v for k, v in self.params.items() if specs[k].always or v != specs[k].default}
        return {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in chosen.items()}

    @property
    def assumptions(self) -> list[str]:
        """The assumptions of every estimate of it, and its effect by the choices of its parameters."""
        found = catalogue().whatifs[self.what_if]
        chosen = (found.assumptions_for.get(str(value), []) for value in self.params.values())
        return [*found.assumptions, *(text for texts in chosen for text in texts)]

    @property
    def key(self) -> tuple[str, tuple[tuple[str, Value], ...]]:
        """Equal for fixes that change the same thing."""
        return self.what_if, tuple(sorted(self.params.items()))


@cache
def catalogue() -> WhatIfFile:
    return shipped("whatifs.yaml", WhatIfFile)


@cache
def constant(name: str) -> float:
    """A constant in its own unit (ns for times)."""
    return catalogue().constants[name].value


def no_estimate(cause: str) -> str:
    """Why findings of this cause get no estimate."""
    return catalogue().no_estimate.get(cause, "no what-if models the fix of this cause")


def make_fix(name: str, params: Mapping[str, Any], code: str | None = None, cause: str | None = None) -> Fix:
    """A what-if with all its parameters filled in. Raises InputError for unknown names and values."""
    known = catalogue().whatifs
    if name not in known:
        raise InputError(f"--fix: unknown what-if '{name}'; {near(name, known, SEE_LISTS)}")
    spec = known[name]
    values: dict[str, Value] = {k: p.default for k, p in spec.params.items()}
    for key, value in params.items():
        if key not in spec.params:
            hint = near(key, spec.params) if spec.params else "it takes none"
            raise InputError(f"--fix: {name} has no parameter '{key}'; {hint}")
        values[key] = _value(name, key, spec.params[key], value)
    return Fix(name, values, code, cause)


def _value(name: str, key: str, param: Param, value: Any) -> Value:
    if isinstance(param.default, str):
        if param.choices and str(value) not in param.choices:
            choices = ", ".join(param.choices)
            raise InputError(f"--fix: invalid {name}:{key} '{value}'; expected one of {choices}")
        return str(value)
    number = read_float(value, commas=False) if isinstance(value, str) else finite(value)
    if number is None:
        raise InputError(f"--fix: invalid {name}:{key} '{value}'; expected a number ({param.unit})")
    if number != param.default and not param.least <= number <= param.most:
        bounded = param.most < _UNBOUNDED
        limit = f"from {param.least:g} to {param.most:g}" if bounded else f"{param.least:g} or more"
        raise InputError(f"--fix: invalid {name}:{key} '{value}'; expected {limit}")
    return number


def split_fix(text: str) -> tuple[str, dict[str, str]]:
    """``batch:n=8`` -> name and parameters as typed. Raises InputError."""
    name, *rest = text.strip().split(":")
    params: dict[str, str] = {}
    for item in rest:
        key, sign, value = item.partition("=")
        key, value = key.strip(), value.strip()
        if not sign or not key or not value:
            raise InputError(f"--fix: '{text}': write NAME:param=value, not ':{item}'")
        if key in params:
            raise InputError(f"--fix: '{text}' gives {key} twice")
        params[key] = value
    if not name.strip():
        raise InputError(f"--fix: '{text}' names no what-if; see 'advisor whatif --list'")
    return name.strip(), params
