"""The catalogue of facts: the single source for rule checking and for ``advisor facts``.

A fact without a value is missing, never zero. Definitions: docs/definitions.md.
"""

from __future__ import annotations

from advisor.facts.parts import PART_MEANINGS
from advisor.facts.spec import EntitySpec, FactSpec
from advisor.model.facts import Level, Unit

CUDA = "--trace=cuda,nvtx"
SAMPLES = "--gpu-metrics-devices=all"
NVTX = "--trace=cuda,nvtx"
GIL = "--trace=cuda,nvtx,python-gil"
MEMORY = "--cuda-memory-usage=true"
FAULTS = "--cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true"
OSRT = "--trace=cuda,nvtx,osrt"

_Row = tuple[str, Unit, str, str, str]  # name, unit, tables, meaning, how


def _group(level: Level, flag: str, rows: list[_Row]) -> list[FactSpec]:
    out = []
    for name, unit, tables, meaning, how in rows:
        adds = "ratio"
        if name.endswith(("_p50_ns", "_p99_ns", "_median_ms", "_p99_ms")):
            adds = "sketch"
        elif name.endswith(("_max_ns", "_max_ms", "_watermark_ratio")) or unit in ("flag", "text"):
            adds = "max"
        elif unit in ("count", "bytes", "ms", "ns"):
            adds = "sum"
        out.append(
            FactSpec(name, unit, level, meaning, tuple(tables.split()), how, adds, flag)  # type: ignore[arg-type]
        )
    return out


#: What the impact of a rule may be a share of: a part of the budget, several of them, or a whole.
IMPACT_PARTS = (*PART_MEANINGS, "idle", "step", "steps", "capture")

