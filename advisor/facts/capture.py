"""Facts about the capture itself: what it holds, what start-up took of it, what the profiler did to it."""

from __future__ import annotations

import re

import numpy as np

from advisor.facts import needs, profiled_sums
from advisor.facts.damage import damage_facts, error_facts, integrity_facts
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.knowledge.gpus import gpu_has
from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import PARTS
from advisor.metrics.host import capture_ranges
from advisor.metrics.intervals import Spans, subtract, union
from advisor.metrics.kernels import composition
from advisor.metrics.operations import Kind
from advisor.metrics.phases import EVEN_STEPS
from advisor.metrics.startup import KINDS
from advisor.metrics.window import warmup_steps
from advisor.metrics.workload import NO_KERNELS, TRAINING, UNKNOWN
from advisor.model.arrays import median_of
from advisor.model.numbers import percent
from advisor.sources.schema import OPERATIONS, Call

#: Least cost of tracing one eager call, measured over the labelled pairs (1.6 to 16 us).
TRACED_CALL_NS = 1_600
_EVENT_TABLES = (
    "kernels", "copies", "memsets", "graph_runs", "api_calls", "ranges", "samples",
    "allocations", "host_calls", "overheads",
)  # fmt: skip
_SECRET = re.compile(r"(?i)(token|secret|passw|passwd|api_?key|access_?key|credential|private_?key)")
_DEBUG = re.compile(r"(?:^|\s)-O0(?:\s|$)|CUDA_LAUNCH_BLOCKING=[1-9]|(?:^|/)debug/[^/\s]+(?:\s|$)")
_CLIENT = re.compile(
    r"(?:^|/|\s)(?:curl|wget|ab|wrk|hey|locust|genai-perf|benchmark_serving(?:\.py)?|aiperf)(?:\s|$)"
    r"|vllm bench serve|sglang\.benchmark\.serving|bench_serving\b"
)


_COMMAND = Need("the command line is not in the export")
_ENVIRONMENT = Need("the environment is not in the export")
_TWO_SAMPLES = Need("fewer than two samples are recorded", needs.SECONDS, lambda a: a.trace.rows("samples") > 1)  # fmt: skip
_WRITTEN = Need("the program marks no ranges of its own", needs.STEP_RANGES, lambda a: _written_ranges(a) > 0)
_WORK = Need("no kernels and no steps to infer it from", needs.CUDA, lambda a: a.workload != NO_KERNELS)
_KIND = Need("the kind of program is not known", None, lambda a: a.workload != UNKNOWN)
_CAPABILITY = Need("the capture does not record the compute capability of the GPU", None, lambda a: bool(_majors(a)))  # fmt: skip
_FEATURES = {
    "tensor_cores": "has tensor cores", "dependent_launch": "can begin a kernel while another drains",
    "wgmma": "has the matrix instructions of Hopper", "multicast": "can add up inside the NVLink switch",
    "tcgen05": "has the matrix instructions of data-center Blackwell",
    "cudnn_attention": "runs the attention of cuDNN",
    **{t: f"multiplies matrices in {t.upper()}" for t in ("bf16", "tf32", "int8", "fp8", "fp4")},
}  # fmt: skip
_GENERATION = Need("which GPU it is, is not recorded", None, lambda a: gpu_has("fp8", a.device(a.main_device)) is not None)  # fmt: skip
_BY_NSYS = Need("another tool than nsys recorded it", None, lambda a: a.trace_method is not None)
_SAMPLES = {"samples": "time device"}
_PROGRAM = {"kernels": "start end name_id", "ranges": "text_id"}

