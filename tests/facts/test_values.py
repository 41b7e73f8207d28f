"""Values of facts over hand-made captures of which every share can be read off the script."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from advisor.facts.catalog import build_facts
from advisor.knowledge.files import capture_knowledge
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import TRACE, FactBase, Scope, Value
from advisor.pipeline.diagnose import diagnose
from advisor.sources.open import open_trace
from tests.builder import NO_ID, Export
from tests.kineto_builder import decode as kineto_decode
from tests.scenarios.machine import ADD, ALL_REDUCE, DECODE_ATTENTION, GEMM, GEMV, NORM
from tests.scenarios.test_overhead_kernels import COMBINE, PER_TOKEN

US = 1_000
STEP = 1_000 * US
DEVICE = Scope(device=0)
DECODE = Scope(device=0, phase="decode")


def built(export: Export, folder: Path, weight_bytes: int | None = None) -> FactBase:
    with open_trace(export.write(folder / "t.sqlite")) as trace:
        return build_facts(measure(trace), weight_bytes)


def expect_values(base: FactBase, wanted: Mapping[str, Value], scope: Scope = DEVICE) -> None:
    """Compares all of them at once, so that a failure shows every one that is off."""
    found = {name: base.value(name, scope) for name in wanted}
    assert found == {
        name: pytest.approx(value, rel=1e-6, abs=1e-9) if isinstance(value, float) else value
        for name, value in wanted.items()
    }


def decode(count: int = 20) -> Export:
    """Steps of 1 ms, each the same. Of 1,000 us the device computes 250 (a GEMM 20-220, an addition
    of few blocks 230-280), uploads 20 (300-320) and reads back 5 (340-345). The host launches at
    0-10 and 30-40, copies at 50-60 and 70-80, waits at 100-400 and then does nothing."""
    e = Export().gpu().process(1)
    for i in range(count):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        e.launch(t, 10 * US, GEMM.name, t + 20 * US, 200 * US, grid=(GEMM.blocks, 1, 1))
        e.launch(t + 30 * US, 10 * US, ADD.name, t + 230 * US, 50 * US, grid=(16, 1, 1))
        e.copy(t + 50 * US, 10 * US, "HtoD", 1 << 17, "pageable", t + 300 * US, 20 * US)
        e.copy(t + 70 * US, 10 * US, "DtoH", 4, "pinned", t + 340 * US, 5 * US)
        e.sync(t + 100 * US, 300 * US)
    return e


def test_idle_time_that_no_call_explains(tmp_path: Path) -> None:
    """Kernels of 10 us without their calls: nine gaps of 20 us, and one of 820 us before the last."""
    e = Export().gpu().process(1)
    for start in (*range(0, 300 * US, 30 * US), 1_100 * US):
        e.kernel(start)
    base = built(e, tmp_path)
    expect_values(base, {"idle.short_unexplained_ratio": 180 / 1_000, "budget.unknown_ratio": 1_000 / 1_110})
    assert base.value("capture.calls_recorded", TRACE) is False


def test_kernels_with_local_memory(tmp_path: Path) -> None:
    """Of 100 us a step, one kernel in four with spilled registers, 40 us."""
    e = Export().gpu().process(1)
    for i in range(5):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        for k, (length, spilled) in enumerate(((20, 0), (40, 96), (20, 0), (20, 0))):
            e.call("cudaLaunchKernel_v7000", t + k * 50 * US, 5 * US)
            registers = 255 if spilled else 128
            at = t + (k * 50 + 10) * US
            e.kernel(at, length * US, GEMM.name, registers=registers, localMemoryPerThread=spilled)
    base = built(e, tmp_path)
    expect_values(
        base,
        {
            "kernel.local_memory_ratio": 0.4,
            "kernel.local_memory_window_ratio": 0.04,
            "kernel.register_limit_ratio": 1.0,
        },
    )
    table = base.table("kernels.local", DEVICE)
    assert table is not None
    assert table.columns[-1] == "bytes a thread"
    assert table.rows[0][-1] == 96
    findings = {f.code: f for f in diagnose(e.write(tmp_path / "d.sqlite")).findings}
    assert findings["KRN113"].severity in ("low", "info")


def test_kernels_of_one_block(tmp_path: Path) -> None:
    """Of 80 us in kernels with fewer blocks than half of 132 SMs, 60 have one."""
    e = Export("3.25").gpu().process(1)
    for i in range(5):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        for k, (blocks, length) in enumerate(((1, 60), (8, 20), (400, 100))):
            at = t + 20 * US + k * 110 * US
            e.launch(t + k * 10 * US, 5 * US, ADD.name, at, length * US, grid=(blocks, 1, 1))
    expect_values(built(e, tmp_path), {"kernel.one_block_ratio": 0.75, "kernel.small_grid_ratio": 80 / 180})


def test_blocks_smaller_than_a_warp(tmp_path: Path) -> None:
    """Steps of 1 ms: 300 us with four threads a block, 100 with 31, 200 with 32."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = at = i * STEP
        e.range(f"step {i}", t, t + 900 * US)
        for k, (threads, length) in enumerate(((4, 300), (31, 100), (32, 200))):
            e.launch(t + k * 10 * US, 5 * US, f"k{k}", at + 50 * US, length * US, block=(threads, 1, 1))
            at += length * US
    expect_values(built(e, tmp_path), {"kernel.sub_warp_window_ratio": 0.4, "kernel.sub_warp_threads": 4})


def test_how_kernels_are_launched(tmp_path: Path) -> None:
    """Of 100 us a step, 40 in clusters of two blocks, 10 launched cooperatively. The last of four kernels
    begins 5 us before the one before it ends; one of another stream that does so does not count."""
    e = Export("3.25").gpu().process(1)
    for i in range(5):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        for k, (at, length, stream, columns) in enumerate(
            (
                (20, 40, 7, {"clusterX": 2, "clusterY": 1, "clusterZ": 1}),
                (50, 30, 9, {}),
                (80, 10, 7, {"launchType": 2}),
                (85, 20, 7, {}),
            )
        ):
            e.call("cudaLaunchKernelExC_v11060", t + k * 4 * US, 3 * US)
            clusters = {"clusterX": 0, "clusterY": 0, "clusterZ": 0} | columns
            e.kernel(t + at * US, length * US, GEMM.name, stream=stream, **clusters)
    expect_values(
        built(e, tmp_path),
        {"kernel.cluster_ratio": 0.4, "kernel.cooperative_ratio": 0.1, "kernel.early_start_ratio": 0.25},
    )


def waiting_host() -> Export:
    """Of each ms, three waits: 100-200 for the event behind the read-back of stream 7 (no work left of
    the stream that the second waits for, 250-260), 300-500 for the device. Then stream 7, which runs most
    kernels, is done at 340, and stream 13 with a copy at 480."""
    e = Export("3.25").gpu().process(1)
    for i in range(10):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        e.launch(t, 10 * US, GEMM.name, t + 20 * US, 80 * US)
        e.copy(t + 30 * US, 5 * US, "DtoH", 4, "pinned", t + 110 * US, 5 * US)
        e.event(1, t + 116 * US, sync=i + 1)
        e.sync(t + 100 * US, 100 * US, api="cudaEventSynchronize_v3020", stream=NO_ID, event=1, sync=i + 1)
        e.sync(t + 250 * US, 10 * US, stream=19)
        e.launch(t + 270 * US, 5 * US, GEMM.name, t + 280 * US, 60 * US)
        e.copy(t + 280 * US, 5 * US, "HtoD", 1 << 20, "pinned", t + 300 * US, 180 * US, stream=13)
        e.sync(t + 300 * US, 200 * US, api="cudaDeviceSynchronize_v3020", stream=NO_ID)
    return e


