"""The verdict of a diagnosis in one sentence, and what to do in a feasible order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from shlex import quote

import numpy as np

from advisor.engine import rank as ranking
from advisor.engine.rank import without_fault
from advisor.engine.severity import saved_of
from advisor.facts.capture import samples_alone
from advisor.facts.load import is_load_alone
from advisor.knowledge.gpus import dram_peak
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded.kernels import composition
from advisor.metrics.profiled.stage import Profiled
from advisor.model.facts import FactBase, Scope
from advisor.model.findings import NO_WORK, Finding, NotEvaluated
from advisor.model.gain import HOLDS_MUCH, WORTH, Choice, Combined, Gain, Headline, Joint, ToDo, whole
from advisor.model.numbers import amount, percent
from advisor.model.parts import PARTS
from advisor.model.rules import RuleSpec, judges_capture

#: From this share of the window on, decode is mostly matrix products.
_MOSTLY = 0.5
#: Kernels that only serve others: from this share of the window on a verdict names them.
_OVERHEAD_HOLDS = 0.05
_OVERHEAD = {
    "kernel.quantise_window_ratio": "kernels that only quantise",
    "kernel.dequantise_window_ratio": "kernels that only widen quantised values",
    "kernel.weight_cast_window_ratio": "casts of weights",
    "kernel.concatenation_window_ratio": "concatenations",
    "kernel.kv_combine_window_ratio": "kernels that add up split attention",
    "kernel.adapter_window_ratio": "kernels of adapters",
}


#: Facts that tell how fast kernels of a family run.
_RATES = {
    "gemm": ("phase.gemm_dram_ratio", "kernel.matmul_flop_ratio", "bandwidth.weights_ratio"),
    "gemv": ("phase.gemm_dram_ratio", "kernel.matmul_flop_ratio", "bandwidth.weights_ratio"),
    "attention": ("phase.attention_dram_ratio", "kernel.attention_flop_ratio"),
}
#: Most characters of a kernel's name in a sentence.
_LABEL = 48

_CAPTURE = (
    "Sums do not show when anything ran: what waits and what a fix would win needs the capture itself ({})."
)


def verdict(
    a: Profiled,
    findings: tuple[Finding, ...],
    not_evaluated: tuple[NotEvaluated, ...],
    options: Sequence[Choice] | None = (),
    facts: FactBase | None = None,
) -> str:
    """One sentence: what limits the step, or that nothing is wrong and what bounds it."""
    what = _subject(a.workload, findings)
    if sentence := of_findings(a.workload, findings):
        if a.trace.summed:
            sentence += f" {_CAPTURE.format(a.trace.capture.recorder.again)}"
        return sentence
    if a.trace.summed:
        capture = _CAPTURE.format(a.trace.capture.recorder.again)
        busy = facts.value("sums.busy_most_ratio", Scope(device=0)) if facts is not None else None
        filled = (
            f": GPU work takes up to {percent(busy)} of the profiled time" if isinstance(busy, float) else ""
        )
        return f"{what}Sums alone, and no fault that they can show{filled}{_bound(findings)}. {capture}"
    if samples_alone(a):
        return (
            f"GPU samples alone, and no fault that they can show{_bound(findings)}. Which kernels "
            "run, what the GPU waits for and what a fix would win needs a trace."
        )
    if is_load_alone(a):
        failed = facts.value("load.failed") if facts is not None else None
        but = (
            f" but {amount(round(failed), 'failed request')}" if isinstance(failed, float) and failed else ""
        )
        return (
            f"The load of a server alone, and no fault that it can show{but}{_bound(findings)}. What the GPU "
            "runs, what it waits for and what a fix would win needs a capture."
        )
    if not len(a.ops):
        return f"{what}No GPU work was recorded, so nothing can be judged."
    busy = max(b.busy_ratio for b in a.budgets.values())
    load = f"the GPU is busy {percent(busy)} of the window"
    silent = len({n.code for n in not_evaluated})
    unknown = f" {amount(silent, 'rule')} could not be judged." if silent else ""
    of, unowned = whole(a.step_count > 0), _unowned(a, facts)
    if flushed := _flushes(facts):
        unowned.pop(PARTS["profiler"].words, None)
        what += f"{flushed} of the {of}. "
        load += " with them"
    unrated = _unrated(a, facts)
    rest = without_fault(options, load, "this capture", _bound(findings), of, unowned, unrated)
    return what + rest + _speed(a, facts, unrated, of) + unknown


def _speed(a: Profiled, facts: FactBase | None, unrated: Mapping[str, float], of: str) -> str:
    """Whether the kernels are fast, as far as sizes of operators show it: with the share of what healthy
    ones reach, or of the roofline; and what would show it of kernels without a rate. Empty if there is
    nothing to say."""

    def known(name: str) -> float | None:
        value = facts.value(f"operator.{name}", Scope(device=a.main_device)) if facts is not None else None
        return value if isinstance(value, float) else None

    judged, healthy = known("judged_ratio") or 0.0, known("healthy_ratio")
    slow, sized, roofline = known("slow_window_ratio") or 0.0, known("sized_ratio"), known("roofline_ratio")
    if facts is not None and slow >= WORTH:
        family = facts.value("operator.slow_family", Scope(device=a.main_device))
        reach, usual = known("slow_reach_ratio"), known("slow_healthy_ratio")
        if reach is not None and usual is not None:
            return (
                f" Kernels of {family} may be slow ({percent(slow)} of the {of}): they reach "
                f"{percent(reach)} of the peak, healthy ones {percent(usual)}."
            )
    if healthy is not None and judged >= HOLDS_MUCH:
        return (
            f" Kernels of {percent(judged)} of the kernel time reach {percent(healthy)} of what healthy ones "
            "usually do at their size: they are fast."
        )
    if sized is not None and roofline is not None and sized >= _MOSTLY:
        return (
            f" At the GPU's rates operators of {percent(sized)} of the kernel time would take at least "
            f"{percent(roofline)} of theirs; what healthy kernels reach at these sizes is not known."
        )
    recorder = a.trace.capture.recorder
    if not unrated or sized is not None or (facts is not None and unmeasured(a, facts, True)):
        return ""
    option = "--gpu-metrics-devices=all" if recorder.nsys_options else "record_shapes=True"
    return f" How fast {next(iter(unrated))} runs: record with {option}."


def _flushes(facts: FactBase | None) -> str:
    """That flushes of the profiler hold much of the window, and not the program; else empty."""
    names = ("capture.flush_idle_ratio", "capture.flush_count", "capture.flush_ms")
    held, count, ms = (facts.value(name) if facts is not None else None for name in names)
    if not isinstance(held, float) or not isinstance(ms, float) or held < HOLDS_MUCH:
        return ""
    flushes = f"the profiler's own flushes ({count} x {ms:.3g} ms)"
    return f"The idle time is not the program's: {flushes} hold {percent(held)}"


def of_findings(workload: str, findings: Sequence[Finding]) -> str:
    """The verdict by the findings that are worth reporting; empty without one."""
    main = list(ranking.worth_reporting(findings))
    if not main:
        return ""
    first = main[0]
    sentence = f"{first.title}. {first.message}"
    # That the capture could be better does not say what is wrong with what it holds.
    about = [f for f in main if not judges_capture(f.code)]
    if first not in about and about:
        sentence += f" In the program: {about[0].title}. {about[0].message}"
        main = [about[0], *(f for f in main[1:] if f is not about[0])]
    if rest := ranking.causes_behind(main, 2):
        sentence += f" Then: {', '.join(rest)}."
    return _subject(workload, findings) + sentence


def _subject(workload: str, findings: Sequence[Finding]) -> str:
    """What the program is unless it is a language model, and what keeps the GPU without work."""
    what = "" if workload.startswith(("LLM", "no GPU", "unknown")) else f"{workload}: "
    if idle := next((f for f in findings if f.cause in NO_WORK), None):
        what += f"{idle.title}. {idle.message} In a pass: "
    return what


def large_parts(shares: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The parts of budgets besides compute that hold a tenth or more, in words, each with its largest share,
    the largest first."""
    large = sorted((share, part) for part, share in shares if part != "compute" and share >= HOLDS_MUCH)
    return dict(reversed({PARTS[part].words: share for share, part in large}.items()))


