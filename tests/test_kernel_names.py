"""A kernel is known by its function's own name: whole words, no parameters, no return types."""

from __future__ import annotations

import re

import pytest
import yaml

from advisor.knowledge.files import kernel_families
from advisor.knowledge.kernel_names import function_name, words
from advisor.knowledge.package_data import data_dir
from tests.test_patterns import texts_in, valid

ATEN = "void at::native::vectorized_elementwise_kernel<4, at::native::"


@pytest.mark.parametrize(
    ("name", "own", "arguments"),
    [
        ("saxpy(float*, curandState*)", "saxpy", ""),
        ("void ns::Solver<int>::run<3>(float const*)", "ns::Solver::run", "int, 3"),
        (
            "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, float>(T13)",
            "internal::gemvx::kernel",
            "int, float",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, 10>(float*)",
            "softmax_warp_forward",
            "float, 10",
        ),
        ("void at::native::<unnamed>::silu_kernel(at::TensorIteratorBase &)", "at::native::silu_kernel", ""),
        (
            "elementwise_kernel<(int)128, ns::run(float (*)(int))::[lambda(T1) (instance 1)]>(int)",
            "elementwise_kernel",
            "(int)128, ns::run::[lambda (instance 1)]",
        ),
        ("_Z9vectorAddPKfS0_Pfi", "vectorAdd", ""),
        ("_Z4initP17curandStateXORWOWi", "init", ""),
        ("_ZN12_GLOBAL__N_15scaleEPff", "scale", ""),
        (
            "_ZN2at6native27unrolled_elementwise_kernelILi4ENS0_11FillFunctorIfEELb1EEEviT0_",
            "at::native::unrolled_elementwise_kernel",
            "FillFunctor",
        ),
        (
            "kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensorptrbf16gmem",
            "kernel_cutlass_kernel_quackrmsnormRMSNorm",
            "",
        ),
        ("attn_fwd.kd", "attn_fwd", ""),
        ("a<<<b(", "a", "<<b"),
        ("_Z", "_Z", ""),
        ("", "", ""),
    ],
)
def test_own_name_and_template_arguments(name: str, own: str, arguments: str) -> None:
    assert tuple(function_name(name)) == (own, arguments)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("FusedAddRMSNormKernel", "fused_add_rms_norm_kernel"),
        ("moeA2ADispatchKernel", "moe_a2a_dispatch_kernel"),
        ("topKPerRowDecode", "top_k_per_row_decode"),
        ("sgemm1DBlocktiling", "sgemm1d_blocktiling"),
        ("quantize_q8_1", "quantize_q8_1"),
        ("ns::act_and_mul", "ns_act_and_mul"),
    ],
)
def test_words_of_snake_and_camel_case(name: str, expected: str) -> None:
    assert words(name) == expected


# What a name holds as a fragment, a parameter or a return type says nothing.
MISLEADING = [
    ("trace_rays(float3*, curandStateXORWOW*)", "other"),
    ("_ZN3app5paintEP17curandStateXORWOWi", "other"),
    ("update_particles(RMSNormParams, flash::Params)", "other"),
    ("std::conditional<true, gemm_t, void>::type advance<int>(int)", "other"),
    ("solve_step<nccl_traits, softmax_t>(float*)", "other"),
    ("assembleResidual(double*)", "other"),
    ("computeResidualNorms2(double*)", "other"),
    ("_plan_prefill_offsets_kernel", "other"),
    ("overfill_guard(int*)", "other"),
    ("uniform_grid_build(float*)", "other"),
    ("topology_update(int*)", "other"),
    ("reconvert_units(float*)", "other"),
    ("_grouped_gemma_rmsnorm_kernel", "norm"),
    ("triton_w4a16_gemm_kernel", "gemm"),
    ("_hc_broadcast_kernel", "elementwise"),
    ("_qsa_mqa_paged_uniform_kernel", "attention"),
    ("_vllm_fa2_C::varlen_fwd", "attention"),
    ("_vllm_fa3_C::fwd", "attention"),
    ("flash_attn_2_cuda::varlen_fwd", "attention"),
    ("sgl_kernel::fwd", "attention"),
    ("vllm::silu_mul_fp8_quant_deep_gemm_kernel<c10::Float8_e4m3fn>(int)", "activation"),
    ("fused_sigmoid_gating_delta_rule_update_kernel", "attention"),
    ("void quantize_mmq_q8_1<(mmq_q8_1_ds_layout)0>(float const*)", "quantise"),
    ("_ZN5aiter45fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256E", "moe"),
    ("_ZN5aiter28flatmm_uk_gfx9_f16f8_128x256E", "gemm"),
    ("at::native::some_new_kernel<at::native::FillFunctor<float>>(int)", "other"),
    ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_", "memset"),
    (
        f"{ATEN}BinaryFunctor<long, long, bool, at::native::CompareEqFunctor<long>>, "
        "at::native::memory::LoadWithoutCast>(int)",
        "elementwise",
    ),
]