_CAPTURE = _group("trace", CUDA, [
    ("capture.gpu_work_count", "count", "", "GPU operations and graph launches in the capture", "rows of kernels, copies, memsets, graph_runs, plus graph-launch calls"),
    ("capture.kernel_count", "count", "", "Kernel rows", "row count"),
    ("capture.cuda_traced", "flag", "", "CUDA was among the traced sources (only where the export tells them)", "options of the capture"),
    ("capture.launch_without_kernel_ratio", "ratio", "api_calls", "Kernel-launch calls that succeeded (not graph launches) without a kernel row", "join by (process, correlation)"),
    ("capture.graph_launch_count", "count", "api_calls", "Graph-launch calls", "calls of class graph launch"),
    ("capture.opaque_graph_ratio", "ratio", "api_calls", "Graph launches that were recorded as one block, or not at all because the capture was not asked for their nodes", "graph-launch calls without a row of the same (process, correlation) unless the recorded option or the rows of others say that nodes were traced; graph_runs rows count as opaque"),
    ("capture.hidden_graph_ratio", "ratio", "", "Graph launches of which the capture holds neither the kernels nor the run as a whole", "graph-launch calls without a kernel and without a graph_runs row of the same (process, correlation)"),
    ("capture.node_traced_count", "count", "kernels", "Kernels recorded as nodes of a graph", "kernels with a graph node id"),
    ("capture.startup_ratio", "ratio", "", "Share of the capture that is start-up: its head, and cold calls after it", "from the first call to the steady part, and context creation, module loads, first launches and set-up of libraries wherever they stand"),
    ("capture.startup_ms", "ms", "", "Length of start-up", "as capture.startup_ratio"),
    ("capture.steady_ratio", "ratio", "", "Share of the capture that is left to analyse", "window without its cold idle time, over first-to-last activity"),
    ("capture.teardown_ratio", "ratio", "", "Share of the capture in frees and unloads after the last GPU work", "calls after the last GPU operation"),
    ("capture.unused_ratio", "ratio", "", "Share of the capture that is neither start-up nor analysed nor tear-down", "what the others leave: first steps, work outside the window"),
    ("startup.context_ratio", "ratio", "api_calls", "Share of the capture in which the context is created", "the first call of 10 ms or more before any GPU work"),
    ("startup.modules_ratio", "ratio", "api_calls", "Share of the capture in module loads and first launches of kernels", "calls from 100 us; first launches from ten times the median launch"),
    ("startup.libraries_ratio", "ratio", "api_calls", "Share of the capture in which libraries are set up", "allocations, frees and other calls from 1 ms before the last first launch, at most three a name"),
    ("startup.graphs_ratio", "ratio", "api_calls", "Share of the capture in which CUDA graphs are built", "graph instantiation calls, where graphs are then replayed"),
    ("startup.ranges_ratio", "ratio", "", "Share of the capture in ranges named warm-up, loading, autotuning or compilation", "names of knowledge/step_ranges.yaml"),
    ("startup.upload_ratio", "ratio", "", "Share of the capture in which weights are uploaded", "most of the uploaded bytes, before 1 % of the kernel time"),
    ("startup.allocation_ratio", "ratio", "api_calls", "Share of the capture in allocations before the first GPU work", "allocation calls from 1 ms"),
    ("capture.step_count", "count", "", "Steps in the window (0 where no step structure was found)", "ranges, markers, periodic graph launches or the repeating kernel sequence"),
    ("capture.step_method", "text", "", "How steps were found", "as capture.step_count"),
    ("capture.step_confidence", "ratio", "", "How sure it is that what was found are steps", "by method, raised where what comes once a pass confirms it; from 0.6 on steps are compared with each other"),
    ("capture.size_bytes", "bytes", "", "Size of the file", "file system"),
    ("capture.event_count", "count", "", "Rows of the event tables", "row counts"),
    ("capture.nvtx_range_count", "count", "", "NVTX ranges and marks", "row count; 0 where the table is absent"),
    ("capture.nvtx_coverage_ratio", "ratio", "kernels api_calls ranges", "Kernel time launched from inside a step range or, where no steps are known, any range", "launch call inside a range of the same thread"),
    ("capture.sample_count", "count", "", "GPU-metric samples", "row count; 0 where the table is absent"),
    ("capture.sample_period_ns", "ns", "samples", "Sampling period of the GPU metrics", "median spacing of the samples of one device"),
    ("capture.sample_period_over_kernel", "ratio", "samples kernels", "Sampling period over the median kernel of the families that hold most time", "period / median duration in the dominant families"),
    ("capture.overhead_idle_ratio", "ratio", "kernels", "Share of the window that is device idle inside profiler overhead rows or inside the traced part of graph-launch calls", "budget part `profiler`, worst device"),
    ("capture.stack_recorded", "flag", "", "The profiler timed every Python call", "with_stack of the PyTorch profiler, or rows of Python functions"),
    ("capture.stack_option", "text", "", "The option that makes it do so, where it was on", "options of the capture"),
    ("capture.traced_call_cost_ratio", "ratio", "api_calls", "Traced eager calls times the least measured cost per call (1.6 us), over the window", "calls in the window x 1.6 us / window"),
    ("capture.damaged_ratio", "ratio", "", "Share of the capture in which events were lost", "stretches after a jump of the correlation ids, and step ranges without any call or GPU work"),
    ("capture.correlation_jump", "count", "api_calls", "Largest jump between correlation ids of consecutive calls of one process", "max difference beyond what the call density explains"),
    ("capture.empty_step_ratio", "ratio", "ranges api_calls", "Step ranges that hold neither a CUDA call nor GPU work", "ranges without calls on their thread"),
    ("capture.lost_kernel_ratio", "ratio", "api_calls", "Kernels that are missing: successful kernel launches without a kernel and graph launches without a row where nodes were traced, over these and the kernels recorded", "join by (process, correlation); a lost graph counts as many kernels as the others have in the mean; what was still queued where the capture ends is not lost"),
    ("capture.lost_event_count", "count", "", "Diagnostics that report lost or dropped events", "texts of the diagnostics table"),
    ("capture.uncounted_loss_count", "count", "", "Those of them that do not say how many events were lost", "texts of the diagnostics table"),
    ("capture.lost_row_ratio", "ratio", "", "Share of the rows that are lost: kernels without which launches stand, or events that the tool counts as lost", "the larger of the two shares"),
    ("capture.lost_ratio", "ratio", "", "Share of the capture that is lost or cannot be true, of its time or of its rows", "the largest of capture.damaged_ratio, capture.lost_row_ratio and capture.invalid_row_ratio"),
    ("capture.damage_signs", "text", "", "What shows that events were lost or cannot be true", "in words, with the numbers"),
    ("capture.invalid_row_ratio", "ratio", "", "Rows that cannot be true, as the largest share over the tables", "rows that break at least one of the invariants below over the rows of their table; 1 where a time lies months from the others or a table is a view, since everything rests on those"),
    ("capture.invalid_rows", "text", "", "What cannot be true in the capture, with counts", "in words, by check and table"),
    ("capture.end_before_start_count", "count", "", "Rows that end before they start", "end < start"),
    ("capture.before_launch_count", "count", "", "GPU operations that start before the call that issued them", "more than 5 us before the start of the call of the same (process, correlation)"),
    ("capture.stream_overlap_count", "count", "", "Kernels that overlap the previous kernel on their stream", "by more than 1 us; graph nodes left out; of launches that allow it (LaunchKernelEx) those that also end before it"),
    ("capture.repeated_row_count", "count", "", "Rows that are in a table twice", "equal times, place, correlation and name"),
    ("capture.repeated_correlation_count", "count", "", "Issuing calls that carry the correlation id of an earlier one, and kernels whose launch call has run another", "by (process, correlation); calls inside others and graph launches left out"),
    ("capture.far_time_count", "count", "", "Rows that lie more than 30 days from the others", "start against the median start of the largest table"),
    ("capture.nameless_count", "count", "", "Kernels and calls whose name is not in the table of strings", "ids without a text"),
    ("capture.overfull_sample_count", "count", "", "Samples with a share of a peak above 105 %", "row count"),
    ("capture.view_count", "count", "", "Tables of the export that the file holds as views", "not read"),
    ("capture.refusal", "text", "", "Why CUDA events are missing, as the tool says: no-permission, driver-version, not-started, events-dropped, none", "texts of the diagnostics table against knowledge/capture.yaml"),
    ("capture.refusal_text", "text", "diagnostics", "The same in words, where the tool gives a reason", "as capture.refusal"),
    ("capture.error_call_count", "count", "api_calls", "API calls whose return value is an error (not ready is none)", "returnValue outside success, not-ready"),
    ("capture.secret_name_count", "count", "", "Environment variables in the export whose names look like credentials", "names only"),
    ("capture.debug_build", "flag", "", "The command line shows a debug build or blocking launches", "command line: cargo run without --release, -O0, CUDA_LAUNCH_BLOCKING"),
    ("capture.client_command", "flag", "", "The captured command is a client of a server", "command line: curl, wget, benchmark clients"),
    ("capture.schema_known", "flag", "", "The export schema is one that was tested (2.9 to 3.30)", "version in the export's metadata"),
    ("capture.range_count", "count", "", "Capture ranges in the file (profiler start/stop pairs)", "cudaProfilerStart and Stop calls"),
    ("capture.gpu_busy_sampled_ratio", "ratio", "samples", "Sampled GR Active over the window", "mean of the samples; the only view into opaque graphs"),
    ("capture.workload", "text", "", "What the capture holds: LLM serving, LLM decode, LLM prefill, training, diffusion inference, vision or encoder inference, recommendation inference, simulation or HPC loop, micro-benchmark, unknown, no GPU kernels", "evidence weighed by knowledge/workloads.yaml; the phases of the steps for a language model"),
    ("capture.is_inference", "flag", "kernels", "The capture holds inference of a model", "capture.workload"),
    ("workload.kind", "text", "", "What the capture holds, as capture.workload; without a value where there are no kernels", "evidence weighed by knowledge/workloads.yaml"),
    ("workload.confidence", "ratio", "", "How sure the workload is: 0 where it is unknown", "evidence, its margin over the next workload, and how many kinds of evidence agree"),
    ("workload.framework", "text", "", "What launched the kernels: pytorch (and engines built on it), jax, tensorflow, tensorrt, onnxruntime, cuda-c++", "names of kernels and ranges; without any sign of a framework, CUDA C++"),
    ("workload.is_language_model", "flag", "", "The capture holds inference of a language model", "workload.kind"),
    ("workload.is_training", "flag", "", "The capture holds training", "workload.kind"),
    ("workload.is_model", "flag", "", "The capture holds training or inference of a neural network", "workload.kind"),
    ("workload.is_pytorch", "flag", "", "PyTorch, or an engine built on it, launched the kernels", "workload.framework"),
])  # fmt: skip

