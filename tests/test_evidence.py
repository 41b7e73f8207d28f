"""What stands behind each rule: captures and scenes that are there, and a preview where there is nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from advisor.knowledge.files import evidence
from advisor.model.rules import RuleSpec
from tests.captures import SHARED
from tests.fired import Fired, missing
from tests.shipped import shipped_rules

ROOT = Path(__file__).resolve().parents[1]
RULES = [r for r in shipped_rules().active if r.kind != "question"]


def test_a_rule_is_a_preview_where_nothing_shows_it() -> None:
    assert [r.code for r in RULES if (r.lifecycle == "preview") != (r.shown_by is None)] == []


def test_most_rules_are_shown_by_something() -> None:
    assert sum(r.shown_by is None for r in RULES) < len(RULES) / 5


def _scenes(rule: RuleSpec) -> list[str]:
    return [n for s in (rule.shown_by.scenes if rule.shown_by else ()) for n in (s.cause, s.partner)]


def test_scenes_are_tests() -> None:
    tests: dict[str, set[str]] = {}
    for name in {n for rule in RULES for n in _scenes(rule)}:
        path, _, function = name.partition("::")
        if path not in tests:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            tests[path] = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert function.partition("[")[0] in tests[path], name


def test_nothing_is_recorded_that_no_rule_names() -> None:
    named = {n for r in RULES for n in _scenes(r)}
    named |= {c for r in RULES for c in (r.shown_by.captures if r.shown_by else ())}
    named |= {c for r in RULES for p in r.params.values() for c in p.captures}
    assert {*evidence().fires, *evidence().quiet} <= named


@pytest.mark.skipif(not (SHARED / "labels.yaml").is_file(), reason="needs the labelled captures")
def test_captures_are_labelled() -> None:
    labels = yaml.safe_load((SHARED / "labels.yaml").read_text(encoding="utf-8"))
    known = {f"{section}/{name}" for section, entries in labels.items() for name in entries}
    assert {n for n in evidence().fires if "::" not in n} <= known


def test_what_does_not_show_a_rule_is_named() -> None:
    seen = Fired()
    seen.params["A"], seen.quiet = {"least"}, {"B"}
    assert missing("here", seen, ("A",), ("B",)) == []
    assert missing("here", seen, ("B",), ("A",)) == ["B does not fire in here", "A is not quiet in here"]
