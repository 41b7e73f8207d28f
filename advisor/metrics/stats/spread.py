"""How durations are spread and how regularly work comes: histogram, pace, budget of the
window; and GPU time by Python module (``with_stack=True``) and by layer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from advisor.metrics import limits
from advisor.metrics.budgeted.budget import PARTS
from advisor.metrics.budgeted.like import LikeCalls, alone_ratios, coincidences, like_calls, slow_calls
from advisor.metrics.intervals import Coverage, union
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.stats.summaries import Query, largest_first, sums
from advisor.metrics.stepped.origins import module_tree
from advisor.model.arrays import Array
from advisor.model.numbers import percent

#: Bins per decade of time, finest first; a kernel gets the finest with at most `_MOST_BINS`.
_BINS_PER_DECADE = (40, 20, 10, 5, 2, 1)
_MOST_BINS = 16
_HEAT_BINS = 50


def histogram(query: Query) -> pd.DataFrame:
    """Durations of each kernel in logarithmic bins, largest total first. `Share` is that of the
    kernel's calls; empty bins between others have a row."""
    rows = query.frame("kernels")
    by_name = rows.groupby("name", observed=True)["ns"]
    bins = []
    for name in by_name.sum().sort_values(ascending=False, kind="stable").index:
        low, high, count = log_bins(by_name.get_group(name).to_numpy())
        bins.append(pd.DataFrame({"Low (ns)": low, "High (ns)": high, "Count": count, "Name": str(name)}))
        bins[-1]["Share (%)"] = count * 100.0 / count.sum()
    return pd.concat(bins) if bins else pd.DataFrame()


def log_bins(duration: Array) -> tuple[Array, Array, Array]:
    """Low and high edges (ns, [low, high)) and counts of bins that divide decades evenly.

    Edges are whole ns on a fixed grid, so that histograms of two captures compare.
    """
    least, most = max(int(duration.min()), 1), max(int(duration.max()), 1)
    for per_decade in _BINS_PER_DECADE:
        first = int(np.floor(np.log10(least) * per_decade))
        last = int(np.floor(np.log10(most) * per_decade)) + 1
        if last - first <= _MOST_BINS:
            break
    edges = np.rint(10.0 ** (np.arange(first, last + 1) / per_decade)).astype(np.int64)
    # Rounding may put the extremes just outside, and small edges on top of each other.
    edges[0], edges[-1] = min(edges[0], least), max(edges[-1], most + 1)
    edges = np.unique(edges)
    at = np.searchsorted(edges, np.maximum(duration, 1), "right") - 1
    return edges[:-1], edges[1:], np.bincount(at, minlength=len(edges) - 1)


def pace(query: Query) -> pd.DataFrame:
    """Time from start to start of each kernel on one device, and from step to step (GPU end to GPU end), by
    phase. Distances across holes and deselected parts are left out."""
    return pd.concat([_step_pace(query), _kernel_pace(query)])


def _step_pace(query: Query) -> pd.DataFrame:
    a = query.a
    at = a.window_steps
    # The ends of opaque steps divide the time evenly and contain no pace.
    at = at[(at > 0) & (a.steps.method != "opaque graph launches")]
    end = a.steps.gpu_end
    at = at[Coverage(a.window.holes).within(end[at - 1], end[at]) == 0]
    found = sums(pd.Series(end[at] - end[at - 1]), [a.steps.phase[i] for i in at.tolist()])
    names = ["step" if phase == "unknown" else f"{phase} step" for phase in found.index]
    return found.assign(Name=names, Kind="step", Device=pd.array([pd.NA] * len(found), "Int64"))


def _kernel_pace(query: Query) -> pd.DataFrame:
    rows = query.frame("kernels", "device").sort_values("start", kind="stable")
    key = ["device", "name"]
    by = rows.groupby(key, observed=True)
    before = by["start"].shift(1, fill_value=-1)
    holes = Coverage(query.a.window.holes).within(before.to_numpy(), rows["start"].to_numpy())
    next_ = (before >= 0) & (holes == 0)
    pairs = rows[next_]
    found = sums((rows["start"] - before)[next_], [pairs[c] for c in key])
    found = largest_first(found.assign(busy=by["ns"].sum()), "busy").reset_index()
    device = found["device"].astype("Int64")
    return found.assign(Name=found["name"].astype(object), Kind="kernel", Device=device)


