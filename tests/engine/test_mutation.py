"""The cases pin the rules down: a rule that is changed a little fails one of its cases."""

from __future__ import annotations

from advisor.engine.load import load_rules
from tests.docs.scripts import script

WANTED = 0.98


def test_cases_notice_changes_of_their_rules() -> None:
    results = list(script("benchmarks/mutation.py").Bench(load_rules()).results())
    survivors = [str(r.mutant) for r in results if not r.killed]
    assert len(results) > 700
    assert 1 - len(survivors) / len(results) > WANTED, "\n".join(survivors)


def test_a_rule_without_a_case_at_its_threshold_is_found_out() -> None:
    """The check itself can fail: without the cases near a threshold, moving it goes unnoticed."""
    bench = script("benchmarks/mutation.py").Bench(load_rules())
    bench.cases = {"UTL100": tuple(c for c in bench.cases["UTL100"] if "threshold" not in c.name)}
    survived = [r.mutant.change for r in bench.results() if not r.killed]
    assert any(change.startswith("up to") for change in survived)
    assert "strict" in survived
