"""Tails of one product only, and two processes that use the GPU at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.findings import Diagnosis
from tests.builder import Export
from tests.scenarios.machine import DECODE_ATTENTION, GEMM, GEMV, NORM, SILU, Kernel, Machine
from tests.scenarios.support import diagnosed, expect, fact, ranked

TAILS = ("tail-latency", "hidden-tail")
#: Projections of different depth, and a low-rank product now and then: one kernel and grid for all.
LAYER: tuple[tuple[Kernel, float], ...] = (
    (NORM, 2), (GEMV, 14), (DECODE_ATTENTION, 12), (GEMV, 10), (NORM, 2), (GEMV, 40), (SILU, 3), (GEMV, 22),
)  # fmt: skip


def told(d: Diagnosis) -> list[str]:
    return [f.cause for f in d.findings if f.cause in TAILS]


@pytest.mark.parametrize("steps", [14, 40])
def test_one_kernel_for_products_of_different_depth_has_no_tail(tmp_path: Path, steps: int) -> None:
    """Some layers have an adapter, so that a product of 14 us stands beside one of 40 like it."""
    m = Machine()
    for i in range(steps):
        with m.step(f"decode_step {i}"):
            for layer in range(24):
                m.replay(1, LAYER, call=4)
                if layer % 3 == 0:
                    m.replay(1, ((GEMV, 3), (GEMV, 4)), call=4)
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert told(d) == []


def test_one_kernel_for_two_products_without_steps(tmp_path: Path) -> None:
    m = Machine()
    for _ in range(60):
        for us in (10, 10, 30):
            m.launch(GEMM, us)
    d = diagnosed(m, tmp_path)
    assert told(d) == []


def test_slow_calls_at_one_place_are_a_tail_of_durations_that_were_recorded(tmp_path: Path) -> None:
    m = Machine()
    lengths = set()
    for i in range(60):
        with m.step(f"decode_step {i}"):
            for layer in range(12):
                slow = layer == 5 and i % 7 == 3
                us = 12 * (9 + i % 5 if slow else 1)
                lengths.add(float(us))
                m.layers(1, [(k, us if k is DECODE_ATTENTION else t) for k, t in LAYER], call=1)
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert told(d)
    (row,) = [
        row for f in d.findings if f.cause in TAILS for e in f.evidence for row in e.rows if row[2] == 708
    ]
    assert set(row[3:6]) <= lengths  # median, 99th percentile and slowest


def two_engines(beside: bool, slower: float) -> Export:
    """Two processes of unlike kernels' lengths under one name; the second one works in every other step of
    the first, whose kernels then take `slower` times as long."""
    export = Export().gpu()
    first, second = Machine(export, pid=100), Machine(export, pid=200)
    for i in range(40):
        both = beside and i % 2 == 1
        with first.step(f"decode_step {i}"):
            first.layers(16, [(k, us * (slower if both else 1)) for k, us in LAYER], call=1)
            first.wait()
        if both:
            second.now = second._free[7] = max(second.gpu_free, first.gpu_free - 1_500)
            with second.step(f"decode_step {i}"):
                second.layers(6, [(k, us * 2.5) for k, us in LAYER], call=1)
                second.wait()
    return export


def test_two_processes_at_the_same_time_are_told_and_make_no_tail(tmp_path: Path) -> None:
    d = diagnosed(two_engines(beside=True, slower=1.8), tmp_path)
    expect(d, "shared-gpu", never=(*TAILS, "step-outliers"))
    assert fact(d, "launch.process_count") == 2
    # Kernels of the slow steps before the other process begins count as alone.
    assert 0.2 < fact(d, "launch.process_slowed_ratio") < 0.8  # type: ignore[operator]
    steps = str(fact(d, "launch.process_steps"))
    assert "100 in 39 steps of" in steps
    assert "200 in 19 steps of" in steps


def test_a_process_alone_shares_nothing(tmp_path: Path) -> None:
    d = diagnosed(two_engines(beside=False, slower=1.0), tmp_path)
    assert ranked(d) == []
    assert fact(d, "launch.process_beside_ratio") is None
