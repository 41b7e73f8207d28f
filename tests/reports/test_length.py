"""The report without -v is one screen: of the captures of this repository, and with references to open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import pytest

from advisor.reports.blocks import Block, Entry, Grid, Labelled, Places
from advisor.reports.diagnosis_blocks import TextOptions, shown
from advisor.reports.finding_text import Detail, finding
from advisor.reports.text import plain
from tests.captures import committed, diagnosed
from tests.reports.fixture import DIAGNOSIS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "examples/captures", ROOT / "tests/data/captures")
CAPTURES = sorted(
    p for folder in FOLDERS for end in ("sqlite.xz", "json.gz") for p in folder.glob(f"*.{end}")
)


def test_the_report_of_a_capture_is_one_screen() -> None:
    lines = {}
    for path in CAPTURES:
        blocks = shown([diagnosed(path)], TextOptions())
        lines[path.name] = len(plain(blocks).splitlines())
    assert len(lines) >= 10
    assert max(lines.values()) <= 32, lines
    assert median(lines.values()) <= 23, lines


def nested(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        yield from nested(getattr(block, "blocks", ()))


@pytest.mark.parametrize("name", ["decode_eager_bs1", "prefill8b_bs4"])
def test_in_full_at_most_ten_rows_and_five_places(name: str) -> None:
    """With -v and of `advisor show`; -vv prints all."""
    blocks = [*nested(shown([diagnosed(committed(name))], TextOptions(verbosity=1)))]
    rows = [len(b.rows) for b in blocks if isinstance(b, Grid)]
    assert rows
    assert max(rows) <= 10
    assert all(len(b.texts) <= 5 for b in blocks if isinstance(b, Places))


@pytest.mark.parametrize("detail", [Detail(), Detail(rows=10, places=5)])
def test_only_references_that_can_be_opened_are_printed(detail: Detail) -> None:
    for found in DIAGNOSIS.findings:
        entry = finding(found, True, detail, {})
        assert isinstance(entry, Entry)
        seen = [
            b
            for b in entry.blocks
            if isinstance(b, Labelled) and b.text in {r.title for r in found.references}
        ]
        assert [b.url for b in seen] == [r.url for r in found.references if r.url]
