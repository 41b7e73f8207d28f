from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from advisor import __version__
from advisor.config import Settings
from benchmarks.verification import verified
from tests.cli import driver
from tests.cli.conftest import Run
from tests.reports.fixture import DIAGNOSIS

Captured = pytest.CaptureFixture[str]


def test_a_trace_without_a_verb_is_diagnosed(run: Run, capsys: Captured) -> None:
    assert run("a.sqlite") == 0
    first = capsys.readouterr()
    assert run("diagnose", "a.sqlite") == 0
    assert capsys.readouterr() == first
    assert "Use CUDA graphs: step 9.92" in first.out
    assert first.err == ""


@pytest.mark.parametrize("args", [("-q", "a.sqlite"), ("a.sqlite", "-q")])
def test_options_may_come_first(run: Run, capsys: Captured, args: tuple[str, ...]) -> None:
    assert run(*args) == 0
    assert capsys.readouterr().out.startswith("Use CUDA graphs: step 9.92")


def test_version(run: Run, capsys: Captured) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"advisor {__version__}\n"


@pytest.mark.parametrize("args", [("--version", "-v"), ("-v", "--version"), ("--version", "--verbose")])
def test_version_with_the_releases_that_the_knowledge_is_of(
    run: Run, capsys: Captured, args: tuple[str, ...]
) -> None:
    assert run(*args) == 0
    first, day, *engines = capsys.readouterr().out.splitlines()
    assert first == f"advisor {__version__}"
    assert re.fullmatch(r"knowledge of 20\d\d-\d\d-\d\d; options checked in", day)
    read = verified()["vllm"]
    assert f"  vLLM {read.releases[-1]}, read {read.read}" in engines


def test_without_arguments_the_help_goes_to_stderr(run: Run, capsys: Captured) -> None:
    assert run() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: advisor")


def test_help_names_every_verb_and_fits(run: Run, capsys: Captured) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    for verb in ("diagnose", "demo", "explain", "stats", "facts", "rules"):
        assert f"\n  {verb} " in shown
    assert "--install-completion" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize(
    ("verb", "usage"),
    [
        ("diagnose", "TRACE..."),
        ("show", "[TRACE...] [N|CODE]"),
        ("capture", "[GOAL] [-- COMMAND...]"),
        ("checklist", "[TRACE...]"),
        ("compare", "BEFORE AFTER"),
    ],
)
def test_usage_lines_are_those_of_a_manual(run: Run, capsys: Captured, verb: str, usage: str) -> None:
    assert run(verb, "--help") == 0
    assert capsys.readouterr().out.splitlines()[0] == f"Usage: advisor {verb} [OPTIONS] {usage}"


