"""Facts about what the program waited for: events, streams and contexts, a CPU or a GPU in use by others,
and long stretches between the steps in which no kernel runs.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from advisor.facts import needs
from advisor.facts.host import IN_GAPS
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import DeviceBudget
from advisor.metrics.host import held_by_others, off_cpu
from advisor.metrics.intervals import EMPTY, Coverage, Spans, intersect, joined, subtract, union
from advisor.metrics.kernels import dense, heaviest
from advisor.metrics.operations import Kind, calls_named, of_copies
from advisor.metrics.waited import (
    CONTEXT,
    EVENT,
    STREAM,
    calls_by,
    feeder_waits,
    gap_name,
    issuers,
    loop_thread,
    os_time,
    recorded_waits,
)
from advisor.model.arrays import Array, bounds_of, median_of, pairs
from advisor.model.numbers import session_time
from advisor.sources.schema import DTOH, MISSING, Call, base_name

_ROWS = 12
#: A quota of the CPU is given anew each period (Linux: cpu.max, 100 ms by default), to this exactness; stops
#: of a thread from this length on, this many at least. At least this share of them is in rhythm, or begins
#: amid launches (calibration#switches).
_PERIOD_NS, _EXACT_NS, _STOP_NS, _STOPS, _RHYTHM, _PLACES = 100_000_000, 2_000_000, 1_000_000, 4, 0.75, 0.25
_KINDS = {EVENT: "event", STREAM: "stream", CONTEXT: "context"}
_WAITS = Need("the feeding thread calls nothing that only waits")
_WAITED = Need("the capture does not record what synchronize calls wait for", None, lambda a: recorded_waits(a, a.main_device) is not None)  # fmt: skip
_WORK = {"waits": "start end stream event process correlation", "api_calls": needs.CALLS, "kernels": f"{needs.SPAN} {needs.JOIN} stream"}  # fmt: skip

#: Calls that build, instantiate, update, destroy or capture graphs, and those that queue host code.
_OF_THEIR_OWN = re.compile(r"Graph|StreamBeginCapture|StreamEndCapture|LaunchHostFunc|AddCallback")
_HOST_FUNCTION = re.compile(r"LaunchHostFunc|AddCallback")
_NO_OTHERS = Need("the device idles in no such call")
_NONE = Need("no stretch without a kernel is that long")
_NO_WAIT = Need("the passes follow each other, or a cause is recorded for the time between them")
_SWITCHED = Need("no switch of the thread that runs the loop is recorded", needs.CPU_SWITCHES)

FACTS = (
    *group("device", needs.CUDA, [
        Entry("call.other_idle_ratio", "ratio", "kernels api_calls", "Share of the untraced step in which the device idles inside CUDA calls of one name that issue, allocate and wait for nothing, of the threads of the process that issue work of the device: that name which has most of it", "device idle inside them, without start-up and calls on graphs / untraced window"),
        Entry("call.other_of_idle_ratio", "ratio", "kernels api_calls", "The same as a share of all idle time", "/ idle"),
        Entry("call.other_name", "text", "kernels api_calls", "The name of these calls", "largest sum", needs=(needs.FEEDER, _NO_OTHERS)),
        *needs.counted("call.others", "kernels api_calls", "Calls of that name", needs=(needs.FEEDER, _NO_OTHERS)),
        Entry("launch.behind_function_ratio", "ratio", "kernels api_calls", "How much of the idle time with work queued lies behind a host function in the stream (cudaLaunchHostFunc)", "gaps between whose two operations such a thread put one in / budget part queued", needs=(needs.FEEDER, Need("no host function is put into a stream, or the device never idles while work is queued"))),
    ], columns={"kernels": needs.SPAN, "api_calls": f"{needs.CALLS} name_id"}, needs=(needs.FEEDER,)),
    *group("device", needs.CUDA, [
        *needs.counted("sync.calls", "api_calls", "Blocking synchronize calls", needs=(needs.FEEDER,)),
        Entry("sync.call_name", "text", "api_calls", "The name of the synchronize calls in which the feeding thread waits longest", "largest sum", needs=(needs.FEEDER, _WAITS)),
        Entry("sync.result_ratio", "ratio", "api_calls copies", "Share of the synchronize calls that may hand over a result: a copy to the host was issued since the one before", "count; copies of any size", columns={"copies": f"{needs.SPAN} {needs.JOIN} kind", "api_calls": needs.CALLS}, needs=(needs.FEEDER, _WAITS, Need("graphs are recorded as blocks, which may copy to the host", needs.NODES))),
    ], columns={"api_calls": f"{needs.CALLS} name_id"}, needs=(needs.FEEDER,)),
    *group("trace", needs.CUDA, [
        Entry("interruption.count", "count", "kernels", "Stretches between steps in which no kernel runs, of at least twenty steps (a single one: five) and 100 ms, where they come in at most a tenth of the steps; the window leaves them out", "gaps between the kernels of all devices, without those that garbage collection, a data loader, start-up, the profiler or a call explains"),
        Entry("interruption.time_ratio", "ratio", "kernels", "Share of the time between the first and the last step that they take", "sum / (sum + window)"),
        Entry("interruption.longest_ms", "ms", "kernels", "The longest of them", "max", needs=(needs.STEPS, _NONE)),
        Entry("interruption.copy_ratio", "ratio", "kernels", "Share of them in which copies run", "union of the copies / sum", columns={"kernels": needs.SPAN, "copies": needs.SPAN}, needs=(needs.STEPS, _NONE)),
    ], columns={"kernels": needs.SPAN}, needs=(needs.STEPS,)),
    *group("trace", needs.NVTX, [
        Entry("interruption.range", "text", "ranges", "The range or Python function of the launching thread that covers most of them", "as host.gap_range", needs=(needs.STEPS, _NONE, Need("no range or function covers most of them", "NVTX ranges around the host's work"))),
    ], columns={"ranges": needs.RANGES, "python_calls": "start end thread text_id"}),
    *group("trace", needs.OSRT, [
        Entry("interruption.os_call", "text", "host_calls", "The operating-system call in which the launching thread spends most of them", "where such calls hold half of them", needs=(needs.STEPS, _NONE, Need("the launching thread is in no operating-system call for half of them"))),
    ], columns={"host_calls": "start end thread name_id"}),
    *group("trace", needs.CUDA, [
        Entry("requests.wait_ratio", "ratio", "kernels api_calls", "Share of the time from the first pass to the last in which perhaps no request came, which the window leaves out: every device is idle, and the thread that launches the next pass makes no call", "waits of 0.2 ms and more that vary widely from one to the next, or lie in calls that wait for events, without those that a range, garbage collection, start-up or work on a CPU explains; 0 for less than a tenth of the time, of the passes, or six"),
        Entry("requests.wait_count", "count", "kernels api_calls", "How many such waits there are", "count"),
        Entry("requests.wait_median_ms", "ms", "kernels api_calls", "The usual one of them", "median", needs=(needs.STEPS, _NO_WAIT)),
        Entry("requests.wait_longest_ms", "ms", "kernels api_calls", "The longest of them", "max", needs=(needs.STEPS, _NO_WAIT)),
        Entry("requests.passes_per_s", "count_per_s", "kernels api_calls", "Passes a second, these waits among them", "passes / time from the first pass to the last", needs=(needs.STEPS, _NO_WAIT)),
        Entry("requests.busy_ratio", "ratio", "kernels api_calls", "Share of that time in which a device works", "union of all GPU work / time from the first pass to the last", needs=(needs.STEPS, _NO_WAIT)),
    ], columns={"kernels": f"{needs.SPAN} {needs.JOIN}", "api_calls": needs.CALLS}, needs=(needs.STEPS,)),
    *group("trace", needs.OSRT, [
        Entry("requests.os_call", "text", "host_calls", "The operating-system call in which the launching thread spends most of these waits", "where such calls hold half of them", needs=(needs.STEPS, _NO_WAIT, Need("the launching thread is in no operating-system call for half of them"))),
    ], columns={"host_calls": "start end thread name_id"}),
    *group("device", needs.CUDA, [
        Entry("sync.event_wait_ratio", "ratio", "api_calls", "Share of the window the feeding thread waits for events", "sum of such waits / host side of the window"),
        Entry("sync.stream_wait_ratio", "ratio", "api_calls", "Share of the window the feeding thread waits for single streams", "sum of such waits / host side of the window"),
        Entry("sync.context_wait_ratio", "ratio", "api_calls", "Share of the window the feeding thread waits for a whole device or context", "sum of waits that name neither stream nor event / host side of the window"),
        Entry("sync.waited_stream", "count", "api_calls", "The stream the feeding thread waits for longest, of an event the one it was recorded on", "largest sum over waits of known stream", needs=(needs.FEEDER, _WAITED, Need("no wait for a known stream is recorded"))),
        Entry("sync.context_wait_streams", "count", "api_calls", "Streams with work left when a wait for a whole context begins", "median over those waits that find any", needs=(needs.FEEDER, _WAITED, Need("no wait for a whole context found work"))),
        Entry("sync.empty_wait_ratio", "ratio", "api_calls", "Share of the waits for streams and contexts that find no work left", "count", needs=(needs.FEEDER, _WAITED, Need("no wait for a stream or a context is recorded"))),
        Entry("sync.over_wait_ratio", "ratio", "api_calls", "Share of the window in which waits go on for the work of other streams after what the host asked for has ended", "from the end of the read-backs since the last wait or, in a wait for a context without one, of the stream with most kernel time, to that of the work waited for"),
        Entry("sync.over_waited_stream", "count", "api_calls", "The stream whose work they go on for most", "largest sum of that time", needs=(needs.FEEDER, _WAITED, Need("no wait went on for the work of other streams"))),
    ], columns=_WORK, needs=(needs.FEEDER, _WAITED)),
    *group("device", needs.CPU_SWITCHES, [
        Entry("host.off_cpu_idle_ratio", "ratio", "cpu_switches host_calls api_calls", "Idle in host code while the thread of the loop has no CPU, though it waits in no CUDA call, in no operating-system call and for no page of unified memory: others have its CPU. Without operating-system calls only where it stops at a rhythm of 100 ms, or amid its launches", "host gaps and host code between launches, inside times between a switch from a CPU and the next to one; calls, gaps that end where pages migrate, and switches in a waiting state left out"),
        Entry("host.off_cpu_of_gap_ratio", "ratio", "cpu_switches host_calls api_calls", "How much of the host gaps that is", "the same in host gaps alone / host gaps", needs=(needs.FEEDER, _SWITCHED, IN_GAPS)),
        Entry("host.off_cpu_quota_ratio", "ratio", "cpu_switches", "How much of the time off its CPU the thread loses at a rhythm of 100 ms: the period in which a quota of the CPU is given anew", "stops of 1 ms and more that end a multiple of 100 ms apart, to 2 ms / all such stops"),
        Entry("host.gap_asleep_ratio", "ratio", "cpu_switches api_calls", "How much of the host gaps the thread of the loop spends off its CPU otherwise: it waits there for something that no recorded call names, or has no CPU", "the same without leaving out waiting states, without what host.off_cpu_of_gap_ratio counts / host gaps", needs=(needs.FEEDER, _SWITCHED, IN_GAPS)),
    ], columns={"cpu_switches": "time thread running state", "host_calls": "start end thread", **needs.GAPS}, needs=(needs.FEEDER, _SWITCHED)),
    *group("device", needs.GPU_SWITCHES, [
        Entry("launch.held_by_others_ratio", "ratio", "gpu_switches kernels api_calls", "Idle with work queued while a context that holds none of the work of the capture is on the device", "budget part queued, inside the times of contexts in which less than 1 % of the operations begin"),
    ], columns={"gpu_switches": "time device context kind", **needs.GAPS}, needs=(needs.FEEDER, Need("no switch of a context on this GPU is recorded", needs.GPU_SWITCHES))),
)  # fmt: skip


def wait_facts(a: Analysis, device: int, out: FactWriter) -> None:
    waits = feeder_waits(a, device)
    if waits is None:
        return
    host = max(a.host_window[1] - a.host_window[0], 1)
    length = waits.end - waits.start
    named, wide = waits.stream != MISSING, (waits.kind == CONTEXT) & (waits.pending > 0)
    for_work = waits.kind != EVENT
    out |= {
        **{f"sync.{n}_wait_ratio": length[waits.kind == k].sum() / host for k, n in _KINDS.items()},
        "sync.waited_stream": heaviest(waits.stream[named], length[named]) if named.any() else None,
        "sync.context_wait_streams": median_of(waits.pending[wide]) if wide.any() else None,
        "sync.empty_wait_ratio": (waits.pending == 0)[for_work].mean() if for_work.any() else None,
        "sync.over_wait_ratio": waits.over.sum() / host,
        "sync.over_waited_stream": heaviest(waits.other, waits.over) if waits.over.any() else None,
    }
    rows: list[list[Any]] = []
    for kind, stream in pairs(waits.kind, waits.stream):
        mine = (waits.kind == kind) & (waits.stream == stream)
        over, empty = waits.over[mine], None if kind == EVENT else (waits.pending[mine] == 0).mean()
        which = _KINDS[kind], None if stream == MISSING else stream, mine.sum()
        longest = heaviest(waits.other[mine], over) if over.any() else None
        rows.append([*which, length[mine].sum() / host, empty, over.sum() / host, longest])
    out.table("sync.waits", sorted(rows, key=lambda r: -r[3])[:_ROWS])


# --- calls that only wait, and whether a result is behind them -------------------------------------


def sync_call_facts(a: Analysis, device: int, out: FactWriter) -> None:
    feeder = a.feeder(device)
    if feeder is None:
        return
    calls = a.trace.columns("api_calls", ("start", "end", "thread", "name_id"))
    rows = calls_by(a, feeder, Call.SYNC)
    out |= a.rates(device, {"sync.calls": len(rows)})
    if not len(rows):
        return
    most = heaviest(calls["name_id"][rows], calls["end"][rows] - calls["start"][rows])
    out.put("sync.call_name", base_name(a.trace.texts([most])[0]))
    if not a.trace.has("graph_runs"):
        issued = a.ops.api[(of_copies(a.trace, a.ops) == DTOH) & (a.ops.api >= 0)]
        issued = np.sort(calls["start"][issued[calls["thread"][issued] == feeder]])
        issued = issued[issued >= a.host_window[0]]
        before = np.searchsorted(issued, np.sort(calls["start"][rows]))
        out.put("sync.result_ratio", (np.diff(before, prepend=0) > 0).mean())


# --- long stretches between the steps in which no kernel runs --------------------------------------


def interruption_facts(a: Analysis, out: FactWriter) -> None:
    if not a.step_count:
        return
    found, total = a.stretches.long, a.stretches.long.total
    out.put("interruption.count", len(found))
    out.put("interruption.time_ratio", total / max(total + a.window.length, 1))
    if not total:
        return
    copies = a.ops.kind == Kind.COPY
    copied = union(a.ops.start[copies], a.ops.end[copies])
    out.put("interruption.longest_ms", (found.end - found.start).max() / 1e6)
    out.put("interruption.copy_ratio", intersect(found, copied).total / total)
    spans = zip(found.start, found.end, Coverage(copied).within(found.start, found.end), strict=True)
    out.table("interruptions", [[session_time(int(lo)), (hi - lo) / 1e6, ns / 1e6] for lo, hi, ns in spans])
    feeder = a.feeder(a.main_device)
    if feeder is None:
        return
    if (named := gap_name(a, feeder, found)) and 2 * named.covered_ns > total:
        out.put("interruption.range", named.text)
    if a.trace.has("host_calls"):
        names, time = os_time(a, feeder, found)
        if 2 * time.sum() > total:
            out.put("interruption.os_call", names[time.argmax()])


def request_facts(a: Analysis, out: FactWriter) -> None:
    """Waits between passes in which perhaps no request came."""
    if not a.step_count:
        return
    found = a.arrivals
    out.put("requests.wait_ratio", found.waits.total / found.length)
    out.put("requests.wait_count", len(found.waits))
    if not len(found.waits):
        return
    length = found.waits.end - found.waits.start
    busy = Coverage(union(a.ops.start, a.ops.end)).within(*np.array([[found.first], [found.last]]))
    out |= {
        "requests.wait_median_ms": median_of(length) / 1e6,
        "requests.wait_longest_ms": length.max() / 1e6,
        "requests.passes_per_s": found.passes / (found.length / 1e9),
        "requests.busy_ratio": int(busy[0]) / found.length,
        "requests.os_call": found.call or None,
    }


# --- CUDA calls that issue, allocate and wait for nothing ------------------------------------------


def other_call_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Which of these calls the device idles in for longest, of the threads that issue its work; calls on
    graphs have facts of their own, and what is cold is start-up."""
    budget, feeder = a.budgets[device], a.feeder(device)
    if feeder is None:
        return
    calls = a.trace.columns("api_calls", ("start", "end", "name_id"))
    rows = calls_by(a, issuers(a, feeder, device), Call.OTHER)
    functions = calls["start"][rows[calls_named(a.trace, rows, _HOST_FUNCTION)]]
    if len(functions) and budget.gap_parts["queued"].any():
        out.put("launch.behind_function_ratio", _behind(a, budget, np.sort(functions), calls["start"]))
    rows = rows[~calls_named(a.trace, rows, _OF_THEIR_OWN)]
    gaps = union(budget.gaps.start, budget.gaps.end)
    idle = Coverage(subtract(gaps, a.startup.spans)).within(calls["start"][rows], calls["end"][rows])
    name = calls["name_id"][rows]
    ids, of = dense(name[idle > 0])
    time = np.bincount(of, idle[idle > 0], len(ids))
    longest = time.max(initial=0)
    out.put("call.other_idle_ratio", longest / budget.untraced_ns)
    out.put("call.other_of_idle_ratio", longest / max(budget.idle_ns, 1))
    if longest:
        most = int(ids[np.argmax(time)])
        out.put("call.other_name", base_name(a.trace.texts([most])[0]))
        out |= a.rates(device, {"call.others": (name == most).sum()})


