"""Formats, the HTML file, the baseline and its gates, on the real command line."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from advisor.comparison import baseline
from advisor.config import CHOICES
from advisor.model.review import History
from advisor.reports import json_report
from tests.cli.conftest import Run
from tests.reports.fixture import DIAGNOSIS, HEALTHY

MARKS = {
    "html": '<details class="finding high"',
    "text": "▲ HIGH",
    "json": '"schema_version": 1',
    "markdown": "| # | severity |",
    "sarif": '"version": "2.1.0"',
    "junit": "<testsuites",
    "github": "::error title=",
    "concise": ": LCH101 high launch-bound (55.3 % of the step): use CUDA graphs\n",
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A saved diagnosis without the first finding of the sample."""
    path = tmp_path / "old.json"
    known = DIAGNOSIS.replaced(findings=DIAGNOSIS.findings[1:])
    path.write_bytes(json_report.render([known]))
    return path


def test_every_format_is_known() -> None:
    assert set(CHOICES["format"]) == set(MARKS), "MARKS needs what each format prints of the first finding"


@pytest.mark.parametrize("kind", MARKS)
def test_each_format_on_stdout_and_in_a_file(
    run: Run, kind: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run("a.sqlite", "--format", kind) == 0
    printed = capsysbinary.readouterr().out
    assert MARKS[kind].encode() in printed
    assert run("a.sqlite", "--format", kind, "-o", "out") == 0
    assert capsysbinary.readouterr().out == b""
    if kind != "text":
        assert (tmp_path / "out").read_bytes() == printed
    (tmp_path / "out").write_bytes(b"notes")
    assert run("a.sqlite", "--format", kind, "-o", "out") == 2
    assert b"add --force" in capsysbinary.readouterr().err
    assert (tmp_path / "out").read_bytes() == b"notes"


@pytest.mark.parametrize("kind", MARKS)
def test_several_captures(
    run: Run, kind: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "b.sqlite").touch()
    assert run("a.sqlite", "b.sqlite", "--format", kind) == 0
    printed = capsysbinary.readouterr().out
    if kind == "sarif":
        assert len(json.loads(printed)["runs"]) == 2
    elif kind == "junit":
        assert len(Xml.fromstring(printed)) == 2
    elif kind == "text":
        assert b"2 captures: 2 high" in printed
    else:
        assert printed.count(MARKS[kind].encode()) >= 2


@pytest.mark.parametrize("captures", [("a.sqlite",), ("a.sqlite", "b.sqlite")])
@pytest.mark.parametrize("format", [kind for kind in MARKS if kind != "html"])
def test_a_saved_diagnosis_shows_in_every_format(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], captures: tuple[str, ...], format: str
) -> None:
    (tmp_path / "b.sqlite").touch()
    assert run(*captures, "--format", "json", "-o", "saved.json") == 0
    assert run(*captures, "--format", format) == 0
    first = capsys.readouterr()
    assert run("saved.json", "--format", format) == 0
    shown = capsys.readouterr()
    assert (shown.out.replace("show saved.json", f"show {captures[0]}"), shown.err) == first
    assert run("saved.json", "--window", "1s/2s", "-q") == 0
    assert "options of the analysis do not change it" in capsys.readouterr().err
    assert run("saved.json", "--redact") == 2
    assert "--redact works on the capture that it came from" in capsys.readouterr().err


