"""Rank and world size without reading a capture."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.sources.open import peek
from tests.builder import Export
from tests.kineto_builder import Profile

INFO = {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"ranks": [0, 1]}]}


def trace() -> Profile:
    return Profile().gpu().process(1).launch(at=0, kernel="gemm")


def test_the_head_of_a_profiler_trace_is_enough(tmp_path: Path) -> None:
    path = trace().head(distributedInfo=INFO).write(tmp_path / "a.json")
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b'"ph"')])  # the events are not looked at
    assert (peek(path).rank, peek(path).world_size) == (3, 8)


def test_compressed(tmp_path: Path) -> None:
    path = trace().head(distributedInfo=INFO).write(tmp_path / "a.json.gz")
    with gzip.open(path) as file:
        assert file.read(1) == b"{"
    assert (peek(path).rank, peek(path).world_size) == (3, 8)


@pytest.mark.parametrize("info", [None, {"backend": "nccl"}, {"rank": 0}])
def test_what_a_trace_does_not_tell(tmp_path: Path, info: dict[str, int] | None) -> None:
    path = (trace().head(distributedInfo=info) if info else trace()).write(tmp_path / "a.json")
    assert peek(path).world_size is None


def test_an_export(tmp_path: Path) -> None:
    export = Export().process(1).environment("RANK", "1").environment("WORLD_SIZE", "2")
    path = export.launch(0).write(tmp_path / "a.sqlite")
    assert (peek(path).rank, peek(path).world_size) == (1, 2)


def test_a_report_is_not_exported_for_this(tmp_path: Path) -> None:
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"whatever")
    assert peek(path).rank is None


def test_no_capture(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(InputError):
        peek(tmp_path / "a.txt")