def test_html_on_standard_output(run: Run, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("a.sqlite", "--html", "-") == 0
    shown = capfdbinary.readouterr().out
    assert shown.startswith(b"<!doctype html>")
    assert shown.rstrip().endswith(b"</html>")


@pytest.mark.parametrize("verb", ["diagnose", "run", "attach", "compare"])
def test_of_many_options_the_common_ones_are_listed(run: Run, capsys: Captured, verb: str) -> None:
    assert run(verb, "--help-all") == 0
    every = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  -")}
    assert run(verb, "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0] for line in lines if line.startswith("  -")}
    assert listed < every
    assert {"-h,", "--help-all", "-o,"} <= listed
    assert lines[-1] == f"{len(every - listed)} more options: advisor {verb} --help-all"


def test_a_verb_of_few_options_lists_all(run: Run, capsys: Captured) -> None:
    shown = [run("show", option) or capsys.readouterr().out for option in ("--help", "--help-all")]
    assert shown[0] == shown[1]
    assert "more options" not in shown[0]


@pytest.mark.parametrize("verb", ["diagnose", "demo", "explain", "facts", "rules"])
def test_every_verb_has_help(run: Run, capsys: Captured, verb: str) -> None:
    assert run(verb, "--help") == 0
    assert run(verb, "-h") == 0
    assert f"advisor {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("none.sqlite",), "none.sqlite: no such file or folder"),
        (("explian", "LCH101"), "'explian' is neither a file nor a verb; did you mean 'explain'?"),
        (("bad.sqlite",), "bad.sqlite: not an Nsight Systems export"),
        (("denied.sqlite",), "denied.sqlite: Permission denied"),
        (("empty",), "empty: no captures (exports and traces *.sqlite, *.sqlite.xz, *.sqlite.gz, *.json"),
        (("a.sqlite", "--format", "xml"), "--format: invalid value 'xml'; expected one of text"),
        (("a.sqlite", "--fail-on", "worse"), "--fail-on: invalid value 'worse'; expected one of"),
        (("a.sqlite", "--engine", "clips"), "--engine: invalid value 'clips'; expected one of"),
        (("a.sqlite", "--top", "-1"), "--top must be a whole number, 0 or more"),
        (("a.sqlite", "--top", "x"), "--top: expected a whole number (see"),
        (("a.sqlite", "-o", "x.json"), "-o x.json: the report is in the format text; use --format json"),
        (
            ("a.sqlite", "-o", "x.pdf"),
            "-o x.pdf: no format of this report ends with .pdf; choose one with --format",
        ),
        (
            ("stats", "a.sqlite", "-o", "x.csv"),
            "-o x.csv: the report is in the format text; use --format csv",
        ),
        (
            ("doctor", "a.sqlite", "-o", "x.html"),
            "-o x.html: the report is in the format text; use --format html",
        ),
        (("explain", "LCH101", "-o", "x.sarif"), "-o x.sarif: no format of this report ends with .sarif"),
        (("a.sqlite", "-o", "x.xlsx"), "-o x.xlsx: the report is in the format text; use --xlsx x.xlsx"),
        (("export", "perfetto", "a.sqlite", "-o", "x.pdf"), "-o x.pdf: the name must end with .json"),
        (
            ("export", "perfetto", "a.sqlite", "--with-trace", "-o", "x.json"),
            "-o x.json: the name must end with .perfetto-trace",
        ),
        (("a.sqlite", "--html", "x.pdf"), "--html x.pdf: the name must end with .html or .htm"),
        (("a.sqlite", "-q", "-v"), "-q and -v contradict each other"),
        (("a.sqlite", "--nonsense"), "unknown option --nonsense"),
        (("whatif", "--lst"), "unknown option --lst; did you mean --list, --rules? (see 'advisor whatif"),
        (("a.sqlite", "-qz"), "unknown option -z (see 'advisor diagnose --help')"),
        (("rules", "chek"), "'chek' is not a verb; did you mean 'check' or 'schema'? (see 'advisor rules"),
        (("rules", "zzz"), "'zzz' is not a verb (see 'advisor rules --help')"),
        (("stats",), "TRACE is missing (see 'advisor stats --help')"),
        (("review", "suppress", "x"), "--reason is missing (see 'advisor review suppress --help')"),
        (("a.sqlite", "--window"), "--window: expected a value (see 'advisor diagnose --help')"),
        (("a.sqlite", "--quiet=1"), "--quiet takes no value (see 'advisor diagnose --help')"),
        (("moe", "--traces", "a"), "--traces: expected 2 values (see 'advisor moe --help')"),
        (("compare", "--before", "a", "--after"), "--after: expected a value (see 'advisor compare --help')"),
        (("compare", "--before", "-q", "a"), "--before: expected a value (see 'advisor compare --help')"),
        (("a.sqlite", "--jobs", "-1"), "--jobs: expected a number greater than or equal to 0 (see"),
        (("stats", "a.sqlite", "--names", "x"), "--names: invalid value 'x'; expected one of full, base,"),
        (("explain", "LCH101", "x"), "too many arguments: x"),
        (("denid.sqlite",), "no such file or folder; did you mean 'denied.sqlite'?"),
        (("a.sqlite", "--select", "LCH999"), "--select: no rule has the code LCH999"),
        (("a.sqlite", "-o", "no/such/file"), "there is no folder"),
        (("a.sqlite", "-o", "a.sqlite", "--format", "text", "--force"), "is the capture itself"),
    ],
)
def test_what_cannot_run_is_one_line_and_exit_2(
    run: Run, capsys: Captured, tmp_path: Path, args: tuple[str, ...], line: str
) -> None:
    (tmp_path / "bad.sqlite").touch()
    (tmp_path / "denied.sqlite").touch()
    (tmp_path / "empty").mkdir()
    assert run(*args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("advisor: error: ")
    assert err.count("\n") == 1
    assert line in err


def test_an_internal_error_is_one_line_unless_debugged(run: Run, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "bug.sqlite").touch()
    assert run("bug.sqlite") == 70
    err = capsys.readouterr().err
    assert err == (
        "advisor: error: internal error: ZeroDivisionError: division by zero; "
        "please report it; rerun with --debug\n"
    )
    for args in (("--debug", "bug.sqlite"), ("bug.sqlite", "--debug")):
        with pytest.raises(ZeroDivisionError):
            run(*args)


def test_debug_behind_two_dashes_belongs_to_the_command(run: Run, capsys: Captured) -> None:
    assert run("capture", "tail", "--format", "json", "--", "python", "serve.py", "--debug") == 0
    assert "python serve.py --debug" in capsys.readouterr().out


def test_short_reports_name_their_captures(run: Run, capsys: Captured, tmp_path: Path) -> None:
    """Of several files, or of a folder that holds one; a single file needs no name."""
    path = DIAGNOSIS.inputs[0].path
    assert run("a.sqlite", "-q") == 0
    assert path not in capsys.readouterr().out
    (tmp_path / "b.sqlite").touch()
    assert run("a.sqlite", "b.sqlite", "-q") == 0
    assert capsys.readouterr().out.count(f"{path}: Use") == 2
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "c.sqlite").touch()
    assert run(folder, "-q", "-o", "short.txt") == 0
    assert (tmp_path / "short.txt").read_text().startswith(f"{path}: ")


