"""Collectives over ranks: which calls are one, who waits, who is late and why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.jobs.align import RankRows, align
from advisor.jobs.match import match
from advisor.jobs.waiting import reduce_ranks
from tests.ranks.support import ZERO, rows
from tests.ranks.test_align import ends, skewed


def job(late: int | None = None, ranks: int = 4, by: float = 60.0) -> list[RankRows]:
    """Everyone arrives 20 us before the end, one of them `by` us later than the others."""
    true = ends()
    out = []
    for rank in range(ranks):
        length = 20.0 if late is None or rank == late else 20.0 + by
        out.append(rows(rank, skewed(true, rank).tolist(), length))
    return out


def test_the_late_rank_is_charged() -> None:
    waits = reduce_ranks(job(late=2))
    assert waits.matched == 192
    assert waits.last == (0, 0, 192, 0)
    assert waits.caused[2] == waits.total
    assert waits.total == pytest.approx(3 * 192 * 60_000, rel=0.01)
    assert int(waits.wait[2].sum()) == 0


def test_nobody_is_late_where_nobody_waits() -> None:
    waits = reduce_ranks(job())
    assert waits.matched == 192
    assert sum(waits.last) == 0


def test_the_order_of_the_ranks_does_not_matter() -> None:
    some = job(late=1)
    a, b = reduce_ranks(some), reduce_ranks([some[i] for i in (3, 1, 0, 2)])
    assert a.last == b.last
    assert a.clocks == b.clocks
    assert all((x == y).all() for x, y in zip(a.wait, b.wait, strict=True))


def test_what_it_did_before_is_set_beside_the_others() -> None:
    some = [
        rows(r, ends().tolist(), 20 if r == 1 else 80, lead=[(100, 70 if r == 1 else 10)] * 192)
        for r in range(3)
    ]
    late = reduce_ranks(some).late
    assert late[0] is None
    assert late[1] is not None
    assert late[1].calls == 192
    assert (late[1].lead - late[1].others).tolist() == [0, 192 * 60_000]
    assert late[1].unseen == 0


def test_what_no_capture_shows_is_said_to_be_unseen() -> None:
    waits = reduce_ranks(job(late=0))
    assert waits.late[0] is not None
    assert waits.late[0].unseen == waits.late[0].late


def test_communicators_and_numbers_are_taken_at_their_word() -> None:
    """Two pairs whose calls end together by chance."""
    even = (np.arange(1, 31) * 100.0).tolist()
    some = [rows(r, even, 10.0 + 5 * r, groups=["ab"[r // 2]] * 30, sequence=range(30)) for r in range(4)]
    found = match(some, align(some))
    assert found.count == 60
    first = found.collective[found.of == 0]
    assert (first == found.collective[found.of == 1]).all()
    assert not np.isin(first, found.collective[found.of == 2]).any()


def test_a_number_that_is_used_twice_tells_nothing() -> None:
    some = [rows(r, ends().tolist(), groups=["0"] * 192, sequence=[1] * 192) for r in range(2)]
    assert match(some, align(some)).count == 192  # by their ends


def test_pairs_that_take_turns_between_communicators() -> None:
    """Ranks 0 and 1, 2 and 3 meet in every layer; 0 and 2, 1 and 3 after it."""
    rng = np.random.default_rng(1)
    base = np.cumsum(rng.uniform(280, 330, 150))
    at = {pair: base + rng.uniform(0, 60, 150) for pair in ((0, 1), (2, 3))}
    then = {pair: base + 130 + rng.uniform(0, 60, 150) for pair in ((0, 2), (1, 3))}
    some = []
    for rank in range(4):
        own = [t for pairs in (at, then) for pair, t in pairs.items() if rank in pair]
        some.append(rows(rank, skewed(np.concatenate(own), rank).tolist()))
    found = match(some, align(some))
    sets: dict[int, set[int]] = {}
    for one, rank in zip(found.collective.tolist(), found.of.tolist(), strict=True):
        sets.setdefault(one, set()).add(rank)
    right = ({0, 1}, {2, 3}, {0, 2}, {1, 3})
    told = [s for c, s in sets.items() if c >= 0 and found.complete[c]]
    assert len(told) > 550
    assert sum(s in right for s in told) / len(told) > 0.95  # some end together by chance


def test_collectives_that_one_rank_did_not_record_are_left_out() -> None:
    """The missing rank may be the late one."""
    true = ends()
    some = [rows(0, true.tolist()), rows(1, true.tolist()), rows(2, true[100:].tolist())]
    found = match(some, align(some))
    assert found.count == 92


def test_lost_calls_do_not_spoil_the_rest() -> None:
    true = ends()
    rng = np.random.default_rng(2)
    some = [rows(r, true[rng.random(192) > 0.03].tolist()) for r in range(3)]
    found = match(some, align(some))
    assert found.count > 150


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(0, 5), st.floats(-3_000, 3_000), st.integers(0, 10_000))
def test_waits_add_up(ranks: int, late: int, error: float, seed: int) -> None:
    """Transfer is the same for all, waiting is never negative, every wait has one who caused it."""
    true = ends(seed=seed)
    rng = np.random.default_rng(seed)
    some = [
        rows(
            r,
            true.tolist(),
            rng.uniform(5, 50, 192).tolist(),
            zero=ZERO + (round(error * 1_000) if r == late else 0),
        )
        for r in range(ranks)
    ]
    waits = reduce_ranks(some)
    assert waits.matched == 192
    assert all((w >= 0).all() for w in waits.wait)
    assert sum(waits.caused) == waits.total
    transfer = [r.duration - w for r, w in zip(waits.ranks, waits.wait, strict=True)]
    assert all((t == transfer[0]).all() for t in transfer)
    assert sum(waits.last) <= waits.matched
