"""Tables of `advisor stats`: columns with units, computed by metrics, written by reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from advisor.model.arrays import Array

#: ns, percent, decimal megabytes, bytes, MB/s, a factor, or a plain number or name.
Unit = Literal["", "ns", "%", "MB", "B", "MB/s", "x"]


@dataclass(frozen=True)
class Column:
    """One column. Numbers are an array, names a sequence of str; `absent` marks empty cells.

    `decimals` are the places that count in a number (0: whole numbers). Where text has no room
    for all columns, those of the highest `rank` go first; rank 0 always stays.
    """

    name: str
    values: Array | Sequence[str]
    unit: Unit = ""
    decimals: int = 0
    rank: int = 0
    absent: Array | None = None

    @property
    def heading(self) -> str:
        """The name with its unit, as `nsys stats` prints it: ``Total Time (ns)``."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def is_text(self) -> bool:
        return not isinstance(self.values, np.ndarray)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Array) -> Column:
        """The column of these rows (positions)."""
        values = self.values
        picked = values[rows] if isinstance(values, np.ndarray) else [values[i] for i in rows.tolist()]
        absent = None if self.absent is None else self.absent[rows]
        return replace(self, values=picked, absent=absent)


@dataclass(frozen=True)
class StatsTable:
    """One report. `scope` says which part of the capture was counted, `note` what a reader
    should know, such as why there are no rows.

    Rows of one `group` (numbered from 0 in order) are kept together by :meth:`head`. Text leaves
    `quiet` rows out.
    """

    report: str
    title: str
    columns: tuple[Column, ...]
    scope: str = ""
    note: str = ""
    quiet: Array | None = None
    group: Array | None = None

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    @property
    def items(self) -> int:
        """What :meth:`head` counts: groups where rows are grouped, else rows."""
        if self.group is None:
            return len(self)
        return int(self.group[-1]) + 1 if len(self.group) else 0

    def column(self, name: str) -> Column:
        """The column of this name. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def take(self, rows: Array) -> StatsTable:
        """The table of these rows (positions)."""
        return replace(
            self,
            columns=tuple(c.take(rows) for c in self.columns),
            quiet=None if self.quiet is None else self.quiet[rows],
            group=None if self.group is None else self.group[rows],
        )

    def head(self, count: int | None) -> StatsTable:
        """The first `count` rows, or groups of rows; all of them for None."""
        if count is None or count >= self.items:
            return self
        order = np.arange(len(self)) if self.group is None else self.group
        return self.take(np.flatnonzero(order < count))


def rounded(values: Array, decimals: int) -> Array:
    """Half away from zero, as SQLite rounds and `nsys stats` prints; Python rounds half to even."""
    scale = 10.0**decimals
    return np.asarray(np.copysign(np.floor(np.abs(values) * scale + 0.5) / scale, values))
