"""A service that waits for requests is no fault of the program; host code between its passes is one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from advisor.model.findings import Diagnosis
from advisor.reports.diagnosis_blocks import TextOptions, shown
from advisor.reports.summary import verdict, why
from advisor.reports.text import plain
from tests.scenarios.machine import GEMM, NORM, PREFILL_ATTENTION, Machine
from tests.scenarios.requests import Pass, encoder, even, replayed, service, uneven
from tests.scenarios.support import diagnosed, expect, fact, ranked, severity

#: One layer that reads a prompt, in us.
PROMPT_LAYER = ((NORM, 6), (GEMM, 300), (PREFILL_ATTENTION, 150), (GEMM, 300))

CAUSES = (
    "host-gap",
    "os-blocked",
    "long-interruptions",
    "graph-replay-gaps",
    "step-outliers",
    "launch-bound",
)


def in_call(name: str) -> Callable[[Machine, float], None]:
    """The launching thread is in a call of the operating system, woken every 100 ms."""

    def wait(m: Machine, us: float) -> None:
        while us > 0:
            m.blocked(min(us, 100_000), name)
            us -= 100_000

    return wait


def on_another_thread(m: Machine, us: float) -> None:
    """The loop waits in epoll on a thread of its own and hands the request over at last."""
    m.export.thread(77).osrt("epoll_wait", round(m.now * 1e3), round(us * 1e3) - 20_000)
    m.export.thread(m.export.pid)
    m.work(us)


def handed_over(m: Machine, us: float) -> None:
    """The same, and the launching thread waits for it at a condition variable."""
    begin = m.now
    on_another_thread(m, us)
    m.export.osrt("pthread_cond_wait", round(begin * 1e3), round(us * 1e3))


def no_fault(d: Diagnosis, steps: int) -> None:
    expect(d, also=("waits-for-requests",), never=CAUSES)
    assert ranked(d) == []
    assert d.inputs[0].steps == steps
    assert all(
        f.gain is None or f.gain.speedup is None for f in d.findings if f.cause == "waits-for-requests"
    )


@pytest.mark.parametrize("name", ["encode_batch", None], ids=["ranges", "none"])
@pytest.mark.parametrize("run", [encoder(), replayed(), encoder(6)], ids=["eager", "graph", "small"])
@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_passes_at_random_times(tmp_path: Path, name: str | None, run: Pass, seed: int) -> None:
    gaps = uneven(25, 100, seed)
    d = diagnosed(service(gaps, run, name=name), tmp_path)
    no_fault(d, 24)
    assert fact(d, "requests.wait_ratio", None) == pytest.approx(0.97, abs=0.03)
    waits = [us / 1e3 for us in gaps[1:] if us > 200]
    assert fact(d, "requests.wait_count", None) == len(waits)
    spread = np.diff(np.percentile(waits, (10, 90)))[0] / np.median(waits)
    assert fact(d, "requests.wait_spread_ratio", None) == pytest.approx(spread, rel=0.1)
    assert fact(d, "requests.wait_median_ms", None) == pytest.approx(np.median(waits), rel=0.01)
    assert fact(d, "requests.wait_longest_ms", None) == pytest.approx(max(gaps[1:]) / 1e3, rel=0.01)
    (step,) = d.steps
    assert step.mean_ms < 6  # the time of a pass alone


def test_the_load_is_told_before_all_else(tmp_path: Path) -> None:
    gaps = uneven(25, 100)
    d = diagnosed(service(gaps, encoder()), tmp_path)
    seconds = (sum(gaps[1:]) + 24 * 4_500) / 1e6
    assert fact(d, "requests.passes_per_s", None) == pytest.approx(24 / seconds, rel=0.01)
    assert fact(d, "requests.busy_ratio", None) == pytest.approx(24 * 4.47e-3 / seconds, rel=0.02)
    assert verdict(d).startswith("Record under load: perhaps no request came for 9")
    assert " passes a second keep the GPU busy for 4.88 %" in why(d)
    assert d.verdict.startswith("Perhaps no request came")
    lines = plain(shown([d], TextOptions(), 80))
    assert "ncu --set" not in lines  # a kernel is no advice where the GPU waits for work
    assert lines.splitlines()[-1].endswith(" HST111")


def test_half_of_the_time_a_pass_runs(tmp_path: Path) -> None:
    """Many requests find the one before at work, or have come long ago."""
    d = diagnosed(service([max(us - 1_500, 20) for us in uneven(60, 4)], encoder()), tmp_path)
    expect(d, also=("waits-for-requests",), never=CAUSES)
    assert 0.2 < float(str(fact(d, "requests.wait_ratio", None))) < 0.5


@pytest.mark.parametrize(
    "name", ["encode_batch", pytest.param(None, marks=pytest.mark.slow)], ids=["ranges", "none"]
)
@pytest.mark.parametrize(
    ("between", "call"),
    [
        (in_call("epoll_wait"), "epoll_wait"),
        (in_call("pthread_cond_timedwait"), "pthread_cond_timedwait"),
        (on_another_thread, None),
        (handed_over, "pthread_cond_wait"),
    ],
    ids=["epoll", "condition", "other-thread", "handed-over"],
)
def test_the_thread_that_waits_is_named_with_its_call(
    tmp_path: Path, between: Callable[[Machine, float], None], call: str | None, name: str | None
) -> None:
    d = diagnosed(service(uneven(25, 60), encoder(), name=name, between=between), tmp_path)
    no_fault(d, 24)
    assert fact(d, "requests.os_call", None) == call


@pytest.mark.parametrize("name", ["encode_batch", None], ids=["ranges", "none"])
@pytest.mark.parametrize(
    ("low", "high", "seed"), [(2, 350, 14), pytest.param(50, 350, 8, marks=pytest.mark.slow), (20, 100, 5)]
)
def test_few_requests_evenly_spread(
    tmp_path: Path, low: float, high: float, seed: int, name: str | None
) -> None:
    """16 of them, which by chance may differ from the one before by half only."""
    gaps = np.random.default_rng(seed).uniform(low * 1e3, high * 1e3, 16)
    no_fault(diagnosed(service(gaps.tolist(), encoder(10), name=name), tmp_path), 15)


def test_requests_in_time_with_a_clock_are_waited_for_in_epoll(tmp_path: Path) -> None:
    d = diagnosed(service(even(25, 30), encoder(), between=in_call("epoll_wait")), tmp_path)
    no_fault(d, 24)
    (found,) = [f for f in d.findings if f.cause == "waits-for-requests"]
    assert "irregularly" not in found.message
    assert fact(d, "requests.wait_alike_ratio", None) == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("name", ["encode_batch", None], ids=["ranges", "none"])
@pytest.mark.parametrize("run", [encoder(), replayed()], ids=["eager", "graph"])
@pytest.mark.parametrize("spread", [0, pytest.param(0.03, marks=pytest.mark.slow), 0.2])
def test_equal_gaps_are_work_of_the_host(tmp_path: Path, name: str | None, run: Pass, spread: float) -> None:
    d = diagnosed(service(even(25, 30, spread), run, name=name), tmp_path)
    expect(d, "host-gap", never=("waits-for-requests",))
    assert severity(d, "host-gap") == "high"
    assert d.inputs[0].steps == 24
    (gap,) = [f for f in d.findings if f.cause == "host-gap"]
    assert "compute-on-device" not in {r.id for r in gap.recommendations}  # the next input, not an answer


@pytest.mark.parametrize(
    "gaps",
    [
        pytest.param([3e3, 30e3] * 13, id="two-sizes"),
        pytest.param([3e3, 3e3, 30e3, 12e3] * 7, id="three-sizes"),
        pytest.param(list(np.geomspace(2e3, 60e3, 26)), id="growing"),
    ],
)
def test_a_pattern_is_no_arrival(tmp_path: Path, gaps: list[float]) -> None:
    d = diagnosed(service(gaps, encoder()), tmp_path)
    expect(d, "host-gap", never=("waits-for-requests",))


def test_what_a_range_names_is_work(tmp_path: Path) -> None:
    """Texts of any length are tokenised; the same under a range that says it waits."""
    d = diagnosed(service(uneven(25, 30), encoder(), between=lambda m, us: m.work(us, "tokenize")), tmp_path)
    expect(d, "host-gap", never=("waits-for-requests",))
    waits = service(uneven(25, 30), encoder(), between=lambda m, us: m.work(us, "wait_for_request"))
    (tmp_path / "waits").mkdir()
    no_fault(diagnosed(waits, tmp_path / "waits"), 24)


@pytest.mark.parametrize("asleep", [True, False])
def test_a_thread_on_its_cpu_works(tmp_path: Path, asleep: bool) -> None:
    def between(m: Machine, us: float) -> None:
        (m.preempted if asleep else m.work)(us)

    m = service(uneven(25, 30), encoder(), between=between)
    m.preempted(50)
    d = diagnosed(m, tmp_path)
    if asleep:
        no_fault(d, 24)
    else:
        expect(d, "host-gap", never=("waits-for-requests",))


def test_calls_that_do_work_are_no_wait(tmp_path: Path) -> None:
    d = diagnosed(service(uneven(25, 30), encoder(), between=in_call("read")), tmp_path)
    expect(d, "os-blocked", never=("waits-for-requests",))


def test_garbage_of_any_size_is_told_as_such(tmp_path: Path) -> None:
    d = diagnosed(service(uneven(25, 30), encoder(), between=lambda m, us: m.work(us, "Python GC")), tmp_path)
    expect(d, "python-gc", never=("waits-for-requests",))


def test_varying_work_between_tokens_stays_a_fault(tmp_path: Path) -> None:
    """Decode steps of 1 ms and 0.3 to 2 ms of host code of varying length: the sequences run on."""
    m = Machine()
    for us in np.random.default_rng(5).uniform(300, 2_000, 30):
        with m.step("decode_step"):
            m.replay(22)
            m.wait()
        m.work(float(us))
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap", never=("waits-for-requests",))


def test_layers_that_read_back_are_no_passes(tmp_path: Path) -> None:
    """0.6 ms of host code after each layer, which reads one value back; no ranges."""
    m = Machine()
    for _ in range(12 * 6):
        m.layers(1, call=3)
        m.read_back()
        m.work(600)
    assert diagnosed(m, tmp_path).inputs[0].step_method != "pauses"


@pytest.mark.parametrize("ranges", [True, False])
def test_conversations_at_random_times(tmp_path: Path, ranges: bool) -> None:
    """A prompt and 16 to 24 tokens each: few of the steps follow a wait, but all of these read prompts."""
    m = Machine()
    for us in uneven(10, 120, 8):
        m.work(us + 200)
        for i in range(17 + round(us) % 8):
            with m.step("decode" if i else "prefill") if ranges else nullcontext():
                m.layers(12, PROMPT_LAYER) if i == 0 else m.replay(30)
                m.read_back()
            m.work(60)
    d = diagnosed(m, tmp_path)
    expect(d, also=("waits-for-requests",), never=CAUSES)
    assert ranked(d) == []


def test_host_code_before_few_tokens_is_no_wait_for_a_request(tmp_path: Path) -> None:
    m = Machine()
    for i, us in enumerate(uneven(120, 30, 8)):
        with m.step("decode"):
            m.replay(30)
            m.read_back()
        m.work(us if i % 12 == 5 else 60)
    assert "waits-for-requests" not in {f.cause for f in diagnosed(m, tmp_path).findings}
