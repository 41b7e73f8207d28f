"""Decode over a long context whose attention has one block for each sequence and head."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.machine import GEMV, NORM, SILU, Kernel, Machine
from tests.scenarios.support import diagnosed, expect, severity

FLASH = Kernel("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true>(params)")
PAGED = Kernel(
    "void vllm::paged_attention_v1_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128, "
    "(vllm::Fp8KVCacheDataType)0, false>(__nv_bfloat16*)"
)
LAYERS, STEPS = 32, 12


def decode(attention: Kernel, us: float, blocks: int) -> Machine:
    m = Machine()
    for i in range(STEPS):
        with m.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                for kernel, length in (
                    (NORM, 4),
                    (GEMV, 16),
                    (attention, us),
                    (GEMV, 12),
                    (SILU, 4),
                    (GEMV, 12),
                ):
                    grid = blocks if kernel is attention else kernel.blocks
                    m.launch(kernel, length, call=2, grid=(grid, 1, 1))
            m.read_back()
    return m


@pytest.mark.parametrize("kernel", [FLASH, PAGED], ids=["flash", "paged"])
def test_few_blocks_of_a_long_context(kernel: Kernel, tmp_path: Path) -> None:
    """8 of 132 SMs have work for 180 us in each layer: neither the bytes of the cache nor the kernel's tiles
    are what to change first."""
    d = diagnosed(decode(kernel, 180, 8), tmp_path)
    expect(d, "unsplit-attention", never=("attention-dominates", "wide-decode-attention"))
    share = pytest.approx(LAYERS * 0.18 / (d.inputs[0].step_ms or 1), rel=0.01)
    assert [f.value for f in d.facts if f.name == "phase.small_attention_window_ratio"] == [share]
    found = d.findings[0]
    assert found.severity == "high"
    assert found.recommendations[0].id == "attention-backend"
    assert found.gain is not None
    after = found.gain.step_after_ms
    assert after is not None
    rest = LAYERS * 48 / 1e3
    full = LAYERS * 180 * 8 / 132 / 1e3
    assert after.low == pytest.approx(rest + full / 2, rel=0.05)
    assert after.mid == pytest.approx(rest + full, rel=0.05)
    assert after.high == pytest.approx(rest + LAYERS * 90 / 1e3, rel=0.05)


def read_at(dram: int, blocks: int = 60, us: float = 2_000) -> Machine:
    """The same with samples of DRAM, which all kernels keep so busy."""
    m = decode(PAGED, us, blocks)
    count = int(m.gpu_free // 100)
    m.export.gpu_metrics(
        {
            "GR Active": [99] * count,
            "SMs Active": [45] * count,
            "DRAM Read Bandwidth": [dram] * count,
            "DRAM Write Bandwidth": [0] * count,
        }
    )
    return m


@pytest.mark.parametrize(("dram", "low", "mid"), [(23, 0.25, 60 / 132), (46, 0.5, 0.5)])
def test_splits_read_the_cache_no_faster_than_the_memory(
    dram: int, low: float, mid: float, tmp_path: Path
) -> None:
    """60 blocks on 132 SMs fill 45 % of them; at 23 % of the memory's rate (92 % can be had) a quarter of the
    time is what reading takes: the low end. At 46 % that is more than the blocks' share."""
    d = diagnosed(read_at(dram), tmp_path)
    gain = next(f.gain for f in d.findings if f.cause == "unsplit-attention")
    assert gain is not None
    assert gain.step_after_ms is not None
    rest, attention = LAYERS * 0.048, LAYERS * 2.0
    assert gain.step_after_ms.mid == pytest.approx(rest + mid * attention, rel=0.05)
    assert gain.step_after_ms.low == pytest.approx(rest + low * attention, rel=0.15)


@pytest.mark.parametrize(("dram", "blocks"), [(38, 32), (64, 56)])
def test_the_mean_of_samples_bounds_attention_that_holds_nearly_all(
    dram: int, blocks: int, tmp_path: Path
) -> None:
    """Samples cannot tell the few other kernels apart, which may have read nothing or at the full rate."""
    d = diagnosed(read_at(dram, blocks, 1_800), tmp_path)
    assert [f.value for f in d.facts if f.name == "activity.kernels_resolved"] == [False]
    gain = next(f.gain for f in d.findings if f.cause == "unsplit-attention")
    assert gain is not None
    assert gain.step_after_ms is not None
    at_the_memorys_rate = LAYERS * (0.048 + 1.8 * dram / 92)
    assert gain.step_after_ms.low <= at_the_memorys_rate <= gain.step_after_ms.high
    assert gain.step_after_ms.mid == pytest.approx(at_the_memorys_rate, rel=0.05)


def test_blocks_that_fill_the_gpu_are_read_for_their_bytes(tmp_path: Path) -> None:
    d = diagnosed(decode(PAGED, 180, 256), tmp_path)
    expect(d, "attention-dominates", never=("unsplit-attention",))
    assert d.findings[0].recommendations[0].id == "fp8-kv-cache"
    assert {f.value for f in d.facts if f.name == "phase.small_attention_ratio"} == {0.0}


@pytest.mark.parametrize(("blocks", "told"), [(65, True), (66, False)])
def test_half_of_the_sms(blocks: int, told: bool, tmp_path: Path) -> None:
    d = diagnosed(decode(PAGED, 180, blocks), tmp_path)
    assert ("unsplit-attention" in {f.cause for f in d.findings}) is told


def test_short_attention_of_few_blocks_is_no_fault(tmp_path: Path) -> None:
    """4 us are little more than a start."""
    assert severity(diagnosed(decode(PAGED, 4, 8), tmp_path), "unsplit-attention") is None
