"""A step time measured without the profiler is the truth: estimates start from it and narrow."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.gain.attach import assumptions
from advisor.gain.estimate import Replayer
from advisor.metrics.profiled.stage import measure
from advisor.model.findings import Input
from advisor.model.gain import Span
from advisor.pipeline.diagnose import open_trace
from advisor.reports.phrases import step_time
from tests.gain import scenes
from tests.gain.support import US, fix, replayer

DEMO = Path(__file__).resolve().parents[2] / "examples" / "captures" / "decode_eager_bs1.sqlite.xz"


def test_the_cost_of_tracing_is_what_meets_the_measured_step(tmp_path: Path) -> None:
    """Twenty launches, one each 20 us: 300 us a step means that tracing cost 5 us each of the at
    most 15, which 5 us a launch leave."""
    r = replayer(scenes.eager(count=20, slot=20), tmp_path, unprofiled_ns=300 * US)
    assert r.middle.launch == pytest.approx((5 / 16) ** 0.5, abs=0.01)
    assert r.unexplained == pytest.approx(0.0, abs=0.01)
    before = r.estimate([fix("cuda_graphs")]).before
    assert (before.low, before.mid, before.high) == (0.3, 0.3, 0.3)


def test_the_range_narrows(tmp_path: Path) -> None:
    wide, narrow = (
        replayer(scenes.eager(), tmp_path, unprofiled_ns=known).estimate([fix("cuda_graphs")])
        for known in (None, 300 * US)
    )
    assert narrow.speedup.high / narrow.speedup.low < 0.7 * wide.speedup.high / wide.speedup.low


def test_a_fix_that_changes_nothing_wins_nothing(tmp_path: Path) -> None:
    r = replayer(scenes.reading_back(), tmp_path, unprofiled_ns=220 * US)
    found = r.estimate([fix("remove_sync")])
    assert found.after.mid == pytest.approx(0.22)
    assert found.speedup.mid == pytest.approx(1.0)


def test_what_tracing_does_not_explain_goes_with_the_time_that_a_fix_removes(tmp_path: Path) -> None:
    """162 us of which 61 are host code: 200 us measured means more host code, not slower kernels.
    Scaled like the step, the kernels' 100.9 us would be 124.6."""
    r = replayer(scenes.waiting(), tmp_path, unprofiled_ns=200 * US)
    after = r.estimate([fix("remove_host_gap")]).after.mid * US
    assert 100.9 < after < 120.0


def test_a_faster_host_makes_no_kernel_faster(tmp_path: Path) -> None:
    """The GPU alone needs 60 us a step, however short the measured step is above that."""
    r = replayer(scenes.eager(count=20, slot=20), tmp_path, unprofiled_ns=90 * US)
    found = r.estimate([fix("cuda_graphs")])
    plain = replayer(scenes.eager(count=20, slot=20), tmp_path).estimate([fix("cuda_graphs")])
    assert found.bound.mid == pytest.approx(plain.bound.mid)
    assert found.after.mid >= found.bound.mid


def test_assumptions_question_a_time_of_another_load(tmp_path: Path) -> None:
    def said(known: float | None) -> str:
        r = replayer(scenes.eager(), tmp_path, unprofiled_ns=known)
        return " ".join(assumptions(r, [fix("cuda_graphs")]))

    assert "--unprofiled-step" in said(None)
    assert "0.3 ms, as given" in said(300 * US)
    assert "same load" not in said(300 * US)
    assert "100 % longer" in said(800 * US)


def test_the_header_names_the_measurement_where_the_estimate_is_wide() -> None:
    def said(low: float, mid: float, high: float) -> str:
        step = Span(low=low, mid=mid, high=high)
        return step_time([Input(path="t", format="f", step_ms=13.0, untraced_step_ms=step)])

    assert said(9.92, 9.92, 9.92).endswith("9.92 ms untraced, as given")
    assert said(4.0, 4.2, 4.4).endswith("untraced")
    assert "--unprofiled-step" in said(5.3, 9.0, 12.8)


@pytest.mark.parametrize("form", [(), ("-v",), ("--format", "markdown")])
def test_every_form_names_the_measurement(form: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", str(DEMO), *form])
    assert "--unprofiled-step" in capsys.readouterr().out.replace("\n", " ")


def test_the_demo_capture() -> None:
    """9.92 ms measured, 2.23 ms as a CUDA graph: 4.08 to 4.75 times over the runs."""
    with open_trace(DEMO) as trace:
        found = Replayer(measure(trace), unprofiled_ns=9.92e6).estimate([fix("cuda_graphs")])
    assert found.after.mid == pytest.approx(2.23, rel=0.10)
    assert found.speedup.low < 4.75
    assert found.speedup.high > 4.08
    assert found.speedup.high / found.speedup.low <= 1.35
