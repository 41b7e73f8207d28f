"""A window that is recorded again and again, or later, gives the same answer: its rows in a row, with every
time, correlation id and graph run moved on, as a longer recording would hold. Cut by one step it differs by
no more than its steps do, in which findings that are about equally heavy may change places. Over all captures
at hand; those beside the checkout are slow tests."""

from __future__ import annotations

import gzip
import json
import lzma
import shutil
import sqlite3
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from advisor.engine.rank import rank
from advisor.metrics.budgeted.step_times import step_times
from advisor.metrics.profiled.stage import measure
from advisor.model.findings import Diagnosis, Finding
from advisor.pipeline.diagnose import open_trace
from tests.captures import DATA, EXAMPLES, SHARED
from tests.metamorphic import edits as e
from tests.metamorphic import events as v
from tests.metamorphic.captures import REAL, diagnosed, folder, unedited
from tests.scenarios.machine import ADD, GEMM, Machine
from tests.scenarios.support import diagnosed as diagnosed_script
from tests.shipped import shipped_rules

#: Captures that cannot be repeated so, each with the reason.
EXCEPT = {
    "decode_graph_opaque": "its graphs hold no kernel whose rows could be repeated",
    "two_processes": "two processes that wait for each other: one process's window cuts the other's turns",
    "whole_run_no_capture_range": "its finding is about start-up, and events are lost",
    "no_gpu_work": "nothing to repeat",
    "clock_drift": "its finding is a trend: a clock that falls, and in each repetition again",
    "triton_jit_midway": "its finding is what is compiled once, and in each repetition again",
    "autotune_returns": "its finding is what is tuned again now and then",
    "h200/chains_at_once": "two streams end apart, so that each window cuts a kernel off its last step",
}
#: Captures of one step or two, of which no mean can be told.
ONE_STEP = ("prefill8b_bs4", "decode_gil")
_AHEAD = "the host launches all steps at once: between two repetitions it seems to work"
#: Captures of whose repetitions only the step is the same, each with the reason.
STEP_ALONE = {
    "decode70b8_graph_bs1": _AHEAD,
    "prefill70b8_bs2": _AHEAD,
    "precision_fp32": _AHEAD,
    "offload_prefetched": _AHEAD,
    "h200/gc_marked": "its window holds less of the host than of the GPU: between two lies more host time",
}
#: How far steps and gains may lie apart.
STEP, GAIN = 0.02, 0.03


def name_of(path: Path) -> str:
    return path.name.split(".")[0]


PAIRS = DATA.parent / "pairs"
KINETO = [*sorted(EXAMPLES.glob("*.json.gz")), *sorted(PAIRS.glob("*/*.json.xz"))]
NSYS = [
    *(EXAMPLES / f"{name}.sqlite.xz" for name in REAL.values() if (EXAMPLES / f"{name}.sqlite.xz").exists()),
    *(DATA / f"{name}.sqlite.xz" for name in REAL.values() if (DATA / f"{name}.sqlite.xz").exists()),
]
BESIDE = [
    path
    for kind in ("h200", "practice", "kineto")
    for path in sorted((SHARED / kind).glob("*"))
    if path.name.endswith((".sqlite.xz", ".json.gz"))
    if name_of(path) not in {name_of(p) for p in NSYS} or kind == "kineto"
]
#: Traces of PyTorch's profiler that stand for the others: of graphs, launches, copies, and a prefill.
FEW = ("kineto_decode_graph", "eager_b8", "copy_beside", "compiled_prefill")


def listed(path: Path, names: Collection[str]) -> bool:
    """By the capture's name, or with its folder."""
    return name_of(path) in names or f"{path.parent.name}/{name_of(path)}" in names


def params(paths: list[Path]) -> list[Any]:
    found, quick = [], set(FEW) | {name_of(p) for p in NSYS}
    for path in paths:
        if listed(path, EXCEPT) or listed(path, ONE_STEP):
            continue
        usual = not path.is_relative_to(SHARED) and name_of(path) in quick
        quick -= {name_of(path)}
        found.append(
            pytest.param(
                path, id=f"{path.parent.name}/{name_of(path)}", marks=[] if usual else [pytest.mark.slow]
            )
        )
    return found


EACH = params([*NSYS, *KINETO, *BESIDE])


class Window(NamedTuple):
    """The analysed window of a capture: times on the GPU and of the host, ns from `zero` of the file on; when
    its steps end, on the GPU and in their range, and how long they take."""

    gpu: tuple[int, int]
    host: tuple[int, int]
    zero: int
    ends: tuple[int, ...]
    times: tuple[float, ...]

    @property
    def spread(self) -> float:
        """How far the step that differs most lies from the mean, relative, over the number of steps."""
        times = np.array(self.times)
        return float(np.abs(times / times.mean() - 1).max() / max(len(times) - 1, 1))


@cache
def unpacked(path: Path) -> Path:
    """The file of a capture; of those that other tests edit, what these do."""
    short = {real: name for name, real in REAL.items()}
    if path in NSYS and name_of(path) in short:
        return unedited(short[name_of(path)])
    out = folder() / f"{path.parent.name}-{path.name}".removesuffix(path.suffix)
    read = gzip.decompress if path.suffix == ".gz" else lzma.decompress
    out.write_bytes(read(path.read_bytes()))
    return out


