"""Facts about events lost from a capture, what shows the loss, what the recording tool reports about it,
rows that cannot be true, and work outside the window.
"""

from __future__ import annotations

import re

import numpy as np

from advisor.facts import needs
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.knowledge.files import capture_knowledge
from advisor.metrics.analysis import Analysis
from advisor.metrics.damage import GOOD_RESULTS
from advisor.metrics.intervals import joined, union
from advisor.metrics.operations import Kind
from advisor.metrics.phases import uneven_share
from advisor.metrics.startup import work_span
from advisor.metrics.window import OutsideWork, outside_work
from advisor.metrics.workload import ran_on
from advisor.model.arrays import among, distinct
from advisor.model.facts import Value
from advisor.model.numbers import session_time
from advisor.sources.schema import MISSING, Call, base_name

_LOST = re.compile(r"(?i)\blost\b|\bdropp(?:ed|ing)\b|buffer.{0,500}(?:full|overflow)|overflowed")
#: Vague notices ("might have been") and losses of CPU samples say nothing about CUDA events.
_NOT_LOSS = re.compile(r"(?i)\bmight\b|cpu (?:ip|sampling|context)|backtrace|perf event")
#: The number of lost events in a message of the profiler.
_COUNT = re.compile(r"\d[\d,]*")

Sign = tuple[str, float]

_STEP_NAMES = Need("no range names a step", needs.STEP_RANGES, lambda a: a.damage.step_ranges > 0)
_IDLE = Need("the capture holds GPU work", None, lambda a: not len(a.ops))
_PROCESSOR = Need("nothing recorded says what ran the program")
_LAUNCHES = {"api_calls": needs.CALLS, "kernels": needs.JOIN, "graph_runs": needs.JOIN}
_DIAGNOSTICS = {"diagnostics": "text_id"}
_LOSSES = {"api_calls": needs.CALLS, "kernels": needs.JOIN, "diagnostics": "text_id"}
#: A row that fails a check of :mod:`advisor.metrics.integrity`, in words.
_WORDS = {
    "end before start": "end before they start",
    "times apart": "lie months from the others",
    "left out": "lie months from the others and are left out",
    "before its launch": "start before the call that issued them",
    "recorded twice": "are recorded twice",
    "without length": "last no time",
    "negative size": "have a negative size",
    "overlap on a stream": "overlap the one ahead on their stream",
    "overlap of replays": "overlap a graph launch on their stream",
    "after its wait": "end after a call has returned that waited for them",
    "issued by another kind of call": "carry the correlation id of a call that issues no such work",
    "overlap on a thread": "overlap the one ahead on their thread",
    "ids in no order": "carry a lower correlation id than the call ahead on their thread",
    "one launch for several": "share a launch call with another",
    "correlation id repeated": "carry the correlation id of another",
    "name without text": "have a name without text",
    "named like a call": "have the name of a call",
    "named like a kernel": "have the name of a kernel",
    "above 100 %": "show a share above 100 %",
}
_COUNTS = {
    "capture.end_before_start_count": ("end before start",),
    "capture.before_launch_count": ("before its launch",),
    "capture.stream_overlap_count": ("overlap on a stream", "overlap of replays"),
    "capture.outlasted_wait_count": ("after its wait",),
    "capture.misissued_count": ("issued by another kind of call",),
    "capture.call_overlap_count": ("overlap on a thread",),
    "capture.impossible_size_count": ("negative size", "without length"),
    "capture.repeated_row_count": ("recorded twice",),
    "capture.repeated_correlation_count": ("correlation id repeated", "one launch for several"),
    "capture.disordered_correlation_count": ("ids in no order",),
    "capture.far_time_count": ("times apart", "left out"),
    "capture.nameless_count": ("name without text", "named like a call", "named like a kernel"),
    "capture.overfull_sample_count": ("above 100 %",),
}
_NOUNS = {"api_calls": "API calls", "graph_runs": "graph runs", "host_calls": "OS calls",
          "ranges": "NVTX ranges", "overheads": "overhead rows"}  # fmt: skip

