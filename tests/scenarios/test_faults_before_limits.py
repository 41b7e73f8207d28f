"""What is wrong is mended before what the program does well is done otherwise: faults of medium and high
severity lead over limits such as FP8, small ones do not."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.builder import Export
from tests.scenarios.machine import DECODE_ATTENTION, GEMM, GEMV, NORM, PREFILL_ATTENTION, Kernel, Machine
from tests.scenarios.support import diagnosed, ranked, severity
from tests.scenarios.test_gpu_speed import prompts

CONVERSION = Kernel(
    "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true, "
    "(cudnnKernelDataType_t)0>(params)"
)


def converted(us: float) -> Machine:
    """Prefill of products that are limited by compute, before each of which a kernel of so many us changes
    the layout."""
    m = Machine()
    for i in range(12):
        with m.step(f"prefill {i}"):
            for _ in range(12):
                if us:
                    m.launch(CONVERSION, us)
                m.launch(GEMM, 800)
                m.launch(PREFILL_ATTENTION, 100)
            m.wait()
    return m


@pytest.mark.parametrize("us", [170, 300], ids=["medium", "high"])
def test_layout_conversions_lead_over_fp8(us: float, tmp_path: Path) -> None:
    """FP8 saves more: 34 and 30 % against 16 and 25."""
    d = diagnosed(converted(us), tmp_path)
    assert ranked(d) == ["layout-conversions", "compute-bound"]
    assert severity(d, "layout-conversions") == severity(d, "compute-bound")


@pytest.mark.parametrize("us", [90, 30, 0], ids=["low", "little", "none"])
def test_fp8_leads_over_few_layout_conversions(us: float, tmp_path: Path) -> None:
    d = diagnosed(converted(us), tmp_path)
    assert ranked(d)[0] == "compute-bound"
    assert severity(d, "compute-bound") == "high"


@pytest.mark.parametrize(("slower", "leads"), [(0.6, True), (0.25, True), (0.15, False)])
def test_a_clock_that_falls_leads_over_fp8_where_it_costs_a_tenth(
    slower: float, leads: bool, tmp_path: Path
) -> None:
    d = diagnosed(prompts([4000] * 28, lambda i: 1 + slower * min(i / 20, 1.0)), tmp_path)
    assert set(ranked(d)[:2]) == {"gpu-speed-drifts", "compute-bound"}
    assert (ranked(d)[0] == "gpu-speed-drifts") is leads
    assert (severity(d, "gpu-speed-drifts") == "low") is not leads


#: The begin of the log below, and of the recording.
BEGIN_NS = 1_700_000_000 * 10**9 - 50_000_000


def capped(folder: Path, clock: int, power: int, limit: int) -> Diagnosis:
    """Prefill at the tensor cores' rate of this clock, with what nvidia-smi logs of clock and power."""
    m = Machine(Export(start_utc_ns=BEGIN_NS, utc_offset_h=1, duration=4 * 10**9).gpu())
    for i in range(24):
        with m.step(f"prefill {i}"):
            for _ in range(12):
                m.launch(GEMM, 8_000)
                m.launch(PREFILL_ATTENTION, 1_000)
            m.wait()
    levels = {"GPC Clock Frequency [MHz]": clock, "GR Active": 99, "SMs Active": 97, "Tensor Active": 88}
    levels |= {"DRAM Read Bandwidth": 20, "DRAM Write Bandwidth": 5}
    count = int(m.gpu_free // 1_000)
    state = f"0, 98 %, {clock} MHz, 1980 MHz, {power} W, {limit} W"
    m.export.gpu_metrics({name: [level] * count for name, level in levels.items()}, 1_000_000)
    lines = [
        "timestamp, index, utilization.gpu [%], clocks.sm [MHz], clocks.max.sm [MHz], power.draw [W], "
        "power.limit [W]",
        *(f"2023/11/14 23:13:{20 + i // 10}.{i % 10}00, {state}" for i in range(26)),
    ]
    log = folder / "smi.csv"
    log.write_text("\n".join(lines) + "\n")
    return advisor.diagnose(m.write(folder), advisor.Options(gpu_metrics=log))


@pytest.mark.parametrize(("clock", "power", "limit"), [(1_100, 399, 400), (1_450, 698, 700)])
def test_a_power_cap_leads_and_fp8_stays_a_limit(tmp_path: Path, clock: int, power: int, limit: int) -> None:
    d = capped(tmp_path, clock, power, limit)
    assert ranked(d) == ["clock-throttled", "compute-bound"]
    assert d.findings[0].recommendations[0].id == "raise-power-limit"
    assert d.findings[1].recommendations[0].id == "fp8-products"


def test_at_full_clock_below_the_cap_the_limit_is_all(tmp_path: Path) -> None:
    assert ranked(capped(tmp_path, 1_950, 500, 700)) == ["compute-bound"]


def without_graph(every: int) -> Machine:
    """Decode steps of products that read at the limit of the memory, replayed as a graph; one of `every` has
    a batch size without a graph and launches kernel by kernel, slower than the GPU runs them."""
    layer = [(NORM, 4), (GEMV, 18), (DECODE_ATTENTION, 8), (GEMV, 18), (NORM, 4), (GEMV, 18)]
    m = Machine()
    for i in range(24):
        with m.step(f"decode_step {i}"):
            if every and i % every == 1:
                for kernel, us in layer * 16:
                    m.launch(kernel, us, call=6)
                    m.work(24)
            else:
                m.replay(16, layer)
            m.read_back()
    m.sample({GEMV: (95, 91, 6), NORM: (60, 40, 0), DECODE_ATTENTION: (80, 60, 2)})
    return m


@pytest.mark.parametrize("every", [2, 6], ids=["high", "medium"])
def test_steps_without_a_graph_lead_over_fp8(every: int, tmp_path: Path) -> None:
    """However much FP8 saves: with one step of six it is 25 % of the step beside 13."""
    d = diagnosed(without_graph(every), tmp_path)
    assert ranked(d)[0] == "launch-bound"
    assert "memory-bandwidth-bound" in ranked(d)
    assert d.findings[0].recommendations[0].id == "graph-what-is-left"


@pytest.mark.parametrize("every", [0, 12, 24], ids=["none", "two of 24", "one of 24"])
def test_fp8_leads_where_graphs_replay_nearly_all_steps(every: int, tmp_path: Path) -> None:
    d = diagnosed(without_graph(every), tmp_path)
    assert ranked(d)[0] == "memory-bandwidth-bound"
    assert severity(d, "launch-bound") in (None, "info", "low")
