"""The runner of cases, its contract, and the two sample rules in both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.cases import CaseFile, run_all
from advisor.engine.durable import available
from advisor.engine.infer import Engine
from advisor.engine.load import RuleSet, builtin_dir, load_rules
from advisor.engine.parse import validate
from advisor.knowledge.yaml_files import parse
from tests.engine.test_load_errors import GOOD, write

#: A rule with a branch of three kinds of condition, a join, a guard and an overruling rule.
RULE = GOOD.replace(
    "        - {fact: sync.span_ratio, op: ge, value: 0.2}\n",
    "        - {symptom: gpu-idle}\n"
    "  join:\n    - as: d2h\n      entity: copies\n      on: [device]\n"
    "      where: [{field: n, op: ge, value: 4}]\n",
)
SYMPTOM = GOOD.replace("ABC101", "ABC102").replace("blocking-sync", "gpu-idle")
SYMPTOM = SYMPTOM.replace("kind: cause", "kind: symptom")
RULER = GOOD.replace("ABC101", "ABC103").replace("blocking-sync", "opaque")
RULER = RULER.replace("docs:\n", "then: {overrules: [blocking-sync]}\ndocs:\n")
CASES = """\
rule: ABC101
cases:
  - name: fires
    facts: {sync.idle_ratio: 0.3}
    symptoms: [gpu-idle]
    entities: {copies: [{n: 4}]}
    expect: {outcome: fired, severity: info}
  - name: just under
    facts: {sync.idle_ratio: 0.049}
    symptoms: [gpu-idle]
    entities: {copies: [{n: 4}]}
    expect: {outcome: quiet}
  - name: no symptom
    facts: {sync.idle_ratio: 0.3}
    entities: {copies: [{n: 4}]}
    expect: {outcome: quiet}
  - name: no rows
    facts: {sync.idle_ratio: 0.3}
    symptoms: [gpu-idle]
    entities: {copies: [{n: 3}, {n: 9, device: 7}]}
    expect: {outcome: quiet}
  - name: guarded
    facts: {sync.idle_ratio: 0.3, capture.overhead_ratio: 0.21}
    symptoms: [gpu-idle]
    entities: {copies: [{n: 4}]}
    expect: {outcome: quiet}
  - name: overruled
    facts: {sync.idle_ratio: 0.3}
    symptoms: [gpu-idle]
    causes: [opaque]
    entities: {copies: [{n: 4}]}
    expect: {outcome: overruled}
  - name: nothing known
    expect: {outcome: not_evaluated, missing: [sync.idle_ratio, copies]}
    symptoms: [gpu-idle]
  - name: symptom not judged
    facts: {sync.idle_ratio: 0.3}
    unknown: [gpu-idle]
    entities: {copies: [{n: 4}]}
    expect: {outcome: not_evaluated, missing: [symptom gpu-idle]}
