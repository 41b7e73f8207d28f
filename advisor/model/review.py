"""What a review meeting decided: read back from the workbook.

Keys may be added, none is renamed.
"""

from __future__ import annotations

from advisor.model.capture import Frozen
from advisor.model.findings import SCHEMA_VERSION, Tool

#: What may be decided about a finding.
DECISIONS = ("accept", "reject", "defer", "done", "needs data")


class Decision(Frozen):
    """A finding with what was decided; `finding` is its code and scope, the same in every capture
    of the same kind."""

    capture: str
    finding: str
    code: str
    cause: str = ""
    title: str = ""
    severity: str = ""
    share: float | None = None
    owner: str = ""
    decision: str = ""
    due: str | None = None
    comment: str = ""

    @property
    def open(self) -> bool:
        return not self.decision


class SignOff(Frozen):
    """A question of the checklist with its answer and who signed it. `measured` is what the
    capture answered; where that is the answer, no person gave it."""

    id: str
    question: str = ""
    answer: str = ""
    measured: str = ""
    note: str = ""
    signed_by: str = ""
    signed_on: str | None = None


class CellProblem(Frozen):
    """A cell that could not be understood: `Findings!H7`, or a sheet."""

    cell: str
    text: str


class Review(Frozen):
    """`problems`: what was left out of the decisions and answers."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    workbook: str
    captures: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    checklist: tuple[SignOff, ...] = ()
    problems: tuple[CellProblem, ...] = ()

    def of(self, finding: str) -> Decision | None:
        """The decision on the same finding, if one was made."""
        return next((d for d in self.decisions if d.finding == finding), None)
