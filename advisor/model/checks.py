"""Records as pydantic sees them: the checks of external data, and JSON.

Imported only by methods of `advisor.model.records.Frozen` that need it, and by readers of files.
"""

from __future__ import annotations

import functools
import operator
from contextlib import suppress
from threading import RLock
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import pydantic
from msgspec import NODEFAULT, structs
from msgspec.structs import FieldInfo
from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema

from advisor.model import facts, writing
from advisor.model.records import Frozen, Later

_R = TypeVar("_R", bound=Frozen)

# Pydantic itself reads the annotations of dataclasses.
vars(facts)["Field"] = pydantic.Field


class RecordField(NamedTuple):
    """A field of a record: its name here and in files (`key`), its annotation with its pydantic
    constraints, whether documents leave it out, and its msgspec metadata."""

    name: str
    key: str
    annotation: Any
    exclude: bool
    known: FieldInfo


_adapters: dict[type, TypeAdapter[Any]] = {}
#: Held while schemas are made: another thread would find half of one.
_making = RLock()


def adapter(record: type[_R]) -> TypeAdapter[_R]:
    """Checks and writes records of this class."""
    if record not in _adapters:
        with _making:
            _adapters.setdefault(record, TypeAdapter(record))
    return _adapters[record]


def typed(record: _R) -> _R:
    """The same with its values in the types of the annotations, such as 1.0 for 1 of a float. A value
    that fails the check, such as a path that is not UTF-8, is left unchanged."""
    with suppress(ValidationError):
        return adapter(type(record)).validate_python(record)
    return record


def fields_of(record: type[Frozen]) -> tuple[RecordField, ...]:
    """The fields in the order of JSON."""
    known = {field.name: field for field in structs.fields(record)}  # type: ignore[arg-type]
    return tuple(
        RecordField(name, key, _real(annotation), writing.excluded(annotation), known[name])
        for name, key, annotation in writing.fields_of(record)
    )


def _call(later: Later) -> Any:
    return getattr(pydantic, later.name)(*later.args, **later.options)


def _real(annotation: Any) -> Any:
    """An annotation with the pydantic calls that it notes carried out."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *extras = parts
        made = [
            _call(one) if isinstance(one, Later) else one
            for one in extras
            if not getattr(one, "excludes", False)
        ]
        return Annotated[_real(inner), *made] if made else _real(inner)
    if not parts or origin is Literal:
        return annotation
    inside = tuple(map(_real, parts))
    if inside == parts:
        return annotation
    if origin is UnionType or origin is Union:
        return functools.reduce(operator.or_, inside)
    return origin[inside]


#: Classes whose schema is being made: inside it they refer to themselves.
_open: list[type[Frozen]] = []


def schema_of(record: type[Frozen], handler: GetCoreSchemaHandler) -> CoreSchema:
    """The core schema by which pydantic checks and writes a record."""
    ref = f"{record.__module__}.{record.__qualname__}:{id(record)}"
    with _making:
        if record in _open:
            return core_schema.definition_reference_schema(ref)
        _open.append(record)
        try:
            fields = fields_of(record)
            inside = {f.name: _field_schema(f, handler) for f in fields}
        finally:
            _open.pop()
    names = tuple(f.name for f in fields)
    table = core_schema.typed_dict_schema(
        inside,
        cls=record,
        cls_name=record.__name__,
        extra_behavior="forbid",
        config=record.checking,  # type: ignore[arg-type]
    )

    def values(given: Any) -> Any:
        """The fields of a record, to be checked or written; other data is passed through."""
        return {n: getattr(given, n) for n in names} if isinstance(given, record) else given

    after = [
        method
        for base in reversed(record.__mro__)
        for method in vars(base).values()
        if getattr(method, "checked_after", False)
    ]

    def made(given: dict[str, Any]) -> Frozen:
        found = record(**given)
        for check in after:
            check(found)
        return found

    return core_schema.no_info_after_validator_function(
        made,
        core_schema.no_info_before_validator_function(values, table),
        ref=ref,
        serialization=core_schema.wrap_serializer_function_ser_schema(lambda one, write: write(values(one))),
    )


def _field_schema(field: RecordField, handler: GetCoreSchemaHandler) -> core_schema.TypedDictField:
    schema = handler.generate_schema(field.annotation)
    known = field.known
    if known.default_factory is not NODEFAULT:
        schema = core_schema.with_default_schema(schema, default_factory=known.default_factory)
    elif known.default is not NODEFAULT:
        schema = core_schema.with_default_schema(schema, default=known.default)
    alias = field.key if field.key != field.name else None
    return core_schema.typed_dict_field(
        schema,
        required=known.required,
        validation_alias=alias,
        serialization_alias=alias,
        serialization_exclude=field.exclude or None,
    )
