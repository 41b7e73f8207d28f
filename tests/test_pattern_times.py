"""No pattern takes longer than its text is long: texts are made of each pattern of the package.

Such a text is what leads to a repetition, then what it takes, again and again, then a sign that nothing
takes; or the beginning of the pattern, as often. Four times the text may take six times as long.

Times are processor times of this process, the least of several, and only those count that take as long as a
pattern would that looks at all the signs behind each sign: the others need not be compared.
"""

from __future__ import annotations

import ast
import importlib
import io
import json
import math
import pkgutil
import re
import re._constants as signs  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import pytest
import yaml

import advisor
from advisor.capture.redact_text import Scrubber
from advisor.cli.main import main
from advisor.knowledge.files import kernel_families
from advisor.knowledge.package_data import data_dir
from advisor.reports.layout import shell_lines
from advisor.sources.pasted.profiler_tables import layout_of
from advisor.sources.samplers.rows import recognise
from advisor.sources.serving.log_lines import ServerLog, read_log, read_settings
from tests.captures import EXAMPLES
from tests.test_patterns import texts_in, valid

#: Repetitions after which a pattern is noticed whose time doubles with each.
FEW = 24
#: Signs of the first text, where what repeats is one sign. What is longer repeats less often, so that looking
#: at all the signs behind each repetition takes as long: some 5 ms, where looking at each once takes 30 us.
FIRST, FIRST_S = 3_000, 0.0015
#: The same where only the beginning of a text is tried (`kernel_names.LONGEST`), however long the rest is.
#: There looking at all signs behind each repetition is allowed, and looking at those again for each is not:
#: three times the text would take 27 times as long, and not nine.
BEGINNING, BEGINNING_S = 1_200, 0.04
BEGINNING_FACTOR, BEGINNING_MOST = 3, 16
#: As many texts are compared with longer ones, the slowest: of a pattern with a hundred words all take long.
COMPARED = 4
#: The same for the texts that are compared: clocks of processor time may tick every 4 ms.
SHORT, SHORT_S = 12_000, 0.02
FACTOR, MOST = 4, 6
#: Searches of a text are broken off after this much processor time; four times as much in a beginning. Those
#: that end take 0.5 s at most, on a busy machine twice that; those that take this long would not end today.
GIVE_UP_S = 3.0
#: Repetitions up to this often are no matter of the length of a text.
NARROW = 50
#: Signs that are tried for a class of them: what most classes of the package mean.
_SIGNS = "a1 -.(<\"\\/:,_[A=@'\t{#"

REPEATS = (signs.MAX_REPEAT, signs.MIN_REPEAT, signs.POSSESSIVE_REPEAT)

# --- every pattern of the package ----------------------------------------------------------------------

#: Methods that try a pattern at the beginning of a text alone. All others try it at each place.
AT_ONCE = ("match", "fullmatch")
#: Texts of the code that only look like patterns: a glob, and conditions in SQL.
NONE = ("[0-9]*/environ", " glob '*")
#: Cells of a table are tried behind the space ahead of them, so the whole pattern of a line is tried instead.
PARTS = ("(?:-?\\d[\\d.,]*\\s?%|", "(?:-?\\d[\\d.,]*\\s?[KMGT]?[bB]|", "(?<!\\s)\\s++(?P<namename>")
LINE = "Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  "


class Used(NamedTuple):
    """A pattern, the method by which it is tried, and whether only the beginning of a text is."""

    pattern: re.Pattern[str]
    method: str = "search"
    in_beginning: bool = False

    def on(self, text: str) -> object:
        return getattr(self.pattern, self.method)(text)