@pytest.mark.parametrize("late", [False, True], ids=["as recorded", "waits that end 1,000 times as late"])
def test_what_the_host_waits_for(tmp_path: Path, late: bool) -> None:
    """No wait is longer than its call."""
    path = waiting_host().write(tmp_path / "t.sqlite")
    if late:
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("update CUPTI_ACTIVITY_KIND_SYNCHRONIZATION set end = end * 1000")
    with open_trace(path) as trace:
        base = build_facts(measure(trace))
    expect_values(
        base,
        {
            "sync.event_wait_ratio": 0.1,
            "sync.stream_wait_ratio": 0.01,
            "sync.context_wait_ratio": 0.2,
            "sync.waited_stream": 7,
            "sync.context_wait_streams": 2.0,
            "sync.empty_wait_ratio": 0.5,
            "sync.over_wait_ratio": 0.14,
            "sync.over_waited_stream": 13,
        },
    )
    table = base.table("sync.waits", DEVICE)
    assert table is not None
    assert [row[:3] for row in table.rows] == [("context", None, 9), ("event", 7, 9), ("stream", 19, 9)]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> FactBase:
    return built(decode(), tmp_path_factory.mktemp("steps"))


def test_budget(steps: FactBase) -> None:
    """What is queued before a gap begins leaves it to the device; the wait ends 55 us after the
    last copy; the rest is the host's own until it launches again."""
    expect_values(
        steps,
        {
            "budget.compute_ratio": 0.250,
            "copy.peer_exposed_ratio": 0.0,
            "budget.htod_ratio": 0.020,
            "budget.dtoh_ratio": 0.005,
            "budget.queued_ratio": 0.050,
            "budget.sync_ratio": 0.055,
            "budget.host_gap_ratio": 0.600,
            "budget.launch_call_ratio": 0.010,
            "budget.launch_latency_ratio": 0.010,
            "budget.busy_ratio": 0.275,
            "budget.idle_ratio": 0.725,
            "budget.waiting_ratio": 0.725,
            "budget.communication_ratio": 0.0,
            "budget.other_copy_ratio": 0.0,
            "budget.migration_ratio": 0.0,
            "budget.graph_internal_ratio": 0.0,
            "budget.profiler_ratio": 0.0,
            "budget.startup_ratio": 0.0,
            "budget.gc_ratio": 0.0,
            "budget.gil_ratio": 0.0,
            "budget.alloc_ratio": 0.0,
            "budget.copy_call_ratio": 0.0,
            "budget.graph_launch_call_ratio": 0.0,
            "budget.os_ratio": 0.0,
            "budget.host_between_launches_ratio": 0.0,
            "budget.unified_memory_ratio": 0.0,
            "budget.unknown_ratio": 0.0,
        },
    )


def test_launching(steps: FactBase) -> None:
    expect_values(
        steps,
        {
            "launch.idle_ratio": 0.020,
            "launch.calls_per_step": 2.0,
            "launch.calls_per_s": 2_000.0,
            "launch.call_p50_ns": 10_000.0,
            "launch.call_time_ratio": 0.020,
            "launch.process_count": 1,
            "launch.eager_kernel_ratio": 1.0,
            # 10 us from call to kernel for one, 190 for the other.
            "launch.queue_p50_ns": 100_000.0,
            "launch.queue_over_kernel": 200 / 250,
            "graph.launches_per_step": 0.0,
            "graph.kernel_ratio": 0.0,
            "graph.replay_idle_ratio": 0.0,
            "graph.replay_call_idle_ratio": 0.0,
        },
    )


def test_kernels(steps: FactBase) -> None:
    expect_values(
        steps,
        {
            "kernel.duration_p50_ns": 125_000.0,
            "kernel.short_ratio": 0.0,
            "kernel.per_step": 2.0,
            "kernel.top_operation_ratio": 0.8,
            "kernel.matmul_attention_ratio": 0.8,
            "kernel.matmul_gemm_ratio": 200 / 275,
            "kernel.matmul_gemm_window_ratio": 0.2,
            "kernel.several_waves_ratio": 200 / 275,
            "kernel.skinny_gemm_ratio": 0.0,
            "kernel.small_grid_ratio": 50 / 275,
            "kernel.small_grid_window_ratio": 0.05,
            "kernel.small_unfused_ratio": 1.0,
            "kernel.small_skinny_ratio": 0.0,
            "kernel.unfused_ratio": 50 / 275,
            "kernel.unfused_window_ratio": 0.05,
            "kernel.unfused_p50_ns": 50_000.0,
            "kernel.framework_ratio": 0.5,
            "kernel.fp32_matmul_ratio": 0.0,
            "kernel.fp32_matmul_window_ratio": 0.0,
            "kernel.tf32_matmul_ratio": 0.0,
            "kernel.fp32_operands_ratio": 0.0,
            "kernel.fp32_operands_window_ratio": 0.0,
            "kernel.layout_ratio": 0.0,
            "kernel.layout_window_ratio": 0.0,
            "kernel.slow_convolution_ratio": 0.0,
            "kernel.slow_convolution_window_ratio": 0.0,
            "kernel.convolution_matmul_ratio": 0.0,
            "kernel.adapter_ratio": 0.0,
            "kernel.adapter_window_ratio": 0.0,
            "kernel.adapter_count_ratio": 0.0,
            "kernel.dequantise_ratio": 0.0,
            "kernel.dequantise_window_ratio": 0.0,
            "kernel.concatenation_ratio": 0.0,
            "kernel.concatenation_window_ratio": 0.0,
            "kernel.weight_cast_ratio": 0.0,
            "kernel.weight_cast_window_ratio": 0.0,
            "kernel.sampling_sort_window_ratio": 0.0,
            "kernel.sampling_window_ratio": 0.05,
            "kernel.attention_pieces_window_ratio": 0.0,
            "kernel.attention_pieces_per_step": 0.0,
            "kernel.cache_reorder_window_ratio": 0.0,
            "embedding.lookup_window_ratio": 0.0,
            "embedding.lookups_per_step": 0.0,
            "kernel.unfused_named_ratio": 0.0,
            "kernel.old_architecture_ratio": 0.0,
            "kernel.old_architecture_window_ratio": 0.0,
            "kernel.own_matmul_ratio": 0.0,
            "kernel.kv_cache_ratio": 0.0,
            "kernel.moe_ratio": 0.0,
            "kernel.unmapped_ratio": 0.0,
            "kernel.varying_shape_ratio": 0.0,
            "kernel.varying_shape_window_ratio": 0.0,
            "kernel.compiled_ratio": 0.0,
        },
    )


