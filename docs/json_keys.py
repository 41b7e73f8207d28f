"""The keys of the JSON document: its models, their keys and types in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from headings import row
from msgspec import UnsetType


def json_keys() -> str:
    """Every key of the document with its type, one table an object."""
    from advisor.model.findings import Diagnosis

    lines: list[str] = []
    for model in models(Diagnosis):
        text = (model.__doc__ or "").split("\n\n")[0]
        lines += [f"**{model.__name__}**" + (f": {' '.join(text.split())}" if text else ""), ""]
        lines += ["| key | type |", "|---|---|"]
        lines += [row((f"`{name}`", _type(annotation))) for name, annotation in keys(model).items()]
        lines.append("")
    return "\n".join(lines).rstrip()


def models(first: Any) -> list[Any]:
    """The models that a document is made of, outer ones first."""
    found, left = [first], [first]
    while left:
        for annotation in keys(left.pop(0)).values():
            for inner in _models_in(annotation):
                if inner not in found:
                    found.append(inner)
                    left.append(inner)
    return found


def keys(model: Any) -> dict[str, Any]:
    """The keys of a struct or dataclass with their annotations, without what documents leave out."""
    hints = get_type_hints(model)
    names = [f.name for f in fields(model)] if is_dataclass(model) else model.__struct_fields__
    return {name: hints[name] for name in names if UnsetType not in get_args(hints[name])}


def _models_in(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "__struct_fields__") or is_dataclass(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _type(annotation: Any) -> str:
    """An annotation in the words of JSON."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return "null"
    if origin in (Union, UnionType):
        words = dict.fromkeys(_type(p) for p in parts)
        # Values of facts and cells: any scalar.
        scalars = {"true or false", "whole number", "number", "text"}
        if scalars <= set(words):
            words = {"scalar": None, **{w: None for w in words if w not in scalars}}
        return " or ".join(words)
    if origin is Literal:
        return ", ".join(map(str, parts))
    if origin is tuple:
        inner = dict.fromkeys(_type(p) for p in parts if p is not Ellipsis)
        return f"list of {', '.join(inner)}"
    if origin is dict:
        return f"object of {_type(parts[1])}"
    plain = {bool: "true or false", int: "whole number", float: "number", str: "text", Any: "any"}
    return plain.get(annotation, getattr(annotation, "__name__", str(annotation)))
