"""Facts about the host's part: synchronisation, allocation, garbage collection, GIL, steps."""

from __future__ import annotations

import re

import numpy as np

from advisor.facts import needs
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import DeviceBudget
from advisor.metrics.host import REFILL_NS
from advisor.metrics.intervals import EMPTY, Coverage, Spans, intersect, positions, subtract, union
from advisor.metrics.operations import Kind, calls_named
from advisor.metrics.phases import (
    held_by_prompts,
    longest_gap_of,
    once_ratio,
    pause_ns,
    slow_steps,
    slower_part,
)
from advisor.metrics.waited import (
    calls_by,
    exchanges,
    gap_name,
    issuers,
    loop_thread,
    os_time,
    other_gap_name,
    polled,
    ticked,
)
from advisor.model.arrays import Array, distinct, median_of, merged, percentiles
from advisor.model.parts import PARTS
from advisor.sources.schema import DTOH, MISSING, PAGEABLE, Call

_SMALL_COPY = 4096
_STALL_NS = 1_000_000
#: Calls that wait for events on descriptors, for a connection, a message or a time (man-pages, section 2).
_EVENT_WAITS = re.compile(
    r"(?:__)?(?:epoll_p?wait2?|p?poll|p?select|accept4?|recv(?:from|m?msg)?|u?sleep|(?:clock_)?nanosleep)(?:_\w+)?"
)
#: A read-back is a small copy followed by a wait within this many calls of the thread.
_WAIT_WITHIN = 3
#: Calls that build, change or destroy graphs, and those of them that occur once a graph.
_BUILDS_GRAPH = re.compile(r"Graph(?=[A-Z])(?!Launch|Debug|.*Get)|Stream(?:Begin|End)Capture")
_MAKES_GRAPH = re.compile(r"GraphInstantiate|GraphExecUpdate")
_BEGINS, _ENDS = re.compile("StreamBeginCapture"), re.compile("StreamEndCapture")
_ASYNC, _DEVICE_WIDE = re.compile("Async"), re.compile("(?:Device|Ctx)Synchronize")

_PREPARATION = Need(
    "no range names input preparation", "NVTX ranges of input preparation",
    lambda a: not {"preparation", "data_loading"}.isdisjoint(a.roles.values()), "preparation",
)  # fmt: skip
#: Parts of a gap in which the queue is refilled once a wait has returned.
_REFILL = ("sync", "copy_call", "launch_call", "graph_launch_call", "launch_latency", "host_between_launches")
IN_GAPS = Need("the host leaves no gaps", None, lambda a: a.budgets[a.main_device].share("host_gap") > 0)
_MOST_OF_IT = Need("no part of the budget holds most of what the slow steps cost")
_IN_CALLS = Need("that thread is in no operating-system call while the GPU is idle")
_COVERED = Need("no range, function or operator lies in most of the gaps", "NVTX ranges around the host's work")  # fmt: skip
_READBACK = {"copies": f"{needs.SPAN} {needs.JOIN} bytes kind", "api_calls": needs.CALLS}
_RANGES = {"ranges": needs.RANGES, **needs.GAPS}
_NAMES = {**_RANGES, "python_calls": "start end thread text_id"}

