"""Generated pipelines: stages that wait for each other are neither late ranks nor slow links."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import advisor
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
    stages: int = 4,
    *,
    width: int = 1,
    micro: int = 1,
    slow: int | None = None,
    stage_us: float = 360,
    through_host: bool = False,
    **options: Any,
) -> Cluster:
    """Decode steps of `micro` micro-batches through stages of six layers each, `width` ranks wide, which
    add up their parts after each layer. The last stage hands the token back to the first: from GPU to GPU
    or, `through_host`, read back there and sent from one host to the other."""
    made = Cluster(stages * width, **options)
    first, last = range(width), range((stages - 1) * width, stages * width)

    def hand_over(a: int, b: int) -> None:
        for lane in range(width):
            made.collective(SEND_RECV, 3, members=(a * width + lane, b * width + lane))

    for i in range(12):
        with made.step(f"decode_step {i}"):
            for rank in first if through_host and i else ():
                made.told(rank, last[0])
            for _ in range(micro):
                for stage in range(stages):
                    if stage:
                        hand_over(stage - 1, stage)
                    for _ in range(LAYERS):
                        members = range(stage * width, (stage + 1) * width)
                        for rank in members:
                            made.machines[rank].launch(GEMM, stage_us / LAYERS * (1 + (stage == slow)))
                        if width > 1:
                            made.collective(ALL_REDUCE, 5, members=members)
            if through_host:
                for rank in last:
                    made.machines[rank].read_back()
            else:
                hand_over(0, stages - 1)
    return made


@pytest.mark.parametrize(("micro", "waiting"), [(1, 0.75), (4, 0.44)])
def test_stages_that_wait_for_each_other(tmp_path: Path, micro: int, waiting: float) -> None:
    d = diagnosed(pipeline(micro=micro).write(tmp_path))
    first = d.findings[0]
    assert (first.cause, first.severity) == ("pipeline-bubbles", "high")
    assert first.share == pytest.approx(waiting, abs=0.02)
    assert first.recommendations[0].id == "fill-the-pipeline"
    assert {"rank-arrival-skew", "exposed-communication", "tail-latency"}.isdisjoint(causes(d))


#: What a rank is not told where it has no work because another stage is at it.
NOT_ITS_OWN = frozenset(
    (
        *(
            "host-gap",
            "graph-replay-gaps",
            "blocking-sync",
            "launch-bound",
            "work-between-steps",
            "os-blocked",
        ),
        *("waits-for-requests", "queue-empty", "gpu-idle", "input-preparation", "under-filled-gpu"),
        *("rank-arrival-skew", "rotating-waiting", "rank-began-later", "exposed-communication"),
        *(
            "low-overlap",
            "tail-latency",
            "many-small-collectives",
            "one-gpu-slower",
            "collective-variability",
        ),
    )
)


@pytest.mark.parametrize("through_host", [False, True])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("stage_us", [300, 3_000, 20_000])
def test_one_batch_in_flight_whatever_a_stage_takes(
    tmp_path: Path, stage_us: float, width: int, through_host: bool
) -> None:
    made = pipeline(stage_us=stage_us, width=width, through_host=through_host)
    d = diagnosed(made.write(tmp_path))
    first = d.findings[0]
    assert (first.cause, first.severity) == ("pipeline-bubbles", "high")
    assert first.share == pytest.approx(0.75, abs=0.1)
    assert first.recommendations[0].id == "fill-the-pipeline"
    assert NOT_ITS_OWN.isdisjoint(f.cause for f in d.findings if f.severity != "info")


@pytest.mark.parametrize(("through_host", "of_idle"), [(True, 1.0), (False, 0.47)])
def test_idle_time_of_a_stage(tmp_path: Path, through_host: bool, of_idle: float) -> None:
    """The first of four stages of 20 ms is idle while its host waits for the token; else little idles."""
    d = diagnosed(pipeline(stage_us=20_000, through_host=through_host).write(tmp_path))
    assert fact(d, "ranks.stage_of_idle_ratio") == pytest.approx(of_idle, abs=0.01)
    assert fact(d, "ranks.stage_wait_ratio") == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("through_host", [False, True])
@pytest.mark.parametrize("stage_us", [300, 3_000, 20_000])
def test_two_stages_whatever_one_takes(tmp_path: Path, stage_us: float, through_host: bool) -> None:
    d = diagnosed(pipeline(2, stage_us=stage_us, through_host=through_host).write(tmp_path))
    first = d.findings[0]
    assert (first.cause, first.severity) == ("pipeline-bubbles", "high")
    assert first.share == pytest.approx(0.5, abs=0.1)
    assert NOT_ITS_OWN.isdisjoint(f.cause for f in d.findings if f.severity != "info")


def in_flight(
    batches: int, stage_us: float, *, own_us: float = 0, beside_us: float = 0, stages: int = 4, **options: Any
) -> Cluster:
    """So many batches, each of which comes back to the first stage through the hosts, which then works for
    `own_us` on it, and for `beside_us` once it has launched it."""
    made, last, back = Cluster(stages, **options), stages - 1, dict[int, float]()
    draw = random.Random(1)
    for i in range(12):
        with made.step(f"decode_step {i}"):
            for batch in range(batches):
                if batch in back:
                    made.told_at(0, back[batch])
                if own_us:
                    made.machines[0].wait()
                    made.host({0: own_us})
                for stage in range(stages):
                    if stage:
                        made.collective(SEND_RECV, 3, members=(stage - 1, stage))
                    for _ in range(LAYERS):
                        made.machines[stage].launch(GEMM, stage_us / LAYERS * draw.uniform(0.97, 1.03))
                made.host({0: beside_us})
                made.machines[last].read_back()
                back[batch] = made.sent(last)
    return made


@pytest.mark.parametrize("stage_us", [360, 3_000])
@pytest.mark.parametrize(("batches", "severity"), [(2, "high"), (3, "medium")])
def test_fewer_batches_in_flight_than_stages(
    tmp_path: Path, batches: int, severity: str, stage_us: float
) -> None:
    """The tokens come back through the hosts: the first stage makes no call until one is there."""
    d = diagnosed(in_flight(batches, stage_us).write(tmp_path))
    first = d.findings[0]
    assert (first.cause, first.severity) == ("pipeline-bubbles", severity)
    assert first.share == pytest.approx(1 - batches / 4, abs=0.02)
    assert NOT_ITS_OWN.isdisjoint(f.cause for f in d.findings if f.severity != "info")


@pytest.mark.parametrize("stage_us", [360, 3_000])
def test_batches_for_all_stages_that_come_back_through_the_hosts(tmp_path: Path, stage_us: float) -> None:
    """The healthy partner."""
    d = diagnosed(in_flight(4, stage_us).write(tmp_path))
    assert {"pipeline-bubbles", "host-gap", "rank-arrival-skew"}.isdisjoint(causes(d))


@pytest.mark.parametrize("stage_us", [360, 3_000])
@pytest.mark.parametrize(
    ("batches", "own"), [(4, 2 / 3), (4, 1.3), (4, 2.0), (3, 1.3), (2, 3.0)], ids=lambda v: f"{v:.1f}"
)
def test_a_first_stage_whose_host_works_on_each_batch(
    tmp_path: Path, batches: int, own: float, stage_us: float
) -> None:
    """The near miss: enough batches are in flight, and what the others wait for is the first host; also
    where stages that compute at once look like one stage, or their work fits together by chance."""
    d = diagnosed(in_flight(batches, stage_us, own_us=own * stage_us).write(tmp_path))
    assert (d.findings[0].cause, d.findings[0].scope.rank) == ("host-gap", 0)
    assert d.findings[0].share == pytest.approx(own / (1 + own), abs=0.03)
    assert "pipeline-bubbles" not in causes(d)


@pytest.mark.parametrize("apart_us", [0, 500])
def test_two_batches_behind_the_host_of_the_first_stage(tmp_path: Path, apart_us: float) -> None:
    """Of 4.7 stages it works for 1.4 and waits for 1.3 for a batch that comes back."""
    errors = {1: 0.6 * apart_us, 2: apart_us, 3: apart_us}
    d = diagnosed(in_flight(2, 3_000, own_us=2_100, clock_errors_us=errors).write(tmp_path))
    assert fact(d, "ranks.stage_host_ratio") == pytest.approx(1.4 / 4.7, abs=0.02)
    host, waits = finding(d, "host-gap"), finding(d, "pipeline-bubbles")
    assert host.share == pytest.approx(1.4 / 4.7, abs=0.02)
    assert fact(d, "host.gap_staged_ratio", 0) == pytest.approx(1.3 / 4.7, abs=0.02)
    assert "another stage of the pipeline has what it works on" in host.message
    assert waits.share == pytest.approx(1.3 / 4.7, abs=0.03)
    assert "rank 0 waits for its own host" in waits.message


@pytest.mark.parametrize(
    ("batches", "own"), [(2, 0.7), (2, 2.0), (2, 3.0), (3, 1.3), (4, 2 / 3), (4, 1.3), (4, 3.0)]
)
def test_what_a_faster_host_of_the_first_stage_saves(tmp_path: Path, batches: int, own: float) -> None:
    """A batch still passes through all stages: the step is never shorter than without that host code."""
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    slow.mkdir()
    fast.mkdir()
    gain = finding(diagnosed(in_flight(batches, 3_000, own_us=own * 3_000).write(slow)), "host-gap").gain
    (step,) = diagnosed(in_flight(batches, 3_000).write(fast)).steps
    assert gain is not None
    assert gain.step_after_ms is not None
    assert 0.97 * gain.step_after_ms.low <= step.median_ms <= 1.03 * gain.step_after_ms.high


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_a_host_that_works_while_its_gpu_or_another_stage_does(tmp_path: Path, batches: int) -> None:
    """The near miss of a slow host: no GPU waits for it."""
    d = diagnosed(in_flight(batches, 3_000, beside_us=2_000).write(tmp_path))
    assert fact(d, "ranks.stage_host_ratio") is None
    assert fact(d, "ranks.stage_wait_ratio") == pytest.approx(1 - batches / 4, abs=0.03)
    assert "host-gap" not in {f.cause for f in d.findings if f.severity != "info"}


@pytest.mark.parametrize("stage_us", [360, 3_000])
@pytest.mark.parametrize(("own", "host"), [(0.7, 0.7 / 4.7), (2.0, 1 / 3)])
@pytest.mark.parametrize("apart_us", [0, 500])
def test_one_batch_behind_the_host_of_the_first_stage(
    tmp_path: Path, own: float, host: float, stage_us: float, apart_us: float
) -> None:
    """While that host works no stage computes: that is its part, and not the pipeline's."""
    errors = {1: 0.6 * apart_us, 2: apart_us, 3: apart_us}
    d = diagnosed(in_flight(1, stage_us, own_us=own * stage_us, clock_errors_us=errors).write(tmp_path))
    first = d.findings[0]
    assert first.cause == "pipeline-bubbles"
    assert first.share == pytest.approx(3 / (4 + own), abs=0.03)
    assert fact(d, "ranks.stage_host_ratio") == pytest.approx(host, abs=0.04)
    assert fact(d, "ranks.stage_host_rank") == 0
    assert "rank 0 waits for its own host" in first.message
    assert [r.id for r in first.recommendations][:2] == ["fill-the-pipeline", "shorten-host-code"]
    assert NOT_ITS_OWN.isdisjoint(f.cause for f in d.findings if f.severity != "info")


