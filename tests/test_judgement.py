"""Judgement lies in rules and knowledge: doctor, checklist and comparisons compare no fact with a
number."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "advisor"
#: Where facts of a capture are at hand, and a threshold would be quickly written down. A session sees none.
JUDGED = (
    "pipeline/doctor.py",
    *sorted(f"checklist/{p.name}" for p in (PACKAGE / "checklist").glob("*.py") if p.stem != "session"),
)
#: What differs between two captures: against `limit("...")`, never a number of the code. Statistical
#: methods, and how layers are counted, have constants of their own.
COMPARED = sorted({p.stem for p in (PACKAGE / "compare").glob("*.py")} - {"statistics", "step_work"})
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def comparisons(source: str) -> list[int]:
    """Lines that compare in order of size, or with a number other than a count of items."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        counted = any(
            isinstance(s, ast.Call) and isinstance(s.func, ast.Name) and s.func.id == "len" for s in sides
        )
        number = any(isinstance(s, ast.Constant) and type(s.value) in (int, float) for s in sides)
        ordered = any(isinstance(op, _ORDERED) for op in node.ops)
        if (number or ordered) and not counted:
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("name", JUDGED)
def test_no_fact_is_compared_with_a_number(name: str) -> None:
    assert comparisons((PACKAGE / name).read_text(encoding="utf-8")) == []


def shares(source: str) -> list[float]:
    """Numbers well between 0 and 1: what a limit of a share looks like."""
    constants = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
    return [value for value in constants if type(value) is float and 1e-3 < value < 1]


@pytest.mark.parametrize("name", COMPARED)
def test_a_comparison_holds_no_limit_of_its_own(name: str) -> None:
    assert shares((PACKAGE / "compare" / f"{name}.py").read_text(encoding="utf-8")) == []


def test_the_walk_sees_a_share_wherever_it_stands() -> None:
    assert shares("_MOVED = 0.05\nif change > 0.1 * step: pass\nx = max(0.0, 1.0)") == [0.05, 0.1]


@pytest.mark.parametrize("source", ["share >= 0.1", "facts.value('a') == 0", "0 < count", "seen > limit"])
def test_the_walk_sees_a_comparison(source: str) -> None:
    assert comparisons(source) == [1]


def test_the_walk_leaves_counts_and_names_alone() -> None:
    assert comparisons("len(rows) > 1 and name == 'a' and at in found") == []
