"""Layers of experts: built of single operators, and in kernels made for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.gain.support import fix, replayer
from tests.scenarios.machine import DECODE_LAYER, GEMV, NORM, Kernel, Machine
from tests.scenarios.support import diagnosed, fact, severity

TOPK = Kernel("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)", 64)
SORT = Kernel("void at::native::radixSortKVInPlace<-2, -1, 32, 4, long, long, unsigned int>(int)", 1)
COUNT = Kernel("void at::cuda::kernelHistogram1D<long, long, long, 1, 2, -1>(long)", 1)
TAKE = Kernel("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)", 64)
ADD_BACK = Kernel("void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int>(int)", 64)
FUSED = Kernel("fused_moe_kernel", 132)
EXPERTS = 4
LOOSE = (
    (TOPK, 5), (SORT, 4), (COUNT, 3), *((TAKE, 2), (GEMV, 2), (GEMV, 2)) * EXPERTS, (ADD_BACK, 4),
)  # fmt: skip
TOGETHER = ((Kernel("topkGatingSoftmax", 8), 4), (FUSED, 40), (FUSED, 30))


def decoder(experts: Sequence[tuple[Kernel, float]], layers: int = 6, marked: bool = True) -> Machine:
    """A decode step of so many layers, the products of each followed by its experts."""
    m = Machine()
    for i in range(8):
        with m.step(f"decode_step {i}") if marked else nullcontext():
            for _ in range(layers):
                m.layers(1, DECODE_LAYER[:4])
                m.layers(1, experts)
            m.launch(NORM, 3)
            m.wait()
    return m


def test_experts_of_single_operators(tmp_path: Path) -> None:
    d = diagnosed(decoder(LOOSE), tmp_path)
    assert severity(d, "unfused-moe") == "medium"
    assert fact(d, "experts.topk_per_step") == 6
    assert fact(d, "experts.grouping_per_step") == 12
    assert fact(d, "experts.combine_per_step") == 6
    assert fact(d, "experts.kernels_per_layer") == len(LOOSE)
    (found,) = (f for f in d.findings if f.cause == "unfused-moe")
    assert found.gain is not None
    assert found.gain.speedup is not None
    assert found.gain.speedup.low >= 1.0
    assert found.gain.speedup.mid > 1.1
    assert found.recommendations[0].id == "fused-experts"


def test_without_steps_they_are_counted_by_kernels(tmp_path: Path) -> None:
    d = diagnosed(decoder(LOOSE, marked=False), tmp_path)
    assert severity(d, "unfused-moe") == "medium"
    layer = 4 + len(LOOSE)
    assert fact(d, "experts.topk_per_100_kernels") == pytest.approx(100 / layer, rel=0.02)
    assert fact(d, "experts.grouping_per_100_kernels") == pytest.approx(200 / layer, rel=0.02)
    assert fact(d, "experts.combine_per_100_kernels") == pytest.approx(100 / layer, rel=0.02)


def test_fused_experts_are_in_order(tmp_path: Path) -> None:
    assert severity(diagnosed(decoder(TOGETHER), tmp_path), "unfused-moe") is None


@pytest.mark.parametrize("without", [TOPK, ADD_BACK])
def test_other_uses_of_sorting_are_no_experts(tmp_path: Path, without: Kernel) -> None:
    some = tuple(row for row in LOOSE if row[0] is not without)
    d = diagnosed(decoder(some), tmp_path)
    assert severity(d, "unfused-moe") is None
    assert fact(d, "experts.loose_window_ratio") == 0


def test_sampling_once_a_step_is_no_layer(tmp_path: Path) -> None:
    assert severity(diagnosed(decoder(LOOSE, layers=3), tmp_path), "unfused-moe") is None


def test_what_a_fused_layer_wins(tmp_path: Path) -> None:
    """Eight of sixteen kernels stay: half of what the host needs to launch them goes."""
    r = replayer(decoder(LOOSE).export, tmp_path)
    before, after = (r.estimate(f) for f in ([], [fix("fuse_experts")]))
    kept = 4 + 8  # kernels a layer besides those of the experts, and those
    assert after.after.mid / before.after.mid == pytest.approx(
        (6 * kept + 1) / (6 * (4 + len(LOOSE)) + 1), rel=0.1
    )
