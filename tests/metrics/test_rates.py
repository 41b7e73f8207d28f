"""Rates of operators: what was done over the time of its kernels, never above what the GPU can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.metrics.profiled.rates import OperatorRates, operator_rates
from advisor.metrics.profiled.stage import measure
from advisor.metrics.stats.reports import make_report
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.captures import SHARED
from tests.kineto_builder import Profile

GEMM = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
BF16 = "c10::BFloat16"
#: 2 x 4096^3 operations take 138.9 us at the 989.4 TFLOPS of an H200.
SIZES = [[4096, 4096], [4096, 4096]]

Kernels = list[tuple[str, int]]


def traced(
    kernels: Kernels, sizes: list[Any] = SIZES, kind: str = BF16, operator: str = "aten::mm", **more: Any
) -> Profile:
    """12 steps, each one call of an operator with these kernels (ns)."""
    p = Profile().gpu().process(1)
    length = sum(ns for _, ns in kernels) + 50_000
    for step in range(12):
        at = step * length
        p.annotation(f"step {step}", at, length - 1_000)
        p.op(operator, at, 30_000, **{"Input Dims": sizes, "Input type": [kind] * len(sizes)}, **more)
        start = at + 40_000
        for i, (name, ns) in enumerate(kernels):
            p.launch(at + 2_000 + i * 6_000, 5_000, name, start, ns)
            start += ns
    return p


def rates(p: Profile, folder: Path) -> OperatorRates | None:
    return operator_rates(measure(open_trace(p.write(folder / "trace.json"))), 0)


def test_all_kernels_of_a_call_are_one_call(tmp_path: Path) -> None:
    found = rates(traced([(GEMM, 200_000), ("splitKreduce_kernel", 77_800)]), tmp_path)
    assert found is not None
    (rate,) = found.rates
    assert rate.name == "aten::mm"
    assert rate.time_ns == rate.calls * 277_800
    assert rate.flop_per_s == pytest.approx(2 * 4096**3 / 277.8e-6)
    assert rate.of_peak == (pytest.approx(0.5, abs=0.001), pytest.approx(0.5, abs=0.001))
    assert rate.of_roofline == pytest.approx(0.5, abs=0.001)
    assert len(found.others) == 0


def test_the_innermost_operator_with_known_work_counts(tmp_path: Path) -> None:
    p = Profile().gpu().process(1)
    for step in range(12):
        at = step * 400_000
        p.annotation(f"step {step}", at, 390_000)
        for i, name in enumerate(("aten::linear", "aten::mm", "mylib::tuned")):
            known = {"Input Dims": SIZES, "Input type": [BF16] * 2} if i < 2 else {}
            p.op(name, at + 500 * i, 30_000 - 1_000 * i, **known)
        p.launch(at + 2_000, 5_000, GEMM, at + 40_000, 277_800)
    found = rates(p, tmp_path)
    assert found is not None
    assert [rate.name for rate in found.rates] == ["aten::mm"]


def test_the_kernels_tell_where_operands_of_32_bits_are_multiplied(tmp_path: Path) -> None:
    """67 TFLOPS on the ordinary cores, 494.7 as TF32."""
    for kernel, low, high in [
        ("ampere_sgemm_128x64_tn", 0.5, 0.5),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x64", 0.5 * 66.9 / 494.7, 0.5 * 66.9 / 494.7),
        ("own_gemm", 0.5 * 66.9 / 494.7, 0.5),
    ]:
        found = rates(traced([(kernel, round(4 * 4096**3 / 66.9e3))], kind="float"), tmp_path)
        assert found is not None
        assert found.rates[0].of_peak == (pytest.approx(low, rel=0.01), pytest.approx(high, rel=0.01))


def test_what_is_faster_than_the_gpu_has_no_rate(tmp_path: Path) -> None:
    path = traced([(GEMM, 100_000)]).write(tmp_path / "trace.json")
    analysis = measure(open_trace(path))
    found = operator_rates(analysis, 0)
    assert found is not None
    (rate,) = found.rates
    assert rate.is_impossible
    assert (rate.of_peak, rate.of_bandwidth, rate.roofline_ns) == (None, None, None)
    table = make_report(analysis, "operators")
    assert table.frame["TFLOP/s"].isna().all()
    assert "ran faster than the GPU can" in table.note


def test_bytes_may_come_from_the_cache(tmp_path: Path) -> None:
    """16 MB a call at 10 TB/s: twice what the memory of an H200 does, but its L2 cache holds 50 MB. 1 GB does
    not fit."""
    for elements, ns, impossible in [(4 << 20, 1_600, False), (256 << 20, 100_000, True)]:
        p = traced([("vectorized_elementwise_kernel", ns)], [[elements]], operator="aten::relu")
        found = rates(p, tmp_path)
        assert found is not None
        assert found.rates[0].is_impossible == impossible
        assert found.rates[0].of_bandwidth is None


def test_ranges_of_nsys_with_sizes_tell_operations(tmp_path: Path) -> None:
    """As torch.autograd.profiler.emit_nvtx(record_shapes=True) writes them: without types."""
    export = Export().gpu().process(1)
    for step in range(12):
        at = step * 400_000
        export.range(f"step {step}", at, at + 390_000)
        export.range("aten::mm, op_id = 7, sizes = [[4096, 4096], [4096, 4096]]", at, at + 20_000)
        export.launch(at=at + 1_000, dur=5_000, kernel=GEMM, kernel_start=at + 30_000, kernel_dur=277_800)
    found = operator_rates(measure(open_trace(export.write(tmp_path / "trace.sqlite"))), 0)
    assert found is not None
    (rate,) = found.rates
    assert rate.flop_per_s == pytest.approx(2 * 4096**3 / 277.8e-6)
    assert (rate.bytes_per_s, rate.of_peak) == (None, None)


def test_a_trace_without_sizes_has_no_rates(tmp_path: Path) -> None:
    p = Profile().gpu().process(1)
    for step in range(12):
        p.annotation(f"step {step}", step * 100_000, 90_000).op("aten::mm", step * 100_000, 30_000)
        p.launch(step * 100_000 + 2_000, 5_000, GEMM, step * 100_000 + 10_000, 50_000)
    analysis = measure(open_trace(p.write(tmp_path / "trace.json")))
    assert operator_rates(analysis, 0) is None
    table = make_report(analysis, "operators")
    assert "record_shapes=True" in table.note
    assert table.frame["Operator"].tolist() == ["other gemm kernels"]


TRACES = sorted(p for p in SHARED.rglob("*.json.*") if p.stat().st_size < 4 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name[:40])
def test_no_rate_of_a_real_trace_is_above_the_peak(path: Path) -> None:
    with open_trace(path) as trace:
        analysis = measure(trace)
        for device in analysis.devices:
            found = analysis.seen_from(device).operator_rates(device)
            if found is None:
                continue
            others = float(analysis.ops.length[found.others].sum())
            assert found.sized_ns + others == pytest.approx(found.kernel_ns)
            for rate in found.rates:
                assert rate.of_peak is None or 0 <= rate.of_peak[0] <= rate.of_peak[1] <= 1
                assert rate.of_bandwidth is None or 0 <= rate.of_bandwidth <= 1
                assert rate.of_roofline is None or 0 <= rate.of_roofline <= 1
