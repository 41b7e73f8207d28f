"""Compiled rules -> the safe subset of durable-rules: plain conjunctions, equality joins, no "not".

The engine sees decimal ids and finite floats only: ids of names, texts and scopes cannot collide
in its 32-bit hashes (measured), need no escaping, and have no length. Records are

    anchor   k n s [o*]   one a stratum and scope: asserted last, it sets off the rules
    value    k n s num|str [gn] [gt] [kn]   a fact as seen from a scope, or the value that decides a test
                       of several; gn: no number, gt: no text, kn: whether there is a value
    state    k n s truth  the outcome of a cause as seen from a scope: 0 no, 1 yes, 2 unknown
    row      k n o* n* t* a row of an entity table
    joined   k n s        a join of a rule has a row in a scope

`k` groups at most 100 names and `n` is the name with a shard number: a test node of the engine
takes 511 values, a record satisfies at most 64 first tests, a node serves at most 255 rules.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from copy import copy
from itertools import chain, product
from typing import Any, TypeGuard

from advisor.engine.compile import CompiledGuard, CompiledJoin, CompiledRule, Program, State, Test
from advisor.engine.interpret import FactView, OutcomeLog
from advisor.engine.values import Atom, atom, key
from advisor.model.facts import Scope

SHARD = 48
GROUP = 100
_RELATION = {"lt": "$lt", "le": "$lte", "gt": "$gt", "ge": "$gte"}
_ON = {name: f"o{i}" for i, name in enumerate(("rank", "device", "process", "phase", "operation"))}
_TRUTH: dict[bool | None, str] = {False: "0", True: "1", None: "2"}

Record = dict[str, str | float]
EngineRule = dict[str, Any]
#: The meaning of an activation: (code, branch number from 0), or (code, alias) of a join.
Meaning = tuple[str, int | str]
#: The fields of `on` that scopes name, for each required join in order: the only part of the engine rules
#: of a program that depends on the facts.
Masks = tuple[tuple[tuple[str, ...], ...], ...]


#: Facts that branches of rules need and that have no value in any scope of the rule, with its level.
Absent = frozenset[tuple[str, str]]


def absent_of(program: Program, view: FactView) -> Absent:
    """Facts whose absence keeps branches from firing: building engine rules for these takes long."""
    needed = {
        (test.fact, level)
        for rule in program.by_code.values()
        for level in (rule.level,)
        for branch in rule.branches
        for test in branch
        if _is_needed(test)
    }
    return frozenset(
        (name, level) for name, level in needed if all(view.atom(name, s) is None for s in view.scopes(level))
    )


def _is_needed(condition: Test | State) -> TypeGuard[Test]:
    """Whether the condition can only hold if one fact has a value."""
    return isinstance(condition, Test) and condition.over is None and condition.op != "known"


def masks_of(program: Program, view: FactView) -> Masks:
    rules = program.by_code.values()
    return tuple(_masks(j, r.level, view) for r in rules for j in r.required)


def _masks(join: CompiledJoin, level: str, view: FactView) -> tuple[tuple[str, ...], ...]:
    """Which fields of `on` the scopes of a level name: one engine rule for each pattern."""
    return tuple(sorted({tuple(view.on_keys(join, s)) for s in view.scopes(level)}))


class Emitter:
    """The engine rules of one program over the scopes of one fact base, and their records."""

    def __init__(self, program: Program, view: FactView, absent: Absent = frozenset()) -> None:
        """Leaves out the branches that need a fact in `absent`."""
        self.program, self.view, self._absent = program, view, absent
        self.rules: dict[str, EngineRule] = {}
        self.meaning: dict[str, Meaning] = {}
        self._ids: dict[Hashable, str] = {}
        self._uses: dict[Hashable, int] = {}
        self._columns: dict[str, dict[str, int]] = {}
        self._scopes: dict[str, Scope] = {}
        live = [r for stratum, rules in enumerate(program.strata) for r in rules if self._emit(stratum, r)]
        levels: dict[str, set[str]] = {}
        self._gaps: set[str] = set()
        self._asked: set[str] = set()  # whether they are known
        self._wide: dict[Test, set[str]] = {}  # tests of several values, with their levels
        for rule in live:
            for test in rule.tests():
                if test.over is not None:
                    self._wide.setdefault(test, set()).add(rule.level)
                    continue
                levels.setdefault(test.fact, set()).add(rule.level)
                if test.op == "known":
                    self._asked.add(test.fact)
            self._gaps |= {
                g.condition.fact for g in rule.guards if g.passes and isinstance(g.condition, Test)
            }
        #: The facts that rules use, with the levels from which they do.
        self._wanted = [(name, frozenset(levels[name])) for name in sorted(levels)]

    def over(self, view: FactView) -> Emitter:
        """The same engine rules for other facts with the same masks."""
        other = copy(self)
        other.view, other._ids, other._scopes = view, dict(self._ids), {}
        return other

    # --- rules -------------------------------------------------------------------------------

    def _emit(self, stratum: int, rule: CompiledRule) -> bool:
        """Emit the engine rules of a rule; false if none of its branches can fire."""
        spec, level = rule.spec, rule.level
        branches = [
            (number, branch)
            for number, branch in enumerate(rule.branches)
            if not any(_is_needed(c) and (c.fact, level) in self._absent for c in branch)
        ]
        if not branches:
            return False
        for join in rule.required:
            for bound in _masks(join, rule.level, self.view):
                anchor = self._use(("join-anchor", stratum, rule.level, join.on, bound))
                self._add((spec.code, join.alias), [anchor, self._row_tests(join, bound)])
        joined = [[*self._use(("joined", spec.code, j.alias)), *_HERE] for j in rule.required]
        states = [self._state(r, {"$neq": {"truth": "1"}}) for r in rule.overrulers]
        for number, branch in branches:
            choices = [self._positive(c) for c in branch]
            choices += [self._negative(g) for g in rule.guards]
            for chosen in product(*choices):
                anchor = self._use(("anchor", stratum, rule.level))
                self._add((spec.code, number), [anchor, *chosen, *joined, *states])
        return True

    def _add(self, meaning: Meaning, tests: Iterable[list[dict[str, Any]]]) -> None:
        name = str(len(self.rules))
        conditions = [{f"c{i}": {"$and": t}} for i, t in enumerate(tests)]
        # dist 0: one record may satisfy two conditions of a rule (a fact between two limits)
        self.rules[name] = {"all": conditions, "dist": 0}
        self.meaning[name] = meaning

    def _positive(self, condition: Test | State) -> list[list[dict[str, Any]]]:
        """The alternatives that make a condition true: several for one_of."""
        if isinstance(condition, State):
            return [self._state(condition, {"truth": "1"})]
        if isinstance(condition.threshold, tuple):
            return [
                self._value(_seen(condition), [{"$ex": {"str": 1}}, {"str": self._text(t)}])
                for t in condition.threshold
            ]
        return [self._value(_seen(condition), self._compare(condition, "num", "str"))]

    def _negative(self, guard: CompiledGuard) -> list[list[dict[str, Any]]]:
        """The alternatives that leave a guard open: false, or unknown if the guard passes on it."""
        condition = guard.condition
        if isinstance(condition, State):
            clear = {"$neq": {"truth": "1"}} if guard.passes else {"truth": "0"}
            return [self._state(condition, clear)]
        clear_test = condition.complement()
        found = [self._value(condition.fact, self._compare(clear_test, "num", "str"))]
        if guard.passes and condition.op != "known":
            gone = "gn" if isinstance(condition.threshold, float) else "gt"
            found.append(self._value(condition.fact, [{"$ex": {gone: 1}}]))
        return found

    def _compare(self, test: Test, number: str, text: str) -> list[dict[str, Any]]:
        """Presence first: the engine reads uninitialised memory for a property that is not there.

        Equality of floats is two relations, so that no hash of a printed float is involved."""
        limit = test.threshold
        if test.op == "known":
            return [{"$ex": {"kn": 1}}, {"kn": _TRUTH[bool(limit)]}]
        if isinstance(limit, float):
            present = {"$ex": {number: 1}}
            if test.op == "eq":
                return [present, {"$gte": {number: limit}}, {"$lte": {number: limit}}]
            if test.op == "ne":
                return [present, {"$neq": {number: limit}}]
            return [present, {_RELATION[test.op]: {number: limit}}]
        present = {"$ex": {text: 1}}
        options = limit if isinstance(limit, tuple) else (limit,)
        if test.op in ("eq", "one_of"):
            return [present, {text: self._text(options[0])}]
        return [present, *({"$neq": {text: self._text(o)}} for o in options)]

    def _value(self, name: str | Test, tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*self._use(("value", name)), _HERE[0], *tests, *_HERE[1:]]

    def _state(self, state: State, test: dict[str, Any]) -> list[dict[str, Any]]:
        return [*self._use(("state", state)), _HERE[0], {"$ex": {"truth": 1}}, test, *_HERE[1:]]

    def _row_tests(self, join: CompiledJoin, bound: tuple[str, ...]) -> list[dict[str, Any]]:
        columns = self._columns.setdefault(join.entity, {})
        tests = self._use(("rows", join.entity))
        for test in join.where:
            column = columns.setdefault(test.fact, len(columns))
            if isinstance(test.threshold, tuple):
                # no "or" and no variants here: membership has a column of its own
                member = columns.setdefault(_member(test), len(columns))
                tests += [{"$ex": {f"t{member}": 1}}, {f"t{member}": "1"}]
            else:
                tests += self._compare(test, f"n{column}", f"t{column}")
        tests += [{"$ex": {_ON[f]: 1}} for f in bound]
        return tests + [{_ON[f]: {"c0": _ON[f]}} for f in bound]

    # --- records -----------------------------------------------------------------------------

    def base(self) -> Iterator[Record]:
        """Facts as seen from every scope that needs them, and the rows of joined tables."""
        seen: dict[frozenset[str], list[Scope]] = {}
        for name, levels in self._wanted:
            if levels not in seen:
                scopes = {s for level in levels for s in self.view.scopes(level)}
                seen[levels] = sorted(scopes, key=Scope.sort_key)
            for scope in seen[levels]:
                value = self.view.atom(name, scope)
                body: Record = {"s": self._scope(scope), **self._typed(value)}
                if name in self._gaps:
                    body |= {} if isinstance(value, float) else {"gn": "1"}
                    body |= {} if isinstance(value, str) else {"gt": "1"}
                if name in self._asked:
                    body["kn"] = _TRUTH[value is not None]
                if len(body) > 1:
                    yield from self._records(("value", name), body)
        for test, at in self._wide.items():
            for scope in {s for level in at for s in self.view.scopes(level)}:
                truth, fact = self.view.look(test, scope)
                if truth is not None:
                    value = atom(fact.value) if fact else None
                    known: Record = {"s": self._scope(scope), "kn": _TRUTH[value is not None]}
                    yield from self._records(("value", test), known | self._typed(value))
        for entity in sorted(self._columns):
            for row in self.view.rows(entity) or ():
                yield from self._records(("rows", entity), self._row(entity, dict(row)))

    def _typed(self, value: Atom | None) -> Record:
        if value is None:
            return {}
        return {"num": value} if isinstance(value, float) else {"str": self._text(value)}

    def _row(self, entity: str, row: dict[str, Any]) -> Record:
        body: Record = {}
        for field, column in self._columns[entity].items():
            name, _, members = field.partition("\0")
            value = atom(row.get(name))
            if members:
                if isinstance(value, str):
                    body[f"t{column}"] = "1" if value in members.split("\0") else "0"
            elif isinstance(value, str):
                body[f"t{column}"] = self._text(value)
            elif value is not None:
                body[f"n{column}"] = value
        for field, column_name in _ON.items():
            if (identity := key(row.get(field))) is not None:
                body[column_name] = self._id(("key", identity))
        return body

    def states(self, stratum: int, log: OutcomeLog) -> Iterator[Record]:
        """The outcomes of lower strata as the rules of this one see them."""
        rules = self.program.strata[stratum]
        seen = (product(self.view.scopes(rule.level), rule.states()) for rule in rules)
        for scope, state in dict.fromkeys(chain.from_iterable(seen)):
            body: Record = {"s": self._scope(scope), "truth": _TRUTH[log.truth(state, scope)[0]]}
            yield from self._records(("state", state), body)

    def join_anchors(self, stratum: int) -> Iterator[Record]:
        wanted: dict[tuple[Hashable, Scope], dict[str, str]] = {}
        for rule in self.program.strata[stratum]:
            for join, scope in product(rule.required, self.view.scopes(rule.level)):
                keys = self.view.on_keys(join, scope)
                wanted[("join-anchor", stratum, rule.level, join.on, tuple(keys)), scope] = keys
        for (name, scope), keys in wanted.items():
            body: Record = {_ON[f]: self._id(("key", k)) for f, k in keys.items()}
            yield from self._records(name, {"s": self._scope(scope), **body})

    def anchors(self, stratum: int) -> Iterator[Record]:
        for level in sorted({r.level for r in self.program.strata[stratum]}):
            for scope in self.view.scopes(level):
                yield from self._records(("anchor", stratum, level), {"s": self._scope(scope)})

    def joined(self, code: str, alias: str, scope: Scope) -> Iterator[Record]:
        yield from self._records(("joined", code, alias), {"s": self._scope(scope)})

    def scope_of(self, sid: str) -> Scope:
        return self._scopes[sid]

    # --- names -------------------------------------------------------------------------------

    def _use(self, name: Hashable) -> list[dict[str, Any]]:
        """The tests that select records of a name; the next shard once one is full."""
        count = self._uses.get(name, 0)
        self._uses[name] = count + 1
        group, identity = self._slot(name, count // SHARD)
        return [{"k": group}, {"n": identity}]

    def _records(self, name: Hashable, body: Record) -> Iterator[Record]:
        """The record, once for each shard of its name."""
        for shard in range((self._uses.get(name, 0) + SHARD - 1) // SHARD):
            group, identity = self._slot(name, shard)
            yield {"k": group, "n": identity, **body}

    def _slot(self, name: Hashable, shard: int) -> tuple[str, str]:
        identity = self._id(("name", name, shard))
        return str(int(identity) // GROUP), identity

    def _id(self, thing: Hashable) -> str:
        return self._ids.setdefault(thing, str(len(self._ids)))

    def _text(self, text: str) -> str:
        return self._id(("text", text))

    def _scope(self, scope: Scope) -> str:
        sid = self._id(("scope", scope))
        self._scopes[sid] = scope
        return sid


#: The join to the anchor's scope; the first item guards the property that the second reads.
_HERE: tuple[dict[str, Any], ...] = ({"$ex": {"s": 1}}, {"s": {"c0": "s"}})


def _seen(test: Test) -> str | Test:
    """The subject of a test: a fact as seen from a scope, or the one of several that decides it."""
    return test.fact if test.over is None else test


def _member(test: Test) -> str:
    """Column of a row that says whether a field is in a list; no field name holds a NUL."""
    assert isinstance(test.threshold, tuple)
    return "\0".join((test.fact, *test.threshold))
