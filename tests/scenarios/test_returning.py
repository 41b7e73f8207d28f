"""Compilation and autotuning that come back in the loop of a program that is warm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.machine import GEMM, Kernel, Machine
from tests.scenarios.support import diagnosed, expect, fact, severity

TUNED = Kernel("_w8a8_block_fp8_matmul")


def decode(m: Machine) -> None:
    m.replay(60)
    m.launch(GEMM, 8)
    m.wait("cudaEventSynchronize_v3020")


def tune(m: Machine, compiles: bool, loads: bool) -> None:
    """Six configurations: each compiled in 2.5 ms of host code, loaded in 0.9 ms, and run twelve times."""
    for _ in range(6):
        m.work(2_500 if compiles else 100)
        if loads:
            m.call("cuModuleLoadData", 900)
        for _ in range(12):
            m.launch(TUNED, 25)
            m.call("cudaEventRecord_v3020", 1)
        m.wait("cudaDeviceSynchronize_v3020")


def server(at: tuple[int, ...], *, compiles: bool = True, loads: bool = True, ranges: bool = True) -> Machine:
    """24 steps of decode; a new size is tuned in those `at`."""
    m = Machine()
    for i in range(24):
        with m.step(f"decode_step {i}" if ranges else f"request {i}"):
            if i in at:
                tune(m, compiles, loads)
            decode(m)
    return m


@pytest.mark.parametrize("at", [(5, 11, 17), (8, 16), (6, 12, 18, 22)])
def test_tuning_that_returns_is_no_host_gap(tmp_path: Path, at: tuple[int, ...]) -> None:
    d = diagnosed(server(at), tmp_path)
    expect(d, "startup-in-window", never=("host-gap", "launch-bound"))
    assert severity(d, "startup-in-window") in ("medium", "high")
    assert d.findings[0].recommendations[0].id == "no-recompilation"
    assert "compilation or autotuning" in d.findings[0].message
    # Of each tuned step, 6 times 3.4 ms are compilation and loading.
    lost = len(at) * 6 * 3.4
    assert fact(d, "startup.in_window_ratio", None) == pytest.approx(
        lost / float(d.inputs[0].window_ms or 0), rel=0.05
    )


def test_modules_that_are_loaded_from_a_cache_leave_trials(tmp_path: Path) -> None:
    """Nothing is compiled or loaded: kernels that few steps run are tried again and again."""
    d = diagnosed(server((5, 11, 17), compiles=False, loads=False), tmp_path)
    assert "host-gap" not in {f.cause for f in d.findings}
    assert {e for f in d.facts if f.name == "startup.autotuning_ratio" for e in [f.value]} != {0.0}


def test_one_compilation_does_not_return(tmp_path: Path) -> None:
    d = diagnosed(server((15,)), tmp_path)
    assert fact(d, "startup.late_ratio", None) == 0
    assert "no-recompilation" not in {r.id for f in d.findings for r in f.recommendations}


def test_host_code_before_every_step_stays_a_gap(tmp_path: Path) -> None:
    """The same time on the host without a load behind it."""
    m = Machine()
    for i in range(24):
        with m.step(f"decode_step {i}"):
            if i in (5, 11, 17):
                for _ in range(6):
                    m.work(3_400)
                    m.launch(GEMM, 25)
            decode(m)
    d = diagnosed(m, tmp_path)
    assert "startup-in-window" not in {f.cause for f in d.findings}


def test_a_kernel_of_every_step_is_no_trial(tmp_path: Path) -> None:
    m = Machine()
    for i in range(24):
        with m.step(f"decode_step {i}"):
            for _ in range(16):
                m.launch(TUNED, 25)
            decode(m)
    assert fact(diagnosed(m, tmp_path), "startup.autotuning_ratio", None) == 0
