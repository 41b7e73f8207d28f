"""Long stretches without a kernel between the steps are no part of a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.facts.catalog import build_facts
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import FactBase
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.metrics.support import analysis
from tests.scenarios.machine import DECODE_LAYER, Machine
from tests.scenarios.support import diagnosed, expect, severity

STEPS = 30


def decode(m: Machine, steps: int = STEPS) -> None:
    """So many tokens of 1.2 ms each."""
    for _ in range(steps):
        m.replay(28, DECODE_LAYER)
        m.read_back()


def server(bursts: int = 4, *, idle_ms: float = 300, function: str = "epoll_wait") -> Machine:
    """Bursts of tokens; between them the thread waits in an operating-system call."""
    m = Machine()
    for burst in range(bursts):
        if burst:
            m.blocked(idle_ms * 1_000, function)
        decode(m)
    return m


def facts(script: Machine, folder: Path) -> FactBase:
    with open_trace(script.write(folder)) as trace:
        return build_facts(measure(trace))


def test_the_facts_of_a_server_without_requests(tmp_path: Path) -> None:
    base = facts(server(), tmp_path)
    assert base.value("interruption.count") == 3
    assert base.value("interruption.longest_ms") == pytest.approx(300, rel=0.01)
    assert base.value("interruption.time_ratio") == pytest.approx(0.86, abs=0.02)
    assert base.value("interruption.copy_ratio") == pytest.approx(0, abs=0.001)
    assert base.value("interruption.os_call") == "epoll_wait"


def test_a_server_without_requests_is_not_told_to_move_work(tmp_path: Path) -> None:
    d = diagnosed(server(), tmp_path)
    expect(d, "long-interruptions", never=("os-blocked", "host-gap", "step-outliers"))
    assert severity(d, "long-interruptions") == "medium"
    assert d.steps[0].mean_ms == pytest.approx(1.3, abs=0.1)


def test_a_checkpoint_is_no_transfer_of_the_steps(tmp_path: Path) -> None:
    m = Machine()
    decode(m)
    with m.step("save_checkpoint"):
        for _ in range(100):
            m.copy("DtoH", 50_000, "pageable", gb_per_s=3)
            m.work(2_000)
    decode(m)
    d = diagnosed(m, tmp_path)
    expect(d, "long-interruptions", never=("transfer-bound", "pageable-copies", "step-outliers"))
    told = {f.name: f.value for f in d.facts}
    assert told["interruption.range"] == "save_checkpoint"
    assert told["interruption.copy_ratio"] == pytest.approx(0.9, abs=0.02)


def test_what_is_named_or_comes_often_is_no_interruption(tmp_path: Path) -> None:
    collecting, often, short = Machine(), server(12, idle_ms=120), server(idle_ms=20)
    decode(collecting)
    collecting.work(300_000, "Python GC")
    decode(collecting)
    often = Machine()
    for _ in range(20):
        decode(often, 4)
        often.blocked(120_000, "epoll_wait")
    for script, cause in ((collecting, "python-gc"), (short, "os-blocked")):
        folder = tmp_path / cause / str(id(script))
        folder.mkdir(parents=True)
        expect(diagnosed(script, folder), cause, never=("long-interruptions",))
    expect(
        diagnosed(often, tmp_path), also=("waits-for-requests",), never=("long-interruptions", "os-blocked")
    )


def test_a_capture_without_steps_has_none_to_lie_between(tmp_path: Path) -> None:
    path = Export().process(1).launch(at=0).launch(at=500_000_000).write(tmp_path / "trace.sqlite")
    with open_trace(path) as trace:
        assert build_facts(measure(trace)).value("interruption.time_ratio") is None


def test_samples_of_an_interruption_count_for_no_step(tmp_path: Path) -> None:
    """The GPU is sampled at 80 % in the steps, and idle for the second between them."""
    m = Machine()
    for i in range(24):
        with m.step("decode_step"):
            m.replay(20)
            m.wait()
        if i == 12:
            m.work(1_000_000)
    m.sample({kernel: (80, 80, 0) for kernel, _ in DECODE_LAYER})
    a = analysis(m.export, tmp_path)
    samples = a.samples(0)
    assert samples is not None
    assert len(a.window.holes) == 1
    assert not a.window.holes.holds(samples.time).any()
