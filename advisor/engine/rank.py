"""How heavy each finding is, and the order of findings.

One currency for all: the share of the step that the fix saves. The list is sorted by

1. what invalidates the capture, by impact;
2. severity, faults of the file alone, and what the analysis has set aside, behind all that cost the program
   something;
3. latency before throughput: a larger batch makes no step shorter;
4. faults before limits, a limit at most as severe as a fault of medium or high severity; but before a fault
   of low severity that saves less at as much effort;
5. the score, with a required fix moved before the one that needs it. A fix that may save less than half of
   its estimate counts for `PERHAPS_HALF` of it: how much it saves is in doubt, not whether the cause is
   right. Where no step repeats, scores of the window count by the share of the capture that it is, beside
   what holds a share of the capture.

Ties by code, then by scope. Findings of rules that are capped at info come last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from advisor.engine.infer import Inference
from advisor.engine.severity import graded_by, least, saved_of, severity_of
from advisor.model.facts import Scope
from advisor.model.findings import SEVERITIES, Finding, Related
from advisor.model.gain import (
    EFFORTS,
    HELD_FACTOR,
    HOLDS_MUCH,
    WORTH,
    Choice,
    Gain,
    Ranking,
    Timed,
    perhaps_saved,
    steadiness,
)
from advisor.model.numbers import percent, times
from advisor.model.parts import IDLE
from advisor.model.rules import Requirement, RuleSpec


def graded(finding: Finding) -> Finding:
    """The finding with its severity and score, from its estimate where it has one."""
    known = finding.ranking or Ranking(confidence=finding.confidence)
    held = finding.share or 0.0
    saved = held if known.measured else graded_by(finding.gain)
    share, factor = (held, HELD_FACTOR) if saved is None else (saved, 1.0)
    if known.levels is not None:
        share, factor = held, 1.0
    if part := finding.only_part:
        share = held = min(held, WORTH)
    ranking = known.replaced(
        share=share,
        share_from="impact" if share is held else "gain",
        saved=saved,
        score=round(factor * share * finding.confidence, 6),
        throughput=finding.gain is not None and finding.gain.measure == "throughput",
        tier=0 if finding.invalidates else 2 if known.cap == "info" else 1,
        behind=None,
    )
    gain = finding.gain
    perhaps = gain is not None and gain.after_first is None and perhaps_saved(gain) is not None
    severity = severity_of(known, held, saved, perhaps)
    if part:  # worth a line, and graded with the one that it is a part of
        severity = least(severity, "low")
    if gain is not None and gain.measure == "latency":
        gain = gain.replaced(alone=saved_of(gain))
    return finding.replaced(severity=severity, score=ranking.score, ranking=ranking, gain=gain)


def rank(findings: Iterable[Finding], rules: Mapping[str, RuleSpec]) -> tuple[Finding, ...]:
    """The findings in order, with severity, score and `rank` (from 1); run again once gains are
    known. `rules` by code say which fix needs which other one first."""
    rated = [graded(f) for f in findings]
    rated = [_behind_heavier(f, rated) for f in rated]
    if any(_wins_latency(f) or f.invalidates for f in rated):
        latency = [f for f in rated if _wins_latency(f)]
        rated = [_behind_latency(f, latency) for f in rated]
    part = _window_part(rated)
    ordered = _options_first(sorted(rated, key=lambda f: _place(f, part)))
    placed = required_first(ordered, rules, lambda a, b: _group(a) == _group(b))
    return tuple(f.replaced(rank=number) for number, f in enumerate(placed, 1))


def _behind_heavier(finding: Finding, rated: Sequence[Finding]) -> Finding:
    """The finding, at most as severe as the causes in the same place that come before it: a symptom behind
    those that hold more of the step; a limit behind faults of medium and high severity, and behind those
    without an estimate that hold more than its fix saves. What is wrong is fixed before what the program
    does well is done otherwise."""
    if finding.kind not in ("symptom", "limit"):
        return finding
    causes = [f for f in rated if f.kind == "cause" and _wins_latency(f) and in_one_place(f, finding)]
    if finding.kind == "symptom":
        heavier = [f.severity for f in causes if _held(f) > _held(finding) > 0]
    else:
        heavier = [f.severity for f in causes if f.severity != "low" or _outweighs(f, finding)]
    severity = least(finding.severity, max(heavier, key=SEVERITIES.index, default=None))
    if severity == finding.severity or finding.ranking is None:
        return finding
    return finding.replaced(severity=severity, ranking=finding.ranking.replaced(behind="a fault"))


def _outweighs(cause: Finding, limit: Finding) -> bool:
    """A cause without an estimate holds more than the fix of a limit saves."""
    saved = limit.ranking.saved if limit.ranking is not None else None
    return saved_of(cause.gain) is None and saved is not None and _held(cause) > saved


def _options_first(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in their order, a limit before the faults of low severity that save less than its fix at
    no less effort: what one would do first."""
    placed: list[Finding] = []
    for finding in findings:
        at = len(placed)
        if finding.kind == "limit" and finding.severity == "low":
            at = next((i for i, f in enumerate(placed) if _less_for_more(f, finding)), at)
        placed.insert(at, finding)
    return placed


