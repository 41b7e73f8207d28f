"""Questions at a terminal. questionary is imported only here, and only when something is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Literal

from advisor.checklist.answers import Reply
from advisor.checklist.run import BACK
from advisor.errors import InputError
from advisor.model.checklist import WORDS, Answer, CheckEntry, Checklist, Stage
from advisor.reports.blocks import Block
from advisor.reports.checklist import question

#: Key and answer of each choice.
KEYS: tuple[tuple[str, Answer], ...] = (("y", "yes"), ("n", "no"), ("x", "not_applicable"), ("l", "later"))

#: What leads back, at every prompt.
_BACK_KEYS = ("b", BACK)


def need_terminal(instead: str) -> None:
    """Fail without a terminal instead of blocking."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(f"this asks questions and there is no terminal; {instead}")


class TerminalAsker:
    """Asks a person; `show` prints blocks."""

    def __init__(self, show: Callable[[Iterable[Block]], None]) -> None:
        self._show = show
        self._stage: Stage | None = None

    def ask(
        self, entry: CheckEntry, checklist: Checklist, number: int, of: int
    ) -> Reply | Literal["back"] | None:
        title = checklist.stages[entry.stage] if entry.stage != self._stage else None
        self._stage = entry.stage
        self._show(question(entry, number, of, title))
        while True:
            answer = self._choice(entry, number)
            if answer == BACK:
                return BACK
            note = "" if answer == "later" else self._note(entry)
            if note not in _BACK_KEYS:
                return Reply(answer, note)

    def _choice(self, entry: CheckEntry, number: int) -> Answer | Literal["back"]:
        import questionary

        choices = [questionary.Choice(WORDS[answer], value=answer, shortcut_key=key) for key, answer in KEYS]
        if number > 1:
            choices.append(questionary.Choice("back", value=BACK, shortcut_key="b"))
        before = next((c for c in choices if c.value == entry.answer), None)
        picked: Answer | Literal["back"] = questionary.select(
            "Answer",
            choices=choices,
            default=before,
            use_shortcuts=True,
            use_arrow_keys=True,
            instruction="(key or arrows, then Enter)",
        ).unsafe_ask()
        return picked

    def _note(self, entry: CheckEntry) -> str:
        import questionary

        said = questionary.text(
            "Note", default=entry.note, instruction="(Enter: none, b: back to the answer) "
        )
        return str(said.unsafe_ask()).strip()
