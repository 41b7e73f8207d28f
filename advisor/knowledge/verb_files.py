"""Shapes and loaders of the files in `knowledge/` that single verbs read: goals of captures, troubleshooting,
the checklist, comparisons, redaction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Literal, Self

from msgspec import field

from advisor.knowledge.engine_signs import engines
from advisor.knowledge.files import capture_knowledge, shipped
from advisor.knowledge.launchers import plain, unwrapped
from advisor.knowledge.shapes import Data, File, Flag, Key, Text, release
from advisor.model.file_content import Constraint
from advisor.model.review import Stage
from advisor.numerals import read_int

#: In command lines of a program: ``{ranks}``, ``${MODEL}``.
_PLACEHOLDER = re.compile(r"\$?\{\w+\}")
OptionText = Annotated[str, Constraint(pattern=r"^-")]
Variable = Annotated[str, Constraint(pattern=r"^[A-Z][A-Z0-9_]*$")]
Phase = Literal["prefill", "decode"]
#: How a recording is confined to steady iterations.
Window = Literal["variable", "program", "request", "time"]


class Shape(Data, frozen=True, kw_only=True):
    prompt: Annotated[int, Constraint(gt=0)]
    output: Annotated[int, Constraint(gt=0)]


class CommandLine(Data, frozen=True, kw_only=True):
    command: Text
    what: Text


class Goal(Data, frozen=True, kw_only=True):
    """What to find out, and what has to be recorded for it; `without_phases` is the question about programs
    that have neither prefill nor decode."""

    id: Key
    title: Text
    question: Text
    without_phases: Text | None = None
    phases: bool = False
    counters: bool = False
    ranks: bool = False
    session: bool = False
    benchmark: bool = False
    options: Annotated[list[OptionText], Constraint(min_length=1)]
    native_options: list[OptionText] | None = None
    start_options: list[OptionText] = field(default_factory=list)
    wants: list[Literal["ranges", "gc", "preparation", "children"]] = field(default_factory=list)
    iterations: Annotated[str, Constraint(pattern=r"^\d+-\d+$")] = "100-150"
    seconds: Annotated[int, Constraint(gt=0)] = 30
    follow: Annotated[list[CommandLine], Constraint(min_length=1)]
    pitfalls: list[Key] = field(default_factory=list)
    variants: list[Key] = field(default_factory=list)


class Spelling(Data, frozen=True, kw_only=True):
    """`text` of commands, which releases before `since` spell as in `before`; `note` is for unknown
    releases."""

    text: Annotated[str, Constraint(min_length=1)]
    since: Text
    before: str
    note: Text | None = None


class Older(Data, frozen=True, kw_only=True):
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


class Program(Data, frozen=True, kw_only=True):
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
    prepare_without_graphs: list[CommandLine] = field(default_factory=list)
    range_option: str = ""
    by_phase: dict[Phase, str] = field(default_factory=dict)
    range_end: dict[Phase, Text] = field(default_factory=dict)
    phases: bool = True
    launched: bool = False
    older: list[Older] = field(default_factory=list)
    prepare: list[CommandLine] = field(default_factory=list)
    window: Window
    benchmark_window: Window | None = None
    requests: list[CommandLine] = field(default_factory=list)
    step_ranges: Annotated[list[CommandLine], Constraint(max_length=2)] = field(default_factory=list)
    code: list[Text] = field(default_factory=list)
    launcher: str = ""
    forks: bool = False
    warm_seconds: Annotated[int, Constraint(gt=0)] = 30
    notes: list[Text] = field(default_factory=list)
    spelled: list[Spelling] = field(default_factory=list)

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
                values = {name: getattr(change, name) for name in Older.__struct_fields__ if name != "before"}
                found = found.replaced(**{name: v for name, v in values.items() if v is not None})
        return found

    def serves(self, command: Sequence[str]) -> bool:
        """Whether this command line starts the engine's server."""
        words = unwrapped(_PLACEHOLDER.sub("", self.serve).split(" --")[0].split())
        found = plain(unwrapped([_PLACEHOLDER.sub("", word) for word in command]))
        return bool(found) and found[: len(words)] == plain(words)


