"""The type of columns."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

#: One column of a table; its docstring or name says of what kind and in which unit.
Array = NDArray[Any]
