"""Gains of findings, and of the top fixes together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from advisor.engine.judge import predicted
from advisor.errors import InputError
from advisor.gain import limits
from advisor.gain.behind import held_by_each_other, saved_twice
from advisor.gain.estimate import Estimate, Replayer, is_throughput, work_times
from advisor.gain.excerpt import NoReplay, profiler_writes
from advisor.gain.fixes import NUMBERS, settled
from advisor.gain.profiler import has_launches, has_nodes
from advisor.gain.replay_ops import NoEstimate
from advisor.gain.whatifs import Fix, catalogue, make_fix, no_estimate
from advisor.metrics.budgeted.sharing import threads_elsewhere
from advisor.metrics.profiled.stage import Profiled
from advisor.model.arrays import Array, distinct
from advisor.model.facts import Scope
from advisor.model.findings import Finding
from advisor.model.gain import (
    HOLDS_MUCH,
    WORTH,
    Choice,
    Combined,
    CombinedStep,
    Gain,
    Joint,
    Prediction,
    Span,
    saved_by,
)
from advisor.model.numbers import percent, value_text

#: Where a step time without the profiler is from, if not from the user.
BY_LOG = "by the log"


#: Why nothing is promised of collectives in the capture of one rank.
ONE_RANK = (
    "one rank alone cannot tell transfer from waiting for a late rank: record all ranks of the job and give "
    "them together"
)


def may_wait(a: Profiled, fix: Fix) -> bool:
    """Whether the fix takes away time in which this rank perhaps waits for others that are not in the
    capture."""
    return catalogue().whatifs[fix.what_if].needs_ranks and not a.waited


def fix_of(finding: Finding) -> Fix | None:
    """The fix named by a finding's rule; None if it names none. Raises InputError."""
    gain = finding.gain
    if gain is None or gain.what_if is None:
        return None
    return make_fix(gain.what_if, gain.params, finding.code, finding.cause)


def replayer_of(
    a: Profiled,
    weight_bytes: int | None = None,
    limit: int = limits.DIAGNOSIS_OPS,
    unprofiled_ns: float | None = None,
    logged_ns: float | None = None,
) -> Replayer:
    """The replays from which a report and a what-if of the same capture estimate. `unprofiled_ns` is the step
    time of a run without the profiler, as given by the user. Else the one that the engine logged
    (`logged_ns`) is taken if it lies in the range estimated for the step without the profiler; any other is
    of another load. Raises NoReplay."""
    replayer = Replayer(a, weight_bytes, limit, unprofiled_ns)
    if unprofiled_ns is not None or logged_ns is None or replayer.excerpt.of != "step":
        return replayer
    estimated = replayer.untraced_ms()
    if estimated.low <= logged_ns / 1e6 <= estimated.high:
        return Replayer(a, weight_bytes, limit, logged_ns, BY_LOG)
    return replayer


