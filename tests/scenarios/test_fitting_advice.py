"""Advice that fits the GPU, and nothing that a capture shows in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.knowledge.engine_signs import Program, options_for
from advisor.model.capture import Device
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
    Kernel,
    Machine,
)
from tests.scenarios.support import diagnosed, fact
from tests.scenarios.test_recorded_causes import advice

POINTWISE = Kernel("triton_poi_fused_add_mul_silu_3")


def split_decode(gpu: str) -> Machine:
    """Decode on GPUs that share each layer: two all-reduces a layer that hide behind nothing."""
    m = Machine(gpu=gpu)
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(30):
                m.layers(
                    1,
                    [
                        (NORM, 4),
                        (GEMV, 40),
                        (DECODE_ATTENTION, 20),
                        (ALL_REDUCE, 30),
                        (GEMV, 80),
                        (ALL_REDUCE, 30),
                    ],
                )
            m.wait()
    return m


@pytest.mark.parametrize(
    ("gpu", "links", "split"),
    [
        ("NVIDIA L40S", "PCIe", True),
        ("NVIDIA GeForce RTX 4090", "PCIe", True),
        ("NVIDIA H100 PCIe", "bridge", True),
        ("NVIDIA H200", "NVLink", False),
        ("Some GPU", None, False),
    ],
)
def test_ranks_that_meet_over_pcie(gpu: str, links: str | None, split: bool, tmp_path: Path) -> None:
    d = diagnosed(split_decode(gpu), tmp_path)
    assert fact(d, "gpu.links", None) == links
    found = advice(d, "exposed-communication")
    assert ("pipeline-stages" in found) is split
    assert "fewer-gpus-per-model" in found
    if split:
        assert found.index("pipeline-stages") < found.index("fewer-gpus-per-model")
    if links == "PCIe":
        assert "one-shot-all-reduce" not in advice(d, "many-small-collectives")


@pytest.mark.parametrize(
    ("gpu", "told"), [("NVIDIA H200", True), ("NVIDIA L40S", False), ("NVIDIA RTX 5090", False)]
)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_fusion_of_two_generations_is_no_option_for_others(engine: str, gpu: str, told: bool) -> None:
    program = Program(device=Device(id=0, name=gpu))
    assert bool(options_for("overlap-communication", engine, program)) is told


def test_chunks_that_share_steps_with_decodes_already(tmp_path: Path) -> None:
    """Prompts of 4,096 tokens beside 16 decodes: smaller chunks, not chunks as such."""
    m = Machine()
    for i in range(60):
        long = i % 6 == 5
        name = f"execute_context_{int(long)}({4096 * long})_generation_16(16)"
        with m.step(name):
            for _ in range(20):
                m.layers(1, [(NORM, 4), (GEMM, 100 + 900 * long), (DECODE_ATTENTION, 60)])
                if long:
                    m.layers(1, [(PREFILL_ATTENTION, 800)])
            m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "serving.mixed_step_count") == 10
    assert advice(d, "prefill-holds-decode")[0] == "smaller-chunks"
    assert "chunked-prefill" not in [r.id for f in d.findings for r in f.recommendations]


@pytest.mark.parametrize(("compiled", "first"), [(False, "compile-model"), (True, "fix-graph-breaks")])
def test_a_compiled_model_is_not_compiled_again(compiled: bool, first: str, tmp_path: Path) -> None:
    """Many small kernels a layer: written by the compiler, or one for each operator."""
    small = [(POINTWISE, 9)] * 6 if compiled else [(ADD, 9), (MUL, 9)] * 3
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(30, [*DECODE_LAYER, *small, (ADD, 9)])
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert advice(d, "unfused-elementwise")[0] == first
    named = [r.id for f in d.findings for r in f.recommendations]
    assert ("compile-model" in named) is not compiled


def test_a_loop_without_a_model_is_not_compiled(tmp_path: Path) -> None:
    """One elementwise kernel of PyTorch again and again, with host code between: no model to compile."""
    m = Machine()
    for _ in range(200):
        m.launch(ADD, 20)
        m.wait()
        m.work(15)
    d = diagnosed(m, tmp_path)
    assert fact(d, "workload.is_model", None) is False
    assert "compile-model" not in [r.id for f in d.findings for r in f.recommendations]
