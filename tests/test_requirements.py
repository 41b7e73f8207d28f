"""requirements-no-compiler.txt is pyproject.toml without what needs a compiler."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_only_durable_rules_is_left_out() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "requirements-no-compiler.txt").read_text(encoding="utf-8").splitlines()
    listed = [line for line in lines if line and not line.startswith("#")]
    needed = project["dependencies"]
    assert listed == [d for d in needed if not d.startswith("durable-rules")]
    assert len(needed) == len(listed) + 1
