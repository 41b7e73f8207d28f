"""The last lines of a report: why rules were not judged, and the commands that lead on."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.knowledge.facts import shared
from advisor.model.findings import Diagnosis, NotEvaluated
from advisor.model.options import own_option
from advisor.reports import phrases
from advisor.reports.diagnosis_blocks import TextOptions
from advisor.reports.ending import checked, end
from tests.reports.fixture import DIAGNOSIS, HEALTHY, plain


def lacking(**kinds: int) -> Diagnosis:
    """A diagnosis with so many rules not judged for lack of each kind (its words with `_` between them)."""
    named = [(kind.replace("_", " "), f"{kind.upper()}{i:03}") for kind, n in kinds.items() for i in range(n)]
    entries = (NotEvaluated(code=code, cause="c", missing=("a.b",), lacks=kind) for kind, code in named)
    return with_entries(*entries)


def with_entries(*entries: NotEvaluated) -> Diagnosis:
    return HEALTHY.replaced(not_evaluated=entries)


def test_what_was_not_judged_is_told_by_its_kinds_most_frequent_first() -> None:
    kinds = {"no_GPU_metrics": 6, "no_host_trace": 9, "no_network_metrics": 2}
    text = checked(lacking(**kinds), 120)
    assert "17 not judged: no host trace (9), no GPU metrics (6), no network metrics (2). All: -v" in text
    assert "no host trace (9) and 8 more. " in checked(lacking(**kinds), 60)


def test_what_nothing_would_supply_is_only_counted() -> None:
    nothing = NotEvaluated(code="CAP112", cause="c", missing=("a.b",))
    assert "1 check in order, 1 not judged. All: -v" in checked(with_entries(nothing), 80)
    lacks = nothing.replaced(code="UTL101", lacks="no GPU metrics")
    assert " 2 not judged: no GPU metrics (1) and 1 more. " in checked(with_entries(nothing, lacks), 80)


def test_a_rule_that_another_finding_stopped_is_told_by_it() -> None:
    entry = NotEvaluated(code="LCH102", cause="c", missing=(), stopped_by="launch-bound")
    text = checked(with_entries(entry), 80)
    assert "1 not judged: stopped by launch-bound (1). " in text


def test_options_of_ours_are_given_to_advisor_and_those_of_nsys_to_nsys() -> None:
    assert phrases.remedy_text("--acceptance") == "give advisor --acceptance"
    assert phrases.remedy_text("--log server.log") == "give advisor --log server.log"
    assert phrases.remedy_text("--gpu-metrics-devices=all") == "capture with --gpu-metrics-devices=all"
    assert [flag for flag in shared().supplies if own_option(flag)] == [
        flag for flag in shared().supplies if flag.startswith(("--log", "--acceptance", "--weight-bytes"))
    ]


def test_each_rule_is_counted_once() -> None:
    entry = NotEvaluated(code="UTL101", cause="c", missing=("a.b",), lacks="no GPU metrics")
    assert "1 not judged: no GPU metrics (1). " in checked(with_entries(entry, entry, entry), 80)


@pytest.mark.parametrize("length", [5, 40, 300])
def test_the_counts_take_two_lines(length: int) -> None:
    kinds = {"no_GPU_metrics": length, "no_host_trace": 3}
    shown = plain(lacking(**kinds), TextOptions()).splitlines()
    at = next(i for i, line in enumerate(shown) if "not judged" in line)
    assert shown[at + 2].startswith("Next: ")


def whens(diagnosis: Diagnosis, **options: Any) -> list[str]:
    return [b.when for b in end(diagnosis, 80, **options) if hasattr(b, "when")]


def test_the_comparison_is_offered_where_a_fix_of_the_program_is() -> None:
    assert whens(DIAGNOSIS) == ["Next:", "Fixed?"]
    assert whens(DIAGNOSIS, verbosity=1) == ["Next:"]
    assert whens(HEALTHY) == ["Next:"]
    first = DIAGNOSIS.findings[0].replaced(code="CAP101")
    assert DIAGNOSIS.headline is not None
    headline = DIAGNOSIS.headline.replaced(code="CAP101")
    capture = DIAGNOSIS.replaced(findings=(first,), headline=headline)
    assert whens(capture) == ["Next:"]


def test_a_quiet_report_has_no_ending() -> None:
    shown = plain(DIAGNOSIS, TextOptions(verbosity=-1))
    assert "Next:" not in shown
    assert "--fail-on" not in shown
