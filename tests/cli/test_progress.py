"""The line that tells what takes long."""

from __future__ import annotations

from pathlib import Path

from advisor.cli.progress import Progress
from advisor.sources.open import open_trace
from tests.builder import Export


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
