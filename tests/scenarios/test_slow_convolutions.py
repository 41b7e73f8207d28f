"""Convolutions by the names of their kernels: on a path that libraries fall back to, and healthy ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.findings import Diagnosis
from tests.scenarios.machine import GEMM, NORM, PREFILL_ATTENTION, Kernel, Machine
from tests.scenarios.support import diagnosed, fact, finding, ranked, severity

DIRECT = "void implicit_convolveNd_sgemm<__nv_bfloat16, 3, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int)"
TENSOR = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_execute_kernel"
LAYER = ((NORM, 20), (GEMM, 250), (PREFILL_ATTENTION, 250), (GEMM, 500))


def made(folder: Path) -> Path:
    (folder / "partner").mkdir()
    return folder / "partner"


def encoder(folder: Path, *first: tuple[str, float], layers: int = 24) -> Diagnosis:
    """Forward passes of an encoder whose first layer runs these kernels, in us."""
    m = Machine()
    for i in range(10):
        with m.step(f"forward {i}"):
            for name, us in first:
                m.launch(Kernel(name), us)
            m.layers(layers, list(LAYER))
            m.wait()
    return diagnosed(m, folder)


@pytest.mark.parametrize(
    "name",
    [
        DIRECT,
        "void cudnn::cnn::implicit_convolve_sgemm<__half, __half, 1024, 5, 5, 3, 3, 3, 1>(int)",
        "naive_conv_ab_nonpacked_fwd_ncdhw_ushort_double_ushort",
    ],
)
def test_a_convolution_without_tensor_cores_is_a_fault_and_no_limit(name: str, tmp_path: Path) -> None:
    """The partner runs it on the tensor cores, 40 times as fast."""
    d = encoder(tmp_path, (name, 120_000))
    partner = encoder(made(tmp_path), (TENSOR, 3_000))
    found = finding(d, "slow-convolution")
    assert ranked(d)[0] == "slow-convolution"
    assert found.severity == "high"
    assert fact(d, "kernel.slow_convolution_window_ratio") == pytest.approx(0.83, abs=0.02)
    assert fact(d, "kernel.slow_convolution_name") == name.removeprefix("void ").split("<")[0]
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    true_ms = partner.inputs[0].step_ms
    assert true_ms is not None
    assert found.gain.step_after_ms.low <= true_ms <= found.gain.step_after_ms.high
    assert severity(d, "compute-bound") is None
    assert not any("FP8" in r.action for f in d.findings for r in f.recommendations)


def test_an_input_that_is_unfolded_for_a_product(tmp_path: Path) -> None:
    unfold = "void at::native::vol2col_kernel<c10::BFloat16>(long, c10::BFloat16 const*, int)"
    d = encoder(tmp_path, (unfold, 8_000), (GEMM.name, 3_000))
    assert ranked(d)[0] == "slow-convolution"
    partner = encoder(made(tmp_path), (TENSOR, 3_100))
    gain = finding(d, "slow-convolution").gain
    assert gain is not None
    assert gain.step_after_ms is not None
    assert partner.inputs[0].step_ms is not None
    assert gain.step_after_ms.low <= partner.inputs[0].step_ms <= gain.step_after_ms.high


@pytest.mark.parametrize(
    ("name", "us"),
    [
        (DIRECT, 1_500),  # holds less than a tenth
        (TENSOR, 120_000),
        ("void cudnn::cnn::implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>(int)", 120_000),
    ],
    ids=["little of the step", "tensor cores", "FP32"],
)
def test_other_convolutions_are_none(name: str, us: float, tmp_path: Path) -> None:
    d = encoder(tmp_path, (name, us))
    assert severity(d, "slow-convolution") is None


def test_fp8_is_not_advised_where_most_products_are_convolutions(tmp_path: Path) -> None:
    d = encoder(tmp_path, (TENSOR, 120_000))
    limit = finding(d, "compute-bound")
    assert fact(d, "kernel.convolution_matmul_ratio") > 0.5
    assert not any("FP8" in r.action for r in limit.recommendations)
    assert limit.gain is None or limit.gain.speedup is None
