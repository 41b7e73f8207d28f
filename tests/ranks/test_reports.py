"""A job in every kind of report: the late rank, the table of ranks, the rank that is missing."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.cli.diagnosis import how_of
from advisor.cli.main import main
from advisor.config import Settings
from advisor.pipeline.captures import Diagnosed, diagnose_all
from advisor.pipeline.inputs import several
from advisor.pipeline.ranks import diagnose_ranks
from advisor.reports import markdown
from advisor.reports.diagnosis_blocks import TextOptions
from advisor.reports.diagnosis_blocks import report as diagnosis_report
from advisor.reports.rank_blocks import SHOWN
from tests.ranks.support import reduced_once
from tests.ranks.test_planted import job
from tests.reports.fixture import plain

Report = Callable[..., str]
COUNT, LATE, MISSING = 4, 2, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    job(COUNT, more={LATE: 60}, steps=5).write(folder)
    (folder / f"rank{MISSING}.sqlite").write_text("")
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Diagnosed:
    """The job, diagnosed once for all reports on it."""
    return diagnose_all(several([folder]).inputs, how_of(Settings(jobs=1)))


@pytest.fixture
def report(
    folder: Path, found: Diagnosed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Report:
    monkeypatch.setattr("advisor.cli.diagnosis.diagnose_all", lambda *_: found)

    def make(*args: str) -> str:
        assert main(["diagnose", str(folder), *args]) == 2  # a rank is missing
        return capsys.readouterr().out

    return make


def test_in_the_terminal(report: Report) -> None:
    shown = report()
    assert "COM102 rank-arrival-skew" in shown
    assert "COM102 rank-arrival-skew  rank 2" in report("-v")
    assert "· 3 of 4 ranks" in shown
    assert "  waiting   rank 2 causes" in shown
    assert "  rank    busy  exposed" in report("-v")


def test_in_json(report: Report) -> None:
    document = json.loads(report("--format", "json"))
    assert [i["rank"] for i in document["inputs"]] == [0, 1, 2, 3]
    assert document["inputs"][MISSING]["format"] == "unreadable"
    assert [row[0] for row in document["tables"]["ranks"]["rows"]] == [0, 1, 2]
    assert {b["rank"] for b in document["budget"]} == {0, 1, 2}


def test_in_markdown(report: Report) -> None:
    shown = report("--format", "markdown")
    assert "### Ranks" in shown
    assert "**missing**: rank 3" in shown
    lines = shown[shown.index("### Ranks") :].splitlines()
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:4] == list("012")


def test_annotations_stand_at_the_file_of_the_rank(report: Report) -> None:
    lines = report("--format", "github").splitlines()
    (late,) = [line for line in lines if "COM102" in line]
    assert "/rank2.sqlite::" in late


def test_in_sarif_and_junit(report: Report) -> None:
    (run,) = json.loads(report("--format", "sarif"))["runs"]
    (late,) = [r for r in run["results"] if r["ruleId"] == "COM102"]
    (location,) = late["locations"]
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "rank 2"
    file = location["physicalLocation"]["artifactLocation"]
    assert file["uri"].endswith("/rank2.sqlite")
    assert run["artifacts"][file["index"]]["location"]["uri"] == file["uri"]
    assert "rank 2" in report("--format", "junit")


def test_in_html_and_in_the_workbook(report: Report, tmp_path: Path) -> None:
    html, xlsx = tmp_path / "r.html", tmp_path / "r.xlsx"
    report("--html", str(html), "--xlsx", str(xlsx))
    text = html.read_text()
    assert "rank-arrival-skew" in text
    assert "Find a row of ranks" in text
    assert "without rank 3" in text
    with zipfile.ZipFile(xlsx) as book:
        strings = "".join(book.read(n).decode() for n in book.namelist() if n.endswith(".xml"))
    assert "rank-arrival-skew" in strings
    assert "rank 2" in strings


def test_many_ranks_show_those_that_matter(tmp_path: Path) -> None:
    count = SHOWN + 4
    own, late = job(2, more={1: 60}, steps=3).write(tmp_path)
    files = [(rank, late if rank == 11 else own) for rank in range(count)]
    found = diagnose_ranks(files, run=reduced_once)
    short = plain(found, TextOptions())
    assert len([line for line in short.splitlines() if "███" in line]) == 2
    assert len(short.splitlines()) <= 32
    assert "rank 11 causes" in short
    shown = markdown.document(diagnosis_report([found])).decode()
    table = shown[shown.rindex("### Ranks") :]
    assert table.splitlines()[4].strip(" |").startswith("11 ")
    assert "and 4 more" in table
