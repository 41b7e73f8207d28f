from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.cli.app import app
from advisor.config import FLAGS, SETTINGS, Settings, settle
from advisor.errors import InputError
from advisor.model.options import Options
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


def test_no_number_is_a_number_too(tmp_path: Path) -> None:
    assert settled(tmp_path, "top = 0") == Settings(top=0)


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
        ("zzz = 1", "advisor.toml: unknown key 'zzz'; expected one of window, nvtx"),
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


#: A value of each kind as typed or in a file, and as Python takes it.
VALUES: dict[str, tuple[Any, Any]] = {
    "text": ("1.5", "1.5"),
    "int": (3, 3),
    "bool": (True, True),
    "list": (["A.b=1"], ("A.b=1",)),
}


@pytest.mark.parametrize("key", SETTINGS)
def test_a_flag_a_key_and_an_argument_are_one_declaration(key: str, tmp_path: Path) -> None:
    setting = SETTINGS[key]
    given, value = VALUES[setting.kind]
    if setting.flag.choices:
        given = value = setting.flag.choices[0]
    if setting.paths:
        value = tuple(map(Path, value)) if setting.kind == "list" else Path(value)
    argument = Settings(**{setting.name: value})
    assert argument != Settings() or value == setting.default
    assert settle({key: given}, tmp_path) == argument
    typed = repr(given) if isinstance(given, str | list) else str(given).lower()
    assert settled(tmp_path, f"{key.replace('_', '-')} = {typed}") == argument


def options_of_verbs() -> Iterator[tuple[str, Any]]:
    group: Any = app
    for verb in group.list_commands(None):
        command = group.get_command(None, verb)
        for name, each in getattr(command, "commands", {"": command}).items():
            yield from ((f"{verb} {name}".strip(), p) for p in each.params if p.param_type_name == "option")


def test_verbs_take_shared_options_from_the_settings() -> None:
    """A verb may narrow the values of one; `capture` is about a program that is yet to be recorded."""
    seen, others = set(), []
    for verb, option in options_of_verbs():
        for name in (o[2:].replace("-", "_") for o in option.opts if o[2:].replace("-", "_") in FLAGS):
            seen.add(name)
            if (option.metavar or "") != FLAGS[name].flag.metavar and not FLAGS[name].flag.choices:
                others.append((verb, name))
    assert seen == set(FLAGS)
    assert others == [("capture", "ranks")]


@pytest.mark.parametrize(
    "function",
    [
        "compare.compare",
        "diagnose.diagnose",
        "doctor.doctor",
        "explain.explain",
        "stats.stats",
        "explain.whatif",
        "captures.ranks",
    ],
)
def test_functions_of_python_take_the_options_of_the_analysis_as_one_object(function: str) -> None:
    module, _, name = function.partition(".")
    assert name in advisor.__all__
    found = getattr(import_module(f"advisor.pipeline.{module}"), name)
    assert "Options | None" in str(inspect.signature(found).parameters["options"])
    assert issubclass(Settings, Options)
