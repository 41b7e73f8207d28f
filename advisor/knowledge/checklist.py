"""Shape and loader of ``knowledge/checklist.yaml``."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, StrictStr, model_validator

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, File, Key, Text
from advisor.model.review import Stage

FactName = Annotated[str, Field(pattern=r"^[a-z]+\.[a-z0-9_]+$")]
ParamName = Annotated[str, Field(pattern=r"^[A-Z]{3}\d{3}\.[a-z0-9_]+$")]


class Comparison(Data):
    """A fact against a limit: the parameter of a rule, or a yes, a no or a word. `known` asks only
    whether it is known."""

    fact: FactName
    op: Literal["lt", "le", "gt", "ge", "eq", "ne", "known"]
    value: StrictBool | StrictStr | None = None
    param: ParamName | None = None
    over: Literal["every", "any"] = "every"

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        limits = (self.value is not None) + (self.param is not None)
        if limits != (self.op != "known"):
            raise ValueError(f"{self.fact}: give a value or a param, and none with 'known'")
        return self


class Applies(Data):
    """Where an item is asked at all; `otherwise` says why it is not. `unknown` is what to do
    where the capture does not record it."""

    engines: list[Key] = Field(default_factory=list)
    not_engines: list[Key] = Field(default_factory=list)
    facts: list[Comparison] = Field(default_factory=list)
    otherwise: Text | None = None
    unknown: Literal["ask", "skip"] = "ask"

    @model_validator(mode="after")
    def _says_why_not(self) -> Self:
        if bool(self.facts) != bool(self.otherwise):
            raise ValueError("facts and otherwise belong together")
        return self


class ChecklistItem(Data):
    id: Key
    stage: Stage
    #: Which of the eight steps of the short list it belongs to.
    step: Annotated[int, Field(ge=1)] | None = None
    question: Annotated[str, Field(pattern=r"\?$")]
    why: Text
    how: Text
    met: list[Comparison] = Field(default_factory=list)
    unmet: list[Comparison] | None = None
    say: list[Text] = Field(default_factory=list)
    applies: Applies = Applies()
    command: Text | None = None
    source: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")]


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
