"""Facts about the memory of a device: how full it is, whether its use grows, and unified memory: pages that
migrate, the faults behind them, what waits for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.facts import limits
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.knowledge.engine_signs import engines
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.waited import calls_by, issuers
from advisor.metrics.intervals import intersect, union
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.loaded.workload import NO_KERNELS, UNKNOWN
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.origins import find_origins
from advisor.metrics.stepped.recording import Recording
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, among, median_of, pairs, rows_at
from advisor.model.facts import Interval
from advisor.sources.schema import (
    ALLOCATED,
    COPY_KIND_NAMES,
    MANAGED,
    MANAGED_STATIC,
    MIGRATIONS,
    MISSING,
    PAGEABLE,
    PINNED,
    UNIFIED_DTOH,
    USER_PREFETCH,
    Call,
)

#: Pages that migrate back and forth are followed in blocks of 2 MiB, the unit of the driver.
_BLOCK_BITS = 21
_PLACES = 50
_CAUSES = {
    0: "unknown",
    1: "prefetch by the program",
    2: "page fault",
    3: "prefetch by the driver",
    4: "eviction",
    5: "access counters",
}

_ROWS = 10
#: Host memory, and managed memory, which may exceed the device.
_NOT_ON_DEVICE = (PAGEABLE, PINNED, MANAGED, MANAGED_STATIC)


@predicate
def migrations(a: Budgeted) -> bool:
    return _recorded(a, _migrations(a, a.main_device))


@predicate
def memory_use(a: Budgeted) -> bool:
    return len(_sampled(a, a.main_device)) > 0 or len(_allocated(a, a.main_device)[1]) > 0


@predicate
def memory_size(a: Recording) -> bool:
    return bool(a.device(a.main_device).memory_bytes)


@predicate
def results_of_calls(a: Loaded) -> bool:
    return bool((a.trace.columns("api_calls", ("result",))["result"] != MISSING).any())


def unified_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """Nothing is written for a profiler that recorded no migration, unless it always records them."""
    budget = a.budgets[device]
    at = _migrations(a, device)
    if not _recorded(a, at):
        return
    columns = a.trace.columns("copies", ("bytes", "kind", "migration_cause", "address"))
    size, kind, cause, address = (values[a.ops.row[at]] for values in columns.values())
    start, end = a.ops.start[at], a.ops.end[at]
    window = budget.program_ns
    forced = cause != USER_PREFETCH
    beside = intersect(budget.window.cut(union(start[forced], end[forced])), budget.compute).total
    exposed, total = budget.share("migration", "unified_memory"), max(float(size.sum()), 1.0)
    placed = len(at) and (address != MISSING).all()
    out |= {
        "unified.migration_count": len(at),
        "unified.migrated_bytes": size.sum(),
        "unified.migration_ratio": budget.window.cut(union(start, end)).total / window,
        "unified.exposed_ratio": exposed,
        "unified.stall_ratio": beside / window,
        "unified.lost_ratio": exposed + beside / window,
        "unified.unasked_ratio": size[forced].sum() / total if (cause != MISSING).any() else None,
        "unified.thrash_ratio": size[_again(start, kind, address)].sum() / total if placed else None,
    }
    if a.trace.has("page_faults"):
        faults = a.trace.columns("page_faults", ("start", "device", "count"))
        inside = (faults["start"] >= a.window.start) & (faults["start"] < a.window.end)
        for name, where in (("gpu", device), ("host", MISSING)):  # those of the host belong to no device
            out.put(
                f"unified.{name}_fault_count", faults["count"][inside & (faults["device"] == where)].sum()
            )
    longest = rows_at(np.argsort(start - end, kind="stable")[:_PLACES], start, end, kind)
    for part in ("migration", "unified_memory"):
        out.places(part, [Interval(lo, hi, None, None, COPY_KIND_NAMES[k]) for lo, hi, k in longest])
    length, rows = end - start, list[list[Any]]()
    for direction, why in pairs(kind, cause):
        mine = (kind == direction) & (cause == why)
        time, moved = float(length[mine].sum()), size[mine]
        named = COPY_KIND_NAMES[direction], _CAUSES.get(why, "unknown")
        rows.append([*named, len(moved), moved.mean(), time / window, moved.sum() / max(time, 1) * 1e9])
    out.table("unified.migrations", sorted(rows, key=lambda r: -r[4]))


def _migrations(a: Budgeted, device: int) -> Array:
    """Positions in `ops` of the device's migrations in the window."""
    at = a.device_copies(device)
    kind = a.trace.columns("copies", ("kind",))["kind"]
    return np.asarray(at[among(kind[a.ops.row[at]], MIGRATIONS)])


