"""``advisor attach``: a server that runs is profiled by itself, and diagnosed."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from advisor.cli.deliver import Progress, check_files, formats
from advisor.cli.messages import message
from advisor.cli.options import COMMON, Verb, WholeNumber, takes
from advisor.cli.run_passes import echo_of
from advisor.cli.run_verbs import check_against, judged
from advisor.config import Settings
from advisor.errors import INTERRUPTED, InputError
from advisor.model.findings import SEVERITIES
from advisor.model.options import one_of


class AttachOptions(Struct, frozen=True, kw_only=True):
    """The options of `attach` alone, as click names and reads them."""

    steps: int | None
    seconds: int | None
    traces: str | None
    load: str | None
    name: str | None
    against: str | None
    flush: int | None
    keep: int | None


@click.command(cls=Verb, common=f"steps seconds traces load against name {COMMON}")
@click.argument("url", metavar="URL")
@click.option("--steps", type=WholeNumber(1), metavar="N", help="Steps to profile (20).")
@click.option("--seconds", type=WholeNumber(1), metavar="S", help="Profile for S seconds instead.")
@click.option(
    "--traces",
    metavar="DIR[:THERE]",
    help="Where the server writes traces, as seen from here (and there, in its container).",
)
@click.option("--load", metavar="COMMAND", help="A client to run meanwhile; it is ended afterwards.")
@click.option("--name", metavar="NAME", help="Name of the run (default: run-1, run-2, ...).")
@click.option("--against", metavar="RUN", help="Say what changed since this run.")
@click.option("--flush", metavar="S", type=WholeNumber(1), help="Time the server may take to write (300 s).")
@click.option("--keep", metavar="N", type=WholeNumber(1), help="Keep captures of the N last runs (10).")
@takes(
    "folder format output html xlsx force ranks independent window phase weight_bytes unprofiled_step log "
    "serving_engine rules select ignore param baseline redact fail_on fail_on_new fail_on_worse top quiet "
    "verbose",
    format=formats("Kind of report.", "findings"),
    fail_on=one_of("Exit 1 from this severity on.", *SEVERITIES, "regression"),
    quiet="Less, and no output of COMMAND.",
)
def attach(settings: Settings, url: str, **typed: Any) -> int:
    """Profile the vLLM or SGLang server at URL while it serves, and diagnose it.

    First /metrics is read for 5 s without the profiler: the load, and the time of a token, from
    which gains are counted. Then the server's own profiler runs for some steps, and the traces of
    all its ranks are diagnosed as one job and kept in .advisor/runs/NAME.

    The server needs load meanwhile: --load 'COMMAND' makes it, nothing else sends requests. Only
    URL is contacted; a key goes into ADVISOR_API_KEY. The profiler is stopped in any case, also by
    Ctrl-C and where something fails.
    """
    from advisor.pipeline.attach import Order, begun, carry_out, find
    from advisor.pipeline.record import diagnosed
    from advisor.recording.attach import Attach
    from advisor.recording.load import METRICS
    from advisor.recording.server import KEY
    from advisor.recording.watch import size_text

    given = AttachOptions(**typed)
    steps, seconds = given.steps, given.seconds
    if steps is not None and seconds is not None:
        raise InputError("--steps or --seconds, not both")
    if settings.fail_on == "regression" and not given.against:
        raise InputError("--fail-on regression compares with another run; add --against RUN")
    if given.against:
        check_against(settings, "--against")
    check_files(settings)
    before = diagnosed(settings.folder, given.against) if given.against else None
    here, _, there = (given.traces or "").partition(":")
    wanted = Attach(
        steps=None if seconds is not None else steps or Attach().steps,
        seconds=seconds,
        traces=Path(here) if here else None,
        there=there or None,
        load=tuple(_words(given.load)),
        flush_s=given.flush or Attach().flush_s,
    )
    order = Order(url, _again(url, given), wanted, settings.folder, given.name, os.environ.get(KEY))
    server, engine = find(order)
    with begun(order, engine) as (folder, run):
        message(f"recording {engine.title} at {server.url} into {folder}; Ctrl-C stops and diagnoses")
        with Progress(run.name) as progress:
            run, done, load = carry_out(order, folder, run, server, engine, progress, echo_of(settings))
        if load is not None:
            message(f"load: {load.text}")
        for note in done.notes:
            message(f"note: {note}")
        if not done.captures:
            message("interrupted before the server had written a trace")
            return INTERRUPTED
        message(
            f"recorded {len(done.captures)} of its processes, {size_text(done.size)} in {done.seconds:.1f} s"
        )
        if settings.log is None and load is not None:
            settings = replace(settings, log=folder / METRICS)
        if settings.serving_engine is None:
            settings = replace(settings, serving_engine=engine.name)
        code = judged(settings, folder, run, before, given.keep)
        return INTERRUPTED if done.interrupted else code


def _words(command: str | None) -> list[str]:
    """The words of a command line, as a shell divides them. Raises InputError."""
    try:
        return shlex.split(command or "")
    except ValueError as error:
        raise InputError(f"--load: {error}") from None


def _again(url: str, given: AttachOptions) -> tuple[str, ...]:
    """The command line that repeats it."""
    names = ("steps", "seconds", "traces", "load", "flush")
    values = {f"--{name}": getattr(given, name) for name in names}
    typed = (str(word) for pair in values.items() if pair[1] is not None for word in pair)
    return ("advisor", "attach", url, *typed)
