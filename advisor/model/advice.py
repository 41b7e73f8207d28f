"""The advice of a finding: recommendations, other ways to win, and what would change where a threshold is
moved by a tenth."""

from __future__ import annotations

from typing import Literal

from advisor.model.capture import Frozen
from advisor.model.facts import Cell, Scope
from advisor.model.gain import Gain


class Option(Frozen):
    """The line of a serving engine that carries out an action."""

    engine: str
    line: str
    since: str | None = None


class Verify(Frozen):
    fact: str
    expect: Literal["decrease", "increase", "present", "absent"]
    now: Cell = None
    unit: str = ""


class Advice(Frozen):
    """One recommendation of a finding; `title` is the action in a few words."""

    id: str
    title: str = ""
    action: str
    options: tuple[Option, ...] = ()
    effort: Literal["low", "medium", "high"] = "medium"
    verify: Verify | None = None


class Alternative(Frozen):
    """Another way to win: `action` is its key, `gain` what it would win, where a what-if exists."""

    action: str
    text: str
    what_if: str | None = None
    gain: Gain | None = None
    effort: Literal["low", "medium", "high"] = "medium"
    options: tuple[Option, ...] = ()


class ToDo(Frozen):
    """One thing to do, in an order that works. `saved` is the share of the step that it saves
    alone, `saved_in_plan` after those before it; `because`: why it comes before a later one."""

    code: str
    cause: str
    id: str
    action: str
    saved: float | None = None
    saved_in_plan: float | None = None
    because: str = ""


class Headline(Frozen):
    """What the verdict speaks of: its cause, what to `do` first, and the share of the step that
    the fix of the cause `saves` by itself; `together` is the estimate with the fixes that it
    requires, where there are such."""

    code: str
    cause: str
    do: str | None = None
    saves: float | None = None
    together: Gain | None = None


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
