"""``advisor run``: the plan for a command, its recording, and the run that keeps both."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import IO, Any, NamedTuple

from msgspec import Struct, structs

from advisor import __version__
from advisor.capture.goals import plan
from advisor.errors import AdvisorError, InputError
from advisor.knowledge.engine_signs import detect
from advisor.knowledge.verb_files import capture_goals
from advisor.model.capture_plan import CapturePlan
from advisor.model.findings import Diagnosis
from advisor.model.options import PlanRequest
from advisor.model.run import Again, Promise, Run, RunList, Score, Scores, measured, promises
from advisor.pipeline import launched
from advisor.pipeline.compare import CompareOptions, compare
from advisor.recording import seal, store
from advisor.recording.nsys import NoNsys, Nsys, find
from advisor.recording.record import Recorded, Wanted, record
from advisor.recording.torch_profiler import Torch, parse
from advisor.recording.watch import SPARE_BYTES, Limits, MayRepeat, Notify, free_bytes, size_text

#: What a plan is made for where no goal is named: it costs least, and most rules can judge it.
GOAL = "kernel-breakdown"
#: Steps that PyTorch profiles where the user does not say.
STEPS = 20
#: What only nsys can do.
_OF_NSYS = ("iterations", "repeat", "delay", "duration")
#: What an order has besides the request for a plan, and a repetition takes over.
_OWN = ("calls", "until_end", "steps", "of")


class Order(Struct, frozen=True):
    """What the user asked for: the request for a plan, and how to record it. `calls`: the program starts and
    stops the profiler itself; `until_end`: it runs on when the recording is over; `steps` to profile and
    what they are the calls `of` concern the recorder torch."""

    request: PlanRequest
    folder: Path
    name: str | None = None
    limits: Limits = Limits()
    calls: bool = False
    until_end: bool = False
    recorder: str | None = None
    steps: int | None = None
    of: str | None = None


class Chosen(NamedTuple):
    """The tool that records, its plan if it is nsys, and why it was chosen where the user did not."""

    tool: Nsys | Torch
    plan: CapturePlan | None = None
    why: str | None = None


def choose(order: Order, named: Path | None) -> Chosen:
    """nsys with its plan, or the profiler of PyTorch, if the user asks for it or nsys is missing and the
    program is Python. Raises InputError for what cannot be recorded here."""
    asked = order.request
    if not asked.command:
        raise InputError("no COMMAND was given: advisor run -- COMMAND")
    if unseen := launched.seen(asked.command, lambda program, place: _planned_in(order, program, place)):
        return _choose(order, named)._replace(why=unseen)
    return _choose(order, named)


def _choose(order: Order, named: Path | None) -> Chosen:
    asked = order.request
    if shutil.which(asked.command[0]) is None:
        raise InputError(f"{asked.command[0]}: no such program; give the command as it is typed, after --")
    if any(g.id == asked.goal and g.session for g in capture_goals().goals):
        raise InputError(f"{asked.goal} attaches to a server; its commands: advisor capture {asked.goal}")
    by_nsys = order.calls or any(getattr(asked, name) is not None for name in _OF_NSYS)
    if order.recorder != "torch" and (order.steps is not None or order.of is not None):
        raise InputError("--steps and --steps-of need --recorder torch; nsys records what the plan says")
    if order.recorder != "torch":
        try:
            nsys = find(named)
            return Chosen(nsys, planned(order, nsys))
        except NoNsys as error:
            if order.recorder is None and not by_nsys and (ways := launched.ways(asked.command)):
                raise NoNsys(f"{error}; without it: {ways}") from None
            if order.recorder is not None or by_nsys or parse(asked.command) is None:
                raise
        return Chosen(_torch(order), None, "no nsys here: recorded by the profiler of PyTorch")
    if named is not None or by_nsys:
        options = ", ".join(f"--{name}" for name in ("nsys", *_OF_NSYS, "calls"))
        raise InputError(f"--recorder torch records steps; {options} are for nsys")
    return Chosen(_torch(order))


def _torch(order: Order) -> Torch:
    """The profiler of PyTorch for the goal of an order."""
    program, goal = parse(order.request.command), order.request.goal
    if ways := launched.ways(order.request.command):
        raise InputError(f"--recorder torch records one Python process; instead: {ways}")
    if program is None:
        raise InputError("--recorder torch records 'python SCRIPT', 'python -m MODULE' and 'python -c CODE'")
    return Torch(
        program=program,
        of=order.of,
        steps=order.steps or STEPS,
        stacks=goal == "host-overhead",
        memory=goal == "memory",
        until_end=order.until_end,
    )


def _planned_in(order: Order, program: tuple[str, ...], place: str) -> CapturePlan:
    """The plan for the program that a launcher starts in a place."""
    return planned(structs.replace(order, request=replace(order.request, command=program, place=place)), None)


def planned(order: Order, nsys: Nsys | None) -> CapturePlan:
    """The plan for a command, by the clock where the program would have to be changed for another window."""
    asked, data = order.request, capture_goals()
    engine = asked.engine or detect((), (), asked.command).name or "any"
    name, _, version = engine.partition("@")
    program = data.program(name, version or None)
    delay, repeat = asked.delay, asked.repeat
    chosen = repeat is not None or delay is not None or asked.iterations is not None
    if not order.calls and not chosen and program.window != "variable":
        delay = program.warm_seconds
    elif order.calls and program.window == "time":
        repeat = repeat or 1
    return plan(
        replace(
            asked, engine=engine, release=None if nsys is None else nsys.release, delay=delay, repeat=repeat
        )
    )


@contextmanager
def begun(order: Order, chosen: Chosen, before: Run | None = None) -> Iterator[tuple[Path, Run]]:
    """The folder of the run, locked inside, with its plan and what is known before it is recorded. A run
    `before` that is repeated as it was gives the options and variables that it ended up with."""
    with new_folder(order.folder, order.name) as folder:
        yield folder, _begun(order, chosen, before, folder)


def _begun(order: Order, chosen: Chosen, before: Run | None, folder: Path) -> Run:
    made, tool = chosen.plan, chosen.tool
    commit, dirty = store.revision()
    changed = {
        key: value
        for key, value in asdict(order.request).items()
        if key not in ("goal", "command", "release", "place", "ranks")
        and value is not None
        and value is not False
    }
    own = {key: value for key in _OWN if (value := getattr(order, key))}
    run = Run(
        name=folder.name,
        begun=now(),
        command=order.request.command,
        goal=order.request.goal,
        recorder="torch" if isinstance(tool, Torch) else "nsys",
        serving_engine="any" if made is None else made.engine,
        request={**changed, **own},
        options=() if made is None else made.command_file,
        variables={} if made is None else {v.variable: v.value for v in made.variables},
        versions={"advisor": __version__, **({} if isinstance(tool, Torch) else {"nsys": tool.version})},
        at_most=order.limits.bytes,
        commit=commit,
        dirty=dirty,
    )
    if made is not None:
        store.write(folder / store.PLAN, f"{made.model_dump_json(indent=2)}\n".encode())
    if before is not None and before.recorder == run.recorder == "nsys" and seal.holds(before):
        run = run.replaced(options=before.options, variables=before.variables)
    store.save(folder, run)
    return run


@contextmanager
def new_folder(folder: Path, name: str | None) -> Iterator[Path]:
    """An empty folder for a run, locked inside. Raises InputError, too where the disk is nearly full."""
    with store.new(folder, name) as made:
        if (free := free_bytes(made)) < SPARE_BYTES:
            made.rmdir()
            raise InputError(f"{folder}: its disk has {size_text(free)} free; recordings need more")
        yield made


def now() -> str:
    """The time as records of runs have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def noting_failure(folder: Path, run: Run) -> Iterator[None]:
    """The record says why what is done inside failed, if it does."""
    try:
        yield
    except BaseException as error:
        notes = (str(error),) if isinstance(error, AdvisorError) else ("interrupted",)
        store.save(folder, run.replaced(state="failed", notes=notes))
        raise


