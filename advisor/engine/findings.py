"""Outcomes -> findings, healthy observations, what was overruled and what could not be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.engine.compile import CompiledRule, Condition, Test
from advisor.engine.infer import Inference
from advisor.engine.interpret import Checked, Outcome, check_fact
from advisor.engine.judge import (
    Duration,
    common_scope,
    confidence_of,
    doubts_of,
    grading,
    impact_of,
    invalidates,
    withholder,
)
from advisor.engine.params import thresholds
from advisor.engine.rank import rank
from advisor.engine.text import Placeholder, Shown, placeholders, render
from advisor.engine.values import k_or
from advisor.model.facts import Interval, Row, Scope, Table
from advisor.model.findings import (
    SEVERITIES,
    Advice,
    Alternative,
    ConditionDoc,
    Finding,
    Gain,
    Healthy,
    NotEvaluated,
    Overruled,
    Reference,
    Symptom,
    Threshold,
    Verify,
)
from advisor.model.rules import GainSpec, RuleSpec

#: Codes of the rules about the capture itself: they hold even where its rows cannot be believed.
CAPTURE_RULES = "CAP"
MAX_RANGES = 50
MAX_ROWS = 50


@dataclass(frozen=True, slots=True)
class Conclusions:
    """What an inference says, in the order in which it is shown."""

    findings: tuple[Finding, ...]
    overruled: tuple[Overruled, ...]
    healthy: tuple[Healthy, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    thresholds: tuple[Threshold, ...]


def conclude(inference: Inference, *, ms_of: Duration | None = None) -> Conclusions:
    """Fold, judge, word and rank. `ms_of` turns a share of a budget part into milliseconds."""
    by_code = inference.program.by_code
    fired = inference.in_state("fired")
    folded = fold(inference)
    inside = {(s.code, s.scope) for symptoms in folded.values() for s in symptoms}
    said = [
        o for o in fired if by_code[o.code].spec.kind != "note" and (o.code, o.scope) not in inside
    ]
    overruled = [(o, o.overruled_by[0].name) for o in inference.in_state("overruled")]
    healthy = list(_healthy(inference))
    if (by := withholder(inference)) is not None:
        overruled += [(o, by.cause) for o in said if not _about_capture(o)]
        overruled.sort(key=lambda pair: (pair[0].code, pair[0].scope.sort_key()))
        said = [o for o in said if _about_capture(o)]
        healthy = []
    rules = inference.program.rules
    return Conclusions(
        findings=rank(
            [finding_of(inference, o, folded.get((o.code, o.scope), ()), ms_of) for o in said],
            rules.by_code,
        ),
        overruled=tuple(
            Overruled(code=o.code, cause=o.cause, by=name, scope=o.scope) for o, name in overruled
        ),
        healthy=_telling_first(healthy, by_code),
        not_evaluated=tuple(_not_evaluated(inference)),
        thresholds=thresholds(rules, inference.program.params),
    )


def _about_capture(said: Outcome) -> bool:
    return said.code.startswith(CAPTURE_RULES)


def fold(inference: Inference) -> dict[tuple[str, Scope], tuple[Outcome, ...]]:
    """The fired symptoms that each fired cause explains: in its own scope or a narrower one."""
    folded = {}
    by_cause = inference.program.rules.by_cause
    for cause in inference.in_state("fired"):
        explained = [
            symptom
            for name in inference.program.by_code[cause.code].spec.then.explains
            if name in by_cause
            for symptom in inference.by_code.get(by_cause[name].code, ())
            if symptom.state == "fired" and cause.scope.encloses(symptom.scope)
        ]
        if explained:
            folded[cause.code, cause.scope] = tuple(explained)
    return folded


def finding_of(
    inference: Inference,
    outcome: Outcome,
    symptoms: Sequence[Outcome] = (),
    ms_of: Duration | None = None,
) -> Finding:
    """The finding of one fired outcome, not yet ranked."""
    rule = inference.program.by_code[outcome.code]
    spec, scope = rule.spec, outcome.scope
    impact = impact_of(inference, spec, scope, ms_of)
    confidence = confidence_of(inference, spec, outcome)
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
        invalidates=invalidates(inference, rule, scope),
        conditions=condition_docs(
            spec, (c for b in outcome.branches if b.truth for c in b.conditions)
        ),
        impact=impact,
        evidence=tuple(_evidence(inference, spec, outcome)),
        time_ranges=_time_ranges(inference, spec, scope),
        gain=None if spec.gain is None else _asked(spec.gain),
        recommendations=tuple(_advice(inference, rule, scope)),
        alternatives=tuple(_alternatives(inference, rule, scope)),
        explains=tuple(
            Symptom(
                code=s.code,
                cause=s.cause,
                scope=s.scope,
                message=_message(inference, s),
            )
            for s in symptoms
        ),
        references=tuple(Reference(id=r) for r in spec.docs.references),
    )


def _asked(gain: GainSpec) -> Gain:
    """The what-if that a rule names, not yet estimated."""
    return Gain(what_if=gain.what_if, params=dict(gain.params), measure=gain.measure, per=gain.per)


# --- wording ---------------------------------------------------------------------------------


def worded(inference: Inference, spec: RuleSpec, template: str, scope: Scope) -> str:
    """A message with the values of its placeholders."""
    return render(template, lambda p: _shown(inference, spec, scope, p))


def message_of(inference: Inference, spec: RuleSpec, scope: Scope) -> str:
    """The rule's message, and after it what the capture cannot tell."""
    doubts = (d.text for d in doubts_of(inference, spec, scope))
    return worded(inference, spec, " ".join((spec.message, *doubts)), scope)


