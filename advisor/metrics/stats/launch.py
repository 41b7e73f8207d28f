"""Reports that join kernels to the API calls that launched them: launch path, NVTX and kernels.

Both have the columns, row order and attribution of `nsys stats` 2023.4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.metrics.kernels import dense
from advisor.metrics.operations import Kind
from advisor.metrics.stats.rows import Labels, Query
from advisor.metrics.stats.sums import Sums, call_labels, range_labels, spread_columns, sums, timed_ranges
from advisor.model.arrays import Array
from advisor.model.stats import Column, StatsTable


class Launched(NamedTuple):
    """Kernels that count and whose launching call was recorded; times in ns, one entry a kernel.

    `row` is the kernel's row in `kernels`, `call` that of its call in `api_calls`.
    """

    row: Array
    call: Array
    start: Array
    end: Array
    call_start: Array
    call_end: Array
    process: Array
    thread: Array
    device: Array


def launched(q: Query) -> Launched:
    """Kernels joined to their calls by (process, correlation), in the order of the file."""
    a, rows = q.a, q.rows("kernels")
    api = np.full(a.trace.rows("kernels"), -1, np.int64)
    kernel = a.ops.kind == Kind.KERNEL
    api[a.ops.row[kernel]] = a.ops.api[kernel]
    rows = rows[api[rows] >= 0]
    call = api[rows]
    kernels = a.trace.columns("kernels", ("start", "end", "device"))
    calls = a.trace.columns("api_calls", ("start", "end", "process", "thread"))
    return Launched(
        rows,
        call,
        kernels["start"][rows],
        kernels["end"][rows],
        calls["start"][call],
        calls["end"][call],
        calls["process"][call],
        calls["thread"][call],
        kernels["device"][rows],
    )


def launch(q: Query) -> StatsTable:
    """Call, queue and kernel time by kernel, thread and device (cuda_kern_exec_sum).

    The queue time of a kernel runs from the end of its call to its start. A kernel that started
    earlier has none and is left out of the queue columns; `QCount` counts the others. The total
    runs from the start of the call until both call and kernel have ended.
    """
    rows = launched(q)
    names = Labels(q.labels.code[rows.row], q.labels.texts)
    calls = q.a.trace.columns("api_calls", ("name_id",))["name_id"]
    apis = call_labels(q, calls[rows.call])
    key, group = _groups(rows.process, rows.thread, rows.device, apis.code, names.code)
    queue = rows.start - rows.call_end
    queued = queue >= 0
    n = len(key[0])
    own, busy = rows.call_end - rows.call_start, rows.end - rows.start
    total = sums(group, np.maximum(rows.end, rows.call_end) - rows.call_start, n)
    parts: list[tuple[str, Sums, str]] = [
        ("T", total, "05354"),
        ("A", sums(group, own, n), "14354"),
        ("Q", sums(group[queued], queue[queued], n), "14354"),
        ("K", sums(group, busy, n), "14354"),
    ]
    pid, tid, device, api_code, name_code = key
    columns: list[Column] = [
        Column("PID", pid, rank=5),
        Column("TID", tid, rank=5),
        Column("DevId", device, rank=5),
        Column("Count", total.count),
        Column("QCount", parts[2][1].count, rank=3),
    ]
    none_queued = parts[2][1].count == 0
    for prefix, found, ranks in parts:
        for column in spread_columns(found, prefix, ranks=ranks):
            absent = none_queued if prefix == "Q" else None
            columns.append(Column(column.name, column.values, "ns", column.decimals, column.rank, absent))
    columns += [Column("API Name", apis.of(api_code), rank=2), Column("Kernel Name", names.of(name_code))]
    order = np.argsort(-total.avg, kind="stable")
    note = ""
    lost = len(q.rows("kernels")) - len(rows.row)
    if lost:
        note = f"kernels left out because the call that launched them was not recorded: {lost}"
    return StatsTable(
        "launch", "CUDA kernel launch and execution summary", tuple(c.take(order) for c in columns), note=note
    )


def nvtx_kernels(q: Query) -> StatsTable:
    """Kernels by the NVTX ranges that launched them (nvtx_kern_sum).

    A kernel belongs to every range of its thread whose time encloses the launching call, so it
    counts in a range and in all ranges around that one. `NVTX Inst` counts the ranges of that
    text which launched the kernel.
    """
    rows, ranges = launched(q), timed_ranges(q)
    labels, styles = range_labels(q, ranges)
    in_range, of_kernel = enclosing(
        ranges["start"],
        ranges["end"],
        _threads(ranges["process"], ranges["thread"]),
        rows.call_start,
        rows.call_end,
        _threads(rows.process, rows.thread),
    )
    names = Labels(q.labels.code[rows.row], q.labels.texts)
    key, group = _groups(
        labels.code[in_range], rows.process[of_kernel], rows.thread[of_kernel], names.code[of_kernel]
    )
    label, pid, tid, name_code = key
    n = len(label)
    found = sums(group, (rows.end - rows.start)[of_kernel], n)
    pairs = np.unique(group.astype(np.int64) * max(len(labels.code), 1) + in_range)
    instances = np.bincount(pairs // max(len(labels.code), 1), minlength=n)
    columns = (
        Column("NVTX Range", labels.of(label)),
        Column("Style", [styles[i] for i in label.tolist()], rank=5),
        Column("PID", pid, rank=5),
        Column("TID", tid, rank=5),
        Column("NVTX Inst", instances, rank=3),
        Column("Kern Inst", found.count),
        Column("Total Time", found.total, "ns"),
        *spread_columns(found, ranks="02314"),
        Column("Kernel Name", names.of(name_code)),
    )
    # By text, then style, process and thread; the largest kernel first within each.
    texts = np.unique(np.array(columns[0].values, object), return_inverse=True)[1]
    style = np.unique(np.array(columns[1].values, object), return_inverse=True)[1]
    order = np.lexsort((-found.total, tid, pid, style, texts)) if n else np.arange(0)
    return StatsTable("nvtx-kernels", "NVTX range kernel summary", tuple(c.take(order) for c in columns))


def enclosing(
    start: Array, end: Array, thread: Array, call_start: Array, call_end: Array, call_thread: Array
) -> tuple[Array, Array]:
    """Positions of (range, call) pairs in which the range's time encloses the call, both ends
    included, on one thread."""
    found: list[tuple[Array, Array]] = []
    for one in np.unique(call_thread).tolist():
        calls = np.flatnonzero(call_thread == one)
        calls = calls[np.argsort(call_start[calls], kind="stable")]
        ranges = np.flatnonzero(thread == one)
        first = np.searchsorted(call_start[calls], start[ranges], "left")
        last = np.searchsorted(call_start[calls], end[ranges], "right")
        count = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(len(ranges)), count)
        offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        call = calls[first[mine] + offset]
        mine = ranges[mine]
        inside = call_end[call] <= end[mine]
        found.append((mine[inside], call[inside]))
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def _threads(process: Array, thread: Array) -> Array:
    """One number for a thread; thread ids repeat between process namespaces."""
    return np.asarray((process.astype(np.int64) << 32) | (thread & 0xFFFFFFFF))


def _groups(*columns: Array) -> tuple[tuple[Array, ...], Array]:
    """Distinct combinations of the columns, as one array a column, and the number of each row's."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        distinct, code = dense(column)
        key = dense(key * max(len(distinct), 1) + code)[1]
    first = np.unique(key, return_index=True)[1]
    return tuple(column[first] for column in columns), key
