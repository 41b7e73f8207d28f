"""How heavy and how sure a fired rule is: impact, severity, confidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.engine.compile import CompiledRule, Test
from advisor.engine.infer import Inference
from advisor.engine.interpret import BranchResult, Outcome, check_fact
from advisor.model.facts import Fact, Scope
from advisor.model.findings import SEVERITIES, Impact, ScopeDoc, Severity
from advisor.model.rules import RuleSpec

#: The global table: severity from this share of the step on; below the last, info.
SEVERITY_TABLE: tuple[tuple[float, Severity], ...] = (
    (0.20, "high"),
    (0.10, "medium"),
    (0.03, "low"),
)
#: Facts of a lesser kind make the same advice less sure.
METHOD_FACTOR = {"measured": 1.0, "inferred": 0.9, "assumed": 0.75}
PASSED_GUARD_FACTOR = 0.95
_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0}

#: (part of the budget, scope, share) -> milliseconds of the window, where known.
Duration = Callable[[str, Scope, float | None], float | None]


def impact_of(
    inference: Inference, spec: RuleSpec, scope: Scope, ms_of: Duration | None = None
) -> Impact | None:
    """Share where the impact fact is a ratio, milliseconds where it is a time."""
    if spec.impact is None:
        return None
    fact = _number(inference, spec, scope)
    share = ms = None
    if fact is not None and fact.unit == "ratio":
        share = min(1.0, max(0.0, float(fact.value)))
    elif fact is not None and fact.unit in _MS:
        ms = float(fact.value) * _MS[fact.unit]
    if ms is None and ms_of is not None:
        ms = ms_of(spec.impact.part, scope, share)
    return Impact(part=spec.impact.part, ms=ms, share=share)


def severity_of(inference: Inference, spec: RuleSpec, scope: Scope) -> Severity:
    """By the rule's own levels or the global table, under its cap; info where nothing is known.
    What takes the ground from under every other finding is high, whatever it measures."""
    if invalidates(inference, inference.program.by_code[spec.code], scope):
        return spec.severity.cap or "high"
    fact = _number(inference, spec, scope)
    found: Severity = "info"
    if fact is not None and spec.severity.levels:
        value = float(fact.value)
        for level in spec.severity.levels:
            found = level.severity if value >= level.at else found
    elif fact is not None and fact.unit == "ratio":
        found = next((s for at, s in SEVERITY_TABLE if float(fact.value) >= at), "info")
    cap = spec.severity.cap
    return found if cap is None else min(found, cap, key=SEVERITIES.index)


def confidence_of(spec: RuleSpec, outcome: Outcome) -> float:
    """base x method x margin x 0.95 for every guard that could not be checked.

    Margin: 0.85 on a threshold, rising to 1.0 where the closest number of the branch lies half of
    the larger of the two away from it. The best branch that fired counts.
    """
    margins = [_margin(b) for b in outcome.branches if b.truth]
    passed = sum(1 for g in outcome.guards if g.checked.truth is None)
    value = spec.confidence.base * METHOD_FACTOR[spec.confidence.method]
    value *= 0.85 + 0.15 * min(1.0, 2.0 * max(margins, default=1.0))
    return round(min(1.0, max(0.0, value * PASSED_GUARD_FACTOR**passed)), 3)


def _margin(branch: BranchResult) -> float:
    margins = [1.0]
    for item in branch.conditions:
        test = item.condition
        if not isinstance(test, Test) or not isinstance(test.threshold, float):
            continue
        if test.op in ("lt", "le", "gt", "ge") and isinstance(item.value, int | float):
            value = float(item.value)
            largest = max(abs(value), abs(test.threshold))
            margins.append(abs(value - test.threshold) / largest if largest else 0.0)
    return min(margins)


def invalidates(inference: Inference, rule: CompiledRule, scope: Scope) -> bool:
    if isinstance(rule.invalidates, bool):
        return rule.invalidates
    return check_fact(rule.invalidates, scope, inference.sight).truth is True


def _number(inference: Inference, spec: RuleSpec, scope: Scope) -> Fact | None:
    """The impact fact, where it is a number."""
    if spec.impact is None:
        return None
    value = inference.sight.atom(spec.impact.fact, scope)
    return inference.sight.fact(spec.impact.fact, scope) if isinstance(value, float) else None


def doc(scope: Scope) -> ScopeDoc:
    return ScopeDoc(
        rank=scope.rank,
        device=scope.device,
        process=scope.process,
        phase=scope.phase,
        operation=scope.operation,
    )


def common_scope(scopes: Sequence[Scope]) -> Scope:
    """The narrowest scope that encloses all of them."""
    dicts = [s.as_dict() for s in scopes]
    same = {k: v for k, v in dicts[0].items() if all(d[k] == v for d in dicts)}
    return Scope(**same)  # type: ignore[arg-type]
