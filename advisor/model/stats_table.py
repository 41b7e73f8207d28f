"""A table of `advisor stats`: a pandas frame with the headings of `nsys stats`, and its remarks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from advisor.model.arrays import Array

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StatsTable:
    """One report. Columns of `frame` are headings with their unit: ``Total Time (ns)``.

    `scope` is the part of the capture that was counted, `note` a remark such as why there are no rows.
    `ranks` has a digit a column: text output without room for all columns shows those of the lowest rank,
    0 always. :meth:`head` keeps rows with one value of the column `group` together. `capture` is the path of
    the capture, of a redacted one the name of its file alone."""

    report: str
    title: str
    frame: pd.DataFrame
    scope: str = ""
    note: str = ""
    ranks: tuple[int, ...] = ()
    group: str = ""
    capture: str = ""

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def items(self) -> int:
        """The number of items that :meth:`head` counts: groups, or rows."""
        return int(self.frame[self.group].nunique()) if self.group else len(self)

    def head(self, count: int | None) -> StatsTable:
        """The first `count` rows, or groups of rows; all of them for None."""
        if count is None or count >= self.items:
            return self
        frame = self.frame
        if self.group:
            keys = frame[self.group]
            return replace(self, frame=frame[keys.isin(keys.drop_duplicates()[:count])])
        return replace(self, frame=frame[:count])


def unit_of(heading: str) -> str:
    """``ns`` of ``Total Time (ns)``; empty if a heading has no unit."""
    return heading.rpartition(" (")[2][:-1] if heading.endswith(")") else ""


def rounded(values: Array, decimals: int) -> Array:
    """Half away from zero, as SQLite rounds and `nsys stats` prints; Python rounds half to even."""
    scale = 10.0**decimals
    return np.asarray(np.copysign(np.floor(np.abs(values) * scale + 0.5) / scale, values))
