"""What the shell completes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.cli.completion import VARIABLE
from advisor.cli.main import main
from tests.builder import Export

Completed = Callable[[str], list[str]]


@pytest.fixture
def completed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Completed:
    """What bash would offer for the last word of a line, in an empty folder; `file` where it completes
    names of files. `test_process.py` asks as a shell does, in a process of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "bash_complete")

    def asked(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        main([])
        told = capsys.readouterr()
        assert told.err == ""
        offered = [answer.partition(",") for answer in told.out.splitlines() if answer]
        return [kind if kind == "file" else value for kind, _, value in offered]

    return asked


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("advisor explain LCH101", "LCH101"),
        ("advisor show a.sqlite launch-b", "launch-bound"),
        ("advisor whatif a.sqlite --fix cuda_g", "cuda_graphs"),
        ("advisor capture --engine vl", "vllm"),
        ("advisor diagnose a.sqlite --nvtx dec", "decode_step"),
        ("advisor diagnose a.sqlite --select LCH101,SYN10", "LCH101,SYN101"),
        ("advisor diagnose absent.sqlite --nvtx dec", None),
        ("advisor a.sqlite --nvtx dec", "decode_step"),
        ("advisor a.sqlite --format j", "json"),
        ("advisor diagnose a.sqlite --forc", "--force"),
        ("advisor ex", "explain"),
        ("advisor rules che", "check"),
        ("advisor --inst", "--install-completion"),
        ("advisor stats --timeunit u", "usec"),
    ],
)
def test_values(tmp_path: Path, completed: Completed, line: str, offered: str | None) -> None:
    Export().process(1).range("decode_step", 0, 90_000).launch(at=10_000).write(tmp_path / "a.sqlite")
    found = completed(line)
    assert (offered in found) if offered else not found
    assert all(word.startswith(line.split()[-1]) for word in found if word != "file")


@pytest.mark.parametrize(
    "line", ["advisor ./", "advisor diagnose ./", "advisor stats a.sqlite -o r", "advisor compare --before b"]
)
def test_names_of_files_are_left_to_the_shell(completed: Completed, line: str) -> None:
    assert completed(line) == ["file"]


@pytest.mark.parametrize(
    ("shell", "file", "loader"),
    [
        ("bash", ".bash_completions/advisor.sh", ".bashrc"),
        ("zsh", ".zfunc/_advisor", ".zshrc"),
        ("fish", ".config/fish/completions/advisor.fish", None),
    ],
)
def test_installing_writes_the_script_that_is_shown(
    shell: str,
    file: str,
    loader: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    if loader:
        (tmp_path / loader).write_text("# mine\n")
    assert main(["--show-completion"]) == 0
    script = capsys.readouterr().out
    assert "_ADVISOR_COMPLETE" in script
    for _ in range(2):
        assert main(["--install-completion"]) == 0
        assert str(tmp_path / file) in capsys.readouterr().out
    assert (tmp_path / file).read_text().rstrip() == script.rstrip()
    if loader:
        first, *added = (tmp_path / loader).read_text().splitlines()
        assert (first, len([line for line in added if line])) == ("# mine", 1)


def test_a_shell_without_completion_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["--install-completion"]) == 2
    assert capsys.readouterr().err == (
        "advisor: error: SHELL=/bin/tcsh: no completion for this shell; expected bash, zsh, fish\n"
    )