def test_one_batch_whose_token_comes_back_at_once_waits_for_no_host(tmp_path: Path) -> None:
    d = diagnosed(in_flight(1, 3_000).write(tmp_path))
    assert fact(d, "ranks.stage_host_ratio") is None
    assert "shorten-host-code" not in {r.id for r in d.findings[0].recommendations}


@pytest.mark.parametrize("stage_us", [360, 3_000])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("apart_us", [15, 500, 5_000])
def test_clocks_of_nodes_that_are_apart(
    tmp_path: Path, batches: int, apart_us: float, stage_us: float
) -> None:
    """Also by many times what a stage takes, where ranks that are no neighbours look as close."""
    errors = {1: 0.6 * apart_us, 2: apart_us, 3: apart_us}
    d = diagnosed(in_flight(batches, stage_us, clock_errors_us=errors).write(tmp_path))
    first = d.findings[0]
    assert (first.cause, first.severity) == ("pipeline-bubbles", "high")
    assert first.share == pytest.approx(1 - batches / 4, abs=0.02)
    assert NOT_ITS_OWN.isdisjoint(f.cause for f in d.findings if f.severity != "info")


@pytest.mark.parametrize("through_host", [False, True])
@pytest.mark.parametrize("apart_us", [15, 5_000])
def test_clocks_that_are_apart_where_stages_take_equally_long(
    tmp_path: Path, apart_us: float, through_host: bool
) -> None:
    """No noise tells a transfer from work that follows at the same distance: that both ranks wait does."""
    errors = {1: 0.6 * apart_us, 2: apart_us, 3: apart_us}
    d = diagnosed(pipeline(through_host=through_host, clock_errors_us=errors).write(tmp_path))
    assert d.findings[0].cause == "pipeline-bubbles"
    assert d.findings[0].share == pytest.approx(0.72, abs=0.1)


