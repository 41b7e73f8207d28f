"""Findings over several captures of one workload, and what was decided about them: the file
`history/findings.json` of the folder `.advisor`. Keys may be added, none is renamed."""

from __future__ import annotations

from typing import Literal

from advisor.model.capture import Frozen
from advisor.model.facts import Scope
from advisor.model.findings import SCHEMA_VERSION, Severity

State = Literal["new", "worse", "better", "same", "closed", "unknown"]
#: Decisions after which nothing is due any more.
SETTLED = ("done", "reject")


class Suppression(Frozen):
    """A finding that fails no gate until a day, and why."""

    reason: str
    until: str


class Tracked(Frozen):
    """A finding in the latest capture that was recorded, or the latest that had it. `unknown`: the
    latest capture could not answer. `reopened` is the decision that its getting worse undid. Days
    are texts: 2026-11-22."""

    finding: str
    code: str
    cause: str
    title: str = ""
    scope: Scope = Scope()
    severity: Severity
    share: float | None = None
    state: State
    since: str
    seen: str
    decision: str = ""
    owner: str = ""
    due: str | None = None
    comment: str = ""
    reopened: str = ""
    suppressed: Suppression | None = None

    def overdue(self, day: str) -> bool:
        """Whether somebody should have been done with it by that day."""
        return bool(self.due and self.due < day and self.state != "closed" and self.decision not in SETTLED)

    def hidden(self, day: str) -> bool:
        """Whether it is suppressed on that day."""
        return self.suppressed is not None and day <= self.suppressed.until


class Meeting(Frozen):
    """One capture that was recorded."""

    day: str
    capture: str
    verdict: str
    names: tuple[str, ...] = ()


class History(Frozen):
    """The latest meeting comes last."""

    schema_version: int = SCHEMA_VERSION
    meetings: tuple[Meeting, ...] = ()
    findings: tuple[Tracked, ...] = ()

    def in_state(self, state: State) -> tuple[Tracked, ...]:
        return tuple(t for t in self.findings if t.state == state)

    def hidden(self, day: str) -> frozenset[str]:
        """The findings that are suppressed on that day."""
        return frozenset(t.finding for t in self.findings if t.hidden(day))
