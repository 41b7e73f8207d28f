"""Kernels that hold most of the time and of whose rate a capture shows nothing: neither fast nor a fault."""

from __future__ import annotations

from pathlib import Path

import advisor
from advisor.model.findings import Diagnosis
from tests.kineto_builder import Profile
from tests.scenarios.support import ranked

US = 1_000
NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, int)"
EXPERTS = "_matmul_ogs_NNT_bf16xbf16xmxfp4_64x256x128x1_swiglu"
ATTENTION = "void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16, 128, 256>(params)"


def decode(folder: Path, us: int, norm_us: int) -> Diagnosis:
    """Twelve steps of a graph of 24 layers on an MI300X: norm, attention, products with quantised weights."""
    profile, at = Profile(amd=True).gpu(name="AMD Instinct MI300X", sms=304, capability=(9, 4)), 1_000 * US
    for step in range(12):
        begin, nodes = at + 100 * US, []
        for _ in range(24):
            for name, length in ((NORM, norm_us), (ATTENTION, 9), (EXPERTS, us), (EXPERTS, us)):
                nodes.append((name, begin, length * US))
                begin += (length + 1) * US
        profile.annotation(f"decode_step {step}", at, begin - at + 30 * US)
        profile.graph_launch(at + 10 * US, 60 * US, nodes)
        profile.sync(begin, 20 * US)
        at = begin + 40 * US
    return advisor.diagnose(profile.write(folder / "trace.json"))


def test_products_of_unknown_rate_are_not_nothing_to_fix(tmp_path: Path) -> None:
    d = decode(tmp_path, 50, 3)
    assert ranked(d) == []
    assert d.verdict.startswith("Busy, but whether its kernels are fast this capture cannot tell")
    assert "_matmul_ogs" in d.verdict


def test_products_that_hold_less_are_not_the_first_word(tmp_path: Path) -> None:
    """The near miss: no family holds most of the time."""
    assert not decode(tmp_path, 8, 12).verdict.startswith("Busy, but")
