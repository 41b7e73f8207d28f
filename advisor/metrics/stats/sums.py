"""Sums by group, and the summary reports that `nsys stats` has: kernels, API, copies, NVTX, OS.

Columns, their order, rounding and the order of rows are those of `nsys stats` 2023.4: largest
total first, equal totals in the order of the string pool, standard deviation of the sample.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from advisor.metrics.kernels import dense
from advisor.metrics.stats.rows import Labels, Query, text_labels
from advisor.model.arrays import Array
from advisor.model.stats import Column, StatsTable, Unit
from advisor.sources.schema import MARK, PUSH_POP

#: CUpti_ActivityMemcpyKind in the words of the nsys export.
COPY_OPERATIONS = {
    1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host",
    5: "Array-to-Array", 6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device",
    9: "Host-to-Host", 10: "Peer-to-Peer", 11: "Unified Host-to-Device",
    12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
MEMSET_OPERATION = "[CUDA memset]"
STYLES = ("PushPop", "StartEnd")
BYTES_PER_MB = 1e6

_VERSION = re.compile(r"_v\d+$")


@dataclass(frozen=True)
class Sums:
    """Statistics of whole numbers by group; `std` is that of the sample, 0 for one value."""

    count: Array
    total: Array
    avg: Array
    med: Array
    minimum: Array
    maximum: Array
    std: Array


def sums(group: Array, values: Array, groups: int) -> Sums:
    """Statistics of `values` in each group. A group without values holds zeros."""
    count = np.bincount(group, minlength=groups)
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if low >= 0 and high >> 40 == 0 and groups >> 23 == 0:
        # One composite key sorts several times faster than two.
        ranked = np.sort((group.astype(np.int64) << 40) | values) & ((1 << 40) - 1)
    else:
        ranked = values[np.lexsort((values, group))]
    first = np.cumsum(count) - count
    some = count > 0
    divisor = np.maximum(count, 1)

    def at(position: Array) -> Array:
        out = np.zeros(groups, np.int64)
        out[some] = ranked[(first + position)[some]]
        return out

    last = np.maximum(count - 1, 0)
    # Sums of whole numbers are exact in a double up to 2**53, which is 104 days of ns.
    total = np.rint(np.bincount(group, values, minlength=groups)).astype(np.int64)
    avg = total / divisor
    deviation = np.bincount(group, (values - avg[group]) ** 2, minlength=groups)
    std = np.where(count > 1, np.sqrt(deviation / np.maximum(count - 1, 1)), 0.0)
    med = (at(last // 2) + at((last + 1) // 2)) / 2
    return Sums(count, total, avg, med, at(np.zeros(groups, np.int64)), at(last), std)


def spread_columns(
    found: Sums, prefix: str = "", unit: Unit = "ns", decimals: int = 1, ranks: str = "01324"
) -> tuple[Column, ...]:
    """Avg, Med, Min, Max and StdDev; `ranks` has a digit for each."""
    whole = unit == "ns"
    scale = 1.0 if whole else BYTES_PER_MB
    return tuple(
        Column(
            f"{prefix}{name}",
            values / scale if scale != 1.0 else values,
            unit,
            0 if whole and name in ("Min", "Max") else decimals,
            int(rank),
        )
        for name, values, rank in zip(
            ("Avg", "Med", "Min", "Max", "StdDev"),
            (found.avg, found.med, found.minimum, found.maximum, found.std),
            ranks,
            strict=True,
        )
    )


def time_columns(found: Sums, count: str, order: Array) -> tuple[Column, ...]:
    """Share, total, count and spread of durations in ns, for the groups in this order."""
    share = found.total * 100.0 / max(int(found.total.sum()), 1)
    columns = (
        Column("Time", share, "%", 1),
        Column("Total Time", found.total, "ns"),
        Column(count, found.count),
        *spread_columns(found),
    )
    return tuple(c.take(order) for c in columns)


def largest_first(total: Array) -> Array:
    """Order of groups by total; equal ones stay in their order."""
    return np.argsort(-total, kind="stable")


def _summary(
    report: str, title: str, count: str, name: str, labels: Labels, duration: Array, note: str = ""
) -> StatsTable:
    """The usual report: durations in ns by name."""
    found = _seen(sums(labels.code, duration, len(labels.texts)))
    order = found.order
    columns = (*time_columns(found.sums, count, order), Column(name, labels.of(found.group[order])))
    return StatsTable(report, title, columns, note=note)


@dataclass(frozen=True)
class _Seen:
    """Statistics of the groups that have rows; `group` is the number of each."""

    sums: Sums
    group: Array

    @property
    def order(self) -> Array:
        return largest_first(self.sums.total)


def _seen(found: Sums) -> _Seen:
    group = np.flatnonzero(found.count)
    return _Seen(Sums(*(getattr(found, f)[group] for f in found.__dataclass_fields__)), group)


def kernels(q: Query) -> StatsTable:
    """Time of kernels by name (cuda_gpu_kern_sum)."""
    span = q.columns("kernels", ("start", "end"))
    note = ""
    runs = len(q.rows("graph_runs"))
    if runs:
        note = (
            f"CUDA graph runs recorded as one block, without their kernels: {runs} "
            "(record with --cuda-graph-trace=node)"
        )
    return _summary(
        "kernels",
        "CUDA GPU kernel summary",
        "Instances",
        "Name",
        q.kernels,
        span["end"] - span["start"],
        note,
    )


def call_labels(q: Query, ids: Array) -> Labels:
    """Names of API calls without their version, unless two of them would then be the same."""
    labels = text_labels(q.a, ids)
    short = [_VERSION.sub("", text) for text in labels.texts]
    plain = [s if short.count(s) == 1 else t for s, t in zip(short, labels.texts, strict=True)]
    return Labels(labels.code, plain)


def api(q: Query) -> StatsTable:
    """Time in CUDA API calls by name (cuda_api_sum)."""
    calls = q.columns("api_calls", ("start", "end", "name_id"))
    return _summary(
        "api",
        "CUDA API summary",
        "Num Calls",
        "Name",
        call_labels(q, calls["name_id"]),
        calls["end"] - calls["start"],
    )


def osrt(q: Query) -> StatsTable:
    """Time in OS runtime calls by name (osrt_sum)."""
    calls = q.columns("host_calls", ("start", "end", "name_id"))
    return _summary(
        "osrt",
        "OS runtime summary",
        "Num Calls",
        "Name",
        text_labels(q.a, calls["name_id"]),
        calls["end"] - calls["start"],
    )


def copies(q: Query) -> StatsTable:
    """Time of copies and memsets by kind (cuda_gpu_mem_time_sum)."""
    labels, duration, _ = memory_operations(q)
    return _summary("copies", "CUDA GPU memory operations by time", "Count", "Operation", labels, duration)


def copy_sizes(q: Query) -> StatsTable:
    """Sizes of copies and memsets by kind (cuda_gpu_mem_size_sum); 1 MB is 1,000,000 bytes."""
    labels, _, size = memory_operations(q)
    found = _seen(sums(labels.code, size, len(labels.texts)))
    order = found.order
    columns = (
        Column("Total", found.sums.total / BYTES_PER_MB, "MB", 3),
        Column("Count", found.sums.count),
        *spread_columns(found.sums, unit="MB", decimals=3, ranks="01123"),
    )
    return StatsTable(
        "copy-sizes",
        "CUDA GPU memory operations by size",
        (*(c.take(order) for c in columns), Column("Operation", labels.of(found.group[order]))),
    )


def memory_operations(q: Query) -> tuple[Labels, Array, Array]:
    """Kind, duration in ns and size in bytes of copies and memsets, those of unknown size as 0."""
    copy = q.columns("copies", ("start", "end", "bytes", "kind"))
    fill = q.columns("memsets", ("start", "end", "bytes"))
    kinds = sorted(set(copy["kind"].tolist()))
    texts = [copy_operation(k) for k in kinds] + [MEMSET_OPERATION]
    code = np.searchsorted(np.array(kinds, np.int64), copy["kind"])
    return (
        Labels(np.concatenate((code, np.full(len(fill["start"]), len(kinds)))), texts),
        np.concatenate((copy["end"] - copy["start"], fill["end"] - fill["start"])),
        np.maximum(np.concatenate((copy["bytes"], fill["bytes"])), 0),
    )


def copy_operation(kind: int) -> str:
    """How `nsys stats` names a copy: ``[CUDA memcpy Host-to-Device]``."""
    return f"[CUDA memcpy {COPY_OPERATIONS.get(kind, 'Unknown')}]"


def nvtx(q: Query) -> StatsTable:
    """Time of NVTX ranges by text (nvtx_sum): host time, nested ranges counted in full."""
    rows = timed_ranges(q)
    labels, style = range_labels(q, rows)
    found = _seen(sums(labels.code, rows["end"] - rows["start"], len(labels.texts)))
    order = found.order
    group = found.group[order]
    columns = (
        *time_columns(found.sums, "Instances", order),
        Column("Style", [style[g] for g in group.tolist()], rank=4),
        Column("Range", labels.of(group)),
    )
    return StatsTable("nvtx", "NVTX range summary", columns)


def timed_ranges(q: Query) -> dict[str, Array]:
    """NVTX ranges that count, without marks."""
    rows = q.columns("ranges", ("start", "end", "process", "thread", "domain", "text_id", "style"))
    timed = rows["style"] != MARK
    return {name: values[timed] for name, values in rows.items()}


def range_labels(q: Query, rows: dict[str, Array]) -> tuple[Labels, list[str]]:
    """A group for each text, style and domain, and the style of each group.

    The capture's tables hold domains by number only, so a domain is named where one text occurs
    in several.
    """
    text = text_labels(q.a, rows["text_id"])
    domains, domain = dense(rows["domain"])
    width = len(domains) * len(STYLES)
    style = np.where(rows["style"] == PUSH_POP, 0, 1)
    groups, code = dense(text.code * width + style * len(domains) + domain)
    name, rest = np.divmod(groups, max(width, 1))
    kind, where = np.divmod(rest, max(len(domains), 1))
    texts = text.of(name)
    held = Counter(t for t, _ in set(zip(texts, where.tolist(), strict=True)))
    shown = [
        f"{t} (domain {domains[w]})" if held[t] > 1 else t for t, w in zip(texts, where.tolist(), strict=True)
    ]
    return Labels(code, shown), [STYLES[k] for k in kind.tolist()]
