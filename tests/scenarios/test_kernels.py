"""What the kernels themselves tell: tails, precision, fusion, limits of the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import advisor
from advisor.reports import summary
from tests.builder import Export
from tests.kineto_builder import Profile
from tests.scenarios.machine import (
    ADD,
    ALL_REDUCE,
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
from tests.scenarios.support import HOST_SIDE, diagnosed, expect, fact, finding, ranked, severity


def in_blocks(threads: int, blocks: int = 4_000, us: float = 730) -> Machine:
    """Steps of a simulation: a kernel of so many threads a block beside others of 256."""
    m = Machine()
    for i in range(12):
        with m.step(f"iteration {i}"):
            m.launch(Kernel("advect_particles(float*, int)"), us, grid=(blocks, 1, 1), block=(threads, 1, 1))
            for _ in range(3):
                m.launch(Kernel("reduce_cells(float*, int)"), 90, block=(256, 1, 1))
            m.wait()
    return m


@pytest.mark.parametrize(("threads", "graded"), [(1, "high"), (4, "high"), (16, "medium")])
def test_blocks_smaller_than_a_warp(tmp_path: Path, threads: int, graded: str) -> None:
    d = diagnosed(in_blocks(threads), tmp_path)
    expect(d, "blocks-below-a-warp", never=("launch-bound", "host-gap"))
    assert severity(d, "blocks-below-a-warp") == graded
    assert fact(d, "kernel.sub_warp_threads") == threads
    assert d.findings[0].recommendations[0].id == "larger-blocks"


@pytest.mark.parametrize(("threads", "us"), [(32, 730), (128, 730), (4, 25)])
def test_blocks_of_a_warp_or_little_time_in_smaller_ones(tmp_path: Path, threads: int, us: float) -> None:
    d = diagnosed(in_blocks(threads, us=us), tmp_path)
    assert "blocks-below-a-warp" not in {f.cause for f in d.findings}


TOP_K = Kernel("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(float*)")
SGEMM = Kernel("ampere_sgemm_128x64_tn")
AMPERE = Kernel("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_64x3_nn_align8")
SDPA_80 = Kernel("cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x64")
ADD_NORM = Kernel("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, int)")
LIMITS = ("memory-bandwidth-bound", "compute-bound")


def replayed(layer: list[tuple[Kernel, float]], steps: int = 12) -> Machine:
    """Steps of 22 such layers, as graphs that follow each other without a gap."""
    m = Machine()
    for i in range(steps):
        with m.step(f"decode_step {i}"):
            m.replay(22, layer)
    return m


# ------------------------------------------------------------------------------- tails


def test_attention_that_is_slow_in_every_sixth_step(tmp_path: Path) -> None:
    m = Machine()
    for i in range(24):
        with m.step(f"decode_step {i}"):
            for kernel, us in DECODE_LAYER * 22:
                slow = 3 if kernel is DECODE_ATTENTION and i % 6 == 5 else 1
                m.launch(kernel, us * slow, call=1)
    d = diagnosed(m, tmp_path)
    expect(d, "tail-latency", never=("hidden-tail", *HOST_SIDE))
    found = next(f for f in d.findings if f.cause == "tail-latency")
    assert "attention" in str(found.scope.operation).lower()


def test_a_cheap_kernel_that_now_and_then_holds_up_everything(tmp_path: Path) -> None:
    m = Machine()
    for i in range(40):
        with m.step(f"decode_step {i}"):
            m.layers(22, [(kernel, 2 * us) for kernel, us in DECODE_LAYER])
            for call in range(4):
                m.launch(TOP_K, 500 if i % 8 == 7 and call == 2 else 3)
    d = diagnosed(m, tmp_path)
    expect(d, "hidden-tail", never=HOST_SIDE)
    assert ("tail-latency", "KRN103") in {(o.cause, o.by) for o in d.overruled}
    found = next(f for f in d.findings if f.cause == "hidden-tail")
    assert fact(d, "operation.time_ratio", None) is None  # a fact of each operation
    assert found.scope.operation in {f.scope.operation for f in d.facts}


def test_the_verdict_names_the_operation_with_the_tail(tmp_path: Path) -> None:
    m = Machine()
    for i in range(24):
        with m.step(f"decode_step {i}"):
            for kernel, us in DECODE_LAYER * 22:
                m.launch(kernel, us * (3 if kernel is DECODE_ATTENTION and i % 6 == 5 else 1), call=1)
    d = diagnosed(m, tmp_path)
    assert d.headline is not None
    assert d.headline.cause == "tail-latency"
    operation = next(f for f in d.findings if f.cause == "tail-latency").scope.operation
    assert str(operation) in d.verdict


def test_tails_count_by_what_they_cost_the_slowest_steps(tmp_path: Path) -> None:
    """Three of 100 steps lose 120 us of 1,800 in one top-k, 0.2 % of the window and 6 % of the slowest
    steps; half of the steps lose 30 us in one activation, 0.8 % of the window and 1.6 % of them."""
    m = Machine()
    for i in range(100):
        with m.step(f"decode_step {i}"):
            m.layers(22, [(kernel, 2 * us) for kernel, us in DECODE_LAYER])
            for call in range(4):
                m.launch(TOP_K, 123 if i in (30, 50, 70) and call == 2 else 3)
                m.launch(MUL, 33 if i % 2 and call == 1 else 3)
    d = diagnosed(m, tmp_path)
    tails = [f for f in d.findings if f.cause in ("tail-latency", "hidden-tail")]
    assert [f.severity for f in tails][:1] == ["low"]
    assert "top" in str(tails[0].scope.operation).lower()
    assert all(f.severity == "info" for f in tails[1:])


@pytest.mark.parametrize(("slow", "tail"), [(2, False), (3, True), (12, True)])
def test_two_slow_calls_are_no_tail_and_few_are_doubted(tmp_path: Path, slow: int, tail: bool) -> None:
    m = Machine()
    for i in range(40):
        with m.step(f"decode_step {i}"):
            m.layers(22, [(kernel, 2 * us) for kernel, us in DECODE_LAYER])
            for call in range(4):
                m.launch(TOP_K, 250 if 8 <= i < 8 + slow and call == 2 else 3)
    d = diagnosed(m, tmp_path)
    found = [f for f in d.findings if f.cause == "hidden-tail"]
    assert bool(found) is tail
    assert all(("few slow calls" in f.message) is (slow < 10) for f in found)


@pytest.mark.parametrize(
    ("name", "wide"),
    [
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)", True),
        ("cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x64", True),
        ("cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x64", False),
        (DECODE_ATTENTION.name, False),
    ],
)
def test_decode_with_attention_kernels_for_many_queries(tmp_path: Path, name: str, wide: bool) -> None:
    layer = [(Kernel(name) if kernel is DECODE_ATTENTION else kernel, us) for kernel, us in DECODE_LAYER]
    d = diagnosed(replayed(layer), tmp_path)
    assert ("wide-decode-attention" in ranked(d)) is wide
    assert fact(d, "phase.wide_attention_ratio") == wide
    # 4 of the 39 us of a layer, and of the 2.4 us between its nodes.
    assert fact(d, "phase.wide_attention_window_ratio") == pytest.approx(wide * 4 / 41.4, rel=0.05)


def test_calls_of_one_length_have_no_tail(tmp_path: Path) -> None:
    d = diagnosed(replayed(list(DECODE_LAYER), 24), tmp_path)
    expect(d, never=("tail-latency", "hidden-tail", "step-outliers"))


# ------------------------------------------------------------------------------- communication


@pytest.mark.parametrize(("waits", "congested"), [(700, True), (0, False)])
def test_network_cards_that_cannot_send(tmp_path: Path, waits: int, congested: bool) -> None:
    """Two cards send 50 MB a ms while collectives of 400 us run, one of them with pauses or not."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(10)
            begin = max(m.now, m.gpu_free)
            m.launch(ALL_REDUCE, 400)
            for nic in (0, 1):
                sample = round(begin * 1000) + 100_000
                m.export.network(sample, 200_000, nic, 50_000_000, waits if nic else 0)
    d = diagnosed(m, tmp_path)
    assert fact(d, "network.waits_ratio") == (1.0 if congested else 0.0)
    assert fact(d, "network.card_count") == 2
    assert fact(d, "network.peak_rate") == 50e9
    assert ("congested-network" in ranked(d)) is congested


