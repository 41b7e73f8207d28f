"""The parts of a plan in the order in which they are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from advisor.capture.options import OF_START, joined, name_of
from advisor.capture.request import PlanContext, phases
from advisor.knowledge.capture import CommandLine, capture_goals
from advisor.knowledge.shapes import CaptureVariable
from advisor.model.capture_plan import Line, PlanStep
from advisor.model.findings import Option

SESSION = "advisor"


def steps(
    context: PlanContext,
    options: Sequence[str],
    variables: Sequence[CaptureVariable],
    graphs_off: Sequence[Option],
) -> tuple[PlanStep, ...]:
    """Go in, check, prepare, record, send load, fetch, read; parts without lines are left out."""
    record = _session if context.goal.session else _profile
    found: list[PlanStep] = [
        PlanStep(id="enter", title="Go in", lines=_lines(context, context.place.before)),
        _check(context),
        _prepare(context, graphs_off),
        *record(context, options, variables),
        PlanStep(id="fetch", title="Fetch", lines=_lines(context, context.place.after)),
        _read(context),
    ]
    return tuple(s for s in found if s.lines or s.notes)


def _lines(context: PlanContext, found: Iterable[CommandLine]) -> tuple[Line, ...]:
    """The commands for every phase that is recorded, each once."""
    lines = (Line(command=context.of(p).fill(c.command), what=c.what) for c in found for p in phases(context))
    return tuple(dict.fromkeys(lines))


def _check(context: PlanContext) -> PlanStep:
    data = capture_goals()
    checks = [*data.checks, *(data.counter_checks if context.goal.counters else ())]
    return PlanStep(id="check", title="Check", lines=_lines(context, checks))


def _prepare(context: PlanContext, graphs_off: Sequence[Option]) -> PlanStep:
    lines: list[Line] = []
    if not context.goal.session and not context.asked.command:
        lines += _lines(context, context.program.prepare)
    if context.window == "program":
        lines += [Line(command=c, what="in the program", shell=False) for c in context.program.code]
    off = "CUDA graphs off, for this run only"
    lines += [Line(command=o.line, what=off, shell=False) for o in graphs_off]
    return PlanStep(id="prepare", title="Prepare", lines=tuple(lines), notes=tuple(context.program.notes))


def _profile(
    context: PlanContext, options: Sequence[str], variables: Sequence[CaptureVariable]
) -> Iterator[PlanStep]:
    """One nsys profile for each phase."""
    lines = []
    for phase in phases(context):
        each = context.of(phase)
        words = [f"{v.variable}={v.value}" for v in variables]
        own: list[str] = []
        if context.prefix:
            # What starts the ranks does not hand the environment on; nsys does.
            own = [f"--env-var={','.join(words)}"] if words else []
            words = [context.fill(context.prefix)]
        words += ["nsys profile", *joined([*options, *own], context.asked.release)]
        words += [f"-o {each.name}", each.fill(each.command)]
        lines.append(Line(command=" ".join(words), what=_shape(each)))
    notes = tuple(context.place.notes)
    yield PlanStep(id="record", title="Record", lines=tuple(lines), notes=notes)
    if context.window == "request":
        warm = Line(command=context.fill(context.program.load), what="warm up; then keep sending")
        yield PlanStep(
            id="load",
            title="Send load, from another shell",
            lines=(warm, *_lines(context, context.program.requests)),
        )


def _shape(context: PlanContext) -> str:
    if context.phase is None or context.asked.command:
        return ""
    prompt, output = context.shape
    return f"{context.phase}: prompt {prompt} / output {output} tokens"


def _session(
    context: PlanContext, options: Sequence[str], variables: Sequence[CaptureVariable]
) -> Iterator[PlanStep]:
    """Launch once, record as often as wanted."""
    launch = [o for o in options if name_of(o) not in OF_START]
    start = [o for o in options if name_of(o) in OF_START]
    words = [*(f"{v.variable}={v.value}" for v in variables), "nsys launch"]
    words += [*joined(launch, context.asked.release), f"--session-new={SESSION}", "--", context.command]
    yield PlanStep(
        id="launch",
        title="Start the server, once",
        lines=(Line(command=" ".join(words)),),
        notes=("Sources of --trace belong to nsys launch, samples and the output to nsys start.",),
    )
    begin = ["nsys start", f"--session={SESSION}", *joined(start, context.asked.release)]
    seconds = context.asked.duration or context.goal.seconds
    yield PlanStep(
        id="record",
        title="Record under load, as often as you like",
        lines=(
            Line(command=context.fill(context.program.load), what="warm up; then keep sending"),
            Line(command=" ".join([*begin, f"-o {context.name}"]), what="from another shell"),
            Line(command=f"sleep {seconds}", what="while requests are running"),
            Line(command=f"nsys stop --session={SESSION}", what="writes the report"),
        ),
    )


def _read(context: PlanContext) -> PlanStep:
    lines = tuple(
        Line(command=context.of(p).fill(c.command, here=True), what=c.what)
        for c in context.goal.follow
        for p in phases(context)
    )
    return PlanStep(id="read", title="Read", lines=lines)
