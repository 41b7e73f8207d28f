"""Names in rules against the catalogues: facts, entities, tables, what-ifs, actions, references."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from advisor.engine.compile import conditions
from advisor.engine.load import Loc, RuleSet
from advisor.engine.wording import placeholders
from advisor.facts.spec import FactSpec
from advisor.model.rules import FactCondition, GainSpec, Param, RuleSpec


class Catalogues(Struct, frozen=True):
    """Known names; what is None is not checked. Entities: table -> field -> Python type."""

    facts: Mapping[str, FactSpec]
    entities: Mapping[str, Mapping[str, type]] | None = None
    tables: Collection[str] | None = None
    what_ifs: Collection[str] | None = None
    actions: Collection[str] | None = None
    parts: Collection[str] | None = None
    references: Collection[str] | None = None


class Context(Struct, frozen=True):
    rules: RuleSet
    known: Catalogues

    def param(self, rule: RuleSpec, name: str | None) -> Param | None:
        """The parameter that a condition of the rule names: its own, or that of another rule."""
        code, _, own = (name or "").rpartition(".")
        owner = self.rules.by_code.get(code) if code else rule
        return None if owner is None else owner.params.get(own)


Finding = tuple[Loc, str]
Validator = Callable[[RuleSpec, Context], Iterator[Finding]]


def facts_used(rule: RuleSpec) -> Iterator[tuple[Loc, str]]:
    """Every fact a rule names, with its place."""
    for loc, test in fact_tests(rule):
        yield (*loc, "fact"), test.fact
    if rule.impact is not None:
        for name in rule.impact.facts:
            yield ("impact", "fact" if name == rule.impact.fact else "otherwise"), name
    if rule.severity.tail is not None:
        yield ("severity", "tail"), rule.severity.tail
    for i, advice in enumerate(rule.recommendations):
        if advice.verify is not None:
            yield ("recommendations", i, "verify", "fact"), advice.verify.fact
    for loc, template in templates(rule):
        for p in placeholders(template):
            if not p.is_param:
                yield loc, p.name


def fact_tests(rule: RuleSpec) -> Iterator[tuple[Loc, FactCondition]]:
    for loc, item in conditions(rule):
        if isinstance(item, FactCondition):
            yield loc, item
    for name in ("invalidates", "withholds", "withholds_health"):
        if isinstance(test := getattr(rule, name), FactCondition):
            yield (name,), test
    listed: list[tuple[str, str, tuple[Any, ...]]] = [
        *((name, "applies_when", getattr(rule, name)) for name in ("recommendations", "alternatives")),
        ("doubts", "when", rule.doubts),
    ]
    for name, field, entries in listed:
        for i, entry in enumerate(entries):
            for j, item in enumerate(getattr(entry, field)):
                yield (name, i, field, j), item
    for i, gain in enumerate(rule.gain.choices if rule.gain else ()):
        for j, item in enumerate(gain.applies_when):
            yield ("gain", *("otherwise",) * i, "applies_when", j), item
    for key in ("overrules_where", "same_as"):
        for i, other in enumerate(getattr(rule.then, key)):
            for j, item in enumerate(other.when):
                yield ("then", key, i, "when", j), item


def templates(rule: RuleSpec) -> Iterator[tuple[Loc, str]]:
    yield ("message",), rule.message
    if rule.healthy is not None:
        yield ("healthy",), rule.healthy
    for i, doubt in enumerate(rule.doubts):
        yield ("doubts", i, "text"), doubt.text
    for i, advice in enumerate(rule.recommendations):
        yield ("recommendations", i, "action"), advice.action
    for i, other in enumerate(rule.alternatives):
        yield ("alternatives", i, "action"), other.action
    for i, answer in enumerate(rule.answers):
        loc: Loc = ("otherwise",) if i == len(rule.when.branches) else ("when", "any", i, "answer")
        yield (*loc, "reason"), answer.reason
        if answer.remedy is not None:
            yield (*loc, "remedy"), answer.remedy


# --- validators ------------------------------------------------------------------------------


def known_facts(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    for loc, name in facts_used(rule):
        if name not in context.known.facts:
            yield loc, f"unknown fact {name}; {near(name, context.known.facts)}"


def known_entities(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    known = context.known.entities
    for i, join in enumerate(rule.when.join):
        if known is None:
            continue
        if join.entity not in known:
            text = f"unknown entity {join.entity}; {near(join.entity, known)}"
            yield ("when", "join", i, "entity"), text
            continue
        named: list[tuple[tuple[int | str, ...], str]] = [
            *((("on", k), f) for k, f in enumerate(join.on)),
            *((("where", j, "field"), w.field) for j, w in enumerate(join.where)),
        ]
        for at, name in named:
            if name not in known[join.entity]:
                text = f"{join.entity} has no field {name}; {near(name, known[join.entity])}"
                yield ("when", "join", i, *at), text


def evidence_names(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """Evidence is a table of the facts stage or a join of this rule."""
    aliases = {j.as_ for j in rule.when.join}
    for i, name in enumerate(rule.evidence):
        tables = context.known.tables
        if name not in aliases and tables is not None and name not in tables:
            text = f"unknown evidence table or join {name}; {near(name, (*tables, *aliases))}"
            yield ("evidence", i), text


def what_ifs(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    known = context.known.what_ifs
    named: list[tuple[Loc, GainSpec]] = [
        (("gain", *("otherwise",) * i, "what_if"), gain)
        for i, gain in enumerate(rule.gain.choices if rule.gain else ())
    ]
    named += [(("alternatives", i, "gain"), o.gain) for i, o in enumerate(rule.alternatives) if o.gain]
    for loc, gain in named:
        if known is not None and gain.what_if not in known:
            yield loc, f"unknown what-if {gain.what_if}; {near(gain.what_if, known)}"


def known_actions(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """An id that resembles a known one is a slip of the pen, which would lose the options of the
    engines; any other is advice of the user's own."""
    known = context.known.actions
    named: list[tuple[Loc, str]] = [
        *((("recommendations", i, "id"), r.id) for i, r in enumerate(rule.recommendations)),
        *((("alternatives", i, "id"), a.id) for i, a in enumerate(rule.alternatives)),
    ]
    for loc, name in named:
        if known is None or name in known:
            continue
        if near := difflib.get_close_matches(name, list(known), n=1, cutoff=0.8):
            yield loc, f"unknown action {name}; did you mean {near[0]}?"


def known_part(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    known = context.known.parts
    if rule.impact is None or known is None:
        return
    for i, part in enumerate(rule.impact.parts):
        if part not in known:
            place = ("also", i - 1) if i else ("part",)
            yield ("impact", *place), f"unknown part {part}; {near(part, known)}"


def known_references(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    known = context.known.references
    for i, name in enumerate(rule.docs.references):
        if known is not None and name not in known:
            yield ("docs", "references", i), f"unknown reference {name}; {near(name, known)}"


def near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else "correct the name"