def _unowned(a: Budgeted, facts: FactBase | None) -> dict[str, float]:
    """What holds much of the window besides its work, by name: parts of the budgets, and kernels that are
    overhead alone."""
    held = large_parts((part, b.share(part)) for b in a.budgets.values() for part in PARTS)
    for fact in facts or ():
        name = _OVERHEAD.get(fact.name)
        if name is not None and float(fact.value) >= _OVERHEAD_HOLDS:
            held[name] = max(float(fact.value), held.get(name, 0.0))
    return held


def _unrated(a: Profiled, facts: FactBase | None) -> dict[str, float]:
    """The families of kernels that hold a tenth of the window or more and of whose rate the capture shows
    nothing, each by its largest kernel and with its share, the largest first."""
    device = a.main_device
    known = {f.name for f in facts or () if f.scope.device in (None, device)}
    if device not in a.budgets or a.samples(device) is not None:
        return {}
    ran = a.kernels(device)
    by_name = np.bincount(ran.name, ran.length, len(a.names.ids))
    window, found = max(a.budgets[device].program_ns, 1), dict[str, float]()
    sized: dict[str, float] = {}
    operators = a.operator_rates(device)
    for rate in operators.rates if operators is not None else ():
        if rate.of_roofline is not None:
            sized[rate.work.family] = sized.get(rate.work.family, 0.0) + rate.time_ns
    for family, time in composition(a.names.families, ran.name, ran.length).items():
        if family == "communication" or not known.isdisjoint(_RATES.get(family, ())):
            continue
        if sized.get(family, 0.0) >= _MOSTLY * time:
            continue
        if (share := min(time / window, 1.0)) >= HOLDS_MUCH:
            mine = a.names.mask(lambda k, family=family: k.family == family)
            largest = a.names.short[int(np.argmax(np.where(mine, by_name, -1.0)))]
            name = largest.removeprefix("void ")
            found[name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}…"] = share
    return found


