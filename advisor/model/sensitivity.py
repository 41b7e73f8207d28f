"""Verdicts that change where a threshold is moved by a tenth."""

from __future__ import annotations

from advisor.model.capture import Frozen
from advisor.model.facts import Cell, Scope


class FlipFact(Frozen):
    """A value that lies between a threshold and the one that was tried in its place."""

    fact: str
    op: str
    value: Cell
    unit: str = ""
    scope: Scope = Scope()


class StateChange(Frozen):
    """What became of a rule: fired, quiet, overruled or not_evaluated."""

    code: str
    cause: str
    scope: Scope = Scope()
    before: str
    after: str


class Flip(Frozen):
    """A verdict that changes where one threshold is moved by a tenth. `first_before` and
    `first_after` are codes, there only where another finding would come first."""

    code: str
    cause: str
    param: str
    unit: str
    threshold: Cell
    moved_to: Cell
    facts: tuple[FlipFact, ...] = ()
    changes: tuple[StateChange, ...] = ()
    first_before: str | None = None
    first_after: str | None = None
