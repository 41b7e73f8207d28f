"""All GPU operations of a capture in one table, joined to the API calls that issued them; and the programs
that a capture holds one after the other: only one of them is analysed."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Self

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.intervals import Coverage, positions, union
from advisor.metrics.loaded.kernels import dense
from advisor.model.arrays import Array, among, distinct, lengths, merged, picked, run_of, where
from advisor.model.once import cached_property
from advisor.sources.schema import ISSUING, MISSING, NEEDED, TABLES, Call
from advisor.sources.trace import Trace

#: Results of a call that succeeded: cudaSuccess, cudaErrorNotReady, not recorded.
GOOD_RESULTS = (0, 600, MISSING)


class Kind(IntEnum):
    """What an operation is; the table its row lives in."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    GRAPH_RUN = 3


_TABLES = ("kernels", "copies", "memsets", "graph_runs")
_COLUMNS = ("start", "end", "device", "stream", "process", "correlation", "graph_node", "kind", "row")
#: Correlation ids above this are numbered anew: a key of process and id would not fit 64 bits.
_LARGE_ID = 1 << 40


class Rows(Struct, frozen=True):
    """A table by column: arrays of equal length, one a field."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self, index: Array | slice) -> Self:
        """The rows at `index` (positions, a mask or a slice)."""
        return type(self)(*(getattr(self, name)[index] for name in self.__struct_fields__))

    @classmethod
    def none(cls) -> Self:
        """No row."""
        return cls(*(np.empty(0, np.int64) for _ in cls.__struct_fields__))


class Operations(Rows, frozen=True, dict=True):
    """GPU operations sorted by start. `row` is the index in the operation's own table;
    `api` the row of the issuing call in `api_calls`, MISSING if the capture holds none."""

    start: Array
    end: Array
    device: Array
    stream: Array
    process: Array
    correlation: Array
    graph_node: Array
    kind: Array
    row: Array
    api: Array

    @cached_property
    def length(self) -> Array:
        """How long each lasts, ns; in 32 bits if all, and sums of two, fit."""
        return lengths(self.start, self.end)


def operations(trace: Trace) -> Operations:
    """Every kernel, copy, memset and graph run of the capture."""
    for table in ("api_calls", "kernels"):
        trace.columns(table, NEEDED[table])
    parts: dict[str, list[Array]] = {n: [] for n in _COLUMNS}
    for kind, table in zip(Kind, _TABLES, strict=True):
        if not trace.has(table):
            continue
        columns = trace.columns(table, [name for name in parts if name in TABLES[table]])
        rows = len(columns["start"])
        columns |= {"kind": np.full(rows, kind, np.int8), "row": np.arange(rows, dtype=np.int32)}
        for name, found in parts.items():
            found.append(columns[name] if name in columns else np.zeros(rows, np.int32))
    joined = {n: _joined(v) for n, v in parts.items()}
    start = joined["start"]
    if len(start) > 1 and not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        joined = {n: a[order] for n, a in joined.items()}
    if trace.has("api_calls"):
        joined["process"] = _filled(joined["process"], trace.columns("api_calls", ("process",))["process"])
    joined["device"] = _filled(joined["device"], np.array([d.id for d in trace.devices], np.int64))
    joined["api"] = _issuing_calls(trace, joined["process"], joined["correlation"], joined["start"])
    return Operations(**joined)


def _joined(parts: list[Array]) -> Array:
    """One column of several tables, concatenated."""
    if not parts:
        return np.empty(0, np.int64)
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _filled(ids: Array, known: Array) -> Array:
    """Processes or devices of operations; where rows name none, the only one of the capture."""
    if (unknown := ids == MISSING).any() and len(only := distinct(known)) == 1:
        return np.where(unknown, only[0], ids)
    return ids


def times_of(trace: Trace, ops: Operations, mask: Array) -> tuple[Array, Array]:
    """Start and end of the operations of a mask: views where they are all, or all rows of kernels that follow
    each other, as where copies run between."""
    if not mask.all() and (ops.kind[mask] == Kind.KERNEL).all():
        rows = run_of(ops.row[mask])
        if isinstance(rows, slice):
            kernels = trace.columns("kernels", ("start", "end"))
            return kernels["start"][rows], kernels["end"][rows]
    at = where(mask)
    return ops.start[at], ops.end[at]


def of_copies(trace: Trace, ops: Operations, column: str = "kind") -> Array:
    """The direction (or another column) of each copy, 0 for other operations."""
    copy, values = ops.kind == Kind.COPY, trace.columns("copies", (column,))[column]
    found = np.zeros(len(ops), values.dtype)
    found[copy] = values[ops.row[copy]]
    return found


def contexts(trace: Trace, ops: Operations) -> Array:
    """The context of each operation: streams are numbered within one."""
    columns = [trace.columns(table, ("context",))["context"] for table in _TABLES]
    wide = np.result_type(*(column for column in columns if len(column)), np.int32)
    context = np.full(len(ops), MISSING, wide)
    for kind, column in zip(Kind, columns, strict=True):
        of = ops.kind == kind
        context[of] = column[ops.row[of]]
    return context


def combinations(*columns: Array) -> tuple[Array, Array]:
    """The first row of each combination of values, in their order, and each row's combination."""
    key = np.zeros(len(columns[0]), np.int64)
    for i, column in enumerate(columns):
        values, index = dense(column)
        key = dense(key * max(len(values), 1) + index)[1] if i else index
    first = np.zeros(int(key.max(initial=-1)) + 1, np.int64)
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)  # the first row wins: it is written last
    return first, key