_BUDGET = _group("device", CUDA, [
    ("budget.idle_ratio", "ratio", "", "Share of the window in which the device runs nothing", "window minus the union of all operations"),
    ("budget.waiting_ratio", "ratio", "", "Idle in which the device waits for the program: without the gaps between the nodes of one graph run, what the profiler added, and start-up", "idle minus budget parts graph_internal, profiler, startup"),
    ("budget.busy_ratio", "ratio", "", "Share of the window in which the device runs anything", "union of kernels, copies, memsets and graph runs"),
    *(
        (f"budget.{part}_ratio", "ratio", "", f"Share of the window: {what}", "exclusive budget")
        for part, what in PART_MEANINGS.items()
    ),
])  # fmt: skip

_LAUNCH = _group("device", CUDA, [
    ("launch.idle_ratio", "ratio", "kernels api_calls", "Idle that launching kernels one by one causes", "budget parts launch_call + launch_latency + host_between_launches"),
    ("launch.empty_queue_ratio", "ratio", "kernels api_calls", "Share of gaps (by count, graph-internal ones left out) that begin before the launch of the next operation returns", "launch call end after gap start"),
    ("launch.calls_per_step", "count", "api_calls", "Kernel-launch calls of the host a step (graph launches are not counted)", "calls in the window / steps"),
    ("launch.process_count", "count", "kernels", "Processes of the capture whose work ran on the device in the window", "distinct processes of its operations"),
    ("launch.calls_per_s", "count_per_s", "api_calls", "Kernel-launch calls of the host a second", "calls in the window / window"),
    ("launch.call_p50_ns", "ns", "api_calls", "Median length of a kernel-launch call", "quantile"),
    ("launch.call_time_ratio", "ratio", "api_calls", "Share of the window that the feeding thread spends in kernel-launch calls", "sum / window"),
    ("launch.eager_kernel_ratio", "ratio", "kernels api_calls", "Share of the kernels that were launched one by one", "kernels without a graph node"),
    ("launch.queue_p50_ns", "ns", "kernels api_calls", "Median time from the end of a launch call to the start of its kernel", "quantile, negative as 0"),
    ("launch.queue_over_kernel", "ratio", "kernels api_calls", "Queue time over kernel time", "sum / sum"),
    ("graph.launches_per_step", "count", "api_calls", "Graph launches a step", "calls in the window / steps"),
    ("graph.kernel_ratio", "ratio", "kernels", "Share of the kernel time that runs inside graphs", "kernels with a graph node"),
    ("graph.replay_idle_ratio", "ratio", "kernels api_calls", "Idle before graph replays, without what the profiler, garbage collection, the GIL and the operating system hold", "idle of gaps that end with the first node of a replay, minus budget parts profiler, gc, gil, os"),
    ("graph.replay_call_idle_ratio", "ratio", "kernels api_calls", "The part of graph.replay_idle_ratio in which the feeding thread is inside a CUDA call", "as above, host code left out"),
])  # fmt: skip

