"""Shapes and loaders of the files in `knowledge/` that single verbs read: goals of captures, troubleshooting,
the checklist, comparisons, redaction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from advisor.knowledge.engine_signs import engines
from advisor.knowledge.files import capture_knowledge, shipped
from advisor.knowledge.launchers import plain, unwrapped
from advisor.knowledge.shapes import Data, File, Flag, Key, Text, release
from advisor.model.review import Stage
from advisor.numerals import read_int

#: In command lines of a program: ``{ranks}``, ``${MODEL}``.
_PLACEHOLDER = re.compile(r"\$?\{\w+\}")
OptionText = Annotated[str, Field(pattern=r"^-")]
Variable = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
Phase = Literal["prefill", "decode"]
#: How a recording is confined to steady iterations.
Window = Literal["variable", "program", "request", "time"]


class Shape(Data):
    prompt: int = Field(gt=0)
    output: int = Field(gt=0)


class CommandLine(Data):
    command: Text
    what: Text


class Goal(Data):
    """What to find out, and what has to be recorded for it."""

    id: Key
    title: Text
    question: Text
    phases: bool = False
    counters: bool = False
    ranks: bool = False
    session: bool = False
    benchmark: bool = False
    options: list[OptionText] = Field(min_length=1)
    native_options: list[OptionText] | None = None
    start_options: list[OptionText] = Field(default_factory=list)
    wants: list[Literal["ranges", "gc", "preparation", "children"]] = Field(default_factory=list)
    iterations: Annotated[str, Field(pattern=r"^\d+-\d+$")] = "100-150"
    seconds: int = Field(default=30, gt=0)
    follow: list[CommandLine] = Field(min_length=1)
    pitfalls: list[Key] = Field(default_factory=list)
    variants: list[Key] = Field(default_factory=list)


class Spelling(Data):
    """`text` of commands, which releases before `since` spell as in `before`; `note` is for unknown
    releases."""

    text: str = Field(min_length=1)
    since: Text
    before: str
    note: Text | None = None


class Older(Data):
    """What differs in releases before one: fields of the program."""

    before: Text
    serve: Text | None = None
    benchmark: Text | None = None
    load: Text | None = None
    window: Window | None = None
    benchmark_window: Window | None = None
    requests: list[CommandLine] | None = None
    step_ranges: list[CommandLine] | None = None
    range_option: str | None = None
    by_phase: dict[Phase, str] | None = None
    range_end: dict[Phase, Text] | None = None
    notes: list[Text] | None = None


class Program(Data):
    """How an engine is started, measured and told when to record; capture_goals.yaml says what each field
    is."""

    serve: Text
    benchmark: Text
    load: Text
    own_ranks: bool = False
    parallel: str = ""
    benchmark_parallel: str | None = None
    rank_wrapper: str = ""
    without_graphs: str = ""
    prepare_without_graphs: list[CommandLine] = Field(default_factory=list)
    range_option: str = ""
    by_phase: dict[Phase, str] = Field(default_factory=dict)
    range_end: dict[Phase, Text] = Field(default_factory=dict)
    phases: bool = True
    launched: bool = False
    older: list[Older] = Field(default_factory=list)
    prepare: list[CommandLine] = Field(default_factory=list)
    window: Window
    benchmark_window: Window | None = None
    requests: list[CommandLine] = Field(default_factory=list)
    step_ranges: list[CommandLine] = Field(default_factory=list, max_length=2)
    code: list[Text] = Field(default_factory=list)
    launcher: str = ""
    forks: bool = False
    warm_seconds: int = Field(default=30, gt=0)
    notes: list[Text] = Field(default_factory=list)
    spelled: list[Spelling] = Field(default_factory=list)

    def of(self, version: str | None) -> Self:
        """The same as spelled by this release of the engine."""
        used, found = release(version), self
        for one in self.spelled:
            if used is None:
                notes = [*found.notes, *([one.note] if one.note else [])]
                found = found.replaced(notes=notes)
            elif used < (release(one.since) or ()):
                commands = ("serve", "benchmark", "load")
                older = {name: getattr(found, name).replace(one.text, one.before) for name in commands}
                found = found.replaced(**older)
        for change in self.older:
            if used is not None and used < (release(change.before) or ()):
                values = {name: getattr(change, name) for name in Older.model_fields if name != "before"}
                found = found.replaced(**{name: v for name, v in values.items() if v is not None})
        return found

    def serves(self, command: Sequence[str]) -> bool:
        """Whether this command line starts the engine's server."""
        words = unwrapped(_PLACEHOLDER.sub("", self.serve).split(" --")[0].split())
        found = plain(unwrapped([_PLACEHOLDER.sub("", word) for word in command]))
        return bool(found) and found[: len(words)] == plain(words)


