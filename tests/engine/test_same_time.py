"""Of findings about mostly the same time one stays, with the advice of both."""

from __future__ import annotations

import pytest

from advisor.engine.rank import without_repeats, without_sums
from advisor.model.facts import Scope
from advisor.model.findings import Advice, Alternative, Finding, Impact
from advisor.model.gain import Gain, Span
from tests.shipped import shipped_rules

RULES = shipped_rules().by_code


def finding(
    code: str, held: float, speedup: float | None = None, measure: str = "latency", device: int = 0
) -> Finding:
    gain = None
    if speedup is not None:
        gain = Gain(measure=measure, speedup=Span(low=speedup, mid=speedup, high=speedup))
    return Finding(
        code=code,
        cause=RULES[code].cause,
        kind=RULES[code].kind,
        title="",
        severity="low",
        confidence=0.8,
        message=f"says {code}",
        scope=Scope(device=device),
        gain=gain,
        impact=Impact(part="", share=held),
        recommendations=(Advice(id=f"mend-{code.lower()}", action="", effort="low"),),
    )


def left(*findings: Finding, holds: bool = True) -> list[tuple[str, list[str]]]:
    found = without_repeats(findings, RULES, lambda *_: holds)
    return [(f.code, [s.code for s in f.explains]) for f in found]


def test_the_one_that_stays_offers_the_alternatives_of_both() -> None:
    stays, goes = (
        f.replaced(alternatives=(Alternative(action=f"other-{f.code}", text=""),))
        for f in (finding("LCH103", 0.5), finding("UTL110", 0.5))
    )
    (found,) = without_repeats([stays, goes], RULES, lambda *_: True)
    assert found.code == "LCH103"
    assert {a.action for a in found.alternatives} == {"other-LCH103", "other-UTL110"}


def test_the_one_whose_fix_saves_more_stays() -> None:
    assert left(finding("ALC101", 0.5, 1.9), finding("ALC102", 0.4, 1.3)) == [("ALC101", ["ALC102"])]
    assert left(finding("ALC101", 0.5, 1.1), finding("ALC102", 0.4, 1.3)) == [("ALC102", ["ALC101"])]


def test_the_more_precise_cause_stays_where_both_save_the_same() -> None:
    assert left(finding("HST101", 0.5, 1.9), finding("HST106", 0.5, 1.9)) == [("HST106", ["HST101"])]


def test_without_an_estimate_of_both_what_they_hold_tells() -> None:
    """The estimate of the one that goes is kept."""
    held = (finding("ALC101", 0.5, 1.9), finding("ALC102", 0.5))
    assert left(*held) == [("ALC102", ["ALC101"])]
    (found,) = without_repeats(held, RULES, lambda *_: True)
    assert found.gain == held[0].gain
    assert [r.id for r in found.recommendations] == ["mend-alc102", "mend-alc101"]


def test_without_estimates_a_shorter_step_comes_before_more_work_in_it() -> None:
    assert left(finding("UTL107", 0.7), finding("KRN105", 0.4)) == [("KRN105", ["UTL107"])]
    assert left(finding("KRN105", 0.4), finding("UTL107", 0.7)) == [("KRN105", ["UTL107"])]


def test_a_shorter_step_comes_before_more_work_in_it() -> None:
    batch = finding("UTL107", 0.7, 8.0, "throughput")
    assert left(batch, finding("KRN105", 0.4, 1.2)) == [("KRN105", ["UTL107"])]
    assert left(batch, finding("KRN105", 0.4, 1.001)) == [("UTL107", ["KRN105"])]


def test_a_symptom_stands_for_no_cause() -> None:
    (found,) = without_repeats((finding("UTL100", 0.7), finding("HST105", 0.4)), RULES, lambda *_: True)
    assert found.code == "HST105"
    assert [r.id for r in found.recommendations] == ["mend-hst105"]


def test_different_time_stays_apart() -> None:
    assert len(left(finding("ALC101", 0.5), finding("ALC102", 0.4), holds=False)) == 2
    assert len(left(finding("COM101", 0.5), finding("COM103", 0.5, device=1))) == 2


def idle(code: str, share: float, *parts: str) -> Finding:
    impact = Impact(part=parts[0], share=share, parts=None if parts == ("idle",) else parts)
    return finding(code, share).replaced(impact=impact)


@pytest.mark.parametrize(
    ("causes", "left"),
    [
        # two that hold it together, one that holds it to the digit
        ([idle("ALC101", 0.2, "alloc"), idle("SYN105", 0.11, "sync")], ["ALC101", "SYN105"]),
        ([idle("ALC101", 0.3, "alloc")], ["ALC101"]),
        # half of it, the same part twice, and time in which the device works
        ([idle("ALC101", 0.2, "alloc")], ["UTL100", "ALC101"]),
        ([idle("ALC101", 0.2, "alloc"), idle("ALC102", 0.2, "alloc")], ["UTL100", "ALC101", "ALC102"]),
        ([idle("XFR101", 0.3, "htod")], ["UTL100", "XFR101"]),
    ],
)
def test_idle_time_that_causes_hold_together(causes: list[Finding], left: list[str]) -> None:
    symptom = idle("UTL100", 0.32, "idle").replaced(kind="symptom")
    found = without_sums([symptom, *causes])
    assert [f.code for f in found] == left
    if "UTL100" not in left:
        assert [e.code for e in found[0].explains] == ["UTL100"]
