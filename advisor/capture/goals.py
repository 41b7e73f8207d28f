"""From a goal and an engine to a plan of the capture, every option explained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from advisor import __version__
from advisor.capture.nsys_options import OF_START, explained, joined, merged, name_of, newer, pitfalls
from advisor.capture.request import PlanContext, again, context_of, pasted, phases
from advisor.errors import InputError, near
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.shapes import CaptureVariable
from advisor.knowledge.verb_files import CommandLine, VariantData, capture_goals, troubleshooting
from advisor.model import capture_plan as m
from advisor.model.findings import Option, Tool
from advisor.model.options import PlanRequest

# --- the parts of a plan in the order in which they are done --------------------------------------

SESSION = "advisor"


def steps(
    context: PlanContext,
    options: Sequence[str],
    variables: Sequence[CaptureVariable],
    graphs_off: Sequence[Option],
) -> tuple[m.PlanStep, ...]:
    """Go in, check, prepare, record, send load, fetch, read; empty parts are left out."""
    data = capture_goals()
    checks = [*data.checks, *(data.counter_checks if context.goal.counters else ())]
    record = _session if context.goal.session else _profile
    each = [(context.of(p), c) for c in context.goal.follow for p in phases(context)]
    follow = tuple(m.Line(command=at.fill(c.command, here=True), what=c.what) for at, c in each)
    found: list[m.PlanStep] = [
        m.PlanStep(id="enter", title="Go in", lines=_lines(context, context.place.before)),
        m.PlanStep(id="check", title="Check", lines=_lines(context, checks)),
        _prepare(context, graphs_off),
        *record(context, options, variables),
        m.PlanStep(id="fetch", title="Fetch", lines=_lines(context, context.place.after)),
        m.PlanStep(id="read", title="Read", lines=follow),
    ]
    return tuple(s for s in found if s.lines or s.notes)


def _lines(context: PlanContext, found: Iterable[CommandLine]) -> tuple[m.Line, ...]:
    """The commands for every phase that is recorded, each once."""
    lines = (
        m.Line(command=context.of(p).fill(c.command), what=c.what) for c in found for p in phases(context)
    )
    return tuple(dict.fromkeys(lines))


def _prepare(context: PlanContext, graphs_off: Sequence[Option]) -> m.PlanStep:
    lines: list[m.Line] = []
    if not context.goal.session and not context.asked.command:
        lines += _lines(context, context.program.prepare)
    if context.window == "program":
        lines += [m.Line(command=c, what="in the program", shell=False) for c in context.program.code]
    if context.asked.without_graphs:
        lines += _lines(context, context.program.prepare_without_graphs)
    off = "CUDA graphs off, for this run only"
    lines += [m.Line(command=o.line, what=off, shell=False) for o in graphs_off]
    return m.PlanStep(id="prepare", title="Prepare", lines=tuple(lines), notes=tuple(context.program.notes))


def _profile(
    context: PlanContext, options: Sequence[str], variables: Sequence[CaptureVariable]
) -> Iterator[m.PlanStep]:
    """One nsys profile for each phase."""
    lines = []
    for phase in phases(context):
        each = context.of(phase)
        words, own = [v.setting for v in variables], merged(options, _range_end(each, options))
        if context.prefix:
            # The launcher of the ranks does not pass the environment on; nsys does.
            own += _env_var(variables)
            words = [context.fill(context.prefix)]
        words += ["nsys profile", *joined(own, context.asked.release)]
        words += [f"-o {pasted(each.name)}", each.fill(each.command)]
        lines.append(m.Line(command=" ".join(words), what=_shape(each)))
    notes = tuple(context.place.notes) if context.prefix or not context.place.prefix else ()
    yield m.PlanStep(id="record", title="Record", lines=tuple(lines), notes=notes)
    if context.serves and context.window in ("request", "time"):
        now = "warm up; then keep sending" if context.window == "request" else "once it answers, to the end"
        loads = _lines(context, [CommandLine(command="{load}", what=now)])
        lines = [*loads, *(_lines(context, context.program.requests) if context.window == "request" else ())]
        yield m.PlanStep(id="load", title="Send load, from another shell", lines=tuple(lines))


def _range_end(context: PlanContext, options: Sequence[str]) -> list[str]:
    """How the range of this phase ends, where its program makes several, or ends it early."""
    end = context.program.range_end.get(context.phase or "decode")
    chosen = end is None or context.asked.repeat or context.asked.command or RANGE not in options
    return [] if chosen else [f"--capture-range-end={end}"]


def _env_var(variables: Sequence[CaptureVariable]) -> list[str]:
    """The option that lets nsys set the variables."""
    return [f"--env-var={','.join(v.setting for v in variables)}"] if variables else []


def _shape(context: PlanContext) -> str:
    if context.phase is None or context.asked.command:
        return "steps of denoising" if not context.program.phases and not context.asked.command else ""
    prompt, output = context.shape
    return f"{context.phase}: prompt {prompt} / output {output} tokens"


def _session(
    context: PlanContext, options: Sequence[str], variables: Sequence[CaptureVariable]
) -> Iterator[m.PlanStep]:
    """Launch once, record as often as wanted."""
    launch = [o for o in options if name_of(o) not in OF_START]
    start = [o for o in options if name_of(o) in OF_START]
    words = [*(v.setting for v in variables), "nsys launch", *joined(launch, context.asked.release)]
    words += [f"--session-new={SESSION}", "--", context.fill(context.command)]
    yield m.PlanStep(
        id="launch",
        title="Start the server, once",
        lines=(m.Line(command=" ".join(words)),),
        notes=("Sources of --trace belong to nsys launch, samples and the output to nsys start.",),
    )
    begin = ["nsys start", f"--session={SESSION}", *joined(start, context.asked.release)]
    seconds = context.asked.duration or context.goal.seconds
    ranges = _lines(context, context.program.step_ranges)
    yield m.PlanStep(
        id="record",
        title="Record under load, as often as you like",
        lines=(
            m.Line(command=context.fill(context.program.load), what="warm up; then keep sending"),
            m.Line(command=" ".join([*begin, f"-o {pasted(context.name)}"]), what="from another shell"),
            *ranges[:1],
            m.Line(command=f"sleep {seconds}", what="while requests are running"),
            *ranges[1:],
            m.Line(command=f"nsys stop --session={SESSION}", what="writes the report"),
        ),
    )


RANGE = "--capture-range=cudaProfilerApi"


def plan(asked: PlanRequest) -> m.CapturePlan:
    """The plan; raises InputError for unknown names in the request."""
    context = context_of(asked)
    options, variables = _options(context), _variables(context)
    off = _graphs_off(context)
    done = steps(context, options, variables, off)
    flags = tuple(explained(line.command for s in done for line in s.lines))
    kept = merged(options, _range_end(context.of(phases(context)[-1]), options))
    of_launch = [o for o in kept if not context.goal.session or name_of(o) not in OF_START]
    too_new = (m.Pitfall(id="newer-nsys", text=text) for text in newer(options, asked.release))
    return m.CapturePlan(
        tool=Tool(version=__version__, engine="planner"),
        goal=context.goal.id,
        title=context.goal.title,
        question=(not context.program.phases and context.goal.without_phases) or context.goal.question,
        engine=context.engine,
        engine_title=engines()[context.engine].title,
        phase=asked.phase,
        place=context.place.id,
        place_title=context.place.title,
        steps=done,
        flags=flags,
        variables=tuple(
            m.VariableText(variable=v.variable, value=v.value, effect=v.effect) for v in variables
        ),
        pitfalls=(*too_new, *_pitfalls(context, options)),
        variants=tuple(_variants(context, options, {f.option for f in flags})),
        again=again(asked),
        # Options one a line, without output and program.
        command_file=(*joined(of_launch, asked.release), *_env_var(variables)),
    )


def _graphs_off(context: PlanContext) -> tuple[Option, ...]:
    """What switches CUDA graphs off in a program whose command line has no option for it."""
    if not context.asked.without_graphs or "{graphs}" in context.program.benchmark:
        return ()
    return context.lines("profile-without-graphs")


def _options(context: PlanContext) -> list[str]:
    """The options of the recording, one source of --trace an option."""
    goal, asked = context.goal, context.asked
    native = goal.native_options if context.engine == "native" else None
    options = goal.options if native is None else native
    options = merged(options, [*goal.start_options, *(context.place.options if context.prefix else ())])
    if asked.without_graphs:  # what still is a graph is shown by node
        options = merged(options, ["--cuda-graph-trace=node"])
    if context.program.forks:
        options.append("--trace-fork-before-exec=true")
    if not goal.session:
        options = merged(options, _confined(context))
    return merged(options, capture_goals().always)


def _confined(context: PlanContext) -> list[str]:
    """How the recording is confined to steady iterations."""
    asked = context.asked
    if context.window != "time":
        return [RANGE, f"--capture-range-end={f'repeat:{asked.repeat}' if asked.repeat else 'stop'}"]
    delay = context.program.warm_seconds if asked.delay is None else asked.delay
    return [f"--delay={delay}", f"--duration={asked.duration or context.goal.seconds}"]


def _variables(context: PlanContext) -> list[CaptureVariable]:
    """The engine's environment variables for this goal."""
    found = []
    for variable in context.variables:
        if "capture-range" in variable.supplies:
            if context.window == "variable" and not context.goal.session:
                value = context.asked.iterations or context.goal.iterations
                found.append(variable.replaced(value=value))
        elif {*variable.supplies} & {*context.goal.wants, "children", "profiler"}:
            found.append(variable)
    return found


