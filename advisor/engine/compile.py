"""Rules -> the form that both engines run: strata, branches, guards, joins, resolved parameters.

What durable-rules cannot take (its limits crash or hang the process) is refused here, with the place in
the rule file. No engine sees a rule as it was written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice
from math import prod
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from advisor.engine.load import RuleSet, refuse
from advisor.engine.values import (
    COMPLEMENT,
    Atom,
    Operand,
    ParamKey,
    ParamValue,
    compare,
    operand,
    resolve_params,
    thresholds,
)
from advisor.knowledge.engine_signs import action_unless
from advisor.knowledge.yaml_files import Loc, Problem
from advisor.model.facts import Level, of_job
from advisor.model.findings import Threshold
from advisor.model.operands import Comparison
from advisor.model.rules import AnyCondition, CauseCondition, FactCondition, Join, RuleSpec, SymptomCondition

#: "here": this scope or wider; "within": this scope or narrower; "overlap": either way; "anywhere".
View = Literal["here", "within", "overlap", "anywhere"]

MAX_CONDITIONS = 15  # per engine rule beside the anchor (error 304 above it)
MAX_VARIANTS = 64  # of one branch, from one_of lists and passing guards
MAX_ENGINE_RULES = 4000  # error 106 at 4096
MAX_FIELDS = 200  # of one entity table; an engine fact holds 252


class Test(Struct, frozen=True):
    """``fact op threshold`` (or field): `threshold` in normal form, `raw` as printed, in `unit`."""

    fact: str
    op: str
    threshold: Operand
    raw: ParamValue
    param: str | None = None
    over: Literal["any", "every"] | None = None
    unit: str = ""

    def holds(self, value: Atom | None) -> bool | None:
        return compare(value, self.op, self.threshold)

    def complement(self) -> Test:
        if self.op == "known":
            return replace(self, threshold=float(not self.threshold), raw=not self.raw)
        return replace(self, op=COMPLEMENT[self.op], over=None)


class State(Struct, frozen=True):
    """The other rule fired, seen from a scope in one of four ways, and all of `where` holds there."""

    cause: str
    view: View
    kind: Literal["symptom", "cause"] = "cause"
    where: tuple[Test, ...] = ()


Condition = Test | State


class CompiledGuard(Struct, frozen=True):
    """Must not hold; `passes`: an unknown does not stop the rule."""

    condition: Condition
    passes: bool


class CompiledJoin(Struct, frozen=True):
    alias: str
    entity: str
    on: tuple[str, ...]
    where: tuple[Test, ...]
    required: bool


class CompiledRule(Struct, frozen=True):
    """One rule; its branches are called CODE#1, CODE#2, ..."""

    spec: RuleSpec
    stratum: int
    branches: tuple[tuple[Condition, ...], ...]
    guards: tuple[CompiledGuard, ...]
    overrulers: tuple[State, ...]
    joins: tuple[CompiledJoin, ...]
    invalidates: bool | Test
    withholds: bool | Test
    withholds_health: bool | Test
    lost: bool | Test
    aside: bool | Test
    applies: tuple[tuple[Test, ...], ...]
    alternatives: tuple[tuple[Test, ...], ...]
    doubts: tuple[tuple[Test, ...], ...]
    same_as: tuple[tuple[Test, ...], ...]
    looks_at: tuple[Test, ...]
    gain: tuple[tuple[Test, ...], ...]

    @property
    def level(self) -> Level | Literal["capture"]:
        """Where the rule is judged; one about a trace in each capture of a job, unless its facts are of
        all."""
        alone = self.spec.scope == "trace" and not any(t.over or of_job(t.fact) for t in self.tests())
        return "capture" if alone else self.spec.scope

    @property
    def longest(self) -> int:
        """Conditions of its longest engine rule, without those of the rules that overrule it."""
        return len(self.guards) + len(self.required) + max(map(len, self.branches), default=0)

    @property
    def required(self) -> tuple[CompiledJoin, ...]:
        return tuple(j for j in self.joins if j.required)

    def conditions(self) -> Iterator[Condition]:
        """The conditions of branches and guards, without the implied ones of overruling rules."""
        yield from chain(*self.branches, (g.condition for g in self.guards))

    def tests(self) -> Iterator[Test]:
        return (c for c in self.conditions() if isinstance(c, Test))

    def states(self) -> Iterator[State]:
        yield from (c for c in self.conditions() if isinstance(c, State))
        yield from self.overrulers


