"""Ranges: independent errors in quadrature, of logarithms; noise; what cannot be slower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from advisor.gain import spread
from advisor.gain.estimate import Replayer
from advisor.gain.profiler import Scenario
from advisor.gain.replay_ops import NoEstimate
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import US, fix, replayer
from tests.scenarios.machine import GEMM, Kernel, Machine

MODEL, FLOOR = 0.05, 0.02
SGEMM = Kernel("ampere_sgemm_128x64_tn")


def test_errors_add_in_quadrature() -> None:
    # Ends at 10 % and 20 % below and above, noise of 5 %.
    ends = [math.exp(-0.1), math.exp(0.1), math.exp(-0.2), math.exp(0.2)]
    span = spread.span(1.0, ends, 0.05)
    width = math.sqrt(0.1**2 + 0.2**2 + 0.05**2)
    assert (span.low, span.mid, span.high) == pytest.approx((math.exp(-width), 1.0, math.exp(width)))


def test_an_end_counts_to_the_side_where_it_lies() -> None:
    # Both ends of the one quantity lie above, so only the farther of them widens the range.
    span = spread.span(1.0, [math.exp(0.1), math.exp(0.3)], 0.0)
    assert (span.low, span.high) == pytest.approx((1.0, math.exp(0.3)))


def test_noise_cannot_exceed_what_a_fix_removes() -> None:
    assert spread.ratio_noise(100.0, 50.0, 0.05) == 0.05
    assert spread.ratio_noise(100.0, 99.0, 0.05) == pytest.approx(math.log(100 / 99))
    assert spread.ratio_noise(100.0, 100.0, 0.05) == 0.0


def steps_of(lengths: Sequence[float], folder: Path, busy: float = 20) -> Replayer:
    """Steps of so many us, each with one kernel of `busy` us at its end."""
    export, at = Export().gpu().process(1), 0
    for i, length in enumerate((lengths[0], *lengths)):
        export.range(f"iteration {i}", at, at + round(length * US) - 1)
        end = at + round(length * US)
        export.launch(at=at, dur=5 * US, kernel_start=end - round(busy * US), kernel_dur=round(busy * US))
        at = end
    return replayer(export, folder)


def test_noise_is_the_error_of_the_mean_and_what_two_runs_differ_by(tmp_path: Path) -> None:
    """Nine steps in three blocks of means 100, 110 and 120 us: 10 / sqrt(3) of 110."""
    r = steps_of([90, 100, 110, 100, 110, 120, 110, 120, 130], tmp_path)
    assert r.noise == pytest.approx(math.hypot(10 / math.sqrt(3) / 110, FLOOR))
    assert replayer(scenes.eager(), tmp_path).noise == FLOOR


def test_what_comes_at_a_rhythm_is_no_noise(tmp_path: Path) -> None:
    """Every fourth of sixteen steps takes twice as long: each block of four holds one."""
    assert steps_of([100, 100, 100, 200] * 4, tmp_path).noise == FLOOR


def test_half_of_a_window_that_is_slower_is_noise(tmp_path: Path) -> None:
    r = steps_of([100] * 8 + [120] * 8, tmp_path)
    assert r.noise > 4 * FLOOR / 2


def test_two_runs_copy_pageable_memory_at_rates_of_their_own(tmp_path: Path) -> None:
    """A copy of all but the whole step: a tenth of it."""
    noise = []
    for memory in ("pinned", "pageable"):
        m = Machine()
        for i in range(8):
            with m.step(f"decode_step {i}"):
                m.copy("HtoD", 19_500, memory, gb_per_s=20)
                m.launch(GEMM, 20)
                m.wait()
        noise.append(replayer(m.export, tmp_path).noise)
    assert noise[0] == pytest.approx(FLOOR, abs=1e-3)
    assert noise[1] == pytest.approx(math.hypot(FLOOR, 0.1), abs=5e-3)


@pytest.mark.parametrize("busy", [60.0, 99.9])
def test_an_untraced_step_is_no_longer_than_the_traced_one_nor_shorter_than_its_kernels(
    tmp_path: Path, busy: float
) -> None:
    before = steps_of([90, 110] * 6 if busy < 90 else [100] * 12, tmp_path, busy).untraced_ms()
    assert before.low >= busy / 1e3
    assert before.low <= before.mid <= before.high <= 0.1 + 1e-12


def test_what_both_share_of_a_spread_cancels() -> None:
    time, phase = np.array([90.0, 90, 110, 110]), np.array(["decode"] * 4)
    assert spread.error_of_mean(time, phase) == pytest.approx(10)
    assert spread.error_of_ratio(time, time / 2, phase) == pytest.approx(0.0)
    assert spread.error_of_ratio(time, np.full(4, 50.0), phase) == pytest.approx(10 / 100)


def test_each_phase_has_a_mean_of_its_own() -> None:
    """Steps of 10 and of 100 that do not vary leave nothing in doubt."""
    time, phase = np.array([10.0, 10, 100, 10, 10, 100]), np.array(["a", "a", "b", "a", "a", "b"])
    assert spread.error_of_mean(time, phase) == 0.0
    assert spread.error_of_mean(np.array([10.0]), np.array(["a"])) == 0.0


def test_a_gap_that_goes(tmp_path: Path) -> None:
    """Wait and host code leave 162 us; without them 100.9, whatever tracing cost."""
    r = replayer(scenes.waiting(), tmp_path)
    found = r.estimate([fix("remove_host_gap")])
    # The one launch a step: between 0 and 16 us of its slot were tracing; half of it in the middle.
    assert found.before.mid * US == pytest.approx(162.0)
    assert found.after.mid * US == pytest.approx(100.9)
    assert found.speedup.mid == pytest.approx(162 / 100.9)
    assert found.bound.mid * US == pytest.approx(100.9)
    assert found.measure == "latency"
    assert found.after.low < found.after.mid < found.after.high


def test_what_wins_nothing_has_no_range(tmp_path: Path) -> None:
    found = replayer(scenes.reading_back(), tmp_path).estimate([fix("remove_sync")])
    assert (found.speedup.low, found.speedup.mid, found.speedup.high) == (1.0, 1.0, 1.0)


def test_throughput_counts_tokens(tmp_path: Path) -> None:
    rows = ((scenes.GEMM, 100), (scenes.GEMM, 100))
    export = scenes.kernels(*rows, step="decode_step")
    found = replayer(export, tmp_path).estimate([fix("batch", n=4)])
    assert found.measure == "throughput"
    assert found.speedup.mid == pytest.approx(4.0)
    # Two runs are compared, so their noise does not cancel; but four times the work wins four
    # times the tokens at most.
    width = math.sqrt(MODEL**2 + FLOOR**2)
    assert found.speedup.mid / found.speedup.low >= math.exp(width) * (1 - 1e-3)
    assert found.speedup.high == pytest.approx(4.0)


def test_another_run_may_have_a_slower_host_where_that_decides(tmp_path: Path) -> None:
    """Launches hold the step, the GPU hardly works: a batch of eight may take a third longer."""
    r = replayer(scenes.eager(count=20, slot=20), tmp_path)
    found = r.estimate([fix("batch", n=8)])
    width = math.sqrt(MODEL**2 + FLOOR**2 + 0.34**2)
    assert found.speedup.low <= found.speedup.mid * math.exp(-width) * (1 + 1e-3)


def test_replays_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    r = replayer(scenes.eager(), tmp_path)
    first = r.estimate([fix("cuda_graphs")])
    monkeypatch.setattr("advisor.gain.replay.replay", None)
    assert r.step_ns((), Scenario()) > 0
    monkeypatch.undo()
    assert r.estimate([fix("cuda_graphs")]) == first


def test_a_step_without_work_has_no_estimate(tmp_path: Path) -> None:
    """One copy alone in a step; gone, it leaves nothing to time."""

    def step(e: Export, t: int) -> None:
        e.copy(at=t, dur=110 * US, bytes=1_000_000, memory="pinned", copy_start=t + 5 * US, copy_dur=100 * US)

    r = replayer(scenes.capture(step, 111), tmp_path)
    with pytest.raises(NoEstimate, match="no work"):
        r.estimate([fix("remove_copy"), fix("remove_host_gap")])


def test_less_work_never_takes_longer(tmp_path: Path) -> None:
    """The host decides when steps begin, and only the step before the measured ones ends on a long
    product: made shorter, that step ends sooner, and the last one as late as before."""
    m = Machine(Export().gpu(name="NVIDIA H200", capability=(9, 0)))
    for i in range(6):
        with m.step(f"train_step {i}"):
            m.launch(GEMM, 100)
            m.work(3_000)
            m.launch(SGEMM, 2_000 if i < 2 else 20)
    found = replayer(m.export, tmp_path).estimate([fix("tensor_rate", precision="bf16")])
    assert found.after.mid == found.before.mid
    assert found.speedup.mid == 1.0
