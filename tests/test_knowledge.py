"""The knowledge files: valid, plausible, and right about the names that captures contain."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from advisor.errors import AdvisorError, InputError
from advisor.facts.catalog import CATALOGUE
from advisor.facts.needs import remedy
from advisor.knowledge import files as knowledge
from advisor.knowledge import gpus
from advisor.knowledge.engine_signs import (
    Program,
    actions,
    detect,
    engines,
    named,
    options_for,
    recommendation_ids,
    workload_knowledge,
)
from advisor.knowledge.package_data import data_dir, parsed
from advisor.knowledge.shapes import ActionFile, EngineData, KernelFile, release
from advisor.knowledge.verb_files import capture_goals
from advisor.model.capture import Device
from advisor.sources.schema import TABLES
from tests.knowledge_files import load
from tests.shipped import shipped_rules

ATEN = "void at::native::"
SILU = (
    "elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<at::native::"
    "<unnamed>::silu_kernel(at::TensorIteratorBase &)::[lambda() (instance 1)]>(T1)>(int, T3)"
)
MUL = (
    "vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
    "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >()"
)

# name of the kernel, family, part of the operation, phase, traits it must have
KERNELS: list[tuple[str, str, str, str | None, dict[str, object]]] = [
    # the mapping of the field notes
    (
        "void internal::gemvx::kernel<int, int, __nv_bfloat16, float>(T13)",
        "gemv",
        "gemvx",
        None,
        {"precision": "bf16"},
    ),
    ("FusedAddRMSNormKernel", "norm", "residual add + RMSNorm", None, {}),
    (
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<...>(T1)",
        "attention",
        "decode attention (FlashInfer paged)",
        "decode",
        {},
    ),
    (
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<...>(T1)",
        "attention",
        "prefill attention (FlashInfer)",
        "prefill",
        {},
    ),
    ("void flashinfer::AppendPagedKVCacheKernel<128u>(T1)", "kv_cache", "append", None, {}),
    ("RadixTopKKernel_Unified", "sampling", "top-k", None, {}),
    ("silu_mul_fused_kernel(__nv_bfloat16*)", "activation", "x gate", None, {}),
    ("prefill_qk_norm_rope_kernel", "rope", "QK norm + RoPE", None, {}),
    ("embedding_batched_kernel", "embedding", "token embedding", None, {}),
    # matrix products
    (
        "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT",
        "gemm",
        "nvjet",
        None,
        {"arch": "sm90", "skinny": True, "precision": "bf16"},
    ),
    (
        "nvjet_sm90_qqtst_64x16_128x16_2x1_v_bz_algo2_splitK_TNT",
        "gemm",
        "nvjet",
        None,
        {"precision": "fp8", "skinny": True},
    ),
    ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "gemm", "nvjet", None, {}),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(...)", "gemm", "split-K", None, {}),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_5x_cublas",
        "gemm",
        "xmma",
        None,
        {"arch": "sm90", "precision": "bf16"},
    ),
    (
        "ampere_sgemm_128x64_tn",
        "gemm",
        "FP32 SIMT",
        None,
        {"simt_fp32": True, "arch": "sm80", "precision": "fp32"},
    ),
    ("volta_sgemm_32x32_sliced1x4_tn", "gemm", "FP32 SIMT", None, {"simt_fp32": True, "arch": "sm70"}),
    (
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)",
        "gemm",
        "FP32 SIMT",
        None,
        {"simt_fp32": True, "arch": "sm80"},
    ),
    ("cutlass_75_tensorop_f16_s1688gemm_f16_64x64_32x2_tn_align8", "gemm", "CUTLASS", None, {"arch": "sm75"}),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64>(T)",
        "gemm",
        "CUTLASS",
        None,
        {"arch": "sm80"},
    ),
    ("ampere_fp16_s1688gemm_fp16_128x64_ldg8_f2f_tn", "gemm", "cuBLAS", None, {"arch": "sm80"}),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "gemm", "cuBLAS", None, {"arch": "sm75"}),
    (
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int)",
        "conv",
        "convolution (cuDNN)",
        None,
        {"simt_fp32": True, "precision": "fp32"},
    ),
    (
        "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int)",
        "conv",
        "convolution (cuDNN)",
        None,
        {"simt_fp32": True},
    ),
    (
        "void cudnn::cnn::wgrad2d_grouped_direct_kernel<false, true, int, float, float, float>(T)",
        "conv",
        "convolution (cuDNN)",
        None,
        {},
    ),
    (
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(T)",
        "conv",
        "convolution (cuDNN)",
        None,
        {"simt_fp32": True},
    ),
    (
        "void implicit_convolve_sgemm<__half, __half, 1024, 5, 5, 3, 3, 3, 1, false>(T)",
        "conv",
        "convolution (cuDNN)",
        None,
        {"precision": "fp16"},
    ),
    (
        "void im2col4d_kernel<float, int>(im2col4d_params, cudnnTensor4dStruct)",
        "conv",
        "convolution (cuDNN)",
        None,
        {},
    ),
    ("void cask__5x_cudnn::computeOffsetsKernel<false, false>(T)", "conv", "convolution (cuDNN)", None, {}),
    (
        "void cudnn::ops::scalePackedTensor_kernel<float, float>(long, float*, float)",
        "elementwise",
        "elementwise",
        None,
        {},
    ),
    ("void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*)", "reduction", "loss", None, {}),
    ("void CUTENSOR_NAMESPACE::permutationKernelPLC3<T>(T)", "copy", "copy / layout change", None, {}),
    (
        "void gemmSN_TN_kernel<float, 128, 16, 2, cublasGemvTensorStridedBatched<float>>(T)",
        "gemm",
        "skinny",
        None,
        {"simt_fp32": True},
    ),
    (
        "void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, false>(T)",
        "gemv",
        "gemvNSP",
        None,
        {"simt_fp32": True},
    ),
    ("void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float>>>(T)", "gemv", "dot", None, {}),
    ("void cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8_blockwise<...>>(T)", "gemm", "FP8", None, {}),
    ("void deep_gemm::fp8_gemm_kernel<4096u, 7168u>(T)", "gemm", "DeepGEMM", None, {}),
    ("void marlin::Marlin<__half, 256, 1, 8>(int4 const*)", "gemm", "Marlin", None, {}),
    ("void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>(int)", "gemv", "4-bit", None, {}),
    ("void mul_mat_vec_q<(ggml_type)12, 1, false>(void const*)", "gemv", "llama.cpp", None, {}),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN", "gemm", "AMD", None, {}),
    ("triton_mm_kernel_0", "gemm", "Inductor", None, {}),
    (
        "bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x256u2_sm100f",
        "gemm",
        "batched",
        None,
        {"precision": "fp8", "arch": "sm100"},
    ),
    # attention
    (
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(T)",
        "attention",
        "split-KV",
        "decode",
        {},
    ),
    (
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(T)",
        "attention",
        "combine",
        "decode",
        {},
    ),
    (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>(T)",
        "attention",
        "FlashAttention",
        "prefill",
        {},
    ),
    (
        "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<...>>>(T)",
        "attention",
        "FlashAttention",
        None,
        {"arch": "sm90"},
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x128_1x4x1",
        "attention",
        "decode attention (cuDNN",
        "decode",
        {"arch": "sm80"},
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1",
        "attention",
        "prefill attention (cuDNN",
        "prefill",
        {"arch": "sm90"},
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x64_4x1x1",
        "attention",
        "attention (cuDNN SDPA)",
        None,
        {},
    ),
    (
        "void cudnn::fusion::lean_reduction_kernel<false, false, false>(void*, float*)",
        "attention",
        "combine",
        "decode",
        {},
    ),
    (
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(AttentionKernel::Params)",
        "attention",
        "memory-efficient",
        None,
        {"arch": "sm80"},
    ),
    (
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        "attention",
        "prefill",
        "prefill",
        {"arch": "sm100"},
    ),
    (
        "fmhaSm100aKernel_QkvBfloat16OBfloat16H128PagedKvDenseP32MultiCtasKvQ8Kv128Generation",
        "attention",
        "decode",
        "decode",
        {},
    ),
    (
        "void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<unsigned short>(T)",
        "attention",
        "decode",
        "decode",
        {},
    ),
    ("void vllm::paged_attention_v2_kernel<__nv_bfloat16, 128>(T)", "attention", "paged", "decode", {}),
    ("kernel_unified_attention_2d", "attention", "unified", None, {}),
    ("_fwd_grouped_kernel_stage1", "attention", "decode attention (Triton)", "decode", {}),
    (
        "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576>>(T)",
        "attention",
        "MLA",
        "decode",
        {},
    ),
    ("fused_recurrent_gated_delta_rule_fwd_kernel", "attention", "linear", None, {}),
    # key/value cache
    (
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char>(T)",
        "kv_cache",
        "vLLM",
        None,
        {},
    ),
    ("void (anonymous namespace)::store_kvcache<2048l, 4, false, long>(T)", "kv_cache", "SGLang", None, {}),
    ("create_flashinfer_kv_indices_triton", "kv_cache", "page table", None, {}),
    (
        ATEN + "index_elementwise_kernel<128, 4, at::native::index_copy_kernel_impl<T>>(long)",
        "kv_cache",
        "index_copy",
        None,
        {},
    ),
    # communication
    (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "communication",
        "NCCL AllReduce",
        None,
        {},
    ),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "communication", "NCCL SendRecv", None, {}),
    ("ncclSymDevKernel_AllReduce_RSxLD_AGxST", "communication", "NCCL", None, {}),
    (
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(T)",
        "communication",
        "multimem",
        None,
        {},
    ),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(T)", "communication", "custom", None, {}),
    (
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<T>(T)",
        "communication",
        "fused with norm",
        None,
        {},
    ),
    ("void two_shot_all_reduce_kernel<c10::BFloat16>(T)", "communication", "one/two shot", None, {}),
    ("void deep_ep::internode_ll::dispatch<true, 7168>(void*)", "communication", "DeepEP", None, {}),
    # experts
    ("fused_moe_kernel", "moe", "expert GEMM", None, {}),
    ("void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>(T)", "moe", "routing", None, {}),
    (
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_swiGlu_dynBatch_sm100f",
        "moe",
        "expert GEMM",
        None,
        {"precision": "fp4"},
    ),
    ("void moe::dev::finalize::finalizeKernelVecLoad<T>(T)", "moe", "combine", None, {}),
    (
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<"
        "cutlass::gemm::GroupProblemShape<T>>>(T)",
        "moe",
        "grouped",
        None,
        {},
    ),
    # norm, activation, rotary embedding, quantisation
    ("void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(T)", "norm", "RMSNorm", None, {}),
    ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(T)", "norm", "residual add", None, {}),
    (
        ATEN + "<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)1>(int)",
        "norm",
        "RMSNorm (ATen)",
        None,
        {},
    ),
    (
        ATEN + "<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int)",
        "norm",
        "LayerNorm",
        None,
        {},
    ),
    (
        ATEN + "reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(T)",
        "norm",
        "mean",
        None,
        {},
    ),
    ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", "norm", "Inductor", None, {}),
    (
        "void vllm::act_and_mul_kernel<c10::BFloat16, silu_kernel<c10::BFloat16>>(T)",
        "activation",
        "x gate",
        None,
        {},
    ),
    (ATEN + SILU, "activation", "SiLU", None, {}),
    ("triton_poi_fused_mul_silu_3", "activation", "Inductor", None, {}),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(T)", "rope", "rotary", None, {}),
    (
        "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(T)",
        "quantise",
        "activations",
        None,
        {},
    ),
    (
        ATEN + "vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(T)>(int)",
        "quantise",
        "FP8",
        None,
        {},
    ),
    # sampling, softmax, scan, index, copy, the rest of ATen
    (
        ATEN + "reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(T)",
        "sampling",
        "argmax",
        None,
        {},
    ),
    (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(T)",
        "softmax",
        "softmax",
        None,
        {},
    ),
    (
        ATEN + "(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(T)",
        "softmax",
        "softmax",
        None,
        {},
    ),
    (ATEN + "sbtopk::gatherTopK<float, unsigned int, 2, false>(T)", "scan_sort", "top-k", None, {}),
    ("void at_cuda_detail::cub::DeviceRadixSortSingleTileKernel<T>(T)", "scan_sort", "sort", None, {}),
    ("void at_cuda_detail::cub::detail::scan::DeviceScanKernel<T>(T)", "scan_sort", "scan", None, {}),
    ("_chunk_scan_fwd_kernel", "scan_sort", "Mamba", None, {}),
    (ATEN + "vectorized_gather_kernel<16, long>(char*, char*, long*)", "index", "gather", None, {}),
    (
        ATEN + "(anonymous namespace)::CatArrayBatchedCopy<T, unsigned int, 4, 64, 64>(T)",
        "copy",
        "concatenate",
        None,
        {},
    ),
    (
        ATEN + "unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(T)::{lambda()#3}>(T)",
        "copy",
        "copy",
        None,
        {},
    ),
    (
        ATEN + "vectorized_elementwise_kernel<8, at::native::FillFunctor<c10::BFloat16>>(int)",
        "memset",
        "fill",
        None,
        {},
    ),
    (ATEN + MUL, "elementwise", "multiply", None, {}),
    (
        ATEN + "reduce_kernel<512, 1, at::native::func_wrapper_t<float, sum_functor<float>>>(T)",
        "reduction",
        "sum",
        None,
        {},
    ),
    (
        ATEN + "(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdam>()",
        "optimizer",
        "optimiser",
        None,
        {},
    ),
    (
        "void split_embedding_codegen_forward_unweighted_kernel<float>(fbgemm_gpu::T)",
        "embedding",
        "FBGEMM",
        None,
        {},
    ),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_"
        "alignc4_execute_kernel__5x_cublas",
        "gemm",
        "",
        None,
        {"arch": "sm80", "simt_fp32": True, "precision": "fp32"},
    ),
    (
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x32x64_stage3_warpsize2x2x1_tensor16x8x8_"
        "ffma_execute_kernel_cublas",
        "gemm",
        "",
        None,
        {"arch": "sm80", "precision": "tf32"},
    ),
    (
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, "
        "cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)",
        "attention",
        "",
        None,
        {"arch": "sm80", "precision": "fp32"},
    ),
    (
        "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nchw_tilesize128x128x32",
        "conv",
        "cuDNN",
        None,
        {"arch": "sm80"},
    ),
    ("saxpy(double *, double *, double *, double, int)", "elementwise", "elementwise", None, {}),
    ("my_unheard_of_thing", "other", "other", None, {}),
]


@pytest.mark.parametrize(
    ("name", "family", "operation", "phase", "traits"), KERNELS, ids=[k[0][:60] for k in KERNELS]
)
def test_kernel_name(
    name: str, family: str, operation: str, phase: str | None, traits: dict[str, object]
) -> None:
    found = knowledge.kernel_families().classify([name])[0]
    assert (found.family, found.phase) == (family, phase), found
    assert operation in found.operation
    assert traits.items() <= dict(found.traits).items()
    assert ("simt_fp32" in traits) == ("simt_fp32" in found.traits)


def test_classify_keeps_order_and_repeats() -> None:
    names = ["ampere_sgemm_128x64_tn", "fused_moe_kernel", "ampere_sgemm_128x64_tn"]
    found = knowledge.kernel_families().classify(names)
    assert [f.family for f in found] == ["gemm", "moe", "gemm"]
    assert found[0].sm == 80
    assert found[1].sm is None
    assert knowledge.kernel_families().classify([]) == []


def test_every_family_has_a_pattern_and_the_last_catches_all() -> None:
    data = load(data_dir("knowledge") / "kernel_families.yaml", KernelFile)
    assert len({e.family for e in data.kernels}) == 23
    assert data.kernels[-1].family == "other"
    assert re.search(data.kernels[-1].match[0], "")
    assert all("" not in e.match for e in data.kernels[:-1])
    for entry in data.kernels:
        if "{1}" in entry.operation:
            assert all(re.compile(p).groups == 1 for p in entry.match)


def test_an_operation_belongs_to_one_family() -> None:
    data = load(data_dir("knowledge") / "kernel_families.yaml", KernelFile)
    seen: dict[str, str] = {}
    for entry in data.kernels:
        assert seen.setdefault(entry.operation, entry.family) == entry.family, entry.operation


# text of the range, kind, phase, requests in context, requests in generation
STEPS = [
    ("iteration 3", "loop", None, None, None),
    ("decode_step", "pass", "decode", None, None),
    ("decode step 7", "pass", "decode", None, None),
    ("prefill", "pass", "prefill", None, None),
    ("execute_context_2(512)_generation_0(0)", "pass", "prefill", 2, 0),
    ("execute_context_0(0)_generation_16(16)", "pass", "decode", 0, 16),
    ("execute_context_1(256)_generation_16(16)", "pass", "mixed", 1, 16),
    ("execute_context_1(888_788544)_generation_0(0)", "pass", "prefill", 1, 0),
    ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32)", "pass", "decode", 0, 32),
    ("execute_context_0(0)_generation_0(0)", "pass", None, 0, 0),
    ("execute_new_3_cached_0", "pass", "prefill", 3, 0),
    ("execute_new_0_cached_5", "pass", "decode", 0, 5),
    ("gpu_model_runner: forward", "pass", None, None, None),
    ("[Executor] _forward_step 12: 0 ctx reqs, 8 gen tokens", "pass", "decode", 0, 8),
    ("[Executor] _forward_step 13: 2 ctx reqs, 8 gen reqs", "pass", "mixed", 2, 8),
    ("[Executor] _forward_step 14: 1 ctx reqs, 900 ctx tokens, 0 gen reqs", "pass", "prefill", 1, 0),
    ("[Executor] _forward_step: 1 ctx reqs, 0 gen reqs", "pass", "prefill", 1, 0),
    ("_forward_step", "pass", None, None, None),
    ("step[DECODE bs=32]", "pass", "decode", None, None),
    ("step[EXTEND bs=15 toks=15360]", "pass", "prefill", None, None),
    ("step[MIXED bs=2]", "pass", "mixed", None, None),
    ("step[VERIFY bs=8]", "pass", "decode", None, None),
    ("step[DRAFT bs=8]", "pass", "decode", None, None),
    ("scheduler.run_batch", "pass", None, None, None),
    ("forward_cudagraph", "pass", None, None, None),
    ("ProfilerStep#6", "loop", None, None, None),
    ("Forward", "pass", None, None, None),
    ("step 4", "loop", None, None, None),
    ("Step 4", "loop", None, None, None),
    ("generate_step", "pass", "decode", None, None),
]


@pytest.mark.parametrize(("text", "kind", "phase", "context", "generation"), STEPS)
def test_step_range(
    text: str, kind: str, phase: str | None, context: int | None, generation: int | None
) -> None:
    found = knowledge.step_patterns().step(text)
    assert found is not None
    assert (found.kind, found.phase) == (kind, phase)
    assert (found.context, found.generation) == (context, generation)
    assert knowledge.step_patterns().role(text) is None


def test_numbers_in_step_ranges() -> None:
    patterns = knowledge.step_patterns()
    vllm = patterns.step("execute_context_1(256)_generation_16(16)")
    sglang = patterns.step("step[EXTEND bs=15 toks=15360]")
    trtllm = patterns.step("[Executor] _forward_step 14: 1 ctx reqs, 900 ctx tokens, 0 gen reqs")
    assert vllm is not None
    assert sglang is not None
    assert trtllm is not None
    assert (vllm.engine, vllm.tokens, vllm.generation_tokens) == ("vllm", 256, 16)
    assert (sglang.engine, sglang.batch, sglang.tokens) == ("sglang", 15, 15360)
    assert (trtllm.engine, trtllm.number, trtllm.tokens) == ("tensorrt-llm", 14, 900)


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("Python GC", "gc"),
        ("garbage collection gen 2", "gc"),
        ("gc.collect()", "gc"),
        ("Waiting for GIL", "gil_wait"),
        ("Holding GIL", "gil_hold"),
        ("_prepare_tp_inputs", "preparation"),
        ("_prepare_inputs", "preparation"),
        ("schedule", "preparation"),
        ("gpu_model_runner: preprocess", "preparation"),
        ("sample", "sampling"),
        ("load_model", "startup"),
        ("Warm-up Step 3", "startup"),
        ("[model|resnet|warmup|forward]", "startup"),
        ("kernel_warmup", "startup"),
        ("GPU warming", "startup"),
    ],
)
def test_role_of_range(text: str, role: str) -> None:
    assert knowledge.step_patterns().role(text) == role
    assert knowledge.step_patterns().step(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "aten::mul, op_id = 3",
        "GIL Trace",
        "generate",
        "cub::DeviceScan::InclusiveScan",
        "Backward",
        "ncclGroupEnd",
        "lr_warmup",
        "LinearWarmup",
        "warmup_scheduler",
        "steady, after warmup",
        "MPI_Send",
        "scaled dot product attention",
        "",
        "gcd",
        "resample_poly",
    ],
)
def test_other_ranges_mean_nothing(text: str) -> None:
    assert knowledge.step_patterns().step(text) is None
    assert knowledge.step_patterns().role(text) is None


@pytest.mark.parametrize(
    ("name", "expected", "gb_per_s", "sms"),
    [
        ("NVIDIA H200", "H200 SXM", 4800, 132),
        ("NVIDIA H200 NVL", "H200 NVL", 4800, 132),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 3350, 132),
        ("NVIDIA H100 PCIe", "H100 PCIe", 2039, 114),
        ("NVIDIA H800", "H800 SXM", 3350, 132),
        ("NVIDIA A800-SXM4-80GB", "A800 80 GB SXM", 2039, 108),
        ("NVIDIA A800 80GB PCIe", "A800 80 GB PCIe", 1935, 108),
        ("A100-SXM-80GB", "A100 80 GB SXM", 2039, 108),
        ("NVIDIA L20", "L20", 864, 92),
        ("NVIDIA RTX A5000", "RTX A5000", 768, 64),
        ("NVIDIA H100 NVL", "H100 NVL", 3938, 132),
        ("NVIDIA GH200 480GB", "GH200 96 GB", 4000, 132),
        ("NVIDIA B200", "B200", 8000, 148),
        ("NVIDIA GB200", "GB200", 8000, None),
        ("NVIDIA B300 SXM6 AC", "B300", 8000, 148),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB SXM", 2039, 108),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB SXM", 1555, 108),
        ("NVIDIA A100 80GB PCIe", "A100 80 GB PCIe", 1935, 108),
        ("NVIDIA A10G", "A10G", 600, 80),
        ("NVIDIA A10", "A10", 600, 72),
        ("NVIDIA L40S", "L40S", 864, 142),
        ("NVIDIA L4", "L4", 300, 58),
        ("Tesla T4", "T4", 320, 40),
        ("Tesla V100-SXM2-32GB", "V100 SXM", 900, 80),
        ("NVIDIA GeForce RTX 5070 Ti", "RTX 5070 Ti", 896, 70),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", 1008, 128),
        ("NVIDIA GeForce RTX 4090 D", "RTX 4090 D", 1008, 114),
        ("NVIDIA GeForce RTX 4080 SUPER", "RTX 4080 SUPER", 736, 80),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER", 672, 66),
        ("NVIDIA GeForce RTX 4070 SUPER", "RTX 4070 SUPER", 504, 56),
        ("NVIDIA GeForce RTX 4070", "RTX 4070", 504, 46),
        ("NVIDIA GeForce RTX 4060 Ti", "RTX 4060 Ti", 288, 34),
        ("NVIDIA GeForce RTX 4060", "RTX 4060", 272, 24),
        ("NVIDIA GeForce RTX 5070", "RTX 5070", 672, 48),
        ("NVIDIA GeForce RTX 5060 Ti", "RTX 5060 Ti", 448, 36),
        ("NVIDIA GeForce RTX 5060", "RTX 5060", 448, 30),
        ("NVIDIA GeForce RTX 5050", "RTX 5050", 320, 20),
        ("NVIDIA RTX 5000 Ada Generation", "RTX 5000 Ada", 576, 100),
        ("NVIDIA RTX 4500 Ada Generation", "RTX 4500 Ada", 432, 60),
        ("NVIDIA RTX 4000 Ada Generation", "RTX 4000 Ada", 360, 48),
        ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 SFF Ada", 280, 48),
        ("NVIDIA RTX PRO 4500 Blackwell", "RTX PRO 4500 Blackwell", 896, 82),
        ("NVIDIA RTX PRO 4000 Blackwell", "RTX PRO 4000 Blackwell", 672, 70),
        ("NVIDIA RTX PRO 2000 Blackwell", "RTX PRO 2000 Blackwell", 288, 34),
        ("NVIDIA H800 PCIe", "H800 PCIe", 2039, 114),
        ("NVIDIA TITAN RTX", "TITAN RTX", 672, 72),
        (
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "RTX PRO 6000 Blackwell Max-Q",
            1792,
            188,
        ),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell", 1792, 188),
        ("NVIDIA RTX PRO 5000 Blackwell", "RTX PRO 5000 Blackwell", 1344, 110),
        ("AMD Instinct MI300X", "MI300X", 5300, 304),
        ("AMD Instinct MI355X", "MI355X", 8000, 256),
        ("AMD Instinct MI455X", "MI455X", 23300, None),
        ("NVIDIA VR200", "Rubin (VR200)", 22000, None),
    ],
)
def test_gpu(name: str, expected: str, gb_per_s: float, sms: int | None) -> None:
    found = gpus.gpu(name)
    assert found is not None
    assert (found.name, found.dram_gb_per_s, found.sm_count) == (expected, gb_per_s, sms)


def test_unknown_gpus_have_no_peaks() -> None:
    for name in (None, "", "NVIDIA H900", "AMD Instinct MI300A", "NVIDIA Thor", "Orin"):
        assert gpus.gpu(name) is None


@pytest.mark.parametrize(
    ("name", "precision"),
    [("nvjet_sm103_oos_128x64_256x3_1x2_h_bz_TNT", "fp4"), ("nvjet_tss_128x64_64x8_2x1_v_bz_TNT", "bf16")],
)
def test_the_letters_of_nvjet_tell_the_operands(name: str, precision: str) -> None:
    assert knowledge.kernel_families().classify([name])[0].traits["precision"] == precision


@pytest.mark.parametrize(
    ("name", "sm_count", "expected"),
    [
        ("Orin", 16, "Jetson AGX Orin 64 GB"),
        ("Orin (nvgpu)", 16, "Jetson AGX Orin 64 GB"),
        ("Orin", 8, None),
        ("NVIDIA Thor", 20, "Jetson T5000"),
        ("NVIDIA Thor", 12, None),
    ],
)
def test_boards_that_share_a_name_are_known_by_their_sms(
    name: str, sm_count: int, expected: str | None
) -> None:
    found = gpus.gpu_of(Device(id=0, name=name, sm_count=sm_count))
    assert (found and found.name) == expected


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((10, 7), "Rubin (VR200)"), ((10, 3), None), (None, None)],  # of 10.3 there are two
)
def test_a_board_that_its_driver_cannot_name_is_known_by_its_capability(
    capability: tuple[int, int] | None, expected: str | None
) -> None:
    device = Device(id=0, name="NVIDIA Graphics Device", compute_capability=capability)
    found = gpus.gpu_of(device)
    assert (found and found.name) == expected


def test_the_cache_that_the_device_reports_is_believed_first() -> None:
    sizes = [gpus.l2_bytes(Device(id=0, name="NVIDIA B200", l2_bytes=n)) for n in (133_000_000, None)]
    assert sizes == [133_000_000, 126.5 * 2**20]
    assert gpus.l2_bytes(Device(id=0, name="NVIDIA H900")) is None


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("AMD Instinct MI325X", {"fp16": 1307.4, "fp8": 2614.9, "fp32": 163.4}),
        ("AMD Instinct MI355X", {"fp16": 2500, "fp8": 5000, "fp4": 10_100, "fp32": 157.3}),
    ],
)
def test_matrix_rates_of_amd(name: str, rates: dict[gpus.Precision, float]) -> None:
    found = gpus.gpu(name)
    assert found is not None
    assert {p: (found.flop_per_s(p) or 0) / 1e12 for p in rates} == pytest.approx(rates)


def test_rates_follow_from_sms_and_clock() -> None:
    """Ordinary cores of an SM: 64 multiply and add in a cycle (Volta, Turing, A100), 128 later."""
    for spec in gpus.gpus():
        if spec.sm and spec.sm_count and spec.fp32_tflops and spec.clock_mhz and spec.sm != 90:
            lanes = 64 if spec.sm < 86 else 128
            assert spec.fp32_tflops == pytest.approx(2e-6 * lanes * spec.sm_count * spec.clock_mhz, rel=0.03)


@pytest.mark.parametrize(
    ("name", "reported", "peak"),
    [
        ("NVIDIA B200", 7.672e12, 7.672e12), ("NVIDIA H200", 4.9e12, 4.8e12), ("NVIDIA H200", None, 4.8e12),
        ("Orin", 204.8e9, 204.8e9), ("NVIDIA H20-3e", None, None),
    ],
)  # fmt: skip
def test_peak_bandwidth_is_the_lower_of_device_and_datasheet(
    name: str, reported: float | None, peak: float | None
) -> None:
    assert gpus.dram_peak(Device(id=0, name=name, bandwidth_bytes_per_s=reported)) == peak


#: Names as nvidia-smi prints them, of GPUs that stand beside one that is known.
NEIGHBOURS = """
    NVIDIA H20-3e
    NVIDIA H100 80GB HBM3 MIG 1g.10gb
    NVIDIA A100-SXM4-40GB MIG 3g.20gb
    NVIDIA GeForce RTX 5090 D
    NVIDIA GeForce RTX 5090 Laptop GPU
    NVIDIA GeForce RTX 5080 Laptop GPU
    NVIDIA GeForce RTX 5070 Ti Laptop GPU
    NVIDIA GeForce RTX 5070 Laptop GPU
    NVIDIA GeForce RTX 5060 Laptop GPU
    NVIDIA GeForce RTX 4090 Laptop GPU
    NVIDIA GeForce RTX 4080 Laptop GPU
    NVIDIA GeForce RTX 4070 Laptop GPU
    NVIDIA GeForce RTX 4060 Laptop GPU
    NVIDIA GeForce RTX 3090 Ti
    NVIDIA GeForce RTX 3070 Ti Laptop GPU
    NVIDIA GeForce RTX 3060 Ti
    NVIDIA GeForce RTX 3060 Laptop GPU
    NVIDIA RTX A5000 Laptop GPU
    NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU
    NVIDIA RTX PRO 5000 72GB Blackwell
    NVIDIA RTX PRO 4000 Blackwell SFF Edition
    NVIDIA RTX PRO 4000 Blackwell Generation Laptop GPU
    NVIDIA RTX 5000 Ada Generation Laptop GPU
    NVIDIA RTX 4000 Ada Generation Laptop GPU
    NVIDIA RTX 2000 Ada Generation
    Quadro RTX 6000
    Quadro RTX 5000
    NVIDIA A2
    NVIDIA A16
    NVIDIA L2
    NVIDIA T400
    NVIDIA T1000
    NVIDIA RTX A4000
    NVIDIA TITAN V