class Program(Struct, frozen=True, eq=False, dict=True):
    """A compiled rule set: rules by stratum, and every parameter with the value in force. Compared by
    identity, so that results derived from it can be cached."""

    strata: tuple[tuple[CompiledRule, ...], ...]
    params: Mapping[ParamKey, ParamValue]
    rules: RuleSet

    @cached_property
    def unless(self) -> Mapping[str, tuple[Test, ...]]:
        """By the id of an action, what makes advising it pointless, whichever rule does."""
        return {
            id: tuple(
                Test(c.fact, c.op, operand(c.value), c.value) for c in conditions if c.value is not None
            )
            for id, conditions in action_unless().items()
        }

    @cached_property
    def by_code(self) -> Mapping[str, CompiledRule]:
        return {r.spec.code: r for s in self.strata for r in s}

    @cached_property
    def thresholds(self) -> tuple[Threshold, ...]:
        """Every parameter with its value, default and origin, in order of code and name."""
        return thresholds(self.rules, self.params)

    def too_large(self) -> str | None:
        """Why durable-rules cannot hold the program (durable-rules 2.0.28: error 106 at 4,096 rules,
        error 302 at 252 properties of a record); None if it can."""
        compiled = self.by_code.values()
        total = sum(len(r.required) + sum(variants(b, r.guards) for b in r.branches) for r in compiled)
        if total > MAX_ENGINE_RULES:
            return f"the rules become {total} engine rules, more than {MAX_ENGINE_RULES}"
        for one in compiled:
            if (count := one.longest + len(one.overrulers)) > MAX_CONDITIONS:
                return f"{one.spec.code} has {count} conditions with the rules that overrule it"
        fields: dict[str, set[str]] = {}
        for join in (j for one in compiled for j in one.joins):
            fields.setdefault(join.entity, set()).update(w.fact for w in join.where)
        wide = next((e for e, names in fields.items() if len(names) > MAX_FIELDS), None)
        return f"the rules use more than {MAX_FIELDS} fields of {wide}" if wide else None

    def only(self, code: str) -> Program:
        """The program of one rule; the symptoms and causes that it refers to are then given from outside."""
        return Program(((self.by_code[code],),), self.params, self.rules)

    def with_param(self, key: ParamKey, value: ParamValue) -> Program:
        """The same with another value of one parameter, of the same type; the other rules are reused."""
        old, params = self.by_code[key[0]], {**self.params, key: value}
        new = _Builder(self.rules, old.spec, params).build(old.stratum, old.overrulers)
        strata = (tuple(new if rule is old else rule for rule in stratum) for stratum in self.strata)
        return Program(tuple(strata), params, self.rules)


def compile_rules(
    rules: RuleSet, params: Mapping[ParamKey, Any] | None = None, *, external: Collection[str] = ()
) -> Program:
    """Compile the active rules; RuleError with every problem.

    `external` names symptoms and causes that are given from outside (cases of a single rule)."""
    values = resolve_params(rules, params or {})
    program, problems = try_compile(rules, values, external=external)
    refuse(problems)
    assert program is not None
    return program


def try_compile(
    rules: RuleSet, values: Mapping[ParamKey, ParamValue], *, external: Collection[str] = ()
) -> tuple[Program | None, list[Problem]]:
    """The program, or the problems that prevent it."""
    active = rules.active
    known = {r.cause: r for r in active}
    problems: list[Problem] = []
    for rule in active:
        for loc, name, kind in references(rule):
            target = known.get(name)
            if target is None and name not in external:
                text = f"no active rule has the {kind} {name}; correct the name"
                problems.append(rules.problem(rule.code, loc, text))
            elif target is not None and (target.kind == "symptom") != (kind == "symptom"):
                text = f"{name} is a {target.kind}, not a {kind}; use its kind"
                problems.append(rules.problem(rule.code, loc, text))
    builders = [_Builder(rules, rule, values) for rule in active]
    overruled_by: dict[str, list[State]] = {}
    for builder in builders:
        for cause, state in builder.overruled():
            overruled_by.setdefault(cause, []).append(state)
    levels, cycles = _strata(rules, known, overruled_by)
    problems.extend(cycles)
    compiled = []
    for builder in builders:
        cause = builder.rule.cause
        compiled.append(builder.build(levels.get(cause, 0), tuple(overruled_by.get(cause, ()))))
        problems.extend(builder.problems)
    problems.extend(_limits(rules, compiled))
    if problems:
        return None, problems
    strata: list[list[CompiledRule]] = [[] for _ in range(1 + max(levels.values(), default=0))]
    for one in compiled:
        strata[one.stratum].append(one)
    return Program(tuple(tuple(s) for s in strata), values, rules), []


