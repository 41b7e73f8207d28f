"""``advisor run``: the plan for a command, its recording, and the run that keeps both."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from msgspec import Struct

from advisor import __version__
from advisor.capture.goals import plan
from advisor.errors import AdvisorError, InputError
from advisor.knowledge.engine_signs import detect
from advisor.knowledge.verb_files import capture_goals
from advisor.model.capture_plan import CapturePlan
from advisor.model.options import PlanRequest
from advisor.model.run import Run
from advisor.recording import store
from advisor.recording.nsys import Nsys
from advisor.recording.record import Recorded, Wanted, record
from advisor.recording.watch import SPARE_BYTES, Limits, Notify, free_bytes, size_text

#: What a plan is made for where no goal is named: it costs least, and most rules can judge it.
GOAL = "kernel-breakdown"


class Order(Struct, frozen=True):
    """What the user asked for: the request for a plan, and how to record it. `calls`: the program starts and
    stops the profiler itself; `until_end`: it runs on when the recording is over."""

    request: PlanRequest
    folder: Path
    name: str | None = None
    limits: Limits = Limits()
    calls: bool = False
    until_end: bool = False


def planned(order: Order, nsys: Nsys) -> CapturePlan:
    """The plan for a command, by the clock where the program would have to be changed for another window.

    Raises InputError for what cannot be recorded here."""
    asked = order.request
    if not asked.command:
        raise InputError("no COMMAND was given: advisor run -- COMMAND")
    if shutil.which(asked.command[0]) is None:
        raise InputError(f"{asked.command[0]}: no such program; give the command as it is typed, after --")
    data = capture_goals()
    if any(g.id == asked.goal and g.session for g in data.goals):
        raise InputError(f"{asked.goal} attaches to a server; its commands: advisor capture {asked.goal}")
    engine = asked.engine or detect((), (), asked.command).name or "any"
    name, _, version = engine.partition("@")
    program = data.program(name, version or None)
    delay, repeat = asked.delay, asked.repeat
    chosen = repeat is not None or delay is not None or asked.iterations is not None
    if not order.calls and not chosen and program.window != "variable":
        delay = program.warm_seconds
    elif order.calls and program.window == "time":
        repeat = repeat or 1
    return plan(replace(asked, engine=engine, release=nsys.release, delay=delay, repeat=repeat))


def begin(order: Order, made: CapturePlan, nsys: Nsys) -> tuple[Path, Run]:
    """The folder of the run, with its plan and what is known before it is recorded."""
    folder = store.new(order.folder, order.name)
    if (free := free_bytes(folder)) < SPARE_BYTES:
        folder.rmdir()
        raise InputError(f"{order.folder}: its disk has {size_text(free)} free; recordings need more")
    commit, dirty = store.revision()
    changed = {
        key: value
        for key, value in asdict(order.request).items()
        if key not in ("goal", "command", "release", "place", "ranks") and value not in (None, False)
    }
    run = Run(
        name=folder.name,
        begun=datetime.now(UTC).isoformat(timespec="milliseconds"),
        command=order.request.command,
        goal=made.goal,
        serving_engine=made.engine,
        request={**changed, **({"calls": True} if order.calls else {})},
        options=made.command_file,
        variables={v.variable: v.value for v in made.variables},
        versions={"advisor": __version__, "nsys": nsys.version},
        at_most=order.limits.bytes,
        commit=commit,
        dirty=dirty,
    )
    store.write(folder / store.PLAN, f"{made.model_dump_json(indent=2)}\n".encode())
    store.save(folder, run)
    return folder, run


def carry_out(
    order: Order, folder: Path, run: Run, nsys: Nsys, notify: Notify, echo: IO[bytes] | None
) -> tuple[Run, Recorded]:
    """Record the command. Raises InputError where nothing could be recorded; what there is stays in the
    folder."""
    extra = ["--kill=none"] if order.until_end else []
    wanted = Wanted([*run.options, *extra], run.command, run.variables, order.limits)
    try:
        done = record(wanted, nsys, folder, notify, echo)
    except BaseException as error:
        notes = (str(error),) if isinstance(error, AdvisorError) else ("interrupted",)
        store.save(folder, run.replaced(state="failed", notes=notes))
        raise
    run = run.replaced(
        state="recorded",
        options=done.options,
        seconds=round(done.seconds, 3),
        bytes=done.size,
        exit_code=done.code,
        stopped=done.stopped,
        notes=done.notes,
        captures=tuple(p.name for p in done.captures),
    )
    store.save(folder, run)
    return run, done


def finish(folder: Path, run: Run, diagnosis: bytes) -> None:
    """Keep the diagnosis of a run, as JSON."""
    store.write(folder / store.DIAGNOSIS, diagnosis)
    store.save(folder, run.replaced(state="diagnosed"))