def _recorded(a: Loaded, migrations: Array) -> bool:
    return len(migrations) > 0 or a.trace.capture.recorder.migrations


def _again(start: Array, kind: Array, address: Array) -> Array:
    """Mask of the migrations of a block that has left this side and returned before."""
    block = address >> _BLOCK_BITS
    order = np.lexsort((start, block))
    home = (kind == UNIFIED_DTOH)[order]
    same = block[order][1:] == block[order][:-1]
    turned = np.concatenate(([0], np.cumsum(same & (home[1:] != home[:-1]))))
    first = np.maximum.accumulate(np.where(np.concatenate(([True], ~same)), turned, 0))
    out = np.zeros(len(start), bool)
    out[order] = turned - first >= 2
    return out


# --- the memory of a device: how full it is, and whether its use grows ----------------------------


def memory_facts(a: Profiled, device: int, out: FactWriter) -> None:
    """Sampled use of the device memory, and what the recorded allocations hold of it: those of the other
    recording where this one has none."""
    size = a.device(device).memory_bytes
    there: Budgeted = a
    own, other = device, a.other
    if other is not None and not a.trace.has("allocations") and other.trace.has("allocations"):
        there, own = other, device if device in other.devices else other.main_device
    used, (time, level) = _sampled(a, device), _allocated(there, own)
    # Memory freed without an allocation in the capture was allocated before it began.
    held = float(level.max() - min(level.min(), 0)) if len(level) else 0.0
    peak = max(float(used.max(initial=0)), held)
    if len(used) or len(level):
        out |= {
            # Samples of more than the device has are those of another GPU.
            "memory.used_ratio": used.max() / size if size and len(used) and used.max() <= size else None,
            "memory.peak_bytes": peak,
            "memory.least_used_ratio": min(peak / size, 1.0) if size else None,
        }
    _allocation_places(there, own, out)
    if there.trace.has("allocations") and there.step_count >= 4:
        first, last, between = _quarters(there, time, level)
        grown = last - first
        out.put("memory.growth_ratio", grown / max(first, limits.LEAST_MEMORY_RATIO * (size or 0), 1.0))
        out.put("memory.growth_bytes", grown)
        out.put("memory.tensors_ratio", _tensors_ratio(there, own))
        if size:
            out.put("memory.growth_device_ratio", grown / size)
            if grown > 0:
                out.put("memory.full_in_ns", max(size - peak, 0.0) / grown * between)


def reservation_facts(a: Stepped, engine: str | None, out: FactWriter) -> None:
    """Whether the serving engine takes its memory when it starts. A program of another kind is none; whether
    one runs on top of a library is left open."""
    if engine is None or any(data.base == engine for data in engines().values()):
        known = a.workload not in (UNKNOWN, NO_KERNELS) and not a.workload.startswith("LLM")
        out.put("memory.reserved_at_start", False if known else None)
    else:
        out.put("memory.reserved_at_start", engines()[engine].reserves_memory)


