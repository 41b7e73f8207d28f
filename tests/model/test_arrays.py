"""The different values of a column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.arrays import (
    by_number,
    distinct,
    grouped,
    inserted,
    lengths,
    median_of,
    merged,
    percentiles,
    rounded,
    run_of,
    spliced,
    where,
    without,
)


@given(st.lists(st.sampled_from([-(2**63), -5, -1, 0, 1, 2, 127, 2**40, 2**63 - 1])))
def test_integers_near_and_far_are_those_of_unique(values: list[int]) -> None:
    column = np.array(values, np.int64)
    assert distinct(column).tolist() == np.unique(column).tolist()


@pytest.mark.parametrize(
    "column",
    [
        np.array([], np.int64),
        np.array([127, -128, 127], np.int8),
        np.array([7, 7, 7]),
        np.array([2.5, -1.0, 2.5]),
        np.array(["prefill", "decode", "prefill"]),
        np.array([True, False, True]),
    ],
    ids=lambda column: str(column.dtype),
)
def test_each_type_is_kept(column: Any) -> None:
    found, expected = distinct(column), np.unique(column)
    assert found.tolist() == expected.tolist()
    assert found.dtype == expected.dtype


@given(st.lists(st.floats() | st.integers(-(10**6), 10**6).map(lambda n: n / 20_000)), st.integers(0, 6))
def test_values_are_rounded_as_python_rounds_each(values: list[float], digits: int) -> None:
    found = rounded(np.array(values), digits).tolist()
    assert repr(found) == repr([v if v - v else round(v, digits) for v in values])


def test_entries_group_by_group() -> None:
    found = grouped(np.array([2, 0, 2, 3, 0], np.int8), 5)
    assert [at.tolist() for at in found] == [[1, 4], [], [0, 2], [3], []]


NUMBERS = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=40)
REALS = st.lists(
    st.floats(allow_nan=False, width=64, min_value=-1e300, max_value=1e300), min_size=1, max_size=40
)


@given(NUMBERS | REALS, st.sampled_from([0.0, 5.0, 10.0, 50.0, 98.0, 99.0, 100.0]))
def test_medians_and_percentiles_are_those_of_numpy(values: list[Any], share: float) -> None:
    column = np.array(values)
    assert median_of(column) == float(np.median(column))
    assert percentiles(column, share, 25) == np.percentile(column, (share, 25)).tolist()


@pytest.mark.parametrize(
    "column", [np.array([1.0, np.nan, 3.0]), np.array([2, 1, 4], np.float32), np.ones((2, 3))]
)
def test_other_columns_are_left_to_numpy(column: Any) -> None:
    assert np.array_equal(median_of(column), np.median(column), equal_nan=True)
    assert np.array_equal(percentiles(column, 50), [float(np.percentile(column, 50))], equal_nan=True)


def test_several_columns_are_merged() -> None:
    assert merged(np.array([3, 1]), np.array([], np.int64), np.array([2, 3])).tolist() == [1, 2, 3]


@given(*[st.lists(st.integers(-5, 5))] * 2)
def test_values_without_others_are_those_of_the_set_difference(values: list[int], others: list[int]) -> None:
    found = without(np.array(values, np.int64), np.array(others, np.int64))
    assert found.tolist() == sorted(set(values) - set(others))


@pytest.mark.parametrize(
    "numbers",
    [[300, 44, 256, 1, 300], [256, 0, 1], [70_000, 3, 70_000], [-1, 5, -3], [2.5, 2.25, 0.0], []],
    ids=str,
)
def test_the_stable_order_of_numbers(numbers: list[float]) -> None:
    column = np.array(numbers)
    assert by_number(column).tolist() == np.argsort(column, kind="stable").tolist()


@pytest.mark.parametrize("mask", [[True, False, True], [True, True, True], [False, False, False]], ids=str)
def test_the_rows_of_a_mask_are_a_slice_if_they_are_all(mask: list[bool]) -> None:
    rows = where(np.array(mask))
    assert np.array(["a", "b", "c"])[rows].tolist() == [
        c for c, kept in zip("abc", mask, strict=True) if kept
    ]
    assert isinstance(rows, slice) is all(mask)


@pytest.mark.parametrize(("rows", "one_run"), [([2, 3, 4], True), ([0, 3], False), ([5], True), ([], False)])
def test_rows_are_a_slice_if_they_are_consecutive(rows: list[int], one_run: bool) -> None:
    index = run_of(np.array(rows, np.int64))
    assert np.arange(9)[index].tolist() == rows
    assert isinstance(index, slice) is one_run


@pytest.mark.parametrize(
    ("longest", "narrow"),
    [(0, True), (2**30 - 1, True), (2**30, False), (2**31, False), (-(2**30), False), (2**61, False)],
    ids=str,
)
@pytest.mark.parametrize("rows", [3, 200_000], ids=str)
def test_lengths_take_32_bits_if_sums_of_two_fit(longest: int, narrow: bool, rows: int) -> None:
    """Of the long column the longest is in the second piece."""
    start = np.arange(rows, dtype=np.int64)
    end = start + 7
    end[-2:] = start[-2:] + longest
    found = lengths(start, end)
    assert found.tolist() == (end - start).tolist()
    assert found.dtype == (np.int32 if narrow else np.int64)
    assert int(found[-2] + found[-1]) == 2 * longest


def test_no_rows_have_no_lengths() -> None:
    assert lengths(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []


@given(st.data(), st.sampled_from((0, 4_000)))
def test_rows_are_replaced_in_several_columns(data: st.DataObject, more: int) -> None:
    """With `more` rows the rows between changes are copied as pieces."""
    rows = list(range(more + data.draw(st.integers(0, 12))))
    gone = sorted(data.draw(st.sets(st.sampled_from(rows), max_size=5))) if rows else []
    at = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    expected: list[int] = []
    for i in range(len(rows) + 1):
        expected += [-k - 1 for k, place in enumerate(at) if place == i]
        expected += [i] if i < len(rows) and i not in gone else []
    column = np.array(rows, np.int64)
    new = -np.arange(len(at)) - 1
    first, second = spliced(
        np.array(gone, np.int64), np.array(at, np.int64), (column, new), (column.astype(np.int8), 7)
    )
    assert first.tolist() == expected
    assert second[first < 0].tolist() == [7] * len(at)
    if not gone:
        assert inserted(np.array(at, np.int64), (column, new))[0].tolist() == expected
