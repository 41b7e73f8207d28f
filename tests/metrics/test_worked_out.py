"""Small pieces of the metrics, each on a table of a few rows with an answer that is worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.metrics import limits
from advisor.metrics.budgeted import experts, ties
from advisor.metrics.budgeted import like as alike
from advisor.metrics.budgeted.callsites import CallSiteFinder, small_uploads
from advisor.metrics.budgeted.step_times import _in_turns
from advisor.metrics.intervals import Spans
from advisor.metrics.loaded import workload
from advisor.metrics.loaded.losses import _gaps, _random_loss
from advisor.metrics.loaded.workload import ran_on
from advisor.metrics.profiled import preparation
from advisor.metrics.profiled.preparation import preparing
from advisor.metrics.stepped.arrivals import _between_tokens, _Waits
from advisor.metrics.stepped.load import Replica, common_token_ms
from advisor.metrics.stepped.pairing import _by_neighbours
from advisor.metrics.stepped.startup import Startup
from advisor.metrics.stepped.window import cold_steps, warmup_steps
from advisor.metrics.steps import sequence
from advisor.metrics.steps.find import _lacks_ends, _marked
from advisor.metrics.steps.model import Method, Steps, Work, no_steps
from advisor.model.arrays import Array
from advisor.sources.schema import DTOH, HTOD, MISSING
from tests.builder import Export
from tests.metrics.support import analysis


def steps(
    length: Sequence[int], size: Sequence[int], phase: Sequence[str] = (), method: Method = "markers"
) -> Steps:
    """Steps right behind each other, of these lengths and numbers of operations."""
    end = np.cumsum(length)
    start = end - np.array(length)
    of_op = np.repeat(np.arange(len(length)), size)
    return Steps(method, 1.0, tuple(phase) or ("decode",) * len(length), start, end, start, end, of_op)


def ops_of(some: Steps) -> Any:
    """Their operations, which take the whole of each step in equal parts."""
    return SimpleNamespace(length=((some.gpu_end - some.gpu_start) // some.size)[some.op_step])


#: Operations of a mixture of experts.
ROUTES, READS, WAITED = range(3)
NO_STARTUP = Startup(0, 0, 0)


# --- warm-up -----------------------------------------------------------------------------------------


def test_a_first_step_as_quick_as_the_others_is_no_warm_up() -> None:
    even = steps([100] * 8, [10] * 8)
    assert warmup_steps(even, NO_STARTUP, ops_of(even)).tolist() == []


def test_a_first_step_of_the_same_work_that_takes_longer_is_warm_up() -> None:
    slow = steps([140, *[100] * 7], [10] * 8)
    assert warmup_steps(slow, NO_STARTUP, ops_of(slow)).tolist() == [140]


def test_a_first_step_of_more_work_is_no_warm_up() -> None:
    longer = steps([140, *[100] * 7], [14, *[10] * 7])
    assert warmup_steps(longer, NO_STARTUP, ops_of(longer)).tolist() == []


def test_steps_on_a_rising_clock_are_warm_up_while_they_are_of_the_same_phase_and_size() -> None:
    """Of twenty steps the first three take twice the time of the others."""
    length, decode = [200] * 3 + [100] * 17, ["decode"] * 17
    for phase, size, expected in [("decode", 10, 3), ("prefill", 10, 1), ("decode", 20, 1)]:
        some = steps(length, [size] * 3 + [10] * 17, [phase] * 3 + decode)
        assert cold_steps(some, NO_STARTUP, ops_of(some)) == expected


# --- steps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "lacks"), [(30, True), (25, False), (10, False)])
def test_a_part_as_large_as_several_others_lacks_ends(last: int, lacks: bool) -> None:
    some = steps([100] * 5, [10, 10, 10, 10, last], method="graph launches")
    work: Any = SimpleNamespace()
    assert _lacks_ends(work, some) is lacks


def test_steps_keep_how_many_ranges_were_seen() -> None:
    """Those of the ranges; where there are none, those of the steps."""
    for own, other, expected in [(3, 5, 5), (3, 0, 3)]:
        assert _marked(no_steps(1, seen=own), no_steps(1, seen=other)).ranges_seen == expected


def test_an_upload_counts_for_no_share_of_kernel_time() -> None:
    """Kernels of 30 ns in steps and 10 ns outside, a copy of 60 ns in a step."""
    work: Any = SimpleNamespace(name=np.array([0, 0, MISSING]), length=np.array([30, 10, 60]))
    inside = np.array([0, MISSING, 0])
    assert Work.share_inside(work, inside) == 0.75
    assert Work.share_inside(work, inside, copies=True) == 0.9


def test_without_kernels_the_share_is_of_all_time() -> None:
    work: Any = SimpleNamespace(name=np.array([MISSING, MISSING]), length=np.array([30, 10]))
    assert Work.share_inside(work, np.array([0, MISSING])) == 0.75


# --- load --------------------------------------------------------------------------------------------


def replica(token_ms: float | None, output_per_s: float | None) -> Replica:
    return Replica(0, None, None, None, output_per_s, None, token_ms, None)


def test_the_time_of_a_token_over_replicas_counts_each_by_its_tokens() -> None:
    assert common_token_ms([replica(10.0, 300.0), replica(14.0, 100.0)]) == pytest.approx(11.0)


def test_replicas_whose_tokens_are_not_known_count_alike() -> None:
    assert common_token_ms([replica(10.0, None), replica(14.0, 100.0)]) == pytest.approx(12.0)
    assert common_token_ms([replica(None, 100.0), replica(14.0, 100.0)]) == pytest.approx(14.0)


def test_replicas_that_differ_much_have_no_common_time() -> None:
    assert common_token_ms([replica(10.0, 1.0), replica(15.1, 1.0)]) is None
    assert common_token_ms([replica(None, 1.0)]) is None


def waits(phase: str, length: int) -> bool:
    """Whether waits of this length before three steps of 100 ns lie between tokens."""
    some = steps([1_000, 1_000, 1_000], [1, 1, 1], [phase] * 3)
    end = some.gpu_end - 100
    nothing = np.zeros(3, np.int64)
    return _between_tokens(_Waits(np.arange(3), Spans(end - length, end), nothing, nothing, nothing), some)


def test_short_waits_before_the_next_tokens_are_not_for_requests() -> None:
    assert waits("decode", 299)
    assert not waits("decode", 301)
    assert not waits("prefill", 299)


# --- losses ------------------------------------------------------------------------------------------


def test_as_many_numbers_as_are_needed_are_enough() -> None:
    """Of the process with most numbers: 2, 4 and 6."""
    process, number = np.array([1, 1, 1, 2, 2]), np.array([2, 4, 6, 9, MISSING])
    assert _gaps(process, number, 3).tolist() == [2, 2]
    assert _gaps(process, number, 4).tolist() == []
    assert _gaps(process, number, 3, wide=3.0).tolist() == []


def counted(counts: Array) -> float:
    """The loss of kernels that come so often, a row a step."""
    step, name = (np.repeat(i, counts.ravel()) for i in map(np.ravel, np.indices(counts.shape)))
    return _random_loss(step, name)


def test_kernels_that_vary_each_for_itself_were_left_out_at_random() -> None:
    """Of 20 calls on average 18 and 22 by turns in four steps: a variance of 16/3, a loss of 4/15."""
    turns = np.array([[1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]).T
    counts = 20 + 2 * np.concatenate((turns, -turns), axis=1)
    assert counted(counts) == pytest.approx(4 / 15)


def test_kernels_that_never_vary_lost_nothing() -> None:
    assert counted(np.full((4, 6), 20)) == 0.0


# --- kernels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alone", "own_work"), [(0.5, True), (0.49, False)])
def test_slow_calls_that_come_once_a_step_and_run_alone_for_half_of_their_time_are_work_of_their_own(
    alone: float, own_work: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty steps of three calls, of which the last takes three times as long."""
    monkeypatch.setattr(alike, "alone_ratio", lambda *_: alone)
    calls: Any = SimpleNamespace(group=np.zeros(60, np.int64), at=np.arange(60))
    a: Any = SimpleNamespace(steps=SimpleNamespace(op_step=np.repeat(np.arange(20), 3)))
    assert alike.two_modes(a, 0, calls, 0, np.tile([100, 100, 300], 20)) is own_work


