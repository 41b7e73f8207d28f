"""A plan of a capture and the tree of its troubles: ``advisor capture``.

Keys may be added, none is renamed.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model.capture import Frozen
from advisor.model.checkup import Pitfall
from advisor.model.findings import SCHEMA_VERSION, Option, Tool
from advisor.model.notebook import Shown


class Line(Frozen):
    """Something to type, and what it is for. `shell` is false for what belongs into the program or
    its options."""

    command: str
    what: str = ""
    shell: bool = True


class PlanStep(Frozen):
    """One part of the plan: check, prepare, record, load, fetch, read."""

    id: str
    title: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()


class FlagText(Frozen):
    """One option of a command of the plan; `supplies` names what it records."""

    option: str
    why: str
    supplies: tuple[str, ...] = ()
    overhead: str = ""


class VariableText(Frozen):
    variable: str
    value: str
    effect: str


class Variant(Frozen):
    """What else may be wanted for the same goal; `flags` are the options that no other part of the
    plan explains."""

    id: str
    title: str
    text: str
    options: tuple[Option, ...] = ()
    lines: tuple[str, ...] = ()
    flags: tuple[FlagText, ...] = ()


class CapturePlan(Shown):
    """`again` is the command that prints this plan without asking."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    goal: str
    title: str
    question: str
    engine: str
    engine_title: str
    phase: str | None = None
    place: str
    place_title: str
    steps: tuple[PlanStep, ...]
    flags: tuple[FlagText, ...]
    variables: tuple[VariableText, ...] = ()
    pitfalls: tuple[Pitfall, ...] = ()
    variants: tuple[Variant, ...] = ()
    again: str
    command_file: tuple[str, ...] = ()

    def _sentence(self) -> str:
        return f"{self.title}: {self.question}"

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((step.title, line.command, line.what) for step in self.steps for line in step.lines)


class TroubleAnswer(Frozen):
    text: str
    then: str


class TroubleNode(Frozen):
    """A question with answers, or a remedy."""

    id: str
    symptom: str | None = None
    ask: str | None = None
    say: str | None = None
    commands: tuple[str, ...] = ()
    answers: tuple[TroubleAnswer, ...] = ()


class Troubles(Frozen):
    """The tree, or the part of it below one symptom."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    ask: str
    symptoms: tuple[str, ...]
    nodes: tuple[TroubleNode, ...]
