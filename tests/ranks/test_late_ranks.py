"""Values of the facts about ranks, over rows of which every wait can be read off."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.facts.catalog import CATALOGUE
from advisor.facts.writer import FactWriter
from advisor.jobs.late_ranks import job_facts
from advisor.jobs.waiting import reduce_ranks
from advisor.metrics.profiled.pace import KernelPace
from advisor.model.facts import Scope
from tests.facts.test_values import expect_values
from tests.ranks.support import rows


def test_one_rank_waits_for_the_other() -> None:
    """Ten collectives in 9.5 ms: rank 0 is in each for 60 us, of which it waits 40 for rank 1."""
    ends = [1_000.0 * i + 500 for i in range(10)]
    out = FactWriter(CATALOGUE)
    waits = reduce_ranks([rows(0, ends, 60.0), rows(1, ends, 20.0)])
    job_facts(out, waits, world_size=4, busy=[0.5, 0.75])
    expect_values(
        out.base,
        {
            "ranks.count": 2,
            "ranks.world_size": 4,
            "ranks.missing_count": 2,
            "ranks.matched_count": 10,
            "ranks.busy_spread": 0.25,
            "ranks.wait_ratio": 400 / 800,
            "ranks.wait_window_ratio": 400 / 9_500 / 2,
        },
        Scope(),
    )
    expect_values(
        out.base,
        {"rank.last_ratio": 0.0, "rank.caused_ratio": 0.0, "rank.wait_ratio": 400 / 9_500},
        Scope(rank=0),
    )
    expect_values(
        out.base,
        {
            "rank.last_ratio": 1.0,
            "rank.caused_ratio": 1.0,
            "rank.caused_over_even": 2.0,
            "rank.late_ns": 40_000.0,
            "rank.wait_ratio": 0.0,
            "rank.clock_offset_ns": 0,
        },
        Scope(rank=1),
    )


def test_two_ranks_are_late_together() -> None:
    """Three ranks in ten collectives: rank 2 waits 40 us in each for ranks 0 and 1, whose kernels take 30 us
    more and whose hosts 10; which of the two is last changes, and nobody notices 0.5 us."""
    ends = [1_000.0 * i + 500 for i in range(10)]
    kernels = {
        0: KernelPace(1, "f", 2, 90_000, 45_000, "attention"),
        2: KernelPace(1, "f", 2, 30_000, 15_000, "attention"),
    }
    late = [
        replace(
            rows(r, ends, [20.0 + 0.5 * (i % 2 == r) for i in range(10)], lead=[(100.0, 20.0)] * 10),
            paces=(kernels[0],),
        )
        for r in (0, 1)
    ]
    early = replace(rows(2, ends, 60.0, lead=[(70.0, 10.0)] * 10), paces=(kernels[2],))
    waits = reduce_ranks([*late, early])
    out = FactWriter(CATALOGUE)
    job_facts(out, waits, world_size=3, busy=[0.5])
    for late_rank in (0, 1):
        expect_values(
            out.base,
            {
                "rank.late_names": "ranks 0 and 1",
                "rank.late_caused_ratio": 1.0,
                "rank.late_by_ns": 40_000 - 250,
                "rank.late_work": "kernels",
                "rank.late_pattern": "data-parallel attention",
                "rank.late_family": "attention",
                "rank.late_call_ns": 45_000,
                "rank.others_call_ns": 15_000,
                "rank.steady_ratio": 1 - 0.25 / 40,
            },
            Scope(rank=late_rank),
        )
    expect_values(out.base, {"rank.steady_ratio": 0.0, "rank.late_names": "rank 2"}, Scope(rank=2))
    group = waits.groups[0]
    assert group is not None
    assert group.members == waits.together == (0, 1)
    # The mean of 0.25, 0.25 and 40 us of waiting less the 0.25 of a late one, and what the last one ends.
    assert group.even == 10 * (40_500 // 3 - 250)
    assert group.caught_up == 10 * 40_000
