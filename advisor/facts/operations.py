"""Facts about the largest operations: shares and tails."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import distribution, shorten
from advisor.metrics.pauses import step_times
from advisor.metrics.tails import MIN_CALLS, SLOW, alone_ratio, like_calls
from advisor.model.arrays import Array
from advisor.model.facts import Scope
from advisor.sources.schema import MISSING

_KEPT = 20

_LIKE_CALLS = Need(f"fewer than {MIN_CALLS} like calls of the operation", needs.LONGER)
_SLOW_CALLS = Need(f"no slow call among {MIN_CALLS} like ones", needs.LONGER)

FACTS = (
    *group("operation", needs.CUDA, [
        Entry("operation.name", "text", "kernels", "The operation, as reports name it", "names of kernels", needs=(needs.KERNELS,)),
        Entry("operation.time_ratio", "ratio", "kernels", "Share of kernel time of this operation (the 20 largest are kept)", "time by logical operation", needs=(needs.KERNELS,)),
        Entry("operation.window_ratio", "ratio", "kernels", "Time of this operation over the window", "sum / window", needs=(needs.KERNELS,)),
        Entry("operation.count", "count", "kernels", "Calls in the window", "count", needs=(needs.KERNELS,)),
        Entry("operation.max_over_p50", "ratio", "kernels", "Slowest call over the median call, of its kernel with the largest tail", "per kernel name and launch shape"),
        Entry("operation.p99_over_p50", "ratio", "kernels", "99th percentile over the median", "per kernel name and launch shape"),
        Entry("operation.tail_window_ratio", "ratio", "kernels", "Time lost in the tail: sum of max(0, duration - p50), over the window", "per kernel name and launch shape, summed"),
        Entry("operation.tail_p99_ratio", "ratio", "kernels", "What the slow calls cost the slowest steps: time lost in them in the step at the 99th percentile of that loss, over the 99th percentile of step times; without steps operation.tail_window_ratio", "sum of max(0, duration - p50) by step, p99 / p99"),
        Entry("operation.tail_over_time_ratio", "ratio", "kernels", "Time lost in the tail over the operation's own time", "as above"),
        Entry("operation.tail_blocks_ratio", "ratio", "kernels", "Share of that lost time during which nothing else runs on the device", "slow calls without a concurrent operation", needs=(needs.KERNELS, _SLOW_CALLS)),
    ], columns={"kernels": f"{origin.SPAN} stream name_id {origin.SHAPE}"}, needs=(needs.KERNELS, _LIKE_CALLS)),
)  # fmt: skip


def operation_facts(a: Analysis, device: int, out: FactWriter, waits: Array | None = None) -> None:
    """Tails are taken among like calls: one kernel, one launch shape, the same kernels before and
    after it. A GEMM of one shape serves projections of different depth, and only its place in the
    sequence tells them apart.

    `waits` is the time that each collective waited for a later rank, where other ranks show it:
    that is not a slow call.
    """
    if not a.trace.has("kernels"):
        return
    like = like_calls(a, device)
    if len(like) == 0:
        return
    group, duration, of_name, spread = like.group, like.duration, like.name, like.spread
    operations = a.names.operations
    labels = sorted(set(operations))
    of_operation = np.array([labels.index(operations[n]) for n in of_name], np.int64)
    total = np.bincount(of_operation, spread.total, minlength=len(labels))
    if waits is not None:
        duration = duration.copy()
        duration[a.communication[like.at]] -= np.maximum(waits, 0)
        spread = distribution(group, duration, len(like))
    window = max(a.budgets[device].window.length, 1)
    frequent = (spread.count >= MIN_CALLS) & (spread.p50 > 0)
    of_call = np.where(frequent, of_operation, MISSING).astype(np.int32)[group]
    excess = np.maximum(duration - spread.p50[group], 0)
    rows = []
    for i in np.argsort(-total, kind="stable")[:_KEPT].tolist():
        scope = Scope(device=device, operation=labels[i])
        mine = np.flatnonzero(of_operation == i)
        frequent_names = mine[frequent[mine]]
        tail = float(spread.tail[frequent_names].sum())
        out.put_all(
            {
                "operation.name": labels[i],
                "operation.time_ratio": float(total[i] / max(total.sum(), 1)),
                "operation.window_ratio": min(float(total[i]) / window, 1.0),
                "operation.count": int(spread.count[mine].sum()),
            },
            scope,
        )
        if len(frequent_names) == 0:
            continue
        calls = np.flatnonzero(of_call == i)
        worst = int(frequent_names[np.argmax(spread.tail[frequent_names])])
        out.put_all(
            {
                "operation.max_over_p50": float(spread.maximum[worst] / spread.p50[worst]),
                "operation.p99_over_p50": float(spread.p99[worst] / spread.p50[worst]),
                "operation.tail_window_ratio": tail / window,
                "operation.tail_p99_ratio": _at_p99(a, like.at[calls], excess[calls]) or tail / window,
                "operation.tail_over_time_ratio": tail / max(float(total[i]), 1.0),
            },
            scope,
        )
        slow = calls[(group[calls] == worst) & (duration[calls] > SLOW * spread.p50[worst])]
        if len(slow):
            out.put("operation.tail_blocks_ratio", alone_ratio(a, device, like.at[slow]), scope)
        rows.append(
            [
                labels[i],
                shorten(a.names.texts[of_name[worst]], 60),
                int(spread.count[worst]),
                *(float(v[worst]) / 1e3 for v in (spread.p50, spread.p99, spread.maximum)),
                float(spread.tail[worst]) / 1e6,
            ]
        )
    rows.sort(key=lambda r: -float(r[-1]))
    head = ("operation", "kernel", "calls", "p50:us", "p99:us", "max:us", "lost in tail:ms")
    for label in [r[0] for r in rows]:
        out.table(
            "operations.tail",
            Scope(device=device, operation=str(label)),
            "Durations of the launch shape with the largest tail",
            head,
            [r for r in rows if r[0] == label],
        )


def _at_p99(a: Analysis, at: Array, lost: Array) -> float | None:
    """What slow calls (positions in `ops`, ns lost in each) cost the slowest steps, as a share of
    them; None without steps. Calls beside each other may lose more than the step has."""
    steps = a.window_steps
    if len(steps) == 0:
        return None
    by_step = np.bincount(a.steps.op_step[at] + 1, lost, minlength=int(steps.max()) + 2)[steps + 1]
    return min(float(np.percentile(by_step, 99) / max(np.percentile(step_times(a), 99), 1)), 1.0)
