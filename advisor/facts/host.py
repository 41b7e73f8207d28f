"""Facts about the host's part: synchronisation, allocation, garbage collection, GIL, steps."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from advisor.facts.device import step_times
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import REFILL_NS, DeviceBudget
from advisor.metrics.intervals import Coverage, Spans, union
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array
from advisor.model.facts import Scope
from advisor.sources.schema import DTOH, OPERATIONS, PAGEABLE, Call

_SMALL_COPY = 4096
_STALL_NS = 1_000_000
#: A read-back is a small copy whose wait follows within this many calls of the thread.
_WAIT_WITHIN = 3


def host_facts(a: Analysis, device: int, out: FactWriter) -> None:
    scope, budget = Scope(device=device), a.budgets[device]
    feeder = a.feeder(device)
    if a.trace.has("api_calls") and feeder is not None:
        _sync(a, feeder, budget, scope, out)
        _alloc(a, feeder, budget, scope, out)
        out.put("host.gap_ratio", budget.share("host_gap"), scope)
        gap = budget.gap_parts["host_gap"]
        out.put("host.gap_max_ms", float(gap.max(initial=0)) / 1e6, scope)
        _gap_range(a, feeder, budget, scope, out)
    _waiting(a, feeder, budget, scope, out)
    _steps(a, budget, scope, out)


def _mine(a: Analysis, thread: int, *kinds: Call) -> Array:
    rows = a.calls_of(*kinds)
    return np.asarray(rows[a.trace.columns("api_calls", ("thread",))["thread"][rows] == thread])


def _sync(a: Analysis, feeder: int, budget: DeviceBudget, scope: Scope, out: FactWriter) -> None:
    calls = a.trace.columns("api_calls", ("start", "end", "name_id"))
    window, host = max(budget.window.length, 1), max(a.host_window[1] - a.host_window[0], 1)
    parts, gaps = budget.gap_parts, budget.gaps
    waits = parts["sync"] > 0
    refill = sum(parts[p] for p in (
        "sync", "copy_call", "launch_call", "graph_launch_call", "launch_latency",
        "host_between_launches",
    ))  # fmt: skip
    out.put("sync.idle_ratio", budget.share("sync"), scope)
    out.put("sync.idle_after_ratio", float(np.asarray(refill)[waits].sum()) / window, scope)
    rows = _mine(a, feeder, Call.SYNC)
    spans = union(calls["start"][rows], calls["end"][rows])
    out.put("sync.span_ratio", budget.idle_inside(spans) / window, scope)
    names = dict(zip(*_named(a, rows), strict=True)) if len(rows) else {}
    wide = [i for i, n in names.items() if "DeviceSynchronize" in n or "CtxSynchronize" in n]
    readback, blocking = _readbacks(a, feeder)
    from_copy = waits & (gaps.prev_op >= 0)
    if from_copy.any():
        mine = np.flatnonzero(a.ops.device == scope.device)
        previous = mine[np.maximum(gaps.prev_op, 0)]
        small = np.isin(previous, readback)
        out.put("sync.readback_idle_ratio",
                float(np.asarray(refill)[from_copy & small].sum()) / window, scope)  # fmt: skip
    else:
        out.put("sync.readback_idle_ratio", 0.0, scope)
    implicit = np.union1d(blocking, _synchronous_allocations(a, feeder))
    spans = union(calls["start"][implicit], calls["end"][implicit])
    out.put("sync.implicit_idle_ratio", budget.idle_inside(spans) / window, scope)
    memset = _mine(a, feeder, Call.MEMSET)
    memset_names = dict(zip(*_named(a, memset), strict=True)) if len(memset) else {}
    blocking_sets = [i for i, n in memset_names.items() if "Async" not in n]
    length = (calls["end"] - calls["start"])[np.array(blocking_sets, np.int64)]
    out.put("sync.memset_time_ratio", float(length.sum()) / host, scope)
    refilled = _until_next(a, feeder, np.array(blocking_sets, np.int64))
    out.put("sync.memset_idle_ratio", budget.idle_inside(refilled) / window, scope)
    if a.step_count:
        out.put("sync.calls_per_step", len(rows) / a.step_count, scope)
    out.put_all({**a.rates(budget.device, {
        "sync.device_wide": len(wide),
        "sync.implicit_calls": len(implicit),
        "sync.memset": len(blocking_sets),
        "sync.readbacks": len(readback) if a.trace.has("copies") else None,
    })}, scope)  # fmt: skip


def _until_next(a: Analysis, feeder: int, rows: Array) -> Spans:
    """Each of these calls up to the next one of the thread where that follows soon enough to be its
    refill, else the call alone."""
    calls = a.threads.of(feeder)
    columns = a.trace.columns("api_calls", ("start", "end"))
    start, end = columns["start"][rows], columns["end"][rows]
    at = np.searchsorted(calls.start, start, "right")
    follows = np.append(calls.start, np.iinfo(np.int64).max)[np.minimum(at, len(calls.start))]
    return union(start, np.where(follows - end <= REFILL_NS, np.maximum(follows, end), end))


def _named(a: Analysis, rows: Array) -> tuple[list[int], list[str]]:
    ids = a.trace.columns("api_calls", ("name_id",))["name_id"][rows]
    return rows.tolist(), a.trace.texts(ids.tolist())


def _readbacks(a: Analysis, feeder: int) -> tuple[Array, Array]:
    """Operations that are small DtoH copies with a wait right after, and rows of api_calls that
    copy while the host is blocked (not Async, or from or to pageable memory)."""
    if not a.trace.has("copies"):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    at = np.flatnonzero(a.in_window & (a.ops.kind == Kind.COPY) & (a.ops.api >= 0))
    copies = a.trace.columns("copies", ("bytes", "kind", "src_memory", "dst_memory"))
    row, api = a.ops.row[at], a.ops.api[at]
    thread = a.trace.columns("api_calls", ("thread", "name_id", "call"))
    # Copies inside graphs were issued by the graph launch and block nobody.
    mine = (thread["thread"][api] == feeder) & (thread["call"][api] == Call.COPY)
    at, row, api = at[mine], row[mine], api[mine]
    names = a.trace.texts(thread["name_id"][api].tolist())
    pageable = (copies["src_memory"][row] == PAGEABLE) | (copies["dst_memory"][row] == PAGEABLE)
    asynchronous = np.array(["Async" in n for n in names], bool)
    blocks = pageable | ~asynchronous
    small = (copies["kind"][row] == DTOH) & (copies["bytes"][row] <= _SMALL_COPY)
    calls = a.threads.of(feeder)
    position = np.searchsorted(calls.start, a.trace.columns("api_calls", ("start",))["start"][api])
    followed = np.zeros(len(api), bool)
    for ahead in range(1, _WAIT_WITHIN + 1):
        i = np.minimum(position + ahead, len(calls.call) - 1)
        followed |= calls.call[i] == Call.SYNC
    return at[small & (followed | blocks)], np.unique(api[blocks])


def _synchronous_allocations(a: Analysis, feeder: int) -> Array:
    rows = _mine(a, feeder, Call.ALLOC, Call.FREE)
    if len(rows) == 0:
        return rows
    index, names = _named(a, rows)
    return np.array([i for i, n in zip(index, names, strict=True) if "Async" not in n], np.int64)


def _alloc(a: Analysis, feeder: int, budget: DeviceBudget, scope: Scope, out: FactWriter) -> None:
    calls = a.trace.columns("api_calls", ("start", "end"))
    rows = _mine(a, feeder, Call.ALLOC, Call.FREE)
    length = (calls["end"] - calls["start"])[rows]
    stalls = rows[length > _STALL_NS]
    host = max(a.host_window[1] - a.host_window[0], 1)
    out.put_all({
        **a.rates(budget.device, {"alloc.calls": len(rows)}),
        "alloc.time_ratio": float(length.sum()) / host,
        "alloc.idle_ratio": budget.share("alloc"),
        "alloc.stall_max_ns": float(length.max(initial=0)),
        "alloc.stall_time_ratio": float(length[length > _STALL_NS].sum()) / host,
        "alloc.stall_idle_ratio":
            budget.idle_inside(union(calls["start"][stalls], calls["end"][stalls]))
            / max(budget.window.length, 1),
        "alloc.stall_max_over_p50":
            float(length.max() / max(np.median(length), 1)) if len(rows) else 1.0,
    }, scope)  # fmt: skip


def _waiting(
    a: Analysis, feeder: int | None, budget: DeviceBudget, scope: Scope, out: FactWriter
) -> None:
    window = budget.window
    length = max(window.length, 1)
    lo, hi = np.array([window.start]), np.array([window.end])
    if a.states.gc:
        out.put("host.gc_idle_ratio", budget.share("gc"), scope)
        spans = window.cut(a.states.gc[feeder]) if feeder in a.states.gc else None
        longest = np.max(spans.end - spans.start, initial=0) if spans is not None else 0
        out.put("host.gc_max_ns", float(longest), scope)
    if a.states.gil or "gil_hold" in a.roles.values():
        waits = a.states.gil.get(feeder) if feeder is not None else None
        waited = int(Coverage(waits).within(lo, hi)[0]) if waits is not None else 0
        out.put("host.gil_wait_ratio", waited / length, scope)
        out.put("host.gil_idle_ratio", budget.share("gil"), scope)
    if a.trace.has("host_calls"):
        out.put("host.os_idle_ratio", budget.share("os"), scope)
    if a.step_count:  # without a range of a loader it takes nothing: the advice is not for these
        loading = _in_ranges(a, feeder, ("data_loading",)) or 0.0
        out.put("host.data_loading_ratio", loading, scope)
    out.put("host.preparation_ratio", _in_ranges(a, feeder, ("preparation", "data_loading")), scope)


def _in_ranges(a: Analysis, feeder: int | None, roles: Collection[str]) -> float | None:
    """Share of the steps that ranges of these roles take on the feeding thread."""
    chosen = [i for i, role in a.roles.items() if role in roles]
    if not chosen or not a.step_count:
        return None
    first, last = a.host_window
    spans = a.ranges.spans(chosen, feeder)
    inside = int(Coverage(spans).within(np.array([first]), np.array([last]))[0])
    return inside / max(last - first, 1)


def _gap_range(
    a: Analysis, feeder: int, budget: DeviceBudget, scope: Scope, out: FactWriter
) -> None:
    """The range that explains the host's gaps: among the ranges that cover at least half as much of
    them as the best one does, the one that lies in gaps most. A range around whole steps explains
    no gap."""
    gap = budget.gap_parts["host_gap"]
    at = np.flatnonzero(gap)
    whole = int(gap.sum())
    rows = a.ranges.of_thread(feeder, budget.window.start, budget.window.end)
    own = rows["domain"] != OPERATIONS
    kinds, kind_of = a.ranges.kinds
    kind = kind_of[rows["text"][own]]
    if len(at) == 0 or len(kind) == 0:
        return
    idle = Coverage(Spans(budget.gaps.start[at], budget.gaps.end[at]))
    start, end = rows["start"][own], rows["end"][own]
    inside = np.bincount(kind, idle.within(start, end), minlength=len(kinds))
    length = np.bincount(kind, end - start, minlength=len(kinds))
    purity = np.where(2 * inside >= inside.max(), inside / np.maximum(length, 1), 0)
    best = int(np.argmax(purity))
    if 2 * inside[best] > length[best]:
        out.put("host.gap_range", kinds[best], scope)
        out.put("host.gap_range_ratio", min(float(inside[best]) / whole, 1.0), scope)


def _steps(a: Analysis, budget: DeviceBudget, scope: Scope, out: FactWriter) -> None:
    if a.certain_step_count < 3:
        return
    phases = a.window_phases
    names, count = np.unique(phases, return_counts=True)
    times = step_times(a)[phases == names[np.argmax(count)]]
    if len(times) < 3:
        return
    median = float(np.median(times))
    slow = times > 1.5 * median
    rest = times[~slow]
    slow &= times > rest.mean() + 3 * rest.std()
    out.put_all({
        "host.step_max_over_median": float(times.max()) / max(median, 1.0),
        "host.step_outlier_ratio": float(slow.mean()),
        "host.step_outlier_time_ratio":
            float((times[slow] - median).sum()) / max(budget.window.length, 1),
    }, scope)  # fmt: skip