def _less_for_more(fault: Finding, limit: Finding) -> bool:
    """A fault of low severity whose fix saves less of the step than that of a limit, at as much effort or
    more."""
    ours, theirs = saved_of(fault.gain), saved_of(limit.gain)
    if fault.kind != "cause" or _group(fault) != _group(limit) or ours is None or theirs is None:
        return False
    if not fault.recommendations or not limit.recommendations or not _wins_latency(fault):
        return False
    efforts = [EFFORTS.index(f.recommendations[0].effort) for f in (fault, limit)]
    latency = limit.gain is not None and limit.gain.measure == "latency"
    return latency and theirs - ours >= ALIKE and efforts[0] >= efforts[1]


def _held(finding: Finding) -> float:
    """Share of the step that the finding holds; 0 if it is not about the step."""
    impact = finding.impact
    return impact.share or 0.0 if impact is not None and impact.part != "capture" else 0.0


def _wins_latency(finding: Finding) -> bool:
    """A fault whose fix is worthwhile before the batch is made larger."""
    terms = finding.ranking
    assert terms is not None
    return terms.tier == 1 and not terms.throughput and finding.kind != "limit" and finding.severity != "info"


def _surely(finding: Finding) -> bool:
    """The fix is worthwhile at the low end of its range, too."""
    gain = finding.gain
    return gain is not None and gain.speedup is not None and 1 - 1 / gain.speedup.low >= WORTH


def _behind_latency(finding: Finding, latency: Sequence[Finding]) -> Finding:
    """A gain from a larger batch is at most medium where anything else can be gained or lost events hide
    something, and at most what of `latency` certainly makes a step shorter, or without that what has a cause
    that holds much: a measured cause comes before a batch size that the tool chose, which makes no step
    shorter."""
    terms = finding.ranking
    if terms is None or not terms.throughput:
        return finding
    before = [f for f in latency if _surely(f)]
    before = before or [f for f in latency if _held(f) >= HOLDS_MUCH and not _small_part(f, finding)]
    cap = least("medium", max((f.severity for f in before), key=SEVERITIES.index, default=None))
    severity = least(finding.severity, cap)
    if severity == finding.severity:
        return finding
    return finding.replaced(severity=severity, ranking=terms.replaced(behind="what makes a step shorter"))


#: A cause that holds less than this part of what a larger batch is for. Choice. Lower, and a batch comes
#: behind a fix of some of the kernels that it fills; higher, and it leads over what holds much of them.
SMALL_PART = 0.25


def _small_part(finding: Finding, whole: Finding) -> bool:
    """At least half of what the finding holds is held by `whole`, as the step has no time for both, and it is
    a small part of that: one of the kernels of which all leave the GPU idle."""
    held, of = _held(finding), _held(whole)
    return in_one_place(finding, whole) and held + of - 1 >= held / 2 and held < SMALL_PART * of


def _group(finding: Finding) -> tuple[int, int]:
    terms = finding.ranking
    assert terms is not None
    if terms.tier != 1:
        return terms.tier, 0
    last = _of_file(finding) or (terms.aside and finding.severity != "info")
    return 1, -1 if last else -2 * SEVERITIES.index(finding.severity)


