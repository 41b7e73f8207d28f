"""Short names of kernels: two kernels that differ for a reader have two names, each short enough to print."""

from __future__ import annotations

import pytest

from advisor.model.kernel_labels import kernel_label
from tests.test_kernel_names import CURRENT, MISLEADING

ATEN = "void at::native::vectorized_elementwise_kernel<(int)8, at::native::"
MULTIPLY = (
    "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<"
    "at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float>>>"
    "(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)"
)
INDEX = (
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<"
    "at::native::index_kernel_impl<at::native::OpaqueType<2> >(at::T)::{lambda(char*)#1}>(long)"
)
SILU = (
    "at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}"
    "::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)"
)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT", "nvjet 128x8 64x12 4x1 TNT"),
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT", "nvjet 64x8 64x16 4x1 splitK TNT"),
        ("nvjet_sm100_tst_128x256_64x4_2x1_2cta_v_bz_TNT", "nvjet 128x256 64x4 2x1 2cta TNT"),
        (
            "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x64_1x4x1_cga1x1x1_kernel0_0",
            "cudnn sdpa flash fprop f16 16x128x64",
        ),
        (MULTIPLY, "elementwise Mul fp32"),
        (INDEX, "index_elementwise index 2 B"),
        (INDEX.replace("<2>", "<8>"), "index_elementwise index 8 B"),
        (f"{ATEN}CUDAFunctor_add<c10::BFloat16>, char *>(int, T2)", "elementwise add bf16 vec"),
        (f"{ATEN}FillFunctor<long>, std::array<char *, 1>>(int, T2)", "elementwise Fill int64 vec"),
        (f"void at::native::elementwise_kernel<128, 4, {SILU}", "elementwise silu bf16"),
        ("void flash_fwd_splitkv_mla_kernel<T<576>, bfloat16_t>(P)", "flash_fwd_splitkv_mla bf16 576"),
        ("void cutlass::device_kernel<cutlass::gemm::GemmUniversal<int>>(P)", "device GemmUniversal int32"),
        ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(T)", "act_and_mul silu bf16"),
        ("void k(int)", "k"),
        (
            "std::enable_if<(int)8>(int)0&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
            "vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *, T1 *, int)",
            "fused_add_rms_norm bf16 8",
        ),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        ),
        ("attention (FlashAttention kernel)", "attention (FlashAttention kernel)"),
        ("void broken)", "broken)"),
        ("triton_poi_fused_add_mul_3", "triton_poi_fused_add_mul_3"),
        ("decode_step 12", "decode_step 12"),
        ("GPU idle < 5 %", "GPU idle < 5 %"),
    ],
)
def test_what_distinguishes_is_kept(name: str, label: str) -> None:
    assert kernel_label(name) == label


def test_known_names_get_a_short_name_of_their_own() -> None:
    names = [name for name, _ in (*CURRENT, *MISLEADING)]
    labels = {name: kernel_label(name) for name in names}
    assert all(label and "\n" not in label for label in labels.values())
    assert all(len(label) <= max(len(name), 1) for name, label in labels.items())
    alike = len(set(names)) - len(set(labels.values()))
    assert alike <= 0.03 * len(set(names))
