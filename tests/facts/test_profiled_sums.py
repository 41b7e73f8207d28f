"""Facts of tables that count the host as well: values that can be read off the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.facts.catalog import build_facts
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import FactBase, Scope
from advisor.sources.open import open_trace
from tests.facts.test_values import expect_values
from tests.profiler_tables import Sum, call, kernel, of_range, old_table, operator, table

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
#: Four steps of 10 ms: 2 ms of operators, 1 of launches, 3 of waiting, 1 of loading, 2 of code between, 1 of
#: compiling nothing; and 8 ms of kernels in all.
ROWS = [
    of_range("ProfilerStep*", 4, 10_000.0, own_us=3_000.0),
    of_range(LOADER, 4, 1_000.0, own_us=1_000.0),
    operator("aten::mm", 400, 20.0, inside=10.0, device=8_000.0),
    operator("aten::item", 8, 0.0, inside=1_500.0),
    operator("aten::_local_scalar_dense", 8, 0.0, inside=1_500.0),
    call("cudaLaunchKernel", 400, 10.0),
    call("cudaStreamSynchronize", 8, 1_500.0),
    kernel("ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn", 400, 20.0),
]


def facts(folder: Path, rows: list[Sum], **options: object) -> FactBase:
    path = folder / "table.txt"
    path.write_text(table(rows, **options))
    with open_trace(path) as trace:
        return build_facts(measure(trace))


def test_values(tmp_path: Path) -> None:
    base = facts(tmp_path, ROWS)
    expect_values(
        base,
        {
            "capture.sums_only": True,
            "capture.nsys_recorded": False,
            "capture.step_count": 4,
            "capture.kernel_count": 400,
            "sums.host_ms": 40.0,
            "sums.host_work_over_kernel": 28 / 8,
            "sums.launch_over_kernel": (8 + 4) / 8,
            "sums.launched": "400 kernels of 20 us on average",
            "sums.launched_count": 400,
            "sums.launched_mean_ns": 20_000,
            "sums.busy_most_ratio": 8 / 36,  # 4 of the 12 ms of waiting are for more than the kernels
            "sums.idle_least_ratio": 28 / 36,
            "sums.loader_ratio": 0.1,
            "sums.readbacks_per_step": 2,
            "sums.readbacks": "aten::item, 8 calls",
            "sums.once_ratio": 0,
            "sums.wait_ratio": 0.3,
            "sums.host_largest": f"ProfilerStep* 30 %, aten::mm 20 %, {LOADER[:52]}... 10 %",
        },
    )


def test_what_ran_once_and_took_long(tmp_path: Path) -> None:
    rows = [*ROWS, operator("aten::randn", 1, 300_000.0), call("cudaFree", 1, 60_000.0)]
    base = facts(tmp_path, rows)
    assert base.value("sums.once", Scope(device=0)) == "aten::randn, 300 ms"
    assert base.value("sums.once_ratio", Scope(device=0)) == pytest.approx(300 / 400)


def test_launches_that_wait_for_a_full_queue_are_no_work(tmp_path: Path) -> None:
    """400 launches of 1 ms behind 400 kernels of 1 ms: the host works 10 us for each."""
    rows = [
        operator("aten::mm", 400, 5.0, device=400_000.0),
        call("cudaLaunchKernel", 400, 1_000.0),
        kernel("ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn", 400, 1_000.0),
    ]
    base = facts(tmp_path, rows)
    assert base.value("sums.launch_over_kernel", Scope(device=0)) == pytest.approx(0.015)
    assert base.value("sums.host_work_over_kernel", Scope(device=0)) == pytest.approx(0.015)


def test_two_threads_have_no_profiled_time(tmp_path: Path) -> None:
    """The backward pass runs beside its caller: the sum of both is no time that passed."""
    rows = [r for r in ROWS if "Step" not in r.name] + [operator("AddmmBackward0", 4, 9.0)]
    assert facts(tmp_path, rows).value("sums.busy_most_ratio", Scope(device=0)) is None


def test_kernels_that_were_cut_off_are_counted_by_their_launches(tmp_path: Path) -> None:
    rows = [kernel("sm80_gemm_kernel", 400, 20.0), kernel("small_kernel", 100, 2.0)]
    rows = [rows[0], call("cudaLaunchKernel", 500, 5.0), rows[1]]
    base = facts(tmp_path, rows, limit=2)
    assert base.value("capture.kernel_count", Scope()) == 500
    assert base.value("sums.kernel_mean_ns", Scope(device=0)) == pytest.approx(8_200_000 / 500)


def test_operators_are_not_counted_as_kernels(tmp_path: Path) -> None:
    rows = [operator("aten::mm", 400, 20.0, device=8_000.0), operator("aten::add", 100, 9.0, device=200.0)]
    base, gpu = facts(tmp_path, rows), Scope(device=0)
    assert base.value("capture.kernel_count", Scope()) is None
    assert base.value("sums.kernel_mean_ns", gpu) is None
    assert base.value("sums.launched_count", gpu) == 500
    assert base.value("sums.launched", gpu) == "500 operators whose kernels take 16.4 us on average"
    base = facts(tmp_path, [*rows, call("cudaLaunchKernel", 900, 5.0)])
    assert base.value("capture.kernel_count", Scope()) == 900
    assert base.value("sums.launched_mean_ns", gpu) == pytest.approx(8_200_000 / 900)


def test_rows_that_were_not_pasted_are_neither_launching_nor_waiting(tmp_path: Path) -> None:
    """30 of 1,030 ms of host time are listed; the rest may be launches, or the wait for the GPU."""
    gemm = kernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128", 400, 2_500.0)
    rows = [gemm, operator("aten::mm", 400, 75.0, device=1_000_000.0), call("cudaDeviceSynchronize", 1, 1e6)]
    base, gpu = facts(tmp_path, rows, limit=2), Scope(device=0)
    assert base.value("sums.launch_over_kernel", gpu) == pytest.approx(0.03)
    assert base.ranges["sums.launch_over_kernel", gpu] == pytest.approx((0.03, 1.03))
    assert base.ranges["sums.host_work_over_kernel", gpu] == pytest.approx((0.03, 1.03))
    assert base.value("sums.busy_most_ratio", gpu) == pytest.approx(1000 / 1030)


def test_launches_of_graphs_may_stand_in_rows_that_were_not_pasted(tmp_path: Path) -> None:
    rows = [*ROWS, call("cudaGraphLaunch", 4, 900.0)]
    for limit, count in ((None, 4), (8, None)):
        base = facts(tmp_path, rows, limit=limit)
        assert base.value("capture.graph_launch_count", Scope()) == count


def test_times_between_events_are_no_times_of_kernels(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text(old_table([operator("aten::mm", 400, 20.0, device=8_000.0)]))
    with open_trace(path) as trace:
        base = build_facts(measure(trace))
    gpu = Scope(device=0)
    for name in ("sums.kernel_ms", "sums.launch_over_kernel", "sums.busy_most_ratio", "sums.launched_count"):
        assert base.value(name, gpu) is None, name
    assert base.value("kernel.top_operation_ratio", gpu) == 1.0
