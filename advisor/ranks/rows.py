"""One row a collective, small enough to send from rank to rank."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisor.model.arrays import Array

UNKNOWN = -1


@dataclass(frozen=True)
class RankRows:
    """Collectives of one device of one rank, ascending by start.

    Times are ns of the capture's own session; `zero` is the absolute time (ns since 1970) of its
    0, None where the capture does not record it. `window` and `steps` are those of the analysis.
    `lead[i]` is what the device did since the collective before, by the columns that `leads`
    names, UNKNOWN in the first row. `place` is that in the step, UNKNOWN outside of steps; `bytes`,
    `group` (indexing `groups`) and `sequence` are UNKNOWN where the tracer did not record them.
    """

    rank: int
    device: int
    zero: int | None
    window: tuple[int, int]
    window_ns: int
    steps: int
    kinds: tuple[str, ...]
    groups: tuple[str, ...]
    leads: tuple[str, ...]
    kind: Array
    stream: Array
    start: Array
    duration: Array
    exposed: Array
    place: Array
    bytes: Array
    group: Array
    sequence: Array
    lead: Array

    def __len__(self) -> int:
        return len(self.start)

    def packed(self) -> RankRows:
        """The same in as few bytes as the values take."""
        smaller: dict[str, Any] = {n: _smallest(a) for n, a in _arrays(self)}
        return replace(self, **smaller)

    def unpacked(self) -> RankRows:
        """The same with times in 64-bit integers, for arithmetic; the rest stays small."""
        larger: dict[str, Any] = {
            n: getattr(self, n).astype(np.int64) for n in ("start", "duration", "exposed")
        }
        return replace(self, **larger)


def _arrays(rows: RankRows) -> list[tuple[str, Array]]:
    values = ((f.name, getattr(rows, f.name)) for f in fields(rows))
    return [(name, value) for name, value in values if isinstance(value, np.ndarray)]


def _smallest(values: Array) -> Array:
    """Integers in the smallest signed type that holds them."""
    if len(values) == 0:
        return values.astype(np.int8)
    low, high = int(values.min()), int(values.max())
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values.astype(np.int64)
