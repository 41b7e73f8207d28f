from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.config import Settings, settle
from advisor.errors import InputError
from tests.cli import driver
from tests.cli.conftest import Run


def settled(folder: Path, text: str, name: str = "advisor.toml", **flags: Any) -> Settings:
    (folder / name).write_text(text, encoding="utf-8")
    return settle(flags, folder)


def test_without_files_the_defaults_hold(tmp_path: Path) -> None:
    assert settle({}, tmp_path) == Settings()


def test_pyproject_then_advisor_toml_then_flags(tmp_path: Path) -> None:
    project = "[tool.advisor]\ntop = 1\nphase = 'decode'\nengine = 'python'\n[tool.other]\nx = 1\n"
    (tmp_path / "pyproject.toml").write_text(project)
    got = settled(tmp_path, "top = 2\nfail-on = 'low'\n", engine="durable", top=None, select=[])
    assert got == Settings(top=2, phase="decode", engine="durable", fail_on="low")


def test_advisor_toml_may_be_written_like_pyproject(tmp_path: Path) -> None:
    assert settled(tmp_path, "[tool.advisor]\ntop = 2\n") == Settings(top=2)


def test_lists_and_params(tmp_path: Path) -> None:
    got = settled(tmp_path, "select = 'SYN'\nrules = ['a', 'b']\n[param]\nSYN101.min_idle = 0.1\n")
    assert got == Settings(select=("SYN",), rules=(Path("a"), Path("b")), params=("SYN101.min_idle=0.1",))
    assert settled(tmp_path, "param = ['A.b=1']").params == ("A.b=1",)


def test_a_flag_for_more_undoes_less_in_a_file(tmp_path: Path) -> None:
    assert settled(tmp_path, "quiet = true", verbose=True).verbosity == 1
    assert settled(tmp_path, "verbose = true", quiet=True).verbosity == -1


def test_a_verb_names_the_keys_that_count_and_the_values_it_takes(tmp_path: Path) -> None:
    (tmp_path / "advisor.toml").write_text("format = 'sarif'\nfolder = 'kept'\n")
    assert settle({}, tmp_path, ["folder"]) == Settings(folder=Path("kept"))
    assert settle({"format": "csv"}, tmp_path, [], {"format": ("text", "csv")}).format == "csv"
    with pytest.raises(InputError, match=r"^--format: invalid value 'sarif'; expected one of text, csv$"):
        settle({"format": "sarif"}, tmp_path, [], {"format": ("text", "csv")})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("selct = ['SYN']", "advisor.toml: unknown key 'selct'; did you mean 'select'?"),
        ("[tool.advsor]\ntop = 1", "advisor.toml: unknown key 'tool'; "),
        ("zzz = 1", "advisor.toml: unknown key 'zzz'; known are window, nvtx"),
        ("top = 'five'", "advisor.toml: top must be a whole number"),
        ("top = true", "advisor.toml: top must be a whole number"),
        ("quiet = 1", "advisor.toml: quiet must be true or false"),
        ("window = 5", "advisor.toml: window must be text"),
        ("select = [1]", "advisor.toml: select must be text or a list of texts"),
        ("format = 'xml'", "advisor.toml: format: invalid value 'xml'; expected one of text, json"),
        ("top = ", "advisor.toml: not valid TOML: "),
    ],
)
def test_errors_say_which_file_and_key(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        settled(tmp_path, text)
    assert str(caught.value).startswith(line)


def test_errors_in_pyproject_name_the_section(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^pyproject.toml, \[tool.advisor\]: unknown key 'x'"):
        settled(tmp_path, "[tool.advisor]\nx = 1", "pyproject.toml")
    with pytest.raises(InputError, match="must be a table of options"):
        settled(tmp_path, "[tool]\nadvisor = 1", "pyproject.toml")


def test_the_command_line_reads_them(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "advisor.toml").write_text("window = '1s/2s'\nfail-on = 'high'\nquiet = true\n")
    assert run("a.sqlite") == 1
    assert driver.CALLS[0][1].window == "1s/2s"
    assert capsys.readouterr().out.startswith("Use CUDA graphs: ")
    (tmp_path / "advisor.toml").write_text("fail_onn = 'high'\n")
    assert run("a.sqlite") == 2
    assert capsys.readouterr().err == (
        "advisor: error: advisor.toml: unknown key 'fail_onn'; did you mean 'fail-on'?\n"
    )
