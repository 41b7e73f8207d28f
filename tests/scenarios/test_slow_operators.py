"""Operators with recorded sizes: slow kernels, a healthy partner and near misses, by family."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import advisor
from advisor.knowledge.healthy_rates import healthy_rates
from advisor.model.findings import Diagnosis
from tests.kineto_builder import Profile
from tests.scenarios.support import fact, finding, ranked, severity

BF16 = "c10::BFloat16"
#: Dense operations a second of an H200 in 16 bits.
PEAK = 989.4e12


class Operator(NamedTuple):
    name: str
    kernel: str
    sizes: list[Any]
    numbers: list[str]
    flop: float
    #: What healthy kernels usually reach of the peak.
    usual: float

    def us(self, reach: float) -> float:
        return self.flop / PEAK / reach * 1e6


GEMM = Operator(
    "aten::mm", "own_gemm_bf16_kernel", [[8192, 2048], [2048, 2048]], [], 2 * 8192 * 2048 * 2048, 0.62
)
SMALL_GEMM = GEMM._replace(sizes=[[512, 2048], [2048, 2048]], flop=2 * 512 * 2048 * 2048)
ATTENTION = Operator(
    "aten::_flash_attention_forward",
    "flash_fwd_kernel",
    [*[[4, 4096, 16, 128]] * 3, *[[]] * 6],
    [*[""] * 7, "0.", "False"],
    4 * 4 * 16 * 4096 * 4096 * 128,
    0.45,
)
CONVOLUTION = Operator(
    "aten::cudnn_convolution",
    "xmma_fprop_implicit_gemm_kernel",
    [[8, 256, 64, 64], [256, 256, 3, 3], *[[]] * 3],
    ["", "", "[1, 1]", "[1, 1]", "[1, 1]"],
    2 * 8 * 256 * 64 * 64 * 256 * 9,
    0.20,
)


def traced(folder: Path, operator: Operator, us: float, beside: float = 2_000, count: int = 4) -> Diagnosis:
    """Steps of `count` calls of an operator (us each), and of other kernels without sizes (us in all)."""
    p = Profile().gpu(name="NVIDIA H200", sms=132).process(1)
    length = round(1e3 * (count * us + beside)) + 20_000
    types = [BF16 if size else "" for size in operator.sizes]
    for step in range(12):
        at = step * length
        p.annotation(f"forward {step}", at, length - 1_000)
        start = at + 10_000
        for i in range(count):
            now = at + i * 2_000
            args = {"Input Dims": operator.sizes, "Input type": types, "Concrete Inputs": operator.numbers}
            p.op(operator.name, now, 1_800, **args)
            p.launch(now + 200, 1_000, operator.kernel, start, round(1e3 * us))
            start += round(1e3 * us)
        now = at + count * 2_000
        p.launch(now, 1_000, "rms_norm_kernel", start, round(1e3 * beside))
        p.sync(at=now + 2_000, dur=start + round(1e3 * beside) + 4_000 - now - 2_000)
    return advisor.diagnose(p.write(folder / "trace.json"))


def partner_ms(folder: Path, operator: Operator, us: float) -> float:
    (folder / "partner").mkdir()
    step = traced(folder / "partner", operator, us).inputs[0].step_ms
    assert step is not None
    return step


@pytest.mark.parametrize("operator", [GEMM, ATTENTION, CONVOLUTION], ids=["gemm", "attention", "conv"])
def test_slow_kernels_of_a_family(operator: Operator, tmp_path: Path) -> None:
    """At a fifth of what healthy kernels reach. The partner's time is what the fix promises."""
    slow = operator.us(operator.usual / 5)
    d = traced(tmp_path, operator, slow)
    found = finding(d, "slow-kernels")
    assert ranked(d)[0] == "slow-kernels"
    assert fact(d, "operator.slow_reach_ratio") == pytest.approx(operator.usual / 5, rel=0.01)
    assert fact(d, "operator.slow_healthy_ratio") == operator.usual
    share = 4 * slow / (4 * slow + 2_000)
    assert fact(d, "operator.slow_window_ratio") == pytest.approx(share, abs=0.02)
    assert fact(d, "operator.judged_ratio") == pytest.approx(share, abs=0.01)
    assert fact(d, "operator.sized_ratio") == pytest.approx(share, abs=0.01)
    assert fact(d, "operator.healthy_ratio") == pytest.approx(0.2, rel=0.01)
    assert fact(d, "operator.impossible_ratio") == 0
    assert fact(d, "operator.roofline_ratio") == pytest.approx(operator.usual / 5, rel=0.01)
    assert found.gain is not None
    after = found.gain.step_after_ms
    assert after is not None
    true_ms = partner_ms(tmp_path, operator, operator.us(operator.usual))
    assert after.low <= true_ms <= after.high
    assert after.mid == pytest.approx(true_ms, rel=0.05)


