"""Small builders for rules and facts, and random rule sets for the differential tests."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from advisor.engine.durable import available
from advisor.engine.interpret import Outcome
from advisor.engine.load import RuleSet
from advisor.model.facts import TRACE, Fact, FactBase, Row, Scope
from advisor.model.rules import RuleSpec

usable, reason = available()
needs_durable = pytest.mark.skipif(not usable, reason=reason or "durable-rules imports")

DEV = Scope(device=0)
DECODE = Scope(device=0, phase="decode")


def rule(code: str, cause: str, when: Any, **more: Any) -> RuleSpec:
    """A valid rule around a `when`; a list is one branch. Any key may be overridden."""
    body: dict[str, Any] = {
        "schema": 1,
        "code": code,
        "cause": cause,
        "title": cause.replace("-", " "),
        "kind": "cause",
        "scope": "device",
        "lifecycle": "stable",
        "when": {"all": when} if isinstance(when, list) else when,
        "confidence": {"method": "measured", "base": 0.8},
        "message": f"{cause} was found",
        "docs": {"what": "w", "why": "y", "harmless_when": "h"},
    }
    return RuleSpec.from_data(body | more)


def rules(*specs: RuleSpec) -> RuleSet:
    return RuleSet(tuple(specs))


def ge(fact: str, value: Any) -> dict[str, Any]:
    return {"fact": fact, "op": "ge", "value": value}


def base(
    values: Mapping[str, Any] | None = None,
    scope: Scope = DEV,
    entities: Mapping[str, list[Row]] | None = None,
    unit: Any = "ratio",
) -> FactBase:
    facts = FactBase(entities=dict(entities or {}))
    put(facts, values or {}, scope, unit)
    return facts


def put(facts: FactBase, values: Mapping[str, Any], scope: Scope, unit: Any = "ratio") -> None:
    for name, value in values.items():
        facts.add(Fact(name, value, "text" if isinstance(value, str) else unit, scope))


def because(outcome: Outcome) -> list[tuple[str, str]]:
    """Kind and name of the facts, outcomes and tables that decided the state; empty if it is unknown."""
    if outcome.state == "unknown":
        return []
    links = list(outcome.overruled_by)
    if outcome.state == "quiet":
        links += [x for b in outcome.branches for c in b.conditions if c.truth is False for x in c.links]
        links += [x for g in outcome.guards if g.checked.truth for x in g.checked.links]
        tables = [j.join.entity for j in outcome.joins if j.join.required and j.truth is False]
    else:
        links += [x for b in outcome.branches if b.truth for c in b.conditions for x in c.links]
        links += [x for g in outcome.guards for x in g.checked.links]
        tables = [j.join.entity for j in outcome.joins if j.truth]
    return list(dict.fromkeys([*((x.kind, x.name) for x in links), *(("rows", t) for t in tables)]))


# --- random rule sets ----------------------------------------------------------------------------

NUMBERS = [f"n.f{i}" for i in range(6)]
TEXTS = [f"t.f{i}" for i in range(2)]
FLAGS = ["b.f0"]
VALUES = (0.0, 0.5, 1, 2, 1e-05, 1e16, 2**53 + 1, -3, 0.1 + 0.2, 0.3, -1e-7, 1.0)
WORDS = ("a", "b", "é\n\"'", "1", "x" * 200)
SCOPES = (
    TRACE,
    DEV,
    Scope(device=1),
    DECODE,
    Scope(device=1, phase="prefill"),
    Scope(device=0, process=7),
    Scope(process=8),
)
_LEVELS = ("trace", "device", "device", "process", "phase", "operation")


def _comparison(rng: random.Random, kind: str) -> dict[str, Any]:
    if kind == "number":
        return {"op": rng.choice(("lt", "le", "gt", "ge", "eq", "ne")), "value": rng.choice(VALUES)}
    if kind == "flag":
        return {"op": rng.choice(("eq", "ne")), "value": rng.random() < 0.5}
    if rng.random() < 0.4:
        return {"op": "one_of", "value": rng.sample(WORDS, rng.randint(1, 3))}
    return {"op": rng.choice(("eq", "ne")), "value": rng.choice(WORDS)}


def random_test(rng: random.Random, *, known: bool = True) -> dict[str, Any]:
    if known and rng.random() < 0.08:
        name = rng.choice((*NUMBERS, *TEXTS, *FLAGS))
        return {"fact": name, "op": "known", "value": rng.random() < 0.5}
    kind = rng.choice(("number", "number", "number", "text", "flag"))
    names = {"number": NUMBERS, "text": TEXTS, "flag": FLAGS}[kind]
    return {"fact": rng.choice(names), **_comparison(rng, kind)}


def random_rules(
    rng: random.Random, *, passing: bool = True, overrules: bool = True, known: bool = True
) -> RuleSet:
    """3..12 rules; each may name the rules before it, so there are no cycles."""
    made: list[RuleSpec] = []
    for i in range(rng.randint(3, 12)):
        kind = rng.choice(("symptom", "cause", "cause", "note"))

        def condition() -> dict[str, Any]:
            if made and rng.random() < 0.35:
                other = rng.choice(made)
                word = "symptom" if other.kind == "symptom" else "cause"
                more = {"over": "any"} if rng.random() < 0.4 else {}
                return {word: other.cause, **more}
            return random_test(rng, known=known)

        def wide() -> dict[str, Any]:
            found = condition()
            over = {"over": rng.choice(("any", "every"))} if known and rng.random() < 0.15 else {}
            return found | over if "fact" in found else found

        branches = [
            {"all": [wide() for _ in range(rng.choice((1, 1, 2, 3)))]} for _ in range(rng.randint(1, 3))
        ]
        joins = [
            {
                "as": f"j{n}",
                "entity": rng.choice(("e0", "e1")),
                "on": rng.sample(("device", "phase", "process"), rng.randint(1, 2)),
                "optional": rng.random() < 0.2,
                "where": [
                    {"field": rng.choice("uv"), **_comparison(rng, "number")}
                    if rng.random() < 0.6
                    else {"field": "w", **_comparison(rng, "text")}
                    for _ in range(rng.randint(0, 2))
                ],
            }
            for n in range(rng.choice((0, 0, 0, 1, 2)))
        ]
        unless = []
        for _ in range(rng.choice((0, 0, 1, 2))):
            more = {"if_unknown": "pass"} if passing and rng.random() < 0.5 else {}
            unless.append(condition() | more)
        made.append(
            rule(
                f"ABC{100 + i}",
                f"c{i}",
                {"any": branches, "join": joins},
                kind=kind,
                scope=rng.choice(_LEVELS),
                unless=unless,
            )
        )
    if overrules:  # an overruling rule must not need its target: only earlier over later ones
        for i, one in enumerate(made):
            later = [m.cause for m in made[i + 1 :] if m.kind == "cause"]
            if later and rng.random() < 0.3:
                then_ = one.then.replaced(overrules=(rng.choice(later),))
                made[i] = one.replaced(then=then_)
    return rules(*made)


def random_facts(rng: random.Random, density: float | None = None) -> FactBase:
    """Facts in SCOPES, each there with probability `density`; some are no finite numbers."""
    density = rng.choice((0.2, 0.5, 0.8)) if density is None else density
    facts = FactBase()
    for scope in SCOPES:
        for name in (*NUMBERS, *TEXTS, *FLAGS):
            if rng.random() < density:
                pool: tuple[Any, ...] = VALUES
                if name in TEXTS:
                    pool = WORDS
                elif name in FLAGS:
                    pool = (True, False)
                elif rng.random() < 0.1:
                    pool = (float("nan"), float("inf"), 2**70, 10**400, "text", True)
                facts.add(Fact(name, rng.choice(pool), "count", scope))
    for entity in ("e0", "e1"):
        if rng.random() < 0.8:
            facts.entities[entity] = [
                {
                    "device": rng.choice((0, 1, "0", None)),
                    "phase": rng.choice(("decode", "prefill", None)),
                    "process": rng.choice((7, 8)),
                    "u": rng.choice((*VALUES, None, float("nan"))),
                    "v": rng.choice((*VALUES, "a")),
                    "w": rng.choice((*WORDS, None)),
                }
                for _ in range(rng.randint(0, 5))
            ]
    return facts