class Place(Data, frozen=True, kw_only=True):
    """Where the program runs; `joining` are words behind `prefix` for ranks that find each other by MPI."""

    id: Key
    title: Text
    before: list[CommandLine] = field(default_factory=list)
    after: list[CommandLine] = field(default_factory=list)
    prefix: str = ""
    joining: str = ""
    suffix: str = ""
    folder: str = ""
    local: str = ""
    options: list[OptionText] = field(default_factory=list)
    ranks: bool = False
    pitfalls: list[Key] = field(default_factory=list)
    notes: list[Text] = field(default_factory=list)


class VariantData(Data, frozen=True, kw_only=True):
    """An optional addition for the same goal."""

    id: Key
    title: Text
    text: Text
    engines: list[Key] = field(default_factory=list)
    action: Key | None = None
    add: list[OptionText] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    commands: list[Text] = field(default_factory=list)


class GoalFile(File, frozen=True, kw_only=True):
    shapes: dict[Phase, Shape]
    always: list[OptionText]
    checks: list[CommandLine]
    counter_checks: list[CommandLine]
    goals: Annotated[list[Goal], Constraint(min_length=1)]
    programs: dict[Key, Program]
    places: Annotated[list[Place], Constraint(min_length=1)]
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


class Choice(Data, frozen=True, kw_only=True):
    text: Text
    then: Key


class Node(Data, frozen=True, kw_only=True):
    """A question with answers, or a remedy."""

    id: Key
    symptom: Text | None = None
    ask: Text | None = None
    say: Text | None = None
    commands: list[Text] = field(default_factory=list)
    answers: list[Choice] = field(default_factory=list)
    source: Annotated[str, Constraint(pattern=r"^[a-z0-9.-]+$")]

    def __post_init__(self) -> None:
        if bool(self.ask) == bool(self.say) or bool(self.ask) != (len(self.answers) >= 2):
            raise ValueError(f"{self.id}: a question with two answers or more, or a remedy")


class Start(Data, frozen=True, kw_only=True):
    ask: Text
    symptoms: Annotated[list[Key], Constraint(min_length=2)]


class TroubleFile(File, frozen=True, kw_only=True):
    start: Start
    nodes: Annotated[list[Node], Constraint(min_length=1)]

    @property
    def by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}


@cache
def troubleshooting() -> TroubleFile:
    """The decision tree of ``advisor capture --troubleshoot``."""
    return shipped("troubleshooting.yaml", TroubleFile)


# --- checklist.yaml --------------------------------------------------------------------------------


class ChecklistItem(Data, frozen=True, kw_only=True):
    """An item that only a person can answer has its texts here, any other in the rule whose cause is its
    `id`. `say` gives the number: the first line whose facts are all known is used."""

    id: Key
    stage: Stage
    #: Which of the eight steps of the short list it belongs to.
    step: Annotated[int, Constraint(ge=1)] | None = None
    question: Annotated[str, Constraint(pattern=r"^$|\?$")] = ""
    why: str = ""
    how: str = ""
    source: str = ""
    say: list[Text] = field(default_factory=list)
    command: Text | None = None


class ChecklistFile(File, frozen=True, kw_only=True):
    stages: dict[Stage, Text]
    items: Annotated[list[ChecklistItem], Constraint(min_length=1)]


@cache
def checklist_items() -> ChecklistFile:
    """The questions, in the order in which they are asked."""
    return shipped("checklist.yaml", ChecklistFile)


# --- moe_router.yaml, frameworks.yaml, comparison.yaml ----------------------------------------------


class RouterModel(Data, frozen=True, kw_only=True):
    name: Text
    method: Text


class RouterCommand(Data, frozen=True, kw_only=True):
    title: Text
    line: Text


