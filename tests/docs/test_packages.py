"""Each package says in its docstring what is in it and which file to open first, by names of files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.docs.scripts import ROOT
from tests.for_each import for_each

PACKAGES = sorted(p.parent for p in (ROOT / "advisor").glob("*/**/__init__.py"))


@for_each(PACKAGES, lambda p: str(p.relative_to(ROOT)))
def test_a_package_names_the_file_to_open_first(package: Path) -> None:
    words = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert len(words.splitlines()) <= 10
    first = re.search(r"Open ``(\w+)`` first", words)
    assert first, f"{package.name} does not say which file to open first"
    known = {p.stem for p in package.iterdir()} | {p.name for p in PACKAGES}
    named = set(re.findall(r"``(?:advisor/)?([a-z_]+)``", words))
    assert first[1] in known
    assert named <= known, f"{package.name} names {sorted(named - known)}, which it does not hold"


def test_files_that_the_guide_names_are_there() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = ("advisor", "benchmarks", "docs", "knowledge", "rules", "tests")
    named = set(re.findall(rf"`((?:{'|'.join(places)})/[\w/.]*)`", guide))
    assert len(named) > 30
    assert sorted(path for path in named if "NAME" not in path and not (ROOT / path).exists()) == []
    functions = re.findall(r"`(\w+)\(\)` in\s+`([\w/.]+)`", guide)
    assert len(functions) >= 2
    assert [f for f, path in functions if f"def {f}(" not in (ROOT / path).read_text(encoding="utf-8")] == []
