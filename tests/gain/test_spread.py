"""How far the mean of the steps, and the ratio of two of them, may lie from the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.gain.spread import error_of_mean, error_of_ratio, ratio_noise

ONE_PHASE = np.zeros(4, np.int64)
TIMES = np.array([1.0, 1.0, 3.0, 3.0])
EVEN = np.full(4, 2.0)


def test_the_error_of_a_mean_is_that_of_blocks_of_steps() -> None:
    """Two blocks of two steps: 1 and 3, whose mean has the error 1."""
    assert error_of_mean(TIMES, ONE_PHASE) == pytest.approx(1.0)


def test_each_phase_has_a_mean_of_its_own() -> None:
    assert error_of_mean(TIMES, np.array([0, 0, 1, 1])) == 0.0


def test_a_single_step_has_no_error() -> None:
    assert error_of_mean(np.array([5.0]), np.zeros(1, np.int64)) == 0.0


def test_steps_that_stand_for_more_count_for_more() -> None:
    """Weighted 3 to 1 the mean is 1.5 and the ratio 0.75: differences of -0.5 and 1.5, over 2 times 0.75."""
    weight = np.array([3.0, 3.0, 1.0, 1.0])
    assert error_of_ratio(TIMES, EVEN, ONE_PHASE) == pytest.approx(0.5)
    assert error_of_ratio(TIMES, EVEN, ONE_PHASE, np.ones(4)) == pytest.approx(0.5)
    assert error_of_ratio(TIMES, EVEN, ONE_PHASE, weight) == pytest.approx(1.0 / 1.5)


def test_what_both_share_of_the_spread_cancels() -> None:
    assert error_of_ratio(TIMES, 2 * TIMES, ONE_PHASE) == pytest.approx(0.0)


@pytest.mark.parametrize("after", [np.zeros(4), np.zeros(0)], ids=["no time", "no step"])
def test_over_nothing_there_is_no_error(after: np.ndarray) -> None:
    assert error_of_ratio(after, after, ONE_PHASE[: len(after)]) == 0.0


@pytest.mark.parametrize(
    ("before", "after", "noise"),
    [
        (10.0, 5.0, 0.1),  # removes more than the noise
        (10.0, 9.9, math.log(10.0 / 9.9)),  # no more than it removes
        (5.0, 10.0, 0.0),
        (0.0, 5.0, 0.0),
        (5.0, 0.0, 0.0),
    ],
)
def test_a_fix_that_removes_little_varies_little(before: float, after: float, noise: float) -> None:
    assert ratio_noise(before, after, 0.1) == pytest.approx(noise)
