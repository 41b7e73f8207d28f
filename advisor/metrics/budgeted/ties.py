"""What ties the host to the device: for each host gap, the call that waited before it, and what for. The
host's work after that wait lies beside the work of the device once nothing waits there."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.budgeted.budget import DeviceBudget
from advisor.metrics.loaded.operations import Kind, calls_named, of_copies
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, distinct, median_of
from advisor.sources.schema import DTOH, HTOD, MISSING, PAGEABLE, PINNED, Call

_ASYNC = re.compile("Async")
#: What a wait is for (`Ties.kind`): a small upload; a copy that held its own call, though its name says
#: that it does not; results; other work; nothing is known of a wait.
UPLOAD, HELD_COPY, RESULT, WORK, NONE = range(5)


class Ties(Struct, frozen=True):
    """Host gaps (positions in the gaps of a budget) with the idle time (ns) of the host in each, the kind of
    the wait before it, the row of api_calls that waited, and the copy (position in `ops`) that was issued
    last before it; MISSING if there is none."""

    gap: Array
    idle: Array
    kind: Array
    wait: Array
    copy: Array


def find_ties(a: Stepped, budget: DeviceBudget) -> Ties:
    """The wait before each host gap of a device: the last call of the thread that began before the device
    ran dry and waits."""
    part = budget.gap_parts["host_gap"]
    gap = np.flatnonzero(part)
    kind, wait, copy = (np.full(len(gap), value, np.int64) for value in (NONE, MISSING, MISSING))
    if not len(gap) or not a.trace.has("api_calls"):
        return Ties(gap, part[gap], kind, wait, copy)
    held, blocking = held_copies(a, budget.device), blocking_copies(a, budget.device)
    of_thread = budget.gaps.thread[gap]
    for thread in distinct(of_thread[of_thread != MISSING]).tolist():
        mine = np.flatnonzero(of_thread == thread)
        calls = a.threads.of(thread)
        waits = np.flatnonzero((calls.call == Call.SYNC) | np.isin(calls.row, blocking))
        at = np.searchsorted(calls.start[waits], budget.gaps.start[gap[mine]], "right") - 1
        known = at >= 0
        mine, at = mine[known], waits[at[known]]
        # Other calls of the thread between the wait and the gap issue work: it ran ahead again.
        ended = calls.end[at] + limits.host.REFILL_NS >= budget.gaps.start[gap[mine]]
        mine, at = mine[ended], at[ended]
        wait[mine] = calls.row[at]
        issued = _last_issued(a, thread, calls.start[at])
        kind[mine], copy[mine] = _kinds(a, issued, np.isin(calls.row[at], held))
    return Ties(gap, part[gap], kind, wait, copy)


def held_copies(a: Stepped, device: int) -> Array:
    """Rows of asynchronous copies from or to pinned memory that return only when they have run, long after
    they were called: the driver makes them wait."""
    at = _blocking(a, device)
    source, target = (of_copies(a.trace, a.ops, column)[at] for column in ("src_memory", "dst_memory"))
    across = np.isin(of_copies(a.trace, a.ops)[at], (HTOD, DTOH))
    pinned = at[across & (source == PINNED) | (across & (target == PINNED))]
    api = distinct(a.ops.api[pinned])
    return np.asarray(api[calls_named(a.trace, api, _ASYNC)])


def blocking_copies(a: Stepped, device: int) -> Array:
    """Rows of the calls that copy and return, long after they began, only when the copy has run."""
    return distinct(a.ops.api[_blocking(a, device)])


def _blocking(a: Stepped, device: int) -> Array:
    """Positions in `ops` of the copies of such calls."""
    at = np.flatnonzero((a.ops.kind == Kind.COPY) & (a.ops.api >= 0) & (a.ops.device == device))
    calls = a.trace.columns("api_calls", ("start", "end", "call"))
    api, begins = a.ops.api[at], a.ops.start[at]
    mine = (calls["call"][api] == Call.COPY) & (calls["end"][api] >= a.ops.end[at])
    # The queue before the copy is what takes long, not the copy.
    return np.asarray(at[mine & (begins - calls["start"][api] >= limits.host.HELD_CALL_NS)])


def _last_issued(a: Stepped, thread: int, until: Array) -> Array:
    """The last operation that the thread issued up to each of these times: position in `ops`, MISSING if
    none."""
    at = np.flatnonzero(a.ops.api >= 0)
    calls = a.trace.columns("api_calls", ("start", "thread"))
    at = at[calls["thread"][a.ops.api[at]] == thread]
    begun = calls["start"][a.ops.api[at]]
    order = np.argsort(begun, kind="stable")
    at, begun = at[order], begun[order]
    return np.append(MISSING, at)[np.searchsorted(begun, until, "right")]


def _kinds(a: Stepped, issued: Array, held: Array) -> tuple[Array, Array]:
    """What waits are for by the operation that was issued last before them, and that if it is a copy."""
    known = issued != MISSING
    direction, size = (of_copies(a.trace, a.ops, column)[issued] for column in ("kind", "bytes"))
    copies = known & np.isin(direction, (HTOD, DTOH))
    upload = (direction == HTOD) & (size <= limits.host.SMALL_COPY_BYTES)
    cases = (~known, held, upload, direction == DTOH)
    kind = np.select(cases, (NONE, HELD_COPY, UPLOAD, RESULT), WORK)
    return kind, np.where(copies, issued, MISSING)


def typical_copy(a: Stepped, copies: Array) -> tuple[int, bool]:
    """Usual size of these copies (positions in `ops`), bytes, and whether most are pageable."""
    size = of_copies(a.trace, a.ops, "bytes")[copies]
    source = of_copies(a.trace, a.ops, "src_memory")[copies]
    return int(median_of(size)), bool(2 * (source == PAGEABLE).sum() > len(copies))
