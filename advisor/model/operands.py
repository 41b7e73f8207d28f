"""What a rule compares with: an operator and a number, a flag, a text, or a list of texts."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from advisor.model.facts import Value
from advisor.model.file_content import Constraint, FileContent

ThresholdValue = Value | tuple[str, ...]

MAX_TEXT = 256
MAX_INT = 2**63


def threshold(value: Any) -> ThresholdValue:
    """A number, a flag, a text, or (for one_of) a list of texts; nothing an engine trips over."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -MAX_INT <= value < MAX_INT:
            raise ValueError("the integer does not fit in 64 bits; use another unit")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("the number is not finite; give a finite one")
        return value
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise ValueError(f"the text is longer than {MAX_TEXT} characters; shorten it")
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(v, str) for v in value):
        if len(value) > 16 or any(len(v) > MAX_TEXT for v in value):
            raise ValueError(f"at most 16 texts of {MAX_TEXT} characters; shorten the list")
        if len(set(value)) != len(value):
            raise ValueError("the list names a text twice; remove one")
        return tuple(value)
    raise ValueError("expected a number, true or false, a text, or a list of texts")


Operand = Annotated[
    bool | int | float | str | tuple[str, ...],
    Constraint(
        check=threshold,
        json_schema={
            "anyOf": [
                {"type": "boolean"},
                {"type": "number"},
                {"type": "string", "maxLength": MAX_TEXT},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 16},
            ]
        },
    ),
]

Op = Literal["lt", "le", "gt", "ge", "eq", "ne", "one_of", "known"]
#: A parameter of the rule itself, or of another one (`CODE.name`), which supplies the number.
ParamName = Annotated[str, Constraint(pattern=r"^([A-Z]{3,8}[0-9]{3}\.)?[a-z][a-z0-9_]*$", max_length=80)]


class Strict(FileContent, frozen=True, kw_only=True):
    """No coercion: "no" is not false and 1.10 is not a text."""

    strict: ClassVar[bool] = True


class Comparison(Strict, frozen=True, kw_only=True):
    """The right-hand side that facts and entity fields share: an operator and one operand."""

    op: Op
    value: Operand | None = None
    param: ParamName | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.param is None):
            raise ValueError("give exactly one of `value` and `param`")
        if self.value is not None and (self.op == "one_of") != isinstance(self.value, tuple):
            raise ValueError("a list of texts goes with `one_of`, and `one_of` with a list")
        if self.op == "known" and not isinstance(self.value, bool):
            raise ValueError("`known` takes `value: true` or `value: false`")
        if isinstance(self.value, str | bool) and self.op not in ("eq", "ne", "known"):
            raise ValueError(f"texts and flags compare with eq or ne, not with {self.op}")