def heatmap(query: Query) -> pd.DataFrame:
    """How busy each device is over the window, in bins of equal length (cuda_gpu_time_util_map): kernels,
    copies, and samples of SMs and DRAM if there are any."""
    a = query.a
    edges = np.linspace(a.window.start, a.window.end, _HEAT_BINS + 1).astype(np.int64)
    width, blocks = np.maximum(np.diff(edges), 1), []
    for device, one in a.budgets.items():
        at = a.device_ops(device)
        moving = at[(a.ops.kind[at] == Kind.COPY) | (a.ops.kind[at] == Kind.MEMSET)]
        spans = {"kernels": one.compute, "copies": union(a.ops.start[moving], a.ops.end[moving])}
        lanes = {n: Coverage(s).within(edges[:-1], edges[1:]) / width for n, s in spans.items()}
        if (samples := a.samples(device)) is not None:
            at_bin = np.searchsorted(edges, samples.time, "right") - 1
            inside = (at_bin >= 0) & (at_bin < _HEAT_BINS)
            count = np.bincount(at_bin[inside], minlength=_HEAT_BINS)
            for name, values in (("SM Active", samples.values.get("sm_active")), ("DRAM", samples.dram)):
                if values is not None:
                    total = np.bincount(at_bin[inside], np.nan_to_num(values[inside]), _HEAT_BINS)
                    lanes[name] = np.divide(total, count, np.full(_HEAT_BINS, np.nan), where=count > 0)
        for name, share in lanes.items():
            lane = f"GPU {device} {name}" if len(a.budgets) > 1 else name
            rows = {"Start (ns)": edges[:-1], "End (ns)": edges[1:], "Busy (%)": share * 100.0}
            blocks.append(pd.DataFrame(rows | {"Device": device, "Lane": lane}))
    return pd.concat(blocks) if blocks else pd.DataFrame()


def budget(query: Query) -> pd.DataFrame:
    """The exclusive parts of each device's window, which add up to it; by phase if there are several."""
    a = query.a
    blocks = []
    for device, one in a.budgets.items():
        phases = {"all": np.array([one.ns[p] for p in PARTS], np.int64)}
        kinds = a.on(device).window_phases
        if len(set(kinds.tolist())) > 1:
            rows = one.by_step[a.on(device).window_steps]
            for name in sorted(set(kinds.tolist())):
                phases[name] = np.rint(rows[kinds == name].sum(axis=0)).astype(np.int64)
        for name, ns in phases.items():
            share = ns * 100.0 / max(int(ns.sum()), 1)
            part = {"Device": device, "Phase": name, "Part": PARTS, "Time (ns)": ns, "Share (%)": share}
            blocks.append(pd.DataFrame(part))
    return pd.concat(blocks) if blocks else pd.DataFrame()


# --- tail-aware kernel statistics: what the median hides, and what slow calls coincide with -------

#: Columns about what slow calls coincide with.
COINCIDES = {
    "sync": "Sync",
    "alloc": "Alloc",
    "copy": "Copy",
    "stream": "Other Stream",
    "first": "First Iteration",
}


class TailLimits(NamedTuple):
    """When a tail gets a flag. The first four are the parameters of rule KRN103; the others distinguish a
    systematic tail, which shows in p99 / p50, from single outliers, which show in max / p50."""

    min_tail: float = 0.5
    max_share: float = 0.05
    min_blocking: float = 0.5
    min_lost: float = 0.002
    systematic: float = 1.5
    outliers: float = 2.0


def tail(query: Query, tails: TailLimits | None = None) -> pd.DataFrame:
    """Percentiles of similar calls (see :mod:`advisor.metrics.like`), largest tail score first.

    The tail score is the time above the median, summed over the calls. `Slow` calls take 1.5 times the median
    or more; the columns after it give the share of them, and of all calls, that coincides with something.
    """
    a = query.a
    devices = [d for d in a.devices if a.trace.has("kernels") and len(a.device_kernels(d))]
    blocks = [_device(query, device, tails or TailLimits()) for device in devices]
    return largest_first(pd.concat(blocks), "Tail (ns)") if blocks else pd.DataFrame()


