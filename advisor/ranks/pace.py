"""Which rank runs the same kernels slower than the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.metrics.pace import KernelPace, alike_ratio
from advisor.ranks.align import RankRows

#: Calls of a kernel in a step may differ by so much between ranks that run the same program.
_SAME_CALLS = 0.1
#: Of the time of a rank's kernels, so much must be in kernels that the others run as well, and in
#: so many of them: one kernel alone may work on more data.
_COMPARED, _KERNELS = 0.5, 3


class SlowerKernel(Struct, frozen=True):
    """One kernel of a rank beside the median of the others: ns a call, and ns a step."""

    name: str
    own: float
    others: float
    time: float

    @property
    def slowdown(self) -> float:
        """1 where it takes as long as on the other ranks."""
        return self.own / self.others


class Pace(Struct, frozen=True):
    """`slowdown` of the compared kernels of one rank together, and the share of their time that is
    slowed alike, with the heaviest kernel and without it, whichever is less."""

    slowdown: float
    alike: float
    kernels: tuple[SlowerKernel, ...]


def paces(ranks: Sequence[RankRows]) -> list[Pace | None]:
    """By rank; None where too little of its time can be compared."""
    if len(ranks) < 2:
        return [None] * len(ranks)
    tables = [{k.key: k for k in rows.paces} for rows in ranks]
    shared = [key for key in tables[0] if all(key in t for t in tables)]
    calls, medians = (
        np.array([[getattr(t[key], field) for key in shared] for t in tables]).reshape(len(ranks), -1)
        for field in ("calls", "median")
    )
    apart = np.maximum(calls.max(axis=0) - calls, calls - calls.min(axis=0))
    like = (apart <= _SAME_CALLS * calls) & (medians > 0).all(axis=0)
    found = []
    for i, own in enumerate(tables):
        usable = np.flatnonzero(like[i]).tolist()
        beside = np.median(np.delete(medians, i, axis=0), axis=0)
        mine = [(own[shared[k]], float(beside[k])) for k in usable]
        found.append(_pace(own, [SlowerKernel(k.name, k.median, other, k.time) for k, other in mine]))
    return found


def _pace(own: dict[int, KernelPace], compared: list[SlowerKernel]) -> Pace | None:
    whole = sum(k.time for k in own.values())
    if len(compared) < _KERNELS or sum(k.time for k in compared) < _COMPARED * whole:
        return None
    compared.sort(key=lambda k: -k.time)
    time, slower = np.array([(k.time, k.slowdown) for k in compared]).T
    mean = float(time.sum() / (time / slower).sum())  # over their time at the pace of the others
    alike = min(alike_ratio(time[i:], slower[i:] - 1, mean - 1) for i in (0, 1))
    return Pace(mean, alike, tuple(compared))