FACTS = (
    *group("device", needs.CUDA, [
        Entry("sync.idle_ratio", "ratio", "kernels api_calls", "Idle inside synchronize calls, and in the host code after them up to the next call where that follows within 100 us", "budget part sync"),
        Entry("sync.idle_after_ratio", "ratio", "kernels api_calls", "Idle of gaps in which a synchronize call returns and the queue has to be refilled, host code over 100 us left out", "whole gap, minus host code, GC, GIL and profiler"),
        Entry("sync.span_ratio", "ratio", "api_calls", "Share of the untraced step the feeding thread spends in synchronize calls while the device has no queued work of the step left", "waits that end in a gap"),
        Entry("sync.device_wide_idle_ratio", "ratio", "kernels api_calls", "The part of that idle in whose gaps a device-wide wait returns", "as sync.idle_after_ratio"),
        *needs.counted("sync.device_wide", "api_calls", "Calls of cudaDeviceSynchronize or of a context synchronize", "count in the window / steps, the last of the capture left out", needs=(needs.FEEDER,)),
        *needs.counted("sync.readbacks", "api_calls copies", "Small DtoH copies (up to 4 KiB) followed by a wait on the same thread,", "copy call followed by a synchronize call within three calls, or a blocking copy", columns=_READBACK, needs=(needs.FEEDER,)),
        Entry("sync.readback_idle_ratio", "ratio", "api_calls copies", "Idle of the gaps around such read-backs", "gaps in which the read-back's wait returns", columns=_READBACK),
        Entry("sync.implicit_idle_ratio", "ratio", "kernels api_calls", "Idle inside calls that wait implicitly: blocking copies, pageable copies, cudaMalloc, cudaFree", "idle in those calls while nothing is issued that the device could begin"),
        Entry("sync.implicit_readback_ratio", "ratio", "api_calls copies", "How much of that idle time lies inside copies of up to 4 KiB to the host", "as above", columns=_READBACK, needs=(needs.FEEDER, Need("the GPU is idle in no call that waits implicitly"))),
        *needs.counted("sync.implicit_calls", "api_calls", "Calls that wait implicitly (blocking and pageable copies, cudaMalloc, cudaFree),", needs=(needs.FEEDER,)),
        *needs.counted("sync.memset", "api_calls", "Synchronous memset calls (cudaMemset, cuMemsetD*)", "names without Async", needs=(needs.FEEDER,)),
        Entry("sync.memset_time_ratio", "ratio", "api_calls", "Share of the window in synchronous memset calls", "sum / window"),
        Entry("sync.memset_idle_ratio", "ratio", "kernels api_calls", "Idle inside those calls and until the next call", "device idle from the call's start to the next call's, where that follows within 100 us, else to its own end"),
    ], columns={"kernels": f"{needs.SPAN} {needs.JOIN}", "api_calls": f"{needs.CALLS} name_id"}, needs=(needs.FEEDER,)),
    *group("device", needs.CUDA, [
        *needs.counted("alloc.calls", "api_calls", "Allocation and free calls of the steady part, of all threads of the process that issue work of the device", needs=(needs.FEEDER,)),
        Entry("alloc.stall_call_ratio", "ratio", "api_calls", "How many of these calls take over 1 ms", "count / count, in the window"),
        Entry("alloc.time_ratio", "ratio", "api_calls", "Share of the window in those calls, of all threads of the process that issue work of the device", "union / the longer of the window and its host side"),
        Entry("alloc.idle_ratio", "ratio", "kernels api_calls", "Idle inside them", "budget part alloc"),
        Entry("alloc.stall_max_over_p50", "ratio", "api_calls", "Longest allocation or free call over the median one", "in the window"),
        Entry("alloc.stall_max_ns", "ns", "api_calls", "Longest allocation or free call", "in the window"),
        Entry("alloc.stall_time_ratio", "ratio", "api_calls", "Share of the window in allocation or free calls over 1 ms", "as alloc.time_ratio"),
        Entry("alloc.stall_idle_ratio", "ratio", "kernels api_calls", "Idle inside those calls", "device idle inside calls over 1 ms / untraced window, at most alloc.idle_ratio"),
        Entry("alloc.stall_of_idle_ratio", "ratio", "kernels api_calls", "How much of the idle inside allocation and free calls lies in those over 1 ms", "alloc.stall_idle_ratio / alloc.idle_ratio, 0 where nothing is idle"),
    ], columns={"api_calls": "start end thread call", "kernels": f"{needs.SPAN} {needs.JOIN}"}, needs=(needs.FEEDER,)),
    *group("device", needs.CUDA, [
        Entry("graph.builds_per_step", "count", "api_calls", "Graphs that are instantiated or updated a step", "calls in the window / steps", needs=(needs.FEEDER, needs.STEPS)),
        Entry("graph.build_idle_ratio", "ratio", "kernels api_calls", "Idle inside calls that build, instantiate, update or destroy graphs, and from the begin of a stream capture to its end", "device idle inside them / untraced window"),
        Entry("graph.build_of_idle_ratio", "ratio", "kernels api_calls", "How much of the idle time of the device lies there", "as above / idle, 0 where nothing is idle"),
    ], columns={"api_calls": f"{needs.CALLS} name_id", "kernels": f"{needs.SPAN} {needs.JOIN}"}, needs=(needs.FEEDER,)),
    *group("device", needs.CUDA, [
        Entry("host.gap_ratio", "ratio", "kernels api_calls", "Idle with no CUDA call on the feeding thread, between steps or in code of 0.2 ms and more", "budget part host_gap", columns=needs.GAPS, needs=(needs.FEEDER,)),
        Entry("host.gap_max_ms", "ms", "kernels api_calls", "The longest such gap", "max", columns=needs.GAPS, needs=(needs.FEEDER,)),
        Entry("host.gap_pieces_per_step", "count", "kernels api_calls", "Over how many of these gaps half of their time is spread, in a step", "the fewest gaps that hold half of the time / steps", columns=needs.GAPS, needs=(needs.FEEDER, IN_GAPS, needs.STEPS)),
        Entry("host.gap_on_pages_ratio", "ratio", "kernels api_calls", "How much of these gaps ends where pages of unified memory migrate", "gaps whose next operation is a migration / gaps", columns=needs.GAPS, needs=(needs.FEEDER, IN_GAPS, Need("no such gap ends where pages of unified memory migrate"))),
        Entry("host.gap_once_ratio", "ratio", "kernels api_calls", "How much of these gaps is one gap that no range names, where the steps are too few to show whether it recurs", "longest gap / gaps of fewer than six steps after another, without what host.gap_range covers; 0 for more steps and a single pass", columns=needs.GAPS, needs=(needs.FEEDER,)),
        Entry("host.gap_exchange_ratio", "ratio", "kernels api_calls copies", "How much of these gaps lies between a copy of data to the host and a copy to the device: the host computes on what the GPU hands it", "gaps after a DtoH copy of 4 KiB or more and before an HtoD copy / gaps", columns={**needs.GAPS, "copies": f"{needs.SPAN} {needs.JOIN} kind bytes"}, needs=(needs.FEEDER, IN_GAPS, Need("no such gap lies between a copy of data to the host and a copy back"))),
        Entry("host.step_max_over_median", "ratio", "", "Slowest step over the median step", "steps of the phase that holds most steps; for decode also those that read prompts while sequences wait"),
        Entry("host.step_outliers", "count", "", "Steps above 1.5 x the median and above mean + 3 sigma of the rest", "count"),
        Entry("host.step_outlier_ratio", "ratio", "", "Share of such steps", "host.step_outliers / steps of the phase"),
        Entry("host.steady_gap_ratio", "ratio", "kernels api_calls", "host.gap_ratio without what few slow steps among even ones lose in such gaps", "as above; of at least six steps, at most a tenth (or one) far slower than the rest, their gap beyond the median step's left out", columns=needs.GAPS, needs=(needs.FEEDER,)),
        Entry("host.pause_of_idle_ratio", "ratio", "kernels api_calls", "How much of the idle time few slow steps among even ones lose in host gaps", "what host.steady_gap_ratio leaves out, over the idle time", columns=needs.GAPS, needs=(needs.FEEDER,)),
        Entry("host.step_p99_lost_ratio", "ratio", "", "What the slow steps cost at the 99th percentile: how much of that step is beyond the median", "(p99 - median) / p99"),
        Entry("host.step_rest_spread_ratio", "ratio", "", "How far the other steps are from the median at most", "max of |time - median| / median"),
        Entry("host.slowest_step", "count", "", "The slowest step, counted from 0 over the capture", "steps of the phase that holds most steps; for decode also those that read prompts while sequences wait"),
        Entry("host.slowest_step_lost_ms", "ms", "", "How much longer it takes than the median step", "time - median"),
        Entry("host.slowest_step_at", "text", "", "Where in the session its longest gap begins, or it does", "start of the longest idle gap inside it"),
        Entry("host.step_outlier_time_ratio", "ratio", "", "Time above the median that those steps cost, over the untraced step", "sum of the excess / untraced window"),
        Entry("host.step_outlier_prompt_ratio", "ratio", "", "How much of that lies in steps that read prompts", "excess of the steps of serving.stall_count / sum of the excess"),
        Entry("host.step_outlier_part", "text", "", "The part of the budget that holds more than half of what those steps cost", "its time in them beyond its median in the others", needs=(_MOST_OF_IT,)),
        Entry("host.step_outlier_part_ratio", "ratio", "", "How much of what those steps cost the part with most of it holds", "as above / sum of the excess", needs=(_MOST_OF_IT,)),
    ], columns=needs.STEP_COLUMNS, needs=needs.more_steps(3, "three steps of one phase")),
    *group("device", needs.OSRT, [
        Entry("host.os_idle_ratio", "ratio", "host_calls", "Idle while the feeding thread is blocked in an operating-system call", "budget part os"),
        Entry("host.os_call", "text", "host_calls", "The operating-system call in which that thread spends most of the idle time", "time of its calls in the gaps, by name", needs=(needs.FEEDER, _IN_CALLS)),
        Entry("host.os_call_ratio", "ratio", "host_calls", "How much of the idle time in such calls it holds", "as above", needs=(needs.FEEDER, _IN_CALLS)),
        Entry("host.os_event_wait_ratio", "ratio", "host_calls", "How much of that is in calls that wait for events or messages, as a server does that has no request", "epoll_wait, poll, select, accept, recv and their kin / all calls", needs=(needs.FEEDER, _IN_CALLS)),
        Entry("host.os_polling_ratio", "ratio", "host_calls api_calls", "How much of that idle time the thread sleeps on after its own work has ended: it polls for it", "idle in sleeps that began before the device ran dry, and in calls between two of cudaEventQuery or cudaStreamQuery / idle in such calls", columns={"host_calls": "start end thread name_id", **needs.GAPS, "api_calls": f"{needs.CALLS} name_id"}, needs=(needs.FEEDER, _IN_CALLS)),
        Entry("host.os_tick_ratio", "ratio", "host_calls kernels", "How much of that idle time the thread sleeps between two steps at a tick of its own", "idle in sleeps that begin between the work of two steps, if such come before 80 % of the steps and these begin evenly, or decode and the sleeps are shorter than three steps; else 0 / idle in such calls", columns={"host_calls": "start end thread name_id", **needs.GAPS}, needs=(needs.FEEDER, _IN_CALLS)),
        Entry("host.os_loading_ratio", "ratio", "host_calls ranges", "How much of that idle time lies inside the range of a data loader, which waits for its workers or for files; 0 where none is named so", "idle in such calls inside data-loading ranges of the loop's thread / idle in such calls", columns={"host_calls": "start end thread name_id", "ranges": needs.RANGES, **needs.GAPS}, needs=(needs.FEEDER, _IN_CALLS)),
    ], columns={"host_calls": "start end thread name_id", **needs.GAPS}),
    *group("device", needs.GIL, [
        Entry("host.gil_wait_ratio", "ratio", "ranges", "Share of the untraced step in which the feeding thread waits for the GIL", "ranges `Waiting for GIL` of that thread"),
        Entry("host.gil_idle_ratio", "ratio", "ranges", "Idle while it waits", "budget part gil"),
    ], columns=_RANGES, needs=(Need("waiting for the GIL is not recorded", needs.GIL),)),
    *group("device", needs.NVTX, [
        Entry("host.gc_idle_ratio", "ratio", "ranges", "Idle while Python collects garbage on the feeding thread", "budget part gc"),
        Entry("host.gc_max_ns", "ns", "ranges", "The longest garbage collection inside the window", "max of GC ranges; 0 where GC is recorded and none ran"),
        Entry("host.gap_range", "text", "api_calls ranges", "The range, Python function or operator of the feeding thread that covers most of these gaps, `#` for the numbers of a range", "of those that cover at least half of what any does, the one with most of its own time in the gaps, more than half", columns=_NAMES, needs=(needs.FEEDER, IN_GAPS, _COVERED)),
        Entry("host.gap_in_operator", "flag", "api_calls ranges", "An operator of PyTorch that launches nothing covers most of these gaps: it runs on the CPU", "host.gap_range begins with aten::, and nothing is launched inside it", columns=_NAMES, needs=(needs.FEEDER, IN_GAPS, _COVERED)),
        Entry("host.gap_launches_nothing", "flag", "api_calls ranges", "No kernel and no graph is launched inside host.gap_range: it is host work that can be done elsewhere", "launch calls of the thread inside it", columns=_NAMES, needs=(needs.FEEDER, IN_GAPS, _COVERED)),
        Entry("host.gap_range_ratio", "ratio", "api_calls ranges", "How much of these gaps it covers", "its time in the gaps / gaps", columns=_NAMES, needs=(needs.FEEDER, IN_GAPS, _COVERED)),
        Entry("host.gap_other_range", "text", "api_calls ranges", "The range of another thread of the process that covers more than half of these gaps, where none of the loop's thread does: the loop may wait for it", "as host.gap_range", needs=(needs.FEEDER, IN_GAPS, Need("no range of another thread lies in most of the gaps"))),
        Entry("host.data_loading_ratio", "ratio", "", "Share of the step that ranges of a data loader take on the loop's thread, 0 where none is named so", "data-loading ranges inside steps / step time", columns={"ranges": needs.RANGES}, needs=(needs.STEPS,)),
        Entry("host.loading_gap_ratio", "ratio", "api_calls ranges", "Share of the untraced step in which the GPU waits for host work that is inside a data loader's range, 0 where none is named so", "host gaps inside data-loading ranges of the loop's thread / untraced window", columns={"ranges": needs.RANGES, **needs.GAPS}, needs=(needs.FEEDER,)),
        Entry("host.preparation_ratio", "ratio", "ranges", "Share of the step that input preparation ranges, those of a data loader among them, take on the loop's thread", "preparation ranges inside steps / step time", columns={"ranges": needs.RANGES}, needs=(_PREPARATION, needs.STEPS)),
    ], columns=_RANGES, needs=(Need("no garbage-collection ranges are recorded", "NVTX ranges from gc.callbacks", switch="gc"),)),
)  # fmt: skip


