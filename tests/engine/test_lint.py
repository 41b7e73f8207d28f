"""Checks against the catalogues: each mistake gives one line at its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.engine.lint import check_rules, lint
from advisor.engine.lint_names import Catalogues
from advisor.engine.load import load_rules
from advisor.errors import RuleError
from advisor.model.rules import RuleSpec
from tests.engine.engine_support import ge, rule, rules


@dataclass(frozen=True)
class Spec:
    unit: str
    level: str = "device"


KNOWN = Catalogues(
    facts={
        "sync.idle_ratio": Spec("ratio"),
        "sync.calls_count": Spec("count"),
        "sync.wait_ns": Spec("ns"),
        "graph.used": Spec("flag"),
        "engine.name": Spec("text"),
        "window.steps_count": Spec("count", "trace"),
        "phase.decode_ratio": Spec("ratio", "phase"),
        "process.share_ratio": Spec("ratio", "process"),
    },
    entities={"copy_class": {"device": int, "kind": str, "per_step": float, "sync": bool}},
    tables=("sync.top_calls",),
    what_ifs={"remove_sync": {"which": ("all", "small"), "share": ()}},
    actions=("sample-on-device", "enable-cuda-graphs"),
    parts=("sync", "launch_call"),
    references=("cuda-graphs",),
)

SYMPTOM = """\
schema: 1
code: ABC100
cause: gpu-idle
title: Idle
kind: symptom
scope: device
lifecycle: preview
when:
  all: [{fact: sync.idle_ratio, op: ge, value: 0.15}]
confidence: {method: measured, base: 0.8}
message: idle
docs: {what: Looks at the idle share., why: Idle time is lost., harmless_when: There is no work.}
"""
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
        - {fact: window.steps_count, op: ge, value: 5}
        - {symptom: gpu-idle}
  join:
    - as: d2h
      entity: copy_class
      on: [device]
      where: [{field: kind, op: eq, value: DtoH}]
unless:
  - {fact: graph.used, op: eq, value: true, if_unknown: pass}
then:
  explains: [gpu-idle]
impact: {fact: sync.idle_ratio, part: sync}
confidence: {method: measured, base: 0.8}
gain: {what_if: remove_sync}
message: "{sync.idle_ratio|pct} of the window, above {param.min_idle|pct}"
healthy: "{sync.wait_ns|ms}"
evidence: [sync.top_calls, d2h]
recommendations:
  - {id: no-sync, action: Out., effort: low, verify: {fact: sync.idle_ratio, expect: decrease}}
docs:
  what: Looks at waits that return to an empty queue.
  why: The device has nothing to do meanwhile.
  harmless_when: The device has queued work.
  references: [cuda-graphs]
"""


def write(folder: Path, text: str = GOOD, symptom: str = SYMPTOM) -> Path:
    (folder / "ABC100.yaml").write_text(symptom, encoding="utf-8")
    path = folder / "ABC101.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_sound_set_has_no_problems(tmp_path: Path) -> None:
    write(tmp_path)
    assert lint(load_rules(tmp_path), KNOWN) == []
    assert len(check_rules(KNOWN, tmp_path)) == 2


