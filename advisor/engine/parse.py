"""Data of YAML files as models; every error in the project's words, with its line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from msgspec import ValidationError as WrongType
from pydantic import BaseModel, ValidationError

from advisor.errors import near
from advisor.knowledge.yaml_files import MAX_DEPTH, MOST_OF_A_FILE, Loc, Problem, Source
from advisor.model.file_content import FileContent
from advisor.model.file_schema import schema_model

M = TypeVar("M", bound=FileContent)


def validate(source: Source, model: type[M]) -> M | None:
    """The data as `model`, or None with the reasons added to ``source.problems``."""
    if source.problems:
        return None
    try:
        return _checked(source, model)
    except ValidationError as exc:
        source.problems.extend(_explain(exc, source, schema_model(model)))
    except WrongType as exc:
        source.problems.append(source.problem((), str(exc)))
    return None


def _checked(source: Source, model: type[M]) -> M:
    """The data as `model`. Raises pydantic's ValidationError with all faults, and msgspec's for a type that
    only the struct refuses."""
    schema_model(model).model_validate(source.data)
    return model.from_data(source.data)


#: Substitutes for keys that are missing or wrong, so that the names in the rest can be checked.
_STAND_IN: dict[str, Any] = {
    "schema": 1,
    "code": "AAA000",
    "cause": "any",
    "title": "any",
    "kind": "cause",
    "scope": "device",
    "lifecycle": "preview",
    "when": {"all": [{"cause": "any"}]},
    "message": "any",
    "effort": "low",
    "confidence": {"method": "measured", "base": 0.5},
    "action": "any",
    "id": "any",
    "expect": "present",
    "docs": {"what": "any", "why": "any", "harmless_when": "any"},
    "unit": "ratio",
    "origin": "measured",
    "base": 0.5,
    "method": "measured",
    "default": 1,
    "factor": 1.0,
    "text": "any",
    "because": "any",
    "reason": "any",
    "reply": "no",
    "flag": "any",
    "severity": "low",
    "what": "any",
    "why": "any",
    "harmless_when": "any",
}


def draft(source: Source, model: type[M]) -> M | None:
    """Data refused by `validate` without its mistakes, to judge names only; None if too little is left."""
    for _ in range(MAX_DEPTH):
        try:
            return _checked(source, model)
        except ValidationError as exc:
            if not all(_left_out(source.data, e) for e in exc.errors(include_url=False)):
                return None
        except WrongType:
            return None
    return None


def _left_out(data: Any, error: Any) -> bool:
    """Take one mistake out of plain data; false if that is not possible."""
    loc = [step for step in error["loc"] if not str(step).startswith("=")]
    holder = None
    for step in loc[:-1]:
        holder = data
        if not isinstance(data, dict | list) or (isinstance(data, dict) and step not in data):
            return True  # removed with another mistake
        data = data[step]
    last = loc[-1] if loc else None
    at = data[last] if isinstance(data, list) and isinstance(last, int) else data
    if isinstance(at, dict) and "fact" in at and (at is not data or last in ("op", "value", "param")):
        at.update(op="known", value=True)
        at.pop("param", None)
    elif isinstance(data, dict) and last in _STAND_IN and error["type"] != "extra_forbidden":
        data[last] = _STAND_IN[last]
    elif isinstance(data, dict) and last in data:
        del data[last]
    elif isinstance(holder, dict):  # a required key is missing: the object goes
        del holder[loc[-2]]
    else:
        return False
    return True


#: What is wrong at a place, by pydantic's type of error; for any other, the type that it should have.
_FAULTS = {
    "missing": " is missing; add it",
    "value_error": ": {error}",
    "condition": ": {wanted}",
    "model_type": " is {given}; expected a valid dictionary",
    "literal_error": " is {given}; use {expected}",
    "string_pattern_mismatch": " is {given}; it must match {pattern}",
    "too_short": " has {actual_length} items; give at least {min_length}",
    "too_long": " has {actual_length} items; give at most {max_length}",
}


def _explain(exc: ValidationError, source: Source, model: type[BaseModel]) -> Iterator[Problem]:
    """Pydantic's errors in the project's words, one a place."""
    found = exc.errors(include_url=False)
    # Looking up lines in the whole file takes long for thousands of problems; the rest is only counted.
    for number in range(MOST_OF_A_FILE, len(found)):
        yield Problem(source.path, sys.maxsize, str(number))
    for error in found[:MOST_OF_A_FILE]:
        loc = error["loc"]
        where = dotted(loc) or "the document"
        kind, given = error["type"], error.get("input")
        if kind in ("extra_forbidden", "unexpected_keyword_argument"):
            known = _keys(model)
            hint = "remove it" if loc[-1] in known else near(str(loc[-1]), sorted(known), "remove it")
            text = f"{where} is an unknown key; {hint}"
        else:
            wanted = error["msg"].removeprefix("Input should be ")
            values = {"error": wanted, **error.get("ctx", {}), "given": _short(given), "wanted": wanted}
            text = f"{where}{_FAULTS.get(kind, ' is {given}; expected {wanted}').format(**values)}"
        yield source.problem(loc, text)


def dotted(loc: Loc) -> str:
    """``("when", "any", 0, "=fact", "op")`` -> ``when.any[0].op``."""
    out = ""
    for step in loc:
        if isinstance(step, int):
            out += f"[{step}]"
        elif not step.startswith("=") and step != "[key]":
            out += f".{step}" if out else step
    return out


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _keys(model: type[BaseModel], seen: set[type[BaseModel]] | None = None) -> set[str]:
    """Every key that may appear anywhere in the model, for "did you mean"."""
    seen = set() if seen is None else seen
    if model in seen:
        return set()
    seen.add(model)
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found.add(field.alias or name)
        for inner in _types(field.annotation):
            if issubclass(inner, BaseModel):
                found |= _keys(inner, seen)
            elif is_dataclass(inner):
                found.update(f.name for f in fields(inner))
    return found


def _types(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _types(inner)
