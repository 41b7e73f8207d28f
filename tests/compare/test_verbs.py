"""The verbs `compare`, `moe` and `baseline` on the command line: output, exit codes, errors."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from click import BadOptionUsage

from advisor.cli.compare_verbs import lengths, numbers, percent, sides
from advisor.cli.main import main
from advisor.cli.options import one_value_each
from advisor.comparison import store
from advisor.errors import InputError
from advisor.model.comparison import Comparison
from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import diagnose
from advisor.reports import json_report
from tests.compare.support import decoder

Captured = pytest.CaptureFixture[str]
Run = Callable[..., int]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    decoder(folder / "base.sqlite", steps=30)
    decoder(folder / "same.sqlite", steps=30, seed=1)
    decoder(folder / "slow.sqlite", steps=30, attention=30.0, seed=2, driver="570.1")
    decoder(folder / "other.sqlite", steps=30, layers=12)
    for path in [*folder.iterdir()]:
        path.with_suffix(".json").write_bytes(json_report.render([diagnose(path)]))
    return folder


@pytest.fixture
def run(captures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line in an empty folder; names of captures stand for the paths of what was saved of them,
    which says the same: `test_captures_say_what_was_saved_of_them`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    known = {p.stem: str(p) for p in captures.glob("*.json")}
    return lambda *args: main([known.get(str(a), str(a)) for a in args])


def test_captures_say_what_was_saved_of_them(run: Run, captures: Path, capsys: Captured) -> None:
    assert run("compare", captures / "base.sqlite", captures / "slow.sqlite", "-v") == 0
    fresh = capsys.readouterr().out
    assert run("compare", "base", "slow", "-v") == 0
    assert capsys.readouterr().out == fresh


def test_the_report_fits_80_columns_and_says_it_all(run: Run, capsys: Captured) -> None:
    for extra in ((), ("-v",)):
        assert run("compare", "base", "slow", *extra) == 0
        shown = capsys.readouterr().out
        assert max(len(line) for line in shown.splitlines()) <= 80
        for part in (
            "Regression: the typical decode step",
            "Comparability",
            "98 % interval",
            "Budget",
            "compute",
            "Operations",
            "slower",
            "CUDA API calls",
            "Findings",
            "What to do",
            "Driver 580.159",
        ):
            assert part in shown, part


def test_the_verdict_alone(run: Run, capsys: Captured) -> None:
    assert run("compare", "base", "same", "-q") == 0
    assert capsys.readouterr().out.startswith("No change: the typical decode step went from 0.43")


@pytest.mark.parametrize(
    ("after", "code", "said"),
    [
        ("same", 0, ""),
        ("slow", 1, "advisor: gate failed: Regression: "),
        ("other", 1, "advisor: gate failed: Not comparable: the models differ"),
    ],
)
def test_the_gate(run: Run, capsys: Captured, after: str, code: int, said: str) -> None:
    assert run("compare", "base", after, "--fail-on", "regression") == code
    err = capsys.readouterr().err
    assert err.startswith(said)
    assert err.count("\n") == bool(said)
    assert run("compare", "base", after) == 0


def test_a_gate_that_could_not_have_seen_much_says_so(run: Run, capsys: Captured, tmp_path: Path) -> None:
    for i in (1, 2):
        decoder(tmp_path / f"h{i}.sqlite", gap=900.0, seed=i)
    assert run("compare", "h1.sqlite", "h2.sqlite", "--fail-on", "regression") == 0
    assert "gate passed, but weakly" in capsys.readouterr().err


def test_a_phase_that_was_not_compared_does_not_pass_in_silence(
    run: Run, capsys: Captured, tmp_path: Path
) -> None:
    decoder(tmp_path / "p.sqlite", steps=30, prefills=1, seed=3)
    assert run("compare", "base", "p.sqlite", "--fail-on", "regression", "-q") == 0
    err = capsys.readouterr().err
    assert err.startswith("advisor: gate passed, but weakly: Prefill step: not compared")


def test_gate_and_noise_floor(run: Run, capsys: Captured) -> None:
    for gate in ("30%", "30", "0.3"):
        assert run("compare", "base", "slow", "--gate", gate, "-q") == 0
        assert capsys.readouterr().out.startswith("No change")
    assert run("compare", "base", "slow", "--noise-floor", "50%", "-q") == 0
    assert capsys.readouterr().out.startswith("No change")


def test_json_is_the_document(run: Run, capsys: Captured) -> None:
    assert run("compare", "base", "slow", "--format", "json") == 0
    text = capsys.readouterr().out
    found = Comparison.model_validate_json(text)
    assert json.loads(text)["schema_version"] == 1
    assert found.verdict == "regression"
    assert [f.code for f in found.findings] == ["CMP101", "CMP103"]
    assert {t.param for t in found.thresholds if t.code == "CMP101"} == {"gate", "noise_floor"}


def test_markdown_junit_and_github(run: Run, capsys: Captured) -> None:
    assert run("compare", "base", "slow", "--format", "markdown") == 0
    shown = capsys.readouterr().out
    assert "## Comparability" in shown
    assert re.search(r"^\| part \| before \|", shown, re.MULTILINE)
    assert run("compare", "base", "other", "--format", "junit") == 0
    suites = Xml.fromstring(capsys.readouterr().out.encode())
    assert (suites.get("tests"), suites.get("errors")) == ("2", "2")
    assert run("compare", "base", "slow", "--format", "github") == 0
    assert capsys.readouterr().out.startswith("::error title=advisor compare%3A regression::")


def test_several_captures_a_side(run: Run, capsys: Captured) -> None:
    assert run("compare", "--before", "base", "same", "--after", "slow", "-q") == 0
    assert capsys.readouterr().out.startswith("Regression")


def test_baselines_by_name(run: Run, capsys: Captured) -> None:
    assert run("baseline", "list") == 0
    assert "0 baselines in .advisor" in capsys.readouterr().out
    assert run("baseline", "save", "main", "base") == 0
    assert run("baseline", "save", "main", "base") == 2
    assert "add --force" in capsys.readouterr().err
    assert run("baseline", "save", "main", "base", "--force") == 0
    assert run("compare", "main", "slow", "-q") == 0
    assert "Regression" in capsys.readouterr().out
    assert run("baseline", "list") == 0
    assert "29 decode steps of 0.43" in capsys.readouterr().out
    assert run("baseline", "list", "--format", "json") == 0
    (listed,) = json.loads(capsys.readouterr().out)["baselines"]
    assert listed["entries"][0]["steps"][0]["count"] == 29
    assert run("baseline", "list", "--format", "html", "-o", "list.html") == 0
    assert run("baseline", "list", "--format", "html", "-o", "list.html") == 0
    assert run("baseline", "show", "main") == 0
    assert "base.sqlite" in capsys.readouterr().out
    assert run("baseline", "show", "main", "--format", "sarif", "-o", "main.sarif") == 0
    assert run("baseline", "show", "main", "--format", "json") == 0
    assert Diagnosis.model_validate_json(capsys.readouterr().out).steps[0].count == 29
    assert run("slow", "--baseline", "main", "-q") == 0
    assert "known" in capsys.readouterr().out


def test_baselines_in_a_folder_of_ones_own(run: Run, capsys: Captured, tmp_path: Path) -> None:
    assert run("baseline", "save", "a", "base", "--folder", "kept/here") == 0
    assert (tmp_path / "kept" / "here" / "a.json").is_file()
    assert run("baseline", "save", "b", "a", "--folder", "kept/here") == 0
    assert run("compare", "a", "b", "--folder", "kept/here", "-q") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(("No change", "interval"))
    (tmp_path / "kept" / "here" / "bad.json").write_text("{")
    assert run("baseline", "list", "--folder", "kept/here") == 0
    assert "unusable" in capsys.readouterr().out
    assert store.names(tmp_path / "kept" / "here") == ["a", "b", "bad"]


def test_one_folder_of_baselines_for_all_verbs(run: Run, capsys: Captured, tmp_path: Path) -> None:
    """By --folder, in front of the name, or once in advisor.toml."""
    assert run("baseline", "save", "main", "base", "--folder", "kept") == 0
    assert "main, saved as kept/main.json" in capsys.readouterr().out
    assert run("slow", "--baseline", "main", "--folder", "kept", "-q") == 0
    assert "known" in capsys.readouterr().out
    assert run("slow", "--baseline", "kept/main", "-q") == 0
    assert run("compare", "kept/main", "slow", "-q") == 0
    assert run("slow", "--baseline", "main") == 2
    capsys.readouterr()
    assert run("slow", "--baseline", "nosuch", "--folder", "kept") == 2
    assert "--baseline nosuch: no such file, and no baseline of that name (saved in kept: main)" in (
        capsys.readouterr().err
    )
    (tmp_path / "advisor.toml").write_text('folder = "kept"\n')
    assert run("slow", "--baseline", "main", "-q") == 0
    assert run("compare", "main", "slow", "-q") == 0
    assert run("baseline", "show", "main") == 0
    assert run("baseline", "list") == 0
    assert "1 baseline in kept" in capsys.readouterr().out


class Piped:
    """A standard input that gives its content once."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)

    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(
    "args",
    [
        ("compare", "-", "slow", "-q"),
        ("compare", "--before", "-", "--after", "slow", "-q"),
        ("compare", "slow", "/dev/stdin", "-q"),
        ("compare", "--context", "-", "slow", "--tokens", "1,2048"),
        ("compare", "--frameworks", "one=-", "slow"),
        ("baseline", "save", "piped", "-"),
        ("review", "record", "-"),
        ("slow", "--baseline", "-", "-q"),
        ("-", "-q"),
        ("moe", "100", "110", "--unit", "tok/s", "--traces", "-", "slow"),
    ],
)
@pytest.mark.parametrize("what", ["saved", pytest.param("capture", marks=pytest.mark.slow)])
def test_standard_input_is_read_by_all_that_read_captures(
    run: Run,
    capsys: Captured,
    captures: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    what: str,
) -> None:
    content = (captures / "base.sqlite").read_bytes()
    if what == "saved":
        assert run("base", "--format", "json") == 0
        content = capsys.readouterr().out.encode()
    elif "--baseline" in args:
        pytest.skip("a baseline is a saved diagnosis")
    if "/dev/stdin" in args:
        monkeypatch.setattr(Path, "is_fifo", lambda path: str(path) == "/dev/stdin")
    monkeypatch.setattr(sys, "stdin", Piped(content))
    assert run(*args) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    assert "error" not in shown.err
    if args[:2] == ("compare", "-"):
        assert shown.out.startswith("Regression: the typical decode step")


