"""``advisor capture``: the nsys command for a goal, and what to do when a capture fails.
``advisor doctor TRACE``: capture quality alone, and the command that records a better one."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import typer

from advisor.cli.deliver import Progress, check_files, check_one, deliver_one, formats
from advisor.cli.settings import argument, goal_names, option, switch, takes
from advisor.config import Settings
from advisor.errors import InputError
from advisor.model.options import PlanRequest


@takes(
    "words engine phase where ranks iterations repeat input_len output_len delay duration without_graphs "
    "nsys name command_file troubleshoot show format output force quiet",
    files=(),
    record=PlanRequest,
    format=formats("Kind of plan."),
    quiet="Commands only.",
)
def capture(
    settings: Settings,
    request: dict[str, Any],
    words: list[str] | None = argument("[GOAL] [-- COMMAND...]", None, autocompletion=goal_names),
    command_file: Path | None = option("FILE", "Write the options as nsys command file."),
    troubleshoot: bool = switch("--troubleshoot", "What to do when a capture fails."),
    show: bool = switch("--list", "List goals, engines and places."),
) -> None:
    """Plan a capture: for a GOAL the nsys command, variables, and the advisor command after it.

    GOAL is kernel-breakdown, host-overhead, bandwidth, tail, memory, multi-gpu, running-server or
    benchmark; COMMAND is your program. Without either it asks. With --troubleshoot GOAL is a
    symptom (all of them without one).
    """
    check_files(settings, others={"--command-file": command_file})
    if troubleshoot:
        _troubles(words or [], settings)
    elif show:
        _listed(settings)
    else:
        if (release := request.get("release")) is not None:
            request["release"] = _release(release)
        _planned(words or [], request, settings, command_file)


def _release(text: str) -> tuple[int, int]:
    """``2023.4`` as a pair."""
    found = re.fullmatch(r"(20\d\d)\.(\d+)(?:\..*)?", text)
    if found is None:
        raise InputError(f"--nsys: '{text}' is not a release like 2023.4 (see nsys --version)")
    return int(found[1]), int(found[2])


def _listed(settings: Settings) -> None:
    """Goals, engines, places and symptoms."""
    from advisor.knowledge.capture import capture_goals, troubleshooting
    from advisor.model.capture_plan import GoalList
    from advisor.reports.checkup import goals

    data = capture_goals()
    found = GoalList(
        goals={g.id: g.question for g in data.goals},
        engines=tuple(data.engine_names()),
        places=tuple(p.id for p in data.places),
        symptoms=tuple(troubleshooting().start.symptoms),
    )
    deliver_one(found, partial(goals, found), "Goals of captures", settings)


def _planned(words: list[str], request: dict[str, Any], settings: Settings, file: Path | None) -> None:
    """The plan from the arguments and options; asks for what is missing."""
    from advisor.capture.goals import plan
    from advisor.reports.checkup import plan as blocks
    from advisor.reports.files import write_atomic

    goal, command = _split(words)
    if goal is None:
        from advisor.cli.capture_prompts import ask_request

        made = plan(ask_request(request, command))
    else:
        made = plan(PlanRequest(goal=goal, command=command, **request))
    if file is not None:
        # Only options: after a comment line nsys silently ignores all of them.
        text = "".join(f"{line}\n" for line in made.command_file)
        write_atomic(file, text.encode("utf-8", "replace"), settings.force)
        use = f"nsys profile --command-file={file} -o NAME COMMAND"
        print(f"Wrote {file} (by: {made.again}); use it with: {use}", file=sys.stderr)
    deliver_one(made, partial(blocks, made, settings.verbosity), made.title, settings)


def _split(words: list[str]) -> tuple[str | None, tuple[str, ...]]:
    """Goal and command. A first word that resembles a goal is one, the rest is the command."""
    from advisor.knowledge.capture import capture_goals

    goals = [g.id for g in capture_goals().goals]
    if not words:
        return None, ()
    if words[0] in goals or re.fullmatch(r"[a-z]+(-[a-z]+)*", words[0]):
        return words[0], tuple(words[1:])
    raise InputError(f"unknown goal '{words[0]}'; expected one of {', '.join(goals)} before the command")


def _troubles(words: list[str], settings: Settings) -> None:
    """Walk through the tree at a terminal, else print it or the part below a symptom."""
    from advisor.capture.goals import troubles as tree_of
    from advisor.reports.checkup import troubles

    if len(words) > 1:
        raise InputError(f"--troubleshoot takes one symptom; '{words[1]}' is too much")
    tree = tree_of(words[0] if words else None)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal and not words and settings.format == "text" and settings.output is None:
        from advisor.cli.capture_prompts import walk

        walk(tree)
        return
    deliver_one(tree, partial(troubles, tree), "When a capture fails", settings)


@takes(
    "trace serving_engine rules param strict redact format output force verbose",
    format=formats("Kind of report."),
    verbose="Every option, reason and advice.",
)
def doctor(
    settings: Settings,
    trace: Path = argument("TRACE"),
    strict: bool = switch("--strict", "Exit 1 on a finding of medium or above."),
) -> None:
    """Check a capture: what it can and cannot answer, which rules cannot run on it and why, and
    the one command that records what most of them need.
    """
    from advisor.pipeline.doctor import doctor as examine
    from advisor.reports.checkup import checkup

    check_one(settings, trace)
    with Progress(trace.name) as progress:
        found = examine(trace, settings, progress)
    deliver_one(found, partial(checkup, found, settings.verbosity), "Checkup of a capture", settings)
    if strict and any(f.severity in ("medium", "high") for f in found.findings):
        raise typer.Exit(1)
