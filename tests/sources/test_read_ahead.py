"""Tables of large captures are read on threads, with the results of reading them one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor import diagnose
from advisor.errors import InputError
from advisor.sources import trace as traces
from advisor.sources.open import open_trace
from advisor.sources.schema import NEEDED
from tests.builder import Export


def export() -> Export:
    e = Export().gpu().process(100)
    for i in range(120):
        e.launch(i * 20_000, 3_000, f"k{i % 3}", i * 20_000 + 5_000, 9_000)
    return e


@pytest.fixture(autouse=True)
def every_capture_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_LARGE", 0)


def test_the_columns_are_those_that_are_read_one_by_one(tmp_path: Path) -> None:
    path = export().write(tmp_path / "t.sqlite")
    with open_trace(path) as ahead, open_trace(path) as plain:
        ahead.read_ahead(*NEEDED)
        for table, names in NEEDED.items():
            assert ahead.rows(table) == plain.rows(table)
            found, expected = ahead.columns(table, names), plain.columns(table, names)
            assert {n: c.tolist() for n, c in found.items()} == {n: c.tolist() for n, c in expected.items()}


def test_what_cannot_be_read_is_said_where_it_is_needed(tmp_path: Path) -> None:
    path = export().write(tmp_path / "t.sqlite")
    with open_trace(path) as trace:
        path.write_bytes(path.read_bytes() + b"more")
        trace.read_ahead(*NEEDED)
        with pytest.raises(InputError, match="it changed while it was read"):
            trace.columns("kernels", ("start",))


def test_a_capture_can_be_closed_before_it_is_read(tmp_path: Path) -> None:
    with open_trace(export().write(tmp_path / "t.sqlite")) as trace:
        trace.read_ahead(*NEEDED)


def test_facts_computed_on_threads_are_those_computed_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export().write(tmp_path / "t.sqlite")
    on_threads = diagnose(path)
    monkeypatch.setattr(traces, "_LARGE", 1 << 40)
    assert diagnose(path) == on_threads


@pytest.mark.parametrize(("huge", "on_threads"), [(1 << 40, True), (0, False)], ids=["large", "huge"])
def test_facts_of_a_huge_capture_are_computed_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, huge: int, on_threads: bool
) -> None:
    path = export().write(tmp_path / "t.sqlite")
    expected = diagnose(path)
    monkeypatch.setattr(traces, "_HUGE", huge)
    with open_trace(path) as trace:
        trace.read_ahead(*NEEDED)
        assert (trace.threads is not None) is on_threads
        assert trace.rows("kernels") == 120
    assert diagnose(path) == expected
