"""The states of rules that are no finding, and what each part of the budget ends in: findings about
it, or a sentence why there are none.

===============  ===============================================================================
in order         quiet: what the rule looks at is there, and holds little of the step
close            quiet, and numbers that differ by a tenth of their thresholds would make it a
                 finding
observed         a note that fired, or quiet although what the rule is about holds 3 % of the
                 step and more: seen, no fault, and no tick
does not apply   quiet, and what the rule looks at is not in the capture
not judged       facts are missing, or something stopped the rule: a guard, a cause that
                 overrules it, or a capture that cannot be believed or is too short
===============  ===============================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from advisor.engine.compile import CompiledRule, Test
from advisor.engine.infer import Inference
from advisor.engine.interpret import Checked, Outcome
from advisor.engine.judge import Withholders, common_scope, condition_docs, impact_of, worded
from advisor.engine.reasons import Explainer, fact_text, nearest_first, obstacle, shortfall
from advisor.engine.values import k_or, placeholders
from advisor.knowledge.facts import part_meanings
from advisor.model.facts import Scope
from advisor.model.findings import SEVERITIES, Budget, Finding, Healthy, NotEvaluated, Part, State
from advisor.model.gain import WORTH
from advisor.model.parts import BUSY
from advisor.model.rules import RuleSpec

#: A number is close to its threshold up to this share of the threshold.
NEAR = 0.1


def in_order(inference: Inference) -> Iterator[Healthy]:
    """Notes that fired, and quiet rules with a healthy text whose facts are all known."""
    for outcome in inference.outcomes:
        spec = inference.program.by_code[outcome.code].spec
        template = None
        if spec.kind == "note" and outcome.state == "fired":
            template = spec.message
        elif _known(inference, spec, outcome):
            template = spec.healthy
        if template is not None:
            state = state_of(inference, outcome)
            looked_at = (b for b in outcome.branches if outcome.state == "quiet" or b.truth)
            yield Healthy(
                code=spec.code,
                cause=spec.cause,
                scope=outcome.scope,
                text=worded(inference, spec, template, outcome.scope),
                state=state,
                close=state == "close",
                conditions=condition_docs(c for b in looked_at for c in b.conditions),
            )


def state_of(inference: Inference, outcome: Outcome) -> State:
    """The state of a note that fired, or of a quiet rule."""
    rule = inference.program.by_code[outcome.code]
    if outcome.state == "fired":
        return "observed"
    tests = (inference.truth(test, outcome.scope) for test in rule.looks_at)
    if _of_another_kind(outcome) or (rule.looks_at and True not in tests):
        return "does not apply"
    impact = impact_of(inference, rule.spec, outcome.scope)
    share = None if impact is None or impact.part == "capture" else impact.share
    worth = share is None or share >= (1 - NEAR) * WORTH
    if worth and any(_near(branch.conditions) for branch in outcome.branches):
        return "close"
    return "observed" if share is not None and share >= WORTH else "in order"


def _near(conditions: Iterable[Checked]) -> bool:
    """Whether only numbers fail, each within `NEAR` of its threshold."""
    failed = [shortfall(c) for c in conditions if not c.truth]
    return bool(failed) and all(off is not None and off <= NEAR for off in failed)


def by_state(entries: Iterable[Healthy]) -> dict[str, Any]:
    """The fields of a diagnosis that hold the rules that are no finding."""
    given = tuple(entries)
    away = tuple(h for h in given if not h.applies)
    there = {h.code for h in given if h.applies}
    return {
        "healthy": tuple(h for h in given if h.state in ("in order", "close")),
        "observed": tuple(h for h in given if h.state == "observed"),
        "not_applicable": away,
        "does_not_apply": len({h.code for h in away} - there),
    }


def heaviest_first(entries: Iterable[Healthy], by_code: Mapping[str, CompiledRule]) -> tuple[Healthy, ...]:
    """Notes, then rules by the severity that they could have had; rules about the capture come last.
    Among equals the first rule of each family comes before the second of any."""
    weighed = []
    for entry in entries:
        spec = by_code[entry.code].spec
        marks = [level.severity for level in spec.severity.levels] or ["high"]
        worst = min(spec.severity.cap or "high", marks[-1], key=SEVERITIES.index)
        about_gpu = spec.scope != "trace" and spec.impact is not None
        weight = (spec.kind != "note", not about_gpu, -SEVERITIES.index(worst))
        weighed.append((weight, entry))
    placed_of: Counter[tuple[object, ...]] = Counter()
    placed = []
    for weight, entry in sorted(weighed, key=lambda w: (w[0], w[1].code, w[1].scope.sort_key())):
        family = (weight, entry.code[:3])
        placed.append(((*weight, placed_of[family]), entry))
        placed_of[family] += 1
    return tuple(entry for _, entry in sorted(placed, key=lambda p: p[0]))


def _known(inference: Inference, spec: RuleSpec, outcome: Outcome) -> bool:
    """The rule is quiet, has a text for that, and every fact of both is known."""
    if outcome.state != "quiet" or not spec.healthy:
        return False
    joins = [j.truth for j in outcome.joins if j.join.required]
    conditions = [c.truth for b in outcome.branches for c in b.conditions]
    conditions += [g.checked.truth for g in outcome.guards] + joins
    wanted = [p for p in placeholders(spec.healthy) if not p.is_param]
    return (
        None not in conditions
        and _absent(outcome)
        and all(inference.view.fact(p.name, outcome.scope) is not None for p in wanted)
    )


def _absent(outcome: Outcome) -> bool:
    """Whether the cause of the rule is absent, its guards aside."""
    joins = [j.truth for j in outcome.joins if j.join.required]
    return k_or(*(b.truth for b in outcome.branches)) is False or False in joins


def not_judged(
    inference: Inference, withheld: Iterable[tuple[Outcome | Healthy, str]] = ()
) -> tuple[NotEvaluated, ...]:
    """What was missing or stopped a rule, one entry a rule and reason, merged over the scopes of a
    capture. `withheld` ones are left out because of the cause that is named beside them."""
    capture_of = inference.facts.capture_of
    Reason = tuple[str, tuple[str, ...], str | None, str | None]
    grouped: dict[tuple[Scope, Reason], list[Scope]] = {}

    def add(of: Outcome | Healthy, missing: tuple[str, ...], by: str | None, why: str | None = None) -> None:
        grouped.setdefault((capture_of(of.scope), (of.code, missing, by, why)), []).append(of.scope)

    for outcome in inference.outcomes:
        if outcome.state == "unknown":
            add(outcome, outcome.missing, None)
        elif (stop := stopper(inference, outcome)) is not None:
            add(outcome, (), *stop)
    for entry, by in withheld:
        add(entry, (), by)
    entries = []
    for (_, (code, missing, stopped_by, why)), scopes in grouped.items():
        spec = inference.program.by_code[code].spec
        reasons = [inference.facts.missing[m] for m in missing if m in inference.facts.missing]
        entries.append(
            NotEvaluated(
                code=code,
                cause=spec.cause,
                scope=common_scope(scopes),
                missing=missing,
                stopped_by=stopped_by,
                flag=spec.needs.flag if missing and spec.needs is not None else None,
                why=why or "; ".join(dict.fromkeys(reasons)) or None,
            )
        )
    return tuple(sorted(entries, key=lambda e: (e.code, e.scope.sort_key(), e.missing, e.stopped_by or "")))


def stopper(inference: Inference, outcome: Outcome) -> tuple[str, str | None] | None:
    """The cause or fact that stopped a rule, and for a fact its meaning; None if nothing did. Notes and
    questions claim nothing that could be stopped."""
    if inference.program.by_code[outcome.code].spec.kind in ("note", "question"):
        return None
    if outcome.overruled_by:
        return cause_of(inference, outcome.overruled_by[0].name), None
    guard = next((g.checked for g in outcome.guards if g.checked.truth), None)
    if guard is None or outcome.state != "quiet" or _absent(outcome):
        return None
    if isinstance(guard.condition, Test):
        return guard.condition.fact, fact_text(guard, outcome.scope)
    return guard.condition.cause, None


def cause_of(inference: Inference, name: str) -> str:
    """The cause of a rule given by its code, or the cause itself where a case gave it."""
    rule = inference.program.by_code.get(name)
    return name if rule is None else rule.spec.cause


# --- what each part of the budget ends in ----------------------------------------------------------
# A rule refers to the parts that its `impact` names. Idle parts are answered by findings that hold at
# least half of them; a busy part by any finding, as time in which the GPU works is not lost.

#: Findings answer an idle part from this share of it on.
MOST = 0.5

#: (budget, part) -> why no finding, or none that holds most of it, explains the part.
Why = Callable[[Budget, Part], str]


def answered(
    budgets: Iterable[Budget], findings: Sequence[Finding], rules: Mapping[str, RuleSpec], why: Why
) -> tuple[Budget, ...]:
    """The budgets of whole windows with the causes that explain each part of at least `WORTH`."""

    def answer(budget: Budget, part: Part) -> Part:
        if part.share < WORTH or budget.phase is not None:
            return part
        about = [f for f in findings if _here(f, budget) and part.part in _parts(f, rules)]
        shares = {p.part: p.share for p in budget.parts}
        enough = bool(about) and part.part in BUSY
        for finding in about:
            whole = sum(shares.get(p, 0.0) for p in _parts(finding, rules))
            enough = enough or (finding.share or 0.0) >= MOST * whole
        enough = enough or any(f.invalidates for f in about)
        causes = tuple(dict.fromkeys(f.cause for f in about))
        return part.replaced(findings=causes, why=None if enough else why(budget, part))

    return tuple(b.replaced(parts=tuple(answer(b, p) for p in b.parts)) for b in budgets)


def _here(finding: Finding | Outcome, budget: Budget) -> bool:
    """Whether it is about this device; a finding about a rank as a whole is about its part in the job."""
    scope = finding.scope
    pairs = ((scope.device, budget.device), (scope.rank if scope.device is not None else None, budget.rank))
    return all(a is None or b is None or a == b for a, b in pairs)


def _parts(finding: Finding, rules: Mapping[str, RuleSpec]) -> set[str]:
    """The parts that a finding refers to, with those of the causes that it stands for."""
    if finding.impact is None or finding.impact.share is None:
        return set()
    named = (rules.get(code) for code in (finding.code, *(s.code for s in finding.explains)))
    spoken = (r.impact for r in named if r is not None and (r.kind != "symptom" or r.code == finding.code))
    return {part for impact in spoken if impact is not None for part in impact.parts}


def why_not(inference: Inference) -> Why:
    """Why the rules about a part did not fire, by the one that came nearest."""
    explainer = Explainer(inference, inference.facts.missing.get)
    by_code = inference.program.by_code
    withholders = Withholders(inference)

    speaking: dict[str, list[Outcome]] = {}
    for outcome in inference.outcomes:
        if (impact := by_code[outcome.code].spec.impact) is not None:
            for name in dict.fromkeys(impact.parts):
                speaking.setdefault(name, []).append(outcome)

    def why(budget: Budget, part: Part) -> str:
        about = [o for o in speaking.get(part.part, ()) if _here(o, budget)]
        by = withholders.of(Scope(rank=budget.rank, device=budget.device))
        if by is not None and about:
            return f"not judged: {by} comes first"
        looked = [o for o in about if o.state != "fired"]
        if looked:
            return _worded(explainer, min(nearest_first(looked), key=lambda o: _order(inference, o, part)))
        if about:
            return "the findings hold less than half of it"
        return f"no rule covers it ({part_meanings()[part.part]})"

    return why


def _order(inference: Inference, outcome: Outcome, part: Part) -> tuple[bool, ...]:
    """The key of the outcome that explains a part best: of compute a limit, as the device works; then rules
    for captures of this kind, judged ones, causes before symptoms, rules about this part first, and of idle
    time the rules that hold most of it; of several the nearest."""
    spec = inference.program.by_code[outcome.code].spec
    impact = impact_of(inference, spec, outcome.scope)
    share = (impact.share if impact else None) or 0.0
    own = spec.impact is not None and spec.impact.part == part.part
    little = part.part not in BUSY and share < MOST * part.share
    fault = part.part == "compute" and spec.kind != "limit"
    unjudged, symptom = outcome.state == "unknown", spec.kind == "symptom"
    return fault, _of_another_kind(outcome), unjudged, symptom, not own, little


def _of_another_kind(outcome: Outcome) -> bool:
    """True if each branch of the rule fails at a property of the capture, not at a number."""

    def of_kind(checked: Checked) -> bool:
        test = checked.condition
        return checked.truth is False and isinstance(test, Test) and test.op in ("eq", "one_of")

    return bool(outcome.branches) and all(any(map(of_kind, b.conditions)) for b in outcome.branches)


def _worded(explainer: Explainer, outcome: Outcome) -> str:
    """One sentence from the tree of an outcome that did not fire."""
    cause = explainer.inference.program.by_code[outcome.code].spec.cause
    if outcome.overruled_by:
        better = cause_of(explainer.inference, outcome.overruled_by[0].name)
        return f"{cause} fired, and {better} explains the same better"
    if outcome.state == "unknown":
        because = "; ".join(dict.fromkeys(w for m in outcome.missing if (w := explainer.why(m))))
        return f"{cause} could not be judged" + (
            f": {because}" if because else f", for lack of {', '.join(outcome.missing)}"
        )
    return f"{cause} did not fire: {obstacle(explainer.tree(outcome).reasons)}"