@cache
def window(path: Path) -> Window:
    with open_trace(unpacked(path)) as trace:
        a = measure(trace)
        ends = np.maximum(a.steps.gpu_end, a.steps.host_end)[a.window_steps]
        times = step_times(a) if len(ends) else np.ones(1)
        gpu, zero = (a.window.start, a.window.end), trace.capture.zero_ns or 0
        return Window(gpu, a.host_window, zero, tuple(ends.tolist()), tuple(times.tolist()))


def again(path: Path, out: Path, times: int, *, later: int = 0, end: int | None = None) -> Diagnosis:
    """The diagnosis of the window so many times in a row, `later` by so many ns, recorded up to `end`."""
    own = window(path)
    if unpacked(path).suffix == ".json":
        document = json.loads(unpacked(path).read_text())
        v.window_again((own.gpu[0], end or own.gpu[1]), own.host, own.zero, times)(document)
        v.shifted(later / 1_000)(document)
        out = out.with_suffix(".json")
        out.write_text(json.dumps(document))
    else:
        shutil.copyfile(unpacked(path), out)
        db = sqlite3.connect(out)
        db.execute("pragma synchronous = off")  # no test survives a loss of power
        with db:
            e.window_again(own.gpu, own.host, times)(db)
            if end is not None:
                e.ended(end)(db)
            e.shifted(later)(db)
        db.close()
    found = diagnosed(out)
    out.unlink()
    return found


def test_all_captures_are_repeated_or_listed_with_the_reason() -> None:
    files = {name_of(p) for at in (EXAMPLES, DATA) for p in (*at.glob("*.sqlite.xz"), *at.glob("*.json.gz"))}
    held = {name_of(p.values[0]) for p in EACH}
    assert files <= held | EXCEPT.keys() | set(ONE_STEP)
    assert {name_of(p) for p in PAIRS.glob("*/*.json.xz")} <= held


def main_gains(d: Diagnosis) -> dict[str, float]:
    """The middle speed-ups of causes above info, by cause."""
    found: list[Finding] = [f for f in d.findings if f.severity != "info" and f.gain is not None]
    return {f.cause: f.gain.speedup.mid for f in found if f.gain is not None and f.gain.speedup is not None}


def leaders(d: Diagnosis, gain: float) -> set[str]:
    """The causes that come first if one speed-up is so much larger or smaller: another one where two are
    about equally heavy, or one about as heavy as the next severity begins at."""
    found = {f.cause for f in d.findings[:1]}
    for i, finding in enumerate(d.findings):
        if finding.severity == "info" or finding.gain is None or (own := finding.gain.speedup) is None:
            continue
        for times in (1 + gain, 1 - gain):
            other = own.replaced(low=own.low * times, mid=own.mid * times, high=own.high * times)
            changed = finding.replaced(gain=finding.gain.replaced(speedup=other, after_first=None))
            found |= {
                f.cause
                for f in rank((*d.findings[:i], changed, *d.findings[i + 1 :]), shipped_rules().by_code)[:1]
            }
    return found


def same(was: Diagnosis, now: Diagnosis, step: float = STEP, gain: float = GAIN) -> None:
    assert {f.cause for f in now.findings[:1]} <= leaders(was, gain)
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
@pytest.mark.parametrize("path", EACH)
def test_a_repeated_window_gives_the_same_answer(path: Path, times: int, tmp_path: Path) -> None:
    """The first step of the first window has none before it, from which it could be timed: it counts only in
    the windows behind it."""
    once, more = (again(path, tmp_path / f"{n}.sqlite", n) for n in (1, times))
    first = max(window(path).spread, 0.05 if len(window(path).times) <= 3 else 0.0)
    if listed(path, STEP_ALONE):
        assert more.inputs[0].untraced_step_ms is not None
        assert once.inputs[0].untraced_step_ms is not None
        assert more.inputs[0].untraced_step_ms.mid == pytest.approx(
            once.inputs[0].untraced_step_ms.mid, rel=STEP + first
        )
        return
    same(once, more, step=STEP + first, gain=GAIN + first)


@pytest.mark.parametrize("path", EACH)
def test_a_shifted_window_gives_the_same_answer(path: Path, tmp_path: Path) -> None:
    once = again(path, tmp_path / "once.sqlite", 1)
    same(once, again(path, tmp_path / "later.sqlite", 1, later=90_000 * e.MS), step=1e-6, gain=1e-3)


@pytest.mark.parametrize("path", EACH)
def test_a_window_without_its_last_step_differs_by_no_more_than_steps_do(path: Path, tmp_path: Path) -> None:
    own = window(path)
    if len(own.ends) < 4:
        pytest.skip("too few steps to leave one out")
    was, now = (
        again(path, tmp_path / f"{i}.sqlite", 1, end=end) for i, end in enumerate((None, own.ends[-2]))
    )
    same(was, now, step=max(STEP, 2 * own.spread), gain=max(GAIN, 2 * own.spread))


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
    few, many = (diagnosed_script(requests(n), make(tmp_path, n)) for n in (10, times))
    same(few, many)


def make(folder: Path, number: int) -> Path:
    path = folder / str(number)
    path.mkdir()
    return path
