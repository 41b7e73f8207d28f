"""Every way to be wrong that a rule file has, with the line and the words that the author reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.load import load_rule, load_rules, read_rules
from advisor.errors import RuleError

GOOD = """\
schema: 1
code: ABC101
cause: blocking-sync
title: The host waits
kind: cause
scope: device
lifecycle: preview
params:
  min_idle: {default: 0.05, unit: ratio, origin: judged, source: here}
when:
  any:
    - all:
        - {fact: sync.idle_ratio, op: ge, param: min_idle}
        - {fact: sync.span_ratio, op: ge, value: 0.2}
unless:
  - {fact: capture.overhead_ratio, op: gt, value: 0.2, if_unknown: pass}
confidence: {method: measured, base: 0.8}
message: "{sync.idle_ratio|pct} of the window is idle"
docs:
  what: Looks at waits that return to an empty queue.
  why: The device has nothing to do meanwhile.
  harmless_when: The device has queued work.
"""


def write(folder: Path, text: str, name: str = "ABC101.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def failing(folder: Path) -> list[str]:
    with pytest.raises(RuleError) as caught:
        load_rules(folder)
    return str(caught.value).splitlines()


def test_the_good_file_loads(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "er", GOOD)
    (one,) = load_rules(tmp_path)
    assert (one.code, one.when.branches[0][1].fact) == ("ABC101", "sync.span_ratio")  # type: ignore[union-attr]


#: (text replaced, its replacement, line of the error, what is said)
BAD = [
    ("schema: 1", "schema: 2", 1, "schema is 2; use 1"),
    ("code: ABC101", "code: abc-1", 2, "code is 'abc-1'; it must match"),
    ("code: ABC101", "code: ABC102", 2, "the code ABC102 differs from the file name ABC101.yaml"),
    ("cause: blocking-sync", "cause: Blocking", 3, "cause is 'Blocking'; it must match"),
    ("title: The host waits", "title: ''", 4, "title is ''; expected"),
    ("title: The host waits\n", "", 1, "title is missing; add it"),
    ("title: The host waits", "titel: The host", 4, "titel is an unknown key; did you mean 'title'"),
    ("title: The host waits", "all: The host", 4, "all is an unknown key; remove it"),
    ("title: The host waits", "title: 1.10", 4, "title is 1.1; expected a valid string"),
    (
        "kind: cause",
        "kind: problem",
        5,
        "kind is 'problem'; use 'symptom', 'cause', 'limit', 'note' or 'question'",
    ),
    ("scope: device", "scope: gpu", 6, "scope is 'gpu'; use 'trace', 'rank', 'device'"),
    ("scope: device", "scope: device\nscope: trace", 7, "the key `scope` appears twice; keep one"),
    ("scope: device\nlifecycle", "scope: &a device\ntitle2: *a\nlifecycle", 6, "anchors and aliases"),
    ("lifecycle: preview", "lifecycle: *b", 7, "not valid YAML"),
    ("lifecycle: preview", "lifecycle: !!python/name:os.system stable", 7, "is not supported"),
    ("lifecycle: preview", "lifecycle: preview\ninvalidates: yes", 8, "invalidates is 'yes'"),
    ("default: 0.05", "default: 1e999", 9, "params.min_idle.default: the number is not finite"),
    ("default: 0.05", "default: 9223372036854775808", 9, "the integer does not fit in 64 bits"),
    ("default: 0.05", f"default: {'x' * 257}", 9, "the text is longer than 256 characters"),
    ("default: 0.05", "default: {a: 1}", 9, "expected a number, true or false, a text"),
    ("unit: ratio", "unit: percent", 9, "params.min_idle.unit is 'percent'; use 'ratio', 'ns'"),
    (
        "origin: judged",
        "origin: guess",
        9,
        "use 'measured', 'documented', 'computed', 'judged', 'seed' or 'peer'",
    ),
    ("op: ge, param", "op: gte, param", 13, "when.any[0].all[0].op is 'gte'; use 'lt', 'le'"),
    ("op: ge, param", "op: div, param", 13, "when.any[0].all[0].op is 'div'; use 'lt', 'le'"),
    ("op: ge, value: 0.2", "op: ge", 14, "all[1]: give exactly one of `value` and `param`"),
    ("op: ge, value: 0.2", "op: ge, value: no", 14, "texts and flags compare with eq or ne, not"),
    ("op: ge, value: 0.2", "op: ge, value: 12:30", 14, "texts and flags compare with eq or ne"),
    ("op: ge, value: 0.2", "op: ge, value: 010", 14, "texts and flags compare with eq or ne"),
    ("op: ge, value: 0.2", "op: known, value: 1", 14, "`known` takes `value: true` or"),
    ("op: ge, value: 0.2", "op: eq, value: [a]", 14, "a list of texts goes with `one_of`"),
    ("op: ge, value: 0.2", "op: one_of, value: a", 14, "a list of texts goes with `one_of`"),
    ("op: ge, value: 0.2", "op: one_of, value: [a, a]", 14, "the list names a text twice"),
    ("op: ge, value: 0.2", "op: one_of, value: []", 14, "expected a number, true or false"),
    ("fact: sync.span_ratio", "fact: Span", 14, "fact is 'Span'; it must match"),
    ("fact: sync.span_ratio", "metric: sync.x", 14, "starts with one of `fact`, `symptom`, `cause`"),
    ("fact: sync.span_ratio", "symptom: idle", 14, "all[1].op is an unknown key"),
    ("value: 0.2}\nunless", "value: 0.2, if_unknown: pass}\nunless", 14, "if_unknown is an unknown"),
    ("if_unknown: pass", "if_unknown: ignore", 16, "unless[0].if_unknown is 'ignore'; use 'pass'"),
    ("base: 0.8", "base: 1.5", 17, "confidence.base is 1.5; expected less than or equal to 1"),
    ("base: 0.8", "base: '0.8'", 17, "confidence.base is '0.8'; expected a valid number"),
    ("base: 0.8", "base: true", 17, "confidence.base is True; expected a valid number"),
    ("  why: The device has nothing to do meanwhile.\n", "", 19, "docs.why is missing; add it"),
]


@pytest.mark.parametrize(("old", "new", "line", "said"), BAD)
def test_one_mistake_is_one_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert GOOD.count(old) == 1
    path = write(tmp_path, GOOD.replace(old, new))
    found = [problem for problem in failing(tmp_path) if said in problem]
    assert [f.startswith(f"{path}:{line}: ") for f in found] == [True]


def test_a_non_finite_word_is_a_text(tmp_path: Path) -> None:
    """YAML's .inf is never a number here, so a threshold cannot become infinite by accident."""
    write(tmp_path, GOOD.replace("default: 0.05", "default: .inf"))
    (one,) = load_rules(tmp_path)
    assert one.params["min_idle"].default == ".inf"


