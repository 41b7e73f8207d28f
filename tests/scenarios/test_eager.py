"""What PyTorch programs do that run operator by operator, as its profiler and nsys record them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

import advisor
from advisor.model.findings import Diagnosis, Finding
from tests.scenarios import eager
from tests.scenarios.eager import BF16, INT8, Eager
from tests.scenarios.machine import Kernel
from tests.scenarios.support import fact, ranked

Script = Callable[[Eager], None]
FORMS = pytest.mark.parametrize(
    "form",
    [
        pytest.param({}, id="bare"),
        pytest.param({"shapes": True}, id="shapes", marks=pytest.mark.slow),
        pytest.param({"nsys": True}, id="nsys"),
    ],
)

MUL_CAST = Kernel(
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::BinaryFunctor<"
    "c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> > >>(int)"
)
DECODE = Kernel("void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4> >()")
ARGMAX = Kernel(
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, "
    "unsigned int, long, 4, 4> >(int)"
)


def recorded(script: Script, folder: Path, form: dict[str, bool], *, host: float = 4) -> Diagnosis:
    p = Eager(**form, host=host)
    for _ in range(6):
        with p.step():
            script(p)
            p.wait()
    return advisor.diagnose(p.write(Path(mkdtemp(dir=folder))))


def of(d: Diagnosis, cause: str) -> Finding | None:
    return next((f for f in d.findings if f.cause == cause), None)


def promised(found: Finding | None) -> tuple[float, float, float]:
    """Step time (ms) after the fix: low, mid, high."""
    assert found is not None
    assert found.gain is not None
    after = found.gain.step_after_ms
    assert after is not None
    return after.low, after.mid, after.high


def linear(p: Eager, us: float, kernel: Kernel = eager.GEMM) -> None:
    p.op("aten::addmm", kernel, us, [[4096], [8192, 1024], [1024, 4096]], inside="aten::linear")


# ------------------------------------------------------------------------------- attention

HEADS = [[64, 2048, 64], [64, 64, 2048]]


def of_softmax(p: Eager) -> None:
    """Scaled, masked and normalised scores of 2,048 tokens, as transformers' eager attention makes them."""
    p.op("aten::mul", eager.SCALE, 380)
    p.op("aten::fill_", eager.FILL, 1.5)
    p.op("aten::where", eager.WHERE, 450)
    p.op("aten::_softmax", eager.SOFTMAX, 650)
    p.op("aten::copy_", eager.TO_BF16, 520)


def by_hand(p: Eager) -> None:
    p.op("aten::mul", eager.SCALE, 380)
    p.op("aten::where", eager.WHERE, 450)
    p.op("aten::amax", eager.MAX, 250)
    p.op("aten::sub", eager.SUB, 400)
    p.op("aten::exp", eager.EXP, 380)
    p.op("aten::sum", eager.SUM, 250)
    p.op("aten::div", eager.DIV, 400)
    p.op("aten::copy_", eager.CONTIGUOUS, 40)


def attention(p: Eager, between: Script) -> None:
    p.op("aten::bmm", eager.GEMM, 300, HEADS)
    between(p)
    p.op("aten::bmm", eager.GEMM, 300, HEADS)


def flash(p: Eager) -> None:
    p.op("aten::_scaled_dot_product_flash_attention", eager.FLASH, 280)


def encoder(p: Eager, attend: Script) -> None:
    """Twelve layers of 1.15 ms beside attention."""
    for _ in range(12):
        p.op("aten::native_layer_norm", eager.NORM, 30)
        for _ in range(3):
            linear(p, 70)
        attend(p)
        linear(p, 70)
        p.op("aten::native_layer_norm", eager.NORM, 30)
        linear(p, 250)
        p.op("aten::gelu", eager.GELU, 90)
        linear(p, 250)


@FORMS
@pytest.mark.parametrize("between", [of_softmax, by_hand])
def test_attention_in_pieces_of_any_length(between: Script, form: dict[str, bool], tmp_path: Path) -> None:
    """A fill for the mask lies between, and no kernel is short."""
    d = recorded(lambda p: encoder(p, lambda p: attention(p, between)), tmp_path, form)
    assert ranked(d)[0] == "unfused-attention"
    fused = recorded(lambda p: encoder(p, flash), tmp_path, form)
    low, mid, high = promised(of(d, "unfused-attention"))
    made = 12 * 1.21
    assert mid == pytest.approx(made, rel=0.05)
    assert low < made < high
    assert of(fused, "unfused-attention") is None


