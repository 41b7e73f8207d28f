"""Programs that a capture holds one after the other: only one of them has a steady state to find."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.metrics.intervals import Coverage, union
from advisor.metrics.operations import Operations
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import Call
from advisor.sources.trace import Trace

#: The first call before any GPU work creates the context when it takes this long.
CONTEXT_NS = 10_000_000
#: Another call of that name does so again when it takes this share of the time at least.
_AGAIN = 0.5
#: So many operations at the beginning of a run tell whether it is the same program again.
_OPENING = 4


class Runs(Struct, frozen=True):
    """Where each program but the last ends, ns, ascending, and [since, until) of the one that is
    looked at: that with most GPU time."""

    ends: Array
    since: int
    until: int

    def keys(self, process: Array, start: Array) -> Array:
        """One number for each process of each program."""
        numbers = process.astype(np.int64) * (len(self.ends) + 1)
        return numbers + np.searchsorted(self.ends, start, "right")

    def holds(self, time: Array) -> Array:
        return np.asarray((time >= self.since) & (time < self.until))


def find_runs(trace: Trace, ops: Operations, op_name: Array) -> Runs:
    """The programs of a capture; one that is all of it where no other begins."""
    ends = np.array(_run_ends(trace, ops, op_name), np.int64)
    edges = [0, *ends.tolist(), int(np.iinfo(np.int64).max)]
    run = np.searchsorted(ends, ops.start, "right")
    time = np.bincount(run, np.maximum(ops.end - ops.start, 0), len(edges) - 1)
    return Runs(ends, edges[int(np.argmax(time))], edges[int(np.argmax(time)) + 1])


def _run_ends(trace: Trace, ops: Operations, op_name: Array) -> list[int]:
    """Times, ns, ascending, at which the GPU work of one program is over and another begins: other
    processes work from then on, or the process creates its context again. Empty for one program."""
    if not len(ops):
        return []
    last = np.maximum.accumulate(ops.end)
    idle = np.flatnonzero(ops.start[1:] >= last[:-1])  # work begins anew behind each of these
    behind = idle[:0]
    if len(distinct(ops.process)) > 1:
        at = np.unique(ops.process, return_index=True)[1]
        final = len(ops) - 1 - np.unique(ops.process[::-1], return_index=True)[1]
        begins, ends = np.sort(at)[1:], np.array([final[at < b].max() for b in np.sort(at)[1:]], np.int64)
        behind = ends[(ends < begins) & np.isin(ends, idle)]
    behind = np.union1d(behind, _restarts(trace, ops, op_name))
    return [int(last[i]) for i in behind[np.isin(behind, idle)].tolist()]


def _restarts(trace: Trace, ops: Operations, op_name: Array) -> Array:
    """The last operation before each call that creates a context again and the work that opened the
    program once more."""
    calls = trace.columns("api_calls", ("start", "end", "process", "call", "name_id"))
    length = calls["end"] - calls["start"]
    slow = np.flatnonzero(
        (length >= CONTEXT_NS) & ~np.isin(calls["call"], (Call.SYNC, Call.COPY, Call.MODULE, Call.LAUNCH))
    )
    slow = slow[np.argsort(calls["start"][slow], kind="stable")]
    busy = Coverage(union(ops.start, ops.end))
    found = []
    for process in np.unique(calls["process"][slow]).tolist():
        mine = slow[calls["process"][slow] == process]
        work = np.flatnonzero(ops.process == process)
        if not len(work) or calls["start"][mine[0]] >= ops.start[work[0]]:
            continue
        again = mine[
            (calls["name_id"][mine] == calls["name_id"][mine[0]]) & (length[mine] >= _AGAIN * length[mine[0]])
        ][1:]
        again = again[busy.within(calls["start"][again], calls["end"][again]) == 0]
        opening = op_name[work[:_OPENING]]
        for at in np.searchsorted(ops.start[work], calls["start"][again]).tolist():
            if at and np.array_equal(op_name[work[at : at + _OPENING]], opening):
                found.append(int(np.searchsorted(ops.start, ops.start[work[at]])) - 1)
    return np.array(found, np.int64)
