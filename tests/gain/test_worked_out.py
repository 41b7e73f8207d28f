"""Small pieces of the estimates, each with an answer that is worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.gain import behind, fixes_copies, limits
from advisor.gain.attach import Gains, _repeats
from advisor.gain.behind import held_by_each_other
from advisor.gain.fixes import _left_out
from advisor.gain.fixes_copies import coalesce_copies
from advisor.gain.fixes_device import _half_as_wide, _rate_loss
from advisor.gain.fixes_host import faster_launches
from advisor.gain.inputs import NEVER, with_own_code
from advisor.gain.possible import Possible
from advisor.gain.profiler import Scenario, node_inflation
from advisor.gain.recording import recordings
from advisor.gain.sampling import Kinds, _typical
from advisor.gain.spread import around, error_of_mean, span
from advisor.gain.whatifs import Fix, constant
from advisor.metrics.loaded.operations import Kind
from advisor.model.arrays import Array
from advisor.model.gain import Gain
from advisor.sources.schema import MISSING, OPERATIONS
from tests.gain.support import calls, fix, inputs, ops

# --- spread ----------------------------------------------------------------------------------------


def test_two_steps_of_a_phase_are_two_blocks() -> None:
    """1 and 3: a deviation of sqrt(2), over sqrt(2)."""
    assert error_of_mean(np.array([1.0, 3.0]), np.zeros(2, np.int64)) == pytest.approx(1.0)


def test_a_range_of_one_quantity_reaches_to_both_of_its_ends() -> None:
    found = span(10.0, [8.0, 12.5], 0.0)
    assert (found.low, found.mid, found.high) == pytest.approx((8.0, 10.0, 12.5))


def test_independent_ranges_add_by_their_squares() -> None:
    """Logarithms of 0.3 and 0.4 make 0.5, on each side for itself."""
    low, high = [10.0 * math.exp(-x) for x in (0.3, 0.4)], [10.0 * math.exp(x) for x in (0.3, 0.4)]
    found = span(10.0, [low[0], high[0], high[1], low[1]], 0.0)
    assert (math.log(found.low / 10.0), math.log(found.high / 10.0)) == pytest.approx((-0.5, 0.5))


def test_a_range_that_only_grows_has_its_low_end_at_the_middle() -> None:
    found = span(10.0, [10.0, 20.0], 0.0)
    assert (found.low, found.mid, found.high) == pytest.approx((10.0, 10.0, 20.0))


def test_a_middle_beside_the_range_widens_it() -> None:
    found = around(5.0, 10.0, [8.0, 12.5], 0.0)
    assert (found.low, found.mid, found.high) == pytest.approx((5.0, 5.0, 12.5))


# --- what a step can take --------------------------------------------------------------------------


def test_fixes_of_a_step_that_takes_what_it_can_save_what_is_replayed() -> None:
    assert Possible(gpu_ns=20.0, traced_ns=100.0, profiler_ns=0.0).with_fixes(80.0, 60.0) == 60.0


def test_a_step_replayed_too_short_is_longer_with_fixes_in_proportion() -> None:
    """Replayed in 10, it takes the 20 that the GPU needs: with fixes 5 is 10."""
    assert Possible(gpu_ns=20.0, traced_ns=100.0, profiler_ns=0.0).with_fixes(10.0, 5.0) == 10.0


def test_a_step_without_any_time_takes_what_its_fixes_add() -> None:
    assert Possible(gpu_ns=0.0, traced_ns=100.0, profiler_ns=0.0).with_fixes(0.0, 5.0) == 5.0


def test_what_a_step_was_replayed_too_long_by_goes_first() -> None:
    """Replayed in 120, traced in 100: fixes that leave 90 save of the 100 what they must at least."""
    found = Possible(gpu_ns=0.0, traced_ns=100.0, profiler_ns=0.0).with_fixes(120.0, 90.0)
    assert found == pytest.approx(min(90.0, 100.0 * 0.75**limits.KEPT_SPEEDUP))


# --- fixes behind each other -----------------------------------------------------------------------


def test_a_fix_behind_the_others_saves_what_it_takes_off_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 ms without a fix, 9 with only the first, 6 with only the second, 4 with both."""
    one, two = fix("remove_gc"), fix("remove_gil_wait")
    known = {(): 10.0, (one.key,): 9.0, (two.key,): 6.0}

    def step(_: Any, fixes: Sequence[Fix]) -> float | None:
        return known[tuple(f.key for f in fixes)]

    monkeypatch.setattr(behind, "_step", step)
    assert held_by_each_other(None, [one, two], 4.0) == pytest.approx([0.2, 0.5])  # type: ignore[arg-type]


