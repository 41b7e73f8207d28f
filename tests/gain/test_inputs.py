"""When what is replayed after a fix holds nothing that takes longer than before."""

from __future__ import annotations

import pytest

from advisor.gain.inputs import Inputs
from tests.gain.support import calls, inputs, ops

#: (thread, pre, own) of calls; (call, stream, latency, gap, duration) of operations.
CALLS = [(0, 1.0, 2.0), (0, 3.0, 4.0)]
OPS = [(0, 0, 0.0, 1.0, 5.0), (1, 0, 0.0, 2.0, 6.0)]


def given(
    some_calls: list[tuple[int, float, float]] = CALLS,
    some_ops: list[tuple[int, int, float, float, float]] = OPS,
) -> Inputs:
    return inputs(calls(some_calls), ops(some_ops))


def test_the_same_takes_no_longer() -> None:
    assert given().no_longer_than(given())


@pytest.mark.parametrize(
    ("after", "shorter"),
    [
        (given([(0, 0.0, 2.0), (0, 3.0, 3.0)]), True),
        (given([(0, 1.5, 0.0), (0, 0.0, 0.0)]), False),  # one call begins later, all others are shorter
        (given([(0, 0.0, 2.5), (0, 0.0, 0.0)]), False),
        (given(some_ops=[(0, 0, 0.0, 0.0, 5.0), (1, 0, 0.0, 2.0, 1.0)]), True),
        (given(some_ops=[(0, 0, 0.0, 0.0, 5.5), (1, 0, 0.0, 0.0, 1.0)]), False),
        (given(some_ops=[(0, 0, 0.0, 1.5, 1.0), (1, 0, 0.0, 0.0, 1.0)]), False),
        (given(some_ops=[(0, 0, 0.0, 1.0, 5.0), (1, 1, 0.0, 2.0, 6.0)]), False),  # on another stream
    ],
)
def test_each_call_and_each_operation_counts(after: Inputs, shorter: bool) -> None:
    assert after.no_longer_than(given()) is shorter


def test_fewer_calls_or_operations_cannot_be_compared() -> None:
    assert not given(CALLS[:1], [OPS[0], (0, 0, 0.0, 2.0, 6.0)]).no_longer_than(given())
    assert not given(CALLS, OPS[:1]).no_longer_than(given())
