"""A value of which a part is unknown is taken out only where that part could change a verdict."""

from __future__ import annotations

import pytest

from advisor.engine.compile import compile_rules
from advisor.engine.infer import take_out_undecided
from tests.engine.engine_support import DEV, base, ge, rule, rules

RULE = rule("ABC100", "c", [ge("f.a", 0.1)])


@pytest.mark.parametrize(
    ("name", "least", "most", "kept"),
    [
        ("f.a", 0.05, 0.09, True),  # below the threshold at either end
        ("f.a", 0.05, 0.1, False),
        ("f.a", 0.1, 0.9, True),
        ("f.b", 0.01, 0.06, True),  # compared by no rule: notable from 5 % on,
        ("f.b", 0.01, 0.061, False),
        ("f.b", 0.4, 0.8, True),  # and more than is known
        ("f.b", 0.4, 0.81, False),
    ],
)
def test_what_the_unknown_part_could_change(name: str, least: float, most: float, kept: bool) -> None:
    facts = base({name: least})
    facts.ranges[name, DEV] = least, most
    take_out_undecided(facts, compile_rules(rules(RULE)))
    assert (facts.value(name, DEV) == least) is kept
    if not kept:
        assert facts.missing[name].endswith("of the time, enough to change the verdict")