@pytest.mark.parametrize(("later", "layers"), [(0, 1), (1, 1), (2, 0)])
def test_a_layer_of_experts_ends_in_its_step_or_the_next(
    later: int, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice of experts, two products, and what combines them, the last two so many steps later."""
    nothing = np.zeros(0, np.int64)
    monkeypatch.setattr(experts, "_loops", lambda *_: (nothing, nothing))
    monkeypatch.setattr(experts, "_readbacks", lambda *_: nothing)
    known = [("scan_sort", "top-k"), ("gemm", ""), ("index", experts._COMBINE[0])]
    kernels = [SimpleNamespace(family=family, operation=operation) for family, operation in known]
    a: Any = SimpleNamespace(
        device_kernels=lambda _: np.arange(4),
        step_count=3,
        steps=SimpleNamespace(op_step=np.array([0, 0, later, later])),
        names=SimpleNamespace(mask=lambda of: np.array([of(k) for k in kernels])),
        op_name=np.array([0, 1, 1, 2]),
        ops=SimpleNamespace(start=10 * np.arange(4), end=10 * np.arange(4) + 8),
    )
    found = experts.loose_experts(a, 0)
    assert found is not None
    assert (found.start.tolist(), found.end.tolist()) == ([0][:layers], [38][:layers])
    assert found.kernels.tolist() == [4][:layers]


@pytest.mark.parametrize(
    ("after", "turns"),
    [((0, 8, 16, 24), True), ((0, 8, 16), False), ((0, 8, 16, 25), False), ((0, 7, 14, 21), False)],
)
def test_three_stretches_of_eight_steps_between_prompts_are_turns(after: Sequence[int], turns: bool) -> None:
    assert _in_turns(np.array(after)) is turns


@pytest.mark.parametrize(("first", "found"), [(1, 1), (2, 0)])
def test_each_whole_part_routes_tokens_equally_often(
    first: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven parts between waits, which route once each, but for the first whole one: that so often."""
    monkeypatch.setattr(sequence, "segmented", lambda *_: no_steps(0))
    back = 2 * int(np.ceil(limits.steps.READBACKS_A_LAYER))
    parts = [[ROUTES] * (first if i == 1 else 1) + [READS] * back + [WAITED] for i in range(7)]
    kind = np.concatenate(parts)
    work: Any = SimpleNamespace(
        main_stream=np.arange(len(kind)),
        launched=np.arange(len(kind)),
        ops=SimpleNamespace(api=np.arange(len(kind))),
        copied=lambda _: np.flatnonzero(kind == READS),
        last_before=lambda *_: np.flatnonzero(kind == WAITED),
        waits=None,
    )
    assert len(list(sequence.routed_sequences(work, np.flatnonzero(kind == ROUTES)))) == found


# --- two recordings ----------------------------------------------------------------------------------


def test_operations_with_equal_neighbours_are_the_same() -> None:
    tokens = np.array([5, 6, 7, 5, 8])
    assert _by_neighbours(tokens, tokens, np.array([10, 11, 12, 13, 14])).tolist() == [10, 11, 12, 13, 14]


def test_an_operation_without_a_counterpart_matches_nothing() -> None:
    own, other = np.array([5, 6, 9]), np.array([5, 6, 7])
    assert _by_neighbours(own, other, np.arange(3))[-1] == MISSING
    assert _by_neighbours(own, other[:0], np.arange(0)).tolist() == [MISSING] * 3


# --- host --------------------------------------------------------------------------------------------


def test_what_a_wait_is_for_is_told_by_the_last_operation_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads and results, small and large; a kernel; nothing."""
    large = limits.host.SMALL_COPY_BYTES + 1
    table = {
        "kind": np.array([HTOD, HTOD, DTOH, DTOH, 0]),
        "bytes": np.array([large - 1, large, large - 1, large, 0]),
    }
    monkeypatch.setattr(ties, "of_copies", lambda *given: table[given[-1]])
    a: Any = SimpleNamespace(trace=None, ops=None)
    kind, copy = ties._kinds(a, np.array([0, 1, 2, 3, 4, MISSING]), np.zeros(6, bool))
    assert kind.tolist() == [ties.UPLOAD, ties.WORK, ties.RESULT, ties.RESULT, ties.WORK, ties.NONE]
    assert copy.tolist() == [0, 1, 2, 3, MISSING, MISSING]


def test_a_sample_belongs_to_the_call_that_it_lies_in() -> None:
    """Of two calls 20 samples lie in the second; one lies between them, one is another thread's."""
    columns = {
        "time": np.concatenate((200 + np.arange(20), [150, 250])),
        "thread": np.concatenate((np.full(21, 7), [8])),
        "callchain": np.arange(22),
    }
    calls = SimpleNamespace(thread=7, start=np.array([0, 200]), end=np.array([100, 300]))
    finder: Any = SimpleNamespace(
        _trace=SimpleNamespace(columns=lambda *_: columns),
        _calls=calls,
        _sites_of_chains=lambda chain: (np.zeros(len(chain), np.int64), ["main"]),
    )
    located = CallSiteFinder._by_sample(finder, np.array([0, 1]))
    assert located is not None
    site, labels, at = located
    assert (site.tolist(), labels, at.tolist()) == ([0] * 20, ["main"], [1] * 20)


@pytest.mark.parametrize(
    ("active", "words"), [(0.9, "samples show a GPU at work"), (0.0, "another process (a worker, a server)")]
)
def test_samples_of_a_gpu_at_work_tell_that_the_work_was_not_recorded(
    active: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "_split_texts", lambda _: ([], []))
    capture = SimpleNamespace(trace_sources=(), memory_of=(), cuda_traced=True, gpus_listed=1)
    columns = {"call": np.zeros(0, np.int64), "gr_active": np.array([0.0, active])}
    trace: Any = SimpleNamespace(
        capture=capture,
        has=lambda _: False,
        columns=lambda _, names: {n: columns[n] for n in names if n in columns},
    )
    ranges: Any = None
    processor, sign = ran_on(trace, ranges)
    assert processor is None
    assert words in sign


def test_what_follows_the_results_of_a_step_prepares_the_next_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, a kernel, a replay of two nodes, a kernel, results, a kernel, a replay, a kernel."""
    node = np.array([0, 0, 1, 2, 0, 0, 0, 1, 0])
    results = np.isin(np.arange(9), (0, 5))
    monkeypatch.setattr(preparation, "of_copies", lambda *_: np.where(results, DTOH, 0))
    nothing = np.full(9, MISSING)
    a: Any = SimpleNamespace(
        ops=SimpleNamespace(device=np.zeros(9, np.int64), api=nothing, graph_node=node),
        trace=SimpleNamespace(columns=lambda *_: {"call": np.zeros(0, np.int64)}),
        op_name=np.where(results, MISSING, 0),
        names=SimpleNamespace(mask=lambda _: np.array([False])),
        steps=SimpleNamespace(op_step=nothing),
    )
    assert np.flatnonzero(preparing(a, 0)).tolist() == [1, 6]


@pytest.mark.parametrize(("more", "count"), [(0, 8), (1, 0)])
def test_copies_of_64_kib_are_small(more: int, count: int, tmp_path: Path) -> None:
    """Eight uploads in a row; then a kernel."""
    e = Export().gpu().process(1)
    for i in range(8):
        e.copy(at=i * 20_000, bytes=(64 << 10) + more, copy_start=i * 20_000 + 6_000, copy_dur=2_000)
    e.launch(at=200_000, kernel_start=210_000)
    at, run = small_uploads(analysis(e, tmp_path), 0)
    assert (len(at), len(set(run.tolist()))) == (count, min(count, 1))
