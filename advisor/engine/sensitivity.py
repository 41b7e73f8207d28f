"""Verdicts that depend on the exact value of a threshold: the effect of a tenth more or less.

Every numeric parameter is moved to 0.9 and to 1.1 times its value, one at a time, and the rules are
inferred again over the same facts. A parameter whose move changes the truth of no condition on any fact
or row cannot change a verdict, so only the others are run; of those only the one rule is compiled anew.
The interpreter does it, whichever engine ran: it defines what a rule means.

A move of a count by less than one (one capture range, five steps) has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from advisor.engine.compile import CompiledRule, Program, Test, recompiled
from advisor.engine.explain import STATES
from advisor.engine.infer import Inference, infer
from advisor.engine.params import ParamKey
from advisor.engine.values import atom, compare, operand
from advisor.model.facts import FactBase, Value
from advisor.model.findings import Finding
from advisor.model.gain import Flip, FlipFact, StateChange
from advisor.model.rules import RuleSpec

#: How far each threshold is moved.
STEPS = (0.9, 1.1)

#: The findings of an inference, in their order.
Findings = Callable[[Inference], Sequence[Finding]]


class _Use(Struct, frozen=True):
    """A place where a parameter is compared: a fact, or a field of an entity table."""

    test: Test
    entity: str | None = None


def sensitivity(inference: Inference, findings: Findings) -> tuple[Flip, ...]:
    """Every move of a threshold that changes the outcome of a rule, in order of code and name."""
    before = {(o.code, o.scope): o.state for o in inference.outcomes}
    ranked = findings(inference)
    first = ranked[0] if ranked else None
    values = _values(inference.facts)
    flips = []
    for (code, name), old in sorted(inference.program.params.items()):
        if isinstance(old, bool) or not isinstance(old, int | float) or old == 0:
            continue
        rule = inference.program.by_code[code]
        uses = [u for u in _uses(rule) if u.test.param == name]
        for factor in STEPS:
            new = _moved(rule.spec, name, old, factor, uses)
            touched = [u for u in uses if _touches(u, new, values, inference.facts)]
            if not touched:
                continue
            program = _with(inference.program, (code, name), new)
            after = infer(inference.facts, program, engine="python")
            changed = [o for o in after.outcomes if before[o.code, o.scope] != o.state]
            if not changed:
                continue
            again = findings(after)
            now = again[0] if again else None
            same = (first and (first.code, first.scope)) == (now and (now.code, now.scope))
            flips.append(
                Flip(
                    code=code,
                    cause=rule.spec.cause,
                    param=name,
                    unit=rule.spec.params[name].unit,
                    threshold=old,
                    moved_to=new,
                    facts=tuple(dict.fromkeys(_facts(touched, new, inference))),
                    changes=tuple(
                        StateChange(
                            code=o.code,
                            cause=o.cause,
                            scope=o.scope,
                            before=STATES[before[o.code, o.scope]],
                            after=STATES[o.state],
                        )
                        for o in changed
                    ),
                    first_before=None if same or first is None else first.code,
                    first_after=None if same or now is None else now.code,
                )
            )
    return tuple(flips)


def _moved(spec: RuleSpec, name: str, old: float, factor: float, uses: Sequence[_Use]) -> float:
    """The threshold moved; a share of a whole cannot exceed one."""
    new = round(old * factor, 9)
    whole = spec.params[name].unit == "ratio" and not any("_over_" in u.test.fact for u in uses)
    return 1.0 if whole and old <= 1.0 < new else new


def _with(program: Program, key: ParamKey, value: float) -> Program:
    """The program with one parameter changed; the other rules are reused."""
    params = {**program.params, key: value}
    rule = recompiled(program, key[0], params)
    strata = tuple(tuple(rule if r.spec.code == key[0] else r for r in stratum) for stratum in program.strata)
    return Program(strata, params, program.rules)


# --- what a move touches ---------------------------------------------------------------------


def _uses(rule: CompiledRule) -> Iterator[_Use]:
    yield from (_Use(t) for t in rule.tests())
    for join in rule.joins:
        yield from (_Use(t, join.entity) for t in join.where)


def _values(facts: FactBase) -> dict[str, list[Value]]:
    """Every value of each fact, over all scopes."""
    found: dict[str, list[Value]] = {}
    for fact in facts.facts.values():
        found.setdefault(fact.name, []).append(fact.value)
    return found


def _touches(use: _Use, new: float, values: dict[str, list[Value]], facts: FactBase) -> bool:
    """True if the move changes the truth of the comparison for any value there is."""
    if use.entity is None:
        seen: Iterable[Value | None] = values.get(use.test.fact, ())
    else:
        seen = (row.get(use.test.fact) for row in facts.entities.get(use.entity, ()))
    return any(_between(use.test, new, value) for value in seen)


def _between(test: Test, new: float, raw: Value | None) -> bool:
    """True if the move changes the truth of the comparison for this value."""
    assert isinstance(test.threshold, float)
    if isinstance(raw, int) and abs(new - test.threshold) < 1:
        return False
    value = atom(raw)
    return test.holds(value) != compare(value, test.op, operand(new))


def _facts(touched: Sequence[_Use], new: float, inference: Inference) -> Iterator[FlipFact]:
    """The values that lie between the two thresholds."""
    for use in touched:
        for fact in inference.facts if use.entity is None else ():
            if fact.name == use.test.fact and _between(use.test, new, fact.value):
                yield FlipFact(
                    fact=fact.name, op=use.test.op, value=fact.value, unit=fact.unit, scope=fact.scope
                )
