"""The checklist of a performance analysis with its answers: ``advisor checklist``.

Keys may be added, none is renamed.
"""

from __future__ import annotations

from typing import Literal

from advisor.model.capture import Frozen
from advisor.model.findings import SCHEMA_VERSION, ConditionDoc, Tool

Stage = Literal["before", "during", "after"]
Answer = Literal["yes", "no", "not_applicable", "later"]
ANSWERS: tuple[Answer, ...] = ("yes", "no", "not_applicable", "later")
#: Answers as people read them.
WORDS: dict[str, str] = {"yes": "yes", "no": "no", "not_applicable": "not applicable", "later": "later"}
#: Who signs what no person answered.
AUTOMATIC = "the capture"


class CheckEntry(Frozen):
    """One question, of one of the eight `step`s or none. `by` says who answered; `proof` is what the
    capture says, with its number, also where a person has answered otherwise (`measured` is then the
    capture's answer)."""

    id: str
    stage: Stage
    step: int | None = None
    question: str
    why: str
    how: str
    command: str | None = None
    source: str
    answer: Answer | None = None
    by: Literal["capture", "person"] | None = None
    note: str = ""
    measured: Answer | None = None
    proof: str = ""
    conditions: tuple[ConditionDoc, ...] = ()

    @property
    def open(self) -> bool:
        """Still to be answered."""
        return self.answer in (None, "later")


class Checklist(Frozen):
    """`captures` are the files whose facts answered; `stages` are the titles of the parts."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    session: str | None = None
    captures: tuple[str, ...] = ()
    serving_engine: str | None = None
    stages: dict[Stage, str]
    entries: tuple[CheckEntry, ...]

    def count(self, answer: Answer | None) -> int:
        return sum(e.answer == answer for e in self.entries)
