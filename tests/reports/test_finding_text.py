"""Estimates as text, from hand-made documents."""

from __future__ import annotations

import pytest

from advisor.model.explanation import Replay, WhatIfReport
from advisor.model.findings import Finding, Impact, Input, Tool
from advisor.model.gain import Combined, CombinedStep, Gain, Joint, Ranking, Span
from advisor.reports import finding_text
from advisor.reports import text as writer
from advisor.reports.diagnosis_blocks import TextOptions
from advisor.reports.html.charts import estimates
from advisor.reports.layout import Page
from tests.reports.fixture import DIAGNOSIS, plain

#: Numbers of a fix behind another one, after which nothing is left to gain.
NOTHING_LEFT = {
    "step_before_ms": 2.25,
    "step_after_ms": 2.25,
    "marginal_ms": 0.0,
    "marginal_share": 0.0,
    "speedup": 4.0,
    "bound_ms": 2.0,
}
STEPS = (
    CombinedStep(
        code="LCH101",
        cause="launch-bound",
        what_if="cuda_graphs",
        params={"syncs": "removed"},
        step_before_ms=9.0,
        step_after_ms=2.25,
        marginal_ms=6.75,
        marginal_share=0.75,
        speedup=4.0,
        bound_ms=2.0,
    ),
    CombinedStep(code="ALC101", cause="allocation-churn", what_if="remove_allocations", **NOTHING_LEFT),
    CombinedStep(what_if="remove_gc", note="no garbage collection was recorded", **NOTHING_LEFT),
)
SPANS = {
    "step_before_ms": Span(low=8.0, mid=9.0, high=10.0),
    "step_after_ms": Span(low=2.0, mid=2.25, high=2.5),
    "speedup": Span(low=3.5, mid=4.0, high=4.5),
}
BOUND = {"bound_ms": Span(low=1.9, mid=2.0, high=2.1), "bound_speedup": Span(low=4.0, mid=4.5, high=5.0)}
COMBINED = Combined(steps=STEPS, assumptions=("shapes repeat",), **SPANS, **BOUND)


def shown(lines: Page) -> str:
    return "\n".join(line.plain for line in lines.lines)


def test_fixes_together() -> None:
    diagnosis = DIAGNOSIS.replaced(combined=COMBINED)
    assert "together  step 9.00 → 2.25 (2.00 to 2.50) ms, 4.00 x (3.50 to 4.50)" in plain(
        diagnosis, TextOptions()
    )
    text = plain(diagnosis, TextOptions(verbosity=1))
    for part in (
        "Fixes together  in this order, nothing counted twice",
        "LCH101 cuda_graphs:syncs=removed",
        "75 %",
        "ALC101 remove_allocations: nothing left to win after those before it",
        "remove_gc: no garbage collection was recorded",
        "together  step 9.00 → 2.25 (2.00 to 2.50) ms, 4.00 x (3.50 to 4.50)",
        "alone needs 2.00 (1.90 to 2.10) ms a step then",
        "than 4.50 x (4.00 to 5.00) (Amdahl)",
    ):
        assert part in text, part
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "assumes   shapes repeat" in text
    assert "Fixes together" not in plain(DIAGNOSIS, TextOptions(verbosity=1))


def test_a_what_if() -> None:
    report = WhatIfReport(
        tool=Tool(version="1", engine="python"),
        input=Input(path="t.sqlite", format="nsys"),
        fixes=STEPS[:1],
        measure="latency",
        per="step",
        assumptions=("shapes repeat",),
        replay=Replay(steps=24, of_steps=1279, captured_ms=9.5, replayed_ms=9.5, error=0.0),
        **SPANS,
        **BOUND,
    )
    page = Page(80)
    writer.write(page, finding_text.whatif(report))
    text = shown(page)
    for part in (
        "t.sqlite",
        "24 of 1279 steps, 9.50 ms a step (captured 9.50 ms, error +0.00 %)",
        "9.00 (8.00 to 10.00) ms a step, without the profiler's part",
        "4.00 x (3.50 to 4.50)",
        "assumes   shapes repeat",
    ):
        assert part in text, part
    assert "throughput" not in text
    page = Page(80)
    writer.write(page, finding_text.whatif(report.replaced(measure="throughput")))
    assert "counts tokens a second, not step time" in shown(page)


def test_a_finding_says_step_and_range() -> None:
    gain = Gain(what_if="cuda_graphs", measure="latency", per="step", **SPANS)
    assert finding_text.gain_text(gain) == (
        "untraced step 9.00 (8.00 to 10.00) → 2.25 (2.00 to 2.50) ms, 4.00 x (3.50 to 4.50) "
        "by what-if cuda_graphs"
    )


