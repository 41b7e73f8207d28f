from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

# Imported before the folder of rules is replaced, which a module keeps that is first imported then.
import advisor.checklist.items
import advisor.compare.change_facts
import advisor.pipeline.doctor
import advisor.pipeline.explain  # noqa: F401
from advisor.cli.main import main
from tests.cli import driver

RULES = Path(__file__).parent / "rules"
Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line in this process, in an empty folder, over the stand-in analysis."""
    for name in driver.ANALYSES:
        monkeypatch.setattr(name, driver.diagnose)
    monkeypatch.setattr(driver, "CALLS", [])
    monkeypatch.setattr("advisor.engine.load.builtin_dir", lambda: RULES)
    monkeypatch.setattr("advisor.pipeline.gate.known_codes", lambda _: {"LCH101", "SYN103", "CAP109"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "a.sqlite").touch()
    return lambda *args: main([str(a) for a in args])