def references(rule: RuleSpec) -> Iterator[tuple[Loc, str, Literal["symptom", "cause"]]]:
    """Every symptom and cause that a rule names, with its place."""
    for loc, item in conditions(rule):
        if isinstance(item, SymptomCondition):
            yield loc, item.symptom, "symptom"
        elif isinstance(item, CauseCondition):
            yield loc, item.cause, "cause"
    for i, name in enumerate(rule.then.explains):
        yield ("then", "explains", i), name, "symptom"
    for i, name in enumerate(rule.then.overrules):
        yield ("then", "overrules", i), name, "cause"
    for key in ("overrules_where", "same_as"):
        for i, other in enumerate(getattr(rule.then, key)):
            yield ("then", key, i, "cause"), other.cause, "cause"


def conditions(rule: RuleSpec) -> Iterator[tuple[Loc, AnyCondition]]:
    """Every condition of `when` and `unless` with its place in the file."""
    for b, branch in enumerate(rule.when.branches):
        start: tuple[int | str, ...] = ("when", "all") if rule.when.any is None else ("when", "any", b, "all")
        for c, item in enumerate(branch):
            yield (*start, c), cast(AnyCondition, item)
    for g, guard in enumerate(rule.unless):
        yield ("unless", g), cast(AnyCondition, guard)


def _strata(
    rules: RuleSet, known: Mapping[str, RuleSpec], overruled_by: Mapping[str, Sequence[State]]
) -> tuple[dict[str, int], list[Problem]]:
    """The stratum of each cause: one above everything it needs. Cycles are problems."""
    needs: dict[str, list[str]] = {}
    for cause, rule in known.items():
        others = [c for _, c in conditions(rule) if not isinstance(c, FactCondition)]
        named = {c.symptom if isinstance(c, SymptomCondition) else c.cause for c in others}
        named |= {s.cause for s in overruled_by.get(cause, ())}
        needs[cause] = sorted(named & known.keys())
    levels: dict[str, int] = {}
    problems: list[Problem] = []
    while len(levels) < len(known):
        try:
            for cause in TopologicalSorter(needs).static_order():
                levels[cause] = 1 + max((levels[m] for m in needs[cause]), default=-1)
        except CycleError as error:
            cycle: list[str] = error.args[1][:0:-1]  # each needs the next
            at = cycle.index(min(cycle))
            chain = [known[c].code for c in (*cycle[at:], *cycle[: at + 1])]
            text = f"{' -> '.join(chain)} need each other's outcome; take one of these conditions out"
            problems.append(rules.problem(chain[0], ("code",), text))
            needs |= {cause: [] for cause in cycle}
    return levels, problems


