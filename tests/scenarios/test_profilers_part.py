"""What the profiler did to the program: stacks at each launch, and work on threads that launch nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.machine import GEMM, Machine
from tests.scenarios.support import diagnosed, fact, ranked, severity


def eager(stacks: int) -> Machine:
    """Steps of 200 short kernels, launched one by one; a stack is recorded at this many of ten launches,
    which makes the call last 24 us."""
    m = Machine()
    for i in range(10):
        with m.step(f"decode_step {i}"):
            for k in range(200):
                stacked = k % 10 < stacks
                m.launch(GEMM, 3, call=24 if stacked else 4, callchain=1 if stacked else None)
            m.wait()
    return m


@pytest.mark.parametrize("stacks", [5, 10])
def test_with_stacks_at_most_launches_nothing_is_said_of_launching(tmp_path: Path, stacks: int) -> None:
    d = diagnosed(eager(stacks), tmp_path)
    said = {f.cause for f in d.findings}
    assert not said & {"launch-bound", "launch-storm", "slow-host", "gpu-idle"}
    assert ranked(d)[0] == "profiler-overhead"
    (told,) = [f.message for f in d.findings if f.cause == "profiler-overhead"]
    assert told.startswith(f"For {stacks * 10} % of the launch calls")
    assert "What launching costs without that is unknown" in told
    assert fact(d, "capture.stacks_ratio", None) == pytest.approx(stacks / 10)


def test_the_untraced_step_may_be_as_short_as_without_stacks(tmp_path: Path) -> None:
    folders = tmp_path / "with", tmp_path / "without"
    for folder in folders:
        folder.mkdir()
    captures = zip((10, 0), folders, strict=True)
    with_stacks, without = (diagnosed(eager(n), folder).inputs[0] for n, folder in captures)
    untraced = with_stacks.untraced_step_ms
    assert untraced is not None
    assert without.step_ms is not None
    assert untraced.low == pytest.approx(without.step_ms, rel=0.02)


def test_stacks_at_few_launches_leave_the_finding(tmp_path: Path) -> None:
    assert ranked(diagnosed(eager(1), tmp_path))[0] == "launch-bound"


@pytest.mark.parametrize(
    ("thread", "name", "profilers"),
    [
        (777, "CUPTI instrumentation", False),
        (100, "CUPTI instrumentation", True),
        (777, "CUDA profiling data flush", True),
    ],
    ids=["another thread", "the launching thread", "a flush stops all threads"],
)
def test_idle_time_is_the_profilers_where_it_held_the_launching_thread(
    tmp_path: Path, thread: int, name: str, profilers: bool
) -> None:
    m = Machine()
    for i in range(12):
        m.export.thread(thread)
        m.export.overhead(round(m.now * 1_000), 3_000_000, name=name)
        m.export.thread(100)
        m.work(3_000)
        with m.step(f"decode_step {i}"):
            m.launch(GEMM, 2_000)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert (severity(d, "host-gap") is None) == profilers
    told = [f.message for f in d.findings if f.cause == "profiler-overhead"]
    assert any("idle time that the profiler caused" in text for text in told) == profilers


def flushed(ms: float, *, busy: bool = False) -> Machine:
    """40 steps of 200 kernels; after three of them the profiler flushes its buffers, `busy`: while the GPU
    works on what is queued."""
    m = Machine()
    for i in range(40):
        with m.step(f"decode_step {i}"):
            for _ in range(200):
                m.launch(GEMM, 12)
            if i in (10, 20, 30) and busy:
                m.launch(GEMM, ms * 1_000)
            if not busy:
                m.wait()
            if i in (10, 20, 30):
                m.export.overhead(round(m.now * 1_000), round(ms * 1e6), name="CUDA profiling data flush")
                m.work(ms * 1_000)
            m.wait()
    return m


def test_flushes_are_no_fault_of_the_program(tmp_path: Path) -> None:
    """135 of 229 ms: one plain sentence, and no finding."""
    d = diagnosed(flushed(45), tmp_path)
    assert ranked(d) == []
    assert d.verdict.startswith(
        "The idle time is not the program's: the profiler's own flushes (3 x 45 ms) hold 58."
    )
    assert fact(d, "capture.flush_count", None) == 3
    assert fact(d, "capture.flush_ms", None) == pytest.approx(45)
    assert fact(d, "capture.flush_idle_ratio", None) == pytest.approx(0.589, abs=0.01)


@pytest.mark.parametrize(("ms", "busy"), [(2, False), (45, True)], ids=["short", "beside work"])
def test_flushes_that_cost_little_are_not_told_first(tmp_path: Path, ms: float, busy: bool) -> None:
    assert "own flushes" not in diagnosed(flushed(ms, busy=busy), tmp_path).verdict