"""


@pytest.mark.parametrize("name", [line.strip() for line in NEIGHBOURS.strip().splitlines()])
def test_a_gpu_is_not_taken_for_its_faster_neighbour(name: str) -> None:
    assert gpus.gpu(name) is None


@pytest.mark.parametrize(
    ("board", "like"),
    [
        ("RTX 5070", "RTX 5080"),
        ("RTX 4060 Ti", "RTX 4090"),
        ("RTX 5000 Ada", "RTX 6000 Ada"),
        ("RTX PRO 5000 Blackwell", "RTX PRO 6000 Blackwell"),
    ],
)
def test_tensor_cores_of_a_family_have_the_same_rate_per_sm_and_clock(board: str, like: str) -> None:
    """Against the ordinary cores, whose rate per SM and clock is one in all of them."""
    by_name = {spec.name: spec for spec in gpus.gpus()}
    ours, theirs = by_name[board], by_name[like]
    for precision, rate in theirs.tensor_tflops.items():
        assert ours.fp32_tflops
        assert theirs.fp32_tflops
        ratio = ours.tensor_tflops[precision] / ours.fp32_tflops
        assert ratio == pytest.approx(rate / theirs.fp32_tflops, rel=0.01)


@pytest.mark.parametrize(("name", "tflops"), [("NVIDIA B300", 13_500), ("NVIDIA GB300", 15_000)])
def test_blackwell_ultra_has_a_peak_for_fp4(name: str, tflops: float) -> None:
    gpu = gpus.gpu(name)
    assert gpu is not None
    assert gpu.flop_per_s("fp4") == tflops * 1e12


def test_gpu_units_are_plausible() -> None:
    for spec in gpus.gpus():
        assert 1e11 <= spec.dram_bytes_per_s <= 2.5e13
        assert spec.source.startswith(("NVIDIA", "AMD") if spec.sm is None else "NVIDIA")
        dense = spec.tensor_tflops.get("fp16")
        assert dense is None or 20 <= dense <= 5000
        if dense is not None and (fp8 := spec.tensor_tflops.get("fp8")) is not None:
            later = spec.name in ("Rubin (VR200)", "MI455X")  # built for narrow types above all
            assert 4 <= fp8 / dense <= 4.4 if later else fp8 / dense == pytest.approx(2, rel=0.05)
        assert (spec.pcie_generation is None) == (spec.htod_bytes_per_s is None)
    ours = gpus.gpu("NVIDIA H200")
    assert ours is not None
    assert ours.fp32_tflops == pytest.approx(66.9)
    assert "fp4" not in ours.tensor_tflops


def test_every_entry_says_what_it_looks_at() -> None:
    families = load(data_dir("knowledge") / "kernel_families.yaml", KernelFile)
    assert all(entry.match or entry.words for entry in families.kernels)
    for evidence in (e for workload in workload_knowledge().workloads for e in workload.evidence):
        given = {"families": evidence.families, "structure": evidence.where}
        assert given.get(evidence.kind, evidence.match)


def test_every_option_has_a_line_and_a_known_action() -> None:
    titles = load(data_dir("knowledge") / "actions.yaml", ActionFile).titles
    assert titles.keys() <= recommendation_ids()
    assert set(engines()) >= {
        "any",
        "native",
        "nim",
        "pytorch",
        "sglang",
        "tensorrt-llm",
        "tgi",
        "transformers",
        "vllm",
    }
    for name, engine in engines().items():
        assert engine.options.keys() <= actions().keys()
        assert engine.name == name
        assert engine.base is None or engine.base in engines()
        for lines in engine.options.values():
            assert all(line.line.strip() == line.line for line in lines), name
            assert all(line.since for line in lines if line.before is not None), name
            assert all(release(line.until) for line in lines if line.until is not None), name
        if name != "any":
            assert {"fusion", "memory", "batching", "prefix_sharing", "attention"} == set(engine.traits)


def test_every_recommendation_of_our_rules_is_listed() -> None:
    """So that `rules check` can tell a slip from advice of the user's own."""
    rules = shipped_rules().active
    used = {r.id for rule in rules for r in (*rule.recommendations, *rule.alternatives)}
    assert used == recommendation_ids()