def host_facts(a: Analysis, device: int, out: FactWriter) -> None:
    budget, feeder = a.budgets[device], a.feeder(device)
    loop = None if feeder is None else loop_thread(budget, feeder)
    if a.trace.has("api_calls") and feeder is not None and loop is not None:
        _sync(a, feeder, budget, out)
        _alloc(a, feeder, budget, out)
        _graphs_built(a, feeder, budget, out)
        _gaps(a, loop, budget, out)
    _waiting(a, feeder, loop, budget, out)
    _steps(a, budget, out)


def _gaps(a: Analysis, loop: int, budget: DeviceBudget, out: FactWriter) -> None:
    """Idle time in which the thread of the loop is in no call."""
    gap, length, lost = budget.gap_parts["host_gap"], budget.untraced_ns, pause_ns(a, budget)
    at, whole = np.flatnonzero(gap), int(gap.sum())
    idle = Spans(budget.gaps.start[at], budget.gaps.end[at])
    # A slow first launch in such a gap is start-up: the range around it does not explain the rest.
    named = gap_name(a, loop, subtract(idle, a.states.cold.get(loop, EMPTY)))
    covered = min(named.covered_ns / whole, 1.0) if named else 0.0
    out |= {
        "host.gap_ratio": budget.share("host_gap"),
        "host.steady_gap_ratio": max(budget.ns["host_gap"] - lost, 0.0) / max(length - lost, 1.0),
        "host.pause_of_idle_ratio": min(lost / max(budget.idle_ns, 1), 1.0),
        "host.gap_max_ms": gap.max(initial=0) / 1e6,
        "host.gap_on_pages_ratio": int(gap[budget.gaps.migrated].sum()) / whole or None if whole else None,
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
            "host.gap_range_ratio": covered,
        }
    elif whole and a.trace.has("ranges") and (other := other_gap_name(a, loop, idle)):
        out.put("host.gap_other_range", other.text)


