"""Facts about the capture itself: what it holds, what it lost, what the profiler did to it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import union
from advisor.metrics.kernels import dense
from advisor.metrics.operations import Kind
from advisor.model.capture import Capture
from advisor.model.facts import TRACE
from advisor.sources.samplers.log import FORMATS as SAMPLE_LOGS
from advisor.sources.schema import MISSING, OPERATIONS, Call

Array = NDArray[Any]

#: Least cost of tracing one eager call, measured over the labelled pairs (1.6 to 16 us).
TRACED_CALL_NS = 1_600
_EVENT_TABLES = (
    "kernels", "copies", "memsets", "graph_runs", "api_calls", "ranges", "samples",
    "allocations", "host_calls", "overheads",
)  # fmt: skip
#: Launches that a stream takes before the next one blocks.
_QUEUE_DEPTH = 1024
#: cudaSuccess, cudaErrorNotReady
_GOOD_RESULTS = (0, 600, MISSING)
_LOST = re.compile(r"(?i)\blost\b|\bdropp(?:ed|ing)\b|buffer.*(?:full|overflow)|overflowed")
#: Notices that hedge ("might have been") and losses of CPU samples say nothing about CUDA events.
_NOT_LOSS = re.compile(r"(?i)\bmight\b|cpu (?:ip|sampling|context)|backtrace|perf event")
#: How many, where a message of loss says so.
_COUNT = re.compile(r"\d[\d,]*")
_SECRET = re.compile(
    r"(?i)(token|secret|passw|passwd|api_?key|access_?key|credential|private_?key)"
)
_DEBUG = re.compile(r"(?:^|\s)-O0(?:\s|$)|CUDA_LAUNCH_BLOCKING=[1-9]|(?:^|/)debug/[^/\s]+(?:\s|$)")
_CLIENT = re.compile(
    r"(?:^|/|\s)(?:curl|wget|ab|wrk|hey|locust|genai-perf|benchmark_serving(?:\.py)?|aiperf)(?:\s|$)"
    r"|vllm bench serve|sglang\.bench_serving|bench_serving\b"
)


def capture_facts(a: Analysis, out: FactWriter) -> None:
    trace, capture = a.trace, a.trace.capture
    if capture.format in SAMPLE_LOGS:
        # A sampler sees utilisation only: that it recorded no kernel says nothing about the GPU.
        out.put("capture.size_bytes", capture.size_bytes)
        out.put("capture.sample_count", trace.rows("samples"))
        _sampling(a, out)
        return
    graph_launches = _graph_launches(a)
    out.put_all({
        "capture.gpu_work_count": len(a.ops) + graph_launches,
        "capture.kernel_count": trace.rows("kernels"),
        "capture.cuda_traced": _cuda_traced(capture),
        "capture.stack_recorded": _stacks(capture),
        "capture.stack_option": "with_stack" if _stacks(capture) else None,
        "capture.node_traced_count": int((a.ops.graph_node != 0).sum())
        if trace.has("kernels") else None,
        "capture.startup_ms": a.startup.length / 1e6,
        "capture.size_bytes": capture.size_bytes,
        "capture.event_count": sum(trace.rows(t) for t in _EVENT_TABLES),
        "capture.nvtx_range_count": _written_ranges(a),
        # No tool that is read here samples other GPUs: that there are none says nothing then.
        "capture.sample_count":
            trace.rows("samples") or (0 if capture.vendor == "NVIDIA" else None),
        "capture.step_count": a.step_count if len(a.ops) or graph_launches else None,
        "capture.secret_name_count": sum(bool(_SECRET.search(n)) for n in
                                         capture.environment_names),
        "capture.range_count": len(a.pauses) + 1 if trace.has("api_calls") else None,
    })  # fmt: skip
    span = a.span[1] - a.span[0]
    if span > 0:
        out.put("capture.startup_ratio", min(a.startup.length / span, 1.0))
        out.put("capture.steady_ratio", min(a.window.length / span, 1.0))
    if capture.command:
        command = " ".join(capture.command)
        cargo_debug = "cargo run" in command and not re.search(r"\s(-r|--release)\b", command)
        out.put("capture.debug_build", bool(cargo_debug or _DEBUG.search(command)))
        out.put("capture.client_command", bool(_CLIENT.search(command)))
    if capture.schema_version:
        out.put("capture.schema_known", _known_schema(capture.schema_version))
    out.put("capture.workload", a.workload)
    if trace.has("kernels"):
        out.put("capture.is_inference", a.workload in ("LLM inference", "model inference"))
    _calls(a, out, graph_launches)
    _damage(a, out)
    _sampling(a, out)
    _coverage(a, out)
    longest = sorted(a.startup.events, key=lambda e: e[1] - e[2])
    out.table("capture.startup_events", TRACE, "What the start-up did",
              ("what", "length:ms", "at:s"),
              [[what, (end - start) / 1e6, start / 1e9] for what, start, end in longest],
    )  # fmt: skip
    out.table("capture.options", TRACE, "How it was recorded", ("option", "value"), [
        ["trace sources", _sources(capture.trace_sources) or "unknown"],
        ["CUDA graph trace", capture.graph_trace_mode or "unknown"],
        ["GPU metrics", f"{capture.sample_hz:.0f} Hz" if capture.sample_hz else "none"],
    ])  # fmt: skip


def _sources(recorded: tuple[str, ...]) -> str:
    """What was traced, in the words of `nsys profile --trace`."""
    types = [t for t in recorded if not t.startswith("COLLECT_")]
    return ",".join(dict.fromkeys(t.removesuffix("Events").lower() for t in types))


def _written_ranges(a: Analysis) -> int:
    """Ranges that somebody wrote; those that a profiler puts around every operator tell no step."""
    return int((a.trace.columns("ranges", ("domain",))["domain"] != OPERATIONS).sum())


def _known_schema(version: str) -> bool:
    parts = [int(p) for p in re.findall(r"\d+", version)[:2]]
    return len(parts) == 2 and (2, 9) <= (parts[0], parts[1]) <= (3, 30)


def _cuda_traced(capture: Capture) -> bool | None:
    """Whether CUDA was among the traced sources; None where the export does not list them."""
    types = {s.lower() for s in capture.trace_sources if not s.startswith("COLLECT_")}
    return "cuda" in types if types and capture.format.startswith("nsys") else None


def _stacks(capture: Capture) -> bool:
    """Whether the PyTorch profiler timed Python calls; other profilers sample stacks."""
    asked = capture.options.get("with_stack", "").lower() in ("1", "true")
    return asked or "python_function" in capture.trace_sources


def _graph_launches(a: Analysis) -> int:
    if not a.trace.has("api_calls"):
        return 0
    return int((a.trace.columns("api_calls", ("call",))["call"] == Call.GRAPH_LAUNCH).sum())


def _calls(a: Analysis, out: FactWriter, graph_launches: int) -> None:
    if not a.trace.has("api_calls"):
        if a.trace.has("graph_runs"):
            out.put("capture.opaque_graph_ratio", 1.0)
        return
    calls = a.trace.columns("api_calls", ("call", "result", "name_id", "start"))
    failed = ~np.isin(calls["result"], _GOOD_RESULTS)  # left nothing that could be lost
    launch = _due(a, (calls["call"] == Call.LAUNCH) & ~failed)
    graph = _due(a, calls["call"] == Call.GRAPH_LAUNCH)
    issued = np.zeros(len(calls["call"]), bool)
    kernel = (a.ops.kind == Kind.KERNEL) & (a.ops.api >= 0)
    issued[a.ops.api[kernel]] = True
    out.put("capture.graph_launch_count", graph_launches)
    lost = int((launch & ~issued).sum())
    out.put("capture.launch_without_kernel_ratio", lost / max(int(launch.sum()), 1))
    kernels = int((a.ops.kind == Kind.KERNEL).sum())
    out.put("capture.lost_kernel_ratio", lost / max(kernels + lost, 1))
    opaque = float((graph & ~issued).sum()) / float(graph.sum()) if graph.any() else 0.0
    out.put("capture.opaque_graph_ratio", 1.0 if a.trace.has("graph_runs") else opaque)
    bad = np.flatnonzero(failed)
    if (calls["result"] != MISSING).any():
        out.put("capture.error_call_count", len(bad))
    names = a.trace.texts(calls["name_id"][bad[:20]].tolist())
    out.table("capture.errors", TRACE, "Calls that returned an error", ("call", "code", "at:s"), [
        [name, int(calls["result"][i]), float(calls["start"][i] / 1e9)]
        for name, i in zip(names, bad[:20].tolist(), strict=True)
    ])  # fmt: skip
    eager = len(a.calls_of(Call.LAUNCH, Call.COPY, Call.MEMSET))
    if a.window.length:
        out.put("capture.traced_call_cost_ratio", eager * TRACED_CALL_NS / a.window.length)
    if a.budgets:
        out.put("capture.overhead_idle_ratio",
                max(b.share("profiler") for b in a.budgets.values()))  # fmt: skip


def _due(a: Analysis, wanted: Array) -> Array:
    """Of the wanted launch calls, those that must have left GPU work behind.

    Launches recorded into a graph run nothing by themselves, and what is still queued when the
    capture stops has not run yet: at most a full queue of calls after the last one that did.
    """
    calls = a.trace.columns("api_calls", ("start", "thread", "name_id"))
    due = wanted.copy()
    ids, index = dense(calls["name_id"])
    names = a.trace.texts(ids.tolist())
    edge = np.array(["StreamBeginCapture" in n for n in names], np.int64)
    edge -= np.array(["StreamEndCapture" in n for n in names], np.int64)
    if edge.any():
        for thread in np.unique(calls["thread"][edge[index] != 0]).tolist():
            mine = np.flatnonzero(calls["thread"] == thread)
            mine = mine[np.argsort(calls["start"][mine], kind="stable")]
            due[mine[np.cumsum(edge[index[mine]]) > 0]] = False
    ran = a.ops.api[a.ops.api >= 0]
    if len(ran):
        late = due & (calls["start"] > calls["start"][ran].max())
        if late.sum() <= _QUEUE_DEPTH:
            due &= ~late
    return due


def _damage(a: Analysis, out: FactWriter) -> None:
    damage, trace = a.damage, a.trace
    span = a.span[1] - a.span[0]
    signs: list[tuple[str, float]] = []
    if span > 0:
        out.put("capture.damaged_ratio", min(damage.holes.total / span, 1.0))
    if trace.has("api_calls"):
        out.put("capture.correlation_jump", damage.jump)
        if damage.jump:
            signs.append((f"correlation ids jump by {damage.jump:,}", float(damage.jump)))
        if damage.step_ranges:
            out.put("capture.empty_step_ratio", damage.empty_steps / damage.step_ranges)
    if damage.empty_steps:
        text = f"{damage.empty_steps} of {damage.step_ranges} step ranges hold no CUDA call"
        signs.append((text, float(damage.empty_steps)))
    if lost := out.value("capture.lost_kernel_ratio"):
        signs.append((f"{lost:.2%} of the kernels are missing: launches without one", lost))
    texts = trace.texts(trace.columns("diagnostics", ("text_id",))["text_id"].tolist())
    losses = [t for t in texts if _LOST.search(t) and not _NOT_LOSS.search(t)]
    counts = [int(found[0].replace(",", "")) for t in losses if (found := _COUNT.search(t))]
    rows = sum(trace.rows(t) for t in _EVENT_TABLES)
    out.put("capture.lost_event_count", len(losses))
    out.put("capture.uncounted_loss_count", len(losses) - len(counts))
    told = sum(counts) / max(sum(counts) + rows, 1)
    lost_rows = max(out.value("capture.lost_kernel_ratio") or 0.0, told)
    out.put("capture.lost_row_ratio", lost_rows)
    out.put("capture.lost_ratio", max(out.value("capture.damaged_ratio") or 0.0, lost_rows))
    signs += [(f"the tool says: {t[:100]}", 1.0) for t in losses[:5]]
    out.put("capture.damage_signs", "; ".join(text for text, _ in signs) or "none")
    out.table("capture.damage", TRACE, "Signs of lost events", ("sign", "value"),
              [list(sign) for sign in signs])  # fmt: skip


def _sampling(a: Analysis, out: FactWriter) -> None:
    if not a.trace.has("samples"):
        return
    columns = a.trace.columns("samples", ("time", "device", "gr_active"))
    first = columns["device"] == columns["device"][0]
    times = columns["time"][first]
    if len(times) < 2:
        return
    period = float(np.median(np.diff(times)))
    out.put("capture.sample_period_ns", period)
    inside = (columns["time"] >= a.window.start) & (columns["time"] < a.window.end)
    active = columns["gr_active"][inside]
    if not np.isnan(active).all():
        out.put("capture.gpu_busy_sampled_ratio", float(np.nanmean(active)))
    if not a.trace.has("kernels"):
        return
    span = a.trace.columns("kernels", ("start", "end"))
    duration = span["end"] - span["start"]
    by_family: dict[str, float] = {}
    time = np.bincount(a.names.index, duration, minlength=len(a.names.ids))
    for family, t in zip(a.names.families, time.tolist(), strict=True):
        by_family[family] = by_family.get(family, 0.0) + t
    ranked = sorted(by_family, key=lambda f: (-by_family[f], f))
    half, dominant = 0.0, []
    for family in ranked:
        dominant.append(family)
        half += by_family[family]
        if half >= 0.5 * sum(by_family.values()):
            break
    mine = a.names.mask(lambda k: k.family in dominant)[a.names.index]
    median = float(np.median(duration[mine]))
    if median > 0:
        out.put("capture.sample_period_over_kernel", period / median)


def _coverage(a: Analysis, out: FactWriter) -> None:
    """Kernel time launched from inside a step range, else inside any range."""
    if not (a.trace.has("ranges") and a.trace.has("kernels") and a.trace.has("api_calls")):
        return
    at = np.flatnonzero(a.in_window & (a.ops.kind == Kind.KERNEL))
    duration = (a.ops.end - a.ops.start)[at]
    if a.steps.method == "ranges":
        covered = a.steps.op_step[at] >= 0
    else:
        rows = a.ranges.rows(list(range(len(a.ranges.texts))))
        written = rows["domain"] != OPERATIONS
        if not written.any():
            return
        spans = union(rows["start"][written], rows["end"][written])
        start = a.trace.columns("api_calls", ("start",))["start"]
        begun = np.where(a.ops.api[at] >= 0, start[np.maximum(a.ops.api[at], 0)], -1)
        k = np.searchsorted(spans.start, begun, "right") - 1
        covered = (begun >= 0) & (k >= 0)
        if len(spans):
            covered &= begun < spans.end[np.maximum(k, 0)]
    if duration.sum() > 0:
        out.put(
            "capture.nvtx_coverage_ratio", float(duration[covered].sum()) / float(duration.sum())
        )