def _of_file(finding: Finding) -> bool:
    """A fault of the file alone, such as secrets in it: all that costs the program time comes first."""
    impact = finding.impact
    return impact is not None and impact.part == "capture" and impact.share is None


def _window_part(rated: Sequence[Finding]) -> float:
    """Share of the capture that the window is, by what findings hold of either; 1 if steps repeat, since
    the step then stands for the program however long the capture is."""
    windows = [_whole(f) for f in rated if f.gain is not None and f.gain.of == "window"]
    captures = [_whole(f) for f in rated if _of_capture(f)]
    window, capture = max(windows, default=0.0), max(captures, default=0.0)
    return min(window / capture, 1.0) if window and capture else 1.0


def _of_capture(finding: Finding) -> bool:
    return finding.impact is not None and finding.impact.part == "capture"


def _whole(finding: Finding) -> float:
    """What the impact is a share of, ms; 0 if it has no time."""
    impact = finding.impact
    return impact.ms / impact.share if impact is not None and impact.ms and impact.share else 0.0


def _place(finding: Finding, window_part: float) -> tuple[object, ...]:
    terms = finding.ranking
    assert terms is not None
    # Findings that invalidate the capture: by how much of the analysis they affect, regardless of
    # confidence.
    weight = terms.share
    if terms.tier != 0:
        weight = terms.score * (1.0 if _of_capture(finding) else window_part) * _steadiness(finding.gain)
    kind = {"symptom": 1, "limit": 2}.get(finding.kind, 0)
    own = (_group(finding), terms.throughput, kind, -weight)
    return (*own, finding.code, finding.scope.sort_key())


def _steadiness(gain: Gain | None) -> float:
    return 1.0 if gain is None or gain.speedup is None else steadiness(gain.speedup)


def required_first(
    findings: Sequence[Finding],
    rules: Mapping[str, RuleSpec],
    together: Callable[[Finding, Finding], bool] = lambda _, __: True,
) -> list[Finding]:
    """The findings in their order, each after the ones its fix requires, if they belong `together`."""
    placed: list[Finding] = []
    begun: set[int] = set()
    by_cause: dict[str, list[int]] = defaultdict(list)
    for i, finding in enumerate(findings):
        by_cause[finding.cause].append(i)

    def place(i: int) -> None:
        if i in begun:
            return
        begun.add(i)
        finding = findings[i]
        causes = {r.cause for r in _requires(finding, rules)}
        for j in sorted(j for cause in causes for j in by_cause[cause]):
            if in_one_place(finding, findings[j]) and together(findings[j], finding):
                place(j)
        placed.append(finding)

    for i in range(len(findings)):
        place(i)
    return placed


