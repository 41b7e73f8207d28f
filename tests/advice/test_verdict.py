"""The sentence at the top, where nothing is at fault."""

from __future__ import annotations

from pathlib import Path

from tests.scenarios.machine import Kernel, Machine
from tests.scenarios.support import diagnosed, fact, ranked

OWN = Kernel("void render(float4*, Camera, int)", 2_640)


def test_a_step_without_a_fault_has_nothing_to_fix(tmp_path: Path) -> None:
    m = Machine()
    for i in range(8):
        with m.step(f"iteration {i}"):
            m.layers(16, [(OWN, 400.0)])
    d = diagnosed(m, tmp_path)
    assert ranked(d) == []
    assert d.options == ()
    assert d.verdict.split(": ", 1)[1].startswith("Nothing to fix above 3 % of the step")


def test_what_costs_nothing_is_no_candidate(tmp_path: Path) -> None:
    """Allocations in every iteration behind which the GPU still has work: a remark, not what comes next."""
    m = Machine()
    for i in range(8):
        with m.step(f"iteration {i}"):
            for _ in range(16):
                m.call("cudaMalloc_v3020", 8)
                m.layers(1, [(OWN, 400.0)])
                m.call("cudaFree_v3020", 8)
    d = diagnosed(m, tmp_path)
    assert fact(d, "alloc.calls_per_step") == 32
    assert ranked(d) == []
    assert "candidate" not in d.verdict
