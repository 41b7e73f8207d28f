"""GPUs of one capture that run programs of their own, or the same one."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.reports.diagnosis_blocks import TextOptions
from tests.reports.fixture import plain
from tests.scenarios.machine import ALL_REDUCE, DECODE_ATTENTION, GEMV, NORM, Kernel, Machine
from tests.scenarios.support import diagnosed


def two(layer: float, exchange: bool) -> Machine:
    """A process on each of two GPUs: 40 layers of 30 us, and of `layer` us."""
    m = Machine()
    machines = [m, Machine(m.export, pid=200, device=1, start=40)]
    for one, us in zip(machines, (30.0, layer), strict=True):
        own: list[tuple[Kernel, float]] = [(NORM, us / 10), (GEMV, us * 0.6), (DECODE_ATTENTION, us * 0.3)]
        for _ in range(16):
            with one.step("execute_context_0(0)_generation_4(4)"):
                one.replay(40, [*own, (ALL_REDUCE, 5)] if exchange else own)
                one.read_back()
    return m


@pytest.mark.parametrize(
    ("layer", "exchange", "told"), [(60, False, True), (30, False, True), (30, True, False), (60, True, True)]
)
def test_each_engine_is_told_with_its_steps(layer: float, exchange: bool, told: bool, tmp_path: Path) -> None:
    said = plain(diagnosed(two(layer, exchange), tmp_path), TextOptions())
    assert ("programs  device 0: 1" in said) is told
    assert ("(process 200)" in said) is told
    assert ("delivers  device " in said) is told


def test_one_engine_alone(tmp_path: Path) -> None:
    m = Machine()
    for _ in range(16):
        with m.step("execute_context_0(0)_generation_4(4)"):
            m.replay(40)
            m.read_back()
    assert "programs" not in plain(diagnosed(m, tmp_path), TextOptions())
