"""``--baseline FILE``: which findings are new, known or gone; and findings tracked from capture to capture,
with the decisions about them that still hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, ValidationError
from msgspec.structs import asdict

from advisor.comparison import before_after
from advisor.comparison.differences import absence, among
from advisor.comparison.sides import Side
from advisor.comparison.store import fault_text, parsed
from advisor.errors import InputError
from advisor.knowledge.verb_files import limit
from advisor.model.facts import LEVELS, Scope
from advisor.model.findings import SEVERITIES, Baseline, Diagnosis, Finding, Gone, StepChange
from advisor.model.review import Decision, History, Meeting, Review, Suppression, Tracked
from advisor.reading import parse_saved, read_bytes

HINT = "save one with 'advisor TRACE --format json -o FILE'"


def read(path: Path) -> tuple[Diagnosis, ...]:
    """The saved diagnoses of a file. Raises InputError if it holds none."""
    return parsed(path, f"--baseline {path}", HINT)


def mark_all(diagnoses: Sequence[Diagnosis], saved: Sequence[Diagnosis], path: Path) -> tuple[Diagnosis, ...]:
    """Every diagnosis against its baseline: the only one, or the one of the same file name. Raises
    InputError if there is none."""
    if len(saved) == len(diagnoses) == 1:
        return (mark(diagnoses[0], saved[0], path),)
    return tuple(mark(d, _of_captures(_captures(d), saved, path), path) for d in diagnoses)


def _of_captures(names: str, saved: Sequence[Diagnosis], path: Path) -> Diagnosis:
    alike = [s for s in saved if _captures(s) == names]
    if len(alike) != 1:
        raise InputError(
            f"--baseline {path}: holds {len(alike) or 'none'} of {names}; save one diagnosis for each "
            "capture, under the same file names"
        )
    return alike[0]


def _captures(diagnosis: Diagnosis) -> str:
    """Names of the captures, without their folders."""
    paths = (i.path.replace("\\", "/").rstrip("/") for i in diagnosis.inputs)
    return ", ".join(path.rpartition("/")[2] for path in paths)


def mark(diagnosis: Diagnosis, saved: Diagnosis, path: Path) -> Diagnosis:
    """The diagnosis with every finding marked, and what is gone."""
    before = {f.identity: f for f in saved.findings}
    found = [(f, before.get(f.identity)) for f in diagnosis.findings]
    new = [f for f, b in found if b is None]
    baseline = Baseline(
        path=str(path),
        capture=_captures(saved),
        verdict=saved.verdict,
        new=len(new),
        known=len(found) - len(new),
        gone=_gone(diagnosis, saved),
        not_evaluated_before=tuple(f.code for f in new if any(among(saved.not_evaluated, f.code, f.scope))),
        step=_step(diagnosis, saved),
    )
    findings = (
        f.replaced(baseline="new")
        if b is None
        else f.replaced(baseline="known", changed=change(weight(b, saved), weight(f, diagnosis)))
        for f, b in found
    )
    return diagnosis.replaced(findings=tuple(findings), baseline=baseline)


def _step(diagnosis: Diagnosis, saved: Diagnosis) -> StepChange:
    """The step of the baseline against this one, by the statistics of ``advisor compare``."""
    found = before_after.compare(Side("before", (saved,)), Side("after", (diagnosis,)))
    phase = max(found.phases, key=lambda p: p.share, default=None)
    sides = (None, None) if phase is None else (phase.before, phase.after)
    old, new = (side.median_ms if side is not None else None for side in sides)
    return StepChange(before_ms=old, after_ms=new, verdict=found.verdict, summary=found.summary)


class Weight(Struct, frozen=True):
    """How grave a finding is: what it holds of a step in ms (None without steps), and as a share of the step
    or the window."""

    severity: str
    share: float | None
    ms: float | None


def weight(finding: Finding, diagnosis: Diagnosis) -> Weight:
    ms = finding.impact.step_ms(bool(diagnosis.steps)) if finding.impact is not None else None
    return Weight(finding.severity, finding.share, ms)


def change(before: Weight, now: Weight) -> Literal["worse", "better"] | None:
    """By the ms a step where both are known: a share grows, too, where the rest of the step gets shorter.
    Otherwise by severity; at equal severity by the share, if both are known."""
    if before.ms is not None and now.ms is not None:
        steps = [w.ms / w.share for w in (before, now) if w.ms and w.share]
        grown = now.ms - before.ms
        if not steps or abs(grown) < limit("known-finding") * min(steps):
            return None
        return "worse" if grown > 0 else "better"
    levels = [SEVERITIES.index(w.severity) for w in (before, now)]
    if levels[0] != levels[1]:
        return "worse" if levels[1] > levels[0] else "better"
    if before.share is None or now.share is None:
        return None
    grown = now.share - before.share
    return None if abs(grown) < limit("known-finding") else "worse" if grown > 0 else "better"


def _gone(diagnosis: Diagnosis, saved: Diagnosis) -> tuple[Gone, ...]:
    now = {f.identity for f in diagnosis.findings}
    lost = {f.identity: f for f in reversed(saved.findings) if f.identity not in now}
    return tuple(
        Gone(
            **{name: getattr(f, name) for name in ("code", "cause", "title", "severity", "scope")},
            status=absence(diagnosis, f.code, f.scope, invalidates=f.invalidates).status,
        )
        for f in reversed(lost.values())
    )


#: The fields of a finding that a meeting fills in.
DECIDED = ("decision", "owner", "due", "comment", "recommendations")


def path_of(folder: Path) -> Path:
    """Where the history of a folder is stored. Baselines are the files beside it."""
    return folder / "history" / "findings.json"


def read_history(folder: Path) -> History:
    """The history of a folder, an empty one if there is none. Raises InputError for a bad file."""
    path = path_of(folder)
    try:
        return History.model_validate(parse_saved(read_bytes(path)))
    except FileNotFoundError:
        return History()
    except ValidationError as error:
        raise InputError(f"{path}: not a history of findings ({fault_text(error)})") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def recorded(
    history: History,
    diagnosis: Diagnosis,
    day: str,
    names: Iterable[str] = (),
    review: Review | None = None,
    others: Sequence[Diagnosis] = (),
) -> History:
    """The history with one more capture, and with the decisions of its review. A finding that `others` of
    the same meeting have, too, counts where its share is largest; it is closed if none has it."""
    before = {t.finding: t for t in history.findings}
    seen = (diagnosis, *others)
    found = [(f, weight(f, d)) for d in seen for f in d.findings if f.kind != "limit"]
    largest = {f.identity: (f, w) for f, w in sorted(found, key=lambda pair: pair[1].share or 0.0)}
    now = {f.identity: largest[f.identity] for f, _ in found}
    tracked = [_present(before.get(name), f, w, day) for name, (f, w) in now.items()]
    tracked += [_absent(t, seen) for name, t in before.items() if name not in now]
    if review is not None:
        weights = {name: w for name, (_, w) in now.items()}
        tracked = [_decided(t, review.of(t.finding), weights.get(t.finding)) for t in tracked]
    capture = ", ".join(i.path for d in seen for i in d.inputs)
    meeting = Meeting(day=day, capture=capture, verdict=diagnosis.verdict, names=tuple(names))
    return History(meetings=(*history.meetings, meeting), findings=tuple(tracked))


def of_review(review: Review) -> History:
    """The decisions of a review as a history of one meeting, to compare the next capture with."""
    captures = ", ".join(review.captures)
    meeting = Meeting(day=review.day or "", capture=captures, verdict="", names=review.names)
    found: dict[str, Tracked] = {}
    for d in review.decisions:
        if d.severity in SEVERITIES and (d.finding not in found or d.touched):
            seen = {"scope": _scope(d.finding), "since": meeting.day, "seen": meeting.day}
            state = "closed" if d.closed else "same"
            found[d.finding] = Tracked.model_validate({**asdict(d), **seen, "state": state})
    return History(meetings=(meeting,), findings=tuple(found.values()))


def _scope(finding: str) -> Scope:
    """The scope in ``LCH101@device=0,phase=decode``."""
    levels = "|".join(name for name in LEVELS if name != "trace")
    found = re.findall(rf"(?:^|,)({levels})=(.*?)(?=,(?:{levels})=|$)", finding.partition("@")[2])
    return msgspec.convert(dict(found), Scope, strict=False)


def suppressed(history: History, finding: str, reason: str, until: str) -> History:
    """The history with one finding suppressed. Raises InputError for one that it does not have."""
    names = {t.finding.rstrip("@"): t.finding for t in history.findings}
    name = names.get(finding.rstrip("@"))
    if name is None:
        raise InputError(f"{finding}: not a finding of the history, which has: {', '.join(names) or 'none'}")
    change = {"suppressed": Suppression(reason=reason, until=until)}
    findings = (t.replaced(**change) if t.finding == name else t for t in history.findings)
    return history.replaced(findings=tuple(findings))


def _present(before: Tracked | None, finding: Finding, now: Weight, day: str) -> Tracked:
    known: dict[str, Any] = {n: getattr(finding, n) for n in ("code", "cause", "title", "severity", "share")}
    scope = finding.scope.without_process()
    found = Tracked(
        finding=finding.identity, scope=scope, ms=now.ms, state="new", since=day, seen=day, **known
    )
    if before is None:
        return found
    found = found.replaced(was=before.share, was_ms=before.ms)
    back = before.state == "closed"
    state = "new" if back else change(_earlier(before), now) or "same"
    kept = {n: getattr(before, n) for n in (*DECIDED, "reopened", "suppressed")}
    if state in ("new", "worse"):
        # The decision was about a smaller finding.
        kept |= _reopened(before.decision or before.reopened) | {"suppressed": None}
    return found.replaced(**kept, state=state, since=day if back else before.since)


def _earlier(known: Tracked | Decision) -> Weight:
    return Weight(known.severity, known.share, known.ms)


def _absent(before: Tracked, seen: Iterable[Diagnosis]) -> Tracked:
    gone = all(absence(d, before.code, before.scope).status == "gone" for d in seen)
    state = "closed" if gone or before.state == "closed" else "unknown"
    return before.replaced(state=state)


def _reopened(decision: str) -> dict[str, Any]:
    return {"decision": "", "recommendations": (), "reopened": decision}


def _decided(tracked: Tracked, decision: Decision | None, now: Weight | None) -> Tracked:
    """With its decision, unless that was made when the finding was smaller."""
    if decision is None or not decision.touched:
        return tracked
    given = {name: getattr(decision, name) for name in DECIDED}
    given["reopened"] = "" if decision.decision else tracked.reopened
    if now is not None and decision.severity in SEVERITIES and change(_earlier(decision), now) == "worse":
        given |= _reopened(decision.decision or tracked.reopened)
    return tracked.replaced(**given)
