"""Generated pipelines: stages that wait for each other are neither late ranks nor slow links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.model.findings import Diagnosis
from tests.kineto_builder import Profile
from tests.ranks.cluster import Cluster
from tests.ranks.support import diagnosed, fact, finding
from tests.scenarios.machine import ALL_REDUCE, GEMM, Kernel

#: One kernel for sends, receives and all-to-alls.
SEND_RECV = Kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 2)
LAYERS = 6


def causes(d: Diagnosis) -> set[str]:
    return {f.cause for f in d.findings}


def pipeline(
    stages: int = 4, *, width: int = 1, micro: int = 1, slow: int | None = None, **options: Any
) -> Cluster:
    """Decode steps of `micro` micro-batches through stages of six layers each, `width` ranks wide, which
    add up their parts after each layer. The last stage hands the token back to the first."""
    made = Cluster(stages * width, **options)

    def hand_over(a: int, b: int) -> None:
        for lane in range(width):
            made.collective(SEND_RECV, 3, members=(a * width + lane, b * width + lane))

    for i in range(12):
        with made.step(f"decode_step {i}"):
            for _ in range(micro):
                for stage in range(stages):
                    if stage:
                        hand_over(stage - 1, stage)
                    for _ in range(LAYERS):
                        members = range(stage * width, (stage + 1) * width)
                        for rank in members:
                            made.machines[rank].launch(GEMM, 60 + 60 * (stage == slow))
                        if width > 1:
                            made.collective(ALL_REDUCE, 5, members=members)
            hand_over(0, stages - 1)
    return made


@pytest.mark.parametrize(("micro", "waiting"), [(1, 0.75), (4, 0.44)])
def test_stages_that_wait_for_each_other(tmp_path: Path, micro: int, waiting: float) -> None:
    d = diagnosed(pipeline(micro=micro).write(tmp_path))
    first = d.findings[0]
    assert (first.cause, first.severity) == ("pipeline-bubbles", "medium")
    assert first.share == pytest.approx(waiting, abs=0.02)
    assert first.recommendations[0].id == "fill-the-pipeline"
    assert {"rank-arrival-skew", "exposed-communication", "tail-latency"}.isdisjoint(causes(d))


def test_a_slow_stage_is_no_late_rank(tmp_path: Path) -> None:
    d = diagnosed(pipeline(slow=3).write(tmp_path))
    assert d.findings[0].cause == "pipeline-bubbles"
    assert "rank-arrival-skew" not in causes(d)


@pytest.mark.parametrize("slow", [None, 1])
def test_two_stages_wait_in_turns(tmp_path: Path, slow: int | None) -> None:
    d = diagnosed(pipeline(2, slow=slow).write(tmp_path))
    assert d.findings[0].cause == "pipeline-bubbles"
    assert d.findings[0].share == pytest.approx(0.5, abs=0.03)
    assert {"rotating-waiting", "rank-arrival-skew", "exposed-communication"}.isdisjoint(causes(d))


def test_two_stages_of_two_ranks(tmp_path: Path) -> None:
    d = diagnosed(pipeline(2, width=2).write(tmp_path))
    assert d.findings[0].cause == "pipeline-bubbles"


def test_ranks_that_are_late_by_chance_are_no_stages(tmp_path: Path) -> None:
    made = Cluster(2)
    for i in range(12):
        with made.step(f"decode_step {i}"):
            for layer in range(LAYERS):
                made.compute(GEMM, 100, more={(i * i + layer * i // 3) % 2: 150})
                made.collective(SEND_RECV, 3)
    d = diagnosed(made.write(tmp_path))
    assert "pipeline-bubbles" not in causes(d)
    assert "rotating-waiting" in causes(d)


def test_collectives_inside_the_stages_are_judged_as_ever(tmp_path: Path) -> None:
    d = diagnosed(pipeline(3, width=2).write(tmp_path))
    assert finding(d, "pipeline-bubbles").share == pytest.approx(2 / 3, abs=0.05)
    # 30 us of all-reduces beside 360 us of products, a third of the time.
    exposed = finding(d, "exposed-communication").share
    assert exposed == pytest.approx(30 / 390 / 3, abs=0.01)


def every_layer(ranks: int, groups: int = 1, **options: Any) -> Cluster:
    """An all-to-all after each layer, of all ranks or of groups of them."""
    made = Cluster(ranks, **options)
    size = ranks // groups
    for i in range(12):
        with made.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                made.compute(GEMM, 150)
                for group in range(groups):
                    made.collective(SEND_RECV, 40, members=range(group * size, (group + 1) * size))
    return made


@pytest.mark.parametrize(("ranks", "groups"), [(4, 1), (4, 2), (2, 1)])
def test_an_all_to_all_is_no_pipeline(tmp_path: Path, ranks: int, groups: int) -> None:
    d = diagnosed(every_layer(ranks, groups).write(tmp_path))
    assert fact(d, "ranks.stage_wait_ratio") == 0
    assert finding(d, "exposed-communication").share == pytest.approx(0.2, abs=0.03)


def test_without_one_time_for_all_nothing_is_taken_for_a_pipeline(tmp_path: Path) -> None:
    d = diagnosed(pipeline(absolute=False).write(tmp_path))
    assert "pipeline-bubbles" not in causes(d)


def stage(rank: int, call: str) -> Profile:
    """One of two stages, as PyTorch records it: 200 us of products, and a call whose kernel sends,
    receives and exchanges. The second waits in it for the first."""
    own = Profile().gpu().head(distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2})
    for i in range(20):
        at = i * 500_000
        own.annotation(f"ProfilerStep#{i}", at, 490_000)
        shared: dict[str, Any] = {"kernel_start": at + 210_000, "kernel_dur": 10_000}
        if rank == 1:
            shared = {"kernel_start": at + 8_000, "kernel_dur": 212_000}
        products = at + (8_000 if rank == 0 else 222_000)
        told = {"Collective name": call, "Process Group Name": "0", "Seq": i}
        own.launch(at=at, kernel=SEND_RECV.name, **shared, **told)
        own.launch(at=at + 1_000, kernel="gemm", kernel_start=products, kernel_dur=200_000)
        own.sync(at=at + 10_000, dur=470_000)
    return own


@pytest.mark.parametrize(
    ("calls", "found", "never"),
    [
        (("send", "recv"), "pipeline-bubbles", "rank-arrival-skew"),
        (("all_to_all", "all_to_all"), "rank-arrival-skew", "pipeline-bubbles"),
    ],
)
def test_recorded_names_tell_transfers_from_collectives(
    tmp_path: Path, calls: tuple[str, str], found: str, never: str
) -> None:
    """20 calls with the numbers of collectives, from which the kernels cannot tell them."""
    d = diagnosed([stage(r, c).write(tmp_path / f"rank{r}.json") for r, c in enumerate(calls)])
    assert found in causes(d)
    assert never not in causes(d)
