"""Changes between two sides besides the steps: budget, findings, promised numbers; and which parts of the
budget a change of the step comes from, with their causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from advisor.comparison.sides import NOT_HOST, Phase, Side, shared
from advisor.knowledge.verb_files import Made, limit, made_by
from advisor.model import comparison as m
from advisor.model.facts import Cell, Scope
from advisor.model.findings import Advice, Diagnosis, Finding, Verdict, Verify
from advisor.model.numbers import milliseconds
from advisor.model.parts import PARTS


def budget_changes(before: Side, after: Side, phases: Sequence[Phase]) -> tuple[m.PartChange, ...]:
    """Parts of the whole step, then of each phase if there are several."""
    out = _parts(before.budget(), after.budget(), None)
    for label, old_phase, new_phase in shared(phases) if len(phases) > 1 else ():
        out += _parts(before.budget(old_phase), after.budget(new_phase), label)
    return tuple(out)


def _parts(before: dict[str, float], after: dict[str, float], phase: str | None) -> list[m.PartChange]:
    held = {p: (before.get(p, 0.0), after.get(p, 0.0)) for p in (*before, *after)}
    return [
        m.PartChange(part=p, before_ms=round(b, 6), after_ms=round(a, 6), phase=phase)
        for p, (b, a) in held.items()
        if b or a
    ]


def finding_changes(before: Side, after: Side) -> tuple[m.FindingChange, ...]:
    """Findings gone, new, changed and the same; a side has a finding if half of its captures have it."""
    old, new = common_findings(before), common_findings(after)
    out = []
    for key in dict.fromkeys((*old, *new)):
        was, now = old.get(key), new.get(key)
        known = was or now
        assert known is not None
        status, note = "same", ""
        if now is None:
            note = _blind(after.diagnoses, known)
            status = "unknown" if note else "gone"
        elif was is None:
            note = _blind(before.diagnoses, known)
            status = "unknown" if note else "new"
        elif now.severity != was.severity or _moved(was, now):
            status = "changed"
        out.append(
            m.FindingChange(
                status=status,  # type: ignore[arg-type]
                code=known.code,
                cause=known.cause,
                title=known.title,
                scope=known.scope,
                note=note,
                severity_before=was.severity if was else None,
                severity_after=now.severity if now else None,
                share_before=was.share if was else None,
                share_after=now.share if now else None,
                ms_before=_ms(was),
                ms_after=_ms(now),
            )
        )
    order = ("new", "changed", "gone", "unknown", "same").index
    out.sort(key=lambda c: (order(c.status), -max(c.share_before or 0, c.share_after or 0), c.code))
    return tuple(out)


def _moved(before: Finding, after: Finding) -> bool:
    """Holds another length of the step; another share of it if lengths are unknown."""
    was, now = _ms(before), _ms(after)
    if was is not None and now is not None:
        return abs(now - was) > limit("shrunk-time") * max(now, was)
    return abs((after.share or 0.0) - (before.share or 0.0)) >= limit("finding-share")


def common_findings(side: Side) -> dict[str, Finding]:
    """Findings of at least half of the captures, by identity; the first of each represents all."""
    seen: dict[str, list[Finding]] = {}
    for diagnosis in side.diagnoses:
        for finding in {f.identity: f for f in diagnosis.findings}.values():
            seen.setdefault(finding.identity, []).append(finding)
    least = len(side.diagnoses) / 2
    return {key: found[0] for key, found in seen.items() if len(found) >= least}


def _ms(finding: Finding | None) -> float | None:
    return None if finding is None or finding.impact is None else finding.impact.ms


def _blind(diagnoses: Sequence[Diagnosis], finding: Finding) -> str:
    """Why a missing finding proves nothing; empty if its rule was judged."""
    found = (absence(d, finding.code, finding.scope, invalidates=finding.invalidates) for d in diagnoses)
    return next((a.why for a in found if a.why), "")


def advice_checks(before: Side, after: Side) -> Iterator[m.AdviceCheck]:
    """Every number that the recommendations before asked to check, each once."""
    seen: set[tuple[str, str]] = set()
    given = [
        (f, r.id, r.verify, _what_if(f, r))
        for f in common_findings(before).values()
        for r in f.recommendations
    ]
    made = {fix: was_made(before, after, f, fix) for f, _, _, fix in given}
    for finding, advice, verify, what_if in given:
        if verify is None or (finding.identity, verify.fact) in seen:
            continue
        seen.add((finding.identity, verify.fact))
        old, unit = before.fact(verify.fact, finding.scope)
        old = verify.now if old is None else old
        new, other = after.fact(verify.fact, finding.scope)
        scale = (1.0, 1.0)
        if verify.now is not None and verify.now == finding.share:
            scale = (sum(before.budget().values()), sum(after.budget().values()))
        outcome = _outcome(verify, old, new, unit or other, scale)
        if made[what_if] is False:
            outcome = "not applied"
        elif outcome == "as promised" and made[what_if] is None and _untouched(finding, made):
            outcome = "unknown"  # another fix moved it
        yield m.AdviceCheck(
            code=finding.code,
            cause=finding.cause,
            severity=finding.severity,
            id=advice,
            verify=verify,
            before=old,
            after=new,
            unit=unit or other or verify.unit,
            outcome=outcome,  # type: ignore[arg-type]
        )


def _untouched(finding: Finding, made: Mapping[str | None, bool | None]) -> bool:
    """Whether the fix of a finding was not made, and another one was."""
    own = None if finding.gain is None else finding.gain.what_if
    return made.get(own) is False and any(made.values())


def _what_if(finding: Finding, advice: Advice) -> str | None:
    """The what-if of a recommendation: its own, or that of its finding for the first one."""
    if advice.gain is not None:
        return advice.gain.what_if
    first = finding.gain is not None and advice is finding.recommendations[0]
    return finding.gain.what_if if first and finding.gain is not None else None


def was_made(before: Side, after: Side, finding: Finding, what_if: str | None) -> bool | None:
    """Whether the fix was made, by the number that says it: it fell or rose by the limit `made-fix`. None if
    no number says it, or a capture lacks it."""
    sign = made_by(what_if or "")
    if sign is None:
        return None
    old, new = (_number(side, sign, finding) for side in (before, after))
    if sign.over is not None and old is None and new is not None:
        old = 1.0  # there was nothing yet of which a part could be hidden
    if old is None or new is None:
        return None
    least = limit("made-fix") * abs(old)
    change = new - old if sign.expect == "increase" else old - new
    return old != new and change >= least


def _number(side: Side, sign: Made, finding: Finding) -> float | None:
    value, _ = side.fact(sign.fact, finding.scope)
    if not isinstance(value, int | float):
        return None
    if sign.over is None:
        return float(value)
    whole, _ = side.fact(sign.over, finding.scope)
    return float(value) / float(whole) if isinstance(whole, int | float) and whole else None


def _outcome(verify: Verify, before: Cell, after: Cell, unit: str, scale: tuple[float, float]) -> str:
    """`scale` turns a share of the step into milliseconds on either side."""
    if verify.expect in ("present", "absent"):
        moved = (before is None) != (after is None)
        wanted = (after is not None) == (verify.expect == "present")
        return "as promised" if moved and wanted else "other way" if moved else "unchanged"
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return "unknown"
    old, new = float(before) * scale[0], float(after) * scale[1]
    change = new - old
    trifle = limit("moved-share") * max(scale) if unit == "ratio" else 0.0
    slack = max(limit("moved-number") * max(abs(old), abs(new)), trifle)
    if abs(change) <= slack:
        return "unchanged"
    return "as promised" if (change < 0) == (verify.expect == "decrease") else "other way"


def shrank(change: m.FindingChange) -> bool:
    if change.status == "gone":
        return True
    before, after = change.ms_before, change.ms_after
    return before is not None and after is not None and after <= (1 - limit("shrunk-time")) * before


# --- whether a finding that is absent is gone: only where its rule was judged again ---------------


class _Scoped(Protocol):
    @property
    def code(self) -> str: ...
    @property
    def scope(self) -> Scope: ...


T = TypeVar("T", bound=_Scoped)


class Absence(NamedTuple):
    """The meaning of a missing finding; `why` it proves nothing, empty if it is gone."""

    status: Literal["gone", "not_evaluated", "overruled"]
    why: str = ""


def absence(diagnosis: Diagnosis, code: str, scope: Scope, *, invalidates: bool = False) -> Absence:
    """Why `diagnosis` does not have a finding of this code and scope. A capture that cannot be analysed
    was not judged, except for findings about the capture itself (`invalidates`)."""
    if not invalidates and any(f.invalidates for f in diagnosis.findings):
        return Absence("not_evaluated", "the capture cannot be analysed")
    if (other := next(among(diagnosis.overruled, code, scope), None)) is not None:
        return Absence("overruled", f"overruled by {other.by}")
    if (entry := next(among(diagnosis.not_evaluated, code, scope), None)) is not None:
        stopped = entry.stopped_by and f"stopped by {entry.stopped_by}"
        return Absence("not_evaluated", stopped or "not judged")
    return Absence("gone")


def among(entries: Iterable[T], code: str, scope: Scope) -> Iterator[T]:
    """The entries of this code about all that `scope` names (the process aside)."""
    mine = scope.without_process()
    return (e for e in entries if e.code == code and e.scope.without_process().encloses(mine))


# --- where a change of the step comes from -----------------------------------------------------


#: At most this many parts are named.
_MOST = 3
#: Parts made up of an operation's kernels.
_OPERATIONS_OF = {"compute": False, "communication": True}


def contributions(
    before: Side,
    after: Side,
    verdict: Verdict,
    budget: Sequence[m.PartChange],
    operations: Sequence[m.OperationChange],
) -> Iterator[m.Contribution]:
    """The parts that changed in the direction of the step, the largest first; none without a change."""
    whole = [p for p in budget if p.phase is None]
    total = sum(p.change_ms for p in whole)
    if not (total > 0 if verdict == "regression" else verdict == "improvement" and total < 0):
        return
    moved = [p for p in whole if p.change_ms / total >= limit("contribution")]
    moved.sort(key=lambda p: -abs(p.change_ms))
    side, other = (after, before) if total > 0 else (before, after)
    for p in moved[:_MOST]:
        finding = _holder(side, p.part, other)
        operation = _operation(p, operations)
        advice = finding.recommendations[0].action if finding and finding.recommendations else None
        yield m.Contribution(
            part=p.part,
            change_ms=round(p.change_ms, 6),
            share=round(p.change_ms / total, 6),
            code=finding.code if finding else None,
            cause=finding.cause if finding else None,
            action=advice if total > 0 else None,
            operation=operation.operation if operation else None,
            operation_ms=round(operation.change_ms, 6) if operation else None,
        )


def _holder(side: Side, part: str, other: Side) -> Finding | None:
    """The first finding about a part in at least half of the captures that holds half of what any of them
    does. What kernels lack on both sides did not change them."""
    parts = [p for d in side.diagnoses for b in d.budget for p in b.parts if p.part == part]
    causes = {cause for p in parts for cause in p.findings}
    there = common_findings(other) if part in _OPERATIONS_OF else {}
    own = (f for key, f in common_findings(side).items() if key not in there)
    named = [f for f in own if f.cause in causes and not f.invalidates]
    most = max((_ms(f) or 0.0 for f in named), default=0.0)
    return min((f for f in named if (_ms(f) or 0.0) >= most / 2), key=lambda f: f.rank, default=None)


def _operation(part: m.PartChange, operations: Sequence[m.OperationChange]) -> m.OperationChange | None:
    """The operation that changed most in the same direction, if it holds enough of the part's change."""
    if part.part not in _OPERATIONS_OF:
        return None
    own = (o for o in operations if (o.family == "communication") == _OPERATIONS_OF[part.part])
    most = max(own, key=lambda o: o.change_ms / part.change_ms, default=None)
    return most if most and most.change_ms / part.change_ms >= limit("contribution") else None


