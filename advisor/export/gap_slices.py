"""The largest idle gaps of a device, cut into the parts of the budget where they happened.

The budget only needs how long each part is; a timeline shows when. The same precedence is applied
to single gaps here, so the slices of a gap add up to what the budget booked for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import (
    FAULT_NS,
    THREAD_STATES,
    UNTRACED_GRAPH_LAUNCH_NS,
    HostStates,
    thread_states,
)
from advisor.metrics.gaps import Gaps
from advisor.metrics.intervals import EMPTY, Spans, clip, subtract, union
from advisor.model.arrays import Array
from advisor.sources.schema import MISSING

#: Part, start and end in session time (ns).
Slice = tuple[str, int, int]


@dataclass(frozen=True)
class GapSlices:
    """One gap; `parts` cover it without overlap, in order of time. `thread` issued its end."""

    start: int
    end: int
    thread: int | None
    parts: tuple[Slice, ...]


@dataclass(frozen=True)
class _Thread:
    """What explains the time of one thread, first reason first, and its calls."""

    reasons: tuple[tuple[str, Spans], ...]
    start: Array
    end: Array
    state: Array
    blocked: Spans


def largest_gaps(analysis: Analysis, device: int, most: int) -> list[GapSlices]:
    """The `most` largest gaps of a device in order of time."""
    budget = analysis.budgets[device]
    gaps, states = budget.gaps, analysis.states
    largest = np.sort(np.argsort(-gaps.length, kind="stable")[:most])
    threads: dict[int, _Thread] = {}
    out = []
    for i in largest.tolist():
        thread = int(gaps.thread[i])
        if thread != MISSING and thread not in threads:
            threads[thread] = _thread(analysis, states, thread, int(gaps.process[i]))
        parts = _parts(gaps, i, threads.get(thread), states.node_traced)
        out.append(
            GapSlices(
                start=int(gaps.start[i]),
                end=int(gaps.end[i]),
                thread=None if thread == MISSING else thread,
                parts=tuple(sorted(parts, key=lambda p: p[1])),
            )
        )
    return out


def _thread(analysis: Analysis, states: HostStates, thread: int, process: int) -> _Thread:
    start, end, state = thread_states(analysis.threads, thread)
    reasons = (
        ("profiler", states.overhead.get(process, EMPTY)),
        ("startup", states.cold.get(thread, EMPTY)),
        ("gc", states.gc.get(thread, EMPTY)),
        ("gil", states.gil.get(thread, EMPTY)),
    )
    blocked = states.os.get(thread, EMPTY)
    return _Thread(reasons, start, end, state, subtract(blocked, union(start, end)))


def _parts(gaps: Gaps, i: int, thread: _Thread | None, node_traced: bool) -> list[Slice]:
    start, end, call_end = int(gaps.start[i]), int(gaps.end[i]), int(gaps.call_end[i])
    if gaps.internal[i]:
        return [("graph_internal", start, end)]
    if gaps.migrated[i]:
        known = max(start, end - FAULT_NS)
        slices = [("unknown", start, known), ("unified_memory", known, end)]
        return [s for s in slices if s[1] < s[2]]
    if thread is None or int(gaps.call[i]) == MISSING:
        return [("unknown", start, end)]
    if call_end <= start:
        return [("queued", start, end)]
    until = min(call_end, end)
    parts = list(_before_the_call_returns(thread, start, until))
    host = [p for p in parts if p[0] == "host"]
    apart = bool(gaps.crosses_step[i]) or sum(b - a for _, a, b in host) >= gaps.long_host
    named = "host_gap" if apart else "host_between_launches"
    parts = [(named if name == "host" else name, a, b) for name, a, b in parts]
    if node_traced:
        parts = list(_untraced_graph_launches(parts))
    return [*parts, ("launch_latency", until, end)] if until < end else parts


def _before_the_call_returns(thread: _Thread, start: int, until: int) -> Iterator[Slice]:
    """Slices of [start, until) by what the thread did, in order of precedence."""
    rest = Spans(np.array([start], np.int64), np.array([until], np.int64))
    for name, spans in thread.reasons:
        mine = clip(spans, start, until)
        if len(mine):
            before = rest
            rest = subtract(rest, mine)
            yield from _named(name, subtract(before, rest))
    low = int(np.searchsorted(thread.end, start, "right"))
    high = int(np.searchsorted(thread.start, until, "left"))
    for k in range(low, high):
        call = Spans(thread.start[k : k + 1], thread.end[k : k + 1])
        before = rest
        rest = subtract(rest, call)
        yield from _named(THREAD_STATES[int(thread.state[k])], subtract(before, rest))
    waits = clip(thread.blocked, start, until)
    if len(waits):
        before = rest
        rest = subtract(rest, waits)
        yield from _named("os", subtract(before, rest))
    yield from _named("host", rest)


def _named(name: str, spans: Spans) -> Iterator[Slice]:
    for a, b in zip(spans.start.tolist(), spans.end.tolist(), strict=True):
        if a < b:
            yield name, int(a), int(b)


def _untraced_graph_launches(parts: list[Slice]) -> Iterator[Slice]:
    """A graph launch costs so much untraced; what it takes beyond that is the profiler's."""
    left = UNTRACED_GRAPH_LAUNCH_NS
    for name, a, b in sorted(parts, key=lambda p: p[1]):
        if name != "graph_launch_call":
            yield name, a, b
            continue
        own = min(b - a, left)
        left -= own
        if own:
            yield name, a, a + own
        if a + own < b:
            yield "profiler", a + own, b
