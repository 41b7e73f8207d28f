"""No pattern takes longer than its text is long: pumps are made of each pattern of the package.

A pump is what leads to a repetition, then what it takes, thousands of times, then a sign that nothing takes;
or the beginning of the pattern, as often. Four times the text may take six times as long.
"""

from __future__ import annotations

import ast
import json
import os
import re
import re._constants as signs  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import advisor
from advisor.capture.redact_text import Scrubber
from advisor.cli.main import main
from advisor.knowledge.package_data import data_dir
from advisor.reports.layout import shell_lines
from advisor.sources.samplers.rows import recognise
from advisor.sources.serving.log_lines import ServerLog, read_log, read_settings
from tests.test_patterns import compiled_patterns, processor_s, texts_in, valid

FIRST, SHORT, FACTOR, MOST = 400, 6_000, 4, 6
#: Signs that are tried for a class of them: what most classes of the package mean.
_SIGNS = "a1 -.(<\"\\/:,_[A=@'\t{#"
#: Shorter ones are below what the clock can tell apart.
_LEAST_S = 0.003
#: Functions whose first argument is a pattern.
_COMPILERS = frozenset(("search", "sub", "findall", "finditer", "split"))
#: Matched at one place of a text of at most 1 MB, never searched for.
_MATCHED_ONLY = ("advisor.config._LEXED",)


