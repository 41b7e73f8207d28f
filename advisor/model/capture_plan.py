"""Documents of ``advisor capture`` (a plan, the tree of troubles) and of ``advisor doctor``.

Keys may be added, none is renamed.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import field

from advisor.model.capture import Shown
from advisor.model.findings import SCHEMA_VERSION, Finding, Input, StepSummary, Tool
from advisor.model.gain import Named as Named
from advisor.model.gain import Option
from advisor.model.records import Frozen
from advisor.model.rules import Reply


class Line(Frozen, frozen=True, kw_only=True):
    """Something to type. `shell` is false for text that belongs in the program or its options."""

    command: str
    what: str = ""
    shell: bool = True


class PlanStep(Frozen, frozen=True, kw_only=True):
    """One part of the plan: check, prepare, record, load, fetch, read."""

    id: str
    title: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()


class FlagText(Frozen, frozen=True, kw_only=True):
    """One option of a command of the plan; `supplies` names what it records."""

    option: str
    why: str
    supplies: tuple[str, ...] = ()
    overhead: str = ""


class VariableText(Frozen, frozen=True, kw_only=True):
    variable: str
    value: str
    effect: str


class Variant(Frozen, frozen=True, kw_only=True):
    """An optional addition for the same goal; `flags` are its options that nothing else explains."""

    id: str
    title: str
    text: str
    options: tuple[Option, ...] = ()
    lines: tuple[str, ...] = ()
    flags: tuple[FlagText, ...] = ()


class CapturePlan(Shown, frozen=True, kw_only=True):
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


class TroubleAnswer(Frozen, frozen=True, kw_only=True):
    text: str
    then: str


class TroubleNode(Frozen, frozen=True, kw_only=True):
    """A question with answers, or a remedy."""

    id: str
    symptom: str | None = None
    ask: str | None = None
    say: str | None = None
    commands: tuple[str, ...] = ()
    answers: tuple[TroubleAnswer, ...] = ()


class GoalList(Frozen, frozen=True, kw_only=True):
    """What can be planned: goals with their questions, engines, places and symptoms."""

    schema_version: int = SCHEMA_VERSION
    goals: dict[str, str]
    engines: tuple[str, ...]
    places: tuple[str, ...]
    symptoms: tuple[str, ...]


class Troubles(Frozen, frozen=True, kw_only=True):
    """The tree, or the part of it below one symptom."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    ask: str
    symptoms: tuple[str, ...]
    nodes: tuple[TroubleNode, ...]


# --- what a capture can and cannot answer: ``advisor doctor`` -------------------------------------


class Recorded(Frozen, frozen=True, kw_only=True):
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
    tables: dict[str, int] = field(default_factory=dict)


class Question(Frozen, frozen=True, kw_only=True):
    """A question in plain words, whether this capture answers it, why, and what would help."""

    id: str
    question: str
    answer: Reply
    reason: str
    remedy: str | None = None


class Blocked(Frozen, frozen=True, kw_only=True):
    """Rules that cannot run for the same reason; `remedy` is null if nothing would help."""

    remedy: str | None
    rules: tuple[Named, ...]
    why: tuple[str, ...] = ()


class PlanOption(Frozen, frozen=True, kw_only=True):
    """One option of the command: whether it is new, what it is for and what it costs."""

    option: str
    new: bool
    purpose: str = ""
    overhead: str = ""


class Also(Frozen, frozen=True, kw_only=True):
    """Something no option does: a change of the program or of the run, and the rules that it enables."""

    need: str
    rules: tuple[Named, ...] = ()


class LeftOut(Frozen, frozen=True, kw_only=True):
    """An option that needs a capture of its own: here it would cost more than it enables."""

    option: str
    rules: tuple[Named, ...]
    overhead: str


class Pitfall(Frozen, frozen=True, kw_only=True):
    id: str
    text: str


class Plan(Shown, frozen=True, kw_only=True):
    """The one command that lets most of the rules run. `enables` are rules that it enables by itself,
    empty if none waits for an option; `addresses` are findings about the capture that it addresses.
    `command` is empty for GPUs that nsys cannot record."""

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


class Checkup(Shown, frozen=True, kw_only=True):
    """What a capture can answer; `of_job` says which rank of a job it is."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    input: Input
    of_job: str | None = None
    steps: tuple[StepSummary, ...] = ()
    sentence: str
    recorded: Recorded
    questions: tuple[Question, ...]
    findings: tuple[Finding, ...]
    rules: int
    blocked: tuple[Blocked, ...]
    plan: Plan

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((q.answer, q.question, q.reason, q.remedy or "") for q in self.questions)