def _behind(a: Analysis, budget: DeviceBudget, functions: Array, begun: Array) -> Any:
    """Share of the queued idle time in gaps whose operations were launched one before and one after one of
    `functions` (times, sorted); `begun` is when each call began."""
    gaps, queued = budget.gaps, budget.gap_parts["queued"]
    api = np.append(a.ops.api[a.ops.device == budget.device], MISSING)  # the last one: no operation
    before, after = api[gaps.prev_op], api[gaps.next_op]
    known = (before != MISSING) & (after != MISSING)
    ahead = [np.searchsorted(functions, begun[rows[known]]) for rows in (before, after)]
    return queued[known][ahead[0] < ahead[1]].sum() / queued.sum()


# --- who had the CPU of the loop, and who had the GPU, while the program waited for it -------------


def switch_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Facts from switches of threads and of contexts; none of a capture without them."""
    budget, feeder = a.budgets[device], a.feeder(device)
    length = budget.untraced_ns
    if feeder is None:
        return
    thread = loop_thread(budget, feeder)
    asleep = off_cpu(a.trace, thread, waiting=True)
    if asleep is not None:
        calls, gaps = a.threads.of(thread), budget.ns["host_gap"]
        on_pages = Spans(budget.gaps.start[budget.gaps.migrated], budget.gaps.end[budget.gaps.migrated])
        named = (union(calls.start, calls.end), a.states.os.get(thread, EMPTY), on_pages)
        asleep = subtract(asleep, joined(*named))
        away = off_cpu(a.trace, thread)
        quota = _in_rhythm(away) if away is not None else 0.0
        # Without operating-system calls a wait for something is told from the lack of a CPU by its place.
        if away is not None and not a.trace.has("host_calls") and quota < _RHYTHM and not _anywhere(a, away):
            away = None
        lost = 0
        if away is not None:
            away = intersect(away, asleep)
            lost = _inside(budget, away, "host_gap")
            idle = _inside(budget, away, "host_gap", "host_between_launches")
            out.put("host.off_cpu_idle_ratio", idle / length)
            out.put("host.off_cpu_quota_ratio", quota)
            out.put("host.off_cpu_of_gap_ratio", lost / gaps if gaps else None)
        if gaps:
            out.put("host.gap_asleep_ratio", (_inside(budget, asleep, "host_gap") - lost) / gaps)
    held = held_by_others(a.trace, device, a.ops.start[a.device_ops(device)])
    if held is not None:
        out.put("launch.held_by_others_ratio", _inside(budget, held, "queued") / length)


def _long_stops(away: Spans) -> Spans:
    long = away.end - away.start >= _STOP_NS
    return Spans(away.start[long], away.end[long])


def _in_rhythm(away: Spans) -> float:
    """How much of the long stops ends a multiple of the period of a quota after most others end."""
    stops = _long_stops(away)
    if len(stops) < _STOPS:
        return 0.0
    phase = stops.end % _PERIOD_NS
    apart = np.abs(phase[:, None] - phase)
    near = np.minimum(apart, _PERIOD_NS - apart) <= _EXACT_NS
    best = near[np.argmax(near.sum(axis=1))]
    # Stops of a loop that is slower than a period come once a step, whatever the clock of the quota.
    whole = np.rint(np.diff(stops.end[best]) / _PERIOD_NS) >= 1
    return float((stops.end - stops.start)[best].sum() / stops.total) if whole.all() else 0.0


def _anywhere(a: Analysis, away: Spans) -> bool:
    """True if long stops begin while the thread launches the work of a step: others took its CPU. A loop that
    sleeps until its input comes does so between steps."""
    stops, steps = _long_stops(away), a.steps
    if len(stops) < _STOPS or not a.step_count:
        return False
    api = a.ops.api[(steps.op_step >= 0) & (a.ops.api >= 0)]
    of = steps.op_step[(steps.op_step >= 0) & (a.ops.api >= 0)]
    begun = a.trace.columns("api_calls", ("start",))["start"][api]
    first, last = bounds_of(len(steps), of, begun, begun)
    step = np.searchsorted(np.maximum.accumulate(first), stops.start, "right") - 1
    inside = (step >= 0) & (stops.end <= last[np.maximum(step, 0)])
    return bool(inside.sum() >= max(_STOPS, _PLACES * len(stops)))


def _inside(budget: DeviceBudget, spans: Spans, *parts: str) -> int:
    """ns of these idle parts within `spans`; of each gap at most its own length."""
    gaps, covered = budget.gaps, Coverage(spans)
    most: Array = sum((budget.gap_parts[p] for p in parts), np.zeros(len(gaps), np.int64))
    return int(np.minimum(covered.within(gaps.start, gaps.end), most).sum())
