"""The ranks of a job, and saved diagnoses, wherever a capture goes: the command line and Python."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

import advisor
from advisor.agents.tools import Tools
from advisor.cli import last
from advisor.cli.main import main
from advisor.errors import InputError
from advisor.model.explanation import Explanation
from tests.captures import EXAMPLES as CAPTURES

RANKS = CAPTURES / "dlrm_8_ranks"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two ranks, in a folder whose name has to be quoted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    folder = tmp_path / "my job"
    folder.mkdir()
    for rank in (0, 7):
        shutil.copy(RANKS / f"rank{rank}.pt.trace.json.gz", folder)
    return Path("my job")


def next_of(out: str) -> list[str]:
    """The words of the command after `Next:`."""
    return shlex.split(next(line for line in out.splitlines() if line.startswith("Next: "))[6:])[1:]


def test_the_next_line_of_a_job_works_as_printed(job: Path, capsys: Captured) -> None:
    assert main([str(job)]) == 0
    words = next_of(capsys.readouterr().out)
    assert words == ["show", "my job", "1"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("LCH101 launch-bound")
    assert "fired: finding 1 of " in shown
    assert "2 ranks" in shown


def test_where_the_path_is_long_the_next_line_names_the_last_report(job: Path, capsys: Captured) -> None:
    long = job.rename("a folder with a name so long that no line of eighty columns has any room for it all")
    assert main([str(long)]) == 0
    assert next_of(capsys.readouterr().out) == ["show", "1"]
    assert main(["show", "1"]) == 0
    first = capsys.readouterr().out
    assert main(["show", str(long), "1"]) == 0
    assert capsys.readouterr().out == first


def test_the_last_report_keeps_the_options_that_its_numbers_depend_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    capture = CAPTURES / "decode_eager_bs1.sqlite.xz"
    monkeypatch.chdir(tmp_path)
    assert main([str(capture), "--window", "0.05s/0.15s"]) == 0
    assert next_of(capsys.readouterr().out) == ["show", "1"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["show", "LCH101"]) == 0
    assert "0.050000s to 0.150000s" in capsys.readouterr().out
    assert main(["show", "1", "--window", "0.1s/0.15s"]) == 0
    assert "0.100000s to 0.150000s" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "", "[]", '{"folder": 1}', '{"folder": "/", "traces": [3]}'])
def test_without_a_last_report_the_error_names_the_way(content: str | None, capsys: Captured) -> None:
    last.path().parent.mkdir(parents=True, exist_ok=True)
    last.path().unlink(missing_ok=True)
    if content is not None:
        last.path().write_text(content)
    assert main(["show", "1"]) == 2
    assert capsys.readouterr().err == (
        "advisor: error: no report was made yet; name a capture: advisor show TRACE 1\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("show", "{job}", "COM102"),
        ("explain", "launch-bound", "--trace", "{job}"),
        ("explain", "launch-bound", "--trace", "{0}", "{7}"),
        ("whatif", "{0}", "{7}", "--fix", "cuda_graphs"),
        ("doctor", "{job}"),
        ("facts", "{job}", "--match", "ranks."),
        ("compare", "{job}", "{job}"),
        ("compare", "--before", "{0}", "{7}", "--after", "{job}"),
        ("baseline", "save", "both", "{0}", "{7}"),
    ],
)
def test_verbs_take_the_ranks_as_diagnose_does(job: Path, words: tuple[str, ...], capsys: Captured) -> None:
    files = {name: job / f"rank{name}.pt.trace.json.gz" for name in (0, 7)}
    given = [w.format(files[0], *[""] * 6, files[7], job=job) for w in words]
    assert main(given) == 0, capsys.readouterr().err
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "verb", [("stats",), ("export", "perfetto", "-o", "x.json"), ("redact",)], ids=lambda v: v[0]
)
def test_a_verb_that_reads_one_capture_names_the_command_for_one_rank(
    job: Path, verb: tuple[str, ...], capsys: Captured
) -> None:
    target = ["out.sqlite"] if verb == ("redact",) else []
    assert main([*verb, str(job), *target]) == 2
    line = capsys.readouterr().err
    assert "my job: 2 ranks of one job, and this reads one capture: advisor " in line
    words = shlex.split(line.rpartition("advisor ")[2])
    assert words[-1] == str(job / "rank0.pt.trace.json.gz")
    assert Path(words[-1]).is_file()


def test_a_saved_diagnosis_shows_its_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    capture = str(CAPTURES / "decode_eager_bs1.sqlite.xz")
    assert main([capture, "--format", "json", "-o", "saved.json"]) == 0
    found = {}
    for name in (capture, "saved.json"):
        assert main(["show", name, "1", "--format", "json"]) == 0
        found[name] = json.loads(capsys.readouterr().out)
    assert found["saved.json"]["findings"] == found[capture]["findings"]
    assert found["saved.json"]["sentence"] == found[capture]["sentence"]
    assert main(["explain", "XFR101", "--trace", "saved.json"]) == 0
    assert "XFR101" in capsys.readouterr().out


def state(code: str, document: str | Path) -> str:
    """How a rule stands, as explained from a document or a capture."""
    made: Explanation = advisor.explain(document, code)
    return made.state


def test_every_rule_of_a_saved_diagnosis_is_explained(tmp_path: Path, capsys: Captured) -> None:
    capture = CAPTURES / "decode_eager_bs1.sqlite.xz"
    saved = tmp_path / "saved.json"
    assert main([str(capture), "--format", "json", "-o", str(saved)]) == 0
    capsys.readouterr()
    d = advisor.diagnose(capture)
    codes = {e.code for e in (*d.findings, *d.healthy, *d.not_evaluated, *d.overruled, *d.not_applicable)}
    assert len(codes) > 60
    for code in sorted(codes):
        assert state(code, saved) in ("fired", "overruled", "quiet", "not_evaluated"), code
    assert state("LCH101", saved) == "fired"


def test_python_takes_a_folder_and_a_list(job: Path) -> None:
    files = sorted(job.iterdir())
    first = advisor.diagnose(job)
    assert first == advisor.diagnose(files) == advisor.ranks(files)
    assert len(first.inputs) == 2
    assert advisor.explain(files, "1").findings == first.findings[:1]
    assert advisor.whatif(job, "cuda_graphs").of_job is not None
    asked = advisor.doctor(job)
    assert next(q for q in asked.questions if q.id == "communication").answer == "yes"
    with pytest.raises(InputError, match="2 ranks of one job, and this reads one capture: name one, such as"):
        advisor.stats(job)


def test_agents_take_the_folder_of_a_job(job: Path) -> None:
    tools = Tools([Path.cwd()])
    assert tools.diagnose(str(job))["findings"]["rows"]
    assert tools.show(str(job), "1")["code"] == "LCH101"
    assert tools.explain("launch-bound", str(job))["state"] == "fired"
    assert tools.whatif(str(job), ["cuda_graphs"])["of_job"]
    assert tools.doctor(str(job))["questions"]
    with pytest.raises(InputError, match="name one, such as"):
        tools.stats(str(job))


def test_a_folder_of_other_captures_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "both").mkdir()
    for name in ("decode_eager_bs1", "decode_graph_bs1"):
        shutil.copy(CAPTURES / f"{name}.sqlite.xz", tmp_path / "both")
    assert main(["show", "both", "1"]) == 2
    assert capsys.readouterr().err.strip() == (
        "advisor: error: both: 2 captures, which are no ranks of one job; "
        "name one, such as both/decode_eager_bs1.sqlite.xz"
    )
