"""Waits that no call records: a thread that keeps a fixed lead over a GPU whose queue never runs dry.

Such a thread makes no call until some work has ended: it polls, waits for another thread, or asks in a call
that was not recorded. That time is no work of the host. It differs from work in that the lead stays as it is:
a thread that worked all the time, and took less time than the GPU, would get further and further ahead.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from advisor.gain import limits
from advisor.gain.inputs import NONE, Calls, CallTimes, Ops, Waits
from advisor.metrics import limits as metric_limits
from advisor.metrics.loaded.operations import Operations
from advisor.model.arrays import Array, distinct


def unrecorded_waits(calls: Calls, times: CallTimes, waits: Waits, ops: Ops, taken: Operations) -> Waits:
    """One wait a step, by the call behind the longest host time of a thread: for the latest work that had
    ended by then. None for threads that wait in calls, whose lead grows, or that the GPU waited for. `taken`
    are the operations of `ops`."""
    none = Waits.none()
    if not len(calls) or not len(ops):
        return none
    lead = _lead(times, ops, taken)
    held = calls.pre - calls.explained
    longest = np.flatnonzero((held >= metric_limits.host.LONG_HOST_NS) & (calls.step != NONE))
    if not len(longest):
        return none
    waited = _waited(calls, times, waits, taken)
    by_end, last = _ends(ops, taken)
    found: list[tuple[int, int]] = []
    for thread in distinct(calls.thread[longest]).tolist():
        mine = longest[calls.thread[longest] == thread]
        mine = mine[np.lexsort((-held[mine], calls.step[mine]))]
        mine = mine[np.unique(calls.step[mine], return_index=True)[1]]
        ahead = lead[mine] > 0
        recorded = float(waited[calls.thread == thread].sum())
        if recorded >= limits.WAITS_IN_CALLS_RATIO * float(held[mine].sum()):
            continue
        if ahead.sum() < limits.STEADY_STEPS or _grows(times.start[mine[ahead]], lead[mine[ahead]]):
            continue
        for call in mine[ahead].tolist():
            k = int(np.searchsorted(by_end, times.start[call], "right")) - 1
            began = times.start[call] - calls.pre[call]
            while k >= 0 and by_end[k] >= began:
                op = int(last[k])
                if ops.call[op] < call and taken.process[op] == times.process[call]:
                    found.append((call, op))
                    break
                k -= 1
    if not found:
        return none
    call, op = np.array(sorted(found)).T
    return Waits(call, op, times.end[call] - taken.end[op].astype(float))


def with_waits(calls: Calls, waits: Waits, more: Waits) -> tuple[Calls, Waits]:
    """The calls without the host time that such waits (`more`) are, kept as their `slack`; and all waits."""
    if not len(more):
        return calls, waits
    slack = calls.slack.copy()
    slack[more.call] = (calls.pre - calls.explained)[more.call]
    both = Waits(*(np.concatenate((getattr(waits, n), getattr(more, n))) for n in Waits.__struct_fields__))
    calls = replace(calls, pre=calls.pre - slack, slack=slack)
    return calls, both.take(np.argsort(both.call, kind="stable"))


def _lead(times: CallTimes, ops: Ops, taken: Operations) -> Array:
    """How long after each call began the stream of its work still had earlier work to run, ns; below 0 where
    the stream had none, and for calls that issue nothing."""
    ahead = np.full(len(times.row), -np.inf)
    for stream in distinct(ops.stream).tolist():
        at = np.flatnonzero(ops.stream == stream)
        until = np.maximum.accumulate(taken.end[at])[:-1].astype(float)
        first = np.flatnonzero(np.diff(ops.call[at]) > 0)
        call = ops.call[at[first + 1]]
        ahead[call] = np.maximum(ahead[call], until[first] - times.start[call])
    return ahead


def _waited(calls: Calls, times: CallTimes, waits: Waits, taken: Operations) -> Array:
    """How long each call waited for work that ended inside it, ns."""
    out = np.zeros(len(calls))
    inside = np.minimum(taken.end[waits.op], times.end[waits.call]) - times.start[waits.call]
    np.maximum.at(out, waits.call, np.maximum(inside, 0))
    return out


def _ends(ops: Ops, taken: Operations) -> tuple[Array, Array]:
    """When the last operation of each call on each stream ended, ascending, and which it is."""
    last = []
    for stream in distinct(ops.stream).tolist():
        at = np.flatnonzero(ops.stream == stream)
        last.append(at[np.append(np.diff(ops.call[at]) > 0, True)])
    of = np.concatenate(last)
    of = of[np.argsort(taken.end[of], kind="stable")]
    return taken.end[of], of


def _grows(at: Array, lead: Array) -> bool:
    """Whether a lead grows with time, by more than `LEAD_GROWTH` and more surely than chance."""
    time, height = at - at.mean(), lead - lead.mean()
    slope = float(time @ height) / max(float(time @ time), 1.0)
    rest = float(((height - slope * time) ** 2).sum()) / max(len(at) - 2, 1)
    error = math.sqrt(rest / max(float(time @ time), 1.0))
    return slope - 2 * error > limits.LEAD_GROWTH
