"""How operations lie on the streams of a replay: which stream each is on, what comes before it there, and
how late and how far apart operations usually begin."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.gain import limits
from advisor.gain.inputs import NONE
from advisor.gain.whatifs import constant
from advisor.metrics.loaded.operations import Operations
from advisor.metrics.loaded.stage import Loaded
from advisor.model.arrays import Array, begins_run, distinct, median_of
from advisor.sources.schema import MISSING


def before_each(
    a: Loaded, ops: Operations, stream: Array, stretch: Array, by_stream: Array, count: int, lo: int
) -> tuple[Array, Array, Array]:
    """In stream order: end of the predecessor (before the first of a stretch, the last operation that is not
    replayed), and whether it is of the same call; and when each stream is free."""
    ranked = stream[by_stream]
    ended = ops.end[by_stream].astype(float)
    first = begins_run(ranked, stretch[by_stream])
    ready = np.full(count, float(lo))
    start = ops.start[by_stream].astype(float)
    heads = np.flatnonzero(first)
    free = np.empty(len(heads))
    for k, head in enumerate(heads.tolist()):
        op = by_stream[head]
        until = int(np.searchsorted(a.ops.start, ops.start[op]))
        earlier = slice(max(until - 4096, 0), until)
        mine = (
            (a.ops.stream[earlier] == ops.stream[op])
            & (a.ops.device[earlier] == ops.device[op])
            & (a.ops.process[earlier] == ops.process[op])
        )
        ends = a.ops.end[earlier][mine]
        free[k] = min(float(ends.max()) if len(ends) else float(lo), start[head])
    opens = begins_run(ranked[heads])
    ready[ranked[heads][opens]] = free[opens]
    previous = np.concatenate(([0.0], ended[:-1]))
    previous[heads] = free
    api = ops.api[by_stream]
    same = np.concatenate(([False], api[1:] == api[:-1])) & ~first & (api != MISSING)
    return previous, same, ready


def in_line(ops: Operations) -> Operations:
    """Copies and memsets whose stream is not recorded are put into the stream that holds most work of the
    device, if they run beside none of it: what follows may wait for them."""
    stream = ops.stream.copy()
    lost = stream == MISSING
    for device in distinct(ops.device[lost]).tolist():
        here = ops.device == device
        ids, count = np.unique(stream[here & ~lost], return_counts=True)
        if len(ids):
            fullest = ids[count.argmax()]
            mine, own = np.flatnonzero(here & lost), here & (stream == fullest)
            ended = np.concatenate(([0], np.maximum.accumulate(ops.end[own])))
            before = ended[np.searchsorted(ops.start[own], ops.end[mine])]
            stream[mine[before <= ops.start[mine]]] = fullest
    return replace(ops, stream=stream)


def dense_streams(ops: Operations, call: Array) -> tuple[Array, int]:
    """Dense stream of each operation, and the number of streams. The nodes of a graph run share the run's
    main stream."""
    process, device, stream = (ids.astype(np.int64) for ids in (ops.process, ops.device, ops.stream))
    key = (process << 40) | (device << 32) | (stream & 0xFFFFFFFF)
    streams, dense = np.unique(key, return_inverse=True)
    dense = dense.astype(np.int64)
    nodes = np.flatnonzero((ops.graph_node != 0) & (call != NONE))
    if len(nodes) and len(streams) > 1:
        runs, run = np.unique(call[nodes], return_inverse=True)
        key, shape = run * len(streams) + dense[nodes], (len(runs), len(streams))
        held = np.bincount(key, ops.length[nodes], len(runs) * len(streams)).reshape(shape)
        dense[nodes] = held.argmax(axis=1)[run]
    return dense, len(streams)


def usual_delays(
    late: Array, gap: Array, submitted: Array, previous: Array, usual: Array
) -> tuple[float, float]:
    """Median time from a call's return to its operation on a free stream, and median gap between
    two operations that were both queued; published figures where the capture shows none."""
    free = usual & (previous < submitted)
    typical_late = median_of(late[free]) if free.sum() >= limits.TYPICAL_OPS else constant("launch_latency")
    queued = usual & (previous > submitted + max(typical_late, 0.0))
    typical_gap = median_of(gap[queued]) if queued.sum() >= limits.TYPICAL_OPS else constant("stream_gap")
    return typical_late, typical_gap