#: (text replaced, its replacement, line, what is said)
BAD = [
    (
        "id: no-sync",
        "id: sample-on-devic",
        32,
        "unknown action sample-on-devic; did you mean 'sample-on-device'?",
    ),
    ("part: sync", "part: launch_cal", 25, "unknown part launch_cal; did you mean 'launch_call'?"),
    (
        "fact: window.steps_count",
        "fact: window.step_count",
        14,
        "unknown fact window.step_count; did you mean 'window.steps_count'?",
    ),
    (
        "fact: window.steps_count",
        "fact: phase.decode_ratio",
        14,
        "phase.decode_ratio is a fact of each phase, which a rule of scope device does not see; "
        "use a wider fact or a narrower scope",
    ),
    (
        "fact: window.steps_count, op: ge, value: 5",
        "fact: engine.name, op: eq, value: 5",
        14,
        "engine.name is a text, compared with a number",
    ),
    (
        "fact: window.steps_count, op: ge, value: 5",
        "fact: graph.used, op: eq, value: 1",
        14,
        "graph.used is a flag, compared with a number",
    ),
    (
        "fact: window.steps_count, op: ge, value: 5",
        "fact: graph.used, op: ge, value: 1",
        14,
        "graph.used is a flag, compared with a number",
    ),
    (
        "fact: sync.idle_ratio, op: ge, param",
        "fact: sync.wait_ns, op: ge, param",
        13,
        "min_idle is in ratio and sync.wait_ns in ns; give one unit",
    ),
    (
        "fact: sync.idle_ratio, op: ge, param: min_idle",
        "fact: sync.idle_ratio, op: ge, param: x",
        13,
        "the parameter x is not in `params`; add it",
    ),
    ("param: min_idle", "param: min_idel", 13, "the parameter min_idel is not in `params`; add it"),
    (
        "param: min_idle",
        "param: ABC100.min_idel",
        13,
        "unknown parameter ABC100.min_idel; name one that ABC100 has",
    ),
    ("default: 0.05", "default: eager", 13, "min_idle is a text or flag: compare with eq or ne"),
    (
        "origin: judged, source: here}",
        "origin: seed}\n  spare: {default: 1, unit: count, origin: seed}",
        10,
        "the parameter spare is used nowhere; remove it",
    ),
    (
        "origin: judged, source: here}",
        "origin: seed, sets: ABC100.share}",
        9,
        "unknown parameter ABC100.share; correct it",
    ),
    (
        "{symptom: gpu-idle}",
        "{symptom: gpu-idel}",
        15,
        "no active rule has the symptom gpu-idel; correct the name",
    ),
    ("{symptom: gpu-idle}", "{cause: gpu-idle}", 15, "gpu-idle is a symptom, not a cause; use its kind"),
    (
        "{symptom: gpu-idle}",
        "{cause: blocking-sync}",
        2,
        "ABC101 -> ABC101 need each other's outcome; take one of these conditions out",
    ),
    (
        "explains: [gpu-idle]",
        "explains: [blocking-sync]",
        24,
        "blocking-sync is a cause, not a symptom; use its kind",
    ),
    ("explains: [gpu-idle]", "overrules: [gpu-idle]", 24, "gpu-idle is a symptom, not a cause; use its kind"),
    (
        "explains: [gpu-idle]",
        "overrules: [nobody]",
        24,
        "no active rule has the cause nobody; correct the name",
    ),
    ("kind: cause", "kind: note", 24, "a note explains nothing; remove gpu-idle"),
    ("entity: copy_class", "entity: copy_clas", 18, "unknown entity copy_clas; did you mean 'copy_class'?"),
    ("on: [device]", "on: [device, phase]", 19, "copy_class has no field phase; correct the name"),
    ("field: kind", "field: kinds", 20, "copy_class has no field kinds; did you mean 'kind'?"),
    ("value: DtoH", "value: 4", 20, "copy_class.kind is a text, compared with a number"),
    (
        "field: kind, op: eq, value: DtoH",
        "field: sync, op: eq, value: 1",
        20,
        "copy_class.sync is a flag, compared with a number",
    ),
    ("on: [device]", "on: [device]\n      optional: true", 0, ""),
    (
        "impact: {fact: sync.idle_ratio",
        "impact: {fact: engine.name",
        25,
        "engine.name is a text; an impact is a number",
    ),
    (
        "impact: {fact: sync.idle_ratio, part: sync}",
        "severity: {levels: [{at: 0.1, severity: low}]}",
        25,
        "levels grade the impact; add `impact` or remove them",
    ),
    (
        "what_if: remove_sync",
        "what_if: remove_syncs",
        27,
        "unknown what-if remove_syncs; did you mean 'remove_sync'?",
    ),
    (
        "what_if: remove_sync",
        "what_if: remove_sync, params: {whichh: all}",
        27,
        "remove_sync has no parameter whichh; did you mean 'which'?",
    ),
    (
        "what_if: remove_sync",
        "what_if: remove_sync, params: {which: smal}",
        27,
        "unknown which 'smal' of remove_sync; did you mean 'small'?",
    ),
    ("what_if: remove_sync", "what_if: remove_sync, params: {which: all, share: 0.5}", 0, ""),
    ("{sync.idle_ratio|pct} of", "{sync.idle|pct} of", 28, "unknown fact sync.idle; did you mean"),
    ("action: Out.", "action: 'Out, {sync.idle|pct}.'", 32, "unknown fact sync.idle; did you mean"),
    ("action: Out.", "action: 'Out, {sync.idle_ratio}.'", 32, "is not a placeholder; write {fact|format}"),
    ("action: Out.", "action: 'Out, as report_%q{RANK}.'", 0, ""),
    ("{sync.idle_ratio|pct} of", "{sync.idle_ratio} of", 28, "is not a placeholder; write {fact|format}"),
    (
        "{sync.idle_ratio|pct} of",
        "{sync.idle_ratio|percent} of",
        28,
        "unknown format percent; use one of pct, share, ns, us, ms, bytes, rate, int, num, text",
    ),
    (
        "{sync.idle_ratio|pct} of",
        "{sync.wait_ns|pct} of",
        28,
        "the format pct does not fit sync.wait_ns, which is in ns",
    ),
    (
        "{sync.idle_ratio|pct} of",
        "{engine.name|num} of",
        28,
        "the format num does not fit engine.name, which is in text",
    ),
    ("{param.min_idle|pct}", "{param.min|pct}", 28, "the parameter min is not in `params`; add it"),
    ("{sync.wait_ns|ms}", "{sync.wait_ns|bytes}", 29, "the format bytes does not fit sync.wait_ns"),
    (
        "[sync.top_calls, d2h]",
        "[sync.top, d2h]",
        30,
        "unknown evidence table or join sync.top; did you mean 'sync.top_calls'?",
    ),
    ("[sync.top_calls, d2h]", "[d2h]\nseverity: {cap: low}", 0, ""),
    ("verify: {fact: sync.idle_ratio", "verify: {fact: sync.idleness", 32, "unknown fact sync.idle"),
    (
        "harmless_when: The device has queued work.",
        "harmless_when: never",
        36,
        "docs.harmless_when says too little; write a sentence",
    ),
    ("[cuda-graphs]", "[cuda-graph]", 37, "unknown reference cuda-graph; did you mean 'cuda-gr"),
    (
        "lifecycle: preview",
        "lifecycle: stable",
        7,
        "a stable rule has cases; write ABC101.cases.yaml beside it",
    ),
]


