"""One cause behind several signs: GPUs that take turns, a clock that falls, calls that come in pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builder import Export
from tests.scenarios.machine import DECODE_LAYER, Machine
from tests.scenarios.support import diagnosed, expect, fact, ranked, severity


def split(host_us: float) -> Export:
    """Half of the layers of each step on either GPU, and host code before the next step."""
    e = Export().gpu(0).gpu(1, bus="0000:02:00.0")
    first, second = Machine(e, device=0), Machine(e, device=1)
    for i in range(16):
        with first.step(f"decode_step {i}"):
            first.replay(16, call=15)
            second.now = first.now
            second.hold_until(first.gpu_free + 15)
            second.replay(16, call=15)
            second.wait()
            first.now = second.now
        first.work(host_us)
    return e


def test_a_gpu_that_waits_for_the_other_has_no_gap_between_replays(tmp_path: Path) -> None:
    d = diagnosed(split(0), tmp_path)
    expect(d, "gpus-take-turns", never=("graph-replay-gaps", "host-gap", "launch-bound"))


def test_host_code_beside_the_turns_of_two_gpus_is_told(tmp_path: Path) -> None:
    """2 ms of host code beside turns of 0.7 ms: most of the idle time is the host's."""
    d = diagnosed(split(2_000), tmp_path)
    share = fact(d, "gpus.turn_of_idle_ratio", None)
    assert isinstance(share, float)
    assert share < 0.5


def slowing(clock: tuple[int, int]) -> Machine:
    """All kernels take half as long again from the fortieth of 100 steps on; and samples of the clock."""
    m = Machine()
    turn = 0.0
    for i in range(100):
        if i == 40:
            turn = m.now
        with m.step(f"decode_step {i}"):
            m.replay(12, [(kernel, us * (1 if i < 40 else 1.5)) for kernel, us in DECODE_LAYER], call=15)
            m.read_back()
    count = int(m.now // 500) + 1
    m.export.gpu_metrics(
        {
            "GR Active": [98] * count,
            "SMs Active": [95] * count,
            "GPC Clock Frequency [MHz]": [clock[500 * i >= turn] for i in range(count)],
        },
        500_000,
    )
    return m


def test_a_clock_that_is_seen_to_fall_is_why_the_gpu_slows_down(tmp_path: Path) -> None:
    d = diagnosed(slowing((1980, 1300)), tmp_path)
    expect(d, "clock-throttled", never=("gpu-speed-drifts", "gpu-slower-at-times", "step-outliers"))


def test_a_gpu_that_slows_down_at_an_even_clock(tmp_path: Path) -> None:
    """It is not asked for a record of the clock, which the capture holds."""
    d = diagnosed(slowing((1980, 1980)), tmp_path)
    expect(d, "gpu-speed-drifts", never=("clock-throttled",))
    assert d.findings[0].recommendations[0].id == "find-neighbours"


def test_streams_that_are_made_and_destroyed_in_each_step(tmp_path: Path) -> None:
    m = Machine()
    for i in range(20):
        with m.step(f"decode_step {i}"):
            m.call("cudaStreamCreateWithFlags_v5000", 400)
            m.replay(28, call=15)
            m.wait()
            m.call("cudaStreamDestroy_v5050", 500)
    d = diagnosed(m, tmp_path)
    expect(d, "costly-cuda-calls", never=("graph-replay-gaps", "host-gap"))
    assert "cudaStreamDestroy and cudaStreamCreateWithFlags (2 a step)" in d.findings[0].message
    assert severity(d, "costly-cuda-calls") == "high"
    assert "graph-replay-gaps" not in ranked(d)


@pytest.mark.parametrize("named", [True, False])
def test_a_compilation_in_a_warm_loop_is_named(tmp_path: Path, named: bool) -> None:
    """Inside a step no request is missing, whether a range names what is done there or not."""
    m = Machine()
    for i in range(30):
        with m.step(f"decode_step {i}"):
            if i == 7:
                m.work(300_000, "compile_graph" if named else None)
            m.replay(28, call=15)
            m.read_back()
    d = diagnosed(m, tmp_path)
    expect(d, "step-outliers", never=("host-gap", "long-interruptions"))
    assert d.findings[0].recommendations[0].id == ("shorten-interruptions" if named else "reduce-gc")
