"""The request for a capture with all its names resolved, and the command that repeats it."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
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
#: Options by which a command line says over how many GPUs it works.
_SIZE = re.compile(
    r"--?(?:tp|pp|dp|num-shard|(?:tp|pp|dp|tensor|pipeline|data)[-_](?:parallel[-_])?size)(?:=|$)"
)
#: What a shell would not take as it is; wildcards and the placeholders of -o are left.
_UNSAFE = re.compile(r"[^\w@%+=:,./*{}-]+")
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
        suffix = (self.place.suffix or "_rank%q{RANK}") if self.prefix else ""
        return f"{self.place.folder}{'_'.join(parts)}{suffix}"

    @property
    def ranks(self) -> int:
        """Processes of the job."""
        return self.asked.ranks or (2 if self.goal.ranks or self.place.ranks else 1)

    @property
    def prefix(self) -> str:
        """The prefix that starts one process a rank, each under its own nsys; nothing where one nsys stands
        around a program that starts its ranks itself."""
        program = self.program
        if self.place.prefix and (not program.own_ranks or program.rank_wrapper):
            words = (self.place.prefix, self.place.joining if program.rank_wrapper else "")
            return " ".join(filter(None, words))
        launched = (self.ranks > 1 or self.goal.ranks or program.launched) and not self.goal.session
        return program.launcher if launched else ""

    @property
    def serves(self) -> bool:
        """Whether the program under nsys is the server of the engine, which works when requests come."""
        program = self.program
        if self.asked.command:
            return program.serves(self.asked.command)
        return self.goal.session or program.serves(program.benchmark.split())

    @property
    def command(self) -> str:
        """The program under nsys, with what makes it run as the plan wants: its parallel size, no graphs, the
        option by which it confines the recording. Words that a given command has are not added."""
        program = self.program
        own = program.serve if self.goal.session or self.serves else program.benchmark
        size = program.parallel if own == program.serve else program.benchmark_parallel or program.parallel
        parts = {
            "parallel": size if self.ranks > 1 else "",
            "graphs": self._without_graphs,
            "range": program.range_option if self.window in ("program", "request") else "",
            "by_phase": program.by_phase.get(self.phase or "decode", ""),
        }
        if self.asked.command:
            given = shlex.join(self.asked.command)
            sized = self.asked.ranks is None or any(map(_SIZE.match, self.asked.command))
            keys = ("range", *(() if sized else ("parallel",)), "graphs")
            added = [part for key in keys if f"{{{key}}}" in own and (part := parts[key])]
            text = _added(given, [p for p in added if _option(p) not in self.asked.command])
        else:
            text = program.serve if self.goal.session else program.benchmark
            for key, part in parts.items():
                text = text.replace(f"{{{key}}}", f" {part}" if part else "")
        return f"{program.rank_wrapper} {text}" if program.rank_wrapper and self.prefix else text

    @property
    def _without_graphs(self) -> str:
        """The option of the engine for a run without CUDA graphs, where it has one of its command line."""
        if not self.asked.without_graphs:
            return ""
        if self.program.without_graphs:
            return self.program.without_graphs
        lines = (o.line.partition(" # ")[0].strip() for o in self.lines("profile-without-graphs"))
        return next((line for line in lines if line.startswith("--")), "")

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
            "name": pasted(name),
            "local": pasted(local),
            "report": pasted(f"{name}{one}.nsys-rep"),
            "trace": pasted(f"{_one(name) if here else name}{one}.sqlite"),
            "all_traces": pasted(f"{_PATTERN.sub('*', name)}{each}.sqlite"),
            "wish": again(dataclasses.replace(self.asked, command=())),
            "program": f" -- {shlex.join(self.asked.command)}" if self.asked.command else "",
            "prompt": str(prompt),
            "output": str(output),
            "phase": self.phase or "run",
            "goal": self.goal.id,
            "ranks": str(self.ranks),
            "requests": str(self._requests),
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
    def _requests(self) -> int:
        """Requests, one after the other, that last for twice the iterations that are recorded."""
        last = (self.asked.iterations or self.goal.iterations).partition("-")[2]
        return max(8, -(-2 * int(last) // self.shape[1])) if last else 8

    @property
    def variables(self) -> list[CaptureVariable]:
        """The engine's environment variables that its version takes."""
        return [v for v in engines()[self.engine].capture if v.known_in(self.version)]

    def lines(self, action: str) -> tuple[Option, ...]:
        """How the engine, in its version where known, carries out an action."""
        return options_for(action, self.engine, version=self.version)

    def of(self, phase: Phase | None) -> PlanContext:
        return replace(self, phase=phase)


def _option(words: str) -> str:
    """``--tp`` of ``--tp 8`` and ``--tp=8``."""
    return re.split(r"[ =]", words, maxsplit=1)[0]


def _added(command: str, parts: Sequence[str]) -> str:
    """A command line with further options behind it, and variables before it."""
    options = [part for part in parts if part.startswith("-")]
    variables = [part for part in parts if not part.startswith("-")]
    return " ".join([*(["env", *variables] if variables else []), command, *options])


def pasted(path: str) -> str:
    """A path as it is typed: blanks and the like are quoted, wildcards and placeholders work."""
    return _UNSAFE.sub(lambda found: shlex.quote(found[0]), path)


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
    serves = goal.session or program.serves(asked.command or program.benchmark.split())
    window = program.window if serves else program.benchmark_window or program.window
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
    program = context.program
    if not program.phases:
        return (None,)
    both = context.goal.phases and context.phase is None and not context.asked.command
    own = [program.benchmark, *(c.command for c in program.prepare), program.load if context.serves else ""]
    if both and "{prompt}" in " ".join(own):
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
