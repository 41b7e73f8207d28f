"""`knowledge/healthy_rates.yaml`: what healthy kernels reach of the peak, as measured."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated

from advisor.knowledge.files import shipped
from advisor.knowledge.gpus import gpu_of
from advisor.knowledge.operators import OperatorWork
from advisor.knowledge.shapes import Data, Family, File, Pattern, Precision, Text
from advisor.model.capture import Device
from advisor.model.file_content import Constraint

Share = Annotated[float, Constraint(ge=0.01, le=1)]


class HealthyRate(Data, frozen=True, kw_only=True):
    """Shares of the dense peak that kernels of a family reach on some GPUs, from `min_gflop` a call on."""

    family: Family
    types: Annotated[list[Precision], Constraint(min_length=1)]
    gpus: Pattern
    min_gflop: Annotated[float, Constraint(ge=0.1, le=100_000)]
    usual: Share
    best: Share
    source: Text

    def __post_init__(self) -> None:
        if self.best < self.usual:
            raise ValueError("`best` is below `usual`")


class HealthyRateFile(File, frozen=True, kw_only=True):
    rates: Annotated[list[HealthyRate], Constraint(min_length=1)]


@cache
def healthy_rates() -> tuple[HealthyRate, ...]:
    return tuple(shipped("healthy_rates.yaml", HealthyRateFile).rates)


def healthy_rate(device: Device, work: OperatorWork) -> HealthyRate | None:
    """What kernels that do such work reach on a device; None if it was not measured."""
    about = gpu_of(device)
    if about is None or not work.matrix or work.precision is None:
        return None
    return next(
        (
            rate
            for rate in healthy_rates()
            if rate.family == work.family
            and work.precision in rate.types
            and work.flop >= rate.min_gflop * 1e9
            and re.search(rate.gpus, about.name)
        ),
        None,
    )