def in_words(named: Sequence[m.Contribution], budget: Sequence[m.PartChange]) -> str:
    """A sentence to follow the verdict: ``Of +0.30 ms, +0.30 are Python GC (python-gc).``"""
    if not named:
        return ""
    total = sum(p.change_ms for p in budget if p.phase is None)
    texts = []
    # Parts held by one finding: ``+9.00 are launch call and launch latency (launch-bound)``.
    for cause in dict.fromkeys(c.cause or c.part for c in named):
        own = [c for c in named if (c.cause or c.part) == cause]
        details = [own[0].cause] if own[0].cause else []
        details += [f"{c.operation} {_signed(c.operation_ms)} ms" for c in own if c.operation_ms]
        about = f" ({', '.join(details)})" if details else ""
        words = _listed([PARTS[c.part].words.replace(", ", " ") for c in own])
        texts.append(f"{_signed(sum(c.change_ms for c in own))} are {words}{about}")
    return f" Of {_signed(total)} ms a step, {_listed(texts)}."


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _signed(ms: float) -> str:
    return f"{'+' if ms > 0 else '-'}{milliseconds(abs(ms))}"


def hidden_host(budget: Sequence[m.PartChange], verdict: Verdict, gate: float) -> list[str]:
    """A note that the GPU waits longer for the host although the step as a whole did not get slower: the host
    did, or something beside the GPU sets how long a step takes."""
    whole = [p for p in budget if p.phase is None]
    parts = [p for p in whole if p.part not in NOT_HOST]
    before, after = (sum(getattr(p, side) for p in parts) for side in ("before_ms", "after_ms"))
    least = gate * sum(p.before_ms for p in whole)
    if verdict not in ("improvement", "no-change") or not parts or after - before < least:
        return []
    most = max(parts, key=lambda p: p.change_ms)
    if verdict == "no-change" and abs(sum(p.change_ms for p in whole)) <= limit("paced") * (after - before):
        return [
            f"The step is paced: the GPU has {after - before:,.2f} ms less to do in each and waits as much "
            f"longer, {after:,.2f} ms a step. Something else sets how often a step begins: input at a fixed "
            "rate (a camera, a timer), or the host's own loop, which this does not show to be slower."
        ]
    return [
        f"The host got slower, which the step as a whole hides: the GPU waits {after:,.2f} ms a step for "
        f"it, {before:,.2f} before; most of it is {PARTS[most.part].words} ({most.change_ms:+,.2f} ms)."
    ]
