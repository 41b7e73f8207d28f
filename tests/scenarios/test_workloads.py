"""Captures that are no LLM inference, several devices, and exports of other shapes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from advisor.model.gain import Gain
from advisor.reports.finding_text import gain_text
from tests.builder import RUNTIME, Export
from tests.scenarios.machine import DECODE_LAYER, GEMM, Kernel, Machine
from tests.scenarios.support import HOST_SIDE, alarms, diagnosed, expect, fact, ranked

SAXPY = Kernel("saxpy(float*, float*, float, int)")
SHORT = [(kernel, 1.5) for kernel, _ in DECODE_LAYER]
LLM_ONLY = ("attention-dominates", "gemv-at-limit", "gemv-headroom", "unusual-decode-composition")
BACKWARD = (
    (Kernel("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128>(Params)"), 80),
    (Kernel("void at::native::layer_norm_grad_input_kernel<float, float>(float const*)"), 20),
    (Kernel("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits>(params)"), 80),
    (
        Kernel(
            "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, "
            "FusedAdamMathFunctor<float, 4>>(int)"
        ),
        60,
    ),
)


def test_training(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"train_step {i}"):
            m.layers(12, BACKWARD)
            m.wait()
    d = diagnosed(m, tmp_path)
    # Kernels of an older architecture are a fault, which stands before a limit of the same severity.
    expect(d, "old-architecture-kernels", "compute-bound", never=(*HOST_SIDE - {"queue-empty"}, *LLM_ONLY))
    assert d.inputs[0].workload == "training"
    assert d.verdict.startswith(d.inputs[0].workload)
    assert fact(d, "capture.is_inference", None) is False


def saxpy(m: Machine) -> Machine:
    for _ in range(12):
        m.copy("HtoD", 8 * 1024, "pageable", gb_per_s=8, api="cudaMemcpy_v3020")
        m.launch(SAXPY, 50)
        m.copy("DtoH", 8 * 1024, "pageable", gb_per_s=8, api="cudaMemcpy_v3020")
    return m


def test_saxpy(tmp_path: Path) -> None:
    d = diagnosed(saxpy(Machine()), tmp_path)
    expect(d, "pageable-copies", "transfer-bound", never=("host-gap", "launch-bound", *LLM_ONLY))
    assert d.inputs[0].workload == "micro-benchmark"
    assert {row[2] for row in d.tables["api"].rows} == {None}  # calls a step, without steps
    assert d.verdict.startswith(d.inputs[0].workload)


def test_saxpy_of_2022_with_every_call_in_two_layers(tmp_path: Path) -> None:
    """nsys 2022.1 holds `cudaMemcpy` and `cudaMemcpy_v3020` for one call; it counts once."""
    e = Export(schema="2.9", tool_version="2022.1.3.3").gpu(name="NVIDIA A100-SXM4-40GB").process(1)
    for i in range(12):
        t = i * 2_100_000
        e.call_in_two_layers("cudaMemcpy", t, 1_000_000)
        e.copy(0, 0, "HtoD", 8 << 20, "pageable", t + 50_000, 900_000, api=None)
        e.call_in_two_layers("cudaLaunchKernel", t + 1_010_000, 8_000)
        e.kernel(t + 1_022_000, 50_000, SAXPY.name)
        e.call_in_two_layers("cudaMemcpy", t + 1_080_000, 1_000_000)
        e.copy(0, 0, "DtoH", 8 << 20, "pageable", t + 1_130_000, 900_000, api=None)
    d = diagnosed(e, tmp_path)
    expect(d, "pageable-copies", "transfer-bound", never=("host-gap", "launch-bound"))
    calls = {row[0]: row[1] for row in d.tables["api"].rows}
    assert calls == {"cudaMemcpy": 23, "cudaLaunchKernel": 12}  # the first lies before the window


def decode(m: Machine, inline: bool | None = False) -> Machine:
    """Launch-bound steps; `inline=None`: every second range holds its text in the row."""
    for i in range(12):
        with m.step(f"decode_step {i}", inline=i % 2 == 0 if inline is None else inline):
            m.layers(22, SHORT)
            m.wait()
    return m


def test_without_a_description_of_the_gpu(tmp_path: Path) -> None:
    m = decode(Machine(gpu=None))
    d = diagnosed(m, tmp_path)
    expect(d, "launch-bound")
    assert d.inputs[0].device is None
    unknown = {n.code for n in d.not_evaluated}
    assert {"UTL107", "KRN107"} <= unknown  # blocks per SM, the SM's architecture


def test_ranges_with_their_text_in_the_row_and_by_id(tmp_path: Path) -> None:
    both = diagnosed(decode(Machine(), inline=None), tmp_path)
    expect(both, "launch-bound")
    (tmp_path / "one").mkdir()
    one = diagnosed(decode(Machine()), tmp_path / "one")
    assert both.steps == one.steps
    assert both.inputs[0].steps == 11


def test_a_slice_of_a_longer_trace_is_not_damaged(tmp_path: Path) -> None:
    """Its first kernels were launched before it begins."""
    m = Machine(start=60e6)
    for i in range(40):
        with m.step(f"decode_step {i}"):
            for kernel, us in DECODE_LAYER * 10:
                m.launch(kernel, 3 * us, call=1)
    path = m.write(tmp_path)
    cut = round((60e6 + 3_000) * 1e3)  # the kernels of earlier calls run on for 12 ms
    with sqlite3.connect(path) as db:
        gone = db.execute(f"delete from {RUNTIME} where start < {cut}").rowcount
        db.execute(f"delete from CUPTI_ACTIVITY_KIND_KERNEL where end < {cut}")
        db.execute(f"delete from NVTX_EVENTS where start < {cut}")
    assert gone > 1_000
    d = advisor.diagnose(path)
    expect(d, never=(*HOST_SIDE, "no-nvtx-ranges"))  # nor damaged-capture
    assert fact(d, "budget.busy_ratio") == pytest.approx(1.0, abs=0.01)


# ------------------------------------------------------------------------------- several GPUs


def test_a_finding_names_its_device(tmp_path: Path) -> None:
    """Two processes: one launches kernel by kernel on GPU 0, the other replays on GPU 1."""
    export = Export().gpu(0).gpu(1)
    first, second = (Machine(export, pid=100 + i, device=i) for i in (0, 1))
    for i in range(12):
        with first.step(f"decode_step {i}"):
            first.layers(22, SHORT)
            first.wait()
        with second.step(f"decode_step {i}"):
            second.replay(22)
    d = diagnosed(export, tmp_path)
    expect(d, "launch-bound")
    assert d.inputs[0].device == "2 x NVIDIA H200"
    assert [b.device for b in d.budget] == [0, 1]
    assert {f.scope.device for f in d.findings if f.severity in ("medium", "high")} == {0}
    assert fact(d, "budget.busy_ratio", 1) == pytest.approx(0.94, abs=0.03)


def test_one_process_that_feeds_two_gpus(tmp_path: Path) -> None:
    export = Export().gpu(0).gpu(1)
    first, second = (Machine(export, device=i) for i in (0, 1))
    for i in range(12):
        with first.step(f"decode_step {i}"):
            first.replay(22)
            second.now = first.now
            second.replay(22)
            first.now = second.now
    d = diagnosed(export, tmp_path)
    assert ranked(d) == []
    assert alarms(d) == []
    assert [b.device for b in d.budget] == [0, 1]
    assert d.inputs[0].steps == 11


# ------------------------------------------------------------------------------- advice


FOR_LANGUAGE_MODELS = ("KV cache", "RoPE", "token", "sequences", "decode", "prefill", "prompt")


def advice(d: Diagnosis) -> str:
    """All that is recommended, with the options."""
    items = [a for f in d.findings for a in f.recommendations]
    return " ".join(" ".join((a.action, *(o.line for o in a.options))) for a in items)


def launch_bound(m: Machine, kernels: list[tuple[Kernel, float]], step: str) -> Machine:
    """Short kernels that the host launches one by one, and a read-back after each step."""
    for i in range(12):
        with m.step(f"{step} {i}"):
            m.layers(1, kernels)
            m.read_back()
    return m


def test_a_program_of_cuda_cpp_gets_no_advice_for_models(tmp_path: Path) -> None:
    own = [(Kernel(f"advance{i}(float *, float *, int)"), 1.5) for i in range(3)] * 60
    d = diagnosed(launch_bound(Machine(), own, "step"), tmp_path)
    assert d.inputs[0].workload == "simulation or HPC loop"
    assert fact(d, "workload.framework", None) == "cuda-c++"
    assert "launch-bound" in {f.cause for f in d.findings}
    for word in (*FOR_LANGUAGE_MODELS, "torch", "DataLoader", "model"):
        assert word not in advice(d), word


def test_training_gets_no_advice_for_decoding(tmp_path: Path) -> None:
    short = [(kernel, 1.5) for kernel, _ in BACKWARD] * 60
    d = diagnosed(launch_bound(Machine(), short, "train_step"), tmp_path)
    assert d.inputs[0].workload == "training"
    for word in FOR_LANGUAGE_MODELS:
        assert word not in advice(d), word
    assert "torch.compile" in advice(d)
    assert "fused=True" in advice(d)


def small_grids(tmp_path: Path, kernels: list[tuple[Kernel, float]], step: str) -> tuple[Diagnosis, Gain]:
    """Kernels of 17 blocks, and what their fix is said to win."""
    m = Machine()
    for i in range(12):
        with m.step(f"{step} {i}"):
            m.layers(8, [(Kernel(kernel.name, blocks=17), us) for kernel, us in kernels])
            m.wait()
    d = diagnosed(m, tmp_path)
    (gain,) = (f.gain for f in d.findings if f.cause == "under-filled-gpu")
    assert gain is not None
    return d, gain


def test_a_larger_problem_of_cuda_cpp_promises_no_tokens(tmp_path: Path) -> None:
    """How much more work its launches can be given is for the program to say."""
    d, gain = small_grids(tmp_path, [(Kernel(f"advance{i}(float *, int)"), 60.0) for i in range(4)], "step")
    assert d.inputs[0].workload == "simulation or HPC loop"
    assert gain.speedup is None
    assert gain.reason == "how much more work a launch of this program can be given is not in the capture"


def test_a_larger_batch_is_counted_in_what_the_program_works_on(tmp_path: Path) -> None:
    d, gain = small_grids(tmp_path, BACKWARD, "train_step")
    assert d.inputs[0].workload == "training"
    assert "x items/s" in gain_text(gain)
    (tmp_path / "decode").mkdir()
    d, gain = small_grids(tmp_path / "decode", DECODE_LAYER, "decode_step")
    assert d.inputs[0].workload == "LLM decode"
    assert "x tokens/s" in gain_text(gain)


def test_decode_gets_no_advice_for_loading_data(tmp_path: Path) -> None:
    d = diagnosed(launch_bound(Machine(), SHORT * 22, "decode_step"), tmp_path)
    assert d.inputs[0].workload == "LLM decode"
    assert (d.inputs[0].workload_confidence or 0) > 0.6
    assert "DataLoader" not in advice(d)
    assert "sequences" in advice(d)


def test_an_encoder_of_text_is_no_language_model(tmp_path: Path) -> None:
    """Layer norms, GELU and attention without a cache, rotations or sampling; a decoder of text samples."""
    norm = Kernel(
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>(int)"
    )
    gelu = Kernel(
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(int)>(int)"
    )
    attention = Kernel("fmha_cutlassF_f16_aligned_64x64_rf_sm80(AttentionKernel<cutlass::half_t>::Params)")
    argmax = Kernel(
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ArgMaxOps<float>>>(int)"
    )
    kinds = []
    for sampled in (False, True):
        m = Machine()
        for _ in range(12):
            m.layers(
                12,
                [
                    (norm, 6),
                    (GEMM, 40),
                    (attention, 30),
                    (GEMM, 18),
                    (norm, 6),
                    (GEMM, 50),
                    (gelu, 14),
                    (GEMM, 50),
                ],
            )
            if sampled:
                m.launch(argmax, 5)
            m.read_back()
        kinds.append(advisor.diagnose(m.write(tmp_path, f"sampled_{sampled}.sqlite")))
    assert [fact(d, "workload.kind", None) for d in kinds] == ["vision or encoder inference", "unknown"]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("matmul_tiled(float*, float*, float*, int)", True),
        ("void sgemm_naive<32>(int, int, int, float const*)", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(Params)", False),
        ("sgemm_32x32x32_NN_vec", False),
    ],
)
def test_products_of_the_programs_own_belong_into_a_library(name: str, own: bool, tmp_path: Path) -> None:
    m = Machine()
    for _ in range(100):
        m.launch(Kernel(name, 4096), 900)
    m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "kernel.own_matmul_ratio") == own
    first = next(f for f in d.findings if f.cause == "compute-bound").recommendations[0].id
    assert (first == "library-products") == own
