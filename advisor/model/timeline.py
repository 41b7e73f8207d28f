"""`Timeline`: the overview of a window in bins of one length, a `Lane` for each thing that is shown of it."""

from __future__ import annotations

from advisor.model.facts import Interval
from advisor.model.records import Frozen


class Lane(Frozen, frozen=True, kw_only=True):
    """One row of the overview timeline: `values` per bin, 0..1 unless `unit` says otherwise."""

    name: str
    device: int | None = None
    unit: str = "ratio"
    values: tuple[float | None, ...]


class Timeline(Frozen, frozen=True, kw_only=True):
    start_ns: int = 0
    bin_ns: int = 0
    lanes: tuple[Lane, ...] = ()
    marks: tuple[Interval, ...] = ()
