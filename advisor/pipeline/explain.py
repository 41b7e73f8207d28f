"""``advisor.explain``: why a rule fired in a capture, why it did not, or what is missing. ``advisor.whatif``:
what changes named by the user would gain in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from advisor import __version__
from advisor.engine.conclude import fold
from advisor.engine.infer import Inference, default_engine
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
from advisor.engine.reasons import STATES, Explainer, nearest_first
from advisor.engine.states import state_of, stopper
from advisor.errors import InputError, RuleError, near
from advisor.facts.catalog import CATALOGUE
from advisor.gain.attach import ONE_RANK, combine, may_wait, replayer_of
from advisor.gain.excerpt import NoReplay, recorded_times
from advisor.gain.replay_ops import NoEstimate
from advisor.gain.whatifs import SEE_LISTS, Fix, catalogue, make_fix, split_fix
from advisor.jobs.job import rank_of
from advisor.jobs.reduction import waits_inside, with_waits
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.load import logged_step_ns
from advisor.model import explanation as m
from advisor.model.facts import ASKED_BY, Fact, Scope
from advisor.model.findings import Finding, Gain, Input, Tool, named
from advisor.model.rules import RuleSpec
from advisor.numerals import read_int
from advisor.pipeline import document
from advisor.pipeline.diagnose import (
    Analysed,
    Options,
    Progress,
    all_rules,
    analyse,
    analysis_of,
    conclusions,
    diagnose,
)
from advisor.pipeline.each_rank import of_each
from advisor.pipeline.given import given_step_ns, given_weights
from advisor.pipeline.inputs import Job, Paths, Saved, listed, of_one, one_capture, quietly
from advisor.pipeline.reported import counted, of_document, sentence


def explain(
    path: Paths, code: str, options: Options | None = None, progress: Progress | None = None, jobs: int = 1
) -> m.Explanation:
    """The outcome of a rule for a capture, a saved diagnosis, or the ranks of a job, which `jobs` processes
    read (0: one a core); the rule is named by code, cause or the number of its finding.

    Raises RuleError for an unknown code, InputError for a capture that cannot be used or that has no
    finding of this number.
    """
    chosen = options or Options()
    if not code.isdecimal():
        load_rule(code, builtin_dir(), *chosen.rules)  # before anything is read
    given = of_one(listed(path))
    if isinstance(given, Job | Saved):
        (first, *others) = given.read(quietly(chosen, progress, jobs)).diagnoses
        if others:
            raise InputError(f"{listed(path)[0]}: {len(others) + 1} saved diagnoses; save one by itself")
        return of_document(first, code, chosen.rules)
    return _of_capture(given.path, code, given.options(chosen), progress)


def _of_capture(path: Path, code: str, chosen: Options, progress: Progress | None) -> m.Explanation:
    if code.isdecimal():
        with analyse(path, chosen, progress) as done:
            return explanation(done, rank=read_int(code) or 0)
    rule = load_rule(code, builtin_dir(), *chosen.rules)
    if rule.subject != "trace":
        verb = ASKED_BY.get(rule.subject, "compare")
        raise RuleError(f"{rule.code} judges a {rule.subject}, not one capture; see advisor {verb}")
    with analyse(path, chosen, progress) as done:
        return explanation(done, rule.code)


def explanation(done: Analysed, code: str = "", rank: int | None = None) -> m.Explanation:
    """The explanation of one rule over an analysed capture, by its code or by the rank of a finding,
    which then is the only one in the document."""
    inference = done.inference
    found = conclusions(done)
    own = named(found.findings, code or str(rank))
    if rank is not None:
        if not own:
            raise InputError(f"no finding {rank}; the capture has {counted(found.findings)}")
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
    return m.Explanation(
        tool=Tool(version=__version__, engine=inference.engine),
        input=document.input_of(done.analysis, done.serving),
        code=code,
        cause=spec.cause,
        kind=spec.kind,  # type: ignore[arg-type]  # questions are of another subject
        title=spec.title,
        state=scopes[0].state,
        sentence=sentence(code, spec.cause, scopes, found.findings, done.analysis.step_count),
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
    reasons: tuple[m.Reason, ...],
    remedy: document.Remedy,
) -> m.ScopeExplanation:
    """One outcome as a document, with its finding if it is one."""
    inference, scope, here = explainer.inference, outcome.scope, (outcome.code, outcome.scope)
    spec = inference.program.by_code[outcome.code].spec
    stop = stopper(inference, outcome)
    common: dict[str, Any] = {"scope": scope, "state": STATES[outcome.state], "reasons": reasons}
    common["stopped_by"] = None if stop is None else stop[0]
    if outcome.state not in ("fired", "overruled"):
        missing = (m.Missing(fact=n, why=explainer.why(n), remedy=remedy(n)) for n in outcome.missing)
        stands = state_of(inference, outcome) if outcome.state == "quiet" and not stop else None
        close, applies = stands == "close", stands != "does not apply"
        return m.ScopeExplanation(**common, missing=tuple(missing), close=close, applies=applies)
    folded, gain = fold(inference), None if finding is None else finding.gain
    causes = [by for by, symptoms in folded.items() if here in [(s.code, s.scope) for s in symptoms]]
    lost = inference.in_state("overruled")
    overruled = [o for o in lost if here in [(k.name, k.scope) for k in o.overruled_by]]
    factors = (*confidence_factors(inference, spec, outcome), *estimate_factors(gain))
    return m.ScopeExplanation(
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
    explainer: Explainer, trees: list[tuple[Outcome, m.Reason]], native: dict[str, str]
) -> Iterator[m.FactSource]:
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
        yield m.FactSource(
            fact=fact.name,
            value=fact.value,
            unit=fact.unit,
            scope=fact.scope,
            meaning="" if entry is None else entry.meaning,
            how=fact.method,
            sources=tuple(
                m.TableSource(table=t, native=native.get(t), columns=tuple(columns.get(t, ())))
                for t in fact.tables
            ),
            window_ns=fact.window or None,
        )


# --- ``advisor.whatif`` ----------------------------------------------------------------------------


def parse_fixes(
    texts: Sequence[str], rules: Mapping[str, RuleSpec], estimated: Mapping[str, Gain] | None = None
) -> list[Fix]:
    """``NAME[:param=value]...`` -> fixes; NAME: a what-if, a rule's code or its cause. Of several what-ifs
    that a rule names, the one that was `estimated` for its finding, by code, else the first. Raises
    InputError."""
    by_cause = {r.cause: r for r in rules.values()}
    known = catalogue().whatifs
    out = []
    for text in texts:
        name, params = split_fix(text)
        rule = rules.get(name.upper()) or by_cause.get(name)
        if name in known:
            out.append(make_fix(name, params))
        elif rule is None:
            hint = near(name, [*known, *rules, *by_cause], SEE_LISTS)
            raise InputError(f"--fix: '{name}' is neither a what-if nor a rule; {hint}")
        elif rule.gain is None:
            raise InputError(
                f"--fix: {rule.code} names no what-if ({catalogue().no_estimate.get(rule.cause)}); "
                "see 'advisor whatif --list'"
            )
        else:
            own = (estimated or {}).get(rule.code)
            own_name = rule.gain.what_if if own is None else own.what_if
            given = rule.gain.params if own is None else own.params
            assert own_name is not None
            out.append(make_fix(own_name, {**given, **params}, rule.code, rule.cause))
    return out


def _rules(chosen: Options) -> Mapping[str, RuleSpec]:
    return all_rules((builtin_dir(), *chosen.rules)).by_code


def _of_several(fixes: Sequence[Fix], rules: Mapping[str, RuleSpec]) -> bool:
    """Whether the rule of one of the fixes names several what-ifs, of which its finding has one."""
    named = (rules[fix.code] for fix in fixes if fix.code is not None)
    return any(
        r.gain is not None and (r.gain.otherwise or any(a.gain for a in r.recommendations)) for r in named
    )


def answer(
    a: Profiled,
    fixes: Sequence[Fix],
    tool: Tool,
    source: Input,
    weight_bytes: int | None = None,
    unprofiled_ns: float | None = None,
    of_job: bool = False,
) -> m.WhatIfReport:
    """Predicted step time with the fixes applied in order, from the same step as a diagnosis has: the given
    one, the logged one or the estimate. `of_job`: also of fixes that take away what a rank perhaps waits for
    others, whose captures are known. Raises InputError if no estimate is possible."""
    try:
        logged_ns = logged_step_ns(a)
        replayer = replayer_of(a, weight_bytes, unprofiled_ns=unprofiled_ns, logged_ns=logged_ns)
        found = combine(replayer, fixes)
        if not of_job and any(may_wait(a, fix) for fix in fixes):
            raise NoEstimate(ONE_RANK)
    except (NoReplay, NoEstimate) as reason:
        raise InputError(f"{source.path}: no estimate: {reason}") from None
    throughput = any(catalogue().whatifs[f.what_if].measure == "throughput" for f in fixes)
    excerpt = replayer.excerpt
    captured = excerpt.mean(recorded_times(replayer.a, excerpt))
    same = ("of", "step_before_ms", "step_after_ms", "speedup", "bound_ms", "bound_speedup", "assumptions")
    return m.WhatIfReport(
        tool=tool,
        input=source,
        fixes=found.steps,
        measure="throughput" if throughput else "latency",
        per=("token" if a.program.is_language_model else "item") if throughput else "step",
        **{name: getattr(found, name) for name in same},
        replay=m.Replay(
            steps=len(excerpt.measured),
            of_steps=excerpt.whole,
            captured_ms=captured / 1e6,
            replayed_ms=replayer.captured_ns / 1e6,
            error=replayer.captured_ns / captured - 1.0,
        ),
    )


def whatif(
    path: Paths,
    fixes: str | Sequence[str],
    options: Options | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
) -> m.WhatIfReport:
    """The gain of a change, or of several, applied in order: ``whatif("t.sqlite", "batch:n=8")``. Of the
    ranks of a job, which `jobs` processes read, that of the rank on which the report of the job estimates a
    finding with the first fix; without such a finding, of the rank whose step is the longest then.

    Raises InputError for an unknown fix, and for a capture that allows no estimate.
    """
    chosen = options or Options()
    say = progress or (lambda _: None)
    fixes = [fixes] if isinstance(fixes, str) else list(fixes)
    parse_fixes(fixes, _rules(chosen))  # wrong ones fail before anything is read
    given = of_one(listed(path))
    if not isinstance(given, Job):
        alone = one_capture(listed(path))
        return _whatif(fixes, alone.path, alone.options(chosen), say)
    if (reported := _as_reported(fixes, given, chosen, progress, jobs)) is not None:
        return reported
    found = of_each(given, partial(_whatif, fixes), m.WhatIfReport, chosen, progress, jobs)
    rank = max(found, key=lambda r: found[r].step_after_ms.mid)
    return found[rank].replaced(
        input=found[rank].input.replaced(rank=rank),
        of_job=f"rank {rank} of {len(given.ranks)}, whose step is the longest then: all ranks go at its "
        "pace; no finding of the report of the job has this fix",
    )


def _as_reported(
    fixes: Sequence[str], job: Job, chosen: Options, progress: Progress | None, jobs: int
) -> m.WhatIfReport | None:
    """The answer on the rank on which the report of the job estimates a finding with the first of the fixes,
    with the numbers of the report if it is the only one; None if the report has no such finding."""
    rules, unredacted = _rules(chosen), replace(chosen, redact=False)  # the paths are read again
    (report,) = job.read(quietly(unredacted, progress, jobs)).diagnoses
    known = [f for f in report.findings if rank_of(f) is not None and _has_estimate(f)]
    parsed = parse_fixes(fixes, rules, {f.code: f.gain for f in reversed(known) if f.gain is not None})
    first, code = parsed[0], parsed[0].code
    finding = next((f for f in known if code in (None, f.code) and _fix_of_gain(f).key == first.key), None)
    if finding is None:
        return None
    rank = rank_of(finding)
    path = next(i.path for i in report.inputs if i.rank == rank)
    found = _predicted(parsed, Path(path), chosen, progress or (lambda _: None), of_job=True)
    if len(parsed) == 1 and finding.gain is not None:
        found = _with_gain(found, finding.gain)
    named = f"{finding.code} {finding.cause}"
    return found.replaced(
        input=found.input.replaced(rank=rank),
        of_job=f"rank {rank} of {len(job.ranks)}, on which the report of the job estimates {named}",
    )


def _has_estimate(finding: Finding) -> bool:
    return finding.gain is not None and None not in (finding.gain.what_if, finding.gain.speedup)


def _fix_of_gain(finding: Finding) -> Fix:
    """The fix that the gain of a finding is of."""
    assert finding.gain is not None
    assert finding.gain.what_if is not None
    return make_fix(finding.gain.what_if, finding.gain.params)


def _with_gain(report: m.WhatIfReport, gain: Gain) -> m.WhatIfReport:
    """The answer for one fix with the numbers of a finding's gain, which knows what the other ranks do."""
    before, after, speedup = gain.step_before_ms, gain.step_after_ms, gain.speedup
    if before is None or after is None or speedup is None:
        return report
    won = before.mid - after.mid
    (step,) = report.fixes
    step = step.replaced(
        step_before_ms=before.mid,
        step_after_ms=after.mid,
        marginal_ms=won,
        marginal_share=won / before.mid,
        speedup=speedup.mid,
    )
    return report.replaced(
        fixes=(step,),
        step_before_ms=before,
        step_after_ms=after,
        speedup=speedup,
        assumptions=gain.assumptions,
    )


def _whatif(
    fixes: Sequence[str], path: Path, chosen: Options, say: Progress = lambda _: None
) -> m.WhatIfReport:
    rules = _rules(chosen)
    parsed = parse_fixes(fixes, rules)
    if _of_several(parsed, rules):
        found = [
            f for f in diagnose(path, chosen).findings if f.gain is not None and f.gain.what_if is not None
        ]
        estimated = {f.code: f.gain for f in reversed(found) if f.gain is not None}
        parsed = parse_fixes(fixes, rules, estimated)
    return _predicted(parsed, path, chosen, say)


def _predicted(
    fixes: Sequence[Fix], path: Path, chosen: Options, say: Progress, of_job: bool = False
) -> m.WhatIfReport:
    weights = given_weights(chosen.weight_bytes)
    unprofiled = given_step_ns(chosen.unprofiled_step)
    say("reading")
    with analysis_of(path, chosen) as analysis:
        serving = document.serving_engine(analysis, chosen.serving_engine)
        source = document.input_of(analysis, serving)
        say("replaying")
        tool = Tool(version=__version__, engine=chosen.engine or default_engine())
        waited = with_waits(analysis, waits_inside(analysis))
        return answer(waited, fixes, tool, source, weights, unprofiled, of_job)