def recorded(folder: Path, run: Run, done: Recorded) -> Run:
    """The run with what became of its recording, saved."""
    run = run.replaced(
        state="recorded",
        options=done.options,
        seconds=round(done.seconds, 3),
        bytes=done.size,
        exit_code=done.code,
        stopped=done.stopped,
        refused=(*run.refused, *done.refused),
        versions={**run.versions, **done.versions},
        unprofiled_ms=done.unprofiled_ms,
        notes=done.notes,
        captures=tuple(p.name for p in done.captures),
    )
    store.save(folder, run)
    return run


def carry_out(
    order: Order,
    folder: Path,
    run: Run,
    tool: Nsys | Torch,
    notify: Notify,
    echo: IO[bytes] | None,
    may_repeat: MayRepeat,
) -> tuple[Run, Recorded]:
    """Record the command. Raises InputError where nothing could be recorded; what there is stays in the
    folder."""
    extra = ["--kill=none"] if order.until_end and "--kill=none" not in run.options else []
    wanted = Wanted([*run.options, *extra], run.command, run.variables, order.limits)
    with noting_failure(folder, run):
        if isinstance(tool, Torch):
            done = tool.record(order.limits, folder, notify, echo, may_repeat)
        else:
            done = record(wanted, tool, folder, notify, echo, may_repeat)
    request = run.request
    if done.from_start:  # so that a repetition need not find out again
        request = {key: value for key, value in request.items() if key not in ("calls", "repeat")} | {
            "delay": 0
        }
    return recorded(folder, run.replaced(request=request), done), done


