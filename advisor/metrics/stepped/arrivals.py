"""Times between the passes of a service in which perhaps no request came: the thread that launches the
next pass makes no CUDA call, every device is idle, and these times either vary widely from one to the next,
or are spent in a call of the operating system that waits for events, or end at a fixed rate."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import step_patterns
from advisor.metrics import limits
from advisor.metrics.intervals import EMPTY, Coverage, Spans, gaps, intersect, joined, union
from advisor.metrics.loaded.host import HostStates, capture_ranges, off_cpu
from advisor.metrics.loaded.idle_threads import (
    EVENT_CALLS,
    SLEEP_CALLS,
    between_queries,
    gap_name,
    os_calls,
    os_time,
    other_gap_name,
)
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.loaded.workload import TRAINING
from advisor.metrics.stepped.enclosed import enclosed
from advisor.metrics.stepped.recording import Recording
from advisor.metrics.steps.model import Steps
from advisor.model.arrays import Array, among, distinct, marked, median_of, percentiles

#: Calls that wait for another thread, besides ``futex``.
_LOCK_CALLS = r"pthread_cond_(?:timed|clock)?wait|sem_(?:timed|clock)?wait|sigwait\w*|mq_(?:timed)?receive"
_EVENTS = os_calls(EVENT_CALLS, "futex")
_WAITS = os_calls(EVENT_CALLS, "futex", SLEEP_CALLS, _LOCK_CALLS)


class Arrivals(Struct, frozen=True):
    """`waits` are the times in which perhaps no request came; between `first` and `last` (ns) the ends of
    `passes` passes lie. `call` is the call of the operating system that holds most of the waits, if any.
    `period`: time (ns) from the end of one wait to that of the next, where it is the same though passes take
    longer or shorter; else 0."""

    waits: Spans = EMPTY
    first: int = 0
    last: int = 0
    passes: int = 0
    call: str = ""
    period: float = 0.0

    @property
    def length(self) -> int:
        return max(self.last - self.first, 1)


class _Waits(Struct, frozen=True):
    """The longest time without a call before each of these steps, on the thread that launches it; `asked`:
    before and after it the thread asks whether its work is done; `back`: when its call before returned."""

    step: Array
    span: Spans
    thread: Array
    asked: Array
    back: Array

    def __len__(self) -> int:
        return len(self.step)

    def take(self, kept: Array) -> _Waits:
        columns = self.thread[kept], self.asked[kept], self.back[kept]
        return _Waits(self.step[kept], _some(self.span, kept), *columns)

    def covered(self, spans: Spans, share: float) -> Array:
        """Which of them lie within these to this share at least."""
        inside = Coverage(spans).within(*self.span)
        return np.asarray(inside >= share * (self.span.end - self.span.start))


def find_arrivals(a: Recording, states: HostStates) -> Arrivals:
    """The waits of the whole capture; none if the user names the window, in training, and where steps are
    not certain."""
    steps, chosen = a.repeated, a.selection
    if (
        not steps.believed
        or len(steps) <= limits.window.LEAST_WAITS
        or steps.method == "opaque graph launches"
    ):
        return Arrivals()
    if chosen.window or chosen.nvtx or a.program.kind == TRAINING:
        return Arrivals()
    found = _unexplained(a, states, _before_steps(a, steps))
    first, last = int(steps.gpu_end[0]), int(steps.gpu_end[-1])
    period = _period(found)
    waits = found if period else found.take(_in_event_calls(a, states, found) | _vary(found))
    if (
        _between_tokens(waits, steps)
        or len(waits) < limits.window.LEAST_WAITS
        or (len(waits) < limits.window.FEW_WAITS_RATIO * len(steps) and not _before_prompts(waits, steps))
        or waits.span.total < limits.window.WAITED_RATIO * max(last - first, 1)
    ):
        return Arrivals()
    return Arrivals(waits.span, first, last, len(steps) - 1, _call(a, waits), period)


def _period(found: _Waits) -> float:
    """The time (ns) from the end of one wait to that of the next if it is the same however long the thread is
    busy in between, as with input at a fixed rate; 0 if not. A thread that only works takes as long as its
    work does: even work takes even times without any input."""
    follows = np.flatnonzero((np.diff(found.step) == 1) & (found.thread[1:] == found.thread[:-1]))
    if len(follows) + 1 < limits.window.LEAST_WAITS:
        return 0.0
    period = (found.span.end[1:] - found.span.end[:-1])[follows]
    busy = (found.back[1:] - found.span.end[:-1])[follows]
    usual = median_of(period)
    low, high = np.diff(percentiles(period, 10, 90))[0], np.diff(percentiles(busy, 10, 90))[0]
    even = low <= limits.window.EVEN_PERIOD_RATIO * usual
    varies = high >= limits.window.VARYING_WORK * max(low, limits.window.EVEN_PERIOD_RATIO * usual / 2)
    return usual if even and varies else 0.0


def _before_steps(a: Loaded, steps: Steps) -> _Waits:
    """Every such time of `LONG_HOST_NS` and more in which no device works."""
    calls = a.trace.columns("api_calls", ("start", "thread"))
    at = np.flatnonzero((steps.op_step >= 0) & (a.ops.api >= 0))
    begun = calls["start"][a.ops.api[at]]
    order = np.lexsort((begun, steps.op_step[at]))
    step, once = np.unique(steps.op_step[at][order], return_index=True)
    begin, thread = begun[order][once], calls["thread"][a.ops.api[at[order]]][once]
    idle = gaps(union(a.ops.start, a.ops.end), int(steps.gpu_end[0]), int(steps.gpu_end[-1]))
    parts = [np.empty((6, 0), np.int64)]
    for one in distinct(thread).tolist():
        own, ranked = a.threads.of(one), np.maximum.accumulate(begin[thread == one])
        free = np.flatnonzero(own.start[1:] - own.end[:-1] >= limits.host.LONG_HOST_NS)
        quiet = intersect(Spans(own.end[free], own.start[free + 1]), idle)
        # It belongs to the next step of this thread, if it does not lie inside the one before.
        follows = np.searchsorted(ranked, quiet.end, "left")
        quiet, follows = _some(quiet, follows < len(ranked)), follows[follows < len(ranked)]
        follows = step[thread == one][follows]
        asked = between_queries(a, one, quiet.start)
        between = quiet.start >= steps.gpu_end[np.maximum(follows - 1, 0)]
        back = own.end[np.maximum(np.searchsorted(own.start, quiet.start, "right") - 1, 0)]
        parts.append(np.stack((follows, *quiet, asked, np.full(len(follows), one), back))[:, between])
    follows, start, end, asked, of, back = np.concatenate(parts, axis=1)
    longest = np.lexsort((start - end, follows))
    kept = longest[np.unique(follows[longest], return_index=True)[1]]
    kept = kept[end[kept] - start[kept] >= limits.host.LONG_HOST_NS]
    return _Waits(follows[kept], Spans(start[kept], end[kept]), of[kept], asked[kept] > 0, back[kept])


def _some(spans: Spans, kept: Array) -> Spans:
    return Spans(spans.start[kept], spans.end[kept])


def _unexplained(a: Recording, states: HostStates, found: _Waits) -> _Waits:
    """Those that nothing recorded explains: garbage collection, loading, start-up, the profiler, polling
    for own work, a thread that runs on its CPU or is in calls that do work, a range that names the work."""
    kept = ~found.asked
    for one in distinct(found.thread).tolist():
        by_thread = states.cold, states.gc, states.gil, states.loading
        named = [by.get(one, EMPTY) for by in by_thread]
        known = [
            joined(
                capture_ranges(a.trace), *states.overhead.values(), *states.thread_overhead.values(), *named
            )
        ]
        asleep = off_cpu(a.trace, one, waiting=True)
        if one in states.os:
            waiting, working = _calls_of_system(a, one, _WAITS)
            asleep = waiting if asleep is None else joined(asleep, waiting)
            known.append(working)
        mine = found.thread == one
        for spans in known:
            kept &= ~mine | ~found.covered(spans, 0.5)
        if asleep is not None:
            kept &= ~mine | found.covered(asleep, 0.5)
        kept[mine] &= ~enclosed(a.ranges, a.repeated, one, _some(found.span, mine))
    found = found.take(kept)
    for one in distinct(found.thread).tolist():
        spans = _some(found.span, found.thread == one)
        for name in (gap_name(a, one, spans), other_gap_name(a, one, spans)):
            if name and 2 * name.covered_ns > spans.total and step_patterns().role(name.text) != "waiting":
                found = found.take(found.thread != one)
    return found


def _calls_of_system(a: Loaded, thread: int, wanted: re.Pattern[str]) -> tuple[Spans, Spans]:
    """When a thread is in these calls of the operating system, and when in others."""
    start, end, of, name_id = a.trace.columns("host_calls", ("start", "end", "thread", "name_id")).values()
    ids = distinct(name_id)
    hits = [
        i for i, text in zip(ids.tolist(), a.trace.texts(ids.tolist()), strict=True) if wanted.fullmatch(text)
    ]
    mine, named = of == thread, among(name_id, hits)
    inside, others = mine & named, mine & ~named
    return union(start[inside], end[inside]), union(start[others], end[others])


def _in_event_calls(a: Loaded, states: HostStates, found: _Waits) -> Array:
    """Which of them are spent in calls that wait for events."""
    out = np.zeros(len(found), bool)
    for one in distinct(found.thread).tolist():
        if one in states.os:
            events = _calls_of_system(a, one, _EVENTS)[0]
            out |= (found.thread == one) & found.covered(events, limits.window.COVERED_RATIO)
    return out


def _vary(found: _Waits) -> Array:
    """Which of them vary widely from one to the next: all, where those do that hold nearly all of the time;
    but short ones that are alike, and not few, are work of the host between passes that follow each other."""
    length = found.span.end - found.span.start
    ranked = np.argsort(length, kind="stable")
    long = np.sort(ranked[np.cumsum(length[ranked]) > limits.window.SHORT_WAITS_RATIO * length.sum()])
    none = np.zeros(len(found), bool)
    if len(long) < limits.window.LEAST_WAITS or not _differ(length[long]):
        return none
    tenths = np.sort(np.diff(percentiles(np.log(length[long]), *range(10, 100, 10))))[::-1]
    if (
        np.searchsorted(np.cumsum(tenths), limits.window.WAIT_RANGE_RATIO * tenths.sum()) + 1
        < limits.window.WAIT_SIZES
    ):
        return none
    short = np.flatnonzero(~marked(len(found), long))
    few = max(limits.window.LEAST_WAITS, limits.window.FEW_WAITS_RATIO * len(found))
    return ~none if len(short) < few or _differ(length[short]) else marked(len(found), long)


def _differ(length: Array) -> bool:
    """True if these times differ from the one before by a large factor (geometric mean), also without the
    longest: a single pause makes the others no more uneven."""
    least = np.log(limits.window.VARYING_FACTOR)
    rest = np.delete(length, length.argmax()) if len(length) > 2 else length
    return all(np.abs(np.diff(np.log(some))).mean() >= least for some in (length, rest))


def _between_tokens(waits: _Waits, steps: Steps) -> bool:
    """True if most of them come before the next token of sequences, and are as short as work of the host, or
    as a wait for another process."""
    tokens = np.array(steps.phase)[waits.step] == "decode"
    if 2 * tokens.sum() <= len(waits):
        return False
    work = steps.gpu_end[waits.step] - waits.span.end
    wait = median_of(waits.span.end - waits.span.start)
    return wait < limits.window.BETWEEN_TOKENS_STEPS * median_of(work)


def _before_prompts(waits: _Waits, steps: Steps) -> bool:
    """True if nearly all come before a step that reads a prompt: with it a request came."""
    reads = among(np.array(steps.phase)[waits.step], ("prefill", "mixed"))
    return bool(reads.mean() >= limits.window.COVERED_RATIO)


def _call(a: Loaded, waits: _Waits) -> str:
    """The call of the operating system that holds most of them: of the threads that launch, if one does."""
    if not a.trace.has("host_calls"):
        return ""
    for one in distinct(waits.thread).tolist():
        names, time = os_time(a, one, waits.span)
        if 2 * time.sum() > waits.span.total:
            return names[int(np.argmax(time))]
    return ""
