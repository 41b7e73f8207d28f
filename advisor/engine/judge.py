"""How severe and how certain a fired rule is, and its words with the values of a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from advisor.engine.compile import Test
from advisor.engine.infer import Inference
from advisor.engine.interpret import BranchResult, Checked, Outcome
from advisor.engine.severity import least, severity_of
from advisor.engine.values import STEP_COUNT, Placeholder, Shown, render
from advisor.model.explanation import Factor
from advisor.model.facts import Fact, Scope
from advisor.model.findings import ConditionDoc, Finding, Impact, Severity
from advisor.model.gain import EFFORTS, LEAST, Advice, Alternative, Gain, Prediction, Ranking, share_saved
from advisor.model.numbers import percent, perhaps_text
from advisor.model.rules import Doubt, ImpactSpec, RuleSpec

#: Facts measured less directly make the same advice less certain.
METHOD_FACTOR = {"measured": 1.0, "inferred": 0.9, "assumed": 0.75}
PASSED_GUARD_FACTOR = 0.95
#: Of a rule that nothing shows yet.
PREVIEW_FACTOR = 0.9
#: A cause holds the parts of the budget that make up `MOST` of it; a rest of `LITTLE` need not be
#: accounted for.
MOST, LITTLE = 0.5, 0.02
#: The judged base of a confidence counts as much as this many captures with a known answer.
PRIOR = 6
#: Advice that needs what no capture shows leads where the finding's fix saves less than this share of what it
#: saves. Choice.
LEADING_RATIO = 0.5
#: Deductions from a confidence: for an estimate that may be anything, and for a step that may be all
#: tracing.
UNSURE = 0.1
_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0}

#: (part of the budget, scope, share) -> milliseconds of the window, if known.
Duration = Callable[[str, Scope, float | None], float | None]


def impact_of(
    inference: Inference, spec: RuleSpec, scope: Scope, ms_of: Duration | None = None
) -> Impact | None:
    """The share if the impact fact is a ratio, milliseconds if it is a time."""
    if spec.impact is None:
        return None
    fact = _number(inference, spec, scope)
    share = ms = None
    if fact is not None and fact.unit == "ratio":
        share = min(1.0, max(0.0, float(fact.value)))
    elif fact is not None and fact.unit in _MS:
        ms = float(fact.value) * _MS[fact.unit]
    part = part_of(inference, spec.impact, scope)
    if ms is None and ms_of is not None:
        ms = ms_of(part, scope, share)
    return Impact(part=part, ms=ms, share=share, parts=_made_up_of(inference, spec.impact, scope, share))


def _made_up_of(
    inference: Inference, impact: ImpactSpec, scope: Scope, share: float | None
) -> tuple[str, ...] | None:
    """The parts of the budget that make up the time, as many of the rule's as needed; empty if together
    they hold less than `MOST` of it, None if the budget is unknown."""
    held = _held(inference, impact, scope)
    if not held or share is None:
        return None
    if impact.part not in held or sum(held.values()) < MOST * share:
        return ()
    taken: dict[str, float] = {}
    for part, of_window in held.items():
        if of_window > 0 and sum(taken.values()) < (1 - LITTLE) * share:
            taken[part] = of_window
    return tuple(sorted(taken, key=lambda p: -taken[p]))


def _held(inference: Inference, impact: ImpactSpec, scope: Scope) -> dict[str, float]:
    """The window shares of the parts that a rule refers to."""
    held = {p: inference.view.fact(f"budget.{p}_ratio", scope) for p in impact.parts}
    return {p: float(f.value) for p, f in held.items() if f is not None and isinstance(f.value, int | float)}


def part_of(inference: Inference, impact: ImpactSpec, scope: Scope) -> str:
    """The part of the budget that a rule refers to; if it holds no time, the largest of its further
    parts: copies of one direction are not those of the other. Sums have no window."""
    sums = inference.view.fact("capture.sums_only", scope)
    if sums is not None and sums.value is True:
        return "capture"
    known = {p: v for p, v in _held(inference, impact, scope).items() if v > 0}
    return impact.part if impact.part in known or not known else max(known, key=lambda p: known[p])


def grading(inference: Inference, spec: RuleSpec, scope: Scope, confidence: float) -> Ranking:
    """A finding's severity before any fix is estimated: the severity by levels of the rule's own (high if
    it invalidates every other finding), and the maximum that the rule and its doubts allow."""
    levels: Severity | None = None
    fact, rule = _number(inference, spec, scope), inference.program.by_code[spec.code]
    if invalidates := holds(inference, rule.invalidates, scope):
        levels = "high"
    elif spec.severity.levels:
        value = float("-inf") if fact is None else float(fact.value)
        marks = (level.severity for level in reversed(spec.severity.levels) if value >= level.at)
        levels = next(marks, "info")
    caps = [c for c in (spec.severity.cap, *(d.cap for d in doubts_of(inference, spec, scope))) if c]
    tail = inference.view.fact(spec.severity.tail, scope) if spec.severity.tail else None
    return Ranking(
        confidence=confidence,
        levels=levels,
        cap=least(*caps) if caps else None,
        tail=float(tail.value) if tail is not None else 0.0,
        measured=spec.subject != "trace",
        lost=holds(inference, rule.lost, scope),
        aside=not invalidates and holds(inference, rule.aside, scope),
    )


def doubts_of(inference: Inference, spec: RuleSpec, scope: Scope) -> tuple[Doubt, ...]:
    """The rule's doubts that apply to this capture."""
    tests = inference.program.by_code[spec.code].doubts
    return tuple(
        doubt
        for doubt, when in zip(spec.doubts, tests, strict=True)
        if all(inference.truth(test, scope) for test in when)
    )


