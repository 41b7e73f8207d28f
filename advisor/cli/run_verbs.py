"""``advisor run``: a command recorded as its plan says, diagnosed, and kept as a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli.completion import goal_names, offer
from advisor.cli.deliver import Progress, check_files, formats
from advisor.cli.messages import message
from advisor.cli.options import PATH, Verb, WholeNumber, asks, takes
from advisor.config import Settings
from advisor.errors import InputError, near
from advisor.knowledge.verb_files import capture_goals
from advisor.model.options import PlanRequest
from advisor.reports.json_report import render

if TYPE_CHECKING:
    from advisor.model.run import Run
    from advisor.pipeline.record import Order
    from advisor.recording.nsys import Nsys
    from advisor.recording.record import Recorded

#: Captures of this many runs are kept, unless the user says otherwise.
KEEP = 10
#: Last lines of a program that failed.
_LINES = 5


#: As the shell reports Ctrl-C.
INTERRUPTED = 130


class Command(Verb):
    """A verb with a command line of another program after two dashes, which is the `obj` of its context."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command(cls=Command)
@click.argument("words", metavar="[GOAL] -- COMMAND...", nargs=-1, shell_complete=offer(goal_names))
@click.option("--name", metavar="NAME", help="Name of the run (default: run-1, run-2, ...).")
@click.option("--nsys", type=PATH, metavar="PATH", help="nsys to use (default: of PATH, or the newest).")
@asks("engine iterations repeat delay duration")
@click.option("--calls", is_flag=True, help="COMMAND calls cudaProfilerStart and Stop itself.")
@click.option("--until-end", is_flag=True, help="Let COMMAND run on when the recording is over.")
@click.option("--at-most", metavar="SIZE", help="Stop the recording at this size: 2GB.")
@click.option("--stop-after", metavar="S", type=WholeNumber(1), help="Stop the recording after S seconds.")
@click.option("--flush", metavar="S", type=WholeNumber(1), help="What nsys may take to end (300 s).")
@click.option("--keep", metavar="N", type=WholeNumber(1), help="Keep captures of the N last runs (10).")
@takes(
    "folder format output html xlsx force window nvtx phase weight_bytes unprofiled_step rules select ignore "
    "param baseline redact fail_on fail_on_new fail_on_worse top quiet verbose",
    format=formats("Kind of report.", "findings"),
    quiet="Less, and no output of COMMAND.",
)
def run(
    settings: Settings,
    request: dict[str, Any],
    words: Sequence[str],
    name: str | None,
    nsys: Path | None,
    calls: bool,
    until_end: bool,
    at_most: str | None,
    stop_after: int | None,
    flush: int | None,
    keep: int | None,
) -> int:
    """Record COMMAND with the plan of 'advisor capture', and diagnose it.

    GOAL is one of 'advisor capture' (default kernel-breakdown). The capture, its plan and the
    diagnosis are kept in .advisor/runs/NAME. Ctrl-C stops the recording and diagnoses what there
    is. What COMMAND prints goes to stderr and into the run. Exit code 1: COMMAND failed, or a
    finding at or above --fail-on.
    """
    from advisor.cli.diagnosis import report
    from advisor.pipeline.inputs import Capture, Given
    from advisor.pipeline.record import Order, begin, finish, planned
    from advisor.recording.nsys import find
    from advisor.recording.store import drop_captures
    from advisor.recording.watch import Limits, parse_size, size_text

    check_files(settings)
    command: tuple[str, ...] = click.get_current_context().obj
    limits = Limits(
        bytes=None if at_most is None else parse_size(at_most, "--at-most"),
        seconds=stop_after,
        flush_s=flush or Limits().flush_s,
    )
    asked = PlanRequest(goal=_goal(words, command), command=command, **request)
    order = Order(asked, settings.folder, name, limits, calls, until_end)
    used = find(nsys)
    made = planned(order, used)
    folder, begun = begin(order, made, used)
    for step in made.steps:
        if step.id == "load":
            message("from another shell, after it has started: " + "; ".join(n.command for n in step.lines))
    kept, done = _recorded(settings, order, folder, begun, used)
    recorded = Given(tuple(Capture(folder / capture) for capture in kept.captures))
    try:
        code = report(recorded, settings, keep=lambda found: finish(folder, kept, render(found)))
    except BaseException:
        message(
            f"note: the capture is kept; diagnose it with: advisor {shlex.join(map(str, recorded.paths))}"
        )
        raise
    for old, size in drop_captures(settings.folder, keep or KEEP):
        message(f"note: captures of {old.name} removed ({size_text(size)}; --keep {keep or KEEP})")
    if done.interrupted:
        return INTERRUPTED
    return code or int(bool(done.code))


def _goal(words: Sequence[str], command: Sequence[str]) -> str:
    """The goal before the dashes. Raises InputError for another word there."""
    from advisor.pipeline.record import GOAL

    if not words:
        return GOAL
    known = [g.id for g in capture_goals().goals]
    if words[0] not in known:
        if not command:
            raise InputError(f"write -- before the command: advisor run -- {shlex.join(words)}")
        raise InputError(f"no goal '{words[0]}'; {near(words[0], known)}")
    if len(words) > 1:
        raise InputError(f"too many arguments: {' '.join(words[1:])}; the command stands after --")
    return words[0]


def _recorded(settings: Settings, order: Order, folder: Path, run: Run, nsys: Nsys) -> tuple[Run, Recorded]:
    """Record under a line of progress, and say what became of it."""
    from advisor.pipeline.record import carry_out
    from advisor.recording.watch import size_text

    echo = None if settings.verbosity < 0 else sys.stderr.buffer
    message(f"recording into {folder} with nsys {nsys.version}; Ctrl-C stops and diagnoses")
    with Progress(shlex.join(run.command)) as progress:

        def notify(doing: str, size: int) -> None:
            progress(f"{doing}, {size_text(size)}")

        run, done = carry_out(order, folder, run, nsys, notify, echo)
    for note in done.notes:
        message(f"note: {note}")
    if done.stopped is not None:
        message(f"note: the recording was stopped: {done.stopped}")
    if done.code:
        message(f"warning: COMMAND failed with exit code {done.code}; its last lines:")
        for line in done.last[-_LINES:]:
            message(f"  {line}")
    message(f"recorded {size_text(done.size)} in {done.seconds:.1f} s")
    return run, done
