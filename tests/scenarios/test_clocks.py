"""Samples and kernels whose times come from two clocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.machine import DECODE_ATTENTION, GEMV, NORM, SILU, Machine
from tests.scenarios.support import diagnosed, fact

LEVELS = {GEMV: (60, 90, 5), DECODE_ATTENTION: (50, 60, 5), NORM: (30, 20, 0), SILU: (30, 20, 0)}
#: What compares samples with single kernels.
COMPARING = {"memory-bandwidth-bound", "gemv-headroom", "gemv-at-limit", "unrecorded-gpu-work"}


def decoding(late: float, pause: float = 0, start: float = 0) -> Machine:
    """Steps of 4 ms at memory speed, their products 300 us long, with so much host code between them."""
    m = Machine(start=start)
    for i in range(20):
        m.now += pause
        with m.step(f"decode_step {i}"):
            for k in range(8):
                for kernel, us in ((NORM, 60), (GEMV, 290 + 7 * k), (DECODE_ATTENTION, 40), (SILU, 70)):
                    m.launch(kernel, us)
            m.wait()
    m.sample(LEVELS, late=late)
    return m


@pytest.mark.parametrize(("late", "start"), [(100, 0), (300, 0), (2_000, 0), (-300, 5_000)])
@pytest.mark.parametrize("pause", [0, 3_000])
def test_samples_off_by_some_of_their_periods_judge_no_kernel(
    late: float, start: float, pause: float, tmp_path: Path
) -> None:
    d = diagnosed(decoding(late, pause, start), tmp_path)
    causes = {f.cause for f in d.findings}
    assert "samples-out-of-line" in causes
    assert not COMPARING & causes
    assert {n.cause for n in d.not_evaluated} >= {"memory-bandwidth-bound", "unrecorded-gpu-work"}
    assert fact(d, "activity.samples_off_ms") == pytest.approx(abs(late) / 1_000, abs=0.11)  # or a step less
    assert (d.findings[0].cause == "host-gap") == (pause > 0)


@pytest.mark.parametrize("late", [0, 1, 20])
def test_samples_off_by_less_than_half_a_period_are_in_line(late: float, tmp_path: Path) -> None:
    d = diagnosed(decoding(late), tmp_path)
    assert fact(d, "activity.samples_off_ms") == 0
    assert d.findings[0].cause == "memory-bandwidth-bound"


def test_a_step_without_contrast_shows_no_distance(tmp_path: Path) -> None:
    """One product after the other, as active in each sample: what is read from samples holds at any lag."""
    m = Machine()
    for i in range(20):
        with m.step(f"decode_step {i}"):
            for _ in range(20):
                m.launch(GEMV, 198)
            m.wait()
    m.sample({GEMV: (60, 90, 5)}, late=300)
    d = diagnosed(m, tmp_path)
    assert "samples-out-of-line" not in {f.cause for f in d.findings}
    assert d.findings[0].cause == "memory-bandwidth-bound"