def test_waiting_and_copies(steps: FactBase) -> None:
    """The wait follows a read-back of 4 bytes; the next launch refills the queue in 20 us."""
    expect_values(
        steps,
        {
            "sync.calls_per_step": 1.0,
            "sync.call_name": "cudaStreamSynchronize",
            "sync.result_ratio": 1.0,
            "sync.idle_ratio": 0.055,
            "sync.idle_after_ratio": 0.075,
            # Idle inside the wait, 100-400, what was queued with it; the window begins with the first
            # step's last work, and what is left of that step's wait is not of its calls.
            "sync.span_ratio": 0.105 - 0.055 / 19,
            "sync.readbacks_per_step": 1.0,
            "sync.readback_idle_ratio": 0.075 * 18 / 19,
            "sync.device_wide_per_step": 0.0,
            "sync.device_wide_idle_ratio": 0.0,
            "sync.implicit_calls_per_step": 1.0,
            "sync.implicit_idle_ratio": 0.0,
            "sync.memset_per_step": 0.0,
            "copy.pageable_ratio": 0.020,
            "copy.pageable_exposed_ratio": 0.020,
            # 128 KiB in 20 us, against the 55 GB/s that pinned memory reaches.
            "copy.pageable_excess_ratio": 0.020 * (1 - (1 << 17) / 20e-6 / 55e9),
            "copy.pageable_large_per_step": 1.0,
            "copy.once_ratio": 0.0,
            "copy.exposed_ratio": 0.025,
            "copy.tiny_per_step": 1.0,
            "copy.tiny_htod_ratio": 0.0,
            "copy.tiny_time_ratio": 0.005,
            "copy.small_held_ratio": 0.005,
            "copy.dtod_busy_ratio": 0.0,
            "copy.dtod_window_ratio": 0.0,
            "memset.exposed_ratio": 0.0,
            "memset.bytes_per_step": 0.0,
            "copy.htod_bytes_per_step": float(1 << 17),
            "copy.link_time_ratio": 0.0,
            "copy.link_exposed_ratio": 0.0,
        },
    )


def test_steps_and_the_host(steps: FactBase) -> None:
    expect_values(
        steps,
        {
            "step.time_median_ms": 1.0,
            "step.host_range_median_ms": 0.9,
            "step.gpu_busy_ms": 0.275,
            "host.gap_ratio": 0.6,
            "host.gap_max_ms": 0.6,
            "host.step_max_over_median": 1.0,
            "host.step_outlier_ratio": 0.0,
            "host.step_outliers": 0,
            "host.step_outlier_time_ratio": 0.0,
            "host.step_outlier_prompt_ratio": 0.0,
            "host.steady_gap_ratio": 0.6,
            "host.gap_once_ratio": 0.0,
            "host.gap_pieces_per_step": 10 / 19,
            "host.pause_of_idle_ratio": 0.0,
            "host.data_loading_ratio": 0.0,
            "host.loading_gap_ratio": 0.0,
            "alloc.calls_per_step": 0.0,
            "alloc.time_ratio": 0.0,
        },
    )


def test_phase(steps: FactBase) -> None:
    expect_values(
        steps,
        {
            "phase.is_decode": True,
            "phase.is_prefill": False,
            "phase.step_ratio": 1.0,
            "phase.busy_ratio": 0.275,
            "phase.idle_ratio": 0.725,
            "phase.launch_idle_ratio": 0.020,
            "phase.gemm_ratio": 0.8,
            "phase.unfused_ratio": 0.2,
            "phase.attention_ratio": 0.0,
            "phase.skinny_gemm_ratio": 0.0,
            "phase.norm_activation_ratio": 0.0,
            "phase.other_ratio": 0.0,
            "phase.gemm_window_ratio": 0.2,
            "phase.attention_window_ratio": 0.0,
        },
        DECODE,
    )


def test_bytes_of_the_weights(tmp_path: Path) -> None:
    """480 MB in the 250 us of all kernels, or the 200 of the GEMM, of 4.8 TB/s; kernels reach 92 %
    of it at best."""
    base = built(decode(), tmp_path, 480_000_000)
    expect_values(base, {"bandwidth.weights_ratio": 100 / 250, "bandwidth.peak_rate": 4.8e12})
    expect_values(
        base,
        {"phase.gemm_dram_ratio": 0.5, "phase.gemm_headroom_window_ratio": 0.2 * (1 - 0.5 / 0.92)},
        DECODE,
    )


def test_what_the_capture_holds(steps: FactBase) -> None:
    expect_values(
        steps,
        {
            "capture.gpu_work_count": 80,
            "capture.kernel_count": 40,
            "capture.graph_launch_count": 0,
            "capture.graphs_launched": False,
            "capture.node_traced_count": 0,
            "capture.nvtx_range_count": 20,
            "capture.nvtx_coverage_ratio": 1.0,
            "capture.sample_count": 0,
            "capture.step_method": "ranges",
            "capture.overhead_idle_ratio": 0.0,
            # Four eager calls of 1.6 us in every ms.
            "capture.traced_call_cost_ratio": 0.0064,
            "capture.stacked_launch_ratio": 0.0,
            "capture.error_call_count": 0,
            "capture.captured_launch_ratio": 0.0,
            "capture.launch_without_kernel_ratio": 0.0,
            "capture.lost_kernel_ratio": 0.0,
            "capture.lost_call_ratio": 0.0,
            "capture.lost_copy_ratio": 0.0,
            "capture.lost_copy_idle_ratio": 0.0,
            "capture.lost_event_count": 0,
            "capture.uncounted_loss_count": 0,
            "capture.lost_row_ratio": 0.0,
            "capture.lost_ratio": 0.0,
            "capture.damaged_ratio": 0.0,
            "capture.correlation_jump": 0,
            "capture.empty_step_ratio": 0.0,
            "capture.opaque_graph_ratio": 0.0,
            "capture.hidden_graph_ratio": 0.0,
            "capture.unseen_graph_ratio": 0.0,
            "capture.invalid_row_ratio": 0.0,
            "capture.end_before_start_count": 0,
            "capture.before_launch_count": 0,
            "capture.stream_overlap_count": 0,
            "capture.outlasted_wait_count": 0,
            "capture.misissued_count": 0,
            "capture.call_overlap_count": 0,
            "capture.impossible_size_count": 0,
            "capture.repeated_row_count": 0,
            "capture.repeated_correlation_count": 0,
            "capture.disordered_correlation_count": 0,
            "capture.far_time_count": 0,
            "capture.nameless_count": 0,
            "capture.overfull_sample_count": 0,
            "capture.view_count": 0,
            "capture.refusal": "none",
            "capture.next_refusal": "none",
            "capture.schema_known": True,
            "capture.nsys_recorded": True,
            "capture.calls_recorded": True,
            "capture.compute_capability": 9,
            "gpu.tensor_cores": True,
            "gpu.bf16": True,
            "gpu.tf32": True,
            "gpu.int8": True,
            "gpu.fp8": True,
            "gpu.fp4": False,
            "gpu.dependent_launch": True,
            "gpu.wgmma": True,
            "gpu.cudnn_attention": True,
            "gpu.tcgen05": False,
            "gpu.multicast": True,
            "gpu.links": "NVLink",
            "gpu.model": "H200 SXM",
            "capture.stack_recorded": False,
            # Two kernels again and again are no model.
            "capture.workload": "micro-benchmark",
            "workload.kind": "micro-benchmark",
            "workload.confidence": 0.3,
            "capture.is_inference": False,
            "workload.is_model": False,
            "workload.is_language_model": False,
            "workload.is_training": False,
            "workload.framework": "pytorch",
            "workload.is_pytorch": True,
            # 19 steps of what lies between the first call and the end of the last copy.
            "capture.steady_ratio": 19 / 19.345,
            "capture.unused_ratio": 0.345 / 19.345,
            "capture.rest": "1.68 % outside the window",  # and 0.02 ms before the first kernel
            "capture.step_confidence": 0.95,
            "capture.event_count": 40 + 40 + 100 + 20,
            "capture.startup_ratio": 0.0,
            "capture.teardown_ratio": 0.0,
            "startup.context_ratio": 0.0,
            "startup.modules_ratio": 0.0,
            "startup.libraries_ratio": 0.0,
            "startup.graphs_ratio": 0.0,
            "startup.ranges_ratio": 0.0,
            "startup.upload_ratio": 0.0,
            "startup.allocation_ratio": 0.0,
        },
        TRACE,
    )


