"""Events that come once in a pass of the whole model and tell a step from what repeats inside it.

A layer, a block, a micro-batch or a piece of a graph repeats as regularly as a step does; but
tokens are sampled, inputs embedded, losses taken and weights updated once a pass, not once a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.knowledge.files import StepPatterns
from advisor.metrics.host import Ranges
from advisor.metrics.steps.model import Work
from advisor.model.arrays import Array, distinct

#: Kinds of kernels that come once a pass.
_KINDS = ("embedding", "sampling", "optimizer", "loss")
#: A segmentation is rejected where fewer of its parts hold the marker.
_MISSED = 0.5
#: It is confirmed where so many do.
_HELD = 0.8


@dataclass(frozen=True)
class Marker:
    """Events of one kind, as positions of the operations that they belong to, ascending; `passes`
    tells for each which of the groups between heavy kernels it is in."""

    kind: str
    at: Array
    group: Array

    @property
    def passes(self) -> int:
        """How many passes these events tell of: those without a matrix product or attention between
        them are one."""
        return len(distinct(self.group))

    def ends(self) -> Array:
        """The last event of each pass."""
        return self.at[np.concatenate((self.group[1:] != self.group[:-1], [True]))]

    def starts(self) -> Array:
        """The first event of each pass."""
        return self.at[np.concatenate(([True], self.group[1:] != self.group[:-1]))]


def find_markers(work: Work, ranges: Ranges, patterns: StepPatterns, kinds: Sequence[str]) -> list[Marker]:
    """The markers of a process on a device, by operators and ranges, else by kernels. `kinds` are
    those of the kernel names."""
    at: dict[str, list[Array]] = {}
    named: dict[str, list[int]] = {}
    for i, kind in ranges.matching(patterns.marker).items():
        named.setdefault(kind, []).append(i)
    for kind, chosen in named.items():
        rows = ranges.rows(chosen)
        mine = rows["process"] == work.process
        at.setdefault(kind, []).extend(work.issued_in(rows["start"][mine], rows["end"][mine]))
    by_range = {kind for kind, found in at.items() if any(len(p) for p in found)}
    for kind in _KINDS:
        if kind not in by_range:
            wanted = np.array([k == kind for k in kinds], bool)
            at.setdefault(kind, []).append(work.named(wanted))
    found = []
    for kind in sorted(at):
        positions = distinct(np.concatenate(at[kind]))
        if len(positions):
            found.append(Marker(kind, positions, work.groups(positions)))
    return found


def contradicts(markers: Sequence[Marker], op_step: Array, count: int) -> bool:
    """True where most parts of a segmentation lack a marker: what repeats lies inside a pass."""
    return any(_share(m, op_step, count) < _MISSED for m in markers)


def confirmations(markers: Sequence[Marker], op_step: Array, count: int) -> int:
    """How many of the markers come in almost every part, and once."""
    return sum(
        _share(m, op_step, count) >= _HELD and len(distinct(m.group[op_step[m.at] >= 0])) <= count
        for m in markers
    )


def _share(marker: Marker, op_step: Array, count: int) -> float:
    """Share of the parts that hold the marker."""
    held = op_step[marker.at]
    return len(distinct(held[held >= 0])) / max(count, 1)
