"""The speed of the GPU itself: other work is no slower device, a drift leads, a low clock is named."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from advisor.model.findings import Diagnosis, Span
from tests.scenarios.machine import (
    DECODE_ATTENTION,
    GEMM,
    NORM,
    PREFILL_ATTENTION,
    SILU,
    SMS,
    Kernel,
    Machine,
)
from tests.scenarios.support import diagnosed, expect, finding, severity

#: A GEMM whose blocks stay: as many as the device has SMs, whatever the size.
PERSISTENT = Kernel(GEMM.name, SMS)
SLOWER = ("gpu-slower-at-times", "gpu-speed-drifts", "step-outliers")


def folder(path: Path) -> Path:
    """A new folder below the path."""
    return Path(mkdtemp(dir=path))


def step_after(d: Diagnosis, cause: str) -> Span:
    """The step with the cause's fix, ms."""
    gain = next(f.gain for f in d.findings if f.cause == cause)
    assert gain is not None
    assert gain.step_after_ms is not None
    return gain.step_after_ms


def prompts(lengths: list[int], pace: Callable[[int], float] = lambda _: 1.0) -> Machine:
    """Prefill steps of so many tokens; the device is `pace` times as slow in each."""
    m = Machine()
    for i, tokens in enumerate(lengths):
        with m.step(f"execute_context_1({tokens})_generation_0(0)"):
            us = tokens * pace(i)
            for _ in range(8):
                m.launch(NORM._replace(blocks=tokens), us * 0.005)
                m.launch(PERSISTENT, us * 0.25)
                m.launch(PREFILL_ATTENTION._replace(blocks=tokens // 4), us * us / tokens * 0.05)
                m.launch(SILU._replace(blocks=tokens), us * 0.01)
                m.launch(PERSISTENT, us * 0.1)
            m.read_back()
    return m


SHUFFLED = [8000, 2500, 4000, 8000, 4000, 8000, 1500, 1500, 2500, 1500, 2500, 8000, 8000, 2500] * 2


@pytest.mark.parametrize(
    "lengths",
    [SHUFFLED, sorted(SHUFFLED), [1500] * 24 + [8000] * 4, [1500] * 27 + [8000]],
    ids=["shuffled", "growing", "few long ones", "one long one"],
)
def test_prompts_of_other_lengths_are_no_slower_gpu(lengths: list[int], tmp_path: Path) -> None:
    expect(diagnosed(prompts(lengths), tmp_path), "compute-bound", never=SLOWER)


@pytest.mark.parametrize("every", [3, 4])
def test_a_neighbour_among_prompts_of_one_length_costs_what_the_fast_steps_do_not_take(
    every: int, tmp_path: Path
) -> None:
    """Its fix is worth the slow steps at the speed of the others, which is that of the capture without it."""
    beside = prompts([4000] * 29, lambda i: 2.0 if i % every == 0 and i > 1 else 1.0)
    slow, alone = (diagnosed(m, folder(tmp_path)) for m in (beside, prompts([4000] * 29)))
    expect(slow, "gpu-slower-at-times")
    assert severity(slow, "gpu-slower-at-times") == "high"
    expect(alone, never=SLOWER)
    after, true = step_after(slow, "gpu-slower-at-times"), alone.inputs[0].step_ms
    assert true is not None
    assert after.low <= true <= after.high
    assert after.mid == pytest.approx(true, rel=0.02)


def test_a_neighbour_seldom_costs_the_slowest_steps_more_than_the_mean(tmp_path: Path) -> None:
    """Two steps of sixty take twice as long: 3 % in the mean, all of the 99th percentile."""
    d = diagnosed(prompts([4000] * 60, lambda i: 2.0 if i in (20, 40) else 1.0), tmp_path)
    assert severity(d, "gpu-slower-at-times") == "medium"


def test_a_batch_that_shrinks_is_no_faster_gpu(tmp_path: Path) -> None:
    """Sequences end one after the other: the same kernels, of fewer rows."""
    m = Machine()
    for i in range(40):
        batch = 64 - i * 3 // 2
        with m.step(f"decode_step {i}"):
            for _ in range(10):
                m.launch(NORM._replace(blocks=batch), 10 + batch)
                m.launch(PERSISTENT, 100 + 5 * batch)
                m.launch(SILU._replace(blocks=batch), 10 + batch)
                m.launch(PERSISTENT, 100 + 5 * batch)
            m.read_back()
    expect(diagnosed(m, tmp_path), never=SLOWER)


def test_a_drift_of_the_device_leads_before_what_limits_it(tmp_path: Path) -> None:
    d = diagnosed(prompts([4000] * 40, lambda i: 1.0 + i / 100), tmp_path)
    expect(d, "gpu-speed-drifts", "compute-bound")


@pytest.mark.parametrize("slower", [0.2, 0.6])
def test_a_clock_that_falls_costs_what_the_first_steps_do_not_take(slower: float, tmp_path: Path) -> None:
    """At full clock for the first third, then falling for the second and low in the last."""
    falling = prompts([4000] * 39, lambda i: 1.0 + slower * min(max((i - 13) / 13, 0.0), 1.0))
    d = diagnosed(falling, folder(tmp_path))
    expect(d, "gpu-speed-drifts")
    cool = diagnosed(prompts([4000] * 39), folder(tmp_path)).inputs[0].step_ms
    after = step_after(d, "gpu-speed-drifts")
    assert cool is not None
    assert after.low <= cool <= after.high
    assert after.mid == pytest.approx(cool, rel=0.02)


def to_the_end(share: float) -> float:
    """A clock that falls evenly all the time."""
    return share


def warming(share: float) -> float:
    """One that falls less and less, as a board comes to its temperature."""
    return 1 - math.exp(-4 * share)


@pytest.mark.parametrize(("slower", "shape"), [(0.45, to_the_end), (0.3, warming)])
def test_the_first_steps_tell_what_a_clock_that_falls_at_once_costs(
    slower: float, shape: Callable[[float], float], tmp_path: Path
) -> None:
    falling = prompts([4000] * 48, lambda i: 1.0 + slower * shape(i / 48))
    d = diagnosed(falling, folder(tmp_path))
    expect(d, "gpu-speed-drifts")
    cool = diagnosed(prompts([4000] * 48), folder(tmp_path)).inputs[0].step_ms
    after = step_after(d, "gpu-speed-drifts")
    assert cool is not None
    assert after.low <= cool <= after.high
    assert after.mid == pytest.approx(cool, rel=0.06)
    # It saves no more than what the finding says is lost.
    found = finding(d, "gpu-speed-drifts")
    assert found.gain is not None
    assert found.gain.alone == pytest.approx(found.share, rel=0.05)


def sampled(clock: int, dram: int = 34) -> Machine:
    """Even steps on a busy device whose SMs run at so many of 1,980 MHz."""
    m = Machine()
    for i in range(20):
        with m.step(f"decode_step {i}"):
            for _ in range(8):
                m.launch(NORM, 60)
                m.launch(PERSISTENT, 400)
            m.wait()
    count = int(m.gpu_free // 100)
    m.export.gpu_metrics(
        {
            "GPC Clock Frequency": [clock] * count,
            "GR Active": [99] * count,
            "SMs Active": [86] * count,
            "DRAM Read Bandwidth": [dram] * count,
            "DRAM Write Bandwidth": [1] * count,
        }
    )
    return m


def test_a_clock_far_below_the_highest_is_the_first_finding(tmp_path: Path) -> None:
    d = diagnosed(sampled(600), tmp_path)
    expect(d, "low-clock")
    assert severity(d, "low-clock") == "high"


@pytest.mark.parametrize("clock", [1_446, 1_980], ids=["dense products", "highest"])
def test_clocks_of_a_board_in_order_are_no_fault(clock: int, tmp_path: Path) -> None:
    expect(diagnosed(sampled(clock), tmp_path), never=("low-clock", "clock-throttled"))


def test_a_low_clock_costs_little_while_the_memory_is_busy(tmp_path: Path) -> None:
    d = diagnosed(sampled(900, dram=92), tmp_path)
    assert severity(d, "low-clock") == "low"


@pytest.mark.parametrize("grows", [0.5, 2.0])
def test_a_cache_that_grows_is_no_falling_clock(grows: float, tmp_path: Path) -> None:
    """Attention reads more in every step, and all other kernels take as long as before."""
    m = Machine()
    for i in range(40):
        with m.step(f"decode_step {i}"):
            for _ in range(20):
                m.launch(NORM, 3)
                m.launch(GEMM, 60)
                m.launch(DECODE_ATTENTION, 40 * (1 + grows * i / 40))
                m.launch(GEMM, 60)
            m.read_back()
    expect(diagnosed(m, tmp_path), never=("gpu-speed-drifts", "gpu-slower-at-times"))


@pytest.mark.parametrize("every", [3, 4])
def test_a_thread_of_the_program_beside_its_steps_is_no_neighbour(every: int, tmp_path: Path) -> None:
    """In some steps another stream of the same program runs copies beside them, and no kernel gets slower."""
    m = Machine()
    for i in range(28):
        with m.step(f"decode_step {i}"):
            if i % every == 0:
                m.copy("DtoH", 2_000, "pinned", stream=9)
            m.layers(12)
            m.read_back()
    expect(diagnosed(m, tmp_path), never=("gpu-slower-at-times", "gpu-speed-drifts"))
