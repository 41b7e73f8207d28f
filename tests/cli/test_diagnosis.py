"""Command lines that are read without typer mean what they mean with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.app import run_verb
from advisor.cli.diagnosis import run_plain

CAPTURE = Path(__file__).parents[2] / "examples" / "captures" / "decode_graph_opaque.sqlite.xz"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What is to be diagnosed and how, instead of the diagnosis."""
    calls: list[Any] = []

    def report(*given: Any) -> int:
        calls.append(given)
        return 1

    monkeypatch.setattr("advisor.cli.diagnosis.report", report)
    monkeypatch.chdir(tmp_path)
    for name in ("a.sqlite", "b.sqlite"):
        (tmp_path / name).touch()
    return calls


@pytest.mark.parametrize(
    "line",
    [
        "a.sqlite",
        "diagnose a.sqlite",
        "diagnose a.sqlite b.sqlite -v",
        "a.sqlite -q --top 3",
        "a.sqlite --format=json -o out.json",
        "--output-format json a.sqlite",
        "a.sqlite --select SYN,LCH --select KRN --ignore CAP",
        "a.sqlite --window 5s/7s --phase decode --weight-bytes 16e9 --sensitivity",
        "a.sqlite --rules a.sqlite --param SYN101.min_idle=0.1 --param LCH101.x=y=z",
        "a.sqlite --html page.html --xlsx book.xlsx --force --jobs 0 --fail-on high",
        "a.sqlite --top 3 --top 4",
    ],
)
def test_a_line_means_the_same_with_and_without_typer(line: str, asked: list[Any]) -> None:
    words = line.split()
    assert run_plain(words) == run_verb(words) == 1
    assert asked[0] == asked[1]


@pytest.mark.parametrize(
    "line",
    [
        "", "--help", "explain SYN101", "demo", "dignose a.sqlite", "a.sqlite --help", "a.sqlite --unknown",
        "a.sqlite --top", "a.sqlite --top x", "a.sqlite --top=-1", "a.sqlite -oout.json", "a.sqlite -qv",
        "a.sqlite --format -q", "a.sqlite --quiet=1", "a.sqlite -- b.sqlite", "a.sqlite --forma json",
        "a.sqlite --review b.json --xlsx c.xlsx",
    ],
)  # fmt: skip
def test_any_other_line_is_left_to_typer(line: str, asked: list[Any]) -> None:
    assert run_plain(line.split()) is None
    assert asked == []


def test_completion_is_left_to_typer(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ADVISOR_COMPLETE", "complete_bash")
    assert run_plain(["a.sqlite"]) is None
    assert asked == []


def test_a_diagnosis_as_text_needs_neither_typer_nor_pydantic(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from advisor.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print(*sorted({'typer', 'pydantic', 'yaml', 'pandas', 'rich.text', 'numpy.ma'} & set(sys.modules)),"
        " file=sys.stderr)\n"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(2):  # the first run fills the cache
        done = subprocess.run(
            [sys.executable, "-c", script, str(CAPTURE)], env=env, capture_output=True, check=True, text=True
        )
    assert done.stderr.splitlines() == [""]
