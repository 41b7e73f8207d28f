"""Notes, symptoms and rules on the capture that other scenes show by the way: each with the cause alone, and
the same without it. Which rule fires is looked up among what was judged, as notes are no findings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.fired import fired
from tests.scenarios.machine import DECODE_ATTENTION, GEMM, GEMV, NORM, SILU, Kernel, Machine
from tests.scenarios.support import diagnosed

CACHE = Kernel("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(__nv_bfloat16*)")
EVEN = [(GEMM, 20.0), (DECODE_ATTENTION, 20.0), (SILU, 20.0), (CACHE, 20.0)]


def steps(work: Callable[[Machine], object], named: bool = True) -> Machine:
    """Twelve steps, each in a range, or without ranges."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}") if named else nullcontext():
            work(m)
            m.wait()
    return m


def replayed(*layer: tuple[Kernel, float]) -> Callable[[Machine], object]:
    return lambda m: m.replay(20, layer)


def copied(mib: float) -> Callable[[Machine], object]:
    def work(m: Machine) -> None:
        m.replay(20, EVEN)
        m.copy("DtoD", 1024 * mib, "device", gb_per_s=1_000)

    return work


def launched(us: float) -> Callable[[Machine], object]:
    return lambda m: m.layers(20, [(GEMV, us), (NORM, us)], call=4)


#: Rule -> the cause, and the same without it.
SCENES: dict[str, tuple[Machine, Machine]] = {
    "KRN101 one operation holds most of the time": (
        steps(replayed((GEMM, 80.0), (SILU, 20.0))),
        steps(replayed(*EVEN)),
    ),
    "KRN116 writes to the cache": (
        steps(replayed((GEMM, 80.0), (DECODE_ATTENTION, 20.0), (CACHE, 10.0))),
        steps(replayed((GEMM, 80.0), (DECODE_ATTENTION, 20.0), (CACHE, 1.0))),
    ),
    "CAP107 no ranges": (steps(replayed(*EVEN), named=False), steps(replayed(*EVEN))),
    "CAP103 graphs traced by node": (steps(replayed(*EVEN)), steps(launched(20))),
    "XFR104 copies on the device": (steps(copied(800)), steps(copied(8))),
}


@pytest.mark.parametrize("name", SCENES)
def test_with_the_cause(name: str, tmp_path: Path) -> None:
    with fired() as seen:
        diagnosed(SCENES[name][0], tmp_path)
    assert name.split()[0] in seen.params


@pytest.mark.parametrize("name", SCENES)
def test_without_it(name: str, tmp_path: Path) -> None:
    with fired() as seen:
        diagnosed(SCENES[name][1], tmp_path)
    assert name.split()[0] in seen.quiet - set(seen.params)