def finish(folder: Path, run: Run, diagnosis: bytes, first: Diagnosis, verdict: str) -> Run:
    """Keep the diagnosis of a run, as JSON, and in its record what lists of runs show: the steps of its first
    capture, and the `verdict` in short."""
    store.write(folder / store.DIAGNOSIS, diagnosis)
    run = run.replaced(state="diagnosed", verdict=verdict, steps=first.main_steps)
    store.save(folder, run)
    return run


def again(order: Order, name: str | None, typed: Mapping[str, Any]) -> tuple[Order, Run]:
    """The order that repeats a run, the last one that was diagnosed without a name, with what was `typed`
    besides; and that run. Of a run that this user did not record nothing is started: the command has to be
    typed, and only the goal is taken over. Raises InputError."""
    before = diagnosed(order.folder, name)
    if before.recorder == "server":
        words = shlex.join(before.command)
        raise InputError(f"run '{before.name}' was of a server; repeat it: {words} --against {before.name}")
    asked = order.request
    if not seal.holds(before):
        if not asked.command:
            raise InputError(
                f"run '{before.name}' was not recorded by this user on this machine; if you trust its "
                f"command, type it: advisor run --again {before.name} -- {shlex.join(before.command)}"
            )
        request = PlanRequest(**typed, goal=asked.goal or before.goal, command=asked.command)
        return structs.replace(order, request=request), before
    given: dict[str, Any] = {
        key: value for key, value in before.request.items() if key in PlanRequest.__dataclass_fields__
    }
    request = PlanRequest(
        **{**given, **typed}, goal=asked.goal or before.goal, command=asked.command or before.command
    )
    limits = order.limits
    if limits.bytes is None:
        limits = structs.replace(limits, bytes=before.at_most)
    own = {key: getattr(order, key) or before.request.get(key) or None for key in _OWN}
    own["recorder"] = order.recorder or before.recorder
    own |= {key: bool(own[key]) for key in ("calls", "until_end")}
    return structs.replace(order, request=request, limits=limits, **own), before


def diagnosed(folder: Path, name: str | None) -> Run:
    """The run of this name, or the last one that was diagnosed. Raises InputError."""
    if name is not None:
        run = store.read(store.named(name, folder))
        if run.state != "diagnosed":
            raise InputError(f"run '{name}' was not diagnosed ({'; '.join(run.notes) or run.state})")
        return run
    for known in reversed(store.records(folder).values()):
        if known is not None and known.state == "diagnosed":
            return known
    store.named(None, folder)
    raise InputError(f"{folder / store.RUNS}: no run was diagnosed yet")


def judge(folder: Path, run: Run, against: Run, settings: CompareOptions) -> Again:
    """What a run says of the one before it: its promises, and what changed. Kept in its record."""
    sources = [str(folder.parent / each.name / store.DIAGNOSIS) for each in (against, run)]
    comparison = compare(sources[0], sources[1], settings)
    run = run.replaced(against=against.name, promises=promises(comparison.gains))
    store.save(folder, run)
    return Again(
        name=run.name,
        against=against.name,
        promises=run.promises,
        comparison=comparison,
        next=run.verdict,
        measured=measured(against, run),
        history=runs(folder.parent.parent).runs,
    )


def runs(folder: Path) -> RunList:
    """The runs of a folder whose records can be read."""
    found = tuple(run for run in store.records(folder).values() if run is not None)
    return RunList(folder=str(folder / store.RUNS), runs=found)


def scores(folder: Path) -> Scores:
    """The promises of all runs, by what-if."""
    by: dict[str, list[Promise]] = {}
    for promise in (p for run in runs(folder).runs for p in run.promises):
        by.setdefault(promise.what_if, []).append(promise)
    found = (
        Score(
            what_if=name,
            kept=sum(p.outcome == "kept" for p in each),
            missed=sum(p.outcome == "missed" for p in each),
            ratio=round(median(p.measured_ms.mid / p.promised_ms.mid for p in each), 4),
        )
        for name, each in sorted(by.items())
    )
    return Scores(advisor=__version__, scores=tuple(found))


def model_config(command: Sequence[str]) -> Path | None:
    """The `config.json` of the model that a command line names, as a file or by its folder: its weights tell
    how fast memory is read."""
    for word in command:
        path = Path(word.rpartition("=")[2])
        for found in (path, path / "config.json"):
            with suppress(OSError):
                if found.name == "config.json" and found.is_file():
                    return found
    return None