FACTS = (
    *group("trace", needs.CUDA, [
        Entry("capture.gpu_work_count", "count", "", "GPU operations and graph launches in the capture", "rows of kernels, copies, memsets, graph_runs, plus graph-launch calls", columns={**needs.OPS, "api_calls": "call"}),
        Entry("capture.kernel_count", "count", "", "Kernel rows", "row count", columns={"kernels": "start"}),
        Entry("capture.cuda_traced", "flag", "", "CUDA was among the traced sources (only where the export lists them)", "options of the capture", needs=(Need("the capture does not list what was traced"),)),
        Entry("capture.calls_recorded", "flag", "", "The capture holds CUDA calls", "rows of api_calls", columns={"api_calls": "start"}),
        Entry("capture.nsys_recorded", "flag", "", "nsys, or a tool that takes its options, recorded the capture", "format of the file"),
        Entry("capture.compute_capability", "count", "", "Major compute capability of the newest GPU that the capture lists", "properties of the devices", needs=(_CAPABILITY,)),
        *(Entry(f"gpu.{name}", "flag", "", f"The device that did most {can}", "compute capability, or the name, against knowledge/gpus.yaml", needs=(_GENERATION,)) for name, can in _FEATURES.items()),
        Entry("capture.platform", "text", "", "Where the program ran, if that limits what can be recorded", "kernel of the system, or a driver that only Windows has", needs=(Need("nothing says that CUDA runs in an unusual place"),)),
        Entry("capture.trace_method", "text", "", "How nsys traced CUDA: hardware, software, or not-told where the GPU and the release can do both", "the diagnostics; software where the options forbid hardware tracing, or the release or the GPU is too old for it", columns={"diagnostics": "text_id"}, needs=(_BY_NSYS,)),
        Entry("capture.graphs_launched", "flag", "api_calls", "CUDA graphs were launched", "capture.graph_launch_count above 0", columns={"api_calls": "call"}),
        Entry("capture.graph_launch_count", "count", "api_calls", "Graph-launch calls", "calls of class graph launch", columns={"api_calls": "call"}),
        Entry("capture.node_traced_count", "count", "kernels", "Kernels recorded as nodes of a graph", "kernels with a graph node id", columns={"kernels": "graph_node"}),
        Entry("capture.startup_ratio", "ratio", "", "Share of the capture that is start-up: its head, and cold calls after it", "from the first call to the steady part, and context creation, module loads, first launches and set-up of libraries wherever they stand", columns={**needs.OPS, "api_calls": needs.CALLS}),
        Entry("capture.startup_ms", "ms", "", "Length of start-up", "as capture.startup_ratio", columns={**needs.OPS, "api_calls": needs.CALLS}),
        Entry("capture.steady_ratio", "ratio", "", "Share of the capture that is left to analyse", "window without its cold idle time, over the time from start-up or the first launch to the last GPU operation and tear-down", columns=needs.GAPS),
        Entry("capture.teardown_ratio", "ratio", "", "Share of the capture in frees and unloads after the last GPU work", "calls after the last GPU operation", columns={**needs.OPS, "api_calls": needs.CALLS}),
        Entry("capture.unused_ratio", "ratio", "", "Share of the capture that is neither start-up nor analysed nor tear-down", "what the others leave: first steps, work outside the window", columns={**needs.OPS, "api_calls": needs.CALLS}),
        Entry("capture.rest", "text", "", "What the rest of the capture is, beside start-up and the steady part", "host code before the first GPU operation, tear-down, and what else lies outside the window, of half a percent and more", columns={**needs.OPS, "api_calls": needs.CALLS}, needs=(Need("start-up and the steady part are all that the capture holds"),)),
        Entry("capture.step_count", "count", "", "Steps in the window (0 where none was found that is certain)", "ranges, markers, periodic graph launches or the repeating kernel sequence", columns=needs.STEP_COLUMNS, windowed=True, over_ranks="median"),
        Entry("capture.step_method", "text", "", "How steps were found", "as capture.step_count", columns=needs.STEP_COLUMNS, needs=(needs.STEPS,), windowed=True),
        Entry("capture.step_confidence", "ratio", "", "Confidence that what was found are steps", "by method, raised where what comes once a pass confirms it; from 0.6 on steps are compared with each other", columns=needs.STEP_COLUMNS, needs=(needs.STEPS,), windowed=True),
        Entry("capture.size_bytes", "bytes", "", "Size of the file", "file system"),
        Entry("capture.event_count", "count", "", "Rows of the event tables", "row counts"),
        Entry("capture.nvtx_range_count", "count", "", "NVTX ranges and marks", "row count; 0 where the table is absent", columns={"ranges": "start"}),
        Entry("capture.nvtx_coverage_ratio", "ratio", "kernels api_calls ranges", "Kernel time launched from inside a step range or, where no steps are known, any range", "launch call inside a range of the same thread", columns=needs.STEP_COLUMNS, needs=(_WRITTEN, needs.KERNELS), windowed=True),
        Entry("capture.sample_count", "count", "", "GPU-metric samples", "row count; 0 where the table is absent", supply=needs.SAMPLES, columns=_SAMPLES),
        Entry("capture.sample_period_ns", "ns", "samples", "Sampling period of the GPU metrics", "median spacing of the samples of one device", columns=_SAMPLES, needs=(_TWO_SAMPLES,)),
        Entry("capture.sample_period_over_kernel", "ratio", "samples kernels", "Sampling period over the median kernel of the families that hold most time", "period / median duration in the dominant families", columns={"samples": "time device", "kernels": "start end name_id"}, needs=(_TWO_SAMPLES,)),
        Entry("capture.overhead_idle_ratio", "ratio", "kernels", "Share of the window that is device idle inside profiler overhead rows or inside the traced part of graph-launch calls", "budget part `profiler`, worst device", columns={**needs.GAPS, "overheads": "start end process"}, windowed=True),
        Entry("capture.traced_call_cost_ratio", "ratio", "api_calls", "Traced eager calls times the least measured cost per call (1.6 us), over the window", "calls in the window x 1.6 us / window", columns={"api_calls": "start call"}, windowed=True),
        Entry("capture.secret_name_count", "count", "", "Environment variables in the export whose names look like credentials", "names only", needs=(_ENVIRONMENT,)),
        Entry("capture.debug_build", "flag", "", "The command line shows a debug build or blocking launches", "command line: cargo run without --release, -O0, CUDA_LAUNCH_BLOCKING", needs=(_COMMAND,)),
        Entry("capture.client_command", "flag", "", "The captured command is a client of a server", "command line: curl, wget, benchmark clients", needs=(_COMMAND,)),
        Entry("capture.schema_known", "flag", "", "The export schema is one that was tested (2.9 to 3.30)", "version in the export's metadata", needs=(Need("the export does not record its schema version"),)),
        Entry("capture.range_count", "count", "", "Capture ranges in the file (profiler start/stop pairs)", "cudaProfilerStart and Stop calls", columns={"api_calls": "start call name_id"}),
        Entry("capture.gpu_busy_sampled_ratio", "ratio", "samples", "Sampled GR Active over the window", "mean of the samples; the only view into opaque graphs", columns={"samples": "time gr_active"}, needs=(_TWO_SAMPLES, needs.SAMPLED), windowed=True),
        Entry("capture.workload", "text", "", "What the capture holds: LLM serving, LLM decode, LLM prefill, training, diffusion inference, vision or encoder inference, recommendation inference, simulation or HPC loop, micro-benchmark, unknown, no GPU kernels", "evidence weighed by knowledge/workloads.yaml; the phases of the steps for a language model", columns=_PROGRAM),
        Entry("capture.is_inference", "flag", "kernels", "The capture holds inference of a model", "capture.workload", columns=_PROGRAM, needs=(_KIND,)),
    ], columns={}, windowed=False),
    *group("trace", needs.CUDA, [
        Entry("workload.kind", "text", "", "What the capture holds, as capture.workload; without a value where there are no kernels", "evidence weighed by knowledge/workloads.yaml", needs=(_WORK,)),
        Entry("workload.confidence", "ratio", "", "Confidence of the workload: 0 where it is unknown", "evidence, its margin over the next workload, and how many kinds of evidence agree", needs=(_WORK,)),
        Entry("workload.framework", "text", "", "What launched the kernels: pytorch (and engines built on it), jax, tensorflow, tensorrt, onnxruntime, cuda-c++", "names of kernels and ranges; without any sign of a framework, CUDA C++", needs=(_WORK,)),
        Entry("workload.is_language_model", "flag", "", "The capture holds inference of a language model", "workload.kind"),
        Entry("workload.is_training", "flag", "", "The capture holds training", "workload.kind"),
        Entry("workload.is_model", "flag", "", "The capture holds training or inference of a neural network", "workload.kind"),
        Entry("workload.is_pytorch", "flag", "", "PyTorch, or an engine built on it, launched the kernels", "workload.framework"),
    ], columns=_PROGRAM, needs=(_WORK, _KIND), windowed=False),
)  # fmt: skip


