"""Sums that nsys stats printed of loops: waits for graphs, locked pages and memsets that are no start-up; and
logs of nvidia-smi whose highest clock is not in them."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.pasted import Printed, pasted, printed
from tests.scenarios.machine import DECODE_ATTENTION, GEMV, NORM
from tests.scenarios.support import ranked, severity


def told(folder: Path, *reports: Printed) -> Diagnosis:
    path = folder / "stats.txt"
    path.write_text(pasted(reports, "columns"))
    return advisor.diagnose(path)


def line(name: str, count: int, mean: float) -> tuple[str, int, float, float, int, int, float]:
    return (name, count, mean, mean, round(0.9 * mean), round(1.2 * mean), 0.0)


#: 0.92 s of kernels.
KERNELS = printed(
    "cuda_gpu_kern_sum",
    line(GEMV.name, 50_000, 14_000),
    line(DECODE_ATTENTION.name, 16_000, 8_000),
    line(NORM.name, 32_000, 3_000),
)


@pytest.mark.parametrize(("wait_us", "fault"), [(1_950, False), (2_600, True)])
def test_a_wait_for_each_graph(tmp_path: Path, wait_us: float, fault: bool) -> None:
    """500 replays of 1.85 ms, each waited for, and in the second case 0.75 ms longer than it runs."""
    calls = printed(
        "cuda_api_sum",
        line("cudaGraphLaunch_v10000", 500, 70_000),
        line("cudaStreamSynchronize_v3020", 500, wait_us * 1e3),
    )
    assert ranked(told(tmp_path, KERNELS, calls)) == (["host-waits"] if fault else [])


@pytest.mark.parametrize(("count", "first"), [(2_000, "allocation-calls"), (300, "startup-in-sums")])
def test_pages_that_are_locked_again_and_again(tmp_path: Path, count: int, first: str) -> None:
    calls = printed(
        "cuda_api_sum",
        line("cudaHostAlloc_v3020", count, 1_200_000),
        line("cudaFreeHost_v3020", count, 600_000),
        line("cudaLaunchKernel_v7000", 20_000, 5_000),
    )
    d = told(tmp_path, calls)
    assert ranked(d)[0] == first
    if first == "allocation-calls":
        assert "use-memory-pool" not in [r.id for r in d.findings[0].recommendations]


@pytest.mark.parametrize(("mean_us", "found"), [(160, "medium"), (10, None)])
def test_memory_that_is_cleared(tmp_path: Path, mean_us: float, found: str | None) -> None:
    fills = printed("cuda_gpu_mem_time_sum", line("[CUDA memset]", 5_000, mean_us * 1e3))
    assert severity(told(tmp_path, KERNELS, fills), "memset-time") == found


HEAD = (
    "#Date       Time        gpu    pwr  gtemp     sm    mem   mclk   pclk  pviol  tviol\n"
    "#YYYYMMDD   HH:MM:SS    Idx      W      C      %      %    MHz    MHz      %   bool\n"
)


@pytest.mark.parametrize(("held", "found"), [(92, "medium"), (0, None)])
def test_a_clock_that_the_driver_says_it_holds_down(tmp_path: Path, held: int, found: str | None) -> None:
    """The clock is the same all along, and the highest one is not in the log."""
    path = tmp_path / "dmon.txt"
    row = f"      0    699     84     99     45   2619   1215     {held}      0\n"
    path.write_text(HEAD + "".join(f" 20260101   10:00:{i:02d}{row}" for i in range(60)))
    assert severity(advisor.diagnose(path), "clock-throttled") == found
