"""Every fact has a test of its value: an assertion that compares it, found by its literal name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.facts.catalog import CATALOGUE

TESTS = Path(__file__).parents[1]
#: Calls that compare the values of a table with those of a capture; see test_values.py.
COMPARING = {"expect_values"}
#: What is compared here is said about a fact, and is not its value.
NOT_VALUES = {"missing", "provenance", "undecided", "columns", "tables", "needs", "why"}


def names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def compares_a_value(node: ast.Compare) -> bool:
    """False for `in` and for `is None`, and for what is said about a fact."""
    if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
        return False
    sides = (node.left, *node.comparators)
    if any(isinstance(s, ast.Constant) and s.value is None for s in sides):
        return False
    return not any(isinstance(part, ast.Attribute) and part.attr in NOT_VALUES for part in ast.walk(node))


def asserted(source: str) -> set[str]:
    """The strings whose value some assertion of a module compares."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Compare) and compares_a_value(part):
                    found.update(names(part))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) in COMPARING:
            for table in (a for a in node.args if isinstance(a, ast.Dict)):
                found.update(k for key in table.keys if key is not None for k in names(key))
    return found


def test_every_fact_has_a_test_of_its_value() -> None:
    tested: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        tested |= asserted(path.read_text(encoding="utf-8"))
    untested = sorted(set(CATALOGUE) - tested)
    assert untested == [], "assert their values over a hand-made capture (test_values.py)"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("assert fact(d, 'a.b') == approx(0.5)", True),
        ("assert 0.1 < base.value('a.b') < 0.2", True),
        ("assert found['a.b'] is True", True),
        ("expect_values(base, {'a.b': 1})", True),
        ("assert base.value('a.b') is None", False),
        ("assert 'a.b' in facts", False),
        ("assert base.missing['a.b'] == 'x'", False),
        ("assert rule.verify.fact.needs == ('a.b',)", False),
        ("fact(d, 'a.b')", False),
        ("other(base, {'a.b': 1})", False),
    ],
)
def test_what_counts_as_a_test_of_a_value(source: str, wanted: bool) -> None:
    assert ("a.b" in asserted(source)) is wanted
