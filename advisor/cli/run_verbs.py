"""``advisor run``: records a command as its plan says, diagnoses the recording and keeps both as a run.
``advisor runs``: lists, shows, compares and removes runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import Struct

from advisor.cli.completion import goal_names, offer
from advisor.cli.deliver import check_files, deliver, deliver_one, formats, name_files, save
from advisor.cli.messages import errors, exit_code, message
from advisor.cli.options import COMMON, PATH, OneOf, Verb, Verbs, WholeNumber, asks, takes
from advisor.cli.run_passes import Repeats, Session, another, recorded, timed
from advisor.config import Settings
from advisor.errors import INTERRUPTED, InputError, near
from advisor.knowledge.verb_files import capture_goals
from advisor.model.findings import SEVERITIES
from advisor.model.options import PlanRequest, one_of
from advisor.reports.json_report import render
from advisor.reports.output_file import STDOUT

if TYPE_CHECKING:
    from advisor.model.findings import Diagnosis
    from advisor.model.run import Run

Texts = Sequence[str]

#: Captures of this many runs are kept, unless the user says otherwise.
KEEP = 10
#: Recordings of a command, unless the user says otherwise.
PASSES = 2


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of `run` alone, as click names and reads them."""

    name: str | None
    again: str | None  # empty: the last run
    against: str | None
    recorder: Literal["nsys", "torch"] | None
    steps: int | None
    steps_of: str | None
    nsys: Path | None
    calls: bool
    until_end: bool
    at_most: str | None
    stop_after: int | None
    flush: int | None
    passes: int | None
    once: bool
    keep: int | None


