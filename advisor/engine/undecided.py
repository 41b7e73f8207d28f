"""Facts that part of the capture leaves open are unknown where that part could turn a verdict."""

from __future__ import annotations

from collections import defaultdict

from advisor.engine.compile import Program, Test
from advisor.engine.values import atom
from advisor.model.facts import FactBase

#: Where no rule compares a share with a threshold: what is not known may be no larger than what
#: is, above this share (the least other time that rules call notable, calibration#krn111).
NOTABLE = 0.05


def take_out_undecided(facts: FactBase, program: Program) -> None:
    """Make unknown what lies between a least and a most value of which a condition in force holds
    for one and not for the other."""
    tests: dict[str, list[Test]] = defaultdict(list)
    for rule in program.by_code.values():
        for test in rule.tests():
            tests[test.fact].append(test)
    for (name, scope), (least, most) in facts.ranges.items():
        low, high = atom(least), atom(most)
        if any(test.holds(low) != test.holds(high) for test in tests[name]) or (
            not tests[name] and most - least > max(least, NOTABLE)
        ):
            why = (
                f"kernels that no entry of knowledge/kernel_families.yaml names hold "
                f"{most - least:.0%} of the time, enough to change the verdict"
            )
            facts.take_out(name, scope, why)