def test_where_the_others_alone_do_not_apply_a_fix_saves_all_that_all_save(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = fix("remove_gc"), fix("remove_gil_wait")
    monkeypatch.setattr(behind, "_step", lambda _, fixes: None if fixes else 10.0)
    assert held_by_each_other(None, [one, two], 4.0) == pytest.approx([0.6, 0.6])  # type: ignore[arg-type]


# --- inputs ----------------------------------------------------------------------------------------


def test_own_code_comes_back_only_where_it_is_missing() -> None:
    """Of two threads one lost 10 ms of host code, the other nothing."""
    ms = 1e6
    some = calls([(0, 10 * ms, 5.0), (1, 20 * ms, 5.0)])
    before = inputs(some, ops([(0, 0, NEVER, 0.0, 1.0)]))
    after = before.with_calls(pre=np.array([0.0, 20 * ms]))
    own, other = with_own_code(after, before).calls.pre.tolist()
    assert own == before.calls.own_code[0]
    assert other == 20 * ms


# --- what is left out ------------------------------------------------------------------------------


def work_of(time: Array, communication: Array) -> Any:
    duration = SimpleNamespace(inputs=SimpleNamespace(ops=SimpleNamespace(duration=time)))
    return SimpleNamespace(taken=duration, communication=communication)


def test_a_larger_batch_says_that_collectives_grow_only_where_they_hold_much() -> None:
    time = np.array([30.0, 70.0])
    (line,) = _left_out(work_of(time, np.array([True, False])))
    assert "30 %" in line or "30%" in line
    assert _left_out(work_of(np.array([0.001, 99.999]), np.array([True, False]))) == []


def test_only_the_same_fix_repeats_another() -> None:
    assert _repeats(fix("remove_gc"), fix("remove_gc"))
    assert not _repeats(fix("remove_gc"), fix("remove_gil_wait"))
    assert not _repeats(fix("batch", n=2), fix("batch", n=2))


# --- which steps are replayed ----------------------------------------------------------------------


def test_a_step_belongs_to_the_portion_of_the_time_that_holds_its_middle() -> None:
    """Of four steps of 10 ms two lie in each half of the time; the first of each half stands for it."""
    four = Kinds(np.arange(1, 5), np.zeros(4, np.int64), np.zeros(4, np.int64), np.full(4, 10.0))
    assert _typical(four, 2).tolist() == [1, 3]


# --- launches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pace", "lean", "own", "pre"),
    [
        (1.0, 0, 1 / 4, 1.0),
        (0.5, 0, 1 / 2, 1.0),  # what tracing slowed is shorter already
        (1.0, -1, 5 / 8, 1.0),  # half of the excess goes
        (1.0, 1, 1 / 4, 1 / 4),
    ],
)
def test_launches_become_as_short_as_on_a_healthy_host(
    pace: float, lean: int, own: float, pre: float
) -> None:
    """Four launches, each four times as long as a healthy one, with host code before them."""
    long = 4 * constant("healthy_launch")
    given = inputs(calls([(0, 10_000.0, long)] * 4), ops([(0, 0, 0.0, 0.0, 1.0)]))
    work: Any = SimpleNamespace(taken=SimpleNamespace(inputs=given), tracing_pace=pace)
    found = faster_launches(fix("faster_launches"), given, work, Scenario(launch=1.0), lean).calls
    assert found.own / long == pytest.approx(np.full(4, own))
    assert found.pre / 10_000.0 == pytest.approx(np.full(4, pre))


# --- what the profiler records ---------------------------------------------------------------------


def test_each_operator_that_the_profiler_recorded_costs_the_program_time() -> None:
    """An operator, an operator with its sizes, one that a range names, and a range that is no operator."""
    columns = {
        "start": np.array([30, 10, 20, 40]),
        "thread": np.zeros(4, np.int64),
        "domain": np.array([OPERATIONS, OPERATIONS, 0, 0]),
        "operands_id": np.array([MISSING, 3, MISSING, MISSING]),
    }
    written, sized = np.array([False, False, True, False]), np.zeros(4, bool)
    ranges = SimpleNamespace(text_of=np.arange(4), operator_texts=(written, sized))
    trace = SimpleNamespace(
        has=lambda table: table == "ranges", columns=lambda _, names: {n: columns[n] for n in names}
    )
    a: Any = SimpleNamespace(trace=trace, ranges=ranges)
    (((start, cost, operators),),) = recordings(a).values()
    one, by_range, sizes = (
        constant(n) for n in ("operator_trace_cost", "nvtx_operator_cost", "shapes_trace_cost")
    )
    assert start.tolist() == [10, 20, 30]
    assert np.diff(cost) == pytest.approx([one + sizes, by_range, one])
    assert operators


# --- narrower values -------------------------------------------------------------------------------