def cached(p: Eager, *, repeated: float) -> None:
    """A decode step over a long cache: copies of `repeated` us give each head keys and values of its own."""
    for _ in range(12):
        linear(p, 30, eager.GEMV)
        for _ in range(2):
            p.op("aten::copy_", eager.CONTIGUOUS, repeated)
        p.op("aten::bmm", eager.GEMV, 60, [[512, 1, 128], [512, 128, 4096]])
        p.op("aten::mul", eager.SCALE, 2)
        p.op("aten::_softmax", eager.SOFTMAX, 5)
        p.op("aten::bmm", eager.GEMV, 60, [[512, 1, 4096], [512, 4096, 128]])
        linear(p, 20, eager.GEMV)
        linear(p, 60, eager.GEMV)


def fused(p: Eager) -> None:
    for _ in range(12):
        linear(p, 30, eager.GEMV)
        p.op("aten::_flash_attention_forward", DECODE, 40)
        linear(p, 20, eager.GEMV)
        linear(p, 60, eager.GEMV)


@FORMS
def test_keys_and_values_that_every_decode_step_repeats(form: dict[str, bool], tmp_path: Path) -> None:
    """The scores of one token are short, the copies three times as long as the products that read them."""
    d = recorded(lambda p: cached(p, repeated=180), tmp_path, form)
    assert ranked(d)[0] == "unfused-attention"
    low, mid, high = promised(of(d, "unfused-attention"))
    made = 12 * 0.150
    assert mid == pytest.approx(made, rel=0.15)
    assert low < made < high
    assert of(recorded(fused, tmp_path, form), "unfused-attention") is None


@FORMS
def test_copies_that_only_change_the_layout_before_attention(form: dict[str, bool], tmp_path: Path) -> None:
    """Less than half of the product that reads them; and attention whose scores are short costs little."""
    d = recorded(lambda p: cached(p, repeated=28), tmp_path, form)
    assert fact(d, "kernel.attention_pieces_per_step") == 0
    assert of(d, "unfused-attention") is None


@FORMS
def test_long_copies_before_a_product_without_a_softmax(form: dict[str, bool], tmp_path: Path) -> None:
    def script(p: Eager) -> None:
        for _ in range(12):
            for _ in range(2):
                p.op("aten::copy_", eager.CONTIGUOUS, 180)
            p.op("aten::bmm", eager.GEMM, 60, HEADS)
            p.op("aten::mul", eager.SCALE, 2)
            p.op("aten::bmm", eager.GEMM, 60, HEADS)

    d = recorded(script, tmp_path, form)
    assert fact(d, "kernel.attention_pieces_per_step") == 0
    assert of(d, "unfused-attention") is None


def softmax_backward(p: Eager) -> None:
    p.op("aten::copy_", eager.TO_FP32, 520)
    p.op("aten::_softmax_backward_data", eager.SOFTMAX_BACKWARD, 900)
    p.op("aten::mul", eager.SCALE, 380)


def backward_by_hand(p: Eager) -> None:
    """As autograd goes back through the division, the sum, the powers and the maximum."""
    p.op("aten::div", eager.DIV, 400)
    for _ in range(2):
        p.op("aten::mul", eager.MUL, 400)
        p.op("aten::sum", eager.SUM, 250)
    p.op("aten::add", eager.ADD, 400)
    p.op("aten::mul", eager.SCALE, 380)


@FORMS
@pytest.mark.parametrize(("forward", "back"), [(of_softmax, softmax_backward), (by_hand, backward_by_hand)])
def test_attention_in_pieces_of_a_backward_pass(
    forward: Script, back: Script, form: dict[str, bool], tmp_path: Path
) -> None:
    def train(p: Eager) -> None:
        encoder(p, lambda p: attention(p, forward))
        linear(p, 900)
        p.op("aten::_log_softmax", eager.LOG_SOFTMAX, 800)
        p.op("aten::nll_loss_forward", eager.NLL, 30)
        p.op("aten::_log_softmax_backward_data", eager.SOFTMAX_BACKWARD, 800)
        for _ in range(12):
            linear(p, 500)
            p.op("aten::bmm", eager.GEMM, 300, HEADS)
            p.op("aten::bmm", eager.GEMM, 300, HEADS)
            back(p)
            p.op("aten::bmm", eager.GEMM, 300, HEADS)
            p.op("aten::bmm", eager.GEMM, 300, HEADS)
            linear(p, 500)

    d = recorded(train, tmp_path, form)
    assert ranked(d)[0] == "unfused-attention"
    assert fact(d, "kernel.attention_pieces_per_step") == 24