def _majors(a: Analysis) -> list[int]:
    return [d.compute_capability[0] for d in a.trace.devices if d.compute_capability]


def capture_facts(a: Analysis, out: FactWriter) -> None:
    trace, capture = a.trace, a.trace.capture
    out.put("capture.size_bytes", capture.size_bytes)
    if trace.summed:  # a missing table says nothing: it may not have been printed
        out |= profiled_sums.recorder_facts(a)
        _workload(a, out)
        return
    if capture.recorder.samples_only and not trace.has("samples"):
        return  # a server's log alone says nothing of the GPU
    _sampling(a, out)
    if capture.recorder.samples_only:
        # A sampler sees utilisation only; a missing kernel table says nothing about the GPU.
        out.put("capture.sample_count", trace.rows("samples"))
        return
    graph_launches = int((trace.columns("api_calls", ("call",))["call"] == Call.GRAPH_LAUNCH).sum())
    alone, rows = samples_alone(a), sum(trace.rows(t) for t in _EVENT_TABLES)
    out |= {
        "capture.gpu_work_count": None if alone else len(a.ops) + graph_launches,
        "capture.graph_launch_count": graph_launches if trace.has("api_calls") else None,
        "capture.graphs_launched": graph_launches > 0 if trace.has("api_calls") else None,
        "capture.kernel_count": None if alone else trace.rows("kernels"),
        "capture.cuda_traced": capture.cuda_traced,
        "capture.calls_recorded": trace.has("api_calls"),
        "capture.nsys_recorded": capture.recorder.nsys_options,
        "capture.platform": "the Windows Subsystem for Linux" if capture.under_wsl else None,
        "capture.compute_capability": max(_majors(a), default=None),
        **{f"gpu.{name}": gpu_has(name, a.device(a.main_device)) for name in _FEATURES},
        "capture.trace_method": a.trace_method,
        "capture.node_traced_count": int((a.ops.graph_node != 0).sum()) if trace.has("kernels") else None,
        "capture.startup_ms": a.startup.length / 1e6,
        "capture.event_count": rows,
        "capture.nvtx_range_count": _written_ranges(a),
        # No supported tool samples other GPUs, so their absence says nothing.
        "capture.sample_count": trace.rows("samples") or (0 if capture.vendor == "NVIDIA" else None),
        "capture.step_count": a.step_count if len(a.ops) or graph_launches else None,
        "capture.step_method": a.repeated.method if len(a.repeated) else None,
        "capture.step_confidence": a.repeated.confidence if len(a.repeated) else None,
        "capture.secret_name_count": sum(bool(_SECRET.search(n)) for n in capture.environment_names)
        if capture.environment_names or capture.recorder.nsys_options  # nsys records it, unless told not to
        else None,
        "capture.range_count": len(capture_ranges(trace)) + 1 if trace.has("api_calls") else None,
    }
    if a.startup.capture_length:
        startup_facts(a, a.startup.capture_length, out)
    if capture.command:
        command = " ".join(capture.command)
        cargo_debug = "cargo run" in command and not re.search(r"\s(-r|--release)\b", command)
        out.put("capture.debug_build", bool(cargo_debug or _DEBUG.search(command)))
        out.put("capture.client_command", bool(_CLIENT.search(command)))
    if capture.schema_version:
        version = tuple(int(p) for p in re.findall(r"\d+", capture.schema_version)[:2])
        out.put("capture.schema_known", len(version) == 2 and (2, 9) <= version <= (3, 30))
    _workload(a, out)
    if trace.has("api_calls"):
        eager = len(a.calls_of(Call.LAUNCH, Call.COPY, Call.MEMSET)) * TRACED_CALL_NS
        profiler = max((b.share("profiler") for b in a.budgets.values()), default=None)
        out.put("capture.traced_call_cost_ratio", eager / a.window.length if a.window.length else None)
        out.put("capture.overhead_idle_ratio", profiler)
    error_facts(a, out)
    integrity_facts(a, out)
    damage_facts(a, out, rows)
    _coverage(a, out)
    # In the words of `nsys profile --trace`.
    types = [t for t in capture.trace_sources if not t.startswith("COLLECT_")]
    sources = ",".join(dict.fromkeys(t.removesuffix("Events").lower() for t in types))
    out.table(
        "capture.options",
        [
            ["trace sources", sources or "unknown"],
            ["CUDA traced by", a.trace_method or "unknown"],
            ["CUDA graph trace", capture.graph_trace_mode or "unknown"],
            ["GPU metrics", f"{capture.sample_hz:.0f} Hz" if capture.sample_hz else "none"],
        ],
    )


