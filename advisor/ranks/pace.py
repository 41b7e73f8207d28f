"""Which rank runs the same kernels slower than the others."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from advisor.metrics.pace import KernelPace
from advisor.ranks.align import RankRows

#: Calls of a kernel in a step may differ by so much between ranks that run the same program.
_SAME_CALLS = 0.1
#: Of the time of a rank's kernels, so much must be in kernels that the others run as well, and in
#: so many of them: one kernel alone may work on more data.
_COMPARED, _KERNELS = 0.5, 3
#: A kernel is slowed like the rest where its own slow-down is at least this part of the mean.
_LIKE = 0.5


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
    tables = [{k.key: k for k in rows.paces} for rows in ranks]
    return [_pace(own, [t for t in tables if t is not own]) for own in tables]


def _pace(own: dict[int, KernelPace], others: Sequence[dict[int, KernelPace]]) -> Pace | None:
    compared = []
    for key, mine in own.items():
        theirs = [t[key] for t in others if key in t]
        if len(theirs) == len(others) > 0 and all(
            abs(k.calls - mine.calls) <= _SAME_CALLS * mine.calls and k.median > 0 for k in theirs
        ):
            beside = median(k.median for k in theirs)
            compared.append(SlowerKernel(mine.name, mine.median, beside, mine.time))
    whole = sum(k.time for k in own.values())
    if len(compared) < _KERNELS or sum(k.time for k in compared) < _COMPARED * whole:
        return None
    compared.sort(key=lambda k: -k.time)
    slowdown = _mean(compared)
    alike = min(_alike(compared, slowdown), _alike(compared[1:], slowdown))
    return Pace(slowdown, alike, tuple(compared))


def _mean(kernels: Sequence[SlowerKernel]) -> float:
    """All of their time over what it would be at the pace of the others."""
    return sum(k.time for k in kernels) / sum(k.time / k.slowdown for k in kernels)


def _alike(kernels: Sequence[SlowerKernel], slowdown: float) -> float:
    least = 1 + _LIKE * (slowdown - 1)
    return sum(k.time for k in kernels if k.slowdown >= least) / max(sum(k.time for k in kernels), 1.0)