@pytest.mark.parametrize(("stream", "exposed", "top"), [(7, 0.25, ("exposed-communication",)), (20, 0.0, ())])
def test_collectives(tmp_path: Path, stream: int, exposed: float, top: tuple[str, ...]) -> None:
    """An all-reduce on the stream of the kernels is exposed; beside longer kernels it is not."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(22):
                m.launch(ALL_REDUCE, 40, stream=stream)
                m.layers(1, [(kernel, 3 * us) for kernel, us in DECODE_LAYER])
    d = diagnosed(m, tmp_path)
    expect(d, *top, never=(*HOST_SIDE, *LIMITS))
    assert ("exposed-communication" in ranked(d)) is bool(top)
    if top:  # one rank of a job: it may be waiting for the others
        found = finding(d, "exposed-communication")
        assert (found.severity, fact(d, "comm.waiting_known")) == ("medium", False)
        assert "One rank alone cannot tell" in found.message
        assert found.recommendations[0].id == "give-all-ranks"
        assert "part of it perhaps waiting for other ranks" in summary.verdict(d)
    (budget,) = d.budget
    shares = {part.part: part.share for part in budget.parts}
    assert fact(d, "comm.nccl_ratio") == 1.0
    assert d.next_target is not None
    assert d.next_target.family != "communication"
    own = 22 * sum(3 * us for _, us in DECODE_LAYER)
    assert d.next_target.collectives_share == pytest.approx(40 * 22 / (40 * 22 + own), rel=0.15)
    assert shares["communication"] == pytest.approx(exposed, abs=0.01)
    assert shares["compute"] == pytest.approx(1 - exposed, abs=0.01)


# ------------------------------------------------------------------------------- which kernels


def test_fp32_products(tmp_path: Path) -> None:
    d = diagnosed(replayed([(NORM, 6), (SGEMM, 40), (SILU, 6), (SGEMM, 60)]), tmp_path)
    expect(d, "fp32-matmul", never=("tensor-cores-idle", *HOST_SIDE))
    assert ("tensor-cores-idle", "KRN106") in {(o.cause, o.by) for o in d.overruled}
    assert fact(d, "kernel.fp32_matmul_ratio") == pytest.approx(100 / 112, abs=0.01)


def test_fp32_products_of_cublas_without_tensor_cores(tmp_path: Path) -> None:
    """`ffma` in the name, not `tf32`: they are not blamed for their sm80 either, because no newer
    build of them exists."""
    ffma = Kernel("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_ffma_execute_cublas")
    tf32 = Kernel("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x8_execute_cublas")
    d = diagnosed(replayed([(NORM, 6), (ffma, 40), (SILU, 6), (tf32, 4)]), tmp_path)
    expect(d, "fp32-matmul", never=("old-architecture-kernels", *HOST_SIDE))
    assert fact(d, "kernel.fp32_matmul_ratio") == pytest.approx(40 / 56, abs=0.01)
    assert fact(d, "kernel.old_architecture_ratio") == pytest.approx(4 / 56, abs=0.01)


@pytest.mark.parametrize(
    ("capability", "old"),
    [((9, 0), True), ((10, 0), True), ((8, 9), False), ((8, 6), False), ((8, 0), False), ((12, 0), False)],
)
def test_kernels_of_an_older_architecture(tmp_path: Path, capability: tuple[int, int], old: bool) -> None:
    """cutlass_80 kernels on Hopper, and at home: sm86, sm89 and sm120 have no others."""
    export = Export().gpu(name="NVIDIA GPU", capability=capability)
    m = Machine(export)
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(22, [(NORM, 6), (AMPERE, 40), (SILU, 6), (AMPERE, 60)])
    causes = {f.cause for f in diagnosed(m, tmp_path).findings}
    assert ("old-architecture-kernels" in causes) is old
    assert not {"fp32-matmul", "tensor-cores-idle"} & causes


@pytest.mark.parametrize(
    ("layer", "advice"),
    [
        ([(AMPERE, 40)], "newer-library"),
        ([(GEMM, 40), (AMPERE, 20)], "aligned-shapes"),
        ([(GEMM, 40), (SDPA_80, 20)], "newer-attention"),
    ],
)
def test_the_wheel_is_blamed_where_nothing_newer_runs(
    tmp_path: Path, layer: list[tuple[Kernel, float]], advice: str
) -> None:
    d = diagnosed(replayed([(NORM, 6), *layer, (SILU, 6)]), tmp_path)
    (found,) = (f for f in d.findings if f.cause == "old-architecture-kernels")
    assert [r.id for r in found.recommendations] == [advice]
    assert fact(d, "kernel.current_architecture") == (advice != "newer-library")
    assert fact(d, "kernel.old_attention_ratio") == (1.0 if advice == "newer-attention" else 0.0)


def test_older_kernels_at_the_limit_of_dram_have_nothing_to_win(tmp_path: Path) -> None:
    old = Kernel("cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align8", 512)
    m = replayed([(NORM, 3), (old, 90), (SILU, 4), (old, 60)])
    m.sample({old: (60, 90, 5), NORM: (30, 20, 0), SILU: (30, 20, 0)})
    d = diagnosed(m, tmp_path)
    expect(d, "memory-bandwidth-bound", never=("old-architecture-kernels",))
    assert fact(d, "kernel.old_architecture_ratio") == 0


def test_elementwise_kernels_between_the_products(tmp_path: Path) -> None:
    layer = [(NORM, 3), (ADD, 4), (MUL, 4), (GEMV, 10), (ADD, 4), (MUL, 4), (ADD, 4)]
    d = diagnosed(replayed(layer), tmp_path)
    expect(d, "unfused-elementwise", never=HOST_SIDE)
    assert fact(d, "kernel.unfused_operations") == "add 36.4 %, multiply 24.2 %, RMSNorm 9.09 %"
    assert fact(d, "kernel.unfused_ratio") == pytest.approx(23 / 33, abs=0.01)


@pytest.mark.parametrize(("norm", "told"), [(NORM, True), (ADD_NORM, False)])
def test_no_fusion_is_advised_that_is_in_use(tmp_path: Path, norm: Kernel, told: bool) -> None:
    layer = [(DECODE_ATTENTION, 4), (norm, 3), *((ADD, 4), (MUL, 4)) * 3, (GEMV, 10), (SILU, 3)]
    d = diagnosed(replayed(layer), tmp_path)
    assert fact(d, "kernel.fusable") == ("residual add with RMSNorm" if told else None)
    (said,) = (r.action for r in d.findings[0].recommendations if r.id == "fused-kernels")
    assert ("residual add with RMSNorm" in said) == told
    assert "gate product" not in said


def test_products_with_little_between_them_are_fused_enough(tmp_path: Path) -> None:
    d = diagnosed(replayed([(NORM, 3), (GEMV, 30), (SILU, 2), (GEMV, 30)]), tmp_path)
    assert ranked(d) == []
    assert fact(d, "kernel.unfused_ratio") == pytest.approx(5 / 65, abs=0.01)


@pytest.mark.parametrize(("vocabulary", "told"), [(50_257, True), (50_304, False)])
def test_a_vocabulary_that_is_no_multiple_of_16_bytes(tmp_path: Path, vocabulary: int, told: bool) -> None:
    p = Profile().gpu().process(1)
    for step in range(12):
        at = step * 1_000_000
        p.annotation(f"decode_step {step}", at, 900_000)
        for i, sizes in enumerate(([[8, 4096], [4096, 4096]], [[8, 4096], [4096, vocabulary]])):
            now = at + i * 400_000
            p.op("aten::mm", now, 70_000, **{"Input Dims": sizes, "Input type": ["c10::BFloat16"] * 2})
            p.launch(now + 2_000, 5_000, GEMM.name, now + 10_000, 300_000)
    d = advisor.diagnose(p.write(tmp_path / "trace.json"))
    assert fact(d, "kernel.misaligned_window_ratio") == pytest.approx(0.3 if told else 0.0, abs=0.02)
    assert ("misaligned-matmul" in {f.cause for f in d.findings}) == told


@pytest.mark.parametrize(
    "change",
    [
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(params_t<float>)",
        "void genericReformat::copyVectorizedKernel<float, __half, true>(unsigned int, void const*, void*)",
        "batched_transpose_32x32_half",  # MIOpen, around products in NHWC
    ],
)
def test_layouts_that_change_around_each_convolution(change: str, tmp_path: Path) -> None:
    convolution = Kernel("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32")
    m = Machine()
    for i in range(12):
        with m.step(f"forward {i}"):
            m.layers(12, [(Kernel(change), 30), (convolution, 100), (NORM, 20)])
            m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "kernel.layout_ratio") == pytest.approx(0.2, abs=0.02)
    expect(d, "layout-conversions")
    (found,) = (f for f in d.findings if f.cause == "layout-conversions")
    assert found.severity == "medium"  # in the pessimistic reading half of it stays
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.mid == pytest.approx(12 * 0.12, rel=0.05)


def test_kernels_of_few_blocks(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for kernel, us in DECODE_LAYER * 22:
                m.launch(kernel, 3 * us, grid=(16, 1, 1))
    d = diagnosed(m, tmp_path)
    expect(d, "under-filled-gpu", never=("compute-bound", "launch-bound"))


@pytest.mark.parametrize(("blocks", "first"), [(24, "under-filled-gpu"), (264, "gemv-headroom")])
def test_slow_products_of_few_blocks_need_a_larger_batch(tmp_path: Path, blocks: int, first: str) -> None:
    """Products at a fifth of memory speed: because they fill a fifth of the GPU, or though they fill it."""
    layer = [(k._replace(blocks=blocks if k is GEMV else 16), us) for k, us in WEIGHTS]
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i} batch=1"):
            m.layers(22, layer, call=2)
            m.read_back()
    m.sample({kernel: (15, 20, 5) for kernel, _ in layer})
    d = diagnosed(m, tmp_path)
    expect(d, first)
    assert ("gemv-headroom" in ranked(d)) == (first == "gemv-headroom")
    assert fact(d, "kernel.small_skinny_ratio") == (1.0 if blocks == 24 else 0.0)


def test_kernels_of_few_blocks_that_fill_the_gpu_together(tmp_path: Path) -> None:
    """Kernels of 40 blocks on 132 SMs: four streams at once fill the GPU, two do not."""
    for streams, wanted in ((4, 0.0), (1, 1.0)):
        m = Machine()
        for _ in range(100):
            for stream in range(streams):
                m.launch(Kernel("work(float*)", 40), 100, stream=20 + stream, call=2)
        folder = tmp_path / str(streams)
        folder.mkdir()
        d = diagnosed(m, folder)
        assert fact(d, "kernel.small_grid_ratio") == pytest.approx(wanted, abs=0.03)
        assert ("under-filled-gpu" in {f.cause for f in d.findings}) == (wanted == 1)


@pytest.mark.parametrize(("blocks", "level"), [(1, "high"), (2, "medium")])
def test_a_window_of_kernels_of_one_block_is_lost(tmp_path: Path, blocks: int, level: str) -> None:
    """One of 132 SMs works: without an estimate, too, that is severe. With two the rest may be needed."""
    m = Machine()
    for _ in range(100):
        m.launch(Kernel("solve(double*)", blocks), 900, call=2)
    d = diagnosed(m, tmp_path)
    assert severity(d, "under-filled-gpu") == level
    (told,) = (f.message for f in d.findings if f.cause == "under-filled-gpu")
    assert ("a single block" in told) == (blocks == 1)


# ------------------------------------------------------------------------------- limits

WEIGHTS = [(NORM, 3), (GEMV, 50), (DECODE_ATTENTION, 10), (GEMV, 40), (NORM, 3), (GEMV, 90),
           (SILU, 4), (GEMV, 60)]  # fmt: skip
PREFILL = [(NORM, 30), (GEMM, 400), (PREFILL_ATTENTION, 200), (GEMM, 300), (NORM, 30),
           (GEMM, 900), (SILU, 40), (GEMM, 500)]  # fmt: skip


def test_weights_streamed_at_the_limit_of_dram(tmp_path: Path) -> None:
    m = replayed(WEIGHTS)
    m.sample({GEMV: (60, 90, 5), DECODE_ATTENTION: (50, 60, 5), NORM: (30, 20, 0), SILU: (30, 20, 0)})
    d = diagnosed(m, tmp_path)
    expect(d, "memory-bandwidth-bound", never=(*HOST_SIDE, "compute-bound", "under-filled-gpu"))
    # The samples cover several kernels each; the products come out at what they were made of.
    assert fact(d, "activity.dram_bound_level_ratio") == pytest.approx(0.9, abs=0.01)
    assert fact(d, "activity.dram_bound_busy_ratio") == pytest.approx(240 / 260, abs=0.02)


def test_the_same_kernels_at_half_of_dram(tmp_path: Path) -> None:
    m = replayed(WEIGHTS)
    m.sample({GEMV: (60, 50, 5), DECODE_ATTENTION: (50, 40, 5), NORM: (30, 20, 0), SILU: (30, 20, 0)})
    d = diagnosed(m, tmp_path)
    expect(d, also=("gemv-headroom",), never=("memory-bandwidth-bound", "gemv-at-limit"))


@pytest.mark.parametrize("sampled", [True, False])
def test_prefill_at_the_limit_of_the_tensor_cores(tmp_path: Path, sampled: bool) -> None:
    m = Machine()
    for i in range(8):
        with m.step(f"prefill {i}"):
            m.layers(16, PREFILL)
    if sampled:
        m.sample({GEMM: (98, 30, 75), PREFILL_ATTENTION: (97, 20, 60), NORM: (90, 60, 0), SILU: (90, 60, 0)})
    d = diagnosed(m, tmp_path)
    expect(d, "compute-bound", never=(*HOST_SIDE, "memory-bandwidth-bound", "below-target"))
    assert ("no-gpu-metrics" in {f.cause for f in d.findings}) is not sampled


def test_long_kernels_of_a_decode_are_not_limited_by_the_compute_units(tmp_path: Path) -> None:
    """A large model at batch 64: products of several waves wait for weights, attention for the cache."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(
                12,
                (
                    (NORM, 12),
                    (GEMM, 45),
                    (DECODE_ATTENTION, 60),
                    (GEMM, 32),
                    (GEMM, 210),
                    (SILU, 14),
                    (GEMM, 110),
                ),
            )
            m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "kernel.several_waves_ratio") > 0.9  # type: ignore[operator]
    assert fact(d, "serving.decode_window_ratio") == pytest.approx(1, abs=0.01)
    assert ranked(d) == []