def _workload(a: Analysis, out: FactWriter) -> None:
    kind = a.workload
    language_model, training = kind.startswith("LLM"), kind == TRAINING
    out.put("capture.workload", kind)
    if len(a.names.ids) and kind != UNKNOWN:
        out.put("capture.is_inference", language_model or "inference" in kind)
    if kind == NO_KERNELS:
        return
    out |= {
        "workload.kind": kind,
        "workload.confidence": a.program.confidence,
        "workload.framework": a.program.framework,
    }
    if kind == UNKNOWN and (not len(a.names.ids) or a.trace.summed):
        return  # opaque graphs or cut names, for one: advice for any program may fit
    out |= {
        "workload.is_language_model": language_model,
        "workload.is_training": training,
        "workload.is_model": a.program.is_model,
        "workload.is_pytorch": a.program.framework == "pytorch",
    }


def samples_alone(a: Analysis) -> bool:
    """GPU samples are all that the capture holds of the GPU, because CUDA was not traced: the absence of
    kernels then says nothing about the GPU."""
    trace = a.trace
    if not trace.has("samples") or len(a.ops) or trace.has("api_calls"):
        return False
    return trace.capture.cuda_traced is not True


def _written_ranges(a: Analysis) -> int:
    """Ranges written by people; ranges that a profiler puts around every operator mark no step."""
    return int((a.trace.columns("ranges", ("domain",))["domain"] != OPERATIONS).sum())


