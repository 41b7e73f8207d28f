"""Facts of sums alone: values that can be read off the tables, and which rules they let speak."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest

import advisor
from advisor.facts.catalog import build_facts
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import TRACE, FactBase, Scope
from advisor.model.findings import Diagnosis
from advisor.sources.open import open_trace
from tests.facts.test_values import expect_values
from tests.pasted import Printed, pasted, printed
from tests.scenarios.support import ranked, severity

STORED = Path(__file__).parents[1] / "data" / "oracle"

#: 40 ms of kernels: a skinny GEMM in BF16, a GEMV in FP8, an all-reduce, two kinds of elementwise.
KERNELS = printed(
    "cuda_gpu_kern_sum",
    ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", 1000, 15000.0, 15000.0, 14000, 16000, 100.0),
    ("fp8_gemv_kernel(int)", 500, 10000.0, 10000.0, 9000, 11000, 50.0),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 100, 100000.0, 60000.0, 20000, 3100000, 300000.0),
    ("void at::native::vectorized_elementwise_kernel<4>(int)", 2000, 4000.0, 4000.0, 4000, 4000, 0.0),
    ("triton_poi_fused_mul_silu_0", 400, 5000.0, 5000.0, 5000, 5000, 0.0),
)
#: 40 ms of calls: 4 ms of launches, 10 of waits, 16 of allocation, 8 of module loads, 2 of others.
CALLS = printed(
    "cuda_api_sum",
    ("cuMemAllocAsync", 4000, 4000.0, 4000.0, 4000, 4000, 0.0),
    ("cuMemcpyDtoHAsync_v2", 200, 50000.0, 50000.0, 40000, 60000, 0.0),
    ("cuModuleLoadData", 4, 2000000.0, 2000000.0, 2000000, 2000000, 0.0),
    ("cudaLaunchKernel", 4000, 1000.0, 900.0, 700, 900000, 0.0),
    ("cudaEventRecord", 1000, 2000.0, 2000.0, 2000, 2000, 0.0),
)
COPIES = printed(
    "cuda_gpu_mem_time_sum",
    ("[CUDA memcpy Host-to-Device]", 100, 60000.0, 60000.0, 60000, 60000, 0.0),
    ("[CUDA memcpy DtoH]", 200, 2000.0, 2000.0, 2000, 2000, 0.0),
    ("[CUDA memcpy DtoD]", 100, 36000.0, 36000.0, 36000, 36000, 0.0),
)
RANGES = Printed(
    "nvtx_sum",
    ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Style", "Range"),
    (
        (50.0, 20_000_000, 20, 1_000_000.0, "PushPop", ":decode_step"),
        (50.0, 20_000_000, 1, 2e7, "PushPop", "iteration 1"),
    ),
)


def facts(folder: Path, *reports: Printed) -> FactBase:
    path = folder / "stats.txt"
    path.write_text(pasted(reports))
    with open_trace(path) as trace:
        return build_facts(measure(trace))


def test_a_row_whose_largest_value_is_below_its_mean_says_nothing_of_spread(tmp_path: Path) -> None:
    base = facts(tmp_path, printed("cuda_gpu_kern_sum", ("gemm", 100, 47_400.0, 1.0, 2, 47_000, 90.0)))
    assert {f.name for f in base if f.name.startswith("sums.slowest")} == set()


def told(folder: Path, reports: Sequence[Printed] | str) -> Diagnosis:
    path = folder / "stats.txt"
    path.write_text(reports if isinstance(reports, str) else pasted(reports, "columns"))
    return advisor.diagnose(path)


def test_values(tmp_path: Path) -> None:
    base = facts(tmp_path, KERNELS, CALLS, COPIES, RANGES)
    expect_values(
        base,
        {
            "capture.sums_only": True,
            "capture.kernel_count": 4000,
            "capture.gpu_work_count": 4400,
            "capture.step_count": 20,
            "capture.nvtx_range_count": 21,
            "capture.graph_launch_count": 0,
            "capture.opaque_graph_ratio": 0.0,
            "capture.workload": "LLM decode",
            "sums.startup_api_ratio": 8 / 40,
        },
        TRACE,
    )
    expect_values(
        base,
        {
            "sums.kernel_ms": 40.0,
            "sums.kernel_mean_ns": 10_000.0,
            # 4,000 launches of 900 ns as a rule.
            "sums.launch_over_kernel": 3.6 / 40,
            "sums.launch_idle_ratio": 0.0,
            "sums.wait_ratio": 10 / 40,
            "sums.longest_wait": "cuMemcpyDtoHAsync, 200 calls of 50 us on average",
            "sums.allocation_ratio": 16 / 40,
            # 32 ms without the module loads; no launch took a millisecond.
            "sums.launch_call_ratio": 4 / 32,
            "sums.launch_call_count": 4000,
            "sums.launch_call_mean_ns": 1000.0,
            "sums.allocation_call_ratio": 16 / 32,
            "sums.allocation_call_count": 4000,
            # 6.4 ms of copies from and to the host of 50 ms in all.
            "sums.copy_ratio": 6.4 / 50,
            "sums.memset_ratio": 0.0,
            # 10 ms of waits beside 40 ms of kernels.
            "sums.wait_beyond_kernels_ratio": 0.0,
            "alloc.pinned_ratio": 0.0,
            "sums.upload_of_copies_ratio": 6 / 6.4,
            "sums.collective_ratio": 10 / 40,
            "sums.collective_above_least_ratio": 0.8,
            "sums.product_ratio": 20 / 30,
            "sums.skinny_of_products_ratio": 1.0,
            "sums.precisions": "bf16 75 %, fp8 25 %",
            "kernel.top_operation_ratio": 15 / 40,
            "kernel.unfused_ratio": 10 / 40,
            "kernel.quantised_matmul_ratio": 0.25,
            "kernel.compiled_ratio": 400 / 2400,
            "kernel.duration_p50_ns": 4000.0,
            "kernel.unfused_p50_ns": 4000.0,
            "kernel.per_step": 200.0,
            "copy.dtod_busy_ratio": 3.6 / 50,
            "alloc.calls_per_step": 200.0,
            "sync.readbacks_per_step": 10.0,
        },
    )
    expect_values(
        base,
        {
            "operation.count": 100,
            "sums.max_over_p50": 3100 / 60,
            "sums.slowest_deviations": 10.0,
            # 100 x 100 us less 100 x 60 us, of 40 ms.
            "sums.lost_ratio": 0.1,
        },
        Scope(device=0, operation="NCCL AllReduce"),
    )
    assert base.facts["kernel.unfused_ratio", Scope(device=0)].tables == ("sums",)


def test_sizes_and_queues(tmp_path: Path) -> None:
    sizes = Printed(
        "cuda_gpu_mem_size_sum",
        ("Total (MB)", "Count", "Avg (MB)", "Operation"),
        ((0.04, 40, 0.001, "[CUDA memcpy HtoD]"), (1000.0, 10, 100.0, "[CUDA memcpy DtoH]")),
    )
    launches = Printed(
        "cuda_kern_exec_sum",
        ("Count", "QCount", "AAvg (ns)", "QAvg (ns)", "KAvg (ns)", "API Name", "Kernel Name"),
        ((4000, 4000, 900, 5000, 10000, "cudaLaunchKernel", "norm_kernel"),),
    )
    base = facts(tmp_path, sizes, launches, CALLS)
    expect_values(
        base,
        {
            "copy.tiny_per_100_kernels": 1.0,
            "launch.queue_over_kernel": 0.5,
            "sync.readbacks_per_100_kernels": 0.0,
        },
    )


def test_what_was_not_printed_is_not_known(tmp_path: Path) -> None:
    base = facts(tmp_path, KERNELS)
    assert base.value("alloc.calls_per_100_kernels", Scope(device=0)) is None
    assert base.missing["sums.wait_ratio"] == "the sums hold no cuda_api_sum"
    assert base.missing["budget.idle_ratio"] == "sums do not say it"
    assert base.value("capture.gpu_work_count") == 4000


def test_what_it_says_and_what_takes_a_capture(tmp_path: Path) -> None:
    d = told(tmp_path, (KERNELS, CALLS, COPIES, RANGES))
    assert set(ranked(d)) >= {
        "collective-time",
        "allocation-churn",
        "readback-per-layer",
        "slow-calls",
        "startup-in-sums",
    }
    assert severity(d, "allocation-churn") == "medium"
    # Told more precisely by the read-backs.
    assert severity(d, "host-waits") is None
    assert "product-shapes" in {h.cause for h in d.observed}
    assert max(f.confidence for f in d.findings if f.scope.device is not None) < 0.8
    assert "advisor REPORT.sqlite" in d.verdict
    needed = {n.code: n.flag for n in d.not_evaluated}
    assert needed["UTL100"] == "the capture that was summed up (advisor REPORT.sqlite)"
    assert needed["UTL104"] == "nsys profile --trace=cuda,nvtx --gpu-metrics-devices=all"
    assert d.next_target is not None
    assert "nvjet_sm90_tst_64x8" in d.next_target.command


def test_short_kernels_launched_one_by_one(tmp_path: Path) -> None:
    tiny = printed("cuda_gpu_kern_sum", ("norm_kernel", 4000, 2000.0, 2000.0, 2000, 2000, 0.0))
    slow = printed("cuda_api_sum", ("cudaLaunchKernel", 4000, 5000.0, 4000.0, 3000, 6000, 0.0))
    graphs = printed("cuda_api_sum", ("cudaGraphLaunch", 20, 5000.0, 4000.0, 3000, 6000, 0.0))
    assert ranked(told(tmp_path, (tiny, slow)))[0] == "launches-outlast-kernels"
    assert "launches-outlast-kernels" in ranked(told(tmp_path, (tiny,)))
    assert "launches-outlast-kernels" not in ranked(told(tmp_path, (tiny, graphs)))


def test_graphs_whose_kernels_were_not_recorded(tmp_path: Path) -> None:
    calls = printed(
        "cuda_api_sum",
        ("cudaGraphLaunch", 20, 5000.0, 4000.0, 3000, 6000, 0.0),
        ("cudaLaunchKernel", 4000, 900.0, 900.0, 900, 900, 0.0),
    )
    assert "opaque-cuda-graphs" in {f.cause for f in told(tmp_path, (KERNELS, calls)).findings}


@pytest.mark.parametrize("report", ["cuda_gpu_kern_sum", "nvtx_kern_sum", "cuda_kern_exec_sum"])
def test_reports_of_the_same_kernels_agree(tmp_path: Path, report: str) -> None:
    text = lzma.decompress((STORED / f"decode_eager_bs1.{report}.csv.xz").read_bytes()).decode()
    path = tmp_path / "stats.csv"
    path.write_text(text)
    with open_trace(path) as trace:
        base = build_facts(measure(trace))
    assert base.value("capture.kernel_count") == 12_736
    assert base.value("sums.kernel_ms", Scope(device=0)) == pytest.approx(30.8925, abs=1e-4)


def test_the_sums_of_a_capture_say_what_the_capture_says(tmp_path: Path) -> None:
    """Its diagnosis: launch-bound at 84 % of the window, then unfused-elementwise."""
    texts = (lzma.decompress(p.read_bytes()).decode() for p in sorted(STORED.glob("decode_eager_bs1.*")))
    d = told(tmp_path, "\n".join(texts))
    assert ranked(d) == ["launches-outlast-kernels", "unfused-elementwise"]
    assert d.inputs[0].workload == "LLM decode"


def _calls(*lines: tuple[str, int, float, int]) -> Printed:
    """Calls alone: name, count, mean and longest in ns."""
    return printed("cuda_api_sum", *((n, c, m, m, 1000, most, 10.0) for n, c, m, most in lines))


def _ranked(folder: Path, *lines: tuple[str, int, float, int]) -> list[str]:
    return ranked(told(folder, (_calls(*lines),)))


COPY = ("cudaMemcpyAsync", 20_000, 10_000.0, 90_000)


def test_calls_alone_that_only_launch(tmp_path: Path) -> None:
    """2.56 M launches of 5.1 us hold 98 % of the time in calls; launches that wait are no such loop."""
    assert _ranked(tmp_path, ("cudaLaunchKernel", 2_560_000, 5100.0, 90_000), COPY) == ["launch-calls"]
    assert _ranked(tmp_path, ("cudaLaunchKernel", 25_000, 510_000.0, 900_000), COPY) == []
    assert _ranked(tmp_path, ("cudaLaunchKernel", 9_000, 5100.0, 90_000)) == []


def test_calls_alone_that_allocate_and_free(tmp_path: Path) -> None:
    """88,160 allocations and as many frees hold 89 %; those of loading are few or come once."""
    churn = (("cudaMalloc", 88_160, 57_000.0, 900_000), ("cudaFree", 88_160, 44_000.0, 900_000))
    launches = ("cudaLaunchKernel", 200_000, 5_500.0, 90_000)
    assert _ranked(tmp_path, *churn, launches) == ["allocation-calls"]
    loading = (("cudaMalloc", 500, 300_000.0, 900_000), ("cudaFree", 90, 44_000.0, 900_000))
    assert "allocation-calls" not in _ranked(tmp_path, *loading, launches)


def test_calls_alone_that_wait(tmp_path: Path) -> None:
    launches = ("cuLaunchKernel", 200_000, 9_000.0, 90_000)
    assert _ranked(tmp_path, ("cuStreamSynchronize", 10_000, 800_000.0, 900_000), launches) == ["host-waits"]


def test_loading_of_weights_is_start_up(tmp_path: Path) -> None:
    """291 uploads of 27 ms load a model, and say nothing of the steps; small uploads in them do."""
    launches = ("cuLaunchKernel", 60_000, 8_000.0, 90_000)
    loads = ("cuMemcpyHtoDAsync_v2", 291, 27_500_000.0, 900_000_000)
    assert _ranked(tmp_path, loads, launches) == ["startup-in-sums"]
    small = ("cuMemcpyHtoD_v2", 40_000, 200_000.0, 900_000)
    assert _ranked(tmp_path, small, launches) == ["host-waits"]


def test_calls_are_compared_with_kernels_where_both_are_there(tmp_path: Path) -> None:
    """Launches that take less than the kernels run are hidden behind them."""
    long = printed("cuda_gpu_kern_sum", ("gemm", 60_000, 90_000.0, 90_000.0, 80_000, 99_000, 10.0))
    calls = _calls(("cudaLaunchKernel", 60_000, 5100.0, 90_000))
    assert "launch-calls" not in ranked(told(tmp_path, (long, calls)))
