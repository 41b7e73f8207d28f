"""Loader of ``workloads.yaml``: what speaks for a kind of program, and who launched the kernels."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, Family, File, Pattern, Text

Kind = Literal["ranges", "operators", "modules", "kernels", "families", "command", "structure"]
Feature = Literal["named_phases", "decode_attention", "few_tokens", "names", "launches", "framework"]
Share = Annotated[float, Field(ge=0, le=1)]
#: Least and most, both included; None leaves a side open.
Bounds = tuple[float | None, float | None]


class Evidence(Data):
    """Something that is seen in a capture and speaks for a workload, or against it."""

    kind: Kind
    weight: float = Field(ge=-10, le=10)
    match: Pattern | None = None
    families: tuple[Family, ...] = ()
    share: Share = 0
    where: dict[Feature, Bounds] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _looks_at_one_thing(self) -> Self:
        given = {"families": bool(self.families), "structure": bool(self.where)}
        wanted = self.kind if self.kind in given else "match"
        if not {**given, "match": self.match is not None}[wanted]:
            raise ValueError(f"evidence of kind {self.kind} lacks what it looks at")
        return self


class Workload(Data):
    name: Text
    contains_others: bool = False
    evidence: tuple[Evidence, ...] = Field(min_length=1)


class Framework(Data):
    name: Text
    kernels: tuple[Pattern, ...] = ()
    ranges: tuple[Pattern, ...] = ()


class WorkloadFile(File):
    """`least` and `decisive` are sums of weights; see the head of the file."""

    least: float = Field(gt=0)
    decisive: float = Field(gt=0)
    frameworks: tuple[Framework, ...]
    workloads: tuple[Workload, ...] = Field(min_length=1)


@cache
def workload_knowledge() -> WorkloadFile:
    return shipped("workloads.yaml", WorkloadFile)
