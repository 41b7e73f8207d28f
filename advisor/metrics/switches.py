"""Who had a CPU, and who had a GPU: switches of threads and of contexts that the system recorded."""

from __future__ import annotations

import numpy as np

from advisor.metrics.intervals import EMPTY, Spans, union
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import CONTEXT_IN, CONTEXT_OUT
from advisor.sources.trace import Trace

#: States of a thread that waits for something (ENUM_SAMPLING_THREAD_STATE of nsys: interruptible,
#: uninterruptible, stopped, waiting, in the OS runtime): it asks for no CPU.
_WAITS = (2, 3, 4, 7, 8)
#: A context holds work of the capture when this share of it begins there; clocks may differ a little.
_OWN = 0.01


def off_cpu(trace: Trace, thread: int) -> Spans | None:
    """Times between a switch of the thread from its CPU and the next one to a CPU, but for those in
    which it is recorded to wait; None where the capture records no switch of it."""
    if not trace.has("cpu_switches"):
        return None
    rows = trace.columns("cpu_switches", ("time", "thread", "running", "state"))
    mine = rows["thread"] == thread
    if not mine.any():
        return None
    time, running, state = (rows[name][mine] for name in ("time", "running", "state"))
    return _between(time, (running == 0) & ~np.isin(state, _WAITS), running != 0)


def held_by_others(trace: Trace, device: int, starts: Array) -> Spans | None:
    """When a context is on the device that holds next to none of the work which begins at `starts`
    (ascending): that of a process outside the capture. None where no switch is recorded."""
    if not trace.has("gpu_switches"):
        return None
    rows = trace.columns("gpu_switches", ("time", "device", "context", "kind"))
    here = rows["device"] == device
    if not here.any() or not len(starts):
        return None
    time, context, kind = (rows[name][here] for name in ("time", "context", "kind"))
    others = [EMPTY]
    for one in distinct(context).tolist():
        mine = context == one
        held = _between(time[mine], kind[mine] == CONTEXT_IN, kind[mine] == CONTEXT_OUT)
        own = np.searchsorted(starts, held.end) - np.searchsorted(starts, held.start)
        if own.sum() < _OWN * len(starts):
            others.append(held)
    return union(np.concatenate([s.start for s in others]), np.concatenate([s.end for s in others]))


def _between(time: Array, begins: Array, ends: Array) -> Spans:
    """From each beginning to the end that comes next to it; rows in any order."""
    at = np.flatnonzero(begins | ends)
    at = at[np.lexsort((begins[at], time[at]))]
    time, begins = time[at], begins[at]
    pair = np.flatnonzero(begins[:-1] & ~begins[1:])
    return union(time[pair], time[pair + 1])
