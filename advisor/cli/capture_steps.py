"""What `advisor capture` does once its options are read."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from advisor.cli.deliver import deliver_one, show
from advisor.errors import InputError
from advisor.reports import checkup as plan_blocks
from advisor.reports.files import STDOUT, check_targets, write_atomic


def check(output: Path | None, command_file: Path | None, force: bool) -> Path | None:
    """The file of the plan, if any; a bad path fails early."""
    output = None if output == STDOUT else output
    check_targets({"-o": output, "--command-file": command_file}, force)
    return output


def release(text: str | None) -> tuple[int, int] | None:
    """``2023.4`` as a pair."""
    if text is None:
        return None
    found = re.fullmatch(r"(20\d\d)\.(\d+)(?:\..*)?", text)
    if found is None:
        raise InputError(f"--nsys: '{text}' is not a release like 2023.4 (see nsys --version)")
    return int(found[1]), int(found[2])


def listed() -> None:
    """Goals, engines, places and symptoms."""
    from advisor.knowledge.capture import capture_goals, troubleshooting

    data = capture_goals()
    names = {
        "Engines": data.engine_names(),
        "Places (--where)": [p.id for p in data.places],
        "Symptoms (--troubleshoot)": list(troubleshooting().start.symptoms),
    }
    show(plan_blocks.goals([(g.id, g.title, g.question) for g in data.goals], names))


def planned(
    words: list[str],
    asked: dict[str, Any],
    format: str,
    output: Path | None,
    command_file: Path | None,
    force: bool,
    verbosity: int,
) -> None:
    """Plan what the words and options say; ask where they say nothing."""
    from advisor.capture.goals import plan
    from advisor.capture.request import PlanRequest

    goal, command = split(words)
    if goal is None:
        from advisor.cli.capture_prompts import ask_request

        made = plan(ask_request(asked, command))
    else:
        made = plan(PlanRequest(goal=goal, command=command, **asked))
    if command_file is not None:
        # Options alone: after a comment line nsys ignores all of them without a message.
        text = "".join(f"{line}\n" for line in made.command_file)
        write_atomic(command_file, text.encode("utf-8", "replace"), force)
        print(
            f"Wrote {command_file} (by: {made.again}); use it with: "
            f"nsys profile --command-file={command_file} -o NAME COMMAND",
            file=sys.stderr,
        )
    deliver_one(made, partial(plan_blocks.plan, made, verbosity), made.title, format, output, force)


def split(words: list[str]) -> tuple[str | None, tuple[str, ...]]:
    """Goal and command. A first word that looks like a goal is one, the rest is the command."""
    from advisor.knowledge.capture import capture_goals

    goals = [g.id for g in capture_goals().goals]
    if not words:
        return None, ()
    if words[0] in goals or re.fullmatch(r"[a-z]+(-[a-z]+)*", words[0]):
        return words[0], tuple(words[1:])
    raise InputError(f"unknown goal '{words[0]}'; expected one of {', '.join(goals)} before the command")


def troubles(words: list[str], format: str, output: Path | None, force: bool) -> None:
    """Walk through the tree at a terminal, else print it or the part below a symptom."""
    from advisor.capture.goals import troubles as tree_of

    if len(words) > 1:
        raise InputError(f"--troubleshoot takes one symptom; '{words[1]}' is too much")
    tree = tree_of(words[0] if words else None)
    if not words and format == "text" and output is None and _person():
        from advisor.cli.capture_prompts import walk

        walk(tree)
        return
    deliver_one(tree, partial(plan_blocks.troubles, tree), "When a capture fails", format, output, force)


def _person() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