def first_work(keys: Array, own: Array, start: Array) -> Array:
    """When each of the processes (keys, ascending) first has work on a device, of operations with these
    keys and starts; the largest integer if it has none."""
    first = np.full(len(keys), np.iinfo(np.int64).max)
    if not len(keys):
        return first
    at = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
    known = keys[at] == own
    np.minimum.at(first, at[known], start[known])
    return first


def calls_named(trace: Trace, rows: Array, pattern: re.Pattern[str]) -> Array:
    """Which of these rows of `api_calls` have a name that holds the pattern."""
    names = trace.distinct("api_calls", "name_id")
    wanted = [i for i, name in zip(names, trace.texts(names), strict=True) if pattern.search(name)]
    if not wanted:
        return np.zeros(len(rows), bool)
    return among(trace.columns("api_calls", ("name_id",))["name_id"][rows], wanted)


def stream_captures(trace: Trace) -> tuple[Array, Array, Array]:
    """Calls between begin and end of a stream capture, as a mask: they record a graph and run nothing. Rows
    of the first and of the last call of each capture."""
    calls = trace.columns("api_calls", ("start", "thread", "name_id"))
    inside = np.zeros(len(calls["start"]), bool)
    names = trace.texts(trace.distinct("api_calls", "name_id"))
    edge = np.array([("StreamBeginCapture" in n) - ("StreamEndCapture" in n) for n in names], np.int64)
    first, last = list[int](), list[int]()
    if edge.any():
        edge = edge[dense(calls["name_id"])[1]]
        for thread in distinct(calls["thread"][edge != 0]).tolist():
            mine = np.flatnonzero(calls["thread"] == thread)
            mine = mine[np.argsort(calls["start"][mine], kind="stable")]
            held = np.cumsum(edge[mine]) > 0
            inside[mine[held]] = True
            turns = np.diff(held.astype(np.int8), prepend=0, append=0)
            first += mine[turns[:-1] > 0].tolist()
            last += mine[np.minimum(np.flatnonzero(turns < 0), len(mine) - 1)].tolist()
    return inside, np.array(first, np.int64), np.array(last, np.int64)


def call_keys(
    process: Array, correlation: Array, other_process: Array, other_correlation: Array
) -> tuple[Array, Array]:
    """One integer for (process, correlation) in two tables: ids repeat between processes.

    Processes are numbered densely, so that the keys stay in a range that a table can index.
    """
    if not ((process != MISSING).any() and (other_process != MISSING).any()):
        process, other_process = np.zeros_like(process), np.zeros_like(other_process)  # not recorded
    known = merged(distinct(process), distinct(other_process))
    if len(known) == 1:
        return correlation.astype(np.int64, copy=False), other_correlation.astype(np.int64, copy=False)
    if max(int(correlation.max(initial=0)), int(other_correlation.max(initial=0))) > _LARGE_ID:
        both = np.concatenate((correlation, other_correlation))
        ids, at = np.unique(both, return_inverse=True)
        at = np.where(ids[at] == MISSING, MISSING, at)
        correlation, other_correlation = at[: len(correlation)], at[len(correlation) :]
    # One more than needed: a MISSING id then takes a key that no process uses.
    width = 2 + max(int(correlation.max(initial=0)), int(other_correlation.max(initial=0)))
    return (
        np.searchsorted(known, process) * width + correlation,
        np.searchsorted(known, other_process) * width + other_correlation,
    )