def _device(query: Query, device: int, tails: TailLimits) -> pd.DataFrame:
    """The groups of similar calls of one device, a row each."""
    a = query.a
    like = like_calls(a, device, limits.kernels.TAIL_CALLS)
    spread, n = like.spread, len(like)
    slow = slow_calls(like)
    slow_count = np.bincount(like.group[slow], minlength=n)
    alone = alone_ratios(a, device, like, slow)
    share = spread.total / max(spread.total.sum(), 1)
    first = np.unique(like.group, return_index=True)[1]
    columns = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
    kernels = pd.DataFrame(a.trace.columns("kernels", columns)).assign(
        name=np.asarray(query.all_names, object)
    )
    launch = kernels.loc[a.ops.row[like.at[first]]].reset_index(drop=True)
    texts = launch.astype(str)
    found = pd.DataFrame(
        {
            "Count": spread.count,
            "P50 (ns)": spread.p50,
            "P95 (ns)": spread.p95.astype(np.int64),
            "P99 (ns)": spread.p99.astype(np.int64),
            "Max (ns)": spread.maximum.astype(np.int64),
            "Tail (ns)": spread.tail,
            "Share (%)": share * 100.0,
            "Slow": slow_count,
            "Device": device,
            "Flag": _flags(like, alone, share, slow_count, a.window.nonzero_length, tails),
            "Grid": texts["grid_x"] + "x" + texts["grid_y"] + "x" + texts["grid_z"],
            "Block": texts["block_x"] + "x" + texts["block_y"] + "x" + texts["block_z"],
            "Prev Kernel": _before(query, kernels["name"], like)[first],
            "Name": texts["name"],
        }
    )
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


def _flags(like: LikeCalls, alone: Array, share: Array, slow: Array, window: int, tails: TailLimits) -> Array:
    spread = like.spread
    enough = (spread.count >= limits.kernels.TAIL_CALLS) & (spread.p50 > 0)
    hidden = (spread.tail >= tails.min_tail * spread.total) & (spread.tail >= tails.min_lost * window)
    hidden &= (share <= tails.max_share) & (alone >= tails.min_blocking) & (slow > 0)
    systematic = spread.p99 > tails.systematic * spread.p50
    outliers = spread.maximum > tails.outliers * spread.p50
    cases = [enough & hidden, enough & systematic, enough & outliers]
    return np.select(cases, ["hidden", "systematic", "outliers"], "").astype(object)


def _before(query: Query, names: pd.Series, like: LikeCalls) -> Array:
    """The kernel that ran before each call on its stream; empty for the first."""
    name = pd.Series(names.to_numpy()[query.a.ops.row[like.at]])
    return name.groupby(query.a.ops.stream[like.at]).shift(1).fillna("").to_numpy(object)


def modules(query: Query) -> pd.DataFrame:
    """The module tree: GPU time launched by each module itself, and including the modules below it."""
    a, found = query.a, query.a.provenance.ops
    at = np.arange(len(a.ops)) if query.whole else np.flatnonzero(a.in_window)
    duration = a.ops.length[at]
    rows = [] if found is None else module_tree(found, at, duration, apart=True)
    whole = max(int(duration.sum()), 1)
    heads = ["Module", "GPU Ops", "Self (ns)", "Total (ns)", "Total (%)", "Level"]
    cells = [
        (f"{'  ' * r.level}{r.name}", r.kernels, r.self_ns, r.total_ns, 100 * r.total_ns / whole, r.level)
        for r in rows
    ]
    frame = pd.DataFrame(cells, columns=heads)
    if rows:
        held = sum(r.total_ns for r in rows if r.level == 0)
        frame.attrs["note"] = f"{percent(held / whole)} of the GPU time lies in modules"
    return frame


def layers(query: Query) -> pd.DataFrame:
    """Layers of the main device: medians over the steps of the commonest phase."""
    found = query.a.layers(query.a.main_device)
    if found is None:
        return pd.DataFrame()
    times = found.times(query.a.ops.length[found.at])
    attention, ffn, other = np.median(times, axis=0).T
    total = np.median(times.sum(axis=2), axis=0)
    frame = pd.DataFrame(
        {
            "Layer": np.arange(found.count),
            "Steps": len(times),
            "Total (ns)": total,
            "Share (%)": 100 * total / max(total.sum(), 1),
            "Attention (ns)": attention,
            "FFN (ns)": ffn,
            "Other (ns)": other,
        }
    )
    frame.attrs["note"] = f"layers by the {found.by}; medians over {len(times)} steps of the commonest phase"
    return frame
