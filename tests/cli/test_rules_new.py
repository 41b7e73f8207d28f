"""`advisor rules new`: a start that passes, and refusals in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.comparison.change_facts import EVERY_FACT
from advisor.engine.cases import new_rule, run_all
from advisor.engine.load import load_rules
from advisor.facts.catalog import CATALOGUE

NUMBERS = {s.unit: s for s in CATALOGUE.values() if s.unit not in ("text", "flag")}


def test_a_new_rule_passes_check_and_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rules", "new", "OWN101"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "rules/own/OWN101.yaml",
        "rules/own/OWN101.cases.yaml",
        "Next: advisor rules check rules/own; advisor rules test rules/own",
    ]
    assert main(["rules", "check", "rules/own"]) == 0
    out = capsys.readouterr().out
    written = "the text of `advisor rules new` stands here; write your own"
    assert [line.split(": ", 1)[1] for line in out.splitlines() if written in line] == [written] * 5
    assert "OWN101.yaml:20: the action change-found-by-own101 is not in knowledge/actions.yaml" in out
    assert "a cause without `impact` has the severity info: it will only be a note" in out
    assert out.endswith(" rules checked, no problem found, 8 remarks\n")
    assert main(["rules", "test", "rules/own"]) == 0
    assert main(["explain", "OWN101", "--rules", "rules/own"]) == 0


def test_check_names_the_table_that_was_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "new", "OWN101", "--into", str(tmp_path)]) == 0
    rule = tmp_path / "OWN101.yaml"
    rule.write_text(rule.read_text(encoding="utf-8") + "evidence: [launch.top_call]\n", encoding="utf-8")
    assert main(["rules", "check", str(tmp_path)]) == 2
    slip = "unknown evidence table or join launch.top_call; did you mean 'launch.top_calls'?"
    assert slip in capsys.readouterr().err


@pytest.mark.parametrize("unit", sorted(NUMBERS))
def test_it_begins_with_any_number(tmp_path: Path, unit: str) -> None:
    rule, cases = new_rule("OWN101", "own", NUMBERS[unit].name, NUMBERS[unit])
    (tmp_path / "OWN101.yaml").write_text(rule, encoding="utf-8")
    (tmp_path / "OWN101.cases.yaml").write_text(cases, encoding="utf-8")
    units = {name: spec.unit for name, spec in EVERY_FACT.items()}
    (run,) = run_all(load_rules(tmp_path), units=units)
    assert run.all_problems == []
    assert len(run.results) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["own1"], "invalid code 'own1'; expected three to eight capitals and three digits"),
        (["SYN101"], "SYN101 belongs to our rule SYN101"),
        (["OWN101", "--cause", "blocking-sync"], "blocking-sync belongs to our rule SYN101"),
        (["OWN101", "--cause", "Slow Ring"], "--cause: invalid value 'Slow Ring'"),
        (["OWN101", "--fact", "launch.idle_rati"], "did you mean 'launch.idle_ratio'?"),
        (
            ["OWN101", "--fact", "workload.kind"],
            "invalid value 'workload.kind'; expected a fact that is a number",
        ),
        (["OWN101", "--fact", "compare.slowdown_ratio"], "expected a fact that is a number of one trace"),
    ],
)
def test_what_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rules", "new", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rules", "new", "OWN101", "--into", "."]) == 0
    (tmp_path / "OWN101.yaml").write_text("mine", encoding="utf-8")
    assert main(["rules", "new", "OWN101", "--into", "."]) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "OWN101.yaml").read_text(encoding="utf-8") == "mine"
