"""Placeholders and how numbers are shown."""

from __future__ import annotations

import re

import pytest

from advisor.engine.values import FORMATS, Placeholder, Shown, placeholders, render, show, stray_brace
from advisor.model.numbers import value_text
from advisor.model.rules import RuleSpec
from tests.for_each import for_each
from tests.shipped import shipped_rules


@pytest.mark.parametrize(
    ("value", "unit", "form", "expected"),
    [
        (0.342, "ratio", "pct", "34.2 %"),
        (0.1499, "ratio", "pct", "15 %"),
        (0.0012, "ratio", "pct", "0.12 %"),
        (1.0, "ratio", "pct", "100 %"),
        (0, "ratio", "pct", "0 %"),
        (850, "ns", "ns", "850 ns"),
        (12_340, "ns", "ns", "12.3 us"),
        (2_500_000, "ns", "ns", "2.5 ms"),
        (1_500_000_000, "ns", "ns", "1.5 s"),
        (2.5, "ms", "ns", "2.5 ms"),
        (12_345, "ns", "us", "12.3 us"),
        (12_345_678, "ns", "ms", "12.3 ms"),
        (12.5, "ms", "ms", "12.5 ms"),
        (512, "bytes", "bytes", "512 B"),
        (3 * 2**20, "bytes", "bytes", "3 MiB"),
        (4.8e12, "bytes_per_s", "rate", "4.8 TB/s"),
        (52_100, "count_per_s", "rate", "52.1 k/s"),
        (10_000, "hz", "rate", "10 kHz"),
        (1234.6, "count", "int", "1,235"),
        (3.14159, "count", "num", "3.14"),
        (123_456.7, "count", "num", "123,457"),
        (float("nan"), "count", "num", "nan"),
        ("nccl", "text", "text", "nccl"),
        (True, "flag", "text", "yes"),
        (("a", "b"), "text", "text", "a, b"),
    ],
)
def test_show(value: object, unit: str, form: str, expected: str) -> None:
    assert show(Shown(value, unit), form) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "unit", "form"),
    [(0.000234, "ratio", "pct"), (0.1, "ratio", "pct"), (12_340, "ns", "ns"), (4.8e12, "bytes_per_s", "rate"),
     (3 * 2**20, "bytes", "bytes"), (3.14159, "count", "num")],
)  # fmt: skip
def test_a_message_prints_a_value_as_reports_do(value: float, unit: str, form: str) -> None:
    assert show(Shown(value, unit), form) == value_text(value, unit)


def test_a_passage_without_its_value_is_left_out() -> None:
    known = {"a.b": Shown(0.5, "ratio")}
    template = "{a.b|pct} idle[[, {a.c|int} calls a step]][[, {a.b|pct} in all]]."
    assert render(template, lambda p: known.get(p.name)) == "50 % idle, 50 % in all."


def test_a_passage_about_nothing_is_left_out() -> None:
    known = {"a.b": Shown(0.5, "ratio"), "a.c": Shown(0.00002, "ratio"), "a.d": Shown(0, "count")}
    template = "{a.b|pct} idle[[, {a.c|pct} in calls]][[, {a.d|int} calls]], {a.c|pct} at least."
    assert render(template, lambda p: known.get(p.name)) == "50 % idle, 0 calls, 0 % at least."


def test_placeholders() -> None:
    template = "{sync.idle_ratio|pct} above {param.min_idle|pct}"
    assert list(placeholders(template)) == [
        Placeholder(False, "sync.idle_ratio", "pct"),
        Placeholder(True, "min_idle", "pct"),
    ]
    assert stray_brace(template) is None
    assert stray_brace("a {b} c") == "a {b} c"
    assert stray_brace("a } c") == "a } c"


def test_render_folds_white_space_and_says_what_is_unknown() -> None:
    found = render("a {f.a|pct}\n  and {f.b|ns}", lambda p: Shown(0.5, "ratio") if p.name == "f.a" else None)
    assert found == "a 50 % and (unknown)"


def test_a_value_is_never_read_as_a_placeholder() -> None:
    assert render("{f.t|text}", lambda _: Shown("{f.t|text}", "text")) == "{f.t|text}"


def test_every_format_shows_every_number() -> None:
    for form in FORMATS:
        for value in (0, -1, 1e-12, 1e18, 0.5):
            assert show(Shown(value, "count"), form)


CUT = re.compile(r"\b(?:a|and|at|by|costs?|for|from|holds?|in|is|of|takes?|than|the|with)[.,;]")


@for_each(shipped_rules().active, lambda r: r.code)
def test_a_message_is_whole_without_any_one_of_its_facts(rule: RuleSpec) -> None:
    """What a capture lacks takes its optional part along; no sentence is left without an end."""
    for missing in {p.name for p in placeholders(rule.message)}:
        text = render(rule.message, lambda p, m=missing: None if p.name == m else Shown("7", "text"))
        assert not CUT.search(text), f"without {missing}: {text}"
