"""The engine is light to import, and durable-rules stays behind one module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODULES = (
    "advisor.engine.load, advisor.engine.lint, advisor.engine.infer, advisor.engine.conclude, "
    "advisor.engine.reasons, advisor.engine.cases, advisor.engine.durable"
)


def test_nothing_heavy_is_imported() -> None:
    code = (
        f"import sys, {MODULES}; "
        "print([m for m in ('pandas', 'numpy', 'durable', 'durable_rules_engine', 'rich') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_one_module_imports_durable_rules() -> None:
    package = Path(__file__).resolve().parents[2] / "advisor"
    named = [
        path.name
        for path in sorted(package.rglob("*.py"))
        if any(
            line.strip().startswith(("import durable", "from durable"))
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    ]
    assert named == ["durable.py"]