def _sampling(a: Analysis, out: FactWriter) -> None:
    if not a.trace.has("samples"):
        return
    columns = a.trace.columns("samples", ("time", "device", "gr_active"))
    first = columns["device"] == columns["device"][0]
    times = columns["time"][first]
    if len(times) < 2:
        return
    period = median_of(np.diff(times))
    out.put("capture.sample_period_ns", period)
    inside = (columns["time"] >= a.window.start) & (columns["time"] < a.window.end)
    active = columns["gr_active"][inside]
    if not np.isnan(active).all():
        out.put("capture.gpu_busy_sampled_ratio", float(np.nanmean(active)))
    if not a.trace.has("kernels"):
        return
    span = a.trace.columns("kernels", ("start", "end"))
    duration = span["end"] - span["start"]
    by_family = composition(a.names.families, a.names.index, duration)
    if not by_family:
        return
    reach = np.cumsum(list(by_family.values()))
    dominant = list(by_family)[: int(np.searchsorted(reach, 0.5 * reach[-1])) + 1]
    median = median_of(duration[a.names.mask(lambda k: k.family in dominant)[a.names.index]])
    out.put("capture.sample_period_over_kernel", period / median if median > 0 else None)


def _coverage(a: Analysis, out: FactWriter) -> None:
    """Kernel time launched from inside a step range, else inside any range."""
    if not (a.trace.has("ranges") and a.trace.has("kernels") and a.trace.has("api_calls")):
        return
    at = np.flatnonzero(a.in_window & (a.ops.kind == Kind.KERNEL))
    duration = a.ops.length[at]
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
        covered = (begun >= 0) & spans.holds(begun)
    if duration.sum() > 0:
        out.put("capture.nvtx_coverage_ratio", duration[covered].sum() / duration.sum())