@pytest.mark.parametrize("stage_us", [300, 3_000])
def test_as_many_batches_in_flight_as_stages_are_healthy(tmp_path: Path, stage_us: float) -> None:
    """Each stage works on another batch; what it hands over is there when the next one comes to it."""
    made = Cluster(4)
    for i in range(12):
        with made.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                made.compute(GEMM, stage_us / LAYERS)
            for rank in range(4):
                made.machines[rank].launch(SEND_RECV, 10)
    d = diagnosed(made.write(tmp_path))
    assert "pipeline-bubbles" not in causes(d)


def test_one_rank_of_a_pipeline_alone(tmp_path: Path) -> None:
    """Its sends are short and its receives long: that is waiting, and no transfer to be hidden."""
    path = pipeline(stage_us=3_000).write(tmp_path)[1]
    d = advisor.diagnose(path)
    first = d.findings[0]
    assert (first.cause, first.severity) == ("exposed-communication", "medium")
    assert [r.id for r in first.recommendations] == ["give-all-ranks", "fill-the-pipeline"]


def test_a_rank_that_comes_late_to_all_reduces_is_no_stage(tmp_path: Path) -> None:
    made = Cluster(4)
    for i in range(12):
        with made.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                made.compute(GEMM, 100, more={2: 200})
                made.collective(ALL_REDUCE, 10)
    d = diagnosed(made.write(tmp_path))
    assert "pipeline-bubbles" not in causes(d)
    assert "rank-arrival-skew" in causes(d)


