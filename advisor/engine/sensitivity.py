"""Verdicts that depend on the exact value of a threshold: the effect of a tenth more or less.

Every numeric parameter is moved to 0.9 and to 1.1 times its value, one at a time, and the rules are
inferred again over the same facts. A parameter whose move changes the truth of no condition on any fact
or row cannot change a verdict, so only the others are run; of those only the one rule is compiled anew.
The interpreter does it, whichever engine ran: it defines what a rule means.

A move of a count by less than one (one capture range, five steps) has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from advisor.engine.compile import Program, Test, recompiled
from advisor.engine.infer import Inference, infer
from advisor.engine.params import ParamKey
from advisor.engine.reasons import STATES
from advisor.engine.values import atom, compare, operand
from advisor.model.facts import Fact, Value
from advisor.model.findings import Finding
from advisor.model.gain import Flip, FlipFact, StateChange
from advisor.model.rules import RuleSpec

#: How far each threshold is moved.
STEPS = (0.9, 1.1)

#: The findings of an inference, in their order.
Findings = Callable[[Inference], Sequence[Finding]]


def sensitivity(inference: Inference, findings: Findings) -> tuple[Flip, ...]:
    """Every move of a threshold that changes the outcome of a rule, in order of code and name."""
    before = {(o.code, o.scope): o.state for o in inference.outcomes}
    ranked = findings(inference)
    first = ranked[0] if ranked else None
    facts: dict[str, list[Fact]] = {}
    for fact in inference.facts:
        facts.setdefault(fact.name, []).append(fact)
    flips = []
    for (code, name), old in sorted(inference.program.params.items()):
        if isinstance(old, bool) or not isinstance(old, int | float) or old == 0:
            continue
        rule = inference.program.by_code[code]
        tests = [t for t in rule.tests() if t.param == name]
        fields = [(j.entity, t) for j in rule.joins for t in j.where if t.param == name]
        for factor in STEPS:
            new = _moved(rule.spec, name, old, factor, [*tests, *(t for _, t in fields)])
            between = [(t, f) for t in tests for f in facts.get(t.fact, ()) if _between(t, new, f.value)]
            rows = ((t, row) for entity, t in fields for row in inference.facts.entities.get(entity, ()))
            if not between and not any(_between(t, new, row.get(t.fact)) for t, row in rows):
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
                    facts=tuple(
                        dict.fromkeys(
                            FlipFact(fact=f.name, op=t.op, value=f.value, unit=f.unit, scope=f.scope)
                            for t, f in between
                        )
                    ),
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


def _moved(spec: RuleSpec, name: str, old: float, factor: float, tests: Iterable[Test]) -> float:
    """The threshold moved; a share of a whole cannot exceed one."""
    new = round(old * factor, 9)
    whole = spec.params[name].unit == "ratio" and not any("_over_" in t.fact for t in tests)
    return 1.0 if whole and old <= 1.0 < new else new


def _with(program: Program, key: ParamKey, value: float) -> Program:
    """The program with one parameter changed; the other rules are reused."""
    params = {**program.params, key: value}
    rule = recompiled(program, key[0], params)
    strata = tuple(tuple(rule if r.spec.code == key[0] else r for r in stratum) for stratum in program.strata)
    return Program(strata, params, program.rules)


def _between(test: Test, new: float, raw: Value | None) -> bool:
    """True if the move changes the truth of the comparison for this value."""
    assert isinstance(test.threshold, float)
    if isinstance(raw, int) and abs(new - test.threshold) < 1:
        return False
    value = atom(raw)
    return test.holds(value) != compare(value, test.op, operand(new))
