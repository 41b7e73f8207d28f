"""What ties the host to the GPU: host code behind a wait that is for no result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.machine import DECODE_LAYER, GEMM, Machine
from tests.scenarios.support import alarms, diagnosed, expect, fact, finding, ranked, severity

#: A step keeps the GPU busy for 16 ms.
LAYER = tuple((kernel, 8 * us) for kernel, us in DECODE_LAYER)
BUSY_MS = 16.0
HOST_US = 2_700


def loop(
    tie: Callable[[Machine], None], *, steps: int = 16, size: Callable[[int], int] = lambda _: 2
) -> Machine:
    """A step is launched, `tie` follows, and then the host prepares the next one."""
    m = Machine()
    m.replay(50, LAYER, call=9)
    for i in range(steps):
        with m.step(f"step[DECODE bs={size(i)}]"):
            tie(m)
            m.work(HOST_US)
            m.replay(50, LAYER, call=9)
            m.copy("DtoH", 0.06)
    m.wait()
    return m


def upload(kib: float, memory: str) -> Callable[[Machine], None]:
    """`tensor.to(device)`: an asynchronous copy, and a wait for the stream."""

    def tie(m: Machine) -> None:
        m.copy("HtoD", kib, memory, blocks=False)  # a few bytes are staged at once
        m.wait("cudaStreamSynchronize_v3020")

    return tie


def held(m: Machine) -> None:
    """A copy of pinned memory under confidential computing: the call returns when the copy has run."""
    m.copy("HtoD", 4, blocks=True)


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_one_byte_that_is_waited_for(tmp_path: Path, memory: str) -> None:
    d = diagnosed(loop(upload(1 / 1024, memory)), tmp_path)
    expect(d, "implicit-sync", never=("host-gap", "launch-bound", "transfer-bound", "waits-for-requests"))
    found = finding(d, "implicit-sync")
    assert f"an upload of 1 B from {memory} memory" in found.message
    assert "2.7 ms" in found.message
    assert fact(d, "sync.tie") == f"an upload of 1 B from {memory} memory"
    assert fact(d, "sync.tie_ms") == pytest.approx(2.7, abs=0.1)
    assert fact(d, "sync.tie_ratio") == pytest.approx(2.7 / (BUSY_MS + 2.7), rel=0.05)
    assert fact(d, "sync.tie_of_gap_ratio") == pytest.approx(1, abs=0.01)
    assert fact(d, "sync.implicit_cost_ratio") == pytest.approx(2.7 / (BUSY_MS + 2.7), rel=0.1)
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.low <= BUSY_MS * 1.02
    assert found.gain.step_after_ms.high >= BUSY_MS


def test_an_asynchronous_copy_that_lasts_as_long_as_the_queue(tmp_path: Path) -> None:
    d = diagnosed(loop(held), tmp_path)
    expect(d, "implicit-sync", never=("host-gap", "launch-bound"))
    found = finding(d, "implicit-sync")
    assert "Confidential computing" in " ".join(r.action for r in found.recommendations)
    assert fact(d, "sync.held_copies_per_step") == pytest.approx(1, abs=0.1)
    assert fact(d, "sync.held_copy_time_ratio") == pytest.approx(BUSY_MS / (BUSY_MS + 2.7), abs=0.05)


def test_such_copies_of_a_program_without_steps(tmp_path: Path) -> None:
    m = Machine()
    for count in (7, 3, 11, 5, 2, 9, 4):
        for _ in range(count):
            m.launch(GEMM, 900)
        held(m)
        m.work(400)
    d = diagnosed(m, tmp_path)
    assert fact(d, "sync.held_copies_per_100_kernels") == pytest.approx(100 * 7 / 41, rel=0.2)


def test_a_host_that_is_not_tied(tmp_path: Path) -> None:
    """The healthy partner: the same byte, from pinned memory, and no wait."""
    d = diagnosed(loop(lambda m: m.copy("HtoD", 1 / 1024)), tmp_path)
    assert not {"implicit-sync", "host-gap"} & set(ranked(d))
    assert alarms(d) == []


def test_a_result_that_is_waited_for(tmp_path: Path) -> None:
    """The near miss: what the host works on is the result itself."""
    m = Machine()
    for _ in range(16):
        with m.step("step[DECODE bs=2]"):
            m.replay(50, LAYER, call=9)
            m.copy("DtoH", 0.0625)
            m.wait("cudaStreamSynchronize_v3020")
            m.work(HOST_US)
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap", never=("implicit-sync",))
    assert fact(d, "host.gap_tie") == "a copy of 64 B to the host"
    assert fact(d, "host.gap_tie_ratio") == pytest.approx(1, abs=0.01)
    assert fact(d, "sync.tie_ratio") == 0
    assert "a copy of 64 B to the host" in finding(d, "host-gap").message


def test_the_steps_that_hold_a_fault_are_named(tmp_path: Path) -> None:
    """Only batches of 12 are prepared slowly."""
    m = Machine()
    for i in range(24):
        batch = 12 if i % 3 == 1 else 8
        with m.step(f"execute_context_0(0)_generation_{batch}({batch})"):
            m.replay(50, LAYER, call=9)
            m.copy("DtoH", 0.0625)
            m.wait("cudaStreamSynchronize_v3020")
            m.work(8_000 if batch == 12 else 60)
    d = diagnosed(m, tmp_path)
    name = "execute_context_0(0)_generation_12(12)"
    assert fact(d, "host.gap_step") == name
    assert fact(d, "host.gap_step_ratio") == pytest.approx(1, abs=0.1)
    assert name in finding(d, "host-gap").message
    assert severity(d, "host-gap") in ("medium", "high")


def test_a_fault_of_all_steps_names_none(tmp_path: Path) -> None:
    d = diagnosed(loop(upload(1 / 1024, "pageable"), size=lambda i: 2 + i % 2), tmp_path)
    assert fact(d, "host.gap_step") is None
