"""Runs the cases beside a rule, and checks that they pin it down.

A case gives facts in one scope, the symptoms and causes that fired (all others the rule refers to are
quiet), and the expected outcome. The cases of a rule are complete when at least one fires, one is not
evaluated, and for every condition, guard and required join there is a quiet one that fails at it alone,
with numbers just across their threshold. Of a question, each answer needs a case, and each condition one
that misses it, with any answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct, field

from advisor.engine.compile import CompiledRule, Program, compile_rules, references
from advisor.engine.infer import Engine, Inference, infer
from advisor.engine.interpret import Checked, Outcome, OutcomeState
from advisor.engine.judge import most_severe
from advisor.engine.lint_names import facts_used
from advisor.engine.load import RuleSet
from advisor.engine.parse import validate
from advisor.engine.reasons import STATES, describe
from advisor.knowledge.facts import FactSpec
from advisor.knowledge.files import shipped
from advisor.knowledge.package_data import CASES_SUFFIX
from advisor.knowledge.shapes import File, Text
from advisor.knowledge.yaml_files import Problem, Source, read
from advisor.model.facts import Fact, FactBase, Level, Scope, Unit, Value
from advisor.model.file_content import Constraint
from advisor.model.findings import Severity
from advisor.model.numbers import named_unit
from advisor.model.operands import Strict
from advisor.model.rules import Reply, RuleSpec

Names = tuple[str, ...]
CaseRow = dict[str, bool | int | float | str | None]
Rows = tuple[CaseRow, ...]

#: The scope of a case's facts, unless it gives one.
DEFAULT_SCOPE: Mapping[Level, Scope] = {
    "trace": Scope(),
    "rank": Scope(rank=0),
    "device": Scope(device=0),
    "process": Scope(device=0, process=1),
    "phase": Scope(device=0, phase="decode"),
    "operation": Scope(device=0, operation="gemm"),
}
#: A number is just across its threshold if it is off by at most this share of it, or by one if it is a
#: count.
NEAR = 0.2


class Expect(Strict, frozen=True, kw_only=True):
    outcome: Literal["fired", "quiet", "not_evaluated", "overruled"]
    severity: Severity | None = None
    answer: Reply | Literal["none"] | None = None
    missing: Names | None = None


class Case(Strict, frozen=True, kw_only=True):
    name: str
    facts: dict[str, bool | int | float | str] = field(default_factory=dict)
    scope: Scope | None = None
    symptoms: Names = ()
    causes: Names = ()
    unknown: Names = ()
    entities: dict[str, Rows] = field(default_factory=dict)
    expect: Expect


class CaseFile(Strict, frozen=True, kw_only=True):
    rule: str
    cases: Annotated[tuple[Case, ...], Constraint(min_length=1)]


class CaseResult(Struct, frozen=True):
    """One case: `problems` is empty if it came out as expected."""

    code: str
    name: str
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


class CaseRun(Struct, frozen=True):
    """The cases of one rule; `problems` are those of the file as a whole: unreadable, or incomplete."""

    code: str
    results: tuple[CaseResult, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def all_problems(self) -> list[Problem]:
        return sorted({*self.problems, *(p for r in self.results for p in r.problems)})


def run_all(
    rules: RuleSet, *, engine: Engine = "python", units: Mapping[str, str] | None = None
) -> tuple[CaseRun, ...]:
    """Every rule that has cases, or must have them (stable), in order of code.

    `units` are those of the catalogue by fact name; without them the name decides."""
    # Causes that none of the rules defines are given: a single rule can be tested alone.
    named = {name for rule in rules.active for _, name, _ in references(rule)}
    program = compile_rules(rules, external=named - set(rules.by_cause))
    return tuple(
        _run(program, rule.spec, path, engine, units)
        for code, rule in sorted(program.by_code.items())
        if (path := cases_path(rules, code)) is not None
        and (path.is_file() or rule.spec.lifecycle == "stable")
    )


def cases_path(rules: RuleSet, code: str) -> Path | None:
    path = rules.path(code)
    return None if path is None else path.with_name(f"{code}{CASES_SUFFIX}")


def _run(
    program: Program, spec: RuleSpec, path: Path, engine: Engine, units: Mapping[str, str] | None
) -> CaseRun:
    source = read(path)
    cases = validate(source, CaseFile)
    if cases is None:
        return CaseRun(spec.code, (), tuple(source.problems))
    if cases.rule != spec.code:
        text = f"these are the cases of {cases.rule}, not of {spec.code}; correct `rule`"
        return CaseRun(spec.code, (), (source.problem(("rule",), text),))
    rule = program.by_code[spec.code]
    alone = program.only(spec.code)
    used = {name for _, name in facts_used(spec)}
    results, outcomes = [], []
    for i, case in enumerate(cases.cases):
        inference = infer(_facts(case, rule, units or {}), alone, engine=engine, given=_given(case, rule))
        outcome = inference.outcomes[0]
        outcomes.append(outcome)
        problems = [
            source.problem(("cases", i, *loc), f"{case.name}: {text}")
            for loc, text in (*_strays(case, rule, used), *_judge(case, outcome, inference))
        ]
        results.append(CaseResult(spec.code, case.name, tuple(problems)))
    return CaseRun(spec.code, tuple(results), tuple(_contract(rule, outcomes, source)))


def _facts(case: Case, rule: CompiledRule, units: Mapping[str, str]) -> FactBase:
    scope = case.scope or DEFAULT_SCOPE[rule.spec.scope]
    facts = FactBase()
    facts.add(Fact("case.scope", True, "flag", scope))  # creates the scope even without facts
    for name, value in case.facts.items():
        facts.add(Fact(name, value, _unit(name, value, units), scope))
    on = {j.entity: j.on for j in rule.joins}
    named = scope.as_dict()
    for entity, rows in case.entities.items():
        lies = {f: named[f] for f in on.get(entity, ()) if named[f] is not None}
        facts.entities[entity] = [{**lies, **row} for row in rows]
    return facts


def _unit(name: str, value: Value, units: Mapping[str, str]) -> Unit:
    """The catalogue's unit, else the one in the suffix of the name."""
    by_value = "flag" if isinstance(value, bool) else "text" if isinstance(value, str) else None
    found: Any = units.get(name) or by_value or named_unit(name.rpartition(".")[2])
    return found or "count"


