"""Command lines that start their program by another one: what a recorder in front of it would see, and the
line to use instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from advisor.errors import InputError
from advisor.knowledge.launchers import Client, Split, launchers, split, unwrapped
from advisor.model.capture_plan import CapturePlan

#: Makes the plan for a program in a place.
Planner = Callable[[tuple[str, ...], str], CapturePlan]


def seen(command: Sequence[str], planner: Planner) -> str | None:
    """What a recorder in front of the command will not see, with the line that records it; None if it sees
    all. Raises InputError where it would see nothing of the program."""
    around = tuple(command)[: len(command) - len(unwrapped(command))]
    found = split(unwrapped(command), launchers().clients)
    if found is None or not isinstance(client := found.launcher, Client):
        return None
    program = found.program or ("COMMAND",)
    record = _record(planner(program, client.place), program)
    if client.quoted:
        record = shlex.quote(record)
    use = client.use.replace("{before}", shlex.join((*around, *found.before))).replace("{record}", record)
    text = f"{found.name}: {client.why}; record it so: {use} ({client.also})"
    if client.unseen:
        raise InputError(text)
    return text


def _record(made: CapturePlan, program: Sequence[str]) -> str:
    """The command line that records, without the launcher and the variables before it: nsys sets these."""
    (line, *_) = (n.command for step in made.steps if step.id == "record" for n in step.lines)
    output = re.search(r" -o (\S+)", line)
    assert output is not None
    return " ".join(["nsys profile", *made.command_file, "-o", output[1], shlex.join(program)])


def ways(command: Sequence[str]) -> str:
    """How the profiler of PyTorch records a command that it cannot record as it is; nothing for an unknown
    program."""
    found = split(command, launchers().wrappers)
    if found is not None and found.program:
        if found.launcher.use is None:
            before, program = shlex.join(found.before), shlex.join(found.program)
            return f"{before} advisor run --recorder torch -- {program}"
        return _use(found)
    found = split(command, launchers().scripts)
    return "" if found is None else _use(found)


def _use(found: Split) -> str:
    text = (found.launcher.use or "").replace("{before}", shlex.join(found.before))
    text = text.replace("{program}", shlex.join(found.program))
    text = text.replace("{whole}", shlex.join((*found.before, *found.program)))
    return f"{text} ({found.launcher.also})" if found.launcher.also else text
