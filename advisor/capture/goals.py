"""From a goal and an engine to a plan of the capture, every option explained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor import __version__
from advisor.capture.options import OF_START, explained, joined, merged, name_of, newer
from advisor.capture.steps import steps
from advisor.capture.wish import Case, Wish, again, case_of, phases
from advisor.knowledge.capture import VariantData, capture_goals
from advisor.knowledge.files import capture_knowledge, engines
from advisor.knowledge.shapes import CaptureVariable
from advisor.model.capture_plan import CapturePlan, VariableText, Variant
from advisor.model.checkup import Pitfall
from advisor.model.findings import Tool

RANGE = "--capture-range=cudaProfilerApi"


def plan(wish: Wish) -> CapturePlan:
    """The plan; raises InputError where the wish names something unknown."""
    case = case_of(wish)
    options, variables = _options(case), _variables(case)
    off = case.lines("profile-without-graphs") if wish.without_graphs else ()
    done = steps(case, options, variables, off)
    flags = tuple(explained(line.command for s in done for line in s.lines))
    return CapturePlan(
        tool=Tool(version=__version__, engine="planner"),
        goal=case.goal.id,
        title=case.goal.title,
        question=case.goal.question,
        engine=case.engine,
        engine_title=engines()[case.engine].title,
        phase=wish.phase,
        place=case.place.id,
        place_title=case.place.title,
        steps=done,
        flags=flags,
        variables=tuple(VariableText(variable=v.variable, value=v.value, effect=v.effect) for v in variables),
        pitfalls=(*_too_new(options, wish), *_pitfalls(case, options)),
        variants=tuple(_variants(case, options, {f.option for f in flags})),
        again=again(wish),
        command_file=tuple(_file(case, options, variables)),
    )


def _options(case: Case) -> list[str]:
    """The options of the recording, one source of --trace an option."""
    goal, wish = case.goal, case.wish
    options = list(goal.options)
    if goal.native_options is not None and case.engine == "native":
        options = list(goal.native_options)
    options = merged(options, [*goal.start_options, *case.place.options])
    if wish.without_graphs:
        options = [o for o in options if not o.startswith("--cuda-graph-trace")]
    if case.program.forks:
        options.append("--trace-fork-before-exec=true")
    if not goal.session:
        options = merged(options, _confined(case))
    return merged(options, capture_goals().always)


def _confined(case: Case) -> list[str]:
    """How the recording keeps to steady iterations."""
    wish = case.wish
    if case.window != "time":
        return [RANGE, f"--capture-range-end={f'repeat:{wish.repeat}' if wish.repeat else 'stop'}"]
    delay = case.program.warm_seconds if wish.delay is None else wish.delay
    return [f"--delay={delay}", f"--duration={wish.duration or case.goal.seconds}"]


def _variables(case: Case) -> list[CaptureVariable]:
    """The engine's environment variables that this goal wants."""
    found = []
    for variable in engines()[case.engine].capture:
        if "capture-range" in variable.supplies:
            if case.window == "variable" and not case.goal.session:
                value = case.wish.iterations or case.goal.iterations
                found.append(variable.model_copy(update={"value": value}))
        elif {*variable.supplies} & {*case.goal.wants, "children"}:
            found.append(variable)
    return found


def _pitfalls(case: Case, options: Sequence[str]) -> Iterator[Pitfall]:
    """Traps of the goal and the place, and those that the options lead into."""
    here = {*options, *map(name_of, options)}
    if case.goal.counters:
        here.add("first-samples")
    named = {*case.goal.pitfalls, *case.place.pitfalls}
    if case.wish.without_graphs:
        named.discard("graph-is-default")
    for trap in capture_knowledge().pitfalls:
        if trap.id in named or here.intersection(trap.applies):
            yield Pitfall(id=trap.id, text=trap.text)


def _too_new(options: Sequence[str], wish: Wish) -> list[Pitfall]:
    """Options that the named release does not know."""
    return [Pitfall(id="newer-nsys", text=text) for text in newer(options, wish.release)]


def _variants(case: Case, options: Sequence[str], told: set[str]) -> Iterator[Variant]:
    """Every variant that fits; options that are not in `told` yet are explained where they first
    come."""
    known = {v.id: v for v in capture_goals().variants}
    for name in case.goal.variants:
        data = known[name]
        if data.engines and case.engine not in data.engines:
            continue
        if name in _settled(case.wish):
            continue
        lines = tuple(_variant_lines(case, data, options))
        flags = tuple(f for f in explained(lines) if f.option not in told)
        told |= {f.option for f in flags}
        yield Variant(
            id=data.id,
            title=data.title,
            text=data.text,
            options=() if data.action is None else case.lines(data.action),
            lines=lines,
            flags=flags,
        )


def _settled(wish: Wish) -> Iterator[str]:
    """Variants that the wish has already, or that do not go with it."""
    if wish.without_graphs:
        yield "without-graphs"
    if wish.repeat or wish.delay is not None or wish.duration is not None:
        yield "repeat-ranges"


def _variant_lines(case: Case, data: VariantData, options: Sequence[str]) -> Iterator[str]:
    known = {v.variable: v for v in engines()[case.engine].capture}
    variables = [f"{n}={known[n].value}" for n in data.variables if n in known]
    added = [o for o in data.add if o not in options]
    if added:
        yield " ".join([*variables, "nsys profile", *joined(added, case.wish.release), "..."])
    elif variables:
        yield " ".join([*variables, "nsys profile ..."])
    # Where both phases are recorded, an example speaks of the first.
    one = case.of(phases(case)[0])
    for command in data.commands:
        yield one.fill(command, here=command.startswith("advisor "))


def _file(case: Case, options: Sequence[str], variables: Sequence[CaptureVariable]) -> Iterator[str]:
    """The lines of an nsys command file: options one a line, without output and program."""
    kept = [o for o in options if not case.goal.session or name_of(o) not in OF_START]
    yield from joined(kept, case.wish.release)
    if variables:
        yield f"--env-var={','.join(f'{v.variable}={v.value}' for v in variables)}"
