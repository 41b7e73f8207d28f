"""What a review meeting decided, read back from the workbook, and what became of findings since;
and the checklist of a performance analysis.

Keys may be added, none is renamed.
"""

from __future__ import annotations

from typing import Literal

from advisor.model.facts import Scope
from advisor.model.findings import SCHEMA_VERSION, ConditionDoc, Severity, Tool
from advisor.model.records import Frozen

#: Possible decisions about a finding.
DECISIONS = ("accept", "reject", "defer", "done", "needs data")


class Choice(Frozen, frozen=True, kw_only=True):
    """A decision about one recommendation of a finding; `advice` is its id."""

    advice: str
    action: str = ""
    owner: str = ""
    decision: str = ""


class Decision(Frozen, frozen=True, kw_only=True):
    """A finding with the decision about it; `finding` is its code and scope, the same in every capture of
    the same kind. `ms` is what it holds of a step. `closed`: it was already gone, and is listed with its
    earlier decision."""

    capture: str
    finding: str
    code: str
    cause: str = ""
    title: str = ""
    severity: str = ""
    share: float | None = None
    ms: float | None = None
    owner: str = ""
    decision: str = ""
    due: str | None = None
    comment: str = ""
    recommendations: tuple[Choice, ...] = ()
    closed: bool = False

    @property
    def open(self) -> bool:
        return not (self.decision or self.closed)

    @property
    def touched(self) -> bool:
        """Whether anything has been filled in."""
        return bool(self.decision or self.owner or self.due or self.comment or self.recommendations)


class SignOff(Frozen, frozen=True, kw_only=True):
    """A question of the checklist with its answer and who signed it. `measured` is the capture's answer;
    if that is the answer, nobody has to sign it."""

    id: str
    question: str = ""
    answer: str = ""
    measured: str = ""
    note: str = ""
    signed_by: str = ""
    signed_on: str | None = None


class CellProblem(Frozen, frozen=True, kw_only=True):
    """A cell that could not be understood: `Findings!H7`, or a sheet."""

    cell: str
    text: str


class Review(Frozen, frozen=True, kw_only=True):
    """`names` and `day`: who met when. `problems`: parts left out of the decisions and answers."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    workbook: str
    captures: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    day: str | None = None
    decisions: tuple[Decision, ...] = ()
    checklist: tuple[SignOff, ...] = ()
    problems: tuple[CellProblem, ...] = ()

    def of(self, finding: str) -> Decision | None:
        """The decision on the same finding, if one was made."""
        return next((d for d in self.decisions if d.finding == finding), None)


# --- findings over several captures of one workload: `history/findings.json` ----------------------

State = Literal["new", "worse", "better", "same", "closed", "unknown"]
#: After these decisions nothing is due any more.
SETTLED = ("done", "reject")


class Suppression(Frozen, frozen=True, kw_only=True):
    """A finding that fails no gate until a day, and why."""

    reason: str
    until: str


class Tracked(Frozen, frozen=True, kw_only=True):
    """A finding in the latest recorded capture, or the latest that had it. `unknown`: the latest capture
    could not answer. `share` is of the step or the window and `ms` of a step, `was` and `was_ms` the same in
    the capture before. `reopened` is the decision that was undone because the finding got worse. Days are
    texts: 2026-11-22."""

    finding: str
    code: str
    cause: str
    title: str = ""
    scope: Scope = Scope()
    severity: Severity
    share: float | None = None
    ms: float | None = None
    was: float | None = None
    was_ms: float | None = None
    state: State
    since: str
    seen: str
    decision: str = ""
    owner: str = ""
    due: str | None = None
    comment: str = ""
    recommendations: tuple[Choice, ...] = ()
    reopened: str = ""
    suppressed: Suppression | None = None

    def overdue(self, day: str) -> bool:
        """Whether it was due by that day."""
        return bool(self.due and self.due < day and self.state != "closed" and self.decision not in SETTLED)

    def hidden(self, day: str) -> bool:
        """Whether it is suppressed on that day."""
        return self.suppressed is not None and day <= self.suppressed.until


class Meeting(Frozen, frozen=True, kw_only=True):
    """One capture that was recorded."""

    day: str
    capture: str
    verdict: str
    names: tuple[str, ...] = ()


class History(Frozen, frozen=True, kw_only=True):
    """The latest meeting comes last."""

    schema_version: int = SCHEMA_VERSION
    meetings: tuple[Meeting, ...] = ()
    findings: tuple[Tracked, ...] = ()

    def of(self, finding: str) -> Tracked | None:
        """The finding of this code and scope, if it was ever seen."""
        return next((t for t in self.findings if t.finding == finding), None)

    def in_state(self, state: State) -> tuple[Tracked, ...]:
        return tuple(t for t in self.findings if t.state == state)

    def hidden(self, day: str) -> frozenset[str]:
        """The findings that are suppressed on that day."""
        return frozenset(t.finding for t in self.findings if t.hidden(day))


Stage = Literal["before", "during", "after"]
Answer = Literal["yes", "no", "not_applicable", "later"]
ANSWERS: tuple[Answer, ...] = ("yes", "no", "not_applicable", "later")
#: Answers as printed.
WORDS: dict[str, str] = {"yes": "yes", "no": "no", "not_applicable": "not applicable", "later": "later"}
#: The name that signs answers without a person.
AUTOMATIC = "the capture"


class CheckEntry(Frozen, frozen=True, kw_only=True):
    """One question, of one of the eight `step`s or none. `by` says who answered; `proof` is the capture's
    evidence, `measured` its answer where a person has answered otherwise."""

    id: str
    stage: Stage
    step: int | None = None
    question: str
    why: str
    how: str
    command: str | None = None
    source: str
    answer: Answer | None = None
    by: Literal["capture", "person"] | None = None
    note: str = ""
    measured: Answer | None = None
    proof: str = ""
    conditions: tuple[ConditionDoc, ...] = ()

    @property
    def open(self) -> bool:
        """Not answered yet."""
        return self.answer in (None, "later")


class Checklist(Frozen, frozen=True, kw_only=True):
    """`captures` are the files whose facts answered; `stages` are the titles of the parts."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    session: str | None = None
    captures: tuple[str, ...] = ()
    serving_engine: str | None = None
    stages: dict[Stage, str]
    entries: tuple[CheckEntry, ...]

    def count(self, answer: Answer | None) -> int:
        return sum(e.answer == answer for e in self.entries)