class Place(Data):
    """Where the program runs."""

    id: Key
    title: Text
    before: list[CommandLine] = Field(default_factory=list)
    after: list[CommandLine] = Field(default_factory=list)
    prefix: str = ""
    suffix: str = ""
    folder: str = ""
    local: str = ""
    options: list[OptionText] = Field(default_factory=list)
    ranks: bool = False
    pitfalls: list[Key] = Field(default_factory=list)
    notes: list[Text] = Field(default_factory=list)


class VariantData(Data):
    """An optional addition for the same goal."""

    id: Key
    title: Text
    text: Text
    engines: list[Key] = Field(default_factory=list)
    action: Key | None = None
    add: list[OptionText] = Field(default_factory=list)
    variables: list[Variable] = Field(default_factory=list)
    commands: list[Text] = Field(default_factory=list)


class GoalFile(File):
    shapes: dict[Phase, Shape]
    always: list[OptionText]
    checks: list[CommandLine]
    counter_checks: list[CommandLine]
    goals: list[Goal] = Field(min_length=1)
    programs: dict[Key, Program]
    places: list[Place] = Field(min_length=1)
    variants: list[VariantData]
    flags: list[Flag]

    def engine_names(self) -> list[str]:
        """The engines to choose from: those with a program of their own first, in its order."""
        return [e for e in dict.fromkeys((*self.programs, *engines())) if e != "any"]

    def program(self, engine: str, version: str | None = None) -> Program:
        """How the engine is started, if need be as the newest release of its base."""
        known = engines()
        name: str | None = engine
        while name is not None and name not in self.programs:
            name = known[name].base if name in known else None
        return self.programs[name or "any"].of(version if name == engine else None)


@cache
def capture_goals() -> GoalFile:
    """Goals, programs, places and variants of the capture planner."""
    return shipped("capture_goals.yaml", GoalFile)


def nsys_needed(release: tuple[int, int], cuda: str) -> str | None:
    """The release of nsys that a driver of this CUDA version needs, where `release` is older."""
    major = cuda.partition(".")[0]
    for entry in capture_knowledge().releases:
        if str(entry.cuda) == major and release < tuple(read_int(n) or 0 for n in entry.nsys.split(".")):
            return entry.nsys
    return None


# --- troubleshooting.yaml ------------------------------------------------------------------------


class Choice(Data):
    text: Text
    then: Key


class Node(Data):
    """A question with answers, or a remedy."""

    id: Key
    symptom: Text | None = None
    ask: Text | None = None
    say: Text | None = None
    commands: list[Text] = Field(default_factory=list)
    answers: list[Choice] = Field(default_factory=list)
    source: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")]

    @model_validator(mode="after")
    def _question_or_remedy(self) -> Self:
        if bool(self.ask) == bool(self.say) or bool(self.ask) != (len(self.answers) >= 2):
            raise ValueError(f"{self.id}: a question with two answers or more, or a remedy")
        return self


class Start(Data):
    ask: Text
    symptoms: list[Key] = Field(min_length=2)


class TroubleFile(File):
    start: Start
    nodes: list[Node] = Field(min_length=1)

    @property
    def by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}


@cache
def troubleshooting() -> TroubleFile:
    """The decision tree of ``advisor capture --troubleshoot``."""
    return shipped("troubleshooting.yaml", TroubleFile)


# --- checklist.yaml --------------------------------------------------------------------------------


class ChecklistItem(Data):
    """An item that only a person can answer has its texts here, any other in the rule whose cause is its
    `id`. `say` gives the number: the first line whose facts are all known is used."""

    id: Key
    stage: Stage
    #: Which of the eight steps of the short list it belongs to.
    step: Annotated[int, Field(ge=1)] | None = None
    question: Annotated[str, Field(pattern=r"\?$")] | Literal[""] = ""
    why: str = ""
    how: str = ""
    source: str = ""
    say: list[Text] = Field(default_factory=list)
    command: Text | None = None


