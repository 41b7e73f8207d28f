"""What kind of program was captured: the kinds, the unknown, the framework, and the phases."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from advisor.knowledge.engine_signs import workload_knowledge
from advisor.metrics.loaded.workload import (
    CUDA_CPP,
    DIFFUSION,
    LANGUAGE_MODEL,
    MICRO_BENCHMARK,
    TRAINING,
    UNKNOWN,
    Judgement,
    WorkloadSigns,
    judge,
    printed,
)
from advisor.metrics.profiled.stage import measure
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.kineto_builder import Profile
from tests.metrics.support import analysis
from tests.scenarios.machine import (
    ADD,
    DECODE_ATTENTION,
    DECODE_LAYER,
    GEMM,
    GEMV,
    MUL,
    NORM,
    PREFILL_ATTENTION,
    SILU,
    Kernel,
    Machine,
)

ATEN = "void at::native::(anonymous namespace)::"
LAYER_NORM = Kernel(f"{ATEN}vectorized_layer_norm_kernel<float, float>(int, float)")
GROUP_NORM = Kernel(f"{ATEN}RowwiseMomentsCUDAKernel<c10::Half>(long, float)")
GELU = Kernel("void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>(int)")
RELU = Kernel("void at::native::vectorized_elementwise_kernel<4, launch_clamp_scalar>(int)")
CONV = Kernel("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32")
DGRAD = Kernel("sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc")
BATCH_NORM = Kernel("void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float)")
POOL = Kernel(f"{ATEN}max_pool_forward_nchw<float, float>(int, float const*)")
UPSAMPLE = Kernel(f"{ATEN}upsample_bilinear2d_out_frame<c10::BFloat16, float>(int, float)")
EMBEDDING_BAG = Kernel(
    "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, false>(float)"
)
ATEN_BAG = Kernel(f"{ATEN}EmbeddingBag_updateOutputKernel_sum_mean<float, long>(long const*)")
ADAM = Kernel(
    "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>"
)
NLL = Kernel(f"{ATEN}nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)", 1)
WGRAD = Kernel("void at::native::batch_norm_backward_kernel<float, float, float, int>(int)")
FAN = Kernel("Fan2(float *, float *, float *, int, int, int)")
OFFLOADED = Kernel("nvkernel_solve_F1L204_2")
VECTOR_ADD = Kernel("vectorAdd(int *, int *, int *, int)")
SGEMM = Kernel("ampere_sgemm_128x64_tn")

VIT = [(CONV, 5), *[(LAYER_NORM, 2), (GEMM, 20), (PREFILL_ATTENTION, 10), (GELU, 3)] * 4]
RESNET = [(CONV, 20), (BATCH_NORM, 5), (RELU, 2)] * 6 + [(POOL, 3)]
UNET = [(CONV, 20), (GROUP_NORM, 5), (SILU, 2), (GEMM, 9), (PREFILL_ATTENTION, 10)] * 4
BERT = [
    (Kernel(f"void onnxruntime::contrib::cuda::{name}"), us)
    for name, us in (
        ("EmbedLayerNormKernel<__half, 256u>(int)", 5), ("AddBiasTransposeQKV<__half>(int)", 4),
        ("MaskedSoftmaxKernel<__half, 256u>(int)", 8), ("FastGeluKernel2<4>(__half2)", 5),
        ("SkipLayerNormKernelSmall<__half, 192u, 4>(__half*)", 4),
    )
]  # fmt: skip
MLP = [(GEMM, 5), (RELU, 2), (ADD, 2), (GEMM, 5), (MUL, 3)] * 2


def passes(kernels: list[tuple[Kernel, float]], count: int = 6, name: str = "") -> Machine:
    """So many passes of these kernels, each in a range where `name` is given."""
    m = Machine()
    for i in range(count):
        if name:
            with m.step(f"{name} {i}"):
                m.layers(1, kernels)
                m.wait()
        else:
            m.layers(1, kernels)
            m.wait()
    return m


SCENES = {
    "decode in named steps": ("LLM decode", passes([*DECODE_LAYER] * 8, name="decode_step")),
    "decode without a range": ("LLM decode", passes([*DECODE_LAYER] * 8)),
    "prefill in named steps": (
        "LLM prefill",
        passes([(NORM, 5), (GEMM, 80), (PREFILL_ATTENTION, 40)] * 8, name="prefill"),
    ),
    "prefill without a range": (
        "LLM prefill",
        passes(
            [
                (NORM, 5),
                (GEMM, 80),
                (PREFILL_ATTENTION, 40),
                (SILU, 9),
                (ADD, 5),
                (Kernel("reshape_and_cache_flash_kernel", 2048), 3),
            ]
            * 8
        ),
    ),
    "training by its kernels": ("training", passes([(CONV, 9), (RELU, 2), (WGRAD, 9), (ADAM, 8)] * 4)),
    "training of a language model": (
        "training",
        passes([*DECODE_LAYER, (WGRAD, 9), (ADAM, 8)] * 4, name="train_step"),
    ),
    "a loss and an update, products alone between them": (
        "training",
        passes([*[(NORM, 8), (GEMM, 40), (SILU, 5)] * 4, (NLL, 8), *[(GEMM, 40)] * 16, (ADAM, 8)]),
    ),
    "a test of a language model by its loss": (
        "LLM prefill",
        passes([*[(NORM, 5), (GEMM, 80), (PREFILL_ATTENTION, 40), (SILU, 9)] * 8, (NLL, 8)], name="prefill"),
    ),
    "a diffusion model": ("diffusion inference", passes(UNET)),
    "denoising steps": ("diffusion inference", passes([(GEMM, 9), (ADD, 3)] * 8, name="denoise_step")),
    "a vision transformer": ("vision or encoder inference", passes(VIT)),
    "a convolutional network": ("vision or encoder inference", passes(RESNET)),
    "a segmentation model with transposed convolutions": (
        "vision or encoder inference",
        passes([*VIT, (DGRAD, 9), (UPSAMPLE, 9)]),
    ),
    "an encoder of text under ONNX Runtime": (
        "vision or encoder inference",
        passes([BERT[0], *[(GEMM, 20), *BERT[1:3], (GEMM, 20), *BERT[3:]] * 4]),
    ),
    "a decoder of text under ONNX Runtime": (
        "unknown",
        passes([BERT[0], *[(GEMV, 20), *BERT[1:3], (GEMV, 20), *BERT[3:]] * 4]),
    ),
    "a recommendation model of FBGEMM": ("recommendation inference", passes([(EMBEDDING_BAG, 20), *MLP])),
    "a recommendation model of PyTorch": ("recommendation inference", passes([(ATEN_BAG, 20), *MLP])),
    "a solver of two kernels": (
        "simulation or HPC loop",
        passes([(FAN, 3), (ADD._replace(name="Fan1(float *, float *, int, int)"), 3)], 200),
    ),
    "a heat equation": ("simulation or HPC loop", passes([(FAN, 3)], 200, name="diffusion step")),
    "a loop over time steps": ("simulation or HPC loop", passes([(FAN, 3)], 200, name="timestep")),
    "particles that interact": ("simulation or HPC loop", passes([(FAN, 3)], 200, name="interactions")),
    "an offloaded loop": ("simulation or HPC loop", passes([(OFFLOADED, 500)], 50)),
    "one vector sum": ("micro-benchmark", passes([(VECTOR_ADD, 50)], 3)),
    "one product, often": ("micro-benchmark", passes([(SGEMM, 50)], 200)),
    "a few operators of PyTorch": ("unknown", passes(MLP)),
}


@pytest.mark.parametrize("scene", SCENES)
def test_the_workload_of(scene: str, tmp_path: Path) -> None:
    wanted, script = SCENES[scene]
    a = analysis(script.export, tmp_path)
    assert a.workload == wanted
    assert (a.program.confidence > 0) == (wanted != "unknown")
    if not wanted.startswith("LLM"):
        assert set(a.steps.phase) <= {"unknown"}  # phases are for language models


def test_serving_has_steps_of_both_phases(tmp_path: Path) -> None:
    m = Machine()
    for i in range(8):
        with m.step(f"execute_context_{i % 2}(64)_generation_8(8)"):
            m.layers(8)
    assert analysis(m.export, tmp_path).workload == "LLM serving"


def test_a_capture_without_kernels(tmp_path: Path) -> None:
    e = Export().gpu().process(1).call("cudaMalloc", 0, 1_000)
    assert analysis(e, tmp_path).workload == "no GPU kernels"


@pytest.mark.parametrize(
    ("kernel", "framework"),
    [
        (FAN.name, "cuda-c++"),
        (ADD.name, "pytorch"),
        ("triton_poi_fused_add_0", "pytorch"),
        ("loop_add_fusion_3", "jax"),
        ("void tensorflow::functor::FillPhiloxRandomKernel<float>(int)", "tensorflow"),
        ("__myl_AddResMulCast_0x8f1", "tensorrt"),
    ],
)
def test_the_framework_that_launched_the_kernels(kernel: str, framework: str, tmp_path: Path) -> None:
    assert analysis(passes([(Kernel(kernel), 5)]).export, tmp_path).program.framework == framework


# ------------------------------------------------------------------------------- evidence


def test_modules_of_python_are_evidence(tmp_path: Path) -> None:
    p = Profile().gpu().process(100)
    for i, module in enumerate(("ViTModel", "ViTLayer", "Linear")):
        p.python(f"nn.Module: {module}_{i}", i * 10_000, 9_000)
        p.launch(
            at=i * 10_000, dur=3_000, kernel=GEMM.name, kernel_start=i * 10_000 + 5_000, kernel_dur=2_000
        )
    trace = open_trace(p.write(tmp_path / "trace.json"))
    assert trace.capture.modules == ("Linear", "ViTLayer", "ViTModel")
    assert measure(trace).workload == "vision or encoder inference"


def test_operators_of_emit_nvtx_are_no_ranges_of_the_program(tmp_path: Path) -> None:
    """A mask that an operator fills says nothing about vision; its backward operator says all."""
    m = passes(MLP, name="step")
    m.export.range("aten::masked_fill, op_id = 7, sizes = [[4, 8]]", 0, 1_000)
    assert analysis(m.export, tmp_path).workload == "unknown"
    m.export.range("AddmmBackward0, seq = 8, op_id = 9", 0, 1_000)
    (tmp_path / "more").mkdir()
    assert analysis(m.export, tmp_path / "more").workload == "training"


def test_communication_does_not_hide_the_model() -> None:
    seen = WorkloadSigns(families={"moe": 0.3, "kv_cache": 0.01}, kernels={"fused_moe_kernel": 0.3})
    assert judge(seen, workload_knowledge()).is_language_model


def test_kinds_of_evidence_that_agree_raise_the_confidence() -> None:
    known = workload_knowledge()
    by_kernels = WorkloadSigns(kernels={WGRAD.name: 0.2, ADAM.name: 0.1})
    by_all = WorkloadSigns(
        kernels=by_kernels.kernels,
        ranges=("Optimizer.step#AdamW.step",),
        operators=("autograd::engine::evaluate_function: AddmmBackward0",),
    )
    assert judge(by_kernels, known).confidence < judge(by_all, known).confidence <= 1


def test_a_rival_lowers_the_confidence() -> None:
    known = workload_knowledge()
    alone, rivalled = WorkloadSigns(modules=("ViTModel",)), WorkloadSigns(modules=("ViTModel", "UNet2DModel"))
    assert judge(alone, known).kind == "vision or encoder inference"
    assert judge(rivalled, known).confidence < judge(alone, known).confidence
    assert judge(WorkloadSigns(), known) == Judgement("unknown", 0.0, "unknown")


@pytest.mark.parametrize(
    ("decode_ms", "wanted"), [(99, "LLM decode"), (50, "LLM serving"), (1, "LLM prefill")]
)
def test_a_language_model_is_named_by_the_time_of_its_phases(decode_ms: int, wanted: str) -> None:
    model = Judgement("language-model", 0.9, "pytorch")
    assert printed(model, ("prefill", "decode"), np.array([100 - decode_ms, decode_ms])) == wanted


# ------------------------------------------------------------------------------- phases

EXPERTS = Kernel("fused_moe_kernel")


def steps(layer: list[tuple[Kernel, float]], layers: int = 8) -> Machine:
    """Steps whose ranges tell no phase."""
    return passes(layer * layers, name="iteration")


@pytest.mark.parametrize("batch", [1, 64, 256])
def test_a_decode_step_of_any_batch_is_decode(batch: int, tmp_path: Path) -> None:
    """Large batches take wide products, and attention that fills the GPU without splitting."""
    product = GEMV if batch == 1 else GEMM
    for i, attention in enumerate((DECODE_ATTENTION, PREFILL_ATTENTION)):
        layer = [
            (NORM._replace(blocks=batch), 2.0),
            (product, 9.0),
            (attention._replace(blocks=batch * 8), 4.0),
            (SILU, 2.0),
        ]
        (tmp_path / str(i)).mkdir()
        assert set(analysis(steps(layer).export, tmp_path / str(i)).steps.phase) == {"decode"}


def test_decode_of_a_mixture_of_experts_is_no_prefill(tmp_path: Path) -> None:
    layer = [(NORM._replace(blocks=64), 2), (GEMM, 5), (DECODE_ATTENTION, 4), (EXPERTS, 30)]
    assert set(analysis(steps(layer).export, tmp_path).steps.phase) == {"decode"}


def test_more_tokens_than_sequences_fit_are_a_prompt(tmp_path: Path) -> None:
    """Engines with a paged cache read prompts with the kernel that splits keys and values, too."""
    layer = [(NORM._replace(blocks=2048), 5), (GEMM, 50), (DECODE_ATTENTION, 20), (SILU, 5)]
    assert set(analysis(steps(layer).export, tmp_path).steps.phase) == {"prefill"}


def test_norms_of_each_head_do_not_count_as_tokens(tmp_path: Path) -> None:
    layer = [
        (NORM._replace(blocks=64), 2),
        (NORM._replace(blocks=64 * 32), 2),
        (NORM._replace(blocks=64 * 8), 2),
        (NORM._replace(blocks=64), 2),
        (GEMM, 9),
        (DECODE_ATTENTION, 4),
    ]
    assert set(analysis(steps(layer).export, tmp_path).steps.phase) == {"decode"}


def test_attention_of_both_kinds_in_a_step_is_mixed(tmp_path: Path) -> None:
    layer = [
        (NORM._replace(blocks=300), 2),
        (GEMM, 9),
        (DECODE_ATTENTION, 4),
        (PREFILL_ATTENTION._replace(blocks=100), 4),
    ]
    assert set(analysis(steps(layer).export, tmp_path).steps.phase) == {"mixed"}


# ------------------------------------------------------------------------------- cost


def test_a_capture_of_many_names_is_judged_quickly() -> None:
    seen = WorkloadSigns(
        ranges=tuple(f"request {chr(97 + i % 26)}{i}" for i in range(5_000)),
        kernels={f"kernel_{i}(float*)": 1e-3 for i in range(1_000)},
    )
    began = time.process_time()
    judge(seen, workload_knowledge())
    assert time.process_time() - began < 20  # a busy machine counts several times


@pytest.mark.parametrize(
    ("kind", "framework", "language", "model", "denoises"),
    [
        (LANGUAGE_MODEL, "PyTorch", True, True, False),
        (TRAINING, "PyTorch", False, True, False),
        (DIFFUSION, "PyTorch", False, True, True),
        (MICRO_BENCHMARK, CUDA_CPP, None, False, False),
        (UNKNOWN, "PyTorch", None, None, False),
        (UNKNOWN, CUDA_CPP, None, False, False),  # kernels of no framework are no model
    ],
)
def test_what_a_kind_says_of_the_program(
    kind: str, framework: str, language: bool | None, model: bool | None, denoises: bool
) -> None:
    found = Judgement(kind, 0.9, framework)
    assert (found.is_language_model, found.is_model, found.denoises) == (language, model, denoises)