@pytest.mark.parametrize(("capability", "fp4"), [((9, 0), False), ((10, 0), True)])
def test_fp4_is_for_gpus_that_have_it(tmp_path: Path, capability: tuple[int, int], fp4: bool) -> None:
    m = Machine(Export().gpu(name="NVIDIA B200" if fp4 else "NVIDIA H200", capability=capability))
    for i in range(8):
        with m.step(f"prefill {i}"):
            m.layers(16, PREFILL)
    d = diagnosed(m, tmp_path)
    (found,) = (f for f in d.findings if f.cause == "compute-bound")
    assert ("fp4-products" in {o.action for o in found.alternatives}) is fp4
    assert fact(d, "capture.compute_capability", None) == capability[0]


@pytest.mark.parametrize("static", [True, False])
def test_attention_over_a_static_cache(tmp_path: Path, static: bool) -> None:
    write = Kernel("void at::native::index_copy_kernel_impl<long>(int)") if static else ADD
    m = replayed([(write, 3), (DECODE_ATTENTION, 30), (GEMV, 60)])
    m.sample({write: (30, 20, 0), DECODE_ATTENTION: (60, 90, 5), GEMV: (60, 92, 5)})
    d = diagnosed(m, tmp_path)
    (found,) = (f for f in d.findings if f.cause == "memory-bandwidth-bound")
    assert ("attention-backend" in {o.action for o in found.alternatives}) is static
    assert fact(d, "kernel.static_cache_attention") is static


