"""Facts about long stretches between the steps in which no kernel runs."""

from __future__ import annotations

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.idle_host import gap_name, os_time
from advisor.metrics.intervals import Coverage, intersect, union
from advisor.metrics.operations import Kind
from advisor.model.numbers import session_time

_NONE = Need("no stretch without a kernel is that long")
_AWAKE = Need("the launching thread is in no operating-system call for half of them")
_NAMED = Need("no range or function covers most of them", "NVTX ranges around the host's work")

FACTS = (
    *group("trace", needs.CUDA, [
        Entry("interruption.count", "count", "kernels", "Stretches between steps in which no kernel runs, of at least twenty steps and 100 ms, where they come in at most a tenth of the steps; the window leaves them out", "gaps between the kernels of all devices, without those that garbage collection, a data loader, start-up, the profiler or a call explains"),
        Entry("interruption.time_ratio", "ratio", "kernels", "Share of the time between the first and the last step that they take", "sum / (sum + window)"),
        Entry("interruption.longest_ms", "ms", "kernels", "The longest of them", "max", needs=(needs.STEPS, _NONE)),
        Entry("interruption.copy_ratio", "ratio", "kernels", "Share of them in which copies run", "union of the copies / sum", columns={"kernels": origin.SPAN, "copies": origin.SPAN}, needs=(needs.STEPS, _NONE)),
    ], columns={"kernels": origin.SPAN}, needs=(needs.STEPS,)),
    *group("trace", needs.NVTX, [
        Entry("interruption.range", "text", "ranges", "The range or Python function of the launching thread that covers most of them", "as host.gap_range", needs=(needs.STEPS, _NONE, _NAMED)),
    ], columns={"ranges": origin.RANGES, "python_calls": "start end thread text_id"}),
    *group("trace", needs.OSRT, [
        Entry("interruption.os_call", "text", "host_calls", "The operating-system call in which the launching thread spends most of them", "where such calls hold half of them", needs=(needs.STEPS, _NONE, _AWAKE)),
    ], columns={"host_calls": "start end thread name_id"}),
)  # fmt: skip


def interruption_facts(a: Analysis, out: FactWriter) -> None:
    if not a.step_count:
        return
    found, device = a.interruptions, a.main_device
    total = found.total
    out.put("interruption.count", len(found))
    out.put("interruption.time_ratio", total / max(total + a.window.length, 1))
    if not total:
        return
    length = found.end - found.start
    copies = a.ops.kind == Kind.COPY
    copied = union(a.ops.start[copies], a.ops.end[copies])
    out.put("interruption.longest_ms", float(length.max()) / 1e6)
    out.put("interruption.copy_ratio", intersect(found, copied).total / total)
    out.table(
        "interruptions",
        [
            [session_time(int(lo)), (hi - lo) / 1e6, ns / 1e6]
            for lo, hi, ns in zip(
                found.start, found.end, Coverage(copied).within(found.start, found.end), strict=True
            )
        ],
    )
    feeder = a.feeder(device)
    if feeder is None:
        return
    if (named := gap_name(a, feeder, found)) and 2 * named.covered_ns > total:
        out.put("interruption.range", named.text)
    if a.trace.has("host_calls"):
        names, time = os_time(a, feeder, found)
        if 2 * time.sum() > total:
            out.put("interruption.os_call", names[int(time.argmax())])
