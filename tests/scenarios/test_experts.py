"""Layers of experts: built of single operators, and in kernels made for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from advisor.gain.attach import combine
from advisor.gain.estimate import Estimate
from advisor.gain.replay_ops import NoEstimate
from tests.builder import RUNTIME
from tests.gain.support import fix, replayer
from tests.scenarios.machine import ALL_REDUCE, DECODE_LAYER, GEMV, NORM, SILU, Kernel, Machine
from tests.scenarios.support import diagnosed, fact, ranked, severity

TOPK = Kernel("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)", 64)
SORT = Kernel("void at::native::radixSortKVInPlace<-2, -1, 32, 4, long, long, unsigned int>(int)", 1)
COUNT = Kernel("void at::cuda::kernelHistogram1D<long, long, long, 1, 2, -1>(long)", 1)
TAKE = Kernel("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)", 64)
ADD_BACK = Kernel("void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int>(int)", 64)
FUSED = Kernel("fused_moe_kernel", 132)
CHOOSE = Kernel("void at_cuda_detail::cub::DeviceSelectSweepKernel<int>(int)", 4)
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
            if marked:
                m.wait()
    m.wait()
    return m


def test_experts_of_single_operators(tmp_path: Path) -> None:
    d = diagnosed(decoder(LOOSE), tmp_path)
    assert severity(d, "unfused-moe") == "high"
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
    assert severity(d, "unfused-moe") == "high"
    layer = 4 + len(LOOSE)
    assert fact(d, "experts.topk_per_100_kernels") == pytest.approx(100 / layer, rel=0.02)
    assert fact(d, "experts.grouping_per_100_kernels") == pytest.approx(200 / layer, rel=0.02)
    assert fact(d, "experts.combine_per_100_kernels") == pytest.approx(100 / layer, rel=0.02)


def test_a_loop_over_the_experts_of_one_layer(tmp_path: Path) -> None:
    """No range marks the steps, and what is found by kernels begins inside the layer."""
    m = Machine()
    for _ in range(20):
        m.layers(1, [(GEMV, 6), (TOPK, 5), (SORT, 4), (COUNT, 3)])
        for _ in range(8):
            m.launch(CHOOSE, 3)
            m.read_back()
            m.work(10)
            m.layers(1, [(TAKE, 2), (GEMV, 9), (SILU, 2), (GEMV, 9), (ADD_BACK, 4)])
        m.launch(NORM, 2)
    d = diagnosed(m, tmp_path)
    assert ranked(d)[0] == "unfused-moe"
    assert fact(d, "experts.readbacks_per_layer") == 8


GATED = ((GEMV, 3), (GEMV, 3), (SILU, 2), (GEMV, 3))  # one expert
LOOPS = {
    "gated": ((TOPK, 4), *GATED * 8),
    "without activation": ((TOPK, 4), *((GEMV, 3),) * 24),
    "chosen by other kernels": ((NORM, 2), *GATED * 8),
}


@pytest.mark.parametrize("marked", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("experts", LOOPS.values(), ids=LOOPS)
def test_a_loop_of_products_is_a_layer_of_experts(
    experts: Sequence[tuple[Kernel, float]], marked: bool, tmp_path: Path
) -> None:
    """Nothing sorts tokens or adds results up. The twin has the products of eight experts in two kernels."""
    d = diagnosed(decoder(experts, 16, marked), tmp_path)
    assert ranked(d)[:2] == ["unfused-moe", "launch-bound"]
    layer = 4 + len(experts)
    if not marked:
        assert fact(d, "experts.layers_per_100_kernels") == pytest.approx(100 / layer, rel=0.05)
        return
    assert fact(d, "experts.layers_per_step") == 16
    assert fact(d, "experts.kernels_per_layer") == len([k for k, _ in experts if k is not NORM])
    assert fact(d, "experts.loop_window_ratio") == pytest.approx(len(experts) / layer, abs=0.05)
    (tmp_path / "twin").mkdir()
    together = ((Kernel("topkGatingSoftmax", 8), 4), (FUSED, 48), (SILU, 2), (FUSED, 24))
    made = diagnosed(decoder(together, 16), tmp_path / "twin").inputs[0].untraced_step_ms
    gain = d.findings[0].gain
    assert gain is not None
    assert gain.step_after_ms is not None
    assert made is not None
    assert gain.step_after_ms.low < made.mid < gain.step_after_ms.high
    assert gain.step_after_ms.mid == pytest.approx(made.mid, rel=0.1)


def test_heads_of_a_draft_and_dense_layers_are_no_loop(tmp_path: Path) -> None:
    """One activation a layer, behind two products; and four heads once a step."""
    m = Machine()
    for i in range(8):
        with m.step(f"decode_step {i}"):
            m.layers(16, (*DECODE_LAYER[:4], (NORM, 2), *GATED))
            m.layers(1, GATED * 4)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert severity(d, "unfused-moe") is None
    assert fact(d, "experts.loop_window_ratio") == 0


def test_experts_without_any_call(tmp_path: Path) -> None:
    """A capture whose calls were not recorded: nothing says which call issued what."""
    m = decoder(LOOSE)
    d = diagnosed(m.export.without_tables(RUNTIME), tmp_path)
    assert severity(d, "unfused-moe") is not None


def test_fused_experts_are_in_order(tmp_path: Path) -> None:
    assert severity(diagnosed(decoder(TOGETHER), tmp_path), "unfused-moe") is None


@pytest.mark.parametrize(
    "some", [pytest.param(LOOSE[1:], id="no top-k"), pytest.param((*LOOSE[:3], *LOOSE[3:6] * 2), id="no sum")]
)
def test_other_uses_of_sorting_are_no_experts(tmp_path: Path, some: Sequence[tuple[Kernel, float]]) -> None:
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


# --- balanced routing ---------------------------------------------------------------------------

ACTIVE = "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(c10::BFloat16*)"
Row = tuple[Kernel, float]


def routed(layers: Sequence[Sequence[Row]]) -> Machine:
    """Eight decode steps of these layers of experts, whose kernels are so long that the GPU limits."""
    m = Machine()
    for i in range(8):
        with m.step(f"decode_step {i}"):
            for layer in layers:
                m.layers(1, layer)
            m.launch(NORM, 3)
    return m


def padded(blocks: int, us: float) -> list[Row]:
    return [(TOPK, 20), (GEMV, us), (Kernel(ACTIVE, blocks), 20), (GEMV, us), (ADD_BACK, 20)]


def one_by_one(*experts: tuple[int, float]) -> list[Row]:
    work = [row for blocks, us in experts for row in ((GEMV, us), (Kernel(ACTIVE, blocks), 10), (GEMV, us))]
    return [(TOPK, 20), *work, (ADD_BACK, 20)]


def balanced(m: Machine, folder: Path) -> tuple[Estimate, str]:
    r = replayer(m.export, folder)
    told = combine(r, [fix("balance_experts")])
    return r.estimate([fix("balance_experts")]), " ".join(told.assumptions)


def test_experts_padded_to_the_fullest_take_what_the_most_even_layers_take(tmp_path: Path) -> None:
    """Three layers of 200 us and one of 100: all become as the one."""
    rows = [padded(64, 200), padded(64, 200), padded(64, 200), padded(32, 100)]
    found, told = balanced(routed(rows), tmp_path)
    whole = 4 * 60 + 3 * 400 + 200 + 3
    assert found.speedup.mid == pytest.approx(whole / (whole - 3 * 200), rel=0.02)
    assert found.speedup.low == pytest.approx(1.0, abs=0.01)
    assert "pad all experts to the fullest one: 32 to 64 blocks" in told
    assert "up to 2.00 times the most even layer seen" in told
    assert "no collectives" in told


def test_experts_one_by_one_work_on_as_many_tokens_in_all(tmp_path: Path) -> None:
    """Where time grows with tokens, balance wins nothing, and an expert more reads its weights."""
    uneven = one_by_one((2, 20), (2, 20), (12, 120))
    even = one_by_one((4, 50), (4, 50), (4, 50), (4, 50))
    found, told = balanced(routed([uneven, uneven, uneven, even]), tmp_path)
    assert found.speedup.mid < 1.0
    assert "run experts one by one: 3.25 get tokens and read their weights (at most 4)" in told
    assert "the fullest 1.94 times the mean of its layer (4 to 12 blocks)" in told


def test_grouped_experts_and_the_collectives_beside_them(tmp_path: Path) -> None:
    """Grids tell nothing: the products keep their time, in a range; half of the waiting goes."""
    layer = [(FUSED, 200), (SILU, 5), (FUSED, 300), (ALL_REDUCE, 50), (NORM, 5)]
    late = [(FUSED, 100), (SILU, 5), (FUSED, 300), (ALL_REDUCE, 150), (NORM, 5)]
    found, told = balanced(routed([layer, late]), tmp_path)
    whole = 2 * 560 + 3
    assert found.speedup.mid == pytest.approx(whole / (whole - 50), rel=0.02)
    assert found.speedup.low < 1.0 < found.speedup.high
    assert "do not tell the tokens of an expert; their kernels take 100 to 200 us" in told
    assert "collectives take 0.1 ms a step beyond the quickest tenth of each" in told


def test_balance_needs_experts(tmp_path: Path) -> None:
    with pytest.raises(NoEstimate, match="known to be of experts"):
        replayer(decoder(((GEMV, 4),)).export, tmp_path).estimate([fix("balance_experts")])
