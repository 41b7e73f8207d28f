"""Ranks of one serving job that meet twice a layer, some of them later than the others: one fault, whose
ranks, pattern and worth are known before it is diagnosed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

import advisor
from advisor.model.findings import Diagnosis, Finding
from tests.ranks.cluster import Cluster
from tests.ranks.support import diagnosed, fact, finding
from tests.scenarios.machine import DECODE_ATTENTION, GEMM, NORM, Kernel
from tests.scenarios.support import ranked

GATHER = Kernel("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 24)
SCATTER = Kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 24)
PRODUCT = Kernel("nvjet_tst_64x16_64x16_4x1_v_bz_TNT", 132)
EXPERTS = Kernel("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, (deep_gemm::GemmType)2>()", 132)
STEPS, LAYERS = 14, 10

#: Microseconds by rank in a step and layer.
Load = Callable[[int, int], Mapping[int, float]]


def always(of: Mapping[int, float]) -> Load:
    return lambda _, __: of


EVEN = always({})


def serving(
    ranks: int,
    *,
    attention: Load = EVEN,
    experts: Load = EVEN,
    host: Load = EVEN,
    pace: Mapping[int, float] | None = None,
    recorded: Mapping[int, tuple[int, int]] | None = None,
) -> Cluster:
    """Decode steps of ten layers: attention of 15 us and experts of 60 us, `attention` and `experts` us more
    on some ranks; `host` code before a layer; `pace`: how many times as long all kernels of a rank take;
    `recorded`: the steps that captures of some ranks hold, from and to, where they are not all."""
    of = recorded or {}
    made = Cluster(
        ranks,
        seed=7,
        from_step={r: first for r, (first, _) in of.items()},
        until_step={r: end for r, (_, end) in of.items()},
    )

    def compute(kernel: Kernel, us: float, more: Mapping[int, float]) -> None:
        slow = {r: us * (times - 1) for r, times in (pace or {}).items()}
        made.compute(kernel, us, more={r: slow.get(r, 0.0) + more.get(r, 0.0) for r in range(ranks)})

    for i in range(STEPS):
        with made.step(f"decode_step {i}"):
            for layer in range(LAYERS):
                compute(NORM, 2, {})
                compute(PRODUCT, 11, {})
                made.host(host(i, layer))
                compute(DECODE_ATTENTION, 15, attention(i, layer))
                compute(PRODUCT, 11, {})
                made.collective(GATHER, 15)
                compute(EXPERTS, 60, experts(i, layer))
                made.collective(SCATTER, 15)
    return made


@cache
def balanced(ranks: int, us: float) -> Diagnosis:
    """Attention takes so many us more on each rank."""
    folder = Path(mkdtemp())
    return diagnosed(serving(ranks, attention=always(dict.fromkeys(range(ranks), us))).write(folder))


@cache
def balanced_ms(us: float) -> float:
    """The step of four such ranks, as the first of them has it."""
    first, *_ = serving(4, attention=always(dict.fromkeys(range(4), us))).write(Path(mkdtemp()))
    return advisor.diagnose(first).steps[0].mean_ms


def told(d: Diagnosis) -> Finding:
    """The one finding about late ranks, which comes first and holds the true time after it."""
    late = finding(d, "rank-arrival-skew")
    shown = [(f.cause, f.severity, f.scope.label()) for f in d.findings]
    assert ranked(d)[0] == "rank-arrival-skew", shown
    assert "rotating-waiting" not in ranked(d), shown
    return late


def holds(late: Finding, true_ms: float, rel: float) -> None:
    after = late.gain.step_after_ms if late.gain else None
    assert after is not None
    assert after.low * 0.995 <= true_ms <= after.high * 1.005, (after, true_ms)
    assert after.mid == pytest.approx(true_ms, rel=rel)


@pytest.mark.parametrize(
    ("ranks", "late", "names"),
    [
        pytest.param(4, (0, 1), "ranks 0 and 1", marks=pytest.mark.slow),
        (4, (0, 2, 3), "ranks 0, 2 and 3"),
        pytest.param(4, (2,), "rank 2", marks=pytest.mark.slow),
        pytest.param(8, (1, 4, 6), "ranks 1, 4 and 6", marks=pytest.mark.slow),
        (2, (1,), "rank 1"),
    ],
)
def test_ranks_that_hold_the_long_requests(
    tmp_path: Path, ranks: int, late: tuple[int, ...], names: str
) -> None:
    """Data-parallel attention: 120 us more of it in each layer of some ranks. Balanced, all have the mean."""
    d = diagnosed(serving(ranks, attention=always(dict.fromkeys(late, 120.0))).write(tmp_path))
    even = balanced(ranks, 120.0 * len(late) / ranks)
    found = told(d)
    assert found.severity in ("medium", "high")
    assert found.scope.rank == (late[0] if len(late) == 1 else None)
    assert names in found.message
    assert "attention" in found.message
    assert "135 us" in found.message
    assert fact(d, "rank.late_pattern", late[0]) == "data-parallel attention"
    assert found.recommendations[0].id == "balance-ranks"
    assert found.recommendations[0].action.startswith("Balance the requests")
    holds(found, even.steps[0].mean_ms, 0.04)
    assert "rank-arrival-skew" not in ranked(even)


def test_loads_that_rise_from_rank_to_rank(tmp_path: Path) -> None:
    """The mean of 130, 90, 20 and 0 us is 60."""
    loads = dict(enumerate((130.0, 90.0, 20.0, 0.0)))
    d = diagnosed(serving(4, attention=always(loads)).write(tmp_path))
    found = told(d)
    assert "ranks 0 and 1" in found.message
    holds(found, balanced_ms(60.0), 0.04)


def test_experts_of_two_ranks(tmp_path: Path) -> None:
    """The tokens of every layer go to the experts of ranks 1 and 3."""
    d = diagnosed(serving(4, experts=always({1: 90.0, 3: 90.0})).write(tmp_path))
    assert ranked(d)[0] in ("rank-arrival-skew", "expert-imbalance")
    found = finding(d, "rank-arrival-skew")
    assert "ranks 1 and 3" in found.message
    assert fact(d, "rank.late_pattern", 1) == "experts"
    assert found.recommendations[0].id == "expert-balance"


@pytest.mark.parametrize(
    "late",
    [pytest.param((1,), marks=pytest.mark.slow), pytest.param((0, 3), marks=pytest.mark.slow), (0, 1, 3)],
)
def test_hosts_of_some_ranks(tmp_path: Path, late: tuple[int, ...]) -> None:
    d = diagnosed(serving(4, host=always(dict.fromkeys(late, 150.0))).write(tmp_path))
    found = finding(d, "rank-arrival-skew")
    assert found.severity in ("medium", "high")
    assert found.scope.rank == (late[0] if len(late) == 1 else None)
    assert fact(d, "rank.late_pattern", late[0]) == "host"
    assert found.recommendations[0].id == "steady-late-host"
    holds(found, balanced_ms(0.0), 0.10)


@pytest.mark.parametrize(
    "late", [(2,), *(pytest.param(late, marks=pytest.mark.slow) for late in ((1, 2), (0, 1, 2)))]
)
def test_gpus_that_are_slower(tmp_path: Path, late: tuple[int, ...]) -> None:
    """All kernels of some ranks take two fifths longer: boards, not requests."""
    d = diagnosed(serving(4, pace=dict.fromkeys(late, 1.4)).write(tmp_path))
    slow = finding(d, "one-gpu-slower")
    assert slow.severity in ("medium", "high")
    assert slow.scope.rank == (late[0] if len(late) == 1 else None)
    assert fact(d, "rank.late_pattern", late[0]) == "pace"
    assert "rank-arrival-skew" not in ranked(d)


def test_lateness_that_really_moves(tmp_path: Path) -> None:
    """In each layer of each step one rank at random has the long request."""
    of = random.Random(3)
    d = diagnosed(serving(4, attention=lambda _, __: {of.randrange(4): 120.0}).write(tmp_path))
    assert "rank-arrival-skew" not in ranked(d)
    assert finding(d, "rotating-waiting").severity != "info"
    assert {fact(d, "rank.steady_ratio", r) for r in range(4)} == {0.0}


def test_lateness_that_moves_between_two_of_four(tmp_path: Path) -> None:
    """The long requests are on ranks 0 and 1 in turns: what is named holds for both."""
    d = diagnosed(serving(4, attention=lambda i, layer: {(i + layer) % 2: 120.0}).write(tmp_path))
    assert {"rank-arrival-skew", "rotating-waiting"} & set(ranked(d))


def test_balanced_ranks() -> None:
    d = balanced(4, 60.0)
    said = {f.cause for f in d.findings}
    assert not {"rank-arrival-skew", "rotating-waiting", "one-gpu-slower", "expert-imbalance"} & said
    assert {fact(d, "rank.steady_ratio", r) for r in range(4)} == {0.0}


def test_little_more_on_two_ranks(tmp_path: Path) -> None:
    """8 us of 130 in each layer: nothing to fix."""
    d = diagnosed(serving(4, attention=always({0: 8.0, 1: 8.0})).write(tmp_path))
    assert not {"rank-arrival-skew", "rotating-waiting", "one-gpu-slower"} & set(ranked(d))


def test_no_board_is_close_to_slower_everywhere(tmp_path: Path) -> None:
    d = diagnosed(serving(4, attention=always({0: 120.0, 1: 120.0})).write(tmp_path))
    assert "one-gpu-slower" not in {h.cause for h in d.close}


#: Steps that the captures of ranks hold which were not started and stopped together.
UNEVEN = [
    pytest.param({2: (5, STEPS)}, id="one begins late"),
    pytest.param({1: (0, 8)}, id="one ends early", marks=pytest.mark.slow),
    pytest.param({0: (4, STEPS), 1: (0, 9), 3: (2, 11)}, id="all differ"),
]


@pytest.mark.parametrize("recorded", UNEVEN)
def test_uneven_windows_of_balanced_ranks(tmp_path: Path, recorded: Mapping[int, tuple[int, int]]) -> None:
    """A rank whose capture begins or ends within that of the others is not late."""
    d = diagnosed(serving(4, recorded=recorded).write(tmp_path))
    assert not {"rank-arrival-skew", "rotating-waiting", "one-gpu-slower", "expert-imbalance"} & set(
        ranked(d)
    )


@pytest.mark.parametrize("recorded", UNEVEN)
@pytest.mark.parametrize("late", [(2,), pytest.param((0, 1), marks=pytest.mark.slow)])
def test_uneven_windows_of_late_ranks(
    tmp_path: Path, recorded: Mapping[int, tuple[int, int]], late: tuple[int, ...]
) -> None:
    """The same ranks are late, and the same step is promised, whatever part of the job each recorded."""
    d = diagnosed(serving(4, attention=always(dict.fromkeys(late, 120.0)), recorded=recorded).write(tmp_path))
    found = told(d)
    assert found.scope.rank == (late[0] if len(late) == 1 else None)
    assert fact(d, "rank.late_pattern", late[0]) == "data-parallel attention"
    holds(found, balanced_ms(120.0 * len(late) / 4), 0.04)


def test_uneven_windows_of_ranks_with_little_more(tmp_path: Path) -> None:
    recorded = {0: (4, STEPS), 1: (0, 9), 3: (2, 11)}
    d = diagnosed(serving(4, attention=always({0: 8.0, 1: 8.0}), recorded=recorded).write(tmp_path))
    assert not {"rank-arrival-skew", "rotating-waiting", "one-gpu-slower"} & set(ranked(d))


def test_windows_that_share_no_step(tmp_path: Path) -> None:
    """Nothing of one rank can be compared with anything of the other."""
    d = diagnosed(serving(2, recorded={0: (0, 6), 1: (7, STEPS)}).write(tmp_path))
    assert not {"rank-arrival-skew", "rotating-waiting", "one-gpu-slower"} & set(ranked(d))


def collecting(us: float, *, every: int = 3, steps: int = 24, name: str | None = "Python GC") -> Cluster:
    """Python collects garbage for so many us in some steps of rank 2, which the others wait for."""
    made = Cluster(4)
    for i in range(steps):
        with made.step(f"decode_step {i}"):
            for layer in range(8):
                if us and layer == 3 and i % every == 0:
                    made.machines[2].work(us, name)
                made.compute(GEMM, 150)
                made.collective(SCATTER, 20)
    return made


def test_a_rank_that_collects_garbage_leads_for_the_job(tmp_path: Path) -> None:
    """The cause on that rank, then the waiting of the others for it."""
    d = diagnosed(collecting(2_000).write(tmp_path))
    assert ranked(d)[:2] == ["python-gc", "rank-arrival-skew"]
    assert [f.scope.rank for f in d.findings[:2]] == [2, 2]
    late = finding(d, "rank-arrival-skew")
    assert "Python GC" in late.message
    assert late.recommendations[0].id == "reduce-gc"


@pytest.mark.parametrize(("us", "every", "steps"), [(20_000, 12, 36), (180_000, 12, 36), (20_000, 29, 60)])
def test_seldom_collections_of_one_rank(tmp_path: Path, us: float, every: int, steps: int) -> None:
    """The slow steps of the others are that one's: they are not told once more."""
    d = diagnosed(collecting(us, every=every, steps=steps).write(tmp_path))
    assert ranked(d)[:2] == ["python-gc", "rank-arrival-skew"]
    assert "step-outliers" not in ranked(d)


