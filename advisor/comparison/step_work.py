"""The work of one step: kernels, launches and layers by phase, and the step times themselves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.step_times import step_sizes, step_times
from advisor.metrics.loaded.kernels import ATTENTION, MATMUL, extremes, is_helper
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array
from advisor.model.findings import Diagnosis
from advisor.model.work import MAX_KERNELS, MAX_SAMPLES, KernelName, KernelWork, PhaseWork, Work
from advisor.sources.schema import MISSING

#: A count is that of layers if the calls a step of this share of the kernels are a multiple of it.
_REPEATS = 0.6
#: Fewest repetitions that count as layers.
FEWEST = 3
#: Phase of a capture without steps: its whole window.
WINDOW = "window"


def work_of(a: Budgeted) -> Work:
    """The work of one capture in its analysed window."""
    capture, devices = a.trace.capture, [a.device(d) for d in a.devices]
    clock = [d.clock_hz for d in devices if d.clock_hz]
    kernels, phases = _phases(a)
    return Work(
        gpus=tuple(d.name for d in devices if d.name),
        gpu_count=len(devices),
        clock_hz=min(clock) if clock else None,
        sm_clock_hz=_sm_clock(a),
        sources=tuple(sorted(s for s in capture.trace_sources if not s.startswith("COLLECT_"))),
        graph_trace=capture.graph_trace_mode,
        sample_hz=capture.sample_hz,
        opaque=a.steps.method == "opaque graph launches" or a.trace.has("graph_runs"),
        kernels=kernels,
        phases=phases,
    )


def _sm_clock(a: Stepped) -> float | None:
    """Mean of the sampled SM clock in the window."""
    window = (a.window.start, a.window.end)
    clock = a.trace.columns("samples", ("sm_clock_hz",), window)["sm_clock_hz"]
    return float(np.nanmean(clock)) if len(clock) and not np.isnan(clock).all() else None


def _phases(a: Stepped) -> tuple[tuple[KernelName, ...], tuple[PhaseWork, ...]]:
    steps = a.window_steps
    if len(steps):
        labels = np.array([a.steps.phase[i] for i in steps.tolist()])
        names = sorted(set(labels.tolist()))
        of_step = np.full(len(a.steps) + 1, MISSING, np.int32)
        of_step[steps] = [names.index(p) for p in labels.tolist()]
        op_phase = of_step[a.steps.op_step]
        count = np.bincount(of_step[steps], minlength=len(names))
    else:
        names, labels = [WINDOW], np.empty(0, "U1")
        op_phase = np.where(a.in_window, np.int32(0), np.int32(MISSING))
        count = np.ones(1, np.int64)
    kernels, parts = _kernels(a, op_phase, count)
    times = step_times(a) / 1e6 if len(steps) else np.array([a.window.length / 1e6])
    sizes = step_sizes(a, steps)

    def work(i: int, phase: str) -> PhaseWork:
        mine = labels == phase if len(steps) else np.ones(1, bool)
        known = [s for s, m in zip(sizes, mine, strict=True) if m and s]
        return PhaseWork(
            phase=phase,
            steps=int(mine.sum()) if len(steps) else 0,
            times_ms=thinned(times[mine]) if len(a.ops) or len(steps) else (),
            batch=_mean([s.batch for s in known]),
            tokens=_mean([s.tokens for s in known]),
            **parts[i],
        )

    return kernels, tuple(work(i, phase) for i, phase in enumerate(names))


def thinned(times: Array) -> tuple[float, ...]:
    """At most MAX_SAMPLES of the times, evenly spread, in order."""
    if len(times) > MAX_SAMPLES:
        times = times[np.linspace(0, len(times) - 1, MAX_SAMPLES).astype(np.int64)]
    return tuple(round(float(t), 6) for t in times)


def _mean(values: list[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _kernels(
    a: Stepped, op_phase: Array, steps: Array
) -> tuple[tuple[KernelName, ...], list[dict[str, Any]]]:
    """The kernels of the window, the largest by time, and by phase the fields of PhaseWork about them."""
    at = np.flatnonzero((a.op_name >= 0) & (op_phase >= 0)).astype(np.int32)
    if len(at) == 0:
        return (), [{}] * len(steps)
    known, texts = a.names.known, a.names.texts
    key, shape = op_phase[at].astype(np.int64) * len(texts) + a.op_name[at], (len(steps), len(texts))
    blocks = a.trace.columns("kernels", ("blocks",))["blocks"][a.ops.row[at]]
    calls, ns, launched = (
        np.bincount(key, weight, shape[0] * shape[1]).reshape(shape)
        for weight in (None, a.ops.length[at], blocks)
    )
    least, most = (each.reshape(shape) for each in extremes(key, blocks, shape[0] * shape[1]))
    order = np.argsort(-ns.sum(axis=0), kind="stable")
    rows = [i for i in order[:MAX_KERNELS].tolist() if calls[:, i].any()]
    names = (KernelName(name=texts[i], operation=known[i].operation, family=known[i].family) for i in rows)
    main = [np.array([k.family in f and not is_helper(k) for k in known]) for f in (ATTENTION, MATMUL)]
    out = []
    for phase, number in enumerate(np.maximum(steps, 1).tolist()):
        mine = calls[phase]
        works = tuple(
            KernelWork(
                kernel=k,
                calls=round(float(mine[i]) / number, 4),
                ms=round(float(ns[phase, i]) / 1e6 / number, 6),
                blocks=round(float(launched[phase, i]) / max(int(mine[i]), 1), 2),
                blocks_min=int(least[phase, i]),
                blocks_max=int(most[phase, i]),
            )
            for k, i in enumerate(rows)
            if mine[i]
        )
        attention, matmul = (int(mine[family].sum()) / number for family in main)
        out.append(
            {
                "kernels": works,
                "kernel_calls": round(float(mine.sum()) / number, 4),
                "kernel_ms": round(float(ns[phase].sum()) / 1e6 / number, 6),
                "attention": round(attention, 4),
                "matmul": round(matmul, 4),
                "layers": repeated([w.calls for w in works], attention) if a.step_count else None,
            }
        )
    return tuple(names), out


def repeated(calls: list[float], attention: float) -> int | None:
    """How often a step repeats its block: the largest number of which the calls of most kernels are a
    multiple; else the number of attention kernels."""
    counts = Counter(round(c) for c in calls if c >= 1.5)
    whole = sum(counts.values())
    for layers in sorted((c for c in counts if c >= FEWEST), reverse=True):
        if sum(n for c, n in counts.items() if c % layers == 0) >= _REPEATS * whole:
            return layers
    return round(attention) if attention >= FEWEST else None


def saved_work(diagnosis: Diagnosis) -> Work:
    """The work of a diagnosis; for one saved without it, from its other tables."""
    if diagnosis.work is not None:
        return diagnosis.work
    entry = diagnosis.inputs[0]
    table = diagnosis.tables.get("kernels")
    names, rows = [], []
    steps = max(entry.steps or 0, 1)
    for i, row in enumerate(table.rows[:MAX_KERNELS] if table is not None else ()):
        name, operation, family, calls, total = row[:5]
        names.append(KernelName(name=str(name), operation=str(operation), family=str(family)))
        calls, ms = (float(v or 0) / steps for v in (calls, total))
        rows.append(KernelWork(kernel=i, calls=calls, ms=ms, blocks=0.0, blocks_min=0, blocks_max=0))
    marks: dict[str, list[float]] = {}
    for mark in diagnosis.timeline.marks:
        marks.setdefault(mark.label, []).append((mark.end_ns - mark.start_ns) / 1e6)
    phases = [
        PhaseWork(
            phase=s.phase,
            steps=s.count,
            times_ms=tuple(marks.get(s.phase, ())),
            kernels=tuple(rows) if len(diagnosis.main_steps) == 1 else (),
            kernel_calls=sum(r.calls for r in rows),
            kernel_ms=sum(r.ms for r in rows),
        )
        for s in diagnosis.main_steps
    ]
    device = entry.device
    return Work(gpus=(device,) if device else (), gpu_count=1, kernels=tuple(names), phases=tuple(phases))