_KERNEL = _group("device", CUDA, [
    ("kernel.duration_p50_ns", "ns", "kernels", "Median kernel", "quantile in the window"),
    ("kernel.short_ratio", "ratio", "kernels", "Share of the kernels under 10 us", "count"),
    ("kernel.per_step", "count", "kernels", "Kernels a step", "count in the window / steps"),
    ("kernel.top_operation_ratio", "ratio", "kernels", "Share of kernel time of the largest operation", "time by logical operation"),
    ("kernel.quantised_matmul_ratio", "ratio", "kernels", "Share of the time of matrix products in kernels that read weights of 8 bits or fewer", "kernel names"),
    ("kernel.small_grid_ratio", "ratio", "kernels", "Share of the busy time in kernels with fewer blocks than half the SMs, of families that are not near peak DRAM bandwidth", "blocks x 2 < SMs; families at the bandwidth limit left out where samples resolve them"),
    ("kernel.small_grid_window_ratio", "ratio", "kernels", "The same as a share of the window", "x busy share"),
    ("kernel.several_waves_ratio", "ratio", "kernels", "Share of the busy time in GEMM and attention kernels of long or several-wave launches", "blocks >= 2 x SMs, or one block per SM and at least 50 us"),
    ("kernel.matmul_attention_ratio", "ratio", "kernels", "Share of kernel time in GEMM, GEMV, convolution and attention", "families"),
    ("kernel.unfused_ratio", "ratio", "kernels", "Share of the busy time in elementwise, copy, cast, activation, rope, softmax and norm kernels", "families"),
    ("kernel.unfused_window_ratio", "ratio", "kernels", "The same as a share of the window", "x busy share"),
    ("kernel.unfused_p50_ns", "ns", "kernels", "Median duration of the kernels of those families", "quantile in the window"),
    ("kernel.framework_ratio", "ratio", "kernels", "Share of the kernels whose names are those of a framework: PyTorch, its compiler, serving engines on top of it, JAX", "names"),
    ("kernel.fp32_matmul_ratio", "ratio", "kernels", "Share of the busy time in FP32 SIMT GEMM kernels", "names: sgemm, simt"),
    ("kernel.fp32_matmul_window_ratio", "ratio", "kernels", "The same as a share of the window", "x busy share"),
    ("kernel.old_architecture_ratio", "ratio", "kernels", "Share of the busy time in GEMM, attention and convolution kernels built for an older generation of SM than the device's, those at the DRAM limit left out", "sm number in names against the major compute capability; by group as sampled"),
    ("kernel.old_architecture_window_ratio", "ratio", "kernels", "The same as a share of the window", "x busy share"),
    ("kernel.moe_ratio", "ratio", "kernels", "Share of the busy time in mixture-of-experts kernels", "family moe"),
    ("kernel.unmapped_ratio", "ratio", "kernels", "Share of kernel time that only a catch-all of knowledge/kernel_families.yaml names", "operations `other` and `other ATen kernel`"),
    ("kernel.varying_shape_ratio", "ratio", "kernels", "Share of kernel time in kernels whose launch shape varies between steps", "distinct grids per name and position in the step"),
    ("kernel.skinny_gemm_ratio", "ratio", "kernels", "Share of the busy time in GEMV and skinny GEMM kernels (few output columns)", "names and tile sizes"),
    ("kernel.matmul_gemm_ratio", "ratio", "kernels", "Share of the busy time in GEMM-shaped kernels", "families gemm, gemv, conv, moe"),
    ("kernel.matmul_gemm_window_ratio", "ratio", "kernels", "The same as a share of the window", "x busy share"),
])  # fmt: skip

_SYNC = _group("device", CUDA, [
    ("sync.idle_ratio", "ratio", "kernels api_calls", "Idle inside synchronize calls and until the next call", "budget part sync"),
    ("sync.idle_after_ratio", "ratio", "kernels api_calls", "Idle of gaps in which a synchronize call returns and the queue has to be refilled, host code over 100 us left out", "whole gap, minus host code, GC, GIL and profiler"),
    ("sync.span_ratio", "ratio", "api_calls", "Share of the window the feeding thread spends in synchronize calls while the device has no queued work of the step left", "waits that end in a gap"),
    ("sync.calls_per_step", "count", "api_calls", "Blocking synchronize calls a step", "count in the window / steps"),
    ("sync.device_wide_per_step", "count", "api_calls", "cudaDeviceSynchronize or context synchronize calls a step", "count in the window / steps, the last of the capture left out"),
    ("sync.device_wide_per_100_kernels", "count", "api_calls", "Device-wide synchronize calls for every 100 kernels, where there are no steps", "count in the window / kernels in the window x 100"),
    ("sync.readbacks_per_step", "count", "api_calls copies", "Small DtoH copies (up to 4 KiB) followed by a wait on the same thread, a step", "copy call followed by a synchronize call within three calls, or a blocking copy"),
    ("sync.readbacks_per_100_kernels", "count", "api_calls copies", "Small DtoH copies followed by a wait for every 100 kernels, where there are no steps", "count in the window / kernels in the window x 100"),
    ("sync.readback_idle_ratio", "ratio", "api_calls copies", "Idle of the gaps around such read-backs", "gaps in which the read-back's wait returns"),
    ("sync.implicit_idle_ratio", "ratio", "kernels api_calls", "Idle inside calls that wait implicitly: blocking copies, pageable copies, cudaMalloc, cudaFree", "budget parts copy_call + alloc for those calls"),
    ("sync.implicit_calls_per_step", "count", "api_calls", "Such calls a step", "count in the window / steps"),
    ("sync.implicit_calls_per_100_kernels", "count", "api_calls", "Calls that wait implicitly for every 100 kernels, where there are no steps", "count in the window / kernels in the window x 100"),
    ("sync.memset_per_step", "count", "api_calls", "Synchronous memset calls a step (cudaMemset, cuMemsetD*)", "names without Async"),
    ("sync.memset_per_100_kernels", "count", "api_calls", "Synchronous memset calls for every 100 kernels, where there are no steps", "count in the window / kernels in the window x 100"),
    ("sync.memset_time_ratio", "ratio", "api_calls", "Share of the window in synchronous memset calls", "sum / window"),
    ("sync.memset_idle_ratio", "ratio", "kernels api_calls", "Idle inside those calls and until the next call", "device idle from the call's start to the next call's, where that follows within 100 us, else to its own end"),
])  # fmt: skip