def loss(p: Eager) -> None:
    """A softmax of the vocabulary between the output head and its gradient, once a step."""
    linear(p, 900)
    p.op("aten::_softmax", eager.SOFTMAX, 8_000)
    p.op("aten::sum", eager.SUM, 300)
    p.op("aten::mul", eager.MUL, 800)
    linear(p, 900)


def router(p: Eager) -> None:
    """Each token goes to all experts, weighed by a softmax."""
    for _ in range(12):
        p.op("aten::mm", eager.GEMM, 60, [[8192, 1024], [1024, 64]], inside="aten::linear")
        p.op("aten::_softmax", eager.SOFTMAX, 40)
        p.op("aten::mul", eager.MUL, 20)
        linear(p, 400)
        linear(p, 400)


def linear_attention(p: Eager) -> None:
    """Softmaxes of queries and keys before the product of keys and values."""
    for _ in range(12):
        linear(p, 200)
        p.op("aten::_softmax", eager.SOFTMAX, 90)
        p.op("aten::_softmax", eager.SOFTMAX, 90)
        p.op("aten::bmm", eager.GEMM, 60, [[64, 64, 2048], [64, 2048, 64]])
        p.op("aten::bmm", eager.GEMM, 60, [[64, 2048, 64], [64, 64, 64]])


def log_softmaxes(p: Eager) -> None:
    for _ in range(4):
        linear(p, 900)
        p.op("aten::_log_softmax", eager.LOG_SOFTMAX, 800)
        p.op("aten::mul", eager.MUL, 100)
        linear(p, 900)


@FORMS
@pytest.mark.parametrize("script", [loss, router, linear_attention, log_softmaxes])
def test_a_softmax_between_products_that_is_no_attention(
    script: Script, form: dict[str, bool], tmp_path: Path
) -> None:
    d = recorded(script, tmp_path, form)
    assert fact(d, "kernel.attention_pieces_per_step") == 0
    assert of(d, "unfused-attention") is None


# ------------------------------------------------------------------------------- weights


def decoder(p: Eager, convert: Callable[[Eager, float], None]) -> None:
    """Sixteen layers of a decoder at batch 1: products of 125 us a layer that read their weights."""
    for _ in range(16):
        for us in (11, 3, 3):
            convert(p, us)
            p.op("aten::mm", eager.GEMV, us, [[1, 4096], [4096, 4096]], inside="aten::linear")
        p.op("aten::mul", eager.MUL, 2)
        p.op("aten::add", eager.ADD, 2)
        p.op("aten::_flash_attention_forward", DECODE, 8)
        for us in (12, 32, 32, 32):
            p.op("aten::copy_", eager.TO_FP32, 2)
            p.op("aten::mul", eager.MUL, 2)
            p.op("aten::copy_", eager.TO_BF16, 2)
            convert(p, us)
            p.op("aten::mm", eager.GEMV, us, [[1, 4096], [4096, 4096]], inside="aten::linear")


def cast(p: Eager, us: float) -> None:
    p.op("aten::copy_", eager.WIDEN, 1.6 * us, [[4096, 4096], [4096, 4096]], [BF16, INT8])


def cast_and_scale(p: Eager, us: float) -> None:
    cast(p, us)
    p.op("aten::mul", eager.MUL, 2.1 * us, [[4096, 4096], [4096, 1]])


def scale(p: Eager, us: float) -> None:
    """Eight bits times a scale in 16."""
    p.op("aten::mul", MUL_CAST, 2 * us, [[4096, 4096], [4096, 1]], [INT8, BF16])


