"""GPU work that the capture holds and the analysed window leaves out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.metrics.intervals import EMPTY, Coverage, Spans, clip, gaps, intersect, subtract
from advisor.metrics.startup import Startup
from advisor.metrics.steps import Steps
from advisor.metrics.window import Window

#: A first step that keeps the GPU busy for this many times as long as any other step does other
#: work than they do. A cold step is slow on the host; its kernels take as long as later.
_OTHER_WORK = 2.0
_END = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class OutsideWork:
    """Busy time of one device: `inside` the window in ns, and where it was busy outside the window
    and outside start-up, by what that work is. The places do not overlap."""

    inside: int
    places: dict[str, Spans]

    @property
    def outside(self) -> int:
        """Busy time outside the window and start-up, ns."""
        return sum(spans.total for spans in self.places.values())


def outside_work(busy: Spans, launched: Spans, window: Window, steps: Steps, startup: Startup) -> OutsideWork:
    """Where a device worked outside its window. `busy` is when it worked at all, `launched` when it
    ran what the host launched within the window.

    The first step is left out of the window on purpose: it counts only where it does other work
    than the steps that follow.
    """
    left = subtract(busy, gaps(window.holes, window.start, window.end))
    inside = busy.total - left.total
    left = subtract(left, startup.spans)
    first = _first_step(steps, window)
    if len(first) and not _does_other_work(busy, steps):
        left, first = subtract(left, first), EMPTY
    places = {}
    for name, where in {
        "launched inside the window, ran after it": clip(launched, window.end, _END),
        "a first step that does other work": first,
        "before the window": clip(left, -_END, window.start),
        "inside the window, where nothing was analysed": clip(left, window.start, window.end),
        "after the window": clip(left, window.end, _END),
    }.items():
        places[name] = intersect(left, where)
        left = subtract(left, where)
    return OutsideWork(inside, places)


def _first_step(steps: Steps, window: Window) -> Spans:
    """The first step, where the window begins after it."""
    if len(steps) < 2 or steps.gpu_end[0] > window.start:
        return EMPTY
    return Spans(steps.gpu_start[:1], steps.gpu_end[:1])


def _does_other_work(busy: Spans, steps: Steps) -> bool:
    worked = Coverage(busy).within(steps.begin, steps.gpu_end)
    return bool(worked[0] > _OTHER_WORK * worked[1:].max())
