"""Base of the documents, rules and knowledge: frozen records that pydantic checks only where data comes
from outside.

Importing pydantic and making its classes takes longer than the analysis of a small capture. So records
are msgspec structs, and the pydantic parts of their annotations (`Field`, `StringConstraints`, ...) are
only noted here; `advisor.model.checks` makes the schema when a file is read or JSON is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

from msgspec import Struct, StructMeta, field
from msgspec.structs import replace

_F = TypeVar("_F", bound=Callable[..., Any])


class Later(Struct, eq=False):
    """A call of pydantic that is made when a schema is needed."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    @property
    def excludes(self) -> bool:
        """Whether it leaves a field out of documents."""
        return bool(self.options.get("exclude"))


if TYPE_CHECKING:
    from pydantic import AfterValidator as AfterValidator
    from pydantic import BeforeValidator as BeforeValidator
    from pydantic import Discriminator as Discriminator
    from pydantic import Field as Field
    from pydantic import GetCoreSchemaHandler
    from pydantic import PlainValidator as PlainValidator
    from pydantic import StringConstraints as StringConstraints
    from pydantic import Tag as Tag
    from pydantic import WithJsonSchema as WithJsonSchema
    from pydantic_core import CoreSchema
else:

    def _later(name: str) -> Callable[..., Later]:
        return lambda *args, **options: Later(name, args, options)

    AfterValidator = _later("AfterValidator")
    BeforeValidator = _later("BeforeValidator")
    Discriminator = _later("Discriminator")
    Field = _later("Field")
    PlainValidator = _later("PlainValidator")
    StringConstraints = _later("StringConstraints")
    Tag = _later("Tag")
    WithJsonSchema = _later("WithJsonSchema")


def checked_after(method: _F) -> _F:
    """Marks a method that raises ValueError for faults that annotations cannot express. It runs when a
    file is read, not when the program makes a record."""
    method.checked_after = True  # type: ignore[attr-defined]
    return method


class _Meta(StructMeta):
    """Structs whose fields are given by name and may have a default that is a `Field`."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> Any:
        asked = {key: value for key, value in body.items() if isinstance(value, Later)}
        for key, value in asked.items():
            left = dict(value.options)
            if alias := left.pop("alias", None):
                left["name"] = alias
            known = {k: left.pop(k) for k in ("default", "default_factory", "name") if k in left}
            if known:
                body[key] = field(**known)
            else:
                del body[key]
            asked[key] = Later(value.name, value.args, left)
        body["extra_checks"] = asked
        return super().__new__(cls, name, bases, body, frozen=True, kw_only=True, **options)


if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field, field))
    class _Record:
        __struct_fields__: ClassVar[tuple[str, ...]]
        __struct_encode_fields__: ClassVar[tuple[str, ...]]
        __struct_defaults__: ClassVar[tuple[Any, ...]]
else:

    class _Record(Struct, metaclass=_Meta): ...


class Frozen(_Record):
    """Base of the shared records: immutable, and strict about unknown keys. Pydantic's method names are
    kept: a record made by the program is not checked, one made by these methods is."""

    #: The pydantic options of each field besides its annotation.
    extra_checks: ClassVar[dict[str, Later]]
    #: How values are checked, in the terms of pydantic's core.
    checking: ClassVar[dict[str, bool]] = {}
    #: Whether JSON has the fields of this class after those of its subclasses.
    listed_last: ClassVar[bool] = False

    def replaced(self, **changes: Any) -> Self:
        """The same with other values of these fields, unchecked."""
        return replace(self, **changes)  # type: ignore[type-var]

    def model_copy(self, *, update: dict[str, Any] | None = None) -> Self:
        return self.replaced(**(update or {}))

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        """A record of plain data. Raises pydantic's ValidationError, a ValueError."""
        from advisor.model.checks import adapter

        found: Self = adapter(cls).validate_python(data)
        return found

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        from advisor.model.checks import adapter

        found: Self = adapter(cls).validate_json(text)
        return found

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        from advisor.model.checks import adapter

        return adapter(cls).json_schema()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from advisor.model.checks import schema_of

        return schema_of(cls, handler)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Plain data, in the types that the annotations say; options as of pydantic's method."""
        from advisor.model.checks import adapter, typed

        found: dict[str, Any] = adapter(type(self)).dump_python(typed(self), **options)
        return found

    def model_dump_json(self, **options: Any) -> str:
        from advisor.model.checks import adapter, typed

        return adapter(type(self)).dump_json(typed(self), **options).decode()
