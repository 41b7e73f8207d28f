"""Each what-if on a capture whose step time after the fix can be worked out.

`PLAIN` leaves the profiler's part as it was captured, so that only the fix changes anything.
"""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path

import pytest

from advisor.gain import fixes
from advisor.gain.attach import combine
from advisor.gain.changes import CHANGES
from advisor.gain.estimate import Replayer
from advisor.gain.fixes import settled
from advisor.gain.profiler import Scenario
from advisor.gain.replay_ops import NoEstimate
from advisor.gain.whatifs import Fix, catalogue
from advisor.metrics.profiled.stage import measure
from advisor.pipeline.diagnose import open_trace
from advisor.pipeline.explain import parse_fixes
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import PLAIN, US, fix, replayer, step_us
from tests.kineto_builder import Profile
from tests.shipped import shipped_rules


def after(export: Export, folder: Path, *fixes: Fix, lean: int = 0, **options: object) -> float:
    return step_us(replayer(export, folder, **options), *fixes, lean=lean)


#: Of the function of a what-if.
PARAMETERS = ["fix", "inputs", "work", "scenario", "lean"]


def test_every_what_if_of_the_catalogue_is_there() -> None:
    """And each function of this form in the modules of what-ifs is registered."""
    assert CHANGES.keys() == catalogue().whatifs.keys()
    written = {
        found
        for module in (fixes, *fixes.MODULES)
        for found in vars(module).values()
        if inspect.isfunction(found) and [*inspect.signature(found).parameters] == PARAMETERS
    }
    assert set(CHANGES.values()) == written - {fixes.apply}


# ---------------------------------------------------------------- launches


def test_graphs_leave_one_launch(tmp_path: Path) -> None:
    # Captured: 20 launches of 20 us. As a graph: the 15 us before the first, and a launch of 5 and
    # 20 x 0.08 us, which hide behind 20 kernels of 3 us and 0.9 to the next graph.
    assert after(scenes.eager(), tmp_path) == 400
    assert after(scenes.eager(), tmp_path, fix("cuda_graphs")) == pytest.approx(60.9)


def test_graphs_end_at_the_gpu(tmp_path: Path) -> None:
    # 100 kernels of 3 us with 0 to 0.5 us between them; the next graph is queued behind them, and
    # follows as a kernel on a stream does (0.9 us).
    r = replayer(scenes.eager(100), tmp_path)
    assert step_us(r, fix("cuda_graphs")) == pytest.approx(300.9)
    half = Scenario(launch=0.0, node_gap=0.5)
    assert step_us(r, fix("cuda_graphs"), scenario=half) == pytest.approx(300.9 + 99 * 0.25)


def test_streams_overlap_no_more_than_recorded(tmp_path: Path) -> None:
    """Four kernels of 50 us a step, on two streams by turns, one every 100 us: which wait for each
    other is not known, so a faster host makes a step no shorter than the device is busy. The last of five
    steps ends with its third kernel, on the stream that the steps end on."""

    def step(e: Export, t: int) -> None:
        for k in range(4):
            at = t + k * 100 * US
            e.launch(at, 5 * US, kernel_start=at + 7 * US, kernel_dur=50 * US, stream=7 + k % 2)

    assert after(scenes.capture(step, 400), tmp_path) == 400
    assert after(scenes.capture(step, 400), tmp_path, fix("cuda_graphs")) == (4 * 200 + 150) / 5


def test_a_step_without_the_profiler_is_no_shorter_than_its_device_is_busy(tmp_path: Path) -> None:
    """The same kernels every 53 us: without 16 us of tracing each they are launched every 37 us, and nothing
    says that the two streams would then overlap. A fix takes no more from them than its kernel lasts."""
    widen = "void vllm::awq::dequantize_weights(int*)"

    def step(e: Export, t: int) -> None:
        for k, kernel in enumerate((scenes.GEMM, widen, scenes.GEMM, scenes.GEMM)):
            at = t + k * 53 * US
            e.launch(at, 20 * US, kernel, kernel_start=at + 22 * US, kernel_dur=50 * US, stream=7 + k % 2)

    r, untraced = replayer(scenes.capture(step, 212), tmp_path), Scenario(launch=1.0)
    busy = (4 * 200 + 150) / 5
    assert step_us(r) == 212
    assert step_us(r, scenario=untraced) == pytest.approx(busy)
    assert step_us(r, fix("absorb_kernels", which="dequantisation"), scenario=untraced) == pytest.approx(
        busy - 50
    )


def test_a_small_graph_costs_no_more_than_its_launches(tmp_path: Path) -> None:
    # 15 us of host code and a launch of 5, or two launches as a graph of 5.16.
    assert after(scenes.eager(1), tmp_path, fix("cuda_graphs")) == pytest.approx(20)
    assert after(scenes.eager(2), tmp_path, fix("cuda_graphs")) == pytest.approx(20.16)


def step_with_a_wait(e: Export, t: int) -> None:
    """Ten launches, a wait, ten launches; kernels of 3 us."""
    for k in range(20):
        at = t + (20 * k + (30 if k >= 10 else 0)) * US
        e.launch(at=at, dur=5 * US, kernel_start=at + 7 * US, kernel_dur=3 * US)
        if k == 9:
            e.sync(at=at + 6 * US, dur=9 * US)  # until 5 us after the kernel's end


def test_graphs_are_cut_where_the_host_waits(tmp_path: Path) -> None:
    export = scenes.capture(step_with_a_wait, 430)
    # Two graphs of 10 nodes, 5.8 us a launch. From one return of the wait to the next: 35 us of
    # host code, the launch, 2 us, kernels of 30, 0.9 to those of the first graph (launched
    # meanwhile), 30, and 5 until the wait returns.
    expected = 35 + 5.8 + 2 + 30 + 0.9 + 30 + 5
    assert after(export, tmp_path, fix("cuda_graphs")) == pytest.approx(expected)
    assert after(export, tmp_path, fix("cuda_graphs", syncs="removed")) < expected


@pytest.mark.parametrize("what", ["host code", "a collection", "an OS call", "another thread's lock"])
def test_graphs_leave_what_the_host_does_between_launches(what: str, tmp_path: Path) -> None:
    """Twenty launches of 20 us, and two milliseconds of something else in their middle."""

    def step(e: Export, t: int) -> None:
        for k in range(20):
            at = t + (k * 20 + (2000 if k >= 10 else 0)) * US
            e.launch(at=at, dur=5 * US, kernel="k", kernel_start=at + 7 * US, kernel_dur=3 * US)
        if what == "a collection":
            e.range("Python GC", t + 200 * US, t + 2200 * US)
        if what == "an OS call":
            e.osrt("read", t + 200 * US, 2000 * US)
        if what == "another thread's lock":
            e.range("Waiting for GIL", t + 200 * US, t + 2200 * US)

    assert after(scenes.capture(step, 2400), tmp_path, fix("cuda_graphs")) == pytest.approx(2025, abs=15)