FACTS = (
    *group("trace", needs.CUDA, [
        Entry("capture.launch_without_kernel_ratio", "ratio", "api_calls", "Kernel-launch calls that succeeded (not graph launches) without a kernel row", "join by (process, correlation)", columns={"api_calls": needs.CALLS, "kernels": needs.JOIN}),
        Entry("capture.opaque_graph_ratio", "ratio", "api_calls", "Graph launches that were recorded as one block, or not at all because the capture was not asked for their nodes", "graph-launch calls without a row of the same (process, correlation) unless the recorded option or the rows of others say that nodes were traced; graph_runs rows count as opaque", columns=_LAUNCHES),
        Entry("capture.hidden_graph_ratio", "ratio", "", "Graph launches of which the capture holds neither the kernels nor the run as a whole", "graph-launch calls without a kernel and without a graph_runs row of the same (process, correlation)", columns=_LAUNCHES),
        Entry("capture.unseen_graph_ratio", "ratio", "", "Graph launches that left nothing, or the time of the devices in graph runs recorded as one block: of these no kernel is known", "the larger of capture.hidden_graph_ratio and the time of graph_runs / that of all operations", columns={**_LAUNCHES, **needs.OPS}),
        Entry("capture.damaged_ratio", "ratio", "", "Share of the capture in which events were lost", "stretches after a jump of the correlation ids, and step ranges without any call or GPU work", columns={"api_calls": "start end process correlation"}),
        Entry("capture.correlation_jump", "count", "api_calls", "Largest jump between correlation ids of consecutive calls of one process", "max difference beyond what the call density explains", columns={"api_calls": "start process correlation"}),
        Entry("capture.empty_step_ratio", "ratio", "ranges api_calls", "Step ranges that hold neither a CUDA call nor GPU work", "ranges without calls on their thread", columns={"ranges": needs.RANGES, "api_calls": "start thread"}, needs=(_STEP_NAMES,)),
        Entry("capture.lost_kernel_ratio", "ratio", "api_calls", "Kernels that are missing: successful kernel launches without a kernel and graph launches without a row where nodes were traced, and nodes that some replays left out, over these and the kernels recorded", "join by (process, correlation); a lost graph counts as many kernels as the others have in the mean; nodes of a graph are numbered without a gap; what was still queued where the capture ends is not lost", columns={"api_calls": f"{needs.CALLS} result", "kernels": needs.JOIN, "graph_runs": needs.JOIN}),
        Entry("capture.lost_call_ratio", "ratio", "api_calls", "Kernels without the call that launched them, among kernels that have it", "kernels between the first and the last of a process with a call of the same (process, correlation)", columns={"api_calls": "process correlation call", "kernels": needs.JOIN}),
        Entry("capture.left_out_ratio", "ratio", "", "Events that the capture leaves out all along: operators or CUDA calls that are missing by their numbers, matrix products of PyTorch without a call among others that launch, or kernels of which no two steps have the same number", "the largest of four. Of 50 operators, or 100 calls of ROCm: 1 - 1 / mean gap between numbers where fewer than 80 % follow the number ahead. Of 100 calls of CUDA: 1 - 15 / mean gap where the mean is 30 or more and the median 20. Gaps without the widest 2 %. Of 20 products: those without a call of their thread inside, unless in a row, where the mean gap of the calls is 18 or more. Of steps, or replays, of like size: variance over mean of the counts of each kernel, where nearly all kernels vary, each for itself", columns={"kernels": f"{needs.SPAN} {needs.JOIN} name_id", "ranges": "start end process thread domain text_id number", "api_calls": "start process thread correlation"}),
        Entry("capture.lost_event_count", "count", "", "Diagnostics that report lost or dropped events", "texts of the diagnostics table"),
        Entry("capture.uncounted_loss_count", "count", "", "Those of them that do not say how many events were lost", "texts of the diagnostics table"),
        Entry("capture.lost_row_ratio", "ratio", "", "Share of the rows that are lost: kernels without which launches stand, calls without which kernels stand, events that the tool counts as lost, or that are left out all along", "the largest of these shares", columns=_LOSSES),
        Entry("capture.lost_ratio", "ratio", "", "Share of the capture that is lost or cannot be true, of its time or of its rows", "the largest of capture.damaged_ratio, capture.lost_row_ratio and capture.invalid_row_ratio", columns=_LOSSES),
        Entry("capture.damage_signs", "text", "", "What shows that events were lost or cannot be true", "in words, with the numbers", columns=_LOSSES),
        Entry("capture.error_call_count", "count", "api_calls", "API calls whose return value is an error (not ready is none)", "returnValue outside success, not-ready", columns={"api_calls": "result"}),
        Entry("capture.error_launch_ratio", "ratio", "api_calls", "Share of the launches of kernels and graphs that returned an error, 0 without launches", "count", columns={"api_calls": "result call"}),
        Entry("capture.failed_ratio", "ratio", "api_calls", "How much of the program failed: all of it where an error ended it, else the launches that returned an error", "1 if capture.error_kind is crash or hardware, else capture.error_launch_ratio", columns={"api_calls": "result call"}),
        Entry("capture.error_kind", "text", "api_calls", "Kind of the most frequent error of calls, answer if all only say that something is so already or that the process ends, none without an error", "codes by knowledge/capture.yaml", columns={"api_calls": "result"}),
        Entry("capture.error_text", "text", "api_calls", "The call that returned it first, its code, name and meaning", "as capture.error_kind", columns={"api_calls": "result name_id"}, needs=(Need("no call returned an error"),)),
        Entry("capture.refusal", "text", "", "Why CUDA events are missing, as the tool says: no-permission, driver-version, not-started, events-dropped, none", "texts of the diagnostics table against knowledge/capture.yaml"),
        Entry("capture.ran_on", "text", "", "What ran the program of a capture without GPU work: cpu, gpu, accelerator", "operators that only one of them has (knowledge/workloads.yaml), where memory was allocated, GPUs that the profiler lists; calls of CUDA, where it was traced and no reason is given why events are missing", needs=(_IDLE, _PROCESSOR)),
        Entry("capture.ran_on_signs", "text", "", "The same as a sentence, with what shows it", "as capture.ran_on", needs=(_IDLE, _PROCESSOR)),
        Entry("capture.refusal_text", "text", "diagnostics", "The same in words, where the tool gives a reason", "as capture.refusal", needs=(Need("the tool reports no trouble with CUDA"),)),
    ], columns=_DIAGNOSTICS, windowed=False),
    *group("trace", needs.CUDA, [
        Entry("capture.invalid_row_ratio", "ratio", "", "Rows that cannot be true, as the largest share over the tables, or of the calls whose work they are", "rows that break at least one of the invariants below over the rows of their table, or calls with such work over those with any; 1 where more than 1 % of the times of a table lie months from the others or a table is a view, since everything rests on those; fewer such rows are left out"),
        Entry("capture.invalid_rows", "text", "", "What cannot be true in the capture, with counts", "in words, by check and table"),
        Entry("capture.end_before_start_count", "count", "", "Rows that end before they start", "end < start", columns={**needs.OPS, "api_calls": "start end", "ranges": "start end"}),
        Entry("capture.before_launch_count", "count", "", "GPU operations that start before the call that issued them", "more than 5 us before the start of the call of the same (process, correlation)", columns={**needs.OPS, "api_calls": needs.CALLS}),
        Entry("capture.stream_overlap_count", "count", "", "GPU operations that overlap the previous one on their stream, or whose graph launch does", "by more than 1 us; nodes of a graph count together, on several streams only against launches of that graph; copies of AMD are left out; of launches that allow it (LaunchKernelEx) those that also end before it", columns={**needs.OPS, "kernels": f"{needs.SPAN} {needs.JOIN} context stream graph_node"}),
        Entry("capture.outlasted_wait_count", "count", "", "GPU operations that end after a call has returned that waited for them", "more than 100 us after the first synchronisation with their device, context or stream that began when their call had returned; of processes with several devices only streams", columns={**needs.OPS, "api_calls": f"{needs.CALLS} end result"}),
        Entry("capture.misissued_count", "count", "", "GPU operations that carry the correlation id of a call that issues no such work", "kernels of calls that copy, fill, wait, free or record events, copies and fills alike; AMD copies and fills with kernels", columns={**needs.OPS, "api_calls": needs.CALLS}),
        Entry("capture.call_overlap_count", "count", "", "CUDA calls that begin inside the previous call of their thread and end after it", "by more than 1 us each", columns={"api_calls": "start end process thread"}),
        Entry("capture.impossible_size_count", "count", "", "Kernels and copies with a negative size, and kernels that last no time", "blocks, threads or bytes < 0; end = start where the stamps count 100 ns or less", columns={"kernels": "start end blocks threads", "copies": "bytes", "memsets": "bytes"}),
        Entry("capture.repeated_row_count", "count", "", "Rows that are in a table twice", "equal times, place, correlation and name", columns={**needs.OPS, "api_calls": f"{needs.CALLS} name_id"}),
        Entry("capture.repeated_correlation_count", "count", "", "Issuing calls that carry the correlation id of an earlier one, and kernels whose launch call has run another", "by (process, correlation); calls inside others and graph launches left out", columns={"api_calls": needs.CALLS, "kernels": needs.JOIN}),
        Entry("capture.disordered_correlation_count", "count", "", "CUDA calls that carry a lower correlation id than the call ahead on their thread, in a capture without the work of any", "ids are given in the order in which the calls of a thread begin", columns={"api_calls": "start end process thread correlation"}),
        Entry("capture.far_time_count", "count", "", "Rows that lie more than 30 days from the others", "start against the median start of the largest table", columns={**needs.OPS, "api_calls": "start", "ranges": "start"}),
        Entry("capture.nameless_count", "count", "", "Kernels and calls whose name is not in the table of strings, or is one of the other kind", "ids without a text; kernels with the name of a call, calls with ( or < in their name", columns={"kernels": "name_id", "api_calls": "name_id"}),
        Entry("capture.overfull_sample_count", "count", "", "Samples with a share of a peak above 105 %", "row count", columns={"samples": "gr_active sm_active dram_read dram_write"}),
        Entry("capture.view_count", "count", "", "Tables of the export that the file holds as views", "not read", columns={}),
    ], columns={**needs.GAPS, "ranges": "start end", "host_calls": "start end", "overheads": "start end", "samples": "gr_active"}, windowed=False),
    *group("trace", needs.CUDA, [
        Entry("capture.outside_work_ratio", "ratio", "", "Share of the GPU time outside start-up that lies outside the window", "union of the GPU operations of each device outside its window and start-up, over that and the busy time in the window; a first step counts where it keeps the GPU busy for more than twice as long as any other step"),
        Entry("capture.whole_work_window", "text", "", "The argument of --window that covers all GPU work but start-up, where some lies outside the window", "first to last of the window and of capture.outside_work_ratio", needs=(Need("all GPU work but start-up lies in the window"),)),
        Entry("capture.earlier_work_ratio", "ratio", "api_calls", "Share of the capture in which its first work was queued behind work from before the recording", "capture.earlier_work_ms over the time from the first call that issues work, or operation, to the last"),
        Entry("capture.earlier_work_ms", "ms", "api_calls", "How long the first work of the capture was queued behind work from before the recording", "from the end of the launch call to the start of the first operation of a stream, 5 ms or longer, where its device runs recorded work for at most 1 % of that time"),
        Entry("capture.window_chosen", "flag", "", "The user chose which part of the capture is analysed", "--window, --nvtx or --phase", columns={}),
        Entry("capture.window_work_count", "count", "", "GPU operations in the window", "rows of kernels, copies, memsets and graph_runs that overlap it", columns=needs.OPS, windowed=True),
        Entry("capture.window_busy_ms", "ms", "", "GPU busy time in the window, over all devices", "union of the GPU operations of each device", columns=needs.OPS, windowed=True),
        Entry("capture.window_busy_ratio", "ratio", "", "Share of the window in which a device is busy, as the mean of the devices", "capture.window_busy_ms over the windows of all devices", columns=needs.OPS, windowed=True),
        Entry("capture.steps_busy_ratio", "ratio", "", "The same where the window holds a whole step; 0 where it holds none", "capture.window_busy_ratio", columns=needs.OPS, windowed=True),
        Entry("capture.step_levels", "text", "", "What repeats inside a step, and how often: pieces of a graph, numbered ranges, a run of kernels", "graph launches and ranges that come equally often in four of five steps; the longest run of kernels that returns after an equal number in three of four returns and fills half of a step of the usual size", columns=needs.STEP_COLUMNS, needs=(needs.STEPS, Need("nothing repeats inside a step")), windowed=True),
    ], columns=needs.GAPS, windowed=False),
)  # fmt: skip