def _pitfalls(context: PlanContext, options: Sequence[str]) -> Iterator[m.Pitfall]:
    """Pitfalls of the goal, the place and the options."""
    here = {*options, *map(name_of, options)}
    if context.goal.counters:
        here.add("first-samples")
    named = {*context.goal.pitfalls, *context.place.pitfalls}
    if context.asked.without_graphs:
        named.discard("graph-is-default")
    return pitfalls(here, named)


def _variants(context: PlanContext, options: Sequence[str], listed: set[str]) -> Iterator[m.Variant]:
    """Every variant that fits; options not yet `listed` are explained where they first occur."""
    known, asked = {v.id: v for v in capture_goals().variants}, context.asked
    # Requested already, or incompatible with it.
    settled = ["without-graphs"] if asked.without_graphs else []
    if asked.repeat or asked.delay is not None or asked.duration is not None:
        settled.append("repeat-ranges")
    for name in context.goal.variants:
        data = known[name]
        if (data.engines and context.engine not in data.engines) or name in settled:
            continue
        lines = tuple(_variant_lines(context, data, options))
        flags = tuple(f for f in explained(lines) if f.option not in listed)
        listed |= {f.option for f in flags}
        yield m.Variant(
            id=data.id,
            title=data.title,
            text=data.text,
            options=() if data.action is None else context.lines(data.action),
            lines=lines,
            flags=flags,
        )


