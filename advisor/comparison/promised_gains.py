"""Predicted gains against the measured step: each is credited to the fix that was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import to_builtins

from advisor.comparison.differences import common_findings, shrank, was_made
from advisor.comparison.sides import Side
from advisor.model import comparison as m
from advisor.model.findings import Diagnosis, Finding, identity
from advisor.model.gain import Gain, Span


class Promised(NamedTuple):
    """A finding, what its fix was to win, and the steps of its phase; `made`: whether it was made, as far as
    a number of both captures says it; `moved`: whether what its advice promised came true."""

    finding: Finding
    gain: Gain
    phase: m.PhaseChange
    made: bool | None
    moved: bool

    @property
    def fix(self) -> str:
        """The identity of the fix: findings may share one."""
        return f"{self.gain.what_if} {to_builtins(self.gain.params)}"


def gain_checks(
    before: Side,
    after: Side,
    phases: Sequence[m.PhaseChange],
    changes: Sequence[m.FindingChange],
    checks: Sequence[m.AdviceCheck],
) -> Iterator[m.GainCheck]:
    """Predicted gains against measured steps, both without the profiler if that is known. Where a number of
    both captures says whether a fix was made, that decides; else it was made if no other one was, a number in
    its `verify` moved as expected, and its finding is gone or holds a tenth less time. A step that several
    fixes changed is compared with what was predicted for all of them, where that is known."""
    found = list(_promised(before, after, phases, changes, checks))
    certain = any(p.made for p in found)
    applied = [p for p in found if p.made or (p.made is None and p.moved and not certain)]
    several = len({p.fix for p in applied}) > 1
    for p in found:
        if p not in applied:
            outcome: m.GainOutcome = "not known" if p.made is None and p.moved else "not applied"
        else:
            outcome = "with others" if several else _held(p.gain, _untraced(after, p), p.phase)
        yield _check(after, p, p.gain, p.finding.cause, outcome)
    if several and (together := _together(before.diagnoses, applied)) is not None:
        causes = " and ".join(dict.fromkeys(p.finding.cause for p in applied))
        first = applied[0]
        yield _check(after, first, together, causes, _held(together, _untraced(after, first), first.phase))


def _promised(
    before: Side,
    after: Side,
    phases: Sequence[m.PhaseChange],
    changes: Sequence[m.FindingChange],
    checks: Sequence[m.AdviceCheck],
) -> Iterator[Promised]:
    left = {identity(c.code, c.scope): c for c in changes}
    by_phase = {p.phase: p for p in phases if p.before and p.after}
    for finding in common_findings(before).values():
        gain = finding.gain
        phase = by_phase.get(finding.scope.phase or "") or next(iter(by_phase.values()), None)
        if gain is None or gain.step_after_ms is None or phase is None:
            continue
        own = [c.outcome for c in checks if (c.code, c.cause) == (finding.code, finding.cause)]
        moved = "as promised" in own and shrank(left[finding.identity])
        yield Promised(finding, gain, phase, was_made(before, after, finding, gain.what_if), moved)


def _times(p: Promised) -> tuple[float, float]:
    assert p.phase.before is not None
    assert p.phase.after is not None
    return p.phase.before.median_ms, p.phase.after.median_ms


def _untraced(after: Side, p: Promised) -> Span:
    return after.untraced_step(_times(p)[1])


def _held(gain: Gain, untraced: Span, phase: m.PhaseChange) -> m.GainOutcome:
    assert gain.step_after_ms is not None
    if phase.verdict == "no-change":
        return "no effect"
    if untraced.low > gain.step_after_ms.high:
        return "less than predicted"
    return "more than predicted" if untraced.high < gain.step_after_ms.low else "as predicted"


def _together(diagnoses: Sequence[Diagnosis], applied: Sequence[Promised]) -> Gain | None:
    """What was predicted for these fixes together, if just these were."""
    plan = diagnoses[0].combined
    if plan is None or {s.what_if for s in plan.steps} != {p.gain.what_if for p in applied}:
        return None
    return Gain(
        measure="latency",
        per="step",
        of=plan.of,
        step_before_ms=plan.step_before_ms,
        step_after_ms=plan.step_after_ms,
        speedup=plan.speedup,
    )


def _check(after: Side, p: Promised, gain: Gain, cause: str, outcome: m.GainOutcome) -> m.GainCheck:
    old, new = _times(p)
    return m.GainCheck(
        code=p.finding.code,
        cause=cause,
        predicted=gain,
        measured_before_ms=old,
        measured_after_ms=new,
        untraced_after_ms=_untraced(after, p),
        measured_speedup=old / new if new else 0.0,
        outcome=outcome,
    )