class Gains:
    """Estimates for the findings of one capture; every replay is done once."""

    def __init__(
        self,
        a: Profiled,
        weight_bytes: int | None = None,
        limit: int = limits.DIAGNOSIS_OPS,
        unprofiled_ns: float | None = None,
        logged_ns: float | None = None,
    ) -> None:
        """Step times as of :func:`replayer_of`."""
        self._why: str | None = None
        self._replayer: Replayer | None = None
        try:
            self._replayer = replayer_of(a, weight_bytes, limit, unprofiled_ns, logged_ns)
        except NoReplay as reason:
            self._why = str(reason)
        self._known: dict[object, Estimate | str] = {}
        self._a, self._limits = a, (weight_bytes, limit)
        self._apart: dict[int, Gains] = {}

    @cached_property
    def untraced(self) -> Span | None:
        """Step time without the profiler, ms, from which gains are counted; None if no step can be
        replayed."""
        if self._replayer is None or self._replayer.excerpt.of != "step":
            return None
        found = self._replayer.untraced_ms()
        return found if found.mid > 0 else None

    @property
    def untraced_from(self) -> str | None:
        """Where a known step time without the profiler is from; None if it is estimated."""
        replayer = self._replayer
        return None if replayer is None or replayer.unprofiled_ns is None else replayer.unprofiled_from

    def forget(self) -> None:
        """Drop the shared inputs of estimates, which take memory; they are made again when needed."""
        for gains in {self, *self._apart.values()}:
            if gains._replayer is not None:
                gains._replayer.latest.clear()

    def with_gains(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings, each with its estimate or the reason why it has none."""
        return self._joined([predicted(f, self.prediction(f)) for f in findings])

    def _joined(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings; causes that hold much and gain little alone with what their fixes gain together."""
        alone = [self._saved_alone(f) for f in findings]
        held = {
            i: f.share
            for i, (f, saved) in enumerate(zip(findings, alone, strict=True))
            if f.kind == "cause" and f.recommendations and f.share and f.share >= HOLDS_MUCH
            if saved is not None and saved < max(WORTH, limits.HELD_UP_RATIO * f.share)
        }
        fixes = self._latency_fixes([findings[i] for i in held])
        if self._replayer is None or len(fixes) < 2:
            return tuple(findings)
        found = combine(self._replayer, fixes)
        saved = saved_by(found.speedup)
        if saved < max(HOLDS_MUCH, *(limits.JOINTLY_FACTOR * (share or 0.0) for share in alone)):
            return tuple(findings)
        joint = Joint(
            codes=tuple(dict.fromkeys(findings[i].code for i in held)),
            step_before_ms=found.step_before_ms,
            step_after_ms=found.step_after_ms,
            speedup=found.speedup,
            traced=found.traced,
        )
        behind = dict(
            zip(
                (fix.key for fix in fixes),
                held_by_each_other(self._replayer, fixes, found.step_after_ms.mid),
                strict=True,
            )
        )
        joined = list(findings)
        for i in held:
            gain, fix = findings[i].gain, fix_of(findings[i])
            assert gain is not None
            assert fix is not None
            after = behind.get(fix.key, saved)
            joined[i] = findings[i].replaced(gain=gain.replaced(joint=joint, after_first=after))
        return tuple(joined)

    def removed_in(self, finding: Finding) -> tuple[Array, Array] | None:
        """Steps of the main device, and the time (ns) that the fix of the finding takes off their operations,
        each step as often as it stands for others of the window; None without an estimate."""
        replayer, fix = self._replayer, fix_of(finding)
        if replayer is None or fix is None or self._saved_alone(finding) is None:
            return None
        try:
            before = replayer.inputs((), replayer.middle).ops
            after = replayer.inputs([fix], replayer.middle_of([fix])).ops
        except NoEstimate:
            return None
        if len(after.duration) != len(before.duration):
            return None
        removed = np.maximum(before.duration - after.duration, 0.0) * replayer.excerpt.share(before.step)
        return before.step, removed

    def each_time_once(self, ordered: Sequence[Finding]) -> dict[tuple[str, Scope], Gain]:
        """The gains, by code and scope, of those of the findings, in the order in which their fixes are
        done, whose fix saves the time of one before it."""
        if self._replayer is None:
            return {}
        chosen: dict[object, tuple[Finding, Fix, float]] = {}
        for finding in ordered:
            for fix in self._latency_fixes([finding]):
                assert finding.gain is not None
                assert finding.gain.speedup is not None
                if finding.gain.joint is None:
                    chosen.setdefault(fix.key, (finding, fix, saved_by(finding.gain.speedup)))
        findings = [f for f, _, _ in chosen.values()]
        found = saved_twice(
            self._replayer, [fix for _, fix, _ in chosen.values()], [saved for _, _, saved in chosen.values()]
        )
        gains = {}
        for i, behind in found.items():
            own, gain = findings[i], findings[i].gain
            assert gain is not None
            part_of = findings[behind.part_of].code
            gains[own.code, own.scope] = gain.replaced(after_first=behind.saves, part_of=part_of)
        return gains

    def _saved_alone(self, finding: Finding) -> float | None:
        """Share of the step that a fix which makes it shorter saves; None without an estimate."""
        gain = finding.gain
        if gain is None or gain.measure != "latency" or gain.speedup is None:
            return None
        return saved_by(gain.speedup) if self._of(finding) is self else None

    def prediction(self, finding: Finding, of_job: bool = False) -> Prediction:
        """What the fix of a finding and its alternatives would gain in this capture; `of_job`: also of
        collectives in which this rank may wait for the others, as these will show."""
        if (own := self._of(finding)) is not self:
            return own.prediction(finding, of_job)
        gain = self._gain(finding, finding.gain, of_job) or Gain(reason=no_estimate(finding.cause))
        gain = gain.replaced(why_more=self._why_more(finding, gain))
        asked = [a.gain for a in finding.recommendations] + [o.gain for o in finding.alternatives]
        others = ((ask, self._gain(finding, ask, of_job)) for ask in asked if ask is not None)
        return Prediction(gain, tuple(others), self._perhaps_traced(gain))

    def _of(self, finding: Finding) -> Gains:
        """The gains of the finding's device: a device that works independently has steps of its own."""
        device = finding.scope.device
        if device is None or device == self._a.main_device:
            return self
        if device not in self._apart:
            view = self._a.seen_from(device)
            apart = threads_elsewhere(view) is not None
            self._apart[device] = Gains(view, *self._limits) if apart else self
        return self._apart[device]

    def _why_more(self, finding: Finding, gain: Gain) -> str | None:
        """Why a fix gains clearly more than the time of its cause, if it does."""
        before, after = gain.step_before_ms, gain.step_after_ms
        if finding.share is None or gain.what_if is None or before is None or after is None:
            return None
        assert self._replayer is not None
        won, held = before.mid - after.mid, finding.share * self._replayer.captured_ns / 1e6
        text = catalogue().whatifs[gain.what_if].why_more
        return text if won > max(limits.CLEARLY_FACTOR * held, WORTH * before.mid) else None

    def _perhaps_traced(self, gain: Gain) -> str | None:
        if gain.what_if is None or gain.step_before_ms is None:
            return None
        assert self._replayer is not None
        text = catalogue().whatifs[gain.what_if].perhaps_traced
        if text is None:
            return None
        own = self._replayer.bound_ns((), self._replayer.middle_of(())) / 1e6
        return None if gain.step_before_ms.low > limits.NEAR_OWN_FACTOR * own else text

    def _gain(self, finding: Finding, asked: Gain | None, of_job: bool) -> Gain | None:
        """The estimate of the requested what-if, or why there is none; None if no what-if is named."""
        if asked is None or asked.what_if is None:
            return None
        try:
            fix = make_fix(asked.what_if, asked.params, finding.code, finding.cause)
        except InputError as error:  # a rule of the user's
            return Gain(reason=f"its rule names no known what-if: {error}")
        if self._replayer is not None:
            try:
                fix = settled(fix, self._replayer.work)
            except NoEstimate as full:
                return asked.replaced(reason=str(full))
        found = self._estimate(fix, of_job)
        if isinstance(found, str):
            return asked.replaced(reason=found)
        assert self._replayer is not None
        return asked.replaced(
            params=fix.shown,
            of=self._replayer.excerpt.of,
            step_before_ms=found.before,
            step_after_ms=found.after,
            speedup=found.speedup,
            traced=found.traced,
            assumptions=assumptions(self._replayer, [fix]),
        )

    def _estimate(self, fix: Fix, of_job: bool) -> Estimate | str:
        if fix.key not in self._known:
            if self._replayer is None:
                return self._why or "the capture cannot be replayed"
            try:
                self._known[fix.key] = self._replayer.estimate([fix])
            except NoEstimate as reason:
                self._known[fix.key] = str(reason)
        found = self._known[fix.key]
        return ONE_RANK if isinstance(found, Estimate) and not of_job and may_wait(self._a, fix) else found

    @property
    def predicts(self) -> bool:
        """Whether anything can be estimated from this capture."""
        return self._replayer is not None

    def options(self, language_model: bool, of_job: bool = False) -> tuple[Choice, ...] | None:
        """The what-ifs that save `WORTH` of the step or more, the largest first; None if nothing can be
        estimated. `of_job` as of `prediction`."""
        if self._replayer is None or self._replayer.excerpt.of != "step":
            return None
        found = []
        for name, spec in catalogue().whatifs.items():
            if spec.option is None or (spec.language_model and not language_model):
                continue
            estimate = self._estimate(make_fix(name, {}), of_job)
            other = self._estimate(make_fix(spec.instead_of, {}), of_job) if spec.instead_of else None
            if isinstance(estimate, str) or isinstance(other, Estimate):
                continue
            saved = saved_by(estimate.speedup)
            if saved >= WORTH:
                found.append(Choice(what_if=name, title=spec.option, saved=saved, speedup=estimate.speedup))
        return tuple(sorted(found, key=lambda c: (-c.saved, c.what_if)))

    def combined(self, findings: Sequence[Finding], hidden: Sequence[Finding] = ()) -> Combined | None:
        """The latency fixes of these findings, applied in their order one after the other; None if there
        are fewer than two. A fix that gains nothing alone is included: it may gain once another is done;
        one that loses is not. Those of `hidden` findings follow if they are then worthwhile."""
        if self._replayer is None:
            return None
        certain = self._latency_fixes(findings)
        chosen = certain[: limits.MOST_FIXES]
        if chosen:
            chosen += [f for f in self._latency_fixes(hidden) if f.key not in {c.key for c in certain}]
        while len(chosen) > 1:
            found = combine(self._replayer, chosen)
            wins = (s.marginal_share for s in found.steps)
            least = (-limits.LOSS_RATIO if fix in certain else WORTH for fix in chosen)
            loses = [i for i, (won, at) in enumerate(zip(wins, least, strict=True)) if won < at]
            if not loses:
                return found
            del chosen[loses[0]]
        return None

    def _latency_fixes(self, findings: Sequence[Finding]) -> list[Fix]:
        """What-ifs of findings of this capture that make a step shorter, each once."""
        fixes: dict[object, Fix] = {}
        for finding in findings:
            gain = finding.gain
            if gain is None or gain.measure != "latency" or gain.speedup is None:
                continue
            if self._of(finding) is self and (fix := fix_of(finding)) is not None:
                fixes.setdefault(fix.key, fix)
        return list(fixes.values())


def combine(replayer: Replayer, fixes: Sequence[Fix]) -> Combined:
    """Fixes applied in order. The marginal gain of each is what it gains after those before it; one that
    finds nothing left to change is kept and says so. Raises NoEstimate if none applies."""
    used: list[Fix] = []
    steps: list[CombinedStep] = []
    first = last = replayer.step_ns((), replayer.middle) / 1e6
    failed: NoEstimate | None = None
    for fix in [settled(fix, replayer.work) for fix in fixes]:
        note = None
        tried = [*used, fix]
        try:
            if any(_repeats(fix, other) for other in used):
                raise NoEstimate(f"{fix.what_if} is applied already")
            now = replayer.step_ns(tried, replayer.middle_of(tried)) / 1e6
            used = tried
        except NoEstimate as reason:
            failed, now, note = reason, last, str(reason)
        steps.append(
            CombinedStep(
                code=fix.code,
                cause=fix.cause,
                what_if=fix.what_if,
                params=fix.shown,
                measure=catalogue().whatifs[fix.what_if].measure,
                step_before_ms=last,
                step_after_ms=now,
                marginal_ms=last - now,
                marginal_share=(last - now) / first if first else 0.0,
                speedup=work_times(used) * first / now if now else 1.0,
                bound_ms=min(replayer.bound_ns(used, replayer.middle_of(used)) / 1e6, now),
                note=note,
            )
        )
        last = now
    if not used and failed is not None:
        raise failed
    found = replayer.estimate(used)
    return Combined(
        steps=tuple(steps),
        of=replayer.excerpt.of,
        step_before_ms=found.before,
        step_after_ms=found.after,
        speedup=found.speedup,
        traced=found.traced,
        bound_ms=found.bound,
        bound_speedup=found.bound_speedup,
        assumptions=assumptions(replayer, used),
    )


def _repeats(fix: Fix, other: Fix) -> bool:
    """The second fix would gain what the first has gained: it is the same, or scales the same times."""
    if is_throughput(fix) or fix.what_if != other.what_if:
        return False
    return fix.key == other.key or catalogue().whatifs[fix.what_if].once


def assumptions(replayer: Replayer, fixes: Sequence[Fix]) -> tuple[str, ...]:
    """The assumptions of an estimate: those of the fixes, then those of the replay."""
    out = [text for fix in fixes for text in fix.assumptions]
    for fix in fixes:
        if fix.what_if in NUMBERS:
            out += NUMBERS[fix.what_if](fix, replayer.work)
    inputs = replayer.taken.inputs
    if replayer.unprofiled_ns is not None:
        known = f"{replayer.unprofiled_ns / 1e6:.4g} ms, {replayer.unprofiled_from}"
        out.append(f"a step without the profiler takes {known}")
        if abs(replayer.unexplained) > limits.UNEXPLAINED_RATIO:
            longer = "longer" if replayer.unexplained > 0 else "shorter"
            out.append(
                f"that is {percent(abs(replayer.unexplained), 2)} {longer} than the cost of tracing "
                "explains: is it the same load?"
            )
    elif has_launches(inputs):
        out.append(
            "tracing cost each launch between nothing and 16 us, as far as the host time from one "
            "launch to the next allows (5 us stay); the capture does not record it: time one run "
            "without the profiler and give its step time with --unprofiled-step"
        )
    if replayer.unprofiled_ns is None and (pace := replayer.work.tracing_pace) < 1.0:
        out.append(
            "launch calls take clearly longer than on a host that is not slow: tracing slowed the "
            f"host, whose code between the launches takes {pace:.2f} times as long without it"
        )
    of = replayer.excerpt.of
    if slack := float(inputs.calls.slack.sum()) / replayer.work.steps:
        out.append(
            f"host time without a call, {value_text(slack / 1e6, 'ms')} a {of}, is a wait for the GPU: the "
            "host keeps its lead and the queue never ran dry; if it is work, the low end of the gain holds"
        )
    recorded, marking = (
        float(cost.sum()) / replayer.work.steps / 1e6
        for cost in (inputs.calls.recorded, inputs.calls.marking)
    )
    if replayer.unprofiled_ns is None and recorded:
        what = "operators, Python calls and steps" if marking else "operators and Python calls"
        out.append(
            f"recording {what} cost the host up to {recorded:.3g} ms a {of} more, of which the range "
            "holds what the GPU had to wait for"
        )
    if marking:
        out.append(f"the profiler's step() between two steps, {marking:.3g} ms a step, is taken out")
    if written := replayer.a.window.cut(profiler_writes(replayer.a)).total:
        each = written / max(replayer.a.step_count, 1) / 1e6
        out.append(f"the profiler wrote its records for {value_text(each, 'ms')} a {of}: taken out")
    if has_nodes(inputs) and not replayer.by_software:
        out.append("graph nodes were traced by hardware: their times are taken as they are")
    elif has_nodes(inputs):
        out.append(
            "traced graph launches cost 70 us untraced; the gap between graph nodes is between "
            f"{'0.1' if replayer.wider_gaps else 'the traced one'} and 0.5 us"
        )
    if replayer.inflation > 1.0:
        out.append(
            f"tracing made the kernels of graphs {replayer.inflation:.2f} times as long: the same "
            "ones took less outside graphs in this capture"
        )
    if len(distinct(replayer.work.device)) > 1:
        out.append("the fix is made on every device")
    if len(inputs.origin) > 1:
        out.append("host threads keep their own pace: what they wait for among themselves stays")
    if replayer.excerpt.alone:
        out.append(f"the {of} was captured once: nothing shows how others differ")
    if replayer.excerpt.note:
        out.append(replayer.excerpt.note)
    return tuple(dict.fromkeys(out))
