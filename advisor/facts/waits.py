"""Facts about what the program waited for: events, streams and contexts, a CPU or a GPU in use by others,
and long stretches between the steps in which no kernel runs.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from advisor.facts import limits
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.metrics.budgeted.budget import DeviceBudget
from advisor.metrics.budgeted.other_calls import costly_calls
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.waited import (
    CONTEXT,
    EVENT,
    STREAM,
    calls_by,
    feeder_waits,
    issuers,
    loop_thread,
    recorded_waits,
)
from advisor.metrics.intervals import EMPTY, Coverage, Spans, intersect, joined, subtract, union
from advisor.metrics.loaded.host import held_by_others, off_cpu
from advisor.metrics.loaded.idle_threads import gap_name, os_time, other_gap_name
from advisor.metrics.loaded.kernels import heaviest
from advisor.metrics.loaded.operations import Kind, calls_named, combinations, of_copies
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.enclosed import enclosed, range_around
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, bounds_of, median_of, pairs, percentiles
from advisor.model.numbers import session_time
from advisor.sources.schema import DTOH, MISSING, Call, base_name

_ROWS = 12
_NAMES = 2  # of calls in one sentence
_KINDS = {EVENT: "event", STREAM: "stream", CONTEXT: "context"}

#: Calls that queue host code.
_HOST_FUNCTION = re.compile(r"LaunchHostFunc|AddCallback")


@predicate
def waits_recorded(a: Budgeted) -> bool:
    return recorded_waits(a, a.main_device) is not None


def wait_facts(a: Budgeted, device: int, out: FactWriter) -> None:
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


def sync_call_facts(a: Budgeted, device: int, out: FactWriter) -> None:
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


def interruption_facts(a: Budgeted, out: FactWriter) -> None:
    if not a.step_count:
        return
    found, total = a.stretches.long, a.stretches.long.total
    out.put("interruption.count", len(found))
    out.put("interruption.time_ratio", total / max(total + a.window.length, 1))
    _inside_steps(a, out)
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
    elif other := other_gap_name(a, feeder, found):
        out.put("interruption.other_range", other.text)
    if a.trace.has("host_calls"):
        names, time = os_time(a, feeder, found)
        if 2 * time.sum() > total:
            out.put("interruption.os_call", names[time.argmax()])


def _inside_steps(a: Budgeted, out: FactWriter) -> None:
    """Such stretches that begin and end inside a step: what the launching thread does there."""
    found, feeder = a.stretches.lone, a.feeder(a.main_device)
    if feeder is None or not len(found):
        return
    inside = enclosed(a.ranges, a.repeated, feeder, found, passes=True)
    found = Spans(found.start[inside], found.end[inside])
    out.put("interruption.inside_count", len(found))
    if not len(found):
        return
    longest = int(np.argmax(found.end - found.start))
    lo, hi = int(found.start[longest]), int(found.end[longest])
    out.put("interruption.inside_ms", (hi - lo) / 1e6)
    out.put("interruption.inside_step", range_around(a.ranges, a.repeated, feeder, lo, hi))
    if (named := gap_name(a, feeder, found)) and 2 * named.covered_ns > found.total:
        out.put("interruption.inside_range", named.text)
    calls = a.threads.of(feeder)
    names = a.trace.columns("api_calls", ("name_id",))["name_id"]
    loads = np.flatnonzero(calls.call == Call.MODULE)
    # The load ends the stretch, and lies in it as no kernel can run before.
    begins = np.append(calls.start[loads], np.iinfo(np.int64).max)
    at = np.searchsorted(begins, found.start)
    loaded = begins[at] <= found.end
    if 2 * loaded.sum() > len(found):
        load = loads[at[np.flatnonzero(loaded)[-1]]]
        out.put("interruption.inside_load", base_name(a.trace.texts([names[calls.row[load]]])[0]))
    if a.trace.has("host_calls"):
        texts, time = os_time(a, feeder, found)
        if 2 * time.sum() > found.total:
            out.put("interruption.inside_os_call", texts[time.argmax()])


def request_facts(a: Stepped, out: FactWriter) -> None:
    """Waits between passes in which perhaps no request came."""
    if not a.step_count:
        return
    found = a.arrivals
    out.put("requests.wait_ratio", found.waits.total / found.length)
    out.put("requests.wait_count", len(found.waits))
    out.put("requests.paced", found.period > 0)
    if not len(found.waits):
        return
    length = found.waits.end - found.waits.start
    spread = float(np.diff(percentiles(length, 10, 90))[0]) / max(median_of(length), 1.0)
    alike = spread < limits.ALIKE_WAITS_RATIO
    busy = Coverage(union(a.ops.start, a.ops.end)).within(*np.array([[found.first], [found.last]]))
    out |= {
        "requests.wait_median_ms": median_of(length) / 1e6,
        "requests.wait_longest_ms": length.max() / 1e6,
        "requests.wait_alike_ratio" if alike else "requests.wait_spread_ratio": spread,
        "requests.passes_per_s": found.passes / (found.length / 1e9),
        "requests.busy_ratio": int(busy[0]) / found.length,
        "requests.os_call": found.call or None,
        "requests.period_ms": found.period / 1e6 or None,
        "requests.rate_per_s": 1e9 / found.period if found.period else None,
    }


# --- CUDA calls that issue, allocate and wait for nothing ------------------------------------------


def other_call_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    budget, feeder = a.budgets[device], a.feeder(device)
    if feeder is None:
        return
    calls = a.trace.columns("api_calls", ("start",))
    rows = calls_by(a, issuers(a, feeder, device), Call.OTHER)
    functions = calls["start"][rows[calls_named(a.trace, rows, _HOST_FUNCTION)]]
    if len(functions) and budget.gap_parts["queued"].any():
        out.put("launch.behind_function_ratio", _behind(a, budget, np.sort(functions), calls["start"]))
    found = costly_calls(a, device, feeder)
    ids, time, count = found.ids, found.time, found.count
    total = time.sum()
    out.put("call.other_idle_ratio", total / budget.program_ns)
    out.put("call.other_of_idle_ratio", total / max(budget.idle_ns, 1))
    if total:
        order = np.argsort(-time, kind="stable")
        named = order[time[order] >= limits.NAMED_CALL_RATIO * total][:_NAMES]
        names = [base_name(text) for text in a.trace.texts(ids[named].tolist())]
        out.put("call.other_name", " and ".join(dict.fromkeys(names)))
        out |= a.rates(device, {"call.others": count[time > 0].sum()})


def _behind(a: Loaded, budget: DeviceBudget, functions: Array, begun: Array) -> Any:
    """Share of the queued idle time in gaps whose operations were launched one before and one after one of
    `functions` (times, sorted); `begun` is when each call began."""
    gaps, queued = budget.gaps, budget.gap_parts["queued"]
    api = np.append(a.ops.api[a.ops.device == budget.device], MISSING)  # the last one: no operation
    before, after = api[gaps.prev_op], api[gaps.next_op]
    known = (before != MISSING) & (after != MISSING)
    ahead = [np.searchsorted(functions, begun[rows[known]]) for rows in (before, after)]
    return queued[known][ahead[0] < ahead[1]].sum() / queued.sum()


# --- who had the CPU of the loop, and who had the GPU, while the program waited for it -------------


def switch_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """Facts from switches of threads and of contexts; none of a capture without them."""
    budget, feeder = a.budgets[device], a.feeder(device)
    length = budget.program_ns
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
        if (
            away is not None
            and not a.trace.has("host_calls")
            and quota < limits.RHYTHM_RATIO
            and (not _anywhere(a, away) or _at_one_place(a, thread, away))
        ):
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
    long = away.end - away.start >= limits.STOP_NS
    return Spans(away.start[long], away.end[long])


def _in_rhythm(away: Spans) -> float:
    """How much of the long stops ends a multiple of the period of a quota after most others end."""
    stops = _long_stops(away)
    if len(stops) < limits.QUOTA_STOPS:
        return 0.0
    phase = stops.end % limits.QUOTA_PERIOD_NS
    apart = np.abs(phase[:, None] - phase)
    near = np.minimum(apart, limits.QUOTA_PERIOD_NS - apart) <= limits.QUOTA_EXACT_NS
    best = near[np.argmax(near.sum(axis=1))]
    # Stops of a loop that is slower than a period come once a step, with any period of the quota.
    whole = np.rint(np.diff(stops.end[best]) / limits.QUOTA_PERIOD_NS) >= 1
    return float((stops.end - stops.start)[best].sum() / stops.total) if whole.all() else 0.0


def _anywhere(a: Stepped, away: Spans) -> bool:
    """True if long stops begin while the thread launches the work of a step: others took its CPU. A loop that
    sleeps until its input comes does so between steps."""
    stops, steps = _long_stops(away), a.steps
    if len(stops) < limits.STOPS or not a.step_count:
        return False
    api = a.ops.api[(steps.op_step >= 0) & (a.ops.api >= 0)]
    of = steps.op_step[(steps.op_step >= 0) & (a.ops.api >= 0)]
    begun = a.trace.columns("api_calls", ("start",))["start"][api]
    first, last = bounds_of(len(steps), of, begun, begun)
    step = np.searchsorted(np.maximum.accumulate(first), stops.start, "right") - 1
    inside = (step >= 0) & (stops.end <= last[np.maximum(step, 0)])
    return bool(inside.sum() >= max(limits.STOPS, limits.AMID_LAUNCHES_RATIO * len(stops)))


def _at_one_place(a: Loaded, thread: int, away: Spans) -> bool:
    """True if most of the long stops lie between calls of the same two names, far more than such calls are of
    all: there the thread sleeps. What takes its CPU does so anywhere."""
    stops = _long_stops(away)
    calls = a.trace.columns("api_calls", ("start", "thread", "name_id"))
    mine = np.flatnonzero(calls["thread"] == thread)
    mine = mine[np.argsort(calls["start"][mine], kind="stable")]
    if len(mine) < 2 or not len(stops):
        return False
    _, pair = combinations(calls["name_id"][mine[:-1]], calls["name_id"][mine[1:]])
    before = np.searchsorted(calls["start"][mine], stops.start, "right") - 1
    known = (before >= 0) & (before < len(pair))
    held = np.bincount(pair[before[known]], (stops.end - stops.start)[known], int(pair.max()) + 1)
    most = int(np.argmax(held))
    share = held[most] / stops.total
    usual = float((pair == most).mean())
    return bool(share >= limits.ONE_PLACE_RATIO and share >= limits.OVER_USUAL * usual)


def _inside(budget: DeviceBudget, spans: Spans, *parts: str) -> int:
    """ns of these idle parts within `spans`; of each gap at most its own length."""
    gaps, covered = budget.gaps, Coverage(spans)
    most: Array = sum((budget.gap_parts[p] for p in parts), np.zeros(len(gaps), np.int64))
    return int(np.minimum(covered.within(gaps.start, gaps.end), most).sum())
