"""Replicas of a model in one capture, each on a GPU of its own: what holds one back is judged by its
own steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.findings import Finding
from tests.builder import Export
from tests.scenarios.machine import DECODE_LAYER, GEMV, Kernel, Machine
from tests.scenarios.support import alarms, diagnosed, fact

ARGMAX = Kernel(
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(int)"
)


def token(m: Machine, host_us: float = 0) -> None:
    m.replay(28)
    m.launch(ARGMAX, 8)
    m.read_back()
    m.work(host_us)


def pair(host_us: float, threads: bool) -> Export:
    """Two GPUs decode the same, but the host of the second works so long between tokens."""
    e = Export().gpu(id=0).gpu(id=1)
    first = Machine(e, pid=100, device=0)
    second = ThreadMachine(e, pid=100, device=1) if threads else Machine(e, pid=200, device=1)
    for _ in range(40):
        token(first)
    while second.now < first.now:
        token(second, host_us)
    return e


class ThreadMachine(Machine):
    """The second thread of the process."""

    def _here(self) -> None:
        self.export.process(self._pid, tid=101)


def first_of(folder: Path, e: Export) -> Finding:
    return diagnosed(e, folder).findings[0]


@pytest.mark.parametrize("threads", [False, True])
def test_one_of_two_waits_for_its_host(tmp_path: Path, threads: bool) -> None:
    """1.25 ms of work and 1.7 ms of host code a token: as fast as the other one without it."""
    found = first_of(tmp_path, pair(1_700, threads))
    assert (found.cause, found.severity, found.scope.device) == ("host-gap", "high", 1)
    assert found.gain is not None
    assert found.gain.speedup is not None
    assert found.gain.step_before_ms
    assert found.gain.step_before_ms.mid == pytest.approx(2.9, rel=0.05)
    assert found.gain.speedup.mid == pytest.approx(2.3, rel=0.08)


def test_equal_ones_have_no_fault(tmp_path: Path) -> None:
    assert not alarms(diagnosed(pair(0, threads=False), tmp_path))


def test_a_busy_one_does_not_bound_what_the_other_can_win(tmp_path: Path) -> None:
    """The first decodes all the time; most of the other's step is host code between launches."""
    e = Export().gpu(id=0).gpu(id=1)
    first, second = Machine(e, pid=100, device=0), Machine(e, pid=200, device=1)
    for _ in range(30):
        token(first)
    while second.now < first.now:
        second.layers(28, [(kernel, us * 0.4) for kernel, us in DECODE_LAYER], call=6)
        second.launch(GEMV, 15, call=6)
        second.launch(ARGMAX, 8, call=6)
        second.read_back()
    d = diagnosed(e, tmp_path)
    found = d.findings[0]
    assert (found.cause, found.severity, found.scope.device) == ("launch-bound", "high", 1)
    assert found.gain is not None
    assert found.gain.step_before_ms is not None
    assert found.gain.step_before_ms.mid == pytest.approx(1.16, rel=0.05)
    # The other's kernels are another process's: they do not say what tracing does to these.
    assert d.inputs[0].untraced_step_ms is not None
    assert d.inputs[0].untraced_step_ms.mid == pytest.approx(1.27, rel=0.05)


def test_programs_that_follow_each_other_on_two_gpus_are_both_judged(tmp_path: Path) -> None:
    """Of the second, which begins when the first is over, nine tenths of the time are host code."""
    e = Export().gpu(id=0).gpu(id=1)
    first = Machine(e, pid=100, device=0)
    for _ in range(20):
        token(first)
    second = Machine(e, pid=200, device=1, start=first.now + 5_000)
    for _ in range(20):
        token(second, 10_000)
    d = diagnosed(e, tmp_path)
    found = d.findings[0]
    assert (found.cause, found.severity, found.scope.device) == ("host-gap", "high", 1)
    assert [(s.process, s.device, s.count) for s in d.steps] == [(100, 0, 19), (200, 1, 19)]
    assert fact(d, "capture.outside_work_ratio", None) == pytest.approx(0, abs=0.02)
