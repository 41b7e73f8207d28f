"""The last lines of a report: why rules were not judged, and the commands that lead on."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.facts import needs
from advisor.facts.catalog import CATALOGUE
from advisor.knowledge.engine_signs import engines
from advisor.model.findings import Diagnosis, NotEvaluated
from advisor.reports import phrases
from advisor.reports.diagnosis_blocks import TextOptions
from advisor.reports.ending import checked, end
from tests.reports.fixture import DIAGNOSIS, HEALTHY, plain


def lacking(**flags: int) -> Diagnosis:
    """A diagnosis with so many rules not judged for lack of what each flag supplies."""
    named = [(flag, f"{flag[:3].upper()}{i:03}") for flag, n in flags.items() for i in range(n)]
    entries = (NotEvaluated(code=code, cause="c", missing=("a.b",), flag=flag) for flag, code in named)
    return HEALTHY.model_copy(update={"not_evaluated": tuple(entries)})


def named(text: str) -> str:
    return phrases.kinds_missing(lacking(**{text: 1})).most_common(1)[0][0]


def supplied() -> set[str]:
    """All that can supply a fact."""
    known = {v for k, v in vars(needs).items() if k.isupper() and k[0] != "_" and isinstance(v, str)}
    known -= {needs.NOT_IN_SUMS}
    asked = [need for f in CATALOGUE.values() for need in f.needs]
    known |= {need.supply for need in asked if need.supply}
    known |= {f.supply or f.flag for f in CATALOGUE.values()} - {"", None}
    switches = [v for e in engines().values() for v in e.capture if v.supplies]
    kinds = {need.switch for need in asked}
    known |= {f"{v.variable}={v.value}" for v in switches if kinds & set(v.supplies)}
    return {text for text in known if text}


@pytest.mark.parametrize("text", sorted(supplied()))
def test_all_that_can_supply_a_fact_has_a_kind_in_words(text: str) -> None:
    assert named(text) != phrases.OTHER


def test_the_first_thing_that_is_missing_is_named() -> None:
    assert named("--gpu-metrics-devices=all and GPU work in the captured process") == "no GPU work"
    assert named("--gpu-metrics-devices=all --gpu-metrics-frequency=100000") == "GPU metrics too coarse"
    assert named("nsys profile --trace=cuda,nvtx,osrt") == "no host trace"


def test_what_was_not_judged_is_told_by_its_kinds_most_frequent_first() -> None:
    flags = {"--gpu-metrics-devices=all": 6, "--trace=cuda,nvtx,osrt": 9, "--nic-metrics=lf": 2}
    text = checked(lacking(**flags), 120)
    assert "17 not judged: no host trace (9), no GPU metrics (6), no network metrics (2). All: -v" in text
    assert "no host trace (9), other (8). " in checked(lacking(**flags), 70)


def test_a_rule_that_another_finding_stopped_is_told_by_it() -> None:
    entry = NotEvaluated(code="LCH102", cause="c", missing=(), stopped_by="launch-bound")
    text = checked(HEALTHY.model_copy(update={"not_evaluated": (entry,)}), 80)
    assert "1 not judged: stopped by launch-bound (1). " in text


def test_each_rule_is_counted_once() -> None:
    twice = HEALTHY.model_copy(update={"not_evaluated": DIAGNOSIS.not_evaluated[:1] * 3})
    assert phrases.kinds_missing(twice).total() == 1


@pytest.mark.parametrize("length", [5, 40, 300])
def test_the_counts_take_two_lines(length: int) -> None:
    flags = {"--gpu-metrics-devices=all": length, "--trace=cuda,nvtx,osrt": 3}
    shown = plain(lacking(**flags), TextOptions()).splitlines()
    at = next(i for i, line in enumerate(shown) if "not judged" in line)
    assert shown[at + 2].startswith("Next: ")


def whens(diagnosis: Diagnosis, **options: Any) -> list[str]:
    return [b.when for b in end(diagnosis, 80, **options) if hasattr(b, "when")]


def test_the_comparison_is_offered_where_a_fix_of_the_program_is() -> None:
    assert whens(DIAGNOSIS) == ["Next:", "Fixed?"]
    assert whens(DIAGNOSIS, verbosity=1) == ["Next:"]
    assert whens(HEALTHY) == ["Next:"]
    first = DIAGNOSIS.findings[0].model_copy(update={"code": "CAP101"})
    assert DIAGNOSIS.headline is not None
    headline = DIAGNOSIS.headline.model_copy(update={"code": "CAP101"})
    capture = DIAGNOSIS.model_copy(update={"findings": (first,), "headline": headline})
    assert whens(capture) == ["Next:"]


def test_a_quiet_report_has_no_ending() -> None:
    shown = plain(DIAGNOSIS, TextOptions(verbosity=-1))
    assert "Next:" not in shown
    assert "--fail-on" not in shown
