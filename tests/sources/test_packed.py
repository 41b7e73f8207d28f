"""What a compressed file without a size of its own may unpack to."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.sources import packed
from tests.builder import Export


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_UNSUSPECTED_BYTES", 0)


def unpacked(content: bytes, folder: Path) -> bytes:
    path, copy = folder / "trace.json.gz", folder / "copy"
    path.write_bytes(gzip.compress(content))
    with gzip.open(path) as file:
        packed.unpack(path, file, copy)  # type: ignore[arg-type]
    return copy.read_bytes()


def test_what_shrinks_as_traces_do_is_unpacked(tmp_path: Path) -> None:
    content = os.urandom(100_000) + bytes(3 << 20)
    assert unpacked(content, tmp_path) == content


def test_a_small_database_that_holds_more_than_its_header_says(tmp_path: Path) -> None:
    """The limit is told in a unit that it reaches."""
    head = bytearray(Export().kernel(0).write(tmp_path / "t.sqlite").read_bytes())
    stated = len(head)
    with pytest.raises(InputError, match=f"unpacks to more than {stated:,} bytes, which its header"):
        unpacked(bytes(head) + bytes(3 << 20), tmp_path)


def test_more_than_200_times_its_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unpacks to more than 6 MB"):
        unpacked(bytes(32 << 20), tmp_path)
    assert (tmp_path / "copy").stat().st_size < 9 << 20