def literal_patterns() -> dict[str, re.Pattern[str]]:
    """The patterns that stand as texts in calls of `re` that search, within functions."""
    found = {}
    for path in Path(advisor.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            text = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if of_re and node.func.attr in _COMPILERS and isinstance(text, str) and valid(text):
                found[f"{path.name}: {text}"] = re.compile(text)
    return found


def known_patterns() -> dict[str, re.Pattern[str]]:
    """Those of the knowledge that match as patterns with a repetition."""
    found = {}
    for path in data_dir("knowledge").rglob("*.yaml"):
        for data in yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
            for text in texts_in(data):
                if len(text) < 600 and re.search(r"[*+}]", text) and text.count(" ") <= 5 and valid(text):
                    found[f"{path.name}: {text}"] = re.compile(text)
    return found


def members(node: Any) -> str:
    """Signs of `_SIGNS`, or the first of its own, that one item of a pattern takes."""
    what, argument = node
    if what is signs.LITERAL:
        return chr(argument)
    if what is signs.ANY:
        return _SIGNS
    if what is signs.NOT_LITERAL:
        return "".join(c for c in _SIGNS if ord(c) != argument)
    kept = [c for c in _SIGNS if in_class(c, argument)]
    first = next((chr(a if o is signs.LITERAL else a[0]) for o, a in argument if o in _OWN), "")
    return "".join(kept) or first


_OWN = (signs.LITERAL, signs.RANGE)
_CATEGORIES = {
    signs.CATEGORY_DIGIT: str.isdigit,
    signs.CATEGORY_SPACE: str.isspace,
    signs.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    signs.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
    signs.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    signs.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


def in_class(sign: str, items: list[tuple[Any, Any]]) -> bool:
    negated = bool(items) and items[0][0] is signs.NEGATE
    held = any(
        (what is signs.LITERAL and ord(sign) == of)
        or (what is signs.RANGE and of[0] <= ord(sign) <= of[1])
        or (what is signs.CATEGORY and _CATEGORIES[of](sign))
        for what, of in items
    )
    return held != negated


REPEATS = (signs.MAX_REPEAT, signs.MIN_REPEAT, signs.POSSESSIVE_REPEAT)


def sample(items: Any, pick: int = 0) -> str:
    """A text that the items take, as short as they allow; `pick` chooses among signs and branches."""
    out = ""
    for what, argument in items:
        if what in REPEATS:
            least, _, inner = argument
            out += sample(inner, pick) * min(least, 40)
        elif what is signs.SUBPATTERN:
            out += sample(argument[-1], pick)
        elif what is signs.ATOMIC_GROUP:
            out += sample(argument, pick)
        elif what is signs.BRANCH:
            out += sample(argument[1][pick % len(argument[1])], pick)
        elif what in (signs.LITERAL, signs.NOT_LITERAL, signs.ANY, signs.IN):
            taken = members((what, argument))
            out += taken[pick % len(taken)] if taken else ""
    return out


def units(items: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """What leads to each repetition without a narrow limit, and what it takes once; nested ones too."""
    for what, argument in items:
        if what in REPEATS:
            _, most, inner = argument
            if most == signs.MAXREPEAT or most > 50:
                for pick in range(len(members(inner[0])) if len(inner) == 1 and inner[0][0] in _ONE else 3):
                    yield before, sample(inner, pick)
            yield from units(inner, before)
        elif what is signs.SUBPATTERN:
            yield from units(argument[-1], before)
        elif what is signs.ATOMIC_GROUP:
            yield from units(argument, before)
        elif what is signs.BRANCH:
            for branch in argument[1]:
                yield from units(branch, before)
                yield "", before + sample(branch)
        before += sample([(what, argument)])
        yield "", before


_ONE = (signs.LITERAL, signs.NOT_LITERAL, signs.ANY, signs.IN)


def pumps(pattern: str, flags: int) -> list[tuple[str, str]]:
    found = [*units(parser.parse(pattern, flags)), *(("", sign) for sign in 'a1 (<"\\/.-')]
    return [(before, unit) for before, unit in dict.fromkeys(found) if unit]


def slow_pumps(pattern: re.Pattern[str]) -> list[str]:
    def text(before: str, unit: str, length: int) -> str:
        return before + unit * (length // len(unit) + 1) + "\1"

    for before, unit in pumps(pattern.pattern, pattern.flags & ~re.UNICODE):
        if processor_s(pattern, text(before, unit, FIRST)) > 0.01:  # worse than the square
            return [f"{before!r} then {unit!r}"]
        short_s = processor_s(pattern, text(before, unit, SHORT))
        if short_s < _LEAST_S:
            continue
        if short_s > 1 or processor_s(pattern, text(before, unit, FACTOR * SHORT)) > MOST * short_s:
            return [f"{before!r} then {unit!r}"]
    return []


@pytest.mark.parametrize("text", [r"x\s*y?\s*\(", r"ab.*cd", r"<[^>]*>", r"\w+:"])
def test_the_pumps_find_patterns_that_are_slow(text: str) -> None:
    assert slow_pumps(re.compile(text))


@pytest.mark.slow
@pytest.mark.skipif("PATTERN_TIMES" not in os.environ, reason="takes minutes: set PATTERN_TIMES=1")
def test_no_pattern_is_slower_than_its_text_is_long() -> None:
    every = compiled_patterns() | literal_patterns() | known_patterns()
    assert len(every) > 600
    slow = {
        n: found for n, p in every.items() if not n.startswith(_MATCHED_ONLY) and (found := slow_pumps(p))
    }
    assert slow == {}


# --- texts that took seconds to forever --------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["RAM 1/1MB " * 20_000, "#retracted_reqs" + " " * 49_000, "Capture cuda graph bs" + " " * 49_000]
)
def test_a_long_line_of_a_log(line: str) -> None:
    assert recognise([line]) is None
    assert read_log(line).rows == []
    read_settings(line, ServerLog())


def test_what_begins_like_a_token_again_and_again() -> None:
    assert Scrubber().text("eyJ-" * 15_000)


@pytest.mark.parametrize("end", ["", '"'])
def test_a_saved_command_with_a_quote_that_does_not_end(end: str) -> None:
    command = 'ncu "' + "\\a" * 5_000 + end
    assert "".join(shell_lines(command, 100, 0)).count("\\a") > 4_900


def test_brackets_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.txt").write_text("(" * 800_000)
    assert main(["facts", str(tmp_path / "t.txt")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    name = "(" * 800_000
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1, "dur": 5}
    event["args"] = {"device": 0, "stream": 7, "correlation": 1}
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [event]}))
    assert main(["facts", str(tmp_path / "t.json")]) == 0