_COPY = _group("device", CUDA, [
    ("copy.pageable_ratio", "ratio", "copies", "Share of the window in which copies from or to pageable memory run", "union / window"),
    ("copy.pageable_exposed_ratio", "ratio", "copies", "The same while no kernel runs", "union minus compute"),
    ("copy.pageable_excess_ratio", "ratio", "copies", "The part of that time which pinned memory would save", "exposed time x (1 - rate / practical rate of the link; 12 GB/s where the GPU is not known)"),
    ("copy.pageable_large_per_step", "count", "copies", "Pageable copies over 64 KiB a step", "count in the window / steps"),
    ("copy.pageable_large_per_100_kernels", "count", "copies", "Pageable copies over 64 KiB for every 100 kernels, where there are no steps", "count in the window / kernels in the window x 100"),
    ("copy.exposed_ratio", "ratio", "copies", "Share of the window in HtoD and DtoH copies with no kernel running", "budget parts htod + dtoh"),
    ("copy.tiny_per_step", "count", "copies", "HtoD and DtoH copies under 4 KiB a step", "count in the window / steps"),
    ("copy.tiny_per_100_kernels", "count", "copies", "HtoD and DtoH copies under 4 KiB for every 100 kernels, where there are no steps", "count in the window / kernels in the window x 100"),
    ("copy.tiny_time_ratio", "ratio", "copies", "Share of the window that they take on the device", "sum / window"),
    ("copy.dtod_busy_ratio", "ratio", "copies", "Share of the busy time in device-to-device copies", "sum / busy"),
    ("copy.dtod_window_ratio", "ratio", "copies", "The same as a share of the window", "sum / window"),
    ("copy.htod_bytes_per_step", "bytes", "copies", "Bytes uploaded a step", "sum / steps"),
    ("copy.link_rate_ratio", "ratio", "copies", "Rate of the large pinned copies over the practical rate of the link", "bytes / time of pinned copies of at least 1 MiB, against knowledge/gpus.yaml"),
    ("copy.link_time_ratio", "ratio", "copies", "Share of the window in those large pinned copies", "union / window"),
    ("copy.link_exposed_ratio", "ratio", "copies", "The same while no kernel runs", "union minus compute"),
])  # fmt: skip

_UNIFIED = _group("device", CUDA, [
    ("unified.migration_count", "count", "copies", "Migrations of unified memory: pages that the driver moved", "count in the window"),
    ("unified.migrated_bytes", "bytes", "copies", "Bytes that they moved", "sum"),
    ("unified.migration_ratio", "ratio", "copies", "Share of the window in which they run", "union / window"),
    ("unified.exposed_ratio", "ratio", "copies", "Share of the window in which they, or the fault before them, run and no kernel does", "budget parts migration + unified_memory"),
    ("unified.stall_ratio", "ratio", "copies kernels", "Share of the window in which a kernel runs beside a migration that the program did not ask for: it waits for the pages", "union of such migrations and compute / window"),
    ("unified.lost_ratio", "ratio", "copies", "What migrations cost: both together", "unified.exposed_ratio + unified.stall_ratio"),
    ("unified.unasked_ratio", "ratio", "copies", "Share of the migrated bytes that no prefetch of the program asked for", "migration causes other than user prefetch"),
    ("unified.thrash_ratio", "ratio", "copies", "Share of the migrated bytes in pages that had gone there and back before", "migrations of a 2 MiB block after its second change of direction"),
]) + _group("device", FAULTS, [
    ("unified.gpu_fault_count", "count", "page_faults", "Page faults of the GPU on unified memory", "sum of the faults in the window"),
    ("unified.host_fault_count", "count", "page_faults", "Page faults of the host on unified memory, on any device", "count in the window"),
])  # fmt: skip

_ALLOC = _group("device", CUDA, [
    ("alloc.calls_per_step", "count", "api_calls", "Allocation and free calls a step in the steady part", "count in the window / steps"),
    ("alloc.calls_per_100_kernels", "count", "api_calls", "Allocation and free calls for every 100 kernels, where there are no steps", "count in the window / kernels in the window x 100"),
    ("alloc.time_ratio", "ratio", "api_calls", "Share of the window in those calls on the feeding thread", "sum / window"),
    ("alloc.idle_ratio", "ratio", "kernels api_calls", "Idle inside them", "budget part alloc"),
    ("alloc.stall_max_over_p50", "ratio", "api_calls", "Longest allocation or free call over the median one", "in the window"),
    ("alloc.stall_max_ns", "ns", "api_calls", "Longest allocation or free call", "in the window"),
    ("alloc.stall_time_ratio", "ratio", "api_calls", "Share of the window in allocation or free calls over 1 ms", "sum / window"),
    ("alloc.stall_idle_ratio", "ratio", "kernels api_calls", "Idle inside those calls", "device idle inside calls over 1 ms / window"),
]) + _group("device", MEMORY, [
    ("memory.growth_ratio", "ratio", "allocations", "Growth of the device memory in use from the first to the last step, over the level at the start", "running sum of allocations, medians of the first and last quarter of the steps"),
    ("memory.used_ratio", "ratio", "", "Watermark of the device memory over its size, where absolute use is known", "samples of memory in use"),
    ("memory.peak_bytes", "bytes", "", "The highest use of device memory that the capture tells: the least that it can have been", "the larger of sampled use and the running sum of the allocations of all processes, where frees of what was allocated before the capture count as held at its start"),
    ("memory.least_used_ratio", "ratio", "", "The same over the size of the memory", "memory.peak_bytes / size"),
])  # fmt: skip

