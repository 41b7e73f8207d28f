"""``advisor.explain``: why a rule fired in a capture, why it did not, or what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor import __version__
from advisor.engine.conclude import fold
from advisor.engine.infer import Inference
from advisor.engine.interpret import Outcome
from advisor.engine.judge import (
    confidence_factors,
    confidence_of,
    estimate_factors,
    impact_of,
    message_of,
    most_severe,
)
from advisor.engine.load import builtin_dir, load_rule
from advisor.engine.reasons import STATES, Explainer, nearest_first, obstacle
from advisor.engine.states import is_close, stopper
from advisor.errors import InputError, RuleError
from advisor.facts.catalog import CATALOGUE
from advisor.model.explanation import Explanation, FactSource, Missing, Reason, ScopeExplanation, TableSource
from advisor.model.facts import ASKED_BY, Fact, Scope
from advisor.model.findings import Finding, Tool, named
from advisor.model.numbers import percent
from advisor.pipeline import document
from advisor.pipeline.diagnose import Analysed, Options, Progress, analyse, conclusions


def explain(
    path: str | Path, code: str, options: Options | None = None, progress: Progress | None = None
) -> Explanation:
    """The outcome of a rule for a capture; the rule is named by code, cause or the number of its finding.

    Raises RuleError for an unknown code, InputError for a capture that cannot be used or that has no
    finding of this number.
    """
    chosen = options or Options()
    if code.isdecimal():
        with analyse(path, chosen, progress) as done:
            return explanation(done, rank=int(code))
    rule = load_rule(code, builtin_dir(), *chosen.rules)
    if rule.subject != "trace":
        verb = ASKED_BY.get(rule.subject, "compare")
        raise RuleError(f"{rule.code} judges a {rule.subject}, not one capture; see advisor {verb}")
    with analyse(path, chosen, progress) as done:
        return explanation(done, rule.code)


def explanation(done: Analysed, code: str = "", rank: int | None = None) -> Explanation:
    """The explanation of one rule over an analysed capture, by its code or by the rank of a finding,
    which then is the only one in the document."""
    inference = done.inference
    found = conclusions(done)
    own = named(found.findings, code or str(rank))
    if rank is not None:
        if not own:
            count = len(found.findings)
            raise InputError(f"no finding {rank}; the capture has {count}{f' (1 to {count})' * (count > 0)}")
        code = own[0].code
    supply = document.remedies(done.analysis, done.facts, done.serving)
    recorder = done.analysis.trace.capture.recorder

    def remedy(name: str) -> str | None:
        flag = supply(name)
        return flag and document.by_tool(flag, recorder)

    spec = inference.program.by_code[code].spec
    why = document.reasons(done.analysis, done.facts)
    explainer = Explainer(inference, why)
    findings = {(f.code, f.scope): f for f in found.findings}
    trees = [(o, explainer.tree(o)) for o in _ordered(inference, code)]
    scopes = tuple(
        _scope(explainer, findings.get((code, o.scope)), o, reason.reasons, remedy) for o, reason in trees
    )
    return Explanation(
        tool=Tool(version=__version__, engine=inference.engine),
        input=document.input_of(done.analysis, done.serving),
        code=code,
        cause=spec.cause,
        kind=spec.kind,  # type: ignore[arg-type]  # questions are of another subject
        title=spec.title,
        state=scopes[0].state,
        sentence=_sentence(code, spec.cause, scopes, len(found.findings), done.analysis.step_count),
        scopes=scopes,
        findings=document.with_options(own, done.serving, document.program_of(done.analysis)),
        facts=tuple(_sources(explainer, trees, recorder.tables)),
    )


def _ordered(inference: Inference, code: str) -> list[Outcome]:
    """Fired, overruled, not evaluated, quiet; those that did not fire nearest first."""
    found = inference.by_code.get(code, ())
    fired = [o for o in found if o.state == "fired"]
    rest = nearest_first(o for o in found if o.state != "fired")
    order = ("overruled", "unknown", "quiet")
    return [*fired, *sorted(rest, key=lambda o: order.index(o.state))]


def _scope(
    explainer: Explainer,
    finding: Finding | None,
    outcome: Outcome,
    reasons: tuple[Reason, ...],
    remedy: document.Remedy,
) -> ScopeExplanation:
    """One outcome as a document, with its finding if it is one."""
    inference, scope, here = explainer.inference, outcome.scope, (outcome.code, outcome.scope)
    spec = inference.program.by_code[outcome.code].spec
    stop = stopper(inference, outcome)
    common: dict[str, Any] = {"scope": scope, "state": STATES[outcome.state], "reasons": reasons}
    common["stopped_by"] = None if stop is None else stop[0]
    if outcome.state not in ("fired", "overruled"):
        missing = (Missing(fact=n, why=explainer.why(n), remedy=remedy(n)) for n in outcome.missing)
        close = outcome.state == "quiet" and not stop and is_close(inference, spec, outcome)
        return ScopeExplanation(**common, missing=tuple(missing), close=close)
    folded, gain = fold(inference), None if finding is None else finding.gain
    causes = [by for by, symptoms in folded.items() if here in [(s.code, s.scope) for s in symptoms]]
    lost = inference.in_state("overruled")
    overruled = [o for o in lost if here in [(k.name, k.scope) for k in o.overruled_by]]
    factors = (*confidence_factors(inference, spec, outcome), *estimate_factors(gain))
    return ScopeExplanation(
        **common,
        message=message_of(inference, spec, scope),
        rank=None if finding is None else finding.rank,
        severity=most_severe(inference, spec, scope) if finding is None else finding.severity,
        impact=impact_of(inference, spec, scope) if finding is None else finding.impact,
        confidence=confidence_of(inference, spec, outcome) if finding is None else finding.confidence,
        factors=tuple(replace(f, factor=round(f.factor, 4)) for f in factors),
        explains=tuple(map(explainer.related, folded.get(here, ()))),
        explained_by=tuple(explainer.rule(*by) for by in causes),
        overrules=tuple(map(explainer.related, overruled)),
        overruled_by=tuple(explainer.rule(k.name, k.scope) for k in outcome.overruled_by),
    )


def _sources(
    explainer: Explainer, trees: list[tuple[Outcome, Reason]], native: dict[str, str]
) -> Iterator[FactSource]:
    """Every fact of the trees once, in order of appearance. `native` is the capture's name of our tables."""
    inference = explainer.inference
    seen: dict[tuple[str, Scope], Fact] = {}
    for outcome, reason in trees:
        for fact in explainer.facts(reason):
            seen.setdefault((fact.name, fact.scope), fact)
        spec = inference.program.by_code[outcome.code].spec
        if outcome.state in ("fired", "overruled") and spec.impact is not None:
            impact = (inference.view.fact(n, outcome.scope) for n in spec.impact.facts)
            if (held := next((f for f in impact if f is not None), None)) is not None:
                seen.setdefault((held.name, held.scope), held)
    for fact in seen.values():
        entry = CATALOGUE.get(fact.name)
        columns: dict[str, list[str]] = {}
        for table, column in (c.split(".", 1) for c in fact.columns):
            columns.setdefault(table, []).append(column)
        yield FactSource(
            fact=fact.name,
            value=fact.value,
            unit=fact.unit,
            scope=fact.scope,
            meaning="" if entry is None else entry.meaning,
            how=fact.method,
            sources=tuple(
                TableSource(table=t, native=native.get(t), columns=tuple(columns.get(t, ())))
                for t in fact.tables
            ),
            window_ns=fact.window,
        )


def _sentence(code: str, cause: str, scopes: tuple[ScopeExplanation, ...], findings: int, steps: int) -> str:
    """The outcome of the rule, with the number that decided it."""
    first, name = scopes[0], f"{code} {cause}"
    where = first.scope.aside()
    if first.state == "fired" and first.rank is not None:
        impact, held = first.impact, ""
        if impact is not None and impact.share is not None:
            held = f", {percent(impact.share)} of the {impact.of(bool(steps))}"
        return f"{name} fired{where}: finding {first.rank} of {findings}{held}."
    if first.state == "fired" and first.explained_by:
        by = first.explained_by[0]
        return f"{name} fired{where} and is folded into {by.code} {by.cause}, which explains it."
    if first.state == "fired":
        return f"{name} holds{where}: it is listed among what is in order."
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
    return f"{name} did not fire{where}{near}: {obstacle(first.reasons)}."


def _gap(one: ScopeExplanation) -> str:
    names = ", ".join(m.fact for m in one.missing) or "a fact it needs"
    verb = "is" if len(one.missing) == 1 else "are"
    whys = list(dict.fromkeys(m.why for m in one.missing if m.why))
    return f"{names} {verb} not known" + (f" ({'; '.join(whys)})" if whys else "")
