"""What the host waited for (an event, a stream, a whole context, a transfer of the KV cache), and what ran
in the meantime; the threads that run the loop, and gaps in which one computes on the GPU's results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.knowledge.files import step_patterns
from advisor.metrics import limits
from advisor.metrics.budgeted.budget import DeviceBudget
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage, Spans, intersect, joined, union, union_by
from advisor.metrics.loaded.idle_threads import between_queries, os_kinds, system_calls
from advisor.metrics.loaded.kernels import dense, heaviest
from advisor.metrics.loaded.operations import Kind, call_keys, join, of_copies
from advisor.metrics.loaded.workload import OF_OWN_INPUTS
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, among, distinct, grouped, median_of, percentiles, picked, where
from advisor.sources.schema import DTOH, HTOD, MISSING, Call

#: What a wait is for (`Waits.kind`).
EVENT, STREAM, CONTEXT = range(3)


class Waits(Struct, frozen=True):
    """Waits of the feeding thread in the window, by start (ns).

    `stream` is the one waited for, or on which the event was recorded; MISSING for a context and where the
    event's stream is unknown. `pending` counts the streams among these with work that had been issued before
    and had not ended. `over` is how long the wait went on for the work of `other` after what the host asked
    for had ended: its read-backs since its last wait or, in a wait for a context without one, the work of the
    stream that runs most kernels. Graph nodes count as work of the stream on which their graph began.
    """

    start: Array
    end: Array
    kind: Array
    stream: Array
    pending: Array
    over: Array
    other: Array


def calls_by(a: Stepped, thread: int | Array | None, *kinds: Call) -> Array:
    """Rows of the calls of these classes that a thread, or several, makes in the window."""
    rows = a.calls_of(*kinds)
    own = a.trace.columns("api_calls", ("thread",))["thread"][rows]
    wanted = thread.tolist() if isinstance(thread, np.ndarray) else [thread]
    return np.asarray(rows[among(own, wanted)])


def feeder_waits(a: Budgeted, device: int) -> Waits | None:
    """None if the feeding thread waits in the window and it is not recorded what for."""
    waits, feeder = recorded_waits(a, device), a.feeder(device)
    return None if waits is None or feeder is None else _against_work(a, device, feeder, waits)


def recorded_waits(a: Budgeted, device: int) -> Waits | None:
    """The waits of the thread that feeds the device, not yet compared with the work of the device: `pending`,
    `over` and `other` are 0. None without such a thread."""
    feeder = a.feeder(device)
    if feeder is None:
        return None
    calls = a.trace.columns("api_calls", ("end", "process", "correlation"))
    rows = calls_by(a, feeder, Call.SYNC)
    waits = a.trace.columns("waits", ("start", "end", "process", "correlation", "stream", "event", "sync"))
    process, correlation = calls["process"][rows], calls["correlation"][rows]
    at = join(*call_keys(process, correlation, waits["process"], waits["correlation"]))
    mine = np.flatnonzero((at != MISSING) & (waits["correlation"] != MISSING))
    mine = mine[np.argsort(waits["start"][mine], kind="stable")]
    if len(rows) and not len(mine):
        return None
    start, stream, event = (waits[n][mine] for n in ("start", "stream", "event"))
    end = np.minimum(waits["end"][mine], calls["end"][rows[at[mine]]])  # a call ends no sooner than its wait
    kind = np.where(event != MISSING, EVENT, np.where(stream != MISSING, STREAM, CONTEXT))
    if a.trace.has("events"):
        records, sync = a.trace.columns("events", ("process", "sync", "stream")), waits["sync"][mine]
        at = join(*call_keys(records["process"], records["sync"], waits["process"][mine], sync))
        known = (kind == EVENT) & (at != MISSING) & (sync > 0)
        stream = np.where(known, records["stream"][at], stream)
    return Waits(start, end, kind, stream, *np.zeros((3, len(mine)), int))


def _against_work(a: Budgeted, device: int, feeder: int, waits: Waits) -> Waits:
    """Waits with the work of each stream that had been issued when they began."""
    calls = a.trace.columns("api_calls", ("start", "thread"))
    at = np.flatnonzero((a.ops.device == device) & (a.ops.api != MISSING))
    api, end, kind = a.ops.api[at], a.ops.end[at], a.ops.kind[at]
    _, first, launch = np.unique(api, return_index=True, return_inverse=True)
    stream, issued = a.ops.stream[at][first][launch], calls["start"][api]
    back = (of_copies(a.trace, a.ops)[at] == DTOH) & (calls["thread"][api] == feeder)
    streams, number = np.unique(stream, return_inverse=True)
    if not len(streams):
        return waits
    main = int(np.argmax(np.bincount(number, (end - a.ops.start[at]) * (kind != Kind.COPY))))
    of_stream = grouped(number, len(streams))
    until = np.stack([_last_end(issued[rows], end[rows], waits.start) for rows in of_stream])
    until = np.where((waits.kind == CONTEXT) | (waits.stream == streams[:, None]), until, MISSING)
    result = _last_end(issued[back], end[back], waits.start)
    # A read-back issued before the previous wait is not what this wait is for.
    asked = _last_end(issued[back], issued[back], waits.start) > np.append(MISSING, waits.start[:-1])
    ready = np.where(asked, result, np.where(waits.kind == CONTEXT, until[main], waits.end))
    ready = np.where((ready == MISSING) | (waits.kind == EVENT), waits.end, np.maximum(ready, waits.start))
    last = np.argmax(until, axis=0)
    over = np.minimum(until.max(axis=0), waits.end) - ready
    pending = (until > waits.start).sum(axis=0)
    return replace(waits, pending=pending, over=np.maximum(over, 0), other=streams[last])


def _last_end(issued: Array, end: Array, before: Array) -> Array:
    """The last end of work issued before each time, MISSING if there was none."""
    order = np.argsort(issued, kind="stable")
    ends = np.append(MISSING, np.maximum.accumulate(end[order]))
    return np.asarray(ends[np.searchsorted(issued[order], before)])


# --- what the host does while a device is idle ----------------------------------------------------


def issuers(a: Budgeted, feeder: int, device: int) -> Array:
    """The threads of the feeder's process that issue work of the device: a call that blocks one of them holds
    up its launches, whichever issues most of them (autograd has a thread of its own)."""
    calls = a.trace.columns("api_calls", ("thread", "process"))
    api = picked(a.ops.api, a.device_ops(device))
    api = api[api >= 0]
    threads = calls["thread"][api]
    process = calls["process"][api]
    return distinct(threads[among(process, process[threads == feeder][:1].tolist())])


def loop_thread(budget: DeviceBudget, feeder: int) -> int:
    """The thread whose next call ends most of the host gaps: the one that runs the loop, while an autograd
    thread may launch most of the kernels. The feeding thread if there are no such gaps."""
    gap = budget.gap_parts["host_gap"]
    mine = gap > 0
    return heaviest(budget.gaps.thread[mine], gap[mine]) if mine.any() else feeder


def ticked(a: Stepped, thread: int, gaps: Spans) -> int:
    """ns of these gaps in which the thread sleeps on a timer of its own, between the work of two steps."""
    steps = a.repeated
    if len(steps) < 3 or not steps.believed:
        return 0
    start, end, sleeps = system_calls(a, thread)
    behind = np.searchsorted(steps.gpu_end, start, "right")
    mine = sleeps & gaps.holds(start) & (behind > 0) & (behind < len(steps))
    mine &= ~between_queries(a, thread, start)
    slept = np.bincount(behind[mine], (end - start)[mine], minlength=len(steps))[1:]
    if np.count_nonzero(slept) < limits.host.TICKS_RATIO * len(slept):
        return 0
    periods = np.diff(steps.gpu_start)
    low, high = percentiles(periods, 10, 90)
    decodes = 2 * steps.phase.count("decode") > len(steps)
    short = median_of(slept) < limits.window.BETWEEN_TOKENS_STEPS * median_of(steps.gpu_end - steps.gpu_start)
    if high - low > limits.host.EVEN_TICKS_RATIO * median_of(periods) and not (decodes and short):
        return 0
    return int(Coverage(gaps).within(start[mine], end[mine]).sum())


def os_spans(a: Stepped, kind: str) -> dict[int, Spans]:
    """When each thread is in operating-system calls that block, of one kind (`os_kinds`)."""
    calls = a.trace.columns("host_calls", ("start", "end", "thread", "name_id"))
    ids, of_call = dense(calls["name_id"])
    mine = os_kinds(a.trace.texts(ids.tolist()))[kind][of_call]
    found = union_by(calls["thread"][mine], calls["start"][mine], calls["end"][mine])
    return {t: intersect(a.states.os[t], spans) for t, spans in found.items() if t in a.states.os}


# --- gaps in which the host computes on what the GPU hands it, and hands the result back ----------

#: How steps are found if it is certain where they begin.
_BEGIN_KNOWN = ("ranges", "graph launches", "pauses")


def exchanges(a: Stepped, budget: DeviceBudget) -> tuple[Array, Array]:
    """Masks of the gaps that begin with the end of a copy of data to the host and end with a copy to the
    device, and of those among them whose copy to the device is data as well. A copy several times as large
    is the next input, not an answer; so is one in the next step of a program whose steps have inputs of
    their own, where ranges say where a step begins."""
    ops = a.ops.take(where(a.ops.device == budget.device))
    direction, copied = (of_copies(a.trace, ops, column) for column in ("kind", "bytes"))
    before, after = budget.gaps.prev_op, budget.gaps.next_op
    data = (direction == DTOH) & (copied >= limits.host.EXCHANGED_BYTES)
    if not data.any():
        return np.zeros(len(before), bool), np.zeros(len(before), bool)
    known = (before != MISSING) & (after != MISSING)
    both = (
        known
        & data[before]
        & (direction[after] == HTOD)
        & (copied[after] <= limits.host.COMPUTED_FROM_FACTOR * copied[before])
    )
    if a.steps.method in _BEGIN_KNOWN and a.workload in OF_OWN_INPUTS:
        both &= ~budget.gaps.crosses_step
    return both, both & (copied[after] >= limits.host.EXCHANGED_BYTES)


def host_between_copies(a: Stepped, budgets: Iterable[DeviceBudget], data: bool) -> bool:
    """Whether most of the time of host gaps on a device, with or without the shorter gaps between launches,
    lies between a copy of data to the host and one back, which is `data` as well or of any size."""
    for budget in budgets:
        gap, back = budget.gap_parts["host_gap"], exchanges(a, budget)[data]
        for idle in (gap, gap + budget.gap_parts["host_between_launches"]):
            if 2 * idle[back].sum() > idle.sum():
                return True
    return False


# --- transfers of the KV cache --------------------------------------------------------------------


class Transfers(NamedTuple):
    """What a process posted, in order of time: `start` and `end` of the call that posts a transfer, `done`
    when the program first saw it complete (MISSING if no mark with its id follows), `fetched` if the process
    fetches it. `asking` are the ranges in which an engine waits for transfers or asks for their state."""

    start: Array
    end: Array
    done: Array
    fetched: Array
    asking: Spans

    @property
    def fetching(self) -> Spans:
        """Time during which a transfer requested by the process is under way."""
        known = self.fetched & (self.done != MISSING)
        return union(self.start[known], self.done[known])

    @property
    def awaited(self) -> Spans:
        return joined(self.fetching, self.asking)


def kv_transfers(a: Budgeted, device: int) -> Transfers | None:
    """Transfers of the processes that use a device; None if no range names any."""
    kinds = a.ranges.matching(step_patterns().transfer)
    if not kinds:
        return None
    columns = a.trace.columns("ranges", ("start", "end", "process", "payload"))
    own = np.isin(columns["process"], distinct(a.ops.process[a.device_ops(device)]))

    def rows(*wanted: str) -> Array:
        texts = [i for i, kind in kinds.items() if kind in wanted]
        return np.flatnonzero(own & np.isin(a.ranges.text_of, texts))

    posts, marks, asked = rows("fetch", "send"), rows("complete"), rows("receiving", "sending")
    if not len(posts) and not len(asked):
        return None
    start, end = columns["start"], columns["end"]
    posts = posts[np.argsort(start[posts], kind="stable")]
    return Transfers(
        start[posts],
        end[posts],
        _completed(posts, marks, start, columns["process"], columns["payload"]),
        np.isin(posts, rows("fetch")),
        union(start[asked], end[asked]),
    )


def _completed(posts: Array, marks: Array, start: Array, process: Array, number: Array) -> Array:
    """When each post is followed by the mark of its id, before that id is posted again."""
    at = np.concatenate((posts, marks))
    at = at[np.lexsort((start[at], number[at], process[at]))]
    mark = np.isin(at, marks)
    same = (number[at][1:] == number[at][:-1]) & (process[at][1:] == process[at][:-1])
    pair = np.flatnonzero(same & mark[1:] & ~mark[:-1] & (number[at][:-1] != MISSING))
    done = np.full(len(start), MISSING, np.int64)
    done[at[pair]] = start[at[pair + 1]]
    return done[posts]