def test_more_kernel_names_than_the_report_shows(tmp_path: Path) -> None:
    """The largest family is named even where each of its kernels is too small for the table: 201
    elementwise kernels of 10 us fill it, and 250 GEMM kernels of 9 us hold more time."""
    m = Machine()
    for i in range(201):
        m.launch(Kernel(f"void at::native::vectorized_elementwise_kernel<{i}, Add>(int)"), 10)
    for i in range(250):
        m.launch(Kernel(f"ampere_bf16_s16816gemm_bf16_{i}x128_tn"), 9)
    target = diagnosed(m, tmp_path).next_target
    assert target is not None
    assert (target.family, target.kernel) == ("gemm", "ampere_bf16_s16816gemm_bf16_0x128_tn")
    assert target.share == pytest.approx(2250 / 4260)


DEQUANTISE = Kernel("void vllm::awq::dequantize_weights(int*, __half*, int*, __half*, int)")
SORT = Kernel(
    "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::DeviceRadixSortPolicy"
    "<float, long, unsigned int>::Policy900, false, float, long, unsigned int, int, int>(int*)"
)


def test_weights_that_are_widened_by_kernels_of_their_own(tmp_path: Path) -> None:
    """The products of one shape differ by depth in each layer: that is no tail."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(
                12,
                [
                    (NORM, 3),
                    (DEQUANTISE, 20),
                    (GEMM, 10),
                    (DECODE_ATTENTION, 6),
                    (DEQUANTISE, 20),
                    (GEMM, 18),
                ],
            )
            m.read_back()
    d = diagnosed(m, tmp_path)
    expect(d, "separate-dequantisation", never=("tail-latency",))
    assert severity(d, "separate-dequantisation") == "high"
    assert fact(d, "kernel.dequantise_ratio") == pytest.approx(40 / 77, abs=0.01)


@pytest.mark.parametrize("behind", [True, False])
def test_sorts_behind_the_last_product_sample(behind: bool, tmp_path: Path) -> None:
    """Sorts between two layers, such as those of experts, do not."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            if not behind:
                m.layers(4, [(SORT, 100)])
            m.replay(16)
            m.launch(GEMM, 60)
            if behind:
                m.layers(4, [(SORT, 100)])
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert ("sorting-in-sampling" in ranked(d)) == behind
    sorting = fact(d, "kernel.sampling_sort_window_ratio")
    assert isinstance(sorting, float)
    assert (sorting > 0.3) == behind