def test_messages_hold_no_control_characters(run: Run, capsys: Captured) -> None:
    name = "a\x1b[31m\u202e\x07.sqlite"
    assert run(name) == 2
    assert capsys.readouterr().err == "advisor: error: a?[31m??.sqlite: no such file or folder\n"


def test_interrupted(run: Run, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "stop.sqlite").touch()
    assert run("stop.sqlite", "-o", "report.txt") == 130
    assert capsys.readouterr().err == "advisor: interrupted\n"
    assert not (tmp_path / "report.txt").exists()


@pytest.mark.parametrize(("level", "code"), [("info", 1), ("low", 1), ("medium", 1), ("high", 1), (None, 0)])
def test_fail_on(run: Run, level: str | None, code: int) -> None:
    assert run("a.sqlite", *(["--fail-on", level] if level else [])) == code


def test_fail_on_looks_at_what_is_shown(run: Run) -> None:
    assert run("a.sqlite", "--fail-on", "medium", "--ignore", "LCH101") == 0
    assert run("a.sqlite", "--fail-on", "low", "--ignore", "LCH101") == 1
    assert run("a.sqlite", "--fail-on", "high", "--top", "0") == 1


def test_json_is_the_document(run: Run, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    from advisor.reports.json_report import render
    from tests.reports.fixture import DIAGNOSIS

    assert run("a.sqlite", "--format", "json") == 0
    out, err = capsysbinary.readouterr()
    assert out == render([DIAGNOSIS])
    assert err == b""


def test_several_inputs_and_folders_are_a_list(run: Run, capsys: Captured, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    for name in ("b.sqlite.xz", "a.sqlite", "c.sqlite.gz", "notes.txt"):
        (folder / name).touch()
    assert run("captures", "a.sqlite", "--format", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["diagnoses"]) == 4
    assert [p.name for p, _ in driver.CALLS] == ["a.sqlite", "b.sqlite.xz", "c.sqlite.gz", "a.sqlite"]


def test_a_bad_file_among_many_does_not_hide_the_others(run: Run, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").touch()
    assert run("bad.sqlite", "a.sqlite") == 2
    out, err = capsys.readouterr()
    assert "use CUDA graphs" in out
    assert err == "advisor: error: bad.sqlite: not an Nsight Systems export\n"


def test_output_file(run: Run, capsys: Captured, tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    assert run("a.sqlite", "-o", report) == 0
    assert capsys.readouterr().out == ""
    before = report.read_text(encoding="utf-8")
    assert "Use CUDA graphs: step 9.92" in before
    assert "\x1b" not in before
    driver.CALLS.clear()
    assert run("a.sqlite", "-o", report, "-q") == 2
    assert "exists; add --force" in capsys.readouterr().err
    assert driver.CALLS == []
    assert report.read_text(encoding="utf-8") == before
    assert run("a.sqlite", "-o", report, "-q", "--force") == 0
    assert report.read_text(encoding="utf-8") != before


def test_dash_is_stdout(run: Run, capsys: Captured) -> None:
    assert run("a.sqlite", "-o", "-") == 0
    assert "Use CUDA graphs: step 9.92" in capsys.readouterr().out


def test_options_reach_the_analysis(run: Run) -> None:
    words = (
        "a.sqlite --window 5s/7s --nvtx step --phase decode --weight-bytes 16e9 --engine python "
        "--serving-engine vllm --rules r --param A.b=1 --param C.d=2"
    )
    assert run(*words.split()) == 0
    assert driver.CALLS[0][1] == Settings(
        window="5s/7s",
        nvtx="step",
        phase="decode",
        weight_bytes="16e9",
        serving_engine="vllm",
        rules=(Path("r"),),
        params=("A.b=1", "C.d=2"),
        engine="python",
    )


def test_every_option_is_documented(run: Run, capsys: Captured) -> None:
    from advisor.config import SETTINGS

    run("diagnose", "--help-all")
    shown = capsys.readouterr().out
    for key in SETTINGS:
        assert f"--{key.replace('_', '-')}" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def every_command() -> list[Any]:
    from advisor.cli.app import VERBS, app

    group: Any = app
    commands = [group.get_command(None, name) for name in VERBS]
    return [sub for c in commands for sub in getattr(c, "commands", {"": c}).values()]


def test_every_report_on_a_capture_can_be_redacted() -> None:
    about = {"trace", "traces", "source", "sources"}
    taking = [verb for verb in every_command() if about & {p.name for p in verb.params}]
    assert len(taking) > 10
    without = [v.name for v in taking if "redact" not in {p.name for p in v.params}]
    assert without == ["redact"]


def test_options_of_the_analysis_are_the_same_for_every_verb() -> None:
    from advisor.config import SETTINGS

    shared = ("window", "nvtx", "phase", "weight_bytes", "serving_engine", "param")
    found = [p for verb in every_command() for p in verb.params if p.name in shared]
    assert {p.name for p in found} == set(shared)
    assert [(p.name, p.metavar) for p in found if p.metavar != SETTINGS[p.name].flag.metavar] == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("https://host/a.sqlite",), "URLs are not read: download it first"),
        (("rules", "check", "folder"), "folder: holds no rule (CODE.yaml)"),
        (("rules", "check", "two\nlines"), "two?lines: not a directory"),
        (("review", "import", "folder"), "folder: a folder; name the workbook in it"),
        (("moe", "folder", "a.sqlite"), "folder: a folder; name the reports in it"),
        (("moe", "nowhere.json", "a.sqlite"), "nowhere.json: no such file"),
        (("baseline", "show", "a.sqlite"), "show a file with: advisor a.sqlite"),
        (("redact", "a.sqlite", "b.sqlite", "--check", "two\nlines"), "holds no line to look for"),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line_with_what_to_do(
    run: Run, capsys: Captured, tmp_path: Path, args: tuple[str, ...], says: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "two\nlines").touch()
    before = sorted(tmp_path.iterdir())
    assert run(*args) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("advisor: error: ")
    assert says in line
    assert sorted(tmp_path.iterdir()) == before


def test_what_may_not_be_read_is_named_with_where_to_look(
    run: Run, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "a.toml")

    with monkeypatch.context() as patch:
        patch.setattr("advisor.cli.main._run", refuse)
        assert run("a.sqlite") == 2
    error = capsys.readouterr().err
    assert error == "advisor: error: a.toml: Permission denied; look at its rights: ls -ld a.toml\n"
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda *_: False)  # a superuser may read everything
        assert run("rules", "check", tmp_path) == 2
    assert "permission denied; make it readable: chmod u+rx FOLDER" in capsys.readouterr().err
