"""Tails of kernel durations: slow calls among comparable calls, and what coincides with them.

Like calls are of one kernel, one launch shape and the same kernels before and after on their stream. A GEMM
of one shape serves projections of different depth, and only its place in the sequence tells them apart.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Coverage, Spans, union
from advisor.metrics.kernels import Distribution, call_key, dense, distribution, launch_shape
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array, distinct, marked
from advisor.sources.schema import MISSING, Call

#: A call is slow when it takes this many times the median of comparable calls.
SLOW = 1.5
#: Below this many comparable calls a percentile is not meaningful.
MIN_CALLS = 20


class LikeCalls(Struct, frozen=True):
    """Kernels of one device in the window, grouped by what they may be compared with.

    `at` are positions in `Analysis.ops`, `group` and `duration` (ns) have one entry for each of
    them; `name` (position in `Analysis.names`) and `spread` one for each group.
    """

    at: Array
    group: Array
    duration: Array
    name: Array
    spread: Distribution

    def __len__(self) -> int:
        return len(self.name)


def like_calls(a: Analysis, device: int, least: int = 0) -> LikeCalls:
    """The device's calls by kernel, launch shape and neighbours.

    Groups of fewer than `least` calls are joined into one for each kernel and launch shape.
    """
    at = a.device_kernels(device)
    name = a.op_name[at]
    duration = (a.ops.end - a.ops.start)[at]
    shape = launch_shape(a.trace, a.ops.row[at])
    place = _place(name, shape, a.ops.stream[at])
    keys, group = dense(place)
    if least:
        rare = np.bincount(group, minlength=len(keys))[group] < least
        # Numbered behind the places, so that the two do not mix.
        joint = dense(call_key(name, shape)[rare])[1] + len(keys)
        group[rare] = joint
        keys, group = dense(group)
    of_name = np.zeros(len(keys), np.int64)
    of_name[group] = name
    return LikeCalls(at, group, duration, of_name, distribution(group, duration, len(keys)))


def _place(name: Array, shape: Array, stream: Array) -> Array:
    """A key of each call's kernel, launch shape and neighbours on its stream."""
    call = call_key(name, shape)
    order = np.argsort(stream, kind="stable")  # calls are sorted by start within a stream
    ranked = call[order]
    before, after = np.roll(ranked, 1), np.roll(ranked, -1)
    key = np.empty(len(call), np.uint64)
    key[order] = (
        ranked * np.uint64(0xC2B2AE3D27D4EB4F)
        ^ (before + np.uint64(1)) * np.uint64(0x165667B19E3779F9)
        ^ (after + np.uint64(2)) * np.uint64(0x27D4EB2F165667C5)
    )
    return key


def alone_ratio(a: Analysis, device: int, slow: Array) -> float:
    """Share (0..1) of the time of slow calls (positions in `ops`) during which nothing else runs on
    the device."""
    own = union(a.ops.start[slow], a.ops.end[slow])
    other = marked(len(a.ops), a.device_ops(device))
    other[slow] = False
    rest = union(a.ops.start[other], a.ops.end[other])
    shared = int(Coverage(rest).within(own.start, own.end).sum())
    return 1.0 - shared / max(own.total, 1)


def slow_calls(like: LikeCalls) -> Array:
    """Mask over the calls that take more than `SLOW` times the median of their like."""
    return np.asarray(like.duration > SLOW * like.spread.p50[like.group])


def alone_ratios(a: Analysis, device: int, like: LikeCalls, slow: Array) -> Array:
    """`alone_ratio` of every group at once; 1 where a group has no slow call. Slow calls of one
    group that overlap each other count as company here."""
    everything = a.device_ops(device)
    company = shared_spans(a.ops.start[everything], a.ops.end[everything])
    at = like.at[slow]
    time = like.duration[slow]
    shared = Coverage(company).within(a.ops.start[at], a.ops.end[at])
    group, n = like.group[slow], len(like)
    whole = np.bincount(group, time, minlength=n)
    part = np.bincount(group, shared, minlength=n)
    return np.asarray(1.0 - part / np.maximum(whole, 1))


def shared_spans(start: Array, end: Array) -> Spans:
    """Where at least two of the intervals (sorted by start) run."""
    if len(start) < 2:
        return union(start[:0], end[:0])
    reach = np.maximum.accumulate(end)[:-1]
    return union(start[1:], np.minimum(end[1:], reach))


def coincidences(a: Analysis, device: int, like: LikeCalls) -> dict[str, Array]:
    """For each call, what coincided: a synchronize call, an allocation or free call, a copy, a kernel of
    another stream, the first iteration.

    Calls into CUDA are those of the kernel's process, on any thread; copies and other streams'
    kernels those on the same device. The first iteration is the first step of the capture, or the
    group's first call where no steps were found; None of it lies in a steady window.
    """
    ops, at = a.ops, like.at
    start, end = ops.start[at], ops.end[at]
    everything = np.flatnonzero(ops.device == device)
    copy = everything[ops.kind[everything] == Kind.COPY]
    out = {
        "sync": _during_calls(a, at, (Call.SYNC,)),
        "alloc": _during_calls(a, at, (Call.ALLOC, Call.FREE)),
        "copy": _touches(union(ops.start[copy], ops.end[copy]), start, end),
        "stream": _other_streams(a, everything[a.op_name[everything] >= 0], at),
    }
    steps = a.steps
    if len(steps):
        step = steps.op_step[at]
        out["first"] = (step == 0) | ((step == MISSING) & (start < steps.gpu_start[0]))
    else:
        first = marked(len(at), np.unique(like.group, return_index=True)[1])
        out["first"] = first
    return out


def _during_calls(a: Analysis, at: Array, kinds: tuple[Call, ...]) -> Array:
    out = np.zeros(len(at), bool)
    if not a.trace.has("api_calls"):
        return out
    calls = a.trace.columns("api_calls", ("start", "end", "process", "call"))
    chosen = np.flatnonzero(np.isin(calls["call"], kinds))
    process = a.ops.process[at]
    for one in distinct(process).tolist():
        mine = chosen[calls["process"][chosen] == one]
        here = np.flatnonzero(process == one)
        spans = union(calls["start"][mine], calls["end"][mine])
        out[here] = _touches(spans, a.ops.start[at[here]], a.ops.end[at[here]])
    return out


def _touches(spans: Spans, start: Array, end: Array) -> Array:
    return np.asarray(Coverage(spans).within(start, end) > 0)


def _other_streams(a: Analysis, kernels: Array, at: Array) -> Array:
    """Whether a kernel of another stream runs meanwhile: more kernels overlap than on its own."""
    ops = a.ops
    stream = (ops.process.astype(np.int64) << 32) | (ops.stream.astype(np.int64) & 0xFFFFFFFF)
    count = _overlapping(ops.start[kernels], ops.end[kernels], ops.start[at], ops.end[at])
    for one in distinct(stream[at]).tolist():
        own, here = kernels[stream[kernels] == one], np.flatnonzero(stream[at] == one)
        count[here] -= _overlapping(ops.start[own], ops.end[own], ops.start[at[here]], ops.end[at[here]])
    return count > 0


def _overlapping(start: Array, end: Array, lo: Array, hi: Array) -> Array:
    """How many of the intervals (sorted by start) overlap each [lo, hi)."""
    return np.searchsorted(start, hi, "left") - np.searchsorted(np.sort(end), lo, "right")
