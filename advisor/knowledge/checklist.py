"""Shape and loader of ``knowledge/checklist.yaml``."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, File, Key, Text
from advisor.model.review import Stage


class ChecklistItem(Data):
    """An item that only a person can answer has its texts here, any other in the rule whose cause is its
    `id`. `say` tells the number: the first line whose facts are all known is taken."""

    id: Key
    stage: Stage
    #: Which of the eight steps of the short list it belongs to.
    step: Annotated[int, Field(ge=1)] | None = None
    question: Annotated[str, Field(pattern=r"\?$")] | Literal[""] = ""
    why: str = ""
    how: str = ""
    source: str = ""
    say: list[Text] = Field(default_factory=list)
    command: Text | None = None


class ChecklistFile(File):
    stages: dict[Stage, Text]
    items: list[ChecklistItem] = Field(min_length=1)

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        ids = [item.id for item in self.items]
        if twice := {i for i in ids if ids.count(i) > 1}:
            raise ValueError(f"these ids are there twice: {', '.join(sorted(twice))}")
        return self


@cache
def checklist_items() -> ChecklistFile:
    """The questions, in the order in which they are asked."""
    return shipped("checklist.yaml", ChecklistFile)
