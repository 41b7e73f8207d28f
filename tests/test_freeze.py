"""The comparison of two versions finds what differs, and calls nothing else a difference."""

from __future__ import annotations

import io
import os
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from openpyxl import Workbook

from advisor.cli.app import VERBS
from tests.docs.scripts import script

ROOT = Path(__file__).resolve().parents[1]
freeze = script("benchmarks/freeze.py")


def book(value: str, year: int) -> bytes:
    made, out = Workbook(), io.BytesIO()
    made.properties.created = datetime(year, 1, 1)
    made.active["B2"] = value
    made.save(out)
    return out.getvalue()


def test_each_output_counts() -> None:
    before = {"exit code": b"0", "stdout": b"same\nold\n", "a.json": b"{}"}
    after = {"exit code": b"1", "stdout": b"same\nnew\n", "b.json": b"{}"}
    assert dict(freeze.differences(before, after)) == {
        "a.json": ["written before only"],
        "b.json": ["written after only"],
        "exit code": ["-0", "+1"],
        "stdout": ["-old", "+new"],
    }
    assert list(freeze.differences(before, before)) == []


def test_a_line_end_counts() -> None:
    assert list(freeze.differences({"stdout": b"a\n"}, {"stdout": b"a"})) == [
        ("stdout", ["line ends differ"])
    ]


def test_cells_of_a_workbook_are_named_and_its_time_of_writing_is_not() -> None:
    first, later = book("x", 2001), book("x", 2002)
    assert first != later
    assert freeze.workbooks(first, later) == []
    (found,) = [line for line in freeze.workbooks(first, book("y", 2001)) if line.startswith("+")]
    assert found.startswith("+Sheet!B2: 'y'")


def test_every_verb_is_run() -> None:
    lines = [line.split() for line in (freeze.OF_A_CAPTURE + freeze.ONCE).splitlines() if line]
    assert {words[0] for words in lines} >= set(VERBS) - {"diagnose"}


def test_verbs_are_read_from_the_help() -> None:
    assert freeze.verbs("Usage: x\n\nVerbs:\n  list   One.\n  check  Two\n         lines.\n\n  End.\n") == [
        "list",
        "check",
    ]


def test_bytes_that_are_no_text_count() -> None:
    ((name, lines),) = freeze.differences({"x.sqlite": b"\xff\x00"}, {"x.sqlite": b"\xff\x01"})
    assert name == "x.sqlite"
    assert [line[:18] for line in lines] == ["-2 bytes, SHA-256 ", "+2 bytes, SHA-256 "]


def test_a_version_that_does_not_start_is_no_agreement(tmp_path: Path) -> None:
    (tmp_path / "old" / "advisor").mkdir(parents=True)
    (tmp_path / "old" / "advisor" / "__init__.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(SystemExit, match="does this version start"):
        freeze.main([str(tmp_path / "old"), str(tmp_path / "old"), "--only=--version", "--jobs", "1"])


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are copies of one")
def test_two_versions_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of this one and a copy that says another version, only that differs."""
    changed = tmp_path / "changed"
    for folder in ("advisor", "rules", "knowledge"):
        shutil.copytree(ROOT / folder, changed / folder, ignore=shutil.ignore_patterns("__pycache__"))
    start = changed / "advisor" / "__init__.py"
    text = start.read_text(encoding="utf-8")
    start.write_text(text.replace('__version__ = "', '__version__ = "9.'), encoding="utf-8")
    assert freeze.main([str(ROOT), str(changed), "--only=--version", "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    assert "once: advisor --version: stdout: 2 lines" in shown
    assert "1 command lines on 0 captures: 1 outputs differ" in shown
    assert "+advisor 9." in shown
