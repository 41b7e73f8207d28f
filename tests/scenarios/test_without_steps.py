"""Captures without steps: what is counted by step elsewhere is counted by kernels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.builder import Export
from tests.scenarios import eager
from tests.scenarios.machine import DECODE_ATTENTION, GEMM, GEMV, Kernel, Machine
from tests.scenarios.support import ranked, severity

US, MS = 1_000, 1_000_000


def loop(count: int = 200, host: int = 0) -> Export:
    """The same kernel again and again, each after an allocation of its own and followed by a copy
    of 3.7 KB and a free; `host` us of the program's own work come before each."""
    export = Export().gpu().process(1)
    t = 0
    for _ in range(count):
        t += host * US
        export.call("cudaMalloc_v3020", t, 20 * US)
        export.launch(
            at=t + 25 * US,
            dur=5 * US,
            kernel="solve(float*, int)",
            kernel_start=t + 32 * US,
            kernel_dur=30 * US,
        )
        export.copy(t + 65 * US, 15 * US, "HtoD", bytes=3_700, copy_start=t + 70 * US, copy_dur=2 * US)
        export.call("cudaFree_v3020", t + 82 * US, 20 * US)
        t += 105 * US
    return export


def diagnosed(export: Export, folder: Path) -> Diagnosis:
    return advisor.diagnose(export.write(folder / "t.sqlite"))


def facts(d: Diagnosis) -> dict[str, object]:
    return {f.name: f.value for f in d.facts}


def test_an_allocation_for_every_kernel_is_churn(tmp_path: Path) -> None:
    d = diagnosed(loop(), tmp_path)
    found = facts(d)
    assert found["capture.step_count"] == 0
    assert found["alloc.calls_per_100_kernels"] == pytest.approx(200, rel=0.02)
    assert found["copy.tiny_per_100_kernels"] == pytest.approx(100, rel=0.02)
    causes = [f.cause for f in d.findings]
    assert {"allocation-churn", "tiny-copies"} <= set(causes)
    (churn,) = (f for f in d.findings if f.cause == "allocation-churn")
    assert "for every 100 kernels" in churn.message
    assert "a step" not in churn.message


def test_host_work_without_steps_is_a_host_gap(tmp_path: Path) -> None:
    """310 us of host code in every 405: severity follows the middle of what the window would save."""
    d = diagnosed(loop(host=300), tmp_path)
    (gap,) = (f for f in d.findings if f.cause == "host-gap")
    assert gap.severity == "high"
    assert gap.gain is not None
    assert gap.gain.of == "window"
    assert facts(d)["host.gap_ratio"] == pytest.approx(310 / 405, abs=0.005)
    assert "gpu-idle" not in [f.cause for f in d.findings]


#: Casts before products, and attention in pieces.
WIDENED = ((eager.WIDEN, 90), (GEMV, 60), (eager.WIDEN, 90), (GEMV, 60), (DECODE_ATTENTION, 8))
CAST = ((eager.TO_BF16, 110), (GEMV, 60), (eager.TO_BF16, 110), (GEMV, 60), (DECODE_ATTENTION, 8))
IN_PIECES = ((GEMM, 120), (eager.SCALE, 90), (eager.SOFTMAX, 120), (GEMM, 120))


@pytest.mark.parametrize(
    ("layer", "cause"),
    [(WIDENED, "separate-dequantisation"), (CAST, "repeated-weight-casts"), (IN_PIECES, "unfused-attention")],
)
def test_one_pass_names_what_its_elementwise_kernels_are(
    layer: tuple[tuple[Kernel, float], ...], cause: str, tmp_path: Path
) -> None:
    m = Machine()
    m.layers(40, [(eager.NORM, 3), *layer, (GEMV, 60)])
    m.wait()
    d = diagnosed(m.export, tmp_path)
    found = facts(d)
    assert found["capture.step_count"] == 0
    assert ranked(d)[0] == cause
    assert severity(d, cause) == "high"
    assert "unfused-elementwise" not in ranked(d)
    all_small = sum(us for kernel, us in layer if kernel not in (GEMV, GEMM, DECODE_ATTENTION))
    assert found["kernel.unfused_named_ratio"] == pytest.approx(all_small / (all_small + 3), abs=0.01)
    pieces = 100 / 6 if layer is IN_PIECES else 0
    assert found["kernel.attention_pieces_per_100_kernels"] == pytest.approx(pieces, rel=0.02)
    assert found["embedding.lookups_per_100_kernels"] == 0


def test_concatenations_of_a_window_that_is_one_pass(tmp_path: Path) -> None:
    m = Machine()
    for i in range(150):
        for _ in range(1 + i * 7 % 5):
            m.launch(GEMM, 60 + i * 37 % 41)
        m.launch(eager.CAT, 20 + i * 13 % 17)
        if i % 11 == 3:
            m.launch(DECODE_ATTENTION, 30)
    d = diagnosed(m.export, tmp_path)
    assert facts(d)["capture.step_count"] == 0
    assert "concatenations" in ranked(d)
    (gain,) = (f.gain for f in d.findings if f.cause == "concatenations")
    assert gain is not None
    assert gain.speedup is not None


def test_what_is_counted_without_steps_is_of_the_window(tmp_path: Path) -> None:
    export = loop()
    export.overhead(0, 2 * MS)
    d = diagnosed(export, tmp_path)
    told = [text for f in d.findings if f.gain is not None for text in f.gain.assumptions]
    assert any(re.search("wrote its records for .* a window", text) for text in told)
    assert not any(" a step: taken out" in text or " a step more" in text for text in told)


@pytest.mark.parametrize("threads", [1, 2])
def test_times_of_several_threads_say_that_they_are_a_sum(tmp_path: Path, threads: int) -> None:
    export = loop()
    for thread in range(1, threads):
        export.thread(100 + thread).call("cudaStreamSynchronize_v3020", MS, 15 * MS)
    title = diagnosed(export, tmp_path).tables["api"].title
    ends = ", summed over 2 threads" if threads == 2 else "share of the window"
    assert title.endswith(ends)
