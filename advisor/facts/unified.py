"""Facts about unified memory: pages that migrate, the faults behind them, what waits for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import intersect, union
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array
from advisor.model.facts import Interval, Scope
from advisor.sources.schema import COPY_KIND_NAMES, MIGRATIONS, MISSING, UNIFIED_DTOH, USER_PREFETCH

#: Pages that migrate to and fro are followed in blocks of 2 MiB, the unit of the driver.
_BLOCK_BITS = 21
_PLACES = 50
_CAUSES = {
    0: "unknown", 1: "prefetch by the program", 2: "page fault", 3: "prefetch by the driver",
    4: "eviction", 5: "access counters",
}  # fmt: skip

_MIGRATIONS = Need(
    "the profiler records no migrations of unified memory", None,
    lambda a: _recorded(a, _migrations(a, a.main_device)),
)  # fmt: skip
_CAUSE = Need("no migration with a cause is recorded")
_ADDRESS = Need("no migration with an address is recorded")

_FAULTS = {"page_faults": "start device count"}

FACTS = (
    *group("device", needs.CUDA, [
        Entry("unified.migration_count", "count", "copies", "Migrations of unified memory: pages that the driver moved", "count in the window"),
        Entry("unified.migrated_bytes", "bytes", "copies", "Bytes that they moved", "sum"),
        Entry("unified.migration_ratio", "ratio", "copies", "Share of the window in which they run", "union / window"),
        Entry("unified.exposed_ratio", "ratio", "copies", "Share of the window in which they, or the fault before them, run and no kernel does", "budget parts migration + unified_memory"),
        Entry("unified.stall_ratio", "ratio", "copies kernels", "Share of the window in which a kernel runs beside a migration that the program did not ask for: it waits for the pages", "union of such migrations and compute / window"),
        Entry("unified.lost_ratio", "ratio", "copies", "What migrations cost: both together", "unified.exposed_ratio + unified.stall_ratio"),
        Entry("unified.unasked_ratio", "ratio", "copies", "Share of the migrated bytes that no prefetch of the program asked for", "migration causes other than user prefetch", needs=(_MIGRATIONS, _CAUSE)),
        Entry("unified.thrash_ratio", "ratio", "copies", "Share of the migrated bytes in pages that had gone there and back before", "migrations of a 2 MiB block after its second change of direction", needs=(_MIGRATIONS, _ADDRESS)),
    ], columns={"copies": f"{origin.SPAN} bytes kind migration_cause address", "kernels": origin.SPAN}, needs=(_MIGRATIONS,)),
    *group("device", needs.FAULTS, [
        Entry("unified.gpu_fault_count", "count", "page_faults", "Page faults of the GPU on unified memory", "sum of the faults in the window"),
        Entry("unified.host_fault_count", "count", "page_faults", "Page faults of the host on unified memory, on any device", "count in the window"),
    ], columns=_FAULTS, needs=(_MIGRATIONS,)),
)  # fmt: skip


def unified_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Nothing is said of a profiler that recorded no migration, unless it is one that records
    them without being asked."""
    scope, budget = Scope(device=device), a.budgets[device]
    at = _migrations(a, device)
    if not _recorded(a, at):
        return
    columns = a.trace.columns("copies", ("bytes", "kind", "migration_cause", "address"))
    size, kind, cause, address = (
        columns[n][a.ops.row[at]] for n in ("bytes", "kind", "migration_cause", "address")
    )
    start, end = a.ops.start[at], a.ops.end[at]
    window = max(budget.window.length, 1)
    forced = cause != USER_PREFETCH
    beside = intersect(budget.window.cut(union(start[forced], end[forced])), budget.compute).total
    exposed = budget.share("migration") + budget.share("unified_memory")
    total = max(float(size.sum()), 1.0)
    cause_known = bool((cause != MISSING).any())
    out.put_all(
        {
            "unified.migration_count": len(at),
            "unified.migrated_bytes": int(size.sum()),
            "unified.migration_ratio": budget.window.cut(union(start, end)).total / window,
            "unified.exposed_ratio": exposed,
            "unified.stall_ratio": beside / window,
            "unified.lost_ratio": exposed + beside / window,
            "unified.unasked_ratio": float(size[forced].sum()) / total if cause_known else None,
            "unified.thrash_ratio": float(size[_again(start, kind, address)].sum()) / total
            if len(at) and (address != MISSING).all()
            else None,
        },
        scope,
    )
    _faults(a, device, scope, out)
    longest = np.argsort(start - end, kind="stable")[:_PLACES]
    for part in ("migration", "unified_memory"):
        out.places(
            part,
            scope,
            [
                Interval(int(start[i]), int(end[i]), None, None, COPY_KIND_NAMES[int(kind[i])])
                for i in longest.tolist()
            ],
        )
    _table(scope, out, window, (size, kind, cause, end - start))


def _migrations(a: Analysis, device: int) -> Array:
    """Positions in `ops` of the device's migrations in the window."""
    at = a.device_ops(device)
    at = at[a.ops.kind[at] == Kind.COPY]
    kind = a.trace.columns("copies", ("kind",))["kind"]
    return np.asarray(at[np.isin(kind[a.ops.row[at]], MIGRATIONS)])


def _recorded(a: Analysis, migrations: Array) -> bool:
    return len(migrations) > 0 or a.trace.capture.recorder.migrations


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
        rows.append(
            [
                COPY_KIND_NAMES[direction],
                _CAUSES.get(why, "unknown"),
                int(mine.sum()),
                float(size[mine].mean()),
                time / window,
                float(size[mine].sum()) / max(time, 1) * 1e9,
            ]
        )
    rows.sort(key=lambda r: -float(r[4]))
    out.table(
        "unified.migrations",
        scope,
        "Migrations of unified memory, share of the window",
        ("direction", "reason", "count", "mean size:bytes", "share:ratio", "rate:bytes_per_s"),
        rows,
    )
