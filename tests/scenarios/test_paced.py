"""Input at a fixed rate, as from a camera, sets when passes begin; a loop of constant work does so itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from tests.scenarios.machine import ADD, GEMM, Kernel, Machine
from tests.scenarios.support import diagnosed, expect, fact, finding, ranked, severity

PERIOD_US = 41_667  # 24 frames a second
#: Blocks of each product: as many as there is to see on the frame.
VARIED, ALIKE = (lambda i: 200 + 160 * (i * 7 % 5)), (lambda _: 520)
#: How the thread passes so many us until the next frame.
Passing = Callable[[Machine, float], None]
PASSING: dict[str, Passing] = {
    "unrecorded": lambda m, us: m.work(us),
    "sleep": lambda m, us: m.blocked(us, "clock_nanosleep"),
    "poll": lambda m, us: m.blocked(us, "poll"),
    "off its CPU": lambda m, us: m.preempted(us),
}


def frame(m: Machine, blocks: int, us: float) -> None:
    """Products that take so many us for each block."""
    for _ in range(26):
        m.launch(Kernel(GEMM.name, blocks), us * blocks)
        m.launch(Kernel(ADD.name, blocks), 20)


def camera(passing: Passing, blocks: Callable[[int], int] = VARIED, us: float = 1.2) -> Machine:
    m = Machine()
    for i in range(40):
        passing(m, max(i * PERIOD_US - m.now, 1))
        with m.step(f"frame {i}"):
            frame(m, blocks(i), us)
            m.read_back()
    return m


@pytest.mark.parametrize("how", PASSING)
def test_a_camera_sets_the_rate_of_passes_that_vary(tmp_path: Path, how: str) -> None:
    d = diagnosed(camera(PASSING[how]), tmp_path)
    expect(d, also=("paced-input",), never=("waits-for-requests", "host-gap", "os-blocked", "cpu-contention"))
    assert ranked(d) == []
    assert fact(d, "requests.period_ms", None) == pytest.approx(41.667, rel=0.01)
    assert fact(d, "requests.rate_per_s", None) == pytest.approx(24, rel=0.01)
    assert fact(d, "requests.paced", None) is True
    assert "24 a second" in finding(d, "paced-input").message
    assert d.headline is None or d.headline.code != "HST101"


@pytest.mark.parametrize("how", ["unrecorded", "off its CPU"])
@pytest.mark.parametrize("blocks", [VARIED, ALIKE], ids=["varied", "alike"])
def test_a_faster_gpu_makes_no_host_slower(tmp_path: Path, how: str, blocks: Callable[[int], int]) -> None:
    """Before and after at one camera: the GPU takes less for each frame, and waits longer for the next."""
    before = camera(PASSING[how], blocks).write(tmp_path, "before.sqlite")
    after = camera(PASSING[how], blocks, us=0.5).write(tmp_path, "after.sqlite")
    found = advisor.compare([before], [after])
    assert found.verdict in ("improvement", "no-change")
    assert not any("host got slower" in note for note in found.notes)
    if blocks is ALIKE:
        assert any(note.startswith("The step is paced") for note in found.notes)


def test_a_server_whose_steps_are_alike_sets_its_rate_itself(tmp_path: Path) -> None:
    """The near miss: the host works for as long between steps that take as long."""
    m = Machine()
    for i in range(40):
        with m.step(f"frame {i}"):
            frame(m, 520, 1.2)
            m.read_back()
            m.work(20_000)
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap", never=("paced-input", "waits-for-requests"))
    assert fact(d, "requests.paced", None) is False


def test_a_host_that_works_beside_the_gpu_sets_the_rate_itself(tmp_path: Path) -> None:
    """The other near miss: each step takes the host as long, however long the GPU computes beside it."""
    m = Machine()
    for i in range(40):
        with m.step(f"frame {i}"):
            frame(m, VARIED(i), 1.2)
            m.work(PERIOD_US)
    d = diagnosed(m, tmp_path)
    expect(d, never=("paced-input",))
    assert severity(d, "host-gap") in ("medium", "high")


def test_a_camera_that_the_gpu_only_just_follows(tmp_path: Path) -> None:
    d = diagnosed(camera(PASSING["poll"], us=1.5), tmp_path)
    assert "host-gap" not in ranked(d)