def most_severe(inference: Inference, spec: RuleSpec, scope: Scope) -> Severity:
    """The severity if the fix, if the rule names one, saves all that the cause holds."""
    terms = grading(inference, spec, scope, 1.0)
    impact = impact_of(inference, spec, scope)
    held = (impact.share if impact else None) or 0.0
    saved = held if spec.gain is not None or terms.measured else None
    return severity_of(terms, held, saved)


def confidence_factors(inference: Inference, spec: RuleSpec, outcome: Outcome) -> tuple[Factor, ...]:
    """The factors whose product is the confidence; those that cannot matter here are left out.

    base      how often the advice is right once the rule has fired, as the rule file says
    labels    the base corrected by captures with a known answer, over the base
    method    1.0 measured, 0.9 inferred, 0.75 assumed
    margin    0.85 on a threshold, rising to 1.0 where the closest number of the branch lies half
              of the larger of the two away from it; the best branch that fired counts
    preview   0.9 for a rule that no capture or scene of known cause shows yet
    guards    0.95 for every guard that could not be checked
    doubt     the factor of every doubt of the rule that the capture gives reason for
    found     0.9 + 0.1 c, where c is how sure it is that what was found are steps
    steps     1 - 0.2 / n for n steps in the window (no steps: as one)
    sums      0.8 where sums of the whole recording are all there is
    listed    0.6 + 0.4 l, where l is the share of their time in rows that were pasted and could be read
    samples   0.7 + 0.3 c n / (n + 10) where a number of the branch comes from n GPU samples: c is
              the share of the busy time in kernels that they resolve, 1 where kernels do not matter

    The last five are not for rules about the capture itself, which count over the whole file.
    `estimate_factors` has two more, once it is known what the fix wins."""
    base, method = spec.confidence.base, spec.confidence.method
    near = max((_margin(b) for b in outcome.branches if b.truth), default=1.0)
    where = f"the closest number is {percent(near)} away from its threshold"
    where = "no number of it is near its threshold" if near >= 1.0 else where
    factors = [
        Factor("base", base, "how often the advice is right once the rule has fired"),
        Factor("method", METHOD_FACTOR[method], f"its facts are {method}"),
        Factor("margin", 0.85 + 0.15 * min(1.0, 2.0 * near), where),
    ]
    if base and (known := spec.confidence.right + spec.confidence.wrong):
        why = f"right in {spec.confidence.right} of {known} captures with a known answer"
        factors.insert(1, Factor("labels", calibrated(base, spec.confidence.right, known) / base, why))
    if spec.lifecycle == "preview":
        factors.append(Factor("preview", PREVIEW_FACTOR, "no capture or scene of known cause shows it yet"))
    passed = sum(1 for g in outcome.guards if g.checked.truth is None)
    if passed:
        word = "guard" if passed == 1 else "guards"
        factor = PASSED_GUARD_FACTOR**passed
        factors.append(Factor("guards", factor, f"{passed} {word} could not be checked"))
    for doubt in doubts_of(inference, spec, outcome.scope):
        factors.append(Factor("doubt", doubt.factor, "the finding states what the capture cannot show"))
    if spec.scope != "trace":
        factors += _steps(inference, outcome.scope)
        factors += _samples(inference, outcome)
        if inference.facts.value("capture.sums_only", outcome.scope) is True:
            factors.append(Factor("sums", 0.8, "sums count start-up as well, and do not show when"))
            listed = inference.facts.value("sums.listed_ratio", outcome.scope)
            if isinstance(listed, float) and listed < 1.0:
                why = f"{percent(listed)} of the time stands in rows that were pasted and could be read"
                factors.append(Factor("listed", 0.6 + 0.4 * listed, why))
    return tuple(factors)


