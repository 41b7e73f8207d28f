"""What a finished diagnosis tells of one rule: that of the ranks of a job, of which no capture alone shows
it, and a saved one. The reasons are the conditions that it holds, without the facts behind them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.engine.load import builtin_dir, load_rule
from advisor.engine.reasons import obstacle
from advisor.errors import InputError, RuleError
from advisor.model import explanation as m
from advisor.model.findings import ConditionDoc, Diagnosis, Finding, Healthy, NotEvaluated, Related, named
from advisor.model.numbers import condition_text, found_and_noted, limit_text, percent
from advisor.model.rules import RuleSpec


def of_document(d: Diagnosis, code: str, folders: Sequence[Path] = ()) -> m.Explanation:
    """The outcome of a rule, which is named by code, cause or the number of its finding, in a diagnosis.

    Raises RuleError for an unknown code, InputError where there is no finding of this number."""
    own = named(d.findings, code)
    if code.isdecimal():
        if not own:
            raise InputError(f"no finding {code}; the diagnosis has {counted(d.findings)}")
        code = own[0].code
    spec = load_rule(code, builtin_dir(), *folders)
    own = own or named(d.findings, spec.code)
    scopes = (*map(_fired, own), *_others(d, spec, folders))
    if spec.subject != "trace":
        raise RuleError(f"{spec.code} judges a {spec.subject}, not a capture")
    scopes = scopes or (m.ScopeExplanation(state="quiet"),)  # not worth a line in a report
    rank = scopes[0].scope.rank
    read = [i for i in d.inputs if i.window_ns is not None] or d.inputs
    about = next((i for i in d.inputs if rank is not None and i.rank == rank), read[0])
    return m.Explanation(
        tool=d.tool,
        input=about,
        captures=len(d.inputs),
        code=spec.code,
        cause=spec.cause,
        kind=spec.kind,  # type: ignore[arg-type]  # questions are of another subject
        title=spec.title,
        state=scopes[0].state,
        sentence=_in_a_sentence(spec, scopes, d),
        scopes=scopes,
        findings=own,
    )


def _in_a_sentence(spec: RuleSpec, scopes: tuple[m.ScopeExplanation, ...], d: Diagnosis) -> str:
    first = scopes[0]
    if first.state == "quiet" and not first.message:
        ask = f"advisor explain {spec.code} --trace {shlex.quote(d.inputs[0].path)}"
        return f"{spec.code} {spec.cause} did not fire; the numbers are in the capture: {ask}"
    if first.state == "quiet":
        return f"{spec.code} {spec.cause} did not fire{first.scope.aside()}: {first.message}."
    return sentence(spec.code, spec.cause, scopes, d.findings, len(d.steps))


def _fired(f: Finding) -> m.ScopeExplanation:
    return m.ScopeExplanation(
        scope=f.scope,
        state="fired",
        message=f.message,
        rank=f.rank,
        severity=f.severity,
        impact=f.impact,
        confidence=f.confidence,
        reasons=tuple(_reason(c, condition_text(c)) for c in f.conditions),
        explains=f.explains,
    )


def _others(d: Diagnosis, spec: RuleSpec, folders: Sequence[Path]) -> Iterator[m.ScopeExplanation]:
    """Where the rule is no finding of its own: folded into another, overruled, quiet or not judged."""
    code = spec.code
    for by in d.findings:
        for part in by.explains:
            if part.code == code:
                because = (Related(code=by.code, cause=by.cause, scope=by.scope),)
                yield m.ScopeExplanation(
                    scope=part.scope, state="fired", message=part.message, explained_by=because
                )
    for lost in d.overruled:
        if lost.code == code:
            winner = load_rule(lost.by, builtin_dir(), *folders)
            related = (Related(code=winner.code, cause=winner.cause, scope=lost.scope),)
            yield m.ScopeExplanation(scope=lost.scope, state="overruled", overruled_by=related)
    yield from map(_quiet, (e for e in (*d.observed, *d.healthy, *d.not_applicable) if e.code == code))
    yield from map(_unknown, (e for e in d.not_evaluated if e.code == code))


def _quiet(entry: Healthy) -> m.ScopeExplanation:
    return m.ScopeExplanation(
        scope=entry.scope,
        state="fired" if entry.state == "observed" and not entry.conditions else "quiet",
        close=entry.close,
        applies=entry.applies,
        message=entry.text.rstrip("."),
        reasons=tuple(_reason(c, limit_text(c)) for c in entry.conditions),
    )


def _unknown(entry: NotEvaluated) -> m.ScopeExplanation:
    if entry.stopped_by is not None:
        return m.ScopeExplanation(
            scope=entry.scope,
            state="quiet",
            stopped_by=entry.stopped_by,
            message=entry.why or f"{entry.stopped_by} stopped it",
        )
    missing = tuple(m.Missing(fact=n, why=entry.why, remedy=entry.flag) for n in entry.missing)
    return m.ScopeExplanation(scope=entry.scope, state="not_evaluated", missing=missing)


def _reason(condition: ConditionDoc, text: str) -> m.Reason:
    return m.Reason(kind="fact", text=text, holds=condition.holds, condition=condition)


# --- sentences ---------------------------------------------------------------------------------------


def counted(findings: Sequence[Finding]) -> str:
    """``2 findings and 2 notes (1 to 4)``: as the report counts them, and the numbers that it gives."""
    text = " and ".join(found_and_noted(findings))
    return f"{text} (1 to {len(findings)})" if len(findings) > 1 else text


def _place(rank: int, findings: Sequence[Finding]) -> str:
    """``finding 1 of 2``, or ``note 2 of 2, number 4 of the report``: findings, their parts and notes have
    one row of numbers, and are counted apart."""
    own = next(f for f in findings if f.rank == rank)

    def kind_of(f: Finding) -> str:
        return "note" if f.severity == "info" else "part" if f.only_part else "finding"

    kind = kind_of(own)
    alike = [f.rank for f in findings if kind_of(f) == kind]
    place = alike.index(rank) + 1
    number = "" if place == rank else f", number {rank} of the report"
    return f"{kind} {place} of {len(alike)}{number}"


def sentence(
    code: str, cause: str, scopes: tuple[m.ScopeExplanation, ...], findings: Sequence[Finding], steps: int
) -> str:
    """The outcome of the rule, with the number that decided it."""
    first, name = scopes[0], f"{code} {cause}"
    where = first.scope.aside()
    if first.state == "fired" and first.rank is not None:
        impact, held = first.impact, ""
        if impact is not None and impact.share is not None:
            held = f", {percent(impact.share)} of the {impact.of(bool(steps))}"
        return f"{name} fired{where}: {_place(first.rank, findings)}{held}."
    if first.state == "fired" and first.explained_by:
        by = first.explained_by[0]
        return f"{name} fired{where} and is folded into {by.code} {by.cause}, which explains it."
    if first.state == "fired":
        return f"{name} holds{where}: it is an observation, and no fault."
    if first.state == "overruled":
        by = first.overruled_by[0]
        but = f"but {by.code} {by.cause} overrules it: that cause explains the same better"
        return f"{name} would have fired{where}, {but}."
    if first.state == "not_evaluated":
        return f"{name} could not be judged{where}: {_gap(first)}."
    if first.stopped_by is not None:
        guard = next(r for r in first.reasons if r.kind == "guard" and r.holds is False)
        return f"{name} was not judged{where}: {guard.text}."
    near = " but is close" if first.close else ""
    near = near if first.applies else ", and does not apply to this capture"
    return f"{name} did not fire{where}{near}: {obstacle(first.reasons)}."


def _gap(one: m.ScopeExplanation) -> str:
    names = ", ".join(lacking.fact for lacking in one.missing) or "a fact it needs"
    verb = "is" if len(one.missing) == 1 else "are"
    whys = list(dict.fromkeys(lacking.why for lacking in one.missing if lacking.why))
    return f"{names} {verb} not known" + (f" ({'; '.join(whys)})" if whys else "")