def test_numbers_without_a_point_are_numbers(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("default: 0.05", "default: 1e-5"))
    (one,) = load_rules(tmp_path)
    assert one.params["min_idle"].default == 1e-5


def _when(body: str) -> str:
    start, end = GOOD.index("when:"), GOOD.index("unless:")
    params = GOOD[GOOD.index("params:") : start]
    return (GOOD[:start] + "when:\n" + body + GOOD[end:]).replace(params, "")


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("  all: []\n", 9, "when.all has 0 items; give at least 1"),
        ("  any: []\n", 9, "when.any has 0 items; give at least 1"),
        ("  any: [{all: []}]\n", 9, "when.any[0].all has 0 items; give at least 1"),
        ("  {}\n", 8, "when: give exactly one of `any` and `all`"),
        ("  all:\n" + "    - {fact: a.b, op: ge, value: 1}\n" * 9, 9, "when.all has 9 items; give at most 8"),
        (
            "  any:\n" + "    - all: [{fact: a.b, op: ge, value: 1}]\n" * 7,
            9,
            "when.any has 7 items; give at most 6",
        ),
        (
            "  all: [{fact: a.b, op: ge, value: 1}]\n  join:\n    - {as: x, entity: e, on: []}\n",
            11,
            "when.join[0].on has 0 items; give at least 1",
        ),
        (
            "  all: [{fact: a.b, op: ge, value: 1}]\n  join:\n    - {as: x, entity: e, on: [n]}\n",
            11,
            "when.join[0].on[0] is 'n'; use 'rank', 'device'",
        ),
        (
            "  all: [{fact: a.b, op: ge, value: 1}]\n  join:\n"
            "    - {as: x, entity: e, on: [device]}\n    - {as: x, entity: f, on: [device]}\n",
            8,
            "when: two joins have the same `as`; rename one",
        ),
    ],
)
def test_conditions_of_the_wrong_number(tmp_path: Path, body: str, line: int, said: str) -> None:
    path = write(tmp_path, _when(body))
    (found,) = failing(tmp_path)
    assert found == f"{path}:{line}: {said}" or found.startswith(f"{path}:{line}: {said}")


