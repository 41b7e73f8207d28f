"""Idle gaps of a device, and the operation, call and thread that each of them waited for."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from advisor.metrics.host import Ranges
from advisor.metrics.intervals import Coverage, Spans, gaps, positions, subtract, union
from advisor.metrics.operations import Operations, Rows
from advisor.metrics.window import Window
from advisor.model.arrays import Array, compact
from advisor.sources.schema import MISSING, Call
from advisor.sources.trace import Trace

#: Work starts within microseconds of its launch: launched less than this before a gap began, it was late.
START_NS = 2_000
#: Host code inside one gap from here on is a gap of its own, wherever steps begin: calibration#host-gap.
LONG_HOST_NS = 200_000


class Gaps(Rows, frozen=True):
    """One entry a gap, ascending. `next_op` indexes the device's operations, MISSING if the
    gap ends at the window's or a hole's edge, `prev_op` the one whose end began it; call columns
    belong to the call that issued `next_op`."""

    start: Array
    end: Array
    next_op: Array
    prev_op: Array
    call_start: Array
    call_end: Array
    call: Array
    thread: Array
    process: Array
    internal: Array  # between two nodes of one graph run
    crosses_step: Array
    migrated: Array  # ends with a migration of unified memory
    held: Array  # a process outside the capture has the device for most of it, after the call's return

    @property
    def length(self) -> Array:
        return self.end - self.start

    @property
    def queued(self) -> Array:
        """Gaps that began when the next operation had long been launched."""
        return np.asarray((self.call != MISSING) & (self.call_end + START_NS <= self.start))


def device_gaps(
    trace: Trace, ops: Operations, op_step: Array, window: Window, migration: Array, others: Spans
) -> tuple[Gaps, Spans]:
    """Gaps and busy union of one device's operations (sorted by start) inside the window;
    `migration` is a mask of those that move pages of unified memory, `others` when a process outside
    the capture has the device."""
    busy = union(ops.start, ops.end)
    idle = subtract(gaps(busy, window.start, window.end), window.holes)
    after = positions(ops.start, idle.end)
    at = np.minimum(after, len(ops) - 1)
    known = (after < len(ops)) & (ops.start[at] == idle.end)
    # The operation that ended last before the gap.
    prev = np.maximum(at - 1, 0)
    if (ops.end[1:] < ops.end[:-1]).any():
        latest = ops.end >= np.maximum.accumulate(ops.end)
        prev = np.maximum.accumulate(np.where(latest, np.arange(len(ops)), 0))[prev]
    has_prev = known & (at > 0)
    internal = np.zeros(len(at), bool)
    if ops.graph_node.any():
        internal = (
            has_prev
            & (ops.graph_node[at] != 0)
            & (ops.graph_node[prev] != 0)
            & (ops.correlation[at] == ops.correlation[prev])
            & (ops.process[at] == ops.process[prev])
        )
    crosses = has_prev & (op_step[at] != op_step[prev])
    migrated = known & migration[at]
    api = np.where(known & ~migrated, ops.api[at], MISSING)
    if trace.has("api_calls"):
        calls = trace.columns("api_calls", ("start", "end", "call", "thread"))
        call_start, call_end, call, thread = (calls[n].take(api) for n in ("start", "end", "call", "thread"))
        if (bare := api < 0).any():
            for column in (call_start, call_end, call, thread):
                column[bare] = MISSING
        if migrated.any():
            # The driver moves pages upon a fault: of the host thread that called CUDA last.
            last = np.searchsorted(calls["start"], idle.start[migrated], "right") - 1
            thread[migrated] = np.where(last >= 0, calls["thread"][last], MISSING)
    else:
        call_start = call_end = call = thread = np.full(len(idle), MISSING, np.int64)
    issued = np.clip(call_end, idle.start, idle.end)
    held = np.zeros(len(idle), bool)
    if len(others):
        held = (call != MISSING) & (2 * Coverage(others).within(issued, idle.end) > idle.end - issued)
    call_kind, thread = call.astype(np.int8), thread.astype(np.int32)
    process = compact(np.where(known, ops.process[at], MISSING).astype(np.int32))
    following = np.where(known, at, MISSING).astype(np.int32)
    before = np.where(has_prev, prev, MISSING).astype(np.int32)
    of_call = call_start, call_end, call_kind, compact(thread), process
    return Gaps(idle.start, idle.end, following, before, *of_call, internal, crosses, migrated, held), busy


def empty_queue_share(found: Gaps) -> float | None:
    """Share of the gaps (graph-internal ones left out) whose next operation had not been launched
    2 us before the gap began; None without gaps that have a launch."""
    mine = ~found.internal & (found.call != MISSING)
    if not mine.any():
        return None
    return float((~found.queued[mine]).mean())


def replay_gaps(found: Gaps) -> Array:
    """Mask of the gaps that end with the first node of a graph replay."""
    return np.asarray((found.call == Call.GRAPH_LAUNCH) & ~found.internal)


# --- what the host did in its gaps: the range, Python function or operator that explains them -----


class GapName(NamedTuple):
    text: str
    covered_ns: int  # of the gaps, at most their length
    launches: bool  # kernels or graphs are launched inside it


def name_of_gaps(
    trace: Trace, ranges: Ranges, thread: int, gaps: Spans, around: Collection[int], launches: Array
) -> GapName | None:
    """The name that explains the gaps (ascending, disjoint) of a thread: of the names that cover at least
    half as much as the largest does, the one with the largest share of its own time in gaps, if that is
    more than half. `around` are texts of `ranges` around whole steps, `launches` the starts (ns, ascending)
    of the thread's launches."""
    if not len(gaps):
        return None
    lo, hi = int(gaps.start[0]), int(gaps.end[-1])
    rows = ranges.of_thread(thread, lo, hi)
    inner = ~np.isin(rows["text"], list(around))
    start, end, kind = rows["start"][inner], rows["end"][inner], ranges.kinds[1][rows["text"][inner]]
    names = list(ranges.labels)
    if trace.has("python_calls"):
        calls = trace.columns("python_calls", ("start", "end", "thread", "text_id"))
        at = (calls["thread"] == thread) & (calls["start"] < hi) & (calls["end"] > lo)
        ids, function = np.unique(calls["text_id"][at], return_inverse=True)
        start = np.concatenate((start, calls["start"][at]))
        end = np.concatenate((end, calls["end"][at]))
        kind = np.concatenate((kind, len(names) + function))
        names += trace.texts(ids.tolist())
    if not len(kind):
        return None
    inside = np.bincount(kind, Coverage(gaps).within(start, end))
    length = np.bincount(kind, end - start)
    own = np.where(2 * inside >= inside.max(), inside / np.maximum(length, 1), 0)
    best = int(np.argmax(own))
    if 2 * inside[best] <= length[best]:
        return None
    mine = kind == best
    issued = np.searchsorted(launches, end[mine]) - np.searchsorted(launches, start[mine])
    return GapName(names[best], min(int(inside[best]), gaps.total), bool(issued.any()))