_HOST = _group("device", CUDA, [
    ("host.gap_ratio", "ratio", "kernels api_calls", "Idle with no CUDA call on the feeding thread, between steps or over 1 ms", "budget part host_gap"),
    ("host.gap_max_ms", "ms", "kernels api_calls", "The longest such gap", "max"),
    ("host.step_max_over_median", "ratio", "", "Slowest step over the median step", "steps of the phase that holds most steps"),
    ("host.step_outlier_ratio", "ratio", "", "Share of the steps above 1.5 x the median and above mean + 3 sigma of the rest", "count"),
    ("host.step_outlier_time_ratio", "ratio", "", "Time above the median that those steps cost, over the window", "sum of the excess / window"),
]) + _group("device", NVTX, [
    ("host.gc_idle_ratio", "ratio", "ranges", "Idle while Python collects garbage on the feeding thread", "budget part gc"),
    ("host.gc_max_ns", "ns", "ranges", "The longest garbage collection inside the window", "max of GC ranges; 0 where GC is recorded and none ran"),
    ("host.gap_range", "text", "api_calls ranges", "The range of the feeding thread that covers most of these gaps, `#` for its numbers", "of the ranges that cover at least half of what any does, the one with most of its own time in the gaps, more than half"),
    ("host.gap_range_ratio", "ratio", "api_calls ranges", "How much of these gaps that range covers", "time of the range in the gaps / gaps"),
    ("host.data_loading_ratio", "ratio", "", "Share of the step that ranges of a data loader take on the feeding thread, 0 where none is named so", "data-loading ranges inside steps / step time"),
    ("host.preparation_ratio", "ratio", "ranges", "Share of the step that input preparation ranges, those of a data loader among them, take on the feeding thread", "preparation ranges inside steps / step time"),
]) + _group("device", GIL, [
    ("host.gil_wait_ratio", "ratio", "ranges", "Share of the window in which the feeding thread waits for the GIL", "ranges `Waiting for GIL` of that thread"),
    ("host.gil_idle_ratio", "ratio", "ranges", "Idle while it waits", "budget part gil"),
]) + _group("device", OSRT, [
    ("host.os_idle_ratio", "ratio", "host_calls", "Idle while the feeding thread is blocked in an operating-system call", "budget part os"),
])  # fmt: skip

_ACTIVITY = _group("device", SAMPLES, [
    ("activity.sm_ratio", "ratio", "samples", "SM Active over the window", "mean of the samples"),
    ("activity.gr_ratio", "ratio", "samples", "GR Active over the window: some kernel was running; SM Active cannot exceed it", "mean of the samples"),
    ("activity.work_recorded", "flag", "", "The capture holds what the device did; without, samples are all that tells", "operations of the device, and no graph launches of which nothing is recorded"),
    ("activity.busy_ratio", "ratio", "", "Busy share of the window: of the recorded work, else of the samples", "budget.busy_ratio; else mean GR Active; else the share of samples in which SMs or DRAM are active"),
    ("activity.idle_ratio", "ratio", "", "The rest of the window", "1 - activity.busy_ratio"),
    ("activity.kernels_resolved", "flag", "samples", "The samples resolve the DRAM activity of some kernels; without, means over the busy time are all they tell", "standard error of the least-squares estimate"),
    ("activity.sm_busy_ratio", "ratio", "samples", "SM Active while the device is busy", "window mean / busy share (activity.busy_ratio)"),
    ("activity.tensor_busy_ratio", "ratio", "samples", "Tensor Active while the device is busy", "as activity.sm_busy_ratio"),
    ("activity.dram_ratio", "ratio", "samples", "DRAM read + write over the window", "mean of the samples"),
    ("activity.dram_busy_ratio", "ratio", "samples", "DRAM read + write while the device is busy", "as activity.sm_busy_ratio"),
    ("activity.dram_bound_busy_ratio", "ratio", "samples kernels", "Share of the busy time in kernels that reach 80 % of the achievable DRAM bandwidth", "bounded least squares by kernel and launch shape; achievable = 0.92 of peak"),
    ("activity.dram_bound_most_ratio", "ratio", "samples", "The most that activity.dram_bound_busy_ratio can be, given the mean", "DRAM activity while busy / 0.736"),
    ("activity.dram_bound_window_ratio", "ratio", "samples", "activity.dram_bound_busy_ratio as a share of the window; where the samples do not resolve kernels, the busy time of samples that reach the limit while busy; without samples, what reading the given weights takes at the achievable bandwidth", "x busy share; else samples of at least 0.736 / busy share; else bandwidth.weights_ratio / 0.92 x busy share"),
    ("activity.dram_bound_level_ratio", "ratio", "samples kernels", "Time-weighted DRAM activity of those kernels", "bounded least squares"),
    ("activity.matmul_tensor_ratio", "ratio", "samples kernels", "Tensor Active inside GEMM-shaped kernels", "bounded least squares"),
    ("activity.resolved_ratio", "ratio", "samples kernels", "Share of the busy time in kernels whose activity the samples resolve", "standard error at most 0.05, and no level at a bound or within one error of 0"),
    ("activity.burst_low_ratio", "ratio", "samples", "5th percentile of SM Active (else GR Active) in bins of at least 100 ms", "quantile of bin means"),
    ("activity.burst_high_ratio", "ratio", "samples", "95th percentile of the same", "quantile of bin means"),
]) + _group("device", CUDA, [
    ("bandwidth.weights_ratio", "ratio", "kernels", "Bytes of the weights over the kernel time of a step, over the peak bandwidth (needs --weight-bytes)", "weight bytes / kernel time / peak; none above 1"),
])  # fmt: skip

