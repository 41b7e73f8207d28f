"""Inputs of replays by hand, and captures of a few steps whose times can be worked out."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from advisor.gain.estimate import Replayer
from advisor.gain.inputs import NEVER, Calls, Handovers, Inputs, Joins, Ops, Waits
from advisor.gain.profiler import Scenario
from advisor.gain.whatifs import Fix, make_fix
from advisor.model.arrays import Array
from advisor.sources.schema import Call
from tests.builder import Export
from tests.metrics.support import analysis

#: Nothing of the profiler is taken out, nothing is added: what was captured, and the fix.
PLAIN = Scenario(launch=0.0, node_gap=0.0)


def calls(rows: list[tuple[int, float, float]], kind: int = Call.LAUNCH) -> Calls:
    """Calls of (thread, pre, own)."""
    count = len(rows)
    thread, pre, own = (np.array(c, float) for c in zip(*rows, strict=True))
    nothing = np.zeros(count)
    return Calls(
        thread.astype(np.int64),
        pre,
        own,
        np.full(count, int(kind)),
        np.arange(count),
        np.zeros(count, np.int64),
        np.zeros(count, bool),
        *[nothing] * 7,
        np.zeros(count, bool),
    )


def ops(rows: list[tuple[int, int, float, float, float]], by_start: tuple[int, ...] = ()) -> Ops:
    """Operations of (call, stream, latency, gap, duration)."""
    call, stream, latency, gap, duration = (np.array(c, float) for c in zip(*rows, strict=True))
    count = len(rows)
    return Ops(
        call.astype(np.int64),
        stream.astype(np.int64),
        duration,
        latency,
        gap,
        np.isin(np.arange(count), by_start),
        np.arange(count),
        np.zeros(count, np.int64),
        np.zeros(count, bool),
    )


def inputs(
    some_calls: Calls,
    some_ops: Ops,
    waits: list[tuple[int, int, float]] | None = None,
    joins: list[tuple[int, int, float]] | None = None,
    handovers: list[tuple[int, int, float]] | None = None,
    ready: float = 0.0,
) -> Inputs:
    """All together; waits are (call, op, lag), joins (op, on, delay), handovers (call, after,
    delay)."""

    def three(rows: list[tuple[int, int, float]]) -> tuple[Array, Array, Array]:
        a, b, c = (list(x) for x in zip(*rows, strict=True))
        return np.array(a, np.int64), np.array(b, np.int64), np.array(c, float)

    return Inputs(
        some_calls,
        some_ops,
        Waits(*three(waits)) if waits else Waits.none(),
        Joins(*three(joins)) if joins else Joins.none(),
        Handovers(*three(handovers)) if handovers else Handovers.none(),
        np.zeros(int(some_calls.thread.max()) + 1),
        np.full(int(some_ops.stream.max()) + 1, ready),
    )


def slow_replay(given: Inputs) -> list[float]:
    """The definition, call by call: when each operation ends."""
    c, o = given.calls, given.ops
    clock = given.origin.tolist()
    free = given.ready.tolist()
    call_end = [0.0] * len(c)
    op_end = [0.0] * len(o)
    for i in range(len(c)):
        begin = clock[c.thread[i]] + c.pre[i]
        for k in np.flatnonzero(given.handovers.call == i).tolist():
            begin = max(begin, call_end[given.handovers.after[k]] + given.handovers.delay[k])
        end = begin + c.own[i]
        mine = np.flatnonzero(o.call == i).tolist()
        waits = np.flatnonzero(given.waits.call == i).tolist()
        early = [k for k in waits if o.call[given.waits.op[k]] < i and mine]
        for k in early:
            end = max(end, op_end[given.waits.op[k]] + given.waits.lag[k])
        for j in mine:
            start = free[o.stream[j]] + o.gap[j]
            if o.latency[j] > NEVER:
                start = max(start, (begin if o.by_start[j] else end) + o.latency[j])
            for k in np.flatnonzero(given.joins.op == j).tolist():
                start = max(start, op_end[given.joins.on[k]] + given.joins.delay[k])
            op_end[j] = free[o.stream[j]] = start + o.duration[j]
        for k in waits:
            if k not in early:
                end = max(end, op_end[given.waits.op[k]] + given.waits.lag[k])
        call_end[i] = clock[c.thread[i]] = end
    return op_end


# ---------------------------------------------------------------- captures of a few steps

US = 1_000
MS = 1_000_000


def replayer(export: Export, folder: Path, **options: Any) -> Replayer:
    """Replays of what the export holds, in a folder of its own below `folder`."""
    return Replayer(analysis(export, Path(mkdtemp(dir=folder))), **options)


def step_us(r: Replayer, *fixes: Fix, scenario: Scenario = PLAIN, lean: int = 0) -> float:
    """Mean step time in us with some fixes."""
    leans = Scenario(scenario.launch, scenario.node_gap, (lean,) * len(fixes))
    return r.step_ns(fixes, leans) / US


def fix(name: str, **params: Any) -> Fix:
    return make_fix(name, params)
