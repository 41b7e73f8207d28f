"""The base of the files that are read and the documents that are printed."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, serialize_by_alias=True)

    def replaced(self, **changes: Any) -> Self:
        """The same with other values of these fields, which are checked."""
        return type(self)(**{**dict(self), **changes})