def test_html_beside_the_report(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("a.sqlite", "--html", "a.html", "-q") == 0
    assert "Use CUDA graphs" in capsys.readouterr().out
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert run("a.sqlite", "--html", "a.html") == 0  # a page of ours, in which nobody has written
    assert capsys.readouterr().err == "advisor: wrote a.html: open it in a browser\n"
    (tmp_path / "a.html").write_text("<!doctype html><p>notes")
    assert run("a.sqlite", "--html", "a.html") == 2
    assert "a.html exists; add --force" in capsys.readouterr().err
    assert run("a.sqlite", "--html", "a.html", "--force", "-q") == 0
    assert capsys.readouterr().err == ""
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == page


def test_a_workbook_is_told_with_the_way_to_keep_its_decisions(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("a.sqlite", "--xlsx", "a.xlsx") == 0
    told = "advisor: wrote a.xlsx: fill in the decisions, and keep them with --review a.xlsx\n"
    assert capsys.readouterr().err == told
    assert run("a.sqlite", "--xlsx", "a.xlsx") == 2
    assert run("a.sqlite", "--html", "x", "-o", "x") == 2
    assert "both name x" in capsys.readouterr().err
    assert run("a.sqlite", "--html", "a.sqlite", "--force") == 2
    assert "is the capture itself" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [kind for kind in MARKS if kind not in ("html", "text")])
def test_an_interrupted_writer_leaves_nothing(
    run: Run, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {p.name for p in tmp_path.iterdir()}
    monkeypatch.setattr("advisor.writing.rename", stop)
    assert run("a.sqlite", "--format", kind, "-o", "out") == 130
    assert run("a.sqlite", "--html", "out.html") == 130
    assert {p.name for p in tmp_path.iterdir()} == before


def test_the_format_may_be_named_as_linters_name_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("a.sqlite", "--output-format", "concise") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(DIAGNOSIS.findings)
    assert lines[1].startswith(
        f"{DIAGNOSIS.inputs[0].path}: SYN103 low readback-per-layer (3.1 % of the step)"
    )


def test_the_baseline_in_text(run: Run, old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("a.sqlite", "--baseline", old) == 0
    shown = capsys.readouterr().out
    assert "1 new, 2 known, 0 gone" in " ".join(shown.split())
    assert "new    LCH101 launch-bound" in shown
    assert "known  SYN103 readback-per-layer" in shown
    assert run("a.sqlite", "--baseline", old, "-v") == 0
    assert "launch-bound  device 0, decode, 85 % sure  [new]" in capsys.readouterr().out
    assert run("a.sqlite", "--baseline", old, "-q") == 0
    assert "(LCH101 launch-bound, new)" in " ".join(capsys.readouterr().out.split())


def test_the_baseline_in_json(run: Run, old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("a.sqlite", "--baseline", old, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [f["baseline"] for f in document["findings"]] == ["new", "known", "known"]
    assert document["baseline"]["new"] == 1
    assert run("a.sqlite", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["baseline"] is None


def test_what_is_gone(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extra = DIAGNOSIS.findings[1].replaced(code="SYN101", cause="blocking-sync")
    more = DIAGNOSIS.replaced(findings=(*DIAGNOSIS.findings, extra))
    (tmp_path / "old.json").write_bytes(json_report.render([more]))
    assert run("a.sqlite", "--baseline", "old.json", "-q") == 0
    shown = capsys.readouterr().out
    assert "In the baseline only" in shown
    assert "SYN101 blocking-sync (device 0)" in shown


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        ((), 0),
        (("--fail-on-new",), 1),
        (("--fail-on-new", "--fail-on", "high"), 1),
        (("--fail-on-new", "--ignore", "LCH101"), 0),
        (("--fail-on-new", "--fail-on", "low", "--ignore", "LCH101"), 0),
        (("--fail-on", "low", "--ignore", "LCH101"), 1),
        (("--fail-on", "high"), 1),
    ],
)
def test_gates(
    run: Run, old: Path, gates: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("a.sqlite", "--baseline", old, "-q", *gates) == code
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("advisor: gate failed")]
    assert len(told) == code, "a gate that fails says why, and one that passes nothing"


def test_a_gate_that_fails_names_the_findings_and_the_limit(
    run: Run, old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("a.sqlite", "--fail-on", "high", "-q") == 1
    assert capsys.readouterr().err == (
        "advisor: gate failed: LCH101 launch-bound (device 0, decode): high (--fail-on high)\n"
    )
    assert run("a.sqlite", "b.sqlite", "--fail-on", "low", "-q") == 1
    told = capsys.readouterr().err
    assert told.startswith("advisor: gate failed: ")
    assert " and 1 more (--fail-on low)\n" in told
    assert run("a.sqlite", "--baseline", old, "--fail-on-new", "-q") == 1
    told = capsys.readouterr().err
    assert "LCH101 launch-bound (device 0, decode): new, high (--fail-on-new, from medium on)\n" in told


def test_a_suppressed_finding_fails_no_gate(run: Run, tmp_path: Path) -> None:
    assert run("a.sqlite", "--fail-on", "high", "-q") == 1
    found = baseline.recorded(History(), DIAGNOSIS, "2026-11-02")
    for finding in (f for f in DIAGNOSIS.findings if f.severity == "high"):
        found = baseline.suppressed(found, finding.identity, "known", "2999-12-31")
    path = baseline.path_of(tmp_path / ".advisor")
    path.parent.mkdir(parents=True)
    path.write_bytes(json_report.document_bytes(found))
    assert run("a.sqlite", "--fail-on", "high", "-q") == 0


@pytest.mark.parametrize(("before", "code"), [(0.5, 1), (1.0, 0)])
def test_what_has_become_worse_fails_where_that_is_asked(
    run: Run, tmp_path: Path, before: float, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """`before`: so much of its ms a step the finding held."""
    first = DIAGNOSIS.findings[0]
    impact = first.impact.replaced(ms=first.impact.ms * before)
    first = first.replaced(impact=impact)
    old = DIAGNOSIS.replaced(findings=(first, *DIAGNOSIS.findings[1:]))
    (tmp_path / "old.json").write_bytes(json_report.render([old]))
    assert run("a.sqlite", "--baseline", "old.json", "--fail-on-new", "-q") == 0
    assert run("a.sqlite", "--baseline", "old.json", "--fail-on-worse") == code
    assert ("launch-bound, worse)" in " ".join(capsys.readouterr().out.split())) == bool(code)
    assert run("a.sqlite", "--fail-on-worse") == 2
    assert "--fail-on-worse needs a --baseline FILE to tell what is worse" in capsys.readouterr().err


@pytest.mark.parametrize(("severity", "code"), [("low", 0), ("medium", 1), ("high", 1)])
def test_new_ones_count_from_medium(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, severity: str, code: int
) -> None:
    first = DIAGNOSIS.findings[0].replaced(severity=severity)
    changed = DIAGNOSIS.replaced(findings=(first,))
    monkeypatch.setattr("advisor.pipeline.inputs.diagnose", lambda *_, **__: changed)
    empty = tmp_path / "empty.json"
    empty.write_bytes(json_report.render([DIAGNOSIS.replaced(findings=())]))
    assert run("a.sqlite", "--baseline", empty, "--fail-on-new", "-q") == code


def test_a_gate_needs_something_to_compare_with(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("a.sqlite", "--fail-on-new") == 2
    assert "--fail-on-new needs a --baseline FILE" in capsys.readouterr().err
    assert run("a.sqlite", "--baseline", "absent.json", "--fail-on-new") == 2
    assert "absent.json" in capsys.readouterr().err
    # Of two captures each needs a diagnosis of its own.
    (tmp_path / "old.json").write_bytes(json_report.render([HEALTHY, HEALTHY], many=True))
    assert run("a.sqlite", "--baseline", "old.json", "--fail-on-new") == 2
    assert "holds none of" in capsys.readouterr().err


def test_the_baseline_may_be_renewed_in_the_same_run(run: Run, old: Path) -> None:
    args = ("a.sqlite", "--baseline", old, "--format", "json", "-o", old, "--force")
    assert run(*args, "--fail-on-new") == 1
    assert run(*args, "--fail-on-new") == 0


def test_options_of_a_file(run: Run, old: Path, tmp_path: Path) -> None:
    (tmp_path / "advisor.toml").write_text(
        f'format = "github"\nbaseline = "{old}"\nfail-on-new = true\nfail-on = "high"\n'
    )
    assert run("a.sqlite") == 1
