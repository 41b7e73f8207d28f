"""Facts about unified memory: pages that migrate, the faults behind them, what waits for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import intersect, union
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array
from advisor.model.facts import Interval, Scope
from advisor.sources.schema import (
    COPY_KIND_NAMES,
    MIGRATIONS,
    MISSING,
    UNIFIED_DTOH,
    USER_PREFETCH,
)

#: Pages that migrate to and fro are followed in blocks of 2 MiB, the unit of the driver.
_BLOCK_BITS = 21
_PLACES = 50
_CAUSES = {
    0: "unknown", 1: "prefetch by the program", 2: "page fault", 3: "prefetch by the driver",
    4: "eviction", 5: "access counters",
}  # fmt: skip


def unified_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Nothing is said of a profiler that recorded no migration, unless it is one that records
    them without being asked."""
    scope, budget = Scope(device=device), a.budgets[device]
    at = a.device_ops(device)
    at = at[a.ops.kind[at] == Kind.COPY]
    columns = a.trace.columns("copies", ("bytes", "kind", "migration_cause", "address"))
    moved = np.isin(columns["kind"][a.ops.row[at]], MIGRATIONS)
    if not moved.any() and not a.trace.capture.recorder.migrations:
        return
    at = at[moved]
    size, kind, cause, address = (
        columns[n][a.ops.row[at]] for n in ("bytes", "kind", "migration_cause", "address")
    )
    start, end = a.ops.start[at], a.ops.end[at]
    window = max(budget.window.length, 1)
    forced = cause != USER_PREFETCH
    beside = intersect(budget.window.cut(union(start[forced], end[forced])), budget.compute).total
    exposed = budget.share("migration") + budget.share("unified_memory")
    total = max(float(size.sum()), 1.0)
    told = bool((cause != MISSING).any())
    out.put_all({
        "unified.migration_count": len(at),
        "unified.migrated_bytes": int(size.sum()),
        "unified.migration_ratio": budget.window.cut(union(start, end)).total / window,
        "unified.exposed_ratio": exposed,
        "unified.stall_ratio": beside / window,
        "unified.lost_ratio": exposed + beside / window,
        "unified.unasked_ratio": float(size[forced].sum()) / total if told else None,
        "unified.thrash_ratio": float(size[_again(start, kind, address)].sum()) / total
        if len(at) and (address != MISSING).all() else None,
    }, scope)  # fmt: skip
    _faults(a, device, scope, out)
    longest = np.argsort(start - end, kind="stable")[:_PLACES]
    for part in ("migration", "unified_memory"):
        out.places(part, scope, [
            Interval(int(start[i]), int(end[i]), None, None, COPY_KIND_NAMES[int(kind[i])])
            for i in longest.tolist()
        ])  # fmt: skip
    _table(scope, out, window, (size, kind, cause, end - start))


def _again(start: Array, kind: Array, address: Array) -> Array:
    """Mask of the migrations of a block that has left this side and come back before."""
    block = address >> _BLOCK_BITS
    order = np.lexsort((start, block))
    home = (kind == UNIFIED_DTOH)[order]
    same = block[order][1:] == block[order][:-1]
    turned = np.concatenate(([0], np.cumsum(same & (home[1:] != home[:-1]))))
    first = np.maximum.accumulate(np.where(np.concatenate(([True], ~same)), turned, 0))
    out = np.zeros(len(start), bool)
    out[order] = turned - first >= 2
    return out


def _faults(a: Analysis, device: int, scope: Scope, out: FactWriter) -> None:
    """Page faults in the window; those of the host belong to no device."""
    if not a.trace.has("page_faults"):
        return
    rows = a.trace.columns("page_faults", ("start", "device", "count"))
    inside = (rows["start"] >= a.window.start) & (rows["start"] < a.window.end)
    for name, where in (("gpu", device), ("host", MISSING)):
        count = rows["count"][inside & (rows["device"] == where)]
        out.put(f"unified.{name}_fault_count", int(count.sum()), scope)


def _table(scope: Scope, out: FactWriter, window: int, columns: tuple[Array, ...]) -> None:
    size, kind, cause, length = columns
    rows: list[list[Any]] = []
    for direction, why in np.unique(np.stack((kind, cause)), axis=1).T.tolist():
        mine = (kind == direction) & (cause == why)
        time = float(length[mine].sum())
        rows.append([
            COPY_KIND_NAMES[direction], _CAUSES.get(why, "unknown"), int(mine.sum()),
            float(size[mine].mean()), time / window, float(size[mine].sum()) / max(time, 1) * 1e9,
        ])  # fmt: skip
    rows.sort(key=lambda r: -float(r[4]))
    out.table("unified.migrations", scope, "Migrations of unified memory in the window",
              ("direction", "reason", "count", "mean size:bytes", "share:ratio",
               "rate:bytes_per_s"), rows)  # fmt: skip
