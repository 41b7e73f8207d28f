"""Exports without one of their tables: what is left must not be taken for the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builder import MEMCPY, RUNTIME, Export
from tests.scenarios.machine import Machine
from tests.scenarios.support import diagnosed, expect, ranked

MIB = 1024
WAITS = ("blocking-sync", "device-wide-sync", "implicit-sync", "launch-queue-latency", "host-gap")


def uploads(memory: str) -> Machine:
    """A graph of 1.1 ms a step behind an upload of 64 MiB."""
    m = Machine()
    for i in range(14):
        with m.step(f"decode_step {i}"):
            m.copy("HtoD", 64 * MIB, memory, gb_per_s=10 if memory == "pageable" else 50)
            m.replay(28)
            m.read_back()
    return m


@pytest.mark.parametrize("memory", ["pageable", "pinned"])
def test_copies_that_are_not_there_are_no_fault_of_the_host(tmp_path: Path, memory: str) -> None:
    """The calls are recorded and the copies are not: the time that they took belongs to nobody."""
    d = diagnosed(uploads(memory), tmp_path)
    expect(d, "pageable-copies" if memory == "pageable" else "transfer-bound")
    m = uploads(memory)
    m.export.without_tables(MEMCPY)
    (tmp_path / "without").mkdir()
    d = diagnosed(m, tmp_path / "without")
    expect(d, "damaged-capture", never=WAITS, damaged=True)
    assert "27 of 27 copy calls left no copy" in d.findings[0].message


def test_a_copy_that_was_queued_at_the_end_is_not_missing(tmp_path: Path) -> None:
    m = uploads("pinned")
    m.call("cudaMemcpyAsync_v3020", 5)
    assert "damaged-capture" not in ranked(diagnosed(m, tmp_path))


def sampled(active: int) -> Export:
    """A server whose CUDA calls are not in the export, and two seconds of samples of the GPU."""
    e = Export().gpu().process(100).traced("Cuda", "NvtxEvents")
    for i in range(20):
        e.range(f"decode_step {i}", i * 100_000_000, i * 100_000_000 + 90_000_000).osrt("read", i, 1_000)
    e.gpu_metrics({"GR Active": [active] * 200, "SMs Active": [active // 2] * 200}, 10_000_000)
    return e.without_tables(RUNTIME)


@pytest.mark.parametrize("active", [90, 0])
def test_a_gpu_at_work_is_no_sign_of_a_program_on_the_cpu(tmp_path: Path, active: int) -> None:
    d = diagnosed(sampled(active), tmp_path)
    expect(d, "no-gpu-activity", damaged=True)
    said = d.findings[0].message
    assert ("samples show a GPU at work" in said) == bool(active)
    assert ("the program ran on the CPU (" in said) == (not active)


def test_small_copies_that_are_not_there_change_nothing(tmp_path: Path) -> None:
    """One token a step comes down behind launches that leave the GPU idle for most of the time."""
    m = Machine()
    for i in range(14):
        with m.step(f"decode_step {i}"):
            m.layers(22, call=9)
            m.read_back()
    m.export.without_tables(MEMCPY)
    expect(diagnosed(m, tmp_path), "launch-bound", never=("damaged-capture",))
