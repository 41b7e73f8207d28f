"""Recordings of ``advisor run``: the passes of a command, and one without the profiler to time its step."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from msgspec import structs

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


def recorded(
    settings: Settings, order: Order, folder: Path, run: Run, tool: Nsys | Torch
) -> tuple[Run, Recorded]:
    """Record under a line of progress, and say what became of it."""
    from advisor.pipeline.record import carry_out
    from advisor.recording.watch import size_text

    name = f"nsys {run.versions['nsys']}" if run.recorder == "nsys" else "the profiler of PyTorch"
    message(f"recording into {folder} with {name}; Ctrl-C stops and diagnoses")
    with Progress(run.name) as progress:
        run, done = carry_out(order, folder, run, tool, progress, echo_of(settings))
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


def another(
    settings: Settings, order: Order, folder: Path, run: Run, done: Recorded, tool: Nsys | Torch, number: int
) -> tuple[Run, Recorded] | None:
    """Another pass with what a checkup of the last one asks for; None if there is nothing to add, or it
    recorded nothing whole: then the pass before it stays."""
    from advisor.pipeline import passes
    from advisor.pipeline.doctor import doctor

    if run.recorder != "nsys" or done.stopped is not None or done.code:
        return None
    capture = folder / run.captures[0]
    with Progress(capture.name) as progress:
        plan = passes.next_plan(run, doctor(capture, settings, progress))
    if plan is None:
        return None
    message(f"pass {number} adds {' '.join(plan.kept.added)}, {plan.why}")
    aside = passes.put_aside(folder, number - 1)
    more = run.replaced(
        options=plan.options, variables={**run.variables, **plan.variables}, passes=(*run.passes, plan.kept)
    )
    try:
        more, again = recorded(settings, order, folder, more, tool)
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


def timed(
    settings: Settings, order: Order, folder: Path, run: Run, done: Recorded, tool: Nsys | Torch
) -> tuple[Settings, Run, Recorded]:
    """The program once more with its ranges alone, where they, its output or its /metrics time a step: the
    settings and the run then have that step."""
    from advisor.pipeline import unprofiled
    from advisor.recording import store
    from advisor.recording.nsys import Nsys

    known = settings.unprofiled_step is not None or settings.log is not None
    if known or not isinstance(tool, Nsys) or done.stopped is not None or done.code:
        return settings, run, done
    with Progress(run.captures[0]):
        why = unprofiled.worth(folder, run, settings)
    if why is None:
        return settings, run, done
    message(f"once more without the profiler, since {why.text}; --once or --unprofiled-step MS skips this")
    try:
        with Progress(run.name) as progress:
            found, light = unprofiled.measure(
                folder, run, tool, order.limits, why, progress, echo_of(settings)
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