def test_operations(steps: FactBase) -> None:
    shares = {s: f.value for (n, s), f in steps.facts.items() if n == "operation.time_ratio"}
    gemm = max(shares, key=lambda s: float(shares[s]))
    expect_values(steps, {"operation.time_ratio": 0.8, "operation.window_ratio": 0.2}, gemm)


def test_tails(tmp_path: Path) -> None:
    """Every tenth of 200 like calls takes 30 us instead of 10: 20 us of 12 us a call are lost in
    each, and nothing else runs beside it."""
    e = Export().gpu().process(1)
    for i in range(200):
        e.launch(i * 50 * US, 5 * US, GEMM.name, i * 50 * US + 7 * US, (30 if i % 10 == 5 else 10) * US)
    base = built(e, tmp_path)
    scope = next(s for n, s in base.facts if n == "operation.max_over_p50")
    window = (199 * 50 + 10) * US
    expect_values(
        base,
        {
            "operation.count": 200,
            "operation.max_over_p50": 3.0,
            "operation.p99_over_p50": 3.0,
            "operation.tail_over_time_ratio": 400 / 2_400,
            "operation.slow_count": 20,
            "operation.trend_ratio": 0.0,
            "operation.tail_blocks_ratio": 1.0,
            "operation.tail_window_ratio": 400 * US / window,
            "operation.tail_p99_ratio": 400 * US / window,
            "operation.tail_steps_ratio": None,
            "operation.name": "GEMM (nvjet)",
            "operation.family": "gemm",
        },
        scope,
    )


def churn(count: int = 100) -> Export:
    """Without steps: each kernel after an allocation and before a free, a memset, a read-back, an
    upload and a wait for the whole device, 200 us apart."""
    e = Export().gpu().process(1)
    for i in range(count):
        t = i * 200 * US
        e.call("cudaMalloc_v3020", t, 20 * US)
        e.launch(t + 25 * US, 5 * US, "solve(float*, int)", t + 32 * US, 30 * US)
        e.memset(t + 65 * US, 10 * US, memset_start=t + 70 * US, api="cudaMemset_v3020")
        e.copy(t + 80 * US, 10 * US, "HtoD", 1 << 17, "pageable", t + 91 * US, 10 * US)
        e.copy(t + 105 * US, 10 * US, "DtoH", 4, "pinned", t + 116 * US, 2 * US)
        e.sync(t + 120 * US, 10 * US, api="cudaDeviceSynchronize_v3020")
        e.call("cudaFree_v3020", t + 140 * US, 20 * US)
    return e


def test_counts_without_steps_are_for_every_100_kernels(tmp_path: Path) -> None:
    base = built(churn(), tmp_path)
    assert base.value("capture.step_count") == 0
    # The window ends with the last read-back: what the host does before the first kernel and after
    # it is left out.
    expect_values(
        base,
        {
            "alloc.calls_per_100_kernels": 198.0,
            "sync.device_wide_per_100_kernels": 99.0,
            "sync.readbacks_per_100_kernels": 100.0,
            "sync.implicit_calls_per_100_kernels": 298.0,
            "sync.memset_per_100_kernels": 100.0,
            "copy.pageable_large_per_100_kernels": 100.0,
            "copy.tiny_per_100_kernels": 100.0,
        },
    )


def calls(count: int = 20) -> Export:
    """Steps of 1 ms: a kernel (20-120), an allocation of 100 us (200-300), a memset that the host
    waits for (400-420, on the device 405-410) and nothing until the next step; 3 ms of allocation
    in the last but one."""
    e = Export().gpu().process(1)
    t = 0
    for i in range(count):
        e.range(f"decode_step {i}", t, t + 900 * US)
        e.launch(t, 10 * US, NORM.name, t + 20 * US, 100 * US)
        e.call("cudaMalloc_v3020", t + 200 * US, 100 * US)
        e.memset(t + 400 * US, 20 * US, memset_start=t + 405 * US, memset_dur=5 * US, api="cudaMemset_v3020")
        if i == count - 2:
            e.call("cudaFree_v3020", t + 1_000 * US, 3_000 * US)
            t += 3_000 * US
        t += STEP
    return e


def test_allocations_and_memsets(tmp_path: Path) -> None:
    """19 steps and 3 ms: 22 ms. The stall is 30 times the median call."""
    base = built(calls(), tmp_path)
    expect_values(
        base,
        {
            "alloc.calls_per_step": 20 / 19,
            "alloc.idle_ratio": (1.9 + 3) / 22,
            "alloc.pinned_ratio": 0.0,
            "memset.exposed_ratio": 19 * 0.005 / 22,
            "memset.bytes_per_step": 4096.0,
            "alloc.stall_max_ns": 3e6,
            "alloc.stall_max_over_p50": 30.0,
            "alloc.time_ratio": (1.9 + 3) / 22,
            "alloc.stall_time_ratio": 3 / 22,
            "alloc.stall_of_idle_ratio": 3 / 4.9,
            "alloc.stall_idle_ratio": 3 / 22,
            "budget.alloc_ratio": (1.9 + 3) / 22,
            # The window begins and ends with a memset on the device.
            "sync.memset_per_step": 1.0,
            "sync.memset_idle_ratio": (18 * 0.015 + 0.005) / 22,
            "budget.copy_call_ratio": 19 * 0.015 / 22,
            "host.step_max_over_median": 4.0,
            "host.step_outlier_ratio": 1 / 19,
            "host.step_outliers": 1,
            "host.step_outlier_time_ratio": 3 / 22,
            "host.step_outlier_part": "alloc or free call",
            "host.step_outlier_part_ratio": 1.0,
            "host.slowest_step_lost_ms": 3.0,
            # Of 19 steps the 99th percentile is the slowest, four times the median.
            "host.step_p99_lost_ratio": 0.75,
            "host.step_rest_spread_ratio": 0.0,
        },
    )


def replayed(count: int = 20) -> Export:
    """Steps of 1 ms: a graph launch of 70 us (0-70) and its three nodes (100-200, 210-310,
    320-420) of one graph, and nothing until the next step."""
    e = Export().gpu().process(1)
    for i in range(count):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        nodes = [
            (k.name, t + at * US, 100 * US) for k, at in ((NORM, 100), (GEMV, 210), (DECODE_ATTENTION, 320))
        ]
        e.graph_launch(t, 70 * US, nodes)
    return e


def test_graphs(tmp_path: Path) -> None:
    """Two gaps of 10 us inside a replay; 680 us before the next, of which the host codes 580."""
    base = built(replayed(), tmp_path)
    expect_values(
        base,
        {
            "graph.launches_per_step": 1.0,
            "graph.kernel_ratio": 1.0,
            "budget.graph_internal_ratio": 0.020,
            "launch.eager_kernel_ratio": 0.0,
            "launch.calls_per_step": 0.0,
            "graph.replay_idle_ratio": 0.680,
            "graph.replay_call_idle_ratio": 0.100,
            "budget.waiting_ratio": 0.680,
            "kernel.skinny_gemm_ratio": 1 / 3,
            "budget.idle_ratio": 0.7,
        },
    )
    expect_values(
        base,
        {
            "phase.attention_ratio": 1 / 3,
            "phase.gemm_ratio": 1 / 3,
            "phase.skinny_gemm_ratio": 1 / 3,
            "phase.norm_activation_ratio": 1 / 3,
            "phase.unfused_ratio": 1 / 3,
            "phase.attention_window_ratio": 0.1,
            "phase.gemm_window_ratio": 0.1,
        },
        DECODE,
    )