def test_what_is_slow_is_named_with_its_sizes_and_its_source(tmp_path: Path) -> None:
    d = traced(tmp_path, ATTENTION, ATTENTION.us(0.09))
    assert fact(d, "operator.slow_family") == "attention"
    sizes = "4x4096x16x128, 4x4096x16x128, 4x4096x16x128"
    assert fact(d, "operator.slow_name") == f"aten::_flash_attention_forward ({sizes})"
    (known,) = (r for r in healthy_rates() if r.family == "attention" and r.usual == ATTENTION.usual)
    assert fact(d, "operator.slow_source") == known.source
    assert [r.id for r in finding(d, "slow-kernels").recommendations] == [
        "attention-backend",
        "micro-benchmark",
    ]


@pytest.mark.parametrize(
    ("operator", "reach", "beside"),
    [
        (GEMM, 0.62, 2_000),  # healthy
        (GEMM, 0.33, 2_000),  # just above half of it
        (ATTENTION, 0.34, 2_000),  # FlashAttention-2 on Hopper
        (SMALL_GEMM, 0.05, 2_000),  # too small to fill the device: its share is not known
        (GEMM, 0.15, 40_000),  # little of the step
    ],
)
def test_near_misses(operator: Operator, reach: float, beside: float, tmp_path: Path) -> None:
    d = traced(tmp_path, operator, operator.us(reach), beside)
    assert severity(d, "slow-kernels") is None


def test_no_rates_are_judged_where_times_are_damaged(tmp_path: Path) -> None:
    """Twice as fast as the peak."""
    d = traced(tmp_path, GEMM, GEMM.us(2.0), beside=100)
    assert severity(d, "slow-kernels") is None
    assert fact(d, "operator.impossible_ratio") == pytest.approx(
        4 * GEMM.us(2.0) / (4 * GEMM.us(2.0) + 100), abs=0.01
    )


@pytest.mark.parametrize(
    ("operator", "reach", "beside", "words"),
    [
        (GEMM, 0.62, 300, "reach 100 % of what healthy ones usually do at their size: they are fast"),
        (GEMM, 0.15, 40_000, "Kernels of gemm may be slow"),
        (SMALL_GEMM, 0.05, 10, "what healthy kernels reach at these sizes is not known"),
    ],
    ids=["fast", "may be slow", "not known"],
)
def test_without_a_fault_the_verdict_says_how_fast_kernels_are(
    operator: Operator, reach: float, beside: float, words: str, tmp_path: Path
) -> None:
    d = traced(tmp_path, operator, operator.us(reach), beside)
    assert severity(d, "slow-kernels") is None
    assert words in d.verdict


def test_without_sizes_the_verdict_says_what_records_them(tmp_path: Path) -> None:
    d = traced(tmp_path, GEMM._replace(sizes=[]), GEMM.us(0.5))
    assert "record_shapes=True" in d.verdict
