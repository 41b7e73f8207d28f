"""``advisor capture``: the nsys command for a goal, with questions at a terminal, and what to do when a
capture fails; ``doctor``: what a capture can answer, and the command that records a better one."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from advisor.capture import goals
from advisor.checklist.session import BACK, choose, need_terminal, write
from advisor.cli.completion import goal_names, offer
from advisor.cli.deliver import Progress, check_files, check_traces, deliver_one, formats, show
from advisor.cli.messages import exit_code
from advisor.cli.options import PATH, Verb, asks, takes
from advisor.config import Settings
from advisor.errors import InputError
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.verb_files import capture_goals, troubleshooting
from advisor.model.capture_plan import GoalList, TroubleNode, Troubles
from advisor.model.options import PlanRequest
from advisor.numerals import read_int
from advisor.reports import listings
from advisor.reports.output_file import write_atomic


@click.command(cls=Verb)
@click.argument("words", metavar="[GOAL] [-- COMMAND...]", nargs=-1, shell_complete=offer(goal_names))
@asks()
@click.option("--command-file", type=PATH, metavar="FILE", help="Write the options as an nsys command file.")
@click.option("--troubleshoot", is_flag=True, help="What to do when a capture fails.")
@click.option("--list", "listed", is_flag=True, help="List goals, engines and places.")
@takes("format output force quiet", files=(), format=formats("Kind of plan."), quiet="Commands only.")
def capture(
    settings: Settings,
    request: dict[str, Any],
    words: Sequence[str],
    command_file: Path | None,
    troubleshoot: bool,
    listed: bool,
) -> None:
    """Plan a capture: for a GOAL the nsys command, variables, and the advisor command after it.

    GOAL is kernel-breakdown, host-overhead, bandwidth, tail, memory, multi-gpu, running-server or
    benchmark; COMMAND is your program. Without either it asks. With --troubleshoot GOAL is a
    symptom (all of them without one).
    """
    check_files(settings, others={"--command-file": command_file})
    if troubleshoot:
        _troubles(words, settings)
    elif listed:
        _listed(settings)
    else:
        if (release := request.get("release")) is not None:
            found = re.fullmatch(r"(20\d\d)\.(\d+)(?:\..*)?", release)
            if found is None:
                raise InputError(f"--nsys: '{release}' is not a release like 2023.4 (see nsys --version)")
            request["release"] = read_int(found[1]) or 0, read_int(found[2]) or 0
        _planned(words, request, settings, command_file)


def _listed(settings: Settings) -> None:
    """Goals, engines, places and symptoms."""
    data = capture_goals()
    found = GoalList(
        goals={g.id: g.question for g in data.goals},
        engines=tuple(data.engine_names()),
        places=tuple(p.id for p in data.places),
        symptoms=tuple(troubleshooting().start.symptoms),
    )
    deliver_one(found, listings.goals, "Goals of captures", settings)


def _planned(words: Sequence[str], request: dict[str, Any], settings: Settings, file: Path | None) -> None:
    """The plan from the arguments and options; asks for what is missing."""
    known = [g.id for g in capture_goals().goals]
    if not words:
        asked = ask_request(request)
    elif words[0] in known or re.fullmatch(r"[a-z]+(-[a-z]+)*", words[0]):  # it resembles a goal
        asked = PlanRequest(goal=words[0], command=tuple(words[1:]), **request)
    else:
        raise InputError(f"unknown goal '{words[0]}'; expected one of {', '.join(known)} before the command")
    made = goals.plan(asked)
    if file is not None:
        # Only options: after a comment line nsys silently ignores all of them.
        text = "".join(f"{line}\n" for line in made.command_file)
        write_atomic(file, text.encode("utf-8", "replace"), settings.force)
        use = f"nsys profile --command-file={file} -o NAME COMMAND"
        print(f"Wrote {file} (by: {made.again}); use it with: {use}", file=sys.stderr)
    deliver_one(made, listings.plan, made.title, settings, settings.verbosity)


def _troubles(words: Sequence[str], settings: Settings) -> None:
    """Walk through the tree at a terminal, else print it or the part below a symptom."""
    if len(words) > 1:
        raise InputError(f"--troubleshoot takes one symptom; '{words[1]}' is too much")
    tree = goals.troubles(words[0] if words else None)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal and not words and settings.format == "text" and settings.output is None:
        walk(tree)
        return
    deliver_one(tree, listings.troubles, "When a capture fails", settings)


@click.command(cls=Verb)
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=PATH)
@click.option("--strict", is_flag=True, help="Exit 1 on a finding of medium or above.")
@takes(
    "serving_engine rules param jobs redact format output force verbose",
    format=formats("Kind of report."),
    verbose="Every option, reason and advice.",
)
def doctor(settings: Settings, traces: Sequence[Path], strict: bool) -> int:
    """Check a capture: what it can and cannot answer, which rules cannot run on it and why, and
    the one command that records what most of them need. Of the ranks of a job, the one that lacks most.
    """
    from advisor.pipeline import gate
    from advisor.pipeline.doctor import doctor as examine

    check_traces(settings, traces)
    with Progress(traces[0].name) as progress:
        found = examine(traces, settings, progress, settings.jobs)
    deliver_one(found, listings.checkup, "Checkup of a capture", settings, settings.verbosity)
    heavy = [gate.named(f) for f in found.findings if strict and f.severity in ("medium", "high")]
    return exit_code(gate.failed(heavy, "--strict"))


#: The answer, "back", or None if there is nothing to ask.
Question = Callable[[PlanRequest], str | None]


def ask_request(given: dict[str, Any]) -> PlanRequest:
    """Ask for the goal and for everything else that was not given."""
    need_terminal(f"name a goal: {', '.join(g.id for g in capture_goals().goals)}")
    asked = PlanRequest(goal="", **given)
    before: list[tuple[int, PlanRequest]] = []
    at = 0
    while at < len(QUESTIONS):
        name, question, meaning = QUESTIONS[at]
        answer = question(asked)
        if answer == BACK:
            at, asked = before.pop()
            continue
        if answer is not None:
            before.append((at, asked))
            asked = replace(asked, **{name: meaning(answer)})
        at += 1
    return asked


def _goal(_: PlanRequest) -> str:
    offered = [(g.id, f"{g.title}: {g.question}", None) for g in capture_goals().goals]
    return choose("What is to be found out?", offered, first=True)


def _engine(asked: PlanRequest) -> str | None:
    if asked.engine is not None:
        return None
    named = [(e, engines()[e].title, None) for e in capture_goals().engine_names()]
    return choose("Which serving engine?", [*named, ("any", "another one", None)])


def _phase(asked: PlanRequest) -> str | None:
    data = capture_goals()
    if asked.phase is not None or not next(g for g in data.goals if g.id == asked.goal).phases:
        return None
    shapes = [(p, f"{p}: {s.prompt} prompt tokens, {s.output} output", None) for p, s in data.shapes.items()]
    return choose("Which phase?", [("both", "both, one capture each", None), *shapes])


def _place(asked: PlanRequest) -> str | None:
    places = [(p.id, p.title, None) for p in capture_goals().places]
    return choose("Where does it run?", places) if asked.place == "bare" else None


def _ranks(asked: PlanRequest) -> str | None:
    jobs = [p.id for p in capture_goals().places if p.ranks]
    return write("How many ranks?", str(asked.ranks or 2), valid=_whole) if asked.place in jobs else None


def _command(_: PlanRequest) -> str:
    return write("Your command", empty="an example", valid=_words)


#: The field of the request, its question, and what an answer means.
QUESTIONS: tuple[tuple[str, Question, Callable[[str], Any]], ...] = (
    ("goal", _goal, str),
    ("engine", _engine, lambda answer: None if answer == "any" else answer),
    ("phase", _phase, lambda answer: None if answer == "both" else answer),
    ("place", _place, str),
    ("ranks", _ranks, int),
    ("command", _command, lambda answer: tuple(shlex.split(answer))),
)


def _whole(text: str) -> bool | str:
    return ((read_int(text) or 0) > 0) or "a whole number, 1 or more"


def _words(text: str) -> bool | str:
    try:
        shlex.split(text)
    except ValueError as fault:
        return f"cannot be read: {fault}"
    return True


def walk(tree: Troubles) -> None:
    """From the symptom to the remedy, one question at a time."""
    nodes = {n.id: n for n in tree.nodes}
    symptoms = [(s, nodes[s].symptom or s, None) for s in tree.symptoms]
    path: list[TroubleNode] = []
    while True:
        if not path:
            path = [nodes[choose(tree.ask, symptoms, first=True)]]
        at = path[-1]
        show(listings.node(at))
        if not at.answers:
            return
        picked = choose(at.ask or "", [(str(i), a.text, None) for i, a in enumerate(at.answers)])
        if picked == BACK:
            path.pop()
        else:
            path.append(nodes[at.answers[int(picked)].then])
