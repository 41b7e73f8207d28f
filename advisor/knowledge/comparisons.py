"""Shapes and loaders of the files in `knowledge/` that comparisons read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Literal

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, File, Key, Pattern, Text
from advisor.model.records import Field

Direction = Literal["higher", "lower"]


class BenchmarkMetric(Data):
    """A number of a benchmark report: its paths in JSON reports, and its labels in text and CSV.
    Values are multiplied by `scale` to come in `unit`."""

    unit: Literal["tok/s", "req/s", "ms"]
    better: Direction
    keys: list[Text] = Field(default_factory=list)
    labels: list[Pattern] = Field(default_factory=list)
    scale: float = 1.0


class RouterModel(Data):
    name: Text
    method: Text


class RouterCommand(Data):
    title: Text
    line: Text


class RouterFile(File):
    """moe_router.yaml"""

    variable: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
    models: list[RouterModel] = Field(min_length=1)
    backends: list[Text] = Field(min_length=1)
    notice: Text
    how: Text
    commands: list[RouterCommand] = Field(min_length=2)
    repeat: Text
    metrics: dict[Key, BenchmarkMetric]


class Difference(Data):
    """The meaning of a difference between engines in a metric, from a ratio (or difference) on."""

    metric: Text
    min_ratio: float | None = Field(default=None, gt=1)
    min_difference: float | None = Field(default=None, gt=0)
    #: The larger value must reach this to be reported.
    min_value: float = 0.0
    text: Text


class FrameworkFile(File):
    """frameworks.yaml"""

    differences: list[Difference]


@cache
def moe_router() -> RouterFile:
    return shipped("moe_router.yaml", RouterFile)


@cache
def benchmark_metrics() -> Mapping[str, BenchmarkMetric]:
    """Metrics of benchmark reports, the most informative first."""
    return MappingProxyType(moe_router().metrics)


@cache
def framework_differences() -> tuple[Difference, ...]:
    return tuple(shipped("frameworks.yaml", FrameworkFile).differences)


class Limit(Data):
    """From this multiple of `over` on, two captures differ in what `meaning` says."""

    value: float
    over: Text
    meaning: Text
    source: Text


class Factor(Data):
    """The remaining comparability of two sides with this difference."""

    value: float = Field(gt=0, lt=1)
    meaning: Text
    source: Text


class ComparisonFile(File):
    limits: dict[Key, Limit]
    factors: dict[Key, Factor]


@cache
def _comparison() -> ComparisonFile:
    return shipped("comparison.yaml", ComparisonFile)


def limit(name: str) -> float:
    return _comparison().limits[name].value


def factor(name: str) -> float:
    return _comparison().factors[name].value
