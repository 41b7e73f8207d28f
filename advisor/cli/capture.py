"""``advisor capture``: the nsys command for a goal, and what to do when a capture fails."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.cli import complete, flags
from advisor.cli.deliver import formats
from advisor.cli.settings import takes
from advisor.config import Settings


@takes(
    "words engine phase where ranks iterations repeat input_len output_len delay duration without_graphs "
    "nsys name command_file troubleshoot show format output force quiet",
    files=(),
    phase="One phase.",
    format=formats("Kind of plan."),
    quiet="Commands only.",
)
def capture(
    settings: Settings,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GOAL] [-- COMMAND...]", hidden=True, autocompletion=complete.goals),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            "--serving-engine",
            metavar="NAME[@VERSION]",
            help="Serving engine.",
            autocompletion=complete.engines,
        ),
    ] = None,
    where: Annotated[
        str, typer.Option(metavar="PLACE", help="bare, docker, kubernetes, mpi or slurm.")
    ] = "bare",
    ranks: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of the job.")] = 2,
    iterations: Annotated[
        str | None, typer.Option(metavar="A-B", help="Record these iterations (TensorRT-LLM).")
    ] = None,
    repeat: Annotated[int | None, typer.Option(min=1, metavar="N", help="Record N ranges, not one.")] = None,
    input_len: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tokens of a prompt (default: by phase).")
    ] = None,
    output_len: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tokens of an answer, in decode.")
    ] = None,
    delay: Annotated[
        int | None, typer.Option(min=0, metavar="S", help="Record by the clock: skip S seconds.")
    ] = None,
    duration: Annotated[int | None, typer.Option(min=1, metavar="S", help="Record S seconds.")] = None,
    without_graphs: Annotated[
        bool, typer.Option("--without-graphs", help="CUDA graphs off: exact kernel times.")
    ] = False,
    nsys: Annotated[
        str | None, typer.Option(metavar="RELEASE", help="Spell options for nsys 2023.4, say.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Output of nsys; %h, %p, %q{VAR} work.")
    ] = None,
    command_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the options as nsys command file.")
    ] = None,
    troubleshoot: Annotated[
        bool, typer.Option("--troubleshoot", help="What to do when a capture fails.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="List goals, engines and places.")] = False,
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Plan a capture: for a GOAL the nsys command, variables, and the advisor command after it.

    GOAL is kernel-breakdown, host-overhead, bandwidth, tail, memory, multi-gpu, running-server or
    benchmark; COMMAND is your program. Without either it asks. With --troubleshoot GOAL is a
    symptom (all of them without one).
    """
    from advisor.cli import capture_steps as steps

    targets = steps.check(output, command_file, force)
    if troubleshoot:
        steps.troubles(words or [], settings.format, targets, force)
        return
    if show:
        steps.listed()
        return
    asked: dict[str, Any] = {
        "engine": engine,
        "phase": settings.phase,
        "place": where,
        "ranks": ranks,
        "iterations": iterations,
        "repeat": repeat,
        "input_len": input_len,
        "output_len": output_len,
        "delay": delay,
        "duration": duration,
        "without_graphs": without_graphs,
        "release": steps.release(nsys),
        "name": name,
    }
    steps.planned(words or [], asked, settings.format, targets, command_file, force, settings.verbosity)
