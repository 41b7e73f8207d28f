"""Sums of a whole recording by name, as `nsys stats` printed them."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import step_patterns
from advisor.model.arrays import Array
from advisor.sources.schema import TABLES, Summed
from advisor.sources.trace import Trace

_STATISTICS = TABLES["sums"][2:]


class Sums(Struct, frozen=True):
    """One report, a row a name. `count`, then ns (bytes of `SIZES`); NaN where it was not printed."""

    names: list[str]
    count: Array
    total: Array
    median: Array
    least: Array
    most: Array
    deviation: Array

    @property
    def mean(self) -> Array:
        return np.asarray(self.total / np.maximum(self.count, 1))

    def __len__(self) -> int:
        return len(self.names)

    def take(self, mask: Array) -> Sums:
        names = [n for n, wanted in zip(self.names, mask, strict=True) if wanted]
        return Sums(names, *(getattr(self, f)[mask] for f in list(self.__struct_fields__)[1:]))


def sums_of(trace: Trace, report: Summed) -> Sums:
    """The rows of one report, largest total first; those of one name (threads, devices) are one:
    its median is that of the rows' medians, by count."""
    columns = trace.columns("sums", ("report", "name_id", *_STATISTICS))
    mine = np.flatnonzero(columns["report"] == report)
    ids, at = np.unique(columns["name_id"][mine], return_inverse=True)
    value = {n: columns[n][mine].astype(float) for n in _STATISTICS}
    median = np.where(np.isnan(value["median"]), value["average"], value["median"])
    count, total = (np.bincount(at, np.nan_to_num(value[n]), minlength=len(ids)) for n in ("count", "total"))
    least, most = np.full(len(ids), np.inf), np.full(len(ids), -np.inf)
    np.fmin.at(least, at, value["least"])
    np.fmax.at(most, at, value["most"])
    middle = np.array([weighted_median(median[at == i], value["count"][at == i]) for i in range(len(ids))])
    # Of rows of one name: the mean of the squares, less the square of the mean.
    squares = value["count"] * (value["deviation"] ** 2 + value["average"] ** 2)
    mean = total / np.maximum(count, 1)
    spread = np.bincount(at, squares, minlength=len(ids)) / np.maximum(count, 1) - mean**2
    deviation = np.sqrt(np.maximum(spread, 0))
    order = np.argsort(-total, kind="stable")
    names = trace.texts(ids[order].tolist())
    least, most = (np.where(np.isfinite(v), v, np.nan) for v in (least, most))
    return Sums(names, *(v[order] for v in (count, total, middle, least, most, deviation)))


def weighted_median(values: Array, weight: Array) -> float:
    """The median of so many of each value; NaN without any. It is exact where all calls of a name
    take about equally long."""
    known = ~np.isnan(values) & (weight > 0)
    values, weight = values[known], weight[known]
    if not len(values):
        return float("nan")
    order = np.argsort(values, kind="stable")
    reach = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reach, reach[-1] / 2)])


def steps_of(ranges: Sums) -> int:
    """Passes (else loops) that the ranges count, 0 where none is named so."""
    patterns, count = step_patterns(), {"pass": 0.0, "loop": 0.0}
    for name, times in zip(ranges.names, ranges.count.tolist(), strict=True):
        if hit := patterns.step(name):
            count[hit.kind] += times
    return round(count["pass"] or count["loop"])


def base_name(name: str) -> str:
    """A kernel's name without return type, template and call arguments."""
    plain, before = name, ""
    while plain != before:
        before, plain = plain, re.sub(r"<[^<>]*>|\([^()]*\)", "", plain)
    return plain.split("<")[0].split("(")[0].split()[-1:][0] if plain.split() else name
