"""What has to be done before what, from whole diagnoses: nothing that makes a capture as a graph fail
may lie in the step, and a fix counts for what it wins in its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.model.findings import Diagnosis
from advisor.reports import summary
from tests.builder import Export
from tests.scenarios.machine import DECODE_ATTENTION, DECODE_LAYER, GEMV, Kernel, Machine
from tests.scenarios.support import diagnosed, ranked, severity

LAYERS = 22
SGEMM = Kernel("ampere_sgemm_128x64_tn")
CAT = Kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, int, 3, 64, 64>(T)")


def eager(inside: Callable[[Machine], None], after: Callable[[Machine], None] = Machine.wait) -> Machine:
    """Decode steps of layers that are launched kernel by kernel, each with something `inside` and each
    step with something `after` it."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                inside(m)
                for kernel, us in DECODE_LAYER:
                    m.launch(kernel, us)
                    m.work(14)
            after(m)
    return m


def nothing(_: Machine) -> None:
    pass


def allocating(m: Machine, us: float = 14) -> None:
    m.call("cudaMalloc_v3020", us)
    m.call("cudaFree_v3020", us)


def longer(m: Machine) -> None:
    """A product that the step ends with: both fixes save less of it."""
    m.launch(GEMV, 1200)
    m.wait()


def to_do(d: Diagnosis) -> list[str]:
    return [item.id for item in d.do]


def test_the_pool_comes_before_the_graph(tmp_path: Path) -> None:
    """Both are of one severity, and the graph saves more: what it requires still stands before it."""
    d = diagnosed(eager(partial(allocating, us=26), longer), tmp_path)
    assert ranked(d)[:2] == ["allocation-churn", "launch-bound"]
    assert to_do(d)[:2] == ["use-memory-pool", "enable-cuda-graphs"]
    pool, graph = d.findings[:2]
    assert pool.severity == graph.severity
    assert pool.ranking is not None
    assert graph.ranking is not None
    assert (pool.ranking.saved or 0) < (graph.ranking.saved or 0)
    # Alone and in the plan: the pool wins before the graph does, and is not credited with nothing.
    assert d.combined is not None
    first, second = d.combined.steps[:2]
    assert (first.what_if, second.what_if) == ("remove_allocations", "cuda_graphs")
    assert first.marginal_share > 0.1
    assert second.marginal_share > 0.1


def test_a_pool_of_lower_severity_still_comes_first_in_what_to_do(tmp_path: Path) -> None:
    """The graph saves a class more and leads the findings; the step cannot be captured before the pool."""
    d = diagnosed(eager(allocating), tmp_path)
    assert ranked(d)[:2] == ["launch-bound", "allocation-churn"]
    assert (severity(d, "launch-bound"), severity(d, "allocation-churn")) == ("high", "medium")
    assert to_do(d)[:2] == ["use-memory-pool", "enable-cuda-graphs"]
    assert summary.verdict(d).startswith("Allocate from a pool, then use CUDA graphs")


def test_read_backs_that_save_little_are_removed_first(tmp_path: Path) -> None:
    d = diagnosed(eager(Machine.read_back), tmp_path)
    assert severity(d, "blocking-sync") == "low"
    assert ranked(d)[0] == "launch-bound"
    assert to_do(d)[:2] == ["remove-host-readbacks", "enable-cuda-graphs"]
    assert "graph" in (d.do[0].because or "") or "capture fail" in (d.do[0].because or "")
    assert summary.verdict(d).startswith("Remove read-backs to the host, then use CUDA graphs")


