"""From outcomes to advice: folding, severity, confidence, order, wording, what is not known."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from advisor.engine.conclude import Conclusions, conclude
from advisor.engine.infer import infer
from advisor.engine.judge import as_sure, confidence_factors, confidence_of, estimate_factors
from advisor.engine.rank import because, causes_behind, rank, worth_doing
from advisor.model.facts import TRACE, Fact, FactBase, Interval, Scope, Table
from advisor.model.findings import Advice, Finding, Gain, Impact, Severity, Span
from advisor.model.gain import Ranking
from advisor.model.rules import RuleSpec
from tests.engine.engine_support import DECODE, DEV, base, ge, put, rule, rules


def concluded(facts: FactBase, *specs: RuleSpec, **more: Any) -> Conclusions:
    return conclude(infer(facts, rules(*specs), engine="python"), **more)


def codes(found: Conclusions) -> list[str]:
    return [f.code for f in found.findings]


# --- folding ---------------------------------------------------------------------------------

IDLE = rule("UTL100", "gpu-idle", [ge("f.idle", 0.15)], kind="symptom", message="{f.idle|pct} idle")
SYNC = rule("SYN101", "blocking-sync", [ge("f.sync", 0.05)], then={"explains": ["gpu-idle"]})


def test_a_symptom_is_folded_into_the_cause_that_explains_it() -> None:
    found = concluded(base({"f.idle": 0.3, "f.sync": 0.2}), IDLE, SYNC)
    assert codes(found) == ["SYN101"]
    (symptom,) = found.findings[0].explains
    assert (symptom.code, symptom.message) == ("UTL100", "30 % idle")


def test_a_symptom_without_a_cause_stands_alone() -> None:
    found = concluded(base({"f.idle": 0.3, "f.sync": 0.01}), IDLE, SYNC)
    assert codes(found) == ["UTL100"]
    assert found.findings[0].kind == "symptom"


def test_several_causes_may_explain_one_symptom() -> None:
    other = rule("HST101", "host-gap", [ge("f.sync", 0.05)], then={"explains": ["gpu-idle"]})
    found = concluded(base({"f.idle": 0.3, "f.sync": 0.2}), IDLE, SYNC, other)
    assert [f.explains[0].code for f in found.findings] == ["UTL100", "UTL100"]


def test_folding_goes_to_the_same_or_a_narrower_scope_only() -> None:
    facts = base({"f.idle": 0.3, "f.sync": 0.01})
    put(facts, {"f.idle": 0.4, "f.sync": 0.2}, DECODE)
    put(facts, {"f.idle": 0.2}, Scope(device=1))
    narrow = IDLE.replaced(scope="phase")
    facts.facts["f.sync", DEV] = facts.facts["f.sync", DECODE]
    wide_cause = concluded(facts, narrow, SYNC)
    assert codes(wide_cause) == ["SYN101"]
    assert wide_cause.findings[0].explains[0].scope.phase == "decode"
    narrow_cause = concluded(facts, IDLE, SYNC.replaced(scope="phase"))
    assert sorted(codes(narrow_cause)) == ["SYN101", "UTL100", "UTL100"]


def test_a_symptom_of_another_device_is_not_folded() -> None:
    facts = base({"f.idle": 0.3, "f.sync": 0.2})
    put(facts, {"f.idle": 0.4, "f.sync": 0.0}, Scope(device=1))
    found = concluded(facts, IDLE, SYNC)
    assert {(f.code, f.scope.device) for f in found.findings} == {("SYN101", 0), ("UTL100", 1)}


def test_an_overruled_cause_explains_nothing_and_is_listed() -> None:
    ruler = rule("CAP102", "opaque", [ge("f.o", 1)], then={"overrules": ["blocking-sync"]})
    found = concluded(base({"f.idle": 0.3, "f.sync": 0.2, "f.o": 1}), IDLE, SYNC, ruler)
    assert sorted(codes(found)) == ["CAP102", "UTL100"]
    (entry,) = found.overruled
    assert (entry.code, entry.by, entry.scope.device) == ("SYN101", "CAP102", 0)


# --- severity and confidence -----------------------------------------------------------------


def graded(share: float, severity: dict[str, Any] | None = None, unit: str = "ratio") -> str:
    one = rule("ABC100", "c", [ge("f.a", 0)], impact={"fact": "f.a", "part": "idle"}, severity=severity or {})
    return concluded(base({"f.a": share}, unit=unit), one).findings[0].severity


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.9, "medium"), (0.2, "medium"), (0.1, "medium"), (0.03, "low"), (0.0299, "info")],
)
def test_severity_by_what_is_held_is_medium_at_most(share: float, severity: str) -> None:
    """What a cause holds is not yet what its fix saves."""
    assert graded(share) == severity


@pytest.mark.parametrize(
    ("speedup", "severity"),
    [(1.25, "high"), (1.24, "medium"), (1.112, "medium"), (1.11, "low"), (1.03, "info")],
)
def test_severity_by_what_the_fix_saves(speedup: float, severity: str) -> None:
    """1.25 x is a fifth of the step, 1 / 0.9 a tenth, 1 / 0.97 three hundredths."""
    (one,) = rank([finding("ABC101", 0.9, gain=latency(speedup))], {})
    assert one.severity == severity


def test_the_middle_of_a_range_counts_however_wide_it_is() -> None:
    wide = Gain(measure="latency", speedup=Span(low=1.1, mid=4.0, high=8.0))
    for gain in (wide, wide.replaced(traced=True)):
        (one,) = rank([finding("ABC101", 0.9, gain=gain, confidence=0.5)], {})
        assert one.ranking is not None
        assert one.gain is not None
        assert one.ranking.saved == one.gain.alone == 0.75
        assert one.score == 0.375


@pytest.mark.parametrize(
    ("after", "part_of", "severity"),
    [
        pytest.param(0.15, "ABC102", "medium", id="what is left for it"),
        pytest.param(0.0, "ABC102", "low", id="all of it is won already"),
        pytest.param(0.30, None, "high", id="held by another"),
    ],
)
def test_a_fix_behind_another_counts_by_what_it_saves_then(
    after: float, part_of: str | None, severity: str
) -> None:
    """Alone it saves two fifths."""
    gain = latency(1 / 0.6).replaced(after_first=after, part_of=part_of)
    (one,) = rank([finding("ABC101", 0.9, gain=gain)], {})
    assert one.severity == severity
    assert one.gain is not None
    assert one.gain.alone == pytest.approx(0.4)


@pytest.mark.parametrize(("lost", "severity"), [(True, "high"), (False, "medium")])
def test_without_an_estimate_only_what_is_lost_is_high(lost: bool, severity: str) -> None:
    one = finding("ABC101", 0.9)
    terms = Ranking(confidence=0.8, lost=lost)
    (ranked,) = rank([one.replaced(ranking=terms)], {})
    assert ranked.severity == severity


def test_an_estimate_of_a_window_without_steps_is_as_severe_as_what_it_saves() -> None:
    (one,) = rank([finding("ABC101", 0.9, gain=latency(2.0).replaced(of="window"))], {})
    assert one.severity == "high"


def test_severity_by_own_levels_and_cap() -> None:
    levels = {"levels": [{"at": 0.05, "severity": "low"}, {"at": 0.2, "severity": "medium"}]}
    assert graded(0.04, levels) == "info"
    assert graded(0.05, levels) == "low"
    assert graded(0.9, levels) == "medium"
    assert graded(0.9, levels | {"cap": "low"}) == "low"
    assert graded(0.9, {"cap": "info"}) == "info"
    counts = {"levels": [{"at": 1, "severity": "medium"}]}
    assert graded(3, counts, "count") == "medium"
    assert graded(3, None, "count") == "info"
    assert graded(0.9, {"levels": [{"at": 0.5, "severity": "high"}]}) == "high"


def test_no_impact_is_info() -> None:
    found = concluded(base({"f.a": 1}), rule("ABC100", "c", [ge("f.a", 1)]))
    assert found.findings[0].severity == "info"
    assert found.findings[0].impact is None


def sure(when: Any, facts: dict[str, Any], method: str = "measured", **more: Any) -> float:
    confidence = {"method": method, "base": 0.8}
    one = rule("ABC100", "c", when, confidence=confidence, **more)
    return concluded(base(facts), one).findings[0].confidence


def test_confidence() -> None:
    assert sure([ge("f.a", 0.1)], {"f.a": 0.1}) == 0.68  # on the threshold: 0.85 of the base
    assert sure([ge("f.a", 0.1)], {"f.a": 0.2}) == 0.8  # twice the threshold: all of it
    assert sure([ge("f.a", 0.1)], {"f.a": 0.9}) == 0.8
    assert sure([ge("f.a", 0.1)], {"f.a": 0.9}, "inferred") == 0.72
    assert sure([ge("f.a", 0.1)], {"f.a": 0.9}, "assumed") == 0.6
    assert sure([ge("f.a", 0.1), ge("f.b", 1)], {"f.a": 0.9, "f.b": 1}) == 0.68  # the closest
    guard = [ge("f.g", 1) | {"if_unknown": "pass"}]
    assert sure([ge("f.a", 0.1)], {"f.a": 0.9}, unless=guard) == 0.76
    assert sure([ge("f.a", 0.1)], {"f.a": 0.9, "f.g": 0}, unless=guard) == 0.8
    assert sure([{"fact": "f.a", "op": "eq", "value": True}], {"f.a": True}) == 0.8
    either = {"any": [{"all": [ge("f.a", 0.1)]}, {"all": [ge("f.b", 1)]}]}
    assert sure(either, {"f.a": 0.9, "f.b": 1}) == 0.8  # the better branch


def test_captures_with_a_known_answer_correct_the_base() -> None:
    """The judged base of 0.8 counts as six captures."""

    def known(right: int, wrong: int) -> float:
        confidence = {"method": "measured", "base": 0.8, "right": right, "wrong": wrong}
        one = rule("ABC100", "c", [ge("f.a", 0.1)], confidence=confidence)
        return concluded(base({"f.a": 0.9}), one).findings[0].confidence

    assert known(0, 0) == 0.8
    assert known(6, 0) == 0.9
    assert known(0, 6) == 0.4
    assert known(8, 2) == 0.8


def sampled(steps: int | None, samples: int | None, resolved: float | None, *tables: str) -> float:
    """Confidence of a rule on one fact that was made of `tables`."""
    facts = base({})
    put(facts, {"capture.step_count": steps} if steps is not None else {}, TRACE, "count")
    put(facts, {"capture.sample_count": samples} if samples is not None else {}, TRACE, "count")
    put(facts, {"activity.resolved_ratio": resolved} if resolved is not None else {}, DEV)
    facts.add(Fact("f.a", 0.9, "ratio", DEV, tables))
    one = rule("ABC100", "c", [ge("f.a", 0.1)], confidence={"method": "measured", "base": 1.0})
    return concluded(facts, one).findings[0].confidence


def test_few_steps_lower_the_confidence() -> None:
    assert sampled(None, None, None) == 1.0  # not known: not judged
    assert sampled(1, None, None) == sampled(0, None, None) == 0.8
    assert sampled(5, None, None) == 0.96
    assert sampled(50, None, None) == 0.996


def test_few_or_coarse_samples_lower_it_where_they_matter() -> None:
    assert sampled(None, 10, None, "kernels") == 1.0  # no number of it comes from samples
    assert sampled(None, 10, None, "samples") == 0.85
    assert sampled(None, 10_000, None, "samples") == 1.0
    assert sampled(None, 10_000, 0.2, "samples") == 1.0  # about the device, not about kernels
    assert sampled(None, 10_000, 0.2, "samples", "kernels") == 0.76
    assert sampled(None, 10_000, 1.0, "samples", "kernels") == 1.0


def test_a_rule_about_the_capture_counts_over_the_whole_file() -> None:
    facts = base({"f.a": 0.9}, TRACE)
    put(facts, {"capture.step_count": 1}, TRACE, "count")
    one = rule("ABC100", "c", [ge("f.a", 0.1)], scope="trace")
    assert concluded(facts, one).findings[0].confidence == 0.8


def test_the_factors_multiply_to_the_confidence() -> None:
    facts = base({"f.a": 0.12})
    put(facts, {"capture.step_count": 4}, TRACE, "count")
    guard = [ge("f.g", 1) | {"if_unknown": "pass"}]
    one = rule("ABC100", "c", [ge("f.a", 0.1)], unless=guard)
    made = infer(facts, rules(one), engine="python")
    (outcome,) = made.outcomes
    terms = confidence_factors(made, one, outcome)
    assert [t.name for t in terms] == ["base", "method", "margin", "guards", "steps"]
    assert prod(t.factor for t in terms) == pytest.approx(confidence_of(made, one, outcome), abs=5e-4)
    assert "16.7 % away" in terms[2].why
    assert terms[4].why == "4 steps in the window"


def test_a_wide_range_and_what_tracing_may_explain_lower_it() -> None:
    """The fix saves 20 to 60 %, 39 % in the middle, of a step that takes 5 to 10 ms untraced."""
    gain = Gain(
        speedup=Span(low=1.25, mid=1.65, high=2.5),
        step_before_ms=Span(low=5.0, mid=8.0, high=10.0),
        step_after_ms=Span(low=4.0, mid=4.0, high=4.0),
    )
    assert [round(t.factor, 6) for t in estimate_factors(gain)] == [0.96, 0.95]
    assert estimate_factors(Gain(reason="none")) == estimate_factors(None) == ()
    one = finding("ABC100", 0.3, gain=gain, confidence=0.8, ranking=Ranking(confidence=0.8))
    sure = as_sure(one)
    assert sure.confidence == pytest.approx(0.8 * 0.96 * 0.95, abs=5e-4)
    assert sure.ranking is not None
    assert sure.ranking.confidence == sure.confidence
    assert as_sure(one.replaced(gain=None)).confidence == 0.8


# --- order -----------------------------------------------------------------------------------


def finding(code: str, share: float, **more: Any) -> Finding:
    body = {"cause": "c", "title": "t", "severity": "info", "confidence": 1.0, "message": "m"}
    return Finding(**{**body, "code": code, "impact": Impact(part="idle", share=share), **more})


def test_a_verdict_names_each_cause_once_wherever_it_was_found() -> None:
    found = [finding("ABC100", 0.3, cause=c) for c in ("a", "a", "b", "c", "b", "d")]
    assert causes_behind(found, 2) == ["b", "c"]
    assert causes_behind(found[:2], 2) == []


def capped(code: str, share: float, cap: Severity) -> Finding:
    return finding(code, share, ranking=Ranking(confidence=1.0, cap=cap))


def order(*findings: Finding, requires: dict[str, str] | None = None) -> list[str]:
    """Codes in their order; `requires`: code -> the cause whose fix its own needs first."""
    specs = [
        rule(code, code.lower(), [ge("f.a", 1)], requires=[{"cause": cause, "because": "b"}])
        for code, cause in (requires or {}).items()
    ]
    ranked = rank(findings, {s.code: s for s in specs})
    assert [f.rank for f in ranked] == list(range(1, len(ranked) + 1))
    return [f.code for f in ranked]


def test_by_share_times_confidence() -> None:
    assert order(finding("ABC101", 0.3, confidence=0.5), finding("ABC102", 0.2), finding("ABC103", 0.16)) == [
        "ABC102",
        "ABC103",
        "ABC101",
    ]


def test_the_badges_never_contradict_the_order() -> None:
    """A doubt holds a fix that saves 60 % at medium: after a high one of 25 %, before a medium one
    of 15 %."""
    held = capped("ABC101", 0.0, "medium").replaced(gain=latency(2.5))
    assert order(held, estimated("ABC102", 0.25), estimated("ABC103", 0.15)) == ["ABC102", "ABC101", "ABC103"]


def test_what_is_held_counts_for_less_than_what_is_saved() -> None:
    assert order(finding("ABC101", 0.19), estimated("ABC102", 0.11)) == ["ABC102", "ABC101"]


def test_a_fault_stands_before_a_limit_of_the_same_severity() -> None:
    limit = estimated("ABC101", 0.19, kind="limit")
    assert order(limit, estimated("ABC102", 0.11)) == ["ABC102", "ABC101"]
    assert order(limit, estimated("ABC102", 0.09)) == ["ABC101", "ABC102"]


def test_a_required_fix_stands_before_the_one_that_needs_it() -> None:
    """Graphs win more, and fail while the pool is missing."""
    graphs, pool = estimated("LCH101", 0.8), estimated("ALC101", 0.3, cause="churn")
    assert order(graphs, pool) == ["LCH101", "ALC101"]
    assert order(graphs, pool, requires={"LCH101": "churn"}) == ["ALC101", "LCH101"]
    small = estimated("ALC101", 0.05, cause="churn")  # of another severity: "do" has it first
    assert order(graphs, small, requires={"LCH101": "churn"}) == ["LCH101", "ALC101"]
    elsewhere = pool.replaced(scope=Scope(device=1))
    here = graphs.replaced(scope=Scope(device=0))
    assert order(here, elsewhere, requires={"LCH101": "churn"}) == ["LCH101", "ALC101"]


def test_what_to_do_begins_with_what_is_required_however_little_it_wins() -> None:
    advice = (Advice(id="a", action="do"),)
    graphs = estimated("LCH101", 0.8, recommendations=advice)
    readback = estimated("SYN103", 0.01, cause="readback", recommendations=advice)
    other = estimated("ABC101", 0.01, recommendations=advice)
    spec = rule("LCH101", "graphs", [ge("f.a", 1)], requires=[{"cause": "readback", "because": "it fails"}])
    rules_ = {"LCH101": spec}
    ranked = rank([graphs, readback, other], rules_)
    assert [f.code for f in ranked] == ["LCH101", "ABC101", "SYN103"]
    todo = worth_doing(ranked, rules_)
    assert [f.code for f in todo] == ["SYN103", "LCH101"]
    assert because(todo[0], todo[1:], rules_) == "before c: it fails"
    assert because(todo[1], (), rules_) == ""


def test_a_symptom_stands_behind_a_cause_that_holds_more() -> None:
    """An idle device holds 0.15 of the step and tells no fix; a cause holds 0.2, of which 0.07 are saved."""
    idle, cause = finding("UTL100", 0.15, kind="symptom"), finding("COM101", 0.2, gain=latency(1 / 0.93))
    less = finding("KRN105", 0.1, gain=latency(1 / 0.93))
    assert order(idle, cause) == ["COM101", "UTL100"]
    assert [f.severity for f in rank([idle, cause], {})] == ["low", "low"]
    assert order(idle, less) == ["UTL100", "KRN105"]


def test_ties_by_code_then_scope() -> None:
    wide, narrow = Scope(device=0), Scope(device=0, phase="decode")
    ranked = rank(
        [finding("ABC102", 0.1), finding("ABC101", 0.1, scope=narrow), finding("ABC101", 0.1, scope=wide)], {}
    )
    assert [(f.code, f.scope.phase) for f in ranked] == [
        ("ABC101", None),
        ("ABC101", "decode"),
        ("ABC102", None),
    ]


def test_what_invalidates_comes_first_by_impact_however_unsure() -> None:
    assert order(
        finding("ABC101", 0.9),
        finding("CAP101", 0.2, invalidates=True),
        finding("CAP102", 0.5, invalidates=True, confidence=0.1),
    ) == ["CAP102", "CAP101", "ABC101"]


def test_what_is_capped_at_info_comes_last() -> None:
    assert order(capped("CAP103", 0.9, "info"), finding("ABC101", 0.01)) == ["ABC101", "CAP103"]


def span(mid: float) -> Span:
    return Span(low=mid, mid=mid, high=mid)


def latency(speedup: float) -> Gain:
    return Gain(measure="latency", speedup=span(speedup))


def throughput(speedup: float) -> Gain:
    return Gain(measure="throughput", speedup=span(speedup))


def estimated(code: str, saved: float, **more: Any) -> Finding:
    return finding(code, 0.0, **{"gain": latency(1 / (1 - saved)), **more})


def test_a_larger_batch_is_medium_at_most_and_behind_what_shortens_the_step() -> None:
    batch = finding("ABC103", 0.8, gain=throughput(8.0))
    low, medium = estimated("ABC102", 0.05), estimated("ABC101", 0.12, confidence=0.1)
    assert order(batch, low, medium) == ["ABC101", "ABC103", "ABC102"]


def test_a_larger_batch_is_no_more_than_what_shortens_the_step() -> None:
    """A batch is the tool's choice; where the low end of another fix wins too, or the cause of it holds much,
    that comes first."""
    batch, sure = finding("ABC103", 0.8, gain=throughput(8.0)), estimated("ABC102", 0.05)
    assert order(batch, sure) == ["ABC102", "ABC103"]
    assert [f.severity for f in rank([batch, sure], {})] == ["low", "low"]
    perhaps = Gain(measure="latency", speedup=Span(low=1.0, mid=1.1, high=1.2))
    unsure = finding("ABC102", 0.0, gain=perhaps)
    assert [f.severity for f in rank([batch, unsure], {})] == ["medium", "low"]
    holds_much = finding("ABC102", 0.1, gain=perhaps)
    assert order(batch, holds_much) == ["ABC102", "ABC103"]
    assert [f.severity for f in rank([batch, holds_much], {})] == ["low", "low"]


def test_a_larger_batch_leads_over_a_small_part_of_what_it_is_for() -> None:
    """Of a step in which all kernels leave the GPU idle, attention is a tenth, and the fix of that alone may
    win little. A batch of four fifths of the step may be for other time."""
    perhaps = Gain(measure="latency", speedup=Span(low=1.0, mid=1.1, high=1.2))
    for share, held, first in ((1.0, 0.1, "ABC103"), (0.8, 0.1, "ABC102"), (1.0, 0.3, "ABC102")):
        batch = finding("ABC103", share, gain=throughput(8.0))
        assert order(batch, finding("ABC102", held, gain=perhaps))[0] == first
    sure = estimated("ABC102", 0.05).replaced(impact=Impact(part="compute", share=0.1))
    assert order(finding("ABC103", 1.0, gain=throughput(8.0)), sure) == ["ABC102", "ABC103"]


def perhaps_saving(mid: float, high: float, **more: Any) -> Finding:
    gain = Gain(measure="latency", speedup=Span(low=1.0, mid=mid, high=high))
    return finding("ABC102", 0.3, **{"gain": gain, **more})


def test_what_perhaps_saves_a_tenth_of_the_step_is_above_info() -> None:
    """1.00 to 1.12 x: the middle saves 1 %, the optimistic end 10.7 %."""
    assert [f.severity for f in rank([perhaps_saving(1.01, 1.12)], {})] == ["low"]
    assert [f.severity for f in rank([perhaps_saving(1.01, 1.10)], {})] == ["info"]
    assert [f.severity for f in rank([perhaps_saving(1.13, 1.40)], {})] == ["medium"]  # by the middle
    info = Ranking(confidence=1.0, cap="info")
    assert [f.severity for f in rank([perhaps_saving(1.01, 1.12, ranking=info)], {})] == ["info"]


def test_what_perhaps_saves_much_is_as_light_as_what_is_left_behind_another_fix() -> None:
    behind = perhaps_saving(1.01, 1.12)
    assert behind.gain is not None
    behind = behind.replaced(gain=behind.gain.replaced(after_first=0.0, part_of="ABC101"))
    assert [f.severity for f in rank([behind], {})] == ["info"]


def test_a_larger_batch_does_not_lead_over_what_perhaps_shortens_the_step() -> None:
    batch = finding("ABC103", 0.8, gain=throughput(8.0))
    assert order(batch, perhaps_saving(1.01, 1.12)) == ["ABC102", "ABC103"]


def test_a_larger_batch_may_be_high_where_nothing_else_is_to_win() -> None:
    batch = finding("ABC103", 0.8, gain=throughput(8.0))
    limit = estimated("ABC102", 0.15, kind="limit")
    assert [f.severity for f in rank([batch, limit], {})] == ["high", "medium"]


def advised(effort: str) -> dict[str, Any]:
    return {"recommendations": (Advice(id="x", action="x", effort=effort),)}


def test_faults_of_medium_severity_come_before_limits() -> None:
    """FP8 saves 30 %, and what is wrong 15: it is mended first."""
    limit, fault = estimated("ABC101", 0.3, kind="limit"), estimated("ABC102", 0.15)
    found = rank([limit, fault], {})
    assert [(f.code, f.severity) for f in found] == [("ABC102", "medium"), ("ABC101", "medium")]
    assert found[1].ranking is not None
    assert found[1].ranking.behind == "a fault"
    assert [f.severity for f in rank([limit], {})] == ["high"]
    assert rank([limit], {})[0].ranking.behind is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("saved", "efforts", "first"),
    [
        (0.08, ("low", "low"), "ABC101"),
        (0.08, ("medium", "low"), "ABC101"),
        (0.08, ("low", "medium"), "ABC102"),  # the fault's fix is less work
        (0.045, ("low", "low"), "ABC102"),  # as good as alike
        (0.30, ("low", "medium"), "ABC101"),  # by severity
    ],
)
def test_a_low_fault_does_not_lead_over_a_limit_that_wins_more_at_like_effort(
    saved: float, efforts: tuple[str, str], first: str
) -> None:
    fault = estimated("ABC102", 0.04, **advised(efforts[0]))
    limit = estimated("ABC101", saved, kind="limit", **advised(efforts[1]))
    assert order(fault, limit)[0] == first


def test_the_order_does_not_depend_on_the_order_given() -> None:
    many = [finding(f"ABC{100 + i}", (i * 7 % 10) / 20) for i in range(10)]
    assert order(*many) == order(*reversed(many))


# --- wording and proof -----------------------------------------------------------------------

FULL = rule(
    "SYN101",
    "blocking-sync",
    {
        "all": [{"fact": "sync.idle_ratio", "op": "ge", "param": "min_idle"}],
        "join": [{"as": "d2h", "entity": "copy_class", "on": ["device"], "optional": True}],
    },
    params={"min_idle": {"default": 0.05, "unit": "ratio", "origin": "peer", "source": "peers-1"}},
    impact={"fact": "sync.idle_ratio", "part": "sync"},
    message="{sync.idle_ratio|pct} idle, {sync.gone|ns} waited, above {param.min_idle|pct}",
    healthy="only {sync.idle_ratio|pct} idle",
    evidence=["sync.top_calls", "d2h", "no.table"],
    gain={"what_if": "remove_sync", "params": {"which": "in_step"}, "per": "token"},
    recommendations=[
        {
            "id": "one",
            "action": "do this",
            "effort": "low",
            "verify": {"fact": "sync.idle_ratio", "expect": "decrease"},
        },
        {"id": "two", "action": "x", "effort": "low", "applies_when": [ge("sync.idle_ratio", 0.9)]},
        {
            "id": "three",
            "action": "Do y.",
            "effort": "low",
            "applies_when": [ge("sync.gone", 1)],
            "if_unknown": "it waits",
        },
        {"id": "four", "action": "z", "effort": "low", "applies_when": [ge("sync.gone", 1)]},
    ],
    docs={"what": "w", "why": "y", "harmless_when": "h", "references": ["cuda-graphs"]},
    needs={"flag": "--trace=cuda"},
)


def said(*texts: tuple[str, str, float, str | None]) -> list[tuple[str, str | None]]:
    """What is said, and under which condition, of texts for one action: each with the fact that has to reach
    a value for it, and the words for that where the fact is not known. Of the facts one is, as 0.31."""
    actions = [
        {"id": "x", "action": text, "effort": "low", "applies_when": [ge(fact, least)], "if_unknown": words}
        for text, fact, least, words in texts
    ]
    one = rule("SYN101", "blocking-sync", [ge("sync.idle_ratio", 0.1)], recommendations=actions)
    (found,) = concluded(base({"sync.idle_ratio": 0.31}), one).findings
    return [(r.action, r.condition) for r in found.recommendations]


def test_of_several_texts_for_one_action_the_first_that_applies_is_said() -> None:
    never = ("Never.", "sync.idle_ratio", 0.9, "it idles")
    may, mute = ("Do b.", "sync.gone", 0.9, "it waits"), ("Do c.", "sync.gone", 0.9, None)
    sure, also = ("Do d.", "sync.idle_ratio", 0.3, None), ("Do e.", "sync.idle_ratio", 0.2, None)
    other = ("Do f.", "sync.gone", 0.5, "it waits long")
    assert said(never, sure, also) == [("Do d.", None)]
    assert said(may, mute, other, sure, also) == [("Do d.", None)]  # what is sure goes first
    assert said(sure, may) == [("Do d.", None)]
    assert said(never, mute, may, other) == [("If it waits: Do b.", "it waits")]
    assert said(never, mute) == []  # no words for what is not known


def test_alternatives_that_apply_ask_for_their_estimates() -> None:
    ways = [
        {"id": "x", "action": "a", "effort": "low", "applies_when": [ge("sync.idle_ratio", 0.9)]},
        {"id": "y", "action": "b", "effort": "high", "gain": {"what_if": "x", "params": {"n": 2}}},
        {
            "id": "z",
            "action": "c",
            "effort": "low",
            "applies_when": [ge("sync.gone", 0.9)],
            "if_unknown": "it waits",
        },
        {"id": "w", "action": "d", "effort": "low", "applies_when": [ge("sync.gone", 0.9)]},
    ]
    one = rule("SYN101", "blocking-sync", [ge("sync.idle_ratio", 0.1)], alternatives=ways)
    (found,) = concluded(base({"sync.idle_ratio": 0.31}), one).findings
    assert [(a.action, a.text, a.what_if, a.effort) for a in found.alternatives] == [
        ("y", "b", "x", "high"),
        ("z", "If it waits: c", None, "low"),
    ]
    asked = found.alternatives[0].gain
    assert asked is not None
    assert asked.params == {"n": 2}


def test_a_finding_in_full() -> None:
    facts = base({"sync.idle_ratio": 0.31})
    facts.entities["copy_class"] = [{"device": 0, "kind": "DtoH"}, {"device": 1, "kind": "HtoD"}]
    rows = (("sync", 3, None), ("copy", None, None))
    facts.tables["sync.top_calls", TRACE] = Table("Calls", ("call", "n", "a step"), rows)
    facts.intervals["sync", DEV] = [Interval(i, i + 1, stream=7) for i in range(70)]
    found = concluded(facts, FULL, ms_of=lambda _part, _scope, share: (share or 0) * 10)
    (one,) = found.findings
    assert one.message == "31 % idle, (unknown) waited, above 5 %"
    (condition,) = one.conditions
    assert condition.model_dump() == {
        "fact": "sync.idle_ratio",
        "op": "ge",
        "threshold": 0.05,
        "value": 0.31,
        "unit": "ratio",
        "param": "min_idle",
        "holds": True,
    }
    assert one.impact == Impact(part="sync", ms=3.1, share=0.31)
    assert [e.title for e in one.evidence] == ["Calls", "Copies by direction and kind of memory"]
    assert one.evidence[0].columns == ("call", "n")  # nothing is known by the step
    assert one.evidence[0].rows == (("sync", 3), ("copy", None))
    assert one.evidence[1].rows == ((0, "DtoH"),)
    assert len(one.time_ranges) == 50
    assert [(r.id, r.action) for r in one.recommendations] == [
        ("one", "do this"),
        ("three", "If it waits: Do y."),
    ]
    verify = one.recommendations[0].verify
    assert verify is not None
    assert (verify.now, verify.unit) == (0.31, "ratio")
    assert one.gain == Gain(
        what_if="remove_sync", params={"which": "in_step"}, measure="latency", per="token"
    )
    assert [r.id for r in one.references] == ["cuda-graphs"]
    assert [(t.code, t.param, t.value) for t in found.thresholds] == [("SYN101", "min_idle", 0.05)]


def test_places_that_are_nothing_beside_the_longest_are_left_out() -> None:
    facts = base({"sync.idle_ratio": 0.31})
    facts.intervals["sync", DEV] = [Interval(0, 463_000_000), Interval(0, 470_000), Interval(0, 1)]
    (one,) = concluded(facts, FULL).findings
    assert [r.end_ns for r in one.time_ranges] == [463_000_000, 470_000]


def test_healthy_only_when_all_is_known() -> None:
    found = concluded(base({"sync.idle_ratio": 0.01}), FULL)
    assert [(h.code, h.text) for h in found.healthy] == [("SYN101", "only 1 % idle")]
    assert found.healthy[0].conditions[0].holds is False
    assert concluded(base({"other.fact": 1}), FULL).healthy == ()


def test_a_guard_that_holds_is_no_good_health() -> None:
    guarded = FULL.replaced(unless=rule("ABC100", "x", [ge("f.a", 1)], unless=[ge("f.g", 1)]).unless)
    bad = {"sync.idle_ratio": 0.31, "f.g": 1}
    found = concluded(base(bad), guarded)
    assert (found.findings, found.healthy) == ((), ())
    assert len(concluded(base(bad | {"sync.idle_ratio": 0.0}), guarded).healthy) == 1


def test_the_most_telling_is_healthy_first() -> None:
    """Notes, then what would have been heavy, the capture last; families take turns."""

    def well(code: str, **more: Any) -> RuleSpec:
        impact = {"impact": {"fact": "f.a", "part": "idle"}}
        return rule(code, code.lower(), [ge("f.a", 0.5)], healthy="well", **(impact | more))

    found = concluded(
        base({"f.a": 0.1}),
        well("CAP101", scope="trace"),
        well("SYN101"),
        well("SYN102"),
        well("LCH101"),
        well("KRN105", severity={"cap": "low"}),
        well("UTL109", impact=None),
        rule("LCH105", "busy", [{"fact": "f.a", "op": "lt", "value": 0.5}], kind="note"),
    )
    assert [h.code for h in found.healthy] == ["LCH105", "LCH101", "SYN101", "SYN102", "KRN105", "UTL109"]
    everywhere = base({"f.a": 0.1}, TRACE)
    put(everywhere, {"f.b": 1}, DEV)
    also = concluded(everywhere, well("CAP101", scope="trace"), well("SYN101"))
    assert [h.code for h in also.healthy] == ["SYN101", "CAP101"]


def test_notes_go_to_healthy() -> None:
    note = rule("LCH105", "back-pressure", [ge("f.a", 1)], kind="note", message="{f.a|int} calls")
    found = concluded(base({"f.a": 1234}), note)
    assert found.findings == ()
    assert [(h.code, h.text) for h in found.healthy] == [("LCH105", "1,234 calls")]


def test_not_evaluated_names_facts_flag_and_reason_once_for_all_scopes() -> None:
    facts = base({"other.fact": 1})
    put(facts, {"other.fact": 1}, Scope(device=1))
    facts.missing["sync.idle_ratio"] = "no API calls"
    (entry,) = concluded(facts, FULL).not_evaluated
    assert entry.missing == ("sync.idle_ratio",)
    assert (entry.flag, entry.why) == ("--trace=cuda", "no API calls")
    assert entry.scope == Scope()


def test_invalidates_by_a_fact() -> None:
    one = rule("CAP104", "startup", [ge("f.a", 1)], invalidates=ge("f.none_left", 1))
    assert concluded(base({"f.a": 1, "f.none_left": 1}), one).findings[0].invalidates
    assert not concluded(base({"f.a": 1, "f.none_left": 0}), one).findings[0].invalidates
    assert not concluded(base({"f.a": 1}), one).findings[0].invalidates


def test_what_invalidates_is_high_whatever_it_measures() -> None:
    one = rule("CAP101", "nothing", [ge("f.a", 1)], invalidates=True)
    assert concluded(base({"f.a": 1}), one).findings[0].severity == "high"


def test_symptoms_show_among_the_conditions() -> None:
    cause = rule("SYN101", "blocking-sync", [{"symptom": "gpu-idle"}])
    (condition,) = concluded(base({"f.idle": 0.3}), IDLE, cause).findings[0].conditions
    assert (condition.fact, condition.value, condition.holds) == ("symptom:gpu-idle", "fired", True)


def test_impact_in_time_has_no_share() -> None:
    one = rule("ABC100", "c", [ge("f.t_ns", 1)], impact={"fact": "f.t_ns", "part": "p"})
    (found,) = concluded(base({"f.t_ns": 2_500_000}, unit="ns"), one).findings
    assert found.impact == Impact(part="p", ms=2.5, share=None)


def test_same_input_same_output() -> None:
    facts = base({"f.idle": 0.3, "f.sync": 0.2})
    first, second = (concluded(facts, IDLE, SYNC) for _ in range(2))
    assert [f.model_dump_json() for f in first.findings] == [f.model_dump_json() for f in second.findings]


# --- what a capture cannot tell ----------------------------------------------------------------

ALONE = {"fact": "f.alone", "op": "eq", "value": True}
DOUBTED = rule(
    "COM101",
    "exposed-communication",
    [ge("f.exposed", 0.02)],
    impact={"fact": "f.exposed", "otherwise": "f.sampled", "part": "communication"},
    doubts=[{"when": [ALONE], "factor": 0.5, "cap": "low", "text": "{f.exposed|pct} or less."}],
    message="{f.exposed|pct} exposed.",
)


def test_a_doubt_is_said_and_makes_the_finding_smaller_and_less_sure() -> None:
    sure = concluded(base({"f.exposed": 0.4, "f.alone": False}), DOUBTED).findings[0]
    unsure = concluded(base({"f.exposed": 0.4, "f.alone": True}), DOUBTED).findings[0]
    assert (sure.message, sure.severity) == ("40 % exposed.", "medium")
    assert (unsure.message, unsure.severity) == ("40 % exposed. 40 % or less.", "low")
    assert unsure.confidence == pytest.approx(sure.confidence / 2, abs=1e-3)


def test_a_doubt_needs_a_reason() -> None:
    """Where the fact of its condition is not known, nothing speaks for it."""
    found = concluded(base({"f.exposed": 0.4}), DOUBTED).findings[0]
    assert (found.message, found.severity) == ("40 % exposed.", "medium")


def test_another_fact_stands_in_for_an_impact_that_is_not_known() -> None:
    other = rule(
        "UTL102",
        "bound",
        [ge("f.seen", 0)],
        impact={"fact": "f.exposed", "otherwise": "f.sampled", "part": "compute"},
    )
    known = concluded(base({"f.seen": 1.0, "f.exposed": 0.3, "f.sampled": 0.05}), other)
    sampled = concluded(base({"f.seen": 1.0, "f.sampled": 0.05}), other)
    assert [f.severity for f in (*known.findings, *sampled.findings)] == ["medium", "low"]


def test_a_recommendation_shows_the_values_it_names() -> None:
    advice = {"id": "fix", "action": "Look at `--window {sync.idle_ratio|pct}`.", "effort": "low"}
    spec = rule("SYN101", "waits", [ge("sync.idle_ratio", 0.1)], recommendations=[advice])
    found = concluded(base({"sync.idle_ratio": 0.5}), spec)
    assert found.findings[0].recommendations[0].action == "Look at `--window 50 %`."


def test_a_fix_that_may_save_less_than_half_stands_behind_a_narrow_one_of_nearly_its_size() -> None:
    """Both save 40 % in the middle, at least 20 or 17, and are as sure; the codes alone say otherwise."""
    narrow = Gain(speedup=Span(low=1.26, mid=1.66, high=2.0), measure="latency")
    wide = Gain(speedup=Span(low=1.2, mid=1.7, high=2.4), measure="latency")
    sure = Ranking(confidence=0.8)
    one = finding("ABC100", 0.5, gain=wide, confidence=0.8, ranking=sure)
    other = finding("ABC101", 0.5, gain=narrow, confidence=0.8, ranking=sure)
    first, second = rank([one, other], {})
    assert (first.code, first.severity, second.code, second.severity) == ("ABC101", "high", "ABC100", "high")
    assert second.score > first.score
    larger = wide.replaced(speedup=Span(low=1.3, mid=3.5, high=5.0))
    assert rank([one.replaced(gain=larger), other], {})[0].code == "ABC100"


# --- one finding for several scopes, and who withholds -------------------------------------------


@pytest.mark.parametrize(("values", "count"), [((7, 7), 1), ((7, 8), 2)])
def test_scopes_that_share_a_value_have_one_finding(values: tuple[int, int], count: int) -> None:
    facts = base({"f.a": 0.5, "f.group": values[0]}, unit="count")
    put(facts, {"f.a": 0.5, "f.group": values[1]}, Scope(device=1), "count")
    one = rule("ABC100", "c", [ge("f.a", 0.1)], then={"one_for": "f.group"})
    found = concluded(facts, one).findings
    assert len(found) == count
    assert (found[0].scope == TRACE) is (count == 1)


def test_without_a_shared_value_each_scope_has_its_own() -> None:
    facts = base({"f.a": 0.5})
    put(facts, {"f.a": 0.5}, Scope(device=1))
    assert len(concluded(facts, rule("ABC100", "c", [ge("f.a", 0.1)])).findings) == 2


def test_what_always_invalidates_withholds_before_what_does_so_at_times() -> None:
    facts = base({"f.a": 0.5, "f.lost": 0.5})
    at_times = {"fact": "f.lost", "op": "ge", "value": 0.9}
    some = rule("CAP101", "partly", [ge("f.lost", 0.1)], invalidates=at_times, withholds=True)
    always = rule("CAP102", "damaged", [ge("f.lost", 0.1)], invalidates=True, withholds=True)
    found = concluded(facts, some, always, rule("ABC100", "c", [ge("f.a", 0.1)]))
    assert {o.by for o in found.overruled if o.code == "ABC100"} == {"damaged"}


@pytest.mark.parametrize(("listed", "named"), [(0.8, True), (1.0, False)])
def test_rows_that_are_all_there_lower_no_confidence(listed: float, named: bool) -> None:
    facts = base({"f.a": 0.9, "sums.listed_ratio": listed})
    put(facts, {"capture.sums_only": True}, TRACE, "flag")
    one = rule("ABC100", "c", [ge("f.a", 0.1)])
    made = infer(facts, rules(one), engine="python")
    assert ("listed" in [t.name for t in confidence_factors(made, one, made.outcomes[0])]) is named


@pytest.mark.parametrize(("life", "confidence"), [("stable", 0.8), ("preview", 0.72)])
def test_a_rule_that_nothing_shows_yet_is_less_sure(life: str, confidence: float) -> None:
    one = rule("ABC100", "c", [ge("f.a", 0.1)], lifecycle=life)
    facts = base({"f.a": 0.9})
    put(facts, {"capture.step_count": 1e9}, TRACE, "count")
    assert concluded(facts, one).findings[0].confidence == confidence
