"""Values of the facts about ranks, over rows of which every wait can be read off."""

from __future__ import annotations

from advisor.facts.catalog import CATALOGUE
from advisor.facts.spec import FactWriter
from advisor.model.facts import Scope
from advisor.ranks.late_ranks import job_facts
from advisor.ranks.waiting import reduce_ranks
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