SOFTMAX = Kernel(
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*, int)"
)


@pytest.mark.parametrize("fused", [False, True])
def test_attention_in_pieces(fused: bool, tmp_path: Path) -> None:
    """Of 710 us a layer, scaling, mask and softmax take 300, and half of the 200 of the products goes; a
    router's softmax ends in a top-k."""
    attention = [(GEMM, 100), (MUL, 80), (ADD, 80), (SOFTMAX, 140), (GEMM, 100)]
    router = [(GEMM, 50), (SOFTMAX, 140), (TOP_K, 50), (GEMM, 260)]
    m = Machine()
    for i in range(8):
        with m.step(f"forward {i}"):
            m.layers(12, [(NORM, 10), *(router if fused else attention), (GEMM, 200)])
            m.wait()
    d = diagnosed(m, tmp_path)
    found = next((f for f in d.findings if f.cause == "unfused-attention"), None)
    if fused:
        assert found is None
        return
    assert fact(d, "kernel.attention_pieces_per_step") == 12
    assert fact(d, "kernel.attention_pieces_window_ratio") == pytest.approx(300 / 710, abs=0.01)
    assert found is not None
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.mid == pytest.approx(12 * 0.31, rel=0.03)


def test_adapters_on_each_product(tmp_path: Path) -> None:
    """Of 45 us a layer, 12 are two products of an adapter."""
    adapter = [(Kernel("_lora_shrink_kernel", 32), 7), (Kernel("_lora_expand_kernel", 64), 5)]
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(20, [(NORM, 3), (GEMV, 12), *adapter, (DECODE_ATTENTION, 6), (GEMV, 12)])
            m.read_back()
    d = diagnosed(m, tmp_path)
    expect(d, "adapter-overhead")
    assert fact(d, "kernel.adapter_ratio") == pytest.approx(12 / 45, abs=0.01)


