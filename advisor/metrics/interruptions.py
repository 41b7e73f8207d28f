"""Long stretches without a kernel between the steps: no request to serve, a checkpoint, an evaluation."""

from __future__ import annotations

import numpy as np

from advisor.metrics.host import HostStates
from advisor.metrics.intervals import EMPTY, Coverage, Spans, gaps, joined, union
from advisor.metrics.operations import Kind, Operations
from advisor.metrics.steps import Steps
from advisor.metrics.window import Selection
from advisor.sources.schema import Call
from advisor.sources.trace import Trace

#: An interruption lasts as long as this many median steps, and this long (ns) at least: what is
#: shorter, or comes in more than `_FEW` of the steps (or once), is how the loop runs
#: (calibration#hst108).
_STEPS, _LONG_NS, _FEW = 20, 100_000_000, 0.1
#: Calls whose own length explains why no kernel runs.
_EXPLAIN = (Call.ALLOC, Call.FREE, Call.SYNC, Call.LAUNCH, Call.GRAPH_LAUNCH)


def interruptions(
    trace: Trace, ops: Operations, steps: Steps, selection: Selection, states: HostStates
) -> Spans:
    """Where no kernel runs on any device for so long that the steps do not tell why; none where the
    user names the window. A stretch of which half is garbage collection, loading of data, start-up,
    the profiler's or inside a call has a cause that is known, and is none."""
    if not steps.believed or len(steps) < 2 or selection.window or selection.nvtx:
        return EMPTY
    least = max(_LONG_NS, _STEPS * float(np.median(steps.time)))
    if steps.time.max() < least:
        return EMPTY
    busy = np.flatnonzero((ops.kind == Kind.KERNEL) | (ops.kind == Kind.GRAPH_RUN))
    found = gaps(union(ops.start[busy], ops.end[busy]), int(steps.gpu_end[0]), int(steps.gpu_end[-1]))
    length = found.end - found.start
    long = length >= least
    found, length = Spans(found.start[long], found.end[long]), length[long]
    if not len(found) or len(found) > max(_FEW * len(steps), 1):
        return EMPTY
    calls = trace.columns("api_calls", ("start", "end", "call"))
    held = np.isin(calls["call"], _EXPLAIN) & (calls["end"] - calls["start"] > _LONG_NS // 10)
    named = states.cold, states.gc, states.gil, states.overhead, states.loading
    known = joined(
        union(calls["start"][held], calls["end"][held]), *(s for each in named for s in each.values())
    )
    unknown = 2 * Coverage(known).within(found.start, found.end) < length
    return Spans(found.start[unknown], found.end[unknown])