class RouterFile(File, frozen=True, kw_only=True):
    """moe_router.yaml"""

    variable: Annotated[str, Constraint(pattern=r"^[A-Z][A-Z0-9_]*$")]
    models: Annotated[list[RouterModel], Constraint(min_length=1)]
    backends: Annotated[list[Text], Constraint(min_length=1)]
    notice: Text
    how: Text
    commands: Annotated[list[RouterCommand], Constraint(min_length=2)]
    repeat: Text


class Condition(Data, frozen=True, kw_only=True):
    """What the values of another row have to be: the largest at least `min_value`, and at most `max_ratio`
    times the least. `if_unknown`: whether it holds where no column has the row."""

    metric: Text
    min_value: float | None = None
    max_ratio: Annotated[float, Constraint(gt=1)] | None = None
    if_unknown: bool = False


class Difference(Data, frozen=True, kw_only=True):
    """The meaning of a difference between engines in a metric, from a ratio (or difference) on. `kind` is a
    row of names, `action` one of knowledge/actions.yaml that would change the worse side."""

    metric: Text
    min_ratio: Annotated[float, Constraint(gt=1)] | None = None
    min_difference: Annotated[float, Constraint(gt=0)] | None = None
    #: The larger value must reach this to be reported.
    min_value: float = 0.0
    where: list[Condition] = field(default_factory=list)
    kind: str = ""
    action: Key | None = None
    text: Text
    advice: str = ""


class FrameworkFile(File, frozen=True, kw_only=True):
    """frameworks.yaml"""

    differences: list[Difference]


@cache
def moe_router() -> RouterFile:
    return shipped("moe_router.yaml", RouterFile)


@cache
def framework_differences() -> tuple[Difference, ...]:
    return tuple(shipped("frameworks.yaml", FrameworkFile).differences)


class Limit(Data, frozen=True, kw_only=True):
    """From this multiple of `over` on, two captures differ in what `meaning` says."""

    value: float
    over: Text
    meaning: Text
    source: Text


class Factor(Data, frozen=True, kw_only=True):
    """The remaining comparability of two sides with this difference."""

    value: Annotated[float, Constraint(gt=0, lt=1)]
    meaning: Text
    source: Text


class ComparedValue(Data, frozen=True, kw_only=True):
    """A fact by which recordings without steps are compared: the words for it, which way is good, and whether
    it has to be alike on both sides."""

    fact: Text
    what: Text
    better: Literal["lower", "higher"] | None = None
    alike: bool = False


class Made(Data, frozen=True, kw_only=True):
    """The number, with `over` a ratio of two, by which it is known that a fix was made."""

    fact: Text
    over: Text | None = None
    expect: Literal["decrease", "increase"]


class ComparisonFile(File, frozen=True, kw_only=True):
    made: dict[Text, Made]
    limits: dict[Key, Limit]
    values: list[ComparedValue]
    context: dict[Text, Literal["fixed", "bounded"]]
    factors: dict[Key, Factor]


@cache
def _comparison() -> ComparisonFile:
    return shipped("comparison.yaml", ComparisonFile)


def limit(name: str) -> float:
    return _comparison().limits[name].value


def made_by(what_if: str) -> Made | None:
    """The number by which it is known whether the fix of a what-if was made; None if there is none."""
    return _comparison().made.get(what_if)


def signs_of_fixes() -> dict[str, Made]:
    """All of them, by what-if."""
    return _comparison().made


def compared_values() -> list[ComparedValue]:
    """By what recordings without steps are compared, the most telling first."""
    return _comparison().values


def read_of_context(operation: str) -> str:
    """What an operation reads of the context in a decode step: ``fixed``, ``bounded``, or ``any``."""
    return _comparison().context.get(operation, "any")


def factor(name: str) -> float:
    return _comparison().factors[name].value


# --- redaction.yaml ---------------------------------------------------------------------------------

OptionName = Annotated[str, Constraint(pattern=r"^[a-z0-9]+(?:[.-][a-z0-9]+)*$")]


class RedactionFile(File, frozen=True, kw_only=True):
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
