"""``advisor.explain``: why a rule fired in a capture, why it did not, or what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor import __version__
from advisor.engine.compile import Test
from advisor.engine.explain import Node, nearest_first, shortfall, tree
from advisor.engine.findings import condition_doc, fold, message_of
from advisor.engine.infer import Inference
from advisor.engine.interpret import Outcome
from advisor.engine.judge import confidence_of, confidence_terms, doc, impact_of, severity_of
from advisor.engine.load import builtin_dir, load_rule
from advisor.engine.text import percent
from advisor.errors import RuleError
from advisor.facts.catalog import CATALOGUE
from advisor.model.explanation import (
    Explanation,
    Factor,
    FactSource,
    Missing,
    Reason,
    Related,
    ScopeExplanation,
    State,
    TableSource,
)
from advisor.model.facts import Fact, Scope
from advisor.model.findings import Finding, ScopeDoc, Tool
from advisor.model.rules import RuleSpec
from advisor.pipeline import document
from advisor.pipeline.diagnose import Analysed, Options, Progress, analyse, conclusions

#: Tables of an nsys export, by ours.
_NSYS = {
    "kernels": "CUPTI_ACTIVITY_KIND_KERNEL",
    "copies": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memsets": "CUPTI_ACTIVITY_KIND_MEMSET",
    "graph_runs": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "api_calls": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "ranges": "NVTX_EVENTS",
    "samples": "GPU_METRICS",
    "allocations": "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "diagnostics": "DIAGNOSTIC_EVENT",
    "host_calls": "OSRT_API",
    "overheads": "PROFILER_OVERHEAD",
}
_STATES: dict[str, State] = {
    "fired": "fired",
    "overruled": "overruled",
    "quiet": "quiet",
    "unknown": "not_evaluated",
}


def explain(
    path: str | Path,
    code: str,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Explanation:
    """What a rule, named by code or cause, makes of a capture.

    Raises RuleError for an unknown code, InputError for a capture that cannot be used.
    """
    chosen = options or Options()
    rule = load_rule(code, builtin_dir(), *chosen.rules)
    if rule.subject != "trace":
        raise RuleError(
            f"{rule.code} judges a {rule.subject}, not one capture; see advisor "
            + ("doctor" if rule.subject == "recording" else "compare")
        )
    known = rule.code
    with analyse(path, chosen, progress) as done:
        return explanation(done, known)


def explanation(done: Analysed, code: str) -> Explanation:
    """The explanation of one rule, by code, over an analysed capture."""
    inference = done.inference
    found = conclusions(done)
    supply = document.remedies(done.analysis, done.facts, done.serving)
    by_nsys = done.analysis.trace.capture.format.startswith("nsys")

    def remedy(name: str) -> str | None:
        flag = supply(name)
        return flag and document.by_tool(flag, by_nsys)

    spec = inference.program.by_code[code].spec
    why = document.reasons(done.analysis, done.facts)
    about = _About(inference, {(f.code, f.scope): f for f in found.findings}, remedy, why)
    outcomes = _ordered(inference, code)
    nodes = [(o, tree(inference, o)) for o in outcomes]
    scopes = tuple(about.scope(o, node) for o, node in nodes)
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
        facts=tuple(_sources(inference, nodes, done.analysis.trace.capture.format)),
    )


def _ordered(inference: Inference, code: str) -> list[Outcome]:
    """Fired, overruled, not evaluated, quiet; among those that did not fire nearest first."""
    found = inference.by_code.get(code, ())
    fired = [o for o in found if o.state == "fired"]
    rest = nearest_first(o for o in found if o.state != "fired")
    order = ("overruled", "unknown", "quiet")
    return [*fired, *sorted(rest, key=lambda o: order.index(o.state))]


class _About:
    """Turns outcomes of one inference into documents."""

    def __init__(
        self,
        inference: Inference,
        findings: dict[tuple[str, ScopeDoc], Finding],
        remedy: document.Remedy,
        why: document.Remedy,
    ) -> None:
        self._inference = inference
        self._findings = findings
        self._remedy = remedy
        self._why = why
        self._folded = fold(inference)

    def scope(self, outcome: Outcome, node: Node) -> ScopeExplanation:
        inference, scope = self._inference, outcome.scope
        spec = inference.program.by_code[outcome.code].spec
        common: dict[str, Any] = {
            "scope": doc(scope),
            "state": _STATES[outcome.state],
            "reasons": tuple(self.reason(child, spec) for child in node.children),
        }
        if outcome.state not in ("fired", "overruled"):
            missing = tuple(self._missing(name) for name in outcome.missing)
            return ScopeExplanation(**common, missing=missing)
        finding = self._findings.get((outcome.code, doc(scope)))
        here = (outcome.code, scope)
        return ScopeExplanation(
            **common,
            message=message_of(inference, spec, scope),
            rank=None if finding is None else finding.rank,
            severity=severity_of(inference, spec, scope),
            impact=impact_of(inference, spec, scope) if finding is None else finding.impact,
            confidence=confidence_of(inference, spec, outcome),
            factors=tuple(
                Factor(name=t.name, factor=round(t.factor, 4), why=t.why)
                for t in confidence_terms(inference, spec, outcome)
            ),
            explains=tuple(self.related(o) for o in self._folded.get(here, ())),
            explained_by=tuple(
                self._related(code, where)
                for (code, where), symptoms in self._folded.items()
                if any((s.code, s.scope) == here for s in symptoms)
            ),
            overrules=tuple(
                self.related(o)
                for o in inference.in_state("overruled")
                if any((k.name, k.scope) == here for k in o.overruled_by)
            ),
            overruled_by=tuple(self._related(k.name, k.scope) for k in outcome.overruled_by),
        )

    def reason(self, node: Node, spec: RuleSpec) -> Reason:
        """A node as a document; `spec` is the rule that its conditions belong to."""
        checked, condition, off, why = node.checked, None, None, None
        if checked is not None and isinstance(checked.condition, Test):
            condition = condition_doc(checked, spec)
            off = shortfall(checked) if checked.truth is False else None
            if checked.truth is None:
                why = self._why(checked.condition.fact)
        outcome = node.outcome
        if outcome is not None:
            spec = self._inference.program.by_code[outcome.code].spec
        return Reason(
            kind=node.kind,
            text=node.text,
            holds=node.holds,
            condition=condition,
            off_by=None if off is None else round(off, 6),
            why=why,
            rule=None if outcome is None else self.related(outcome),
            state=None if outcome is None else _STATES[outcome.state],
            reasons=tuple(self.reason(child, spec) for child in node.children),
        )

    def related(self, outcome: Outcome) -> Related:
        return self._related(outcome.code, outcome.scope, outcome.state in ("fired", "overruled"))

    def _related(self, code: str, scope: Scope, fired: bool = True) -> Related:
        spec = self._inference.program.by_code[code].spec
        text = message_of(self._inference, spec, scope) if fired else ""
        return Related(code=code, cause=spec.cause, scope=doc(scope), message=text)

    def _missing(self, name: str) -> Missing:
        return Missing(fact=name, why=self._why(name), remedy=self._remedy(name))


def _sources(
    inference: Inference, nodes: list[tuple[Outcome, Node]], format: str
) -> Iterator[FactSource]:
    """Every fact of the trees once, in the order in which they are met."""
    seen: dict[tuple[str, Scope], Fact] = {}
    for outcome, node in nodes:
        for item in node.walk():
            links = () if item.checked is None else item.checked.links
            for link in links:
                if link.kind != "fact":
                    continue
                fact = inference.sight.fact(link.name, link.scope)
                if fact is not None:
                    seen.setdefault((fact.name, fact.scope), fact)
        spec = inference.program.by_code[outcome.code].spec
        if outcome.state in ("fired", "overruled") and spec.impact is not None:
            impact = (inference.sight.fact(n, outcome.scope) for n in spec.impact.facts)
            fact = next((f for f in impact if f is not None), None)
            if fact is not None:
                seen.setdefault((fact.name, fact.scope), fact)
    for fact in seen.values():
        entry = CATALOGUE.get(fact.name)
        tables = fact.provenance.tables
        pairs = [c.split(".", 1) for c in fact.provenance.columns]
        yield FactSource(
            fact=fact.name,
            value=fact.value,
            unit=fact.unit,
            scope=doc(fact.scope),
            meaning="" if entry is None else entry.meaning,
            how=fact.provenance.method,
            sources=tuple(
                TableSource(
                    table=table,
                    native=_NSYS.get(table) if format.startswith("nsys") else None,
                    columns=tuple(c for t, c in pairs if t == table),
                )
                for table in tables
            ),
            window_ns=fact.provenance.window,
        )


# --- one sentence ----------------------------------------------------------------------------


def _sentence(
    code: str, cause: str, scopes: tuple[ScopeExplanation, ...], findings: int, steps: int
) -> str:
    """What became of the rule, with the number that decided it."""
    first, name = scopes[0], f"{code} {cause}"
    where = _where(first)
    if first.state == "fired" and first.rank is not None:
        held = ""
        if first.impact is not None and first.impact.share is not None:
            held = f", {percent(first.impact.share)} of the {first.impact.of(bool(steps))}"
        return f"{name} fired{where}: finding {first.rank} of {findings}{held}."
    if first.state == "fired" and first.explained_by:
        by = first.explained_by[0]
        return f"{name} fired{where} and is folded into {by.code} {by.cause}, which explains it."
    if first.state == "fired":
        return f"{name} holds{where}: it is listed among what is in order."
    if first.state == "overruled":
        by = first.overruled_by[0]
        return (
            f"{name} would have fired{where}, but {by.code} {by.cause} overrules it: that cause "
            "explains the same better."
        )
    if first.state == "not_evaluated":
        return f"{name} could not be judged{where}: {_gap(first)}."
    return f"{name} did not fire{where}: {_miss(first)}."


def _where(one: ScopeExplanation) -> str:
    label = Scope(**one.scope.model_dump()).label()
    return f" ({label})" if label else ""


def _gap(one: ScopeExplanation) -> str:
    names = ", ".join(m.fact for m in one.missing) or "a fact it needs"
    verb = "is" if len(one.missing) == 1 else "are"
    whys = list(dict.fromkeys(m.why for m in one.missing if m.why))
    return f"{names} {verb} not known" + (f" ({'; '.join(whys)})" if whys else "")


def _miss(one: ScopeExplanation) -> str:
    """What stood in the way, by the tree that is printed below: the guard that stopped the rule, or
    the first condition that fails, however deep it lies."""
    found = (_first_failing(reason) for reason in one.reasons)
    return next((text for text in found if text), "nothing that it looks at holds")


def _first_failing(reason: Reason) -> str | None:
    if reason.kind == "guard" and reason.holds is False:
        return reason.text
    if reason.holds is not False:
        return None
    found = (_first_failing(child) for child in reason.reasons)
    return next((text for text in found if text), reason.text)
