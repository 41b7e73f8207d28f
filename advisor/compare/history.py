"""Findings tracked from capture to capture: new, worse, better, closed; decisions that still hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from advisor.compare.baseline import Before, change
from advisor.compare.differences import absence
from advisor.compare.store import fault_text
from advisor.errors import InputError
from advisor.model.facts import LEVELS
from advisor.model.findings import SEVERITIES, Diagnosis, Finding
from advisor.model.review import Decision, History, Meeting, Review, Suppression, Tracked
from advisor.reading import parse_saved, read_bytes

#: The fields of a finding that a meeting fills in.
DECIDED = ("decision", "owner", "due", "comment", "recommendations")


def path_of(folder: Path) -> Path:
    """Where the history of a folder is stored. Baselines are the files beside it."""
    return folder / "history" / "findings.json"


def read(folder: Path) -> History:
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
    found = [f for d in seen for f in d.findings if f.kind != "limit"]
    now = {f.identity: f for f in sorted(found, key=lambda f: f.share or 0.0)}
    now = {f.identity: now[f.identity] for f in found}
    tracked = [_present(before.get(name), finding, day) for name, finding in now.items()]
    tracked += [_absent(t, seen) for name, t in before.items() if name not in now]
    if review is not None:
        tracked = [_decided(t, review.of(t.finding), now.get(t.finding)) for t in tracked]
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
            known = {**d.model_dump(exclude={"capture", "closed"}), **seen, "state": state}
            found[d.finding] = Tracked.model_validate(known)
    return History(meetings=(meeting,), findings=tuple(found.values()))


def _scope(finding: str) -> dict[str, str]:
    """The scope in ``LCH101@device=0,phase=decode``."""
    levels = "|".join(name for name in LEVELS if name != "trace")
    return dict(re.findall(rf"(?:^|,)({levels})=(.*?)(?=,(?:{levels})=|$)", finding.partition("@")[2]))


def suppressed(history: History, finding: str, reason: str, until: str) -> History:
    """The history with one finding suppressed. Raises InputError for one that it does not have."""
    names = {t.finding.rstrip("@"): t.finding for t in history.findings}
    name = names.get(finding.rstrip("@"))
    if name is None:
        raise InputError(f"{finding}: no finding of the history; there are: {', '.join(names) or 'none'}")
    change = {"suppressed": Suppression(reason=reason, until=until)}
    findings = (t.replaced(**change) if t.finding == name else t for t in history.findings)
    return history.replaced(findings=tuple(findings))


def _present(before: Tracked | None, finding: Finding, day: str) -> Tracked:
    known: dict[str, Any] = {n: getattr(finding, n) for n in ("code", "cause", "title", "severity", "share")}
    scope = finding.scope.without_process()
    found = Tracked(finding=finding.identity, scope=scope, state="new", since=day, seen=day, **known)
    if before is None:
        return found
    found = found.replaced(was=before.share)
    back = before.state == "closed"
    old = Before(before.code, before.scope, before.severity, before.share)
    state = "new" if back else change(old, finding) or "same"
    kept = {n: getattr(before, n) for n in (*DECIDED, "reopened", "suppressed")}
    if state in ("new", "worse"):
        # The decision was about a smaller finding.
        kept |= _reopened(before.decision or before.reopened) | {"suppressed": None}
    return found.replaced(**kept, state=state, since=day if back else before.since)


def _absent(before: Tracked, seen: Iterable[Diagnosis]) -> Tracked:
    gone = all(absence(d, before.code, before.scope).status == "gone" for d in seen)
    state = "closed" if gone or before.state == "closed" else "unknown"
    return before.replaced(state=state)


def _reopened(decision: str) -> dict[str, Any]:
    return {"decision": "", "recommendations": (), "reopened": decision}


def _decided(tracked: Tracked, decision: Decision | None, now: Finding | None) -> Tracked:
    """With its decision, unless that was made when the finding was smaller."""
    if decision is None or not decision.touched:
        return tracked
    given = {name: getattr(decision, name) for name in DECIDED}
    given["reopened"] = "" if decision.decision else tracked.reopened
    if now is not None and decision.severity in SEVERITIES:
        then = Before(tracked.code, tracked.scope, decision.severity, decision.share)
        if change(then, now) == "worse":
            given |= _reopened(decision.decision or tracked.reopened)
    return tracked.replaced(**given)
