"""How durations are spread and how regularly work comes: histogram, pace, budget of the window."""

from __future__ import annotations

import numpy as np
import pandas as pd

from advisor.metrics.budget import PARTS
from advisor.metrics.intervals import Coverage, union
from advisor.metrics.operations import Kind
from advisor.metrics.stats.rows import Query
from advisor.metrics.stats.sums import largest_first, sums
from advisor.model.arrays import Array

#: Bins per decade of time, finest first; a kernel gets the finest with at most `_MOST_BINS`.
_BINS_PER_DECADE = (40, 20, 10, 5, 2, 1)
_MOST_BINS = 16
_HEAT_BINS = 50


def histogram(q: Query) -> pd.DataFrame:
    """Durations of each kernel in logarithmic bins, largest total first. `Share` is that of the
    kernel's calls; empty bins between others have a row."""
    rows = q.frame("kernels")
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


def pace(q: Query) -> pd.DataFrame:
    """Time from start to start of each kernel on one device, and from step to step (GPU end to
    GPU end), by phase. Distances across what was not recorded or not asked for are left out."""
    return pd.concat([_step_pace(q), _kernel_pace(q)])


def _step_pace(q: Query) -> pd.DataFrame:
    a = q.a
    at = a.window_steps
    # The ends of opaque steps are an even division, which says nothing of their pace.
    at = at[(at > 0) & (a.steps.method != "opaque graph launches")]
    end = a.steps.gpu_end
    at = at[_unbroken(q, end[at - 1], end[at])]
    found = sums(pd.Series(end[at] - end[at - 1]), [a.steps.phase[i] for i in at.tolist()])
    names = ["step" if phase == "unknown" else f"{phase} step" for phase in found.index]
    return found.assign(Name=names, Kind="step", Device=pd.array([pd.NA] * len(found), "Int64"))


def _kernel_pace(q: Query) -> pd.DataFrame:
    rows = q.frame("kernels", "device").sort_values("start", kind="stable")
    key = ["device", "name"]
    by = rows.groupby(key, observed=True)
    before = by["start"].shift(1, fill_value=-1)
    next_ = (before >= 0) & _unbroken(q, before.to_numpy(), rows["start"].to_numpy())
    pairs = rows[next_]
    found = sums((rows["start"] - before)[next_], [pairs[c] for c in key])
    found = largest_first(found.assign(busy=by["ns"].sum()), "busy").reset_index()
    device = found["device"].astype("Int64")
    return found.assign(Name=found["name"].astype(object), Kind="kernel", Device=device)


def _unbroken(q: Query, lo: Array, hi: Array) -> Array:
    """Whether nothing of [lo, hi) is a hole in the window."""
    return np.asarray(Coverage(q.a.window.holes).within(lo, hi) == 0)


def heatmap(q: Query) -> pd.DataFrame:
    """How busy each device is over the window, in bins of equal length (cuda_gpu_time_util_map): what
    runs kernels, what copies, and the samples of the SMs and of DRAM where there are some."""
    a = q.a
    edges = np.linspace(a.window.start, a.window.end, _HEAT_BINS + 1).astype(np.int64)
    width, blocks = np.maximum(np.diff(edges), 1), []
    for device, one in a.budgets.items():
        at = a.device_ops(device)
        moving = at[(a.ops.kind[at] == Kind.COPY) | (a.ops.kind[at] == Kind.MEMSET)]
        lanes = {
            "kernels": Coverage(one.compute).within(edges[:-1], edges[1:]) / width,
            "copies": Coverage(union(a.ops.start[moving], a.ops.end[moving])).within(edges[:-1], edges[1:])
            / width,
        }
        if (samples := a.samples(device)) is not None:
            at_bin = np.searchsorted(edges, samples.time, "right") - 1
            inside = (at_bin >= 0) & (at_bin < _HEAT_BINS)
            count = np.bincount(at_bin[inside], minlength=_HEAT_BINS)
            for name, values in (("SM Active", samples.values.get("sm_active")), ("DRAM", samples.dram)):
                if values is not None:
                    total = np.bincount(at_bin[inside], np.nan_to_num(values[inside]), _HEAT_BINS)
                    lanes[name] = np.divide(total, count, np.full(_HEAT_BINS, np.nan), where=count > 0)
        names = {n: f"GPU {device} {n}" if len(a.budgets) > 1 else n for n in lanes}
        for name, share in lanes.items():
            rows = {
                "Start (ns)": edges[:-1],
                "End (ns)": edges[1:],
                "Busy (%)": share * 100.0,
                "Device": device,
            }
            blocks.append(pd.DataFrame(rows | {"Lane": names[name]}))
    return pd.concat(blocks) if blocks else pd.DataFrame()


def budget(q: Query) -> pd.DataFrame:
    """The exclusive parts of each device's window, which add up to it; by phase where there are
    several."""
    a = q.a
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