"""
ENGINES: list[Engine] = ["python", "durable"] if available()[0] else ["python"]


def run(folder: Path, cases: str, engine: Engine = "python") -> list[str]:
    write(folder, RULE)
    write(folder, SYMPTOM, "ABC102.yaml")
    write(folder, RULER, "ABC103.yaml")
    path = write(folder, cases, "ABC101.cases.yaml")
    (found,) = (r.all_problems for r in run_all(load_rules(folder), engine=engine) if r.code == "ABC101")
    assert all(p.path == str(path) for p in found)
    return [f"{p.line}: {p.text}" for p in found]


@pytest.mark.parametrize("engine", ENGINES)
def test_cases_that_hold(tmp_path: Path, engine: Engine) -> None:
    assert run(tmp_path, CASES, engine) == []


def test_a_rule_alone(tmp_path: Path) -> None:
    """Symptoms and causes that no loaded rule defines are taken from the case."""
    write(tmp_path, RULE)
    write(tmp_path, CASES.replace("causes: [opaque]", "causes: []"), "ABC101.cases.yaml")
    (found,) = run_all(load_rules(tmp_path))
    assert [r.name for r in found.results if not r.ok] == ["overruled"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("outcome: fired", "outcome: quiet", "7: fires: expected quiet, found fired"),
        ("severity: info", "severity: high", "7: fires: expected high, found info"),
        (
            "{sync.idle_ratio: 0.3}\n    symptoms: [gpu-idle]\n    entities: {copies: [{n: 4}]}\n"
            "    expect: {outcome: fired",
            "{}\n    symptoms: [gpu-idle]\n    entities: {copies: [{n: 4}]}\n    expect: {outcome: fired",
            "7: fires: expected fired, found not_evaluated (missing sync.idle_ratio)",
        ),
        (
            "missing: [sync.idle_ratio, copies]",
            "missing: [copies]",
            "34: nothing known: expected copies, missing is sync.idle_ratio, copies",
        ),
        (
            "facts: {sync.idle_ratio: 0.049}",
            "facts: {sync.idle_ratio: 0.049, sync.idel: 1}",
            "9: just under: the rule does not use the fact sync.idel; correct the name",
        ),
        (
            "causes: [opaque]",
            "causes: [opaque, opal]",
            "30: overruled: the rule does not ask for opal; correct the name",
        ),
        (
            "{copies: [{n: 3}",
            "{copy: [], copies: [{n: 3}",
            "20: no rows: the rule does not join copy; correct the name",
        ),
        (
            "idle_ratio: 0.049",
            "idle_ratio: 0.01",
            "2: no quiet case only just misses `sync.idle_ratio at least 0.05` (ABC101#1); add one",
        ),
        (
            "{sync.idle_ratio: 0.049}\n    symptoms: [gpu-idle]",
            "{sync.idle_ratio: 0.049}",
            "2: no quiet case only just misses `sync.idle_ratio at least 0.05` (ABC101#1); add one",
        ),
        (
            "overhead_ratio: 0.21",
            "overhead_ratio: 0.9",
            "2: no quiet case is only just stopped by `capture.overhead_ratio more than 0.2`",
        ),
        ("[{n: 3}, {n: 9, device: 7}]", "[{n: 4}]", "2: no quiet case lacks only the rows of `d2h`"),
        ("name: fires", "nam: fires", "3: cases[0].name is missing; add it"),
        ("rule: ABC101", "rule: ABC102", "1: these are the cases of ABC102, not of ABC101"),
        ("outcome: overruled", "outcome: nothing", "32: cases[5].expect.outcome is 'nothing'; use"),
    ],
)
def test_what_does_not_hold(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert CASES.count(old) == 1
    assert any(f.startswith(expected) for f in run(tmp_path, CASES.replace(old, new)))


def test_the_contract_asks_for_all_outcomes(tmp_path: Path) -> None:
    only = CASES[: CASES.index("  - name: just under")]
    found = run(tmp_path, only)
    assert "2: no case is not_evaluated; add one" in found
    assert len(found) == 5
    quiet = "rule: ABC101\ncases:\n" + CASES[CASES.index("  - name: just") : CASES.index("  - name: over")]
    assert "2: no case fires; add one" in run(tmp_path, quiet)


def test_a_stable_rule_without_cases(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("preview", "stable"))
    (found,) = [p for each in run_all(load_rules(tmp_path)) for p in each.all_problems]
    assert found.path.endswith("ABC101.cases.yaml")
    assert "cannot be read (No such file or directory); fix the file" in found.text


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("code", ["UTL100", "SYN101"])
def test_the_sample_rules(code: str, engine: Engine) -> None:
    every = load_rules(builtin_dir())
    (found,) = run_all(RuleSet((every.by_code[code],), every.sources), engine=engine)
    assert found.all_problems == []
    assert len(found.results) >= 5


def test_a_slip_in_a_scope_is_an_unknown_key() -> None:
    text = "rule: A\ncases:\n  - {name: a, scope: {deviec: 1}, expect: {outcome: fired}}\n"
    source = parse(text, "a.cases.yaml")
    assert validate(source, CaseFile) is None
    (found,) = source.problems
    assert found.text == "cases[0].scope.deviec is an unknown key; did you mean 'device'?"