def test_benchmark_reports_from_standard_input(
    run: Run, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(b"Output token throughput (tok/s): 100.0\n"))
    (Path.cwd() / "other.txt").write_text("Output token throughput (tok/s): 150.0\n")
    assert run("moe", "-", "other.txt") == 0
    assert "throughput is 50.0 %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "stdin", "said"),
    [
        (("compare", "-", "-"), b"{}", "-: standard input can be read once; name the other input as a file"),
        (("-", "-"), b"{}", "-: standard input can be read once; name the other input as a file"),
        (
            ("-", "--baseline", "-"),
            b"{}",
            "-: standard input can be read once; name the other input as a file",
        ),
        (
            ("compare", "-", "slow"),
            None,
            "-: standard input is closed; pipe a capture into it, or name a file",
        ),
        (("-",), None, "-: standard input is closed"),
        (("compare", "-", "slow"), b"", "-: an empty file"),
        (("review", "import", "-"), b"", "-: standard input is not read here; save it to disk first"),
        (("redact", "-", "out.sqlite"), b"", "-: standard input is not read here; save it to disk first"),
    ],
)
def test_standard_input_that_cannot_be_read(
    run: Run,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    stdin: bytes | None,
    said: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", None if stdin is None else Piped(stdin))
    assert run(*args) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"advisor: error: {said}")


