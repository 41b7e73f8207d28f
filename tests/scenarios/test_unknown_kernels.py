"""Kernels that no one knows: what they might be is not counted as nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.machine import ADD, GEMM, MUL, NORM, Kernel, Machine
from tests.scenarios.support import diagnosed, fact

UNHEARD_OF = Kernel("void app::advance_state<4>(float const*, curandStateXORWOW*)")
LIGHT, PRODUCT = Kernel("triton_"), Kernel("triton_")


def eager(*layer: tuple[Kernel, float]) -> Machine:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(22, list(layer), call=1)
    return m


@pytest.mark.parametrize(
    ("unknown_us", "small_us", "state"),
    [
        (3, 30, "fired"),  # small kernels hold more than the threshold, whatever the rest is
        (60, 15, "unknown"),  # they would if the unknown kernel were one of them
        (3, 5, "quiet"),  # not even then
    ],
)
def test_unknown_time_that_could_turn_a_verdict_leaves_it_open(
    tmp_path: Path, unknown_us: float, small_us: float, state: str
) -> None:
    d = diagnosed(
        eager((GEMM, 100), (UNHEARD_OF, unknown_us), (ADD, small_us / 2), (MUL, small_us / 2)), tmp_path
    )
    states = {
        "fired": {f.code for f in d.findings},
        "quiet": {h.code for h in (*d.healthy, *d.observed)},
        "unknown": {n.code for n in d.not_evaluated},
    }
    assert "KRN105" in states[state]
    assert (fact(d, "kernel.unfused_ratio") is None) is (state == "unknown")


def test_what_is_left_open_says_why_and_asks_for_no_other_capture(tmp_path: Path) -> None:
    d = diagnosed(eager((GEMM, 100), (UNHEARD_OF, 60), (ADD, 5)), tmp_path)
    entry = next(n for n in d.not_evaluated if n.code == "KRN105")
    assert "kernel_families.yaml" in entry.why
    assert entry.flag is None


def test_a_program_of_unknown_kernels_has_no_share_of_any_family(tmp_path: Path) -> None:
    d = diagnosed(eager((UNHEARD_OF, 200)), tmp_path)
    assert fact(d, "kernel.unmapped_ratio") == 1
    for name in ("unfused", "matmul_gemm", "moe", "skinny_gemm", "fp32_matmul"):
        assert fact(d, f"kernel.{name}_ratio") is None


def test_small_kernels_that_a_program_brings_itself_are_not_unfused(tmp_path: Path) -> None:
    add, scale = Kernel("vectorAdd(float*, float*, int)"), Kernel("scale_kernel(float*)")
    d = diagnosed(eager((add, 20), (scale, 20)), tmp_path)
    assert fact(d, "kernel.unfused_ratio") == pytest.approx(1)
    assert fact(d, "kernel.framework_ratio") == 0
    assert "KRN105" not in {f.code for f in d.findings}


def test_long_elementwise_kernels_are_not_small_ones(tmp_path: Path) -> None:
    d = diagnosed(eager((ADD, 400), (NORM, 400), (GEMM, 300)), tmp_path)
    assert "KRN105" not in {f.code for f in d.findings}


def test_inductor_kernels_without_a_name_are_told_by_what_their_launches_take(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(22):
                m.launch(PRODUCT, 80, registers=168, shared=(0, 49_152))
                m.launch(LIGHT, 10, registers=24)
                m.launch(LIGHT, 10, registers=255)  # neither one nor the other
    d = diagnosed(m, tmp_path)
    assert fact(d, "kernel.unmapped_ratio") == pytest.approx(0.1, abs=0.01)
    assert {r[2] for r in d.tables["kernels"].rows} == {"gemm", "elementwise", "other"}
