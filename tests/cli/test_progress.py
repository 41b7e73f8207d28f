"""The line that tells what takes long."""

from __future__ import annotations

import re
from pathlib import Path

from advisor.cli.deliver import Progress
from advisor.model.numbers import value_text
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.kineto_builder import Profile


def test_a_line_names_what_is_read_how_much_and_how_long(tmp_path: Path) -> None:
    export = Export().gpu().process(1)
    for i in range(3_000):
        export.launch(at=i * 10_000)
    path = export.write(tmp_path / "a.sqlite")
    with Progress("a.sqlite") as progress, open_trace(path) as trace:
        assert progress.line() == "a.sqlite: reading, 0 s"
        trace.columns("kernels", ["start"])
        what, size, elapsed = progress.line().split(", ")
        assert what == "a.sqlite: measuring"
        assert size.split()[1] in ("KiB", "MiB")
        assert elapsed == "0 s"
        progress("inferring")
        assert progress.line().startswith("a.sqlite: inferring, ")
    with Progress("b.sqlite") as progress:
        assert progress.line() == "b.sqlite: reading, 0 s"


def test_a_trace_of_pytorch_is_read_by_bytes_and_share(tmp_path: Path) -> None:
    path = Profile().gpu().process(100).launch(0, 5_000, "gemm", 8_000, 3_000).write(tmp_path / "t.json")
    with Progress("t.json") as progress, open_trace(path):
        line = progress.line()
    assert re.fullmatch(
        rf"t.json: reading events, 0 %, {value_text(path.stat().st_size, 'bytes')}, 0 s", line
    )
