"""The cases pin the rules down: a rule that is changed a little fails one of its cases."""

from __future__ import annotations

import pytest

from tests.docs.scripts import script
from tests.shipped import shipped_rules

WANTED = 0.98


@pytest.mark.slow
def test_cases_notice_changes_of_their_rules() -> None:
    results = list(script("benchmarks/mutation.py").Bench(shipped_rules()).results())
    survivors = [str(r.mutant) for r in results if not r.killed]
    assert len(results) > 700
    assert 1 - len(survivors) / len(results) > WANTED, "\n".join(survivors)


def test_a_rule_without_a_case_at_its_threshold_is_found_out() -> None:
    """The check itself can fail: without the cases near a threshold, moving it goes unnoticed."""
    bench = script("benchmarks/mutation.py").Bench(shipped_rules())
    bench.cases = {"UTL100": tuple(c for c in bench.cases["UTL100"] if "threshold" not in c.name)}
    survived = [r.mutant.change for r in bench.results() if not r.killed]
    assert any(change.startswith("up to") for change in survived)
    assert "strict" in survived


def test_an_unknown_code_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        script("benchmarks/mutation.py").main(["UTL100", "NOPE999"])
    assert stopped.value.code == 2
    assert "no rule with cases has the code NOPE999" in capsys.readouterr().err
