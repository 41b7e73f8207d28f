"""On any capture: an untraced step that can be (no longer than the traced one), and one "before"."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from advisor.metrics.loaded.operations import Kind
from advisor.metrics.profiled.stage import measure
from advisor.model.findings import Diagnosis
from advisor.model.gain import Span
from advisor.pipeline.diagnose import open_trace
from advisor.pipeline.ranks import diagnose_ranks
from advisor.reports.phrases import step_time
from tests.captures import diagnosed

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "traces"
COMMITTED = sorted(
    p
    for folder in (ROOT / "examples" / "captures", ROOT / "tests" / "data" / "captures")
    for p in folder.glob("*.*z")
)
ENDINGS = (".sqlite", ".sqlite.xz", ".json", ".json.gz", ".json.xz")
SECTIONS = ("h200", "kineto", "public", "wild", "practice")
OTHERS = sorted(p for s in SECTIONS for p in (SHARED / s).rglob("*") if p.name.endswith(ENDINGS))
ARCHIVES = sorted((SHARED / "practice").glob("*.tar.xz"))
#: Rounding of times to whole nanoseconds.
CLOSE = 1e-6


def kernels_ms(path: Path) -> float:
    """Time in which kernels of the main device ran in a mean step of the window."""
    with open_trace(path) as trace:
        a = measure(trace)
        mine = (a.ops.device == a.main_device) & (a.ops.kind == Kind.KERNEL)
        mine &= np.isin(a.steps.op_step, a.window_steps)
        start = np.maximum(a.ops.start[mine], a.window.start)
        end = np.minimum(a.ops.end[mine], a.window.end)
        order = np.argsort(start, kind="stable")
        start, end = start[order], np.maximum.accumulate(end[order])
        busy = np.maximum(end - np.maximum(start, np.concatenate(([0], end[:-1]))), 0).sum()
        return float(busy) / len(a.window_steps) / 1e6


def befores(d: Diagnosis) -> Iterator[Span]:
    """What gains of steps of the main device start from."""
    gains = [f.gain for f in d.findings] + [o.gain for f in d.findings for o in f.alternatives]
    if d.headline is not None:
        gains.append(d.headline.together)
    for gain in gains:
        if gain is not None and gain.of == "step" and gain.step_before_ms is not None:
            yield gain.step_before_ms
            if gain.joint is not None:
                yield gain.joint.step_before_ms
    if d.combined is not None and d.combined.of == "step":
        yield d.combined.step_before_ms


def check(d: Diagnosis, path: Path) -> None:
    for entry in d.inputs:
        untraced = entry.untraced_step_ms
        if untraced is None or entry.step_ms is None:
            continue
        assert untraced.low <= untraced.mid <= untraced.high <= entry.step_ms * (1 + CLOSE)
        if len(d.inputs) == 1:
            assert untraced.low >= kernels_ms(path) * (1 - CLOSE)
            told = [(b.low, b.mid, b.high) for b in befores(d)]
            assert told == [pytest.approx((untraced.low, untraced.mid, untraced.high))] * len(told)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: p.name.split(".")[0])
def test_committed_captures(path: Path) -> None:
    check(diagnosed(path), path)


@pytest.mark.slow
@pytest.mark.skipif(not OTHERS, reason=f"{SHARED} is not here")
@pytest.mark.parametrize("path", OTHERS, ids=lambda p: str(p.relative_to(SHARED)))
def test_every_other_capture(path: Path) -> None:
    check(diagnosed(path), path)


@pytest.mark.slow
@pytest.mark.skipif(not ARCHIVES, reason=f"{SHARED} is not here")
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda p: p.name.split(".")[0])
def test_jobs_of_several_ranks(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    ranks = sorted(tmp_path.rglob("*.sqlite"))
    d = diagnose_ranks([(None, path) for path in ranks])
    assert len(d.inputs) == len(ranks)
    check(d, tmp_path)


def test_the_header_says_so_where_tracing_cost_nothing() -> None:
    entry = diagnosed(ROOT / "examples" / "captures" / "prefill8b_bs4.sqlite.xz").inputs[0]
    assert entry.step_ms is not None
    still = Span(low=entry.step_ms, mid=entry.step_ms, high=entry.step_ms)
    assert step_time([entry.replaced(untraced_step_ms=still)]).endswith("ms traced, the same untraced")
