from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from advisor.config import Settings
from tests.cli import driver
from tests.cli.conftest import RULES, Run

Captured = pytest.CaptureFixture[str]


def test_explain(run: Run, capsys: Captured) -> None:
    assert run("explain", "tst901", "--rules", RULES) == 0
    shown = capsys.readouterr().out
    for part in (
        "TST901 sample-rule",
        "[red]launches[/red]",
        "Why it matters",
        "Harmless when",
        "launch.idle_ratio >= 5 % (min_idle)",
        "host.step_max_over_median > 2.50 x (max_over)",
        "capture.overhead_idle_ratio > 20 %",
        "Capture the step as a CUDA graph (effort low)",
        "verify: `launch.idle_ratio` falls",
        "judged      calibration#tst901",
        "--trace=cuda,nvtx",
    ):
        assert part in shown, part
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_explain_suggests_the_nearest_code(run: Run, capsys: Captured) -> None:
    assert run("explain", "TST902", "--rules", RULES) == 2
    err = capsys.readouterr().err
    assert err.startswith("advisor: error: ")
    assert "TST901" in err


def test_explain_finds_words_of_titles(run: Run, capsys: Captured) -> None:
    assert run("explain") == 0
    assert "\n  TST901  sample-rule" in capsys.readouterr().out
    assert run("explain", "command rul") == 0  # words begin like that
    assert capsys.readouterr().out.startswith("TST901 sample-rule\nA rule")
    assert run("explain", "tests") == 0
    codes = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:5].strip()]
    assert codes == ["code", "TST900", "TST901"]
    assert run("explain", "tests", "--format", "json") == 0
    assert [rule["code"] for rule in json.loads(capsys.readouterr().out)] == codes[1:]
    assert run("explain", "--trace", "a.sqlite") == 2
    assert "--trace needs a CODE; 'advisor explain' lists them" in capsys.readouterr().err


def test_facts_lists_the_catalogue(run: Run, capsys: Captured) -> None:
    assert run("facts", "--match", "launch.idle_ratio") == 0
    shown = capsys.readouterr().out
    assert "launch.idle_ratio" in shown
    assert "1 fact\n" in shown


def test_facts_of_a_capture(run: Run, capsys: Captured) -> None:
    assert run("facts", "a.sqlite") == 0
    assert "launch.idle_ratio: 55.3 % device 0" in capsys.readouterr().out


def test_facts_take_the_choices_of_a_diagnosis(run: Run, capsys: Captured) -> None:
    options = "--window 5s/7s --nvtx step --phase decode --weight-bytes 16e9"
    assert run("facts", "a.sqlite", *options.split()) == 0
    assert driver.CALLS[0][1] == Settings("5s/7s", "step", "decode", "16e9")
    capsys.readouterr()
    assert run("facts", "--phase", "decode") == 2
    assert capsys.readouterr().err == "advisor: error: --phase needs a TRACE\n"


def test_rules_list(run: Run, capsys: Captured) -> None:
    assert run("rules", "list", "--rules", RULES) == 0
    assert "TST901" in capsys.readouterr().out


def test_rules_check_and_test(run: Run, capsys: Captured) -> None:
    assert run("rules", "check") == 0
    assert run("rules", "test") == 0
    assert run("rules", "test", "--engine", "clips") == 2
    out, err = capsys.readouterr()
    last = ["2 rules checked, no problem found, 2 remarks", "6 cases of 1 rule passed"]
    assert out.splitlines()[-2:] == last
    assert "--engine: invalid value 'clips'; expected one of" in err


def test_all_problems_of_rule_files_come_at_once_with_file_and_line(
    run: Run, capsys: Captured, tmp_path: Path
) -> None:
    text = (RULES / "TST" / "TST901.yaml").read_text(encoding="utf-8")
    mine = tmp_path / "mine"
    mine.mkdir()
    for code, old, new in (
        ("TST911", "fact: launch.idle_ratio", "fact: launch.idel_ratio"),
        ("TST912", "scope: device", "scope: galaxy"),
    ):
        changed = text.replace("TST901", code).replace("sample-rule", f"sample-{code.lower()}")
        (mine / f"{code}.yaml").write_text(changed.replace(old, new), encoding="utf-8")
    assert run("rules", "check", mine) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"advisor: error: {len(lines) - 1} problems"
    assert all(line.startswith(str(mine)) for line in lines[1:])
    assert any("TST911.yaml:14: " in line and "launch.idle_ratio" in line for line in lines)
    assert any("TST912.yaml:6: " in line for line in lines)


def test_a_case_that_fails_names_its_line(run: Run, capsys: Captured, tmp_path: Path) -> None:
    shutil.copytree(RULES / "TST", tmp_path / "TST")
    cases = tmp_path / "TST" / "TST901.cases.yaml"
    text = cases.read_text(encoding="utf-8")
    cases.write_text(text.replace("{launch.idle_ratio: 0.05}", "{launch.idle_ratio: 0.04}"))
    assert run("rules", "test", tmp_path) == 2
    assert f"{cases}:6: " in capsys.readouterr().err


def test_rules_schema(run: Run, capsys: Captured) -> None:
    assert run("rules", "schema") == 0
    assert "recommendations" in json.loads(capsys.readouterr().out)["properties"]


def test_rules_docs(run: Run, capsys: Captured, tmp_path: Path) -> None:
    page = tmp_path / "rules.md"
    assert run("rules", "docs", "--rules", RULES, "-o", page) == 0
    assert "## TST901 sample-rule" in page.read_text(encoding="utf-8")
    assert run("rules", "docs", "--rules", RULES, "-o", page) == 2
    assert "add --force" in capsys.readouterr().err


def test_rules_without_a_verb_shows_its_help(run: Run, capsys: Captured) -> None:
    assert run("rules") == 2
    assert "Usage: advisor rules" in capsys.readouterr().err