def _shown(inference: Inference, spec: RuleSpec, scope: Scope, wanted: Placeholder) -> Shown | None:
    if wanted.is_param:
        value = inference.program.params.get((spec.code, wanted.name))
        return None if value is None else Shown(value, spec.params[wanted.name].unit)
    fact = inference.sight.fact(wanted.name, scope)
    return None if fact is None else Shown(fact.value, fact.unit)


def _message(inference: Inference, outcome: Outcome) -> str:
    spec = inference.program.by_code[outcome.code].spec
    return worded(inference, spec, spec.message, outcome.scope)


def condition_docs(spec: RuleSpec, checked: Iterable[Checked]) -> tuple[ConditionDoc, ...]:
    """Conditions with both their numbers, each once."""
    return tuple(dict.fromkeys(condition_doc(c, spec) for c in checked))


def condition_doc(checked: Checked, spec: RuleSpec) -> ConditionDoc:
    condition: Condition = checked.condition
    if isinstance(condition, Test):
        param = spec.params.get(condition.param or "")
        return ConditionDoc(
            fact=condition.fact,
            op=condition.op,
            threshold=condition.raw,
            value=checked.value,
            unit=checked.unit or ("" if param is None else param.unit),
            param=condition.param,
            holds=checked.truth,
        )
    word = {True: "fired", False: "quiet", None: None}[checked.truth]
    return ConditionDoc(
        fact=f"{condition.kind}:{condition.cause}",
        op="eq",
        threshold="fired",
        value=word,
        unit="text",
        holds=checked.truth,
    )


def _healthy(inference: Inference) -> Iterator[Healthy]:
    """Notes that fired, and quiet rules with a healthy text whose facts are all known."""
    for outcome in inference.outcomes:
        spec = inference.program.by_code[outcome.code].spec
        template = None
        if spec.kind == "note" and outcome.state == "fired":
            template = spec.message
        elif outcome.state == "quiet" and spec.healthy and _known(inference, spec, outcome):
            template = spec.healthy
        if template is not None:
            yield Healthy(
                code=spec.code,
                cause=spec.cause,
                scope=outcome.scope,
                text=worded(inference, spec, template, outcome.scope),
                conditions=condition_docs(
                    spec,
                    (
                        c
                        for b in outcome.branches
                        if outcome.state == "quiet" or b.truth
                        for c in b.conditions
                    ),
                ),
            )


def _telling_first(
    entries: Iterable[Healthy], by_code: Mapping[str, CompiledRule]
) -> tuple[Healthy, ...]:
    """Notes, then rules by how heavy they would have been; what is said of the capture comes last.
    Among equals each family of rules has its first say before any has its second."""
    weighed = []
    for entry in entries:
        spec = by_code[entry.code].spec
        marks = [level.severity for level in spec.severity.levels] or ["high"]
        worst = min(spec.severity.cap or "high", marks[-1], key=SEVERITIES.index)
        about_gpu = spec.scope != "trace" and spec.impact is not None
        weight = (spec.kind != "note", not about_gpu, -SEVERITIES.index(worst))
        weighed.append((weight, entry))
    said: Counter[tuple[object, ...]] = Counter()
    placed = []
    for weight, entry in sorted(weighed, key=lambda w: (w[0], w[1].code, w[1].scope.sort_key())):
        family = (weight, entry.code[:3])
        placed.append(((*weight, said[family]), entry))
        said[family] += 1
    return tuple(entry for _, entry in sorted(placed, key=lambda p: p[0]))