@pytest.mark.parametrize(
    ("part", "has_steps", "told"),
    [
        ("launch_call", True, "55 % of the step (launch or other call, 5.5 ms of the traced step)"),
        ("launch_call", False, "55 % of the window (launch or other call, 5.5 ms of the traced window)"),
        ("profiler", True, "55 % of the window (profiler, 5.5 ms of the traced step)"),
        ("capture", True, "55 % of the capture (5.5 ms)"),
    ],
)
def test_the_cost_names_the_step_that_it_is_of(part: str, has_steps: bool, told: str) -> None:
    """The gain starts from the step without the profiler: without names 5.5 ms of 9 would be read."""
    impact = Impact(part=part, share=0.55, ms=5.5)
    found = DIAGNOSIS.findings[0].replaced(impact=impact)
    assert finding_text.cost_text(found, has_steps) == told


def test_what_saves_more_than_its_share_says_why() -> None:
    first, *rest = DIAGNOSIS.findings
    gain = Gain(what_if="fuse_elementwise", measure="latency", why_more="launches go, too", **SPANS)
    diagnosis = DIAGNOSIS.replaced(findings=(first.replaced(gain=gain), *rest))
    assert "launches go, too" not in plain(diagnosis, TextOptions())
    assert "more than its share: launches go, too" in plain(diagnosis, TextOptions(verbosity=1))


def test_throughput_is_never_taken_for_a_shorter_step() -> None:
    gain = Gain(what_if="batch", params={"n": 8}, measure="throughput", per="token", **SPANS)
    assert finding_text.gain_text(gain) == (
        "up to 4.00 x tokens/s (3.50 in the pessimistic estimate) by what-if batch:n=8, if requests wait and "
        "memory holds them"
    )


def test_the_html_table_keeps_tokens_off_the_scale_of_step_times() -> None:
    step = Gain(what_if="cuda_graphs", measure="latency", per="step", **SPANS)
    tokens = Gain(what_if="batch", params={"n": 8}, measure="throughput", per="token", **SPANS)
    found = (ranked(step), ranked(tokens.replaced(speedup=Span(low=7.0, mid=8.0, high=8.0))))
    (drawn,) = estimates(DIAGNOSIS.replaced(findings=found))
    assert (drawn.speedup, drawn.top) == ("4.00 x (3.50 to 4.50)", "4.5 x")
    assert (drawn.low, drawn.high) == (71.43, 100.0)


def ranked(gain: Gain | None = None, impact: float | None = None, **terms: object) -> Finding:
    return Finding(
        rank=1,
        code="LCH101",
        cause="launch-bound",
        title="",
        severity="high",
        confidence=0.8,
        message="",
        gain=gain,
        impact=None if impact is None else Impact(part="x", share=impact),
        ranking=Ranking(
            **{
                "share": 0.75,
                "share_from": "gain",
                "confidence": 0.8,
                "score": 0.6,
                "throughput": False,
                "tier": 1,
            }
            | terms
        ),
    )


def test_the_arithmetic_of_a_rank() -> None:
    gain = Gain(what_if="cuda_graphs", measure="latency", **SPANS)
    assert finding_text.ranking_text(ranked(gain)) == (
        "high LCH101 launch-bound: 1 - 1 / 4.000 = 0.7500 x 0.8000 = 0.6000"
    )
    tokens = gain.replaced(measure="throughput")
    assert "1 - 1 / 4.000 = 0.7500 (throughput) x" in finding_text.ranking_text(
        ranked(tokens, throughput=True)
    )
    unsure = gain.replaced(speedup=Span(low=1.1, mid=4.0, high=4.5), traced=True)
    assert "1 - 1 / 4.000 = 0.7500 x" in finding_text.ranking_text(ranked(unsure, share=0.75))
    joint = gain.replaced(joint=Joint(codes=("KRN106", "LCH101"), **SPANS), after_first=0.5)
    assert "saved once KRN106 and LCH101 are fixed = 0.5000 x" in finding_text.ranking_text(
        ranked(joint, share=0.5)
    )
    assert "; fixes of KRN106 and LCH101 together: untraced step " in finding_text.gain_text(joint)
    held = ranked(impact=0.75, share_from="impact", tier=0, score=0.18)
    assert finding_text.ranking_text(held) == (
        "high LCH101 launch-bound: share 0.7500 (held) x 0.3 (no estimate) x 0.8000 = 0.1800, "
        "invalidates the capture"
    )
    levels = ranked(impact=0.75, share_from="impact", tier=0, levels="high")
    assert "share 0.7500 (held) x 0.8000 = 0.6000" in finding_text.ranking_text(levels)
    assert "capped at info" in finding_text.ranking_text(ranked(impact=0.1, tier=2))
    bare = ranked().replaced(ranking=None)
    assert finding_text.ranking_text(bare) == "LCH101 launch-bound: score 0.0000"


def test_the_ranking_is_shown_on_demand() -> None:
    one = DIAGNOSIS.replaced(findings=(ranked(impact=0.75, share_from="impact"),))
    assert "Ranking  share of the step saved x confidence = score" in plain(one, TextOptions(ranking=True))
    assert "Ranking" not in plain(one, TextOptions())