# Names of engines as of 2026 that stand for many of their kind.
CURRENT = [
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, (deep_gemm::GemmType)0, 128u>(T)", "gemm"),
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, (deep_gemm::GemmType)2, 128u>(T)", "moe"),
    ("void deep_gemm::sm90_fp8_mqa_logits<32u, 128u>(T)", "attention"),
    ("void deep_gemm::transpose_and_pack_fp32_into_ue8m0<512u>(T)", "quantise"),
    ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_rgTma_clmp_dynB_sm100f", "moe"),
    ("_p_matmul", "moe"),
    ("batched_triton_kernel", "moe"),
    ("compute_src2dst_triton_kernel", "moe"),
    ("_sm120_router_top22_kernel", "moe"),
    ("transform_index_page_table_decode_kernel", "kv_cache"),
    ("minimax_decode_topk_page_table_kernel", "scan_sort"),
    ("hicache_relayout_kernel", "kv_cache"),
    ("fused_store_flashmla_cache", "kv_cache"),
    ("seg_la_d_kernel", "attention"),
    ("_paged_decode_split_kernel", "attention"),
    ("_finalize_accept_lens_kernel", "sampling"),
    ("reconstructIndicesFromTreeMask", "sampling"),
    ("add_tree_reduce_u64_kernel", "reduction"),
    ("norm_scale_shift_kernel", "norm"),
    ("residual_gate_add_vec_kernel", "elementwise"),
    ("compute_widened_draft_extend_locs_positions_kernel", "index"),
    ("triton_tem_fused__grouped_mm_7", "moe"),
    ("topk_sigmoid_triton_kernel", "moe"),
    ("fused_new_routing_kernel_topk4", "moe"),
    ("chunk_scaled_dot_kkt_fwd_kernel", "attention"),
    ("recompute_w_u_fwd_kernel", "attention"),
    ("merge_16x16_to_64x64_inverse_kernel", "attention"),
    ("kda_gate_fwd_kernel", "attention"),
    ("fused_gdn_gating_kernel", "attention"),
    ("solve_tril_16x16_kernel", "attention"),
    ("chunk_local_cumsum_scalar_kernel", "attention"),
    ("gqa_decode_flash_decoding_stage1", "attention"),
    ("attn_fwd.kd", "attention"),
    ("void lightning_indexer_kernel_f16<64>(half const*)", "attention"),
    ("_bmm_chunk_fwd_kernel", "scan_sort"),
    ("void ssm_scan_f32<128, 4>(float const*)", "scan_sort"),
    ("void ssm_conv_f32<false, 128, 4>(float const*)", "conv"),
    ("_triton_mrope_forward", "rope"),
    ("kernel_cake_blackwell_bf16_fp4_01269af369b6ca2f265f", "gemm"),
    ("kernel_cake_grouped_fp8_gemm_0244c42d588c7898347e", "moe"),
    ("kernel_cake_sm90_bf16_megamoe_fc1_gated", "moe"),
    ("kernel_cake_deepgemm_mega_gate_094f5a3c7afdfc448778", "moe"),
    ("kernel_cake_dsv4_0472b891257529a5f102", "attention"),
    ("kernel_cake_vsa_sm90_01292822ce588fb86dd4", "attention"),
    ("kernel_cake_mega_mhc_078e89653dee8bca9319", "elementwise"),
    ("kernel_cake_gdp_068a895d0c8fa77ed2f9", "attention"),
    ("kernel_cake_mhc_det_train_fwd_map__ns96_g2_ol2l_ct", "gemm"),
    ("kernel_cake_mhc_train_bwd_slab_atomic__dynr__h5120", "gemm"),
    ("kernel_cake_mhc_det_train_fn_split__dual", "copy"),
    ("kernel_cake_mhc_train_fwd_coef__st8_lp2", "elementwise"),
    ("kernel_cake_mhc_det_train_bwd_token__ao15_rae8_tma_ntr", "elementwise"),
    ("kernel_cake_mhc_det_train_head_fwd", "elementwise"),
    ("kernel_cake_lm_head_loss_09ef1e4bd18f200203e8", "gemm"),
    ("kernel_cake_warp_decode_4352a5beff13b20b2912", "moe"),
    ("kernel_dsv4_e256_route_pack", "moe"),
    ("kernel_dsv4_fc2_terminal_recycle_v21_sm100", "moe"),
    ("void cake::dsv4_nvfp4::decode_pv<16>(CUtensorMap)", "attention"),
    ("void flashinfer::comm::dcp::FusedKernel<__nv_bfloat16, 8>(int)", "communication"),
    ("(anonymous namespace)::CsfExpandKernel(unsigned char const*)", "copy"),
    ("checkpointing_ssu_kernel", "scan_sort"),
    ("store_publish_dedup_fp8_kernel", "communication"),
    ("chunk_dplr_fwd_kernel_h", "attention"),
    ("_chunk_scan_fwd_kernel", "scan_sort"),
    ("_chunk_cumsum_fwd_kernel", "scan_sort"),
    ("prepare_wy_repr_fwd_kernel_chunk64", "attention"),
    ("parallel_nsa_fwd_kernel", "attention"),
    ("_fused_qk_rope_cat_and_cache_mla_kernel", "kv_cache"),
    ("_rope_kernel_cached_thd_2c_gqa_fwd", "rope"),
    ("void aiter::kn_entry_2c_sbhd_cached_indirect2_inplace<OpCachedFwd>(int)", "rope"),
    ("_bwd_kernel_split_dkdv_causal", "attention"),
    ("tgmm_persistent_kernel", "moe"),
    ("pa_prefill_16mx8_32nx1_fp8_kernel", "attention"),
    ("dsa_v32_decode_16mx8_32nx1_fp8_kernel", "attention"),
    ("_fused_dsa_decode_metadata_kernel", "index"),
    ("void wv_splitk_small_fp16_bf16_kernel<half>(half const*)", "gemv"),
    ("operator_bcast_big_tile_kernel", "elementwise"),
    ("mix_sample_outer_exponential_kernel", "sampling"),
    ("_fused_qkvzba_split_reshape_cat_decode_kernel", "copy"),
    ("void unary_op_kernel<&op_silu, float>(float const*)", "elementwise"),
    ("ggml_cuda_ar_kernel", "communication"),
    ("_gate_up_lora_b_kernel", "gemm"),
    ("void k_set_rows<float, long>(float const*)", "kv_cache"),
    ("void k_get_rows_float<float, float>(void const*)", "index"),
    ("void cpy_scalar<&(cpy_1_scalar<float, half>(char const*, char*))>(char const*)", "copy"),
    ("void mm_ids_helper<8>(int const*)", "moe"),
    ("void unary_gated_op_kernel<&(op_silu(float)), float>(float const*)", "activation"),
    ("__amd_rocclr_copyBuffer", "copy"),
    ("void hadacore::hadamard_transform_kernel<8, 2>(T)", "quantise"),
    ("a2a_dispatch_send_kernel", "communication"),
    ("_min_p_kernel", "sampling"),
    ("_topk_log_softmax_kernel", "sampling"),
    ("_combine_sampled_and_draft_tokens_kernel", "speculation"),
    ("_get_num_sampled_and_rejected_kernel", "speculation"),
    ("_post_update_kernel", "index"),
    ("loop_add_multiply_fusion_3", "elementwise"),
    ("input_reduce_fusion_2", "reduction"),
    ("wrapped_convert", "copy"),
    ("mosaic_gpu_kernel", "other"),
    ("void mysgemm_v4<256>(int, int, float*)", "gemm"),
    ("matrixMulCUDA(float*, float*)", "gemm"),
    ("vectorAdd(float const*, float const*, float*, int)", "elementwise"),
    ("convolutionRowsKernel(float*, float*)", "conv"),
    ("_router_kernel", "moe"),
    ("_eplb_map_and_record_i32_kernel", "moe"),
    ("_index_block_score_kernel", "attention"),
    ("_decode_index_score_kernel", "attention"),
    ("_qsa_merge_splitk_kernel", "attention"),
    ("_kpool_decode_update_batched_kernel", "attention"),
    ("_zero_kv_blocks_kernel", "kv_cache"),
    ("_reshape_cache_int4_kernel", "kv_cache"),
    ("_store_nvfp4_kv_kernel", "kv_cache"),
    ("_insert_index_cache_kernel", "kv_cache"),
    ("_replayssm_output_only_kernel", "scan_sort"),
    ("do_shrink_kernel", "gemm"),
    ("_direct_gate_expand_kernel", "gemm"),
    ("_bad_words_kernel", "sampling"),
    ("_apply_grammar_bitmask_kernel", "sampling"),
    ("_topp_sb_step_kernel", "sampling"),
    ("_prompt_logprobs_token_ids_kernel", "sampling"),
    ("_resample_kernel", "sampling"),
    ("_draft_step_kernel", "sampling"),
    ("sample_recovered_tokens_kernel", "sampling"),
    ("_seq_metadata_kernel", "index"),
    ("_expand_page_indices_kernel", "index"),
    ("_shift_input_ids_kernel", "index"),
    ("_expand_idx_mapping_kernel", "index"),
    ("loop_add_fusion", "elementwise"),
    ("fused_addcmul_fwd_kernel", "elementwise"),
    ("softcap_f32", "elementwise"),
    ("_upcast_logits_kernel", "copy"),
    ("nhwc_padding_channel_3To4_kernel", "copy"),
    ("usp_merge_heads_vec_kernel", "copy"),
    ("logsumexp_fwd_kernel", "reduction"),
    ("logcumsumexp_fwd_kernel", "scan_sort"),
    ("_fp8_index_kernel", "attention"),
    ("_flash_prefill_fwd_kernel", "attention"),
    ("_router_bf16x3_kernel", "moe"),
    ("_fused_noaux_tc_kernel", "moe"),
    ("build_decode_schedule_gpu_kernel", "index"),
    ("_one_block_barrier_kernel", "communication"),
    # What a name of its own does not settle is unknown.
    ("_matmul", "other"),
    ("main_kernel", "other"),
    ("_kernel", "other"),
    ("launch_kernel", "other"),
    ("_accept_kernel", "other"),
    ("_expand_kernel_grid", "other"),
    ("random_acceptance_mc(double*)", "other"),
]


