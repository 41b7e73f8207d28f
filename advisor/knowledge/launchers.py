"""Programs that start other programs, as `knowledge/launchers.yaml` describes them: which one a command line
begins with, and where the program in it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import PurePath
from typing import Annotated, NamedTuple

from msgspec import field

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, File, Key, Text
from advisor.model.file_content import Constraint

_ASSIGNED = re.compile(r"^[A-Za-z_]\w*=")
_PYTHON = re.compile(r"python[\d.]*")


class Launcher(Data, frozen=True, kw_only=True):
    """How the command line of a launcher is read, and the line to use instead of recording it as it is."""

    match: Annotated[list[Text], Constraint(min_length=1)]
    flags: list[Text] = field(default_factory=list)
    two: list[Text] = field(default_factory=list)
    words: bool = False
    operands: Annotated[int, Constraint(ge=0)] = 0
    dashes: bool = False
    assignments: bool = False
    use: Text | None = None
    also: Text | None = None


class Client(Launcher, frozen=True, kw_only=True):
    """A launcher that asks another process to start the program; `quoted`: that process is a shell."""

    use: Text
    also: Text
    place: Key
    why: Text
    unseen: bool = True
    quoted: bool = False


class LauncherFile(File, frozen=True, kw_only=True):
    clients: list[Client]
    wrappers: list[Launcher]
    scripts: list[Launcher]


@cache
def launchers() -> LauncherFile:
    """What is known about launchers."""
    return shipped("launchers.yaml", LauncherFile)


class Split(NamedTuple):
    """A command line as a launcher, by the `name` that it is known by, with its options, `before`, and the
    program that it starts, which may be missing."""

    name: str
    launcher: Launcher
    before: tuple[str, ...]
    program: tuple[str, ...]


def split(command: Sequence[str], known: Sequence[Launcher]) -> Split | None:
    """The first of the `known` launchers that the command line begins with; None for another program."""
    for launcher in known:
        for match in launcher.match:
            wanted = match.split()
            if plain(command)[: len(wanted)] == wanted:
                at = _program_at(command, len(wanted), launcher)
                return Split(match, launcher, tuple(command[:at]), tuple(command[at:]))
    return None


def unwrapped(command: Sequence[str]) -> tuple[str, ...]:
    """The command line without what is only around the program: `env A=1`, `nice`, `uv run`."""
    while (found := split(command, launchers().wrappers)) is not None and found.program:
        command = found.program
    return tuple(command)


def plain(command: Sequence[str]) -> list[str]:
    """The words with the plain name of the program first: `python` for `/usr/bin/python3.12`."""
    first = PurePath(command[0]).name if command else ""
    return ["python" if _PYTHON.fullmatch(first) else first, *command[1:]]


def _program_at(command: Sequence[str], at: int, launcher: Launcher) -> int:
    """Where the program begins: after options, assignments and operands, and two dashes, if there are any."""
    if launcher.dashes:
        return command.index("--", at) + 1 if "--" in command[at:] else len(command)
    operands = launcher.operands
    while at < len(command):
        word = command[at]
        if word == "--" and not operands:
            return at + 1
        if word.startswith("-") and len(word) > 1:
            at += 1 + (0 if word == "--" else _values(word, launcher))
        elif launcher.assignments and _ASSIGNED.match(word):
            at += 1
        elif operands:
            at, operands = at + 1, operands - 1
        else:
            return at
    return len(command)


def _values(word: str, launcher: Launcher) -> int:
    """How many of the words after an option are its own."""
    if word in launcher.two:
        return 2
    if "=" in word or word in launcher.flags:
        return 0
    if word.startswith("--") or launcher.words:
        return 1
    # Short options in one word, as `-ito FILE`: flags, then one whose value is the rest, or the next word.
    left = word[1:]
    while left and f"-{left[0]}" in launcher.flags:
        left = left[1:]
    return int(len(left) == 1)
