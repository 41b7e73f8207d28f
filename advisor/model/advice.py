"""The advice of a finding: recommendations, and other ways to win."""

from __future__ import annotations

from typing import Literal

from advisor.model.capture import Frozen
from advisor.model.facts import Cell
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
