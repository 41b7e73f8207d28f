"""Facts about the host's part: synchronisation, allocation, garbage collection, GIL, steps."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from advisor.facts import limits
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.metrics import limits as metric_limits
from advisor.metrics.budgeted.budget import DeviceBudget
from advisor.metrics.budgeted.callsites import small_uploads
from advisor.metrics.budgeted.other_calls import graph_builds
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.step_times import (
    held_by_prompts,
    longest_gap_of,
    once_ratio,
    pause_ns,
    slow_steps,
    slower_part,
)
from advisor.metrics.budgeted.waited import calls_by, exchanges, issuers, loop_thread, ticked
from advisor.metrics.intervals import EMPTY, Coverage, Spans, intersect, positions, subtract, union
from advisor.metrics.loaded.idle_threads import (
    EVENT_CALLS,
    SLEEP_CALLS,
    gap_name,
    os_calls,
    os_kinds,
    os_time,
    other_gap_name,
    polled,
)
from advisor.metrics.loaded.operations import Kind, calls_named
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.enclosed import enclosed
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, distinct, median_of, merged, nearest_rank
from advisor.model.facts import Scope, Value
from advisor.model.parts import PARTS
from advisor.sources.schema import DTOH, MISSING, PAGEABLE, Call

#: Calls that wait for events on descriptors, for a connection, a message or a time (man-pages, section 2).
_EVENT_WAITS = os_calls(EVENT_CALLS, SLEEP_CALLS)
#: Calls that wait for another thread (pthreads(7), sem_overview(7)).
#: Calls that build, change or destroy graphs, and those of them that occur once a graph.
#: Calls that allocate, lock or release memory of the host.
LOCKS_PAGES = re.compile(r"Host(?:Alloc|Register|Unregister)|MallocHost|FreeHost|MemAllocHost")
#: Ranges of preparation in which an engine chooses the requests of the next step.
_SCHEDULER = re.compile(r"(?i)schedule|get_next_batch")
_ASYNC, _DEVICE_WIDE = re.compile("Async"), re.compile("(?:Device|Ctx)Synchronize")

#: Parts of a gap in which the queue is refilled once a wait has returned.
_REFILL = ("sync", "copy_call", "launch_call", "graph_launch_call", "launch_latency", "host_between_launches")


@predicate
def preparation(a: Loaded) -> bool:
    return not {"preparation", "data_loading"}.isdisjoint(a.roles.values())


@predicate
def host_gaps(a: Budgeted) -> bool:
    return a.budgets[a.main_device].share("host_gap") > 0


def host_facts(
    a: Profiled, device: int, out: FactWriter, of_host: float | None = None, waited: float | None = None
) -> None:
    """`of_host`: the share of the step in which the GPU waits for its own host, if it is a stage of a
    pipeline of which that is known; `waited` as of `waited_outliers`, if the ranks are in this capture."""
    budget, feeder = a.budgets[device], a.feeder(device)
    loop = None if feeder is None else loop_thread(budget, feeder)
    if a.trace.has("api_calls") and feeder is not None and loop is not None:
        _sync(a, feeder, budget, out)
        _alloc(a, feeder, budget, out)
        _graphs_built(a, feeder, budget, out)
        _gaps(a, loop, budget, out)
        if of_host is not None:
            out |= own_gap_facts(budget.share("host_gap"), of_host, budget.busy_ratio)
    _waiting(a, feeder, loop, budget, out)
    _steps(a, budget, out)
    if waited is not None:
        scope = Scope(device=device)
        out |= waited_outliers(lambda name: out.base.value(name, scope), waited)


def own_gap_facts(gap: float, of_host: float, busy: float) -> dict[str, Value | None]:
    """Facts about host gaps that make up `gap` of the step on a rank of a pipeline whose own host works for
    `of_host` of it: for the rest another stage has what it works on next. `busy`: its share of GPU work."""
    own = min(gap, of_host)
    return {
        "host.gap_ratio": own,
        "host.gap_over_busy": own / busy if busy else None,
        "host.gap_staged_ratio": gap - own if gap - own >= limits.STAGED_RATIO else None,
    }


def waited_outliers(value: Callable[[str], Value | None], waited: float) -> dict[str, Value | None]:
    """The cost of slow steps that lose their time in collectives, without the time in which the rank waits
    for late ones, which findings about these count. `value` looks up the facts of the rank; `waited` is the
    share of the step in which it waits longer than usual in its calls."""
    lost, part = value("host.step_outlier_time_ratio"), value("host.step_outlier_part")
    if not isinstance(lost, float) or part != PARTS["communication"].words:
        return {}
    return {"host.step_outlier_time_ratio": max(lost - waited, 0.0)}


def _gaps(a: Profiled, loop: int, budget: DeviceBudget, out: FactWriter) -> None:
    """Idle time in which the thread of the loop is in no call."""
    gap, length, lost = budget.gap_parts["host_gap"], budget.program_ns, pause_ns(a.slow_steps, budget)
    at, whole = np.flatnonzero(gap), int(gap.sum())
    idle = Spans(budget.gaps.start[at], budget.gaps.end[at])
    # A slow first launch in such a gap is start-up: the range around it does not explain the rest.
    named = gap_name(a, loop, subtract(idle, a.states.cold.get(loop, EMPTY)))
    covered = min(named.covered_ns / whole, 1.0) if named else 0.0
    out |= {
        "host.gap_ratio": budget.share("host_gap"),
        "host.steady_gap_ratio": max(budget.ns["host_gap"] - lost, 0.0) / max(length - lost, 1.0),
        "host.pause_of_idle_ratio": min(lost / max(budget.idle_ns, 1), 1.0),
        "host.gap_over_busy": budget.share("host_gap") / budget.busy_ratio if budget.busy_ratio else None,
        "host.gap_max_ms": gap.max(initial=0) / 1e6,
        "host.gap_on_pages_ratio": int(gap[budget.gaps.migrated].sum()) / whole or None if whole else None,
        "host.gap_range_ratio": covered,
        "host.gap_once_ratio": once_ratio(a, budget) * (1.0 - covered),
    }
    if whole and a.step_count:
        held = np.cumsum(np.sort(gap[at])[::-1])
        out.put("host.gap_pieces_per_step", (np.searchsorted(held, held[-1] / 2) + 1) / a.step_count)
    if whole and (exchanged := int(gap[exchanges(a, budget)[0]].sum())):
        out.put("host.gap_exchange_ratio", exchanged / whole)
    if a.trace.has("ranges"):
        waited = int(Coverage(a.states.loading.get(loop, EMPTY)).within(idle.start, idle.end).sum())
        out.put("host.loading_gap_ratio", min(waited, whole) / length)
    if named:
        out |= {
            "host.gap_range": named.text,
            "host.gap_in_operator": named.text.startswith("aten::") and not named.launches,
            "host.gap_launches_nothing": not named.launches,
        }
    elif whole and a.trace.has("ranges") and (other := other_gap_name(a, loop, idle)):
        out.put("host.gap_other_range", other.text)


def _sync(a: Budgeted, feeder: int, budget: DeviceBudget, out: FactWriter) -> None:
    calls = a.trace.columns("api_calls", ("start", "end", "name_id"))
    window, host = budget.program_ns, max(a.host_window[1] - a.host_window[0], 1)
    gaps = budget.gaps
    rows = calls_by(a, feeder, Call.SYNC)
    spans = subtract(
        union(calls["start"][rows], calls["end"][rows]), Spans(gaps.start[gaps.held], gaps.end[gaps.held])
    )
    wide = rows[calls_named(a.trace, rows, _DEVICE_WIDE)]
    readback, held, blocking = _readbacks(a, feeder)
    out |= _refilled(a, budget, np.sort(calls["end"][wide]), readback, held)
    implicit = merged(blocking, _synchronous(a, feeder, Call.ALLOC, Call.FREE))
    # Work issued before the call waits for the device, not for the call.
    late = (gaps.call != MISSING) & (gaps.call_end < gaps.end)
    issued = union(np.maximum(gaps.start, gaps.call_end)[late], gaps.end[late])

    def unissued(rows: Array) -> int:
        return budget.idle_inside(subtract(union(calls["start"][rows], calls["end"][rows]), issued))

    waited, sets = unissued(implicit), _synchronous(a, feeder, Call.MEMSET)
    small = np.intersect1d(a.ops.api[small_uploads(a, budget.device)[0]], implicit)
    out |= {
        "sync.idle_ratio": budget.share("sync"),
        "sync.span_ratio": budget.idle_inside(spans) / window,
        "sync.implicit_idle_ratio": waited / window,
        "sync.implicit_readback_ratio": min(unissued(a.ops.api[held]) / waited, 1.0) if waited else None,
        "sync.implicit_small_ratio": min(unissued(small) / waited, 1.0) if waited else None,
        "sync.memset_time_ratio": (calls["end"][sets] - calls["start"][sets]).sum() / host,
        "sync.memset_idle_ratio": budget.idle_inside(_until_next(a, feeder, sets)) / window,
    }
    counts: dict[str, float | None] = {
        "sync.device_wide": len(wide),
        "sync.implicit_calls": len(implicit),
        "sync.memset": len(sets),
        "sync.readbacks": len(readback) if a.trace.has("copies") else None,
    }
    out |= a.rates(budget.device, counts)


def _refilled(a: Loaded, budget: DeviceBudget, back: Array, readback: Array, held: Array) -> dict[str, float]:
    """Idle time from waits until the queue is filled again, as shares of the window: after any wait; after
    waits for the whole device, which return at `back` (sorted); and after small copies to the host. After
    copies whose own call blocks (`held`) all idle time counts, after others of `readback` that of waits."""
    parts, gaps = budget.gap_parts, budget.gaps
    waits = parts["sync"] > 0
    idle = np.asarray(sum(parts[p] for p in _REFILL), float) / budget.program_ns
    drained = positions(back, gaps.end, "right") > positions(back, gaps.start)
    of = np.append(np.flatnonzero(a.ops.device == budget.device), MISSING)
    behind = np.isin(of[gaps.prev_op], held)
    behind[waits] |= np.isin(of[gaps.prev_op[waits]], readback)
    return {
        "sync.idle_after_ratio": idle[waits].sum(),
        "sync.device_wide_idle_ratio": idle[waits & drained].sum(),
        "sync.readback_idle_ratio": idle[behind].sum(),
    }


def _until_next(a: Loaded, feeder: int, rows: Array) -> Spans:
    """Each of these calls up to the next one of the thread if that follows soon enough to be its refill,
    else the call alone."""
    calls = a.threads.of(feeder)
    columns = a.trace.columns("api_calls", ("start", "end"))
    start, end = columns["start"][rows], columns["end"][rows]
    at = np.searchsorted(calls.start, start, "right")
    follows = np.append(calls.start, np.iinfo(np.int64).max)[np.minimum(at, len(calls.start))]
    return union(
        start, np.where(follows - end <= metric_limits.host.REFILL_NS, np.maximum(follows, end), end)
    )


def _readbacks(a: Stepped, feeder: int) -> tuple[Array, Array, Array]:
    """Operations that are small DtoH copies with a wait right after, those among them whose own call blocks
    the host (not Async, or to pageable memory), and rows of api_calls that copy while the host is blocked."""
    at = np.flatnonzero(a.in_window & (a.ops.kind == Kind.COPY) & (a.ops.api >= 0))
    copies = a.trace.columns("copies", ("bytes", "kind", "src_memory", "dst_memory"))
    row, api = a.ops.row[at], a.ops.api[at]
    made = a.trace.columns("api_calls", ("thread", "call", "start"))
    # Copies inside graphs were issued by the graph launch and do not block the host.
    mine = (made["thread"][api] == feeder) & (made["call"][api] == Call.COPY)
    at, row, api = at[mine], row[mine], api[mine]
    pageable = (copies["src_memory"][row] == PAGEABLE) | (copies["dst_memory"][row] == PAGEABLE)
    blocks = pageable | ~calls_named(a.trace, api, _ASYNC)
    small = (copies["kind"][row] == DTOH) & (copies["bytes"][row] <= limits.READBACK_BYTES)
    calls = a.threads.of(feeder)
    position = np.searchsorted(calls.start, made["start"][api])
    followed = np.zeros(len(api), bool)
    for ahead in range(1, limits.READBACK_WAIT_CALLS + 1):
        i = np.minimum(position + ahead, len(calls.call) - 1)
        followed |= calls.call[i] == Call.SYNC
    return at[small & (followed | blocks)], at[small & blocks], distinct(api[blocks])


def _synchronous(a: Stepped, feeder: int, *kinds: Call) -> Array:
    """Those of these calls that are not asynchronous by name."""
    rows = calls_by(a, feeder, *kinds)
    return np.asarray(rows[~calls_named(a.trace, rows, _ASYNC)])


def _alloc(a: Budgeted, feeder: int, budget: DeviceBudget, out: FactWriter) -> None:
    calls = a.trace.columns("api_calls", ("start", "end"))
    rows = calls_by(a, issuers(a, feeder, budget.device), Call.ALLOC, Call.FREE)
    length = calls["end"][rows] - calls["start"][rows]
    stalls, pinned = rows[length > limits.STALL_NS], calls_named(a.trace, rows, LOCKS_PAGES)
    window = budget.program_ns
    whole = max(a.host_window[1] - a.host_window[0], window)  # a host far ahead finishes early
    stalled = union(calls["start"][stalls], calls["end"][stalls])
    slow = min(budget.idle_inside(stalled), budget.ns["alloc"])  # start-up has a part of its own
    out |= {
        **a.rates(budget.device, {"alloc.calls": len(rows)}),
        "alloc.stall_call_ratio": len(stalls) / max(len(rows), 1),
        "alloc.time_ratio": union(calls["start"][rows], calls["end"][rows]).total / whole,
        "alloc.idle_ratio": budget.share("alloc"),
        "alloc.pinned_ratio": float(length[pinned].sum() / max(length.sum(), 1)),
        "alloc.stall_max_ns": float(length.max(initial=0)),
        "alloc.stall_time_ratio": stalled.total / whole,
        "alloc.stall_idle_ratio": slow / window,
        "alloc.stall_of_idle_ratio": slow / max(budget.ns["alloc"], 1),
        "alloc.stall_max_over_p50": float(length.max() / max(median_of(length), 1)) if len(rows) else 1.0,
    }


def _graphs_built(a: Stepped, feeder: int, budget: DeviceBudget, out: FactWriter) -> None:
    built = graph_builds(a, feeder)
    idle = budget.idle_inside(built.spans)
    if a.step_count:
        out.put("graph.builds_per_step", built.makes / a.step_count)
    out.put("graph.build_idle_ratio", idle / budget.program_ns)
    out.put("graph.build_of_idle_ratio", idle / max(budget.idle_ns, 1))


def _waiting(a: Stepped, feeder: int | None, loop: int | None, budget: DeviceBudget, out: FactWriter) -> None:
    length = budget.program_ns
    gc, gil = (EMPTY if feeder is None else of.get(feeder, EMPTY) for of in (a.states.gc, a.states.gil))
    if a.states.gc:
        spans = budget.window.cut(gc)
        out.put("host.gc_idle_ratio", budget.share("gc"))
        out.put("host.gc_max_ns", float(np.max(spans.end - spans.start, initial=0)))
    if a.states.gil or "gil_hold" in a.roles.values():
        waited = _covered(Coverage(gil), budget.window.start, budget.window.end)
        out.put("host.gil_wait_ratio", min(waited / length, 1.0))
        out.put("host.gil_idle_ratio", budget.share("gil"))
    if a.trace.has("host_calls"):
        out.put("host.os_idle_ratio", budget.share("os"))
        if feeder is not None and loop is not None:
            _os_calls(a, feeder, loop, budget, out)
    first, last = a.host_window
    for name, *roles in (
        ("host.data_loading_ratio", "data_loading"),
        ("host.preparation_ratio", "preparation", "data_loading"),
    ):
        chosen = [i for i, role in a.roles.items() if role in roles]
        if a.step_count and chosen:
            inside = _covered(Coverage(a.ranges.spans(chosen, loop)), first, last)
            out.put(name, inside / max(last - first, 1))
        elif a.step_count and name == "host.data_loading_ratio":
            out.put(name, 0.0)  # without a range of a loader the advice would not apply
    _scheduler(a, loop, out)


def _scheduler(a: Stepped, loop: int | None, out: FactWriter) -> None:
    """How much of the preparation is the scheduler of an engine."""
    chosen = [i for i, role in a.roles.items() if role == "preparation"]
    if not a.step_count or not chosen:
        return
    (first, last), rows = a.host_window, a.ranges.rows(chosen)
    mine = np.flatnonzero((rows["thread"] == loop) & (rows["start"] < last) & (rows["end"] > first))
    if not len(mine):
        return
    texts, of = np.unique(rows["text"][mine], return_inverse=True)
    time = np.bincount(of, (rows["end"] - rows["start"])[mine])
    schedules = np.array([_SCHEDULER.search(a.ranges.texts[i]) is not None for i in texts.tolist()])
    out.put("host.scheduler_ratio", time[schedules].sum() / max(time.sum(), 1))
    if schedules.any():
        out.put("host.scheduler_range", a.ranges.texts[int(texts[np.argmax(time * schedules)])])


def _covered(spans: Coverage, lo: int, hi: int) -> int:
    return int(spans.within(np.array([lo]), np.array([hi]))[0])


def _os_calls(a: Stepped, thread: int, loop: int, budget: DeviceBudget, out: FactWriter) -> None:
    names, time = os_time(a, thread, Spans(budget.gaps.start, budget.gaps.end))
    if not (total := float(time.sum())):
        return
    waits, kinds = np.array([bool(_EVENT_WAITS.fullmatch(n)) for n in names]), os_kinds(names)
    blocked = intersect(a.states.os.get(thread, EMPTY), Spans(budget.gaps.start, budget.gaps.end))
    inside = enclosed(a.ranges, a.repeated, thread, blocked)
    in_steps = Spans(blocked.start[inside], blocked.end[inside])
    elsewhere = time - os_time(a, thread, in_steps)[1]
    out |= {
        "host.os_call": names[np.argmax(time)],
        "host.os_call_ratio": time.max() / total,
        "host.os_in_step_ratio": in_steps.total / max(blocked.total, 1),
        "host.os_event_wait_ratio": elsewhere[waits].sum() / total,
        "host.os_sleep_ratio": time[kinds["sleep"]].sum() / total,
        "host.os_lock_ratio": time[kinds["lock"]].sum() / total,
        "host.os_io_ratio": time[kinds["io"]].sum() / total,
    }
    if idle := budget.ns["os"]:
        mine = budget.gap_parts["os"] > 0
        gaps = Spans(budget.gaps.start[mine], budget.gaps.end[mine])
        out.put("host.os_polling_ratio", min(polled(a, thread, gaps) / idle, 1.0))
        out.put("host.os_tick_ratio", min(ticked(a, thread, gaps) / idle, 1.0))
        if (named := gap_name(a, thread, blocked)) and 2 * named.covered_ns > blocked.total:
            out.put("host.os_range", named.text)
    if a.trace.has("ranges") and idle:
        loading = intersect(a.states.loading.get(loop, EMPTY), a.states.os.get(thread, EMPTY))
        out.put("host.os_loading_ratio", min(budget.idle_inside(loading) / idle, 1.0))


def _steps(a: Profiled, budget: DeviceBudget, out: FactWriter) -> None:
    held = held_by_prompts(a)
    if (found := slow_steps(a, held) if held.any() else a.slow_steps) is None:
        return
    step, times, slow = found
    median = median_of(times)
    rest, worst = times[~slow], int(np.argmax(times))
    p99 = nearest_rank(times, 99)
    excess = float((times[slow] - median).sum())
    part, longer = slower_part(budget, step, slow)
    if longer > excess / 2 > 0:
        out.put("host.step_outlier_part", PARTS[part].words)
        out.put("host.step_outlier_part_ratio", min(longer / excess, 1.0))
    reads = slow & np.isin(step, a.window_steps[held])
    apart = Coverage(a.stretches.lone).within(a.steps.begin[step], a.steps.gpu_end[step])
    prompts = np.maximum(times - median - apart, 0)[reads].sum()
    out |= {
        "host.step_outlier_prompt_ratio": prompts / max(excess, 1.0),
        "host.step_max_over_median": times.max() / max(median, 1.0),
        "host.step_outliers": slow.sum(),
        "host.step_outlier_ratio": slow.mean(),
        "host.step_outlier_time_ratio": excess / (budget.program_ns + a.stretches.lone.total),
        "host.step_p99_lost_ratio": max(p99 - median, 0.0) / max(p99, 1.0),
        "host.step_rest_spread_ratio": np.abs(rest - median).max(initial=0) / max(median, 1.0),
        "host.slowest_step": step[worst],
        "host.slowest_step_lost_ms": (times[worst] - median) / 1e6,
        "host.slowest_step_at": f"{longest_gap_of(a, budget, int(step[worst])) / 1e9:.4f} s",
    }
