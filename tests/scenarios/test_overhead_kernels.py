"""Kernels that are overhead beside those that need them: quantisation, adding up splits, concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.scenarios.eager import CAT, Eager
from tests.scenarios.eager import GEMM as PRODUCT_16_BITS
from tests.scenarios.eager import NORM as LAYER_NORM
from tests.scenarios.machine import DECODE_ATTENTION, GEMV, NORM, SILU, Kernel, Machine
from tests.scenarios.support import diagnosed, fact, ranked, severity

PER_TOKEN = Kernel(
    "void vllm::per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn, false, false, float>()"
)
SCALE = Kernel("void per_tensor_absmax_kernel<__nv_bfloat16>(__nv_bfloat16 const*, float*, long)")
COMPILED = Kernel("triton_red_fused__to_copy_abs_amax_clamp_div_reciprocal_3")
NORM_QUANT = Kernel("void vllm::rms_norm_dynamic_per_token_quant_kernel<c10::BFloat16>()")
PRODUCT = Kernel("void cutlass::device_kernel<scaled_mm_fp8_sm90<cutlass::float_e4m3_t>>()")
CACHE = Kernel("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>()")
COMBINE = Kernel(
    "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, 4, 7>(params)"
)

Layer = Sequence[tuple[Kernel, float]]


def decode(layer: Layer) -> Machine:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(40, tuple(layer), call=10)
            m.read_back()
    return m


def quantised(*kernels: tuple[Kernel, float], norm: Kernel = NORM) -> Layer:
    """A layer of 100 us and what quantises the input of each of its four products."""
    body: tuple[tuple[Kernel, float], ...] = (
        (norm, 3), (PRODUCT, 20), (CACHE, 2), (DECODE_ATTENTION, 12), (PRODUCT, 15), (norm, 3), (PRODUCT, 20),
        (SILU, 3), (PRODUCT, 22),
    )  # fmt: skip
    return [k for one in body for k in ((*kernels, one) if one[0] is PRODUCT else (one,))]


def after_ms(d: Diagnosis, cause: str) -> float:
    (gain,) = (f.gain for f in d.findings if f.cause == cause)
    assert gain is not None
    assert gain.step_after_ms is not None
    return gain.step_after_ms.mid


def without_ms(layer: Layer, folder: Path) -> float:
    """The untraced step of the same program with these layers."""
    (folder / "without").mkdir()
    step = diagnosed(decode(layer), folder / "without").inputs[0].untraced_step_ms
    assert step is not None
    return step.mid


@pytest.mark.parametrize("kernel", [PER_TOKEN, COMPILED])
def test_a_kernel_that_quantises_before_each_product(tmp_path: Path, kernel: Kernel) -> None:
    d = diagnosed(decode(quantised((kernel, 8))), tmp_path)
    assert ranked(d)[0] == "unfused-quantise"
    assert severity(d, "unfused-quantise") == "high"
    assert fact(d, "kernel.quantise_ratio") == pytest.approx(32 / 132, rel=0.02)
    assert after_ms(d, "unfused-quantise") == pytest.approx(without_ms(quantised(), tmp_path), rel=0.03)


def test_the_search_for_the_scale_belongs_to_it(tmp_path: Path) -> None:
    d = diagnosed(decode(quantised((SCALE, 3), (PER_TOKEN, 3))), tmp_path)
    assert fact(d, "kernel.quantise_ratio") == pytest.approx(24 / 124, rel=0.02)
    assert ranked(d)[0] == "unfused-quantise"


def test_quantisation_inside_the_norm_is_no_fault(tmp_path: Path) -> None:
    d = diagnosed(decode(quantised(norm=NORM_QUANT)), tmp_path)
    assert fact(d, "kernel.quantise_ratio") == 0.0
    assert ranked(d) == []


def test_short_quantisation_beside_long_products_is_no_fault(tmp_path: Path) -> None:
    d = diagnosed(decode(quantised((PER_TOKEN, 1.2))), tmp_path)
    assert severity(d, "unfused-quantise") is None


def test_what_quantises_the_cache_feeds_no_product(tmp_path: Path) -> None:
    writes = [(CACHE, 2.0)] * 3
    layer = [(NORM, 3.0), (GEMV, 20.0), (PER_TOKEN, 10.0), *writes, (DECODE_ATTENTION, 12.0), (GEMV, 40.0)]
    d = diagnosed(decode(layer), tmp_path)
    assert severity(d, "unfused-quantise") is None


def attention(us: float, combine: float) -> Layer:
    return (NORM, 3), (GEMV, 20), (CACHE, 2), (DECODE_ATTENTION, us), (COMBINE, combine), (GEMV, 40)


def test_adding_up_splits_takes_as_long_as_attention(tmp_path: Path) -> None:
    d = diagnosed(decode(attention(12, 11)), tmp_path)
    assert ranked(d)[0] == "split-kv-combine"
    assert fact(d, "kernel.kv_combine_ratio") == pytest.approx(11 / 12)
    rest = [k for k in attention(12, 11) if k[0] is not COMBINE]
    assert after_ms(d, "split-kv-combine") == pytest.approx(without_ms(rest, tmp_path), rel=0.03)


@pytest.mark.parametrize(("us", "combine"), [(40, 5), (12, 5), (3, 2)])
def test_splits_that_pay(tmp_path: Path, us: float, combine: float) -> None:
    """Long contexts; adding up takes less than half as long; or next to nothing of the step."""
    d = diagnosed(decode(attention(us, combine)), tmp_path)
    assert severity(d, "split-kv-combine") is None


CAT_COMPILED = Kernel("triton_poi_fused_cat_3")
ROPE = Kernel("void vllm::rotary_embedding_kernel<c10::BFloat16, true>()")


def joined(us: float, kernel: Kernel = CAT) -> Layer:
    """A layer of 99 us, and two concatenations: before a rotation and before a write to the cache."""
    join = ((kernel, us),) if us else ()
    return (
        (NORM, 3), (GEMV, 20), *join, (ROPE, 2), *join, (CACHE, 2), (DECODE_ATTENTION, 12), (GEMV, 15),
        (NORM, 3), (GEMV, 20), (SILU, 3), (GEMV, 19),
    )  # fmt: skip


@pytest.mark.parametrize("kernel", [CAT, CAT_COMPILED])
def test_concatenations_that_append_to_no_cache(tmp_path: Path, kernel: Kernel) -> None:
    d = diagnosed(decode(joined(12.4, kernel)), tmp_path)
    assert ranked(d)[0] == "concatenations"
    assert severity(d, "kv-cache-concatenation") is None
    assert fact(d, "kernel.concatenation_ratio") == pytest.approx(24.8 / 123.8, rel=0.02)
    assert after_ms(d, "concatenations") == pytest.approx(without_ms(joined(0), tmp_path), rel=0.03)


def test_features_joined_behind_every_block(tmp_path: Path) -> None:
    """A convolutional network that hands on all earlier features, without attention or a cache."""
    p = Eager(nsys=True)
    for _ in range(8):
        with p.step():
            for _ in range(40):
                p.op("aten::convolution", PRODUCT_16_BITS, 60)
                p.op("aten::native_layer_norm", LAYER_NORM, 8)
                p.op("aten::cat", CAT, 20)
            p.wait()
    d = advisor.diagnose(p.write(tmp_path))
    assert ranked(d)[0] == "concatenations"
    assert fact(d, "kernel.concatenation_ratio") == pytest.approx(20 / 88, rel=0.02)


def test_concatenations_that_grow_the_cache_are_told_once(tmp_path: Path) -> None:
    layer = (
        (NORM, 3), (GEMV, 20), (ROPE, 2), (CAT, 9), (CAT, 9), (DECODE_ATTENTION, 12), (GEMV, 15), (NORM, 3),
        (GEMV, 20), (SILU, 3), (GEMV, 19),
    )  # fmt: skip
    d = diagnosed(decode(layer), tmp_path)
    assert ranked(d)[0] == "kv-cache-concatenation"
    assert severity(d, "concatenations") is None
    assert fact(d, "kernel.concatenation_ratio") == 0.0


def test_short_concatenations_are_no_fault(tmp_path: Path) -> None:
    d = diagnosed(decode(joined(2)), tmp_path)
    assert severity(d, "concatenations") is None
    assert ranked(d) == []


SPLIT = Kernel(
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false, false, "
    "cutlass::bfloat16_t>, true, false, false, false, true, false, false>(flash::Flash_fwd_params)"
)
COMBINE_SPLITS = Kernel(
    "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4>, 8, 3>(params)"
)


def with_splits(grid: tuple[int, int, int], us: float, *after: tuple[Kernel, float]) -> Machine:
    """Ten steps of 20 layers of 300 us beside the attention, launched well ahead of the device."""
    m = Machine()
    for i in range(10):
        with m.step(f"step {i}"):
            for _ in range(20):
                m.launch(GEMV, 150)
                m.launch(SPLIT, us, grid=grid)
                for kernel, length in after:
                    m.launch(kernel, length)
                m.launch(GEMV, 150)
            m.read_back()
    return m


@pytest.mark.parametrize(("grid", "graded"), [((64, 1, 32), "medium"), ((1, 64, 8), "info")])
def test_split_attention_for_prompts_or_full_batches(
    tmp_path: Path, grid: tuple[int, int, int], graded: str
) -> None:
    """64 blocks of queries of one prompt; or one block each of 64 sequences with 8 heads, on 132 SMs: decode
    over a paged cache takes this kernel always, so that is a note."""
    d = diagnosed(with_splits(grid, 110), tmp_path)
    assert severity(d, "split-kv-for-full-work") == graded
    assert fact(d, "kernel.full_split_window_ratio") == pytest.approx(110 / 410, rel=0.05)


@pytest.mark.parametrize(
    ("grid", "us", "after"),
    [
        ((1, 16, 32), 110, [(COMBINE_SPLITS, 6)]),  # 16 parts of one long context, which is what it is for
        ((1, 8, 8), 110, []),  # eight sequences with eight heads fill half of the SMs
        ((64, 1, 32), 40, []),  # prompts, of which it takes little
    ],
)
def test_split_attention_where_it_belongs(
    tmp_path: Path, grid: tuple[int, int, int], us: float, after: list[tuple[Kernel, float]]
) -> None:
    d = diagnosed(with_splits(grid, us, *after), tmp_path)
    assert severity(d, "split-kv-for-full-work") is None


@pytest.mark.parametrize(("dram", "graded"), [(25, "medium"), (75, "info")])
def test_the_rate_decides_about_split_attention_of_full_batches(
    tmp_path: Path, dram: int, graded: str
) -> None:
    m = Machine()
    for i in range(10):
        with m.step(f"decode_step {i}"):
            for _ in range(20):
                m.launch(GEMV, 150)
                m.launch(SPLIT, 110, grid=(1, 64, 8))
                m.launch(GEMV, 150)
            m.read_back()
    m.sample({GEMV: (90, 80, 10), SPLIT: (90, dram, 10)}, period=10)
    d = diagnosed(m, tmp_path)
    assert severity(d, "split-kv-for-full-work") == graded
    assert fact(d, "kernel.decode_attention_dram_ratio") == pytest.approx(dram / 100, abs=0.03)


def test_a_step_that_a_range_calls_decode_reads_no_prompt(tmp_path: Path) -> None:
    """Whatever its grid looks like: the kernel is a note there."""
    m = Machine()
    for i in range(10):
        with m.step(f"decode_step {i}"):
            for _ in range(20):
                m.launch(GEMV, 150)
                m.launch(SPLIT, 110, grid=(264, 1, 1))
                m.launch(GEMV, 150)
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert severity(d, "split-kv-for-full-work") == "info"
    assert fact(d, "kernel.prompt_split_window_ratio") == 0
