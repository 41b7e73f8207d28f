"""What is installed: never another project, and without a compiler all but what needs one."""

from __future__ import annotations

import re
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


def test_nothing_installs_the_other_project_of_that_name() -> None:
    """`pip install advisor`, with or without an extra, asks the package index for a stranger."""
    other = re.compile(r"pip3? install [^#\n]*[ '\"]advisor(\[|[ '\"\n]|$)")
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "requirements-no-compiler.txt"]
    for folder in ("advisor", "docs", "examples", "knowledge", "rules", ".ci"):
        texts += [p for p in (ROOT / folder).rglob("*") if p.is_file()]
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in texts
        if path.suffix not in (".xz", ".gz", ".png", ".pyc")
        and "_data" not in path.parts  # built of the others
        and (found := other.search(path.read_text(encoding="utf-8", errors="replace")))
    ]
    assert wrong == []
    assert other.search("pip install 'advisor[arrow]'")
    assert other.search("python3 -m pip install --quiet advisor\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "inference-advisor"
    assert set(project["scripts"]) == {"advisor"}