_STEP = _group("device", CUDA, [
    ("step.time_median_ms", "ms", "", "Median step, as captured (profiled)", "last GPU end of one step to the last of the next"),
    ("step.host_range_median_ms", "ms", "ranges", "Median length of the step's host range", "range end - start"),
    ("step.gpu_busy_ms", "ms", "", "Device busy time a step", "busy / steps"),
    ("serving.mixed_step_count", "count", "kernels", "Steps in which prompts are read beside decodes", "phases of the steps"),
    ("serving.decode_step_ms", "ms", "kernels", "Median step of decodes alone", "step times by phase"),
    ("serving.mixed_step_ms", "ms", "kernels", "Median step that reads prompts, too", "step times by phase"),
    ("serving.mixed_over_decode", "ratio", "kernels", "The second over the first", "quotient of the medians"),
    ("serving.held_window_ratio", "ratio", "kernels", "Share of the window by which steps with prompts are longer than those without", "sum of the differences to serving.decode_step_ms"),
    ("experts.topk_per_step", "count", "kernels", "Top-k kernels of a framework a step", "count in the steps of the window / steps"),
    ("experts.grouping_per_step", "count", "kernels", "Sort, histogram and select kernels a step", "as experts.topk_per_step"),
    ("experts.combine_per_step", "count", "kernels", "Kernels a step that add rows up by index or scatter them", "as experts.topk_per_step"),
    ("experts.loose_window_ratio", "ratio", "kernels", "Share of the window from a top-k kernel to the last such kernel before the next top-k of the step", "sum / window"),
    ("experts.kernels_per_layer", "count", "kernels", "Kernels in such a stretch", "mean"),
])  # fmt: skip

_PHASE = _group("phase", CUDA, [
    ("phase.is_decode", "flag", "", "The phase is decode", "range names, else kernel families"),
    ("phase.is_prefill", "flag", "", "The phase is prefill", "range names, else kernel families"),
    ("phase.step_ratio", "ratio", "", "Share of the window in steps of this phase", "sum of step times / window"),
    ("phase.busy_ratio", "ratio", "", "Busy share inside the steps of this phase", "budget of the phase"),
    ("phase.idle_ratio", "ratio", "", "Idle share inside the steps of this phase", "budget of the phase"),
    ("phase.launch_idle_ratio", "ratio", "kernels api_calls", "Idle that launching one by one causes, inside the phase", "as launch.idle_ratio"),
    ("phase.attention_ratio", "ratio", "kernels", "Attention's share of kernel time", "families"),
    ("phase.gemm_ratio", "ratio", "kernels", "Share of GEMM and GEMV kernels in kernel time", "families"),
    ("phase.skinny_gemm_ratio", "ratio", "kernels", "Share of GEMV and skinny GEMM kernels (few output columns) in kernel time", "names and launch shapes"),
    ("phase.norm_activation_ratio", "ratio", "kernels", "Share of norm and activation kernels in kernel time", "families"),
    ("phase.unfused_ratio", "ratio", "kernels", "Share of elementwise, copy, cast and norm kernels in kernel time", "families"),
    ("phase.other_ratio", "ratio", "kernels", "Share of kernel time in kernels of known families outside GEMM, GEMV, attention and elementwise", "families"),
    ("phase.gemm_window_ratio", "ratio", "kernels", "Time of GEMM and GEMV kernels of the phase over the window", "families"),
    ("phase.attention_window_ratio", "ratio", "kernels", "Time of attention kernels of the phase over the window", "families"),
]) + _group("phase", SAMPLES, [
    ("phase.gemm_headroom_window_ratio", "ratio", "samples kernels", "Time that the GEMM and GEMV kernels of the phase would save at the achievable DRAM bandwidth, over the window", "phase.gemm_window_ratio x (1 - phase.gemm_dram_ratio / 0.92)"),
    ("phase.gemm_dram_ratio", "ratio", "samples kernels", "DRAM activity inside the GEMM and GEMV kernels, of the device's peak; where samples do not tell and the size of the weights is given, their bytes over the time of these kernels", "bounded least squares, else weight bytes / GEMM time / peak (none above 1)"),
    ("phase.attention_dram_ratio", "ratio", "samples kernels", "DRAM activity inside the attention kernels, of the device's peak", "bounded least squares"),
])  # fmt: skip

_OPERATION = _group("operation", CUDA, [
    ("operation.time_ratio", "ratio", "kernels", "Share of kernel time of this operation (the 20 largest are kept)", "time by logical operation"),
    ("operation.window_ratio", "ratio", "kernels", "Time of this operation over the window", "sum / window"),
    ("operation.count", "count", "kernels", "Calls in the window", "count"),
    ("operation.max_over_p50", "ratio", "kernels", "Slowest call over the median call, of its kernel with the largest tail", "per kernel name and launch shape"),
    ("operation.p99_over_p50", "ratio", "kernels", "99th percentile over the median", "per kernel name and launch shape"),
    ("operation.tail_window_ratio", "ratio", "kernels", "Time lost in the tail: sum of max(0, duration - p50), over the window", "per kernel name and launch shape, summed"),
    ("operation.tail_over_time_ratio", "ratio", "kernels", "Time lost in the tail over the operation's own time", "as above"),
    ("operation.tail_blocks_ratio", "ratio", "kernels", "Share of that lost time during which nothing else runs on the device", "slow calls without a concurrent operation"),
])  # fmt: skip

_CLOCK = _group("device", SAMPLES, [
    ("clock.busy_ratio", "ratio", "samples", "SM clock while the device is busy, over its highest", "mean of the samples with SM Active (else GR Active) of at least 50 %"),
    ("clock.lost_window_ratio", "ratio", "samples", "Share of the window that the lower clock costs, were all of it clock-bound", "(1 - clock.busy_ratio) x share of busy samples"),
    ("clock.power_limited_ratio", "ratio", "samples", "Share of the busy samples at the power limit", "power of at least 97 % of the limit"),
    ("clock.held_back_ratio", "ratio", "samples", "Share of the busy samples whose clock the driver holds down for power or heat", "clocks_event_reasons: power cap, thermal, brake"),
    ("clock.limited_ratio", "ratio", "samples", "Share of the busy samples at a power or heat limit; 0 where the clock alone is sampled", "what the driver says, else power of at least 97 % of its limit"),
    ("clock.limit", "text", "samples", "What that limit is: power or heat", "the reason of most of these samples"),
    ("clock.temperature_max_c", "count", "samples", "Highest GPU temperature while busy, degrees Celsius", "max of the samples"),
])  # fmt: skip

