"""How long the steps of a replay take."""

from __future__ import annotations

import numpy as np

from advisor.gain.excerpt import Replayed
from advisor.gain.inputs import NONE, Inputs, Remembered
from advisor.gain.replay import Played
from advisor.model.arrays import Array, begins_run


class StepTimes:
    """Times of the measured steps. The operations of each step are looked up once for all replays."""

    def __init__(self, excerpt: Replayed, main: int, remembered: Remembered) -> None:
        """`main` is the stream that steps end on, NONE if it may be any."""
        self._excerpt, self._main, self._remembered = excerpt, main, remembered

    def ends(self, inputs: Inputs, played: Played) -> Array:
        """When each replayed step ended on the stream that steps end on, ns."""
        mine, begins = self._remembered(self._ending, inputs.ops.stream, inputs.ops.step)
        ends = np.full(self._excerpt.last - self._excerpt.first + 1, -np.inf)
        if len(mine):
            reached = np.maximum.reduceat(played.op_end[mine], begins)
            ends[inputs.ops.step[mine[begins]] - self._excerpt.first] = reached
        return np.maximum.accumulate(ends)

    def _ending(self, stream: Array, step: Array) -> tuple[Array, Array]:
        """The operations on that stream by step, and where each step begins."""
        # Streams that a fix added hold copies only; the steps end where they did.
        mine = np.flatnonzero((step != NONE) & ((stream == self._main) if self._main != NONE else True))
        mine = mine[np.argsort(step[mine], kind="stable")]
        return mine, np.flatnonzero(begins_run(step[mine]))

    def mean(self, inputs: Inputs, played: Played) -> float:
        """Mean time of the measured steps, ns; no stream can run its work in less."""
        ends = self.ends(inputs, played)
        # A pass that is alone begins where the replay does.
        begins = np.concatenate(([inputs.origin.min(initial=np.inf)], ends[:-1]))
        at = self._excerpt.measured - self._excerpt.first
        at = at[np.isfinite(begins[at])]  # a damaged capture may begin with steps that left no work
        mean = float((ends[at] - begins[at]).mean()) if len(at) else 0.0
        return max(mean, self.busiest(inputs))

    def busiest(self, inputs: Inputs) -> float:
        """Busy time of the busiest stream in a measured step, ns: nodes in branches of a graph overlap,
        though they are replayed as one chain. A kernel that ran long before the one launched before it
        takes no time away from the others: what counts is the latest end of each step's work."""
        ops = inputs.ops
        longest = self._remembered(_busiest, ops.stream, ops.duration, ops.gap, *self.measured(inputs))
        return longest / len(self._excerpt.measured)

    def work(self, inputs: Inputs) -> float:
        """The summed time of the operations of all measured steps, ns."""
        return self._remembered(_sum_of, inputs.ops.duration, self.measured(inputs)[0])

    def measured(self, inputs: Inputs) -> tuple[Array, Array]:
        """The operations of the measured steps by stream and step, and where each of these begins."""
        return self._remembered(self._by_stream, inputs.ops.stream, inputs.ops.step)

    def _by_stream(self, stream: Array, step: Array) -> tuple[Array, Array]:
        mine = np.flatnonzero(np.isin(step, self._excerpt.measured))
        mine = mine[np.lexsort((step[mine], stream[mine]))]
        return mine, np.flatnonzero(begins_run(stream[mine], step[mine]))


def _sum_of(values: Array, at: Array) -> float:
    return float(values[at].sum())


def _busiest(stream: Array, duration: Array, gap: Array, mine: Array, first: Array) -> float:
    """Busy time of the busiest stream in all measured steps, ns."""
    if len(mine) == 0:
        return 0.0
    alone = duration[mine] + np.minimum(gap[mine], 0.0)
    reached = np.cumsum(alone)
    time = np.maximum.reduceat(reached, first) - (reached - alone)[first]
    return float(np.bincount(stream[mine[first]], np.maximum(time, 0.0)).max())
