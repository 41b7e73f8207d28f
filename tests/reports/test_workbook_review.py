"""Decisions filled into the workbook and read back, whatever was moved about in between."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook
from openpyxl.utils import get_column_letter

from advisor.checklist.items import capture_facts, checklist
from advisor.comparison import baseline
from advisor.errors import InputError
from advisor.model.facts import Table
from advisor.model.review import AUTOMATIC, History, Review, SignOff
from advisor.reports import markdown
from advisor.reports import text as writer
from advisor.reports.json_report import document_bytes
from advisor.reports.layout import Page
from advisor.reports.review_blocks import review as blocks
from advisor.reports.workbook import book as workbook
from advisor.reports.workbook.review_sheet import read
from tests.cli.conftest import Run, run
from tests.reports.fixture import DIAGNOSIS, HEALTHY

Captured = pytest.CaptureFixture[str]
__all__ = ["run"]


@cache
def written() -> bytes:
    return workbook.render([DIAGNOSIS], checklist=checklist(capture_facts([DIAGNOSIS])))


@pytest.fixture
def book() -> Workbook:
    return load_workbook(io.BytesIO(written()))


def heads(sheet: Any, one: str) -> tuple[int, dict[str, int]]:
    """The row of the heads and the column of each."""
    for row in sheet.iter_rows():
        if any(c.value == one for c in row):
            return row[0].row, {c.value: c.column for c in row if c.value}
    raise AssertionError(one)


def fill_in(book: Workbook) -> None:
    sheet = book["Findings"]
    head, at = heads(sheet, "Decision")
    said = {
        "Owner": "Ada | Bob",
        "Decision": "accept",
        "Due": datetime.date(2026, 12, 1),
        "Comment": "<b>now</b>",
    }
    for column, value in said.items():
        sheet.cell(head + 1, at[column]).value = value
    sheet.cell(head + 2, at["Decision"]).value = "Defer "
    sheet.cell(head + 2, at["Due"]).value = "next spring"
    sheet = book["Checklist"]
    head, at = heads(sheet, "Answer")
    sheet.cell(head + 3, at["Answer"]).value = "not applicable"
    sheet.cell(head + 3, at["Signed by"]).value = "Eve"
    sheet.cell(head + 3, at["Date"]).value = datetime.datetime(2026, 11, 30, 12)


def saved(book: Workbook, folder: Path) -> Path:
    path = folder / "filled.xlsx"
    book.save(path)
    return path


def test_what_was_filled_in_comes_back(book: Workbook, tmp_path: Path) -> None:
    fill_in(book)
    review = read(saved(book, tmp_path), "1")
    first, second, third = review.decisions
    assert first.finding == "LCH101@device=0,phase=decode"
    assert (first.owner, first.decision, first.due) == ("Ada | Bob", "accept", "2026-12-01")
    assert (first.code, first.cause, first.severity, first.share) == ("LCH101", "launch-bound", "high", 0.553)
    assert (second.decision, second.due) == ("defer", "next spring")
    assert third.open
    assert review.captures == ("/data/captures/2026-11-20/decode_[eager]_batch_size_1.sqlite",)
    signed = {s.id: s for s in review.checklist}["load-levels"]
    assert (signed.answer, signed.measured, signed.signed_by, signed.signed_on) == (
        "not_applicable",
        "",
        "Eve",
        "2026-11-30",
    )
    assert {s.id: s for s in review.checklist}["launches-analysed"].measured == "yes"


def test_rows_sorted_and_columns_moved(book: Workbook, tmp_path: Path) -> None:
    fill_in(book)
    sheet = book["Findings"]
    sheet.insert_cols(1)
    sheet.insert_rows(1, 4)
    head, at = heads(sheet, "Decision")
    sheet.cell(head, 1).value = "Meeting"
    rows = [[c.value for c in r] for r in sheet.iter_rows(min_row=head + 1, max_row=head + 3)]
    for number, row in enumerate(reversed(rows), head + 1):
        for column, value in enumerate(row, 1):
            sheet.cell(number, column).value = value
    review = read(saved(book, tmp_path), "1")
    assert [d.code for d in review.decisions] == ["CAP109", "SYN103", "LCH101"]
    assert review.decisions[2].decision == "accept"
    assert at["Decision"] > 1


def test_the_next_review_starts_from_this_one(book: Workbook, tmp_path: Path) -> None:
    fill_in(book)
    review = read(saved(book, tmp_path), "1")
    data = workbook.render([DIAGNOSIS], checklist=checklist(capture_facts([DIAGNOSIS])), review=review)
    path = tmp_path / "next.xlsx"
    path.write_bytes(data)
    again = read(path, "1")
    assert [(d.owner, d.decision, d.due, d.comment) for d in again.decisions] == [
        (d.owner, d.decision, d.due, d.comment) for d in review.decisions
    ]
    answers = {s.id: (s.answer, s.signed_by) for s in again.checklist}
    # Answers stay, signatures are given anew.
    assert answers["load-levels"] == ("not_applicable", "")
    assert Review.model_validate(json.loads(again.model_dump_json())) == again


def test_cells_that_cannot_be_understood_are_named_and_the_rest_is_read(
    book: Workbook, tmp_path: Path
) -> None:
    sheet = book["Findings"]
    head, at = heads(sheet, "Decision")
    for row, word in enumerate(("acept", "Accept", "perhaps"), head + 1):
        sheet.cell(row, at["Decision"]).value = word
    questions = book["Checklist"]
    top, columns = heads(questions, "Answer")
    questions.cell(top + 2, columns["Answer"]).value = "maybe"
    questions.cell(top + 3, columns["Answer"]).value = "not applicable"
    review = read(saved(book, tmp_path), "1")
    letters = get_column_letter(at["Decision"]), get_column_letter(columns["Answer"])
    assert [(p.cell, p.text) for p in review.problems] == [
        (f"Findings!{letters[0]}{head + 1}", "invalid decision 'acept'; did you mean 'accept'?"),
        (
            f"Findings!{letters[0]}{head + 3}",
            "invalid decision 'perhaps'; expected one of accept, reject, defer, done, needs data",
        ),
        (
            f"Checklist!{letters[1]}{top + 2}",
            "invalid answer 'maybe'; expected one of yes, no, not applicable, later",
        ),
    ]
    assert [d.decision for d in review.decisions] == ["", "accept", ""]
    assert [s.answer for s in review.checklist][1:3] == ["", "not_applicable"]


def test_what_is_no_workbook_of_ours(book: Workbook, tmp_path: Path) -> None:
    other = Workbook()
    with pytest.raises(InputError, match="it was not written by advisor"):
        read(saved(other, tmp_path), "1")
    (tmp_path / "x.xlsx").write_bytes(b"PK\x03\x04broken")
    (tmp_path / "x.txt").write_text("no")
    for name in ("x.xlsx", "x.txt", "missing.xlsx"):
        with pytest.raises(InputError) as error:
            read(tmp_path / name, "1")
        assert "\n" not in str(error.value)
        assert "zip" not in str(error.value)
    del book["Checklist"]
    head, at = heads(book["Findings"], "Decision")
    book["Findings"].cell(head, at["Key"]).value = "Something"
    with pytest.raises(InputError, match="Findings: the sheet is missing its header row"):
        read(saved(book, tmp_path), "1")


def test_a_small_file_with_a_million_cells_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = saved(Workbook(), tmp_path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as package:
        package.writestr("xl/worksheets/sheet2.xml", "<sheetData><row>" + "<c/>" * 1_000_000)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match=r"tags of XML, at most 1,000,000\)"):
        read(path, "1")


def test_markdown_for_the_minutes(book: Workbook, tmp_path: Path) -> None:
    fill_in(book)
    text = markdown.write(blocks(read(saved(book, tmp_path), "1")))
    assert "**3 findings: 1 accept, 1 defer, 1 open**" in text
    assert "**: accept; Ada \\| Bob; due 2026-12-01; &lt;b&gt;now&lt;/b&gt;" in text
    assert "# Open" in text
    page = Page()
    writer.write(page, blocks(read(tmp_path / "filled.xlsx", "1")))
    assert any("Ada | Bob" in line.plain for line in page.lines)


# --- the command line ------------------------------------------------------------------------


def test_an_untouched_workbook_says_so(run: Run, capsys: Captured) -> None:
    assert run("a.sqlite", "--xlsx", "r.xlsx", "-q") == 0
    capsys.readouterr()
    assert run("review", "import", "r.xlsx") == 0
    out, err = capsys.readouterr()
    assert "3 findings: 3 open" in out
    assert err == "advisor: note: r.xlsx: it holds no decisions yet\n"


def meet(book: Workbook, decision: str) -> None:
    """A meeting of two: a decision on the first finding and on its first recommendation."""
    summary = book["Summary"]
    for cell in [
        c for row in summary.iter_rows() for c in row if c.value in ("Present", "Date of the review")
    ]:
        said = "Ada; Grace" if cell.value == "Present" else datetime.date(2026, 11, 2)
        summary.cell(cell.row, cell.column + 2).value = said
    for name in ("Findings", "Recommendations"):
        head, at = heads(book[name], "Decision")
        book[name].cell(head + 1, at["Decision"]).value = decision
        book[name].cell(head + 1, at["Owner"]).value = "Ada"


def opened(path: Path) -> tuple[Workbook, list[dict[str, Any]]]:
    """A workbook, and the rows of the sheet that it opens with."""
    book = load_workbook(path)
    sheet = book[book.sheetnames[0]]
    head, at = heads(sheet, "State")
    rows = range(head + 1, sheet.max_row + 1)
    return book, [{name: sheet.cell(row, column).value for name, column in at.items()} for row in rows]


def test_two_meetings(run: Run, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding is gone at the second meeting and back at the third."""
    assert run("a.sqlite", "--xlsx", "one.xlsx", "-q") == 0
    book = load_workbook(tmp_path / "one.xlsx")
    assert book.sheetnames[0] == "Summary"
    meet(book, "accept")
    book.save(tmp_path / "one.xlsx")
    first, *others = DIAGNOSIS.findings
    capsys.readouterr()
    assert run("review", "import", "one.xlsx") == 0
    out = capsys.readouterr().out
    assert "meeting   2026-11-02, Ada, Grace" in out
    assert ": accept, Ada\n" in out

    gone = DIAGNOSIS.replaced(findings=tuple(others))
    monkeypatch.setattr("tests.reports.fixture.DIAGNOSIS", gone)
    assert run("a.sqlite", "--xlsx", "two.xlsx", "--review", "one.xlsx", "-q") == 0
    book, rows = opened(tmp_path / "two.xlsx")
    assert book.sheetnames[:2] == ["Since the last review", "Summary"]
    assert len(book.sheetnames) <= 10
    assert {r["Code"]: r["State"] for r in rows} == {first.code: "closed"} | {f.code: "same" for f in others}
    closed = rows[-1]
    assert (closed["Decision"], closed["Owner"], closed["Share"]) == ("accept", "Ada", None)
    assert "2026-11-02; present: Ada, Grace" in str([c.value for c in book.worksheets[0]["A"]])

    monkeypatch.setattr("tests.reports.fixture.DIAGNOSIS", DIAGNOSIS)
    assert run("a.sqlite", "--xlsx", "three.xlsx", "--review", "two.xlsx", "-q") == 0
    _, rows = opened(tmp_path / "three.xlsx")
    (back,) = (r for r in rows if r["Code"] == first.code)
    assert (back["State"], back["Decision"], back["Was decided"]) == ("new", None, "accept (open again)")