def estimate_factors(gain: Gain | None) -> tuple[Factor, ...]:
    """What an estimate adds to the confidence of a finding; nothing without one.

    range     1 - 0.1 w, where the ends of the range of what the fix saves lie w of the step apart
    profiler  1 - 0.1 p, where tracing may explain the share p of the step"""
    if gain is None or gain.speedup is None:
        return ()
    low, high = (1 - 1 / s for s in (gain.speedup.low, gain.speedup.high))
    factors = [Factor("range", 1 - UNSURE * (high - low), f"the fix saves {percent(low)} to {percent(high)}")]
    if (before := gain.step_before_ms) is not None and before.high > 0:
        traced = 1 - before.low / before.high
        factors.append(
            Factor("profiler", 1 - UNSURE * traced, f"tracing may explain {percent(traced)} of the step")
        )
    return tuple(factors)


def predicted(finding: Finding, prediction: Prediction) -> Finding:
    """The finding with its estimates; it says so if tracing alone may have caused it."""

    def of(wanted: Gain | None) -> Gain | None:
        return next((found for ask, found in prediction.others if ask == wanted), None)

    others = [o.replaced(gain=of(o.gain)) for o in finding.alternatives]
    advice = [a.replaced(gain=of(a.gain)) for a in finding.recommendations]
    advice = [a for a in advice if _wins(a.gain)] or advice
    perhaps = [a for a in advice if a.condition and a.gain is not None and a.gain.speedup is not None]
    gain, advice = _largest_first(prediction.gain, [a for a in advice if a not in perhaps] or advice)
    others = [o for o in others if _wins(o.gain)]
    if better := _better(gain, advice, others):
        others.remove(better)
        kept = advice[0] if advice[0].gain else advice[0].replaced(gain=gain)
        first = Advice(id=better.action, action=better.text, effort=better.effort, gain=better.gain)
        assert better.gain is not None
        gain, advice = better.gain, [first, kept, *advice[1:]]
    advice = _with_conditional(gain, advice, [a for a in perhaps if a not in advice])
    found = finding.replaced(gain=gain, recommendations=tuple(advice), alternatives=tuple(others))
    unsure = perhaps_text(gain)
    doubt = f"The fix saves {unsure}." if unsure else prediction.doubt
    return found.replaced(message=f"{found.message} {doubt}") if doubt else found


def _wins(gain: Gain | None) -> bool:
    """Whether a fix gains anything here, as far as that is known."""
    return gain is None or gain.speedup is None or gain.speedup.mid >= LEAST