def test_a_host_that_stops_now_and_then(tmp_path: Path) -> None:
    """No range names the collections: the steps of that rank, and what to look for."""
    d = diagnosed(collecting(5_000, every=12, steps=36, name=None).write(tmp_path))
    assert ranked(d)[0] == "rank-arrival-skew"
    assert d.findings[0].recommendations[0].id == "find-what-stops-rank"
    assert finding(d, "step-outliers").scope.rank == 2
    assert fact(d, "rank.late_spread_ratio", 2) == pytest.approx(3 / 280, abs=1 / 280)


def test_a_host_that_is_slow_in_every_step_is_no_host_that_stops(tmp_path: Path) -> None:
    """The near miss."""
    d = diagnosed(serving(4, host=always({2: 400.0})).write(tmp_path))
    late = finding(d, "rank-arrival-skew")
    assert late.recommendations[0].id == "steady-late-host"


def test_steps_whose_transfers_are_slow_beside_a_late_rank(tmp_path: Path) -> None:
    """The near miss: rank 2 is late in all steps, and in some the link is slow for all of them."""
    made = Cluster(4)
    for i in range(36):
        with made.step(f"decode_step {i}"):
            for _ in range(8):
                made.compute(GEMM, 150, more={2: 30})
                made.collective(SCATTER, 900 if i in (12, 24) else 20)
    outliers = finding(diagnosed(made.write(tmp_path)), "step-outliers")
    assert outliers.scope.rank is None
    assert "communication" in outliers.message


def test_short_collections_on_one_rank_lead_nothing(tmp_path: Path) -> None:
    """The near miss."""
    d = diagnosed(collecting(100).write(tmp_path))
    assert ranked(d)[0] != "python-gc"


def test_ranks_without_a_collection_have_no_cause_of_one(tmp_path: Path) -> None:
    d = diagnosed(collecting(0).write(tmp_path))
    assert {"python-gc", "rank-arrival-skew"}.isdisjoint(ranked(d))