def test_all_mistakes_of_all_files_come_at_once(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("kind: cause", "kind: x").replace("base: 0.8", "base: 8.0"))
    write(tmp_path, "a: [", "ABC102.yaml")
    write(tmp_path, "", "ABC103.yaml")
    (tmp_path / "ABC104.yaml").write_bytes(b"\xff\xfe\x00")
    write(tmp_path, GOOD, "ABC105.yml")
    write(tmp_path, "rule: ABC106", "ABC106.cases.yaml")
    write(tmp_path, "[1, 2]", "ABC107.yaml")
    found = failing(tmp_path)
    assert [line.split("ABC")[1][:3] for line in found] == [
        "101",
        "101",
        "102",
        "103",
        "104",
        "105",
        "106",
        "107",
    ]
    assert "not valid YAML" in found[2]
    assert "the file is empty" in found[3]
    assert "not UTF-8 text" in found[4]
    assert "rule files end in .yaml; rename it" in found[5]
    assert "there is no ABC106.yaml beside these cases" in found[6]


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 50_000,
        "? " * 30_000,
        "- " * 30_000,
        "\n".join(" " * i + "?" for i in range(1_000)),
        "\n".join(" " * i + "a:" for i in range(1_000)),
    ],
)
def test_deep_nesting_is_an_error_not_a_crash(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    (found,) = failing(tmp_path)
    assert found.endswith("ABC101.yaml:1: nested too deeply; flatten the document")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("key{i}: 1\n", "key49 is an unknown key; remove it"),
        ("title: x\n", "the key `title` appears twice; keep one"),
    ],
)
def test_of_thousands_of_mistakes_the_first_are_listed(tmp_path: Path, line: str, told: str) -> None:
    path = write(tmp_path, GOOD + "".join(line.format(i=i) for i in range(20_000)))
    found = failing(tmp_path)
    assert len(found) == 51
    assert found[-2].endswith(told)
    assert found[-1] == f"{path}: and 19,950 more problems"


def test_of_hundreds_of_files_with_mistakes_the_first_are_listed(tmp_path: Path) -> None:
    for number in range(600):
        write(tmp_path, GOOD + "key: 1\n", f"ABC{number:03}.yaml")
    found = failing(tmp_path)
    assert len(found) == 501
    assert found[-1] == "and 100 more problems in other files"


def test_the_same_code_twice(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", GOOD), write(tmp_path / "b", GOOD)
    (found,) = failing(tmp_path)
    assert found == f"{second}:2: the code ABC101 is also defined in {first}; keep one"


def test_the_same_cause_twice(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    path = write(tmp_path, GOOD.replace("ABC101", "ABC102"), "ABC102.yaml")
    (found,) = failing(tmp_path)
    assert found == (f"{path}:3: the cause blocking-sync belongs to ABC101; one cause has one code")


def test_no_such_directory(tmp_path: Path) -> None:
    (found,) = failing(tmp_path / "nowhere")
    assert found.endswith("nowhere: no such directory; check the path")
    (tmp_path / "file").touch()
    (found,) = failing(tmp_path / "file")
    assert found.endswith("file: not a directory; name the one that holds the rules")


def test_a_later_directory_replaces_whole_rules(tmp_path: Path) -> None:
    write(tmp_path / "ours", GOOD)
    write(tmp_path / "ours", GOOD.replace("ABC101", "ABC102").replace("blocking-", "other-"), "ABC102.yaml")
    write(tmp_path / "theirs", GOOD.replace("The host waits", "Mine"))
    found = load_rules(tmp_path / "ours", tmp_path / "theirs")
    assert [r.title for r in found] == ["Mine", "The host waits"]
    assert load_rule("abc101", tmp_path / "ours", tmp_path / "theirs").title == "Mine"
    assert load_rule("ABC102", tmp_path / "ours", tmp_path / "theirs").title == "The host waits"


def test_a_replacement_keeps_the_cause(tmp_path: Path) -> None:
    write(tmp_path / "ours", GOOD)
    path = write(tmp_path / "theirs", GOOD.replace("blocking-sync", "mine"))
    with pytest.raises(RuleError) as caught:
        load_rules(tmp_path / "ours", tmp_path / "theirs")
    assert str(caught.value) == (
        f"{path}:3: the cause of ABC101 is blocking-sync and must stay so; give `mine` a code of its own"
    )


def test_an_unknown_code(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(RuleError, match="no rule has the code ABC110; did you mean 'ABC101"):
        load_rule("ABC110", tmp_path)


def test_a_folder_of_more_rules_than_anybody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is parsed, and folders beside it are judged by themselves."""
    monkeypatch.setattr("advisor.engine.load.MOST_RULES_BYTES", 3 << 20)
    for name, size in (("few", 1 << 20), ("many", 2 << 20)):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"OWN10{number}.yaml").write_text(" " * size)
    _, problems = read_rules([tmp_path / "many"])
    assert [p.text for p in problems] == ["holds 4 MB of rules, at most 3; name a folder of fewer"]
    _, problems = read_rules([tmp_path / "few"])
    assert all("MB of rules" not in p.text for p in problems)
