"""Evidence tables that findings print: kernels, calls, steps, gaps. Small, sorted, with units."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from advisor.facts.device import of_older_architecture
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Coverage, Spans, union
from advisor.metrics.kernels import MATMUL, Names, dense, distribution, extremes
from advisor.metrics.pauses import step_times
from advisor.model.arrays import Array
from advisor.model.facts import Row, Value
from advisor.model.parts import IDLE
from advisor.sources.schema import Call

_ROWS = 200  # the diagnosis keeps this many of its main tables
_FEW = 10
_API_SUFFIX = r"_v\d+$"


def evidence(a: Analysis, device: int, out: FactWriter) -> None:
    if a.trace.has("kernels"):
        _kernels(a, device, out)
    if a.trace.has("api_calls"):
        _calls(a, device, out)
    _steps(a, out)
    budget = a.budgets[device]
    window = max(budget.window.length, 1)
    idle = [(p, budget.ns[p]) for p in IDLE if budget.ns[p]]
    out.table(
        "idle.parts", [[IDLE[p].words, ns / 1e6, ns / window] for p, ns in sorted(idle, key=lambda x: -x[1])]
    )
    gap = budget.gap_parts["host_gap"]
    top = np.argsort(-gap, kind="stable")[:_FEW]
    out.table(
        "host.gaps",
        [
            [float(budget.gaps.start[i]) / 1e9, float(gap[i]) / 1e6, int(budget.gaps.thread[i])]
            for i in top.tolist()
            if gap[i] > 0
        ],
    )
    _collections(a, device, out)
    _holders(a, device, out)


def _collections(a: Analysis, device: int, out: FactWriter) -> None:
    """The garbage collections on the feeding thread, the longest first."""
    budget, feeder = a.budgets[device], a.feeder(device)
    if feeder is None or feeder not in a.states.gc:
        return
    spans = budget.window.cut(a.states.gc[feeder])
    idle = Coverage(Spans(budget.gaps.start, budget.gaps.end)).within(spans.start, spans.end)
    length = spans.end - spans.start
    top = np.argsort(-length, kind="stable")[:_FEW]
    out.table(
        "host.collections",
        [
            [float(spans.start[i]) / 1e9, float(length[i]) / 1e6, float(idle[i]) / 1e6, feeder]
            for i in top.tolist()
        ],
    )


def _holders(a: Analysis, device: int, out: FactWriter) -> None:
    """Who holds the GIL while the feeding thread waits for it."""
    feeder = a.feeder(device)
    chosen = [i for i, role in a.roles.items() if role == "gil_hold"]
    if feeder is None or feeder not in a.states.gil or not chosen:
        return
    waits = a.budgets[device].window.cut(a.states.gil[feeder])
    rows = a.ranges.rows(chosen)
    held = Coverage(waits).within(rows["start"], rows["end"])
    threads, of = np.unique(rows["thread"], return_inverse=True)
    time = np.bincount(of, held, minlength=len(threads))
    top = [i for i in np.argsort(-time, kind="stable")[:_FEW].tolist() if time[i]]
    out.table(
        "host.gil_holders",
        [[int(threads[i]), float(time[i]) / 1e6, float(time[i]) / max(waits.total, 1)] for i in top],
    )


def _kernels(a: Analysis, device: int, out: FactWriter) -> None:
    at = a.device_kernels(device)
    if len(at) == 0:
        return
    name = a.op_name[at]
    duration = (a.ops.end - a.ops.start)[at]
    d = distribution(name, duration, len(a.names.ids))
    total = max(float(d.total.sum()), 1.0)
    order = [int(i) for i in np.argsort(-d.total, kind="stable") if d.count[i]]
    out.table(
        "kernels.top",
        [
            [
                a.names.texts[i],
                a.names.operations[i],
                a.names.families[i],
                int(d.count[i]),
                float(d.total[i]) / 1e6,
                float(d.total[i]) / total,
                *(float(v[i]) / 1e3 for v in (d.p50, d.p95, d.p99, d.maximum)),
            ]
            for i in order[:_ROWS]
        ],
    )
    families: dict[str, list[float]] = {}
    for i in order:
        row = families.setdefault(a.names.families[i], [0.0, 0.0])
        row[0] += float(d.count[i])
        row[1] += float(d.total[i])
    ranked = sorted(families.items(), key=lambda kv: (-kv[1][1], kv[0]))
    found = a.activity.get(device)
    out.table("kernels.families", [[f, int(n), t / 1e6, t / total] for f, (n, t) in ranked])
    out.entity(
        "family",
        [
            {
                "device": device,
                "family": f,
                "count": int(n),
                "time_ratio": t / total,
                **{f"{m}_ratio": found.of(f, m) if found else None for m in ("dram", "sm", "tensor")},
            }
            for f, (n, t) in ranked
        ],
    )
    columns = a.trace.columns("kernels", ("blocks", "local_bytes"))
    blocks, local = (columns[n][a.ops.row[at]] for n in ("blocks", "local_bytes"))
    heaviest = partial(_heaviest, a.names, name, duration)
    out.table("kernels.local", heaviest(local > 0, local))
    if sms := a.device(device).sm_count:
        small = (blocks > 0) & (blocks * 2 < sms) & ~a.communication[at]
        title = f"Kernels that launch fewer than {sms // 2} blocks"
        out.table("kernels.small_grid", heaviest(small, blocks), title=title)
    fp32 = a.names.mask(lambda k: k.family in MATMUL and k.traits.get("simt_fp32") is True)
    out.table("kernels.fp32", heaviest(fp32[name], blocks))
    capability, old = a.device(device).compute_capability, of_older_architecture(a, device)
    if capability and old is not None:
        title = f"Kernels built for less than sm_{capability[0]}0, share of the kernel time"
        out.table("kernels.old_architecture", heaviest(old, blocks), title=title)


def _heaviest(
    names: Names, name: Array, duration: Array, mask: Array, held: Array
) -> list[list[Value | None]]:
    """The heaviest kernels of `mask`, each with the most that its launches hold of something (`held`)."""
    time = np.bincount(name[mask], duration[mask], minlength=len(names.ids))
    count = np.bincount(name[mask], minlength=len(names.ids))
    most = extremes(name[mask], held[mask], len(names.ids))[1]
    whole = max(float(duration.sum()), 1.0)
    return [
        [names.texts[i], names.operations[i], int(count[i]), float(time[i]) / whole, int(most[i])]
        for i in np.argsort(-time, kind="stable")[:_FEW].tolist()
        if time[i]
    ]


def _calls(a: Analysis, device: int, out: FactWriter) -> None:
    rows = a.calls_in_window
    calls = a.trace.columns("api_calls", ("start", "end", "call", "name_id", "thread"))
    ids, group = dense(calls["name_id"][rows])
    names = [re.sub(_API_SUFFIX, "", t) for t in a.trace.texts(ids.tolist())]
    d = distribution(group, (calls["end"] - calls["start"])[rows], len(ids))
    host = max(a.host_window[1] - a.host_window[0], 1)
    kind = np.zeros(len(ids), np.int64)
    kind[group] = calls["call"][rows]
    order = [int(i) for i in np.argsort(-d.total, kind="stable") if d.count[i]]

    def per_step(count: float) -> float | None:
        return count / a.step_count if a.step_count else None

    def table(wanted: set[Call] | None, limit: int) -> list[list[Value | None]]:
        rows: list[list[Value | None]] = [
            [
                names[i],
                int(d.count[i]),
                per_step(float(d.count[i])),
                float(d.total[i]) / 1e6,
                float(d.total[i]) / host,
                float(d.p50[i]) / 1e3,
                float(d.maximum[i]) / 1e3,
            ]
            for i in order
            if wanted is None or kind[i] in wanted
        ]
        return rows[:limit]

    out.table("api.top", table(None, _ROWS))
    for key, wanted in (
        ("launch.top_calls", {Call.LAUNCH, Call.GRAPH_LAUNCH}),
        ("sync.top_calls", {Call.SYNC, Call.COPY}),
        ("alloc.calls", {Call.ALLOC, Call.FREE}),
    ):
        out.table(key, table(wanted, _FEW))
    feeder = a.feeder(device)
    window = max(a.budgets[device].window.length, 1)
    entity: list[Row] = []
    for i in order:
        if kind[i] != Call.SYNC:
            continue
        mine = rows[(group == i) & (calls["thread"][rows] == feeder)]
        spans = union(calls["start"][mine], calls["end"][mine])
        entity.append(
            {
                "device": device,
                "name": names[i],
                "count": len(mine),
                "per_step": len(mine) / a.step_count if a.step_count else None,
                "time_ratio": spans.total / host,
                "idle_ratio": a.budgets[device].idle_inside(spans) / window,
                "p50_ns": float(d.p50[i]),
                "max_ns": float(d.maximum[i]),
            }
        )
    out.entity("sync_call", entity)


def _steps(a: Analysis, out: FactWriter) -> None:
    if not a.step_count:
        return
    times = step_times(a) / 1e6
    phases = a.window_phases
    rows = []
    for phase in sorted(set(phases.tolist())):
        mine = times[phases == phase]
        rows.append(
            [
                phase,
                len(mine),
                float(np.median(mine)),
                float(mine.mean()),
                float(np.percentile(mine, 99)),
                float(mine.max()),
            ]
        )
    out.table("steps.phases", rows)
    slowest = np.argsort(-times, kind="stable")[:5]
    out.table(
        "steps.slowest",
        [
            [
                int(a.window_steps[i]),
                str(phases[i]),
                float(times[i]),
                float(a.steps.gpu_end[a.window_steps[i]]) / 1e9,
            ]
            for i in slowest.tolist()
        ],
    )
