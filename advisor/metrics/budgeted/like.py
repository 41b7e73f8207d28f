"""Calls that may be compared: one process, kernel, launch shape and place; and the slow ones among them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage, Spans, intersect, union, union_by
from advisor.metrics.loaded.kernels import Distribution, call_key, dense, distribution, nth_alike
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.recording import Recording
from advisor.model.arrays import Array, among, distinct, marked, median_of, percentiles, picked, sorting
from advisor.sources.schema import MISSING, Call


class LikeCalls(Struct, frozen=True):
    """Kernels of one device in the window, grouped by what they may be compared with.

    `at` are positions in `Loaded.ops`, `group` and `duration` (ns) have one entry for each of
    them; `name` (position in `Loaded.names`) and `spread` one for each group.
    """

    at: Array
    group: Array
    duration: Array
    name: Array
    spread: Distribution

    def __len__(self) -> int:
        return len(self.name)


def like_calls(a: Budgeted, device: int, least: int = 0) -> LikeCalls:
    """The device's calls by process, kernel, launch shape, neighbours and place in the step: a GEMM of one
    shape serves projections of different depth, and only its place tells them apart.

    Groups of fewer than `least` calls are joined into one for each process, kernel and launch shape.
    """
    kernels = a.kernels(device)
    at, name, duration = kernels.at, kernels.name, kernels.length
    process = picked(a.ops.process, at).astype(np.int64)
    call = call_key(name, kernels.shape)
    call += process.astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
    stream = (process << 32) | (a.ops.stream[at].astype(np.int64) & 0xFFFFFFFF)
    group = dense(_among_neighbours(call, stream))[1].astype(np.int32)
    del stream
    if not least:
        del call
    group = _by_place(a, at, group, duration)
    keys = np.arange(int(group.max(initial=-1)) + 1)
    if least:
        rare = np.bincount(group)[group] < least
        # Numbered behind the places, so that the two do not mix.
        group[rare] = dense(call[rare])[1] + len(keys)
        keys, group = dense(group)
    of_name = np.zeros(len(keys), np.int64)
    of_name[group] = name
    return LikeCalls(at, group, duration, of_name, distribution(group, duration, len(keys)))


def _among_neighbours(call: Array, stream: Array) -> Array:
    """A key of each call and its neighbours on its stream."""
    order = sorting(stream)  # calls are sorted by start within a stream
    ranked = call[order]
    key = ranked * np.uint64(0xC2B2AE3D27D4EB4F)
    for places, added, by in ((1, 1, 0x165667B19E3779F9), (-1, 2, 0x27D4EB2F165667C5)):
        neighbour = ranked + np.uint64(added)
        neighbour *= np.uint64(by)
        key ^= np.roll(neighbour, places)
    out = np.empty_like(call)
    out[order] = key
    return out


def _by_place(a: Recording, at: Array, group: Array, duration: Array) -> Array:
    """The groups, divided where even the shortest calls of some places of the steps take longer than those
    of the others. The first call of a group in a step of one phase is one place, the second another."""
    step = picked(a.steps.op_step, at)
    # A collective that takes longer at its place waits for another rank there.
    inside = np.flatnonzero((step >= 0) & ~a.communication[at])
    if not len(inside):
        return group
    phases = np.unique(np.array(a.steps.phase, str), return_inverse=True)[1]
    kind, many = _kinds_of_places(step[inside], group[inside], duration[inside], phases)
    out = group.astype(np.int64) * (many + 1)  # those outside of steps stay for themselves
    out[inside] += kind
    return dense(out)[1]


def _kinds_of_places(step: Array, of: Array, took: Array, phases: Array) -> tuple[Array, int]:
    """A number for each call inside a step, equal for the places of one group (`of`) that take equally long,
    and how many places there are; `phases` has a number for each step."""
    nth = nth_alike(step, of)  # calls are sorted by start
    wide, kinds = int(nth.max()) + 1, int(phases.max()) + 1
    nth += (of.astype(np.int64) * kinds + phases[step]) * wide
    known, place = dense(nth)
    del nth  # large, and no longer needed
    level = np.full(len(known), np.iinfo(np.int64).max)
    np.minimum.at(level, place, took)
    count, its = np.bincount(place, minlength=len(known)), known // wide // kinds
    usual = distribution(of, took, int(of.max()) + 1).p50
    level = np.where(count >= limits.kernels.PLACE_CALLS, level, usual[its])
    order = np.lexsort((level, its))
    ranked, longer = its[order], level[order]
    begins = np.append(
        True, (ranked[1:] != ranked[:-1]) | (longer[1:] > limits.kernels.OTHER_PLACE_FACTOR * longer[:-1])
    )
    kind = np.empty(len(known), np.int64)
    kind[order] = np.cumsum(begins)
    return kind[place], len(known)


def two_modes(a: Budgeted, device: int, like: LikeCalls, group: int, duration: Array) -> bool:
    """Whether the slow calls of a group (positions of it in `like`) are work of their own, and no tail."""
    mine = np.flatnonzero(like.group == group)
    slow = duration[mine] > limits.kernels.SLOW_CALL_FACTOR * median_of(duration[mine])
    if not slow.any():
        return False
    low, high = percentiles(duration[mine][slow], 10, 90)
    if high > limits.kernels.ONE_LENGTH_FACTOR * low or alone_ratio(a, device, like.at[mine[slow]]) < 0.5:
        return False
    step = a.steps.op_step[like.at[mine]]
    if (step >= 0).all():
        steps, at = np.unique(step, return_inverse=True)
        times = np.bincount(at[slow], minlength=len(steps))
    else:
        times = (
            np.diff(np.flatnonzero(slow))
            if slow.mean() >= limits.kernels.REGULAR_CALLS_RATIO
            else np.zeros(0, np.int64)
        )
    return len(times) >= limits.kernels.REGULAR_TIMES and bool(
        ((times == median_of(times)) & (times > 0)).mean() >= limits.kernels.REGULAR_RATIO
    )


def alone_ratio(a: Budgeted, device: int, slow: Array) -> float:
    """Share (0..1) of the time of slow calls (positions in `ops`) with nothing else on the device."""
    own = union(a.ops.start[slow], a.ops.end[slow])
    other = marked(len(a.ops), a.device_ops(device)) & ~marked(len(a.ops), slow)
    shared = intersect(own, union(a.ops.start[other], a.ops.end[other])).total
    return 1.0 - shared / max(own.total, 1)


def slow_calls(like: LikeCalls) -> Array:
    """Mask over the calls that take more than `SLOW_CALL_FACTOR` times the median of their like."""
    return np.asarray(like.duration > limits.kernels.SLOW_CALL_FACTOR * like.spread.p50[like.group])


def alone_ratios(a: Budgeted, device: int, like: LikeCalls, slow: Array) -> Array:
    """`alone_ratio` of every group at once; 1 where a group has no slow call. Slow calls of one
    group that overlap each other count as company here."""
    everything, at = a.device_ops(device), like.at[slow]
    company = shared_spans(a.ops.start[everything], a.ops.end[everything])
    shared = Coverage(company).within(a.ops.start[at], a.ops.end[at])
    whole, part = (np.bincount(like.group[slow], v, len(like)) for v in (like.duration[slow], shared))
    return np.asarray(1.0 - part / np.maximum(whole, 1))


def shared_spans(start: Array, end: Array) -> Spans:
    """Where at least two of the intervals (sorted by start) run."""
    reach = np.maximum.accumulate(end)[:-1]
    return union(start[1:], np.minimum(end[1:], reach))


def coincidences(a: Recording, device: int, like: LikeCalls) -> dict[str, Array]:
    """For each call, what coincided with it: a synchronize call, an allocation or free call, a copy, a
    kernel of another stream, the first iteration.

    Calls into CUDA are those of the kernel's process, on any thread; copies and other streams' kernels
    those on the same device. The first iteration is the first step of the capture, or the group's first
    call if no steps were found; a steady window holds none of it.
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
        out["first"] = marked(len(at), np.unique(like.group, return_index=True)[1])
    return out


def _during_calls(a: Loaded, at: Array, kinds: tuple[Call, ...]) -> Array:
    out = np.zeros(len(at), bool)
    start, end, process, call = a.trace.columns("api_calls", ("start", "end", "process", "call")).values()
    chosen = among(call, kinds)
    for one, spans in union_by(process[chosen], start[chosen], end[chosen]).items():
        here = np.flatnonzero(a.ops.process[at] == one)
        out[here] = _touches(spans, a.ops.start[at[here]], a.ops.end[at[here]])
    return out


def _touches(spans: Spans, start: Array, end: Array) -> Array:
    return np.asarray(Coverage(spans).within(start, end) > 0)


def _other_streams(a: Loaded, kernels: Array, at: Array) -> Array:
    """Whether kernels of other streams run at the same time: more overlap than on the own stream."""
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
