"""What a rule compares with: a number, a flag, a text, or a list of texts."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema

from advisor.model.facts import Value

ThresholdValue = Value | tuple[str, ...]

MAX_TEXT = 256
MAX_INT = 2**63


def _threshold(value: Any) -> ThresholdValue:
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


def _sequence(value: Any) -> Any:
    """Lists are what YAML gives; strict tuples would refuse them."""
    return tuple(value) if isinstance(value, list) else value


Items = BeforeValidator(_sequence)
Operand = Annotated[
    bool | int | float | str | tuple[str, ...],
    PlainValidator(_threshold),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "number"},
                {"type": "string", "maxLength": MAX_TEXT},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 16},
            ]
        }
    ),
]
