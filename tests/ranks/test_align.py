"""One clock for all ranks, whatever their own clocks say."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.jobs.align import align
from advisor.jobs.pattern import centre
from tests.ranks.support import ZERO, rows


def ends(steps: int = 12, layers: int = 16, seed: int = 1, jitter: float = 4.0) -> np.ndarray:
    """Ends of collectives in us: layers of a step, and a gap of its own length after each step."""
    rng = np.random.default_rng(seed)
    gaps = 150 + rng.normal(0, jitter, (steps, layers))
    gaps[:, 0] += 400 + rng.normal(0, 30, steps)
    return np.cumsum(gaps.ravel())


def skewed(times: np.ndarray, seed: int) -> np.ndarray:
    return times + np.random.default_rng(seed).uniform(-0.5, 0.5, len(times))


@pytest.mark.parametrize("error_us", [0, 37, -900, 8_000, -45_000, 700_000])
def test_a_wrong_clock_is_set_right(error_us: int) -> None:
    true = ends()
    clocks = align([rows(0, true.tolist()), rows(1, skewed(true, 2).tolist(), zero=ZERO + error_us * 1_000)])
    assert clocks[0].offset == 0
    assert clocks[1].offset == pytest.approx(-error_us * 1_000, abs=500)
    assert clocks[1].spread < 1_000


def test_sessions_begin_at_different_moments() -> None:
    true = ends()
    late = true - 2_000
    clocks = align([rows(0, true.tolist()), rows(1, late.tolist(), zero=ZERO + 2_000_000 + 5_000)])
    assert clocks[1].offset == pytest.approx(-5_000, abs=200)
    assert clocks[1](np.array([0]))[0] == pytest.approx(ZERO + 2_000_000, abs=200)


@pytest.mark.parametrize("first", [1, 3, 7])
def test_a_rank_that_began_to_record_later(first: int) -> None:
    """Any step of it looks like any other: what tells is that steps do not take equally long."""
    true = ends()
    own = skewed(true, 3)[first * 16 + 5 :]
    clocks = align([rows(0, true.tolist()), rows(1, own.tolist(), zero=ZERO + 3_000_000)])
    assert clocks[1].offset == pytest.approx(-3_000_000, abs=500)


def test_without_absolute_times() -> None:
    true = ends()
    own = skewed(true, 3)[40:] - 60_000
    clocks = align([rows(0, true.tolist(), zero=None), rows(1, own.tolist(), zero=None)])
    moved = clocks[1](np.rint(own * 1_000).astype(np.int64))
    assert np.abs(moved - np.rint(true[40:] * 1_000)).max() < 1_500


@pytest.mark.parametrize("ppm", [8, -25])
def test_a_clock_that_drifts(ppm: int) -> None:
    true = ends(steps=200)
    own = skewed(true, 4) * (1 + ppm * 1e-6)
    clocks = align([rows(0, true.tolist()), rows(1, own.tolist(), zero=ZERO + 2_000_000)])
    moved = clocks[1](np.rint(own * 1_000).astype(np.int64)) - ZERO
    assert np.abs(moved - np.rint(true * 1_000)).max() < 2_500
    assert clocks[1].drift == pytest.approx(-ppm * 1e-6, rel=0.2)


def test_lost_events_do_not_matter() -> None:
    true = ends()
    kept = np.random.default_rng(5).random(len(true)) > 0.1
    own = skewed(true, 6)[kept]
    clocks = align([rows(0, true.tolist()), rows(1, own.tolist(), zero=ZERO - 4_000_000)])
    assert clocks[1].offset == pytest.approx(4_000_000, abs=700)


def test_ranks_that_have_nothing_in_common_keep_their_clocks() -> None:
    clocks = align(
        [
            rows(0, ends(seed=1, jitter=30).tolist()),
            rows(1, (ends(seed=9, jitter=30) * 1.07).tolist(), zero=ZERO + 5_000_000),
        ]
    )
    assert clocks[1].spread is None
    assert clocks[1].offset == 0


def test_what_one_kind_shares_another_need_not() -> None:
    """All-reduces of neighbours only, and now and then an all-gather of all."""
    rng = np.random.default_rng(1)
    shared = np.cumsum(rng.uniform(2_000, 2_600, 12))
    sides = []
    for seed in (2, 3):
        own = np.random.default_rng(seed)
        pairs = np.concatenate([s - np.cumsum(own.uniform(100, 200, 10)) for s in shared])
        sides.append((np.concatenate((shared, pairs)), ["all-gather"] * 12 + ["all-reduce"] * 120))
    clocks = align(
        [
            rows(0, sides[0][0].tolist(), kinds=sides[0][1]),
            rows(1, sides[1][0].tolist(), kinds=sides[1][1], zero=ZERO + 1_500_000),
        ]
    )
    assert clocks[1].offset == pytest.approx(-1_500_000, abs=500)


def test_numbers_of_a_communicator_need_no_search() -> None:
    """Equal spacing everywhere: the pattern alone tells nothing."""
    even = np.arange(1, 41) * 100.0
    group = ["0"] * 40
    clocks = align(
        [
            rows(0, even.tolist(), groups=group, sequence=range(40)),
            rows(1, even.tolist(), groups=group, sequence=range(7, 47), zero=ZERO + 30_000_000),
        ]
    )
    assert clocks[1].offset == -30_000_000 + 700_000


def test_too_few_collectives_to_say_anything() -> None:
    clocks = align([rows(0, [10.0, 20.0]), rows(1, [11.0, 21.0], zero=ZERO + 500)])
    assert [c.spread for c in clocks] == [None, None]


def test_no_collectives_at_all() -> None:
    assert align([]) == []
    assert align([rows(0, [])])[0].shift == ZERO


def test_the_centre_stands_among_many_others() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate((rng.uniform(-500_000, 500_000, 80), rng.normal(70_000, 300, 20)))
    assert centre(np.rint(values).astype(np.int64)) == pytest.approx(70_000, abs=600)