def worth_reporting(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that a verdict mentions, in their order: not those of the file alone."""
    return [f for f in findings if f.invalidates or not (f.severity == "info" or _of_file(f))]


def causes_behind(main: Sequence[Finding], most: int) -> list[str]:
    """The causes that a verdict names after the first: each once, wherever it was found."""
    causes = dict.fromkeys(f.cause for f in main)
    return list(causes)[1 : 1 + most]


#: Kernels that hold this share of the time decide whether a program is fast.
MOSTLY = 0.5


def without_fault(
    options: Sequence[Choice] | None,
    load: str,
    captures: str,
    bound: str = "",
    of: Timed = "step",
    unowned: Mapping[str, float] | None = None,
    unrated: Mapping[str, float] | None = None,
) -> str:
    """The verdict without a fault: possible improvements (`options`; None if nothing can be predicted
    from the `captures`), or how busy the GPU is (`load`); and what holds much of the step though no
    finding above info is about it (`unowned`: its name and share), or is kernels of which no rate is known
    (`unrated`, the largest first). Where those hold most of the time, that comes first."""
    yet = ", ".join(f"{name} ({percent(share)})" for name, share in (unowned or {}).items())
    fast = " and ".join(f"{name} ({percent(share)} of the {of})" for name, share in (unrated or {}).items())
    busy = ""
    if max((unrated or {}).values(), default=0.0) >= MOSTLY:
        busy = f"Busy, but whether its kernels are fast {captures} cannot tell: no rate is known of {fast}. "
    if options:
        offered = ", ".join(f"{o.title} {times(o.speedup.mid)} x" for o in options)
        held = f"; no finding above info is about {yet} of the {of}" if yet else ""
        return f"{busy}No fault{' found' if busy else ''}{bound}{held}. Options: {offered}."
    if yet:
        return f"No finding above info is about {yet} of the {of}: {load}{bound}."
    if busy:
        return f"{busy}Nothing else above {percent(WORTH)} of the {of} was found: {load}{bound}."
    if options is None:
        return f"No fault found: {load}{bound}. What a fix would win cannot be predicted from {captures}."
    judged = f"; not judged is how fast {fast} run" if fast else ""
    return f"Nothing to fix above {percent(WORTH)} of the {of}: {load}{bound}{judged}."


def worth_doing(findings: Sequence[Finding], rules: Mapping[str, RuleSpec]) -> list[Finding]:
    """The findings with something to do, in the order in which to do it: those above info, each after the
    fixes that it requires, however little those gain alone."""
    wanted = [f for f in findings if f.severity != "info" and f.recommendations]
    small = (f for f in findings if f.severity == "info")
    also = [f for f in small if any(requirement(w, f, rules) is not None for w in wanted)]
    return required_first([*wanted, *also], rules)


def hidden(findings: Iterable[Finding]) -> list[Finding]:
    """Causes that hold much time although their fix gains nothing alone: it may once another one is done."""
    causes = (f for f in findings if f.severity == "info" and f.kind == "cause" and f.recommendations)
    return [f for f in causes if f.gain is not None and (f.share or 0.0) >= HOLDS_MUCH]


def because(finding: Finding, later: Sequence[Finding], rules: Mapping[str, RuleSpec]) -> str:
    """Why a fix comes before one of the later ones; empty if no other finding requires it."""
    found = ((other, requirement(other, finding, rules)) for other in later)
    return next((f"before {o.cause}: {r.because}" for o, r in found if r is not None), "")


def requirement(finding: Finding, other: Finding, rules: Mapping[str, RuleSpec]) -> Requirement | None:
    """Why the fix of a finding requires that of the other one first; None if it does not."""
    needs = (r for r in _requires(finding, rules) if r.cause == other.cause)
    return next(needs, None) if in_one_place(finding, other) else None


def _requires(finding: Finding, rules: Mapping[str, RuleSpec]) -> tuple[Requirement, ...]:
    rule = rules.get(finding.code)
    return () if rule is None else rule.requires


def in_one_place(one: Finding, other: Finding) -> bool:
    """They refer to the same part of the program: no level on which both name different ones."""
    levels = ("rank", "device", "process", "phase")
    pairs = ((getattr(one.scope, n), getattr(other.scope, n)) for n in levels)
    return all(a is None or b is None or a == b for a, b in pairs)


# --- findings about mostly the same time become one -----------------------------------------------

#: Two fixes save the same if their estimates differ by at most this (shares of the step).
ALIKE = 0.01

#: (code, position in `same_as`, scope) -> the condition of that entry holds.
Holds = Callable[[str, int, Scope], bool]


def holds_in(inference: Inference) -> Holds:
    """The conditions by the facts of an inference."""

    def holds(code: str, at: int, scope: Scope) -> bool:
        tests = inference.program.by_code[code].same_as[at]
        return all(inference.truth(test, scope) for test in tests)

    return holds


def unconditional(_code: str, _at: int, _scope: Scope) -> bool:
    """For findings of several captures, whose conditions were evaluated in each."""
    return False


def without_repeats(
    findings: Iterable[Finding], rules: Mapping[str, RuleSpec], holds: Holds
) -> tuple[Finding, ...]:
    """The findings without those that repeat another finding's time. If two fixes save the same, the one
    whose rule has the `same_as` is dropped: the other names the more precise cause."""
    left = list(findings)
    for declaring in tuple(left):
        rule = rules.get(declaring.code)
        for at, entry in enumerate(rule.then.same_as if rule else ()):
            mine = _at(left, declaring.code, declaring.scope)
            if mine is None or (entry.when and not holds(declaring.code, at, declaring.scope)):
                continue
            scope = declaring.scope
            alike = ((i, f.scope) for i, f in enumerate(left) if f.cause == entry.cause)
            other = next((i for i, its in alike if its.encloses(scope) or scope.encloses(its)), None)
            if other is None:
                continue
            stays, goes = (mine, other) if _ahead(left[mine], left[other], rules) else (other, mine)
            left[stays] = _joined(left[stays], left[goes])
            del left[goes]
    return tuple(left)


#: A symptom is said once more by causes that hold this share of it.
SUMMED_UP = 0.9


def without_sums(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings without symptoms whose idle time causes in the same place hold together, each part of the
    budget counted once: they become part of the one that holds most."""
    left = list(findings)
    for symptom in findings:
        if symptom.kind != "symptom" or symptom.impact is None or symptom.impact.part != "idle":
            continue
        causes = [f for f in left if f.kind == "cause" and in_one_place(f, symptom) and _idle_parts(f)]
        causes.sort(key=lambda f: (-_held(f), f.code))
        held, counted = 0.0, set[str]()
        for cause in causes:
            if counted.isdisjoint(_idle_parts(cause)):
                held += _held(cause)
                counted |= _idle_parts(cause)
        if held > 0 and held >= SUMMED_UP * _held(symptom):
            left[left.index(causes[0])] = _joined(causes[0], symptom)
            left.remove(symptom)
    return tuple(left)


def _idle_parts(finding: Finding) -> set[str]:
    """The parts of the budget that the finding holds, if the device waits in all of them."""
    impact = finding.impact
    parts = set[str]() if impact is None else set(impact.parts or (impact.part,))
    return parts if parts <= IDLE.keys() else set()


def _at(findings: Sequence[Finding], code: str, scope: Scope) -> int | None:
    return next((i for i, f in enumerate(findings) if (f.code, f.scope) == (code, scope)), None)


def _ahead(one: Finding, other: Finding, rules: Mapping[str, RuleSpec]) -> bool:
    """The fix of one saves more than that of the other. If either has no estimate, the causes' shares
    decide, and a larger batch makes no step shorter. A symptom is ahead of no cause."""
    if one.kind == "symptom" and other.kind != "symptom":
        return False
    worth, against = _worth(one), _worth(other)
    if worth is None or against is None:
        batch, other_batch = _by_throughput(one, rules), _by_throughput(other, rules)
        if batch != other_batch:
            return other_batch
        worth, against = one.share or 0.0, other.share or 0.0
    return worth - against >= ALIKE


def _by_throughput(finding: Finding, rules: Mapping[str, RuleSpec]) -> bool:
    """Whether the fix only does more work in a step."""
    rule = rules.get(finding.code)
    return rule is not None and rule.gain is not None and rule.gain.measure == "throughput"


def _worth(finding: Finding) -> float | None:
    """Share of the step that the fix saves. A larger batch makes no step shorter: it counts as the least
    worthwhile share, so that any fix that does comes before it."""
    saved = saved_of(finding.gain)
    if saved is None or finding.gain is None or finding.gain.measure == "latency":
        return saved
    return min(saved, WORTH)


def _joined(stays: Finding, goes: Finding) -> Finding:
    """One finding with the advice of both, and the one estimate if only one has it."""
    already_listed = {r.id for r in stays.recommendations}
    more = () if goes.kind == "symptom" else goes.recommendations
    own = Related(code=goes.code, cause=goes.cause, scope=goes.scope, message=goes.message)
    return stays.replaced(
        gain=goes.gain if saved_of(stays.gain) is None else stays.gain,
        explains=(*stays.explains, own, *(s for s in goes.explains if s not in stays.explains)),
        recommendations=(*stays.recommendations, *(r for r in more if r.id not in already_listed)),
        alternatives=tuple({a.action: a for a in (*goes.alternatives, *stays.alternatives)}.values()),
    )
