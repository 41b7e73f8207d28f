"""Terminal and Markdown explain a rule alike."""

from __future__ import annotations

import pytest

from advisor.model.rules import RuleSpec
from advisor.reports import markdown, text
from advisor.reports.layout import Page
from advisor.reports.rule_blocks import condition_line, explain
from advisor.reports.rule_blocks import page as blocks
from tests.for_each import for_each
from tests.shipped import shipped_rules

RULES = {r.code: r for r in shipped_rules().active}


def terminal(rule: RuleSpec) -> str:
    made = Page(width=10_000)
    text.write(made, explain(rule, {}))
    return "\n".join(line.plain for line in made.lines)


def page(rule: RuleSpec) -> str:
    return markdown.write(blocks(rule, {}))


@pytest.mark.parametrize(
    ("code", "where"), [("CAP101", "judged for the capture as a whole"), ("SYN101", "judged for each device")]
)
def test_what_a_rule_is_judged_for(code: str, where: str) -> None:
    assert where in terminal(RULES[code])
    assert where in page(RULES[code])


@for_each(RULES)
def test_guards_that_pass_where_unknown_are_marked(code: str) -> None:
    passing = [g for g in RULES[code].unless if g.if_unknown]
    for shown in (terminal(RULES[code]), page(RULES[code])):
        assert shown.count("(passes where that is unknown)") == len(passing)


@for_each([c for c, r in RULES.items() if r.requires])
def test_what_comes_first_is_said_with_its_reason(code: str) -> None:
    for first in RULES[code].requires:
        for shown in (terminal(RULES[code]), page(RULES[code])):
            assert f"irst {first.cause}, where it was found: {first.because}" in shown


@for_each([c for c, r in RULES.items() if any(a.applies_when for a in r.recommendations)])
def test_advice_for_some_captures_says_for_which(code: str) -> None:
    rule = RULES[code]
    for advice in rule.recommendations:
        only = [f"`{condition_line(c, rule)}`" for c in advice.applies_when]
        if only:
            assert f", where {' and '.join(only)})" in terminal(rule)
            assert f", where {' and '.join(only)})" in page(rule)