def _sync(a: Analysis, feeder: int, budget: DeviceBudget, out: FactWriter) -> None:
    calls = a.trace.columns("api_calls", ("start", "end", "name_id"))
    window, host = budget.untraced_ns, max(a.host_window[1] - a.host_window[0], 1)
    parts, gaps = budget.gap_parts, budget.gaps
    waits = parts["sync"] > 0
    refill = sum(parts[p] for p in _REFILL)
    idle = np.asarray(refill, float) / window
    rows = calls_by(a, feeder, Call.SYNC)
    spans = subtract(
        union(calls["start"][rows], calls["end"][rows]), Spans(gaps.start[gaps.held], gaps.end[gaps.held])
    )
    wide = rows[calls_named(a.trace, rows, _DEVICE_WIDE)]
    back = np.sort(calls["end"][wide])
    drained = positions(back, gaps.end, "right") > positions(back, gaps.start)
    readback, held, blocking = _readbacks(a, feeder)
    previous = np.append(np.flatnonzero(a.ops.device == budget.device), MISSING)[gaps.prev_op]
    behind = np.isin(previous, held)
    behind[waits] |= np.isin(previous[waits], readback)
    implicit = merged(blocking, _synchronous(a, feeder, Call.ALLOC, Call.FREE))
    # Work issued before the call waits for the device, not for the call.
    late = (gaps.call != MISSING) & (gaps.call_end < gaps.end)
    issued = union(np.maximum(gaps.start, gaps.call_end)[late], gaps.end[late])

    def unissued(rows: Array) -> int:
        return budget.idle_inside(subtract(union(calls["start"][rows], calls["end"][rows]), issued))

    waited, sets = unissued(implicit), _synchronous(a, feeder, Call.MEMSET)
    out |= {
        "sync.idle_ratio": budget.share("sync"),
        "sync.idle_after_ratio": idle[waits].sum(),
        "sync.span_ratio": budget.idle_inside(spans) / window,
        "sync.device_wide_idle_ratio": idle[waits & drained].sum(),
        "sync.readback_idle_ratio": idle[behind].sum(),
        "sync.implicit_idle_ratio": waited / window,
        "sync.implicit_readback_ratio": min(unissued(a.ops.api[held]) / waited, 1.0) if waited else None,
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


def _until_next(a: Analysis, feeder: int, rows: Array) -> Spans:
    """Each of these calls up to the next one of the thread if that follows soon enough to be its refill,
    else the call alone."""
    calls = a.threads.of(feeder)
    columns = a.trace.columns("api_calls", ("start", "end"))
    start, end = columns["start"][rows], columns["end"][rows]
    at = np.searchsorted(calls.start, start, "right")
    follows = np.append(calls.start, np.iinfo(np.int64).max)[np.minimum(at, len(calls.start))]
    return union(start, np.where(follows - end <= REFILL_NS, np.maximum(follows, end), end))


def _readbacks(a: Analysis, feeder: int) -> tuple[Array, Array, Array]:
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
    small = (copies["kind"][row] == DTOH) & (copies["bytes"][row] <= _SMALL_COPY)
    calls = a.threads.of(feeder)
    position = np.searchsorted(calls.start, made["start"][api])
    followed = np.zeros(len(api), bool)
    for ahead in range(1, _WAIT_WITHIN + 1):
        i = np.minimum(position + ahead, len(calls.call) - 1)
        followed |= calls.call[i] == Call.SYNC
    return at[small & (followed | blocks)], at[small & blocks], distinct(api[blocks])


def _synchronous(a: Analysis, feeder: int, *kinds: Call) -> Array:
    """Those of these calls that are not asynchronous by name."""
    rows = calls_by(a, feeder, *kinds)
    return np.asarray(rows[~calls_named(a.trace, rows, _ASYNC)])


def _alloc(a: Analysis, feeder: int, budget: DeviceBudget, out: FactWriter) -> None:
    calls = a.trace.columns("api_calls", ("start", "end"))
    rows = calls_by(a, issuers(a, feeder, budget.device), Call.ALLOC, Call.FREE)
    length = calls["end"][rows] - calls["start"][rows]
    stalls = rows[length > _STALL_NS]
    window = budget.untraced_ns
    whole = max(a.host_window[1] - a.host_window[0], window)  # a host far ahead finishes early
    stalled = union(calls["start"][stalls], calls["end"][stalls])
    slow = min(budget.idle_inside(stalled), budget.ns["alloc"])  # start-up has a part of its own
    out |= {
        **a.rates(budget.device, {"alloc.calls": len(rows)}),
        "alloc.stall_call_ratio": len(stalls) / max(len(rows), 1),
        "alloc.time_ratio": union(calls["start"][rows], calls["end"][rows]).total / whole,
        "alloc.idle_ratio": budget.share("alloc"),
        "alloc.stall_max_ns": float(length.max(initial=0)),
        "alloc.stall_time_ratio": stalled.total / whole,
        "alloc.stall_idle_ratio": slow / window,
        "alloc.stall_of_idle_ratio": slow / max(budget.ns["alloc"], 1),
        "alloc.stall_max_over_p50": float(length.max() / max(median_of(length), 1)) if len(rows) else 1.0,
    }


def _graphs_built(a: Analysis, feeder: int, budget: DeviceBudget, out: FactWriter) -> None:
    rows = calls_by(a, feeder, Call.OTHER)
    rows = rows[calls_named(a.trace, rows, _BUILDS_GRAPH)]
    start, end = (times[rows] for times in a.trace.columns("api_calls", ("start", "end")).values())
    begins, ends, makes = (calls_named(a.trace, rows, of) for of in (_BEGINS, _ENDS, _MAKES_GRAPH))
    # A stream capture lasts from the last begin, unless another capture ended since then.
    begun, ended = (np.maximum.accumulate(np.where(of, np.arange(len(rows)), -1)) for of in (begins, ends))
    start = np.where(ends & (begun > np.append(-1, ended[:-1])), start[begun], start)
    idle = budget.idle_inside(union(start[~begins], end[~begins]))
    if a.step_count:
        out.put("graph.builds_per_step", makes.sum() / a.step_count)
    out.put("graph.build_idle_ratio", idle / budget.untraced_ns)
    out.put("graph.build_of_idle_ratio", idle / max(budget.idle_ns, 1))


def _waiting(
    a: Analysis, feeder: int | None, loop: int | None, budget: DeviceBudget, out: FactWriter
) -> None:
    length = budget.untraced_ns
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


def _covered(spans: Coverage, lo: int, hi: int) -> int:
    return int(spans.within(np.array([lo]), np.array([hi]))[0])


def _os_calls(a: Analysis, thread: int, loop: int, budget: DeviceBudget, out: FactWriter) -> None:
    names, time = os_time(a, thread, Spans(budget.gaps.start, budget.gaps.end))
    if not (total := float(time.sum())):
        return
    waits = np.array([bool(_EVENT_WAITS.fullmatch(n)) for n in names])
    out |= {
        "host.os_call": names[np.argmax(time)],
        "host.os_call_ratio": time.max() / total,
        "host.os_event_wait_ratio": time[waits].sum() / total,
    }
    if idle := budget.ns["os"]:
        mine = budget.gap_parts["os"] > 0
        gaps = Spans(budget.gaps.start[mine], budget.gaps.end[mine])
        out.put("host.os_polling_ratio", min(polled(a, thread, gaps) / idle, 1.0))
        out.put("host.os_tick_ratio", min(ticked(a, thread, gaps) / idle, 1.0))
    if a.trace.has("ranges") and idle:
        loading = intersect(a.states.loading.get(loop, EMPTY), a.states.os.get(thread, EMPTY))
        out.put("host.os_loading_ratio", min(budget.idle_inside(loading) / idle, 1.0))


def _steps(a: Analysis, budget: DeviceBudget, out: FactWriter) -> None:
    held = held_by_prompts(a)
    if (found := slow_steps(a, held)) is None:
        return
    step, times, slow = found
    median = median_of(times)
    rest, worst = times[~slow], int(np.argmax(times))
    (p99,) = percentiles(times, 99)
    excess = float((times[slow] - median).sum())
    part, longer = slower_part(budget, step, slow)
    if longer > excess / 2 > 0:
        out.put("host.step_outlier_part", PARTS[part].words)
        out.put("host.step_outlier_part_ratio", min(longer / excess, 1.0))
    reads = slow & np.isin(step, a.window_steps[held])
    out |= {
        "host.step_outlier_prompt_ratio": (times - median)[reads].sum() / max(excess, 1.0),
        "host.step_max_over_median": times.max() / max(median, 1.0),
        "host.step_outliers": slow.sum(),
        "host.step_outlier_ratio": slow.mean(),
        "host.step_outlier_time_ratio": excess / (budget.untraced_ns + a.stretches.lone.total),
        "host.step_p99_lost_ratio": max(p99 - median, 0.0) / max(p99, 1.0),
        "host.step_rest_spread_ratio": np.abs(rest - median).max(initial=0) / max(median, 1.0),
        "host.slowest_step": step[worst],
        "host.slowest_step_lost_ms": (times[worst] - median) / 1e6,
        "host.slowest_step_at": f"{longest_gap_of(a, budget, int(step[worst])) / 1e9:.4f} s",
    }
