"""What follows from several events of a PyTorch profiler trace: processes, graphs, launches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from advisor.model.arrays import begins_run, distinct, merged
from advisor.sources.kineto.columns import Ints
from advisor.sources.schema import MISSING, Call
from advisor.sources.trace import Columns

Tables = dict[str, Columns]

GPU_WORK = ("kernels", "copies", "memsets")
_ON_GPU = (*GPU_WORK, "collectives")

#: Correlation ids from here on are renumbered, so that tables can be indexed by them.
_LARGE_ID = 1 << 31


def from_zero(tables: Tables, zero: int) -> None:
    """All times from `zero` on."""
    for columns in tables.values():
        for name in ("start", "end", "time"):
            if name in columns:
                columns[name] = columns[name] - zero


def small_ids(tables: Tables) -> None:
    """Correlation ids that fit into an index; small ones stay as they are."""
    used = [tables[t] for t in (*_ON_GPU, "api_calls") if t in tables]
    if max((int(c["correlation"].max()) for c in used), default=0) < _LARGE_ID:
        return
    known = distinct(np.concatenate([c["correlation"] for c in used]))
    known = known[known != MISSING]
    for columns in used:
        ids = columns["correlation"]
        columns["correlation"] = np.where(ids == MISSING, MISSING, np.searchsorted(known, ids) + 1)


#: Work -> the calls that issue it.
_ISSUERS = {"kernels": (Call.LAUNCH, Call.GRAPH_LAUNCH), "copies": (Call.COPY,), "memsets": (Call.MEMSET,)}


def join_by_external_id(tables: Tables) -> None:
    """Gives work the correlation id of its call if both carry only the id of the operator around them, as
    in some ROCm traces: of one operator the first launch has the first kernel, and so on. Remaining work
    belongs to the last launch if that replays a graph."""
    calls = tables.get("api_calls")
    if calls is None:
        return
    highest = max(int(tables[t]["correlation"].max()) for t in (*_ISSUERS, "api_calls") if t in tables)
    unnamed = np.flatnonzero(calls["correlation"] == MISSING)
    calls["correlation"][unnamed] = np.arange(highest + 1, highest + 1 + len(unnamed))
    for table, classes in _ISSUERS.items():
        if table not in tables:
            continue
        work = tables[table]
        issuing = np.isin(calls["call"], classes) & (calls["external"] != MISSING)
        free = issuing & ~np.isin(calls["correlation"], work["correlation"])
        loose = (work["external"] != MISSING) & ~np.isin(work["correlation"], calls["correlation"])
        launch, orphan = np.flatnonzero(free), np.flatnonzero(loose)
        if not len(launch) or not len(orphan):
            continue
        launch = launch[np.lexsort((calls["start"][launch], calls["external"][launch]))]
        begun = calls["external"][launch]
        first = np.searchsorted(begun, work["external"][orphan], "left")
        last = np.searchsorted(begun, work["external"][orphan], "right") - 1
        at = first + _ranks(work["external"][orphan], work["start"][orphan]) - 1
        replays = calls["call"][launch[np.maximum(last, 0)]] == Call.GRAPH_LAUNCH
        at = np.where((at > last) & replays, last, at)
        hit = (last >= first) & (at <= last)
        work["correlation"][orphan[hit]] = calls["correlation"][launch[at[hit]]]


def processes_of_ranks(tables: Tables) -> dict[int, int]:
    """Number of a rank's label -> its process, the one with most calls; empty for a trace of one rank."""
    calls = tables.get("api_calls", {})
    if "label" not in calls:
        return {}
    found = {}
    for label in distinct(calls["label"][calls["label"] != MISSING]).tolist():
        processes, count = np.unique(calls["process"][calls["label"] == label], return_counts=True)
        found[label] = int(processes[np.argmax(count)])
    return found


