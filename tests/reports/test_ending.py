"""The last lines of a report: why rules were not judged, and the commands that lead on."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.model.findings import Diagnosis, NotEvaluated
from advisor.reports import phrases
from advisor.reports.diagnosis_blocks import TextOptions
from advisor.reports.ending import checked, end
from tests.reports.fixture import DIAGNOSIS, HEALTHY, plain


def lacking(**kinds: int) -> Diagnosis:
    """A diagnosis with so many rules not judged for lack of each kind (its words with `_` between them)."""
    named = [(kind.replace("_", " "), f"{kind.upper()}{i:03}") for kind, n in kinds.items() for i in range(n)]
    entries = (NotEvaluated(code=code, cause="c", missing=("a.b",), lacks=kind) for kind, code in named)
    return HEALTHY.model_copy(update={"not_evaluated": tuple(entries)})


def test_what_was_not_judged_is_told_by_its_kinds_most_frequent_first() -> None:
    kinds = {"no_GPU_metrics": 6, "no_host_trace": 9, "no_network_metrics": 2}
    text = checked(lacking(**kinds), 120)
    assert "17 not judged: no host trace (9), no GPU metrics (6), no network metrics (2). All: -v" in text
    assert "no host trace (9), other (8). " in checked(lacking(**kinds), 70)


def test_a_rule_that_another_finding_stopped_is_told_by_it() -> None:
    entry = NotEvaluated(code="LCH102", cause="c", missing=(), stopped_by="launch-bound")
    text = checked(HEALTHY.model_copy(update={"not_evaluated": (entry,)}), 80)
    assert "1 not judged: stopped by launch-bound (1). " in text


def test_each_rule_is_counted_once() -> None:
    twice = HEALTHY.model_copy(update={"not_evaluated": DIAGNOSIS.not_evaluated[:1] * 3})
    assert phrases.kinds_missing(twice).total() == 1


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
    first = DIAGNOSIS.findings[0].model_copy(update={"code": "CAP101"})
    assert DIAGNOSIS.headline is not None
    headline = DIAGNOSIS.headline.model_copy(update={"code": "CAP101"})
    capture = DIAGNOSIS.model_copy(update={"findings": (first,), "headline": headline})
    assert whens(capture) == ["Next:"]


def test_a_quiet_report_has_no_ending() -> None:
    shown = plain(DIAGNOSIS, TextOptions(verbosity=-1))
    assert "Next:" not in shown
    assert "--fail-on" not in shown
