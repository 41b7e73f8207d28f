"""Tail-aware kernel statistics: what the median hides, and what slow calls coincide with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.stats.rows import Query
from advisor.metrics.tails import (
    COINCIDENCES,
    MIN_CALLS,
    LikeCalls,
    alone_ratios,
    coincidences,
    like_calls,
    slow_calls,
)
from advisor.model.arrays import Array
from advisor.model.stats import Column, StatsTable

#: Heads of the columns that say what slow calls coincide with.
HEADS = {
    "sync": "Sync", "alloc": "Alloc", "copy": "Copy", "stream": "Other Stream",
    "first": "First Iteration",
}  # fmt: skip


class TailLimits(NamedTuple):
    """When a tail gets a flag. The first four are the parameters of rule KRN103, the others those
    of the seeds: a systematic tail shows in p99 / p50, single outliers in max / p50."""

    min_tail: float = 0.5
    max_share: float = 0.05
    min_blocking: float = 0.5
    min_lost: float = 0.002
    systematic: float = 1.5
    outliers: float = 2.0


def tail(q: Query, limits: TailLimits | None = None) -> StatsTable:
    """Percentiles of like calls (see :mod:`advisor.metrics.tails`), largest tail score first.

    The tail score is the time above the median, summed over the calls. `Slow` calls take 1.5
    times the median or more; the columns after it give the share of them, and of all calls, that
    coincide with something.
    """
    a = q.a
    blocks = [_device(q, device, limits or TailLimits()) for device in a.devices]
    blocks = [b for b in blocks if b]
    if not blocks:
        return StatsTable("tail", "CUDA GPU kernel tails", _columns([_empty()]))
    columns = _columns(blocks)
    order = np.argsort(-np.asarray(columns[5].values), kind="stable")
    return StatsTable("tail", "CUDA GPU kernel tails", tuple(c.take(order) for c in columns))


Block = dict[str, Any]


def _empty() -> Block:
    none = np.empty(0)
    numbers = (
        "count",
        "p50",
        "p95",
        "p99",
        "max",
        "tail",
        "share",
        "slow",
        "alone",
        "device",
        "place",
        "places",
    )
    texts = ("flag", "grid", "block", "before", "name")
    return (
        dict.fromkeys(numbers, none)
        | {n: [] for n in texts}
        | {f"{k}{s}": none for k in COINCIDENCES for s in ("", "_all")}
    )


def _columns(blocks: list[Block]) -> tuple[Column, ...]:
    def numbers(key: str) -> Array:
        return np.concatenate([b[key] for b in blocks])

    def texts(key: str) -> list[str]:
        return [text for b in blocks for text in b[key]]

    p50 = numbers("p50")
    some = np.maximum(p50, 1e-9)
    zero, none_slow = p50 <= 0, numbers("slow") == 0
    whole = np.int64
    return (
        Column("Count", numbers("count").astype(whole)),
        Column("P50", p50, "ns", 1),
        Column("P95", numbers("p95").astype(whole), "ns"),
        Column("P99", numbers("p99").astype(whole), "ns"),
        Column("Max", numbers("max").astype(whole), "ns"),
        Column("Tail", numbers("tail"), "ns", 1),
        Column("Max/P50", numbers("max") / some, "x", 2, absent=zero),
        Column("P99/P50", numbers("p99") / some, "x", 2, 3, absent=zero),
        Column("Share", numbers("share") * 100.0, "%", 1, 2),
        Column("Flag", texts("flag"), rank=6),
        Column("Slow", numbers("slow").astype(whole), rank=5),
        Column("Alone", numbers("alone") * 100.0, "%", 1, 6, none_slow),
        *(
            Column(
                f"{head}{suffix}", numbers(f"{key}{end}") * 100.0, "%", 1, 6, none_slow if not end else None
            )
            for key, head in HEADS.items()
            for suffix, end in (("", ""), (" of All", "_all"))
        ),
        Column("Device", numbers("device").astype(whole), rank=6),
        Column("Grid", texts("grid"), rank=6),
        Column("Block", texts("block"), rank=6),
        Column("Place", numbers("place").astype(whole), rank=6),
        Column("Places", numbers("places").astype(whole), rank=6),
        Column("Prev Kernel", texts("before"), rank=6),
        Column("Name", texts("name")),
    )


def _device(q: Query, device: int, limits: TailLimits) -> Block:
    """The columns of one device; empty where it ran no kernel in the window."""
    a = q.a
    if not a.trace.has("kernels") or len(a.device_kernels(device)) == 0:
        return {}
    like = like_calls(a, device, MIN_CALLS)
    spread, n = like.spread, len(like)
    slow = slow_calls(like)
    slow_count = np.bincount(like.group[slow], minlength=n)
    alone = alone_ratios(a, device, like, slow)
    share = spread.total / max(spread.total.sum(), 1)
    first = np.unique(like.group, return_index=True)[1]
    row = a.ops.row[like.at[first]]
    shapes = a.trace.columns("kernels", ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"))
    grid, block = (_shape(*(shapes[f"{what}_{axis}"][row] for axis in "xyz")) for what in ("grid", "block"))
    place, places = _places(like, grid, block)
    out: Block = {
        "count": spread.count,
        "p50": spread.p50,
        "p95": spread.p95,
        "p99": spread.p99,
        "max": spread.maximum,
        "tail": spread.tail,
        "share": share,
        "slow": slow_count,
        "alone": alone,
        "device": np.full(n, device),
        "place": place,
        "places": places,
        "flag": _flags(like, alone, share, slow_count, max(a.window.length, 1), limits),
        "grid": grid,
        "block": block,
        "before": _before(q, like, first),
        "name": q.labels.of(q.labels.code[row]),
    }
    for key, held in coincidences(a, device, like).items():
        both = np.bincount(like.group[held & slow], minlength=n)
        out[key] = both / np.maximum(slow_count, 1)
        out[f"{key}_all"] = np.bincount(like.group[held], minlength=n) / spread.count
    return out


def _flags(
    like: LikeCalls, alone: Array, share: Array, slow: Array, window: int, limits: TailLimits
) -> list[str]:
    spread = like.spread
    told = (spread.count >= MIN_CALLS) & (spread.p50 > 0)
    hidden = (
        (spread.tail >= limits.min_tail * spread.total)
        & (share <= limits.max_share)
        & (alone >= limits.min_blocking)
        & (slow > 0)
        & (spread.tail >= limits.min_lost * window)
    )
    systematic = spread.p99 > limits.systematic * spread.p50
    outliers = spread.maximum > limits.outliers * spread.p50
    words = np.select(
        [told & hidden, told & systematic, told & outliers], ["hidden", "systematic", "outliers"], ""
    )
    return [str(w) for w in words]


def _shape(x: Array, y: Array, z: Array) -> list[str]:
    return [f"{i}x{j}x{k}" for i, j, k in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)]


def _places(like: LikeCalls, grid: list[str], block: list[str]) -> tuple[Array, Array]:
    """The number of each group among those of one kernel and launch shape, by count, from 1; and
    how many there are."""
    of: dict[tuple[int, str, str], list[int]] = {}
    for i in np.argsort(-like.spread.count, kind="stable").tolist():
        of.setdefault((int(like.name[i]), grid[i], block[i]), []).append(i)
    place, places = np.zeros(len(like), np.int64), np.zeros(len(like), np.int64)
    for members in of.values():
        place[members] = np.arange(1, len(members) + 1)
        places[members] = len(members)
    return place, places


def _before(q: Query, like: LikeCalls, first: Array) -> list[str]:
    """The kernel that ran before each group's first call on its stream."""
    stream = q.a.ops.stream[like.at]
    order = np.argsort(stream, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    before = order[np.maximum(rank[first] - 1, 0)]
    known = (rank[first] > 0) & (stream[before] == stream[first])
    names = q.labels.of(q.labels.code[q.a.ops.row[like.at[before]]])
    return [name if k else "" for name, k in zip(names, known.tolist(), strict=True)]
