"""Facts about the capture itself: what it holds, what start-up took of it, what the profiler did to it."""

from __future__ import annotations

import re

import numpy as np

from advisor.facts import limits, profiled_sums
from advisor.facts.damage import damage_facts, error_facts, integrity_facts
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.knowledge.gpus import gpu_has, gpu_links, gpu_of
from advisor.metrics import limits as metric_limits
from advisor.metrics.budgeted.budget import PARTS
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage, Spans, subtract, union
from advisor.metrics.loaded.host import capture_ranges, flushes
from advisor.metrics.loaded.kernels import composition
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.loaded.workload import NO_KERNELS, TRAINING, UNKNOWN, trace_method
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.recording import Recording
from advisor.metrics.stepped.stage import Stepped
from advisor.metrics.stepped.startup import KINDS
from advisor.metrics.stepped.window import warmup_steps
from advisor.model.arrays import median_of
from advisor.model.numbers import percent
from advisor.numerals import read_int
from advisor.sources.schema import OPERATIONS, Call

_EVENT_TABLES = (
    "kernels",
    "copies",
    "memsets",
    "graph_runs",
    "api_calls",
    "ranges",
    "samples",
    "allocations",
    "host_calls",
    "overheads",
)
_SECRET = re.compile(r"(?i)(token|secret|passw|passwd|api_?key|access_?key|credential|private_?key)")
_DEBUG = re.compile(r"(?:^|\s)-O0(?:\s|$)|CUDA_LAUNCH_BLOCKING=[1-9]|(?:^|/)debug/[^/\s]+(?:\s|$)")
_CLIENT = re.compile(
    r"(?:^|/|\s)(?:curl|wget|ab|wrk|hey|locust|genai-perf|benchmark_serving(?:\.py)?|aiperf)(?:\s|$)"
    r"|vllm bench serve|sglang\.benchmark\.serving|bench_serving\b"
)


_FEATURES = {
    "tensor_cores": "has tensor cores",
    "dependent_launch": "can begin a kernel while another drains",
    "wgmma": "has the matrix instructions of Hopper",
    "multicast": "can add up inside the NVLink switch",
    "tcgen05": "has the matrix instructions of data-center Blackwell",
    "cudnn_attention": "runs the attention of cuDNN",
    **{t: f"multiplies matrices in {t.upper()}" for t in ("bf16", "tf32", "int8", "fp8", "fp4")},
}


@predicate
def two_samples(a: Loaded) -> bool:
    return a.trace.rows("samples") > 1


@predicate
def own_ranges(a: Loaded) -> bool:
    return _written_ranges(a) > 0


@predicate
def workload(a: Stepped) -> bool:
    return a.workload != NO_KERNELS


@predicate
def kind_of_program(a: Stepped) -> bool:
    return a.workload != UNKNOWN


@predicate
def capabilities(a: Loaded) -> bool:
    return bool(_majors(a))


@predicate
def known_gpu(a: Recording) -> bool:
    return gpu_has("fp8", a.device(a.main_device)) is not None


@predicate
def recorded_by_nsys(a: Loaded) -> bool:
    return trace_method(a.trace) is not None


def _majors(a: Loaded) -> list[int]:
    return [d.compute_capability[0] for d in a.trace.devices if d.compute_capability]


def capture_facts(a: Profiled, out: FactWriter) -> None:
    trace, capture = a.trace, a.trace.capture
    out.put("capture.size_bytes", capture.size_bytes)
    if trace.summed:  # a missing table says nothing: it may not have been printed
        out |= profiled_sums.recorder_facts(a)
        _workload(a, out)
        return
    if capture.recorder.samples_only and not trace.has("samples"):
        return  # a server's log alone says nothing about the GPU
    _sampling(a, out)
    if capture.recorder.samples_only:
        # A sampler sees utilisation only; a missing kernel table says nothing about the GPU.
        out.put("capture.sample_count", trace.rows("samples"))
        return
    rows = sum(trace.rows(t) for t in _EVENT_TABLES)
    _recorded(a, rows, out)
    if a.startup.capture_length:
        startup_facts(a, a.startup.capture_length, out)
    if capture.command:
        _command(" ".join(capture.command), out)
    if capture.schema_version:
        version = tuple(read_int(p) or 0 for p in re.findall(r"\d+", capture.schema_version)[:2])
        out.put("capture.schema_known", len(version) == 2 and (2, 9) <= version <= (3, 30))
    _workload(a, out)
    if trace.has("api_calls"):
        _cost_of_tracing(a, out)
    error_facts(a, out)
    integrity_facts(a, out)
    damage_facts(a, out, rows)
    _coverage(a, out)
    _options(a, out)


