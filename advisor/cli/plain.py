"""Command lines of ``advisor diagnose`` that do not need typer, whose import takes longer than reading a
small capture: captures and flags, spelled out. Any other line is left to typer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.cli import messages
from advisor.cli.main import VERBS


def run_plain(words: Sequence[str]) -> int | None:
    """The exit code; None for a line that typer has to read."""
    if not words or "_ADVISOR_COMPLETE" in os.environ:
        return None
    given = list(words)
    if given[0] == "diagnose":
        given.pop(0)
    elif given[0] in VERBS or not (given[0].startswith("-") or os.path.exists(given[0])):
        return None  # another verb, or a mistyped one
    from advisor.cli.diagnosis import OPTIONS, diagnose
    from advisor.config import FLAGS, SETTINGS

    names = OPTIONS.split()
    known = {name: FLAGS[name] for name in names if name in FLAGS}
    if (line := _parsed(given, known)) is None:
        return None
    traces, typed = line
    from advisor.cli.deliver import notes_printed, settings_of

    with notes_printed():
        choices = {name: setting.flag.choices for name, setting in known.items()}
        settings = settings_of(typed, names, tuple(SETTINGS), choices)
        code = diagnose(replace(settings, strict=messages.debug), traces)
        sys.stdout.flush()
    return code


def _parsed(words: Sequence[str], known: dict[str, Any]) -> tuple[list[Path], dict[str, Any]] | None:
    """Captures, and values of flags by name; None if a word is not exactly one of them."""
    names = {f"--{name.replace('_', '-')}": name for name in known}
    names |= {short: name for name, setting in known.items() for short in setting.flag.short}
    traces: list[Path] = []
    typed: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            traces.append(Path(word))
            continue
        flag, equals, value = word.partition("=")
        name = names.get(flag)
        if name is None or (equals and not flag.startswith("--")):
            return None
        setting = known[name]
        if setting.kind == "bool":
            if equals:
                return None
            typed[name] = True
            continue
        if not equals:
            value = next(rest, "-")
        if value.startswith("-"):
            return None
        if setting.kind == "int":
            if not (value.isascii() and value.isdigit()) or int(value) < (setting.flag.at_least or 0):
                return None
            typed[name] = int(value)
        elif setting.kind == "list":
            typed.setdefault(name, []).append(value)
        else:
            typed[name] = value
    return traces, typed
