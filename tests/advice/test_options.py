"""What an expert would add beside the fix: where it is offered, with what it wins, and where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.findings import Alternative, Diagnosis
from advisor.reports.diagnosis_blocks import TextOptions
from tests.builder import Export
from tests.reports.fixture import plain
from tests.scenarios.machine import (
    ADD,
    DECODE_ATTENTION,
    DECODE_LAYER,
    GEMM,
    GEMV,
    PREFILL_ATTENTION,
    Kernel,
    Machine,
)
from tests.scenarios.support import diagnosed


def decode(*layer: tuple[Kernel, float], tensor: int = 5, between: float = 0.3, gpu: str = "H200") -> Machine:
    """Replayed decode steps of 22 such layers, their GEMVs at the DRAM limit with this much activity
    of the tensor pipe, and the nodes of a graph so many us apart."""
    capability = {"H200": (9, 0), "A100-SXM4-80GB": (8, 0)}[gpu]
    m = Machine(Export().gpu(name=f"NVIDIA {gpu}", capability=capability))
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, list(layer), between=between)
    levels = {ADD: (30, 20, 0), DECODE_ATTENTION: (60, 90, 5), GEMV: (60, 92, tensor)}
    m.sample({kernel: levels.get(kernel, (60, 50, 5)) for kernel, _ in layer})
    return m


def offered(d: Diagnosis, cause: str) -> dict[str, Alternative]:
    return {o.action: o for f in d.findings if f.cause == cause for o in f.alternatives}


LAYER = ((ADD, 3.0), (DECODE_ATTENTION, 30.0), (GEMV, 60.0))


def test_decode_that_waits_for_weights_may_speculate_quantise_and_batch(tmp_path: Path) -> None:
    options = offered(diagnosed(decode(*LAYER), tmp_path), "memory-bandwidth-bound")
    assert {"speculative-decoding", "int4-weights", "fp8-kv-cache", "raise-batch-size"} <= options.keys()
    for action, measure in (("speculative-decoding", "throughput"), ("int4-weights", "latency")):
        gain = options[action].gain
        assert gain is not None
        assert gain.measure == measure
    speculation = options["speculative-decoding"].gain
    assert speculation is not None
    assert speculation.params["n"] == 2
    assert speculation.speedup is None or 1.0 < speculation.speedup.mid < 2.0


def test_a_busy_tensor_pipe_has_no_room_for_drafts(tmp_path: Path) -> None:
    options = offered(diagnosed(decode(*LAYER, tensor=40), tmp_path), "memory-bandwidth-bound")
    assert options
    assert not {"speculative-decoding", "raise-batch-size"} & options.keys()


def test_prefill_is_offered_no_drafts(tmp_path: Path) -> None:
    m = Machine()
    for i in range(8):
        with m.step(f"prefill {i}"):
            m.layers(16, [(GEMM, 400.0), (PREFILL_ATTENTION, 300.0)])
    d = diagnosed(m, tmp_path)
    said = {o.action for f in d.findings for o in f.alternatives}
    said |= {r.id for f in d.findings for r in f.recommendations}
    assert not said & {"speculative-decoding", "fp8-kv-cache", "int4-weights"}


@pytest.mark.parametrize(("gpu", "offers"), [("H200", True), ("A100-SXM4-80GB", False)])
def test_gaps_between_graph_nodes(tmp_path: Path, gpu: str, offers: bool) -> None:
    """Kernels that begin early need a GPU that can; longer kernels and one for all layers do not."""
    d = diagnosed(decode(*DECODE_LAYER, between=1.5, gpu=gpu), tmp_path)
    (found,) = (f for f in d.findings if f.cause == "graph-node-gaps")
    assert found.gain is not None
    assert found.gain.what_if == "shorten_node_gaps"
    ids = [r.id for r in found.recommendations]
    assert ("programmatic-dependent-launch" in ids) is offers
    assert "fused-kernels" in ids
    assert [o.action for o in found.alternatives] == ["persistent-megakernel"]


def test_small_gaps_between_graph_nodes_are_in_order(tmp_path: Path) -> None:
    d = diagnosed(decode((GEMM, 60.0), (DECODE_ATTENTION, 30.0)), tmp_path)
    assert "graph-node-gaps" not in {f.cause for f in d.findings}


SGEMM = Kernel("ampere_sgemm_128x64_tn")


@pytest.mark.parametrize(
    ("gpu", "capability", "offers"),
    [("NVIDIA A100-SXM4-80GB", (8, 0), True), ("NVIDIA GeForce RTX 3090", (8, 6), False)],
)
def test_no_option_that_wins_nothing(
    tmp_path: Path, gpu: str, capability: tuple[int, int], offers: bool
) -> None:
    """TF32 is as fast as FP32 on GeForce boards: there the 16-bit types alone are advised."""
    m = Machine(Export().gpu(name=gpu, capability=capability))
    for i in range(8):
        with m.step(f"train_step {i}"):
            m.layers(16, [(SGEMM, 400.0)])
    d = diagnosed(m, tmp_path)
    (found,) = (f for f in d.findings if f.cause == "fp32-matmul")
    assert found.recommendations[0].id == "lower-precision"
    assert ("allow-tf32" in {a.action for a in found.alternatives}) is offers
    assert "TF32" not in " ".join(r.action for r in found.recommendations)


def test_option_lines_of_another_way_are_printed(tmp_path: Path) -> None:
    d = diagnosed(decode(*LAYER), tmp_path)
    limit = next(f for f in d.findings if f.cause == "memory-bandwidth-bound")
    int4 = next(a for a in limit.alternatives if a.action == "int4-weights")
    assert int4.options
    text = " ".join(plain(d, TextOptions(verbosity=1), width=200).split())
    assert " ".join(int4.options[0].line.split()) in text


def test_idle_parts_that_are_nothing_are_not_told(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"iteration {i}"):
            for _ in range(4):
                m.launch(GEMM, 60)
                m.work(66)
    d = diagnosed(m, tmp_path)
    (found,) = (f for f in d.findings if f.cause == "gpu-idle")
    assert "for launches" in found.message
    assert " 0 %" not in found.message
