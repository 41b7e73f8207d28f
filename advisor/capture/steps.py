"""The parts of a plan in the order in which they are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from advisor.capture.options import OF_START, joined, name_of
from advisor.capture.wish import Case, phases
from advisor.knowledge.capture import CommandLine, capture_goals
from advisor.knowledge.shapes import CaptureVariable
from advisor.model.capture_plan import Line, PlanStep
from advisor.model.findings import Option

SESSION = "advisor"


def steps(
    case: Case, options: Sequence[str], variables: Sequence[CaptureVariable], graphs_off: Sequence[Option]
) -> tuple[PlanStep, ...]:
    """Go in, check, prepare, record, send load, fetch, read; parts without lines are left out."""
    record = _session if case.goal.session else _profile
    found: list[PlanStep] = [
        PlanStep(id="enter", title="Go in", lines=_lines(case, case.place.before)),
        _check(case),
        _prepare(case, graphs_off),
        *record(case, options, variables),
        PlanStep(id="fetch", title="Fetch", lines=_lines(case, case.place.after)),
        _read(case),
    ]
    return tuple(s for s in found if s.lines or s.notes)


def _lines(case: Case, found: Iterable[CommandLine]) -> tuple[Line, ...]:
    """The commands for every phase that is recorded, each once."""
    lines = (Line(command=case.of(p).fill(c.command), what=c.what) for c in found for p in phases(case))
    return tuple(dict.fromkeys(lines))


def _check(case: Case) -> PlanStep:
    data = capture_goals()
    checks = [*data.checks, *(data.counter_checks if case.goal.counters else ())]
    return PlanStep(id="check", title="Check", lines=_lines(case, checks))


def _prepare(case: Case, graphs_off: Sequence[Option]) -> PlanStep:
    lines: list[Line] = []
    if not case.goal.session and not case.wish.command:
        lines += _lines(case, case.program.prepare)
    if case.window == "program":
        lines += [Line(command=c, what="in the program", shell=False) for c in case.program.code]
    off = "CUDA graphs off, for this run only"
    lines += [Line(command=o.line, what=off, shell=False) for o in graphs_off]
    return PlanStep(id="prepare", title="Prepare", lines=tuple(lines), notes=tuple(case.program.notes))


def _profile(case: Case, options: Sequence[str], variables: Sequence[CaptureVariable]) -> Iterator[PlanStep]:
    """One nsys profile for each phase."""
    lines = []
    for phase in phases(case):
        each = case.of(phase)
        words = [f"{v.variable}={v.value}" for v in variables]
        own: list[str] = []
        if case.prefix:
            # What starts the ranks does not hand the environment on; nsys does.
            own = [f"--env-var={','.join(words)}"] if words else []
            words = [case.fill(case.prefix)]
        words += ["nsys profile", *joined([*options, *own], case.wish.release)]
        words += [f"-o {each.name}", each.fill(each.command)]
        lines.append(Line(command=" ".join(words), what=_shape(each)))
    notes = tuple(case.place.notes)
    yield PlanStep(id="record", title="Record", lines=tuple(lines), notes=notes)
    if case.window == "request":
        warm = Line(command=case.fill(case.program.load), what="warm up; then keep sending")
        yield PlanStep(
            id="load",
            title="Send load, from another shell",
            lines=(warm, *_lines(case, case.program.requests)),
        )


def _shape(case: Case) -> str:
    shape = capture_goals().shapes.get(case.phase) if case.phase else None
    if shape is None or case.wish.command:
        return ""
    return f"{case.phase}: prompt {shape.prompt} / output {shape.output} tokens"


def _session(case: Case, options: Sequence[str], variables: Sequence[CaptureVariable]) -> Iterator[PlanStep]:
    """Launch once, record as often as wanted."""
    launch = [o for o in options if name_of(o) not in OF_START]
    start = [o for o in options if name_of(o) in OF_START]
    words = [*(f"{v.variable}={v.value}" for v in variables), "nsys launch"]
    words += [*joined(launch, case.wish.release), f"--session-new={SESSION}", "--", case.command]
    yield PlanStep(
        id="launch",
        title="Start the server, once",
        lines=(Line(command=" ".join(words)),),
        notes=("Sources of --trace belong to nsys launch, samples and the output to nsys start.",),
    )
    begin = ["nsys start", f"--session={SESSION}", *joined(start, case.wish.release)]
    seconds = case.wish.duration or case.goal.seconds
    yield PlanStep(
        id="record",
        title="Record under load, as often as you like",
        lines=(
            Line(command=case.fill(case.program.load), what="warm up; then keep sending"),
            Line(command=" ".join([*begin, f"-o {case.name}"]), what="from another shell"),
            Line(command=f"sleep {seconds}", what="while requests are running"),
            Line(command=f"nsys stop --session={SESSION}", what="writes the report"),
        ),
    )


def _read(case: Case) -> PlanStep:
    lines = tuple(
        Line(command=case.of(p).fill(c.command, here=True), what=c.what)
        for c in case.goal.follow
        for p in phases(case)
    )
    return PlanStep(id="read", title="Read", lines=lines)
