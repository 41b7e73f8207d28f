"""Copies and receives on a stream of their own that the kernels wait for through an event."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from advisor.model.findings import Diagnosis, Finding
from tests.scenarios.machine import Kernel, Machine, Part, decode_graphs
from tests.scenarios.support import alarms, diagnosed, expect, job_of, ranked

MIB = 1024
BESIDE = 9
RECEIVE = Kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 16)
#: What the kernels of a step take, ms: 40 layers of 39 us and their gaps, and what ends a step.
COMPUTE = 40 * (39 + 8 * 0.3) / 1e3


steps = partial(decode_graphs, count=14, call=10)


def loaded(mib: float, kind: str = "HtoD") -> Part:
    """A copy of so much at 50 GB/s (50 MiB: 1.05 ms), and the kernels behind its event."""

    def load(m: Machine) -> None:
        m.copy(kind, mib * MIB, stream=BESIDE)
        m.join(7, on=BESIDE)

    return load


def of_cause(d: Diagnosis, cause: str) -> Finding:
    return next(f for f in d.findings if f.cause == cause)


def after_ms(found: Finding) -> float:
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    return found.gain.step_after_ms.mid


def test_a_cache_that_is_loaded_before_each_step(tmp_path: Path) -> None:
    d = diagnosed(steps(loaded(75)), tmp_path)
    expect(d, "transfer-bound", never=("pageable-copies", "host-gap"))
    found = of_cause(d, "transfer-bound")
    assert found.severity == "high"
    # The copy runs beside the step before, and is the longer of the two.
    assert after_ms(found) == pytest.approx(75 * MIB * 1024 / 50 / 1e6, rel=0.05)


def test_a_short_load_is_hidden_whole(tmp_path: Path) -> None:
    d = diagnosed(steps(loaded(50)), tmp_path)
    found = of_cause(d, "transfer-bound")
    assert found.severity == "high"
    assert after_ms(found) == pytest.approx(COMPUTE, rel=0.05)


def test_weights_that_come_up_layer_by_layer_on_a_stream_of_their_own(tmp_path: Path) -> None:
    """Four copies a step, each waited for: 1.05 ms of copies that the kernels could hide."""
    m = Machine()
    for i in range(14):
        with m.step(f"decode_step {i}"):
            for _ in range(4):
                loaded(12.5)(m)
                m.replay(10, call=10)
                m.join(BESIDE, on=7)  # the buffer is free again
            m.read_back()
    found = of_cause(diagnosed(m, tmp_path), "transfer-bound")
    assert found.severity == "high"
    assert after_ms(found) == pytest.approx(COMPUTE, rel=0.05)


def test_blocks_that_are_swapped_out_before_the_next_step(tmp_path: Path) -> None:
    """The kernels of the next step may not write before; they may if other blocks are free."""

    def swap(m: Machine) -> None:
        m.join(BESIDE, on=7)
        m.copy("DtoH", 50 * MIB, stream=BESIDE)
        m.join(7, on=BESIDE)

    m = Machine()
    for i in range(14):
        with m.step(f"decode_step {i}"):
            m.replay(40, call=10)
            m.read_back()
            swap(m)
    found = of_cause(diagnosed(m, tmp_path), "transfer-bound")
    assert found.severity == "high"
    assert after_ms(found) == pytest.approx(COMPUTE, rel=0.05)


def test_a_load_that_runs_a_step_ahead_is_no_fault(tmp_path: Path) -> None:
    m = Machine()
    m.copy("HtoD", 50 * MIB, stream=BESIDE)
    for i in range(14):
        with m.step(f"decode_step {i}"):
            m.join(7, on=BESIDE)
            m.replay(40, call=10)
            m.copy("HtoD", 50 * MIB, stream=BESIDE)
            m.copy("DtoH", 4 / 1024)
            m.wait(stream=7)
    d = diagnosed(m, tmp_path)
    assert ranked(d) == []
    assert alarms(d) == []


def test_a_short_copy_beside_the_kernels_is_no_fault(tmp_path: Path) -> None:
    d = diagnosed(steps(loaded(1)), tmp_path)
    assert alarms(d) == []


def test_copies_from_the_other_gpu_on_a_stream_of_their_own(tmp_path: Path) -> None:
    d = diagnosed(steps(loaded(50, "PtoP")), tmp_path)
    found = of_cause(d, "exposed-peer-copies")
    assert found.severity == "high"
    assert after_ms(found) == pytest.approx(COMPUTE, rel=0.05)


def test_a_cache_that_is_received_on_a_stream_of_its_own(tmp_path: Path) -> None:
    def receive(m: Machine) -> None:
        m.launch(RECEIVE, 1000, stream=BESIDE)
        m.join(7, on=BESIDE)

    found = of_cause(job_of(steps(receive), tmp_path), "exposed-communication")
    assert found.severity != "info"
    assert after_ms(found) == pytest.approx(COMPUTE, rel=0.05)


def test_what_a_step_receives_first_may_be_known_ahead(tmp_path: Path) -> None:
    """Before the kernels on their stream it may be the result of another stage: at most it is hidden
    whole, and nothing shows that it can be."""
    found = of_cause(job_of(steps(lambda m: m.launch(RECEIVE, 1000)), tmp_path), "exposed-communication")
    assert after_ms(found) == pytest.approx(COMPUTE, rel=0.05)
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.high > COMPUTE + 0.9


def test_a_result_sent_on_after_the_step_stays_behind_it(tmp_path: Path) -> None:
    def send(m: Machine) -> None:
        m.join(BESIDE, on=7)
        m.launch(RECEIVE, 1000, stream=BESIDE)
        m.join(7, on=BESIDE)

    found = of_cause(job_of(steps(after=send), tmp_path), "exposed-communication")
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.high > COMPUTE + 0.9
