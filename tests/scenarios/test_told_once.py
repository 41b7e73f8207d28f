"""Two findings about the same kernels or collectives, of which no estimate says what the second one wins: it
stands under the first, and is neither counted nor graded on its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.findings import Diagnosis
from advisor.pipeline.gate import select
from advisor.reports import summary
from advisor.reports.ending import counts
from tests.scenarios.machine import ALL_REDUCE, GEMM, Kernel, Machine
from tests.scenarios.support import diagnosed, finding, severity
from tests.scenarios.test_unsplit_attention import FLASH, decode
from tests.shipped import shipped_rules

OWN = Kernel("advect_particles(float*, int)")
OTHER = Kernel("settle_particles(float*, int)")


def simulation(*kernels: tuple[Kernel, float, int, int]) -> Machine:
    """Steps of kernels: so many us, blocks and threads a block each."""
    m = Machine()
    for i in range(12):
        with m.step(f"step {i}"):
            for kernel, us, blocks, threads in kernels:
                m.launch(kernel, us, grid=(blocks, 1, 1), block=(threads, 1, 1))
            m.wait()
    return m


def parts(d: Diagnosis) -> dict[str, str | None]:
    """Of the findings above info, the code that each stands under."""
    return {f.cause: f.part_of for f in d.findings if f.severity != "info"}


def test_few_blocks_of_few_threads_are_one_finding(tmp_path: Path) -> None:
    d = diagnosed(simulation((OWN, 900, 1, 4), (GEMM, 40, 4_000, 256)), tmp_path)
    first, second = (f for f in d.findings if f.severity != "info")
    assert {first.cause, second.cause} == {"under-filled-gpu", "blocks-below-a-warp"}
    assert (first.severity, first.part_of) == ("high", None)
    assert (second.severity, second.part_of) == ("low", first.code)
    assert counts(d).startswith("1 finding (1 high), 1 part of it")
    (grid,) = (block for block in summary.findings(d) if hasattr(block, "rows"))
    assert [row[-1].startswith("part of #1: ") for row in grid.rows] == [False, True]


@pytest.mark.parametrize(
    ("blocks", "threads", "cause"), [(1, 256, "under-filled-gpu"), (4_000, 4, "blocks-below-a-warp")]
)
def test_one_fault_is_graded_by_itself(tmp_path: Path, blocks: int, threads: int, cause: str) -> None:
    d = diagnosed(simulation((OWN, 900, blocks, threads), (GEMM, 40, 4_000, 256)), tmp_path)
    assert parts(d) == {cause: None}
    assert severity(d, cause) == "high"


def test_faults_of_different_kernels_are_two(tmp_path: Path) -> None:
    """Alike in time to the digit: the kernels tell them apart."""
    d = diagnosed(simulation((OWN, 450, 1, 256), (OTHER, 450, 4_000, 4)), tmp_path)
    assert parts(d) == {"under-filled-gpu": None, "blocks-below-a-warp": None}
    assert severity(d, "under-filled-gpu") == severity(d, "blocks-below-a-warp") == "high"
    assert counts(d).startswith("2 findings (2 high)")


def test_a_larger_batch_for_the_kernels_of_another_fix(tmp_path: Path) -> None:
    """Attention of few blocks is what leaves the GPU idle: splitting it comes first."""
    d = diagnosed(decode(FLASH, 180, 8), tmp_path)
    assert parts(d).get("under-filled-gpu", "KRN131") == "KRN131"
    assert severity(d, "under-filled-gpu") in (None, "low", "info")


def exchanging(small: int, large: int) -> Machine:
    """One rank: so many collectives of 20 us and of 900 us a step."""
    m = Machine()
    for i in range(12):
        with m.step(f"iteration {i}"):
            for us in [20] * small + [900] * large:
                m.launch(GEMM, 60)
                m.launch(ALL_REDUCE, us)
            m.wait()
    return m


def test_small_collectives_that_are_all_the_exposed_time(tmp_path: Path) -> None:
    d = diagnosed(exchanging(40, 0), tmp_path)
    first, second = (f for f in d.findings if f.part == "communication" and f.severity != "info")
    assert {first.cause, second.cause} == {"exposed-communication", "many-small-collectives"}
    assert (first.part_of, second.part_of, second.severity) == (None, first.code, "low")


def test_small_collectives_beside_large_ones(tmp_path: Path) -> None:
    """The small ones lie in all that is exposed; that is no part of the small ones."""
    d = diagnosed(exchanging(40, 2), tmp_path)
    whole, small = (finding(d, cause) for cause in ("exposed-communication", "many-small-collectives"))
    assert (whole.severity, whole.part_of) == ("medium", None)
    assert (small.severity, small.part_of) == ("low", whole.code)


def test_the_one_that_is_left_out_leaves_the_other_on_its_own(tmp_path: Path) -> None:
    d = diagnosed(simulation((OWN, 900, 1, 4), (GEMM, 40, 4_000, 256)), tmp_path)
    first = d.findings[0]
    (left,) = (
        f for f in select(d, (), (first.code,), shipped_rules().by_code).findings if f.severity != "info"
    )
    assert (left.severity, left.part_of) == ("high", None)
    assert finding(d, left.cause).part_of == first.code