def damage_facts(a: Analysis, out: FactWriter, rows: int) -> None:
    """Losses of a capture with this many `rows` of events, and what shows them."""
    texts = a.trace.texts(a.trace.columns("diagnostics", ("text_id",))["text_id"].tolist())
    signs = [*_stretches(a, out), *_launches(a, out), *_left_out(a, out), *_reported(out, texts, rows)]
    invalid = str(out.base.value("capture.invalid_rows"))
    signs += [(text, 1.0) for text in invalid.split("; ") if text != "none"]
    shares = ("capture.damaged_ratio", "capture.lost_row_ratio", "capture.invalid_row_ratio")
    found = [r for r in capture_knowledge().refusals if any(re.search(r.pattern, t) for t in texts)]
    out |= {
        "capture.lost_ratio": max(out.value(name) or 0.0 for name in shares),
        "capture.damage_signs": "; ".join(text for text, _ in signs) or "none",
        "capture.refusal": found[0].id if found else "none",
        "capture.refusal_text": "; ".join(r.says for r in found) or None,
    }
    out.table("capture.damage", signs)
    if not found and out.base.value("capture.gpu_work_count") == 0:
        processor, shown_by = ran_on(a.trace, a.ranges)
        out |= {"capture.ran_on": processor, "capture.ran_on_signs": shown_by}


