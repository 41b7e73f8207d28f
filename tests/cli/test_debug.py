"""`--debug`: what the engines do not agree on is an error, not a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.engine.durable import Matcher
from advisor.engine.infer import Disagreement
from tests.builder import Export
from tests.engine.engine_support import needs_durable


@needs_durable
def test_engines_that_disagree_end_the_run_under_debug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export = Export("3.25").gpu().process(1)
    for i in range(20):
        export.launch(i * 1_000_000, 5_000, "gemm", i * 1_000_000 + 10_000, 100_000)
    path = str(export.write(tmp_path / "a.sqlite"))
    monkeypatch.setattr(Matcher, "fire", lambda *_: set())
    assert main(["diagnose", path, "--engine", "durable", "--format", "json"]) == 0
    assert "durable-rules and the interpreter disagree on" in capsys.readouterr().err
    with pytest.raises(Disagreement, match="disagree on CAP105"):
        main(["diagnose", path, "--engine", "durable", "--debug"])
