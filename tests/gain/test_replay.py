"""The replay against answers worked out by hand, and against its definition."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from advisor.gain.inputs import NEVER, Inputs
from advisor.gain.replay import replay
from tests.gain.support import calls, inputs, ops, slow_replay


def ends(given_: Inputs) -> list[float]:
    return replay(given_).tolist()


def test_a_launch_starts_its_kernel_after_the_call_and_the_latency() -> None:
    # Calls [10, 15) and [20, 25); kernels 3 after each, 4 long: 18..22 and 28..32.
    given_ = inputs(calls([(0, 10, 5), (0, 5, 5)]), ops([(0, 0, 3, 1, 4), (1, 0, 3, 1, 4)]))
    assert ends(given_) == [22, 32]


def test_a_queued_kernel_follows_its_predecessor() -> None:
    # The first runs 18..118; the second was launched at 25 and starts a gap of 1 behind it.
    given_ = inputs(calls([(0, 10, 5), (0, 5, 5)]), ops([(0, 0, 3, 1, 100), (1, 0, 3, 1, 4)]))
    assert ends(given_) == [118, 123]


def test_a_wait_returns_after_its_work_and_delays_what_follows() -> None:
    # Kernel 18..118; the wait, at its turn at 20, returns at 120; next call [125, 130).
    given_ = inputs(
        calls([(0, 10, 5), (0, 5, 1), (0, 5, 5)]),
        ops([(0, 0, 3, 1, 100), (2, 0, 3, 1, 4)]),
        waits=[(1, 0, 2)],
    )
    assert ends(given_) == [118, 137]


def test_a_wait_for_work_that_is_done_costs_only_itself() -> None:
    # It returns at 516, so the next call ends at 526.
    given_ = inputs(
        calls([(0, 10, 5), (0, 500, 1), (0, 5, 5)]),
        ops([(0, 0, 3, 1, 100), (2, 0, 3, 1, 4)]),
        waits=[(1, 0, 2)],
    )
    assert ends(given_) == [118, 533]


def test_a_copy_that_holds_its_call() -> None:
    # The copy starts 7 after the call began at 10 and runs to 67; the call returns 1 later.
    given_ = inputs(
        calls([(0, 10, 5), (0, 2, 5)]),
        ops([(0, 0, 7, 1, 50), (1, 0, 3, 1, 4)], by_start=(0,)),
        waits=[(0, 0, 1)],
    )
    assert ends(given_) == [67, 82]


def test_a_full_queue_holds_the_launch_and_its_kernel() -> None:
    # The second launch waits for the first kernel (18..118) and returns at 120; its kernel, on
    # another stream, starts 3 later.
    given_ = inputs(
        calls([(0, 10, 5), (0, 5, 5)]), ops([(0, 0, 3, 1, 100), (1, 1, 3, 1, 4)]), waits=[(1, 0, 2)]
    )
    assert ends(given_) == [118, 127]


def test_streams_run_beside_each_other_unless_one_waits_for_the_other() -> None:
    two = [(0, 0, 3, 1, 100), (1, 1, 3, 1, 4)]
    free = inputs(calls([(0, 10, 5), (0, 5, 5)]), ops(two))
    joined = inputs(calls([(0, 10, 5), (0, 5, 5)]), ops(two), joins=[(1, 0, 2)])
    assert ends(free) == [118, 32]
    assert ends(joined) == [118, 124]


def test_threads_have_clocks_of_their_own_and_share_a_stream() -> None:
    # Thread 0 launches at 15, thread 1 at 12: in the order of their calls on one stream.
    given_ = inputs(calls([(0, 10, 5), (1, 10, 2)]), ops([(0, 0, 3, 1, 100), (1, 0, 3, 1, 4)]))
    assert ends(given_) == [118, 123]


def test_a_thread_takes_over_from_another() -> None:
    # Thread 1 begins 4 after thread 0's call returned at 15, however soon it could.
    given_ = inputs(calls([(0, 10, 5), (1, 1, 2), (1, 1, 2)]), ops([(2, 0, 3, 1, 4)]), handovers=[(1, 0, 4)])
    assert ends(given_) == [31]


def test_a_node_of_a_graph_is_not_held_by_its_call() -> None:
    # Nodes follow the first at 18..22 with a gap of 1.
    given_ = inputs(calls([(0, 10, 5)]), ops([(0, 0, 3, 1, 4), (0, 0, NEVER, 1, 4)]))
    assert ends(given_) == [22, 27]


def test_a_stream_is_busy_before_the_first_operation() -> None:
    given_ = inputs(calls([(0, 10, 5)]), ops([(0, 0, 3, 1, 4)]), ready=90)
    assert ends(given_) == [95]


def test_work_without_calls_is_a_chain() -> None:
    given_ = inputs(calls([(0, 0, 0)]), ops([(0, 0, NEVER, 5, 4), (0, 0, NEVER, 6, 4)]))
    assert ends(given_) == [9, 19]


@st.composite
def cases(draw: st.DrawFn) -> Inputs:
    """Anything a capture may hold: threads, streams, waits of all kinds, joins, handovers."""
    number = st.integers(0, 30).map(float)
    count = draw(st.integers(1, 12))
    call_rows = [(draw(st.integers(0, 2)), draw(number), draw(number)) for _ in range(count)]
    op_rows: list[tuple[int, int, float, float, float]] = []
    for i in range(count):
        for _ in range(draw(st.integers(0, 2))):
            latency = draw(st.one_of(number, st.just(NEVER)))
            op_rows.append((i, draw(st.integers(0, 1)), latency, draw(number), draw(number)))
    if not op_rows:
        op_rows.append((0, 0, 1.0, 1.0, 1.0))
    last = {(row[0], row[1]): k for k, row in enumerate(op_rows)}  # last of each call and stream
    tails = sorted(last.values())
    issues = {row[0] for row in op_rows}
    waits, own_copies = [], []
    for i in range(count):
        if not draw(st.booleans()):
            continue
        own = [k for k in tails if op_rows[k][0] == i]
        earlier = [k for k in tails if op_rows[k][0] < i]
        if own and draw(st.booleans()):
            waits.append((i, own[0], draw(number)))
            if len([r for r in op_rows if r[0] == i]) == 1 and op_rows[own[0]][2] > NEVER:
                own_copies.append(own[0])
        elif earlier:
            waits.append((i, draw(st.sampled_from(earlier)), draw(number)))
    joins = []
    for k, row in enumerate(op_rows):
        others = [j for j in tails if op_rows[j][1] != row[1] and op_rows[j][0] < row[0]]
        if others and draw(st.booleans()):
            joins.append((k, draw(st.sampled_from(others)), draw(number)))
    handovers = [
        (i, i - 1, draw(number))
        for i in range(1, count)
        if call_rows[i][0] != call_rows[i - 1][0] and draw(st.booleans())
    ]
    assert issues
    for thread in range(3):  # the last call of each thread shows its clock, on a stream of its own
        op_rows.append((len(call_rows), 2 + thread, 0.0, 0.0, 0.0))
        call_rows.append((thread, 0.0, 0.0))
    return inputs(
        calls(call_rows),
        ops(op_rows, tuple(own_copies)),
        waits or None,
        joins or None,
        handovers or None,
        draw(number),
    )


@settings(max_examples=200, deadline=None)
@given(cases())
def test_it_does_what_its_definition_says(case: Inputs) -> None:
    assert ends(case) == pytest.approx(slow_replay(case))


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(0, 11))
def test_less_work_is_never_slower(case: Inputs, which: int) -> None:
    """Every constraint is monotone: nothing ends later when a kernel gets shorter."""
    duration = case.ops.duration.copy()
    duration[which % len(duration)] /= 2
    before, after = replay(case), replay(case.with_ops(duration=duration))
    assert (after <= before + 1e-9).all()


def test_waits_are_put_in_order() -> None:
    # The second call returns at 13, the third at 17; a call of 2 launches after it.
    given_ = inputs(
        calls([(0, 1, 1), (0, 1, 1), (0, 1, 1), (0, 1, 1)]),
        ops([(0, 0, 1, 1, 9), (3, 0, 1, 1, 9)]),
        waits=[(2, 0, 5), (1, 0, 1)],
    )
    waits = given_.waits.take(np.argsort(given_.waits.call, kind="stable"))
    assert waits.call.tolist() == [1, 2]
    assert ends(replace(given_, waits=waits)) == [12, 29]


def test_a_million_operations_would_take_about_a_second() -> None:
    """A generous bound, so that a loop over operations would show."""
    count = 300_000
    one = inputs(calls([(0, 3, 2)]), ops([(0, 0, 3, 1, 4)]))
    fields = {n: np.resize(getattr(one.calls, n), count) for n in one.calls.__struct_fields__}
    long = replace(one.calls, **fields)
    fields = {n: np.resize(getattr(one.ops, n), count) for n in one.ops.__struct_fields__}
    many = replace(one, calls=long, ops=replace(one.ops, **fields | {"call": np.arange(count)}))
    took = []
    for _ in range(3):  # the least: a busy machine may count several times as much
        begin = time.process_time()
        end = replay(many)
        took.append(time.process_time() - begin)
        assert end[-1] == 5 * count + 7
    assert min(took) < 2
