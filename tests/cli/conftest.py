from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import advisor.checklist
import advisor.comparison
import advisor.pipeline
from advisor.cli.main import main
from advisor.engine.load import builtin_dir, load_rules
from tests.cli import driver

# Imported before parts of them are replaced: a module that is first imported then keeps the replacement.
for _package in (advisor.checklist, advisor.comparison, advisor.pipeline):
    for _found in iter_modules(_package.__path__, f"{_package.__name__}."):
        import_module(_found.name)

RULES = Path(__file__).parent / "rules"
Run = Callable[..., int]
KNOWN = {c: r for c, r in load_rules(builtin_dir()).by_code.items() if c in ("LCH101", "SYN103", "CAP109")}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line in this process, in an empty folder, over the stand-in analysis."""
    for name in driver.ANALYSES:
        monkeypatch.setattr(name, driver.diagnose)
    monkeypatch.setattr(driver, "CALLS", [])
    monkeypatch.setattr("advisor.engine.load.builtin_dir", lambda: RULES)
    monkeypatch.setattr("advisor.pipeline.gate.known_rules", lambda _: KNOWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "a.sqlite").touch()
    return lambda *args: main([str(a) for a in args])
