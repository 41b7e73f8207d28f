"""Pictures show the numbers of today: those that the page has which they were made of, and the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from openpyxl import load_workbook

from advisor.cli.main import main
from tests.docs.scripts import script

ROOT = Path(__file__).resolve().parents[2]
pictures = script("docs/pictures.py")
COMMANDS = {"report": [pictures.CAPTURE], "compare": ["compare", pictures.CAPTURE, pictures.AFTER]}


def kept(name: str) -> list[str]:
    return (pictures.PICTURES / f"{name}.txt").read_text().split()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_picture_shows_what_its_page_shows_today(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.html"
    assert main([*COMMANDS[name], "-q", "--html", str(page)]) == 0
    shown = pictures.numbers(page.read_text(encoding="utf-8"), pictures.UP_TO[name])
    assert shown == kept(name), "draw the pictures again: python docs/pictures.py"
    assert (pictures.PICTURES / f"{name}.png").is_file()


def test_the_numbers_of_the_picture_are_those_of_the_text_below_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = re.search(r"<!-- output -->(.*?)<!-- /output -->", text, re.DOTALL)
    assert printed is not None
    output = " ".join(printed[1].split())
    verdict = re.search(r"decode step ([\d.]+) → ([\d.]+) ms, ([\d.]+) x \(([\d.]+) to ([\d.]+)\)", output)
    assert verdict is not None
    shares = re.findall(r"([\d.]+) %  ?([\d.]+) %", output)
    assert shares
    wanted = {*verdict.groups(), *(n for pair in shares for n in pair)}
    assert wanted <= set(kept("report"))
    assert {*verdict.groups()} <= set(kept("workbook"))


def test_the_workbook_shows_the_numbers_of_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its headline and top findings, as its cells hold them."""
    monkeypatch.chdir(ROOT)
    book = tmp_path / "review.xlsx"
    assert main([pictures.CAPTURE, "-q", "--xlsx", str(book)]) == 0
    sheet = load_workbook(book)["Summary"]
    cells = [c for row in sheet.iter_rows() for c in row if c.value is not None]
    shares = {f"{100 * c.value:.1f}" for c in cells if isinstance(c.value, float) and "%" in c.number_format}
    assert len(shares) >= 4
    told = {n for c in cells[:4] for n in re.findall(r"\d+\.\d+", str(c.value))}
    assert shares | told <= set(kept("workbook")), "draw the pictures again: python docs/pictures.py"


def test_numbers_are_those_that_are_read() -> None:
    page = "<title>1</title><style>2</style><h1>9.59 → 2.13 ms</h1><p>1,234 of 5</p><h2>Then</h2><p>7</p>"
    assert pictures.numbers(page, "Then") == ["9.59", "2.13", "1,234", "5"]
    with pytest.raises(ValueError, match="Never"):
        pictures.numbers(page, "Never")