_COMMUNICATION = _group("device", CUDA, [
    ("comm.time_ratio", "ratio", "kernels", "Share of the window in which collectives run", "union / window"),
    ("comm.exposed_ratio", "ratio", "kernels", "The same while no other kernel runs", "budget part communication"),
    ("comm.exposed_transfer_ratio", "ratio", "kernels", "The same without waiting for late ranks; of one rank alone, with it", "comm.exposed_ratio minus the exposed waiting that all ranks tell together"),
    ("comm.waiting_known", "flag", "kernels", "Other ranks tell how long collectives wait for a late one", "matched collectives of several ranks"),
    ("comm.overlap_ratio", "ratio", "kernels", "Share of the collective time that other kernels hide", "1 - exposed / union"),
    ("comm.calls_per_step", "count", "kernels", "Collective kernels a step", "count in the window / steps"),
    ("comm.max_over_mean", "ratio", "kernels", "Longest call over the mean call, of the kind of collective for which it is worst (with all ranks: their transfers)", "kinds with at least 8 calls"),
    ("comm.excess_ratio", "ratio", "kernels", "Share of the window that calls of that kind take beyond twice their median", "sum of the excess / window"),
    ("comm.small_calls_per_step", "count", "kernels collectives", "Collectives below 1 MiB that run exposed, a step", "sizes from the tracer's arguments"),
    ("comm.small_exposed_ratio", "ratio", "kernels collectives", "Share of the window in which they run exposed", "sum / window"),
])  # fmt: skip

_RANKS = _group("trace", CUDA, [
    ("ranks.count", "count", "", "Ranks that were given", "captures of one job"),
    ("ranks.world_size", "count", "", "Ranks that the job has", "metadata of the captures, else the highest rank given"),
    ("ranks.missing_count", "count", "", "Ranks of the job that were not given", "world size minus given"),
    ("ranks.matched_count", "count", "", "Collectives that were found on every rank that takes part", "matched by communicator and sequence number, else by kind and order in time on aligned clocks"),
    ("ranks.wait_ratio", "ratio", "", "Share of the collective time that is waiting for the last rank", "own duration minus the shortest over the ranks, over all durations"),
    ("ranks.wait_window_ratio", "ratio", "", "Share of the window that ranks wait so with no other kernel beside it, on average", "mean over the ranks"),
    ("ranks.expert_wait_ratio", "ratio", "", "The part of that waiting for which expert kernels took longer on the rank that came last", "time of expert kernels since the collective before, against that of each rank that waits"),
    ("ranks.expert_wait_window_ratio", "ratio", "", "The same as a share of the window, on average", "mean over the ranks"),
    ("ranks.busy_spread", "ratio", "", "Largest busy share of a rank minus the smallest", "budgets"),
]) + _group("rank", CUDA, [
    ("rank.last_ratio", "ratio", "", "Share of the matched collectives to which this rank comes last and makes others wait", "shortest duration: all of them end together"),
    ("rank.caused_ratio", "ratio", "", "Share of all waiting that this rank causes", "waiting in collectives to which it comes last"),
    ("rank.caused_over_even", "ratio", "", "That share over an even one", "rank.caused_ratio x ranks"),
    ("rank.late_ns", "ns", "", "How much later than the others this rank comes to those collectives, on average", "own duration against the mean of the others"),
    ("rank.late_part", "text", "", "What it did longer than the others before it came late", "largest difference to their mean since the collective before"),
    ("rank.clock_offset_ns", "ns", "", "What was added to the clock of this rank, in the middle of its window", "median over the ends of matched collectives, against the rank with most of them"),
    ("rank.wait_ratio", "ratio", "", "Share of its window that this rank waits in collectives", "own duration minus the shortest / window"),
])  # fmt: skip

CATALOGUE: dict[str, FactSpec] = {
    spec.name: spec
    for group in (
        _CAPTURE, _BUDGET, _LAUNCH, _KERNEL, _SYNC, _COPY, _UNIFIED, _ALLOC, _HOST, _ACTIVITY, _STEP,
        _PHASE, _OPERATION, _CLOCK, _COMMUNICATION, _RANKS,
    )
    for spec in group
}  # fmt: skip

ENTITIES: dict[str, EntitySpec] = {
    spec.name: spec
    for spec in (
        EntitySpec("copy_class", "device", "Copies in the window by direction and memory kind", {
            "device": int, "kind": str, "memory": str, "count": int, "per_step": float,
            "bytes": int, "mean_bytes": float, "time_ratio": float, "exposed_ratio": float,
            "rate_bytes_per_s": float,
        }),
        EntitySpec("sync_call", "device", "Blocking calls in the window by name", {
            "device": int, "name": str, "count": int, "per_step": float, "time_ratio": float,
            "idle_ratio": float, "p50_ns": float, "max_ns": float,
        }),
        EntitySpec("family", "device", "Kernel families in the window", {
            "device": int, "family": str, "count": int, "time_ratio": float, "dram_ratio": float,
            "sm_ratio": float, "tensor_ratio": float,
        }),
    )
}  # fmt: skip
