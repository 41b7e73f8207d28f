"""The interpreter of compiled rules, in Kleene's three-valued logic: it explains every outcome, and
decides by itself where durable-rules does not run.

A condition is true, false or unknown (None). For one rule in one scope::

    when   = any branch of (all of its conditions)
    clear  = every guard is false, or unknown and told to pass
    core   = when and every required join has a row and clear
    state  = quiet if core is false, unknown if it is unknown,
             overruled if core is true and an overruling cause fired at an overlapping scope,
             else fired

With the scopes fixed, a fact that becomes known never changes a known state, except through
``if_unknown: pass``, `known` and overruling, which act on what is unknown by design.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Literal

from msgspec import Struct

from advisor.engine.compile import CompiledJoin, CompiledRule, Condition, State, Test
from advisor.engine.values import Atom, atom, k_and, k_not, k_or, key
from advisor.model.facts import TRACE, Cell, Fact, FactBase, Row, Scope, outward
from advisor.model.findings import ConditionDoc

OutcomeState = Literal["fired", "quiet", "unknown", "overruled"]


class Link(Struct, frozen=True):
    """A step of the explanation: a fact, or the outcome of a rule (by code)."""

    kind: Literal["fact", "outcome"]
    name: str
    scope: Scope


class Checked(Struct, frozen=True):
    """A condition as documents print it, with both numbers, and the facts or outcomes that decided it."""

    condition: Condition
    doc: ConditionDoc
    links: tuple[Link, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def truth(self) -> bool | None:
        return self.doc.holds

    @property
    def numbers(self) -> tuple[float, float] | None:
        """Value and threshold, if the condition compares numbers by size."""
        test, value = self.condition, self.doc.value
        if isinstance(value, bool | str | None) or not isinstance(test, Test):
            return None
        by_size = test.op in ("lt", "le", "gt", "ge")
        return (float(value), test.threshold) if by_size and isinstance(test.threshold, float) else None


class BranchResult(Struct, frozen=True):
    name: str
    truth: bool | None
    conditions: tuple[Checked, ...]


class GuardResult(Struct, frozen=True):
    checked: Checked
    passes: bool

    @property
    def clear(self) -> bool | None:
        open_ = k_not(self.checked.truth)
        return True if open_ is None and self.passes else open_


class JoinResult(Struct, frozen=True):
    """The rows that certainly match, in table order."""

    join: CompiledJoin
    truth: bool | None
    rows: tuple[Row, ...] = ()
    missing: tuple[str, ...] = ()


class Outcome(Struct, frozen=True):
    """The result of one rule in one scope, with everything that decided it."""

    code: str
    cause: str
    scope: Scope
    state: OutcomeState
    branches: tuple[BranchResult, ...] = ()
    guards: tuple[GuardResult, ...] = ()
    joins: tuple[JoinResult, ...] = ()
    missing: tuple[str, ...] = ()
    overruled_by: tuple[Link, ...] = ()

    @property
    def first(self) -> int:
        """The first branch that holds; the number of branches if none does."""
        held = (i for i, b in enumerate(self.branches) if b.truth)
        return next(held, len(self.branches))


class FactView:
    """The facts as rules see them: by scope, with wider facts visible, in normal form."""

    def __init__(self, facts: FactBase) -> None:
        self.facts = facts
        #: As :meth:`FactBase.get`, remembered.
        self.fact = cache(facts.get)
        self.atom = cache(self._atom)
        self.scopes = cache(self._scopes)
        self._named: dict[str, list[Fact]] = {}

    def _scopes(self, level: str) -> tuple[Scope, ...]:
        """Where a rule of this level is evaluated in each capture: its scopes, else those of the next
        wider level, at last the capture itself, so that every rule has an outcome."""
        facts = self.facts
        if level in ("trace", "capture"):
            return (TRACE,) if level == "trace" else facts.captures
        wider = ("device", "rank")
        tried = (level, *wider[wider.index(level) + 1 :]) if level in wider else (level, *wider)
        grouped: list[dict[Scope, list[Scope]]] = []
        for name in tried:
            grouped.append({})
            for scope in facts.scopes(name):
                grouped[-1].setdefault(facts.capture_of(scope), []).append(scope)
        return tuple(s for c in facts.captures for s in next((g[c] for g in grouped if c in g), [c]))

    def on_keys(self, join: CompiledJoin, scope: Scope) -> dict[str, str]:
        """The fields of `on` that the scope names, with the identity of its rows; in a job rows have a
        rank."""
        named = scope.as_dict()
        fields = (*join.on, "rank") if self.facts.of_job else join.on
        return {f: k for f in fields if (k := key(named[f])) is not None}

    def _atom(self, name: str, scope: Scope) -> Atom | None:
        """The value of a fact in normal form."""
        fact = self.fact(name, scope)
        return None if fact is None else atom(fact.value)

    def look(self, test: Test, scope: Scope) -> tuple[bool | None, Fact | None]:
        """Whether a test holds as seen from a scope, and the fact that decides it: one true value for `any`,
        one false value for `every`, else an unknown one. Unknown without any capture."""
        if test.over is None:
            return test.holds(self.atom(test.fact, scope)), self.fact(test.fact, scope)
        seen = [(test.holds(atom(f.value) if f else None), f) for f in self.everywhere(test.fact, scope)]
        order = (True, None, False) if test.over == "any" else (False, None, True)
        return min(seen, key=lambda one: order.index(one[0]), default=(None, None))

    def everywhere(self, name: str, scope: Scope) -> list[Fact | None]:
        """Every value of a fact here and in narrower scopes, and None for each capture without one."""
        if not self._named:
            for fact in self.facts:
                self._named.setdefault(fact.name, []).append(fact)
        found: list[Fact | None] = [f for f in self._named.get(name, ()) if scope.encloses(f.scope)]
        for capture in self.facts.captures:
            held = any(f is not None and capture.encloses(f.scope) for f in found)
            if scope.encloses(capture) and not held and self.fact(name, capture) is None:
                found.append(None)
        return found

    def rows(self, entity: str) -> list[Row] | None:
        """The rows of a table; None if this capture has no such table."""
        return self.facts.entities.get(entity)


class OutcomeLog:
    """The outcomes so far, and those given from outside (by cause, the same in every scope)."""

    def __init__(self, view: FactView, given: Mapping[str, OutcomeState] | None = None) -> None:
        self.view = view
        self.given = dict(given or {})
        self.outcomes: dict[tuple[str, Scope], Outcome] = {}
        self._of: dict[str, list[Outcome]] = {}
        self._cache: dict[tuple[State, Scope], tuple[bool | None, tuple[Outcome, ...]]] = {}

    def post(self, outcome: Outcome) -> None:
        self.outcomes[outcome.cause, outcome.scope] = outcome
        self._of.setdefault(outcome.cause, []).append(outcome)

    def truth(self, state: State, scope: Scope) -> tuple[bool | None, tuple[Outcome, ...]]:
        """Whether the cause fired as seen from `scope`, and the outcomes that show it.

        Without outcomes the result is unknown, not false: silence is not health."""
        at = (state, scope)
        if at not in self._cache:
            seen = () if state.cause in self.given else tuple(self._look(state, scope))
            states = [o.state for o in seen] or [self.given.get(state.cause, "unknown")]
            truth = k_or(*(_FIRED.get(s, False) for s in states))
            where = (check_fact(test, scope, self.view).truth for test in state.where)
            shown = tuple(o for o in seen if _FIRED.get(o.state, False) is truth)
            self._cache[at] = k_and(truth, *where), shown
        return self._cache[at]

    def _look(self, state: State, scope: Scope) -> Iterator[Outcome]:
        if state.view == "anywhere":
            yield from self._of.get(state.cause, ())
            return
        if state.view != "within":
            for outer in outward(scope):
                if (found := self.outcomes.get((state.cause, outer))) is not None:
                    yield found
        if state.view != "here":
            for outcome in self._of.get(state.cause, ()):
                if scope.encloses(outcome.scope) and (state.view == "within" or outcome.scope != scope):
                    yield outcome


#: Whether a cause fired, by the state of its outcome; in other states it did not.
_FIRED: Mapping[OutcomeState, bool | None] = {"fired": True, "unknown": None}


def evaluate(rule: CompiledRule, scope: Scope, log: OutcomeLog) -> Outcome:
    """The outcome of one rule in one scope, given the outcomes of the strata below."""
    view = log.view
    code = rule.spec.code
    branches = []
    for i, branch in enumerate(rule.branches, 1):
        checked = tuple(check(c, scope, log) for c in branch)
        branches.append(BranchResult(f"{code}#{i}", k_and(*(c.truth for c in checked)), checked))
    guards = tuple(GuardResult(check(g.condition, scope, log), g.passes) for g in rule.guards)
    joins = tuple(match(j, scope, view) for j in rule.joins)
    required = [j for j in joins if j.join.required]
    core = k_and(k_or(*(b.truth for b in branches)), *(j.truth for j in required), *(g.clear for g in guards))
    overruled_by: tuple[Link, ...] = ()
    state: OutcomeState = "unknown" if core is None else "quiet"
    missing: tuple[str, ...] = ()
    if core:
        found = []
        for ruler in rule.overrulers:
            fired, outcomes = log.truth(ruler, scope)
            if fired:
                found += _links(outcomes) or [Link("outcome", ruler.cause, scope)]
        overruled_by = tuple(found)
        state = "overruled" if overruled_by else "fired"
    elif core is None:
        of_branches = (c.missing for b in branches if b.truth is None for c in b.conditions)
        of_joins = (j.missing for j in required if j.truth is None)
        of_guards = (g.checked.missing for g in guards if g.clear is None)
        missing = _unique(chain.from_iterable(chain(of_branches, of_joins, of_guards)))
    return Outcome(code, rule.spec.cause, scope, state, tuple(branches), guards, joins, missing, overruled_by)


def check(condition: Condition, scope: Scope, log: OutcomeLog) -> Checked:
    """One condition in one scope."""
    if isinstance(condition, Test):
        return check_fact(condition, scope, log.view)
    truth, outcomes = log.truth(condition, scope)
    missing: tuple[str, ...] = ()
    if truth is None:
        named = _unique(n for o in outcomes for n in o.missing)
        missing = named or (f"{condition.kind} {condition.cause}",)
    return Checked(condition, state_doc(condition, truth), tuple(_links(outcomes)), missing)


def check_fact(test: Test, scope: Scope, view: FactView) -> Checked:
    truth, fact = view.look(test, scope)
    value, unit = (None, "") if fact is None else (fact.value, fact.unit)
    links = () if fact is None else (Link("fact", fact.name, fact.scope),)
    return Checked(test, test_doc(test, value, unit, truth), links, (test.fact,) if truth is None else ())


def test_doc(test: Test, value: Cell, unit: str, holds: bool | None) -> ConditionDoc:
    """A test of a fact with the value that was found; in the unit of its threshold where it has none."""
    return ConditionDoc(
        fact=test.fact,
        op=test.op,
        threshold=test.raw,
        value=value,
        unit=unit or test.unit,
        param=test.param,
        holds=holds,
    )


def state_doc(state: State, holds: bool | None) -> ConditionDoc:
    """``symptom:queue-empty`` has fired or not."""
    word = {True: "fired", False: "quiet", None: None}[holds]
    name = f"{state.kind}:{state.cause}"
    return ConditionDoc(fact=name, op="eq", threshold="fired", value=word, unit="text", holds=holds)


def match(join: CompiledJoin, scope: Scope, view: FactView) -> JoinResult:
    """The rows of the join that lie in the scope.

    A field of `on` that the scope leaves open does not restrict; if the scope names it, a row without it
    lies elsewhere. A missing value in `where` leaves the row open."""
    rows = view.rows(join.entity)
    if rows is None:
        return JoinResult(join, None, (), (join.entity,))
    bound = view.on_keys(join, scope)
    matched: list[Row] = []
    unsure: list[str] = []
    for row in rows:
        if any(key(row.get(field)) != wanted for field, wanted in bound.items()):
            continue
        truths = [(t.fact, t.holds(atom(row.get(t.fact)))) for t in join.where]
        verdict = k_and(*(t for _, t in truths))
        if verdict:
            matched.append(row)
        elif verdict is None:
            unsure += [f"{join.entity}.{name}" for name, t in truths if t is None]
    if matched:
        return JoinResult(join, True, tuple(matched))
    return JoinResult(join, None if unsure else False, (), _unique(unsure))


def _links(outcomes: Iterable[Outcome]) -> list[Link]:
    return [Link("outcome", o.code, o.scope) for o in outcomes]


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
