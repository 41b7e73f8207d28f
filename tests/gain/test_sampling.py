"""Which steps are replayed of a window that is too long, and how much each counts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from advisor.gain import limits
from advisor.gain.estimate import Replayer
from advisor.gain.excerpt import choose_steps, recorded_times
from advisor.gain.sampling import Kinds, in_proportion, size_class
from advisor.model.arrays import Array
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import US, fix, replayer
from tests.metrics.support import analysis


def sampled(
    time: Array, size: Array | int = 100, phase: Array | int = 0, *, limit: int = 2_000, lead: int = 1
) -> tuple[tuple[tuple[int, int], ...], Array, Array]:
    """Of a window that begins with its second step."""
    count = len(time)
    sizes = np.broadcast_to(np.asarray(size), count)
    phases = np.broadcast_to(np.asarray(phase), count)
    kinds = Kinds(np.arange(1, count + 1), phases, size_class(sizes), time)
    return in_proportion(kinds, np.concatenate((sizes[:1], sizes)), lead, limit)


def alternating(times: int) -> Array:
    """A prompt of 90 ms before nine decode steps of 10 ms that get longer by 0.1 ms, so often."""
    return np.tile(np.concatenate(([90.0], 10.0 + 0.1 * np.arange(9))), times)


@pytest.mark.parametrize("times", [10, 20, 50, 240])
def test_the_mean_is_that_of_the_window_however_often_it_is_repeated(times: int) -> None:
    time = alternating(times)
    _, measured, weight = sampled(time)
    assert np.average(time[measured - 1], weights=weight) == pytest.approx(time.mean(), rel=0.01)
    assert weight.sum() == pytest.approx(len(time))


def test_few_long_steps_count_as_often_as_they_come() -> None:
    """One step in a hundred takes half of the time."""
    time = np.tile(np.concatenate(([990.0], np.full(99, 10.0))), 10)
    _, measured, weight = sampled(time)
    long = time[measured - 1] > 100
    assert weight[long].sum() == pytest.approx(10)
    assert long.sum() < 10


def test_phases_count_as_in_the_window_where_they_take_as_long() -> None:
    time, phase = np.full(400, 10.0), np.arange(400) % 4 == 0
    _, measured, weight = sampled(time, phase=phase.astype(np.int64))
    assert weight[phase[measured - 1]].sum() == pytest.approx(100)


def test_steps_of_another_size_count_as_in_the_window() -> None:
    time, size = np.full(400, 10.0), np.where(np.arange(400) < 40, 400, 40)
    _, measured, weight = sampled(time, size)
    assert weight[measured <= 40].sum() == pytest.approx(40)


@pytest.mark.parametrize("lead", [1, 3])
def test_each_stretch_begins_with_steps_that_are_not_timed(lead: int) -> None:
    stretches, measured, _ = sampled(alternating(60), lead=lead)
    assert len(stretches) > 1
    for first, last in stretches:
        mine = measured[(measured >= first) & (measured <= last)]
        assert mine.min() == (first + lead if first else 1)
        assert mine.max() == last
    assert all(a < b - 1 for (_, a), (b, _) in pairwise(stretches))


def test_no_more_operations_are_replayed_than_allowed() -> None:
    time = alternating(50)
    size = np.where(time > 50, 900, 100)
    stretches, _, _ = sampled(time, size)
    held = np.concatenate((size[:1], size))
    assert sum(held[i : j + 1].sum() for i, j in stretches) <= 2_000


def test_of_steps_that_are_too_large_a_few_in_a_row_are_replayed() -> None:
    """Ten steps of which three hold more than the limit: those with one slow step, as of all."""
    time = np.array([10.0, 10, 10, 20, 20, 20, 10, 10, 10, 10])
    stretches, measured, _ = sampled(time, 1_000)
    assert len(stretches) == 1
    assert len(measured) == limits.STRETCH_STEPS
    assert (time[measured - 1] == 20).sum() == 1


# ---------------------------------------------------------------- a replay of several stretches


def phases(count: int) -> Export:
    """Groups of a step of ten launches, 50 us each, whose host code takes 300 us, before three steps of one
    kernel of 20 us and 100 us of host code; each ends with a wait."""
    export, at, number = Export().process(1), 0, 0
    for _ in range(count):
        for launches, each, code in ((10, 50, 300), *[(1, 20, 100)] * 3):
            busy = launches * each
            period = (code + 20 + busy) * US
            export.range(f"iteration {number}", at, at + period - 1)
            for k in range(launches):
                begin = at + (code + k) * US
                start = at + (code + 10 + k * each) * US
                export.launch(at=begin, dur=US, kernel_start=start, kernel_dur=each * US)
            export.sync(at=at + (code + launches) * US, dur=(20 + busy - launches - 1) * US)
            at, number = at + period, number + 1
    return export


@pytest.mark.parametrize("count", [12, 50, 200])
def test_a_replay_of_a_sample_says_what_one_of_all_says(count: int, tmp_path: Path) -> None:
    export = phases(count)
    whole, part = (replayer(export, tmp_path, limit=limit) for limit in (10**6, 100))
    assert part.excerpt.note is not None
    assert whole.excerpt.note is None
    assert len(part.excerpt.stretches) > 1
    assert part.captured_ns == pytest.approx(whole.captured_ns, rel=0.01)
    for what in ("remove_host_gap", "cuda_graphs"):
        estimates = [r.estimate([fix(what)]).speedup.mid for r in (part, whole)]
        assert estimates[0] == pytest.approx(estimates[1], rel=0.03)


def test_the_unchanged_replay_takes_as_long_as_the_sampled_steps_took(tmp_path: Path) -> None:
    r = replayer(phases(50), tmp_path, limit=100)
    took = r.excerpt.mean(recorded_times(r.a, r.excerpt))
    assert r.captured_ns == pytest.approx(took, rel=1e-6)


def test_a_queue_that_is_full_is_full_in_every_stretch(tmp_path: Path) -> None:
    """The host launches eight steps ahead: so many steps come before each stretch, and without the host's
    part nothing is won."""
    export = Export().process(1)
    for i in range(200):
        at = i * 100 * US
        export.range(f"iteration {i}", at, at + 20 * US)
        export.launch(at=at + US, dur=5 * US, kernel_start=at + 800 * US, kernel_dur=99 * US)
    a = analysis(export, tmp_path)
    chosen = choose_steps(a, limit=60)
    assert len(chosen.stretches) > 1
    for first, last in chosen.stretches[1:]:
        mine = chosen.measured[(chosen.measured >= first) & (chosen.measured <= last)]
        assert mine.min() == first + 8
    r = Replayer(a, limit=60)
    assert r.captured_ns == pytest.approx(100 * US, rel=0.01)
    assert r.estimate([fix("remove_host_gap")]).speedup.mid == pytest.approx(1.0, abs=0.01)


def a_step_ahead(count: int) -> Export:
    """Steps of one kernel of 80 us, launched while the one before runs: host code of 1 us, a launch, and a
    wait until the step before has ended."""
    export = Export().gpu(name="NVIDIA H200").process(1)
    for i in range(count):
        at = (i * 80 + 2) * US
        export.range(f"iteration {i}", at, at + 80 * US - 1)
        launched = {"kernel": "ampere_sgemm_128x64_tn", "kernel_start": at + 78 * US, "kernel_dur": 80 * US}
        export.launch(at=at + US, dur=US, grid=(512, 1, 1), **launched)
        export.sync(at=at + 3 * US, dur=76 * US, api="cudaEventSynchronize_v3020")
    return export


@pytest.mark.parametrize("count", [50, 200])
def test_a_wait_for_a_step_that_is_not_replayed_gets_shorter_with_it(count: int, tmp_path: Path) -> None:
    """What a stretch first waits for ended before it: it is found at the same place of the stretch before,
    not kept as 76 us of the host's own time, with which far shorter kernels would win less."""
    export = a_step_ahead(count)
    whole, part = (replayer(export, tmp_path, limit=limit) for limit in (10**6, 20))
    assert len(part.excerpt.stretches) > 1
    assert part.captured_ns == pytest.approx(whole.captured_ns, rel=0.001)
    faster = fix("tensor_rate", precision="tf32")
    after = [r.step_ns([faster], r.middle_of([faster])) for r in (part, whole)]
    assert after[1] < 0.3 * whole.captured_ns
    assert after[0] == pytest.approx(after[1], rel=0.005)


def test_calls_of_a_large_capture_hand_over_only_inside_a_stretch(tmp_path: Path) -> None:
    """The time between two stretches is no wait of one thread for the other."""
    r = replayer(scenes.eager(), tmp_path, limit=60)
    assert (r.taken.inputs.handovers.delay < 1_000 * US).all()
