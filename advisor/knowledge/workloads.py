"""Loader of ``workloads.yaml``: what speaks for a kind of program, who launched the kernels, and how layers
of a model are named."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, Family, File, Pattern, Text

Kind = Literal["ranges", "operators", "modules", "kernels", "families", "command", "structure"]
Feature = Literal["named_phases", "decode_attention", "few_tokens", "names", "launches", "framework"]
Share = Annotated[float, Field(ge=0, le=1)]
LayerPart = Literal["attention", "ffn"]
#: Minimum and maximum, both inclusive; None is unbounded.
Bounds = tuple[float | None, float | None]


class Evidence(Data):
    """Evidence in a capture for a workload, or against it."""

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
    layers: Pattern
    parts: dict[LayerPart, Pattern]

    def layer(self, text: str) -> tuple[int | None, str]:
        """The number of the layer that a range names, and the text that follows it (all without a number)."""
        hit = re.search(self.layers, text)
        return (int(hit[1]), text[hit.end() :]) if hit else (None, text)

    def part(self, text: str) -> LayerPart | None:
        """The part of a layer that a range or a class of modules names."""
        return next((part for part, pattern in self.parts.items() if re.search(pattern, text)), None)


@cache
def workload_knowledge() -> WorkloadFile:
    return shipped("workloads.yaml", WorkloadFile)