SERVING = [
    ("_markov_sample_partial_kernel", "sampling"),
    ("void at::native::(anonymous namespace)::grid_sampler_2d_kernel<float, int>(int)", "index"),
    ("void at::native::(anonymous namespace)::grid_sampler_3d_backward_kernel<float, int>(int)", "index"),
    ("plan_compress_prefill_kernel_1", "index"),
    ("_prefill_schedule_prep_kernel", "index"),
    ("_pack_qkv_destination_major_kernel", "copy"),
    ("cat_pad_flat_kernel", "copy"),
    ("_zero_pages_kernel", "memset"),
    ("online_c128_mtp_clear_all_pending_kernel", "memset"),
    ("mean_kernel", "reduction"),
    ("_square_fp32_kernel", "elementwise"),
    ("_bias_glu_kernel", "activation"),
    ("_mxfp8_linear_kernel", "gemm"),
    ("_score_kernel", "other"),  # of what, the name does not say
    ("void flashinfer::MergeStatesLargeNumIndexSetsKernel<8, 32, 4>(__nv_bfloat16*)", "attention"),
    ("void flashinfer::MergeStateInPlaceKernel<8, __half>(__half*)", "attention"),
    ("void tensorrt_llm::kernels::perTokenQuantization<__nv_fp8_e4m3>(T)", "quantise"),
    ("void scale_1x128_kernel<__nv_bfloat16>(T)", "quantise"),
    ("_minimax_qk_var_kernel", "norm"),
    ("_engram_select_rows_kernel", "embedding"),
    ("_engram_unpack_fp8_kernel", "embedding"),
    ("_hy4_ihc_post_kernel", "elementwise"),
    ("_ihc_post_kernel", "elementwise"),
    ("void vllm::swigluoai_and_mul_kernel<c10::BFloat16>(T)", "activation"),
    (
        "void flashinfer::PersistentKernelTemplate<flashinfer::BlockBatchPagedAttentionPersistent<"
        "flashinfer::KernelTraits<(flashinfer::MaskMode)1>>, flashinfer::BlockBatchReductionPersistent>(T)",
        "attention",
    ),
    (
        "kernel_cutlass_kernel_flashinfergemmkernelsdense_blockscaled_gemm_sm100"
        "Sm100BlockScaledPersistentDenseGemmKernel_object_at__tensorptrf4E2M1FN",
        "gemm",
    ),
    # The same class, in the module of masked groups.
    (
        "kernel_cutlass_kernel_flashinfergemmkernelsgrouped_gemm_masked_blackwell"
        "Sm100BlockScaledPersistentDenseGemmKernel_object_at__tensorptrf4E2M1FN",
        "moe",
    ),
    ("kernel_cutlass_kernel_quackgrouped_gemma_rmsnormRMSNorm_object_at__tensorptrbf16gmem", "norm"),
    ("_candidate_lse_partials_kernel", "speculation"),
    ("_candidate_block_scores_kernel", "attention"),
    ("spin_wait_kernel", "communication"),
    ("_combine_kernel", "other"),
]


