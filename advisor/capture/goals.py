"""From a goal and an engine to a plan of the capture, every option explained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor import __version__
from advisor.capture.options import OF_START, explained, joined, merged, name_of, newer
from advisor.capture.request import PlanContext, PlanRequest, again, context_of, phases
from advisor.capture.steps import steps
from advisor.knowledge.capture import VariantData, capture_goals
from advisor.knowledge.files import capture_knowledge, engines
from advisor.knowledge.shapes import CaptureVariable
from advisor.model.capture_plan import CapturePlan, VariableText, Variant
from advisor.model.checkup import Pitfall
from advisor.model.findings import Tool

RANGE = "--capture-range=cudaProfilerApi"


def plan(asked: PlanRequest) -> CapturePlan:
    """The plan; raises InputError where the asked names something unknown."""
    context = context_of(asked)
    options, variables = _options(context), _variables(context)
    off = context.lines("profile-without-graphs") if asked.without_graphs else ()
    done = steps(context, options, variables, off)
    flags = tuple(explained(line.command for s in done for line in s.lines))
    return CapturePlan(
        tool=Tool(version=__version__, engine="planner"),
        goal=context.goal.id,
        title=context.goal.title,
        question=context.goal.question,
        engine=context.engine,
        engine_title=engines()[context.engine].title,
        phase=asked.phase,
        place=context.place.id,
        place_title=context.place.title,
        steps=done,
        flags=flags,
        variables=tuple(VariableText(variable=v.variable, value=v.value, effect=v.effect) for v in variables),
        pitfalls=(*_too_new(options, asked), *_pitfalls(context, options)),
        variants=tuple(_variants(context, options, {f.option for f in flags})),
        again=again(asked),
        command_file=tuple(_file(context, options, variables)),
    )


def _options(context: PlanContext) -> list[str]:
    """The options of the recording, one source of --trace an option."""
    goal, asked = context.goal, context.asked
    options = list(goal.options)
    if goal.native_options is not None and context.engine == "native":
        options = list(goal.native_options)
    options = merged(options, [*goal.start_options, *context.place.options])
    if asked.without_graphs:
        options = [o for o in options if not o.startswith("--cuda-graph-trace")]
    if context.program.forks:
        options.append("--trace-fork-before-exec=true")
    if not goal.session:
        options = merged(options, _confined(context))
    return merged(options, capture_goals().always)


def _confined(context: PlanContext) -> list[str]:
    """How the recording keeps to steady iterations."""
    asked = context.asked
    if context.window != "time":
        return [RANGE, f"--capture-range-end={f'repeat:{asked.repeat}' if asked.repeat else 'stop'}"]
    delay = context.program.warm_seconds if asked.delay is None else asked.delay
    return [f"--delay={delay}", f"--duration={asked.duration or context.goal.seconds}"]


def _variables(context: PlanContext) -> list[CaptureVariable]:
    """The engine's environment variables that this goal wants."""
    found = []
    for variable in engines()[context.engine].capture:
        if "capture-range" in variable.supplies:
            if context.window == "variable" and not context.goal.session:
                value = context.asked.iterations or context.goal.iterations
                found.append(variable.model_copy(update={"value": value}))
        elif {*variable.supplies} & {*context.goal.wants, "children"}:
            found.append(variable)
    return found


def _pitfalls(context: PlanContext, options: Sequence[str]) -> Iterator[Pitfall]:
    """Traps of the goal and the place, and those that the options lead into."""
    here = {*options, *map(name_of, options)}
    if context.goal.counters:
        here.add("first-samples")
    named = {*context.goal.pitfalls, *context.place.pitfalls}
    if context.asked.without_graphs:
        named.discard("graph-is-default")
    for trap in capture_knowledge().pitfalls:
        if trap.id in named or here.intersection(trap.applies):
            yield Pitfall(id=trap.id, text=trap.text)


def _too_new(options: Sequence[str], asked: PlanRequest) -> list[Pitfall]:
    """Options that the named release does not know."""
    return [Pitfall(id="newer-nsys", text=text) for text in newer(options, asked.release)]


def _variants(context: PlanContext, options: Sequence[str], told: set[str]) -> Iterator[Variant]:
    """Every variant that fits; options that are not in `told` yet are explained where they first
    come."""
    known = {v.id: v for v in capture_goals().variants}
    for name in context.goal.variants:
        data = known[name]
        if data.engines and context.engine not in data.engines:
            continue
        if name in _settled(context.asked):
            continue
        lines = tuple(_variant_lines(context, data, options))
        flags = tuple(f for f in explained(lines) if f.option not in told)
        told |= {f.option for f in flags}
        yield Variant(
            id=data.id,
            title=data.title,
            text=data.text,
            options=() if data.action is None else context.lines(data.action),
            lines=lines,
            flags=flags,
        )


def _settled(asked: PlanRequest) -> Iterator[str]:
    """Variants that the asked has already, or that do not go with it."""
    if asked.without_graphs:
        yield "without-graphs"
    if asked.repeat or asked.delay is not None or asked.duration is not None:
        yield "repeat-ranges"


def _variant_lines(context: PlanContext, data: VariantData, options: Sequence[str]) -> Iterator[str]:
    known = {v.variable: v for v in engines()[context.engine].capture}
    variables = [f"{n}={known[n].value}" for n in data.variables if n in known]
    added = [o for o in data.add if o not in options]
    if added:
        yield " ".join([*variables, "nsys profile", *joined(added, context.asked.release), "..."])
    elif variables:
        yield " ".join([*variables, "nsys profile ..."])
    # Where both phases are recorded, an example speaks of the first.
    one = context.of(phases(context)[0])
    for command in data.commands:
        yield one.fill(command, here=command.startswith("advisor "))


def _file(
    context: PlanContext, options: Sequence[str], variables: Sequence[CaptureVariable]
) -> Iterator[str]:
    """The lines of an nsys command file: options one a line, without output and program."""
    kept = [o for o in options if not context.goal.session or name_of(o) not in OF_START]
    yield from joined(kept, context.asked.release)
    if variables:
        yield f"--env-var={','.join(f'{v.variable}={v.value}' for v in variables)}"
