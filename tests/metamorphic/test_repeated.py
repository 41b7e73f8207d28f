"""A window that is recorded again and again, or later, gives the same answer: its rows in a row, with every
time, correlation id and graph run moved on, as a longer recording would hold. Cut by one step it differs by
no more than its steps do."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from advisor.metrics.analysis import Analysis
from advisor.metrics.phases import step_times
from advisor.model.findings import Diagnosis, Finding
from advisor.pipeline.diagnose import open_trace
from tests.captures import DATA, EXAMPLES
from tests.metamorphic import edits as e
from tests.metamorphic.captures import REAL, after, before, unedited
from tests.scenarios.machine import ADD, GEMM, Machine
from tests.scenarios.support import diagnosed

#: Captures that cannot be repeated so, each with the reason.
EXCEPT = {
    "opaque": "its graphs hold no kernel whose rows could be repeated",
    "two": "two processes that wait for each other: one process's window cuts the other's turns",
    "whole": "its finding is about start-up, and events are lost",
}
NAMES = sorted(REAL.keys() - EXCEPT.keys())
#: How far steps and gains may lie apart.
STEP, GAIN = 0.02, 0.03


@cache
def window(name: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """The analysed window of a capture: times on the GPU and of the host."""
    with open_trace(unedited(name)) as trace:
        a = Analysis(trace)
        return (a.window.start, a.window.end), a.host_window


def spread(name: str) -> float:
    """How far the longest step lies from the mean, relative, over the number of steps."""
    with open_trace(unedited(name)) as trace:
        times = step_times(Analysis(trace))
        return float(np.abs(times / times.mean() - 1).max() / (len(times) - 1))


def test_all_captures_are_repeated_or_listed_with_the_reason() -> None:
    files = {p.name.split(".")[0] for folder in (EXAMPLES, DATA) for p in folder.glob("*.sqlite.xz")}
    prefill_is_one_step, nothing_to_repeat = "prefill8b_bs4", "no_gpu_work"
    assert files == set(REAL.values()) | {prefill_is_one_step, nothing_to_repeat}


def main_gains(d: Diagnosis) -> dict[str, float]:
    """The middle speed-ups of causes above info, by cause."""
    found: list[Finding] = [f for f in d.findings if f.severity != "info" and f.gain is not None]
    return {f.cause: f.gain.speedup.mid for f in found if f.gain is not None and f.gain.speedup is not None}


def same(was: Diagnosis, now: Diagnosis, step: float = STEP, gain: float = GAIN) -> None:
    assert [f.cause for f in now.findings[:1]] == [f.cause for f in was.findings[:1]]
    steps = [d.inputs[0].untraced_step_ms for d in (was, now)]
    assert [s is None for s in steps] in ([True, True], [False, False])
    if steps[0] is not None and steps[1] is not None:
        assert steps[1].mid == pytest.approx(steps[0].mid, rel=step)
    gains = main_gains(now)
    for cause, speedup in main_gains(was).items():
        if cause in gains:
            assert gains[cause] == pytest.approx(speedup, rel=gain), cause


TIMES = [5, pytest.param(2, marks=pytest.mark.slow), pytest.param(24, marks=pytest.mark.slow)]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", NAMES)
def test_a_repeated_window_gives_the_same_answer(name: str, times: int, tmp_path: Path) -> None:
    once, again = (
        after(name, e.window_again(*window(name), n), tmp_path / f"{n}.sqlite") for n in (1, times)
    )
    few = len(step_parts(name)) <= 3  # the first step of the first window has none before it
    same(once, again, step=0.05 if few else STEP, gain=0.05 if few else GAIN)


def step_parts(name: str) -> range:
    return range(before(name).inputs[0].steps or 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_shifted_window_gives_the_same_answer(name: str, tmp_path: Path) -> None:
    once = after(name, e.window_again(*window(name), 1), tmp_path / "once.sqlite")
    shifted = e.both(e.window_again(*window(name), 1), e.shifted(90_000 * e.MS))
    same(once, after(name, shifted, tmp_path / "later.sqlite"), step=1e-6, gain=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_window_without_its_last_step_differs_by_no_more_than_steps_do(name: str, tmp_path: Path) -> None:
    with open_trace(unedited(name)) as trace:
        a = Analysis(trace)
        count, ends = a.step_count, a.steps.gpu_end[a.window_steps]
    if count < 4:
        pytest.skip("too few steps to leave one out")
    (start, _), host = window(name)
    cut = (start, int(ends[-2])), host
    was, now = (
        after(name, e.window_again(*w, 1), tmp_path / f"{i}.sqlite")
        for i, w in enumerate((window(name), cut))
    )
    same(was, now, step=max(STEP, 2 * spread(name)), gain=max(GAIN, 2 * spread(name)))


# ------------------------------------------------- windows that are too long to be replayed whole


def requests(times: int) -> Machine:
    """Prompts of 5,000 tokens between decode steps in batches of 4, 8 and 16, launched one by one, with a
    slow host before every fourth step."""
    m = Machine()
    for i in range(20 * times):
        kind = i % 20
        with m.step("prefill" if kind == 10 else f"decode_step {i}"):
            if kind % 4 == 3:
                m.work(3_000)
            for _ in range(60 if kind == 10 else 20 + 4 * (kind % 3)):
                m.launch(GEMM, 120 if kind == 10 else 15)
                m.launch(ADD, 40 if kind == 10 else 4)
            m.wait()
    return m


@pytest.mark.parametrize("times", [24, pytest.param(60, marks=pytest.mark.slow)])
def test_steps_of_several_phases_and_sizes_count_as_in_the_window(times: int, tmp_path: Path) -> None:
    """Ten rounds are replayed whole, and of 24 a part."""
    few, many = (diagnosed(requests(n), make(tmp_path, n)) for n in (10, times))
    same(few, many)


def make(folder: Path, number: int) -> Path:
    path = folder / str(number)
    path.mkdir()
    return path
