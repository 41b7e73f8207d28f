"""Steps: the GPU work that one pass of the serving loop launched.

A range selects API calls; the step is the GPU work of those calls, found by correlation. Step time
runs from the last GPU end of one step to the last GPU end of the next, never from the range's own
times: with asynchronous replay a host range lasts 0.6 ms of a 2 ms step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from advisor.knowledge.files import StepPatterns
from advisor.metrics.host import Ranges
from advisor.metrics.operations import Kind, Operations
from advisor.sources.schema import MISSING, Call
from advisor.sources.trace import Trace

Array = NDArray[Any]
Method = Literal["ranges", "graph launches", "kernel sequence", "opaque graph launches", "none"]

#: A repeating kernel must split the sequence into parts whose sizes differ by less than this.
_SEQUENCE_SPREAD = 0.05
_MIN_REPEATS = 3
#: Fewer even returns than this on both sides of one stumble are no proof of layers.
_MIN_LAYERS = 8


@dataclass(frozen=True)
class Steps:
    """Steps in time order. Arrays have one entry a step; `op_step` one an operation (MISSING
    outside steps). `empty` counts ranges that hold neither a call nor GPU work, as host times."""

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

    def __len__(self) -> int:
        return len(self.gpu_end)

    @property
    def time(self) -> Array:
        """Step times in ns, one for each step but the first."""
        return np.diff(self.gpu_end)

    def with_phases(self, phase: tuple[str, ...]) -> Steps:
        return replace(self, phase=phase)


def no_steps(operation_count: int, empty: tuple[tuple[int, int], ...] = (), seen: int = 0) -> Steps:
    none = np.empty(0, np.int64)
    outside = np.full(operation_count, MISSING, np.int64)
    return Steps("none", 0.0, (), none, none, none, none, outside, empty=empty, ranges_seen=seen)


def find_steps(
    trace: Trace, ops: Operations, ranges: Ranges, patterns: StepPatterns, names: Array
) -> Steps:
    """The steps of the capture by the best evidence it holds. `names` are the operations' kernel
    name ids (MISSING for copies and memsets)."""
    found = _from_ranges(trace, ops, ranges, patterns)
    if len(found) >= 2 or found.empty or _holds_most(ops, found):
        return found
    by_graph = _from_graph_launches(trace, ops)
    if by_graph is not None:
        return by_graph
    return _from_kernel_sequence(ops, names) or found


def _holds_most(ops: Operations, steps: Steps) -> bool:
    """True where one marked step is what the capture is about: what repeats in it are layers."""
    length = ops.end - ops.start
    return len(steps) == 1 and 2 * int(length[steps.op_step >= 0].sum()) > int(length.sum())


# ---------------------------------------------------------------- ranges


def _from_ranges(trace: Trace, ops: Operations, ranges: Ranges, patterns: StepPatterns) -> Steps:
    none = no_steps(len(ops))
    if len(ranges) == 0 or not trace.has("api_calls"):
        return none
    named = ranges.matching(patterns.step)
    if not named:
        return none
    rows = ranges.rows(list(named))
    kind = np.array([named[int(t)].kind == "pass" for t in rows["text"]])
    calls = trace.columns("api_calls", ("start", "end", "process", "call"))
    best: Steps | None = None
    best_ops = -1
    # A pass (one forward) describes a step better than the loop around it, unless passes are
    # annotated only in part.
    for wanted_pass in (True, False):
        for process in np.unique(rows["process"][kind == wanted_pass]).tolist():
            mine = (kind == wanted_pass) & (rows["process"] == process)
            for thread in np.unique(rows["thread"][mine]).tolist():
                chosen = np.flatnonzero(mine & (rows["thread"] == thread))
                steps = _steps_of(ops, calls, rows, chosen, named, process, thread)
                held = int((steps.op_step >= 0).sum())
                if best is None or held > best_ops * (1.0 if wanted_pass else 1.0 / 0.9):
                    best, best_ops = steps, held
    return best if best is not None else none


def _steps_of(
    ops: Operations,
    calls: dict[str, Array],
    rows: dict[str, Array],
    chosen: Array,
    named: dict[int, Any],
    process: int,
    thread: int,
) -> Steps:
    start, end = rows["start"][chosen], rows["end"][chosen]
    # Nested ranges of one kind: the outer one counts.
    outer = np.concatenate(([True], end[1:] > np.maximum.accumulate(end)[:-1]))
    chosen, start, end = chosen[outer], start[outer], end[outer]
    mine = np.flatnonzero(calls["process"] == process)
    call_start = calls["start"][mine]
    at = np.searchsorted(start, call_start, "right") - 1
    inside = (at >= 0) & (call_start < end[np.maximum(at, 0)])
    call_step = np.full(len(calls["start"]), MISSING, np.int64)
    call_step[mine] = np.where(inside, at, MISSING)

    held = np.bincount(at[inside], minlength=len(start)) > 0
    op_step = np.where(ops.api >= 0, call_step[np.maximum(ops.api, 0)], MISSING)
    phases = tuple(named[int(t)].phase or "unknown" for t in rows["text"][chosen])
    graph = calls["call"][mine] == Call.GRAPH_LAUNCH
    opaque = len(ops) == 0 and bool((graph & inside).any())
    works = np.bincount(op_step[op_step >= 0], minlength=len(start)) > 0
    empty = tuple((int(a), int(b)) for a, b in zip(start[~held], end[~held], strict=True))
    if opaque:
        keep = np.flatnonzero(np.bincount(at[inside & graph], minlength=len(start)) > 0)
        return Steps(
            "opaque graph launches", 0.5, tuple(phases[i] for i in keep),
            start[keep], end[keep], *_opaque_bounds(start[keep], calls),
            op_step, process, thread, empty, len(start),
        )  # fmt: skip
    keep = np.flatnonzero(works)
    if len(keep) == 0:
        return no_steps(len(ops), empty, len(start))
    renumber = np.full(len(start), MISSING, np.int64)
    renumber[keep] = np.arange(len(keep))
    op_step = np.where(op_step >= 0, renumber[np.maximum(op_step, 0)], MISSING)
    gpu_start, gpu_end = _gpu_bounds(ops, op_step, len(keep))
    return Steps(
        "ranges", 0.95, tuple(phases[i] for i in keep), start[keep], end[keep],
        gpu_start, gpu_end, op_step, process, thread, empty, len(start),
    )  # fmt: skip


def _opaque_bounds(launch: Array, calls: dict[str, Array]) -> tuple[Array, Array]:
    """Even division of the time from the first graph launch to the end of the last call: graphs
    without rows leave launches, which run ahead of the device, and a wait at the end."""
    until = int(calls["end"].max(initial=0))
    edges = np.linspace(int(launch[0]), until, len(launch) + 1).astype(np.int64)
    return edges[:-1], edges[1:]


def _gpu_bounds(ops: Operations, op_step: Array, count: int) -> tuple[Array, Array]:
    """First start and last end of each step on its main stream (the one with most kernel time)."""
    inside = op_step >= 0
    stream = _stream_key(ops)
    busy = inside & (ops.kind != Kind.COPY) if (inside & (ops.kind != Kind.COPY)).any() else inside
    keys, at = np.unique(stream[busy], return_inverse=True)
    weight = np.bincount(at, (ops.end - ops.start)[busy])
    main = inside & (stream == keys[np.argmax(weight)])
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, op_step[main], ops.start[main])
    np.maximum.at(last, op_step[main], ops.end[main])
    bare = last == np.iinfo(np.int64).min  # steps with work on other streams only
    if bare.any():
        np.minimum.at(first, op_step[inside], ops.start[inside])
        rest = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(rest, op_step[inside], ops.end[inside])
        last = np.where(bare, rest, last)
    return first, np.maximum.accumulate(last)


def _stream_key(ops: Operations) -> Array:
    return (ops.process << 40) | (ops.device << 32) | (ops.stream & 0xFFFFFFFF)


# ---------------------------------------------------------------- without ranges


def _from_graph_launches(trace: Trace, ops: Operations) -> Steps | None:
    """Periodic graph launches of one size; opaque ones give host times only."""
    if not trace.has("api_calls"):
        return None
    calls = trace.columns("api_calls", ("start", "end", "process", "thread", "call"))
    launch = np.flatnonzero(calls["call"] == Call.GRAPH_LAUNCH)
    if len(launch) < _MIN_REPEATS:
        return None
    launch = launch[np.argsort(calls["start"][launch], kind="stable")]
    thread = calls["thread"][launch]
    main = np.argmax(np.bincount(np.unique(thread, return_inverse=True)[1]))
    launch = launch[thread == np.unique(thread)[main]]
    start, end = calls["start"][launch], calls["end"][launch]
    at_op = np.full(len(calls["start"]), MISSING, np.int64)
    at_op[launch] = np.arange(len(launch))
    op_launch = np.where(ops.api >= 0, at_op[np.maximum(ops.api, 0)], MISSING)
    process, tid = int(calls["process"][launch[0]]), int(calls["thread"][launch[0]])
    held = np.bincount(op_launch[op_launch >= 0], minlength=len(launch))
    if len(ops) == 0 or not held.any():
        if len(ops):
            return None
        return Steps(
            "opaque graph launches", 0.5, ("unknown",) * len(launch), start, end,
            *_opaque_bounds(start, calls), np.full(len(ops), MISSING, np.int64), process, tid,
        )  # fmt: skip
    full = held[held > 0]
    if held.sum() < 0.5 * len(ops) or np.ptp(full) > _SEQUENCE_SPREAD * np.median(full):
        return None
    # Everything issued from one launch up to the next belongs to the step.
    mine = ops.process == process
    op_start = np.where(ops.api >= 0, calls["start"][np.maximum(ops.api, 0)], ops.start)
    op_step = np.where(mine, np.searchsorted(start, op_start, "right") - 1, MISSING)
    gpu_start, gpu_end = _gpu_bounds(ops, op_step, len(launch))
    return Steps(
        "graph launches", 0.8, ("unknown",) * len(launch), start, end, gpu_start, gpu_end,
        op_step, process, tid,
    )  # fmt: skip


def _from_kernel_sequence(ops: Operations, names: Array) -> Steps | None:
    """The kernel that comes once a step: it returns after an almost constant number of operations.

    A kernel that comes once a layer returns regularly, too, but stumbles at every step's end, so
    its irregular returns are evenly spaced; such kernels are passed over. Of the rest the one that
    returns most often marks the step.
    """
    stream = _stream_key(ops)
    kernel = names >= 0
    if kernel.sum() < 8 * _MIN_REPEATS:
        return None
    keys, at = np.unique(stream[kernel], return_inverse=True)
    main = np.flatnonzero((stream == keys[np.argmax(np.bincount(at))]) & kernel)
    sequence = names[main]
    order = np.argsort(sequence, kind="stable")
    ranked = sequence[order]
    first = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1])))
    count = np.diff(np.append(first, len(ranked)))
    best: Array | None = None
    for begin, n in zip(first.tolist(), count.tolist(), strict=True):
        if n < _MIN_REPEATS or n > len(main) / 8:
            continue
        position = order[begin : begin + n]
        if _marks_steps(position, len(main)) and (best is None or n > len(best)):
            best = position
    if best is None:
        return None
    marker = main[best]
    period = int(np.median(np.diff(best)))
    begin = main[max(int(best[0]) - period + 1, 0)]
    same = stream == stream[marker[0]]
    op_step = np.searchsorted(marker, np.arange(len(ops)), "left")
    inside = same & (op_step < len(marker)) & (np.arange(len(ops)) >= begin)
    gpu_end = np.maximum.accumulate(ops.end[marker])
    gpu_start = np.concatenate(([ops.start[begin]], gpu_end[:-1]))
    return Steps(
        "kernel sequence", 0.6, ("unknown",) * len(marker), gpu_start, gpu_end, gpu_start,
        gpu_end, np.where(inside, op_step, MISSING),
    )  # fmt: skip


def _marks_steps(position: Array, length: int) -> bool:
    """True when a kernel at these positions of a sequence of `length` comes once a step."""
    period = np.diff(position)
    median = float(np.median(period))
    if median < 8 or median * len(position) < 0.5 * length:
        return False
    if (np.abs(period - median) <= _SEQUENCE_SPREAD * median).mean() < 0.75:
        return False
    odd = np.flatnonzero(period != median)
    odd = odd[odd > 0]  # the first return follows warm-up or a prefill
    if len(odd) == 0:
        return True
    # Irregular returns side by side are one step's end; that of the last step says nothing.
    odd = odd[np.concatenate(([True], np.diff(odd) > 1))]
    odd = odd[odd < len(period) - 1]
    if len(odd) == 1:
        # Two passes: the one end is in the middle of everything.
        before, after = int(odd[0]), len(period) - 1 - int(odd[0])
        return min(before, after) < _MIN_LAYERS or abs(before - after) > 2
    if len(odd) == 0:
        return True
    spacing = np.diff(odd)
    layers = int(spacing.min()) >= 2 and np.ptp(spacing) <= max(1, 0.1 * spacing.min())
    return not layers