def _recorded(a: Stepped, rows: int, out: FactWriter) -> None:
    """How much of what was recorded (`rows` in all), of which device, and how."""
    trace, capture, alone = a.trace, a.trace.capture, samples_alone(a)
    graph_launches = int((trace.columns("api_calls", ("call",))["call"] == Call.GRAPH_LAUNCH).sum())
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
        "gpu.links": gpu_links(a.device(a.main_device)),
        "gpu.model": about.name if (about := gpu_of(a.device(a.main_device))) else None,
        "capture.trace_method": trace_method(a.trace),
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


def _cost_of_tracing(a: Budgeted, out: FactWriter) -> None:
    eager = len(a.calls_of(Call.LAUNCH, Call.COPY, Call.MEMSET)) * limits.TRACED_CALL_NS
    profiler = max((b.share("profiler") for b in a.budgets.values()), default=None)
    out.put("capture.traced_call_cost_ratio", eager / a.window.length if a.window.length else None)
    out.put("capture.overhead_idle_ratio", profiler)
    out.put("capture.blocking_launch_ratio", _blocking(a))
    out |= {"capture.stacked_launch_ratio": (stacked := _stacked(a)), "capture.stacks_ratio": stacked or None}
    budget = a.budgets.get(a.main_device)
    if budget is None or not a.trace.has("overheads"):
        return
    found = budget.window.cut(flushes(a.trace))
    idle = int(Coverage(Spans(budget.gaps.start, budget.gaps.end)).within(found.start, found.end).sum())
    if idle and a.window.length:
        out |= {
            "capture.flush_count": len(found),
            "capture.flush_ms": median_of(found.end - found.start) / 1e6,
            "capture.flush_idle_ratio": min(idle / a.window.length, 1.0),
        }


def _stacked(a: Stepped) -> float:
    """Share of the launch calls in the window for which a call stack was recorded."""
    chain = a.trace.columns("api_calls", ("callchain",))["callchain"][a.calls_of(Call.LAUNCH)]
    return float((chain >= 0).mean()) if len(chain) else 0.0


def _blocking(a: Loaded) -> float | None:
    """Share of the kernels launched one by one whose launch call returns only after they have ended."""
    ops, calls = a.ops, a.trace.columns("api_calls", ("end", "call"))
    kernels = np.flatnonzero((ops.kind == Kind.KERNEL) & (ops.api >= 0))
    kernels = kernels[calls["call"][ops.api[kernels]] == Call.LAUNCH]
    return (calls["end"][ops.api[kernels]] >= ops.end[kernels]).mean() if len(kernels) else None


def _command(command: str, out: FactWriter) -> None:
    """What the traced command is: a build for debugging, a client of a server."""
    cargo_debug = "cargo run" in command and not re.search(r"\s(-r|--release)\b", command)
    out.put("capture.debug_build", bool(cargo_debug or _DEBUG.search(command)))
    out.put("capture.client_command", bool(_CLIENT.search(command)))


def _options(a: Loaded, out: FactWriter) -> None:
    """The table of what was recorded, in the words of `nsys profile --trace`."""
    capture = a.trace.capture
    types = [t for t in capture.trace_sources if not t.startswith("COLLECT_")]
    sources = ",".join(dict.fromkeys(t.removesuffix("Events").lower() for t in types))
    out.table(
        "capture.options",
        [
            ["trace sources", sources or "unknown"],
            ["CUDA traced by", trace_method(a.trace) or "unknown"],
            ["CUDA graph trace", capture.graph_trace_mode or "unknown"],
            ["GPU metrics", f"{capture.sample_hz:.0f} Hz" if capture.sample_hz else "none"],
        ],
    )


