"""Damage: stretches of a capture in which events were lost."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.intervals import Spans, union
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.steps.model import Steps
from advisor.model.arrays import median_of, sorting, where
from advisor.sources.schema import MISSING
from advisor.sources.trace import Trace


class Damage(Struct, frozen=True):
    """Stretches in which events were lost. `jump` is the largest unexplained id jump."""

    holes: Spans
    jump: int
    empty_steps: int
    step_ranges: int


def find_damage(trace: Trace, steps: Steps) -> Damage:
    """Lost events: correlation ids that jump, step ranges without any call or GPU work."""
    calls = trace.columns("api_calls", ("start", "end", "process", "correlation"))
    ids = calls["correlation"]
    known = where((ids != MISSING) & (ids <= limits.recording.MOST_ID))
    order = sorting(calls["start"][known], calls["process"][known])
    begun, ended, process, correlation = (column[known][order] for column in calls.values())
    process = dense(process)[1]
    usual = np.maximum(limits.recording.JUMP_IDS, limits.recording.IDS_PER_CALL * np.bincount(process))
    step = np.diff(correlation)
    jumps = np.flatnonzero(step > limits.recording.JUMP_IDS)
    jumps = jumps[(step[jumps] > usual[process[jumps + 1]]) & (process[jumps + 1] == process[jumps])]
    start, end, empty = ended[jumps], begun[jumps + 1], _emptied(steps)
    if empty and len(empty) >= limits.recording.EMPTY_RANGES_RATIO * steps.ranges_seen:
        start, end = np.append(start, [a for a, _ in empty]), np.append(end, [b for _, b in empty])
    return Damage(union(start, end), int(step[jumps].max(initial=0)), len(empty), steps.ranges_seen)


def _emptied(steps: Steps) -> list[tuple[int, int]]:
    """Ranges that lost their calls: as long as the others, and not at either edge of the capture, where a
    range is cut or was opened when the recording stopped."""
    if len(steps) == 0:
        return []
    length = [*(steps.host_end - steps.host_start).tolist(), *(b - a for a, b in steps.empty)]
    least = limits.recording.SHORT_RANGE_RATIO * median_of(length)
    empty = [(a, b) for a, b in sorted(steps.empty) if b - a >= least]
    first, last = int(steps.host_start[0]), int(steps.host_start[-1])
    if sum(a < first for a, _ in empty) == 1:
        empty = empty[1:]
    if sum(a > last for a, _ in empty) == 1:
        empty = empty[:-1]
    return empty
