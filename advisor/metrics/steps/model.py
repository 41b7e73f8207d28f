"""What a step is, and when it ran on the device.

A step is the GPU work that one pass launched. Step time runs from the last GPU end of one step to
the last GPU end of the next, never from host times: with asynchronous replay the host is done with
a step of 2 ms after 0.6 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import StepPatterns
from advisor.metrics import limits
from advisor.metrics.loaded.host import Ranges
from advisor.metrics.loaded.kernels import ATTENTION, MATMUL, dense
from advisor.metrics.loaded.operations import Operations, of_copies
from advisor.model.arrays import Array, bounds_of, distinct, marked, merged, picked, where
from advisor.model.once import cached_property
from advisor.sources.schema import DTOH, MISSING, Call
from advisor.sources.trace import Columns, Trace

Method = Literal[
    "ranges",
    "markers",
    "Python functions",
    "graph launches",
    "kernel sequence",
    "copies",
    "waits",
    "pauses",
    "opaque graph launches",
    "single pass",
    "none",
]

_LAST = int(np.iinfo(np.int64).max)
_FIRST = np.iinfo(np.int64).min


class Level(NamedTuple):
    """A level that repeats inside a step ("graph launches"), and how often in the usual step."""

    what: str
    per_step: int


class Steps(Struct, frozen=True, dict=True):
    """Steps of one process on one device, in order of time. Arrays have one entry a step; `op_step` one
    an operation of the capture (MISSING outside steps).

    `level` names the repeated unit ("step", "iteration"), `levels` those inside it; `empty` are ranges
    that hold neither a call nor GPU work, as host times.
    """

    method: Method
    confidence: float
    phase: tuple[str, ...]
    host_start: Array
    host_end: Array
    gpu_start: Array
    gpu_end: Array
    op_step: Array
    process: int = MISSING
    thread: int = MISSING
    empty: tuple[tuple[int, int], ...] = ()
    ranges_seen: int = 0
    level: str = "step"
    levels: tuple[Level, ...] = ()

    def __len__(self) -> int:
        return len(self.gpu_end)

    @property
    def believed(self) -> bool:
        return self.confidence >= limits.steps.BELIEVED

    @cached_property
    def size(self) -> Array:
        """Number of operations in each step."""
        return self.held(slice(None))

    def held(self, at: Array | slice) -> Array:
        """How many of these operations each step holds."""
        return np.bincount(self.op_step[at] + 1, minlength=len(self) + 1)[1:]

    @property
    def begin(self) -> Array:
        """When the device begins each step: at the end of the one before it."""
        return np.concatenate((self.gpu_start[:1], self.gpu_end[:-1]))

    @property
    def time(self) -> Array:
        """Step times in ns, one for each step but the first."""
        return np.diff(self.gpu_end)


def no_steps(operation_count: int, empty: tuple[tuple[int, int], ...] = (), seen: int = 0) -> Steps:
    none = np.empty(0, np.int64)
    outside = np.full(operation_count, MISSING, np.int64)
    return Steps("none", 0.0, (), none, none, none, none, outside, empty=empty, ranges_seen=seen)


class Work(Struct, frozen=True, dict=True):
    """The operations of one process on one device, to be segmented into steps."""

    trace: Trace
    ops: Operations
    process: int
    device: int
    #: Position of each operation's kernel name in the capture's list, MISSING for other operations.
    name: Array
    ranges: Ranges
    patterns: StepPatterns
    #: The kind of each name: its family, or an operation that comes once a step.
    kinds: Sequence[str]
    #: Share of the launches whose work is missing.
    lost: float = 0.0
    #: Whether each step of the program is one pass of a denoiser.
    denoises: bool = False
    #: Operations issued before and after do not count.
    since: int = 0
    until: int = _LAST

    @cached_property
    def mine(self) -> Array:
        """Mask of these operations."""
        mine = (self.ops.process == self.process) & (self.ops.device == self.device)
        if self.since or self.until != _LAST:
            mine &= (self.launched >= self.since) & (self.launched < self.until)
        return np.asarray(mine)

    @cached_property
    def length(self) -> Array:
        """Duration of every operation, 0 if it is not among these."""
        return np.where(self.mine, np.maximum(self.ops.length, 0), 0)

    @cached_property
    def calls(self) -> Columns:
        return self.trace.columns("api_calls", ("start", "end", "process", "thread", "call"))

    @cached_property
    def direction(self) -> Array:
        """Direction of each copy, 0 for other operations."""
        return of_copies(self.trace, self.ops)

    def calls_of(self, kind: Call) -> Array:
        """Rows of api_calls of this kind in the process."""
        return np.flatnonzero((self.calls["call"] == kind) & (self.calls["process"] == self.process))

    def ranges_of(self, texts: list[int]) -> dict[str, Array]:
        """Ranges of the process with these texts, as `Ranges.rows`."""
        rows = self.ranges.rows(texts)
        mine = rows["process"] == self.process
        return {n: v[mine] for n, v in rows.items()}

    @cached_property
    def launched(self) -> Array:
        """When the host issued each operation. Without a known call: between its neighbours on the
        stream; before the first of them by what was issued before the capture; and behind the last, or on
        a stream without any, at its own start."""
        if not len(self.calls["start"]):
            return self.ops.start
        ops, known = self.ops, self.ops.api >= 0
        issued = np.where(known, self.calls["start"][np.maximum(ops.api, 0)], ops.start)
        own = (ops.process == self.process) & (ops.device == self.device)
        bare = np.flatnonzero(own & ~known)
        for stream in distinct(ops.stream[bare]).tolist():
            joined = np.flatnonzero(own & known & (ops.stream == stream))
            mine = bare[ops.stream[bare] == stream]
            mine = mine[ops.start[mine] < ops.start[joined].max(initial=_FIRST)]
            if len(mine):
                before = min(int(issued[joined].min()) - 1, int(ops.start[mine].min()))
                issued[mine] = np.interp(ops.start[mine], ops.start[joined], issued[joined], left=before)
        return np.asarray(issued)

    @cached_property
    def main_stream(self) -> Array:
        """Positions of the operations on the stream that holds most GPU time."""
        mine = np.flatnonzero(self.mine)
        streams, at = dense(picked(self.ops.stream, mine))
        if len(streams) < 2:
            return mine
        return np.asarray(mine[at == np.argmax(np.bincount(at, self.length[mine]))])

    @cached_property
    def main_kernels(self) -> Array:
        """The kernels among them."""
        return np.asarray(self.main_stream[self.name[self.main_stream] >= 0])

    @cached_property
    def heavy(self) -> Array:
        """Which kernel names are matrix products, convolutions or attention."""
        return np.array([kind in MATMUL | ATTENTION for kind in self.kinds], bool)

    def of_kind(self, kind: str) -> Array:
        """Positions of the kernels of a kind."""
        wanted = np.array([each == kind for each in self.kinds], bool)
        known = np.flatnonzero(self.mine & (self.name >= 0))
        return np.asarray(known[wanted[self.name[known]]] if wanted.any() else known[:0])

    def groups(self, at: Array) -> Array:
        """The pass of each of these events (positions, ascending): passes are separated by a matrix
        product or attention, or, if no kernel is known as one, by several operations."""
        before = self._heavy_before
        if not len(before) or before[-1] == 0:
            return np.asarray(np.cumsum(np.diff(at, prepend=at[:1]) > limits.steps.STEP_OPERATIONS))
        return np.asarray(before[at])

    @property
    def is_model(self) -> bool:
        """True if matrix products, convolutions or attention run: then the work has passes."""
        return bool(self._heavy_before[-1:].any())

    @cached_property
    def _heavy_before(self) -> Array:
        heavy = np.zeros(len(self.ops), bool)
        named = self.mine & (self.name >= 0)
        heavy[named] = self.heavy[self.name[named]]
        return np.cumsum(heavy)

    def issued_in(self, start: Array, end: Array) -> tuple[Array, Array]:
        """First and last of the operations issued in each [start, end) of host times that holds any."""
        order = self.by_launch
        time = self.launched[order]
        first = np.searchsorted(time, start, "left")
        last = np.searchsorted(time, end, "left") - 1
        some = last >= first
        return np.asarray(order[first[some]]), np.asarray(order[last[some]])

    @cached_property
    def by_launch(self) -> Array:
        """Positions of these operations in the order in which they were issued."""
        mine = np.flatnonzero(self.mine)
        return mine[np.argsort(self.launched[mine], kind="stable")]

    def copied(self, direction: int) -> Array:
        """Positions of the copies of this direction on the main stream."""
        return np.asarray(self.main_stream[self.direction[self.main_stream] == direction])

    @cached_property
    def waits(self) -> Array:
        """Rows of the calls in which the host waits for results; waits for uploads of inputs do not count."""
        down = distinct(self.ops.api[self.copied(DTOH)])
        return merged(down[(down >= 0) & (self.calls["call"][down] == Call.COPY)], self.calls_of(Call.SYNC))

    @cached_property
    def waited_behind(self) -> Array:
        """Positions of the operations after which the host waits: waits with nothing between are one."""
        return self.last_before(self.by_launch, self.waits)

    def last_before(self, issued: Array, rows: Array) -> Array:
        """The last of the operations `issued` (positions in that order) before each of these calls."""
        last = np.searchsorted(self.launched[issued], self.calls["start"][rows], "right") - 1
        return np.asarray(issued[distinct(last[last >= 0])])

    def share_inside(self, op_step: Array, copies: bool = False) -> float:
        """Share of the kernel time that lies in steps: an upload of weights belongs to none. With
        `copies`, and without kernels, of all GPU time."""
        length = np.where(self.name >= 0, self.length, 0)
        if copies or not length.any():
            length = self.length
        whole = int(length.sum())
        return float(length[op_step >= 0].sum()) / whole if whole else 0.0


def timed(
    work: Work,
    op_step: Array,
    count: int,
    method: Method,
    confidence: float,
    *,
    phase: tuple[str, ...] = (),
    host: tuple[Array, Array] | None = None,
    **more: Any,
) -> Steps:
    """The steps with their times. `op_step` covers the operations of this work only; `host` are the times
    of ranges, else of the first and the last call that issued work of the step."""
    op_step = op_step if work.mine.all() else np.where(work.mine, op_step, MISSING)
    op_step = op_step.astype(np.int32, copy=False)
    gpu_start, gpu_end = _gpu_bounds(work, op_step, count)
    host_start, host_end = host or _host_bounds(work, op_step, gpu_start, gpu_end)
    phases, times = phase or ("unknown",) * count, (host_start, host_end, gpu_start, gpu_end)
    return Steps(method, confidence, phases, *times, op_step, **({"process": work.process} | more))


def _gpu_bounds(work: Work, op_step: Array, count: int) -> tuple[Array, Array]:
    """First start and last end of each step on the main stream: work of other streams may reach
    into the next step. A single step is whole, and so is one without work on the main stream."""
    inside, of = op_step >= 0, (op_step, work.ops.start, work.ops.end)
    main = marked(len(work.ops), work.main_stream)
    main &= inside
    if count == 1:
        main = inside
    first, last = bounds_of(count, *(v[where(main)] for v in of))
    bare = last == _FIRST
    if bare.any():
        whole = bounds_of(count, *(v[inside] for v in of))
        first, last = np.where(bare, whole[0], first), np.where(bare, whole[1], last)
    return first, np.maximum.accumulate(last)


def _host_bounds(work: Work, op_step: Array, gpu_start: Array, gpu_end: Array) -> tuple[Array, Array]:
    issued = (op_step >= 0) & (work.ops.api >= 0)
    if not issued.any():
        return gpu_start, gpu_end
    start, end = (work.calls[name][work.ops.api[issued]] for name in ("start", "end"))
    first, last = bounds_of(len(gpu_end), op_step[issued], start, end)
    none = last == _FIRST
    return np.where(none, gpu_start, first), np.where(none, gpu_end, last)


def opaque_steps(
    work: Work, start: Array, end: Array, op_step: Array, phase: tuple[str, ...], **more: Any
) -> Steps:
    """Steps of graphs without rows, by host times alone: the launches run ahead of the device, so the
    time from the first of them to the end of the last wait is divided evenly. Launches behind it belong
    to no step; without any wait the time of a step is uncertain."""
    calls, sure = work.calls, limits.steps.NO_ROWS_CONFIDENCE
    until = min(int(calls["end"].max(initial=0)), 1 << 62)  # times that cannot be stay in 64 bits
    waits = work.calls_of(Call.SYNC)
    last = waits[np.argmax(calls["start"][waits])] if len(waits) else MISSING
    awaited = int((start < calls["start"][last]).sum()) if len(waits) else 0
    if awaited >= 2:
        until = min(int(calls["end"][last]), 1 << 62)
        start, end, phase = start[:awaited], end[:awaited], phase[:awaited]
        op_step = np.where(op_step < awaited, op_step, MISSING)
    else:
        sure = limits.steps.NO_WAIT_CONFIDENCE
    edges = np.linspace(int(start[0]), until, len(start) + 1).astype(np.int64)
    gpu = edges[:-1], edges[1:]
    return Steps("opaque graph launches", sure, phase, start, end, *gpu, op_step, work.process, **more)


def graph_launches(work: Work) -> Array:
    """Rows of api_calls that launch graphs in this process, in order of time."""
    rows = work.calls_of(Call.GRAPH_LAUNCH)
    return np.asarray(rows[np.argsort(work.calls["start"][rows], kind="stable")])
