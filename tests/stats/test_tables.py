"""Each report on a small export, with answers worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import advisor
from advisor.cli.extract_verbs import REPORTS as NAMES
from advisor.errors import InputError
from advisor.metrics.stats.reports import REPORTS, report_names
from advisor.pipeline.diagnose import Options
from advisor.reports.html import report as html
from advisor.reports.stats_tables import report
from tests.builder import Export
from tests.stats.support import rows, table


def decode() -> Export:
    """Four steps of 100 us: gemm of 10 us (20 in the last), add of 2 us, a copy of 4 us."""
    out = Export().gpu().process(7, tid=9)
    for i in range(4):
        at = i * 100_000
        out.range(f"iteration {i}", at, at + 90_000)
        out.range("decode_step", at + 1_000, at + 80_000)
        out.launch(
            at=at + 2_000,
            dur=3_000,
            kernel="gemm<float>(int)",
            short="gemm",
            mangled="_Z4gemm",
            kernel_start=at + 6_000,
            kernel_dur=20_000 if i == 3 else 10_000,
            grid=(4, 2, 1),
            block=(64, 2, 1),
            registers=40,
            shared=(16, 8),
        )
        out.launch(
            at=at + 20_000,
            dur=5_000,
            kernel="add",
            kernel_start=at + 30_000,
            kernel_dur=2_000,
            api="cuLaunchKernel",
        )
        out.copy(at + 40_000, 5_000, "DtoH", bytes=250_000, copy_start=at + 46_000, copy_dur=4_000)
    return out


def test_the_same_kernels_by_name_style(tmp_path: Path) -> None:
    assert report_names(["cuda_gpu_kern_sum:base,kernels"]) == ["kernels:base", "kernels"]
    found = table(decode(), tmp_path, "kernels:mangled")
    assert found.report == "kernels:mangled"
    assert rows(found, "Name") == [("_Z4gemm",), ("add",)]
    with pytest.raises(InputError, match="invalid names 'short'; expected one of full, base"):
        report_names(["kernels:short"])


def test_calls_and_what_they_launched(tmp_path: Path) -> None:
    found = rows(table(decode(), tmp_path, "api-gpu"), "Time", "Total Time", "Category", "Operation")
    assert found[0] == (pytest.approx(100 * 50 / 126), 50_000, "CUDA_KERNEL", "gemm<float>(int)")
    assert sum(share for share, *_ in found) == pytest.approx(100)  # type: ignore[misc]
    assert {row[2:] for row in found[1:]} == {
        ("CUDA_API", "cudaLaunchKernel"),
        ("CUDA_API", "cuLaunchKernel"),
        ("CUDA_API", "cudaMemcpyAsync"),
        ("CUDA_KERNEL", "add"),
        ("MEMORY_OPER", "[CUDA memcpy Device-to-Host]"),
    }


def test_launches_one_by_one(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "launch-trace")
    columns = ("API Start", "API Dur", "Queue Start", "Queue Dur", "Kernel Dur", "Total Dur", "GridXYZ")
    assert rows(found, *columns)[:2] == [
        (2_000, 3_000, 5_000, 1_000, 10_000, 14_000, "   4    2    1"),
        (20_000, 5_000, 25_000, 5_000, 2_000, 12_000, " 132    1    1"),
    ]


def test_longest_operations_first(tmp_path: Path) -> None:
    found = rows(table(decode(), tmp_path, "longest"), "Start", "Duration", "Name")
    assert found[0] == (306_000, 20_000, "gemm<float>(int)")
    assert [d for _, d, _ in found] == sorted((d for _, d, _ in found), reverse=True)  # type: ignore[type-var]


def test_ranges_on_the_gpu(tmp_path: Path) -> None:
    """A step runs from its GEMM (6) to the end of its copy (50 us)."""
    found = table(decode(), tmp_path, "nvtx-gpu")
    columns = (
        "Range",
        "Total Proj Time",
        "Total Range Time",
        "Range Instances",
        "Total GPU Ops",
        "Avg Range Lvl",
        "Avg Num Child",
    )
    assert rows(found, *columns)[0] == ("decode_step", 4 * 44_000, 4 * 79_000, 4, 12, 1.0, 0.0)
    assert rows(found, *columns)[1] == ("iteration 0", 44_000, 90_000, 1, 3, 0.0, 1.0)
    one = rows(
        table(decode(), tmp_path, "nvtx-gpu-trace"),
        "Name",
        "Projected Start",
        "Projected Duration",
        "Orig Start",
        "NumGPUOps",
        "RangeId",
        "ParentId",
        "RangeStack",
    )
    assert one[:2] == [
        ("iteration 0", 6_000, 44_000, 0, 3, 1, None, ":1"),
        ("decode_step", 6_000, 44_000, 1_000, 3, 2, 1, ":1:2"),
    ]
    pushed = rows(table(decode(), tmp_path, "nvtx-pushpop"), "Range", "Instances")
    assert pushed[0] == ("decode_step", 4)


def test_collectives(tmp_path: Path) -> None:
    e = decode().launch(at=500_000, kernel="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", kernel_dur=7_000)
    assert rows(table(e, tmp_path, "collectives"), "Time", "Total Time", "Instances") == [(100.0, 7_000, 1)]


def test_unified_memory_by_address(tmp_path: Path) -> None:
    e = decode().migration(600_000, 4_000, bytes=2_000_000, address=0x2000)
    e.migration(610_000, 4_000, "DtoH", 1_000_000, address=0x1000).host_fault(650_000, 0x1000)
    e.gpu_fault(620_000, count=3, address=0x2000)
    assert table(e, tmp_path, "unified").frame.to_numpy().tolist() == [
        ["0x2000", 2.0, 0.0, 0, 3, 500_000.0],
        ["0x1000", 0.0, 1.0, 1, 0, 250_000.0],
    ]


def test_activity_over_time(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "heatmap").frame
    busy = found.groupby("Lane", sort=False)["Busy (%)"].mean()
    window = found["End (ns)"].max() - found["Start (ns)"].min()
    assert list(busy.index) == ["kernels", "copies"]
    assert busy["copies"] * window / 100 == pytest.approx(3 * 4_000, rel=0.01)
    page = html.document(report("t", [table(decode(), tmp_path, "heatmap")])).decode()
    drawn = re.findall(r'<rect x="(\d+)" width="1" height="1" fill-opacity="([\d.]+)"', page)
    assert [float(level) for _, level in drawn] == pytest.approx(
        [round(b / 100, 3) for b in found["Busy (%)"] if b], abs=1e-3
    )


def test_kernels(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "kernels")
    assert found.scope == "whole capture"
    assert rows(found, "Total Time", "Instances", "Avg", "Med", "Min", "Max", "Name") == [
        (50_000, 4, 12_500.0, 10_000.0, 10_000, 20_000, "gemm<float>(int)"),
        (8_000, 4, 2_000.0, 2_000.0, 2_000, 2_000, "add"),
    ]
    assert rows(found, "StdDev") == [(5_000.0,), (0.0,)]
    assert [round(s, 1) for (s,) in rows(found, "Time")] == [86.2, 13.8]  # type: ignore[call-overload]


@pytest.mark.parametrize(("style", "name"), [("base", "gemm"), ("mangled", "_Z4gemm")])
def test_kernel_names(style: str, name: str, tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "kernels", style)  # type: ignore[arg-type]
    assert rows(found, "Name") == [(name,), ("add",)]


def test_kernels_by_operation_are_one_row_an_operation(tmp_path: Path) -> None:
    export = Export().process(1)
    export.launch(at=0, kernel="nvjet_sm90_a").launch(at=9_000, kernel="nvjet_sm90_b")
    found = table(export, tmp_path, "kernels", "operation")
    assert rows(found, "Instances") == [(2,)]


def test_kernels_of_equal_totals_stay_in_the_order_of_the_strings(tmp_path: Path) -> None:
    export = Export().process(1)
    for name in ("b", "a", "c"):
        export.string(name)
    export.launch(at=0, kernel="c").launch(at=20_000, kernel="a").launch(at=40_000, kernel="b")
    assert rows(table(export, tmp_path, "kernels"), "Name") == [("b",), ("a",), ("c",)]


def test_opaque_graphs_are_told(tmp_path: Path) -> None:
    export = Export().process(1)
    export.graph_launch(at=0, nodes=[("a", 30_000, 5_000)], mode="graph")
    found = table(export, tmp_path, "kernels")
    assert len(found) == 0
    assert "the capture holds no kernels (nsys records them with" in found.note
    assert "CUDA graph runs recorded as one block, without their kernels: 1" in found.note


def test_api(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "api")
    # Both of 20 us: in the order of the string pool.
    assert rows(found, "Total Time", "Num Calls", "Name") == [
        (20_000, 4, "cuLaunchKernel"),
        (20_000, 4, "cudaMemcpyAsync"),
        (12_000, 4, "cudaLaunchKernel"),
    ]


def test_two_versions_of_a_call_keep_their_names(tmp_path: Path) -> None:
    export = Export().process(1)
    export.call("cuFoo_v2000", 0, 1_000).call("cuFoo_v3000", 5_000, 2_000).call("cuBar_v11060", 9_000, 500)
    assert rows(table(export, tmp_path, "api"), "Name") == [
        ("cuFoo_v3000",),
        ("cuFoo_v2000",),
        ("cuBar_v11060",),
    ]


def test_launch(tmp_path: Path) -> None:
    export = Export().process(7, tid=9)
    # Call 0..10, kernel 12..20; call 100..110, kernel 104..109: it starts within its call, so it
    # has no queue time, and the whole lasts until the call returns.
    export.launch(at=0, dur=10, kernel="k", kernel_start=12, kernel_dur=8)
    export.launch(at=100, dur=10, kernel="k", kernel_start=104, kernel_dur=5)
    export.kernel(500, 7, "orphan", correlation=0)
    found = table(export, tmp_path, "launch")
    assert rows(
        found,
        "PID",
        "TID",
        "DevId",
        "Count",
        "QCount",
        "TAvg",
        "AAvg",
        "QAvg",
        "KAvg",
        "API Name",
        "Kernel Name",
    ) == [(7, 9, 0, 2, 1, (20 + 10) / 2, 10.0, 2.0, 6.5, "cudaLaunchKernel", "k")]
    assert found.note.endswith("the call that launched them was not recorded: 1")


def test_launch_has_no_queue_time_where_no_kernel_queued(tmp_path: Path) -> None:
    export = Export().process(7).launch(at=0, dur=10, kernel="k", kernel_start=5, kernel_dur=8)
    found = table(export, tmp_path, "launch")
    assert rows(found, "QCount", "QAvg", "QStdDev", "TAvg") == [(0, None, None, 13.0)]


def test_launch_joins_within_a_process(tmp_path: Path) -> None:
    export = Export()
    for pid, start in ((1, 100), (2, 200)):  # both processes use correlation 1
        export.process(pid).launch(at=0, dur=10, kernel="k", kernel_start=start, kernel_dur=1)
    assert rows(table(export, tmp_path, "launch"), "PID", "QAvg") == [(2, 190.0), (1, 90.0)]


def test_copies(tmp_path: Path) -> None:
    export = decode().memset(900_000, bytes=1_000, memset_dur=500)
    found = table(export, tmp_path, "copies")
    assert rows(found, "Total Time", "Count", "Operation") == [
        (16_000, 4, "[CUDA memcpy Device-to-Host]"),
        (500, 1, "[CUDA memset]"),
    ]
    sizes = table(export, tmp_path, "copy-sizes")
    assert list(sizes.frame)[:3] == ["Total (MB)", "Count", "Avg (MB)"]
    assert rows(sizes, "Total", "Avg", "Operation") == [
        (1.0, 0.25, "[CUDA memcpy Device-to-Host]"),
        (0.001, 0.001, "[CUDA memset]"),
    ]


def test_nvtx(tmp_path: Path) -> None:
    found = table(decode().mark("mark", 5), tmp_path, "nvtx")
    assert rows(found, "Total Time", "Instances", "Style", "Range") == [
        (316_000, 4, "PushPop", "decode_step"),
        *((90_000, 1, "PushPop", f"iteration {i}") for i in range(4)),
    ]


def test_ranges_of_one_text_in_two_domains_are_told_apart(tmp_path: Path) -> None:
    export = Export().process(1).range("a", 0, 10).range("a", 0, 5, domain=3).range("b", 0, 1)
    assert rows(table(export, tmp_path, "nvtx"), "Range") == [("a (domain 0)",), ("a (domain 3)",), ("b",)]


def test_nvtx_kernels_count_in_every_range_around_the_call(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "nvtx-kernels")
    columns = "NVTX Range", "TID", "NVTX Inst", "Kern Inst", "Total Time", "Kernel Name"
    assert rows(found, *columns)[:4] == [
        ("decode_step", 9, 4, 4, 50_000, "gemm<float>(int)"),
        ("decode_step", 9, 4, 4, 8_000, "add"),
        ("iteration 0", 9, 1, 1, 10_000, "gemm<float>(int)"),
        ("iteration 0", 9, 1, 1, 2_000, "add"),
    ]
    assert len(found) == 2 + 4 * 2


def test_a_kernel_of_another_thread_is_not_in_the_range(tmp_path: Path) -> None:
    export = Export().process(1).range("mine", 0, 100_000).thread(2).launch(at=1_000)
    found = table(export, tmp_path, "nvtx-kernels")
    assert (len(found), found.note) == (0, "no such rows in this part of the capture")


def test_osrt(tmp_path: Path) -> None:
    export = decode().osrt("poll", 0, 700).osrt("poll", 1_000, 300).osrt("read", 5_000, 100)
    assert rows(table(export, tmp_path, "osrt"), "Total Time", "Num Calls", "Name") == [
        (1_000, 2, "poll"),
        (100, 1, "read"),
    ]
    found = table(decode(), tmp_path, "osrt")
    assert found.note == ("the capture holds no OS runtime calls (nsys records them with --trace=osrt)")


def test_trace(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "trace")
    assert len(found) == 12
    gemm, add, copy = rows(
        found,
        "Start",
        "Duration",
        "GrdX",
        "GrdY",
        "BlkX",
        "BlkY",
        "Reg/Trd",
        "SMem",
        "Bytes",
        "Throughput",
        "SrcMemKd",
        "DstMemKd",
        "Device",
        "Strm",
        "Name",
    )[:3]
    assert gemm == (
        6_000,
        10_000,
        4,
        2,
        64,
        2,
        40,
        24,
        None,
        None,
        "",
        "",
        "NVIDIA H200 (0)",
        7,
        "gemm<float>(int)",
    )
    assert add[0] == 30_000
    # 250,000 bytes in 4 us are 62.5 GB/s.
    assert copy == (
        46_000,
        4_000,
        None,
        None,
        None,
        None,
        None,
        None,
        250_000,
        62_500.0,
        "Device",
        "Pageable",
        "NVIDIA H200 (0)",
        7,
        "[CUDA memcpy Device-to-Host]",
    )


def test_histogram(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "histogram", window="0s/")
    gemm = [r for r in rows(found, "Low", "High", "Count", "Share", "Name") if r[2]]
    # Ten bins a decade would do for a factor of two, forty are used: edges 10^(k/40).
    assert gemm == [
        (10_000, 10_593, 3, 75.0, "gemm<float>(int)"),
        (19_953, 21_135, 1, 25.0, "gemm<float>(int)"),
        (1_995, 2_113, 4, 100.0, "add"),
    ]
    assert found.items == 2
    assert {name for (name,) in rows(found.head(1), "Name")} == {"gemm<float>(int)"}


def test_steady_reports_leave_the_first_step_out(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "histogram")
    assert found.scope.startswith("steady window 0.000050s to 0.000350s (steps without the first;")
    assert sum(n for n, name in rows(found, "Count", "Name") if name == "add") == 3  # type: ignore[misc]


def test_pace(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "pace")
    assert rows(found, "Kind", "Device", "Count", "Avg", "Min", "Max", "StdDev", "Name") == [
        ("step", None, 3, 100_000.0, 100_000, 100_000, 0.0, "decode step"),
        ("kernel", 0, 2, 100_000.0, 100_000, 100_000, 0.0, "gemm<float>(int)"),
        ("kernel", 0, 2, 100_000.0, 100_000, 100_000, 0.0, "add"),
    ]


def test_pace_of_uneven_starts(tmp_path: Path) -> None:
    export = Export().process(1)
    for at in (0, 10_000, 40_000):
        export.kernel(at, 1_000, "k")
    found = table(export, tmp_path, "pace")
    assert rows(found, "Count", "Avg", "Med", "Min", "Max", "Name") == [
        (2, 20_000.0, 20_000.0, 10_000, 30_000, "k")
    ]


def test_budget_adds_up(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "budget")
    parts = {part: ns for part, ns in rows(found, "Part", "Time") if ns}
    # Three steps of 300 us: gemm 10 + 10 + 20, add 3 x 2, the copy in [46, 50) us of each.
    assert parts["compute"] == 46_000
    assert parts["dtoh"] == 12_000
    assert sum(parts.values()) == 300_000  # type: ignore[arg-type]
    assert rows(found, "Phase")[0] == ("all",)


def test_a_window_counts_what_overlaps_it(tmp_path: Path) -> None:
    found = table(decode(), tmp_path, "kernels", window="15us/130us")
    assert found.scope == "window 0.000015s to 0.000130s (--window 15us/130us; 0.115 ms)"
    # gemm [6, 16) and [106, 116), add [30, 32); add [130, 132) starts where the window ends.
    assert rows(found, "Instances", "Name") == [(2, "gemm<float>(int)"), (1, "add")]


def test_a_phase_counts_its_steps_only(tmp_path: Path) -> None:
    export = Export().process(1)
    for i, phase in enumerate(("prefill", "decode", "decode", "prefill", "decode")):
        at = i * 100_000
        export.range(f"{phase}_step", at, at + 50_000)
        export.launch(at=at + 1_000, kernel=phase, kernel_start=at + 9_000)
        export.sync(at=at + 20_000)
    found = table(export, tmp_path, "kernels", phase="decode")
    assert rows(found, "Instances", "Name") == [(3, "decode")]
    assert ", decode steps only;" in found.scope
    calls = table(export, tmp_path, "api", phase="decode")
    assert [n for (n,) in rows(calls, "Num Calls")] == [3, 3]


def test_frames_in_python(tmp_path: Path) -> None:
    path = decode().write(tmp_path / "t.sqlite")
    found = advisor.stats(path, "kernels", "cuda_api_sum", names="base")
    assert list(found) == ["kernels", "api"]
    kernels = found["kernels"].set_index("Name")
    assert kernels["Total Time (ns)"].to_dict() == {"gemm": 50_000, "add": 8_000}
    assert kernels.attrs["scope"] == "whole capture"
    window = advisor.stats(path, options=Options(window="15us/130us"))
    assert window["kernels"]["Instances"].sum() == 3


def test_report_names() -> None:
    assert report_names(["kernels,tail", "cuda_gpu_kern_sum"]) == ["kernels", "tail"]
    assert set(NAMES) == set(REPORTS)
    with pytest.raises(InputError, match="did you mean 'kernels"):
        report_names(["kernel"])


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_on_kernels_that_no_call_launched(tmp_path: Path, name: str) -> None:
    """A capture of which only the kernels are left: each report has rows, or says why not."""
    found = table(Export().gpu().kernel(0).kernel(20_000), tmp_path, name)
    assert len(found) or found.note
