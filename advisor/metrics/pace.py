"""Calls of the same kernels: how fast they run in the last steps beside the first and on the devices of a
job, and which of them are slow."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from msgspec import Struct

from advisor.metrics.analysis import Analysis
from advisor.metrics.budget import BUSY_COLUMNS
from advisor.metrics.intervals import Coverage, Spans, intersect, union, union_by
from advisor.metrics.kernels import Distribution, call_key, dense, distribution, launch_shape, nth_alike
from advisor.metrics.operations import Kind
from advisor.metrics.passes import DeviceKernels
from advisor.metrics.phases import slow_steps
from advisor.model.arrays import Array, among, distinct, marked, median_of, picked, rows_at, sorting, where
from advisor.sources.schema import MISSING, Call

#: A kernel changes like the rest where it changes by at least this part of the mean change.
_LIKE = 0.5


def alike_ratio(time: Array, change: Array, mean: float) -> float:
    """Share of the time (by kernel) in kernels whose `change` is at least half of the mean change."""
    return float(time[change >= _LIKE * mean].sum() / max(time.sum(), 1.0))


# --- kernels that other devices of a job run as well ----------------------------------------------

#: Number of kernels compared, the heaviest first: they hold nearly all of the time of real models.
_MOST = 200


class KernelPace(Struct, frozen=True):
    """One kernel with one launch shape: calls and time (ns) a step, or in the window where no steps
    are known, and the median duration (ns). `key` is the same on every rank."""

    key: int
    name: str
    calls: float
    time: float
    median: float
    family: str = ""


def kernel_paces(a: Analysis, device: int) -> tuple[KernelPace, ...]:
    """The heaviest kernels of the device in the window, without communication."""
    at = a.device_kernels(device)
    at = at[~a.communication[at]]
    if not len(at) or a.trace.summed:
        return ()
    name, shape = a.op_name[at], launch_shape(a.trace, a.ops.row[at])
    keys, group = dense(call_key(name, shape))
    spread = distribution(group, a.ops.length[at], len(keys))
    of = np.zeros((2, len(keys)), np.int64)  # name and shape of each group
    of[:, group] = name, shape
    steps = max(a.step_count, 1)
    most = np.argsort(-spread.total, kind="stable")[:_MOST]
    columns, families = (*of, spread.count / steps, spread.total / steps, spread.p50), a.names.families
    return tuple(
        KernelPace(
            key=crc32(f"{a.names.texts[i]} {shape_of}".encode()),
            name=a.names.short[i],
            calls=calls,
            time=time,
            median=median,
            family=families[i],
        )
        for i, shape_of, calls, time, median in rows_at(most, *columns)
    )


# --- steps that get longer or shorter from the first to the last ----------------------------------

#: Drift needs this many steps: each third then holds at least four.
MIN_STEPS = 12
#: Similar calls are compared in this many runs of equal length, of at least five calls each.
_RUNS, _RUN = 8, 5
#: Runs that drift keep their order in rank: two levels in a row of eight reach 0.87.
_IN_ORDER = 0.8


class Drift(Struct, frozen=True):
    """Change from the first third of the steps to the last; positive is longer.

    `change`: of the median step over the first third's; `order`: rank correlation of step times with
    their order, -1 to 1; `kernels` and `idle`: share of the change that like kernels, and idle time,
    make; `alike`: share of the kernel time in kernels that changed along with the rest, which changed
    by `kernel_change`; `lost_ns`: time above the faster third's median, over all steps.
    """

    steps: int
    change: float
    order: float
    kernels: float
    idle: float
    alike: float
    kernel_change: float
    lost_ns: float


def find_drift(a: Analysis, device: int) -> Drift | None:
    """None for fewer than `MIN_STEPS` steps of the commonest phase."""
    inside, _ = a.kernels(device).of_one_phase
    number, step = dense(a.kernels(device).step[inside])
    count, third = len(number), len(number) // 3
    if count < MIN_STEPS:
        return None
    held = a.budgets[device].by_step[number]
    times, busy = held.sum(axis=1), held[:, BUSY_COLUMNS].sum(axis=1)
    first, last = np.arange(count) < third, np.arange(count) >= count - third
    before, after = median_of(times[first]), median_of(times[last])
    grown = after - before
    kernels, alike, mean = _of_like_kernels(a.kernels(device), inside, first[step], last[step], third, grown)
    idle = float(median_of((times - busy)[last]) - median_of((times - busy)[first]))
    return Drift(
        steps=count,
        change=grown / max(before, 1.0),
        order=rank_correlation(times),
        kernels=kernels,
        idle=_share(idle, grown),
        alike=alike,
        kernel_change=mean,
        lost_ns=float(np.maximum(times - min(before, after), 0).sum()),
    )


class SlowSteps(Struct, frozen=True):
    """How the steps that are far slower than the rest differ from them: `kernels` is the share of the
    difference that like kernels make, `alike` the share of kernel time in kernels that changed along with
    the rest, which changed by `kernel_change`."""

    kernels: float
    alike: float
    kernel_change: float


def find_slow_steps(a: Analysis) -> SlowSteps | None:
    """None if no step of the commonest phase is far slower than the rest, or most are."""
    found = slow_steps(a)
    if found is None or not 0 < (count := int(found[2].sum())) <= len(found[2]) // 2:
        return None
    step, times, slow = found
    kernels = a.kernels(a.main_device)
    inside, _ = kernels.of_one_phase
    usual, slower = (marked(len(a.steps), step[mine])[kernels.step[inside]] for mine in (~slow, slow))
    others, grown = len(step) - count, float(times[slow].mean() - times[~slow].mean())
    part, alike, mean = _of_like_kernels(kernels, inside, usual, slower, others, grown, others / count)
    return SlowSteps(kernels=part, alike=alike if mean > 0 else 0.0, kernel_change=mean)


def _share(part: float, whole: float) -> float:
    return float(np.clip(part / whole, 0.0, 1.0)) if whole else 0.0


def _of_like_kernels(
    kernels: DeviceKernels,
    inside: Array | slice,
    first: Array,
    last: Array,
    steps: int,
    grown: float,
    times: float = 1.0,
) -> tuple[float, float, float]:
    """What like kernels (one name and launch shape, called about equally often in the first and the last
    steps) make of the time `grown` (ns) by which a step changes: their share of it, the share of their time
    in those that change along with the rest, and by how much they all change. `first` and `last` are masks
    over the kernels `inside`; there are so many first `steps`, `times` as many as last ones."""
    group = dense(call_key(kernels.name[inside], kernels.shape[inside]))[1]
    size = int(group.max(initial=-1)) + 1
    thirds = [(group[mine], kernels.length[inside][mine]) for mine in (first, last)]
    time = [np.bincount(of, length, size) for of, length in thirds]
    calls = [np.bincount(of, minlength=size) * n for (of, _), n in zip(thirds, (1, times), strict=True)]
    like = (calls[0] > 0) & (np.abs(calls[1] - calls[0]) <= 0.1 * calls[0])
    old, new = time[0][like], time[1][like] * calls[0][like] * times / np.maximum(calls[1][like], 1)
    mean = float((new - old).sum() / max(old.sum(), 1.0))
    change = (new / np.maximum(old, 1.0) - 1) * np.sign(mean)
    return _share(float((new - old).sum()) / steps, grown), alike_ratio(old, change, abs(mean)), mean


def rank_correlation(values: Array) -> float:
    """Spearman's rank correlation of values with their order, -1 to 1; 0 if all are equal."""
    value, back, count = np.unique(values, return_inverse=True, return_counts=True)
    if len(value) < 2:
        return 0.0
    rank = (np.cumsum(count) - (count - 1) / 2)[back]  # equal values share their mean rank
    return float(np.corrcoef(rank, np.arange(len(values)))[0, 1])


