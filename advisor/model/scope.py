"""Where in a document something holds, and what stands in a cell of a table."""

from __future__ import annotations

from advisor.model.capture import Frozen

Cell = bool | int | float | str | None


class ScopeDoc(Frozen):
    """A scope in the document: nulls where wider."""

    rank: int | None = None
    device: int | None = None
    process: int | None = None
    phase: str | None = None
    operation: str | None = None