@FORMS
@pytest.mark.parametrize(
    ("convert", "times"),
    [(cast, 1.6), (cast_and_scale, 3.7), pytest.param(scale, 2.0, marks=pytest.mark.slow)],
)
def test_weights_that_pytorch_widens_before_each_product(
    convert: Callable[[Eager, float], None], times: float, form: dict[str, bool], tmp_path: Path
) -> None:
    d = recorded(lambda p: decoder(p, convert), tmp_path, form)
    assert ranked(d)[0] == "separate-dequantisation"
    low, mid, high = promised(of(d, "separate-dequantisation"))
    made = 16 * 0.161
    assert mid == pytest.approx(made, rel=0.1)
    assert low < made * 1.05 < high
    assert fact(d, "kernel.dequantise_ratio") == pytest.approx(125 * times / (161 + 125 * times), abs=0.05)


def nothing(p: Eager, _us: float) -> None:
    pass


def autocast(p: Eager, us: float) -> None:
    """Master weights in FP32."""
    p.op("aten::copy_", eager.TO_BF16, 3 * us, [[4096, 4096], [4096, 4096]])


def activations(p: Eager, _us: float) -> None:
    """Of a long prompt: the product takes long, too."""
    p.op("aten::copy_", eager.WIDEN, 45, [[8192, 4096], [8192, 4096]], [BF16, INT8])
    p.op("aten::mul", eager.MUL, 40)
    linear(p, 400)


def short(p: Eager, _us: float) -> None:
    """An activation of one token."""
    p.op("aten::copy_", eager.WIDEN, 2, [[1, 4096], [1, 4096]], [BF16, INT8])
    p.op("aten::mul", eager.MUL, 2)


def gated(p: Eager, _us: float) -> None:
    """Activations times a gate in FP32, and back to 16 bits, before a product of few columns."""
    p.op("aten::mul", MUL_CAST, 60, [[8192, 384], [384]], [BF16, "float"])
    p.op("aten::copy_", eager.TO_BF16, 50, [[8192, 384], [8192, 384]], [BF16, "float"])
    linear(p, 45)


def cached_keys(p: Eager, _us: float) -> None:
    """A KV cache in 8 bits, before the product with its keys."""
    p.op("aten::copy_", eager.WIDEN, 60, [[64, 128, 2048], [64, 128, 2048]], [BF16, INT8])
    p.op("aten::bmm", eager.GEMV, 40, [[64, 1, 128], [64, 128, 2048]])


@FORMS
@pytest.mark.parametrize(
    "convert",
    [pytest.param(nothing, marks=pytest.mark.slow), autocast, activations, short, gated, cached_keys],
)
def test_casts_that_widen_no_weights(
    convert: Callable[[Eager, float], None], form: dict[str, bool], tmp_path: Path
) -> None:
    if convert is cached_keys and "nsys" in form:
        pytest.skip("nsys records no operators, which tell keys from weights")
    d = recorded(lambda p: decoder(p, convert), tmp_path, form)
    assert fact(d, "kernel.dequantise_ratio") == 0


def narrow_cache(p: Eager, convert: bool, attend: Script) -> None:
    """Keys and values in 8 bits, 24 layers."""
    for _ in range(24):
        linear(p, 12, eager.GEMV)
        if convert:
            p.op("aten::copy_", eager.WIDEN, 30)
            p.op("aten::copy_", eager.WIDEN, 30)
        attend(p)
        for us in (10, 25, 25):
            linear(p, us, eager.GEMV)


def in_pieces(p: Eager) -> None:
    p.op("aten::bmm", eager.GEMV, 20)
    p.op("aten::_softmax", eager.SOFTMAX, 10)
    p.op("aten::bmm", eager.GEMV, 20)


@FORMS
def test_a_cache_that_is_widened_before_attention(form: dict[str, bool], tmp_path: Path) -> None:
    d = recorded(lambda p: narrow_cache(p, True, lambda p: p.op("a", DECODE, 20)), tmp_path, form)
    assert ranked(d)[0] == "separate-dequantisation"
    found = of(d, "separate-dequantisation")
    assert promised(found)[1] == pytest.approx(24 * 0.092, rel=0.05)
    assert fact(d, "kernel.widened_operands") == "keys and values"
    assert found is not None
    assert [r.id for r in found.recommendations] == ["attention-backend"]


@FORMS
def test_a_cache_that_is_widened_before_products_is_no_weight(form: dict[str, bool], tmp_path: Path) -> None:
    d = recorded(lambda p: narrow_cache(p, True, in_pieces), tmp_path, form)
    assert fact(d, "kernel.dequantise_ratio") == 0
    assert ranked(d)[0] == "unfused-attention"