@pytest.mark.parametrize(("old", "new", "line", "said"), [b for b in BAD if b[2]])
def test_one_mistake_is_one_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert GOOD.count(old) == 1
    path = write(tmp_path, GOOD.replace(old, new))
    found = [str(p) for p in lint(load_rules(tmp_path), KNOWN) if said in str(p)]
    assert [f.startswith(f"{path}:{line}: ") for f in found] == [True]


@pytest.mark.parametrize(("old", "new"), [b[:2] for b in BAD if not b[2]])
def test_what_is_no_mistake(tmp_path: Path, old: str, new: str) -> None:
    write(tmp_path, GOOD.replace(old, new))
    assert lint(load_rules(tmp_path), KNOWN) == []


def test_problems_of_loading_and_checking_come_together(tmp_path: Path) -> None:
    """A symptom whose file does not load is not called unknown besides."""
    path = write(tmp_path, GOOD.replace("steps_count, op", "step_count, op"), SYMPTOM.replace("0.8", "8"))
    with pytest.raises(RuleError) as caught:
        check_rules(KNOWN, tmp_path)
    first, second = str(caught.value).splitlines()
    assert "confidence.base is 8; expected less than or equal to 1" in first
    assert second.startswith(f"{path}:14: unknown fact window.step_count")


