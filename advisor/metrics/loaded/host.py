"""What each host thread was doing: its outermost CUDA calls, and ranges that explain waiting; and
switches of threads and of contexts that the system recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np
from msgspec import Struct

from advisor.metrics import intervals, limits
from advisor.metrics.intervals import EMPTY, Coverage, Spans, joined, positions, subtract, union, union_by
from advisor.model.arrays import Array, among, distinct, marked, sorting, spliced
from advisor.model.once import cached_property
from advisor.sources.schema import CONTEXT_IN, CONTEXT_OUT, MISSING, OPERATIONS, PUSH_POP, START_END, Call
from advisor.sources.trace import Trace

T = TypeVar("T")
#: Part, start and end in session time (ns).
Slice = tuple[str, int, int]

_DIGITS = re.compile(r"\d+")
#: What `torch.autograd.profiler.emit_nvtx` writes behind the name of an operator.
OPERATOR_TRAITS = re.compile(r", (?:op_id|seq|sizes|input_op_ids) = .*$")
#: Deeper nesting is ignored.
_DEPTH = 64

#: Part of the idle time during a call; ``launch_call`` during any other.
_CALL_PART = {
    Call.ALLOC: "alloc",
    Call.FREE: "alloc",
    Call.SYNC: "sync",
    Call.COPY: "copy_call",
    Call.MEMSET: "copy_call",
    Call.GRAPH_LAUNCH: "graph_launch_call",
}
#: What a thread is doing during a call, by its number in `ThreadStates`.
THREAD_STATES = ("alloc", "sync", "copy_call", "graph_launch_call", "launch_call")


class ThreadCalls(Struct, frozen=True):
    """Outermost CUDA calls of one thread, ascending and disjoint; `row` indexes api_calls."""

    thread: int
    start: Array
    end: Array
    call: Array
    row: Array


class Threads:
    """Calls of the capture grouped by thread; each thread is worked out when first asked for."""

    def __init__(self, trace: Trace) -> None:
        self._calls = trace.columns("api_calls", ("start", "end", "thread", "call"))
        self._known: dict[int, ThreadCalls] = {}

    def of(self, thread: int) -> ThreadCalls:
        """The outermost calls of a thread: driver calls inside runtime calls are left out."""
        if thread not in self._known:
            columns = self._calls
            mine, start, end = columns["thread"] == thread, columns["start"], columns["end"]
            row = np.arange(len(start), dtype=np.int32)
            if not mine.all():
                row, start, end = row[mine], start[mine], end[mine]
            if len(start) > 1 and not (start[1:] >= start[:-1]).all():
                # Of two calls with one start, the longer is the outer.
                order = np.lexsort((-end, start))
                row, start, end = row[order], start[order], end[order]
            if not (end[1:] > end[:-1]).all():
                outer = np.append(True, end[1:] > np.maximum.accumulate(end)[:-1])
                row, start, end = row[outer], start[outer], end[outer]
            # Overlapping survivors (torn records) are cut so that the set is disjoint.
            if (end[:-1] > start[1:]).any():
                end = np.minimum(end, np.append(start[1:], end[-1]))
            self._known[thread] = ThreadCalls(thread, start, end, columns["call"][row], row)
        return self._known[thread]


class Ranges:
    """NVTX ranges of the capture by text; each distinct text is classified once."""

    def __init__(self, trace: Trace) -> None:
        names = "start", "end", "process", "thread", "domain", "text_id", "style"
        self._columns = trace.columns("ranges", names)
        # `text_of`: the position in `texts` of each row of the table.
        text_ids, self.text_of = np.unique(self._columns["text_id"], return_inverse=True)
        self.texts: list[str] = trace.texts(text_ids.tolist())

    def __len__(self) -> int:
        return len(self._columns["start"])

    def matching(self, look: Callable[[str], T | None]) -> dict[int, T]:
        """Positions in `texts` for which `look` gives an answer.

        Frameworks number their ranges, so a capture can hold a hundred thousand texts that differ in digits
        only; one of each kind is tried before the others of it.
        """
        kind = self.kinds[1]
        found: dict[int, T] = {}
        for i in np.unique(kind, return_index=True)[1].tolist():
            if (hit := look(self.texts[i])) is None:
                continue
            found[i] = hit
            for j in np.flatnonzero(kind == kind[i]).tolist():
                if j != i and (hit := look(self.texts[j])) is not None:
                    found[j] = hit
        return dict(sorted(found.items()))

    @cached_property
    def kinds(self) -> tuple[list[str], Array]:
        """Distinct texts with `#` for their numbers, and which of them each text is."""
        known: dict[str, int] = {}
        kind = [known.setdefault(_DIGITS.sub("#", text), len(known)) for text in self.texts]
        return list(known), np.array(kind, np.int64)

    @cached_property
    def labels(self) -> list[str]:
        """A label for each kind: a text that is the only one of its kind keeps its numbers (`cv2.resize`)."""
        kinds, kind = self.kinds
        labels, alone = list(kinds), np.bincount(kind, minlength=len(kinds)) == 1
        for i in np.flatnonzero(alone[kind]).tolist():
            labels[kind[i]] = self.texts[i]
        return labels

    @cached_property
    def by_profiler(self) -> Array:
        """Which texts a profiler put around the operators of a framework."""
        return marked(len(self.texts), self.text_of[self._columns["domain"] == OPERATIONS])

    @cached_property
    def operator_texts(self) -> tuple[Array, Array]:
        """Which texts `emit_nvtx` wrote around operators, and which of these hold the sizes of operands."""
        written = np.array([OPERATOR_TRAITS.search(text) is not None for text in self.texts], bool)
        return written, written & np.array([", sizes = [" in text for text in self.texts], bool)

    def rows(self, chosen: list[int]) -> dict[str, Array]:
        """Columns of the timed ranges whose text is one of `chosen` (positions in `texts`),
        sorted by start; `text` is the position in `texts`."""
        return self._timed(marked(len(self.texts) + 1, chosen)[self.text_of])

    def hold(self, chosen: list[int], thread: Array, time: Array) -> Array:
        """Mask of the moments `time`, each of a thread, inside one of the `chosen` ranges of that thread."""
        rows, inside = self.rows(chosen), np.zeros(len(time), bool)
        for own, spans in union_by(rows["thread"], rows["start"], rows["end"]).items():
            inside |= (thread == own) & spans.holds(time)
        return inside

    def of_thread(self, thread: int, lo: int, hi: int) -> dict[str, Array]:
        """The same of one thread's ranges that overlap [lo, hi)."""
        columns = self._columns
        inside = (columns["start"] < hi) & (columns["end"] > lo)
        return self._timed(inside & (columns["thread"] == thread))

    def _timed(self, mask: Array) -> dict[str, Array]:
        columns, style = self._columns, self._columns["style"]
        at = np.flatnonzero(mask & ((style == PUSH_POP) | (style == START_END)))
        at = at[np.argsort(columns["start"][at], kind="stable")]
        found = {n: columns[n][at] for n in ("start", "end", "process", "thread", "domain")}
        return found | {"text": self.text_of[at]}

    def spans(self, chosen: list[int], thread: int | None = None) -> Spans:
        """Union of those ranges, of one thread if named."""
        rows = self.rows(chosen)
        mine = slice(None) if thread is None else rows["thread"] == thread
        return union(rows["start"][mine], rows["end"][mine])