@FORMS
def test_weights_in_fp32_that_are_cast_before_each_product(form: dict[str, bool], tmp_path: Path) -> None:
    """A cast takes three times as long as the product; with weights in 16 bits the products stay."""
    d = recorded(lambda p: decoder(p, autocast), tmp_path, form)
    assert ranked(d)[0] == "repeated-weight-casts"
    low, mid, high = promised(of(d, "repeated-weight-casts"))
    assert low < 16 * 0.161 * 1.05 < high
    assert mid == pytest.approx(16 * 0.161, rel=0.1)


@FORMS
@pytest.mark.parametrize(
    "convert", [*(pytest.param(c, marks=pytest.mark.slow) for c in (nothing, short)), activations, cast]
)
def test_casts_of_no_weights_in_fp32(
    convert: Callable[[Eager, float], None], form: dict[str, bool], tmp_path: Path
) -> None:
    assert fact(recorded(lambda p: decoder(p, convert), tmp_path, form), "kernel.weight_cast_ratio") == 0


# ------------------------------------------------------------------------------- KV cache


def token(p: Eager, join: float, fused: bool) -> None:
    for _ in range(24):
        linear(p, 20, eager.GEMV)
        p.op("aten::cat", eager.CAT, 2.5)  # halves of a rotation
        p.op("aten::mul", eager.MUL, 2)
        p.op("aten::add", eager.ADD, 2)
        for _ in range(2 if join else 0):
            p.op("aten::cat", eager.CAT, join, [[8, 8, 2048, 128], [8, 8, 1, 128]])
        if fused:
            p.op("aten::_flash_attention_forward", DECODE, 30)
        else:
            p.op("aten::bmm", eager.GEMV, 20, [[64, 1, 128], [64, 128, 2049]])
            p.op("aten::add", eager.ADD, 4)
            p.op("aten::_softmax", eager.SOFTMAX, 6)
            p.op("aten::bmm", eager.GEMV, 20, [[64, 1, 2049], [64, 2049, 128]])
        linear(p, 11, eager.GEMV)
        p.op("aten::native_layer_norm", eager.NORM, 3)
        linear(p, 40, eager.GEMV)
        p.op("aten::silu", eager.GELU, 2)
        linear(p, 20, eager.GEMV)
    linear(p, 200, eager.GEMV)
    p.op("aten::argmax", ARGMAX, 20)


@FORMS
@pytest.mark.parametrize("fused", [True, False])
def test_a_cache_that_grows_by_concatenation(fused: bool, form: dict[str, bool], tmp_path: Path) -> None:
    """Two copies of 400 us a layer become two appends of a token."""
    d = recorded(lambda p: token(p, 400, fused), tmp_path, form)
    assert ranked(d)[0] == "kv-cache-concatenation"
    assert of(d, "kv-cache-concatenation").severity == "high"  # type: ignore[union-attr]
    low, mid, high = promised(of(d, "kv-cache-concatenation"))
    layer = 20 + 6.5 + 2 * 2.5 + (30 if fused else 50) + 11 + 3 + 42 + 20
    made = (24 * layer + 220) / 1e3
    assert mid == pytest.approx(made, rel=0.05)
    assert low < made < high
    assert of(recorded(lambda p: token(p, 0, fused), tmp_path, form), "kv-cache-concatenation") is None


# ------------------------------------------------------------------------------- precision

F_NORM = Kernel(
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float)"
)
F_ADD = eager.vector("at::native::CUDAFunctor_add<float>", 3)
F_GELU = eager.vector("at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{lambda(float)#1}")
F_ATTENTION = Kernel(
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)"
)
FPROP = Kernel(
    "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_"
    "execute_segment_k_off_kernel__5x_cudnn"
)
DGRAD = Kernel("sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32_tf32f32_tf32_nhwckcrs_nhwc_tilesize128x128x16")
WGRAD = Kernel("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x128_16x6>(int)")
BATCH_NORM = Kernel("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, true>(float*)")
BATCH_NORM_BACKWARD = Kernel("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)")
RELU = eager.vector(
    "at::native::(anonymous namespace)::clamp_min_scalar_kernel_impl(float)::{lambda(float)#1}"
)
SGD = Kernel(
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<3>, "
    "at::native::(anonymous namespace)::FusedSgdMathFunctor<float, 3> >(int)"
)