def _issuing_calls(trace: Trace, process: Array, correlation: Array, start: Array) -> Array:
    """Row in api_calls of the call that issued each operation."""
    none = np.full(len(process), MISSING, np.int32)
    if not trace.has("api_calls") or len(process) == 0:
        return none
    calls = trace.columns("api_calls", ("process", "correlation", "call"))
    linked = calls["correlation"] != MISSING
    issuing = linked & among(calls["call"], ISSUING)
    result = none
    # Some libraries issue work through calls of other classes (batched copies, prefetches), so the rest is
    # looked up among all calls.
    for tried in (False, True):
        open_ = where(result == MISSING)
        if tried and not isinstance(open_, slice) and len(open_) == 0:
            break
        candidates = np.flatnonzero(linked & ~issuing if tried else issuing)
        if len(candidates) == 0:
            continue
        of_call, ids = (picked(calls[name], candidates) for name in ("process", "correlation"))
        keys, wanted = call_keys(of_call, ids, process[open_], correlation[open_])
        at = join(keys, wanted)
        if not (keys[1:] > keys[:-1]).all() and len(distinct(keys)) < len(keys):
            at = _latest(trace, candidates, keys, wanted, start[open_], at)
        hit = where(at != MISSING)
        result[hit if isinstance(open_, slice) else open_[hit]] = candidates[at[hit]]
    return result


def _latest(trace: Trace, calls: Array, keys: Array, wanted: Array, start: Array, first: Array) -> Array:
    """Where the ids of a process begin anew (another program with its number, or another recording): the
    latest call with an operation's key that began before it, in place of the `first`. A call inside another
    one may share its id without beginning anew, and is left out."""
    begun, ended = (column[calls] for column in trace.columns("api_calls", ("start", "end")).values())
    first_call = join(keys, keys)
    again = first_call != np.arange(len(keys))
    anew = again & (begun >= ended[first_call])
    chosen = np.flatnonzero(np.isin(keys, keys[anew]) & (anew | ~again))
    mine = np.flatnonzero(np.isin(wanted, keys[anew]))
    if not len(mine):
        return first
    number = np.unique(np.concatenate((keys[chosen], wanted[mine])), return_inverse=True)[1]
    rank = np.unique(np.concatenate((begun[chosen], start[mine])), return_inverse=True)[1]
    place = number * (len(rank) + 1) + rank
    order = np.argsort(place[: len(chosen)], kind="stable")
    found = np.searchsorted(place[order], place[len(chosen) :], "right") - 1
    same = (found >= 0) & (keys[chosen[order[np.maximum(found, 0)]]] == wanted[mine])
    out = first.copy()
    out[mine[same]] = chosen[order[found[same]]]
    return out


def join(keys: Array, wanted: Array) -> Array:
    """Position of each wanted key in `keys`, MISSING if it does not occur.

    Ids are dense within a process, so a direct table is used while it stays small; it costs a
    tenth of sorting a million keys.
    """
    if len(keys) == 0 or len(wanted) == 0:
        return np.full(len(wanted), MISSING, np.int64)
    lo, hi = int(keys.min()), int(keys.max())
    if hi - lo < 4 * len(keys) + 1_000_000:
        table = np.full(hi - lo + 1, MISSING, np.int64)
        table[keys[::-1] - lo] = np.arange(len(keys) - 1, -1, -1)  # the first of equal keys wins
        inside = (wanted >= lo) & (wanted <= hi)
        return np.where(inside, table[np.where(inside, wanted - lo, 0)], MISSING)
    ascending = (keys[1:] >= keys[:-1]).all()
    order = np.argsort(keys, kind="stable") if not ascending else None
    ranked = keys if order is None else keys[order]
    at = positions(ranked, wanted)
    np.minimum(at, len(ranked) - 1, out=at)
    return np.where(ranked[at] == wanted, at if order is None else order[at], MISSING)