def _largest_first(gain: Gain, advice: Sequence[Advice]) -> tuple[Gain, list[Advice]]:
    """The recommendations, those with estimates of their own by what they gain, then by effort, in the places
    that these have; and the gain of the finding: that of the first one."""
    own = [i for i, a in enumerate(advice) if a.gain is not None]
    ordered, placed = sorted((advice[i] for i in own), key=_by_gain), list(advice)
    for i, item in zip(own, ordered, strict=True):
        placed[i] = item
    first = placed[0].gain if placed else None
    return (gain if first is None or first.speedup is None else first), placed


def _with_conditional(gain: Gain, advice: list[Advice], perhaps: list[Advice]) -> list[Advice]:
    """The recommendations with those that `perhaps` apply: no capture shows whether they do. They lead only
    where the finding's fix saves less than half as much, and come behind the first one otherwise."""
    saved = 0.0 if gain.speedup is None else share_saved(gain.speedup.mid)
    most = max((share_saved(a.gain.speedup.mid) for a in perhaps if a.gain and a.gain.speedup), default=0.0)
    first = 0 if saved < LEADING_RATIO * most else 1
    return [*advice[:first], *sorted(perhaps, key=_by_gain), *advice[first:]]


def _by_gain(advice: Advice) -> tuple[float, int]:
    speedup = None if advice.gain is None else advice.gain.speedup
    return -(speedup.mid if speedup else 0.0), EFFORTS.index(advice.effort)


def _better(gain: Gain, advice: Sequence[Advice], others: Sequence[Alternative]) -> Alternative | None:
    """The alternative that gains most, if that is more than the finding's fix gains, at no more effort."""
    if not advice or gain.speedup is None:
        return None
    known = [
        (o.gain.speedup.mid, o)
        for o in others
        if o.gain is not None and o.gain.speedup is not None and o.gain.measure == gain.measure
        if o.condition is None and EFFORTS.index(o.effort) <= EFFORTS.index(advice[0].effort)
    ]
    most, best = max(known, key=lambda pair: pair[0], default=(0.0, None))
    return best if most > gain.speedup.mid else None


def as_sure(finding: Finding) -> Finding:
    """The finding with its confidence adjusted by its estimate."""
    sure = round(finding.confidence * prod(t.factor for t in estimate_factors(finding.gain)), 3)
    terms = finding.ranking and finding.ranking.replaced(confidence=sure)
    return finding.replaced(confidence=sure, ranking=terms)


def calibrated(base: float, right: int, known: int) -> float:
    """The judged base, which counts as `PRIOR` answers, corrected by `right` of `known` answers."""
    return (PRIOR * base + right) / (PRIOR + known)


def confidence_of(inference: Inference, spec: RuleSpec, outcome: Outcome) -> float:
    """The product of :func:`confidence_factors`, 0..1."""
    value = prod(t.factor for t in confidence_factors(inference, spec, outcome))
    return round(min(1.0, max(0.0, value)), 3)


def _steps(inference: Inference, scope: Scope) -> Iterator[Factor]:
    """A cause seen in many steps is more certain than one seen once."""
    sure = inference.view.atom("capture.step_confidence", scope)
    if isinstance(sure, float):
        yield Factor("found", 0.9 + 0.1 * sure, f"that these are steps is {percent(sure)} sure")
    steps = inference.view.atom(STEP_COUNT, scope)
    if isinstance(steps, float):
        count = max(steps, 0.0)
        why = f"{count:.0f} {'step' if count == 1 else 'steps'} in the window"
        yield Factor("steps", 1.0 - 0.2 / max(count, 1.0), why if count else "no certain steps were found")


