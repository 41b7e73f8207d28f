"""Launch calls that are recorded into a CUDA graph while it is captured: they run nothing."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.metrics.intervals import Coverage, union
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import GOOD_RESULTS, Operations, stream_captures
from advisor.model.arrays import Array, among, distinct, marked
from advisor.sources.schema import OPERATIONS, Call
from advisor.sources.trace import Trace

#: Operators that serving engines add to PyTorch. A replay runs none of them on the host.
_ENGINE = re.compile(r"^(?:vllm|sglang|sgl_kernel|trtllm|aiter)::")


class Captured(Struct, frozen=True):
    """Calls that graphs record, as a mask over api_calls, and the rows of the first and of the last call of
    each capture. `launches` of them launch kernels, of `all_launches`. `sure` where calls say so, or where
    other launches left kernels."""

    inside: Array
    first: Array
    last: Array
    launches: int
    all_launches: int
    sure: bool


def graph_captures(trace: Trace, ops: Operations) -> Captured:
    """By the calls that begin and end a stream capture. Where a trace lacks them: launches without a kernel,
    if all launches inside operators of a serving engine are such."""
    calls = trace.columns("api_calls", ("call", "result"))
    launch = (calls["call"] == Call.LAUNCH) & among(calls["result"], GOOD_RESULTS)
    inside, first, last = stream_captures(trace)
    sure = True
    if not len(first):
        ran = marked(len(launch), ops.api[ops.api >= 0])
        inside = launch & ~ran if _engine_runs_nothing(trace, launch, ran) else inside
        first, last = _stretches(trace, launch, inside)
        sure = bool((launch & ran).any())
    return Captured(inside, first, last, int((launch & inside).sum()), int(launch.sum()), sure)


def _engine_runs_nothing(trace: Trace, launch: Array, ran: Array) -> bool:
    """True if operators of a serving engine launch kernels and none of these ran."""
    ranges = trace.columns("ranges", ("start", "end", "thread", "domain", "text_id"))
    at = np.flatnonzero(ranges["domain"] == OPERATIONS)
    names, of = dense(ranges["text_id"][at])
    if not len(names):
        return False
    at = at[np.array([bool(_ENGINE.match(text)) for text in trace.texts(names.tolist())], bool)[of]]
    calls = trace.columns("api_calls", ("start", "end", "thread"))
    found = 0
    for thread in distinct(ranges["thread"][at]).tolist():
        own = at[ranges["thread"][at] == thread]
        rows = np.flatnonzero(launch & (calls["thread"] == thread))
        length = calls["end"][rows] - calls["start"][rows]
        covered = Coverage(union(ranges["start"][own], ranges["end"][own]))
        rows = rows[covered.within(calls["start"][rows], calls["end"][rows]) >= np.maximum(length, 1)]
        if ran[rows].any():
            return False
        found += len(rows)
    return found > 0


def _stretches(trace: Trace, launch: Array, inside: Array) -> tuple[Array, Array]:
    """First and last of the launches `inside` that follow each other on a thread, by rows of api_calls."""
    first, last = list[int](), list[int]()
    if inside.any():
        calls = trace.columns("api_calls", ("start", "thread"))
        for thread in distinct(calls["thread"][inside]).tolist():
            mine = np.flatnonzero(launch & (calls["thread"] == thread))
            mine = mine[np.argsort(calls["start"][mine], kind="stable")]
            turns = np.diff(inside[mine].astype(np.int8), prepend=0, append=0)
            first += mine[turns[:-1] > 0].tolist()
            last += mine[np.flatnonzero(turns < 0) - 1].tolist()
    return np.array(first, np.int64), np.array(last, np.int64)
