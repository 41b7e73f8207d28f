"""To the nanosecond what `nsys stats` 2023.4.4 printed: every cell, in its order."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from tests.stats.support import Captured, csv_rows, printed

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "examples" / "captures" / "decode_eager_bs1.sqlite.xz"
STORED = ROOT / "tests" / "data" / "oracle"
SHARED = ROOT.parent / "shared" / "traces"

REPORTS = {
    "kernels": "cuda_gpu_kern_sum",
    "api": "cuda_api_sum",
    "launch": "cuda_kern_exec_sum",
    "copies": "cuda_gpu_mem_time_sum",
    "copy-sizes": "cuda_gpu_mem_size_sum",
    "nvtx": "nvtx_sum",
    "nvtx-kernels": "nvtx_kern_sum",
}
#: How many cells each report has in the committed capture, so that no test passes by being empty.
CELLS = {
    "kernels": 171,
    "api": 99,
    "launch": 513,
    "copies": 9,
    "copy-sizes": 8,
    "nvtx": 170,
    "nvtx-kernels": 4199,
}


@pytest.mark.parametrize("report", REPORTS)
def test_the_committed_capture_agrees(report: str, capsys: Captured) -> None:
    packed = STORED / f"decode_eager_bs1.{REPORTS[report]}.csv.xz"
    nsys = csv_rows(lzma.decompress(packed.read_bytes()).decode())
    ours = csv_rows(printed(capsys, COMMITTED, "--report", report, "--format", "csv"))
    assert ours == nsys
    assert sum(map(len, ours[1:])) == CELLS[report]


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "oracle").is_dir(), reason=f"no captures in {SHARED}")
@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("capture", ["decode_eager_bs1", "decode_sync", "prefill8b_bs4"])
def test_the_three_captures_agree(capture: str, report: str, capsys: Captured) -> None:
    stored = SHARED / "oracle" / f"{capture}.{REPORTS[report]}.csv"
    nsys = csv_rows(stored.read_text(encoding="utf-8"))
    packed = SHARED / "h200" / f"{capture}.sqlite.xz"
    # nsys' own name of the report is understood as well.
    ours = csv_rows(printed(capsys, packed, "-r", REPORTS[report], "--format", "csv"))
    assert len(nsys) > 1
    assert ours == nsys
