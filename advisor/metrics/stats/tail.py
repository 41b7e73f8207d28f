"""Tail-aware kernel statistics: what the median hides, and what slow calls coincide with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from advisor.metrics.stats.rows import Query
from advisor.metrics.stats.sums import largest_first
from advisor.metrics.tails import MIN_CALLS, LikeCalls, alone_ratios, coincidences, like_calls, slow_calls
from advisor.model.arrays import Array

#: Columns that say what slow calls coincide with.
COINCIDES = {"sync": "Sync", "alloc": "Alloc", "copy": "Copy", "stream": "Other Stream",
             "first": "First Iteration"}  # fmt: skip


class TailLimits(NamedTuple):
    """When a tail gets a flag. The first four are the parameters of rule KRN103; the others tell a
    systematic tail, which shows in p99 / p50, from single outliers, which show in max / p50."""

    min_tail: float = 0.5
    max_share: float = 0.05
    min_blocking: float = 0.5
    min_lost: float = 0.002
    systematic: float = 1.5
    outliers: float = 2.0


def tail(q: Query, limits: TailLimits | None = None) -> pd.DataFrame:
    """Percentiles of like calls (see :mod:`advisor.metrics.tails`), largest tail score first.

    The tail score is the time above the median, summed over the calls. `Slow` calls take 1.5
    times the median or more; the columns after it give the share of them, and of all calls, that
    coincide with something.
    """
    a = q.a
    devices = [d for d in a.devices if a.trace.has("kernels") and len(a.device_kernels(d))]
    blocks = [_device(q, device, limits or TailLimits()) for device in devices]
    return largest_first(pd.concat(blocks), "Tail (ns)") if blocks else pd.DataFrame()


def _device(q: Query, device: int, limits: TailLimits) -> pd.DataFrame:
    """The like calls of one device, a row each."""
    a = q.a
    like = like_calls(a, device, MIN_CALLS)
    spread, n = like.spread, len(like)
    slow = slow_calls(like)
    slow_count = np.bincount(like.group[slow], minlength=n)
    alone = alone_ratios(a, device, like, slow)
    share = spread.total / max(spread.total.sum(), 1)
    first = np.unique(like.group, return_index=True)[1]
    columns = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
    kernels = pd.DataFrame(a.trace.columns("kernels", columns)).assign(name=np.asarray(q.all_names, object))
    launch = kernels.loc[a.ops.row[like.at[first]]].reset_index(drop=True)
    texts = launch.astype(str)
    found = pd.DataFrame(
        {
            "Count": spread.count, "P50 (ns)": spread.p50, "P95 (ns)": spread.p95.astype(np.int64),
            "P99 (ns)": spread.p99.astype(np.int64), "Max (ns)": spread.maximum.astype(np.int64),
            "Tail (ns)": spread.tail, "Share (%)": share * 100.0, "Slow": slow_count, "Device": device,
            "Flag": _flags(like, alone, share, slow_count, max(a.window.length, 1), limits),
            "Grid": texts["grid_x"] + "x" + texts["grid_y"] + "x" + texts["grid_z"],
            "Block": texts["block_x"] + "x" + texts["block_y"] + "x" + texts["block_z"],
            "Prev Kernel": _before(q, kernels["name"], like)[first], "Name": texts["name"],
        }
    )  # fmt: skip
    p50 = found["P50 (ns)"].mask(found["P50 (ns)"] <= 0)
    found["Max/P50 (x)"], found["P99/P50 (x)"] = found["Max (ns)"] / p50, found["P99 (ns)"] / p50
    some_slow = found["Slow"] > 0
    found["Alone (%)"] = pd.Series(alone * 100.0).where(some_slow)
    for key, held in coincidences(a, device, like).items():
        both = np.bincount(like.group[held & slow], minlength=n)
        of_all = np.bincount(like.group[held], minlength=n) / spread.count
        found[f"{COINCIDES[key]} (%)"] = (both * 100.0 / found["Slow"]).where(some_slow)
        found[f"{COINCIDES[key]} of All (%)"] = of_all * 100.0
    # The number of each group among those of one kernel and launch shape, by count.
    alike = largest_first(found.assign(name=like.name), "Count").groupby(["name", "Grid", "Block"])["Count"]
    return found.assign(Place=alike.cumcount() + 1, Places=alike.transform("size"))


def _flags(
    like: LikeCalls, alone: Array, share: Array, slow: Array, window: int, limits: TailLimits
) -> Array:
    spread = like.spread
    enough = (spread.count >= MIN_CALLS) & (spread.p50 > 0)
    hidden = (
        (spread.tail >= limits.min_tail * spread.total)
        & (share <= limits.max_share)
        & (alone >= limits.min_blocking)
        & (slow > 0)
        & (spread.tail >= limits.min_lost * window)
    )
    systematic = spread.p99 > limits.systematic * spread.p50
    outliers = spread.maximum > limits.outliers * spread.p50
    cases = [enough & hidden, enough & systematic, enough & outliers]
    return np.select(cases, ["hidden", "systematic", "outliers"], "").astype(object)


def _before(q: Query, names: pd.Series, like: LikeCalls) -> Array:
    """The kernel that ran before each call on its stream; empty for the first."""
    name = pd.Series(names.to_numpy()[q.a.ops.row[like.at]])
    return name.groupby(q.a.ops.stream[like.at]).shift(1).fillna("").to_numpy(object)
