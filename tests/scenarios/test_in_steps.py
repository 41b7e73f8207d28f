"""A fault that only steps of one size have names these steps, whatever kind of fault it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.machine import ADD, DECODE_LAYER, GEMV, MUL, Machine
from tests.scenarios.support import diagnosed, finding, severity

NAME = "execute_context_0(0)_generation_{0}({0})"
LAYER = tuple((kernel, 2 * us) for kernel, us in DECODE_LAYER)
Step = Callable[[Machine], object]


def replayed(m: Machine) -> None:
    m.replay(30, LAYER, call=9)


def launched(m: Machine) -> None:
    """No graph was captured for this size."""
    m.layers(30, LAYER, call=30)


def allocating(m: Machine) -> None:
    for _ in range(8):
        m.replay(4, LAYER, call=9)
        m.wait()
        m.call("cudaMalloc_v3020", 900)


def blocked(m: Machine) -> None:
    for _ in range(4):
        m.replay(8, LAYER, call=9)
        m.wait()
        m.blocked(2_000, "pthread_mutex_lock")


def server(fault: Step, has_it: Callable[[int], bool]) -> Machine:
    m = Machine()
    for i in range(36):
        batch = 12 if i % 3 == 1 else 8
        with m.step(NAME.format(batch)):
            (fault if has_it(batch) else replayed)(m)
            m.read_back()
    return m


FAULTS: dict[str, Step] = {"launch-bound": launched, "allocation-churn": allocating, "os-blocked": blocked}


@pytest.mark.parametrize("cause", FAULTS)
def test_the_size_that_has_the_fault_is_named(tmp_path: Path, cause: str) -> None:
    d = diagnosed(server(FAULTS[cause], lambda batch: batch == 12), tmp_path)
    assert severity(d, cause) in ("medium", "high")
    assert f"of it lies in steps {NAME.format(12)}." in finding(d, cause).message


@pytest.mark.parametrize("cause", FAULTS)
def test_a_fault_of_all_sizes_names_none(tmp_path: Path, cause: str) -> None:
    """The near miss."""
    d = diagnosed(server(FAULTS[cause], lambda _: True), tmp_path)
    assert "lies in steps" not in finding(d, cause).message


CHAIN = (GEMV, 12), *(((ADD, 6), (MUL, 6)) * 3)


def elementwise(m: Machine) -> None:
    """This size runs operators one after the other that the graphs of the others have in one kernel."""
    m.replay(30, CHAIN, call=9)


def test_kernels_of_one_size_are_named_too(tmp_path: Path) -> None:
    """What the fix takes off kernels lies in the steps of this size."""
    d = diagnosed(server(elementwise, lambda batch: batch == 12), tmp_path)
    assert severity(d, "unfused-elementwise") != "info"
    assert f"of it lies in steps {NAME.format(12)}." in finding(d, "unfused-elementwise").message


def test_kernels_of_all_sizes_name_none(tmp_path: Path) -> None:
    d = diagnosed(server(elementwise, lambda _: True), tmp_path)
    assert "lies in steps" not in finding(d, "unfused-elementwise").message


def test_a_server_without_the_fault_names_none(tmp_path: Path) -> None:
    """The healthy partner."""
    d = diagnosed(server(replayed, lambda _: False), tmp_path)
    assert not any("lies in steps" in f.message for f in d.findings)
