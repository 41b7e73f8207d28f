"""The page of texts that are read: each of its forms has a text, which tells just what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from tests.text_forms import TEXTS, WORDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "server_texts.md"


def rows() -> dict[str, list[str]]:
    """The first table of the page, by form."""
    table = PAGE.read_text(encoding="utf-8").split("| form |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    return {name: rest for name, *rest in cells}


def test_each_form_is_on_the_page() -> None:
    assert rows().keys() == TEXTS.keys()
    assert all(all(cells) for cells in rows().values())


@pytest.mark.parametrize("form", TEXTS)
def test_a_text_tells_what_the_page_says(tmp_path: Path, form: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(TEXTS[form])
    known = {f.name for f in advisor.diagnose(path).facts if f.value is not None}
    assert ", ".join(word for fact, word in WORDS.items() if fact in known) == rows()[form][1]
