"""The sentence at the top: what it says where nothing is at fault, and behind a fault of the capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.rank import without_fault
from advisor.pipeline.verdict import large_parts
from advisor.reports import summary
from tests.builder import Export
from tests.scenarios.machine import Kernel, Machine
from tests.scenarios.support import diagnosed, fact, ranked, severity

OWN = Kernel("void render(float4*, Camera, int)", 2_640)


def iterations(sampled: bool = False) -> Machine:
    m = Machine()
    for i in range(8):
        with m.step(f"iteration {i}"):
            m.layers(16, [(OWN, 400.0)])
    if sampled:
        m.sample({OWN: (95, 40, 0)})
    return m


def test_whether_a_kernel_that_holds_the_step_is_fast_is_not_known(tmp_path: Path) -> None:
    d = diagnosed(iterations(), tmp_path)
    assert ranked(d) == []
    assert d.options == ()
    said = d.verdict.split(": ", 1)[1]
    assert said.startswith("Busy, but whether its kernels are fast this capture cannot tell")
    assert "render" in said


def test_a_step_without_a_fault_has_nothing_to_fix(tmp_path: Path) -> None:
    d = diagnosed(iterations(sampled=True), tmp_path)
    assert d.verdict.split(": ", 1)[1].startswith("Nothing to fix above 3 % of the step")
    said = without_fault(None, "the GPU is busy 90 % of the window", "this capture", unrated={"render": 0.9})
    assert said.startswith("Busy, but")
    said = without_fault((), "the GPU is busy 90 % of the window", "this capture", unrated={"gemm": 0.4})
    assert said.startswith("Nothing to fix above 3 %")
    assert "not judged is how fast gemm (40 % of the step) run" in said


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


def uploads(count: int, context_ms: int) -> Export:
    """A context, 300 ms of code on the host, then pageable uploads of 1.3 ms with a kernel each, and 150 ms
    of frees."""
    begin = (context_ms + 300) * 1_000_000
    export = Export().gpu().process(1).call("cudaFree_v3020", 0, context_ms * 1_000_000)
    for i in range(count):
        at = begin + i * 2_000_000
        export.copy(at, 1_500_000, "HtoD", bytes=8 << 20, copy_start=at + 100_000, copy_dur=1_300_000)
        export.launch(at=at + 1_510_000, kernel="render", kernel_start=at + 1_520_000, kernel_dur=200_000)
    return export.call("cudaFreeHost_v3020", begin + count * 2_000_000 + 10_000_000, 150_000_000)


@pytest.mark.parametrize(("count", "context_ms"), [(700, 700), (60, 200)], ids=["half", "15 %"])
def test_the_program_comes_before_start_up_that_is_set_aside(
    count: int, context_ms: int, tmp_path: Path
) -> None:
    """A window of half of the capture, and of 15 %: what is judged comes first, whatever start-up takes."""
    d = diagnosed(uploads(count, context_ms), tmp_path)
    assert ranked(d)[0] == "pageable-copies"
    assert ranked(d)[-1] == "startup-in-window"
    assert (severity(d, "pageable-copies"), severity(d, "startup-in-window")) == ("high", "medium")
    assert "pageable" in d.verdict.partition(".")[0]


def test_start_up_alone_comes_first(tmp_path: Path) -> None:
    """Without the copies nothing else is above info."""
    begin = 500 * 1_000_000
    export = Export().gpu().process(1).call("cudaFree_v3020", 0, 200_000_000)
    for i in range(700):
        at = begin + i * 210_000
        export.launch(at=at, kernel="render", kernel_start=at + 10_000, kernel_dur=200_000)
    d = diagnosed(export, tmp_path)
    assert ranked(d) == ["startup-in-window"]
    assert severity(d, "startup-in-window") == "medium"


def test_start_up_behind_the_program_says_what_the_capture_is_made_of(tmp_path: Path) -> None:
    d = diagnosed(uploads(60, 200), tmp_path)
    rest = "39 % host code before the first GPU operation, 19.5 % tear-down"
    assert fact(d, "capture.rest", None) == rest
    assert f": {d.findings[0].title}. " in d.verdict
    assert d.headline is not None
    assert d.headline.cause == "pageable-copies"
    assert "start" not in summary.verdict(d)


@pytest.mark.parametrize(("share", "named"), [(0.10, True), (0.099, False)])
def test_nothing_to_fix_is_not_said_of_a_part_of_a_tenth(share: float, named: bool) -> None:
    parts = large_parts([("compute", 0.8), ("htod", share)])
    assert list(parts) == (["HtoD copies"] if named else [])
    said = without_fault((), "the GPU is busy 90 % of the window", "this capture", unowned=parts)
    assert ("Nothing to fix" in said) is not named
    assert ("HtoD copies (10 %) of the step" in said) is named