def test_a_workbook_from_the_history_of_a_folder(run: Run, capsys: Captured, tmp_path: Path) -> None:
    path = baseline.path_of(tmp_path / ".advisor")
    path.parent.mkdir(parents=True)
    path.write_bytes(document_bytes(baseline.recorded(History(), DIAGNOSIS, "2026-11-02", ["Ada"])))
    assert run("a.sqlite", "--xlsx", "next.xlsx", "--review", ".advisor", "-q") == 0
    _, rows = opened(tmp_path / "next.xlsx")
    assert {r["State"] for r in rows} == {"same"}
    capsys.readouterr()
    assert run("a.sqlite", "--xlsx", "x.xlsx", "--review", ".") == 2
    assert "holds no history of reviews" in capsys.readouterr().err


def test_ranks_have_a_sheet_with_the_steps_below() -> None:
    table = Table(title="Ranks", columns=("rank", "busy:ratio"), rows=((0, 0.5), (1, 0.25)))
    job = DIAGNOSIS.replaced(tables={**DIAGNOSIS.tables, "ranks": table})
    book = load_workbook(io.BytesIO(workbook.render([job], checklist=checklist(capture_facts([job])))))
    assert "Steps" not in book.sheetnames
    assert len(book.sheetnames) <= 10
    values = [cell.value for row in book["Ranks"].iter_rows() for cell in row]
    assert 0.25 in values
    assert "Budget" in values