def test_single_slow_calls_of_an_activation_are_no_chain_to_fuse(tmp_path: Path) -> None:
    """They make up most of the elementwise time, and no two kernels of that kind follow each other."""
    m = Machine()
    for i in range(20):
        with m.step(f"decode_step {i}"):
            for layer in range(24):
                for kernel, us in DECODE_LAYER:
                    m.launch(kernel, 400 if kernel is SILU and (24 * i + layer) % 7 == 3 else 3 * us)
            m.read_back()
    d = diagnosed(m, tmp_path)
    expect(d, "tail-latency", never=())
    assert "unfused-elementwise" not in ranked(d)


def test_a_collective_that_the_host_waits_for_holds_up_the_step(tmp_path: Path) -> None:
    """The last work of a step: the host launches nothing before it is done."""
    m = Machine()
    for i in range(12):
        with m.step(f"train_step {i}"):
            m.layers(8, [(GEMM, 200)])
            m.launch(ALL_REDUCE, 800)
        m.wait()
    assert fact(diagnosed(m, tmp_path), "comm.blocking_ratio") == 1


def slow_at_times(slow: Callable[[Kernel], float], steps: int = 60, every: int = 6) -> Machine:
    """In every sixth step a kernel takes so many times as long."""
    m = Machine()
    for i in range(steps):
        with m.step(f"decode_step {i}"):
            m.replay(22, [(k, us * (slow(k) if i % every == 3 else 1)) for k, us in DECODE_LAYER])
            m.wait()
    return m