def _workload(a: Stepped, out: FactWriter) -> None:
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


def samples_alone(a: Loaded) -> bool:
    """GPU samples are all that the capture holds of the GPU, because CUDA was not traced: the absence of
    kernels then says nothing about the GPU."""
    trace = a.trace
    if not trace.has("samples") or len(a.ops) or trace.has("api_calls"):
        return False
    return trace.capture.cuda_traced is not True


def _written_ranges(a: Loaded) -> int:
    """Ranges written by people; ranges that a profiler puts around every operator mark no step."""
    return int((a.trace.columns("ranges", ("domain",))["domain"] != OPERATIONS).sum())


def _sampling(a: Stepped, out: FactWriter) -> None:
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


def _coverage(a: Stepped, out: FactWriter) -> None:
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
        covered = a.ops.api[at] >= 0
        covered[covered] = spans.holds(start[a.ops.api[at][covered]])
    if duration.sum() > 0:
        out.put("capture.nvtx_coverage_ratio", duration[covered].sum() / duration.sum())


# --- start-up -------------------------------------------------------------------------------------


#: Part of start-up -> its name, and what shortens it.
_WORDS = {
    "context": (
        "context creation",
        "driver persistence mode (nvidia-smi -pm 1), no device visible that is not used",
    ),
    "modules": (
        "modules, first launches",
        "run every kernel once before the capture; "
        "CUDA_MODULE_LOADING=EAGER moves loads out of the first step",
    ),
    "libraries": ("set-up of libraries", "create handles and workspaces before the first request"),
    "graphs": ("building of CUDA graphs", "capture graphs for the usual sizes before serving"),
    "ranges": (
        "warm-up, loading, compilation",
        "caches of compiled and tuned kernels that outlive the process",
    ),
    "upload": ("upload of weights", "pinned memory, asynchronous copies, large pieces"),
    "allocation": (
        "allocations before work",
        "one pool instead of many allocations; pin only what is copied often",
    ),
    "autotuning": ("autotuning", "keep the chosen kernels: a cache of tuned kernels on disk, fewer shapes"),
    "rest": ("host code between these", "see it with --sample=process-tree or ranges of its own"),
}


def startup_facts(a: Budgeted, span: int, out: FactWriter) -> None:
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
        ("host code before the first GPU operation", before),
        ("tear-down", teardown),
        ("outside the window", unused - before),
    )
    out.put(
        "capture.rest",
        ", ".join(f"{percent(n)} {what}" for what, n in rest if n >= limits.NAMED_REST_RATIO) or None,
    )
    if a.step_count >= metric_limits.kernels.EVEN_STEPS and idle:
        by_step = sum(b.by_step[a.window_steps, PARTS.index("startup")] for b in a.budgets.values())
        sooner, late = np.split(by_step, [a.step_count // 2])
        # A single slow first launch does not come back.
        again = (
            np.count_nonzero(late) > 1
            or min(sooner.max(), late.max()) >= limits.SAME_STARTUP_RATIO * by_step.max()
        )
        out.put("startup.late_ratio", late.sum() / by_step.sum() if again else 0.0)
    parts = {kind: found.parts[kind].total if kind in found.parts else 0 for kind in KINDS}
    out |= {f"startup.{kind}_ratio": min(length / span, 1.0) for kind, length in parts.items()}
    parts["rest"] = max(found.length - sum(parts.values()), 0)
    if len(a.steps):
        slow = warmup_steps(a.steps, found, a.ops)
        out.put("startup.warmup_step_count", len(slow))
        out.put("startup.warmup_ratio", float(slow.sum()) / span if len(slow) else None)
    longest = sorted(((ns, _WORDS[kind]) for kind, ns in parts.items() if ns), key=lambda p: -p[0])
    out.table("capture.startup_parts", [[word, ns / 1e6, ns / span, how] for ns, (word, how) in longest])
    events = sorted(found.events, key=lambda e: e.start - e.end)[:20]
    out.table("capture.startup_events", [[e.what, (e.end - e.start) / 1e6, e.start / 1e9] for e in events])
