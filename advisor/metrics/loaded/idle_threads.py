"""What a host thread does while a device is idle: the ranges, Python functions and operating-system calls
around these times, and whether it asks CUDA if work is done."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from advisor.knowledge.files import step_patterns
from advisor.metrics.intervals import Coverage, Spans
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import calls_named
from advisor.metrics.loaded.stage import Loaded
from advisor.model.arrays import Array, among, distinct
from advisor.sources.schema import Call


class GapName(NamedTuple):
    text: str
    covered_ns: int  # of the gaps, at most their length
    launches: bool  # kernels or graphs are launched inside it


def gap_name(a: Loaded, thread: int, gaps: Spans) -> GapName | None:
    """The range, Python function or operator inside the steps that explains these gaps (ascending, disjoint)
    of a thread: of the names that cover at least half as much as the largest does, the one with the largest
    share of its own time in gaps, if that is more than half."""
    if not len(gaps):
        return None
    patterns, ranges = step_patterns(), a.ranges
    around = ranges.matching(lambda t: patterns.step(t) or patterns.is_container(t) or None)
    lo, hi = int(gaps.start[0]), int(gaps.end[-1])
    rows = ranges.of_thread(thread, lo, hi)
    inner = ~np.isin(rows["text"], list(around))
    start, end, kind = rows["start"][inner], rows["end"][inner], ranges.kinds[1][rows["text"][inner]]
    functions = a.trace.columns("python_calls", ("start", "end", "thread", "text_id"))
    at = (functions["thread"] == thread) & (functions["start"] < hi) & (functions["end"] > lo)
    ids, function = np.unique(functions["text_id"][at], return_inverse=True)
    names = [*ranges.labels, *a.trace.texts(ids.tolist())]
    start = np.concatenate((start, functions["start"][at]))
    end = np.concatenate((end, functions["end"][at]))
    kind = np.concatenate((kind, len(ranges.labels) + function))
    if not len(kind):
        return None
    inside, length = np.bincount(kind, Coverage(gaps).within(start, end)), np.bincount(kind, end - start)
    own = np.where(2 * inside >= inside.max(), inside / np.maximum(length, 1), 0)
    best = int(np.argmax(own))
    if 2 * inside[best] <= length[best]:
        return None
    mine, calls = kind == best, a.threads.of(thread)
    launches = calls.start[among(calls.call, (Call.LAUNCH, Call.GRAPH_LAUNCH))]
    issued = np.searchsorted(launches, end[mine]) - np.searchsorted(launches, start[mine])
    return GapName(names[best], min(int(inside[best]), gaps.total), bool(issued.any()))


def other_gap_name(a: Loaded, thread: int, gaps: Spans) -> GapName | None:
    """The same of the other threads of its process, and of processes that use no GPU (a scheduler that sends
    the steps): the one whose range covers most of the gaps, more than half of them."""
    rows = a.trace.columns("ranges", ("process", "thread"))
    process = distinct(rows["process"][rows["thread"] == thread])
    on_gpu = distinct(a.ops.process)
    own = process if len(process) else on_gpu
    near = np.isin(rows["process"], own) | ~np.isin(rows["process"], on_gpu)
    threads = distinct(rows["thread"][near]).tolist()
    named = [name for one in threads if one != thread and (name := gap_name(a, one, gaps)) is not None]
    best = max(named, key=lambda name: name.covered_ns, default=None)
    return best if best is not None and 2 * best.covered_ns > gaps.total else None


#: Calls of the operating system that wait for events on descriptors, for a connection or for a message, and
#: those that sleep for a time (man-pages, section 2).
EVENT_CALLS = r"epoll_p?wait2?|p?poll|p?select|accept4?|recv(?:from|m?msg)?"
SLEEP_CALLS = r"u?sleep|(?:clock_)?nanosleep"


def os_calls(*kinds: str) -> re.Pattern[str]:
    """Matches the whole names of these calls, also of their variants (``__poll``, ``nanosleep_nocancel``)."""
    return re.compile(rf"(?:__)?(?:{'|'.join(kinds)})(?:_\w+)?")


SLEEPS = os_calls(SLEEP_CALLS)
#: Calls that wait until another thread lets go or signals.
LOCKS = os_calls(r"(?:futex|pthread_(?:mutex|rwlock|spin|cond|barrier|join)|sem_(?:timed|clock)?wait)\w*")
#: Calls that ask CUDA whether work is done.
_QUERIES = re.compile(r"(?:Event|Stream)Query")


def between_queries(a: Loaded, thread: int, time: Array) -> Array:
    """Whether the calls of the thread before and after each of these times ask if work is done: it polls."""
    calls = a.threads.of(thread)
    asks = calls_named(a.trace, calls.row, _QUERIES)
    after = np.searchsorted(calls.start, time, "right")
    known = (after > 0) & (after < len(asks))
    after = np.clip(after, 1, max(len(asks) - 1, 1))
    return known & asks[after % max(len(asks), 1)] & asks[after - 1] if len(asks) else known


def polled(a: Loaded, thread: int, gaps: Spans) -> int:
    """ns of these gaps (ascending, disjoint) in which the thread sleeps since before they began, while its
    own work ran, or is in a call of the operating system between two questions whether that is done."""
    start, end, sleeps = system_calls(a, thread)
    before = ~gaps.holds(start)
    polls = (before & sleeps) | between_queries(a, thread, start)
    return int(Coverage(gaps).within(start[polls], end[polls]).sum())


def system_calls(a: Loaded, thread: int) -> tuple[Array, Array, Array]:
    """Start and end of the calls of the operating system of a thread, and which of them sleep for a time."""
    calls = a.trace.columns("host_calls", ("start", "end", "thread", "name_id"))
    mine = np.flatnonzero(calls["thread"] == thread)
    start, end, name_id = (calls[n][mine] for n in ("start", "end", "name_id"))
    ids = distinct(name_id).tolist()
    sleeps = [i for i, name in zip(ids, a.trace.texts(ids), strict=True) if SLEEPS.fullmatch(name)]
    return start, end, among(name_id, sleeps)


def os_time(a: Loaded, thread: int, spans: Spans) -> tuple[list[str], Array]:
    """Operating-system calls of a thread by name, and their time inside the spans, ns."""
    calls = a.trace.columns("host_calls", ("start", "end", "thread", "name_id"))
    mine = calls["thread"] == thread
    inside = Coverage(spans).within(calls["start"][mine], calls["end"][mine])
    ids, of_call = dense(calls["name_id"][mine])
    return a.trace.texts(ids.tolist()), np.bincount(of_call, inside, minlength=len(ids))


def os_kinds(names: Iterable[str]) -> dict[str, Array]:
    """Masks of operating-system calls that block, by kind: `sleep`, `lock`, and `io` for all others."""
    listed = list(names)
    sleeps, locks = (np.array([bool(p.fullmatch(n)) for n in listed], bool) for p in (SLEEPS, LOCKS))
    return {"sleep": sleeps, "lock": locks, "io": ~sleeps & ~locks}