# --- start-up -------------------------------------------------------------------------------------


#: Part of start-up -> its name, and what shortens it.
_WORDS = {
    "context": ("context creation", "driver persistence mode (nvidia-smi -pm 1), no device visible that is not used"),
    "modules": ("modules, first launches", "run every kernel once before the capture; "
                "CUDA_MODULE_LOADING=EAGER moves loads out of the first step"),
    "libraries": ("set-up of libraries", "create handles and workspaces before the first request"),
    "graphs": ("building of CUDA graphs", "capture graphs for the usual sizes before serving"),
    "ranges": ("warm-up, loading, compilation", "caches of compiled and tuned kernels that outlive the process"),
    "upload": ("upload of weights", "pinned memory, asynchronous copies, large pieces"),
    "allocation": ("allocations before work", "one pool instead of many allocations; pin only what is copied often"),
    "autotuning": ("autotuning", "keep the chosen kernels: a cache of tuned kernels on disk, fewer shapes"),
    "rest": ("host code between these", "see it with --sample=process-tree or ranges of its own"),
}  # fmt: skip

#: Start-up of a step in either half of the window is the same again if one takes this share of the other.
_ALIKE = 0.5
#: A part with less than this share of the capture is not named.
_REST_SHARE = 0.005

STARTUP_FACTS = (
    *group("trace", needs.CUDA, [
        Entry("startup.context_ratio", "ratio", "api_calls", "Share of the capture in which the context is created", "the first call of 10 ms or more before any GPU work"),
        Entry("startup.modules_ratio", "ratio", "api_calls", "Share of the capture in module loads and first launches of kernels", "calls from 100 us; first launches from ten times the median launch, or from 1 ms"),
        Entry("startup.libraries_ratio", "ratio", "api_calls", "Share of the capture in which libraries are set up", "frees and other calls from 1 ms before the first GPU work; allocations as well before the last first launch, all at most three a name once there is work"),
        Entry("startup.graphs_ratio", "ratio", "api_calls", "Share of the capture in which CUDA graphs are built", "graph instantiation calls, where graphs are then replayed"),
        Entry("startup.ranges_ratio", "ratio", "", "Share of the capture in ranges named warm-up, loading, autotuning or compilation", "names of knowledge/step_ranges.yaml"),
        Entry("startup.upload_ratio", "ratio", "", "Share of the capture in which weights are uploaded", "most of the uploaded bytes, before 1 % of the kernel time"),
        Entry("startup.autotuning_ratio", "ratio", "kernels", "Share of the capture in trials of kernels that no range names", "stretches of matrix products and convolutions that run several times in a row: 4 kernels and 12 runs at least, not seen again after half of the kernel time, unless that is done all along", columns={"kernels": "start end name_id correlation process", "api_calls": needs.CALLS}),
        Entry("startup.allocation_ratio", "ratio", "api_calls", "Share of the capture in allocations before the first GPU work", "allocation calls from 1 ms"),
        Entry("startup.warm", "flag", "", "The program was warm when the capture began", "start-up is at most two first launches or module loads", columns={**needs.OPS, "api_calls": needs.CALLS}),
        Entry("startup.late_ratio", "ratio", "", "How much of the start-up inside the window lies in the second half of its steps: it comes back", "start-up part of the budget by step, over the devices; 0 where a single step there has any, and none before it half as much or twice as much", needs=(Need("fewer than six steps, or no device waits for start-up inside them"),)),
        Entry("startup.in_window_ratio", "ratio", "", "Share of the window in which devices wait for start-up inside its steps", "mean over the devices of the start-up part of the budget"),
    ], columns={**needs.OPS, "api_calls": needs.CALLS}),
    *group("trace", needs.STEP_RANGES, [
        Entry("startup.warmup_step_count", "count", "", "First steps that are set aside as slower than the rest, though they do as much", "those before the window that take more than 1.3 times the median step and launch within 10 % of its operations"),
        Entry("startup.warmup_ratio", "ratio", "", "Share of the capture in these first steps", "as startup.warmup_step_count", needs=(Need("no first step is slower than the rest"),)),
    ], columns={**needs.STEP_COLUMNS, **needs.OPS}, needs=(needs.STEPS,)),
)  # fmt: skip


