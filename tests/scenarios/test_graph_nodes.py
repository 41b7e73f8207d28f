"""Graphs on a GPU of AMD, whose nodes have times of their own or times that ROCm made up."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.reports.diagnosis_blocks import TextOptions
from tests.kineto_builder import Profile
from tests.reports.fixture import plain
from tests.scenarios.support import fact, severity

US = 1_000
GEMM = "Cijk_Alik_Bljk_BBS_BH_MT64x64x64_MI16x16x1_SN"
NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, int)"


def replays(times: tuple[int, ...], amd: bool = True) -> Profile:
    """Twelve replays of 60 layers: a product, whose calls take `times` in turn, and a norm of 6 us."""
    profile = Profile(amd=amd).gpu(name="AMD Instinct MI300X" if amd else "NVIDIA H200")
    at = 1_000 * US
    for step in range(12):
        profile.annotation(f"decode_step {step}", at, 6_000 * US)
        begin, nodes = at + 100 * US, []
        for layer in range(60):
            for name, us in ((GEMM, times[layer % len(times)]), (NORM, 6)):
                nodes.append((name, begin, us * US))
                begin += (us + 1) * US
        profile.graph_launch(at + 10 * US, 60 * US, nodes)
        profile.sync(begin, 20 * US)
        at = begin + 100 * US
    return profile


@pytest.mark.parametrize(
    ("times", "amd", "told"),
    [
        ((4, 20, 60, 147), True, True),  # the capture of the class
        ((60, 60, 60, 60), True, False),
        ((20, 20, 20, 80), True, False),  # other depths of one product
        ((4, 20, 60, 147), False, False),  # persistent kernels
    ],
)
def test_nodes_of_one_shape_that_differ_widely(
    times: tuple[int, ...], amd: bool, told: bool, tmp_path: Path
) -> None:
    d = advisor.diagnose(replays(times, amd).write(tmp_path / "trace.json"))
    assert (severity(d, "uneven-graph-nodes") == "info") is told
    assert fact(d, "graph.uneven_node_ratio") == (pytest.approx(0.9, abs=0.05) if told else 0)
    if told:
        assert fact(d, "graph.node_time_over") == pytest.approx(147 / 4, rel=0.01)
        assert severity(d, "tail-latency") is None
        assert severity(d, "hidden-tail") is None
        assert "gemm about 90 % of kernel time" in plain(d, TextOptions())