def _stretches(a: Analysis, out: FactWriter) -> list[Sign]:
    """Jumps of the correlation ids, and step ranges that lost their calls."""
    damage = a.damage
    if a.startup.capture_length:
        out.put("capture.damaged_ratio", min(damage.holes.total / a.startup.capture_length, 1.0))
    if a.trace.has("api_calls"):
        out.put("capture.correlation_jump", damage.jump)
        if damage.step_ranges:
            out.put("capture.empty_step_ratio", damage.empty_steps / damage.step_ranges)
    signs = (
        (damage.jump, f"correlation ids jump by {damage.jump:,}"),
        (damage.empty_steps, f"{damage.empty_steps} of {damage.step_ranges} step ranges hold no CUDA call"),
    )
    return [(text, float(number)) for number, text in signs if number]


def _launches(a: Analysis, out: FactWriter) -> list[Sign]:
    """Launches whose work is missing."""
    kernels, runs = a.trace.rows("kernels"), a.trace.rows("graph_runs")
    lasts = a.ops.end - a.ops.start
    blocks = float(lasts[a.ops.kind == Kind.GRAPH_RUN].sum() / max(int(lasts.sum()), 1))
    out.put("capture.unseen_graph_ratio", max(blocks, hidden_graph_ratio(a)))
    if not a.trace.has("api_calls") or not _linked(a):
        out.put("capture.opaque_graph_ratio", 1.0 if runs else None)
        out.put("capture.hidden_graph_ratio", 0.0 if runs else None)
        return []
    losses, recorded = a.losses, kernels + runs
    opaque = losses.opaque_graphs / max(losses.graph_launches, 1)
    out |= {
        "capture.launch_without_kernel_ratio": losses.lost_launches / max(losses.launches, 1),
        "capture.lost_kernel_ratio": losses.lost_kernels / max(recorded + losses.lost_kernels, 1),
        "capture.lost_call_ratio": losses.lost_calls / max(losses.kernels, 1),
        "capture.opaque_graph_ratio": 1.0 if runs else opaque,
        "capture.hidden_graph_ratio": hidden_graph_ratio(a),
    }
    none = "" if recorded else " and none is recorded"
    signs = (  # in numbers, never as a share that rounds to 0
        (losses.lost_launches, losses.launches, f"kernel launches left no kernel{none}"),
        (losses.lost_graphs, losses.graph_launches, "graph launches left no row"),
        (losses.lost_nodes, losses.nodes, "nodes of graph replays left no row"),
        (losses.lost_calls, losses.kernels, "kernels stand without their call"),
    )
    return [(f"{lost:,} of {of:,} {text}", float(lost)) for lost, of, text in signs if lost]


