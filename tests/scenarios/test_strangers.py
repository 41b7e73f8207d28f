"""Programs of strangers that mark no steps, or mark them in the way of their framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.machine import Kernel, Machine
from tests.scenarios.support import diagnosed, expect

NORM = Kernel(
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>(int, float)"
)
GEMV = Kernel("void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false>(params)")
GEMM = Kernel("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn")
FLASH = Kernel(
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>(params)"
)
GELU = Kernel(
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(Tensor&)>(int)"
)
ARGMAX = Kernel(
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(int)"
)
FEATURES = Kernel("sm86_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x64x32")
ENCODER = [(NORM, 30), (GEMM, 120), (FLASH, 300), (GEMM, 240), (GELU, 60)]
DECODER = [(NORM, 3), (GEMV, 9), (FLASH, 8), (GEMV, 9), (FLASH, 20), (GEMV, 9), (GELU, 2)]


def test_speech_is_written_down_token_by_token(tmp_path: Path) -> None:
    """Four pieces of a recording: an encoder, then twenty tokens that the host reads one by one. The
    tokens are the steps, not the pieces, so that one read-back comes a step."""
    m = Machine(gpu="NVIDIA A10G")
    for _ in range(4):
        m.work(8_000)
        m.copy("HtoD", 940, "pageable", gb_per_s=6)
        m.launch(FEATURES, 180)
        m.layers(8, ENCODER)
        for _ in range(20):
            m.layers(8, DECODER)
            m.launch(ARGMAX, 12)
            m.copy("DtoH", 4 / 1024, "pageable")
            m.wait()
            m.work(150)
    d = diagnosed(m, tmp_path)
    expect(d, never=("readback-per-layer",))
    assert d.inputs[0].steps == 79
    assert d.inputs[0].step_method == "markers"


def test_a_training_step_of_xla(tmp_path: Path) -> None:
    m = Machine(gpu="NVIDIA A100-SXM4-80GB")
    forward = [(Kernel(f"gemm_fusion_dot_{i}"), 60) for i in range(4)]
    forward += [(Kernel(f"loop_add_multiply_fusion_{i}"), 6) for i in range(6)]
    back = [(Kernel(f"gemm_fusion_dot_general_{i}"), 60) for i in range(8)]
    for _ in range(12):
        with m.step("XlaModule:#hlo_module=jit_train_step,program_id=17#"):
            m.layers(4, forward, call=3)
            m.layers(4, back, call=3)
        m.copy("DtoH", 4 / 1024, "pageable", api="cuMemcpyDtoHAsync_v2")
        m.work(300)
    d = diagnosed(m, tmp_path)
    assert d.inputs[0].workload == "training"
    assert d.inputs[0].steps == 11


def test_an_engine_of_tensorrt_that_classifies_images(tmp_path: Path) -> None:
    m = Machine(gpu="NVIDIA L4")
    m.export.command("trtexec", "--loadEngine=resnet50.plan")
    block = [
        (Kernel("sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32"), 18),
        (Kernel("void genericReformat::copyPackedKernel<float, float, true, true>(unsigned int)"), 4),
        (Kernel("sm50_xmma_pooling_fw_4d_FP32FP32NCHW_Max"), 5),
    ]
    for _ in range(20):
        m.copy("HtoD", 588, gb_per_s=12)
        with m.step("ExecutionContext::enqueue"):
            m.layers(16, block)
        m.copy("DtoH", 4, gb_per_s=12)
        m.wait("cudaEventSynchronize")
    d = diagnosed(m, tmp_path)
    assert d.inputs[0].workload == "vision or encoder inference"
    assert d.inputs[0].steps == 19


CAST = Kernel(
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::Tensor&)>()"
)
NORM_2D = Kernel("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::Half>(long, float)")
CONV = Kernel(
    "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1"
)
CONCAT = Kernel(
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 64>(float*)"
)


def paint(m: Machine, denoising: int, host_us: float) -> None:
    """A picture: text encoder, a UNet that goes down and up again in each denoising step, decoder."""
    residual = [(NORM_2D, 6), (GELU, 4), (FEATURES, 40), (CAST, 4)]
    transformer = [(NORM, 5), (GEMM, 30), (FLASH, 50), (GEMM, 20), (GELU, 6)]
    m.layers(12, ENCODER, call=3)
    for _ in range(denoising):
        m.launch(CONCAT, 3)
        for depth in (2, 1, 3):
            for _ in range(3):
                m.layers(depth, residual)
                m.layers(depth, transformer)
                m.launch(CONV, 20)
        m.work(host_us)
    m.layers(10, [(NORM_2D, 60), (GELU, 40), (FEATURES, 200)])
    m.copy("DtoH", 3_000, "pageable", gb_per_s=6)
    m.wait()


def test_each_pass_of_a_denoiser_is_a_step(tmp_path: Path) -> None:
    """Two pictures of twelve steps, whose scheduler leaves the GPU idle for 6 ms of each."""
    m = Machine()
    for _ in range(2):
        paint(m, 12, 6_000)
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap")
    assert d.inputs[0].workload == "diffusion inference"
    assert d.inputs[0].steps == 23
    assert d.steps[0].median_ms == pytest.approx(8, rel=0.3)
    assert d.findings[0].gain is not None
    assert d.findings[0].gain.speedup is not None


def test_a_decoder_of_pictures_alone_has_no_steps(tmp_path: Path) -> None:
    m = Machine()
    m.layers(30, [(NORM_2D, 60), (GELU, 40), (FEATURES, 200), (CAST, 10)])
    m.wait()
    d = diagnosed(m, tmp_path)
    assert d.inputs[0].workload == "diffusion inference"
    assert d.inputs[0].steps is None


EMBED = Kernel(
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::Half, long>(int)", blocks=8
)


def test_tokens_behind_trials_that_hold_most_of_the_time(tmp_path: Path) -> None:
    """Every shape of a kernel is compiled and tried before the twenty tokens that follow."""
    m = Machine()
    for i in range(20):
        m.work(20_000)
        m.call("cuModuleLoadData", 800)
        for _ in range(5):
            m.memset(20)
            m.launch(Kernel("matmul_kernel"), 100 + 9 * i)
        m.wait("cudaDeviceSynchronize_v3020")
    for _ in range(20):
        m.launch(EMBED, 3)
        m.layers(28, DECODER)
        m.launch(ARGMAX, 12)
        m.copy("DtoH", 4 / 1024, "pageable")
    d = diagnosed(m, tmp_path)
    assert d.inputs[0].steps == 19


def test_frames_of_a_video(tmp_path: Path) -> None:
    """Each frame is decoded while the host waits in the driver, then scaled and classified: the steps
    are the frames, so that the gain of decoding ahead is known."""
    m = Machine(gpu="NVIDIA L4")
    for _ in range(40):
        m.blocked(6_000, "ioctl")
        for name in ("NV12ToRGB_kernel(unsigned char*, int)", "resize_bilinear_kernel(float*)"):
            m.launch(Kernel(name), 50)
        m.layers(20, [(FEATURES, 60), (NORM_2D, 10), (GELU, 8)])
        m.copy("DtoH", 30, gb_per_s=10)
        m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "os-blocked")
    assert d.inputs[0].steps == 39
    found = d.findings[0]
    assert found.gain is not None
    assert found.gain.speedup is not None
    assert found.gain.speedup.mid == pytest.approx(7.7 / 1.7, rel=0.05)