def test_a_rank_without_requests_waits_for_no_stage(tmp_path: Path) -> None:
    """One of two servers gets a request now and then, whose cache the other one sends: the rest of the time
    it is idle while that one computes, many steps long."""
    made = Cluster(2)
    for i in range(24):
        with made.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                made.machines[0].launch(GEMM, 100)
            if i % 12 == 11:
                made.collective(SEND_RECV, 50)
                made.machines[1].launch(GEMM, 600)
            made.told(1, 0, 600)
    d = diagnosed(made.write(tmp_path))
    assert "pipeline-bubbles" not in causes(d)


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


def exchanging(name: str | None) -> Cluster:
    """Experts of four ranks: an exchange after each layer, which NCCL makes of sends and receives."""
    made = Cluster(4)
    for i in range(12):
        with made.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                made.compute(GEMM, 150)
                with ExitStack() as open_:
                    for machine in made.machines if name else ():
                        open_.enter_context(machine.step(name or ""))
                    made.collective(SEND_RECV, 60)
    return made


def kinds(d: Diagnosis) -> set[str]:
    tables = (t for t in finding(d, "exposed-communication").evidence if "kind" in t.columns)
    return {str(row[0]) for t in tables for row in t.rows}


@pytest.mark.parametrize(
    "name", ["nccl:all_to_all", "alltoall_dispatch", "all2all_combine", "AllToAll", "all-to-all", "moe_a2a"]
)
def test_a_range_names_an_exchange_of_all_with_all(tmp_path: Path, name: str) -> None:
    d = diagnosed(exchanging(name).write(tmp_path))
    assert kinds(d) == {"all-to-all"}
    assert "pipeline-bubbles" not in causes(d)


@pytest.mark.parametrize("name", [None, "recv_tensors", "a2arch"])
def test_other_ranges_name_none(tmp_path: Path, name: str | None) -> None:
    """The near miss."""
    assert kinds(diagnosed(exchanging(name).write(tmp_path))) == {"send-recv"}