class _Builder:
    """Compiles one rule and collects the problems of its operands."""

    def __init__(self, rules: RuleSet, rule: RuleSpec, values: Mapping[ParamKey, ParamValue]) -> None:
        self.rules, self.rule, self.values = rules, rule, values
        self.problems: list[Problem] = []

    def build(self, stratum: int, overrulers: tuple[State, ...]) -> CompiledRule:
        rule = self.rule
        compiled = iter([self.condition(loc, item) for loc, item in conditions(rule)])
        branches = tuple(tuple(islice(compiled, len(branch))) for branch in rule.when.branches)
        guards = zip(compiled, rule.unless, strict=True)
        return CompiledRule(
            spec=rule,
            stratum=stratum,
            branches=branches,
            guards=tuple(CompiledGuard(c, g.if_unknown == "pass") for c, g in guards),
            overrulers=overrulers,
            joins=tuple(self.join(i, j) for i, j in enumerate(rule.when.join)),
            invalidates=self.flag(("invalidates",), rule.invalidates),
            withholds=self.flag(("withholds",), rule.withholds),
            withholds_health=self.flag(("withholds_health",), rule.withholds_health),
            lost=self.flag(("severity", "lost"), rule.severity.lost),
            aside=self.flag(("severity", "aside"), rule.severity.aside),
            applies=self.each(("recommendations",), rule.recommendations, "applies_when"),
            alternatives=self.each(("alternatives",), rule.alternatives, "applies_when"),
            doubts=self.each(("doubts",), rule.doubts, "when"),
            looks_at=self.tests(("looks_at",), rule.looks_at),
            same_as=self.each(("then", "same_as"), rule.then.same_as, "when"),
            gain=self.each(("gain",), rule.gain.choices if rule.gain else (), "applies_when"),
        )

    def overruled(self) -> Iterator[tuple[str, State]]:
        """The causes that the rule overrules, and how. A finding about a rank as a whole is about its
        part in the job, so it overrules findings in any of its scopes."""
        then = self.rule.then
        view: View = "anywhere" if self.rule.scope == "rank" else "overlap"
        yield from ((cause, State(self.rule.cause, view)) for cause in then.overrules)
        for i, other in enumerate(then.overrules_where):
            where = self.tests(("then", "overrules_where", i, "when"), other.when)
            yield other.cause, State(self.rule.cause, view, where=where)

    def flag(self, loc: Loc, item: bool | FactCondition) -> bool | Test:
        return item if isinstance(item, bool) else self.test(loc, item.fact, item)

    def each(self, loc: Loc, items: Iterable[Any], key: str) -> tuple[tuple[Test, ...], ...]:
        """The conditions that each item has under `key`."""
        return tuple(self.tests((*loc, i, key), getattr(x, key)) for i, x in enumerate(items))

    def tests(self, loc: Loc, items: Iterable[FactCondition]) -> tuple[Test, ...]:
        return tuple(self.test((*loc, i), item.fact, item) for i, item in enumerate(items))

    def condition(self, loc: Loc, item: FactCondition | SymptomCondition | CauseCondition) -> Condition:
        if isinstance(item, FactCondition):
            return replace(self.test(loc, item.fact, item), over=getattr(item, "over", None))
        view: View = "within" if item.over == "any" else "here"
        if isinstance(item, SymptomCondition):
            return State(item.symptom, view, "symptom")
        return State(item.cause, view)

    def join(self, at: int, item: Join) -> CompiledJoin:
        loc = ("when", "join", at, "where")
        where = tuple(self.test((*loc, i), w.field, w) for i, w in enumerate(item.where))
        return CompiledJoin(item.as_, item.entity, tuple(dict.fromkeys(item.on)), where, not item.optional)

    def test(self, loc: Loc, name: str, item: Comparison) -> Test:
        raw, unit = item.value, ""
        if item.param is not None:
            code, _, own = item.param.rpartition(".")
            unit = "" if code or own not in self.rule.params else self.rule.params[own].unit
            raw = self.values.get((code or self.rule.code, own))
            if raw is None:
                text = f"unknown parameter {item.param}; name one that {code} has"
                mine = f"the parameter {own} is not in `params`; add it"
                self.wrong((*loc, "param"), text if code else mine)
                raw = ("",) if item.op == "one_of" else 0.0
            elif (item.op == "one_of") != isinstance(raw, tuple):
                self.wrong(loc, "a list of texts goes with `one_of`, and `one_of` with a list")
                raw = ("",) if item.op == "one_of" else 0.0
            elif isinstance(raw, str | bool) and item.op not in ("eq", "ne"):
                text = f"{item.param} is a text or flag: compare with eq or ne, not {item.op}"
                self.wrong((*loc, "op"), text)
        assert raw is not None
        return Test(name, item.op, operand(raw), raw, item.param, unit=unit)

    def wrong(self, loc: Loc, text: str) -> None:
        self.problems.append(self.rules.problem(self.rule.code, loc, text))


def variants(branch: Iterable[Condition], guards: Iterable[CompiledGuard]) -> int:
    """How many plain conjunctions a branch becomes: the engine's own "or" is not safe."""
    choices = [len(c.threshold) for c in branch if isinstance(c, Test) and isinstance(c.threshold, tuple)]
    passing = sum(g.passes and isinstance(g.condition, Test) for g in guards)
    return int(prod(choices)) << passing


def _limits(rules: RuleSet, compiled: Sequence[CompiledRule]) -> Iterator[Problem]:
    """What one rule may hold; beyond it durable-rules breaks (error 304)."""
    for one in compiled:
        code = one.spec.code
        if one.longest > MAX_CONDITIONS:
            text = f"{one.longest} conditions with guards and joins; at most {MAX_CONDITIONS}"
            yield rules.problem(code, ("when",), text)
        for i, branch in enumerate(one.branches, 1):
            if (count := variants(branch, one.guards)) > MAX_VARIANTS:
                text = f"{code}#{i} becomes {count} engine rules through its one_of lists and passing guards"
                yield rules.problem(code, ("when",), f"{text}; at most {MAX_VARIANTS}, shorten the lists")
