"""What a replay runs on: calls of host threads, operations in streams, and the dependencies between them.

Times are ns as float64, so that fixes may scale them; a capture's int64 ns fit without loss.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.metrics.gaps import LONG_HOST_NS
from advisor.metrics.operations import Rows
from advisor.model.arrays import Array

#: No such call or operation.
NONE = -1
#: A constraint that never binds.
NEVER = -np.inf


class Calls(Rows, frozen=True):
    """Calls in the order in which they began, over all threads.

    A call begins `pre` after the thread's previous call returned and takes `own` unless it waits.
    `gc`, `gil` and `os` say how much of `pre` those explain; `between` marks calls between the
    last work of one step and the first of the next. `operators`: framework operators that a profiler
    recorded from the call's begin to the thread's next call.
    """

    thread: Array  # dense, indexes Inputs.origin
    pre: Array
    own: Array
    kind: Array  # advisor.sources.schema.Call
    row: Array  # in api_calls
    step: Array  # NONE outside steps
    between: Array
    gc: Array
    gil: Array
    os: Array
    operators: Array

    @property
    def explained(self) -> Array:
        """How much of `pre` a collection, the GIL or the operating system takes."""
        return np.asarray(np.minimum(self.gc + self.gil + self.os, self.pre))

    @property
    def host_code(self) -> Array:
        """Mask of the calls with host code of its own before them, not what a call costs: between steps,
        and where it is as long as a host gap."""
        return np.asarray(self.between | (self.pre - self.explained >= LONG_HOST_NS))


class Ops(Rows, frozen=True):
    """GPU operations in the order of their calls; those of one stream run in this order.

    An operation starts `latency` after its call returned (after it began where `by_start`), and
    `gap` after its predecessor on the stream ended, whichever is later. `latency` is NEVER where
    the call holds nothing back: inside a graph run, or where the call is unknown.
    """

    call: Array  # position in Calls; where no call is known, the position in time
    stream: Array  # dense, indexes Inputs.ready
    duration: Array
    latency: Array
    gap: Array
    by_start: Array
    at: Array  # position in Analysis.ops
    step: Array
    node: Array  # inside a graph run, and not its first operation

    def calls_of(self, mine: Array) -> Array:
        """The calls that issued these operations and whose end they wait for."""
        return self.call[mine & (self.latency > NEVER)]

    def last_of_call(self, op: int) -> int:
        """The last operation of the same call and stream: the state at its end is what is kept."""
        until = int(np.searchsorted(self.call, self.call[op], "right"))
        return op + int(np.flatnonzero(self.stream[op:until] == self.stream[op])[-1])


class Waits(Rows, frozen=True):
    """Calls that return no earlier than `lag` after an operation ended, ascending by call."""

    call: Array
    op: Array
    lag: Array


class Handovers(Rows, frozen=True):
    """Calls that begin no earlier than `delay` after a call of another thread returned, ascending:
    one thread stopped, the other went on."""

    call: Array
    after: Array
    delay: Array


class Joins(Rows, frozen=True):
    """Operations that start no earlier than `delay` after one of another stream ended (events)."""

    op: Array
    on: Array
    delay: Array


class Inputs(Struct, frozen=True):
    """Everything that a replay needs. `origin`: when each thread's clock starts; `ready`: when
    each stream is free for its first operation."""

    calls: Calls
    ops: Ops
    waits: Waits
    joins: Joins
    handovers: Handovers
    origin: Array
    ready: Array

    def with_calls(self, **columns: Array) -> Inputs:
        return replace(self, calls=replace(self.calls, **columns))

    def with_ops(self, **columns: Array) -> Inputs:
        return replace(self, ops=replace(self.ops, **columns))

    def no_longer_than(self, other: Inputs) -> bool:
        """Whether each call and operation is one of the other's and takes no more time there."""
        if len(self.calls) != len(other.calls) or len(self.ops) != len(other.ops):
            return False
        pairs = ((self.calls, other.calls, ("pre", "own")), (self.ops, other.ops, ("duration", "gap")))
        shorter = all((getattr(a, n) <= getattr(b, n)).all() for a, b, names in pairs for n in names)
        return shorter and np.array_equal(self.ops.stream, other.ops.stream)
