"""What each part of the budget ends in: findings that speak of it, or a sentence why there are none.

A rule speaks of the parts that its `impact` names. Idle parts are answered by findings that hold at
least half of them; a busy part by any finding, as time in which the GPU works is not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from advisor.engine.compile import Test
from advisor.engine.explain import Explainer, nearest_first, obstacle
from advisor.engine.infer import Inference
from advisor.engine.interpret import Checked, Outcome
from advisor.engine.judge import Withholders, impact_of
from advisor.engine.states import cause_of
from advisor.facts.spec import PART_MEANINGS
from advisor.model.facts import Scope
from advisor.model.findings import Budget, Finding, Part
from advisor.model.gain import WORTH
from advisor.model.parts import BUSY
from advisor.model.rules import RuleSpec

#: Findings answer an idle part from this share of it on.
MOST = 0.5

#: (budget, part) -> why no finding, or none that holds most of it, speaks of the part.
Why = Callable[[Budget, Part], str]


def answered(
    budgets: Iterable[Budget], findings: Sequence[Finding], rules: Mapping[str, RuleSpec], why: Why
) -> tuple[Budget, ...]:
    """The budgets of whole windows with the causes that speak of each part of `WORTH` and more."""

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
    """Whether it is about this device; what is said of a rank as a whole is about its part in the job."""
    scope = finding.scope
    pairs = ((scope.device, budget.device), (scope.rank if scope.device is not None else None, budget.rank))
    return all(a is None or b is None or a == b for a, b in pairs)


def _parts(finding: Finding, rules: Mapping[str, RuleSpec]) -> set[str]:
    """The parts that a finding speaks of, with those of the causes that it stands for."""
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
            return "what was found holds less than half of it"
        return f"no rule speaks of it ({PART_MEANINGS[part.part]})"

    return why


def _order(inference: Inference, outcome: Outcome, part: Part) -> tuple[bool, ...]:
    """Of compute a limit is more informative than a fault, for the device works; a rule for captures of
    this kind more than one for others, a judged one more than one that was not, a cause more than a
    symptom, one about this part more than one that also speaks of it, and of idle time one that holds
    most of it; of several the nearest."""
    spec = inference.program.by_code[outcome.code].spec
    impact = impact_of(inference, spec, outcome.scope)
    share = (impact.share if impact else None) or 0.0
    own = spec.impact is not None and spec.impact.part == part.part
    little = part.part not in BUSY and share < MOST * part.share
    fault = part.part == "compute" and spec.kind != "limit"
    unjudged, symptom = outcome.state == "unknown", spec.kind == "symptom"
    return fault, _of_another_kind(outcome), unjudged, symptom, not own, little


def _of_another_kind(outcome: Outcome) -> bool:
    """True where each branch of the rule fails at what a capture is or is not, and not at a number."""

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
