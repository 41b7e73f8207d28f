"""Sums by group against Python's own statistics, and rounding against SQLite's."""

from __future__ import annotations

import sqlite3
import statistics

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.stats.launch import enclosing
from advisor.metrics.stats.spread import log_bins
from advisor.metrics.stats.summaries import sums
from advisor.model.stats_table import rounded

values = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 1 << 44)), max_size=30)


@given(values)
def test_sums_are_those_of_each_group(pairs: list[tuple[int, int]]) -> None:
    frame = pd.DataFrame(pairs, columns=["group", "value"]).astype("int64")
    found = sums(frame["value"], frame["group"])
    assert list(found.index) == sorted({g for g, _ in pairs})
    for g, row in found.to_dict("index").items():
        mine = [v for k, v in pairs if k == g]
        assert row["Count"] == len(mine)
        assert row["Total (ns)"] == sum(mine)
        assert (row["Min (ns)"], row["Max (ns)"]) == (min(mine), max(mine))
        assert row["Med (ns)"] == statistics.median(mine)
        assert row["Avg (ns)"] == sum(mine) / len(mine)
        spread = statistics.stdev(mine) if len(mine) > 1 else 0.0
        assert abs(row["StdDev (ns)"] - spread) <= 1e-9 * max(spread, 1)


def test_sums_in_megabytes_leave_unknown_sizes_out() -> None:
    sizes = pd.Series(pd.array([1_000_000, 3_000_000, pd.NA, pd.NA], "Int64"))
    found = sums(sizes, pd.Series([0, 0, 0, 1]), "S", "MB")
    assert found.loc[0, ["SCount", "STotal (MB)", "SAvg (MB)", "SMax (MB)"]].tolist() == [2, 4.0, 2.0, 3.0]
    assert found.loc[1, "SCount"] == 0
    assert found.loc[1, ["SAvg (MB)", "SMin (MB)", "SStdDev (MB)"]].isna().all()


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
    ranges = pd.DataFrame({"process": 1, "thread": [1, 1, 2], "start": [0, 10, 0], "end": [100, 50, 100]})
    #        inner   edge    too long outside thread 3
    calls = [(20, 30), (10, 50), (40, 51), (99, 101), (20, 30)]
    kernels = pd.DataFrame(calls, columns=["call_start", "call_end"])
    kernels = kernels.assign(process=1, thread=[1, 1, 1, 1, 3])
    of_range, of_call = enclosing(ranges, kernels)
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
