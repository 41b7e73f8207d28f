"""The walk through the questions: whoever answers, every answer is kept at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from advisor.checklist.answers import Reply, answered
from advisor.model.checklist import CheckEntry, Checklist

BACK: Literal["back"] = "back"


class Asker(Protocol):
    """Who answers: a person at a terminal, or a file."""

    def ask(
        self, entry: CheckEntry, checklist: Checklist, number: int, of: int
    ) -> Reply | Literal["back"] | None:
        """The answer; None leaves the question open, BACK returns to the one before."""


class FileAsker:
    """Answers from a file; questions that it does not know go to the next one, if any."""

    def __init__(self, replies: Mapping[str, Reply], then: Asker | None = None) -> None:
        self._replies = dict(replies)
        self._then = then

    def ask(
        self, entry: CheckEntry, checklist: Checklist, number: int, of: int
    ) -> Reply | Literal["back"] | None:
        if entry.id in self._replies:
            # Once: who goes back to the question is asked.
            return self._replies.pop(entry.id)
        return None if self._then is None else self._then.ask(entry, checklist, number, of)


def shortened(checklist: Checklist) -> Checklist:
    """The questions of the eight steps, in their order."""
    steps = sorted((e for e in checklist.entries if e.step is not None), key=lambda e: e.step or 0)
    return checklist.model_copy(update={"entries": tuple(steps)})


def walk(
    checklist: Checklist,
    asker: Asker,
    keep: Callable[[Checklist], None],
    also: frozenset[str] = frozenset(),
    short: bool = False,
) -> Checklist:
    """Ask what is open, and what `also` names, in `short` of the eight steps alone; `keep` is called
    after every answer."""
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
            checklist = checklist.model_copy(update={"entries": entries})
            keep(checklist)
        at += 1
    return checklist
