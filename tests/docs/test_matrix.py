"""The table of verbs and kinds of input in docs/verbs.md is what the commands do."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks import matrix


@pytest.fixture(scope="module")
def page() -> dict[str, dict[str, str]]:
    """The table as it stands in the page."""
    text = matrix.PAGE.read_text(encoding="utf-8").partition(matrix.BEGIN)[2].partition(matrix.END)[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.strip().splitlines()]
    return {row[0].strip("`"): dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def test_every_verb_and_kind_is_in_the_page(page: dict[str, dict[str, str]]) -> None:
    assert list(page) == list(matrix.VERBS)
    assert all(tuple(row) == matrix.KINDS for row in page.values())


def test_the_verbs_that_must_take_a_job_do(page: dict[str, dict[str, str]]) -> None:
    for verb in ("diagnose", "show", "explain --trace", "whatif", "doctor", "compare", "baseline save"):
        assert page[verb]["ranks"] == "yes", verb
    assert {row["ranks"] for row in page.values()} == {"yes", "one rank"}


@pytest.mark.parametrize("verb", ["show", "facts", "stats", "redact"])
@pytest.mark.parametrize("kind", ["log", "samples", "table"])
def test_the_page_holds(
    page: dict[str, dict[str, str]], verb: str, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with TemporaryDirectory() as name:
        words = matrix.inputs(Path(name))[kind]
        assert matrix.cell(verb, words)[0] == page[verb][kind]


@pytest.mark.slow
def test_the_whole_page_holds(page: dict[str, dict[str, str]]) -> None:
    for verb, found in matrix.matrix():
        assert {kind: found.get(kind, "-") for kind in matrix.KINDS} == page[verb], verb
