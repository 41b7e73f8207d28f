"""What a capture can and cannot answer, and how to record a better one: ``advisor doctor``.

Keys may be added, none is renamed.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from advisor.model.capture import Frozen
from advisor.model.findings import SCHEMA_VERSION, Finding, Input, Tool
from advisor.model.notebook import Shown
from advisor.model.rules import Reply


class Recorded(Frozen):
    """What the file is and how it was recorded. `options` are those of `nsys profile` that were on,
    as far as the export lists them; `sampled` says what was sampled and how often."""

    size_bytes: int
    schema_version: str | None = None
    duration_ms: float | None = None
    command: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    options_known: bool = True
    graph_trace: str | None = None
    sampled: tuple[str, ...] = ()
    tables: dict[str, int] = Field(default_factory=dict)


class Question(Frozen):
    """A question in plain words, whether this capture answers it, why, and what would help."""

    id: str
    question: str
    answer: Reply
    reason: str
    remedy: str | None = None


class Named(Frozen):
    code: str
    cause: str


class Blocked(Frozen):
    """Rules that cannot run for the same want; `remedy` is null where nothing would help."""

    remedy: str | None
    rules: tuple[Named, ...]
    why: tuple[str, ...] = ()


class PlanOption(Frozen):
    """One option of the command: whether it is new, what it is for and what it costs."""

    option: str
    new: bool
    purpose: str = ""
    overhead: str = ""


class Also(Frozen):
    """What no option does: a change of the program or of the run, and the rules that it enables."""

    need: str
    rules: tuple[Named, ...] = ()


class LeftOut(Frozen):
    """An option for a capture of its own: here it would cost more than it enables."""

    option: str
    rules: tuple[Named, ...]
    overhead: str


class Pitfall(Frozen):
    id: str
    text: str


class Plan(Shown):
    """The one command that lets most of the rules run. `enables` are rules that it enables by
    itself, empty where none waits for an option; `addresses` are findings about the capture that it
    does something about. `command` is empty for GPUs that nsys cannot record."""

    command: str
    options: tuple[PlanOption, ...]
    enables: tuple[Named, ...] = ()
    addresses: tuple[str, ...] = ()
    also: tuple[Also, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    pitfalls: tuple[Pitfall, ...] = ()

    def _sentence(self) -> str:
        return self.command

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((o.option, o.purpose, o.overhead) for o in self.options)


class Checkup(Shown):
    schema_version: int = SCHEMA_VERSION
    tool: Tool
    input: Input
    sentence: str
    recorded: Recorded
    questions: tuple[Question, ...]
    findings: tuple[Finding, ...]
    rules: int
    blocked: tuple[Blocked, ...]
    plan: Plan

    def _sentence(self) -> str:
        return self.sentence

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((q.answer, q.question, q.reason, q.remedy or "") for q in self.questions)
