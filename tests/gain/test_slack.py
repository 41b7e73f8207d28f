"""Host time without a call: a wait for the GPU where the host keeps its lead, work where it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.gain.estimate import Estimate
from tests.gain.support import fix, replayer
from tests.scenarios.machine import GEMM, NORM, Machine

#: Time of a product in each step, us.
ALIKE, VARIED = (lambda _: 1_900), (lambda i: 700 + 400 * (i * 5 % 7))
FP8 = fix("tensor_rate", precision="fp8")
#: What the host does from launching one step to launching the next, until so many us before that is done.
Between = Callable[[Machine, float], None]


def loop(between: Between, *, kernel: Callable[[int], float] = ALIKE, steps: int = 14) -> Machine:
    """Steps of 40 products, launched while the GPU runs the step before."""
    m = Machine()
    for i in range(steps):
        with m.step(f"prefill_step {i}"):
            until = m.gpu_free
            for _ in range(40):
                m.launch(GEMM, kernel(i))
                m.launch(NORM, 90)
            between(m, max(until - m.now, 0))
    m.wait()
    return m


def in_a_call(m: Machine, until_done: float) -> None:
    m.call("cudaEventSynchronize_v3020", until_done + 4)


def in_no_call(m: Machine, until_done: float) -> None:
    m.work(until_done + 4)


def in_a_range(m: Machine, until_done: float) -> None:
    m.work(until_done + 4, "poll")


def with_fp8(m: Machine, folder: Path) -> Estimate:
    return replayer(m.export, folder).estimate([FP8])


@pytest.mark.parametrize("between", [in_no_call, in_a_range])
@pytest.mark.parametrize("kernel", [ALIKE, VARIED], ids=["alike", "varied"])
def test_a_wait_that_no_call_records_is_a_wait(
    tmp_path: Path, between: Between, kernel: Callable[[int], float]
) -> None:
    recorded = with_fp8(loop(in_a_call, kernel=kernel), tmp_path)
    other = with_fp8(loop(between, kernel=kernel), tmp_path)
    assert other.before.mid == pytest.approx(recorded.before.mid, rel=0.01)
    assert other.after.mid == pytest.approx(recorded.after.mid, rel=0.1)
    assert other.after.mid < 0.7 * other.before.mid
    # Nothing proves that it is one: the range begins where it is work.
    assert other.speedup.low == pytest.approx(1.0, abs=0.02)
    assert other.after.high <= other.before.high


def test_a_host_that_gets_further_and_further_ahead_works(tmp_path: Path) -> None:
    """The near miss: a step takes the host 60 of the GPU's 80 ms, and the launch queue fills."""
    m = loop(lambda m, _: m.work(60_000))
    r = replayer(m.export, tmp_path)
    assert not r.taken.inputs.calls.slack.any()
    host_ms = 60.4
    assert r.estimate([FP8]).after.mid == pytest.approx(host_ms, rel=0.02)


def test_host_time_that_the_gpu_waits_for_is_work(tmp_path: Path) -> None:
    def late(m: Machine, _: float) -> None:
        m.wait()
        m.work(3_000)

    assert not replayer(loop(late).export, tmp_path).taken.inputs.calls.slack.any()


def test_a_thread_that_waits_in_a_call_works_beside_it(tmp_path: Path) -> None:
    """It works for 30 ms, then it waits: the work is no wait."""

    def both(m: Machine, until_done: float) -> None:
        m.work(30_000)
        m.call("cudaEventSynchronize_v3020", max(until_done - 30_000, 0) + 4)

    assert not replayer(loop(both).export, tmp_path).taken.inputs.calls.slack.any()
