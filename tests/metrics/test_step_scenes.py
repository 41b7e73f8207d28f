"""Programs whose true number of steps is known: it is found, or nothing is claimed; and so when the
capture has what real captures have: uneven times, a slow first step, a pause, lost kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.metrics.profiled.stage import measure
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.kineto_builder import Profile
from tests.metrics.step_scenes import ARGMAX, EMBED, LAYER, SCENES, US, Disturbed, record, times
from tests.metrics.support import analysis

EVERY = pytest.mark.parametrize("name", SCENES)


@EVERY
def test_the_true_number_or_none(tmp_path: Path, name: str) -> None:
    scene = SCENES[name]
    steps = analysis(record(scene.steps), tmp_path).repeated
    assert steps.believed == scene.told
    if scene.told:
        inner = steps.levels[0].per_step if steps.levels else 0
        assert (len(steps), inner) == (scene.true, scene.inner)


@EVERY
def test_no_wrong_number_of_a_disturbed_capture(tmp_path: Path, name: str) -> None:
    scene = SCENES[name]
    how = Disturbed(jitter=0.3, slow_first=10, missing=0.05, pause_us=3000, seed=len(name))
    steps = analysis(record(scene.steps, how), tmp_path).repeated
    assert not steps.believed or len(steps) == scene.true


@pytest.mark.parametrize(
    "how", [Disturbed(jitter=0.6), Disturbed(pause_us=30_000), Disturbed(slow_first=10)], ids=str
)
def test_times_do_not_change_the_number(tmp_path: Path, how: Disturbed) -> None:
    scene = SCENES["generate"]
    assert len(analysis(record(scene.steps, how), tmp_path).steps) == scene.true


def test_two_processes_have_steps_of_their_own(tmp_path: Path) -> None:
    """Ten steps of a process that holds more of the GPU's time, and 25 of another one."""
    export = record(times(10, LAYER * 12, ("sgemm_head", 50), ARGMAX))
    record(times(25, EMBED, LAYER * 3, ARGMAX), export=export.process(2), at=1_000_000)
    a = analysis(export, tmp_path)
    assert (len(a.steps), a.steps.process) == (10, 1)
    assert set(a.ops.process[a.steps.op_step >= 0].tolist()) == {1}


def test_an_annotation_that_is_copied_to_each_stream_is_one_step(tmp_path: Path) -> None:
    """A kernel of 30 us, while 370 us are copied on a second stream: a step takes the longer."""
    made = Profile().gpu()
    for i in range(4):
        at = i * 400 * US
        made.annotation(f"ProfilerStep#{i}", at, 390 * US)
        made.launch(at=at + 5 * US, kernel_dur=30 * US)
        made.copy(at=at + 15 * US, copy_dur=370 * US, stream=20)
        ran = {"ts": made.us(at + 21 * US), "dur": made.us(370 * US), "pid": 0, "tid": 20}
        made.event(ph="X", cat="gpu_user_annotation", name=f"ProfilerStep#{i}", **ran)
    steps = measure(open_trace(made.write(tmp_path / "trace.json"))).repeated
    assert (len(steps), set(steps.time.tolist())) == (4, {400 * US})
    assert np.bincount(steps.op_step).tolist() == [2] * 4
    assert (steps.gpu_end - steps.gpu_start).min() >= 370 * US


def test_more_than_one_lost_end_in_fifty_is_too_many(tmp_path: Path) -> None:
    """Ten steps of 50 launches: with one lost kernel 0.02 ends are likely lost, with two 0.04."""

    def believed(lost: int) -> bool:
        export, folder = Export().process(1), tmp_path / str(lost)
        folder.mkdir()
        record(times(10, LAYER * 12, "sgemm_head", ARGMAX), export=export)
        for i in range(lost):
            export.call("cudaLaunchKernel_v7000", 50_000 + 400_000 * i, 1_000)
        return analysis(export, folder).repeated.believed

    assert (believed(1), believed(2)) == (True, False)