def test_all_kernels_slower_in_some_steps_are_a_slower_gpu(tmp_path: Path) -> None:
    """A neighbour or the clock: no kernel has a tail of its own."""
    d = diagnosed(slow_at_times(lambda _: 1.8), tmp_path)
    expect(d, "gpu-slower-at-times", never=("step-outliers", "tail-latency", "hidden-tail"))
    assert severity(d, "gpu-slower-at-times") == "medium"
    assert fact(d, "drift.slow_kernels_ratio") == pytest.approx(1.0, abs=0.01)
    assert fact(d, "drift.slow_alike_ratio") == 1.0
    assert fact(d, "drift.slow_kernel_change") == "80 % longer"


def noisy(
    pace: Callable[[int, Kernel], float], spread: float, blocks: Callable[[int], int] = lambda _: 0
) -> Machine:
    """60 steps whose kernels take so many times as long; their speed differs by a `spread` from step to step.
    Kernels that follow the number of tokens launch so many `blocks` more."""
    m, chance = Machine(), Random(5)
    for i in range(60):
        even = 1 + spread * chance.uniform(-1, 1)
        with m.step(f"decode_step {i}"):
            layer = [
                (
                    k._replace(blocks=k.blocks + (0 if k in (GEMV, DECODE_ATTENTION) else blocks(i))),
                    3 * us * even * pace(i, k),
                )
                for k, us in DECODE_LAYER
            ]
            m.layers(22, layer, call=2)
            m.wait()
    return m