def innermost(time: Array, start: Array, end: Array, label: Array, depth: int = _DEPTH) -> Array:
    """Label of the innermost range around each time (ascending), at most `depth` levels down from
    the outermost; MISSING if there is none.

    `start` ascends. Ranges are painted level by level, from the outermost inwards.
    """
    out = np.full(len(time), MISSING, np.int64)
    order = np.lexsort((-end, start))
    start, end, label = start[order], end[order], label[order]
    # Ranges that hold none of the times need no level.
    lo, hi = np.searchsorted(time, start), np.searchsorted(time, end)
    some = hi > lo
    lo, hi, end, label = lo[some], hi[some], end[some], label[some]
    for _ in range(depth):
        if len(lo) == 0:
            break
        reach = np.maximum.accumulate(end)
        outer = np.append(True, end[1:] > reach[:-1])
        a, b, codes = lo[outer], hi[outer], label[outer]
        b = np.minimum(b, np.append(a[1:], len(time)))  # ranges that overlap without nesting
        change = np.bincount(a, codes + 1, len(time) + 1) - np.bincount(b, codes + 1, len(time) + 1)
        painted = np.cumsum(change)[:-1].astype(np.int64) - 1
        out = np.where(painted >= 0, painted, out)
        lo, hi, end, label = lo[~outer], hi[~outer], end[~outer], label[~outer]
    return out


def innermost_on_threads(
    thread: Array, time: Array, rows: Mapping[str, Array], label: Array, depth: int = _DEPTH
) -> Array:
    """The same for times on threads, in any order, and ranges (`thread`, `start`, `end`) of all threads."""
    out = np.full(len(time), MISSING, np.int64)
    for one in distinct(thread).tolist():
        mine = np.flatnonzero(thread == one)
        mine, own = mine[sorting(time[mine])], rows["thread"] == one
        out[mine] = innermost(time[mine], rows["start"][own], rows["end"][own], label[own], depth)
    return out


