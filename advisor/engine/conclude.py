"""Outcomes -> findings, healthy observations, what was overruled and what could not be judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from advisor.engine.compile import CompiledRule, Test
from advisor.engine.infer import Inference
from advisor.engine.inside import without_own_time
from advisor.engine.interpret import Outcome
from advisor.engine.judge import (
    Duration,
    Withholders,
    as_sure,
    common_scope,
    condition_docs,
    confidence_of,
    grading,
    holds,
    impact_of,
    message_of,
    part_of,
    worded,
)
from advisor.engine.rank import holds_in, rank, without_repeats, without_sums, worth_doing
from advisor.engine.states import heaviest_first, in_order, not_judged
from advisor.engine.values import UNKNOWN, k_and
from advisor.knowledge.facts import joined_tables
from advisor.model.facts import Interval, Row, Scope, Table
from advisor.model.findings import Finding, Healthy, NotEvaluated, Overruled, Reference, Related, Threshold
from advisor.model.gain import Advice, Alternative, Gain, Verify
from advisor.model.rules import Action, GainSpec, RuleSpec, judges_capture

A = TypeVar("A", bound=Action)
Estimate = Callable[[Sequence[Finding]], Sequence[Finding]]
#: Ranked findings -> by code and scope, the gains of those whose fix saves the time of one before it.
Once = Callable[[Sequence[Finding]], Mapping[tuple[str, Scope], Gain]]
MAX_RANGES = 50
#: A place that takes this share of the longest or less is left out.
SMALL = 1e-3
MAX_ROWS = 50


class Conclusions(Struct, frozen=True):
    """The results of an inference, in the order in which they are shown."""

    findings: tuple[Finding, ...]
    overruled: tuple[Overruled, ...]
    healthy: tuple[Healthy, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    thresholds: tuple[Threshold, ...]


def conclude(
    inference: Inference,
    *,
    ms_of: Duration | None = None,
    estimate: Estimate | None = None,
    once: Once | None = None,
) -> Conclusions:
    """Fold, judge, word and rank. `ms_of` turns a share of a budget part into milliseconds; `estimate`
    gives findings the gain of their fix; findings about the same time are then joined, and of those that
    are left `once` tells which save the time of another."""
    by_code, rules = inference.program.by_code, inference.program.rules
    folded = fold(inference)
    inside = {(s.code, s.scope) for symptoms in folded.values() for s in symptoms}
    by = Withholders(inference)
    reported, healthy = [], []
    overruled = [(o, o.overruled_by[0].name) for o in inference.in_state("overruled")]
    withheld: list[tuple[Outcome | Healthy, str]] = []
    for outcome in inference.in_state("fired"):
        rule, cause = by_code[outcome.code].spec, by.of(outcome.scope)
        if rule.kind == "note" or (outcome.code, outcome.scope) in inside:
            continue
        # Findings about the capture itself are withheld only by a cause that they require.
        if cause and (not judges_capture(rule.code) or cause in {r.cause for r in rule.requires}):
            overruled.append((outcome, cause))
            withheld.append((outcome, cause))
        else:
            reported.append(outcome)
    for entry in in_order(inference):
        if entry.applies and (cause := by.of_health(entry.scope)):
            withheld.append((entry, cause))
        else:
            healthy.append(entry)
    overruled.sort(key=lambda pair: (pair[0].code, pair[0].scope.sort_key()))
    fired = [
        finding_of(inference, o, folded.get((o.code, o.scope), ()), ms_of).replaced(scope=scope)
        for o, scope in as_one(inference, reported)
    ]
    findings = rank(without_sums(fired), rules.by_code)
    if estimate is not None:
        findings = without_repeats(estimate(findings), rules.by_code, holds_in(inference))
        findings = rank(map(as_sure, findings), rules.by_code)
        if once is not None and (gains := once(worth_doing(findings, rules.by_code))):
            behind = (f.replaced(gain=gains.get((f.code, f.scope), f.gain)) for f in findings)
            findings = rank(behind, rules.by_code)
    findings = rank(without_own_time(findings, inference), rules.by_code)
    return Conclusions(
        findings=findings,
        overruled=tuple(
            Overruled(code=o.code, cause=o.cause, by=name, scope=o.scope) for o, name in overruled
        ),
        healthy=heaviest_first(healthy, by_code),
        not_evaluated=not_judged(inference, withheld),
        thresholds=inference.program.thresholds,
    )


def fold(inference: Inference) -> dict[tuple[str, Scope], tuple[Outcome, ...]]:
    """The fired symptoms explained by each fired cause: in its own scope or a narrower one. An effect of
    one rank on the others explains the symptoms of all of them."""
    folded = {}
    by_cause = inference.program.rules.by_cause

    def of_job(cause: Outcome) -> bool:
        return inference.facts.of_job and inference.program.by_code[cause.code].spec.scope == "rank"

    for cause in inference.in_state("fired"):
        explained = [
            symptom
            for name in inference.program.by_code[cause.code].spec.then.explains
            if name in by_cause
            for symptom in inference.by_code.get(by_cause[name].code, ())
            if symptom.state == "fired" and (of_job(cause) or cause.scope.encloses(symptom.scope))
        ]
        if explained:
            folded[cause.code, cause.scope] = tuple(explained)
    return folded


def as_one(inference: Inference, fired: Iterable[Outcome]) -> Iterator[tuple[Outcome, Scope]]:
    """The outcomes with the scopes of their findings. Of those whose rule has one finding for all that share
    a value of a fact, the first, with what all of their scopes have in common."""
    alike: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in fired:
        name = inference.program.by_code[outcome.code].spec.then.one_for
        shared = None if name is None else inference.view.fact(name, outcome.scope)
        key = outcome.scope if shared is None else shared.value
        alike.setdefault((outcome.code, key), []).append(outcome)
    for group in alike.values():
        yield group[0], common_scope([o.scope for o in group])


def finding_of(
    inference: Inference, outcome: Outcome, symptoms: Sequence[Outcome] = (), ms_of: Duration | None = None
) -> Finding:
    """The finding of one fired outcome, not yet ranked."""
    by_code = inference.program.by_code
    rule, scope = by_code[outcome.code], outcome.scope
    spec = rule.spec
    confidence = confidence_of(inference, spec, outcome)
    gains = zip(spec.gain.choices if spec.gain else (), rule.gain, strict=True)
    # What is estimated may rest on what the capture does not show: its assumptions name that.
    wanted = (gain for gain, tests in gains if _all_hold(inference, tests, scope) is not False)

    def related(symptom: Outcome) -> Related:
        about = by_code[symptom.code].spec
        message = worded(inference, about, about.message, symptom.scope)
        return Related(code=symptom.code, cause=symptom.cause, scope=symptom.scope, message=message)

    return Finding(
        code=spec.code,
        cause=spec.cause,
        kind=spec.kind,  # type: ignore[arg-type]  # questions are of another subject
        title=spec.title,
        severity="info",
        confidence=confidence,
        ranking=grading(inference, spec, scope, confidence),
        scope=scope,
        message=message_of(inference, spec, scope),
        invalidates=holds(inference, rule.invalidates, scope),
        conditions=condition_docs(c for b in outcome.branches if b.truth for c in b.conditions),
        impact=impact_of(inference, spec, scope, ms_of),
        evidence=tuple(_evidence(inference, spec, outcome)),
        time_ranges=_time_ranges(inference, spec, scope),
        gain=_asked(next(wanted, None)),
        recommendations=_advice(inference, rule, scope),
        alternatives=tuple(
            Alternative(
                action=item.id,
                text=_action(inference, spec, item, sure, scope),
                condition=_condition(item, sure),
                effort=item.effort,
                what_if=None if item.gain is None else item.gain.what_if,
                gain=_asked(item.gain),
            )
            for item, sure in applicable(inference, spec.alternatives, rule.alternatives, scope)
        ),
        explains=tuple(map(related, symptoms)),
        references=tuple(Reference(id=r) for r in spec.docs.references),
    )


def _all_hold(inference: Inference, tests: Iterable[Test], scope: Scope) -> bool | None:
    return k_and(*(inference.truth(test, scope) for test in tests))


def _asked(gain: GainSpec | None) -> Gain | None:
    """The what-if that a rule names, not yet estimated."""
    if gain is None:
        return None
    return Gain(what_if=gain.what_if, params=dict(gain.params), measure=gain.measure, per=gain.per)


# --- what proves it, and what to do ----------------------------------------------------------


def _evidence(inference: Inference, spec: RuleSpec, outcome: Outcome) -> Iterator[Table]:
    joins = {j.join.alias: j for j in outcome.joins}
    for name in spec.evidence:
        if name in joins:
            if rows := joins[name].rows:
                yield _rows_table(joins[name].join.entity, rows)
        elif (table := inference.facts.table(name, outcome.scope)) is not None:
            yield table.first(MAX_ROWS).filled()


def _rows_table(entity: str, rows: Sequence[Row]) -> Table:
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return Table(
        title=joined_tables()[entity].meaning,
        columns=columns,
        rows=tuple(tuple(row.get(c) for c in columns) for row in rows[:MAX_ROWS]),
    ).filled()


def _time_ranges(inference: Inference, spec: RuleSpec, scope: Scope) -> tuple[Interval, ...]:
    if spec.impact is None:
        return ()
    places = inference.facts.places(part_of(inference, spec.impact, scope), scope)
    longest = max((p.end_ns - p.start_ns for p in places), default=0)
    return tuple(p for p in places if p.end_ns - p.start_ns >= SMALL * longest)[:MAX_RANGES]


def _advice(inference: Inference, rule: CompiledRule, scope: Scope) -> tuple[Advice, ...]:
    """Recommendations that apply; those whose text needs an unknown value only if no other remains."""
    found = []
    for item, sure in applicable(inference, rule.spec.recommendations, rule.applies, scope):
        verify = None
        if (asked := item.verify) is not None:
            fact = inference.view.fact(asked.fact, scope)
            now, unit = (None, "") if fact is None else (fact.value, fact.unit)
            verify = Verify(fact=asked.fact, expect=asked.expect, now=now, unit=unit)
        action = _action(inference, rule.spec, item, sure, scope)
        condition = _condition(item, sure)
        advice = Advice(
            id=item.id,
            action=action,
            condition=condition,
            effort=item.effort,
            verify=verify,
            gain=_asked(item.gain),
        )
        found.append(advice)
    return tuple(a for a in found if UNKNOWN not in a.action) or tuple(found)


def _action(inference: Inference, spec: RuleSpec, item: Action, sure: bool, scope: Scope) -> str:
    """The text of an action, behind its condition where the capture does not show whether that holds."""
    text, condition = worded(inference, spec, item.action, scope), _condition(item, sure)
    return f"If {condition}: {text}" if condition else text


def _condition(item: Action, sure: bool) -> str | None:
    """What has to hold for an action and the capture does not show, in words."""
    return " and ".join(filter(None, (None if sure else item.if_unknown, item.provided))) or None


def applicable(
    inference: Inference, items: Iterable[A], conditions: Iterable[tuple[Test, ...]], scope: Scope
) -> Iterable[tuple[A, bool]]:
    """The actions that apply, and whether that is sure: the first of several texts for one action, sure
    ones before those with a condition that is not known. The latter apply only if they have words for it.
    None that knowledge/actions.yaml calls pointless here, whichever rule advises it."""
    found: dict[str, tuple[A, bool]] = {}
    unless = inference.program.unless
    for item, tests in zip(items, conditions, strict=True):
        if any(inference.truth(test, scope) for test in unless.get(item.id, ())):
            continue
        sure = _all_hold(inference, tests, scope)
        if sure and not found.get(item.id, (item, False))[1]:
            found[item.id] = item, True
        elif sure is None and item.if_unknown is not None:
            found.setdefault(item.id, (item, False))
    return found.values()