def test_name_and_capture_in_the_wrong_order_are_told_in_the_right_one(
    run: Run, capsys: Captured, tmp_path: Path
) -> None:
    (tmp_path / "a run.sqlite").write_text("")
    for args, right in (
        (("a run.sqlite", "main"), "main 'a run.sqlite'"),
        (("a run.sqlite",), "NAME 'a run.sqlite'"),
    ):
        assert run("baseline", "save", *args) == 2
        assert capsys.readouterr().err == (
            f"advisor: error: the name comes first, then the capture: advisor baseline save {right}\n"
        )
    assert run("baseline", "save", "main") == 2
    assert "TRACE is missing: advisor baseline save main TRACE" in capsys.readouterr().err
    (tmp_path / "renewed").mkdir()  # a folder called like the name says nothing about the order
    assert run("baseline", "save", "renewed", "base") == 0


def test_a_folder_that_cannot_be_one(run: Run, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run("baseline", "save", "main", "base", "--folder", "file") == 2
    assert capsys.readouterr().err == ("advisor: error: file is a file; expected a folder of baselines\n")


def test_what_is_missing_is_called_as_the_question_calls_it(run: Run, capsys: Captured) -> None:
    assert run("compare", "--context", "base") == 2
    assert "expected two captures (SHORT LONG), got 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args",
    [
        ("compare",),
        ("compare", "base"),
        ("compare", "base", "same", "slow"),
        ("compare", "base", "nosuch"),
        ("compare", "base", "same", "--before", "slow"),
        ("compare", "--before", "--after", "slow"),
        ("compare", "base", "same", "--format", "pdf"),
        ("compare", "base", "same", "--gate", "much"),
        ("compare", "base", "same", "--fail-on", "anything"),
        ("compare", "base", "same", "--context", "--frameworks"),
        ("compare", "base", "same", "--context", "--fail-on", "regression"),
        ("compare", "base", "same", "--context", "--tokens", "2048"),
        ("compare", "base", "same", "--param", "CMP101.gat=1"),
        ("compare", "base", "--frameworks"),
        ("compare", "base", "same", "--frameworks", "--throughput", "x"),
        ("compare", "base", "same", "--frameworks", "--throughput", "base=nan"),
        ("compare", "base", "same", "--phase", "verify"),
        ("compare", "base", "base"),
        ("moe", "100"),
        ("moe", "100", "110"),
        ("moe", "100", "110", "--unit", "tok/s", "--format", "junit"),
        ("baseline",),
        ("baseline", "show", "nosuch"),
        ("baseline", "save", "../x", "base"),
        ("explain", "CMP101", "--trace", "base"),
    ],
)
def test_what_cannot_run_is_one_line_and_exit_2(run: Run, capsys: Captured, args: tuple[str, ...]) -> None:
    code = run(*args)
    err = capsys.readouterr().err
    if args == ("compare", "base", "base"):
        assert code == 0  # one capture against itself is a fair question
        return
    assert code == 2
    if args != ("baseline",):
        assert err.startswith("advisor: error: ")
        assert err.count("\n") == 1