def set_processes(tables: Tables, ranks: Mapping[int, int]) -> list[int]:
    """Gives GPU work the process that issued it: events on a GPU carry only its number, or the label of a
    rank in `ranks`. Returns the processes that called CUDA."""
    calls = tables.get("api_calls")
    hosts = distinct(calls["process"]) if calls is not None else np.empty(0, np.int64)
    hosts = hosts[hosts != MISSING]
    alone = int(hosts[0]) if len(hosts) == 1 else MISSING
    if len(hosts) == 0 and "ranges" in tables:
        annotated = distinct(tables["ranges"]["process"])
        alone = int(annotated[0]) if len(annotated) == 1 else MISSING
    for table in _ON_GPU:
        if table not in tables:
            continue
        columns = tables[table]
        columns["process"] = np.full(len(columns["start"]), alone, np.int64)
        if ranks and "label" in columns:
            known = np.array([*ranks.values(), MISSING], np.int64)
            number = {label: i for i, label in enumerate(ranks)}
            places = [number.get(label, len(ranks)) for label in columns["label"].tolist()]
            columns["process"] = known[np.array(places, np.int64)]
        elif len(hosts) > 1 and calls is not None:
            at = _latest_call(calls, columns["correlation"], columns["start"])
            columns["process"] = np.where(at >= 0, calls["process"][at], MISSING)
    if "overheads" in tables and alone != MISSING:
        tables["overheads"]["process"][:] = alone
    return [int(host) for host in hosts]


def _latest_call(calls: Columns, correlation: Ints, start: Ints) -> Ints:
    """Row of the call with this correlation id that began last before the work: ids repeat where
    the traces of several ranks were put into one file."""
    order = np.lexsort((calls["start"], calls["correlation"]))
    ids, begun = calls["correlation"][order], calls["start"][order]
    both = np.concatenate((ids, correlation))
    when = np.concatenate((begun, start))
    ranked = np.lexsort((np.arange(len(both)), when, both))
    # Calls come before the work of the same time, so the count of calls so far is the position.
    seen = np.cumsum(ranked < len(ids))
    at = np.empty(len(correlation), np.int64)
    work = ranked >= len(ids)
    at[ranked[work] - len(ids)] = seen[work] - 1
    hit = (at >= 0) & (correlation != MISSING)
    hit &= ids[np.maximum(at, 0)] == correlation
    return np.where(hit, order[np.maximum(at, 0)], MISSING)


def set_graph_nodes(tables: Tables) -> bool:
    """Numbers the work of each graph launch from 1; 0 is work launched by itself. True if any. All nodes
    share the correlation id of their launch. If the launch lies before the trace, several kernels of one id
    still mean a graph."""
    calls = tables.get("api_calls")
    launches = {
        table: _keys(tables[table]["process"], tables[table]["correlation"])
        for table in (*GPU_WORK, "api_calls")
        if table in tables
    }
    if calls is not None:
        keys = launches.pop("api_calls")
        graphs = distinct(keys[(calls["call"] == Call.GRAPH_LAUNCH) & (keys != MISSING)])
        known = distinct(keys)
    else:
        graphs = known = np.empty(0, np.int64)
    if "kernels" in launches:
        ids, count = np.unique(launches["kernels"], return_counts=True)
        orphans = ids[(count > 1) & (ids != MISSING) & ~np.isin(ids, known)]
        graphs = merged(graphs, orphans)
    for table, keys in launches.items():
        inside = np.isin(keys, graphs) & (keys != MISSING)
        tables[table]["graph_node"] = np.where(inside, _ranks(keys), 0)
    return any((tables[table]["graph_node"] != 0).any() for table in launches)


def _keys(process: Ints, correlation: Ints) -> Ints:
    """One integer for (process, correlation), MISSING without a correlation."""
    return np.where(correlation == MISSING, MISSING, (process + 1) * _LARGE_ID + correlation)


def _ranks(keys: Ints, time: Ints | None = None) -> Ints:
    """Position of each row among those of its key, from 1: in the order of time, else of rows."""
    order = np.argsort(keys, kind="stable") if time is None else np.lexsort((time, keys))
    ranked = keys[order]
    first = np.flatnonzero(begins_run(ranked))
    length = np.diff(np.append(first, len(ranked)))
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys)) - np.repeat(first, length) + 1
    return rank


def set_launches(tables: Tables, nameless: int) -> None:
    """Nameless calls are launches if a kernel came of them: until 2.0 cudaLaunchKernelExC had no name."""
    calls = tables.get("api_calls")
    if calls is None or "kernels" not in tables:
        return
    unknown = (calls["name_id"] == nameless) & (calls["correlation"] != MISSING)
    if unknown.any():
        launched = np.isin(calls["correlation"], tables["kernels"]["correlation"])
        calls["call"] = np.where(unknown & launched, int(Call.LAUNCH), calls["call"])