def hidden_graph_ratio(a: Analysis) -> float:
    """Share of the graph launches that left neither kernels nor a run as a whole; 0 if unknown."""
    hidden = a.losses.rowless_graphs / max(a.losses.graph_launches, 1)
    return hidden if hidden and a.trace.has("api_calls") and _linked(a) else 0.0


def _linked(a: Analysis) -> bool:
    """Whether both sides hold correlation ids; without them losses cannot be counted."""
    sides = [a.trace.columns(t, ("correlation",))["correlation"] for t in ("api_calls", "kernels")]
    return all(not len(side) or bool((side != MISSING).any()) for side in sides)


def _left_out(a: Analysis, out: FactWriter) -> list[Sign]:
    """The missing part of a trace that holds only some of its events."""
    found = a.thinned
    kernels = uneven_share(a.trace, a.ops, a.op_name, a.steps.op_step)
    out.put("capture.left_out_ratio", max(found.share, kernels))
    signs = (
        (found.operators, "operators are missing by their numbers"),
        (found.calls, "CUDA calls are missing by their numbers"),
        (found.products, "matrix products launch nothing"),
        (kernels, "kernels are missing: no two steps run the same"),
    )
    return [(f"{100 * share:.0f} % of the {text}", share) for share, text in signs if share]


def _reported(out: FactWriter, texts: list[str], rows: int) -> list[Sign]:
    """Losses reported by the profiler."""
    losses = [t for t in texts if _LOST.search(t) and not _NOT_LOSS.search(t)]
    counts = [int(found[0].replace(",", "")) for t in losses if (found := _COUNT.search(t))]
    out.put("capture.lost_event_count", len(losses))
    out.put("capture.uncounted_loss_count", len(losses) - len(counts))
    lost_share = sum(counts) / max(sum(counts) + rows, 1)
    names = ("lost_kernel", "lost_call", "left_out")
    lost = (out.value(f"capture.{name}_ratio") or 0.0 for name in names)
    out.put("capture.lost_row_ratio", max(lost_share, *lost))
    return [(f"the tool says: {t[:100]}", 1.0) for t in losses[:5]]


