"""What each resource has to do by itself in a step, whatever runs beside it: the copy engines of a device,
one for each direction, its links to other GPUs, and the thread that launches. No schedule makes a step
shorter than the longest of them (Amdahl); streams are in `replay.StepTimes`.
"""

from __future__ import annotations

import numpy as np

from advisor.gain.inputs import Inputs
from advisor.gain.replay_ops import Work
from advisor.metrics.intervals import union
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import DTOH, HTOD, PTOP


def time_alone(work: Work, duration: Array, mine: Array) -> float:
    """How long these operations take in a mean step on the device where they take most, ns: what ran side by
    side in the capture, such as collectives on two streams, counts once."""
    share = work.taken.excerpt.share(work.taken.inputs.ops.step)
    mine = mine & (share > 0)
    ops, most = work.a.ops, 0.0
    for device in distinct(work.device[mine]).tolist():
        here = mine & (work.device == device)
        start, end = ops.start[work.at[here]], ops.end[work.at[here]]
        once = union(start, end).total / max(int((end - start).sum()), 1)
        most = max(most, once * float((duration * share)[here].sum()))
    return most


class Resources:
    """Time that each resource takes for its own work; which operations a resource runs is found once."""

    def __init__(self, work: Work) -> None:
        self._work, given = work, work.taken.inputs
        up, down, peers = (work.direction == way for way in (HTOD, DTOH, PTOP))
        self._shared = [mine for mine in (up, down, peers | work.communication) if mine.any()]
        calls, issuing = given.calls, given.ops.calls_of(np.ones(len(work), bool))
        mine = calls.thread == np.bincount(calls.thread[issuing], minlength=1).argmax()
        # What it does behind its last launch belongs to a step that is not replayed.
        self._launching = mine & (np.arange(len(calls)) <= issuing[mine[issuing]].max(initial=-1))

    def needs(self, inputs: Inputs, host: bool = True) -> Array:
        """Of each copy engine, of the links to other GPUs and, with the `host`, of the thread that launches
        most, without its waits: ns in a mean step."""
        own = [time_alone(self._work, inputs.ops.duration, mine) for mine in self._shared]
        if host and len(inputs.calls):
            time = (inputs.calls.pre + inputs.calls.own)[self._launching]
            own.append(
                float((time * self._work.taken.excerpt.share(inputs.calls.step)[self._launching]).sum())
            )
        return np.array(own)
