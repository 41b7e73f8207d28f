"""The base of the documents that are printed."""

from __future__ import annotations

import json
import re
from typing import Any, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

#: Texts of a JSON document, and exponents of its numbers: ``1e23``.
_TEXT_OR_EXPONENT = re.compile(rb'"(?:[^"\\]|\\.)*+"?|(?<=[0-9])e(?=[0-9])')


class Frozen(Struct, frozen=True, kw_only=True):
    """A document or a part of one: immutable. What is read is checked, keys that a later version has added
    are left out."""

    def replaced(self, **changes: Any) -> Self:
        """The same with other values of these fields."""
        return replace(self, **changes)

    def written(self) -> Self:
        """The same without what only pages draw."""
        return self

    def model_dump(self) -> dict[str, Any]:
        """The whole document as dictionaries, tuples and plain values, numbers in the types that the fields
        declare."""
        plain: dict[str, Any] = msgspec.to_builtins(self._declared())
        return plain

    def model_dump_json(self, indent: int | None = None) -> str:
        """The whole document as JSON; infinite and undefined numbers are null."""
        document = self._declared()
        try:
            data = msgspec.json.encode(document)
        except UnicodeEncodeError:
            # A file name that is not UTF-8 holds surrogates; JSON can carry them as \udcXX.
            compact = (",", ":") if indent is None else None
            plain = msgspec.to_builtins(document)
            return json.dumps(plain, indent=indent, ensure_ascii=False, separators=compact)
        data = _TEXT_OR_EXPONENT.sub(lambda found: b"e+" if found[0] == b"e" else found[0], data)
        return (data if indent is None else msgspec.json.format(data, indent=indent)).decode()

    def _declared(self) -> Any:
        """The document as it would be read again: whole numbers as floats where a field is one."""
        return self.model_validate(msgspec.to_builtins(self.written(), enc_hook=_plain))

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        """The document of plain data. Raises msgspec.ValidationError, a ValueError."""
        return msgspec.convert(data, cls)

    @classmethod
    def model_validate_json(cls, data: str | bytes) -> Self:
        """The document of its JSON."""
        return msgspec.json.decode(data, type=cls)


def _plain(value: Any) -> Any:
    """A number of NumPy as Python's."""
    return value.item()
