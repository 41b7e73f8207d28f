"""The workbook in a real spreadsheet: opened, recalculated, printed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from openpyxl import load_workbook

from advisor.checklist.items import capture_facts, checklist
from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import diagnose
from advisor.reports.workbook import book as workbook

SOFFICE = shutil.which("soffice") or shutil.which("libreoffice")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SOFFICE is None, reason="LibreOffice is not installed"),
    # What LibreOffice adds to the file is not ours to read.
    pytest.mark.filterwarnings("ignore:.*extension is not supported"),
]
CAPTURES = Path(__file__).resolve().parents[2] / "examples" / "captures"
ERRORS = re.compile(r"^(?:#[A-Z/0?!]+|Err:\d+)")


def convert(path: Path, kind: str, folder: Path) -> Path:
    """The file as LibreOffice saves it; a profile of its own, so that runs do not meet."""
    assert SOFFICE is not None
    profile = f"-env:UserInstallation=file://{folder}/profile"
    done = subprocess.run(
        [SOFFICE, profile, "--headless", "--convert-to", kind, "--outdir", str(folder), str(path)],
        capture_output=True,
        check=False,
        timeout=180,
        text=True,
    )
    made = folder / f"{path.stem}.{kind.split(':')[0]}"
    assert made.is_file(), done.stderr
    return made


@pytest.fixture(scope="module")
def diagnoses() -> list[Diagnosis]:
    names = ("decode_eager_bs1", "decode8b_graph_bs1")
    return [diagnose(CAPTURES / f"{name}.sqlite.xz") for name in names]


def write(path: Path, diagnoses: Sequence[Diagnosis]) -> Path:
    path.write_bytes(workbook.render(diagnoses, checklist=checklist(capture_facts(diagnoses))))
    return path


def test_it_opens_and_recalculates_without_an_error(tmp_path: Path, diagnoses: list[Diagnosis]) -> None:
    source = write(tmp_path / "both.xlsx", diagnoses)
    (tmp_path / "out").mkdir()
    book = load_workbook(convert(source, "xlsx", tmp_path / "out"), data_only=True)
    assert book.sheetnames == load_workbook(source).sheetnames
    wrong = [
        f"{sheet.title}!{cell.coordinate}: {cell.value}"
        for sheet in book.worksheets
        for row in sheet.iter_rows()
        for cell in row
        if isinstance(cell.value, str) and ERRORS.match(cell.value)
    ]
    assert wrong == []
    findings = sum(len(d.findings) for d in diagnoses)
    # findings, decided, accepted, still open: the row below their labels.
    row = next(r for r in book["Summary"].iter_rows() if any(c.value == "decided" for c in r))
    below = [c.value for c in book["Summary"][row[0].row + 1] if c.value is not None]
    assert below[:4] == [findings, 0, 0, findings]
    yes = sum(e.answer == "yes" for e in checklist(capture_facts(diagnoses)).entries)
    assert below[4] == yes
    # A formula of ours over two numbers.
    times = next(r for r in book["Comparison"].iter_rows(values_only=True) if r[0] == "step.time_median_ms")
    assert times[3] == pytest.approx(times[2] / times[1] - 1)


def test_decisions_made_in_it_are_counted(tmp_path: Path, diagnoses: list[Diagnosis]) -> None:
    source = write(tmp_path / "one.xlsx", diagnoses[:1])
    book = load_workbook(source)
    head = next(r for r in book["Findings"].iter_rows() if any(c.value == "Decision" for c in r))
    column = next(c.column for c in head if c.value == "Decision")
    for offset, word in enumerate(("accept", "reject"), 1):
        book["Findings"].cell(head[0].row + offset, column).value = word
    book.save(source)
    (tmp_path / "out").mkdir()
    read = load_workbook(convert(source, "xlsx", tmp_path / "out"), data_only=True)["Summary"]
    row = next(r for r in read.iter_rows() if any(c.value == "decided" for c in r))
    below = [c.value for c in read[row[0].row + 1] if c.value is not None]
    assert below[:4] == [len(diagnoses[0].findings), 2, 1, len(diagnoses[0].findings) - 2]


@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="poppler-utils is not installed")
def test_it_prints(tmp_path: Path, diagnoses: list[Diagnosis]) -> None:
    pdf = convert(write(tmp_path / "one.xlsx", diagnoses[:1]), "pdf", tmp_path)
    command = ["pdftoppm", "-r", "40", "-f", "1", "-l", "4", "-png", str(pdf), str(tmp_path / "p")]
    subprocess.run(command, check=True)
    pages = sorted(tmp_path.glob("p-*.png"))
    assert len(pages) == 4
    assert all(p.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for p in pages)
    # The first sheet is one page upright, the next ones are wider than high.
    sizes = [(int.from_bytes(p.read_bytes()[16:20]), int.from_bytes(p.read_bytes()[20:24])) for p in pages]
    assert [width > height for width, height in sizes] == [False, True, True, True]
    text = subprocess.run(
        ["pdftotext", "-f", "1", "-l", "1", str(pdf), "-"], capture_output=True, check=True
    ).stdout.decode()
    for part in (
        diagnoses[0].findings[0].title,
        "Where the time of the GPU goes",
        "launch or other call",
        "Made by",
    ):
        assert part in " ".join(text.split())