def said(*specs: Any) -> list[str]:
    return [p.text for p in lint(rules(*specs), Catalogues({"f.a": Spec("ratio", "trace")}))]


def words(specs: Any) -> str:
    return "\n".join(t for t in said(*specs) if "docs." not in t)


DOCS = {"what": "one two three", "why": "one two three", "harmless_when": "one two three"}


@pytest.mark.parametrize(
    ("mine", "theirs", "over", "expected"),
    [
        ("device", "device", None, ""),
        ("phase", "device", None, ""),
        ("device", "phase", "any", ""),
        ("device", "device", "any", ""),
        ("device", "phase", None, "s has the scope phase, this rule device; add `over: any`"),
        ("phase", "process", None, "s has the scope process, this rule phase; they never meet"),
        ("phase", "device", "any", "`over: any` looks at narrower scopes, and s has the scope device"),
        ("phase", "process", "any", "`over: any` looks at narrower scopes, and s has the scope proc"),
    ],
)
def test_scopes_of_outcomes(mine: Any, theirs: Any, over: str | None, expected: str) -> None:
    condition = {"symptom": "s"} | ({"over": over} if over else {})
    found = words(
        (
            rule("ABC100", "s", [ge("f.a", 1)], kind="symptom", scope=theirs),
            rule("ABC101", "c", [condition], scope=mine),
        )
    )
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_scopes_of_explaining_and_overruling() -> None:
    symptom = rule("ABC100", "s", [ge("f.a", 1)], kind="symptom", scope="device")
    cause = rule("ABC101", "c", [ge("f.a", 1)], scope="phase", then={"explains": ["s"]})
    assert "s has the scope device, wider than this rule's phase: it is never folded in" in words(
        (symptom, cause)
    )
    one = rule("ABC102", "d", [ge("f.a", 1)], scope="process", then={"overrules": ["c"]})
    plain = rule("ABC101", "c", [ge("f.a", 1)], scope="phase")
    assert "c has the scope phase, this rule process; they never meet" in words((plain, one))
    ruler = rule("ABC104", "e", [ge("f.a", 1)], then={"overrules": ["n"]})
    for kind in ("note", "limit"):
        other = rule("ABC103", "n", [ge("f.a", 1)], kind=kind)
        assert f"n is a {kind}; only causes are overruled" in words((other, ruler))
    bad = rule("ABC105", "t", [ge("f.a", 1)], kind="symptom", then={"overrules": ["c"]})
    assert "a symptom overrules nothing; remove c" in words((plain, bad))


def test_repeated_conditions_and_advice() -> None:
    advice = {"id": "x", "action": "do", "effort": "low"}
    twice = rule("ABC100", "c", [ge("f.a", 1), ge("f.a", 1)], recommendations=[advice, advice], docs=DOCS)
    found = words((twice,))
    assert "the same condition stands above; remove one" in found
    assert "the recommendation x appears twice; say when each applies" in found


def test_alternatives_name_what_is_known() -> None:
    way = {"id": "no-synk", "action": "do", "effort": "low", "gain": {"what_if": "no_such"}}
    one = rule("ABC100", "c", [ge("f.a", 1)], alternatives=[way], docs=DOCS)
    known = replace(KNOWN, actions=("no-sync",), what_ifs={"batch": {}})
    found = [p.text for p in lint(rules(one), known)]
    assert "unknown what-if no_such; correct the name" in found
    assert "unknown action no-synk; did you mean 'no-sync'?" in found


def test_one_action_in_words_for_each_kind_of_program() -> None:
    kinds = [
        {"id": "x", "action": "do", "effort": "low", "applies_when": [ge("f.b", value)]} for value in (1, 2)
    ]
    one = rule("ABC100", "c", [ge("f.a", 1)], recommendations=kinds, docs=DOCS)
    assert not [w for w in words((one,)) if "appears twice" in w]


