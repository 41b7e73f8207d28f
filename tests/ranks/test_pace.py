"""Which rank runs the same kernels slower, on tables small enough to work out by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from advisor.jobs.waiting import Pace, paces
from advisor.metrics.profiled.pace import KernelPace
from tests.ranks.support import rows


def of(*medians: dict[str, float], calls: float = 10.0) -> list[Pace | None]:
    """Ranks whose kernels have these medians, ns, each called `calls` times a step."""
    return paces(
        [
            replace(
                rows(rank, [100.0]),
                paces=tuple(
                    KernelPace(hash(name), name, calls, calls * ns, ns) for name, ns in kernels.items()
                ),
            )
            for rank, kernels in enumerate(medians)
        ]
    )


USUAL = {"gemm": 100.0, "attention": 50.0, "norm": 10.0}


def test_a_rank_is_set_beside_the_median_of_the_others() -> None:
    slow = {name: 1.2 * ns for name, ns in USUAL.items()}
    first, *_, last = of(USUAL, USUAL, USUAL, slow)
    assert last is not None
    assert last.slowdown == pytest.approx(1.2)
    assert last.alike == 1.0
    assert [k.name for k in last.kernels] == ["gemm", "attention", "norm"]
    assert first is not None
    assert first.slowdown == pytest.approx(1.0)


def test_without_its_heaviest_kernel_less_may_be_slowed_alike() -> None:
    """A product of 200 for 100 ns: of the rest nothing is slower."""
    *_, last = of(USUAL, USUAL, USUAL | {"gemm": 200.0})
    assert last is not None
    assert last.slowdown == pytest.approx(260 / 160)
    assert last.alike == 0


def test_ranks_that_run_other_kernels_are_not_compared() -> None:
    assert of(USUAL, {"conv": 100.0, "pool": 50.0, "relu": 10.0}) == [None, None]
    assert of(USUAL) == [None]


def test_kernels_without_time_are_not_compared() -> None:
    assert of(USUAL, dict.fromkeys(USUAL, 0.0)) == [None, None]