@pytest.mark.parametrize("wait", [0, 5, 10])
def test_fewer_launches_leave_each_wait_for_a_lock(wait: int, tmp_path: Path) -> None:
    """Twenty launches of 20 us, so much of it waiting for Python's lock."""

    def step(e: Export, t: int) -> None:
        for k in range(20):
            at = t + k * 20 * US
            e.launch(at=at, dur=5 * US, kernel=scenes.ADD, kernel_start=at + 7 * US, kernel_dur=3 * US)
            if wait:
                e.range("Waiting for GIL", at + 8 * US, at + (8 + wait) * US)

    export = scenes.capture(step, 400)
    graph, fused = (
        after(export, tmp_path, fix("cuda_graphs")),
        after(export, tmp_path, fix("fuse_elementwise")),
    )
    assert graph == pytest.approx(60.9 if wait == 0 else 20 * wait, abs=20)
    assert graph >= 20 * wait
    assert fused >= 20 * wait
    # Without that wait the rest of the gain is there.
    both = fix("remove_gil_wait"), fix("cuda_graphs")
    if wait:
        assert after(export, tmp_path, *both) == pytest.approx(60.9, abs=1)


def test_graphs_need_something_launched_alone(tmp_path: Path) -> None:
    with pytest.raises(NoEstimate, match="by a call of its own"):
        after(scenes.kernels(("a", 50), ("b", 50)), tmp_path, fix("cuda_graphs"))