def code_patterns() -> dict[str, Used]:
    """Every pattern of the code with a repetition, by where it stands: those of modules and their tables, and
    each text that is one, wherever it is handed to `re`, unless it is only a part of another."""
    trees = {}
    for found in pkgutil.walk_packages(advisor.__path__, "advisor."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            if str(module.__file__).endswith(".py"):
                trees[found.name] = vars(module), ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    calls = [node for _, tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    methods = defaultdict(set)
    for call in calls:
        if isinstance(call.func, ast.Attribute):
            methods[ast.unparse(call.func.value).rpartition(".")[2]].add(call.func.attr)
    kept: dict[str, Used] = {}
    for where, (names, _) in trees.items():
        for name, value in names.items():
            once = methods[name] if methods[name] <= {*AT_ONCE} else ()
            for pattern in compiled(value):
                kept[f"{where}: {pattern.pattern}"] = Used(pattern, next(iter(once), "search"))
    every = "\0".join(used.pattern.pattern for used in kept.values())
    texts = {
        f"{where}: {u.pattern.pattern}": u
        for where, (names, tree) in trees.items()
        for u in texts_of(tree, names)
    }
    longer = "\0".join((every, *(used.pattern.pattern for used in texts.values())))
    kept["a line of a table"] = Used(layout_of(LINE).line, "match")
    return kept | {name: u for name, u in texts.items() if longer.count(u.pattern.pattern) == 1}


def compiled(value: Any, depth: int = 0) -> Iterator[re.Pattern[str]]:
    """The compiled patterns in a value of a module."""
    if isinstance(value, re.Pattern):
        text = value.pattern
        kept = value if isinstance(text, str) else re.compile(text.decode("latin-1"), value.flags)
        if any(most > NARROW for most in limits(parser.parse(kept.pattern, kept.flags & ~re.UNICODE))):
            yield kept
    elif depth < 3 and isinstance(value, list | tuple | set | frozenset | dict):
        items = [*value, *value.values()] if isinstance(value, dict) else value
        for item in items:
            yield from compiled(item, depth + 1)


def texts_of(tree: ast.AST, names: dict[str, Any]) -> Iterator[Used]:
    """The texts of a module that are patterns. Where a part is known only when it runs, it is a word."""
    method = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).startswith("re."):
            method[node.args[0]] = ast.unparse(node.func).removeprefix("re.")
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            text = stated(node, names)
            if text and is_pattern(text):
                way = method.get(node, "")
                yield Used(re.compile(text), way if way in AT_ONCE else "search")


def stated(node: ast.expr, names: dict[str, Any]) -> str | None:
    if isinstance(node, ast.JoinedStr):
        parts = [stated(v.value if isinstance(v, ast.FormattedValue) else v, names) for v in node.values]
        return "".join("name" if part is None else part for part in parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = stated(node.left, names), stated(node.right, names)
        return None if sides == (None, None) else "".join(side or "name" for side in sides)
    value = names.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else None


def data_patterns() -> dict[str, Used]:
    """Those of the rules, and those of the knowledge, which are searched in the beginning of a text alone."""
    found = {}
    for kind, in_beginning in (("rules", False), ("knowledge", True)):
        for path in data_dir(kind).rglob("*.yaml"):
            for data in yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
                texts = filter(is_pattern, texts_in(data))
                found |= {
                    f"{path.name}: {text}": Used(re.compile(text), "search", in_beginning) for text in texts
                }
    return found


def is_pattern(text: str) -> bool:
    """Whether it is no sentence, and repeats something without a narrow limit."""
    if text.startswith(PARTS) or any(part in text for part in NONE) or not re.search(r"[\\\])]|\.[*+]", text):
        return False
    plain = len(text) > 1_000 or not re.search(r"[*+}]", text) or text.count(" ") > 8 or "\n\n" in text
    return not plain and valid(text) and any(most > NARROW for most in limits(parser.parse(text)))


def limits(items: Any) -> Iterator[int]:
    """How often each repetition repeats at most."""
    for what, argument in items:
        if what in REPEATS:
            yield int(argument[1])
        for inner in parts_of(what, argument):
            yield from limits(inner)


def parts_of(what: Any, argument: Any) -> list[Any]:
    """The parsed patterns within one item of a parsed pattern."""
    if what in REPEATS or what in (signs.SUBPATTERN, signs.ASSERT, signs.ASSERT_NOT):
        return [argument[-1]]
    if what is signs.ATOMIC_GROUP:
        return [argument]
    return list(argument[1]) if what is signs.BRANCH else []


# --- texts that it could take long for -----------------------------------------------------------------


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


_ONE = (signs.LITERAL, signs.NOT_LITERAL, signs.ANY, signs.IN)


def sample(items: Any, pick: int = 0, more: int = 0) -> str:
    """A text that the items take, with `more` repetitions than needed; `pick` chooses signs and branches."""
    out = ""
    for what, argument in items:
        if what in REPEATS:
            out += sample(argument[2], pick, more) * min(max(argument[0], min(more, argument[1])), 40)
        elif what is signs.BRANCH:
            out += sample(argument[1][pick % len(argument[1])], pick, more)
        elif what is signs.SUBPATTERN or what is signs.ATOMIC_GROUP:
            out += sample(parts_of(what, argument)[0], pick, more)
        elif what in _ONE:
            taken = members((what, argument))
            out += taken[pick % len(taken)] if taken else ""
    return out


def pumps(items: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """What leads to each repetition without a narrow limit, and what it takes once, in several ways; nested
    ones too. And each beginning of the pattern."""
    for what, argument in items:
        inner = parts_of(what, argument)
        if what in REPEATS and argument[1] > NARROW:
            alone = len(inner[0]) == 1 and inner[0][0][0] in _ONE
            for pick in range(len(members(inner[0][0])) if alone else 3):
                yield before, sample(inner[0], pick)
                yield before, sample(inner[0], pick, 1)
        for part in inner:
            yield from pumps(part, before)
            if what is signs.BRANCH:
                yield "", before + sample(part)
        before += sample([(what, argument)])
        yield "", before
        yield "", before + sample([(what, argument)], 0, 1)


def texts_for(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    found = [*pumps(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))]
    found += [("", sign) for sign in 'a1 (<"\\/.-']
    return [(before, unit) for before, unit in dict.fromkeys(found) if unit]


# --- how long it takes ---------------------------------------------------------------------------------


class TooLong(Exception):
    """A search took more than `GIVE_UP_S`."""


def give_up(*_: object) -> None:
    raise TooLong


def least_s(used: Used, text: str, clock: Callable[[], float], enough_s: float) -> float:
    """The least of three measurements, or the first below `enough_s`."""
    least = math.inf
    for _ in range(3):
        start = clock()
        used.on(text)
        least = min(least, clock() - start)
        if least < enough_s:
            break
    return least


def text_of(before: str, unit: str, length: int) -> str:
    return before + unit * (int(length * len(unit) ** 0.5 / len(unit)) + 1) + "\1"


def is_slow(used: Used, before: str, unit: str) -> bool:
    """Whether it takes more than six times as long for four times the text."""
    if not used.in_beginning:
        short, enough_s, factor, most = SHORT, SHORT_S, FACTOR, MOST
    else:
        short, enough_s, factor, most = BEGINNING, BEGINNING_S, BEGINNING_FACTOR, BEGINNING_MOST
    short_s = least_s(used, text_of(before, unit, short), process_time, enough_s)
    if short_s < enough_s:
        return False
    return least_s(used, text_of(before, unit, factor * short), process_time, most * short_s) > most * short_s


def slow_text(used: Used) -> str | None:
    """A text that it takes too long for. What takes next to no time by the clock on the wall need not be
    compared with a longer text."""
    kept = signal.signal(signal.SIGVTALRM, give_up)
    slowest: list[tuple[float, str, str]] = []
    before = unit = ""
    try:
        for before, unit in texts_for(used.pattern):
            signal.setitimer(signal.ITIMER_VIRTUAL, GIVE_UP_S)
            if least_s(used, before + unit * FEW + "\1", process_time, SHORT_S) > SHORT_S:
                return f"{before!r} and then {unit!r} a few times"
            if used.in_beginning:
                first, first_s, clock = BEGINNING, BEGINNING_S, process_time
            else:
                first, first_s, clock = FIRST, FIRST_S, perf_counter
            took_s = least_s(used, text_of(before, unit, first), clock, first_s)
            if took_s > first_s:
                slowest.append((took_s, before, unit))
        for _, before, unit in sorted(slowest, reverse=True)[:COMPARED]:
            signal.setitimer(signal.ITIMER_VIRTUAL, GIVE_UP_S * (4 if used.in_beginning else 1))
            if is_slow(used, before, unit):
                return f"{before!r} and then {unit!r} again and again"
    except TooLong:
        return f"{before!r} and then {unit!r}, given up after {GIVE_UP_S} s"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, kept)
    return None


@pytest.mark.parametrize(
    "text",
    [
        r"x\s*y?\s*\(",
        r"ab.*cd",
        r"<[^>]*>",
        r"\w+:",
        r"^(?:a|b|ab)*c",
        r'"(?:\\.|[^"])*"',
        r"(?:\w+\s?)*$",
        r"begin of a long line \d+ .*end",
    ],
)
def test_slow_patterns_are_found(text: str) -> None:
    assert slow_text(Used(re.compile(text)))


@pytest.mark.parametrize(
    "text", [r"<[^<>]*>", r"(?<!\w)\w++:", r"^a*b", r'^"(?:\\.|[^"\\])*"', r"x\s{0,20}y"]
)
def test_those_that_are_not_are_not(text: str) -> None:
    assert slow_text(Used(re.compile(text))) is None


@pytest.mark.parametrize("text", [r"cudnn.*sdpa.*wgmma", r"^triton_+(?:\d+[a-z]*)*$"])
def test_slow_patterns_are_found_in_the_beginning_of_a_text(text: str) -> None:
    assert slow_text(Used(re.compile(text), "search", True))
    assert slow_text(Used(re.compile(r"cudnn.*sdpa"), "search", True)) is None


def test_no_pattern_takes_longer_than_its_text_is_long() -> None:
    every = code_patterns() | data_patterns()
    assert len(every) > 550
    assert {name: found for name, used in every.items() if (found := slow_text(used))} == {}


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


def test_a_settings_file_of_quotes_that_do_not_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "advisor.toml").write_text('x = "' + '\\"' * 400_000)
    assert main(["doctor", "--config", str(tmp_path / "advisor.toml"), "no.sqlite"]) == 2
    assert "not valid TOML" in capsys.readouterr().err


def test_a_kernel_that_is_called_by_a_number_of_sixty_digits() -> None:
    assert kernel_families().classify(["triton_" + "1" * 60 + "-"])


def test_brackets_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.txt").write_text("(" * 800_000)
    assert main(["facts", str(tmp_path / "t.txt")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    name = "(" * 800_000
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1, "dur": 5}
    event["args"] = {"device": 0, "stream": 7, "correlation": 1}
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [event]}))
    assert main(["facts", str(tmp_path / "t.json")]) == 0


