"""Sums by group against Python's own statistics, and rounding against SQLite's."""

from __future__ import annotations

import sqlite3
import statistics

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.stats.launch import enclosing
from advisor.metrics.stats.spread import log_bins
from advisor.metrics.stats.sums import sums
from advisor.model.stats import rounded

values = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 1 << 44)), max_size=30)


@given(values)
def test_sums_are_those_of_each_group(pairs: list[tuple[int, int]]) -> None:
    group = np.array([g for g, _ in pairs], np.int64)
    value = np.array([v for _, v in pairs], np.int64)
    found = sums(group, value, 4)
    for g in range(4):
        mine = [v for k, v in pairs if k == g]
        assert found.count[g] == len(mine)
        if not mine:
            assert found.total[g] == found.std[g] == 0
            continue
        assert found.total[g] == sum(mine)
        assert (found.minimum[g], found.maximum[g]) == (min(mine), max(mine))
        assert found.med[g] == statistics.median(mine)
        assert found.avg[g] == sum(mine) / len(mine)
        if len(mine) > 1:
            spread = statistics.stdev(mine)
            assert abs(found.std[g] - spread) <= 1e-9 * max(spread, 1)


def test_sums_sort_small_and_large_values_alike() -> None:
    group = np.array([1, 0, 1, 1, 0])
    small = sums(group, np.array([5, 2, 1, 3, 4]), 2)
    large = sums(group, np.array([5, 2, 1, 3, 4]) + (1 << 41), 2)
    assert small.med.tolist() == [3.0, 3.0]
    assert (large.med - (1 << 41)).tolist() == small.med.tolist()


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=12))
def test_averages_are_rounded_as_sqlite_rounds_them(numbers: list[int]) -> None:
    average = sum(numbers) / len(numbers)
    db = sqlite3.connect(":memory:")
    (expected,) = db.execute("select round(?, 1)", (average,)).fetchone()
    assert abs(float(rounded(np.array([average]), 1)[0]) - expected) < 0.05 + 1e-6
    # Halves and quarters are exact in binary: there no doubt is left.
    for fraction in (0.25, 0.5, 0.75):
        (expected,) = db.execute("select round(?, 1)", (numbers[0] + fraction,)).fetchone()
        assert rounded(np.array([numbers[0] + fraction]), 1)[0] == expected


def test_a_range_encloses_a_call_with_both_ends_included() -> None:
    # Ranges [0, 100] and [10, 50] of thread 1, [0, 100] of thread 2.
    start, end = np.array([0, 10, 0]), np.array([100, 50, 100])
    thread = np.array([1, 1, 2])
    #        inner   edge    too long outside thread 3
    calls = [(20, 30), (10, 50), (40, 51), (99, 101), (20, 30)]
    call_thread = np.array([1, 1, 1, 1, 3])
    of_range, of_call = enclosing(
        start, end, thread, np.array([c[0] for c in calls]), np.array([c[1] for c in calls]), call_thread
    )
    pairs = sorted(zip(of_range.tolist(), of_call.tolist(), strict=True))
    assert pairs == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=50))
def test_bins_hold_every_duration_once(durations: list[int]) -> None:
    low, high, count = log_bins(np.array(durations, np.int64))
    assert count.sum() == len(durations)
    assert (low[1:] == high[:-1]).all()
    assert (high > low).all()
    assert len(count) <= 17
    for lo, hi, n in zip(low.tolist(), high.tolist(), count.tolist(), strict=True):
        assert n == sum(lo <= max(d, 1) < hi for d in durations)
