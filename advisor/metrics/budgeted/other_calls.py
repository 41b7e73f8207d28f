"""CUDA calls that issue, allocate and wait for nothing, and hold up the thread that launches: queries of
properties, of attributes, of free memory, events and streams that are made."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.waited import calls_by, issuers
from advisor.metrics.intervals import Coverage, Spans, subtract, union
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import calls_named
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array
from advisor.sources.schema import Call

#: Calls that build, instantiate, update, destroy or capture graphs, and those that queue host code.
_OF_THEIR_OWN = re.compile(r"Graph|StreamBeginCapture|StreamEndCapture|LaunchHostFunc|AddCallback")
_BUILDS_GRAPH = re.compile(r"Graph(?=[A-Z])(?!Launch|Debug|.*Get)|Stream(?:Begin|End)Capture")
_MAKES_GRAPH = re.compile(r"GraphInstantiate|GraphExecUpdate")
_BEGINS, _ENDS = re.compile("StreamBeginCapture"), re.compile("StreamEndCapture")


class GraphBuilds(Struct, frozen=True):
    """When a thread captures, builds, updates or destroys graphs, and how many it makes."""

    spans: Spans
    makes: int


def graph_builds(a: Stepped, thread: int) -> GraphBuilds:
    """A stream capture lasts from the last begin, unless another capture ended since then."""
    rows = calls_by(a, thread, Call.OTHER)
    rows = rows[calls_named(a.trace, rows, _BUILDS_GRAPH)]
    start, end = (times[rows] for times in a.trace.columns("api_calls", ("start", "end")).values())
    begins, ends, makes = (calls_named(a.trace, rows, of) for of in (_BEGINS, _ENDS, _MAKES_GRAPH))
    begun, ended = (np.maximum.accumulate(np.where(of, np.arange(len(rows)), -1)) for of in (begins, ends))
    start = np.where(ends & (begun > np.append(-1, ended[:-1])), start[begun], start)
    return GraphBuilds(union(start[~begins], end[~begins]), int(makes.sum()))


class CostlyCalls(Struct, frozen=True):
    """By name: ids, idle time of the device in such calls (ns), how many there are; and the `rows` of
    `api_calls` of all that are counted."""

    ids: Array
    time: Array
    count: Array
    rows: Array


def costly_calls(a: Budgeted, device: int, feeder: int) -> CostlyCalls:
    """Of the threads that issue the work of the device: those of the name that has most of the idle time, and
    of the names that come half as often or more. Calls on graphs have facts of their own, and what is cold is
    start-up."""
    budget = a.budgets[device]
    rows = calls_by(a, issuers(a, feeder, device), Call.OTHER)
    rows = rows[~calls_named(a.trace, rows, _OF_THEIR_OWN)]
    calls = a.trace.columns("api_calls", ("start", "end", "name_id"))
    gaps = union(budget.gaps.start, budget.gaps.end)
    idle = Coverage(subtract(gaps, a.startup.spans)).of_rows(calls["start"], calls["end"], rows)
    ids, of = dense(calls["name_id"][rows])
    time, count = np.bincount(of, idle, len(ids)), np.bincount(of, minlength=len(ids))
    if len(ids):
        time[2 * count < count[np.argmax(time)]] = 0
    return CostlyCalls(ids, time, count, rows[time[of] > 0])