def test_attention_in_32_bits_makes_three_products_of_each() -> None:
    """One product of BF16 at twice the rate of TF32 takes a sixth, but for what is lost of its rate."""
    kernels = [
        SimpleNamespace(family="gemm", traits={}),
        SimpleNamespace(family="attention", traits={"precision": "fp32"}),
    ]
    rates = {"tf32": 400e12, "bf16": 800e12}
    work: Any = SimpleNamespace(
        matmul=np.array([True, False]),
        a=SimpleNamespace(program=SimpleNamespace(kind="inference")),
        select=lambda of: np.array([of(k) for k in kernels]),
        flop_per_s=rates.get,
    )
    given = inputs(calls([(0, 0.0, 1.0)]), ops([(0, 0, 0.0, 0.0, 100_000.0)] * 2))
    left = _half_as_wide(given, work, np.array([True, False]), 0)
    assert left == pytest.approx([1.0, _rate_loss(0) / 6])


# --- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lean", "first"), [(0, 2_500.0), (-1, 5_000.0)])
def test_the_first_of_small_copies_moves_the_bytes_of_all(
    lean: int, first: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of 4,000 and 6,000 bytes in 2,000 and 3,600 ns, and a kernel; the link moves 4 bytes a ns, the
    quickest of the copies 2."""
    run = np.array([0, 0, MISSING])
    monkeypatch.setattr(fixes_copies, "_small_runs", lambda *_: (run, run))
    rows = [(0, 0, 0.0, 10.0, 2_000.0), (1, 0, 0.0, 10.0, 3_600.0), (2, 0, 0.0, 10.0, 100.0)]
    given = inputs(calls([(0, 0.0, 500.0)] * 3), ops(rows), waits=[(1, 1, 5.0), (2, 2, 5.0)])
    work: Any = SimpleNamespace(copied=np.array([4_000, 6_000, 0]), link_rate=lambda: 4e9)
    left = coalesce_copies(fix("coalesce_copies"), given, work, Scenario(), lean)
    assert left.ops.duration.tolist() == pytest.approx([first, 0.0, 100.0])
    assert left.ops.gap.tolist() == [10.0, 0.0, 10.0]
    assert left.calls.own.tolist() == [500.0, 0.0, 500.0]
    assert left.waits.call.tolist() == [2]


# --- kernels of graphs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("node_ns", "inflation"), [(1_250, 1.25), (3_000, 1.0), (1_000, 1.0)])
def test_kernels_of_graphs_are_compared_with_those_that_were_launched_one_by_one(
    node_ns: int, inflation: float
) -> None:
    """As many of each, of one launch shape; a copy says nothing, and three times as long is other work."""
    runs = limits.PROVING_RUNS
    node = np.repeat([1, 0, 0], [runs, runs, 1])
    count = len(node)
    zeros = np.zeros(count, np.int64)
    a: Any = SimpleNamespace(
        main_device=0,
        main_process=0,
        op_name=zeros,
        ops=SimpleNamespace(
            device=zeros,
            process=zeros,
            length=np.where(node == 1, node_ns, 1_000),
            kind=np.where(np.arange(count) < 2 * runs, Kind.KERNEL, Kind.COPY),
            graph_node=node,
            row=np.arange(count),
        ),
        trace=SimpleNamespace(columns=lambda _, names: {n: np.ones(count, np.int64) for n in names}),
    )
    assert node_inflation(a) == pytest.approx(inflation)


# --- what a finding's fix takes off ----------------------------------------------------------------


def test_the_time_that_a_fix_takes_off_counts_as_often_as_its_step() -> None:
    """Of two operations of 10 ns in a step that stands for three the first loses 6 ns, the second grows."""
    step = np.array([4, 4])
    before, after = (
        SimpleNamespace(ops=SimpleNamespace(duration=np.array(d), step=step))
        for d in ([10.0, 10.0], [4.0, 12.0])
    )
    replays = SimpleNamespace(
        inputs=lambda fixes, _: after if fixes else before,
        middle=None,
        middle_of=lambda _: None,
        excerpt=SimpleNamespace(share=lambda steps: np.full(len(steps), 3.0)),
    )
    some: Any = SimpleNamespace(
        gain=Gain(what_if="remove_gc", params={}, measure="latency", per="step"), code="x", cause="x"
    )

    def removed(replayer: Any, saved: float | None) -> Any:
        gains: Any = SimpleNamespace(_replayer=replayer, _saved_alone=lambda _: saved)
        return Gains.removed_in(gains, some)

    of_step, ns = removed(replays, 0.1)
    assert (of_step.tolist(), ns.tolist()) == ([4, 4], [18.0, 0.0])
    assert removed(replays, None) is None
    assert removed(None, 0.1) is None