def test_context_and_engines_in_text(run: Run, capsys: Captured) -> None:
    assert run("compare", "--context", "base", "slow", "--tokens", "1,2048") == 0
    shown = capsys.readouterr().out
    assert "Only attention grows" in shown
    assert "per 1,000 tokens" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert run("compare", "--frameworks", "a=base", "b=slow", "same") == 2
    capsys.readouterr()


def test_engines_with_names(run: Run, capsys: Captured, captures: Path) -> None:
    named = [f"{n}={captures / f'{n}.sqlite'}" for n in ("base", "slow", "other")]
    assert run("compare", "--frameworks", *named, "--throughput", "base=2300") == 0
    shown = capsys.readouterr().out
    assert "kernels per layer" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert run("compare", "--frameworks", *named, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [c["name"] for c in document["columns"]] == ["base", "slow", "other"]


def test_moe(run: Run, capsys: Captured) -> None:
    assert run("moe") == 0
    shown = capsys.readouterr().out
    assert shown.count("trtllm-bench") == 2
    assert "ENABLE_PERFECT_ROUTER=1 trtllm-bench" in shown
    assert run("moe", "23.05", "26.34", "--unit", "ms") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Routing is not the bottleneck")
    assert "a loss" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert run("moe", "--learned", "100", "101", "--perfect", "130,131", "--unit", "tok/s") == 0
    assert capsys.readouterr().out.startswith("Routing holds the throughput back")
    assert run("moe", "100", "130", "--unit", "tok/s", "--param", "MOE101.min_gain=0.5", "-q") == 0
    assert capsys.readouterr().out.startswith("Routing is not the bottleneck")


def test_moe_with_captures(run: Run, capsys: Captured) -> None:
    assert run("moe", "1", "2", "--unit", "tok/s", "--traces", "base", "same") == 0
    assert "Expert kernels" in capsys.readouterr().out


def test_the_report_goes_to_a_file_and_replaces_none(run: Run, tmp_path: Path) -> None:
    assert run("compare", "base", "slow", "-o", "r.txt") == 0
    assert "Regression" in (tmp_path / "r.txt").read_text(encoding="utf-8")
    assert run("compare", "base", "slow", "-o", "r.txt") == 2
    assert run("compare", "base", "slow", "-o", "r.txt", "--force", "--format", "json") == 0


def test_a_page_and_a_workbook_beside_the_report(run: Run, capsys: Captured, tmp_path: Path) -> None:
    files = ("--html", "r.html", "--xlsx", "r.xlsx")
    for args in (
        ("compare", "base", "slow"),
        ("compare", "base", "slow", "--context"),
        ("compare", "base", "slow", "--frameworks"),
        ("moe", "1", "2", "--unit", "tok/s"),
    ):
        assert run(*args, *files, "--force", "-q") == 0
        assert (tmp_path / "r.html").read_bytes().startswith(b"<!doctype html>")
        assert (tmp_path / "r.xlsx").read_bytes().startswith(b"PK")
        capsys.readouterr()
        assert run(*args, *files) == 2
        assert "add --force" in capsys.readouterr().err
        assert run(*args, "--html", "x", "--xlsx", "x") == 2
        assert "both name x" in capsys.readouterr().err
    assert run("compare", "base", "other", "--format", "sarif") == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["properties"]["verdict"] == "not-comparable"


def test_a_diagnosis_does_not_mention_comparisons(run: Run, capsys: Captured) -> None:
    assert run("base", "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    told = {e["code"] for k in ("not_evaluated", "healthy", "overruled") for e in document[k]}
    told |= {t["code"] for t in document["thresholds"]}
    assert not {c for c in told if c.startswith(("CMP", "MOE101", "MOE102"))}


# --- words -----------------------------------------------------------------------------------


def test_list_options_take_what_follows() -> None:
    def read(*words: str) -> list[str]:
        return one_value_each(words, ("--before", "--after"))

    assert read("--before", "a", "b", "-q", "c") == ["--before", "a", "--before", "b", "-q", "c"]
    assert read("--before", "-", "--after", "b") == ["--before", "-", "--after", "b"]
    assert read("x", "--before=a", "y") == ["x", "--before=a", "y"]
    assert read("--before", "a", "--", "--after", "b") == ["--before", "a", "--", "--after", "b"]
    for line in ("--before --after b", "--before -q", "a --before", "--before -- a"):
        with pytest.raises(BadOptionUsage):
            read(*line.split())


def test_percentages_lengths_numbers() -> None:
    assert percent("5%", "--gate") == percent("5", "--gate") == percent("0.05", "--gate") == 0.05
    assert percent("0.5%", "--gate") == 0.005
    assert lengths("1,2048") == (1, 2048)
    assert lengths(None) is None
    assert numbers(["a=b=3.5"], "--batch") == {"a=b": 3.5}
    for bad in ("2048,1", "a,b", "1", "1,2,3"):
        with pytest.raises(InputError):
            lengths(bad)
    assert sides(["a"], [], ["b", "c"]) == (["a"], ["b", "c"])