def test_answers_of_the_capture_stand_apart_from_those_of_people() -> None:
    answered = [
        SignOff(
            id="a",
            question="Is the GPU visible to the program that is profiled, on every host?",
            answer="yes",
            signed_by=who,
        )
        for who in ("Ada", AUTOMATIC)
    ]
    shown = writer.plain(blocks(Review(tool=DIAGNOSIS.tool, workbook="r.xlsx", checklist=tuple(answered))))
    people, capture = shown.split("Checklist, answered by the capture")
    assert "signed by Ada" in people
    assert "signed" not in capture
    assert shown.count("host? yes") == 2


def test_diagnose_writes_import_reads(run: Run, capsys: Captured, tmp_path: Path) -> None:
    assert run("a.sqlite", "--xlsx", "r.xlsx", "-q") == 0
    book = load_workbook(tmp_path / "r.xlsx")
    fill_in(book)
    book.save(tmp_path / "r.xlsx")
    capsys.readouterr()
    assert run("review", "import", "r.xlsx", "--format", "json", "-o", "r.json") == 0
    assert run("a.sqlite", "--xlsx", "n.xlsx", "--review", "r.json", "-q") == 0
    assert run("a.sqlite", "--xlsx", "m.xlsx", "--review", "r.xlsx", "-q") == 0
    assert (tmp_path / "n.xlsx").read_bytes() == (tmp_path / "m.xlsx").read_bytes()
    capsys.readouterr()
    assert run("review", "import", "n.xlsx") == 0
    out, err = capsys.readouterr()
    assert "Ada | Bob" in out
    assert err == ""
    assert run("checklist", "--answers", "r.json", "--no-input", "--format", "json") == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert {e["id"]: e["answer"] for e in entries if e["answer"]} == {"load-levels": "not_applicable"}