def _known(inference: Inference, spec: RuleSpec, outcome: Outcome) -> bool:
    """All was looked at, and it is `when` that is false: a guard that holds is no good health."""
    joins = [j.truth for j in outcome.joins if j.join.required]
    conditions = [c.truth for b in outcome.branches for c in b.conditions]
    conditions += [g.checked.truth for g in outcome.guards] + joins
    wanted = [p for p in placeholders(spec.healthy or "") if not p.is_param]
    return (
        None not in conditions
        and (k_or(*(b.truth for b in outcome.branches)) is False or False in joins)
        and all(inference.sight.fact(p.name, outcome.scope) is not None for p in wanted)
    )


def _not_evaluated(inference: Inference) -> Iterator[NotEvaluated]:
    """One entry a rule, merged over all scopes missing the same facts."""
    grouped: dict[tuple[str, tuple[str, ...]], list[Outcome]] = {}
    for outcome in inference.in_state("unknown"):
        grouped.setdefault((outcome.code, outcome.missing), []).append(outcome)
    entries = []
    for (code, missing), outcomes in grouped.items():
        spec = inference.program.by_code[code].spec
        reasons = [inference.facts.missing[m] for m in missing if m in inference.facts.missing]
        entries.append(
            NotEvaluated(
                code=code,
                cause=spec.cause,
                scope=common_scope([o.scope for o in outcomes]),
                missing=missing,
                flag=None if spec.needs is None else spec.needs.flag,
                why="; ".join(dict.fromkeys(reasons)) or None,
            )
        )
    yield from sorted(entries, key=lambda n: (n.code, n.scope.sort_key(), n.missing))


# --- what proves it, and what to do ----------------------------------------------------------


def _evidence(inference: Inference, spec: RuleSpec, outcome: Outcome) -> Iterator[Table]:
    joins = {j.join.alias: j for j in outcome.joins}
    for name in spec.evidence:
        if name in joins:
            if rows := joins[name].rows:
                yield _rows_table(joins[name].join.entity, rows)
        elif (table := inference.facts.table(name, outcome.scope)) is not None:
            yield table.first(MAX_ROWS)


def _rows_table(entity: str, rows: Sequence[Row]) -> Table:
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return Table(
        title=entity.replace("_", " "),
        columns=columns,
        rows=tuple(tuple(row.get(c) for c in columns) for row in rows[:MAX_ROWS]),
    )


def _time_ranges(inference: Inference, spec: RuleSpec, scope: Scope) -> tuple[Interval, ...]:
    if spec.impact is None:
        return ()
    return tuple(inference.facts.places(spec.impact.part, scope)[:MAX_RANGES])


def _advice(inference: Inference, rule: CompiledRule, scope: Scope) -> Iterator[Advice]:
    """Recommendations that apply; one whose condition is unknown is kept, of several texts for one
    action the first."""
    said: set[str] = set()
    for item, tests in zip(rule.spec.recommendations, rule.applies, strict=True):
        applies = all(check_fact(t, scope, inference.sight).truth is not False for t in tests)
        if not applies or item.id in said:
            continue
        said.add(item.id)
        verify = None
        if item.verify is not None:
            fact = inference.sight.fact(item.verify.fact, scope)
            verify = Verify(
                fact=item.verify.fact,
                expect=item.verify.expect,
                now=None if fact is None else fact.value,
                unit="" if fact is None else fact.unit,
            )
        action = worded(inference, rule.spec, item.action, scope)
        yield Advice(id=item.id, action=action, effort=item.effort, verify=verify)


def _alternatives(inference: Inference, rule: CompiledRule, scope: Scope) -> Iterator[Alternative]:
    """The other ways to win that apply; one whose condition is unknown is kept."""
    for item, tests in zip(rule.spec.alternatives, rule.alternatives, strict=True):
        if any(check_fact(t, scope, inference.sight).truth is False for t in tests):
            continue
        gain = item.gain
        yield Alternative(
            action=item.id,
            text=worded(inference, rule.spec, item.action, scope),
            effort=item.effort,
            what_if=None if gain is None else gain.what_if,
            gain=None if gain is None else _asked(gain),
        )