def test_shapes_that_do_not_come_again_stay(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        for k in range(20):
            at = t + k * 20 * US
            e.launch(
                at=at, dur=5 * US, kernel_start=at + 7 * US, kernel_dur=3 * US, grid=(1 + t // US + k, 1, 1)
            )

    export = scenes.capture(step, 400)
    assert after(export, tmp_path, fix("cuda_graphs"), lean=-1) == 400
    assert after(scenes.eager(), tmp_path, fix("cuda_graphs"), lean=-1) == pytest.approx(60.9)


def test_graphs_leave_allocations_to_their_own_fix(tmp_path: Path) -> None:
    """100 us a step: 45 us from launch to launch, 30 of them an allocation, and 50 us up to the next
    step. A graph of two nodes costs 5.16 us; the allocation and the code between steps stay."""

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel_start=t + 7 * US, kernel_dur=3 * US)
        e.call("cudaMalloc_v3020", t + 10 * US, 30 * US)
        e.launch(at=t + 45 * US, dur=5 * US, kernel_start=t + 52 * US, kernel_dur=3 * US)

    export = scenes.capture(step, 100)
    assert after(export, tmp_path, fix("cuda_graphs")) == pytest.approx(50 + 30 + 5.16, abs=0.1)
    both = fix("remove_allocations"), fix("cuda_graphs")
    assert after(export, tmp_path, *both) == pytest.approx(50 + 5.16, abs=0.1)


def test_allocations_take_no_time(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        e.call("cudaMalloc_v3020", t, 30 * US)
        e.launch(at=t + 40 * US, dur=5 * US, kernel_start=t + 47 * US, kernel_dur=3 * US)
        e.call("cudaFree_v3020", t + 60 * US, 25 * US)

    export = scenes.capture(step, 100)
    assert after(export, tmp_path, fix("remove_allocations")) == 45
    with pytest.raises(NoEstimate, match="neither allocate nor free"):
        after(scenes.eager(), tmp_path, fix("remove_allocations"))


# ---------------------------------------------------------------- waits and host code


def test_without_the_wait_the_host_runs_ahead(tmp_path: Path) -> None:
    # Captured: 5 + 1 + wait until 112 + 50 = 162. Without: 5 + 1 + 2 + 50 = 58 us of host time, so
    # the kernels of 100 us follow each other at 0.9 us.
    export = scenes.waiting()
    assert after(export, tmp_path) == 162
    assert after(export, tmp_path, fix("remove_sync", which="all")) == pytest.approx(100.9)
    # The wait comes after the last work of the step, but nothing is copied to the host for it.
    assert after(export, tmp_path, fix("remove_sync")) == pytest.approx(100.9)


def test_a_wait_inside_the_step(tmp_path: Path) -> None:
    # 10 + 20 launches of 20 us and a wait of 30 in the middle: without waiting, 2 us remain of the
    # 9 that it took.
    export = scenes.capture(step_with_a_wait, 430)
    assert after(export, tmp_path, fix("remove_sync")) == pytest.approx(430 - 9 + 2)


def test_readbacks(tmp_path: Path) -> None:
    # The wait ends at 115; 85 us of host code follow. Without it: 15 + 1 + 2 + 85 = 103 of host
    # time, and 100 + 1 + 2 + 0.9 on the device.
    export = scenes.reading_back()
    assert after(export, tmp_path, fix("async_readback")) == pytest.approx(103.9)
    # The wait at the end of the step hands over what was read back, and stays.
    assert after(export, tmp_path, fix("remove_sync")) == 200


def test_host_code_between_steps(tmp_path: Path) -> None:
    # What is left of a step: launch, 2 us, kernel, 5 us until the wait returns. Nothing was read
    # back, so the wait goes, too, unless it is kept.
    export = scenes.waiting()
    kept = fix("remove_host_gap", idle_waits="kept")
    assert after(export, tmp_path, kept) == 5 + 2 + 100 + 5
    assert after(export, tmp_path, fix("remove_host_gap")) == pytest.approx(100.9)


@pytest.mark.parametrize("code", [90, 150, 250])
def test_host_code_around_calls_that_launch_nothing(code: int, tmp_path: Path) -> None:
    """Two launches a step, each with a wait behind it, and after the first one so much host code before each
    of two calls that free memory: from 100 us on together as long as a host gap."""

    def step(e: Export, t: int) -> None:
        for at in (t, t + (122 + 2 * code) * US):
            e.launch(at=at, dur=5 * US, kernel="k", kernel_start=at + 7 * US, kernel_dur=100 * US)
            e.sync(at=at + 6 * US, dur=106 * US)
        e.call("cudaFree_v3020", t + (112 + code) * US, 5 * US)
        e.call("cudaFree_v3020", t + (117 + 2 * code) * US, 5 * US)

    export = scenes.capture(step, 244 + 2 * code)
    kept = fix("remove_host_gap", idle_waits="kept")
    assert after(export, tmp_path) == 244 + 2 * code
    assert after(export, tmp_path, kept) == pytest.approx(234 if code > 100 else 234 + 2 * code, abs=1)


def test_allocations_between_steps_keep_the_wait_in_front_of_them(tmp_path: Path) -> None:
    # As `waiting`, with 30 of the 50 us of host code in a call that frees memory.
    export = scenes.waiting()
    for i in range(6):
        export.call("cudaFree", at=(i * 162 + 115) * US, dur=30 * US)
    assert after(export, tmp_path, fix("remove_host_gap")) == 5 + 2 + 100 + 5 + 30
    both = fix("remove_allocations"), fix("remove_host_gap")
    assert after(export, tmp_path, *both) == pytest.approx(100.9)


def test_a_result_that_is_read_back_keeps_its_wait(tmp_path: Path) -> None:
    export = scenes.reading_back()
    # 85 us of host code go; the wait returns at 115. Optimistic: the next step is launched before.
    assert after(export, tmp_path, fix("remove_host_gap")) == 115
    assert after(export, tmp_path, fix("remove_host_gap"), lean=1) == pytest.approx(103.9)


@pytest.mark.parametrize(("what", "name"), [("gc", "remove_gc"), ("gil", "remove_gil_wait")])
def test_what_a_thread_waits_for(tmp_path: Path, what: str, name: str) -> None:
    export = scenes.waiting(gap=500, **{what: 300})
    kept = fix(name, idle_waits="kept")
    assert after(export, tmp_path) == 612
    assert after(export, tmp_path, kept) == 312
    # The 200 us of host code that are left do not move behind the kernels.
    assert after(export, tmp_path, fix(name)) == 312
    # Where next to none is left, the host runs ahead.
    alone = scenes.waiting(gap=305, **{what: 300})
    assert after(alone, tmp_path, fix(name)) == pytest.approx(100.9)
    # Taking host code off the path leaves what has a fix of its own.
    assert after(export, tmp_path, fix("remove_host_gap", idle_waits="kept")) == 412
    with pytest.raises(NoEstimate, match="recorded on these threads"):
        after(scenes.waiting(), tmp_path, fix(name))


def test_a_collection_before_a_thread_takes_over(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        e.thread(1).launch(at=t, dur=5 * US, kernel_start=t + 7 * US, kernel_dur=3 * US)
        e.thread(2).range("Python GC", t + 10 * US, t + 40 * US)
        e.launch(at=t + 50 * US, dur=5 * US, kernel_start=t + 57 * US, kernel_dur=3 * US)
        e.thread(1)

    export = scenes.capture(step, 100)
    assert after(export, tmp_path) == 100
    assert after(export, tmp_path, fix("remove_gc")) == 70


def test_blocked_in_the_operating_system(tmp_path: Path) -> None:
    export = scenes.waiting()
    for i in range(6):
        export.row(
            "OSRT_API",
            start=(i * 162 + 120) * US,
            end=(i * 162 + 150) * US,
            globalTid=export.global_tid,
            nameId=export.string("poll"),
        )
    assert after(export, tmp_path, fix("remove_host_gap", what="os", idle_waits="kept")) == 132
    # That is what the finding of such calls stands for; host code is another's.
    (blocked,) = parse_fixes(["HST104:idle_waits=kept"], shipped_rules().by_code)
    assert after(export, tmp_path, blocked) == 132
    with pytest.raises(NoEstimate, match="operating system"):
        after(scenes.waiting(), tmp_path, fix("remove_host_gap", what="os"))


def test_nothing_to_wait_for(tmp_path: Path) -> None:
    with pytest.raises(NoEstimate, match="waits for the device"):
        after(scenes.eager(), tmp_path, fix("remove_sync"))
    with pytest.raises(NoEstimate, match="nothing to the host"):
        after(scenes.waiting(), tmp_path, fix("async_readback"))


def test_an_asynchronous_memset_lets_the_host_run_on(tmp_path: Path) -> None:
    """A kernel [7, 37), a memset [38, 40) in its call [5, 43), and 57 us of host code, of which 33 hide
    behind the device: a step is the host's 5, 5 and 57."""

    def step(api: str, dur: int, e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel_start=t + 7 * US, kernel_dur=30 * US)
        e.memset(t + 5 * US, dur * US, memset_start=t + 38 * US, memset_dur=2 * US, api=api)

    blocking = scenes.capture(partial(step, "cudaMemset_v3020", 38), 100)
    assert after(blocking, tmp_path) == 100
    assert after(blocking, tmp_path, fix("async_memset")) == pytest.approx(67, abs=3)
    with pytest.raises(NoEstimate, match="no memset"):
        after(scenes.capture(partial(step, "cudaMemsetAsync_v3020", 5), 100), tmp_path, fix("async_memset"))


# ---------------------------------------------------------------- copies


def test_a_pinned_copy_is_faster_and_holds_nobody(tmp_path: Path) -> None:
    # 1 MB at 100 GB/s: 10 us. Host: 80 of code, copy call 6, 5, launch 5.
    export = scenes.copying()
    assert after(export, tmp_path) == 200
    assert after(export, tmp_path, fix("pin_memory", gb_per_s=100)) == 96
    with pytest.raises(NoEstimate, match="pageable"):
        after(scenes.copying("pinned"), tmp_path, fix("pin_memory"))


def test_a_copy_without_stream_holds_up_what_follows(tmp_path: Path) -> None:
    """A megabyte at 12 GB/s: 83 us, and the kernel of 20 us behind it, not beside it."""
    known, lost = scenes.copying(), scenes.copying()
    lost.without_columns("CUPTI_ACTIVITY_KIND_MEMCPY", "streamId")
    pinned = fix("pin_memory", gb_per_s=12)
    for export in (known, lost):
        assert after(export, tmp_path, pinned) == pytest.approx(83.3 + 20, rel=0.03)


def test_the_host_still_waits_for_a_pinned_result(tmp_path: Path) -> None:
    """A kernel [7, 27), a megabyte down [28, 128) inside its call [10, 130), a wait [131, 133), and 67 us
    of host code that works on the result: 90 us of the copy go, the code stays."""

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel_start=t + 7 * US, kernel_dur=20 * US)
        e.copy(
            at=t + 10 * US,
            dur=120 * US,
            kind="DtoH",
            bytes=1_000_000,
            copy_start=t + 28 * US,
            copy_dur=100 * US,
        )
        e.sync(at=t + 131 * US, dur=2 * US)

    export = scenes.capture(step, 200)
    assert after(export, tmp_path) == 200
    assert after(export, tmp_path, fix("pin_memory", gb_per_s=100)) == pytest.approx(110, abs=1)


def test_the_rate_of_the_link_is_that_of_the_table(tmp_path: Path) -> None:
    """A copy of 10 MB: 182 us at the 55 GB/s of an H200, then the kernel, 0.9 us behind."""

    def step(e: Export, t: int) -> None:
        e.copy(at=t, dur=1010 * US, bytes=10_000_000, copy_start=t + 5 * US, copy_dur=1000 * US)
        e.launch(at=t + 1015 * US, dur=5 * US, kernel_start=t + 1022 * US, kernel_dur=20 * US)

    export = scenes.capture(step, 1_060)
    copy = 10_000_000 / 55e9 * 1e6
    found = after(export, tmp_path, fix("pin_memory"))
    assert found == pytest.approx(copy + 0.9 + 20 + 0.9, rel=1e-6)
    faster = after(export, tmp_path, fix("pin_memory"), lean=1)
    assert faster == pytest.approx(copy / 1.1 + 21.8, rel=1e-6)


def test_the_rate_of_the_captures_own_pinned_copies(tmp_path: Path) -> None:
    """10 MB from pageable memory in 1000 us, 10 MB from pinned in 250: 40 GB/s, whatever the table
    says, and nothing uncertain about it."""

    def step(e: Export, t: int) -> None:
        e.copy(at=t, dur=1010 * US, bytes=10_000_000, copy_start=t + 5 * US, copy_dur=1000 * US)
        e.copy(
            at=t + 1015 * US,
            dur=6 * US,
            bytes=10_000_000,
            memory="pinned",
            copy_start=t + 1023 * US,
            copy_dur=250 * US,
        )

    export = scenes.capture(step, 1_300)
    # The host no longer waits, so the copies follow each other at 0.9 us.
    found = after(export, tmp_path, fix("pin_memory"))
    assert found == pytest.approx(250 + 250 + 2 * 0.9, rel=1e-6)
    assert after(export, tmp_path, fix("pin_memory"), lean=1) == found


def test_a_link_that_nobody_knows(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        e.copy(at=t, dur=110 * US, bytes=1_000_000, copy_start=t + 5 * US, copy_dur=100 * US)

    export = scenes.capture(step, 200, name="GPU from the attic")
    with pytest.raises(NoEstimate, match="gb_per_s"):
        after(export, tmp_path, fix("pin_memory"))


def test_copies_off_the_path(tmp_path: Path) -> None:
    # Neither the copy nor its call stands between two kernels: 80 - 5 of code, 5, launch 5.
    export = scenes.copying()
    assert after(export, tmp_path, fix("remove_copy")) == 85
    assert after(export, tmp_path, fix("overlap_copy", gb_per_s=100)) == 85
    # At 10 GB/s the copies alone take 100 us a step, and no step can be shorter.
    assert after(export, tmp_path, fix("overlap_copy", gb_per_s=10)) == 100
    # What moves little stays.
    with pytest.raises(NoEstimate, match="of that size"):
        after(export, tmp_path, fix("remove_copy", at_least=2_000_000))
    with pytest.raises(NoEstimate, match="between host and device"):
        after(scenes.eager(), tmp_path, fix("overlap_copy"))


def test_overlapped_copies_leave_the_wait_for_a_result(tmp_path: Path) -> None:
    """An upload of 100 us, a kernel of 100, 8 bytes read back: the host waits for these as before,
    so that the step loses the upload and no more."""

    def step(e: Export, t: int) -> None:
        e.copy(at=t, dur=110 * US, bytes=1_000_000, copy_start=t + 5 * US, copy_dur=100 * US)
        e.launch(at=t + 115 * US, dur=5 * US, kernel_start=t + 122 * US, kernel_dur=100 * US)
        e.copy(at=t + 121 * US, dur=5 * US, kind="DtoH", bytes=8, copy_start=t + 223 * US, copy_dur=2 * US)
        e.sync(at=t + 127 * US, dur=103 * US)

    export = scenes.capture(step, 300)
    assert after(export, tmp_path, fix("overlap_copy", gb_per_s=100)) == pytest.approx(185, abs=5)
    with pytest.raises(NoEstimate, match="small results"):
        after(scenes.reading_back(), tmp_path, fix("overlap_copy"))


# ---------------------------------------------------------------- kernels


def test_half_the_bytes(tmp_path: Path) -> None:
    """Two products of 100 us a step, at half of what the DRAM can do, lose a quarter each."""
    export = scenes.kernels((scenes.GEMM, 100), (scenes.GEMM, 100), (scenes.ADD, 20))
    peak, achievable = 4.8e12, 0.92
    weights = round(0.5 * achievable * peak * 200e-6)
    before = after(export, tmp_path)
    found = after(export, tmp_path, fix("fp8_weights"), weight_bytes=weights)
    assert before - found == pytest.approx(50, rel=1e-6)
    quarter = fix("fp8_weights", bytes_ratio=0.25)
    found = after(export, tmp_path, quarter, weight_bytes=weights)
    assert before - found == pytest.approx(75, rel=1e-6)
    # Pessimistic: three cast kernels before each, as long as the short ones here (20 us is no
    # short one, so the shortest call's 2 us), and a level that is 5 % lower.
    found = after(export, tmp_path, fix("fp8_weights"), lean=-1, weight_bytes=weights)
    assert before - found == pytest.approx(50 - 200 * 0.5 * 0.05 / 0.92 - 2 * 3 * 2, rel=1e-6)


def test_a_product_that_runs_once_a_step_stays(tmp_path: Path) -> None:
    head = "nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT"
    export = scenes.kernels((scenes.GEMM, 100), (scenes.GEMM, 100), (head, 200))
    weights = round(0.92 * 4.8e12 * 400e-6)
    before = after(export, tmp_path)
    kept = after(export, tmp_path, fix("fp8_weights"), weight_bytes=weights)
    all_ = after(export, tmp_path, fix("fp8_weights", output_head="convert"), weight_bytes=weights)
    assert before - kept == pytest.approx(100, rel=1e-6)
    assert before - all_ == pytest.approx(200, rel=1e-6)


def test_products_near_memory_speed(tmp_path: Path) -> None:
    """Two skinny products of 100 us a step at 40 % of the peak take half as long at 80 %, and 4/7 and
    4/9 of it at the ends of the range; at 85 % they have nothing to win."""
    export = scenes.kernels((scenes.GEMM, 100), (scenes.GEMM, 100), (scenes.ADD, 20))
    before = after(export, tmp_path)

    def at(share: float, lean: int = 0) -> float:
        weights = round(share * 4.8e12 * 200e-6)
        return before - after(export, tmp_path, fix("faster_products"), lean=lean, weight_bytes=weights)

    assert at(0.4) == pytest.approx(100, rel=1e-6)
    assert at(0.4, -1) == pytest.approx(200 * 3 / 7, rel=1e-6)
    assert at(0.4, 1) == pytest.approx(200 * 5 / 9, rel=1e-6)
    assert at(0.85) == 0
    assert at(0.85, 1) == pytest.approx(200 * 5 / 90, rel=1e-6)


FP8_GEMM = "nvjet_sm90_qqtst_128x8_64x12_4x1_v_bz_TNT"
W4_GEMM = "void marlin::Marlin<1125899906909960l, 256, 1, 8>(int4 const*)"


def test_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    """Two products of 100 us at what the DRAM can do: 28 % of the time stays, of FP8 weights 56 %.
    Pessimistic: widening the weights costs a quarter of what the bytes save."""
    for name, stays in ((scenes.GEMM, 0.28), (FP8_GEMM, 0.56)):
        export = scenes.kernels((name, 100), (name, 100), (scenes.ADD, 20))
        weights = round(0.92 * 4.8e12 * 200e-6)
        before = after(export, tmp_path)
        found = after(export, tmp_path, fix("int4_weights"), weight_bytes=weights)
        assert before - found == pytest.approx(200 * (1 - stays), rel=1e-6)
        slow = after(export, tmp_path, fix("int4_weights"), lean=-1, weight_bytes=weights)
        streams = (0.92 - 0.05) / 0.92  # the level is 5 % lower
        assert before - slow == pytest.approx(0.75 * 200 * (1 - stays) * streams, rel=1e-6)


def test_kernels_of_a_graph_that_follow_each_other_sooner(tmp_path: Path) -> None:
    """1 us lies between two nodes of one run: a quarter of it goes, or all. The first node of the next
    run follows as it did."""
    export = scenes.kernels(("a", 50), ("b", 50), ("c", 50))
    before = after(export, tmp_path)
    assert before - after(export, tmp_path, fix("shorten_node_gaps")) == pytest.approx(2 * 0.25)
    assert before - after(export, tmp_path, fix("shorten_node_gaps"), lean=1) == pytest.approx(2)
    with pytest.raises(NoEstimate, match="node by node"):
        after(scenes.eager(), tmp_path, fix("shorten_node_gaps"))


SGEMM = "ampere_sgemm_128x64_tn"
SKINNY = "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>(int)"


def test_products_at_the_rate_of_tensor_cores(tmp_path: Path) -> None:
    """An H200 has 66.9 TFLOPS in FP32, 494.7 in TF32 and 989.4 in BF16; products stay 10 %
    further below the higher rate, at best as much nearer, at worst 61 % further. One of few columns waits
    for its bytes, half of them in BF16, and so does the addition, a third of whose time stays at best."""
    export = scenes.kernels((SGEMM, 100), (SKINNY, 40), (scenes.ADD, 20))
    before = after(export, tmp_path)
    tf32 = after(export, tmp_path, fix("tensor_rate", precision="tf32"))
    assert before - tf32 == pytest.approx(100 * (1 - 1.1 * 66.9 / 494.7), rel=1e-6)
    bf16 = after(export, tmp_path, fix("tensor_rate"))
    assert before - bf16 == pytest.approx(100 * (1 - 1.1 * 66.9 / 989.4) + (40 + 20) / 2, rel=1e-6)
    best = after(export, tmp_path, fix("tensor_rate"), lean=1)
    assert before - best == pytest.approx(100 * (1 - 66.9 / 989.4 / 1.1) + 40 / 2 + 20 * 2 / 3, rel=1e-6)
    worst = after(export, tmp_path, fix("tensor_rate"), lean=-1)
    assert before - worst == pytest.approx(100 * (1 - 1.1**5 * 66.9 / 989.4) + 40 / 2 + 20 / 4, rel=1e-6)
    with pytest.raises(NoEstimate, match="no products that this changes"):
        after(export, tmp_path, fix("tensor_rate", precision="fp8"))


def test_a_rate_that_the_gpu_does_not_have(tmp_path: Path) -> None:
    export = scenes.kernels((scenes.GEMM, 100), (scenes.ADD, 20))
    fp8 = after(export, tmp_path, fix("tensor_rate", precision="fp8"), lean=1)
    assert after(export, tmp_path) - fp8 == pytest.approx(50, rel=1e-3)
    with pytest.raises(NoEstimate, match="rate of this GPU in fp4 is not known"):
        after(export, tmp_path, fix("tensor_rate", precision="fp4"))
    with pytest.raises(NoEstimate, match="no products that this changes"):
        after(export, tmp_path, fix("tensor_rate"))


def test_the_next_narrower_type_of_products_in_fp8(tmp_path: Path) -> None:
    """A B200 has 2,250 TFLOPS in BF16, 4,500 in FP8 and 9,000 in FP4."""
    export = scenes.kernels((scenes.GEMM, 100), (FP8_GEMM, 60), (scenes.ADD, 20), gpu="NVIDIA B200")
    before = after(export, tmp_path)
    fp8 = after(export, tmp_path, fix("tensor_rate", precision="fp8"), lean=1)
    assert before - fp8 == pytest.approx(100 / 2, rel=1e-3)
    fp4 = after(export, tmp_path, fix("tensor_rate", precision="fp4"), lean=1)
    assert before - fp4 == pytest.approx(100 * 3 / 4 + 60 / 2, rel=1e-3)


def test_weights_that_are_narrow_already(tmp_path: Path) -> None:
    narrow = {"fp8_weights": (FP8_GEMM, W4_GEMM), "int4_weights": (W4_GEMM,)}
    for what_if, names in narrow.items():
        for name in names:
            export = scenes.kernels((name, 100), (name, 100), (scenes.ADD, 20))
            with pytest.raises(NoEstimate, match="bits or fewer already"):
                after(export, tmp_path, fix(what_if), weight_bytes=1_000_000)


def test_several_tokens_checked_in_one_step(tmp_path: Path) -> None:
    """Four tokens instead of one: a product that streams its weights keeps its time, a kernel of
    half a wave takes two of them, attention stays; the draft takes a tenth of all that was."""
    rows = ((scenes.GEMM, 100), (scenes.ADD, 50), (scenes.ATTENTION, 30))
    export = scenes.kernels(*rows, grid=132, threads=1024, step="decode_step")
    before = after(export, tmp_path)
    found = after(export, tmp_path, fix("speculate"))
    assert found == pytest.approx(before + 50 + 18)
    free = after(export, tmp_path, fix("speculate", draft_share=0))
    assert free == pytest.approx(before + 50)
    won = replayer(export, tmp_path).estimate([fix("speculate", n=3)])
    assert won.measure == "throughput"
    assert won.speedup.mid == pytest.approx(3 * before / found, rel=1e-3)


def test_bytes_that_nobody_knows(tmp_path: Path) -> None:
    export = scenes.kernels((scenes.GEMM, 100), (scenes.GEMM, 100))
    for name in ("fp8_weights", "int8_weights", "int4_weights", "fp8_kv_cache", "int8_kv_cache"):
        with pytest.raises(NoEstimate, match="record GPU metrics"):
            after(export, tmp_path, fix(name))


def test_a_larger_batch(tmp_path: Path) -> None:
    # 132 blocks of 1024 threads: one of the two that fit on each SM. Four times as many blocks
    # take two waves. A product of a decode step streams its weights, so far as nobody sampled it.
    rows = ((scenes.GEMM, 100), (scenes.ADD, 50))
    export = scenes.kernels(*rows, grid=132, threads=1024, step="decode_step")
    before = after(export, tmp_path)
    assert after(export, tmp_path, fix("batch", n=2)) == before
    assert after(export, tmp_path, fix("batch", n=4)) == pytest.approx(before + 50)
    # Pessimistic: half of the device is full already, and the product grows like its blocks.
    slow = after(export, tmp_path, fix("batch", n=4), lean=-1)
    assert slow == pytest.approx(before + 3 * 150)
    # 8 padded tokens of the 206 at which an H200 computes as long as it reads: 1024 tokens take
    # 1024 / 206 of the time over what tensor cores reach.
    full = after(export, tmp_path, fix("batch", n=1024)) - before
    assert full == pytest.approx(100 * (1024 / (989.4 / 4.8) / 0.92 - 1) + 50 * (512 - 1))
    # In any other step nothing says that weights are what it streams.
    export = scenes.kernels(*rows, grid=132, threads=1024)
    assert after(export, tmp_path, fix("batch", n=4)) == pytest.approx(before + 150)


def test_short_kernels_take_longer_for_several_sequences(tmp_path: Path) -> None:
    """0.3 us each, nothing to 0.6; long ones hide it."""
    rows = ((scenes.ADD, 3), (scenes.ADD, 4), (scenes.GEMM, 100))
    export = scenes.kernels(*rows, grid=1, step="decode_step")
    before = after(export, tmp_path)
    assert after(export, tmp_path, fix("batch", n=8)) == pytest.approx(before + 2 * 0.3)
    assert after(export, tmp_path, fix("batch", n=8), lean=1) == pytest.approx(before)
    assert after(export, tmp_path, fix("batch", n=1)) == before


def test_products_grow_from_the_ridge_on(tmp_path: Path) -> None:
    """Tokens are tensor-core over DRAM activity times the ridge: 10 here, the padding of a few."""
    export = scenes.sampled((scenes.GEMM, 200, 80, 4), (scenes.ADD, 50, 0, 0))
    before = after(export, tmp_path)
    assert after(export, tmp_path, fix("batch", n=8)) == pytest.approx(before)
    assert after(export, tmp_path, fix("batch", n=64)) == pytest.approx(before)
    # 512 tokens are 64 times the eight that the cores worked on.
    grown = after(export, tmp_path, fix("batch", n=512)) - before
    assert grown == pytest.approx(200 * (64 * 0.04 / 0.92 - 1) + 50 * (512 / 264 - 1), rel=1e-3)
    # Pessimistic: eight sequences were in the step.
    slow = after(export, tmp_path, fix("batch", n=64), lean=-1) - before
    assert slow == pytest.approx(200 * (64 * 0.04 / 0.92 - 1), rel=1e-3)


def test_many_tokens_are_not_padded(tmp_path: Path) -> None:
    # 0.24 / 0.78 * 206 = 63 tokens.
    export = scenes.sampled((scenes.GEMM, 200, 78, 24), (scenes.ADD, 50, 0, 0))
    before = after(export, tmp_path)
    assert after(export, tmp_path, fix("batch", n=2)) == pytest.approx(before)
    grown = after(export, tmp_path, fix("batch", n=8)) - before
    assert grown == pytest.approx(200 * (8 * 0.24 / 0.92 - 1), rel=1e-3)


@pytest.mark.parametrize(
    ("dram", "tensor", "memory", "room"),
    [
        (80, 4, 150e9, 16),  # 10 tokens of 189: 18 times
        (78, 24, 150e9, 2),  # 63 tokens: 3 times
        # 100 us at 73.6 % of 4.8 TB/s read 0.35 GB of keys and values, 200 us at 80 % 0.77 GB of weights.
        (80, 4, 3e9, 4),
        (80, 4, 1.5e9, None),
        (20, 70, 150e9, None),
    ],
)
def test_a_batch_takes_the_room_that_tokens_and_memory_leave(
    tmp_path: Path, dram: int, tensor: int, memory: float, room: int | None
) -> None:
    export = scenes.sampled((scenes.GEMM, 200, dram, tensor), (scenes.ATTENTION, 100, 74, 0), memory=memory)
    r = replayer(export, tmp_path)
    if room is None:
        with pytest.raises(NoEstimate, match="no room for a larger batch: products work on about"):
            settled(fix("batch"), r.work)
    else:
        assert settled(fix("batch"), r.work).shown == {"n": room}
        assert settled(fix("batch", n=5), r.work).shown == {"n": 5}


def test_a_batch_whose_room_was_not_measured(tmp_path: Path) -> None:
    """Without samples, or where kernels are so short that samples show their neighbours."""
    for export in (
        scenes.kernels((scenes.GEMM, 100), (scenes.ATTENTION, 100), step="decode_step"),
        scenes.sampled(*[(scenes.GEMM, 10, 80, 40), (scenes.ADD, 10, 0, 0)] * 10),
    ):
        r = replayer(export, tmp_path)
        assert settled(fix("batch"), r.work).shown == {"n": 8}
        (found,) = combine(r, [fix("batch")]).steps
        assert found.params == {"n": 8}


def test_past_the_ridge_time_grows_in_proportion(tmp_path: Path) -> None:
    export = scenes.sampled((scenes.GEMM, 200, 20, 70), (scenes.ADD, 50, 0, 0), step="prefill")
    before = after(export, tmp_path)
    assert after(export, tmp_path, fix("batch", n=2)) - before == pytest.approx(200)
    # Optimistic: the cores reach the limit before they take longer.
    best = after(export, tmp_path, fix("batch", n=2), lean=1) - before
    assert best == pytest.approx(200 * (2 * 0.70 / 0.92 - 1), rel=1e-3)


def test_attention_grows_with_its_bytes(tmp_path: Path) -> None:
    # At half of what the DRAM can do, twice the sequences still fit.
    export = scenes.sampled((scenes.ATTENTION, 200, 46, 0), (scenes.GEMM, 200, 80, 4))
    before = after(export, tmp_path)
    assert after(export, tmp_path, fix("batch", n=2)) == pytest.approx(before, rel=1e-3)
    grown = after(export, tmp_path, fix("batch", n=8)) - before
    assert grown == pytest.approx(200 * 3, rel=1e-2)
    # Samples stamped 2 us off show it a hundredth of its neighbours' level.
    slow = after(export, tmp_path, fix("batch", n=8), lean=-1) - before
    assert slow == pytest.approx(200 * (8 * (0.46 + 0.01 * 0.46) / 0.92 - 1), rel=1e-2)


def test_more_tokens_read_more_experts(tmp_path: Path) -> None:
    # At three quarters of what the DRAM can do, twice the experts take half as long again.
    export = scenes.sampled(("fused_moe_kernel", 200, 69, 2), (scenes.ADD, 50, 0, 0))
    before = after(export, tmp_path)
    grown = after(export, tmp_path, fix("batch", n=2)) - before
    assert grown == pytest.approx(100, rel=1e-2)
    assert after(export, tmp_path, fix("batch", n=2), lean=1) == pytest.approx(before)


def test_a_smaller_kv_cache(tmp_path: Path) -> None:
    # Attention at half of what the DRAM can do loses half of half of its time.
    export = scenes.sampled((scenes.ATTENTION, 200, 46, 0), (scenes.GEMM, 200, 80, 4))
    before = after(export, tmp_path)
    assert before - after(export, tmp_path, fix("fp8_kv_cache")) == pytest.approx(50, rel=1e-3)
    three = fix("fp8_kv_cache", bytes_ratio=0.75)
    assert before - after(export, tmp_path, three) == pytest.approx(25, rel=1e-3)


def test_sampled_weights(tmp_path: Path) -> None:
    # 200 us at 0.69 stream for 150; half of that goes.
    export = scenes.sampled((scenes.GEMM, 200, 69, 4), (scenes.GEMM, 200, 69, 4), (scenes.ADD, 50, 0, 0))
    before = after(export, tmp_path)
    assert before - after(export, tmp_path, fix("fp8_weights")) == pytest.approx(150, rel=1e-3)


def test_a_batch_of_unseen_kernels(tmp_path: Path) -> None:
    """What lies inside a graph that was traced as a whole may grow or not; nothing tells."""

    def step(e: Export, t: int) -> None:
        e.graph_launch(at=t, dur=20 * US, nodes=[("a", t + 30 * US, 50 * US)], mode="graph")

    with pytest.raises(NoEstimate, match="--cuda-graph-trace=node"):
        after(scenes.capture(step, 100), tmp_path, fix("batch"))


def test_a_batch_grows_its_copies(tmp_path: Path) -> None:
    # 100 us of copy become 200 us, which the host waits for.
    assert after(scenes.copying(), tmp_path, fix("batch", n=2)) == 300


def test_a_chain_of_elementwise_kernels(tmp_path: Path) -> None:
    # 30 stays and half of 10 + 20, with half of the 1 us before each; none of it, or 3/4.
    add = scenes.ADD
    export = scenes.kernels((scenes.GEMM, 100), (add, 10), (add, 20), (add, 30))
    before = after(export, tmp_path)
    for lean, kept in ((0, 0.5), (1, 0.0), (-1, 0.75)):
        found = after(export, tmp_path, fix("fuse_elementwise"), lean=lean)
        assert before - found == pytest.approx((1 - kept) * (10 + 20 + 2))
    alone = scenes.kernels((add, 10), (scenes.GEMM, 100))
    assert after(alone, tmp_path, fix("fuse_elementwise")) == after(alone, tmp_path)
    with pytest.raises(NoEstimate, match="no elementwise kernels"):
        after(scenes.kernels((scenes.GEMM, 100)), tmp_path, fix("fuse_elementwise"))


def test_the_cache_of_each_layer_is_gathered_all_the_same(tmp_path: Path) -> None:
    """A beam search puts the caches of ten layers in another order: nothing of 300 us is saved."""
    gather = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>(int)"
    export = scenes.kernels((scenes.GEMM, 100), *[(gather, 30)] * 10)
    assert after(export, tmp_path, fix("fuse_elementwise")) == pytest.approx(after(export, tmp_path))


def test_kernels_whose_work_others_take_over(tmp_path: Path) -> None:
    # 40 of widening and 1 before it go, or 30 of sorts behind the product; half of it in the pessimistic one.
    widen, sort = (
        "void vllm::awq::dequantize_weights(int*)",
        "void cub::DeviceRadixSortOnesweepKernel<int>(int*)",
    )
    export = scenes.kernels((sort, 20), (widen, 40), (scenes.GEMM, 100), (sort, 30))
    before = after(export, tmp_path)
    for which, length in (("dequantisation", 40), ("sampling_sorts", 30)):
        won = [before - after(export, tmp_path, fix("absorb_kernels", which=which), lean=n) for n in (0, -1)]
        assert won == pytest.approx([length + 1, (length + 1) / 2], abs=0.01)
    with pytest.raises(NoEstimate, match="dequantisation"):
        after(scenes.kernels((scenes.GEMM, 100)), tmp_path, fix("absorb_kernels"))


def test_a_graph_node_that_goes_leaves_the_wait_before_it(tmp_path: Path) -> None:
    """Nodes 1 us apart, but 4 us before the widening one, which waited for another branch: with it go its
    40 us and the usual 1 us."""

    widen = "void vllm::awq::dequantize_weights(int*)"

    def step(e: Export, t: int) -> None:  # 167 us on the GPU, one step behind the other
        at = 30 * US + t // 25 * 167
        begins = ("a", 1, 10), ("b", 12, 10), (widen, 26, 40), ("c", 67, 100)
        e.graph_launch(at=t, dur=20 * US, nodes=[(n, at + b * US, length * US) for n, b, length in begins])

    export = scenes.capture(step, 25)
    before, gone = after(export, tmp_path), fix("absorb_kernels", which="dequantisation")
    assert before - after(export, tmp_path, gone) == pytest.approx(41)


@pytest.mark.parametrize("name", ["fuse_elementwise", "pin_memory", "remove_copy"])
def test_calls_that_were_not_recorded_are_not_changed(name: str, tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        e.copy(
            at=t, dur=110 * US, bytes=1_000_000, memory="pageable", copy_start=t + 5 * US, copy_dur=100 * US
        )
        for k, kernel in enumerate(["embedding", *[scenes.GEMM, scenes.ADD, scenes.ADD] * 3]):
            at = t + (120 + k * 20) * US
            e.launch(at=at, dur=5 * US, kernel=kernel, kernel_start=at + 7 * US, kernel_dur=3 * US)

    export = scenes.capture(step, 400, 8).without_tables("CUPTI_ACTIVITY_KIND_RUNTIME")
    r = replayer(export, tmp_path)
    assert 0 < step_us(r, fix(name)) <= step_us(r)


def test_fused_kernels_are_not_launched(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        for k in range(4):
            at = t + k * 20 * US
            e.launch(
                at=at, dur=5 * US, kernel=scenes.ADD, kernel_start=at + 7 * US, kernel_dur=(3 + (k == 0)) * US
            )

    # Three of four launches of 20 us: gone, or half of them.
    export = scenes.capture(step, 80)
    assert after(export, tmp_path, fix("fuse_elementwise"), lean=1) == pytest.approx(20)
    assert after(export, tmp_path, fix("fuse_elementwise")) == pytest.approx(50)


def test_fusing_leaves_host_code(tmp_path: Path) -> None:
    """The first kernel goes; the two milliseconds of host code before its launch stay."""

    def step(e: Export, t: int) -> None:
        for k in range(4):
            at = t + (2000 + k * 20) * US
            e.launch(
                at=at, dur=5 * US, kernel=scenes.ADD, kernel_start=at + 7 * US, kernel_dur=(3 + (k == 3)) * US
            )

    export = scenes.capture(step, 2080)
    assert after(export, tmp_path, fix("fuse_elementwise"), lean=1) == pytest.approx(2040, abs=20)


def test_collectives_beside_the_kernels(tmp_path: Path) -> None:
    export = scenes.kernels((scenes.GEMM, 100), (scenes.NCCL, 50))
    before = after(export, tmp_path)
    hidden = fix("overlap_communication")
    assert before - after(export, tmp_path, hidden) == pytest.approx(50)
    assert before - after(export, tmp_path, fix("overlap_communication", overlap=0.5)) == pytest.approx(25)
    # Nothing runs beside them yet, so perhaps nothing can.
    assert after(export, tmp_path, hidden, lean=-1) == before
    with pytest.raises(NoEstimate, match="no collectives"):
        after(scenes.eager(), tmp_path, fix("overlap_communication"))


@pytest.mark.parametrize(("kernel", "collective"), [(100, 50), (60, 50), (50, 100), (20, 200)])
def test_collectives_and_kernels_end_with_the_longer_of_both(
    kernel: int, collective: int, tmp_path: Path
) -> None:
    """However much is exposed, no more is hidden than there are kernels without a collective beside them."""
    export = scenes.kernels((scenes.GEMM, kernel), (scenes.NCCL, collective))
    made = step_us(replayer(export, tmp_path), fix("overlap_communication"))
    assert made == pytest.approx(max(kernel, collective) + 2, rel=0.02)


def test_nothing_hides_collectives_that_run_all_the_time(tmp_path: Path) -> None:
    export = scenes.kernels((scenes.NCCL, 2000), (scenes.GEMM, 5), (scenes.NCCL, 2000))
    with pytest.raises(NoEstimate, match="no other kernels are left to hide the collectives behind"):
        after(export, tmp_path, fix("overlap_communication"))


def test_work_that_moves_to_another_thread_still_takes_its_time(tmp_path: Path) -> None:
    """A kernel of 100 us and 50 of host code: the longer of both remains, and of removed code nothing."""
    moved = fix("remove_host_gap", how="moved")
    short = after(scenes.waiting(kernel=100, gap=50), tmp_path, moved)
    assert short == after(scenes.waiting(kernel=100, gap=50), tmp_path, fix("remove_host_gap"))
    export = scenes.waiting(kernel=100, gap=250)
    assert after(export, tmp_path, moved) == pytest.approx(250, abs=5)
    assert after(export, tmp_path, moved, lean=1) == after(export, tmp_path, fix("remove_host_gap"), lean=1)


def sized_collectives(folder: Path, elements: int) -> Replayer:
    """Steps of ten kernels of 20 us and a collective of 50 us behind each, launched far ahead."""
    profile = Profile().gpu().process(100)
    for i in range(60):
        if i % 10 == 0:
            profile.annotation(f"ProfilerStep#{i // 10}", i * 10 * US, 99 * US)
        at, on_gpu = i * 10 * US, 100 * US + i * 70 * US
        profile.launch(at, 2 * US, scenes.GEMM, on_gpu, 20 * US)
        told = {"Collective name": "allreduce", "In msg nelems": elements, "dtype": "BFloat16"}
        profile.launch(at + 4 * US, 2 * US, scenes.NCCL, on_gpu + 20 * US, 50 * US, **told)
    return Replayer(measure(open_trace(profile.write(folder / "trace.json"))))


def test_small_collectives_in_one_trip(tmp_path: Path) -> None:
    """Of ten times 50 us that nothing hides 0.89 / 2 go; a quarter of 0.89 to all of it is the range."""
    made = sized_collectives(tmp_path, 4_096)
    won = [step_us(made) - step_us(made, fix("one_shot_collectives"), lean=lean) for lean in (-1, 0, 1)]
    assert won == [pytest.approx(500 * 0.89 * part, rel=0.01) for part in (0.25, 0.5, 1.0)]


def test_large_collectives_and_long_ones_of_unknown_size_take_their_trips(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    unknown = replayer(scenes.kernels((scenes.GEMM, 100), (scenes.NCCL, 200)), tmp_path)
    for made in (sized_collectives(tmp_path / "large", 1 << 20), unknown):
        with pytest.raises(NoEstimate, match="no collectives that are known to be small"):
            step_us(made, fix("one_shot_collectives"))


def test_short_collectives_of_unknown_size_are_small(tmp_path: Path) -> None:
    """Of 50 us that nothing hides 0.89 / 2 go, though the capture has no sizes."""
    made = replayer(scenes.kernels((scenes.GEMM, 100), (scenes.NCCL, 50)), tmp_path)
    assert step_us(made) - step_us(made, fix("one_shot_collectives")) == pytest.approx(50 * 0.89 / 2)


def test_collectives_in_a_row_begin_once(tmp_path: Path) -> None:
    """Of all but the first the time of the shortest, 12 us, goes, or down to half of it."""
    row = [(scenes.NCCL, us) for us in (12, 12, 30, 50)]
    made = replayer(scenes.kernels((scenes.GEMM, 100), *row), tmp_path)
    won = [step_us(made) - step_us(made, fix("merge_collectives"), lean=lean) for lean in (-1, 0, 1)]
    assert won == [pytest.approx(3 * 12 * part, rel=0.05) for part in (0.5, 0.75, 1.0)]


def test_what_kernels_hide_already_is_not_won_again(tmp_path: Path) -> None:
    """One collective of 100 us behind the other, far behind the host, and 60 us of kernels beside each:
    the 40 us that are exposed have no kernels left to hide behind."""

    def step(e: Export, t: int) -> None:
        at = 50 * US + t // 60 * 101
        for stream, name, us in ((7, scenes.GEMM, 60), (8, scenes.NCCL, 100)):
            e.launch(at=t, dur=5 * US, kernel=name, kernel_start=at, kernel_dur=us * US, stream=stream)

    made = replayer(scenes.capture(step, 60), tmp_path)
    exposed = made.work.exposed[made.work.communication]
    assert exposed[-1] == pytest.approx(0.4)
    with pytest.raises(NoEstimate, match="no other kernels are left"):
        step_us(made, fix("overlap_communication"))


def test_nothing_is_won_twice(tmp_path: Path) -> None:
    """Whatever is combined, no step is shorter than what its kernels and copies need."""
    export = scenes.copying()
    both = (fix("pin_memory", gb_per_s=100), fix("overlap_copy", gb_per_s=100))
    assert after(export, tmp_path, *both) == after(export, tmp_path, *reversed(both)) == 85
    r = replayer(scenes.waiting(gc=20), tmp_path)
    all_ = (fix("remove_gc"), fix("remove_host_gap"), fix("remove_sync", which="all"), fix("cuda_graphs"))
    assert step_us(r, *all_, scenario=PLAIN) >= 100
    assert r.bound_ns(all_, Scenario()) / US == pytest.approx(step_us(r, *all_, scenario=Scenario()))


def test_weights_fetched_a_layer_ahead(tmp_path: Path) -> None:
    """Two layers of 60 us, each behind the copy of its weights, 50 us, which waits for the layer before: 232
    us a step. Copied ahead they hide behind the layers; at worst not the first ones of a step, as there is no
    layer before it that they could hide behind."""

    def step(e: Export, t: int) -> None:
        for k in range(2):
            at, copied = t + 8 * k * US, t + (3 + 113 * k) * US
            moved = {"copy_start": copied, "copy_dur": 50 * US, "memory": "pinned", "stream": 8}
            e.copy(at=at, dur=2 * US, bytes=2_500_000, **moved)
            e.launch(at=at + 4 * US, dur=2 * US, kernel_start=copied + 53 * US, kernel_dur=60 * US)
        e.sync(at=t + 17 * US, dur=214 * US)

    export = scenes.capture(step, 232)
    assert after(export, tmp_path) == 232
    assert after(export, tmp_path, fix("overlap_copy")) == pytest.approx(120, abs=8)
    assert after(export, tmp_path, fix("overlap_copy"), lean=-1) == pytest.approx(170, abs=12)


def test_copies_beside_kernels_are_no_time_in_which_the_device_must_be_busy(tmp_path: Path) -> None:
    """A copy of 80 us, and a graph of 90 whose launch the tracer made 120 us long: 5 us of them overlapped.
    The launch takes 70 us untraced, so that the copy hides."""

    def step(e: Export, t: int) -> None:
        e.copy(at=t, memory="pinned", stream=8, copy_start=t + 7 * US, copy_dur=80 * US)
        nodes = [("a", t + 131 * US, 45 * US), ("b", t + 176 * US, 45 * US)]
        e.graph_launch(at=t + 6 * US, dur=120 * US, nodes=nodes)
        e.sync(at=t + 130 * US, dur=95 * US)

    r = replayer(scenes.capture(step, 230), tmp_path)
    untraced = Scenario(launch=0.0, node_gap=0.0)
    assert step_us(r, scenario=untraced) == pytest.approx(230 - 50)


def test_operators_before_the_first_launch_are_not_dispatched_with_a_graph(tmp_path: Path) -> None:
    """160 us from the wait to the first launch of a step, in which `count` operators were recorded."""
    times = []
    for count in (0, 12):
        trace = Profile().gpu().process(1)
        for i in range(6):
            now = 600 * i * US
            trace.annotation(f"step {i}", now, 600 * US)
            for k in range(count):
                trace.op("aten::view", now + (10 + 10 * k) * US, US)
            for k in range(10):
                trace.launch(at=now + (160 + 40 * k) * US, kernel_dur=2 * US)
            trace.sync(at=now + 530 * US, dur=20 * US)
        trace.write(path := tmp_path / f"{count}.json")
        r = Replayer(measure(open_trace(path)))
        times.append([step_us(r, fix("cuda_graphs"), lean=lean) for lean in (-1, 0)])
    assert times[0][0] == times[0][1] == times[1][0]
    assert times[0][1] - times[1][1] == pytest.approx(120)