def reduced(count: int = 20) -> Export:
    """Steps of 1 ms: a GEMM (20-120) and beside its second half an all-reduce (70-170), in the last
    step until 570."""
    e = Export().gpu().process(1)
    for i in range(count):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        e.launch(t, 10 * US, GEMM.name, t + 20 * US, 100 * US)
        e.launch(
            t + 20 * US,
            10 * US,
            ALL_REDUCE.name,
            t + 70 * US,
            (500 if i == count - 2 else 100) * US,
            stream=9,
        )
    return e


def test_what_outlasts_the_kernels(tmp_path: Path) -> None:
    """19 steps of 100 us in a product; collectives take 2,300 us, and copies up 150 us a step, down 20."""
    e = reduced()
    for i in range(20):
        t, pinned = i * STEP, {"memory": "pinned", "bytes": 1 << 20}
        e.copy(t + 40 * US, 2 * US, "HtoD", copy_start=t + 600 * US, copy_dur=150 * US, stream=8, **pinned)
        e.copy(t + 44 * US, 2 * US, "DtoH", copy_start=t + 800 * US, copy_dur=20 * US, stream=8, **pinned)
    base = built(e, tmp_path)
    expect_values(base, {"comm.over_compute": 2_300 / 1_900, "copy.over_compute": 1.5})


def test_collectives(tmp_path: Path) -> None:
    """19 steps with 100 us of communication each and 400 more in one; 50 of each are hidden."""
    base = built(reduced(), tmp_path)
    whole, hidden = 1_900 + 400, 19 * 50
    expect_values(
        base,
        {
            "comm.time_ratio": whole / 19_000,
            "comm.exposed_ratio": (whole - hidden) / 19_000,
            "comm.exposed_transfer_ratio": (whole - hidden) / 19_000,
            "comm.overlap_ratio": hidden / whole,
            "comm.calls_per_step": 1.0,
            "comm.max_over_mean": 500 / (whole / 19),
            "comm.excess_ratio": 300 / 19_000,
            "comm.repeated_excess_ratio": 0.0,
            "comm.waiting_known": False,
            "budget.communication_ratio": (whole - hidden) / 19_000,
        },
    )


