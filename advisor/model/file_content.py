"""The base of what YAML files of rules and knowledge hold.

One declaration serves both ways of reading a file. `FileContent.from_data` converts data that are known to
be right, such as those that come with the package, in next to no time. `file_schema.schema_model` makes a
pydantic model of the same declaration, which finds every fault of a file that people write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import msgspec

from advisor.model.records import Frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """What a value of a file has to satisfy beyond its type, where a file is checked: stands in `Annotated`.

    `check` gives back its value or raises ValueError; with a `json_schema`, it alone judges the type too."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    check: Callable[[Any], Any] | None = None
    json_schema: Mapping[str, Any] | None = field(default=None, hash=False)


class FileContent(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a file that people write, or a part of it: immutable, and strict about unknown keys.

    What fields have to satisfy together stands in `__post_init__`, which reads fields alone, as it is called
    with instances of the pydantic model as well."""

    #: Whether a check converts nothing: "1" is then no number, and 1 not true.
    strict: ClassVar[bool] = False

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """The content of plain data: lists, dictionaries whose keys are texts, and values. Raises
        msgspec.ValidationError, a ValueError, for types and keys; constraints are not looked at."""
        return msgspec.convert(data, cls, str_keys=True, dec_hook=_of_data)

    def _declared(self) -> Any:
        return self


class OwnType:
    """A type of a field that makes itself of plain data."""

    __slots__ = ()
    #: Of a union its types, by the key that only data of this type have; empty for other types.
    kinds: ClassVar[dict[str, type[FileContent]]] = {}

    @classmethod
    def of_data(cls, data: Any) -> Any:
        """The value; ValueError where data cannot be one."""
        for key, kind in cls.kinds.items():
            if isinstance(data, dict) and key in data:
                return kind.from_data(data)
        raise ValueError(f"expected one of the keys {', '.join(cls.kinds)}")


def _of_data(kind: type, data: Any) -> Any:
    return kind.of_data(data)  # type: ignore[attr-defined]
