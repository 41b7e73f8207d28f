"""What a step without the profiler takes: no less than the GPU needs, and none of the profiler's time."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.gain.possible import gpu_ns, profiler_ns
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import MS, US, replayer
from tests.metrics.support import analysis


def copying_beside(kernel: int = 20, copy: int = 70) -> Export:
    """Steps of 100 us: 40 launches of which the first runs a kernel, and on another stream a copy that begins
    when the kernel has ended. Nothing but their order says that one waits for the other."""

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=US, kernel="k", kernel_start=t + 3 * US, kernel_dur=kernel * US)
        copy_start = t + (3 + kernel) * US
        e.copy(at=t + 2 * US, dur=US, bytes=1 << 20, stream=9, copy_start=copy_start, copy_dur=copy * US)

    return scenes.capture(step, 100)


def test_a_step_takes_no_less_than_kernels_and_copies_one_behind_the_other(tmp_path: Path) -> None:
    r = replayer(copying_beside(), tmp_path)
    assert gpu_ns(r.a, 1.0) == pytest.approx(90 * US, rel=0.01)
    untraced = r.untraced_ms()
    assert untraced.low >= 0.09
    assert untraced.low <= untraced.mid <= untraced.high


@pytest.mark.parametrize(("beside", "least"), [(30, 80), (20, 80), (18, 102), (0, 120)])
def test_copies_that_run_beside_kernels_may_do_so_all_the_time(
    beside: int, least: int, tmp_path: Path
) -> None:
    """A kernel of 80 us and a copy of 40 us, of which so many lie beside the kernel."""

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=US, kernel="k", kernel_start=t + 3 * US, kernel_dur=80 * US)
        start = t + (83 - beside) * US
        e.copy(at=t + 2 * US, dur=US, bytes=1 << 20, stream=9, copy_start=start, copy_dur=40 * US)

    a = analysis(scenes.capture(step, 200), tmp_path)
    assert gpu_ns(a, 1.0) == pytest.approx(least * US, rel=0.1)  # the window ends with the last kernel


def test_copies_beside_kernels_count_once(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=US, kernel="k", kernel_start=t + 3 * US, kernel_dur=80 * US)
        e.copy(at=t + 2 * US, dur=US, bytes=1 << 20, stream=9, copy_start=t + 13 * US, copy_dur=70 * US)

    a = analysis(scenes.capture(step, 100), tmp_path)
    assert gpu_ns(a, 1.0) == pytest.approx(80 * US, rel=0.01)


def test_kernels_that_tracing_made_longer_need_less(tmp_path: Path) -> None:
    """Of 20 us half is the kernels' own; the copy keeps its 70."""
    a = analysis(copying_beside(), tmp_path)
    assert gpu_ns(a, 2.0) == pytest.approx(80 * US, rel=0.01)


def written(each: int) -> Export:
    """Steps of 10 ms: a kernel of 5 ms, and in the host's time behind it `each` us in which the profiler
    writes its records."""

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel="k", kernel_start=t + 7 * US, kernel_dur=5 * MS)
        e.sync(at=t + 6 * US, dur=5_006 * US)
        if each:
            e.overhead(t + 6 * MS, each * US)

    return scenes.capture(step, 10_000)


@pytest.mark.parametrize("each", [0, 1_000, 2_500])
def test_what_the_profiler_took_is_in_no_untraced_step(each: int, tmp_path: Path) -> None:
    r = replayer(written(each), tmp_path)
    assert profiler_ns(r.a) == pytest.approx(each * US, rel=0.01)
    untraced = r.untraced_ms()
    assert untraced.mid <= 10 - each / 1e3 + 0.01
    assert untraced.low >= 5
    assert untraced.high <= 10


def test_what_the_profiler_took_beside_the_gpu_s_work_costs_nothing(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel="k", kernel_start=t + 7 * US, kernel_dur=9_900 * US)
        e.overhead(t + 100 * US, 5_000 * US)
        e.sync(at=t + 6_000 * US, dur=3_912 * US)

    r = replayer(scenes.capture(step, 10_000), tmp_path)
    assert profiler_ns(r.a) == 0
    assert r.untraced_ms().mid == pytest.approx(10, rel=0.02)