@pytest.mark.parametrize(("slower", "spread"), [(1.3, 0.0), (1.3, 0.03), (1.45, 0.05), (1.15, 0.01)])
def test_a_quarter_of_the_steps_a_little_slower_than_like_ones(
    tmp_path: Path, slower: float, spread: float
) -> None:
    """Less than half as long again, but more than the others differ: the gain is what the even ones take."""
    d = diagnosed(noisy(lambda i, _: slower if i % 4 == 1 else 1.0, spread), tmp_path)
    expect(d, "gpu-slower-at-times", never=("step-outliers",))
    (folder := tmp_path / "even").mkdir()
    even = diagnosed(noisy(lambda *_: 1.0, spread), folder).inputs[0].untraced_step_ms
    gain = finding(d, "gpu-slower-at-times").gain
    assert even is not None
    assert gain is not None
    assert gain.step_after_ms is not None
    assert gain.step_after_ms.mid == pytest.approx(even.mid, rel=0.03)
    assert fact(d, "drift.slow_steps") == 15
    assert fact(d, "drift.slow_step_ratio") == pytest.approx(15 / 59)
    assert fact(d, "drift.slow_time_ratio") == pytest.approx(
        0.25 * (slower - 1) / (0.75 + 0.25 * slower), rel=0.15
    )


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: noisy(lambda *_: 1.0, 0.15), id="noise"),
        pytest.param(lambda: noisy(lambda i, _: 1 + (i % 6) * 0.07, 0.02), id="all differ"),
        pytest.param(
            lambda: noisy(lambda i, k: 4.0 if i % 4 == 1 and k is DECODE_ATTENTION else 1.0, 0.02),
            id="longer contexts",
        ),
        pytest.param(
            lambda: noisy(lambda i, _: 1.35 if i % 4 == 1 else 1.0, 0.02, lambda i: 64 * (i % 4 == 1)),
            id="more sequences",
        ),
    ],
)
def test_steps_that_differ_by_noise_or_by_their_work_are_no_slower_gpu(
    tmp_path: Path, made: Callable[[], Machine]
) -> None:
    assert severity(diagnosed(made(), tmp_path), "gpu-slower-at-times") is None


def test_one_operation_slower_in_some_steps_has_a_tail(tmp_path: Path) -> None:
    d = diagnosed(slow_at_times(lambda k: 8 if k is DECODE_ATTENTION else 1), tmp_path)
    expect(d, "tail-latency", never=("gpu-slower-at-times",))
    # Attention takes 4 of 39 us of a layer.
    assert fact(d, "drift.slow_alike_ratio") == pytest.approx(4 / 39, abs=0.001)


def test_slow_steps_that_idle_have_no_slower_gpu(tmp_path: Path) -> None:
    m = Machine()
    for i in range(60):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            m.wait()
            m.work(2_000 if i % 6 == 3 else 0)
    expect(diagnosed(m, tmp_path), "host-gap", never=("gpu-slower-at-times",))