def startup_facts(a: Analysis, span: int, out: FactWriter) -> None:
    """Start-up, tear-down, the steady part and the rest; they add up to the capture."""
    found = a.startup
    cold = min(found.length / span, 1.0)
    idle = np.mean([b.ns["startup"] for b in a.budgets.values()]) if a.budgets else 0.0
    steady = min(max(a.window.length - float(idle), 0.0) / span, 1.0 - cold)
    teardown = min(found.teardown.total / span, 1.0 - cold - steady)
    out |= {
        "capture.startup_ratio": cold,
        "capture.steady_ratio": steady,
        "capture.teardown_ratio": teardown,
        "capture.unused_ratio": (unused := max(1.0 - cold - steady - teardown, 0.0)),
        "startup.warm": found.warm,
        "startup.in_window_ratio": float(idle) / a.window.length if a.window.length else None,
    }
    begun = max(int(a.ops.start.min()), found.end) if len(a.ops) else found.end
    early = Spans(np.array([found.end]), np.array([begun]))
    before = min(subtract(early, found.spans).total / span, unused)
    rest = (
        ("host code before the first GPU operation", before), ("tear-down", teardown),
        ("outside the window", unused - before),
    )  # fmt: skip
    out.put("capture.rest", ", ".join(f"{percent(n)} {what}" for what, n in rest if n >= _REST_SHARE) or None)
    if a.step_count >= EVEN_STEPS and idle:
        by_step = sum(b.by_step[a.window_steps, PARTS.index("startup")] for b in a.budgets.values())
        sooner, late = np.split(by_step, [a.step_count // 2])
        # A single slow first launch does not come back.
        again = np.count_nonzero(late) > 1 or min(sooner.max(), late.max()) >= _ALIKE * by_step.max()
        out.put("startup.late_ratio", late.sum() / by_step.sum() if again else 0.0)
    parts = {kind: found.parts[kind].total if kind in found.parts else 0 for kind in KINDS}
    out |= {f"startup.{kind}_ratio": length / span for kind, length in parts.items()}
    parts["rest"] = max(found.length - sum(parts.values()), 0)
    if len(a.steps):
        slow = warmup_steps(a.steps, found, a.ops)
        out.put("startup.warmup_step_count", len(slow))
        out.put("startup.warmup_ratio", float(slow.sum()) / span if len(slow) else None)
    longest = sorted(((ns, _WORDS[kind]) for kind, ns in parts.items() if ns), key=lambda p: -p[0])
    out.table("capture.startup_parts", [[word, ns / 1e6, ns / span, how] for ns, (word, how) in longest])
    events = sorted(found.events, key=lambda e: e.start - e.end)[:20]
    out.table("capture.startup_events", [[e.what, (e.end - e.start) / 1e6, e.start / 1e9] for e in events])
