"""How durations are spread and how regularly work comes: histogram, pace, budget of the window."""

from __future__ import annotations

import numpy as np

from advisor.metrics.budget import PARTS
from advisor.metrics.intervals import Coverage
from advisor.metrics.kernels import dense
from advisor.metrics.stats.rows import Query
from advisor.metrics.stats.sums import Sums, largest_first, sums
from advisor.model.arrays import Array
from advisor.model.stats import Column, StatsTable

#: Bins per decade of time, finest first; a kernel gets the finest with at most `_MOST_BINS`.
_BINS_PER_DECADE = (40, 20, 10, 5, 2, 1)
_MOST_BINS = 16


def histogram(q: Query) -> StatsTable:
    """Durations of each kernel in logarithmic bins, largest total first. `Share` is that of the
    kernel's calls; empty bins between others have a row."""
    span = q.columns("kernels", ("start", "end"))
    labels, duration = q.kernels, span["end"] - span["start"]
    total = np.bincount(labels.code, duration, minlength=len(labels.texts))
    order = np.argsort(labels.code, kind="stable")
    ranked = np.split(duration[order], np.cumsum(np.bincount(labels.code, minlength=len(labels.texts)))[:-1])
    rows: list[tuple[Array, Array, Array]] = []
    names: list[str] = []
    for code in largest_first(total).tolist():
        if len(ranked[code]):
            low, high, count = log_bins(ranked[code])
            rows.append((low, high, count))
            names += [labels.texts[code]] * len(count)
    size = np.array([len(r[2]) for r in rows], np.int64)
    low, high, count = (
        np.concatenate([r[i] for r in rows]) if rows else np.empty(0, np.int64) for i in range(3)
    )
    group = np.repeat(np.arange(len(rows)), size)
    of_group = np.bincount(group, count, minlength=len(rows))
    share = count * 100.0 / np.maximum(of_group[group], 1)
    columns = (
        Column("Low", low, "ns"),
        Column("High", high, "ns"),
        Column("Count", count),
        Column("Share", share, "%", 1),
        Column("Name", names),
    )
    return StatsTable("histogram", "CUDA GPU kernel duration histogram", columns, group=group)


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


def pace(q: Query) -> StatsTable:
    """Time from start to start of each kernel on one device, and from step to step (GPU end to
    GPU end), by phase. Distances across what was not recorded or not asked for are left out."""
    parts = [_step_pace(q), _kernel_pace(q)]
    found = Sums(*(np.concatenate([getattr(p[0], f) for p in parts]) for f in Sums.__dataclass_fields__))
    device = np.concatenate([p[1] for p in parts])
    columns = (
        Column("Count", found.count),
        Column("Avg", found.avg, "ns", 1),
        Column("StdDev", found.std, "ns", 1),
        Column("Min", found.minimum, "ns"),
        Column("Med", found.med, "ns", 1, rank=1),
        Column("Max", found.maximum, "ns"),
        Column("Kind", ["step"] * len(parts[0][2]) + ["kernel"] * len(parts[1][2]), rank=3),
        Column("Device", device, rank=2, absent=device < 0),
        Column("Name", parts[0][2] + parts[1][2]),
    )
    return StatsTable("pace", "Pace of steps and kernels", columns)


def _step_pace(q: Query) -> tuple[Sums, Array, list[str]]:
    a = q.a
    at = a.window_steps
    # The ends of opaque steps are an even division, which says nothing of their pace.
    at = at[(at > 0) & (a.steps.method != "opaque graph launches")]
    end = a.steps.gpu_end
    at = at[_unbroken(q, end[at - 1], end[at])]
    phases = sorted({a.steps.phase[i] for i in at.tolist()})
    group = np.array([phases.index(a.steps.phase[i]) for i in at.tolist()], np.int64)
    names = ["step" if p == "unknown" else f"{p} step" for p in phases]
    found = sums(group, end[at] - end[at - 1], len(phases))
    return found, np.full(len(phases), -1), names


def _kernel_pace(q: Query) -> tuple[Sums, Array, list[str]]:
    span = q.columns("kernels", ("start", "end", "device"))
    labels = q.kernels
    group = dense(span["device"] * max(len(labels.texts), 1) + labels.code)[1]
    n = int(group.max(initial=-1)) + 1
    total = np.bincount(group, span["end"] - span["start"], minlength=n)
    order = np.lexsort((span["start"], group))
    start, ranked = span["start"][order], group[order]
    pair = np.flatnonzero(ranked[1:] == ranked[:-1])
    pair = pair[_unbroken(q, start[pair], start[pair + 1])]
    found = sums(ranked[pair], start[pair + 1] - start[pair], n)
    rows = largest_first(total)
    rows = rows[found.count[rows] > 0]
    first = np.searchsorted(ranked, rows)
    kept = Sums(*(getattr(found, f)[rows] for f in Sums.__dataclass_fields__))
    return kept, span["device"][order[first]], labels.of(labels.code[order[first]])


def _unbroken(q: Query, lo: Array, hi: Array) -> Array:
    """Whether nothing of [lo, hi) is a hole in the window."""
    return np.asarray(Coverage(q.a.window.holes).within(lo, hi) == 0)


def budget(q: Query) -> StatsTable:
    """The exclusive parts of each device's window, which add up to it; by phase where there are
    several."""
    a = q.a
    device: list[int] = []
    phase: list[str] = []
    ns: list[Array] = []
    for number, one in a.budgets.items():
        blocks = {"all": np.array([one.ns[p] for p in PARTS], np.int64)}
        kinds = a.on(number).window_phases
        if len(set(kinds.tolist())) > 1:
            rows = one.by_step[a.on(number).window_steps]
            for name in sorted(set(kinds.tolist())):
                blocks[name] = np.rint(rows[kinds == name].sum(axis=0)).astype(np.int64)
        for name, values in blocks.items():
            device += [number] * len(PARTS)
            phase += [name] * len(PARTS)
            ns.append(values)
    time = np.concatenate(ns) if ns else np.empty(0, np.int64)
    whole = np.repeat([max(int(v.sum()), 1) for v in ns], len(PARTS)) if ns else time
    columns = (
        Column("Device", np.array(device, np.int64)),
        Column("Phase", phase),
        Column("Part", list(PARTS) * len(ns)),
        Column("Time", time, "ns"),
        Column("Share", time * 100.0 / np.maximum(whole, 1), "%", 1),
    )
    return StatsTable("budget", "Budget of the window", columns, quiet=time == 0)
