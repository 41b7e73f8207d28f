"""Lists of operations with their times, as `nsys stats` and nvprof print them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.pipeline.diagnose import diagnose
from advisor.sources.open import as_captures, open_trace
from advisor.sources.schema import DEVICE_MEMORY, DTOH, HTOD, MISSING, PAGEABLE, UNIFIED_DTOH, Call
from advisor.sources.trace import Trace
from tests.pasted import Printed, as_boxes, as_columns, as_csv, as_json

HEAD = (
    "Start (ns)",
    "Duration (ns)",
    "CorrId",
    "GrdX",
    "GrdY",
    "GrdZ",
    "BlkX",
    "BlkY",
    "BlkZ",
    "Reg/Trd",
    "StcSMem (MB)",
    "DymSMem (MB)",
    "Bytes (MB)",
    "Throughput (MB/s)",
    "SrcMemKd",
    "DstMemKd",
    "Device",
    "Ctx",
    "GreenCtx",
    "Strm",
    "Name",
)
GPU, OTHER = "NVIDIA RTX A4500 (0)", "NVIDIA RTX A4500 (1)"
BLANK = ("",) * 9
UPLOAD = (
    310_086_272, 149_853, 129, *BLANK, 2.097, 13_994.295, "Pageable", "Device", GPU, 1, "", 7,
    "[CUDA memcpy Host-to-Device]",
)  # fmt: skip
TINY = (321_878_485, 512, 161, *BLANK, 0.0, 15.625, "Device", "Pageable", GPU, 1, "", 7,
        "[CUDA memcpy Device-to-Host]")  # fmt: skip
CLEAR = (321_900_000, 1_000, 165, *BLANK, 0.001, 1_000.0, "Device", "", GPU, 1, "", 7, "[CUDA memset]")
KERNEL = (
    322_000_000, 2_000, 170, 16, 2, 1, 128, 1, 1, 32, 0.001, 0.164, "", "", "", "", OTHER, 1, "", 13,
    "void at::native::add<int, 4>(int)",
)  # fmt: skip
LISTED = Printed("cuda_gpu_trace", HEAD, (KERNEL, UPLOAD, TINY, CLEAR))
CALLS = Printed(
    "cuda_api_trace",
    ("Start (ns)", "Duration (ns)", "Name", "Result", "CorrID", "Pid", "Tid", "T-Pri", "Thread Name"),
    (
        (310_000_000, 80_000, "cudaMemcpyAsync", 0, 129, 77, 78, 20, "python"),
        (321_990_000, 5_000, "cudaLaunchKernel_v7000", 0, 170, 77, 78, 20, "python"),
    ),
)


def opened(text: str, folder: Path) -> Trace:
    path = folder / "list.csv"
    path.write_text(text)
    return open_trace(path)


@pytest.mark.parametrize("form", [as_csv, as_json, as_columns, as_boxes])
def test_every_format_of_a_list_is_one_timeline(form: Callable[[Printed], str], tmp_path: Path) -> None:
    with opened(form(LISTED), tmp_path) as trace:
        assert trace.tables == {"kernels", "copies", "memsets"}
        kernels = trace.columns(
            "kernels",
            (
                "start",
                "end",
                "device",
                "stream",
                "correlation",
                "blocks",
                "threads",
                "registers",
                "shared_bytes",
                "graph_node",
                "short_name_id",
            ),
        )
        assert [column.tolist() for column in kernels.values()][:-1] == [
            [322_000_000], [322_002_000], [1], [13], [170], [32], [128], [32], [165_000], [0],
        ]  # fmt: skip
        assert trace.text(kernels["short_name_id"][0]) == "add"
        copies = trace.columns("copies", ("start", "kind", "bytes", "src_memory", "dst_memory", "device"))
        assert [column.tolist() for column in copies.values()] == [
            [310_086_272, 321_878_485], [HTOD, DTOH], [2_097_000, 8], [PAGEABLE, DEVICE_MEMORY],
            [DEVICE_MEMORY, PAGEABLE], [0, 0],
        ]  # fmt: skip
        assert [d.name for d in trace.devices] == ["NVIDIA RTX A4500"] * 2
        assert not trace.ledger.rows()


def test_a_list_of_nvprof_has_its_units_in_a_line_of_their_own(tmp_path: Path) -> None:
    text = """==11535== NVPROF is profiling process 11535, command: python net.py
