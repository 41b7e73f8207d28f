"""Questions at a terminal, with the same keys everywhere: back, quit, help. questionary is imported when
something is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import Literal, Protocol

from advisor.checklist.session import Reply, answered
from advisor.errors import InputError
from advisor.model.review import WORDS, Answer, CheckEntry, Checklist, Stage
from advisor.reports.blocks import Block
from advisor.reports.review_blocks import question

BACK: Literal["back"] = "back"
#: None leaves the question open, BACK returns to the previous one.
Answered = Reply | Literal["back"] | None


class Asker(Protocol):
    """Source of answers: a person at a terminal, or a file."""

    def ask(self, entry: CheckEntry, checklist: Checklist, number: int, of: int) -> Answered: ...


class FileAsker:
    """Answers from a file; questions that are not in it go to the next asker, if any."""

    def __init__(self, replies: Mapping[str, Reply], then: Asker | None = None) -> None:
        self._replies = dict(replies)
        self._then = then

    def ask(self, entry: CheckEntry, checklist: Checklist, number: int, of: int) -> Answered:
        if entry.id in self._replies:
            # Used once: after going back the question is asked again.
            return self._replies.pop(entry.id)
        return None if self._then is None else self._then.ask(entry, checklist, number, of)


def shortened(checklist: Checklist) -> Checklist:
    """The questions of the eight steps, in their order."""
    steps = sorted((e for e in checklist.entries if e.step is not None), key=lambda e: e.step or 0)
    return checklist.replaced(entries=tuple(steps))


def walk(
    checklist: Checklist,
    asker: Asker,
    keep: Callable[[Checklist], None],
    also: frozenset[str] = frozenset(),
    short: bool = False,
) -> Checklist:
    """Ask the open questions and those in `also`, or the eight steps; `keep` is called after every answer."""
    asked = shortened(checklist).entries if short else checklist.entries
    order = [e.id for e in asked if e.open or e.id in also]
    at = 0
    while at < len(order):
        entry = next(e for e in checklist.entries if e.id == order[at])
        reply = asker.ask(entry, checklist, at + 1, len(order))
        if reply == BACK:
            at = max(at - 1, 0)
            continue
        if isinstance(reply, Reply):
            entries = tuple(answered(e, reply) if e.id == entry.id else e for e in checklist.entries)
            checklist = checklist.replaced(entries=entries)
            keep(checklist)
        at += 1
    return checklist


#: Key and answer of each choice.
KEYS: tuple[tuple[str, Answer], ...] = (("y", "yes"), ("n", "no"), ("x", "not_applicable"), ("l", "later"))

_QUIT, _HELP = "quit", "help"
HELP = (
    "Press the key of a choice or move with the arrows, then Enter. b goes back to the question before, "
    "q or Ctrl-C stops, h shows this; in a line of text b, q and h stand alone."
)
#: Below the text of a choice, after the pointer and the key.
_INDENT = " " * len(" » 1) ")


def need_terminal(instead: str) -> None:
    """Fail without a terminal instead of blocking."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(f"this asks questions and there is no terminal; {instead}")


def choose(
    ask: str, choices: Sequence[tuple[str, str, str | None]], default: str | None = None, first: bool = False
) -> str:
    """The chosen value of (value, text, key or None), or BACK unless `first`. KeyboardInterrupt: quit."""
    import questionary

    width = get_terminal_size().columns - len(_INDENT) - 1
    offered = [
        questionary.Choice(f"\n{_INDENT}".join(wrap(text, width)), value=value, shortcut_key=key)
        for value, text, key in choices
    ]
    before = next((c for c in offered if c.value == default), None)
    keys = (_QUIT, _HELP) if first else (BACK, _QUIT, _HELP)
    offered += [questionary.Choice(key, value=key, shortcut_key=key[0]) for key in keys]
    while True:
        picked = questionary.select(
            ask,
            choices=offered,
            default=before,
            use_shortcuts=True,
            use_arrow_keys=True,
            instruction="(key or arrows, then Enter)",
        ).unsafe_ask()
        if picked == _QUIT:
            raise KeyboardInterrupt
        if picked != _HELP:
            return str(picked)
        print(HELP)


def write(
    ask: str, default: str = "", empty: str = "", valid: Callable[[str], bool | str] | None = None
) -> str:
    """A line of text, or BACK; `empty` is the meaning of Enter alone, `valid` returns the fault of a line.
    Raises KeyboardInterrupt to quit."""
    import questionary

    keys = ", ".join([*([f"Enter: {empty}"] if empty else []), "b: back", "q: quit", "h: help"])
    check = (lambda text: text in ("b", "q", "h") or valid(text)) if valid is not None else None
    while True:
        asked = questionary.text(ask, default=default, instruction=f"({keys}) ", validate=check)
        text = str(asked.unsafe_ask()).strip()
        if text == "q":
            raise KeyboardInterrupt
        if text != "h":
            return BACK if text == "b" else text
        print(HELP)


class TerminalAsker:
    """Asks a person; `show` prints blocks."""

    def __init__(self, show: Callable[[Iterable[Block]], None]) -> None:
        self._show = show
        self._stage: Stage | None = None

    def ask(self, entry: CheckEntry, checklist: Checklist, number: int, of: int) -> Answered:
        title = checklist.stages[entry.stage] if entry.stage != self._stage else None
        self._stage = entry.stage
        self._show(question(entry, number, of, title))
        choices = [(answer, WORDS[answer], key) for key, answer in KEYS]
        while True:
            picked = choose("Answer", choices, entry.answer, first=number == 1)
            answer = next((a for _, a in KEYS if a == picked), None)
            if answer is None:
                return BACK
            note = "" if answer == "later" else write("Note", entry.note, "none")
            if note != BACK:
                return Reply(answer, note)