@pytest.mark.parametrize("halves", [True, False])
def test_exchanges_with_experts(halves: bool, tmp_path: Path) -> None:
    """Steps of 1 ms: attention of 100 us, 80 us to the experts, 100 us of them, 80 us back, and an all-reduce
    of 40 us; or two halves of that, each attention and the experts of the first beside an exchange."""
    e = Export().gpu().process(1)
    experts, sends = "fused_moe_kernel", "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)"
    whole = [
        (DECODE_ATTENTION.name, 0, 100, 7), (sends, 100, 80, 9), (experts, 180, 100, 7), (sends, 280, 80, 9),
        (ALL_REDUCE.name, 400, 40, 9),
    ]  # fmt: skip
    cut = [
        (DECODE_ATTENTION.name, 0, 50, 7), (sends, 50, 40, 9), (DECODE_ATTENTION.name, 52, 50, 7),
        (sends, 102, 40, 9), (experts, 110, 50, 7), (sends, 160, 40, 9), (experts, 162, 50, 7),
        (sends, 212, 40, 9), (ALL_REDUCE.name, 400, 40, 9),
    ]  # fmt: skip
    for i in range(20):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        for name, at, us, stream in cut if halves else whole:
            e.launch(t + at * US // 2, 3 * US, name, t + (100 + at) * US, us * US, stream=stream)
    base = built(e, tmp_path)
    exposed = (2 + 8 + 2 + 40) if halves else 160
    expect_values(
        base,
        {
            "comm.exchange_exposed_ratio": exposed * 19 / 19_000,
            "comm.exchange_part_ratio": exposed / (exposed + 40),
            "comm.point_to_point_ratio": 0.0,
            "comm.exchange_hidden_ratio": 1 - exposed / 160,
            "comm.halves": halves,
        },
    )


def test_what_one_process_sends_to_another(tmp_path: Path) -> None:
    """Steps of 1 ms: 60 us received, of which a kernel of 100 us hides 20, and an all-reduce of 40 us."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        for name, at, us, stream in (
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 0, 60, 9),
            (DECODE_ATTENTION.name, 40, 100, 7),
            (ALL_REDUCE.name, 200, 40, 9),
        ):
            e.launch(t + at * US // 2, 3 * US, name, t + (100 + at) * US, us * US, stream=stream)
    base = built(e, tmp_path)
    expect_values(
        base, {"comm.point_to_point_ratio": 0.5, "comm.exchange_part_ratio": 0.0, "comm.reduces_ratio": 0.5}
    )


@pytest.mark.parametrize(
    ("step", "beside", "in_line"), [("decode_step", 0, 1.0), ("decode_step", 20, 0.0), ("prefill", 0, 0.0)]
)
def test_collectives_in_line_with_layers(step: str, beside: int, in_line: float, tmp_path: Path) -> None:
    """Steps of 1 ms: an all-reduce of 100 us behind a kernel; in some programs another one runs beside it."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        e.range(f"{step} {i}", t, t + 900 * US)
        rows = [(GEMM.name, 0, 100, 7), (ALL_REDUCE.name, 100, 100, 9), (GEMM.name, 200, 100, 7)]
        for name, at, us, stream in [*rows, (NORM.name, 110, beside, 7)] if beside else rows:
            e.launch(t + at * US // 2, 3 * US, name, t + (100 + at) * US, us * US, stream=stream)
    expect_values(built(e, tmp_path), {"comm.in_line_ratio": in_line})


@pytest.mark.parametrize(
    ("around", "exchange"),
    [
        ("nccl:all_to_all", 1.0),
        ("alltoall_base_", 1.0),
        ("all2all_dispatch", 1.0),
        ("nccl:recv 0<-1", 0.0),
        (None, 0.0),
    ],
)
def test_an_exchange_that_nccl_makes_of_sends(around: str | None, exchange: float, tmp_path: Path) -> None:
    """The kernel's name is that of sends and receives; the range around its launch tells what for."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        if around:
            e.range(around, t, t + 20 * US)
        name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        e.launch(t + 5 * US, 3 * US, name, t + 100 * US, 300 * US, stream=9)
        e.launch(t + 30 * US, 3 * US, GEMM.name, t + 500 * US, 100 * US)
    base = built(e, tmp_path)
    expect_values(base, {"comm.point_to_point_ratio": 1 - exchange})


def test_sends_that_take_longer_than_the_shortest(tmp_path: Path) -> None:
    """Steps of 1 ms: one send of 20 us and one receive of 300 us in each."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        for at, us in ((0, 20), (100, 300)):
            name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
            e.launch(t + at * US // 2, 3 * US, name, t + (100 + at) * US, us * US, stream=9)
    base = built(e, tmp_path)
    expect_values(base, {"comm.point_to_point_ratio": 1.0, "comm.point_to_point_over_ratio": 280 / 320})


def test_collectives_of_gradients(tmp_path: Path) -> None:
    """A product, an all-reduce of 30 us, the loss, two of 40 and 20 us, the optimiser, one of 30 us."""
    loss = "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)"
    adam = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>"
    e = Export().gpu().process(1)
    at = 100 * US
    for _ in range(10):
        for name, us in (
            (GEMM.name, 50), (ALL_REDUCE.name, 30), (loss, 5), (ALL_REDUCE.name, 40), (ALL_REDUCE.name, 20),
            (adam, 50), (ALL_REDUCE.name, 30),
        ):  # fmt: skip
            e.launch(at - 50 * US, 3 * US, name, at, us * US)
            at += (us + 1) * US
    expect_values(built(e, tmp_path), {"comm.gradient_ratio": 60 / 120})


@pytest.mark.parametrize("named", [True, False])
def test_collectives_in_rows(named: bool, tmp_path: Path) -> None:
    """Steps of 1 ms: eight products of 20 us, then an all-reduce of 150 and five of 40 us; a last product,
    and one more of 40 us. Five follow another one."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        if named:
            e.range(f"decode_step {i}", t, t + 900 * US)
        work = (
            [(GEMM, 20)] * 8 + [(ALL_REDUCE, us) for us in (150, *[40] * 5)] + [(GEMM, 20), (ALL_REDUCE, 40)]
        )
        at = t + 100 * US
        for j, (kernel, us) in enumerate(work):
            e.launch(t + j * 5 * US, 3 * US, kernel.name, at, us * US)
            at += (us + 1) * US
    base = built(e, tmp_path)
    assert base.value("comm.row_exposed_ratio", DEVICE) == pytest.approx(0.2, rel=0.1)
    if named:
        assert base.value("comm.row_calls_per_step", DEVICE) == 5
    else:
        assert base.value("comm.row_calls_per_100_kernels", DEVICE) == pytest.approx(31.25, rel=0.02)


@pytest.mark.parametrize("named", [True, False])
def test_cuda_calls_that_issue_nothing(named: bool, tmp_path: Path) -> None:
    """Steps of 1 ms: 100 us of a kernel, 300 us in cudaMemGetInfo, 50 us in cudaGetDevice, and a callback
    that is queued in 400 us."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        if named:
            e.range(f"decode_step {i}", t, t + 999 * US)
        e.launch(t, 5 * US, GEMM.name, t + 10 * US, 100 * US)
        for at, us, name in ((150, 300, "MemGetInfo"), (460, 50, "GetDevice"), (520, 400, "LaunchHostFunc")):
            e.call(f"cuda{name}_v3020", t + at * US, us * US)
    base = built(e, tmp_path)
    assert base.value("call.other_name", DEVICE) == "cudaMemGetInfo and cudaGetDevice"
    assert base.value("call.other_idle_ratio", DEVICE) == pytest.approx(0.35, rel=0.06)
    assert base.value("call.other_of_idle_ratio", DEVICE) == pytest.approx(0.35 / 0.9, rel=0.06)
    if named:
        assert base.value("call.others_per_step", DEVICE) == 2
    else:
        assert base.value("call.others_per_100_kernels", DEVICE) == pytest.approx(190, rel=0.06)


def sampled(seconds: int = 2, name: str = GEMM.name) -> Export:
    """A kernel of 9 ms every 10 ms, and samples of 10 ms: SM Active 80 %, DRAM 20 + 10 %, Tensor
    Active 40 %, GR Active 90 %; in every other tenth of a second SM Active is 20 %."""
    e = Export().gpu().process(1)
    count = 100 * seconds
    for i in range(count):
        e.launch(i * 10_000 * US, 5 * US, name, i * 10_000 * US + 10 * US, 9_000 * US)
    sm = [80 if i // 10 % 2 == 0 else 20 for i in range(count)]
    return e.gpu_metrics(
        {
            "GR Active": [90] * count,
            "SMs Active": sm,
            "Tensor Active": [40] * count,
            "DRAM Read Bandwidth": [20] * count,
            "DRAM Write Bandwidth": [10] * count,
        },
        period_ns=10_000 * US,
        start=20 * US,
    )


def test_samples(tmp_path: Path) -> None:
    base = built(sampled(), tmp_path)
    expect_values(
        base,
        {
            "capture.sample_count": 200,
            "capture.sample_period_ns": 1e7,
            "capture.sample_period_over_kernel": 10 / 9,
            "capture.gpu_busy_sampled_ratio": 0.9,
        },
        TRACE,
    )
    sm = (100 * 0.8 + 99 * 0.2) / 199  # the last sample ends after the window
    busy = float(base.value("budget.busy_ratio", DEVICE) or 0)
    assert busy == pytest.approx(0.9, abs=0.001)
    expect_values(
        base,
        {
            "activity.sm_ratio": sm,
            "activity.gr_ratio": 0.9,
            "activity.dram_ratio": 0.3,
            "activity.work_recorded": True,
            "activity.busy_ratio": busy,
            "activity.idle_ratio": 1 - busy,
            "activity.samples_off_ms": 0.0,
            "activity.sm_busy_ratio": sm / busy,
            "activity.tensor_busy_ratio": 0.4 / busy,
            "activity.dram_busy_ratio": 0.3 / busy,
            "activity.dram_bound_most_ratio": 0.3 / busy / (0.8 * 0.92),
            "activity.burst_low_ratio": 0.2,
            "activity.burst_high_ratio": 0.8,
            "activity.burst_count": 9,
            # The GEMM is all that runs, so what is sampled is its own.
            "activity.kernels_resolved": True,
            "activity.matmul_tensor_ratio": 0.4 / 0.9,
            "activity.dram_bound_busy_ratio": 0.0,
            "activity.dram_bound_likely_ratio": 0.0,
        },
    )
    assert base.value("activity.resolved_ratio", DEVICE) == pytest.approx(1.0, abs=0.001)


def test_samples_of_attention(tmp_path: Path) -> None:
    """Attention is all that runs, for 9 of 10 ms, and DRAM is 30 % active over them."""
    e = sampled(name=DECODE_ATTENTION.name)
    for i in range(200):
        e.range(f"decode_step {i}", i * 10_000 * US, i * 10_000 * US + 9_000 * US)
    expect_values(built(e, tmp_path), {"phase.attention_dram_ratio": 0.3 / 0.9}, DECODE)


@pytest.mark.parametrize(
    ("command", "debug", "client"),
    [
        (("cargo", "run"), True, False),
        (("cargo", "run", "--release"), False, False),
        (("curl", "http://localhost:8000/v1/completions"), False, True),
    ],
)
def test_the_command_line(command: tuple[str, ...], debug: bool, client: bool, tmp_path: Path) -> None:
    base = built(decode().command(*command), tmp_path)
    assert base.value("capture.debug_build") is debug
    assert base.value("capture.client_command") is client


def test_the_file(tmp_path: Path) -> None:
    export = decode().traced("Cuda").diagnostic("CUDA profiling might have not been started correctly")
    base = built(export, tmp_path)
    assert base.value("capture.cuda_traced") is True
    assert base.value("capture.size_bytes") == (tmp_path / "t.sqlite").stat().st_size
    assert base.value("capture.refusal") == "not-started"
    (known,) = (r for r in capture_knowledge().refusals if r.id == "not-started")
    assert base.value("capture.refusal_text") == known.says


def test_the_most_frequent_error_is_named(tmp_path: Path) -> None:
    export = decode()
    for code in (704, 704, 704, 9, 700, 700):
        export.call("cudaFree_v3020", 0, result=code)
    base = built(export, tmp_path)
    assert base.value("capture.error_kind") == "crash"
    known = capture_knowledge().errors[700]
    assert base.value("capture.error_text") == f"cudaFree returned 700, {known.name}: {known.says}"


def test_a_program_that_calls_nothing_of_cuda(tmp_path: Path) -> None:
    export = Export().gpu().process(1).range("forward", 0, 1_000_000).traced("Cuda", "NvtxEvents")
    base = built(export, tmp_path)
    assert base.value("capture.ran_on") == "cpu"
    why = "CUDA was traced, and the recorded processes did not call it"
    assert base.value("capture.ran_on_signs") == f"the program ran on the CPU ({why})"


def test_memory(tmp_path: Path) -> None:
    """1 GB, 2 GB more, 1 GB freed: 3 GB of 150 at the most."""
    export = decode().alloc(0, 10**9, 0x1000).alloc(5 * US, 2 * 10**9, 0x2000)
    export.alloc(2 * STEP, 10**9, 0x1000, free=True)
    expect_values(
        built(export, tmp_path),
        {"memory.peak_bytes": 3e9, "memory.least_used_ratio": 0.02, "memory.growth_ratio": 0.0},
    )


def test_allocations_of_a_host_that_runs_ahead(tmp_path: Path) -> None:
    """Each step is allocated and launched in 50 us and runs for 1 ms: the calls take 2 % of the
    window, not 40 % of the time that the host needs."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * 50 * US
        e.range(f"decode_step {i}", t, t + 45 * US)
        e.call("cudaMalloc_v3020", t, 20 * US)
        e.launch(t + 30 * US, 10 * US, GEMM.name, 50 * US + i * STEP, STEP)
    expect_values(built(e, tmp_path), {"alloc.time_ratio": 0.02, "alloc.idle_ratio": 0.0})


def test_calls_that_lock_memory_of_the_host(tmp_path: Path) -> None:
    """300 of 400 us of allocation a step."""
    e = Export().gpu().process(1)
    for i in range(20):
        e.launch(i * STEP, 10 * US, GEMM.name, i * STEP + 20 * US, 100 * US)
        for at, us, name in ((200, 200, "HostAlloc"), (410, 100, "Malloc"), (520, 100, "FreeHost")):
            e.call(f"cuda{name}_v3020", i * STEP + at * US, us * US)
    expect_values(built(e, tmp_path), {"alloc.pinned_ratio": 0.75})


@pytest.mark.parametrize("waits", [4, 20, 0])
def test_launch_calls_that_return_after_their_kernel(waits: int, tmp_path: Path) -> None:
    """Of 20 calls so many last 10 us longer than their kernel of 100 us, the others 5 us."""
    e = Export().gpu().process(1)
    for i in range(20):
        e.launch(i * STEP, (130 if i < waits else 5) * US, GEMM.name, i * STEP + 20 * US, 100 * US)
    assert built(e, tmp_path).value("capture.blocking_launch_ratio") == waits / 20


def test_what_tensors_use_of_the_allocators_memory(tmp_path: Path) -> None:
    """The allocator takes 1 GB more in every step, and tensors use 1 GB of it all the time."""
    profile = kineto_decode()
    for step in range(12):
        profile.memory(step * STEP + 5_000, (step + 1) * 10**9, allocated=10**9)
    d = diagnose(profile.write(tmp_path / "t.json"))
    values = {f.name: f.value for f in d.facts}
    assert values["memory.tensors_ratio"] == pytest.approx(1 / 12)
    (growth,) = (f for f in d.findings if f.cause == "memory-growth")
    assert "tensors used 8.33 % of what it held" in growth.message
    assert growth.recommendations[0].id == "expandable-segments"


def host_work(name: str) -> Export:
    """Steps of 1 ms: a kernel (20-120) and a range of 500 us (300-800) in the gap of 880 us that
    begins with its end; the 20 us before the next kernel are the launch."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        e.launch(t, 10 * US, NORM.name, t + 20 * US, 100 * US)
        e.range(name, t + 300 * US, t + 800 * US)
    return e


def test_the_wait_for_a_data_loader(tmp_path: Path) -> None:
    """500 us of poll in a gap of 880 us, 400 us of them inside the loader's range."""
    e = host_work("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
    for i in range(20):
        e.osrt("poll", i * STEP + 200 * US, 500 * US)
    expect_values(built(e, tmp_path), {"host.os_loading_ratio": 0.8, "host.os_idle_ratio": 0.5})


def test_a_name_that_is_alone_keeps_its_numbers(tmp_path: Path) -> None:
    expect_values(built(host_work("cv2.resize"), tmp_path), {"host.gap_range": "cv2.resize"})


def test_ranges_of_the_host(tmp_path: Path) -> None:
    base = built(host_work("prepare_inputs"), tmp_path)
    expect_values(
        base,
        {
            "host.gap_range": "prepare_inputs",
            "host.gap_range_ratio": 500 / 880,
            "host.gap_in_operator": False,
            "host.preparation_ratio": 0.5,
            "budget.host_gap_ratio": 0.88,
        },
    )


def test_start_up_inside_a_gap_explains_none_of_the_rest(tmp_path: Path) -> None:
    """An operator loads a library for 6 ms, 3 ms of host code after the last kernel: it covers 0.5 ms of
    the 3.5 ms of host code."""
    e = Export().gpu().process(1)
    e.range("prefill 0", 0, 13_000 * US)
    for i in range(40):
        e.launch(i * 30 * US, 10 * US, NORM.name, i * 30 * US + 20 * US, 25 * US)
    e.range("aten::cudnn_convolution", 4_200 * US, 10_900 * US)
    e.call("cuLibraryLoadData", 4_600 * US, 6_000 * US)
    for i in range(40):
        t = 10_700 * US + i * 30 * US
        e.launch(t, 10 * US, NORM.name, t + 20 * US, 25 * US)
    base = built(e, tmp_path)
    assert base.value("host.gap_max_ms", DEVICE) == pytest.approx(3.5, abs=0.2)
    assert base.value("host.gap_range", DEVICE) is None


def test_an_operator_that_launches_runs_on_the_gpu(tmp_path: Path) -> None:
    """The operator stands around 800 us of host code and the launch behind it."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 999 * US)
        e.range("aten::convolution", t + 100 * US, t + 950 * US)
        e.launch(t + 900 * US, 10 * US, NORM.name, t + 920 * US, 70 * US)
    expect_values(
        built(e, tmp_path),
        {
            "host.gap_range": "aten::convolution",
            "host.gap_in_operator": False,
            "host.gap_launches_nothing": False,
        },
    )


def test_the_gil(tmp_path: Path) -> None:
    base = built(host_work("Waiting for GIL"), tmp_path)
    expect_values(base, {"host.gil_wait_ratio": 0.5, "host.gil_idle_ratio": 0.5, "budget.gil_ratio": 0.5})


def test_garbage_collection(tmp_path: Path) -> None:
    base = built(host_work("Python GC"), tmp_path)
    expect_values(base, {"host.gc_idle_ratio": 0.5, "host.gc_max_ns": 5e5, "budget.gc_ratio": 0.5})


def test_the_window(steps: FactBase, tmp_path: Path) -> None:
    """19 steps of four operations that keep the device busy for 275 us; one graph launch of three
    kernels, thrice a step; a prefill of 10 ms before the first of 20 steps of 1 ms."""
    expect_values(
        steps,
        {
            "capture.window_work_count": 19 * 4,
            "capture.window_busy_ms": 19 * 0.275,
            "capture.window_busy_ratio": 0.275,
            "capture.steps_busy_ratio": 0.275,
            "capture.window_chosen": False,
            "capture.outside_work_ratio": 0.0,
            "capture.earlier_work_ratio": 0.0,
        },
        TRACE,
    )
    held = Export().gpu().process(1)
    held.launch(at=0, dur=10 * US, kernel=GEMM.name, kernel_start=10_010 * US, kernel_dur=2_490 * US)
    (tmp_path / "held").mkdir()
    queued = {"capture.earlier_work_ratio": 0.8, "capture.earlier_work_ms": 10.0}
    expect_values(built(held, tmp_path / "held"), queued, TRACE)
    pieces = Export().gpu().process(1)
    for i in range(20):
        pieces.range(f"decode_step {i}", i * STEP, i * STEP + 900 * US)
        for k in range(3):
            t = i * STEP + k * 200 * US
            nodes = [(GEMM.name, t + (30 + 50 * n) * US, 40 * US) for n in range(3)]
            pieces.graph_launch(at=t, dur=20 * US, nodes=nodes)
    (tmp_path / "pieces").mkdir()
    levels = built(pieces, tmp_path / "pieces")
    expect_values(levels, {"capture.step_levels": "3 graph launches"}, TRACE)
    late = Export().gpu().process(1)
    late.range("decode_step 0", 0, 10_900 * US).launch(0, 10 * US, GEMM.name, 20 * US, 10_000 * US)
    for i in range(1, 20):
        t = 10_100 * US + i * STEP
        late.range(f"decode_step {i}", t, t + 900 * US)
        late.launch(t, 10 * US, GEMM.name, t + 20 * US, 500 * US)
    outside = built(late, tmp_path)
    whole = f"{20 / 1e6:.6f}s/{(10_100 + 19_000 + 520) / 1e6:.6f}s"
    expect_values(outside, {"capture.whole_work_window": whole}, TRACE)


def test_weights_of_few_bits(tmp_path: Path) -> None:
    """Of 400 us of matrix products a step 100 read weights of 8 bits."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        e.launch(t, 10 * US, GEMM.name, t + 20 * US, 300 * US)
        e.launch(t + 30 * US, 10 * US, "deep_gemm::fp8_gemm_kernel", t + 330 * US, 100 * US)
    expect_values(built(e, tmp_path), {"kernel.quantised_matmul_ratio": 0.25})


def test_unified_memory(tmp_path: Path) -> None:
    """A kernel of 100 us (20-120) in every ms: 64 KiB migrate beside it on a fault (50-70) and 64
    KiB after it on a prefetch (200-230), for which the device waits 80 us."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        e.launch(t, 10 * US, NORM.name, t + 20 * US, 100 * US)
        e.migration(t + 50 * US, 20 * US).migration(t + 200 * US, 30 * US, cause="prefetch")
    base = built(e, tmp_path)
    expect_values(
        base,
        {
            "unified.migration_count": 38,
            "unified.migrated_bytes": 38 << 16,
            "unified.migration_ratio": 0.050,
            "unified.stall_ratio": 0.020,
            "unified.unasked_ratio": 0.5,
            "budget.migration_ratio": 0.030,
            "budget.unified_memory_ratio": 0.080,
            "unified.exposed_ratio": 0.110,
            "unified.lost_ratio": 0.130,
        },
    )


def test_host_code_up_to_pages_of_unified_memory(tmp_path: Path) -> None:
    """Ten times a kernel, an idle 400 us up to a page on its way (100 us of them the fault), and a
    kernel; nine times then 350 us of host code up to the next launch. From page to launch 2 us of idle
    end 427 us of host code."""
    e = Export().gpu().process(1)
    for i in range(10):
        t = i * 800 * US
        e.launch(t, 5 * US, NORM.name, t + 10 * US, 10 * US)
        e.migration(t + 420 * US, 10 * US, "DtoH")
        e.launch(t + 432 * US, 5 * US, NORM.name, t + 440 * US, 10 * US)
    base = built(e, tmp_path)
    expect_values(base, {"host.gap_on_pages_ratio": 10 * 300 / (10 * (300 + 2) + 9 * 350)})


def test_graphs_that_are_built_in_steps(tmp_path: Path) -> None:
    """Of each ms 100 us of graph, 150 us of capture with a launch in it, and 50 us of instantiation."""
    e = Export().gpu().process(1)
    for i in range(12):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        e.call("cudaStreamBeginCapture_v10000", t + 200 * US, 10 * US)
        e.call("cudaLaunchKernel_v7000", t + 250 * US, 10 * US)
        e.call("cudaStreamEndCapture_v10000", t + 340 * US, 10 * US)
        e.call("cudaGraphInstantiate_v12000", t + 400 * US, 50 * US)
        e.graph_launch(t + 500 * US, 20 * US, [(GEMM.name, t + 530 * US, 100 * US)])
    expect_values(
        built(e, tmp_path),
        {"graph.builds_per_step": 1.0, "graph.build_idle_ratio": 0.2, "graph.build_of_idle_ratio": 0.2 / 0.9},
    )


def test_kernels_that_quantise_and_that_add_up_splits(tmp_path: Path) -> None:
    """Of each ms 40 us quantise before a product of 160, and 30 add up what attention of 60 made of the parts
    of a sequence; 10 us that quantise before no product are not counted."""
    kernels = ((PER_TOKEN, 40), (GEMM, 160), (DECODE_ATTENTION, 60), (COMBINE, 30), (PER_TOKEN, 10))
    e = Export().gpu().process(1)
    for i in range(20):
        t = at = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        for k, (kernel, length) in enumerate(kernels):
            at += 20 * US
            e.launch(t + k * 10 * US, 5 * US, kernel.name, at, length * US, grid=(kernel.blocks, 1, 1))
            at += length * US
    expect_values(
        built(e, tmp_path),
        {
            "kernel.quantise_ratio": 40 / 300,
            "kernel.quantise_window_ratio": 0.040,
            "kernel.kv_combine_ratio": 30 / 60,
            "kernel.kv_combine_window_ratio": 0.030,
        },
    )


def test_split_attention_that_need_not_split(tmp_path: Path) -> None:
    """Of each ms 100 us with two blocks of queries, 60 with one block and few sequences, 40 with one block
    and as many blocks as SMs, which nothing adds up."""
    e = Export().gpu().process(1)
    for i in range(20):
        t = at = i * STEP
        e.range(f"step {i}", t, t + 900 * US)
        for k, (grid, length) in enumerate((((2, 1, 8), 100), ((1, 4, 8), 60), ((1, 17, 8), 40))):
            at += 20 * US
            name = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4>>(T)"
            e.launch(t + k * 10 * US, 5 * US, name, at, length * US, grid=grid)
            at += length * US
    expect_values(
        built(e, tmp_path),
        {"kernel.full_split_window_ratio": 0.140, "kernel.prompt_split_window_ratio": 0.100},
    )


def of_two_processes(start_us: int, length_us: int) -> Export:
    """Two processes with a kernel each ms on one device, launched at 0-10 and 10-20 us. That of the first
    runs at 20-420, that of the second begins at `start_us`, 420 at most: until then it waits."""
    e = Export().gpu()
    for i in range(20):
        t = i * STEP
        for pid, called, start, length in ((1, 0, 20, 400), (2, 10, start_us, length_us)):
            e.process(pid).range(f"decode_step {i}", t, t + 900 * US)
            e.launch(t + called * US, 10 * US, GEMM.name, t + start * US, length * US)
    return e


def test_processes_that_share_a_device(tmp_path: Path) -> None:
    """Both run for 100 of the 500 us in which the device is busy; the second one waits for 300."""
    expect_values(
        built(of_two_processes(320, 200), tmp_path),
        {
            "launch.process_count": 2,
            "launch.process_overlap_ratio": 100 / 500,
            "launch.process_beside_ratio": 0.100,
            "launch.process_wait_ratio": 0.300,
            "launch.process_held_ratio": 0.400,
            "launch.process_sharing": "they share its SMs",
            "launch.process_steps": "1 in 19 steps of 1 ms, 2 in 19 steps of 1 ms",
        },
    )


def test_processes_that_take_turns_on_a_device(tmp_path: Path) -> None:
    """The second one waits for all of the 400 us of the first."""
    expect_values(
        built(of_two_processes(420, 500), tmp_path),
        {
            "launch.process_overlap_ratio": 0.0,
            "launch.process_beside_ratio": 0.0,
            "launch.process_wait_ratio": 0.400,
            "launch.process_held_ratio": 0.400,
            "launch.process_sharing": "the device switches between them in time slices",
        },
    )
