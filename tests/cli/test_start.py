"""What happens before a verb runs: Ctrl-C and too little memory while modules load."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from advisor import __main__ as start
from advisor.cli import main as entry
from advisor.reading import READING


class _Refuses:
    """A finder of modules that raises instead of loading the command line."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def find_spec(self, name: str, *_: object) -> None:
        if name == "advisor.cli.main":
            raise self.error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(KeyboardInterrupt(), 130, "interrupted"), (MemoryError(), 2, "not enough memory")],
)
def test_what_stops_the_modules_from_loading_is_one_line(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delitem(sys.modules, "advisor.cli.main")
    monkeypatch.setattr(sys, "meta_path", [_Refuses(error), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        start.run()
    assert ended.value.code == code
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_too_little_memory_is_no_bug_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(entry, "_run", full)
    monkeypatch.setattr(READING, "path", None)
    assert entry.main(["t.sqlite"]) == 2
    told = capsys.readouterr().err
    assert "not enough memory for what was read" in told
    assert "report it" not in told
    assert told.count("\n") == 1


def test_too_little_memory_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    path = tmp_path / "t.txt"
    path.write_text("text")
    monkeypatch.setattr("advisor.sources.pasted.any_text.as_text", full)
    assert entry.main(["facts", str(path)]) == 2
    assert f"not enough memory for {path};" in capsys.readouterr().err


def test_messages_about_long_arguments_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["facts", "(" * 100_000]) == 2
    told = capsys.readouterr().err
    assert told.startswith("advisor: error: ((((")
    assert " characters] ((((" in told
    assert len(told) < 2_100