def _allocation_places(a: Budgeted, device: int, out: FactWriter) -> None:
    """The code that was running when an allocator took memory from the device, as PyTorch records it: the
    events do not name their thread, so it is that of the launches."""
    thread = a.feeder(device)
    if thread is None or not a.trace.has("allocations") or not a.ranges.by_profiler.any():
        return
    events = a.trace.columns("allocations", ("time", "device", "bytes", "kind"))
    lo, hi = a.host_window
    inside = (events["time"] >= lo) & (events["time"] < hi) & (events["device"] == device)
    inside &= events["kind"] == ALLOCATED
    found = find_origins(a.trace, a.ranges, np.full(int(inside.sum()), thread), events["time"][inside])
    taken: dict[str, list[int]] = {}
    for place, times, size in found.by_place(np.arange(int(inside.sum())), events["bytes"][inside]):
        row = taken.setdefault(place, [0, 0])
        row[0], row[1] = row[0] + times, row[1] + int(size)
    rows = [(place, count, size) for place, (count, size) in taken.items()]
    out.table("memory.places", sorted(rows, key=lambda r: -r[2])[:_ROWS])


def _sampled(a: Budgeted, device: int) -> Array:
    """Sampled use of the device memory, bytes; empty if it is not recorded."""
    rows = a.trace.columns("samples", ("device", "memory_used_bytes"))
    used = rows["memory_used_bytes"][rows["device"] == device]
    return np.asarray(used[~np.isnan(used)])


def _allocated(a: Budgeted, device: int) -> tuple[Array, Array]:
    """Times of the events of device memory, ns, and the bytes held after each, from 0 on."""
    events = a.trace.columns("allocations", ("time", "device", "bytes", "kind", "memory"))
    mine = (events["device"] == device) & ~np.isin(events["memory"], _NOT_ON_DEVICE)
    order = np.argsort(events["time"][mine], kind="stable")
    change = np.where(events["kind"] == ALLOCATED, events["bytes"], -events["bytes"])[mine][order]
    return events["time"][mine][order], np.cumsum(change)


def _tensors_ratio(a: Budgeted, device: int) -> float | None:
    """The tensors' share of the allocator's memory when it last took more; None if unknown."""
    rows = a.trace.columns("allocations", ("time", "device", "bytes", "kind", "tensors"))
    mine = rows["device"] == device
    change = np.where(rows["kind"] == ALLOCATED, rows["bytes"], -rows["bytes"])[mine]
    held, tensors = np.cumsum(change), rows["tensors"][mine]
    inside = rows["time"][mine] >= a.window.start
    grown = np.flatnonzero((change > 0) & (tensors != MISSING) & (held > 0) & inside)
    return float(min(tensors[grown[-1]] / held[grown[-1]], 1.0)) if len(grown) else None


def _quarters(a: Budgeted, time: Array, level: Array) -> tuple[float, float, float]:
    """Bytes held in the first and in the last quarter of the steps, and ns between the two."""
    # The host allocates while it issues a step, which may be long before the device runs it.
    ends = a.steps.host_end[a.window_steps]
    at = np.searchsorted(time, ends, "right") - 1
    levels = np.where(at >= 0, level[np.maximum(at, 0)], 0) if len(level) else np.zeros(len(at))
    quarter = max(len(levels) // 4, 1)
    first, last = slice(quarter), slice(-quarter, None)
    between = float(median_of(ends[last]) - median_of(ends[first]))
    return median_of(levels[first]), median_of(levels[last]), between


def retry_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """Allocations that fail until memory was freed."""
    feeder, columns = a.feeder(device), ("start", "thread", "call", "result")
    calls = a.trace.columns("api_calls", columns)
    if feeder is None or not (calls["result"] != MISSING).any():
        return
    rows = calls_by(a, issuers(a, feeder, device), Call.ALLOC, Call.FREE)
    rows = rows[np.lexsort((calls["start"][rows], calls["thread"][rows]))]
    thread, free, bad = (v[rows] for v in (calls["thread"], calls["call"] == Call.FREE, calls["result"] > 0))
    # A failed allocation, the frees behind it, and the next allocation of the thread.
    asks = np.flatnonzero(~free)
    ask, again = asks[:-1], asks[1:]
    retried = bad[ask] & ~bad[again] & (again > ask + 1) & (thread[ask] == thread[again])
    out.put("alloc.retry_count", retried.sum())
