"""JSON of records as pydantic writes it, without pydantic: importing it and making its schema takes
longer than everything else that a small capture needs for its JSON.

Only plain types are written here. Other types, and values that do not match their annotation, raise
`NotPlain` and are left to pydantic.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from functools import cache
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

import msgspec

from advisor.model.records import Frozen, Later

_Writer = Callable[[Any], Any]

_SCALARS = frozenset((bool, int, float, str, NoneType))
#: From this magnitude on pydantic writes floats as 1e+16, msgspec as 1e16.
_LARGE = 1e16


class NotPlain(Exception):
    """A type or value that pydantic has to write."""


def json_of(record: Frozen, indent: int | None = None) -> bytes:
    """The record as JSON in UTF-8. Raises NotPlain."""
    try:
        write = _record(type(record))  # type: ignore[arg-type]  # classes are hashable
        text = msgspec.json.encode(write(record), enc_hook=_unknown)
    except UnicodeEncodeError as error:  # a file name that is not UTF-8
        raise NotPlain from error
    return text if indent is None else msgspec.json.format(text, indent=indent)


def _unknown(value: Any) -> NoReturn:
    raise NotPlain(type(value))


@cache
def _record(record: type[Any]) -> _Writer:
    """Writes the fields of a record or dataclass, in the order of JSON."""
    fields = [(n, k, a) for n, k, a in fields_of(record) if not excluded(a)]
    writers: list[tuple[str, str, _Writer]] = []

    def write(value: Any) -> dict[str, Any]:
        if not isinstance(value, record):
            raise NotPlain(type(value))
        if not writers:  # a record may hold others of its class
            writers[:] = [(name, key, _writer(annotation)) for name, key, annotation in fields]
        return {key: put(getattr(value, name)) for name, key, put in writers}

    return write


def fields_of(record: type[Any]) -> list[tuple[str, str, Any]]:
    """Name, key in documents and annotation of the fields of a record, in the order of JSON."""
    if issubclass(record, Frozen):
        bases = [base for base in record.__mro__ if issubclass(base, Frozen)]
        last = {name for base in bases[1:] if base.listed_last for name in base.__struct_fields__}
        asked = {name: later for base in reversed(bases) for name, later in base.extra_checks.items()}
        hints = _hints(record)
        found = [
            (name, key, Annotated[hints[name], asked[name]] if name in asked else hints[name])
            for name, key in zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True)
        ]
        found.sort(key=lambda field: field[0] in last)
    elif dataclasses.is_dataclass(record):
        found = [(f.name, f.name, _hints(record)[f.name]) for f in dataclasses.fields(record)]
    else:
        raise NotPlain(record)
    return found


def _hints(record: type[Any]) -> dict[str, Any]:
    """The annotations of a record and its bases."""
    found = {}
    for base in reversed(record.__mro__):
        for name, text in get_annotations(base).items():
            found[name] = _evaluated(base.__module__, text) if isinstance(text, str) else text
    return found


@cache
def _evaluated(module: str, text: str) -> Any:
    """An annotation, each text of a module once: `get_type_hints` takes three times as long."""
    return eval(text, vars(sys.modules[module]))  # our own code


def excluded(annotation: Any) -> bool:
    """Whether documents leave a field out: in our notation, or, once pydantic is imported, in its own."""
    extras = getattr(annotation, "__metadata__", ())
    return any(x.excludes if isinstance(x, Later) else getattr(x, "exclude", False) for x in extras)


def _writer(annotation: Any) -> _Writer:
    """Turns a value of this annotation into one that msgspec writes as pydantic does."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if any(isinstance(one, Later) and one.name != "Field" for one in annotation.__metadata__):
            raise NotPlain(annotation)
        return _writer(parts[0])
    if annotation is Any:
        return _anything
    if kinds := _kinds(annotation):
        return _scalar(kinds)
    if origin in (Union, UnionType):
        return _one_of(parts)
    if origin is tuple and len(parts) == 2 and parts[1] is ...:
        each = _writer(parts[0])
        return lambda values: [each(value) for value in _listed(values)]
    if origin is tuple:
        places = [_writer(part) for part in parts]
        return lambda values: [put(value) for put, value in zip(places, _listed(values), strict=True)]
    if origin is dict and parts[0] is str:
        of_key = _writer(parts[1])
        return lambda values: {key: of_key(value) for key, value in values.items()}
    if isinstance(annotation, type):
        return _record(annotation)
    raise NotPlain(annotation)


def _kinds(annotation: Any) -> frozenset[type]:
    """The types of a scalar; empty for other annotations."""
    if get_origin(annotation) is Literal:
        return frozenset(map(type, get_args(annotation)))
    return frozenset((annotation,)) if annotation in _SCALARS else frozenset()


def _one_of(parts: tuple[Any, ...]) -> _Writer:
    """Scalars, and at most one other type."""
    scalar = _scalar(frozenset().union(*map(_kinds, parts)))
    others = [part for part in parts if not _kinds(part)]
    if not others:
        return scalar
    if len(others) > 1:
        raise NotPlain(parts)
    other = _writer(others[0])
    return lambda value: scalar(value) if type(value) in _SCALARS else other(value)


def _scalar(types: frozenset[type]) -> _Writer:
    numbers = (float,) if int in types else (float, int)

    def write(value: Any) -> Any:
        if type(value) not in types:
            if float not in types or type(value) is bool or not isinstance(value, numbers):
                raise NotPlain(type(value))
            value = float(value)  # a whole number, or a float of NumPy
        return _float(value) if type(value) is float else value

    return write


def _float(value: float) -> Any:
    if not abs(value) >= _LARGE:
        return value
    return None if value in (float("inf"), float("-inf")) else msgspec.Raw(repr(value).encode())


def _anything(value: Any) -> Any:
    if type(value) is dict:
        return {key: _anything(one) for key, one in value.items()}
    if type(value) in (tuple, list):
        return [_anything(one) for one in value]
    if type(value) not in _SCALARS:
        raise NotPlain(type(value))
    return _float(value) if type(value) is float else value


def _listed(values: Any) -> Any:
    if type(values) not in (tuple, list):
        raise NotPlain(type(values))
    return values