def test_a_wide_condition_looks_into_narrower_scopes() -> None:
    """`f.a` is a fact of each phase."""

    def found(**more: str) -> list[str]:
        one = rule("ABC100", "c", [{**ge("f.a", 1), **more}])
        return [p.text for p in lint(rules(one), Catalogues({"f.a": Spec("ratio", "phase")}))]

    assert any("f.a is a fact of each phase" in text for text in found())
    assert not any("f.a is a fact of each phase" in text for text in found(over="any"))


@pytest.mark.parametrize(
    ("subject", "answers", "otherwise", "said"),
    [
        ("checklist", ({"reply": "yes"},), None, None),
        ("checklist", ({"reply": "yes"},), {"reply": "no"}, None),
        ("checklist", ({"reply": "partly"},), None, "is never answered partly"),
        ("checklist", (None,), None, "a question has an `answer` in each branch"),
        ("recording", ({"reply": "yes", "reason": "r"},), None, "and `otherwise`"),
        ("recording", ({"reply": "yes"},), {"reply": "no"}, "has a `reason`"),
        ("trace", ({"reply": "yes"},), None, "`subject: recording` or `subject: checklist`"),
    ],
)
def test_the_answers_of_a_question(
    subject: str, answers: tuple[Any, ...], otherwise: Any, said: str | None
) -> None:
    branches = [{"all": [ge("f.a", 1)]} | ({"answer": a} if a else {}) for a in answers]
    more = {"otherwise": otherwise} if otherwise else {}

    def made() -> RuleSpec:
        when = {"any": branches}
        return rule("ABC100", "c", when, kind="question", scope="trace", subject=subject, **more)

    if said is None:
        assert [a.reply for a in made().answers] == [a["reply"] for a in (*answers, otherwise) if a]
    else:
        with pytest.raises(ValueError, match=said):
            made()


def test_an_optional_join_that_nobody_shows() -> None:
    join = {"as": "j", "entity": "e", "on": ["device"], "optional": True}
    one = rule("ABC100", "c", {"all": [ge("f.a", 1)], "join": [join]})
    assert "the optional join j is not evidence; list it there or remove it" in words((one,))


def test_names_are_checked_in_a_file_with_other_mistakes(tmp_path: Path) -> None:
    """Each at its line: an unknown key, values out of range, and wrong names."""
    text = (
        GOOD.replace("scope: device", "scope: galaxy")
        .replace("base: 0.8", "base: 8.0")
        .replace("{fact: window.steps_count, op: ge, value: 5}", "{fact: window.steps_cuont, op: near}")
        .replace("part: sync", "part: snyc, colour: red")
    )
    (tmp_path / "ABC101.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RuleError) as caught:
        check_rules(KNOWN, tmp_path)
    said = {line.split(".yaml:")[1] for line in str(caught.value).splitlines()}
    lines = text.splitlines()

    def at(part: str) -> str:
        return str(1 + next(i for i, line in enumerate(lines) if part in line))

    assert {s for s in said if "unknown fact" in s} == {
        f"{at('cuont')}: unknown fact window.steps_cuont; did you mean 'window.steps_count'?"
    }
    assert any(s.startswith(f"{at('snyc')}: unknown part snyc") for s in said)
    assert any(s.startswith(f"{at('galaxy')}: scope is 'galaxy'") for s in said)
    assert any("colour is an unknown key" in s for s in said)
    assert len(said) == 6


def test_names_are_checked_in_a_file_with_a_key_missing(tmp_path: Path) -> None:
    """What has a key missing is left out; the rest is looked at."""
    fact = "{fact: window.steps_count, op: ge, value: 5}"
    text = re.sub(r"impact: .*", "impact: {part: sync}", GOOD).replace(
        fact, "{fact: window.steps_cuont, op: ge, value: 5}"
    )
    (tmp_path / "ABC101.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RuleError) as caught:
        check_rules(KNOWN, tmp_path)
    said = [line.split(": ", 1)[1] for line in str(caught.value).splitlines()]
    assert said == [
        "unknown fact window.steps_cuont; did you mean 'window.steps_count'?",
        "impact.fact is missing; add it",
    ]
