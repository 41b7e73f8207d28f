"""What `rules check` remarks in a rule that is sound: nothing in ours, and each thing in one that has it."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine.cases import scaffold_texts
from advisor.engine.remarks import remarks, unnamed
from advisor.knowledge.engine_signs import recommendation_ids
from tests.engine.engine_support import ge, rule, rules
from tests.shipped import shipped_rules


def texts(**changes: Any) -> list[str]:
    one = rule("OWN101", "own", [ge("f.a", 1)], **changes)
    return [p.text for p in remarks(rules(one), {"listed"}, scaffold_texts())]


def test_our_rules_have_none() -> None:
    assert remarks(shipped_rules(), recommendation_ids(), scaffold_texts()) == []


IMPACT = {"fact": "f.a", "part": "sync"}


def test_a_cause_with_an_impact_has_none() -> None:
    assert texts(impact=IMPACT) == []


def test_a_cause_without_impact_is_only_a_note() -> None:
    assert ["it will only be a note" in t for t in texts()] == [True]


@pytest.mark.parametrize(
    "changes", [{"severity": {"cap": "info"}}, {"kind": "note"}, {"invalidates": True}], ids=str
)
def test_what_is_meant_to_be_one_is_no_remark(changes: dict[str, Any]) -> None:
    assert texts(**changes) == []


def test_texts_to_be_written() -> None:
    docs = {"what": "Say what the rule looks at.", "why": "It costs time.", "harmless_when": "It is short."}
    assert ["write your own" in t for t in texts(impact=IMPACT, docs=docs)] == [True]


@pytest.mark.parametrize(("action", "count"), [("listed", 0), ("mine-alone", 1)])
def test_actions_without_options(action: str, count: int) -> None:
    advice = [{"id": action, "action": "Do it.", "effort": "low"}]
    assert len(texts(impact=IMPACT, recommendations=advice)) == count


def test_a_share_of_nothing() -> None:
    assert unnamed("The GPU waits for {a.b_ratio|pct}. Copies take {a.c_ratio|pct} of the step.") == [
        "The GPU waits for {a.b_ratio|pct}."
    ]
    assert texts(impact=IMPACT, message="It waits {f.a|pct} of the step.") == []
    assert ["share without its whole" in t for t in texts(impact=IMPACT, message="It waits {f.a|pct}.")] == [
        True
    ]