class HostStates(Struct, frozen=True):
    """States that explain waiting, by thread, and profiler overhead: what stops a whole process
    (`overhead`, by process) and what one thread alone waited for (`thread_overhead`). `cold` is start-up
    wherever it stands."""

    cold: dict[int, Spans]
    gc: dict[int, Spans]
    gil: dict[int, Spans]
    os: dict[int, Spans]
    overhead: dict[int, Spans]
    thread_overhead: dict[int, Spans]
    loading: dict[int, Spans]
    node_traced: bool


def host_states(
    trace: Trace, ranges: Ranges, roles: dict[int, str], cold: dict[int, Spans], nodes: bool
) -> HostStates:
    """States of the threads of a capture besides CUDA calls. `roles` are those of the ranges by position of
    their text, `cold` the times of start-up; `nodes`: graphs were traced node by node."""

    def covered(role: str) -> dict[int, Spans]:
        rows = ranges.rows([i for i, each in roles.items() if each == role])
        return union_by(rows["thread"], rows["start"], rows["end"])

    whole, one = _overheads(trace)
    return HostStates(
        cold=cold,
        gc=covered("gc"),
        gil=covered("gil_wait"),
        os=union_by(*trace.columns("host_calls", ("thread", "start", "end")).values()),
        overhead=whole,
        thread_overhead=one,
        loading=covered("data_loading"),
        node_traced=nodes,
    )


def flushes(trace: Trace) -> Spans:
    """When the profiler flushes its buffers, which stops all threads."""
    rows = trace.columns("overheads", ("start", "end", "kind_id"))
    mine = _is_flush(trace, rows["kind_id"])
    return union(rows["start"][mine], rows["end"][mine])


def _is_flush(trace: Trace, kind_id: Array) -> Array:
    ids, at = np.unique(kind_id, return_inverse=True)
    return np.array(["flush" in text.lower() for text in trace.texts(ids.tolist())], bool)[at]


def _overheads(trace: Trace) -> tuple[dict[int, Spans], dict[int, Spans]]:
    """Profiler overhead by process, where all of it stands still (the profiler flushes its buffers, or the
    thread is not recorded), and the rest by thread: while the profiler holds one thread, others run on."""
    rows = trace.columns("overheads", ("process", "thread", "start", "end", "kind_id"))
    whole = _is_flush(trace, rows["kind_id"]) | (rows["thread"] == MISSING)
    by_process = (rows[n][whole] for n in ("process", "start", "end"))
    by_thread = (rows[n][~whole] for n in ("thread", "start", "end"))
    return union_by(*by_process), union_by(*by_thread)


class ThreadStates:
    """What one thread was doing: at any time the first of profiler, start-up, garbage collection, GIL, a
    CUDA call, an operating-system call that applies; else its own code."""

    def __init__(
        self, threads: Threads, thread: int, process: int, states: HostStates, among: Spans | None = None
    ) -> None:
        """From all calls of the thread, or only from the calls that overlap `among`."""
        explained = EMPTY
        own: dict[str, Spans] = {}
        for name, spans in (
            (
                "profiler",
                joined(states.overhead.get(process, EMPTY), states.thread_overhead.get(thread, EMPTY)),
            ),
            ("startup", states.cold.get(thread, EMPTY)),
            ("gc", states.gc.get(thread, EMPTY)),
            ("gil", states.gil.get(thread, EMPTY)),
        ):
            if len(rest := subtract(spans, explained)):
                own[name], explained = rest, joined(explained, rest)
        start, end, state, refills = _states_of_calls(threads, thread)
        if among is not None:
            first, last = np.searchsorted(end, among.start, "right"), np.searchsorted(start, among.end)
            at = distinct(np.concatenate([np.arange(*ends) for ends in zip(first, last, strict=True)]))
            start, end, state = start[at], end[at], state[at]
        if len(blocked := states.os.get(thread, EMPTY)):
            called = joined(Spans(start, end), refills)
            own["os"] = subtract(subtract(blocked, called), explained)
        self._names = [*own, *THREAD_STATES]
        state = np.add(state, len(own), dtype=np.int32)
        # What is explained takes the place of calls and refills.
        cut = distinct(intervals.meeting(explained, Spans(start, end))[1])
        rest, refills = subtract(Spans(start[cut], end[cut]), explained), subtract(refills, explained)
        states_of = state[cut][positions(start[cut], rest.start, "right") - 1]
        others: list[tuple[Spans, Array | int]] = [(spans, i) for i, spans in enumerate(own.values())]
        others += [(rest, states_of), (refills, self._names.index("sync"))]
        label = np.concatenate([np.full(len(spans), which, np.int32) for spans, which in others])
        begin, until = (np.concatenate([spans[i] for spans, _ in others]) for i in (0, 1))
        order = np.argsort(begin, kind="stable")
        begin, until, label = begin[order], until[order], label[order]
        columns = (start, begin), (end, until), (state, label)
        start, end, self._label = spliced(cut, positions(start, begin), *columns)
        self._spans = Spans(start, end)

    @cached_property
    def long_host(self) -> Coverage:
        """Own code of at least `LONG_HOST_NS`: the device may have worked off its queue for most of it."""
        start, end = self._spans
        after = np.flatnonzero(start[1:] - end[:-1] >= limits.host.LONG_HOST_NS)
        return Coverage(Spans(end[after], start[after + 1]))

    def split(self, lo: Array, hi: Array) -> dict[str, Array]:
        """ns of each [lo, hi) (ascending, disjoint) by state; `host` is the rest."""
        found = intervals.split(self._spans, self._label, len(self._names), lo, hi)
        return {**dict(zip(self._names, found, strict=True)), "host": hi - lo - found.sum(axis=0)}

    def slices(self, lo: int, hi: int, host: str) -> Iterator[Slice]:
        """[lo, hi) by state, in order of time; the rest is called `host`."""
        inside = intervals.within_reach(self._spans, Spans(np.array([lo]), np.array([hi])))
        rows = (column[inside].tolist() for column in (*self._spans, self._label))
        for start, end, label in zip(*rows, strict=True):
            if lo < start:
                yield host, lo, start
            yield self._names[label], max(lo, start), min(end, hi)
            lo = end
        if lo < hi:
            yield host, lo, hi


