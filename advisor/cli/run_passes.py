"""Recordings of ``advisor run``: the passes of a command, and one without the profiler to time its step."""

from __future__ import annotations

import os
import select
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, cast

import click
from msgspec import Struct, structs

from advisor.cli.deliver import Progress
from advisor.cli.messages import message
from advisor.config import Settings
from advisor.errors import InputError
from advisor.model.numbers import milliseconds
from advisor.model.run import ending

if TYPE_CHECKING:
    from advisor.model.run import Run
    from advisor.pipeline.record import Order
    from advisor.recording.nsys import Nsys
    from advisor.recording.record import Recorded
    from advisor.recording.torch_profiler import Torch

#: Last lines of a program that failed.
_LINES = 5
#: What standard input is: a terminal, something that a program reads once, or neither.
Input = Literal["terminal", "data", "none"]


def standard_input() -> Input:
    """What a program under us would read. A pipe that is closed and empty, and an empty file, are nothing."""
    try:
        status = os.fstat(0)
        if os.isatty(0):
            return "terminal"
        if stat.S_ISREG(status.st_mode):
            return "data" if os.lseek(0, 0, os.SEEK_CUR) < status.st_size else "none"
        if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            asked = select.poll()
            asked.register(0, select.POLLIN)
            found = dict(asked.poll(0)).get(0, 0)
            return "none" if found & select.POLLHUP and not found & select.POLLIN else "data"
    except OSError:
        pass
    return "none"


class Repeats:
    """Whether COMMAND may be run once more. Not with `--once`, nor where its standard input would be read a
    second time; a person at a terminal who did not give `--passes` is asked; elsewhere it is said before the
    first run, too."""

    def __init__(self, once: bool, agreed: bool) -> None:
        self._once, self._input = once, standard_input()
        self._asks = self._input == "terminal" and sys.stderr.isatty() and not agreed

    def announce(self) -> None:
        """Say before anything is recorded what may happen."""
        if not self._once and not self._asks and self._input != "data":
            message("note: COMMAND may be run again, for what one recording lacks; --once runs it once")

    def __call__(self, why: str) -> bool:
        """Whether it may, after that is said or answered. `why` is a clause about COMMAND."""
        if self._once:
            return False
        if self._input == "data":
            message(f"note: COMMAND is not run again, as its standard input can be read once only; {why}")
            return False
        if self._asks:
            try:
                return click.confirm(f"\r\x1b[Kadvisor: {why}. Run COMMAND again?", default=True, err=True)
            except click.Abort:
                return False
        message(f"COMMAND is run again, as {why}; --once runs it once")
        return True


class Echo:
    """Shows what a command prints, on stderr, in place of the line of progress."""

    def write(self, data: bytes) -> None:
        """Write a line."""
        sys.stderr.buffer.write(b"\r\x1b[K" + data if sys.stderr.isatty() else data)

    def flush(self) -> None:
        """Show it."""
        sys.stderr.buffer.flush()


def echo_of(settings: Settings) -> IO[bytes] | None:
    """Where to show what a command prints; None with --quiet."""
    return None if settings.verbosity < 0 else cast("IO[bytes]", Echo())


class Session(Struct, frozen=True):
    """What the passes of a run share: its folder, what records it, and whether COMMAND may be run again."""

    settings: Settings
    order: Order
    folder: Path
    tool: Nsys | Torch
    repeats: Repeats


def recorded(session: Session, run: Run) -> tuple[Run, Recorded]:
    """Record under a line of progress, and say what became of it."""
    from advisor.pipeline.record import carry_out
    from advisor.recording.watch import size_text

    name = f"nsys {run.versions['nsys']}" if run.recorder == "nsys" else "the profiler of PyTorch"
    message(f"recording into {session.folder} with {name}; Ctrl-C stops and diagnoses")
    with Progress(run.name) as progress:
        run, done = carry_out(
            session.order,
            session.folder,
            run,
            session.tool,
            progress,
            echo_of(session.settings),
            session.repeats,
        )
    for note in done.notes:
        message(f"note: {note}")
    if done.stopped is not None:
        message(f"note: the recording was stopped: {done.stopped}")
    if done.code:
        message(f"warning: COMMAND failed ({ending(done.code)}); its last lines:")
        for line in done.last[-_LINES:]:
            message(f"  {line}")
    message(f"recorded {size_text(done.size)} in {done.seconds:.1f} s")
    return run, done


def another(session: Session, run: Run, done: Recorded, number: int) -> tuple[Run, Recorded] | None:
    """Another pass with what a checkup of the last one asks for; None if there is nothing to add, or it
    recorded nothing whole: then the pass before it stays."""
    from advisor.pipeline import passes
    from advisor.pipeline.doctor import doctor

    if run.recorder != "nsys" or done.stopped is not None or done.code:
        return None
    folder, capture = session.folder, session.folder / run.captures[0]
    with Progress(capture.name) as progress:
        plan = passes.next_plan(run, doctor(capture, session.settings, progress))
    if plan is None:
        return None
    if not session.repeats(f"pass {number} would add {' '.join(plan.kept.added)}, {plan.why}"):
        return None
    aside = passes.put_aside(folder, number - 1)
    more = run.replaced(
        options=plan.options, variables={**run.variables, **plan.variables}, passes=(*run.passes, plan.kept)
    )
    try:
        more, again = recorded(session, more)
    except InputError as error:
        message(f"note: pass {number} failed, pass {number - 1} is diagnosed: {error}")
        passes.put_back(folder, aside, run)
        return None
    except BaseException:
        passes.put_back(folder, aside, run)
        raise
    if again.interrupted or again.code:
        message(f"note: pass {number} did not end as pass {number - 1} did; pass {number - 1} is diagnosed")
        passes.put_back(folder, aside, run)
        return run, structs.replace(done, interrupted=again.interrupted, stopped=again.stopped)
    return more, again


def timed(session: Session, run: Run, done: Recorded) -> tuple[Settings, Run, Recorded]:
    """The program once more with its ranges alone, where they, its output or its /metrics time a step: the
    settings and the run then have that step."""
    from advisor.pipeline import unprofiled
    from advisor.recording import store
    from advisor.recording.nsys import Nsys

    settings, folder, tool, repeats = session.settings, session.folder, session.tool, session.repeats
    known = settings.unprofiled_step is not None or settings.log is not None
    if known or not isinstance(tool, Nsys) or done.stopped is not None or done.code:
        return settings, run, done
    with Progress(run.captures[0]):
        why = unprofiled.worth(folder, run, settings)
    if why is None or not repeats(f"{why.text}, which is then timed without the profiler"):
        return settings, run, done
    message("once more without the profiler; --unprofiled-step MS spares this")
    try:
        with Progress(run.name) as progress:
            found, light = unprofiled.measure(
                folder, run, tool, session.order.limits, why, progress, echo_of(settings), repeats
            )
    except InputError as error:
        message(f"note: the step was not timed without the profiler: {error}")
        return settings, run, done
    if light.interrupted:
        return settings, run, structs.replace(done, interrupted=True, stopped=light.stopped)
    if found.step_ms is not None:
        note = f"without the profiler a step takes {milliseconds(found.step_ms)} ms, by its ranges"
        run = run.replaced(unprofiled_ms=round(found.step_ms, 6))
    elif found.log is not None:
        note = f"the load without the profiler is that of {found.log.name}"
        settings = replace(settings, log=found.log)
    else:
        note = "the step was not timed without the profiler: neither ranges nor a load"
    message(note)
    run = run.replaced(notes=(*run.notes, note))
    store.save(folder, run)
    return settings, run, done