def trend_ratio(duration: Array) -> float | None:
    """Share of the time above the median of similar calls that disappears when each run of calls is
    compared with its own median, if the runs drift; 0 if they do not. None for too few calls."""
    runs = min(_RUNS, len(duration) // _RUN)
    if runs < _RUNS // 2:
        return None
    parts = np.array_split(duration, runs)
    medians = np.array([median_of(p) for p in parts])
    if abs(rank_correlation(medians)) < _IN_ORDER:
        return 0.0
    whole = float(np.maximum(duration - median_of(duration), 0).sum())
    left = sum(float(np.maximum(p - m, 0).sum()) for p, m in zip(parts, medians, strict=True))
    return max(1.0 - left / whole, 0.0) if whole else 0.0


# --- calls that may be compared, and the slow ones among them -------------------------------------

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
    """The device's calls by kernel, launch shape and neighbours: a GEMM of one shape serves projections of
    different depth, and only its place in the sequence tells them apart.

    Groups of fewer than `least` calls are joined into one for each kernel and launch shape.
    """
    kernels = a.kernels(device)
    at, name, duration, shape = kernels.at, kernels.name, kernels.length, kernels.shape
    place = _place(name, shape, a.ops.stream[at])
    keys, group = dense(place)
    if least:
        rare = np.bincount(group)[group] < least
        # Numbered behind the places, so that the two do not mix.
        group[rare] = dense(call_key(name, shape)[rare])[1] + len(keys)
        keys, group = dense(group)
    of_name = np.zeros(len(keys), np.int64)
    of_name[group] = name
    return LikeCalls(at, group, duration, of_name, distribution(group, duration, len(keys)))


def _place(name: Array, shape: Array, stream: Array) -> Array:
    """A key of each call's kernel, launch shape and neighbours on its stream."""
    call = call_key(name, shape)
    order = sorting(stream)  # calls are sorted by start within a stream
    ranked = call[order]
    key = ranked * np.uint64(0xC2B2AE3D27D4EB4F)
    for places, added, by in ((1, 1, 0x165667B19E3779F9), (-1, 2, 0x27D4EB2F165667C5)):
        neighbour = ranked + np.uint64(added)
        neighbour *= np.uint64(by)
        key ^= np.roll(neighbour, places)
    call[order] = key
    return call


#: With fewer calls the shortest one proves little about a place in the step.
_PLACE_CALLS = 5
#: Entries of a table of all places; if there are more, only places in use get an entry.
_MOST_PLACES = 1 << 18


def longer_by_place(a: Analysis, like: LikeCalls) -> Array:
    """By how much (ns) even the shortest call at a place of the steps exceeds the median of its group; 0 if
    steps are unknown. The first call of a group in a step is one place, the second another."""
    out = np.zeros(len(like.at), np.int64)
    step = picked(a.steps.op_step, like.at)
    inside = where(step >= 0)
    step, group, duration = step[inside], like.group[inside], like.duration[inside]
    if not len(step):
        return out
    nth = nth_alike(step, group)  # calls are sorted by start
    wide = int(nth.max()) + 1
    place = group * np.int64(wide)
    place += nth
    places = (int(group.max()) + 1) * wide
    known, place = dense(place) if places > _MOST_PLACES else (np.arange(places), place)
    least = np.full(len(known), np.iinfo(np.int64).max)
    np.minimum.at(least, place, duration)
    least = np.where(np.bincount(place, minlength=len(known)) >= _PLACE_CALLS, least, 0)
    excess = np.maximum(least - like.spread.p50[known // wide], 0).astype(np.int64)
    out[inside] = excess[place]
    return out


def alone_ratio(a: Analysis, device: int, slow: Array) -> float:
    """Share (0..1) of the time of slow calls (positions in `ops`) with nothing else on the device."""
    own = union(a.ops.start[slow], a.ops.end[slow])
    other = marked(len(a.ops), a.device_ops(device)) & ~marked(len(a.ops), slow)
    shared = intersect(own, union(a.ops.start[other], a.ops.end[other])).total
    return 1.0 - shared / max(own.total, 1)


def slow_calls(like: LikeCalls) -> Array:
    """Mask over the calls that take more than `SLOW` times the median of their like."""
    return np.asarray(like.duration > SLOW * like.spread.p50[like.group])


def alone_ratios(a: Analysis, device: int, like: LikeCalls, slow: Array) -> Array:
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


def coincidences(a: Analysis, device: int, like: LikeCalls) -> dict[str, Array]:
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


def _during_calls(a: Analysis, at: Array, kinds: tuple[Call, ...]) -> Array:
    out = np.zeros(len(at), bool)
    start, end, process, call = a.trace.columns("api_calls", ("start", "end", "process", "call")).values()
    chosen = among(call, kinds)
    for one, spans in union_by(process[chosen], start[chosen], end[chosen]).items():
        here = np.flatnonzero(a.ops.process[at] == one)
        out[here] = _touches(spans, a.ops.start[at[here]], a.ops.end[at[here]])
    return out


def _touches(spans: Spans, start: Array, end: Array) -> Array:
    return np.asarray(Coverage(spans).within(start, end) > 0)


def _other_streams(a: Analysis, kernels: Array, at: Array) -> Array:
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