def test_a_cache_that_grows_is_replaced_before_the_graph(tmp_path: Path) -> None:
    """Keys and values are appended by concatenation: the shapes of attention change at every token."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                for kernel, us in (*DECODE_LAYER[:2], (CAT, 3), (CAT, 3), *DECODE_LAYER[2:]):
                    m.launch(kernel, us)
                    m.work(14)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert severity(d, "kv-cache-concatenation") == "info"  # the GPU waits for launches
    assert ranked(d)[0] == "launch-bound"
    assert to_do(d)[:2] == ["static-kv-cache", "enable-cuda-graphs"]
    assert "grows" in d.do[0].because


def test_what_is_read_back_after_the_step_lies_in_no_graph(tmp_path: Path) -> None:
    assert to_do(diagnosed(eager(nothing, Machine.read_back), tmp_path))[0] == "enable-cuda-graphs"


def test_a_fix_whose_cause_is_not_there_is_not_required(tmp_path: Path) -> None:
    d = diagnosed(eager(nothing), tmp_path)
    assert to_do(d)[0] == "enable-cuda-graphs"
    assert not {"use-memory-pool", "remove-host-readbacks", "pin-memory"} & set(to_do(d))


def test_pinning_comes_before_overlapping(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.copy("HtoD", 64 * 1024, "pageable")
            m.replay(LAYERS)
            m.wait()
    done = to_do(diagnosed(m, tmp_path))
    assert done[0] == "pin-memory"
    assert "prefetch-on-copy-stream" in done[1:]


@pytest.mark.parametrize("level", ["high", "low"])
def test_a_limit_is_no_reason_to_fail(tmp_path: Path, level: str) -> None:
    """Weights that stream at the limit of DRAM hold most of the step: a fact of the GPU, not a fault."""
    m = Machine(Export().gpu(name="NVIDIA H200", capability=(9, 0)))
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(LAYERS, [(DECODE_ATTENTION, 5.0), (GEMV, 200.0)])
    m.sample({DECODE_ATTENTION: (60, 90, 5), GEMV: (60, 92, 5)})
    (found,) = (f for f in diagnosed(m, tmp_path).findings if f.kind == "limit")
    assert (found.cause, found.severity) == ("memory-bandwidth-bound", "high")
    assert main(["diagnose", str(tmp_path / "trace.sqlite"), "--fail-on", level, "-q"]) == 0


def test_what_two_findings_ask_for_is_to_be_done_once(tmp_path: Path) -> None:
    """Training at the limit of the FP32 units: the fault and the limit ask for a narrower type, and
    one estimate tells what both save."""
    m = Machine()
    for i in range(8):
        with m.step(f"train_step {i}"):
            m.layers(16, [(SGEMM, 400.0)])
    m.sample({SGEMM: (98, 30, 0)})
    d = diagnosed(m, tmp_path)
    fault, limit = (next(f for f in d.findings if f.cause == c) for c in ("fp32-matmul", "compute-bound"))
    assert fault.recommendations[0].id == limit.recommendations[0].id
    assert fault.gain is not None
    assert fault.gain.speedup is not None
    assert limit.gain is not None
    assert limit.gain.speedup == fault.gain.speedup
    assert to_do(d).count("lower-precision") == 1


def test_a_fix_that_pays_only_behind_another_follows_it(tmp_path: Path) -> None:
    """The GPU takes 7 ms of FP32 products, and the host 8.2 ms to prepare the next step: faster products
    win nothing until the host is faster, and then most of the step."""
    m = Machine()
    for i in range(12):
        with m.step(f"step {i}"):
            for _ in range(10):
                m.launch(SGEMM, 700)
                m.work(10)
            m.work(8_000)
    d = diagnosed(m, tmp_path)
    precision = next(f for f in d.findings if f.cause == "fp32-matmul")
    assert precision.severity == "info"
    assert d.combined is not None
    assert [s.cause for s in d.combined.steps] == ["host-gap", "fp32-matmul"]
    assert d.combined.steps[1].marginal_share > 0.2
    assert [item.cause for item in d.do] == ["host-gap", "fp32-matmul"]
    then = [block for block in summary.findings(d) if getattr(block, "label", "") == "then"]
    assert "fp32-matmul: lower the precision (saves" in str(then)