@pytest.mark.parametrize(("name", "family"), MISLEADING + CURRENT + SERVING, ids=lambda v: str(v)[:60])
def test_family_by_the_own_name(name: str, family: str) -> None:
    found = kernel_families().classify([name])[0]
    assert found.family == family, found


def test_the_number_at_the_end_of_a_name_decides_nothing() -> None:
    """Names that differ in it alone share one answer: no pattern may tell them apart."""
    patterns = yaml.safe_load((data_dir("knowledge") / "kernel_families.yaml").read_text())
    texts = {*texts_in(patterns)}
    texts |= {rf"(?:^|_)(?:{text})\d*(?=_|$)" for text in texts}  # as words of a name
    stems = ["triton_poi_fused_add", *(words(name) for name, _ in (MISLEADING + CURRENT + SERVING)[::8])]
    for text in sorted(filter(valid, texts)):
        search = re.compile(text).search
        for stem in stems:
            found = {bool(search(f"{stem}_{number}")) for number in (0, 80, 1234)}
            assert len(found) == 1, (text, stem)


def test_symmetric_nccl_kernels_keep_their_kind() -> None:
    found = kernel_families().classify(["ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)"])
    assert found[0].operation == "NCCL AllGather"


def test_forward_of_flash_attention_4_serves_both_phases_and_its_combine_decode() -> None:
    forward, combine = kernel_families().classify(
        [
            "kernel_cutlass_kernel_flash_attncuteflash_fwdFlashAttentionForwardSm90_object_at__x",
            "kernel_cutlass_kernel_flash_attncuteflash_fwd_combineFlashAttentionForwardCombine_object_",
        ]
    )
    assert (forward.family, forward.phase) == ("attention", None)
    assert (combine.family, combine.phase) == ("attention", "decode")


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(T1::Params)", "tf32"),
        (
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x128_16x6>(int)",
            "tf32",
        ),
        (
            "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(T1::Params)",
            "bf16",
        ),
        ("void cutlass::Kernel<cutlass_75_tensorop_s1688gemm_f16_256x128_nn_align8>(T1::Params)", "fp16"),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "fp16"),
    ],
)
def test_products_of_fp32_operands_on_tensor_cores_are_in_tf32(name: str, precision: str) -> None:
    (found,) = kernel_families().classify([name])
    assert found.traits["precision"] == precision