# --- programs that a capture holds one after the other --------------------------------------------


class Runs(Struct, frozen=True):
    """Where each program but the last ends, ns, ascending, and [since, until) of the analysed one: that
    with most GPU time, on one device or on all."""

    ends: Array
    since: int
    until: int

    def keys(self, process: Array, start: Array) -> Array:
        """One number for each process of each program."""
        if not len(self.ends):
            return process
        numbers = process.astype(np.int64) * (len(self.ends) + 1)
        return numbers + np.searchsorted(self.ends, start, "right")

    def holds(self, time: Array) -> Array:
        return np.asarray((time >= self.since) & (time < self.until))

    def on(self, device: int, ops: Operations) -> Runs:
        """The same programs, of which the one with most GPU time on this device is analysed."""
        return _heaviest_run(self.ends, ops.take(ops.device == device)) if len(self.ends) else self


def find_runs(trace: Trace, ops: Operations, op_name: Array) -> Runs:
    """The programs of a capture; one that is all of it where no other begins."""
    return _heaviest_run(_run_ends(trace, ops, op_name), ops)


def _heaviest_run(ends: Array, ops: Operations) -> Runs:
    edges = [int(np.iinfo(np.int64).min), *ends.tolist(), int(np.iinfo(np.int64).max)]
    most = 0
    if len(ends):
        run = np.searchsorted(ends, ops.start, "right")
        most = int(np.argmax(np.bincount(run, np.maximum(ops.length, 0), len(edges) - 1)))
    return Runs(ends, edges[most], edges[most + 1])


def _run_ends(trace: Trace, ops: Operations, op_name: Array) -> Array:
    """Times, ns, ascending, at which the GPU work of one program is over and another begins: other
    processes work from then on, or the process creates its context again. Empty for one program."""
    if not len(ops):
        return ops.end
    last = np.maximum.accumulate(ops.end)
    idle = np.flatnonzero(ops.start[1:] >= last[:-1])  # work begins anew behind each of these
    behind = idle[:0]
    if len(distinct(ops.process)) > 1:
        at = np.unique(ops.process, return_index=True)[1]
        final = len(ops) - 1 - np.unique(ops.process[::-1], return_index=True)[1]
        begins, ends = np.sort(at)[1:], np.array([final[at < b].max() for b in np.sort(at)[1:]], np.int64)
        behind = ends[(ends < begins) & np.isin(ends, idle)]
    behind = merged(behind, _restarts(trace, ops, op_name))
    return np.asarray(last[behind[np.isin(behind, idle)]])


def _restarts(trace: Trace, ops: Operations, op_name: Array) -> Array:
    """The last operation before each call that creates a context again for the same opening work."""
    calls = trace.columns("api_calls", ("start", "end", "process", "call", "name_id"))
    slow = np.flatnonzero(calls["end"] - calls["start"] >= limits.window.CONTEXT_NS)
    slow = slow[~among(calls["call"][slow], (Call.SYNC, Call.COPY, Call.MODULE, Call.LAUNCH))]
    slow = slow[np.argsort(calls["start"][slow], kind="stable")]
    found = []
    for process in distinct(calls["process"][slow]).tolist():
        mine = slow[calls["process"][slow] == process]
        work = np.flatnonzero(ops.process == process)
        length, name = calls["end"][mine] - calls["start"][mine], calls["name_id"][mine]
        again = mine[(name == name[0]) & (length >= limits.window.CONTEXT_AGAIN_RATIO * length[0])][1:]
        if not len(work) or not len(again) or calls["start"][mine[0]] >= ops.start[work[0]]:
            continue
        busy = Coverage(union(ops.start, ops.end))
        again = again[busy.within(calls["start"][again], calls["end"][again]) == 0]
        opening = op_name[work[: limits.window.OPENING_OPERATIONS]]
        for at in np.searchsorted(ops.start[work], calls["start"][again]).tolist():
            if at and np.array_equal(op_name[work[at : at + limits.window.OPENING_OPERATIONS]], opening):
                found.append(int(np.searchsorted(ops.start, ops.start[work[at]])) - 1)
    return np.array(found, np.int64)
