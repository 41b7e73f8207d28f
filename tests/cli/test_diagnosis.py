"""What `advisor diagnose` is asked for, and what a short one imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.config import Settings
from advisor.pipeline.inputs import Capture, Given

CAPTURE = Path(__file__).parents[2] / "examples" / "captures" / "decode_graph_opaque.sqlite.xz"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What is to be diagnosed and how, instead of the diagnosis."""
    calls: list[Any] = []

    def report(*given: Any, words: Any) -> int:
        calls.append(given)
        assert words
        return 1

    monkeypatch.setattr("advisor.cli.diagnosis.report", report)
    monkeypatch.chdir(tmp_path)
    for name in ("a.sqlite", "b.sqlite", "-c.sqlite"):
        (tmp_path / name).touch()
    return calls


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("a.sqlite", {}),
        ("a.sqlite -q --top 3", {"quiet": True, "top": 3}),
        ("-qoout.json a.sqlite --format=json", {"quiet": True, "output": Path("out.json"), "format": "json"}),
        ("--output-format json a.sqlite", {"format": "json"}),
        (
            "a.sqlite --select SYN,LCH --select KRN --ignore CAP",
            {"select": ("SYN,LCH", "KRN"), "ignore": ("CAP",)},
        ),
        (
            "a.sqlite --window 5s/7s --phase decode --weight-bytes 16e9 --sensitivity",
            {"window": "5s/7s", "phase": "decode", "weight_bytes": "16e9", "sensitivity": True},
        ),
        (
            "a.sqlite --rules a --param SYN101.min_idle=0.1 --param LCH101.x=y=z",
            {"rules": (Path("a"),), "params": ("SYN101.min_idle=0.1", "LCH101.x=y=z")},
        ),
        (
            "a.sqlite --html page.html --xlsx book.xlsx --force --jobs 0 --fail-on high",
            {"html": Path("page.html"), "xlsx": Path("book.xlsx"), "force": True, "fail_on": "high"},
        ),
        ("a.sqlite --top 3 --top 4", {"top": 4}),
        ("--gpu-metrics smi.csv a.sqlite", {"gpu_metrics": Path("smi.csv")}),
    ],
)
def test_a_line_with_and_without_the_verb(line: str, settings: dict[str, Any], asked: list[Any]) -> None:
    words = line.split()
    assert main(words) == main(["diagnose", *words]) == 1
    assert asked[0] == asked[1] == (Given((Capture(Path("a.sqlite")),)), Settings(**settings), None)


def test_several_captures_and_a_name_that_begins_with_a_dash(asked: list[Any]) -> None:
    assert main(["a.sqlite", "--", "-c.sqlite", "b.sqlite"]) == 1
    assert asked[0][0].paths == [Path("a.sqlite"), Path("-c.sqlite"), Path("b.sqlite")]


def test_a_review_is_passed_on(asked: list[Any]) -> None:
    assert main(["a.sqlite", "--review", "b.json", "--xlsx", "c.xlsx"]) == 1
    assert asked[0][2] == Path("b.json")


@pytest.mark.parametrize("line", ["", "--help", "explain SYN101", "dignose a.sqlite", "a.sqlite --top"])
def test_other_lines_diagnose_nothing(line: str, asked: list[Any]) -> None:
    main(line.split())
    assert asked == []


def test_a_diagnosis_as_text_imports_only_what_it_needs() -> None:
    script = (
        "import sys\n"
        "from advisor.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print(*sorted({'pandas', 'rich.text', 'numpy.ma'} & set(sys.modules)),"
        " file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(CAPTURE)], capture_output=True, check=True, text=True
    )
    assert done.stderr.splitlines() == [""]