def vision(p: Eager, product: Kernel, us: float) -> None:
    """Layers whose products take 2,420 x `us`, beside 138 of elementwise work and 75 of attention."""
    for _ in range(12):
        p.op("aten::native_layer_norm", F_NORM, 18)
        p.op("aten::addmm", product, 620 * us, inside="aten::linear")
        p.op("aten::_efficient_attention_forward", F_ATTENTION, 75)
        p.op("aten::addmm", product, 200 * us, inside="aten::linear")
        p.op("aten::add", F_ADD, 22)
        p.op("aten::native_layer_norm", F_NORM, 18)
        p.op("aten::addmm", product, 800 * us, inside="aten::linear")
        p.op("aten::gelu", F_GELU, 58)
        p.op("aten::addmm", product, 800 * us, inside="aten::linear")
        p.op("aten::add", F_ADD, 22)


@FORMS
@pytest.mark.parametrize(("product", "us"), [(eager.SGEMM, 1.0), (eager.TF32, 0.2)])
def test_a_model_in_fp32_is_promised_16_bits(
    product: Kernel, us: float, form: dict[str, bool], tmp_path: Path
) -> None:
    """Products at 60 % of the rate of 16 bits, half the bytes beside them, and flash attention."""
    d = recorded(lambda p: vision(p, product, us), tmp_path, form)
    assert ranked(d)[0] == "fp32-matmul"
    low, mid, high = promised(of(d, "fp32-matmul"))
    rate = {eager.SGEMM: 66.9, eager.TF32: 494.7}[product] / 989.4
    products = 2_420 * us * rate
    made = 12 * (1.1 * products + 138 / 2 + 75 * 1.3 / 6) / 1e3
    assert mid == pytest.approx(made, rel=0.05)
    assert low < 12 * (products + 138 / 2 + 75 / 6) / 1e3 * 1.05
    assert high > 12 * (1.1 * products + 138 * 0.7 + 75 / 4) / 1e3
    # TF32 is the cheap alternative of FP32, and says what it saves.
    offered = [o.gain for o in of(d, "fp32-matmul").alternatives if o.action == "allow-tf32"]  # type: ignore[union-attr]
    assert bool(offered) is (product == eager.SGEMM)
    for gain in offered:
        assert gain is not None
        assert gain.step_after_ms is not None
        assert gain.step_after_ms.mid > high


def convolutions(p: Eager) -> None:
    """A step of training in TF32, as cuDNN's default is."""
    for _ in range(50):
        p.op("aten::cudnn_convolution", FPROP, 120)
        p.op("aten::cudnn_batch_norm", BATCH_NORM, 60)
        p.op("aten::relu_", RELU, 30)
    linear(p, 30, eager.TF32)
    p.op("aten::_log_softmax", eager.LOG_SOFTMAX, 5)
    p.op("aten::nll_loss_forward", eager.NLL, 3)
    for _ in range(50):
        p.op("aten::cudnn_batch_norm_backward", BATCH_NORM_BACKWARD, 80)
        p.op("aten::convolution_backward", DGRAD, 130)
        p.op("aten::convolution_backward", WGRAD, 130)
    for _ in range(3):
        p.op("aten::_foreach_add_", SGD, 40, inside="Optimizer.step#SGD.step")


@FORMS
def test_training_in_tf32_is_promised_mixed_precision(form: dict[str, bool], tmp_path: Path) -> None:
    d = recorded(convolutions, tmp_path, form)
    assert ranked(d)[0] == "fp32-matmul"
    low, mid, high = promised(of(d, "fp32-matmul"))
    products, beside = 50 * 380 + 30, 50 * 170
    assert mid == pytest.approx((0.55 * products + 0.75 * beside + 131) / 1e3, rel=0.03)
    assert low < (0.5 * products + 0.5 * beside + 131) / 1e3 * 1.02
    assert high > (0.75 * products + beside + 131) / 1e3
    assert fact(d, "kernel.tf32_matmul_ratio") == pytest.approx(
        products / (products + beside + 131), abs=0.02
    )
    assert fact(d, "kernel.fp32_matmul_ratio") == 0
