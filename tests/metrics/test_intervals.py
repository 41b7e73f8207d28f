"""The interval algebra against a definition by single nanoseconds."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics import intervals
from advisor.metrics.intervals import (
    Coverage,
    Spans,
    clip,
    gaps,
    intersect,
    joined,
    positions,
    split,
    subtract,
    union,
    union_by,
)

pairs = st.lists(
    st.tuples(st.integers(0, 60), st.integers(-3, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)


def points(spans: Spans) -> set[int]:
    """Every nanosecond that the set covers."""
    return {t for a, b in zip(*spans, strict=True) for t in range(a, b)}


def made(intervals: list[tuple[int, int]]) -> Spans:
    return union(np.array([a for a, _ in intervals], np.int64), np.array([b for _, b in intervals], np.int64))


def brute(intervals: list[tuple[int, int]]) -> set[int]:
    return {t for a, b in intervals for t in range(a, b)}


def assert_merged(spans: Spans) -> None:
    assert (spans.end > spans.start).all()
    assert (spans.start[1:] > spans.end[:-1]).all()


@given(pairs)
def test_union_covers_what_any_interval_covers(intervals: list[tuple[int, int]]) -> None:
    merged = made(intervals)
    assert_merged(merged)
    assert points(merged) == brute(intervals)
    assert merged.total == len(brute(intervals))


@given(pairs)
def test_a_set_holds_the_times_that_it_covers(intervals: list[tuple[int, int]]) -> None:
    merged, times = made(intervals), np.arange(-5, 90)
    assert set(times[merged.holds(times)].tolist()) == points(merged)


@given(pairs)
def test_union_is_idempotent_and_blind_to_order(intervals: list[tuple[int, int]]) -> None:
    merged = made(intervals)
    again = union(*merged)
    assert np.array_equal(merged.start, again.start)
    assert np.array_equal(merged.end, again.end)
    backwards = made(intervals[::-1])
    assert np.array_equal(merged.start, backwards.start)


@given(pairs, pairs)
def test_intersection_and_difference_divide_a_set(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    a, b = made(left), made(right)
    both, only = intersect(a, b), subtract(a, b)
    assert points(both) == brute(left) & brute(right)
    assert points(only) == brute(left) - brute(right)
    assert both.total + only.total == a.total


@given(pairs, pairs, pairs)
def test_joined_sets_cover_what_any_of_them_covers(
    one: list[tuple[int, int]], two: list[tuple[int, int]], three: list[tuple[int, int]]
) -> None:
    merged = joined(made(one), made(two), made(three))
    assert_merged(merged)
    assert points(merged) == brute(one + two + three)


@given(pairs, st.randoms())
def test_the_union_by_key_is_that_of_each_keys_intervals(
    intervals: list[tuple[int, int]], random: Random
) -> None:
    keys = [random.randrange(3) for _ in intervals]
    start, end = np.array(intervals, np.int64).reshape(-1, 2).T
    by_key = union_by(np.array(keys, np.int64), start, end)
    assert set(by_key) == set(keys)
    for key, merged in by_key.items():
        mine = [i for i, k in zip(intervals, keys, strict=True) if k == key]
        assert points(merged) == brute(mine)


@given(pairs, st.integers(0, 60), st.integers(0, 60))
def test_gaps_and_cover_fill_the_window(intervals: list[tuple[int, int]], lo: int, hi: int) -> None:
    merged = made(intervals)
    idle, busy = gaps(merged, lo, hi), clip(merged, lo, hi)
    window = max(hi - lo, 0)
    assert idle.total + busy.total == window
    assert not points(idle) & brute(intervals)


@given(pairs, st.lists(st.integers(-5, 90), min_size=1, max_size=8))
def test_coverage_counts_up_to_any_time(intervals: list[tuple[int, int]], times: list[int]) -> None:
    covered = Coverage(made(intervals))(np.array(times))
    assert covered.tolist() == [sum(1 for p in brute(intervals) if p < t) for t in times]


@given(st.lists(st.integers(-9, 6_100), min_size=1, max_size=8), st.sampled_from((0, 4 * 10**18)))
def test_coverage_of_a_set_many_times_longer(times: list[int], since: int) -> None:
    start = np.arange(0, 6_000, 3) + since
    covered = Coverage(Spans(start, start + 2))(np.array(times) + since)
    assert covered.tolist() == [sum(1 for p in range(max(min(t, 6_000), 0)) if p % 3 < 2) for t in times]


@given(pairs)
def test_a_set_many_times_longer_is_divided_as_well(intervals: list[tuple[int, int]]) -> None:
    start = np.arange(0, 16_000, 3)
    long, few = Spans(start, start + 2), made([(200 * a, 200 * b) for a, b in intervals])
    assert points(intersect(long, few)) == points(long) & points(few)
    assert points(subtract(long, few)) == points(long) - points(few)
    assert points(subtract(few, long)) == points(few) - points(long)
    assert points(joined(few, long)) == points(few) | points(long)


extreme = st.integers(-9, 9) | st.sampled_from((np.iinfo(np.int64).min, np.iinfo(np.int64).max))


@given(st.lists(extreme, max_size=40), st.lists(extreme, max_size=40), st.booleans())
def test_positions_are_those_of_numpy(ranked: list[int], wanted: list[int], ascending: bool) -> None:
    have = np.array(sorted(ranked), np.int64)
    want = np.array(sorted(wanted) if ascending else wanted, np.int64)
    assert positions(have, want).tolist() == np.searchsorted(have, want).tolist()
    assert positions(have, want, "right").tolist() == np.searchsorted(have, want, "right").tolist()
    few = want[want.astype(np.int32) == want].astype(np.int32)  # another type, and not contiguous
    assert positions(have, few[::2]).tolist() == np.searchsorted(have, few[::2]).tolist()


def test_touching_intervals_join() -> None:
    merged = made([(0, 5), (5, 9), (12, 12)])
    assert merged.start.tolist() == [0]
    assert merged.end.tolist() == [9]


def test_busy_time_is_no_sum_of_durations() -> None:
    """Two streams that overlap for 30 of 60 ns are busy 90 ns, not 120."""
    assert made([(0, 60), (30, 90)]).total == 90


@pytest.mark.parametrize("seed", range(6))
def test_overlaps_are_the_same_without_a_compiler(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    edges = np.cumsum(rng.integers(1, 50, 2000))
    spans = Spans(edges[::2].copy(), edges[1::2].copy())
    label = rng.integers(0, 3, len(spans))
    cuts = np.sort(rng.integers(-50, edges[-1] + 50, 1400))
    lo, hi = cuts[::2].copy(), cuts[1::2].copy()
    any_order = rng.permutation(np.append(cuts, [-(2**62), 2**63 - 1]))

    def found() -> list[list[int]]:
        coverage = Coverage(spans)
        mixed = coverage.within(lo, hi + 0.5)  # medians of times
        answers = mixed, coverage(any_order), coverage.within(lo, hi), split(spans, label, 3, lo, hi).ravel()
        return [answer.tolist() for answer in answers]

    compiled = found()
    monkeypatch.setattr(intervals, "compiled", None)
    assert compiled == found()
    assert sum(compiled[3]) == sum(compiled[2])


@pytest.mark.parametrize("times", [(-(2**63), 2**63 - 1), (-(2**63), -1), (0, 2**63 - 1), (-2, 2**63 - 1)])
def test_a_run_over_all_of_int64_is_measured_as_without_a_compiler(
    times: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its length has no place in 64 bits with a sign: it wraps around, as NumPy's differences do."""
    whole = Spans(*(np.array([time], np.int64) for time in times))
    label = np.zeros(1, np.int64)
    windows = [(-(2**63), 2**63 - 1), (-5, 5), (2**63 - 2, 2**63 - 1)]

    def found() -> list[list[int]]:
        each = [[np.array([time], np.int64) for time in window] for window in windows]
        return [split(whole, label, 1, *w).ravel().tolist() for w in each]

    exact = [max(min(times[1], hi) - max(times[0], lo), 0) for lo, hi in windows]
    compiled = found()
    assert compiled == [[(length + 2**63) % 2**64 - 2**63] for length in exact]
    monkeypatch.setattr(intervals, "compiled", None)
    assert compiled == found()


def test_a_set_is_cut_at_both_ends_of_a_window() -> None:
    spans = made([(0, 10), (20, 30), (40, 50)])
    for lo, hi, parts in ((5, 45, [(5, 10), (20, 30), (40, 45)]), (0, 30, [(0, 10), (20, 30)]), (12, 18, [])):
        assert list(zip(*(x.tolist() for x in clip(spans, lo, hi)), strict=True)) == parts


def test_no_gap_is_empty() -> None:
    found = gaps(made([(0, 10), (20, 30)]), 0, 30)
    assert list(zip(found.start.tolist(), found.end.tolist(), strict=True)) == [(10, 20)]


def test_some_windows_in_a_set_of_hundreds() -> None:
    many = made([(10 * i, 10 * i + 5) for i in range(1_000)])
    few = made([(3, 12), (4_000, 4_002), (9_991, 10_010)])
    assert points(intersect(few, many)) == points(few) & points(many)


def test_three_sets_are_joined() -> None:
    sets = [made([(0, 5)]), made([(3, 9), (20, 22)]), made([(8, 12), (30, 31), (40, 41)])]
    assert points(joined(*sets)) == set().union(*map(points, sets))