class ChecklistFile(File):
    stages: dict[Stage, Text]
    items: list[ChecklistItem] = Field(min_length=1)


@cache
def checklist_items() -> ChecklistFile:
    """The questions, in the order in which they are asked."""
    return shipped("checklist.yaml", ChecklistFile)


# --- moe_router.yaml, frameworks.yaml, comparison.yaml ----------------------------------------------


class RouterModel(Data):
    name: Text
    method: Text


class RouterCommand(Data):
    title: Text
    line: Text


class RouterFile(File):
    """moe_router.yaml"""

    variable: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
    models: list[RouterModel] = Field(min_length=1)
    backends: list[Text] = Field(min_length=1)
    notice: Text
    how: Text
    commands: list[RouterCommand] = Field(min_length=2)
    repeat: Text


class Condition(Data):
    """What the values of another row have to be: the largest at least `min_value`, and at most `max_ratio`
    times the least. `if_unknown`: whether it holds where no column has the row."""

    metric: Text
    min_value: float | None = None
    max_ratio: float | None = Field(default=None, gt=1)
    if_unknown: bool = False


class Difference(Data):
    """The meaning of a difference between engines in a metric, from a ratio (or difference) on. `kind` is a
    row of names, `action` one of knowledge/actions.yaml that would change the worse side."""

    metric: Text
    min_ratio: float | None = Field(default=None, gt=1)
    min_difference: float | None = Field(default=None, gt=0)
    #: The larger value must reach this to be reported.
    min_value: float = 0.0
    where: list[Condition] = Field(default_factory=list)
    kind: str = ""
    action: Key | None = None
    text: Text


class FrameworkFile(File):
    """frameworks.yaml"""

    differences: list[Difference]


@cache
def moe_router() -> RouterFile:
    return shipped("moe_router.yaml", RouterFile)


@cache
def framework_differences() -> tuple[Difference, ...]:
    return tuple(shipped("frameworks.yaml", FrameworkFile).differences)


class Limit(Data):
    """From this multiple of `over` on, two captures differ in what `meaning` says."""

    value: float
    over: Text
    meaning: Text
    source: Text


class Factor(Data):
    """The remaining comparability of two sides with this difference."""

    value: float = Field(gt=0, lt=1)
    meaning: Text
    source: Text


class ComparedValue(Data):
    """A fact by which recordings without steps are compared: the words for it, which way is good, and whether
    it has to be alike on both sides."""

    fact: Text
    what: Text
    better: Literal["lower", "higher"] | None = None
    alike: bool = False


class ComparisonFile(File):
    limits: dict[Key, Limit]
    values: list[ComparedValue]
    context: dict[Text, Literal["fixed", "bounded"]]
    factors: dict[Key, Factor]


@cache
def _comparison() -> ComparisonFile:
    return shipped("comparison.yaml", ComparisonFile)


def limit(name: str) -> float:
    return _comparison().limits[name].value


def compared_values() -> list[ComparedValue]:
    """By what recordings without steps are compared, the most telling first."""
    return _comparison().values


def read_of_context(operation: str) -> str:
    """What an operation reads of the context in a decode step: ``fixed``, ``bounded``, or ``any``."""
    return _comparison().context.get(operation, "any")


def factor(name: str) -> float:
    return _comparison().factors[name].value


# --- redaction.yaml ---------------------------------------------------------------------------------

OptionName = Annotated[str, Field(pattern=r"^[a-z0-9]+(?:[.-][a-z0-9]+)*$")]


class RedactionFile(File):
    """What stays of a command line in a redacted copy: values of `options`, `words` anywhere. `flags` take no
    value, `single_dash` are names of several letters behind one dash, and the values of `people` name a
    person, a customer or a machine. Names have dashes for underscores, and none in front."""

    options: frozenset[OptionName]
    flags: frozenset[OptionName]
    single_dash: frozenset[OptionName]
    words: frozenset[Text]
    people: frozenset[OptionName]


@cache
def redaction() -> RedactionFile:
    return shipped("redaction.yaml", RedactionFile)