def _samples(inference: Inference, outcome: Outcome) -> Iterator[Factor]:
    """Few samples, or samples that do not resolve the kernels, prove less."""
    view = inference.view
    count = view.atom("capture.sample_count", outcome.scope)
    if not isinstance(count, float):
        return
    checked = (c for branch in outcome.branches if branch.truth for c in branch.conditions)
    links = (link for c in checked for link in c.links if link.kind == "fact")
    facts = (view.fact(link.name, link.scope) for link in links)
    sampled = [f.tables for f in facts if f is not None and "samples" in f.tables]
    if not sampled:
        return
    covered, what = 1.0, ""
    if any("kernels" in t for t in sampled):
        resolved = view.atom("activity.resolved_ratio", outcome.scope)
        if isinstance(resolved, float):
            covered, what = resolved, f", which resolve {percent(resolved)} of the busy time"
    yield Factor("samples", 0.7 + 0.3 * covered * count / (count + 10), f"{count:,.0f} samples{what}")


def _margin(branch: BranchResult) -> float:
    margins = [1.0]
    for value, threshold in filter(None, (c.numbers for c in branch.conditions)):
        largest = max(abs(value), abs(threshold))
        margins.append(abs(value - threshold) / largest if largest else 0.0)
    return min(margins)


class Withholders:
    """The fired outcomes of each capture that withhold all findings about the program (its rows cannot be
    believed, or are too few), or everything called healthy."""

    def __init__(self, inference: Inference) -> None:
        by_code = inference.program.by_code
        # First the rules that invalidate a capture without a condition.
        fired = sorted(inference.in_state("fired"), key=lambda o: by_code[o.code].invalidates is not True)
        self._all = [o for o in fired if holds(inference, by_code[o.code].withholds, o.scope)]
        self._healthy = [o for o in fired if holds(inference, by_code[o.code].withholds_health, o.scope)]

    def of(self, scope: Scope) -> str | None:
        """The cause that withholds all conclusions in this scope."""
        return next((o.cause for o in self._all if o.scope.encloses(scope)), None)

    def of_health(self, scope: Scope) -> str | None:
        """The cause that withholds health in this scope, though findings stand."""
        found = (o.cause for o in self._healthy if o.scope.encloses(scope))
        return self.of(scope) or next(found, None)


def holds(inference: Inference, item: bool | Test, scope: Scope) -> bool:
    """Whether a flag of a rule, such as `invalidates`, is set here, by its fact where it names one."""
    return item if isinstance(item, bool) else inference.truth(item, scope) is True


def _number(inference: Inference, spec: RuleSpec, scope: Scope) -> Fact | None:
    """The impact fact, else its substitute, if it is a number."""
    names = () if spec.impact is None else spec.impact.facts
    known = (n for n in names if isinstance(inference.view.atom(n, scope), float))
    return next((inference.view.fact(n, scope) for n in known), None)


def common_scope(scopes: Sequence[Scope]) -> Scope:
    """The narrowest scope that encloses all of them."""
    dicts = [s.as_dict() for s in scopes]
    return scopes[0].only([k for k, v in dicts[0].items() if all(d[k] == v for d in dicts)])


# --- the words of a rule with the values of a capture --------------------------------------------


def worded(inference: Inference, spec: RuleSpec, template: str, scope: Scope) -> str:
    """A message with the values of its placeholders."""

    def shown(wanted: Placeholder) -> Shown | None:
        if wanted.is_param:
            value = inference.program.params.get((spec.code, wanted.name))
            return None if value is None else Shown(value, spec.params[wanted.name].unit)
        fact = inference.view.fact(wanted.name, scope)
        return None if fact is None else Shown(fact.value, fact.unit)

    return render(template, shown, inference.view.atom(STEP_COUNT, scope))


def message_of(inference: Inference, spec: RuleSpec, scope: Scope) -> str:
    """The rule's message, followed by what the capture cannot show."""
    doubts = (d.text for d in doubts_of(inference, spec, scope))
    return worded(inference, spec, " ".join((spec.message, *doubts)), scope)


def condition_docs(checked: Iterable[Checked]) -> tuple[ConditionDoc, ...]:
    """Conditions with both their numbers, each once."""
    return tuple(dict.fromkeys(c.doc for c in checked))