def error_facts(a: Analysis, out: FactWriter) -> None:
    """Calls that returned an error; the most frequent error that is more than an answer, the first of several."""
    if not a.trace.has("api_calls"):
        return
    calls = a.trace.columns("api_calls", ("result", "name_id", "start", "call"))
    bad, recorded = ~among(calls["result"], GOOD_RESULTS), bool((calls["result"] != MISSING).any())
    result, names, start = (calls[n][bad] for n in ("result", "name_id", "start"))
    failed = None
    if recorded:
        out.put("capture.error_call_count", len(result))
        launches = among(calls["call"], (Call.LAUNCH, Call.GRAPH_LAUNCH))
        failed = float(launches[bad].sum() / max(launches.sum(), 1))
        out.put("capture.error_launch_ratio", failed)
    if not len(result):
        out.put("capture.error_kind", "none" if recorded else None)
        out.put("capture.failed_ratio", failed)
        return
    known, codes = capture_knowledge().errors, result[:20].tolist()
    words = [known[code].name if code in known else None for code in codes]
    shown = zip(a.trace.texts(names[:20].tolist()), codes, start[:20] / 1e9, words, strict=True)
    out.table("capture.errors", list(shown))
    grave = np.flatnonzero(~among(result, [code for code, e in known.items() if e.kind == "answer"]))
    grave = grave if len(grave) else np.arange(len(result))
    _, first, count = np.unique(result[grave], return_index=True, return_counts=True)
    worst = grave[min(zip(-count, first, strict=True))[1]]
    code = int(result[worst])
    error = known.get(code)
    what = f"{code}, {error.name}: {error.says}" if error else f"{code}, which is not a known code"
    out.put("capture.error_kind", error.kind if error else "unknown")
    out.put("capture.failed_ratio", 1.0 if error and error.kind in ("crash", "hardware") else failed)
    out.put("capture.error_text", f"{base_name(a.trace.texts([int(names[worst])])[0])} returned {what}")