def _variant_lines(context: PlanContext, data: VariantData, options: Sequence[str]) -> Iterator[str]:
    known = {v.variable: v for v in context.variables}
    variables = [known[name].setting for name in data.variables if name in known]
    added = joined([o for o in data.add if o not in options], context.asked.release)
    if added or variables:
        yield " ".join([*variables, "nsys profile", *added, "..."])
    # If both phases are recorded, an example uses the first.
    one = context.of(phases(context)[0])
    for command in data.commands:
        yield one.fill(command, here=command.startswith("advisor "))


# --- the troubleshooting tree as a document, whole or below one symptom ---------------------------


def troubles(symptom: str | None = None) -> m.Troubles:
    """The tree; raises InputError for an unknown symptom."""
    data = troubleshooting()
    known = data.by_id
    symptoms = [n.id for n in data.nodes if n.symptom is not None]
    if symptom is not None and symptom not in known:
        raise InputError(f"no symptom '{symptom}'; {near(symptom, symptoms)}")
    first = (symptom,) if symptom is not None else tuple(data.start.symptoms)
    nodes: dict[str, m.TroubleNode] = {}
    left = list(first)
    while left:
        n = known[left.pop(0)]
        if n.id not in nodes:
            nodes[n.id] = m.TroubleNode(
                **{field: getattr(n, field) for field in ("id", "symptom", "ask", "say")},
                commands=tuple(n.commands),
                answers=tuple(m.TroubleAnswer(text=a.text, then=a.then) for a in n.answers),
            )
            left = [*(a.then for a in n.answers), *left]
    return m.Troubles(
        tool=Tool(version=__version__, engine="planner"),
        ask=data.start.ask,
        symptoms=first,
        nodes=tuple(nodes.values()),
    )
