"""Columns of a device's kernels, each gathered from the capture's tables once: facts about a million
kernels spend most of their time on such gathers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from advisor.metrics.kernels import launch_shape
from advisor.metrics.passes import Pieces, attention_pieces
from advisor.model.arrays import Array, where
from advisor.model.once import cached_property

if TYPE_CHECKING:
    from advisor.metrics.analysis import Analysis


class DeviceKernels:
    """A device's kernels in the window; `at` are their positions in `Analysis.ops`."""

    def __init__(self, a: Analysis, at: Array) -> None:
        self._a, self.at = a, at

    @cached_property
    def name(self) -> Array:
        return self._a.op_name[self.at]

    @cached_property
    def start(self) -> Array:
        return self._a.ops.start[self.at]

    @cached_property
    def end(self) -> Array:
        return self._a.ops.end[self.at]

    @cached_property
    def length(self) -> Array:
        return self.end - self.start

    @cached_property
    def step(self) -> Array:
        return self._a.steps.op_step[self.at]

    @cached_property
    def passes(self) -> Array:
        """The step of each; where there are no steps, all belong to one pass."""
        return self.step if self._a.step_count else np.zeros(len(self.at), np.int64)

    @cached_property
    def attention_pieces(self) -> Pieces:
        return attention_pieces(self._a, self.at, self.passes)

    @cached_property
    def of_one_phase(self) -> tuple[Array | slice, Array]:
        """Index of the kernels in the window's steps of the commonest phase, and their steps, numbered from
        0 without holes."""
        a, phases = self._a, np.array(self._a.steps.phase)
        common = max(set(a.steps.phase), key=lambda p: (a.steps.phase.count(p), p))
        chosen = np.zeros(len(a.steps) + 1, bool)
        chosen[a.window_steps] = phases[a.window_steps] == common
        inside = where(chosen.take(self.step))
        return inside, (np.cumsum(chosen) - 1).take(self.step[inside])

    @cached_property
    def row(self) -> Array | slice:
        """Their rows in the table of kernels: a slice, which copies no column, where it is sorted."""
        row = self._a.ops.row[self.at]
        if len(row) and (row[1:] - row[:-1] == 1).all():
            return slice(int(row[0]), int(row[-1]) + 1)
        return row

    @cached_property
    def blocks(self) -> Array:
        """Grid sizes, 0 if not recorded."""
        return np.maximum(self._a.trace.columns("kernels", ("blocks",))["blocks"][self.row], 0)

    @cached_property
    def shape(self) -> Array:
        """A number for each grid and block size."""
        return launch_shape(self._a.trace, self.row)


def narrow_ns(start: Array, end: Array, blocks: Array, sms: int) -> float:
    """Time during which all running kernels together have fewer blocks than half the SMs, ns."""
    time = np.concatenate((start, end))
    order = np.argsort(time, kind="stable")
    running = np.cumsum(np.concatenate((blocks, -blocks))[order])[:-1]
    return float(np.diff(time[order])[(running > 0) & (running * 2 < sms)].sum())