@pytest.mark.parametrize(
    "line",
    [
        "facts {text}",
        "facts {table}",
        "facts {json}",
        "facts -",
        "facts {good} --window {many}",
        "facts {good} --nvtx {many}",
        "facts {good} --weight-bytes {many}",
        "facts {good} --weight-bytes {json}",
        "{good} --gpu-metrics {text}",
        "{good} --log {text}",
        "{good} --param {many}",
        "{good} --param LCH101.{many}=1",
        "{good} --serving-engine {many}",
        "{good} --baseline {json}",
        "{good} --rules {rules}",
        "whatif {good} --fix {many}",
        "stats {good} -r {many}",
        "checklist --no-input --answers {text}",
        "moe {json} {table}",
    ],
)
def test_brackets_without_end_anywhere(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    brackets = "(" * 800_000
    names = {
        name: tmp_path / file for name, file in (("text", "t.yaml"), ("table", "t.csv"), ("json", "t.json"))
    }
    names["text"].write_text(brackets)
    names["table"].write_text(f"output_throughput,a\n{brackets}")
    names["json"].write_text(f'{{"a": {"[" * 800_000}')
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "A.yaml").write_text(brackets)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(brackets.encode())))
    good = EXAMPLES / "decode_graph_bs1.sqlite.xz"
    args = line.format(good=good, many=brackets[:100_000], rules=tmp_path / "rules", **names).split()
    assert main(args) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert len(told) < 2_100