def test_one_bad_cell_is_named_and_the_rest_is_imported(run: Run, capsys: Captured, tmp_path: Path) -> None:
    assert run("a.sqlite", "--xlsx", "r.xlsx", "-q") == 0
    book = load_workbook(tmp_path / "r.xlsx")
    fill_in(book)
    head, at = heads(book["Findings"], "Decision")
    cell = book["Findings"].cell(head + 2, at["Decision"])
    cell.value = "dunno"
    book.save(tmp_path / "r.xlsx")
    capsys.readouterr()
    assert run("review", "import", "r.xlsx") == 2
    shown = capsys.readouterr()
    assert "Ada | Bob" in shown.out
    assert shown.err.startswith(f"advisor: error: r.xlsx: Findings!{cell.coordinate}: invalid dec")
    assert run("a.sqlite", "--xlsx", "n.xlsx", "--review", "r.xlsx", "-q") == 0
    assert capsys.readouterr().err.startswith("advisor: note: r.xlsx: Findings!")


def test_several_captures_make_one_workbook(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b.sqlite").touch()
    assert run("a.sqlite", "b.sqlite", "--xlsx", "both.xlsx", "-q") == 0
    assert "Comparison" in load_workbook(tmp_path / "both.xlsx").sheetnames


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("a.sqlite", "--review", "r.json"), "--review fills in a workbook; add --xlsx FILE"),
        (("a.sqlite", "--xlsx", "x.xlsx", "--review", "r.json"), "r.json: no such file"),
        (("a.sqlite", "--xlsx", "x", "-o", "x"), "both name x"),
        (("a.sqlite", "--xlsx", "a.sqlite"), "is the capture itself"),
        (("review", "import", "r.xlsx"), "r.xlsx: no such file"),
        (("review", "import", "a.sqlite", "--format", "xml"), "one of text, json, markdown"),
    ],
)
def test_refusals_are_one_line(run: Run, capsys: Captured, args: tuple[str, ...], says: str) -> None:
    assert run(*args) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_an_existing_workbook_is_not_overwritten(run: Run, capsys: Captured) -> None:
    assert run("a.sqlite", "--xlsx", "x.xlsx", "-q") == 0
    assert run("a.sqlite", "--xlsx", "x.xlsx", "-q") == 2
    assert "add --force" in capsys.readouterr().err
    assert run("a.sqlite", "--xlsx", "x.xlsx", "-q", "--force") == 0


def test_healthy_captures_have_nothing_to_decide(tmp_path: Path) -> None:
    path = tmp_path / "h.xlsx"
    path.write_bytes(workbook.render([HEALTHY]))
    review = read(path, "1")
    assert (review.decisions, review.checklist) == ((), ())
    assert "0 findings: 0 open" in markdown.write(blocks(review))