def _states_of_calls(threads: Threads, thread: int) -> tuple[Array, Array, Array, Spans]:
    """Begin, end and state of the outermost calls of a thread; and the refills after its waits."""
    calls = threads.of(thread)
    code = np.full(max(Call) + 1, THREAD_STATES.index("launch_call"), np.int8)
    for call, part in _CALL_PART.items():
        code[call] = THREAD_STATES.index(part)
    sync = np.flatnonzero(calls.call[:-1] == Call.SYNC)
    begin, end = calls.end[sync], calls.start[sync + 1]
    short = (end - begin <= limits.host.REFILL_NS) & (end > begin)
    return calls.start, calls.end, code[calls.call], Spans(begin[short], end[short])


def capture_ranges(trace: Trace) -> Spans:
    """Stretches between a profiler stop and the next start: nothing was recorded there."""
    start, end, call, name_id = trace.columns("api_calls", ("start", "end", "call", "name_id")).values()
    at = np.flatnonzero(call == Call.PROFILER)
    names = [text.lower() for text in trace.texts(name_id[at].tolist())]
    stops = np.array(["stop" in name for name in names], bool)
    starts = np.array(["start" in name for name in names], bool) & ~stops
    return between(np.where(stops, end[at], start[at]), stops, starts)


# --- who had a CPU, and who had a GPU: switches that the system recorded --------------------------

#: States of a thread that waits for something (ENUM_SAMPLING_THREAD_STATE of nsys: interruptible,
#: uninterruptible, stopped, waiting, in the OS runtime): it asks for no CPU.
_WAITS = (2, 3, 4, 7, 8)


def off_cpu(trace: Trace, thread: int, *, waiting: bool = False) -> Spans | None:
    """Times between a switch of the thread from its CPU and the next one to a CPU; those in which it is
    recorded to wait only if `waiting`. None if the capture records no switch of it."""
    rows = trace.columns("cpu_switches", ("time", "thread", "running", "state"))
    mine = rows["thread"] == thread
    if not mine.any():
        return None
    time, running, state = (rows[name][mine] for name in ("time", "running", "state"))
    gone = (running == 0) & (waiting | ~among(state, _WAITS))
    return between(time, gone, running != 0)


def held_by_others(trace: Trace, device: int, starts: Array) -> Spans | None:
    """When the device runs a context that holds almost none of the work which begins at `starts`
    (ascending): one of a process outside the capture. None if no switch is recorded."""
    rows = trace.columns("gpu_switches", ("time", "device", "context", "kind"))
    here = rows["device"] == device
    if not here.any() or not len(starts):
        return None
    time, context, kind = (rows[name][here] for name in ("time", "context", "kind"))
    others = []
    for one in distinct(context).tolist():
        mine = context == one
        held = between(time[mine], kind[mine] == CONTEXT_IN, kind[mine] == CONTEXT_OUT)
        own = np.searchsorted(starts, held.end) - np.searchsorted(starts, held.start)
        if own.sum() < limits.host.OWN_CONTEXT_RATIO * len(starts):
            others.append(held)
    return joined(*others)


def between(time: Array, begins: Array, ends: Array) -> Spans:
    """From each beginning to the end that comes next to it; rows in any order."""
    at = np.flatnonzero(begins | ends)
    at = at[np.lexsort((begins[at], time[at]))]
    time, begins = time[at], begins[at]
    pair = np.flatnonzero(begins[:-1] & ~begins[1:])
    return union(time[pair], time[pair + 1])
