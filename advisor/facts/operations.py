"""Facts about the largest operations: shares and tails."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Coverage, union
from advisor.metrics.kernels import distribution, shape_key, shorten
from advisor.model.facts import Scope

Array = NDArray[Any]

_KEPT = 20
#: Below this many calls a percentile of a launch shape says nothing.
_MIN_CALLS = 20


def operation_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Tails are taken among like calls: one kernel, one launch shape, the same kernels before and
    after it. A GEMM of one shape serves projections of different depth, and only its place in the
    sequence tells them apart."""
    if not a.trace.has("kernels"):
        return
    at = a.device_kernels(device)
    if len(at) == 0:
        return
    columns = a.trace.columns("kernels", ("grid_x", "grid_y", "grid_z", "threads"))
    row, name = a.ops.row[at], a.op_name[at]
    duration = (a.ops.end - a.ops.start)[at]
    shape = shape_key({k: v[row] for k, v in columns.items()})
    keys, group = np.unique(_place(name, shape, a.ops.stream[at]), return_inverse=True)
    of_name = np.zeros(len(keys), np.int64)
    of_name[group] = name
    spread = distribution(group, duration, len(keys))
    operations = a.names.operations
    labels = sorted(set(operations))
    of_operation = np.array([labels.index(operations[n]) for n in of_name], np.int64)
    total = np.bincount(of_operation, spread.total, minlength=len(labels))
    window = max(a.budgets[device].window.length, 1)
    rows = []
    for i in np.argsort(-total, kind="stable")[:_KEPT].tolist():
        scope = Scope(device=device, operation=labels[i])
        mine = np.flatnonzero(of_operation == i)
        telling = mine[(spread.count[mine] >= _MIN_CALLS) & (spread.p50[mine] > 0)]
        tail = float(spread.tail[telling].sum())
        out.put_all({
            "operation.time_ratio": float(total[i] / max(total.sum(), 1)),
            "operation.window_ratio": min(float(total[i]) / window, 1.0),
            "operation.count": int(spread.count[mine].sum()),
        }, scope)  # fmt: skip
        if len(telling) == 0:
            continue
        worst = int(telling[np.argmax(spread.tail[telling])])
        out.put_all({
            "operation.max_over_p50": float(spread.maximum[worst] / spread.p50[worst]),
            "operation.p99_over_p50": float(spread.p99[worst] / spread.p50[worst]),
            "operation.tail_window_ratio": tail / window,
            "operation.tail_over_time_ratio": tail / max(float(total[i]), 1.0),
        }, scope)  # fmt: skip
        slow = (group == worst) & (duration > 1.5 * spread.p50[worst])
        if slow.any():
            out.put("operation.tail_blocks_ratio", _alone(a, device, at, slow), scope)
        rows.append([
            labels[i], shorten(a.names.texts[of_name[worst]], 60), int(spread.count[worst]),
            *(float(v[worst]) / 1e3 for v in (spread.p50, spread.p99, spread.maximum)),
            float(spread.tail[worst]) / 1e6,
        ])  # fmt: skip
    rows.sort(key=lambda r: -float(r[-1]))
    head = ("operation", "kernel", "calls", "p50:us", "p99:us", "max:us", "lost in tail:ms")
    for label in [r[0] for r in rows]:
        out.table("operations.tail", Scope(device=device, operation=str(label)),
                  "Durations of the launch shape with the largest tail", head,
                  [r for r in rows if r[0] == label])  # fmt: skip


def _place(name: Array, shape: Array, stream: Array) -> Array:
    """A key of each call's kernel, launch shape and neighbours on its stream."""
    call = name.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ shape.astype(np.uint64)
    order = np.argsort(stream, kind="stable")  # calls are sorted by start within a stream
    ranked = call[order]
    before, after = np.roll(ranked, 1), np.roll(ranked, -1)
    key = np.empty(len(call), np.uint64)
    key[order] = (
        ranked * np.uint64(0xC2B2AE3D27D4EB4F)
        ^ (before + np.uint64(1)) * np.uint64(0x165667B19E3779F9)
        ^ (after + np.uint64(2)) * np.uint64(0x27D4EB2F165667C5)
    )
    return key


def _alone(a: Analysis, device: int, at: Array, slow: Array) -> float:
    """Share of the slow calls' time during which nothing else runs on the device."""
    start, end = a.ops.start[at], a.ops.end[at]
    own = union(start[slow], end[slow])
    everything = a.device_ops(device)
    others = np.setdiff1d(everything, at[slow], assume_unique=True)
    rest = union(a.ops.start[others], a.ops.end[others])
    shared = int(Coverage(rest).within(own.start, own.end).sum())
    return 1.0 - shared / max(own.total, 1)
