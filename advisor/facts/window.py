"""Facts about the window: how much GPU work it holds, and how much lies outside it."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import joined, union
from advisor.metrics.window import OutsideWork, outside_work
from advisor.model.arrays import distinct
from advisor.model.facts import TRACE, Value
from advisor.model.numbers import session_time

_OUTSIDE = Need("all GPU work but start-up lies in the window")
_REPEATS = Need("nothing repeats inside a step")

FACTS = (
    *group("trace", needs.CUDA, [
        Entry("capture.outside_work_ratio", "ratio", "", "Share of the GPU time outside start-up that lies outside the window", "union of the GPU operations of each device outside its window and start-up, over that and the busy time in the window; a first step counts where it keeps the GPU busy for more than twice as long as any other step"),
        Entry("capture.whole_work_window", "text", "", "The argument of --window that covers all GPU work but start-up, where some lies outside the window", "first to last of the window and of capture.outside_work_ratio", needs=(_OUTSIDE,)),
        Entry("capture.window_chosen", "flag", "", "The user chose which part of the capture is analysed", "--window, --nvtx or --phase", columns={}),
        Entry("capture.window_work_count", "count", "", "GPU operations in the window", "rows of kernels, copies, memsets and graph_runs that overlap it", columns=origin.OPS, windowed=True),
        Entry("capture.window_busy_ms", "ms", "", "GPU busy time in the window, over all devices", "union of the GPU operations of each device", columns=origin.OPS, windowed=True),
        Entry("capture.step_levels", "text", "", "What repeats inside a step, and how often: pieces of a graph, numbered ranges, a run of kernels", "graph launches and ranges that come equally often in four of five steps; the longest run of kernels that returns after an equal number in three of four returns and fills half of a step of the usual size", columns=origin.STEPS, needs=(needs.STEPS, _REPEATS), windowed=True),
    ], columns=origin.GAPS, windowed=False),
)  # fmt: skip


def window_facts(a: Analysis, out: FactWriter) -> None:
    """Work inside and outside the windows of all devices; nothing where none was recorded."""
    if not len(a.ops):
        return
    chosen = a.selection
    by_device = [_outside(a.on(int(d))) for d in distinct(a.ops.device).tolist()]
    inside = sum(found.inside for found in by_device)
    outside = sum(found.outside for found in by_device)
    out.put_all(
        {
            "capture.window_work_count": sum(len(a.device_ops(d)) for d in a.devices),
            "capture.window_busy_ms": inside / 1e6,
            "capture.window_chosen": bool(chosen.window or chosen.nvtx or chosen.phase),
            "capture.outside_work_ratio": outside / (inside + outside) if inside + outside else 0.0,
            "capture.whole_work_window": _whole(a, by_device),
            "capture.step_levels": ", ".join(f"{n} {w}" for w, n in a.steps.levels) or None,
        }
    )
    out.table(
        "capture.outside_work",
        TRACE,
        "GPU work outside the window, share of the GPU time",
        ("where", "GPU time:ms", "share:ratio", "from:s", "to:s"),
        _rows(by_device, inside + outside),
    )


def _outside(own: Analysis) -> OutsideWork:
    """Work of one device outside its window."""
    ops, mine = own.ops, own.ops.device == own.main_device
    launched = np.zeros(len(ops), bool)
    if own.trace.has("api_calls"):
        lo, hi = own.host_window
        begun = own.trace.columns("api_calls", ("start",))["start"][np.maximum(ops.api, 0)]
        launched = mine & (ops.api >= 0) & (begun >= lo) & (begun < hi)
    return outside_work(
        union(ops.start[mine], ops.end[mine]),
        union(ops.start[launched], ops.end[launched]),
        own.window,
        own.steps,
        own.startup,
    )


def _whole(a: Analysis, by_device: list[OutsideWork]) -> str | None:
    """The argument of ``--window`` that shows all GPU work but start-up."""
    outside = joined(*(spans for found in by_device for spans in found.places.values()))
    if not len(outside):
        return None
    lo = min([int(outside.start[0]), *(a.on(d).window.start for d in a.devices)])
    hi = max([int(outside.end[-1]), *(a.on(d).window.end for d in a.devices)])
    return f"{session_time(lo // 1000 * 1000)}/{session_time(-(-hi // 1000) * 1000)}"


def _rows(by_device: list[OutsideWork], whole: int) -> list[list[Value | None]]:
    """One row a place, over all devices."""
    rows: list[list[Value | None]] = []
    for place in by_device[0].places:
        found = [f.places[place] for f in by_device if len(f.places[place])]
        if found:
            ns = sum(spans.total for spans in found)
            rows.append(
                [
                    place,
                    ns / 1e6,
                    ns / whole,
                    min(int(s.start[0]) for s in found) / 1e9,
                    max(int(s.end[-1]) for s in found) / 1e9,
                ]
            )
    return rows
