"""Before against after: the whole comparison, from the captures' diagnoses to one document."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.comparison import comparability, differences, values
from advisor.comparison.change_facts import COMPARISON, Judgement, RuleOptions, judge, parameter
from advisor.comparison.promised_gains import gain_checks
from advisor.comparison.sides import (
    Side,
    call_changes,
    in_equal_steps,
    interval,
    operation_changes,
    paired,
    phase_words,
    ratio,
    same_steps,
    step_times,
)
from advisor.comparison.statistics import Change, Noise, mean_change, noise_of, typical_change
from advisor.facts.writer import FactWriter
from advisor.knowledge.verb_files import limit
from advisor.model.arrays import nearest_rank
from advisor.model.comparison import Comparability, Comparison, PhaseChange, Reason, SideDoc, StepTimes
from advisor.model.facts import Scope
from advisor.model.findings import Verdict
from advisor.model.numbers import megahertz, milliseconds, percent

_GATE, _NOISE = ("CMP101", "gate"), ("CMP101", "noise_floor")
_UNDECIDED = "one step on a side does not show how much steps vary; record several"


class Measured(Struct, frozen=True):
    """Steps of one phase on both sides, and how they changed."""

    label: str
    before: StepTimes | None
    after: StepTimes | None
    typical: Change | None = None
    mean: Change | None = None
    noise: Noise | None = None
    #: Windows without steps are compared per kernel: kernels after over kernels before.
    work_ratio: float | None = None

    @property
    def scope(self) -> Scope:
        return Scope(phase=self.label)

    def resolution(self, floor: float) -> float | None:
        """The smallest slow-down that would have been certain."""
        if self.typical is None:
            return None
        near = (1 + self.typical.mid) / (1 + self.typical.low)
        return float(near * (1 + floor) - 1)


def compare(before: Side, after: Side, options: RuleOptions | None = None) -> Comparison:
    """The comparison of two sides. Raises RuleError for bad rules or parameters."""
    kinds = values.kind_of(before), values.kind_of(after)
    if any(kinds):
        return _without_steps(before, after, kinds, options or RuleOptions())
    before, after, divided = in_equal_steps(before, after)
    phases = paired(before, after)
    alike = comparability.judge(before, after, phases)
    measured = [measure(before, after, *phase) for phase in phases]
    chosen = options or RuleOptions()
    floor = parameter("comparison", *_NOISE, chosen)
    facts = _facts(before, after, alike, measured, floor)
    ms = {m.scope: m.before.median_ms for m in measured if m.before is not None}
    judged = judge(facts, "comparison", chosen, ms)
    changes = [_phase(m, before, after, alike, judged) for m in measured]
    verdict, findings = _verdict(changes), differences.finding_changes(before, after)
    gate = judged.param(*_GATE)
    doubts = tuple(_doubts(before, after, changes, gate))
    # Another model or batch says nothing about the advice.
    checks = tuple(differences.advice_checks(before, after)) if verdict != "not-comparable" else ()
    budget = differences.budget_changes(before, after, phases)
    operations = operation_changes(before, after, phases)
    holding = tuple(differences.contributions(before, after, verdict, budget, operations))
    if any(p.work_ratio is not None for p in changes):  # windows of other lengths
        holding = ()
    host = differences.hidden_host(budget, verdict, gate)
    return Comparison(
        before=side_doc(before),
        after=side_doc(after),
        verdict=verdict,
        summary=_summary(verdict, changes, alike) + differences.in_words(holding, budget),
        comparability=Comparability(
            score=max((alike.score(p.phase) for p in changes), default=0.0),
            reasons=(*alike.reasons, *(r for rs in alike.by_phase.values() for r in rs)),
        ),
        phases=tuple(changes),
        budget=budget,
        contributions=holding,
        operations=operations,
        calls=call_changes(before, after),
        changes=findings,
        checks=checks,
        gains=tuple(gain_checks(before, after, changes, findings, checks)) if checks else (),
        notes=(*divided, *host, *_notes(before, after, changes, judged, gate), *doubts),
        doubts=doubts,
        **judged.parts(),
    )


def _without_steps(
    before: Side, after: Side, kinds: tuple[str | None, str | None], options: RuleOptions
) -> Comparison:
    """The comparison of logs, samples or printed tables."""
    found = values.value_changes(before, after) if kinds[0] == kinds[1] else ()
    verdict: Verdict = "not-comparable"
    reasons: tuple[Reason, ...] = ()
    if kinds[0] is None or kinds[0] != kinds[1]:
        held = " and ".join(kind or "captures" for kind in kinds)
        summary = f"Not comparable: the sides hold {held}."
    else:
        gate = parameter("comparison", *_GATE, options)
        verdict, summary, reasons = values.judged(kinds[0], before, after, found, gate)
    one = bool(found) and all(c.before == c.after for c in found)
    doubts = ("all values are equal: this is perhaps one recording compared with itself",) if one else ()
    judged = judge(FactWriter(COMPARISON), "comparison", options, {})
    return Comparison(
        tool=judged.tool,
        before=side_doc(before),
        after=side_doc(after),
        verdict=verdict,
        summary=summary,
        comparability=Comparability(score=float(verdict != "not-comparable"), reasons=reasons),
        values=found,
        changes=differences.finding_changes(before, after),
        notes=doubts,
        doubts=doubts,
    )


def side_doc(side: Side) -> SideDoc:
    return SideDoc(
        name=side.name,
        inputs=tuple(i for d in side.diagnoses for i in d.inputs),
        verdicts=tuple(d.verdict for d in side.diagnoses),
    )


def measure(before: Side, after: Side, label: str, old_phase: str | None, new_phase: str | None) -> Measured:
    """Step times of one phase; without a change if a side lacks it."""
    old, new = _times(before, old_phase), _times(after, new_phase)
    if old is None or new is None or old_phase is None or new_phase is None:
        return Measured(label, old, new)
    noise = noise_of(
        before.runs(old_phase),
        after.runs(new_phase),
        max(before.host_share(old_phase), after.host_share(new_phase)),
    )
    work = comparability.window_work_ratio(before, after, old_phase, new_phase)
    old_times, new_times = before.times(old_phase), after.times(new_phase) / (work or 1.0)
    return Measured(
        label,
        old,
        new,
        typical_change(old_times, new_times, noise),
        mean_change(old_times, new_times, noise),
        noise,
        work,
    )


def _times(side: Side, phase: str | None) -> StepTimes | None:
    if phase is None or not len(times := side.times(phase)):
        return None
    return StepTimes(
        steps=side.steps(phase),
        samples=len(times),
        captures=len(side.runs(phase)),
        median_ms=float(np.median(times)),
        mean_ms=float(times.mean()),
        p99_ms=nearest_rank(times, 99),
    )


def _facts(
    before: Side, after: Side, alike: comparability.Reasons, measured: Sequence[Measured], noise_floor: float
) -> FactWriter:
    out = FactWriter(COMPARISON)
    by_check = {r.check: r for r in alike.reasons}

    def changed(check: str) -> bool | None:
        reason = by_check[check]
        return None if reason.state == "unknown" else reason.state == "differs"

    both = [s.texts(n) for s in (before, after) for n in ("driver", "cuda")]
    named = (", ".join(texts) or "unknown" for texts in both)
    toolkits = "Driver {}, CUDA {} before; driver {}, CUDA {} after".format(*named)
    old, new = by_check["clock"].before, by_check["clock"].after
    if isinstance(old, float) and isinstance(new, float):
        toolkits += f"; SM clock {megahertz(old)} and {megahertz(new)}"
    out |= {
        "compare.captures_count": len(before.diagnoses) + len(after.diagnoses),
        "compare.driver_changed": changed("driver"),
        "compare.cuda_changed": changed("CUDA"),
        "compare.clock_shift_ratio": comparability.clock_shift(before, after),
        "compare.toolkits": toolkits,
        "compare.model_similarity_ratio": alike.model,
        "compare.phase_overlap_ratio": alike.phase_overlap,
    }
    for m in measured:
        if m.before is None or m.after is None or m.typical is None or m.mean is None:
            continue
        own = out.at(m.scope)
        own |= {
            "compare.comparability_ratio": alike.score(m.label),
            "compare.work_similarity_ratio": alike.work.get(m.label),
            "compare.differences": "; ".join(alike.differing(m.label)) or "nothing",
            "compare.step_before_ms": m.before.median_ms,
            "compare.step_after_ms": m.after.median_ms,
            "compare.resolution_ratio": m.resolution(noise_floor),
        }
        for name, change in (("step_time", m.typical), ("step_mean", m.mean)):
            own |= {
                f"compare.{name}_change_ratio": change.mid,
                f"compare.{name}_slower_least_ratio": change.least_rise,
                f"compare.{name}_faster_ratio": -change.mid,
                f"compare.{name}_faster_least_ratio": change.least_drop,
            }
        own |= {
            "compare.step_time_shift_ratio": abs(m.typical.mid),
            "compare.step_time_shift_least_ratio": m.typical.least,
            "compare.slowdown_ratio": max(m.typical.mid, m.mean.mid),
        }
    return out


def _phase(
    m: Measured, before: Side, after: Side, alike: comparability.Reasons, judged: Judgement
) -> PhaseChange:
    verdict, why = _phase_verdict(m, alike, judged)
    return PhaseChange(
        phase=m.label,
        before=m.before,
        after=m.after,
        verdict=verdict,
        why=why,
        share=max(before.shares.get(m.label, 0.0), after.shares.get(m.label, 0.0)),
        typical=m.typical.span if m.typical else None,
        mean=m.mean.span if m.mean else None,
        work_ratio=m.work_ratio,
        noise=m.noise.runs if m.noise else None,
        resolution=m.resolution(judged.param(*_NOISE)),
        comparability=alike.score(m.label) if m.before and m.after else None,
    )


def _phase_verdict(m: Measured, alike: comparability.Reasons, judged: Judgement) -> tuple[Verdict, str]:
    if m.before is None or m.after is None:
        if m.before is None and m.after is None:
            return "not-comparable", "no step times on either side"
        return "not-comparable", f"only {'before' if m.after is None else 'after'}"
    if judged.fired("not-comparable", m.scope):
        return "not-comparable", "; ".join(alike.differing(m.label)) or "too little in common"
    known: tuple[Verdict, ...] = ("regression", "improvement", "no-change")
    for verdict in known:
        if judged.fired(verdict, m.scope):
            # Windows differ in their amount of work and in their time: a single time does not show a change.
            hidden = m.work_ratio is not None and abs(m.typical.mid if m.typical else 0.0) >= limit(
                "window-time"
            )
            if verdict == "no-change" and hidden:
                return "not-comparable", "without steps, a change of this size would not have shown"
            if verdict == "no-change" and any(s.steps == s.samples == 1 for s in (m.before, m.after)):
                return "not-comparable", _UNDECIDED
            return verdict, ""
    return "not-comparable", "the rules could not judge it"


def _verdict(phases: Sequence[PhaseChange]) -> Verdict:
    """The most severe verdict of the phases that can be compared, if they hold enough time."""
    fit = [p for p in phases if p.verdict != "not-comparable"]
    if sum(p.share for p in fit) < limit("comparable-time"):
        return "not-comparable"
    order: tuple[Verdict, ...] = ("regression", "improvement")
    return next((verdict for verdict in order if any(p.verdict == verdict for p in fit)), "no-change")


def _summary(verdict: Verdict, phases: Sequence[PhaseChange], alike: comparability.Reasons) -> str:
    if verdict == "not-comparable":
        if any(p.why == _UNDECIDED for p in phases):
            return f"Not decided: {_UNDECIDED}."
        reasons = alike.differing() or [p.why for p in phases if p.why]
        return f"Not comparable: {reasons[0] if reasons else 'no step times'}."
    deciding = [p for p in phases if p.verdict == verdict]
    first = max(deciding, key=lambda p: p.share)
    head = {"regression": "Regression", "improvement": "Improvement", "no-change": "No change"}
    assert first.typical is not None
    text = f"{head[verdict]}: the typical {phase_words(first.phase)} went {step_times(first)}"
    if first.work_ratio is not None and abs(first.work_ratio - 1.0) >= limit("window-work"):
        text += f" for {first.work_ratio:.3g} times the kernels"
    text += f" ({ratio(first.typical.mid)}, 98 % interval {interval(first.typical)})."
    stalls = first.mean is not None and abs(first.mean.mid - first.typical.mid) >= limit("mean-apart")
    if stalls and first.mean is not None:
        text += f" The mean step: {ratio(first.mean.mid)}."
    others = [p for p in phases if p is not first and p.verdict not in ("no-change", verdict)]
    for other in others:
        why = other.why or (ratio(other.typical.mid) if other.typical is not None else "")
        text += f" {phase_words(other.phase).capitalize()}: {other.verdict}{f' ({why})' if why else ''}."
    return text


def _notes(
    before: Side, after: Side, phases: Sequence[PhaseChange], judged: Judgement, gate: float
) -> list[str]:
    """What a reader must know before relying on the verdict."""
    notes = [f.message for f in judged.found.findings if f.cause == "toolkit-differs"]
    before_calls, after_calls = (s.device_fact("launch.calls_per_step") for s in (before, after))
    if before_calls is not None and after_calls is not None:
        extra = before_calls - after_calls
        traced, name = (before, "before") if extra > 0 else (after, "after")
        times = next((t for p in phases if (t := p.before if extra > 0 else p.after) is not None), None)
        if abs(extra) >= limit("extra-calls") and times is not None:
            span = traced.untraced_step(times.median_ms)
            low, mid, high = (milliseconds(ms) for ms in (span.low, span.mid, span.high))
            notes.append(
                f"Profiled times: {name} has {abs(extra):,.0f} more eager launches a step to trace; "
                f"unprofiled, its step takes some {mid} ms ({low} to {high})."
            )
    for p in phases:
        if p.before is None or p.after is None or p.typical is None:
            continue
        step = phase_words(p.phase).capitalize()
        medians = p.after.median_ms / p.before.median_ms - 1.0
        # The medians moved the other way than the typical pair of steps, both by the gate.
        if medians * p.typical.mid < 0 and min(abs(medians), abs(p.typical.mid)) >= gate:
            notes.append(
                f"{step}: steps of several lengths are mixed, so that the medians say otherwise than most "
                "pairs of steps; compare one kind of step (--phase, --nvtx, --window)."
            )
        if min(p.before.samples, p.after.samples) < 2:
            notes.append(
                f"{step}: one time on a side shows no spread; the usual one is assumed. Record several "
                "steps, or several captures a side."
            )
    return notes


def _doubts(before: Side, after: Side, phases: Sequence[PhaseChange], gate: float) -> list[str]:
    """Doubts: both sides are one recording; slow-downs of the gate's size could not have shown."""
    doubts = []
    if any(same_steps(b, a) for b in before.diagnoses for a in after.diagnoses):
        doubts.append("both sides hold the same steps: this is one recording compared with itself")
    for p in phases:
        step = phase_words(p.phase).capitalize()
        if p.verdict == "no-change" and p.resolution is not None and p.resolution > gate:
            doubts.append(
                f"{step}: only slow-downs from {ratio(p.resolution, sign=False)} on would have "
                f"shown, which is more than the gate; {_would_help(p)} would show smaller ones."
            )
        elif p.verdict == "not-comparable" and any(q.verdict != p.verdict for q in phases):
            doubts.append(
                f"{step}: not compared ({p.why.partition('; ')[0]}); it holds "
                f"{percent(p.share)} of the step time."
            )
    return doubts


def _would_help(phase: PhaseChange) -> str:
    """What makes the interval narrower: more steps if there are few, else repeats."""
    sides = [s for s in (phase.before, phase.after) if s is not None]
    if min(s.samples for s in sides) < limit("few-steps"):
        return f"more steps (there are {' and '.join(str(s.samples) for s in sides)})"
    if all(s.captures == 1 for s in sides):
        return "several captures a side (--before A1 A2 A3 --after B1 B2 B3)"
    return "more captures a side"