def test_a_key_that_appears_twice_is_refused(tmp_path: Path) -> None:
    """YAML lets the last one win: the first list of options would be lost without a word."""
    path = tmp_path / "engine.yaml"
    path.write_text("options:\n  a: [1]\n  b: [2]\n  a: [3]\n", encoding="utf-8")
    with pytest.raises(AdvisorError, match=r"engine\.yaml:4: the key `a` appears twice"):
        parsed(path)


def test_an_engine_without_a_program_is_planned_as_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new engine is one file; nothing else has to change for `advisor capture`."""
    known = engines()
    new = known["vllm"].replaced(name="newcomer", base="pytorch")
    alone = known["any"].replaced(name="alone", base=None)
    monkeypatch.setattr(
        "advisor.knowledge.verb_files.engines", lambda: {**known, "newcomer": new, "alone": alone}
    )
    goals = capture_goals()
    assert goals.engine_names()[-2:] == ["newcomer", "alone"]
    assert goals.program("newcomer") == goals.programs["pytorch"]
    assert goals.program("alone") == goals.programs["any"]


def test_every_action_can_be_carried_out_somewhere() -> None:
    for action in actions():
        assert any(options_for(action, name) for name in engines()), action


def test_options_of_the_engine_in_use() -> None:
    vllm = options_for("enable-cuda-graphs", "vllm")
    assert 1 <= len(vllm) <= 3
    assert {o.engine for o in vllm} == {"vllm"}
    assert "--enforce-eager" in vllm[0].line
    assert "cuda_graph_config" in options_for("enable-cuda-graphs", "tensorrt-llm")[0].line
    assert 'mode="reduce-overhead"' in options_for("enable-cuda-graphs", "transformers")[0].line
    assert any("--kv-cache-dtype" in o.line for o in options_for("fp8-kv-cache", "sglang"))


def test_options_fall_back_to_the_library_and_then_to_any_engine() -> None:
    assert {o.engine for o in options_for("pin-memory", "transformers")} == {"pytorch"}
    assert options_for("pin-memory", "vllm") == ()
    assert {o.engine for o in options_for("multi-process-service", "vllm")} == {"any"}
    assert {o.engine for o in options_for("graph-node-trace", None)} == {"any"}
    assert {o.engine for o in options_for("graph-node-trace", "unheard-of")} == {"any"}
    assert options_for("no-such-action", "vllm") == ()


def test_no_option_that_the_kernels_show_in_use() -> None:
    def lines(*kernels: str) -> str:
        return " ".join(o.line for o in options_for("fused-kernels", "pytorch", Program(kernels=kernels)))

    eager = lines("void at::native::elementwise_kernel<128, 4>", "ampere_sgemm_128x64_tn")
    assert "scaled_dot_product_attention" in eager
    assert "rms_norm" in eager
    assert "torch.compile" in eager
    used = lines("pytorch_flash::flash_fwd_kernel<...>", "rmsnorm_kernel", "triton_poi_fused_add_1")
    assert used == ""


def test_no_option_that_the_command_gives() -> None:
    def lines(command: str) -> list[str]:
        return [o.line for o in options_for("fp8-weights", "vllm", Program(command=command))]

    assert any("--quantization fp8" in line for line in lines("vllm serve m --quantization fp8_x"))
    assert not any("--quantization fp8" in line for line in lines("vllm serve m --quantization fp8"))


OF_A_RELEASE = {
    "always": [{"line": "--batch"}],
    "renamed": [{"line": "--new", "since": "0.5.14", "before": "--old", "note": "so many"}],
    "added": [{"line": "--added", "since": "0.5.14"}, {"line": "--plain"}],
    "removed": [{"line": "--gone", "until": "0.5.9"}, {"line": "--plain"}],
    "elsewhere": [{"line": "call()", "since": "CUDA 11.8"}],
}


@pytest.mark.parametrize(
    ("action", "version", "expected"),
    [
        ("renamed", None, ["--new  # so many; before 0.5.14: --old"]),
        ("renamed", "0.5.9", ["--old  # so many"]),
        ("renamed", "0.5.14", ["--new  # so many"]),
        ("renamed", "0.10", ["--new  # so many"]),
        ("added", None, ["--added", "--plain"]),
        ("added", "0.5.13", ["--plain"]),
        ("added", "0.5.14.post1", ["--added", "--plain"]),
        ("removed", None, ["--plain"]),
        ("removed", "0.5.9", ["--gone", "--plain"]),
        ("removed", "0.5.10", ["--plain"]),
        ("elsewhere", "0.1", ["call()"]),
    ],
)
def test_options_are_spelled_for_the_release_of_the_engine(
    action: str, version: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EngineData.from_data({"schema": 1, "name": "any", "title": "E", "options": OF_A_RELEASE})
    monkeypatch.setattr(
        "advisor.knowledge.engine_signs.engines", lambda: {"any": engine, "e": engine.replaced(name="e")}
    )
    assert [o.line for o in options_for(action, "e", version=version)] == expected


def test_the_release_that_the_user_names() -> None:
    assert named("sglang@0.5.20")[::3] == ("sglang", "0.5.20")
    assert named("vllm@v0.11.0").version == "0.11.0"
    assert named("vllm").version is None
    for wrong in ("unheard-of@1.0", "vllm@", "vllm@latest"):
        with pytest.raises(InputError, match="--serving-engine"):
            named(wrong)


@pytest.mark.parametrize(
    ("command", "version"),
    [
        ("docker run vllm/vllm-openai:v0.11.0 --model m", "0.11.0"),
        ("uv run --with sglang==0.5.20 python -m sglang.launch_server", "0.5.20"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0 trtllm-serve m", "1.2.0"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc5 trtllm-serve m", "1.3.0"),
        ("lmsysorg/sglang:v0.5.5.post3-cu129 python3 -m sglang.launch_server", "0.5.5"),
        ("uvx --with sglang[all]==0.5.5 sglang serve", "0.5.5"),
        ("/opt/vllm-0.12.0/bin/vllm serve m", "0.12.0"),
        ("/root/envs/vllm0.11.2/bin/python -m vllm.entrypoints.openai.api_server", "0.11.2"),
        ("docker run nvcr.io/nim/meta/llama-3.1-8b-instruct:1.12.0", "1.12.0"),
        ("docker run nvcr.io/nvidia/tritonserver:25.08-py3 tritonserver", "25.08"),
        ("docker run ghcr.io/huggingface/text-generation-inference:3.3.7 --model-id m", "3.3.7"),
        ("docker run nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.7.0 python -m dynamo.vllm", "0.7.0"),
        ("docker run vllm/vllm-openai:latest --model m", None),
        ("/opt/vllm/lib/python3.12/site-packages/vllm/entrypoints -m vllm.entrypoints", None),
        ("vllm serve vllm-2.7b", None),
    ],
)
def test_the_release_that_a_command_line_tells(command: str, version: str | None) -> None:
    assert detect({}, [], command).version == version


def test_options_fit_the_program() -> None:
    def lines(language_model: bool | None) -> str:
        found = options_for("pin-memory", "pytorch", Program(language_model))
        return " ".join(o.line for o in found)

    assert "DataLoader" in lines(None)
    assert "DataLoader" in lines(False)
    assert "DataLoader" not in lines(True)


def test_the_six_capture_variables_of_tensorrt_llm() -> None:
    assert [c.variable for c in engines()["tensorrt-llm"].capture] == [
        "TLLM_PROFILE_START_STOP",
        "TLLM_LLMAPI_ENABLE_NVTX",
        "TLLM_NVTX_DEBUG",
        "TLLM_PROFILE_RECORD_GC",
        "TLLM_TORCH_PROFILE_TRACE",
        "ENABLE_PERFECT_ROUTER",
    ]


MUL_NAME = ATEN + MUL


@pytest.mark.parametrize(
    ("kernels", "ranges", "command", "engine"),
    [
        ({MUL_NAME: 5.0}, ["iteration 1"], None, "pytorch"),
        ({MUL_NAME: 5.0}, ["generate"], None, "transformers"),
        ({MUL_NAME: 5.0}, ["generate_data"], None, "pytorch"),
        ({MUL_NAME: 5.0, "void vllm::rms_norm_kernel<T>(T)": 1.0}, [], None, "vllm"),
        ({MUL_NAME: 5.0}, ["execute_context_0(0)_generation_16(16)"], None, "vllm"),
        ({"void vllm::rms_norm_kernel<T>(T)": 1.0}, ["step[DECODE bs=4]"], None, "sglang"),
        # FlashInfer ships kernels of TensorRT-LLM.
        (
            {
                "void vllm::rms_norm_kernel<T>(T)": 1.0,
                "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<T>(T)": 2.0,
                "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64VarSeqQ8Kv128": 5.0,
                "kernel_mha": 5.0,
            },
            [],
            None,
            "vllm",
        ),
        ({}, ["[Executor] _forward_step 3: 0 ctx reqs, 8 gen reqs"], None, "tensorrt-llm"),
        ({}, [], ["trtllm-bench", "--model", "m", "throughput"], "tensorrt-llm"),
        ({}, [], "python -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ({}, [], "python3 -m sglang.launch_server --model-path m", "sglang"),
        ({}, [], "text-generation-launcher --model-id m", "tgi"),
        ({}, [], "/opt/nim/start_server.sh", "nim"),
        ({"void gemvx::kernel<T>(T)": 1.0}, [], "cargo run -r --bin bench_serving", "native"),
        ({"silu_mul_fused_kernel": 1.0, "FusedAddRMSNormKernel": 1.0}, [], None, "native"),
        ({"void mul_mat_vec_q<(ggml_type)12>(T)": 1.0}, [], None, "native"),
        ({"saxpy(double *)": 1.0}, ["MPI_Send"], ["./saxpy"], None),
        ({}, [], None, None),
    ],
)
def test_detect(
    kernels: dict[str, float], ranges: list[str], command: str | list[str] | None, engine: str | None
) -> None:
    found = detect(kernels, ranges, command)
    assert found.name == engine
    assert 0.0 <= found.confidence <= 1.0
    assert (found.confidence > 0) == (engine is not None) == bool(found.evidence)


def test_detect_is_surer_with_more_evidence_and_says_what_it_saw() -> None:
    ranges = ["execute_context_0(0)_generation_16(16)"]
    some = detect({MUL_NAME: 5.0}, ranges, None)
    more = detect({MUL_NAME: 5.0, "void vllm::rms_norm_kernel<T>(T)": 5.0}, ranges, "vllm serve m")
    assert more.confidence > some.confidence
    assert any(text.startswith("command: vllm serve") for text in more.evidence)
    assert any("50 % of kernel time" in text for text in more.evidence)
    assert detect(((n, t) for n, t in {MUL_NAME: 5.0}.items()), ranges, None) == some


def test_capture_knowledge_speaks_of_our_tables() -> None:
    capture = knowledge.capture_knowledge()
    supplied = {table for flag in capture.flags for table in flag.supplies}
    assert supplied <= TABLES.keys()
    assert {
        "kernels",
        "ranges",
        "samples",
        "graph_runs",
        "allocations",
        "callchains",
        "host_calls",
        "host_samples",
        "events",
    } <= supplied


def _cited(node: object, key: str = "") -> set[str]:
    """Reference ids in a rule file: `source` of parameters and `references` of the docs."""
    if isinstance(node, dict):
        return set().union(*(_cited(value, str(name)) for name, value in node.items()), set())
    if isinstance(node, list):
        return set().union(*(_cited(value, key) for value in node), set())
    return {node.partition("#")[0]} if key in ("source", "references") else set()  # type: ignore[attr-defined]


def test_every_reference_cited_exists() -> None:
    known = knowledge.references()
    assert all(known[key].id == key and known[key].title for key in known)
    assert {p.source for p in knowledge.capture_knowledge().pitfalls} <= known.keys()
    rules = [p for p in data_dir("rules").glob("**/*.yaml") if ".cases." not in p.name]
    for path in rules:
        cited = _cited(yaml.safe_load(path.read_text(encoding="utf-8")))
        assert cited <= known.keys(), f"{path.name}: {sorted(cited - known.keys())}"


def test_step_engines_exist() -> None:
    texts = [text for text, *_ in STEPS]
    named = {s.engine for t in texts if (s := knowledge.step_patterns().step(t)) and s.engine}
    assert named == {"vllm", "sglang", "tensorrt-llm", "lmdeploy"}
    assert named <= engines().keys()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schema: 1\ngpus: [{name: A, match: ['('], source: x, sm: 90, dram_gb_per_s: 500}]", "bad pattern"),
        (
            "schema: 1\ngpus: [{name: A, match: [A], source: x, sm: 90, dram_gb_per_s: 5}]",
            "gpus.0.dram_gb_per_s",
        ),
        ("schema: 1\ngpus: [{name: A, match: [A], source: x, sm: 90, dram: 500}]", "gpus.0.dram"),
        ("schema: 2\ngpus: []", "schema"),
        ("schema: [", "not valid YAML"),
    ],
)
def test_a_faulty_file_is_a_clear_error(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(AdvisorError, match=re.escape(says)) as caught:
        load(path, gpus.GpuFile)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="cannot be read"):
        load(tmp_path / "none.yaml", gpus.GpuFile)


def test_folders_are_found() -> None:
    assert (data_dir("knowledge") / "kernel_families.yaml").is_file()
    assert data_dir("rules").is_dir()


def test_loading_needs_no_pandas() -> None:
    code = (
        "import sys; from advisor.knowledge import engine_signs;"
        "from advisor.knowledge import files as knowledge;"
        "knowledge.kernel_families(); engine_signs.engines(); knowledge.references();"
        "assert not {'pandas', 'numpy', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


#: What current releases refuse: the server does not start, or the call raises.
REFUSED = {
    "sglang": (
        "--enable-piecewise-cuda-graph",
        "--cuda-graph-max-bs ",
        "--cuda-graph-bs ",
        "sglang.bench_one_batch",
    ),
    "transformers": ('TorchAoConfig("',),
    "vllm": ("--cuda-graph-sizes", "--num-scheduler-steps"),
}


@pytest.mark.parametrize("engine", REFUSED)
def test_no_option_that_current_releases_refuse(engine: str) -> None:
    options = engines()[engine].options.values()
    lines = [line.line for lines in options for line in lines if line.until is None]
    program = capture_goals().programs[engine]
    lines += [program.serve, program.benchmark, program.load]
    assert [r for r in REFUSED[engine] for line in lines if r in line] == []


def test_no_flag_is_demanded_whose_rows_nothing_reads() -> None:
    assert not any("nvml" in f.flag for f in knowledge.capture_knowledge().flags)
    remedies = [remedy(spec, frozenset(TABLES)) or "" for spec in CATALOGUE.values()]
    assert not any("nvml" in text for text in remedies)
    assert "%n" not in "".join(f.note or "" for f in knowledge.capture_knowledge().flags)