==11535== Profiling result:
"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread",\
"Static SMem","Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream",\
"Name","Correlation_ID"
s,ms,,,,,,,,KB,B,MB,GB/s,,,,,,,
8.362723,0.190368,,,,,,,,,,0.562500,2.885550,"Pageable","Device","NVIDIA Tegra X1 (0)","1","7",\
"[CUDA memcpy HtoD]",135
13.682611,84.792108,63,128,1,256,1,1,108,22.125000,0,,,,,"NVIDIA Tegra X1 (0)","1","7",\
"void winograd<float, float>(int)",373
13.9,1,,,,,,,,,,0.500000,0.488281,"Device",,"NVIDIA Tegra X1 (0)",,,"[Unified Memory Memcpy DtoH]",
14.0,,,,,,,,,,,,,,,"NVIDIA Tegra X1 (0)",,,"[Unified Memory GPU page faults]",
"""
    with opened(text, tmp_path) as trace:
        assert trace.capture.producer == "nvprof"
        copies = trace.columns("copies", ("start", "end", "kind", "bytes"))
        assert copies["start"].tolist() == [8_362_723_000, 13_900_000_000]
        assert copies["end"].tolist() == [8_362_913_368, 13_901_000_000]
        assert copies["kind"].tolist() == [HTOD, UNIFIED_DTOH]
        assert copies["bytes"].tolist() == [pytest.approx(0.5625 * 2**20, rel=1e-4), 524_288]
        kernels = trace.columns("kernels", ("end", "shared_bytes", "blocks"))
        assert [c.tolist() for c in kernels.values()] == [[13_767_403_108], [22_656], [63 * 128]]
        (row,) = trace.ledger.rows()  # the page faults, which have no duration
        assert (row.count, row.kind) == (1, "dropped")


def test_the_list_of_calls_says_who_launched_the_work(tmp_path: Path) -> None:
    paths = [tmp_path / "a_cuda_gpu_trace.csv", tmp_path / "a_cuda_api_trace.csv"]
    for path, printed in zip(paths, (LISTED, CALLS), strict=True):
        path.write_text(as_csv(printed))
    (joined,) = as_captures(paths, together=False)
    with open_trace(joined) as trace:
        calls = trace.columns("api_calls", ("start", "end", "call", "thread", "process", "correlation"))
        assert [c.tolist() for c in calls.values()] == [
            [310_000_000, 321_990_000], [310_080_000, 321_995_000], [Call.COPY, Call.LAUNCH], [78, 78],
            [77, 77], [129, 170],
        ]  # fmt: skip
        assert set(trace.columns("copies", ("process",))["process"].tolist()) == {77}


def test_a_list_of_calls_alone_is_summed_up(tmp_path: Path) -> None:
    with opened(as_csv(CALLS), tmp_path) as trace:
        assert trace.tables == {"sums"}


def test_lines_that_cannot_be_true_are_left_out_and_counted(tmp_path: Path) -> None:
    bad = ((-5, *KERNEL[1:]), (KERNEL[0], "many", *KERNEL[2:]), (KERNEL[0], 2**63, *KERNEL[2:]))
    torn = as_csv(Printed("cuda_gpu_trace", HEAD, (KERNEL, *bad))) + "1,2\n"
    with opened(torn, tmp_path) as trace:
        assert trace.rows("kernels") == 1
        assert [r.count for r in trace.ledger.rows()] == [4]


def test_a_list_without_gpus_and_correlations_is_read(tmp_path: Path) -> None:
    head = ("Start (ns)", "Duration (ns)", "Name")
    rows = ((0, 10, "norm_kernel"), (50, 30, "norm_kernel"))
    with opened(as_csv(Printed("cuda_gpu_trace", head, rows)), tmp_path) as trace:
        kernels = trace.columns("kernels", ("device", "correlation", "blocks"))
        assert [c.tolist() for c in kernels.values()] == [[0, 0], [MISSING] * 2, [MISSING] * 2]


def test_small_kernels_with_gaps_ask_for_graphs_and_for_the_calls(tmp_path: Path) -> None:
    """A thousand kernels of 2 us, 10 us apart: the list does not say why, but how it looks."""
    rows = tuple((i * 12_000, 2_000, i, "norm_kernel") for i in range(1_000))
    path = tmp_path / "list.csv"
    head = ("Start (ns)", "Duration (ns)", "CorrId", "Name")
    path.write_text(as_csv(Printed("cuda_gpu_trace", head, rows)))
    found = diagnose(path)
    (first, *_) = found.findings
    assert first.cause == "gpu-idle"
    (unknown,) = (p for p in found.budget[0].parts if p.part == "unknown")
    assert (unknown.findings, unknown.why) == (("gpu-idle",), None)  # the finding speaks of this time
    assert [r.id for r in first.recommendations][:2] == ["enable-cuda-graphs", "record-cuda-calls"]
    long = tuple((i * 12_000_000, 2_000_000, i, "norm_kernel") for i in range(100))
    path.write_text(as_csv(Printed("cuda_gpu_trace", head, long)))
    (first, *_) = diagnose(path).findings
    assert [r.id for r in first.recommendations][:1] == ["record-cuda-calls"]
