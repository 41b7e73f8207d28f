"""Pydantic models of `FileContent`: they find every fault of a file that people write, and give its schema.

Pydantic takes a tenth of a second to import and as long to build models, so only what checks such files
imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import FieldInfo, fields
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    create_model,
    model_validator,
)

from advisor.model.file_content import Constraint, FileContent, OwnType


@cache
def schema_model(content: type[FileContent]) -> type[BaseModel]:
    """The pydantic model with the same fields, constraints and joint checks."""
    hints = get_type_hints(content, include_extras=True)
    joint: dict[str, Any] = {"check": model_validator(mode="after")(_joint_check(content))}
    members: dict[str, Any] = {
        found.name: (_translated(hints[found.name], content), _field(found)) for found in fields(content)
    }
    model: type[BaseModel] = create_model(
        content.__name__,
        __config__=ConfigDict(
            frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False, strict=content.strict
        ),
        __doc__=content.__doc__,
        __validators__=joint,
        **members,
    )
    return model


def _joint_check(content: type[FileContent]) -> Callable[[BaseModel], BaseModel]:
    joint = getattr(content, "__post_init__", None)

    def check(model: BaseModel) -> BaseModel:
        if joint is not None:
            joint(model)
        return model

    return check


def _field(found: FieldInfo) -> Any:
    alias = None if found.encode_name == found.name else found.encode_name
    if found.default_factory is not msgspec.NODEFAULT:
        return Field(default_factory=found.default_factory, alias=alias)
    if isinstance(found.default, FileContent):
        return Field(default=schema_model(type(found.default))(), alias=alias)
    return Field(default=... if found.default is msgspec.NODEFAULT else found.default, alias=alias)


def _translated(kind: Any, owner: type[FileContent]) -> Any:
    """The type of a field of `owner` for pydantic: models for contents, with what constrains values."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        judged = Any if any(c.json_schema for c in args[1:]) else _translated(args[0], owner)
        return Annotated[judged, *(f for c in args[1:] for f in _constraints(c))]
    if origin in (Union, UnionType):
        return _union([_translated(a, owner) for a in args])
    if origin in (tuple, frozenset):
        inner = origin[*(a if a is ... else _translated(a, owner) for a in args)]
        return Annotated[inner, BeforeValidator(lambda v: origin(v) if isinstance(v, list) else v)]
    if origin in (list, dict):
        return origin[*(_translated(a, owner) for a in args)]
    if not isinstance(kind, type) or not issubclass(kind, FileContent | OwnType):
        return kind
    if issubclass(kind, FileContent):
        return ForwardRef(kind.__name__) if kind is owner else schema_model(kind)
    if kind.kinds:
        return _tagged({key: schema_model(one) for key, one in kind.kinds.items()})
    return Annotated[Any, PlainValidator(kind.of_data)]


def _union(kinds: Sequence[Any]) -> Any:
    """A union; of a model and plain values, each is checked as what it looks like."""
    models = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
    others = [k for k in kinds if k not in models]
    if not models or others == [NoneType]:
        return Union[*kinds]
    return Annotated[
        Annotated[Union[*others], Tag("=value")] | Annotated[models[0], Tag("=content")],
        Discriminator(lambda v: "=content" if isinstance(v, dict | BaseModel) else "=value"),
    ]


def _tagged(models: Mapping[str, type[BaseModel]]) -> Any:
    """One of several models, by the key that it begins with. Tags start with "=", which no key does, so that
    places of errors are easily told from them."""

    def tag(value: Any) -> str | None:
        keys = (k for k in models if isinstance(value, dict) and k in value)
        return next((f"={key}" for key in keys), None)

    one_of = ", ".join(f"`{key}`" for key in models)
    return Annotated[
        Union[*(Annotated[model, Tag(f"={key}")] for key, model in models.items())],
        Discriminator(
            tag,
            custom_error_type="condition",
            custom_error_message=f"a condition starts with one of {one_of}",
        ),
    ]


def _constraints(constraint: Constraint) -> Iterator[Any]:
    limits = asdict(constraint)
    check, schema = limits.pop("check"), limits.pop("json_schema")
    if schema is not None:
        yield from (PlainValidator(check), WithJsonSchema(schema))
        return
    if given := {name: value for name, value in limits.items() if value is not None}:
        yield Field(**given)
    if check is not None:
        yield AfterValidator(check)
