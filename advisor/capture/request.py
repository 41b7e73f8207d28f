"""The request for a capture with all its names resolved, and the command that repeats it."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from advisor.errors import InputError, near
from advisor.knowledge.engine_signs import engines, options_for
from advisor.knowledge.shapes import CaptureVariable
from advisor.knowledge.verb_files import Goal, Phase, Place, Program, Window, capture_goals
from advisor.model.gain import Option
from advisor.model.options import PlanRequest, declared

_T = TypeVar("_T")
#: The placeholders of -o for each process.
_PATTERN = re.compile(r"%q\{\w+\}|%\w")


class PlanContext(Struct, frozen=True):
    """A request with everything that it names resolved, for one phase."""

    asked: PlanRequest
    goal: Goal
    engine: str
    program: Program
    place: Place
    window: Window
    phase: Phase | None
    version: str | None = None  # of the engine

    @property
    def name(self) -> str:
        """The output without its ending, as -o takes it."""
        if self.asked.name:
            return self.asked.name
        parts = ["advisor", self.goal.id.replace("-", "_"), *([self.phase] if self.phase else [])]
        suffix = self.place.suffix or ("_rank%q{RANK}" if self.prefix else "")
        return f"{self.place.folder}{'_'.join(parts)}{suffix}"

    @property
    def prefix(self) -> str:
        """The prefix that starts one process a rank, each under its own nsys."""
        return self.place.prefix or (self.program.launcher if self.goal.ranks else "")

    @property
    def command(self) -> str:
        """The program under nsys."""
        if self.asked.command:
            return shlex.join(self.asked.command)
        return self.program.serve if self.goal.session else self.program.benchmark

    def fill(self, text: str, here: bool = False) -> str:
        """The text with its placeholders; `here`: paths are those after fetching."""
        prompt, output = self.shape
        local = self.place.local + self.name.removeprefix(self.place.folder)
        name = local if here else self.name
        # nsys numbers the reports if it writes one for each range; ranks are compared range by range, so
        # the first is used.
        one, each = (".1", ".1" if self.goal.ranks else ".*") if self.asked.repeat else ("", "")
        values = {
            "command": self.command,
            "load": self.program.load,
            "name": name,
            "local": local,
            "report": f"{name}{one}.nsys-rep",
            "trace": f"{_one(name) if here else name}{one}.sqlite",
            "all_traces": f"{_PATTERN.sub('*', name)}{each}.sqlite",
            "wish": again(dataclasses.replace(self.asked, command=())),
            "program": f" -- {shlex.join(self.asked.command)}" if self.asked.command else "",
            "prompt": str(prompt),
            "output": str(output),
            "phase": self.phase or "run",
            "goal": self.goal.id,
            "ranks": str(self.asked.ranks),
        }
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", value)
        return text

    @property
    def shape(self) -> tuple[int, int]:
        """Tokens of the prompt and of the answer; a prefill is over with its first token."""
        usual = capture_goals().shapes[self.phase or "decode"]
        longer = self.asked.output_len if self.phase != "prefill" else None
        return self.asked.input_len or usual.prompt, longer or usual.output

    @property
    def variables(self) -> list[CaptureVariable]:
        """The engine's environment variables that its version takes."""
        return [v for v in engines()[self.engine].capture if v.known_in(self.version)]

    def lines(self, action: str) -> tuple[Option, ...]:
        """How the engine, in its version where known, carries out an action."""
        return options_for(action, self.engine, version=self.version)

    def of(self, phase: Phase | None) -> PlanContext:
        return replace(self, phase=phase)


def _one(name: str) -> str:
    """The output of one rank: ``report_HOST_rank0`` of ``report_%h_rank%q{RANK}``."""
    return _PATTERN.sub(lambda m: "HOST" if m[0] == "%h" else "0", name)


def context_of(asked: PlanRequest) -> PlanContext:
    """Raises InputError if the request names something unknown, or incompatible things."""
    data = capture_goals()
    goal = _named("goal", asked.goal, {g.id: g for g in data.goals})
    place = _named("place", asked.place, {p.id: p for p in data.places})
    engine, _, version = (asked.engine or "any").partition("@")
    _named("serving engine", engine, engines())
    program = data.program(engine, version or None)
    if goal.session and (asked.iterations or asked.repeat or asked.delay is not None):
        raise InputError(
            f"{goal.id}: nsys start and stop confine the recording; --iterations, "
            "--repeat and --delay do not apply"
        )
    window = program.window if goal.session else program.benchmark_window or program.window
    if asked.delay is not None or asked.duration is not None:
        if asked.iterations or asked.repeat:
            raise InputError(
                "--iterations and --repeat choose by range, --delay and --duration "
                "by the clock; give one of them"
            )
        window = "time"
    if asked.iterations and window != "variable":
        title = engines()[engine].title
        raise InputError(
            f"--iterations: {title} has no variable that names iterations; let the program call "
            "cudaProfilerStart and Stop, or give --delay and --duration"
        )
    if asked.iterations and not re.fullmatch(r"\d+-\d+", asked.iterations):
        raise InputError(f"--iterations: '{asked.iterations}' is not of the form 100-150")
    if asked.repeat and window == "time":
        window = "program"
    return PlanContext(asked, goal, engine, program, place, window, asked.phase, version or None)


def phases(context: PlanContext) -> tuple[Phase | None, ...]:
    """Both standard profiles where neither phase nor program are named."""
    both = context.goal.phases and context.phase is None and not context.asked.command
    if both and "{prompt}" in " ".join([context.command, *(c.command for c in context.program.prepare)]):
        return ("prefill", "decode")
    return (context.phase,)


def _named(what: str, name: str, known: Mapping[str, _T]) -> _T:
    if name not in known:
        raise InputError(f"no {what} '{name}'; {near(name, known)}")
    return known[name]


def again(asked: PlanRequest) -> str:
    """The command line that repeats the request without questions."""
    words = ["advisor", "capture", asked.goal]
    for key, option in declared(PlanRequest).items():
        value = getattr(asked, option.name)
        if value != option.default:
            words.append(f"--{key.replace('_', '-')}")
            text = ".".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [] if value is True else [text]
    return shlex.join([*words, *(["--", *asked.command] if asked.command else [])])
