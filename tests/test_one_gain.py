"""One fix has one gain, of any capture: headline, table and what-if state the same, no time is won twice, and
nothing ends below what the GPU needs. Estimates read the middle of their range."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import AdvisorError
from advisor.model.findings import Diagnosis, Finding
from advisor.model.gain import HOLDS_MUCH, perhaps_saved, saved_by
from advisor.model.rules import judges_capture
from advisor.pipeline.explain import whatif
from tests import captures as captured
from tests.captures import each
from tests.shipped import shipped_rules
from tests.test_ticks import captures

CAPTURES = pytest.mark.parametrize("path", each(captures()))
#: What rounding of a replay may differ by, as a share of the step.
ROUNDING = 1e-6


def diagnosed(path: Path) -> Diagnosis:
    try:
        return captured.diagnosed(path)
    except AdvisorError as error:
        pytest.skip(f"not a capture of one trace: {error}")


def estimated(d: Diagnosis) -> list[Finding]:
    """Findings whose fix makes a step shorter, by how much is estimated."""
    return [
        f
        for f in d.findings
        if f.gain is not None and f.gain.measure == "latency" and f.gain.speedup is not None
    ]


@CAPTURES
def test_what_a_fix_saves_is_the_middle_of_its_range(path: Path) -> None:
    for f in estimated(diagnosed(path)):
        assert f.gain is not None
        assert f.gain.speedup is not None
        assert f.gain.alone == pytest.approx(saved_by(f.gain.speedup), abs=ROUNDING), f.code
        if f.gain.after_first is not None and f.gain.joint is None:
            assert f.gain.after_first <= f.gain.alone + ROUNDING, f.code


@CAPTURES
def test_the_headline_saves_what_its_finding_saves(path: Path) -> None:
    d = diagnosed(path)
    if d.headline is None or d.headline.saves is None:
        return
    led = [f for f in estimated(d) if f.code == d.headline.code]
    joint = [f.gain.joint for f in led if f.gain is not None and f.gain.joint is not None]
    saved = [f.gain.alone for f in led if f.gain is not None] + [saved_by(j.speedup) for j in joint]
    assert any(d.headline.saves == pytest.approx(s, abs=ROUNDING) for s in saved), d.headline


@CAPTURES
def test_together_is_what_its_rows_win_one_after_the_other(path: Path) -> None:
    together = diagnosed(path).combined
    if together is None:
        return
    left = together.step_before_ms.mid
    for step in together.steps:
        assert step.step_before_ms == pytest.approx(left, rel=ROUNDING), step
        left = step.step_after_ms
        assert step.bound_ms <= step.step_after_ms * (1 + ROUNDING), step
    assert together.step_after_ms.mid == pytest.approx(left, rel=ROUNDING)
    assert together.bound_ms.mid <= together.step_after_ms.mid * (1 + ROUNDING)


@CAPTURES
def test_a_what_if_states_the_gain_of_its_finding(path: Path) -> None:
    found = estimated(diagnosed(path))
    if not found or len({f.scope.device for f in found}) > 1:  # a device of its own has a step of its own
        return
    gain = found[0].gain
    assert gain is not None
    assert gain.what_if is not None
    fix = ":".join((gain.what_if, *(f"{name}={value}" for name, value in gain.params.items())))
    report = whatif(path, fix)
    assert report.step_before_ms == gain.step_before_ms
    assert report.step_after_ms == gain.step_after_ms
    assert report.speedup == gain.speedup


@CAPTURES
def test_what_the_analysis_set_aside_is_never_high_and_first_only_alone(path: Path) -> None:
    found = [f for f in diagnosed(path).findings if f.severity != "info"]
    aside = [f for f in found if f.ranking is not None and f.ranking.aside]
    assert all(f.severity in ("low", "medium") for f in aside)
    # Behind it stand only faults of the file alone, such as secrets in it.
    behind = found[min((found.index(f) for f in aside), default=len(found)) :]
    assert all(f in aside or (f.impact is not None and f.impact.part == "capture") for f in behind)


@CAPTURES
def test_no_fix_that_perhaps_saves_a_tenth_is_information_alone(path: Path) -> None:
    for f in estimated(diagnosed(path)):
        assert f.gain is not None
        assert f.ranking is not None
        if perhaps_saved(f.gain) is None or f.gain.after_first is not None or f.ranking.cap == "info":
            continue
        if f.ranking.levels is None and f.kind != "symptom":
            assert f.severity != "info", f.code


@CAPTURES
def test_no_larger_batch_leads_over_a_cause_of_latency(path: Path) -> None:
    found = [f for f in diagnosed(path).findings if f.severity != "info"]
    if not found or found[0].gain is None or found[0].gain.measure != "throughput":
        return
    for f in estimated(diagnosed(path)):
        if f.kind == "cause" and f.severity != "info":
            assert (f.share or 0.0) < HOLDS_MUCH, f.code


@CAPTURES
def test_a_what_if_by_the_code_of_a_finding_states_its_gain(path: Path) -> None:
    found = estimated(diagnosed(path))
    if len({f.scope.device for f in found}) > 1:
        return
    rules = shipped_rules().by_code
    several = [f for f in found if (gain := rules[f.code].gain) is not None and gain.otherwise is not None]
    for f in several[:1]:
        assert f.gain is not None
        report = whatif(path, f.code)
        assert report.step_after_ms == f.gain.step_after_ms, f.code
        assert report.speedup == f.gain.speedup, f.code


#: From here on a finding lies inside another one, with room for rounding.
INSIDE = 0.9 + ROUNDING


@CAPTURES
def test_no_time_is_held_twice_without_being_called_a_part(path: Path) -> None:
    """By the budget, whose parts are exclusive: what two findings hold together beyond the parts that both
    are of, both hold. The second one, of which no estimate says what is left, is a part and LOW."""
    d = diagnosed(path)
    sizes = {(b.device, p.part): p.share for b in d.budget if b.phase is None for p in b.parts}
    told = [f for f in d.findings if f.severity != "info" and f.share and not judges_capture(f.code)]
    for i, f in enumerate(told):
        if f.only_part:
            assert f.severity == "low", f.code
            assert any(g.code == f.part_of and g.part_of is None for g in told[:i]), f.code
        if f in estimated(d) or f.part_of is not None:
            continue
        for g in told[:i]:
            parts = set(f.impact.parts or ()) | set(g.impact.parts or ()) if f.impact and g.impact else set()
            both = f.impact and g.impact and set(f.impact.parts or ()) & set(g.impact.parts or ())
            size = sum(sizes.get((f.scope.device or 0, part), 0.0) for part in parts)
            alike = f.scope.device == g.scope.device and f.scope.phase == g.scope.phase and f.code != g.code
            if g.kind == "cause" and g.part_of is None and both and alike:
                common = (f.share or 0.0) + (g.share or 0.0) - size
                assert common <= INSIDE * (f.share or 0.0), (f.code, g.code)
