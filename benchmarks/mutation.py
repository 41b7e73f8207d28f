"""Mutation check of the rule base: does some case fail when a rule is changed a little?

    python benchmarks/mutation.py [CODE...] [--rules DIR] [--at-least 0.98]

Every rule is changed in one place at a time and its cases are run by the Python interpreter:

    up, down   a threshold (parameter or literal; of a condition, guard, join, severity level or
               `invalidates`) moves just past the nearest number of any case, by a quarter at most
    strict     >= becomes >, > becomes >=, and so on
    flip       the comparison is turned round; a symptom or cause counts as its opposite
    drop       a condition, branch, guard, required join or join condition is left out
    pass       a guard loses or gains `if_unknown: pass`

A change that no case of the rule notices has survived: the cases do not pin that place down.
Changes without an effect are left out (a level under which the rule cannot fire, counts below
zero), and so is what cases cannot observe: `applies_when` of a recommendation, joins that only
gather evidence, messages.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from advisor.comparison.change_facts import EVERY_FACT
from advisor.engine import cases as cases_
from advisor.engine.cases import Case, CaseFile
from advisor.engine.compile import CompiledRule, Condition, Program, State, Test, compile_rules
from advisor.engine.infer import infer
from advisor.engine.interpret import OutcomeState
from advisor.engine.load import RuleSet, builtin_dir, load_rules
from advisor.engine.parse import validate
from advisor.engine.values import atom
from advisor.knowledge.yaml_files import read
from advisor.model.rules import SeverityLevel

OPPOSITE: Mapping[OutcomeState, OutcomeState] = {
    "fired": "quiet",
    "quiet": "fired",
    "unknown": "unknown",
    "overruled": "fired",
}
STRICT = {"ge": "gt", "gt": "ge", "le": "lt", "lt": "le"}
#: A threshold moves by at most this share of itself, a count by at least one.
FARTHEST = 0.25
UNITS: Mapping[str, str] = {name: spec.unit for name, spec in EVERY_FACT.items()}


@dataclass(frozen=True)
class Mutant:
    """One change of one rule; `place` says where, `change` what. `turned` is a symptom or cause
    whose outcome the rule sees as the opposite of what a case gives."""

    code: str
    place: str
    change: str
    rule: CompiledRule
    turned: str | None = None

    def __str__(self) -> str:
        return f"{self.code} {self.place}: {self.change}"


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    killed: bool


# --- running ---------------------------------------------------------------------------------


class Bench:
    """A compiled rule set with the cases of its rules."""

    def __init__(self, rules: RuleSet) -> None:
        self.program = compile_rules(rules)
        self.cases: dict[str, tuple[Case, ...]] = {}
        for code in self.program.by_code:
            path = cases_.cases_path(rules, code)
            if path is not None and path.is_file():
                found = validate(read(path), CaseFile)
                self.cases[code] = () if found is None else found.cases

    def passes(self, code: str, rule: CompiledRule, turned: str | None = None) -> bool:
        """True when every case comes out as expected with this form of the rule."""
        program = Program(((rule,),), self.program.params, self.program.rules)
        original = self.program.by_code[code]
        for case in self.cases[code]:
            given = cases_._given(case, original)
            if turned is not None:
                given[turned] = OPPOSITE[given[turned]]
            facts = cases_._facts(case, original, UNITS)
            inference = infer(facts, program, engine="python", given=given)
            if any(True for _ in cases_._judge(case, inference.outcomes[0], inference)):
                return False
        return True

    def results(self, codes: Sequence[str] = ()) -> Iterator[Result]:
        """Every mutant of the rules (all that have cases), and whether a case noticed it."""
        for code in sorted(self.cases):
            if codes and code not in codes:
                continue
            rule = self.program.by_code[code]
            assert self.passes(code, rule), f"{code}: its cases fail as they are"
            for mutant in mutants(rule, self.cases[code]):
                yield Result(mutant, not self.passes(code, mutant.rule, mutant.turned))


# --- mutants ---------------------------------------------------------------------------------


def mutants(rule: CompiledRule, cases: Sequence[Case]) -> Iterator[Mutant]:
    code = rule.spec.code
    for b, branch in enumerate(rule.branches):
        for c, condition in enumerate(branch):
            where = f"{code}#{b + 1}.{c + 1} {_name(condition)}"
            if isinstance(condition, State):
                yield Mutant(code, where, "flip", rule, condition.cause)
            for change, other in _tests(condition, cases):
                yield Mutant(code, where, change, _with(rule, b, c, other))
            if len(branch) > 1:
                yield Mutant(code, where, "drop", _with(rule, b, c, None))
        if len(rule.branches) > 1:
            rest = tuple(x for i, x in enumerate(rule.branches) if i != b)
            yield Mutant(code, f"{code}#{b + 1}", "drop branch", replace(rule, branches=rest))
    for g, guard in enumerate(rule.guards):
        where = f"unless {_name(guard.condition)}"

        def guarded(*new: object, at: int = g) -> CompiledRule:
            return replace(rule, guards=(*rule.guards[:at], *new, *rule.guards[at + 1 :]))  # type: ignore[arg-type]

        if isinstance(guard.condition, State):
            yield Mutant(code, where, "flip", rule, guard.condition.cause)
        for change, other in _tests(guard.condition, cases):
            yield Mutant(code, where, change, guarded(replace(guard, condition=other)))
        yield Mutant(code, where, "drop", guarded())
        yield Mutant(code, where, "pass", guarded(replace(guard, passes=not guard.passes)))
    for j, join in enumerate(rule.joins):
        if not join.required:
            continue

        def joined(*new: object, at: int = j) -> CompiledRule:
            return replace(rule, joins=(*rule.joins[:at], *new, *rule.joins[at + 1 :]))  # type: ignore[arg-type]

        rows = [row for case in cases for row in case.entities.get(join.entity, ())]
        for w, test in enumerate(join.where):
            where = f"join {join.alias}.{test.fact}"
            before, after = join.where[:w], join.where[w + 1 :]
            for change, moved in _changed(test, [row.get(test.fact) for row in rows]):
                yield Mutant(code, where, change, joined(replace(join, where=(*before, moved, *after))))
            yield Mutant(code, where, "drop", joined(replace(join, where=(*before, *after))))
        yield Mutant(code, f"join {join.alias}", "drop", joined())
    if isinstance(rule.invalidates, Test):
        for change, moved in _tests(rule.invalidates, cases):
            yield Mutant(code, "invalidates", change, replace(rule, invalidates=moved))
    yield from _levels(rule, cases)


def _levels(rule: CompiledRule, cases: Sequence[Case]) -> Iterator[Mutant]:
    """Severity levels moved up and down, as far as a rule that fires can tell them apart."""
    spec = rule.spec
    if spec.impact is None:
        return
    fired = [case for case in cases if case.expect.outcome == "fired"]
    values = _values(spec.impact.fact, fired)
    for i, level in enumerate(spec.severity.levels):
        test = Test(spec.impact.fact, "ge", float(level.at), level.at)
        for change, moved in _moved(test, values):
            assert isinstance(moved.threshold, float)
            if not i and moved.threshold < level.at and _needs(rule, level.at):
                continue
            levels = list(spec.severity.levels)
            levels[i] = SeverityLevel(at=moved.threshold, severity=level.severity)
            levels.sort(key=lambda x: x.at)
            severity = spec.severity.replaced(levels=tuple(levels))
            changed = spec.replaced(severity=severity)
            yield Mutant(spec.code, f"severity {level.severity}", change, replace(rule, spec=changed))


def _needs(rule: CompiledRule, least: float) -> bool:
    """True when the rule fires only where its impact fact has at least this value."""
    fact = rule.spec.impact.fact if rule.spec.impact is not None else ""
    return all(
        any(
            isinstance(c, Test)
            and c.fact == fact
            and c.op in ("ge", "gt")
            and isinstance(c.threshold, float)
            and c.threshold >= least
            for c in branch
        )
        for branch in rule.branches
    )


def _with(rule: CompiledRule, b: int, c: int, other: Condition | None) -> CompiledRule:
    branch = rule.branches[b]
    kept = (*branch[:c], *(() if other is None else (other,)), *branch[c + 1 :])
    return replace(rule, branches=(*rule.branches[:b], kept, *rule.branches[b + 1 :]))


def _tests(condition: Condition, cases: Sequence[Case]) -> Iterator[tuple[str, Test]]:
    if isinstance(condition, Test):
        yield from _changed(condition, _values(condition.fact, cases))


def _changed(test: Test, values: Sequence[object]) -> Iterator[tuple[str, Test]]:
    yield "flip", test.complement()
    if test.op in STRICT:
        yield "strict", replace(test, op=STRICT[test.op])
    if isinstance(test.threshold, float) and not isinstance(test.raw, bool):
        yield from _moved(test, values)


def _moved(test: Test, values: Sequence[object]) -> Iterator[tuple[str, Test]]:
    """The threshold past the nearest number above and below, so that its truth there changes."""
    threshold = test.threshold
    assert isinstance(threshold, float)
    numbers = [v for v in map(atom, values) if isinstance(v, float)]
    reach = max(FARTHEST * abs(threshold), 1.0 if UNITS.get(test.fact) == "count" or not threshold else 0.0)
    up = min((v for v in numbers if _flips(test, v, above=True)), default=math.inf)
    down = max((v for v in numbers if _flips(test, v, above=False)), default=-math.inf)
    high = min(math.nextafter(up, math.inf), threshold + reach)
    low = max(math.nextafter(down, -math.inf), threshold - reach)
    yield f"up to {high:.6g}", replace(test, threshold=high, raw=high)
    if threshold or down > -math.inf:  # no amount lies below zero
        yield f"down to {low:.6g}", replace(test, threshold=low, raw=low)


def _flips(test: Test, value: float, *, above: bool) -> bool:
    """A threshold moved just past this value, upwards or downwards, judges it differently."""
    assert isinstance(test.threshold, float)
    if value == test.threshold:
        away = math.nextafter(value, math.inf if above else -math.inf)
        return replace(test, threshold=away).holds(value) is not test.holds(value)
    return (value > test.threshold) is above


def _values(fact: str, cases: Sequence[Case]) -> list[object]:
    return [case.facts[fact] for case in cases if fact in case.facts]


def _name(condition: Condition) -> str:
    if isinstance(condition, Test):
        return f"{condition.fact} {condition.op} {condition.param or condition.raw}"
    return f"{condition.kind} {condition.cause}"


# --- the report ------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("codes", nargs="*", metavar="CODE")
    parser.add_argument("--rules", type=Path, action="append", default=[], metavar="DIR", help="more rules")
    parser.add_argument("--at-least", type=float, default=0.98, metavar="SHARE", help="exit 1 below (0.98)")
    args = parser.parse_args(argv)
    begun = time.perf_counter()
    bench = Bench(load_rules(builtin_dir(), *args.rules))
    if unknown := sorted(set(args.codes) - set(bench.cases)):
        parser.error(f"no rule with cases has the code {', '.join(unknown)}")
    found = list(bench.results(args.codes))
    killed = sum(r.killed for r in found)
    for result in found:
        if not result.killed:
            print(f"survived: {result.mutant}")
    share = killed / max(len(found), 1)
    seconds = time.perf_counter() - begun
    print(f"{killed} of {len(found)} changes noticed ({share:.2%}) in {seconds:.1f} s")
    return int(share < args.at_least)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
