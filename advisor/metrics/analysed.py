"""What metrics take of the analysis that computes them: the tables of the capture, its steps, and what else
is computed once for all. A metric that takes another metric says so in a protocol of its own, so that
imports go one way."""

from __future__ import annotations

from typing import Protocol

from advisor.metrics.captured import Captured
from advisor.metrics.damage import Damage
from advisor.metrics.host import HostStates, Ranges, Threads
from advisor.metrics.intervals import Spans
from advisor.metrics.kernels import Names
from advisor.metrics.operations import Operations, Runs
from advisor.metrics.selection import Selection
from advisor.metrics.steps.model import Steps
from advisor.metrics.workload import Judgement
from advisor.model.arrays import Array
from advisor.model.capture import Device
from advisor.sources.schema import Call
from advisor.sources.trace import Trace


class Analysed(Protocol):
    """The analysis of one device of a trace; `metrics.analysis` says what each part is."""

    trace: Trace
    selection: Selection

    @property
    def ops(self) -> Operations: ...

    @property
    def names(self) -> Names: ...

    @property
    def op_name(self) -> Array: ...

    @property
    def ranges(self) -> Ranges: ...

    @property
    def threads(self) -> Threads: ...

    @property
    def span(self) -> tuple[int, int]: ...

    @property
    def runs(self) -> Runs: ...

    @property
    def roles(self) -> dict[int, str]: ...

    @property
    def states(self) -> HostStates: ...

    @property
    def communication(self) -> Array: ...

    @property
    def captured(self) -> Captured: ...

    @property
    def damage(self) -> Damage: ...

    @property
    def pauses(self) -> Spans: ...

    @property
    def repeated(self) -> Steps: ...

    @property
    def steps(self) -> Steps: ...

    @property
    def window_steps(self) -> Array: ...

    @property
    def window_phases(self) -> Array: ...

    @property
    def step_count(self) -> int: ...

    @property
    def program(self) -> Judgement: ...

    @property
    def workload(self) -> str: ...

    @property
    def main_device(self) -> int: ...

    @property
    def main_process(self) -> int: ...

    def device(self, number: int) -> Device: ...

    def device_ops(self, device: int) -> Array: ...

    def feeder(self, device: int) -> int | None: ...

    def calls_of(self, *kinds: Call) -> Array: ...
