"""Damage: the stretches of a capture in which events were lost or nothing was recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.metrics.intervals import EMPTY, Spans, union
from advisor.metrics.kernels import dense
from advisor.metrics.steps import Steps
from advisor.sources.schema import MISSING, Call
from advisor.sources.trace import Trace

#: A jump of correlation ids means loss when it exceeds what this many calls could have used up.
_JUMP = 10_000
#: CUPTI spends a few ids on each recorded call (calls that are filtered out use ids, too).
_IDS_PER_CALL = 20
#: A step range shorter than this share of the others may well do nothing.
_SHORT_RANGE = 0.5


@dataclass(frozen=True)
class Damage:
    """Stretches in which events were lost. `jump` is the largest unexplained id jump."""

    holes: Spans
    jump: int
    empty_steps: int
    step_ranges: int


def find_damage(trace: Trace, steps: Steps) -> Damage:
    """Lost events: correlation ids that jump, step ranges without any call or GPU work."""
    jump, start, end = 0, list[int](), list[int]()
    if trace.has("api_calls"):
        calls = trace.columns("api_calls", ("start", "end", "process", "correlation"))
        known = np.flatnonzero(calls["correlation"] != MISSING)
        order = known[np.lexsort((calls["start"][known], calls["process"][known]))]
        process = dense(calls["process"][order])[1]
        usual = np.maximum(_JUMP, _IDS_PER_CALL * np.bincount(process))
        step = np.diff(calls["correlation"][order])
        jumps = np.flatnonzero((step > usual[process[1:]]) & (process[1:] == process[:-1]))
        jump = int(step[jumps].max(initial=0))
        start = calls["end"][order][jumps].tolist()
        end = calls["start"][order][jumps + 1].tolist()
    empty = _emptied(steps)
    if empty and len(empty) >= 0.25 * steps.ranges_seen:
        start += [a for a, _ in empty]
        end += [b for _, b in empty]
    holes = union(np.array(start, np.int64), np.array(end, np.int64)) if start else EMPTY
    return Damage(holes, jump, len(empty), steps.ranges_seen)


def _emptied(steps: Steps) -> list[tuple[int, int]]:
    """Ranges that lost their calls: as long as the others, and not the one at either edge of the
    capture, which is cut, or was opened when the recording stopped."""
    if len(steps) == 0:
        return []
    length = [*(steps.host_end - steps.host_start).tolist(), *(b - a for a, b in steps.empty)]
    least = _SHORT_RANGE * float(np.median(length))
    empty = [(a, b) for a, b in sorted(steps.empty) if b - a >= least]
    first, last = int(steps.host_start[0]), int(steps.host_start[-1])
    if sum(a < first for a, _ in empty) == 1:
        empty = empty[1:]
    if sum(a > last for a, _ in empty) == 1:
        empty = empty[:-1]
    return empty


def capture_ranges(trace: Trace) -> Spans:
    """Stretches between a profiler stop and the next start: nothing was recorded there."""
    if not trace.has("api_calls"):
        return EMPTY
    calls = trace.columns("api_calls", ("start", "end", "call", "name_id"))
    at = np.flatnonzero(calls["call"] == Call.PROFILER)
    if len(at) < 2:
        return EMPTY
    at = at[np.argsort(calls["start"][at], kind="stable")]
    names = [t.lower() for t in trace.texts(calls["name_id"][at].tolist())]
    start, end = [], []
    stopped: int | None = None
    for i, name in zip(at.tolist(), names, strict=True):
        if "stop" in name:
            stopped = int(calls["end"][i])
        elif "start" in name and stopped is not None:
            start.append(stopped)
            end.append(int(calls["start"][i]))
            stopped = None
    return union(np.array(start, np.int64), np.array(end, np.int64)) if start else EMPTY
