"""Generated jobs: the rules find what was planted, and nothing else about ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.pipeline.diagnose import Options
from tests.ranks.cluster import Cluster
from tests.ranks.support import communication, diagnosed, fact, finding
from tests.scenarios.machine import ALL_REDUCE, GEMM, Kernel

ALL_GATHER = Kernel("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 24)
LAYERS = 8


#: Microseconds by rank, the same in all layers or by step and layer.
Late = Mapping[int, float] | Callable[[int, int], Mapping[int, float]]


def job(
    ranks: int = 4,
    *,
    gemm: float = 150,
    then: Kernel | None = None,
    transfer: float | Callable[[int, int], float] = 2,
    more: Late | None = None,
    host: Mapping[int, float] | None = None,
    layer_host: Late | None = None,
    steps: int = 12,
    name: str = "decode_step",
    **options: Any,
) -> Cluster:
    """A step of eight layers, each with a GEMM, if asked for 50 us of another kernel, and an
    all-reduce. Ranks need `more` for the last kernel; `host` code runs before a step or a layer."""

    def at(given: Any, step: int, layer: int) -> Any:
        return given(step, layer) if callable(given) else given

    made = Cluster(ranks, **options)
    for i in range(steps):
        with made.step(f"{name} {i}"):
            if host:
                made.host(host)
            for layer in range(LAYERS):
                if layer_host:
                    made.host(at(layer_host, i, layer))
                made.compute(GEMM, gemm, more=None if then else at(more, i, layer))
                if then is not None:
                    made.compute(then, 50, more=at(more, i, layer))
                made.collective(ALL_REDUCE, at(transfer, i, layer))
    return made


EXPERT = Kernel("fused_moe_kernel", 132)


def uneven(kernel: Kernel) -> Cluster:
    """In every layer another rank needs 60 us more for this kernel."""
    return job(gemm=100, then=kernel, more=lambda _, layer: {layer % 4: 60})


def test_experts_of_another_rank_in_every_layer(tmp_path: Path) -> None:
    """Three of four ranks wait 60 of about 214 us in each layer, and no rank more than others."""
    found = diagnosed(uneven(EXPERT).write(tmp_path))
    causes = {f.cause for f in found.findings}
    assert "expert-imbalance" in causes
    assert not {"rank-arrival-skew", "rotating-waiting", "tail-latency"} & causes
    assert ("rotating-waiting", "MOE104") in {(o.cause, o.by) for o in found.overruled}
    assert fact(found, "ranks.expert_wait_window_ratio") == pytest.approx(0.75 * 60 / 214, rel=0.1)
    assert fact(found, "ranks.expert_wait_ratio") > 0.9
    gain = finding(found, "expert-imbalance").gain
    assert gain is not None
    assert gain.speedup is not None
    assert 1.05 < gain.speedup.low < gain.speedup.mid < gain.speedup.high < 1.3


def test_other_uneven_kernels_are_no_experts(tmp_path: Path) -> None:
    found = diagnosed(uneven(GEMM).write(tmp_path))
    assert "expert-imbalance" not in {f.cause for f in found.findings}
    assert fact(found, "ranks.expert_wait_window_ratio") == 0


def test_nothing_is_planted(tmp_path: Path) -> None:
    found = diagnosed(job().write(tmp_path))
    assert communication(found) == {}
    assert fact(found, "ranks.matched_count") == 11 * LAYERS
    assert fact(found, "ranks.missing_count") == 0


def test_a_rank_with_more_to_compute(tmp_path: Path) -> None:
    found = diagnosed(job(more={2: 60}).write(tmp_path))
    assert communication(found) == {"rank-arrival-skew": "high"}
    late = finding(found, "rank-arrival-skew")
    assert late.scope.rank == 2
    assert fact(found, "rank.late_part", 2) == "kernels"
    assert fact(found, "rank.late_ns", 2) == pytest.approx(60_000, rel=0.1)
    assert fact(found, "rank.caused_ratio", 2) == pytest.approx(1.0, abs=0.02)
    assert late.evidence[0].title.startswith("What rank 2 did before")
    row = late.evidence[0].rows[0]
    assert row[0] == "kernels"
    assert row[3] == pytest.approx(88 * 0.06, rel=0.1)
    assert late.evidence[1].rows[0][0] == 2


#: A layer of a model: kernels of several kinds, us.
LAYER = ((GEMM, 100.0), (Kernel("flash_fwd_kernel", 132), 40.0), (Kernel("rms_norm_kernel", 64), 20.0))


def layers(ranks: int, longer: Callable[[int, Kernel], float]) -> Cluster:
    """Decode steps of eight layers; kernels of a rank take so many times as long."""
    made = Cluster(ranks)
    for i in range(12):
        with made.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                for kernel, us in LAYER:
                    made.compute(kernel, us, more={r: us * (longer(r, kernel) - 1) for r in range(ranks)})
                made.collective(ALL_REDUCE, 2)
    return made


def test_a_rank_on_a_slower_board(tmp_path: Path) -> None:
    """All of its kernels take a fifth longer with the same grids: no work to balance."""
    found = diagnosed(layers(4, lambda rank, _: 1.2 if rank == 2 else 1.0).write(tmp_path))
    assert communication(found) == {"one-gpu-slower": "medium"}
    slow = finding(found, "one-gpu-slower")
    assert slow.scope.rank == 2
    assert fact(found, "rank.slower_ratio", 2) == pytest.approx(0.2, abs=0.02)
    assert fact(found, "rank.slower_alike_ratio", 2) == 1.0
    assert fact(found, "rank.slower_ratio", 1) == pytest.approx(0, abs=0.02)
    assert slow.recommendations[0].id == "check-rank-gpu"
    assert slow.evidence[0].rows[0][0] == GEMM.name
    gain = slow.gain
    assert gain is not None
    assert gain.step_before_ms is not None
    assert gain.step_after_ms is not None
    won = gain.step_before_ms.mid - gain.step_after_ms.mid
    assert won == pytest.approx(8 * 0.032, rel=0.15)  # a fifth of 160 us in each layer


def test_one_kernel_that_takes_longer_is_work(tmp_path: Path) -> None:
    """Longer contexts on one rank: its attention, and nothing else."""
    made = layers(4, lambda rank, kernel: 2.0 if rank == 2 and "flash" in kernel.name else 1.0)
    found = diagnosed(made.write(tmp_path))
    assert communication(found) == {"rank-arrival-skew": "medium"}
    assert finding(found, "rank-arrival-skew").recommendations[0].id == "balance-ranks"


def test_a_rank_whose_host_is_slow(tmp_path: Path) -> None:
    """The late rank is named, and so is its own trouble; its effect on the others is no trouble of
    theirs."""
    found = diagnosed(job(host={1: 400}).write(tmp_path))
    assert communication(found) == {"rank-arrival-skew": "high"}
    assert finding(found, "rank-arrival-skew").scope.rank == 1
    assert fact(found, "rank.late_part", 1) == "idle, host code"
    assert finding(found, "rank-arrival-skew").recommendations[0].id == "steady-late-host"
    assert finding(found, "host-gap").scope.rank == 1
    assert "tail-latency" in [o.cause for o in found.overruled]


def test_an_exposed_all_reduce(tmp_path: Path) -> None:
    found = diagnosed(job(transfer=60, name="iteration").write(tmp_path))
    # The kernels take longer, so that all of 28 % of the step may be hidden.
    assert communication(found) == {"exposed-communication": "high"}
    exposed = finding(found, "exposed-communication")
    assert "low-overlap" in [s.cause for s in exposed.explains]
    assert exposed.scope.rank is None
    assert "On 4 of 4 ranks" in exposed.message
    assert "One rank alone" not in exposed.message
    assert fact(found, "ranks.wait_ratio") < 0.1  # type: ignore[operator]


def test_an_exposed_all_reduce_of_decode_steps(tmp_path: Path) -> None:
    """The next layer begins with it: it holds 28 % of the step, and nothing can hide it."""
    found = diagnosed(job(transfer=60).write(tmp_path))
    exposed = finding(found, "exposed-communication")
    assert exposed.severity == "medium"
    assert exposed.gain is not None
    assert "nothing can hide them" in str(exposed.gain.reason)


@pytest.mark.parametrize(("host", "held"), [(0.0, 1.0), (400.0, 1 / 8)])
def test_exposed_time_that_holds_up_a_kernel_and_such_that_does_not(
    tmp_path: Path, host: float, held: float
) -> None:
    """Without host code seven of eight GEMMs are queued behind an all-reduce, and the host waits for the last
    one; with it each is launched long after its end, and the device would be idle without the all-reduce as
    well."""
    made = job(1, layer_host={0: host}, transfer=60)
    found = advisor.diagnose(made.write(tmp_path)[0])
    assert fact(found, "comm.blocking_ratio") == pytest.approx(held, abs=0.02)
    late = "had not been launched yet" in finding(found, "exposed-communication").message
    assert late is (host > 0)


def test_a_slow_link(tmp_path: Path) -> None:
    """Some transfers take twenty times as long, on all ranks alike: nobody is late."""
    made = job(transfer=lambda i, layer: 400 if i % 5 == 2 and layer == 3 else 20, steps=20, name="iteration")
    found = diagnosed(made.write(tmp_path))
    causes = communication(found)
    assert causes.pop("collective-variability") == "low"
    assert set(causes) == {"exposed-communication", "tail-latency"}
    same = finding(found, "exposed-communication").explains
    assert "low-overlap" in [s.cause for s in same]


@pytest.mark.parametrize(("slow", "said"), [({7}, None), ({2, 7, 12, 17}, "low")])
def test_calls_of_one_rank_that_are_slow_once_and_again(
    tmp_path: Path, slow: set[int], said: str | None
) -> None:
    """One long call beside equal ones is a rank that came late once; slow calls that come back are
    a finding, which says what one rank cannot tell."""
    made = job(1, transfer=lambda i, layer: 4_000 if i in slow and layer == 3 else 20, steps=20)
    found = advisor.diagnose(made.write(tmp_path)[0])
    causes = communication(found)
    assert causes.get("collective-variability") == said
    if said:
        assert "One rank alone" in finding(found, "collective-variability").message


def test_a_large_collective_beside_small_ones_is_no_variability(tmp_path: Path) -> None:
    """Sizes are not recorded; the last all-reduce of each step takes twenty times as long."""
    made = job(1, transfer=lambda _, layer: 400 if layer == LAYERS - 1 else 20, steps=20)
    found = advisor.diagnose(made.write(tmp_path)[0])
    assert "collective-variability" not in communication(found)
    assert fact(found, "comm.repeated_excess_ratio") == 0
    assert fact(found, "comm.max_over_mean") < 1.5  # type: ignore[operator]


def test_slow_transfers_are_no_ranks_fault(tmp_path: Path) -> None:
    """The windows of two ranks are longer: of theirs the same transfers are a smaller share."""
    often = {"steps": 30, "from_step": {0: 9, 1: 9}}
    made = job(transfer=lambda i, layer: 130 if i % 5 == 2 and layer == 3 else 20, **often)
    found = diagnosed(made.write(tmp_path))
    shares = {fact(found, "comm.repeated_excess_ratio", r) for r in range(4)}
    assert len(shares) == 1
    said = [f.scope.rank for f in found.findings if f.cause == "collective-variability"]
    assert said in ([], [None])


@pytest.mark.parametrize("seed", [1, 2])
def test_wrong_clocks_and_captures_that_begin_at_different_steps(tmp_path: Path, seed: int) -> None:
    errors = {1: 3_000.0, 2: -7_000.0, 3: 1_500.0}
    made = job(more={2: 60}, clock_errors_us=errors, from_step={1: 3, 3: 5}, seed=seed)
    found = diagnosed(made.write(tmp_path))
    assert communication(found) == {"rank-arrival-skew": "high"}
    assert finding(found, "rank-arrival-skew").scope.rank == 2
    for rank, error in errors.items():
        offset = fact(found, "rank.clock_offset_ns", rank)
        assert offset == pytest.approx(-error * 1_000, abs=2_000)


def test_no_absolute_times(tmp_path: Path) -> None:
    made = job(more={2: 60}, absolute=False, from_step={1: 3, 3: 5})
    found = diagnosed(made.write(tmp_path))
    assert communication(found) == {"rank-arrival-skew": "high"}
    assert finding(found, "rank-arrival-skew").scope.rank == 2
    assert fact(found, "rank.clock_offset_ns", 1) is None


def test_lateness_that_moves_is_waiting_all_the_same(tmp_path: Path) -> None:
    """Three of four ranks wait 60 of about 212 us in each layer: no rank is named, and it is not
    in order either."""
    made = job(more=lambda i, layer: {(i + layer) % 4: 60}, steps=16)
    found = diagnosed(made.write(tmp_path))
    assert "rank-arrival-skew" not in communication(found)
    waiting = finding(found, "rotating-waiting")
    assert waiting.impact is not None
    assert waiting.impact.share == pytest.approx(0.75 * 60 / 212, rel=0.1)
    assert waiting.recommendations[0].id == "even-out-work"
    assert fact(found, "ranks.late_part") == "kernels"
    assert fact(found, "ranks.late_part_ratio") > 0.9  # type: ignore[operator]
    assert fact(found, "ranks.most_caused_ratio") < 0.35  # type: ignore[operator]
    assert not {"rank-arrival-skew", "rotating-waiting"} & {h.cause for h in found.healthy}


def test_hosts_that_are_late_in_turns(tmp_path: Path) -> None:
    made = job(gemm=50, layer_host=lambda i, layer: {(i + layer) % 4: 120}, steps=16)
    waiting = finding(diagnosed(made.write(tmp_path)), "rotating-waiting")
    assert "idle, host code" in waiting.message
    assert waiting.recommendations[0].id == "steady-hosts"


@pytest.mark.parametrize("steps", [1, 12])
def test_a_capture_that_begins_later_on_one_rank_makes_it_no_straggler(tmp_path: Path, steps: int) -> None:
    """The profiler of rank 2 takes 50 ms to start, the others wait in the first collective: that is
    left out and noted."""
    made = Cluster(4)
    for i in range(steps):
        if i == 0:
            made.host({2: 50_000})
        with made.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                made.compute(GEMM, 150)
                made.collective(ALL_REDUCE, 60)
    found = diagnosed(made.write(tmp_path))
    assert "rank-arrival-skew" not in communication(found)
    assert fact(found, "ranks.wait_ratio") < 0.2  # type: ignore[operator]
    noted = [f.scope.rank for f in found.findings if f.cause == "rank-began-later"]
    # With more steps the first one is set aside, and the late start with it.
    assert noted == ([2] if steps == 1 else [])
    assert found.verdict.startswith("The capture of rank 2 begins late; ") == bool(noted)


@pytest.mark.parametrize(("often", "named"), [(1, True), (2, False)])
def test_two_ranks(tmp_path: Path, often: int, named: bool) -> None:
    """Of two, one is always last: it takes three quarters of the waiting to be named."""
    made = job(2, more=lambda _, layer: {layer % often: 60})
    assert ("rank-arrival-skew" in communication(diagnosed(made.write(tmp_path)))) is named


def test_a_missing_rank(tmp_path: Path) -> None:
    paths = job(more={2: 60}, world_size=4).write(tmp_path)
    found = diagnosed([paths[i] for i in (0, 1, 3)])
    assert finding(found, "single-rank-of-many").message.startswith("The job has 4 ranks, 3 given")
    assert "rank-arrival-skew" not in communication(found)  # the late one is not there to be seen
    assert finding(found, "exposed-communication").severity == "medium"


def test_a_gap_in_the_numbers_is_a_missing_rank(tmp_path: Path) -> None:
    paths = job().write(tmp_path)
    found = diagnosed([paths[i] for i in (0, 1, 3)])
    assert communication(found) == {"single-rank-of-many": "info"}


def test_neighbours_and_all(tmp_path: Path) -> None:
    """All-reduces of two ranks each, an all-gather of all a step, and a wrong clock on two."""
    made = Cluster(4, clock_errors_us={2: 1_500, 3: 1_500}, seed=3)
    for i in range(12):
        with made.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                made.compute(GEMM, 150, more={3: 60})
                for pair in ((0, 1), (2, 3)):
                    made.collective(ALL_REDUCE, 2, members=pair)
            made.collective(ALL_GATHER, 4)
    found = diagnosed(made.write(tmp_path))
    assert communication(found) == {"rank-arrival-skew": "high"}
    assert finding(found, "rank-arrival-skew").scope.rank == 3
    assert fact(found, "rank.clock_offset_ns", 2) == pytest.approx(-1_500_000, abs=2_000)


def test_without_collectives_nothing_is_said_of_ranks(tmp_path: Path) -> None:
    made = Cluster(2)
    for i in range(6):
        with made.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                made.compute(GEMM, 150)
    found = diagnosed(made.write(tmp_path))
    assert communication(found) == {}
    assert fact(found, "ranks.matched_count") == 0
    assert found.tables["ranks"].rows[0][8] is None


def test_thresholds_hold_for_the_job(tmp_path: Path) -> None:
    options = Options(params=("COM102.min_wait=1",))
    found = diagnosed(job(more={2: 60}).write(tmp_path), options)
    assert "rank-arrival-skew" not in communication(found)
    assert [t.value for t in found.thresholds if t.code == "COM102" and t.param == "min_wait"] == [1]


def test_collectives_inside_opaque_graphs_cannot_be_judged(tmp_path: Path) -> None:
    made = Cluster(2)
    for i in range(6):
        with made.step(f"decode_step {i}"):
            for machine in made.machines:
                machine.replay(8, mode="graph")
    found = diagnosed(made.write(tmp_path))
    assert fact(found, "ranks.matched_count") is None
    unknown = {n.cause: n for n in found.not_evaluated}
    assert "ranks.matched_count" in unknown["rank-arrival-skew"].missing
    assert unknown["rank-arrival-skew"].why == "collectives may be hidden inside CUDA graphs"