def _given(case: Case, rule: CompiledRule) -> dict[str, OutcomeState]:
    given: dict[str, OutcomeState] = {s.cause: "quiet" for s in rule.states()}
    given.update(dict.fromkeys((*case.symptoms, *case.causes), "fired"))
    given.update(dict.fromkeys(case.unknown, "unknown"))
    return given


def _strays(case: Case, rule: CompiledRule, used: set[str]) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Names that the rule does not use: the case would test nothing with them."""
    for name in case.facts:
        if name not in used:
            yield ("facts", name), f"the rule does not use the fact {name}; correct the name"
    asked = {s.cause for s in rule.states()}
    for key in ("symptoms", "causes", "unknown"):
        for i, name in enumerate(getattr(case, key)):
            if name not in asked:
                yield (key, i), f"the rule does not ask for {name}; correct the name"
    for entity in case.entities:
        if entity not in {j.entity for j in rule.joins}:
            yield ("entities", entity), f"the rule does not join {entity}; correct the name"


def _judge(case: Case, outcome: Outcome, inference: Inference) -> Iterator[tuple[tuple[int | str, ...], str]]:
    expect = case.expect
    state = STATES[outcome.state]
    if state != expect.outcome:
        reason = f" (missing {', '.join(outcome.missing)})" if outcome.missing else ""
        yield ("expect", "outcome"), f"expected {expect.outcome}, found {state}{reason}"
        return
    if expect.missing is not None and set(expect.missing) != set(outcome.missing):
        found = ", ".join(outcome.missing) or "nothing"
        yield ("expect", "missing"), f"expected {', '.join(expect.missing)}, missing is {found}"
    spec = inference.program.by_code[outcome.code].spec
    if expect.answer is not None:
        given = inference.answer(outcome)
        reply = "none" if given is None else given.reply
        if reply != expect.answer:
            yield ("expect", "answer"), f"expected {expect.answer}, found {reply}"
    if expect.severity is not None:
        severity = most_severe(inference, spec, outcome.scope)
        if severity != expect.severity:
            yield ("expect", "severity"), f"expected {expect.severity}, found {severity}"


# --- the contract ----------------------------------------------------------------------------


def _contract(rule: CompiledRule, outcomes: Sequence[Outcome], source: Source) -> Iterator[Problem]:
    def missing(text: str) -> Problem:
        return source.problem(("cases",), f"{text}; add one")

    states = {o.state for o in outcomes}
    answered = {o.first for o in outcomes}
    for i, answer in enumerate(rule.spec.answers):
        if i not in answered:
            yield missing(f"no case is answered with `{answer.reply}: {answer.reason}`")
    if "fired" not in states:
        yield missing("no case fires")
    if "unknown" not in states and not rule.spec.answers:
        yield missing("no case is not_evaluated")
    quiet = [o for o in outcomes if o.state == "quiet" or rule.spec.answers]
    for b, branch in enumerate(rule.branches):
        for c, condition in enumerate(branch):
            if not any(_alone(o.branches[b].conditions, c) for o in quiet):
                name = f"{rule.spec.code}#{b + 1}"
                yield missing(f"no quiet case only just misses `{describe(condition)}` ({name})")
    met = [o for o in quiet if any(b.truth for b in o.branches)]
    joined = [o for o in met if all(j.truth for j in o.joins if j.join.required)]
    for g, guard in enumerate(rule.guards):
        if not any(_near(o.guards[g].checked, wanted=True) for o in joined):
            yield missing(f"no quiet case is only just stopped by `{describe(guard.condition)}`")
    for j, join in enumerate(rule.joins):
        if join.required and not any(o.joins[j].truth is False for o in met):
            yield missing(f"no quiet case lacks only the rows of `{join.alias}`")


def _alone(conditions: Sequence[Checked], at: int) -> bool:
    """This condition is just false and every other one is true."""
    others = (c.truth is True for i, c in enumerate(conditions) if i != at)
    return _near(conditions[at], wanted=False) and all(others)


def _near(checked: Checked, *, wanted: bool) -> bool:
    """The condition has this truth, and a number lies just across its threshold."""
    if checked.truth is not wanted:
        return False
    if checked.numbers is None:
        return True
    value, threshold = checked.numbers
    slack = NEAR * abs(threshold)
    if checked.doc.unit == "count" or not threshold:
        slack = max(slack, 1.0)
    return abs(value - threshold) <= slack * (1 + 1e-9)


# --- the text of a new rule and its cases: sound as they are, to be changed bit by bit ------------

#: The format of a message for the unit of a fact; a plain number otherwise.
_FORMATS = {
    "ratio": "pct",
    "ns": "ns",
    "us": "us",
    "ms": "ms",
    "bytes": "bytes",
    "count": "int",
    "hz": "rate",
    "count_per_s": "rate",
    "bytes_per_s": "rate",
}


class NewRule(File, frozen=True, kw_only=True):
    """The file `new_rule.yaml`: the texts of a rule and of its cases."""

    rule: Text
    cases: Text


def new_rule(code: str, cause: str, fact: str, spec: FactSpec) -> tuple[str, str]:
    """``CODE.yaml`` and ``CODE.cases.yaml`` of a rule that fires where a number reaches a limit."""
    limit, below = ("0.10", "0.09") if spec.unit == "ratio" else ("10", "9")
    values = {"code": code, "cause": cause, "fact": fact, "scope": spec.level, "unit": spec.unit}
    values |= {"limit": limit, "below": below, "format": _FORMATS.get(spec.unit, "num")}
    texts = shipped("new_rule.yaml", NewRule)
    return texts.rule.format(**values), texts.cases.format(**values)


def scaffold_texts() -> frozenset[str]:
    """The texts that ``new_rule`` writes and that only stand for the ones to be written."""
    return frozenset(
        re.findall(r"^ *\w+: ((?:The problem|Say) .+)$", shipped("new_rule.yaml", NewRule).rule, re.M)
    )
