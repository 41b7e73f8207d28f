"""What `benchmarks/mutants.md` lists can still be changed so."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.docs.scripts import script

ROOT = Path(__file__).resolve().parents[1]


def test_each_change_that_no_test_notices_has_its_line() -> None:
    by_path: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for entry in script("benchmarks/mutants.py").explained():
        path, _, change = entry.partition(": ")
        what, _, line = change.partition(" in: ")
        by_path[path].append((line, what.partition(" -> ")[0]))
    assert len(by_path) > 20
    gone = []
    for path, listed in by_path.items():
        if not (ROOT / path).is_file():
            gone.append(f"{path} is not there")
            continue
        text = (ROOT / path).read_text(encoding="utf-8")
        lines = [line.strip() for line in text.splitlines()]
        wanted = {line for line, _ in listed}
        there = {
            (line, ast.unparse(node).partition("\n")[0])
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.expr | ast.stmt) and (line := lines[node.lineno - 1]) in wanted
        }
        gone += [f"{path}: {before} in: {line}" for line, before in listed if (line, before) not in there]
    assert gone == [], "gone from the source: take it out of benchmarks/mutants.md, or change it there"


def test_a_change_that_no_test_reaches_is_not_noticed() -> None:
    """No test fails where none runs."""
    assert script("benchmarks/mutants.py").passes([])
