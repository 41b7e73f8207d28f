"""`advisor checklist` without a person: formats, files, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from openpyxl import load_workbook

from tests.cli.conftest import Run

Captured = pytest.CaptureFixture[str]


def test_list_asks_nothing_and_writes_nothing(run: Run, capsys: Captured, tmp_path: Path) -> None:
    assert run("checklist", "--list", "-v") == 0
    shown = capsys.readouterr().out
    assert "Before the capture  0 of 13 answered" in shown
    assert "id        representative-workload" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]


def test_a_capture_answers_with_its_numbers(run: Run, capsys: Captured) -> None:
    assert run("checklist", "a.sqlite", "--no-input") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Was launch overhead analysed? yes, by the capture (55.3 % of the window waits" in shown
    assert "Were CPU bottlenecks looked for" in shown


def test_markdown_and_json(run: Run, capsys: Captured, tmp_path: Path) -> None:
    assert run("checklist", "a.sqlite", "--no-input", "--format", "markdown") == 0
    shown = capsys.readouterr().out
    assert "- [x] Was launch overhead analysed?\n  - yes, by the capture (55.3 % of the window" in shown
    assert "- [ ] Was SM and tensor core utilisation analysed?\n  - no" in shown
    assert "  - **command**: advisor '/data/captures/2026-11-20/decode" in shown
    assert run("checklist", "--no-input", "--format", "json", "-o", "c.json") == 0
    entries = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["entries"]
    assert {e["answer"] for e in entries} == {None}
    assert run("checklist", "--no-input", "--format", "json", "-o", "c.json") == 2
    assert "add --force" in capsys.readouterr().err


def test_into_the_workbook_with_and_without_a_capture(run: Run, tmp_path: Path) -> None:
    (tmp_path / "answers.yaml").write_text("load-levels: {answer: no, note: one only}\n")
    args = ("--no-input", "--answers", "answers.yaml")
    assert run("checklist", "a.sqlite", *args, "--xlsx", "full.xlsx") == 0
    assert "Findings" in load_workbook(tmp_path / "full.xlsx").sheetnames
    assert run("checklist", *args, "--xlsx", "bare.xlsx") == 0
    book = load_workbook(tmp_path / "bare.xlsx")
    assert book.sheetnames == ["Summary", "Checklist"]
    rows = {row[11]: row for row in book["Checklist"].iter_rows(values_only=True) if row[11]}
    assert (rows["load-levels"][3], rows["load-levels"][5]) == ("no", "one only")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--no-input", "--format", "sarif"), "expected one of text, json, markdown, html"),
        (("--no-input", "--serving-engine", "vlm"), "unknown engine 'vlm'"),
        (("--no-input", "--answers", "missing.yaml"), "missing.yaml: no such file"),
        (("--no-input", "--resume"), "no such session"),
        (("--no-input", "-o", "x", "--xlsx", "x"), "both name x"),
        (("--no-input", "missing.sqlite"), "missing.sqlite: no such file"),
        ((), "no terminal; add --no-input"),
    ],
)
def test_refusals_are_one_line(run: Run, capsys: Captured, args: tuple[str, ...], says: str) -> None:
    assert run("checklist", *args) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_a_session_is_not_lost_by_accident(run: Run, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "answers.yaml").write_text("load-levels: yes\n")
    args = ("--no-input", "--session", "s")
    assert run("checklist", *args, "--answers", "answers.yaml") == 0
    capsys.readouterr()
    assert run("checklist", *args) == 2
    assert "add --resume to go on, or --force to start over" in capsys.readouterr().err
    assert run("checklist", *args, "--resume", "--format", "json") == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert next(e for e in entries if e["id"] == "load-levels")["answer"] == "yes"
    assert run("checklist", *args, "--force", "--format", "json") == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert next(e for e in entries if e["id"] == "load-levels")["answer"] is None


def test_force_replaces_nothing_but_a_session(run: Run, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "notes.yaml").write_text("mine: yes\n")
    assert run("checklist", "--no-input", "--session", "notes.yaml", "--force") == 2
    assert "notes.yaml: not a session of advisor checklist" in capsys.readouterr().err
    assert (tmp_path / "notes.yaml").read_text() == "mine: yes\n"