class Command(Verb):
    """A verb with a command line of another program after two dashes, which is the `obj` of its context."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command(cls=Command, common=f"name again recorder passes once engine duration steps {COMMON}")
@click.argument("words", metavar="[GOAL] -- COMMAND...", nargs=-1, shell_complete=offer(goal_names))
@click.option("--name", metavar="NAME", help="Name of the run (default: run-1, run-2, ...).")
@click.option(
    "--again", is_flag=False, flag_value="", metavar="[RUN]", help="Repeat a run (default: the last)."
)
@click.option("--against", metavar="RUN", help="With --again: the run to compare with.")
@click.option(
    "--recorder",
    type=OneOf(("nsys", "torch")),
    metavar="nsys|torch",
    help="torch: PyTorch's profiler, also where a Python program meets no nsys.",
)
@click.option("--steps", type=WholeNumber(1), metavar="N", help="Steps that torch profiles (20).")
@click.option("--steps-of", metavar="MODULE:FUNCTION", help="Calls of it are the steps of torch.")
@click.option("--nsys", type=PATH, metavar="PATH", help="nsys to use (default: of PATH, or the newest).")
@asks("engine iterations repeat delay duration")
@click.option("--calls", is_flag=True, help="COMMAND calls cudaProfilerStart and Stop itself.")
@click.option("--until-end", is_flag=True, help="Let COMMAND run on when the recording is over.")
@click.option("--at-most", metavar="SIZE", help="Stop the recording at this size: 2GB.")
@click.option("--stop-after", metavar="S", type=WholeNumber(1), help="Stop the recording after S seconds.")
@click.option("--flush", metavar="S", type=WholeNumber(1), help="Time nsys may take to end (300 s).")
@click.option("--passes", metavar="N", type=WholeNumber(1), help="Record up to N times (2) to judge more.")
@click.option("--once", is_flag=True, help="Run COMMAND once.")
@click.option("--keep", metavar="N", type=WholeNumber(1), help="Keep captures of the N last runs (10).")
@takes(
    "folder format output html xlsx force window nvtx phase weight_bytes unprofiled_step rules select ignore "
    "param baseline redact fail_on fail_on_new fail_on_worse top quiet verbose",
    format=formats("Kind of report.", "findings"),
    fail_on=one_of("Exit 1 from this severity on.", *SEVERITIES, "regression"),
    quiet="Less, and no output of COMMAND.",
)
def run(settings: Settings, request: dict[str, Any], words: Texts, **typed: Any) -> int:
    """Record COMMAND with the plan of 'advisor capture', and diagnose it.

    GOAL is one of 'advisor capture' (default kernel-breakdown). The capture, its plan and the
    diagnosis are kept in .advisor/runs/NAME. Ctrl-C stops the recording and diagnoses what there
    is. What COMMAND prints goes to stderr and into the run. Exit code: that of COMMAND where it
    failed by itself; else 1 for a finding at or above --fail-on, 130 after Ctrl-C.

    What the first recording cannot answer becomes the plan of a second one (--passes), and the
    report is of that; COMMAND is then run again, which is asked at a terminal and said elsewhere.
    With --once, and where its standard input is a pipe or a file, it is run once.

    With --recorder torch the steps of a Python program are found (of an optimizer, or calls of the
    outermost module), some are timed without the profiler, and then some are profiled.

    With --again a run is repeated after a change, with its COMMAND unless another is given, and
    the report says whether the promise held, what moved and what is next; --fail-on regression
    works as in 'advisor compare'.
    """
    from advisor.pipeline.record import GOAL, Order, again, begun, choose, diagnosed
    from advisor.recording.watch import Limits, parse_size

    given = RunOptions(**typed)
    _check_together(settings, given.again, given.against)
    check_files(settings)
    command: tuple[str, ...] = click.get_current_context().obj
    limits = Limits(
        bytes=None if given.at_most is None else parse_size(given.at_most, "--at-most"),
        seconds=given.stop_after,
        flush_s=given.flush or Limits().flush_s,
    )
    goal = _goal(words, command)
    asked = PlanRequest(goal=goal or ("" if given.again is not None else GOAL), command=command, **request)
    order = Order(
        asked,
        settings.folder,
        given.name,
        limits,
        calls=given.calls,
        until_end=given.until_end,
        recorder=given.recorder,
        steps=given.steps,
        of=given.steps_of,
    )
    before = again_of = None
    if given.again is not None:
        order, again_of = again(order, given.again or None, request)
        before = again_of
        if given.against:
            before = diagnosed(settings.folder, given.against)
    chosen = choose(order, given.nsys)
    if chosen.why is not None:
        message(f"note: {chosen.why}")
    alike = before is not None and not (request or goal or given.calls)
    with begun(order, chosen, again_of if alike else None) as (folder, first):
        for step in chosen.plan.steps if chosen.plan is not None else ():
            if step.id == "load":
                message(
                    "from another shell, after it has started: " + "; ".join(n.command for n in step.lines)
                )
        repeats = Repeats(given.once, agreed=given.passes is not None)
        repeats.announce()
        session = Session(settings, order, folder, chosen.tool, repeats)
        kept, done = recorded(session, first)
        usual = 1 if given.again is not None else PASSES
        most = 1 if given.once else given.passes or usual
        for number in range(2, most + 1):
            if (further := another(session, kept, done, number)) is None:
                break
            kept, done = further
        if most > 1 or (again_of is not None and again_of.unprofiled_ms is not None and not given.once):
            settings, kept, done = timed(session, kept, done)
        code = judged(settings, folder, kept, before, given.keep)
        if done.interrupted:
            return INTERRUPTED
        return done.code or code


def _check_together(settings: Settings, again: str | None, against: str | None) -> None:
    """Raises InputError for options that go only with --again, or not with it."""
    if again is None:
        if against:
            raise InputError(f"--against {against} compares with another run; add --again")
        if settings.fail_on == "regression":
            raise InputError("--fail-on regression compares with another run; add --again")
    else:
        check_against(settings, "--again")


def check_against(settings: Settings, option: str) -> None:
    """Raises InputError for options that do not go with `option`, which compares with another run."""
    if settings.baseline or settings.fail_on_new or settings.fail_on_worse or settings.xlsx:
        raise InputError(f"{option} compares with a run; --baseline, --fail-on-new and --xlsx do not apply")
    if settings.redact:
        raise InputError(f"{option} compares with the saved diagnosis of a run, which --redact cannot change")


def judged(settings: Settings, folder: Path, run: Run, before: Run | None, keep: int | None) -> int:
    """Diagnose the captures of a run and deliver the report, or what it says of the run before; then remove
    captures of all but the `keep` last runs. Returns the exit code."""
    try:
        code = _judged(settings, folder, run, before)
    except BaseException:
        captures = shlex.join(str(folder / capture) for capture in run.captures)
        message(f"note: the capture is kept; diagnose it with: advisor {captures}")
        raise
    _drop(settings.folder, keep or KEEP)
    return code


def _judged(settings: Settings, folder: Path, run: Run, before: Run | None) -> int:
    from advisor.cli.diagnosis import how_of, report
    from advisor.pipeline import passes
    from advisor.pipeline.inputs import Capture, Given
    from advisor.pipeline.record import finish, judge, model_config
    from advisor.reports import summary

    if run.unprofiled_ms is not None and settings.unprofiled_step is None:
        settings = replace(settings, unprofiled_step=str(run.unprofiled_ms))
    if settings.weight_bytes is None and (config := model_config(run.command)) is not None:
        settings = replace(settings, weight_bytes=str(config))
    given = Given(tuple(Capture(folder / capture) for capture in run.captures))

    def keep(found: Sequence[Diagnosis]) -> None:
        nonlocal run
        run, notes = passes.judged(run, found[0])
        for note in notes:
            message(note)
        run = finish(folder, run, render(found), found[0], summary.verdict(found[0]))

    if before is None:
        return report(given, settings, keep=keep)
    from advisor.cli.compare_verbs import gate_code
    from advisor.pipeline import gate
    from advisor.pipeline.captures import diagnose_all
    from advisor.pipeline.compare import CompareOptions
    from advisor.reports.blocks import Report
    from advisor.reports.run_blocks import again

    found = diagnose_all(given.inputs, how_of(settings), settings.ranks, settings.independent)
    errors(found.errors)
    if not found.diagnoses:
        return 2
    keep(found.diagnoses)
    judged = judge(folder, run, before, CompareOptions(settings, settings.folder))
    title = f"{judged.name} against {judged.against}"
    made = Report((judged,), lambda _: again(judged, settings.verbosity), title)
    save(made, "html", settings.html, settings.force)
    if settings.html != STDOUT:
        deliver(made, settings)
    name_files(settings)
    if found.errors:
        return 2
    if settings.fail_on == "regression":
        return gate_code(judged.comparison, "regression")
    return exit_code(gate.failure(found.diagnoses, settings.fail_on, folder=settings.folder))


def _drop(folder: Path, keep: int) -> None:
    """Remove the captures of old runs."""
    from advisor.recording.store import drop_captures
    from advisor.recording.watch import size_text

    for old, size in drop_captures(folder, keep):
        message(f"note: captures of {old.name} removed ({size_text(size)}; --keep {keep})")


def _goal(words: Texts, command: Texts) -> str | None:
    """The goal before the dashes. Raises InputError for another word there."""
    if not words:
        return None
    known = [g.id for g in capture_goals().goals]
    if words[0] not in known:
        if not command:
            raise InputError(f"write -- before the command: advisor run -- {shlex.join(words)}")
        raise InputError(f"no goal '{words[0]}'; {near(words[0], known)}")
    if len(words) > 1:
        raise InputError(f"too many arguments: {' '.join(words[1:])}; the command stands after --")
    return words[0]


# --- kept runs -----------------------------------------------------------------------------------


@click.group(cls=Verbs, invoke_without_command=True)
@click.option("--promises", is_flag=True, help="Which what-ifs kept their promises; names and numbers only.")
@takes("folder format output force", files=("folder",), format=formats("Kind of list."))
@click.pass_context
def runs(ctx: click.Context, settings: Settings, promises: bool) -> None:
    """List runs: when, of which commit, the step, promised against measured.

    With --promises the calibration of these runs; --format json -o FILE writes it as a record
    without paths or commands, to send to the project.
    """
    if ctx.invoked_subcommand is not None:
        return
    from advisor.pipeline import record
    from advisor.reports import run_blocks

    check_files(settings)
    if promises:
        deliver_one(record.scores(settings.folder), run_blocks.scored, "Promises", settings)
    else:
        deliver_one(record.runs(settings.folder), run_blocks.listed, "Runs", settings)


@runs.command("show")
@click.argument("name", metavar="RUN")
@takes("folder format output force quiet verbose", files=("folder",), format=formats("Kind of report."))
def show_run(settings: Settings, name: str) -> None:
    """Print how RUN was recorded, without credentials of its command, and its diagnosis."""
    from advisor.capture.redact_trace import masked
    from advisor.comparison.store import read as read_diagnoses
    from advisor.model.run import RunReport
    from advisor.recording import store
    from advisor.reports.run_blocks import shown

    check_files(settings)
    folder = store.named(name, settings.folder)
    saved = folder / store.DIAGNOSIS
    found = read_diagnoses(saved) if saved.is_file() else ()
    kept = store.read(folder)
    document = RunReport(run=kept.replaced(command=tuple(masked(kept.command))), diagnoses=found)
    deliver_one(document, shown, f"Run {name}", settings, settings.verbosity)


@runs.command("compare")
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@takes(
    "fail_on folder format output html xlsx force quiet verbose",
    files=("folder",),
    format=formats("Kind of report.", "findings"),
    fail_on=one_of("Exit 1 for it, and for not-comparable.", "regression"),
    quiet="The verdict alone.",
    verbose="Every row.",
)
def compare_runs(settings: Settings, before: str, after: str) -> int:
    """Compare the diagnoses of two runs, as 'advisor compare' does."""
    from advisor.cli.compare_verbs import deliver_document, gate_code
    from advisor.pipeline.compare import compare
    from advisor.pipeline.record import diagnosed
    from advisor.recording import store

    check_files(settings)
    names = [diagnosed(settings.folder, name).name for name in (before, after)]
    files = [settings.folder / store.RUNS / name / store.DIAGNOSIS for name in names]
    document = compare(files[0], files[1])
    deliver_document(document, settings)
    return gate_code(document, settings.fail_on)


@runs.command("rm")
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@takes("folder", files=("folder",))
def remove_runs(settings: Settings, names: Texts) -> None:
    """Remove runs with all that is kept of them."""
    from advisor.recording import store

    for folder in [store.named(name, settings.folder) for name in names]:
        store.remove(folder)
        message(f"removed {folder.name}")