# --- rows that cannot be true ---------------------------------------------------------------------


def integrity_facts(a: Analysis, out: FactWriter) -> None:
    """Counts by invariant, and all of them in words; the trace's ledger takes note of them."""
    invalid = a.invalid
    causes = [f"{view} is a view, not a table" for view in invalid.views]
    rows = list[list[Value | None]]()
    for (check, table), count in invalid.counts.items():
        what, of = _NOUNS.get(table, table), a.trace.rows(table) + a.trace.left_out.get(table, 0)
        causes.append(f"{count:,} of {of:,} {what} {_WORDS[check]}")
        a.trace.ledger.note("doubted", _WORDS[check], table, count, of)
        rows.append([_WORDS[check], what, count, count / of])
    out |= {
        **{name: sum(map(invalid.of, checks)) for name, checks in _COUNTS.items()},
        "capture.view_count": len(invalid.views),
        "capture.invalid_row_ratio": invalid.worst_ratio,
        "capture.invalid_rows": "; ".join(causes) or "none",
    }
    out.table("capture.invalid", rows)


# --- how much GPU work the window holds, and how much lies outside it -----------------------------


def window_facts(a: Analysis, out: FactWriter) -> None:
    """Work inside and outside the windows of all devices; nothing where none was recorded."""
    if not len(a.ops):
        return
    chosen = a.selection
    if a.trace.has("api_calls"):
        earlier, (first, last) = a.earlier_work.total, work_span(a.trace, a.ops)
        out.put("capture.earlier_work_ratio", earlier / max(last - first, 1))
        out.put("capture.earlier_work_ms", earlier / 1e6)
    devices = [a.on(int(d)) for d in distinct(a.ops.device).tolist()]
    by_device = list(map(_outside, devices))
    length = sum(one.window.length for one in devices)
    inside, outside = sum(found.inside for found in by_device), sum(found.outside for found in by_device)
    out |= {
        "capture.window_work_count": sum(len(a.device_ops(d)) for d in a.devices),
        "capture.window_busy_ms": inside / 1e6,
        "capture.window_busy_ratio": inside / length if length else None,
        "capture.steps_busy_ratio": inside / length if length and a.step_count else 0.0,
        "capture.window_chosen": bool(chosen.window or chosen.nvtx or chosen.phase),
        "capture.outside_work_ratio": outside / (inside + outside) if inside + outside else 0.0,
        "capture.whole_work_window": _whole(a, by_device),
        "capture.step_levels": ", ".join(f"{n} {w}" for w, n in a.steps.levels) or None,
    }
    rows = list[list[Value | None]]()
    for place in by_device[0].places:
        spans = joined(*(found.places[place] for found in by_device))
        ns = sum(found.places[place].total for found in by_device)
        if len(spans):
            first, last = spans.start[0] / 1e9, spans.end[-1] / 1e9
            rows.append([place, ns / 1e6, ns / (inside + outside), first, last])
    out.table("capture.outside_work", rows)


def _outside(own: Analysis) -> OutsideWork:
    """Work of one device outside its window."""
    ops, mine = own.ops, own.ops.device == own.main_device
    launched = np.zeros(len(ops), bool)
    if own.trace.has("api_calls"):
        lo, hi = own.host_window
        begun = own.trace.columns("api_calls", ("start",))["start"][np.maximum(ops.api, 0)]
        launched = mine & (ops.api >= 0) & (begun >= lo) & (begun < hi)
    work, by_graph = (union(ops.start[at], ops.end[at]) for at in (mine, launched))
    return outside_work(work, by_graph, own.window, own.steps, own.startup)


def _whole(a: Analysis, by_device: list[OutsideWork]) -> str | None:
    """The argument of ``--window`` that includes all GPU work except start-up."""
    outside = joined(*(spans for found in by_device for spans in found.places.values()))
    if not len(outside):
        return None
    lo = min([int(outside.start[0]), *(a.on(d).window.start for d in a.devices)])
    hi = max([int(outside.end[-1]), *(a.on(d).window.end for d in a.devices)])
    return f"{session_time(lo // 1000 * 1000)}/{session_time(-(-hi // 1000) * 1000)}"
