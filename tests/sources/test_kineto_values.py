"""What the values of a PyTorch trace read as: times, ids, sizes, labels, versions."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from advisor.sources.kineto.columns import (
    NO_TIME,
    integer,
    integers,
    nanoseconds,
    product,
    rank_order,
    triples,
)
from advisor.sources.open import open_trace
from advisor.sources.schema import ALLOCATED, FREED, MISSING
from tests.kineto_builder import Profile

LATEST_US = 1 << 52  # 142 years


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [
        ([0, 5, -5], [0, 5_000, -5_000]),
        ([0.999, 1.5, -0.25], [999, 1_500, -250]),
        ([Decimal("1713478953123456.789")], [1_713_478_953_123_456_789]),
        ([7, "1.25", None, True, [1], "soon"], [7_000, 1_250, NO_TIME, NO_TIME, NO_TIME, NO_TIME]),
        ([[1], [2]], [NO_TIME, NO_TIME]),
        ([LATEST_US - 1], [(LATEST_US - 1) * 1000]),
        ([LATEST_US], [NO_TIME]),
        ([Decimal(LATEST_US), Decimal("inf")], [NO_TIME, NO_TIME]),
    ],
)
def test_times_are_exact_or_none(microseconds: list[Any], expected: list[int]) -> None:
    assert nanoseconds(microseconds).tolist() == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]),
        ([[1.0, 2.0, 3.0]], [[1, 2, 3]]),
        ([[1, 2], [4, 5, 6], None], [[MISSING] * 3, [4, 5, 6], [MISSING] * 3]),
        ([], []),
    ],
)
def test_sizes_are_whole_numbers(sizes: list[Any], expected: list[list[int]]) -> None:
    found = triples(sizes)
    assert (found.tolist(), found.dtype.kind, found.shape) == (expected, "i", (len(sizes), 3))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        ("stream 7", 7),
        (7.0, 7),
        ((1 << 63) - 1, (1 << 63) - 1),
        (1 << 63, MISSING),
        (-(1 << 63), -(1 << 63)),
        (-(1 << 63) - 1, MISSING),
        (True, MISSING),
        ("seven", MISSING),
        (float("inf"), MISSING),
        (None, MISSING),
    ],
)
def test_whole_numbers(value: Any, expected: int) -> None:
    assert integer(value) == expected


def test_lists_are_no_numbers() -> None:
    assert integers([[1], [2]]).tolist() == [MISSING, MISSING]


def test_sizes_of_a_grid_come_in_threes() -> None:
    sizes = triples([[2, 3, 4], [2, 3], [2, "x", 4], None, [0, 1, 1]])
    assert sizes.tolist() == [[2, 3, 4], [MISSING] * 3, [2, MISSING, 4], [MISSING] * 3, [0, 1, 1]]
    assert product(sizes).tolist() == [24, MISSING, MISSING, MISSING, 0]


def test_merged_ranks_are_ordered_by_data_then_expert_pipeline_and_tensor_parallelism() -> None:
    assert rank_order("TP10-DP02") == (2, 0, 0, 10)
    assert rank_order("PP03-EP14") == (0, 14, 3, 0)


@pytest.mark.parametrize(
    ("number", "version"),
    [(12090, "12.9"), (13000, "13.0"), (11080, "11.8"), (1000, "1.0"), (999, None), ("x", None)],
)
def test_the_version_of_cuda(number: Any, version: str | None, tmp_path: Path) -> None:
    profile = Profile().launch(at=0).head(cuda_runtime_version=number)
    with open_trace(profile.write(tmp_path / "t.json")) as trace:
        assert trace.capture.cuda == version


def test_a_job_of_one_rank_has_a_size(tmp_path: Path) -> None:
    profile = Profile().gpu().process(1).launch(at=0, dur=5, kernel="k", kernel_start=9, kernel_dur=2)
    path = profile.head(distributedInfo={"rank": 0, "world_size": 1}).write(tmp_path / "t.json")
    capture = open_trace(path).capture
    assert (capture.rank, capture.world_size) == (0, 1)


def test_sources_are_the_kinds_that_are_known(tmp_path: Path) -> None:
    profile = Profile().gpu().process(1).launch(at=0, dur=5, kernel="k", kernel_start=9, kernel_dur=2)
    profile.event(ph="X", cat="my_own", name="x", pid=1, tid=1, ts=0, dur=1)
    sources = open_trace(profile.write(tmp_path / "t.json")).capture.trace_sources
    assert {"cuda_runtime", "kernel"} < set(sources)
    assert "my_own" not in sources


def test_memory_of_a_device_is_taken_and_given_back(tmp_path: Path) -> None:
    profile = Profile().gpu().process(1)
    for at, total in ((0, 100), (10, 300), (20, 300), (30, 50)):
        profile.memory(at=at, reserved=total, allocated=total)
    read = open_trace(profile.write(tmp_path / "t.json")).columns("allocations", ("kind", "bytes"))
    assert read["bytes"].tolist() == [100, 200, 250]
    assert read["kind"].tolist() == [ALLOCATED, ALLOCATED, FREED]


def test_names_of_threads_and_processes(tmp_path: Path) -> None:
    """As Kineto writes them; streams of a GPU are no threads, and a number alone is no name."""
    p = Profile().gpu().process(776).launch(0, 5_000, "relu", 6_000, 2_000)
    for pid, tid, name in (
        (776, 776, "thread 776 (python3)"),
        (776, 777, "thread 777 (detokenizer)"),
        (776, 778, "thread 778"),
        (776, 779, "scheduler"),
        (0, 7, "stream 7 "),
        (0, "x", "none"),
    ):
        p.event(ph="M", name="thread_name", pid=pid, tid=tid, ts=0, args={"name": name})
    p.event(ph="M", name="process_name", pid=776, tid=0, ts=0, args={"name": "VLLM::EngineCore"})
    p.event(ph="M", name="process_name", pid=776, tid=0, ts=0, args={"name": 5})
    capture = open_trace(p.write(tmp_path / "t.json")).capture
    assert capture.threads == ((776, "python3"), (777, "detokenizer"), (779, "scheduler"))
    assert capture.processes == ((776, "VLLM::EngineCore"),)
