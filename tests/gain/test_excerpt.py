"""What is replayed where no step repeats: one pass, or the window as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.gain import limits
from advisor.gain.attach import assumptions
from advisor.gain.estimate import Replayer
from advisor.gain.excerpt import NoReplay, as_one_pass
from advisor.gain.inputs import NEVER
from advisor.metrics.profiled.stage import measure
from advisor.pipeline.diagnose import open_trace
from advisor.sources.schema import MISSING
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import US, fix, replayer, step_us
from tests.metrics.support import analysis

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "captures"


def one_iteration(inside: bool = True) -> Export:
    """10 us of host code, a launch [10, 15), its kernel [17, 117), a wait until 122, 300 us of host code, a
    launch [422, 427), its kernel [429, 449)."""
    export = Export().process(1)
    if inside:
        export.range("iteration 0", 0, 450 * US)
    export.launch(at=10 * US, dur=5 * US, kernel="a", kernel_start=17 * US, kernel_dur=100 * US)
    export.sync(at=16 * US, dur=106 * US)
    return export.launch(at=422 * US, dur=5 * US, kernel="b", kernel_start=429 * US, kernel_dur=20 * US)


def test_one_iteration_is_timed_from_the_begin_of_its_range(tmp_path: Path) -> None:
    """0 to 449 us; without the 10 and 300 us of host code, 139."""
    r = replayer(one_iteration(), tmp_path)
    assert r.excerpt.of == "step"
    assert r.captured_ns == pytest.approx(449 * US)
    assert step_us(r, fix("remove_host_gap")) == pytest.approx(139, abs=1)


def test_a_window_without_steps_is_timed_as_a_whole(tmp_path: Path) -> None:
    """From the first work at 17 us to the end at 449."""
    r = replayer(one_iteration(inside=False), tmp_path)
    assert r.excerpt.of == "window"
    assert r.captured_ns == pytest.approx(432 * US)
    assert "the window was captured once: nothing shows how others differ" in assumptions(r, [])


def test_work_that_was_queued_before_the_window_waits_for_no_call(tmp_path: Path) -> None:
    """Ten kernels of 100 us, all launched within the first; the window holds the last five."""
    export = Export().process(1)
    for i in range(10):
        start = (10 + 100 * i) * US
        export.launch(at=i * 5 * US, dur=4 * US, kernel=scenes.GEMM, kernel_start=start, kernel_dur=100 * US)
    r = Replayer(analysis(export, tmp_path, window="0.00051/0.00101"))
    assert r.excerpt.of == "window"
    assert r.captured_ns == pytest.approx(500 * US)
    assert (r.taken.inputs.ops.latency == NEVER).all()


def test_pages_of_unified_memory_move_on_demand(tmp_path: Path) -> None:
    export = one_iteration(inside=False)
    for i in range(3):
        export.migration((130 + 10 * i) * US)
    with pytest.raises(NoReplay, match="pages of unified memory"):
        replayer(export, tmp_path)


def test_a_long_window_is_not_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ALONE_OPS", 1)
    with pytest.raises(NoReplay, match="one pass of 2 operations, too many"):
        Replayer(analysis(one_iteration(inside=False), tmp_path), limit=1)


def test_kernels_of_a_window_without_steps_belong_to_its_one_pass(tmp_path: Path) -> None:
    a = analysis(one_iteration(inside=False), tmp_path)
    before = a.kernels(0).at  # kept before the view of one pass is made
    view = as_one_pass(a)
    assert view is not a
    assert view.kernels(0).at.tolist() == before.tolist()
    assert view.kernels(0).step.tolist() == [0] * len(before)
    assert a.kernels(0).step.tolist() == [MISSING] * len(before)


def test_a_capture_with_steps_is_left_as_it_is(tmp_path: Path) -> None:
    a = analysis(scenes.eager(), tmp_path)
    assert as_one_pass(a) is a


@pytest.mark.parametrize(
    ("name", "what_if"),
    [
        ("decode_eager_bs1", "cuda_graphs"),
        ("decode_eager_bs1", "fuse_elementwise"),
        ("decode_cpu_gap", "remove_host_gap"),
        ("decode_h2d_pageable", "pin_memory"),
        ("decode_graph_bs1", "fuse_elementwise"),
        ("decode8b_graph_bs1", "fuse_elementwise"),
        ("prefill8b_bs4", "fuse_elementwise"),
    ],
)
def test_a_window_promises_what_its_steps_do(name: str, what_if: str) -> None:
    """The same captures with their steps hidden: within the range of what the steps promise."""
    with open_trace(EXAMPLES / f"{name}.sqlite.xz") as trace:
        a = measure(trace)
        known = Replayer(a).estimate([fix(what_if)]).speedup
        r = Replayer(replace(a, window_steps=np.empty(0, np.int64)))
        assert r.excerpt.of == "window"
        assert known.low <= r.estimate([fix(what_if)]).speedup.mid <= known.high


def test_work_from_before_the_recording_takes_no_time_of_the_pass(tmp_path: Path) -> None:
    """Ten kernels of 1 ms, launched at once, begin 20 ms later, when unknown work ends: the pass takes 10 ms,
    and graphs gain nothing."""
    export = Export().process(1).range("prefill 0", 0, 31_000 * US)
    for i in range(10):
        start = (20_000 + 1000 * i) * US
        export.launch(
            at=i * 20 * US, dur=4 * US, kernel=scenes.GEMM, kernel_start=start, kernel_dur=1000 * US
        )
    r = replayer(export, tmp_path)
    assert r.excerpt.alone
    assert r.captured_ns == pytest.approx(10_000 * US, rel=0.01)
    assert step_us(r) == pytest.approx(10_000, rel=0.01)
    assert step_us(r, fix("cuda_graphs")) == pytest.approx(10_000, rel=0.01)


@pytest.mark.parametrize("cold", [40, 400])
def test_a_pass_of_which_much_is_start_up_is_not_estimated(cold: int, tmp_path: Path) -> None:
    """Two kernels of 100 us in 600 us of host code; the first launch of the second loads its module."""
    export = Export().process(1).range("iteration 0", 0, 1_000 * US)
    export.launch(at=10 * US, dur=5 * US, kernel="a", kernel_start=17 * US, kernel_dur=100 * US)
    export.call("cuModuleLoadData", 200 * US, cold * 1_000)
    export.launch(at=700 * US, dur=5 * US, kernel="b", kernel_start=707 * US, kernel_dur=100 * US)
    if cold < 100:
        assert replayer(export, tmp_path).excerpt.of == "step"
    else:
        with pytest.raises(NoReplay, match=r"start-up holds 50.2 % of the step"):
            replayer(export, tmp_path)