def unmeasured(a: Profiled, facts: FactBase, named: bool | None = None) -> str:
    """A note if decode is mostly matrix products of unknown bandwidth, with the call that measures it;
    empty if it is known, or if no peak is known to compare with. `named`: the verdict names such kernels,
    False: only those that hold most of the time; None: none."""
    for fact in facts:
        scope, value = fact.scope, fact.value
        if fact.name != "phase.gemm_window_ratio" or scope.device is None or float(value) < _MOSTLY:
            continue
        decode = facts.value("phase.is_decode", scope) is True
        unknown = facts.value("phase.gemm_dram_ratio", scope) is None
        if decode and unknown and dram_peak(a.device(scope.device)):
            call = f"advisor {quote(a.trace.capture.path)} --weight-bytes N|config.json"
            unrated = _unrated(a, facts) if named is not None else {}
            if unrated and (named or max(unrated.values()) >= ranking.MOSTLY):
                return f" How fast matrix products read their weights: {call}"
            return (
                f" Matrix products hold {percent(float(value))} of the step, and neither counters nor "
                f"weights show how fast they read memory: {call}"
            )
    return ""


def to_do(
    findings: Sequence[Finding], rules: Mapping[str, RuleSpec], combined: Combined | None = None
) -> tuple[ToDo, ...]:
    """The first recommendation of each worthwhile finding, each after what it requires, and each once;
    with the gains of the `combined` fixes, of which some are worthwhile only behind others."""
    in_plan = {s.code: s.marginal_share for s in (combined.steps if combined else ()) if s.code}
    ordered = [f for f in ranking.worth_doing(findings, rules) if f.recommendations]
    ordered += [f for f in ranking.hidden(findings) if f.code in in_plan and f not in ordered]
    ids = [f.recommendations[0].id for f in ordered]
    return tuple(
        ToDo(
            code=f.code,
            cause=f.cause,
            id=f.recommendations[0].id,
            action=f.recommendations[0].action,
            saved=_of_the_step(f),
            saved_in_plan=in_plan.get(f.code),
            because=ranking.because(f, ordered[i + 1 :], rules),
        )
        for i, f in enumerate(ordered)
        if ids.index(ids[i]) == i
    )


def headline(
    findings: Sequence[Finding],
    rules: Mapping[str, RuleSpec],
    combined: Callable[[Sequence[Finding]], Combined | None] = lambda _: None,
) -> Headline | None:
    """The subject of the verdict; None if there is none. Its advice is what has to be done first,
    possibly the fix of another cause that its own requires; then `combined` estimates all of them
    together."""
    first = next(iter(ranking.worth_reporting(findings)), None)
    if first is None:
        return None
    order = [f for f in ranking.worth_doing(findings, rules) if f.recommendations]
    own = next((i for i, f in enumerate(order) if f.code == first.code), None)
    do = together = None
    if own is not None:
        before = [f for f in order[:own] if _needed(first, f, order[:own], rules)]
        do = [*before, order[own]][0].recommendations[0].action
        together = _as_one(first, combined([*before, order[own]]) if before else first.joint)
    return Headline(code=first.code, cause=first.cause, do=do, saves=_of_the_step(first), together=together)


def _needed(
    finding: Finding, other: Finding, among: Sequence[Finding], rules: Mapping[str, RuleSpec]
) -> bool:
    """Whether the fix of a finding needs that of the other one, or one that needs it."""
    if ranking.requirement(finding, other, rules) is not None:
        return True
    between = (f for f in among if f is not other and ranking.requirement(finding, f, rules) is not None)
    return any(ranking.requirement(f, other, rules) is not None for f in between)


def _as_one(finding: Finding, combined: Combined | Joint | None) -> Gain | None:
    """The estimate of a finding's fix together with the fixes that it requires."""
    if finding.gain is None or combined is None:
        return None
    estimate = {name: getattr(combined, name) for name in ("step_before_ms", "step_after_ms", "speedup")}
    assumptions = combined.assumptions if isinstance(combined, Combined) else finding.gain.assumptions
    return finding.gain.replaced(**estimate, assumptions=assumptions)


def _of_the_step(finding: Finding) -> float | None:
    """Share of the step that the fix saves; None for a larger batch, which makes none shorter: its
    multiple is for a batch chosen by the tool."""
    gain = finding.gain
    return None if gain is None or gain.measure == "throughput" else saved_of(gain)


def _bound(findings: tuple[Finding, ...]) -> str:
    """The finding about the program that holds enough to be mentioned."""
    ranked = [f for f in findings if (f.share or 0.0) >= WORTH and not judges_capture(f.code)]
    return f"; the next candidate is {ranked[0].cause}" if ranked else ""
