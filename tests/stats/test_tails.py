"""Tails among like calls, and what slow calls coincide with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.engine.load import builtin_dir, load_rule
from advisor.metrics.budgeted.like import coincidences, like_calls, shared_spans, slow_calls
from advisor.metrics.intervals import Spans
from advisor.metrics.stats.spread import TailLimits
from tests.builder import Export
from tests.metrics.support import analysis
from tests.stats.support import rows, table

STEP = 1_000_000


def loop(slow: dict[int, int] | None = None, steps: int = 31, out: Export | None = None) -> Export:
    """Steps of 1 ms: gemm at +0.1 ms (100 us), add at +0.3 ms (10 us), last at +0.5 ms; `slow`
    gives add other durations by step."""
    out = out or Export().gpu().process(1)
    for i in range(steps):
        at = i * STEP
        out.range(f"iteration {i}", at, at + 900_000)
        out.launch(at=at + 1_000, kernel="gemm", kernel_start=at + 100_000, kernel_dur=100_000)
        out.launch(
            at=at + 10_000, kernel="add", kernel_start=at + 300_000, kernel_dur=(slow or {}).get(i, 10_000)
        )
        out.launch(at=at + 20_000, kernel="last", kernel_start=at + 500_000, kernel_dur=5_000)
    return out


def of(name: str, found: object, *columns: str) -> tuple[object, ...]:
    """The one row of a kernel."""
    hits = [r[1:] for r in rows(found, "Name", *columns) if r[0] == name]  # type: ignore[arg-type]
    assert len(hits) == 1
    return hits[0]


def test_percentiles_and_score(tmp_path: Path) -> None:
    # 30 calls in the window: 27 of 10 us, one each of 20, 30 and 40.
    found = table(loop({5: 20_000, 6: 30_000, 7: 40_000}), tmp_path, "tail")
    assert of("add", found, "Count", "P50", "P95", "P99", "Max", "Tail", "Max/P50", "P99/P50", "Slow") == (
        30,
        10_000.0,
        30_000,
        40_000,
        40_000,
        60_000.0,
        4.0,
        4.0,
        3,
    )
    assert rows(found, "Name")[0] == ("add",)
    assert of("gemm", found, "Tail", "Slow", "Alone", "Sync") == (0.0, 0, None, None)
    # 30 x 100 us of gemm, 360 of add, 150 of last.
    assert of("add", found, "Share")[0] == pytest.approx(360 / 3_510 * 100)


def test_like_calls_are_told_apart_by_what_runs_around_them(tmp_path: Path) -> None:
    # One kernel twice a step, of 10 and 30 us: no tail, because the two places differ.
    export = Export().process(1)
    for i in range(30):
        for k, (name, dur) in enumerate([("a", 5_000), ("k", 10_000), ("b", 5_000), ("k", 30_000)]):
            export.kernel(i * STEP + k * 100_000, dur, name)
    a = analysis(export, tmp_path)
    like = like_calls(a, 0)
    assert slow_calls(like).sum() == 0
    k = a.names.texts.index("k")
    assert sorted(like.spread.p50[(like.name == k) & (like.spread.count >= 20)]) == [10_000, 30_000]


def test_rare_places_are_joined(tmp_path: Path) -> None:
    # The neighbours of k change all the time: it is compared over its launch shape.
    export = Export().process(1)
    for i in range(40):
        export.kernel(i * STEP, 1_000, f"n{i % 13}").kernel(i * STEP + 10_000, 2_000, "k")
    a = analysis(export, tmp_path, window="0s/")
    name = a.names.texts.index("k")
    assert (like_calls(a, 0).spread.count[like_calls(a, 0).name == name] < 20).all()
    joined = like_calls(a, 0, 20)
    assert joined.spread.count[joined.name == name].tolist() == [40]
    assert joined.spread.count.sum() == 80
    # Three calls at each place are enough where three are asked for; the last has a place of its own.
    few = like_calls(a, 0, 3)
    assert sorted(few.spread.count[few.name == name].tolist()) == [1, *[3] * 13]


def test_launch_shapes_are_not_mixed(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(40):
        export.kernel(i * STEP, 1_000 * (1 + i % 2), "k", grid=(1 + i % 2, 1, 1))
    found = table(export, tmp_path, "tail")
    assert sorted(rows(found, "Count", "P50", "Max/P50", "Grid")) == [
        (20, 1_000.0, 1.0, "1x1x1"),
        (20, 2_000.0, 1.0, "2x1x1"),
    ]


@pytest.mark.parametrize("what", ["Sync", "Alloc", "Copy", "Other Stream"])
def test_what_slow_calls_coincide_with(what: str, tmp_path: Path) -> None:
    export = loop({5: 30_000, 9: 30_000})
    if what == "Other Stream":  # also where it is the kernel recorded first
        export = Export().gpu().process(1).kernel(50_000, 1_000, "other", stream=20, correlation=0)
        export = loop({5: 30_000, 9: 30_000}, out=export)
    at = 5 * STEP + 310_000  # in the first of the two slow calls
    if what == "Sync":
        export.sync(at, 5_000)
    elif what == "Alloc":
        export.call("cudaMalloc_v3020", at, 5_000)
    elif what == "Copy":
        export.copy(5 * STEP + 40_000, 1_000, copy_start=at, copy_dur=1_000)
    else:
        export.kernel(at, 1_000, "other", stream=20, correlation=0)
    found = table(export, tmp_path, "tail")
    assert of("add", found, "Slow", what)[1] == 50.0
    assert of("add", found, f"{what} of All")[0] == pytest.approx(100 / 30)
    others = {"Sync", "Alloc", "Copy", "Other Stream"} - {what}
    assert {of("add", found, o)[0] for o in others} == {0.0}
    # A copy or kernel of 1 us in 60 us of slow calls keeps them company.
    company = 100.0 if what in ("Sync", "Alloc") else 100 * 59 / 60
    assert of("add", found, "Alone")[0] == pytest.approx(company)


def test_calls_of_another_process_do_not_count(tmp_path: Path) -> None:
    export = loop({5: 30_000}).process(2).sync(5 * STEP + 310_000, 5_000)
    assert of("add", table(export, tmp_path, "tail"), "Slow", "Sync") == (1, 0.0)


def test_the_first_iteration_shows_where_the_window_holds_it(tmp_path: Path) -> None:
    found = table(loop({0: 90_000}), tmp_path, "tail", window="0s/")
    assert of("add", found, "Slow", "First Iteration") == (1, 100.0)
    assert of("add", table(loop({0: 90_000}), tmp_path, "tail"), "Slow") == (0,)


def test_calls_ahead_of_the_first_step_are_of_the_first_iteration(tmp_path: Path) -> None:
    """Those behind the last step are of none."""
    export = loop(out=Export().gpu().process(1).kernel(10_000, 30_000, "add", correlation=0))
    export.launch(at=31 * STEP, kernel="add", kernel_start=31 * STEP + 10_000, kernel_dur=30_000)
    a = analysis(export, tmp_path, window="0s/")
    like = like_calls(a, 0)
    first = coincidences(a, 0, like)["first"]
    assert a.ops.start[like.at[first]].tolist() == [10_000, 100_000, 300_000, 500_000]


@pytest.mark.parametrize(("steps", "apart"), [(5, True), (4, False)])
def test_five_calls_show_that_a_place_of_the_steps_takes_longer(
    tmp_path: Path, steps: int, apart: bool
) -> None:
    """The third of four like calls in each step takes 30 us, the others 10."""
    export = Export().gpu().process(1)
    for i in range(steps):
        export.range(f"iteration {i}", i * STEP, i * STEP + 900_000)
        for n, us in enumerate((10, 10, 30, 10)):
            at = i * STEP + 1_000 + n * 10_000
            export.launch(at=at, kernel="k", kernel_start=at + 100_000 * (n + 1), kernel_dur=us * 1_000)
    like = like_calls(analysis(export, tmp_path, window="0s/"), 0)
    assert slow_calls(like).any() != apart
    longest = like.duration[like.group == like.group[np.argmax(like.duration)]]
    assert (longest == 30_000).all() == apart


def test_processes_with_the_same_kernels_are_not_mixed(tmp_path: Path) -> None:
    export = Export().gpu()
    for pid, us in ((1, 10), (2, 30)):
        export.process(pid)
        for i in range(30):
            at = i * STEP + pid * 100_000
            export.launch(at=at, kernel="k", kernel_start=at + 10_000, kernel_dur=us * 1_000)
    a = analysis(export, tmp_path)
    like = like_calls(a, 0)
    assert not slow_calls(like).any()
    pairs = set(zip(like.group.tolist(), a.ops.process[like.at].tolist(), strict=True))
    assert len(pairs) == len(like)


def test_a_hidden_tail_is_flagged(tmp_path: Path) -> None:
    # 2 calls of 600 us among 28 of 10: most of its time, little of all time, alone on the GPU.
    quiet = loop({5: 190_000, 9: 190_000})
    found = table(quiet, tmp_path, "tail")
    assert of("add", found, "Flag") == ("systematic",)  # a fifth of the kernel time: not hidden
    for i in range(31):
        quiet.kernel(i * STEP + 520_000, 470_000, "big", stream=7, correlation=0)
    found = table(quiet, tmp_path, "tail")
    share, flag = of("add", found, "Share", "Flag")
    assert share < 5  # type: ignore[operator]
    assert flag == "hidden"


def test_a_tail_that_overlaps_other_work_is_not_hidden(tmp_path: Path) -> None:
    export = loop({5: 190_000, 9: 190_000})
    for i in range(31):
        export.kernel(i * STEP + 290_000, 600_000, "big", stream=9, correlation=0)
    found = table(export, tmp_path, "tail")
    assert of("add", found, "Flag", "Alone", "Other Stream") == ("systematic", 0.0, 100.0)


def test_limits_are_those_of_the_rule() -> None:
    rule = load_rule("KRN103", builtin_dir())
    limits = TailLimits()
    for name in ("min_tail", "max_share", "min_blocking", "min_lost"):
        assert getattr(limits, name) == rule.params[name].default


def test_shared_spans() -> None:
    start, end = np.array([0, 5, 20, 21, 40]), np.array([10, 8, 30, 50, 45])
    found = shared_spans(start, end)
    assert found == Spans(*map(pytest.approx, ([5, 21, 40], [8, 30, 45])))
