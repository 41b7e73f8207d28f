"""Facts about Python calls that the profiler timed, and what timing them costs."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.model.arrays import Array
from advisor.model.capture import Capture
from advisor.sources.schema import OPERATIONS

#: Of the times between neighbouring begins and ends the one that this part stays below is taken for
#: what one callback of the tracer costs: between the nearest ones Python does next to nothing else.
_NEAREST = 0.1
#: Fewer neighbours than this tell nothing.
_LEAST = 100

_RECORDED = Need("no option recorded Python calls", None, lambda a: _recorded(a.trace.capture))
_ROWS = {**origin.STEPS, "python_rows": "start end thread"}
_MEASURABLE = Need(
    "the times of Python calls are too few or too coarse", None, lambda a: _callback_ns(_rows(a)) is not None
)

FACTS = (
    *group("trace", needs.CUDA, [
        Entry("capture.stack_recorded", "flag", "", "The profiler timed every Python call", "with_stack of the PyTorch profiler, or rows of Python functions"),
        Entry("capture.stack_option", "text", "", "The option that makes it do so, where it was on", "options of the capture", needs=(_RECORDED,)),
    ], columns={}, windowed=False),
    *group("trace", "", [
        Entry("capture.python_call_count", "count", "python_rows", "Python calls that the profiler timed in the window, on the thread with most of them", "row count"),
        Entry("capture.python_calls_per_operator", "count", "python_rows ranges", "Timed Python calls for each operator of the same thread", "rows / rows of operators in the window", columns={**_ROWS, "ranges": "start thread domain"}),
        Entry("capture.stack_cost_ratio", "ratio", "python_rows", "Share of the host's time that timing Python calls takes", "begins and ends of the rows x the time that a tenth of neighbouring ones lie apart at most / window", needs=(_MEASURABLE,)),
    ], columns=_ROWS),
)  # fmt: skip


def stack_facts(a: Analysis, out: FactWriter) -> None:
    recorded = _recorded(a.trace.capture)
    out.put("capture.stack_recorded", recorded)
    out.put("capture.stack_option", "with_stack" if recorded else None)
    if not a.trace.has("python_rows"):
        return
    rows = _rows(a)
    count = len(rows["start"])
    out.put("capture.python_call_count", count)
    if not count:
        return
    if operators := _operators(a, int(rows["thread"][0])):
        out.put("capture.python_calls_per_operator", count / operators)
    each, (lo, hi) = _callback_ns(rows), a.host_window
    if each is not None:
        out.put("capture.stack_cost_ratio", min(2 * count * each / max(hi - lo, 1), 1.0))


def _recorded(capture: Capture) -> bool:
    """Whether the PyTorch profiler timed Python calls; other profilers sample stacks."""
    asked = capture.options.get("with_stack", "").lower() in ("1", "true")
    return asked or "python_function" in capture.trace_sources


def _rows(a: Analysis) -> dict[str, Array]:
    """Timed Python calls that lie in the window, of the thread with most of them."""
    rows = a.trace.columns("python_rows", ("start", "end", "thread"))
    lo, hi = a.host_window
    inside = (rows["start"] >= lo) & (rows["end"] <= hi)
    threads, count = np.unique(rows["thread"][inside], return_counts=True)
    if len(threads):
        inside &= rows["thread"] == threads[np.argmax(count)]
    return {name: values[inside] for name, values in rows.items()}


def _operators(a: Analysis, thread: int) -> int:
    ranges = a.trace.columns("ranges", ("start", "thread", "domain"))
    lo, hi = a.host_window
    inside = (ranges["start"] >= lo) & (ranges["start"] < hi) & (ranges["thread"] == thread)
    return int((inside & (ranges["domain"] == OPERATIONS)).sum())


def _callback_ns(rows: dict[str, Array]) -> float | None:
    """What one begin or end of a Python call costs, ns; None where times are too few or too coarse."""
    apart = np.diff(np.sort(np.concatenate((rows["start"], rows["end"]))))
    if len(apart) < _LEAST:
        return None
    return float(np.quantile(apart, _NEAREST)) or None
