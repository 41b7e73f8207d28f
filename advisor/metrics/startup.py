"""Start-up and damage: the stretches of a capture that say nothing about the steady state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.knowledge.files import StepPatterns
from advisor.metrics.host import Ranges
from advisor.metrics.intervals import EMPTY, Spans, union
from advisor.metrics.kernels import dense
from advisor.metrics.operations import Kind, Operations
from advisor.metrics.steps import Steps
from advisor.sources.schema import HTOD, MISSING, Call
from advisor.sources.trace import Trace

Array = NDArray[Any]

#: Module loads shorter than this are lazy look-ups of single functions, not start-up.
_MODULE_NS = 100_000
#: Allocations before the first GPU work that are long enough to be set-up.
_PREPARE_NS = 1_000_000
#: An upload of weights moves at least half of all uploaded bytes, and this many, before work.
_UPLOAD_SHARE, _UPLOAD_BYTES = 0.5, 32 << 20
#: Initialisation that comes after this share of the kernel time belongs to the work itself.
_LATE = 0.5
#: A jump of correlation ids means loss when it exceeds what this many calls could have used up.
_JUMP = 10_000
#: CUPTI spends a few ids on each recorded call (calls that are filtered out use ids, too).
_IDS_PER_CALL = 20
#: A step range shorter than this share of the others may well do nothing.
_SHORT_RANGE = 0.5


@dataclass(frozen=True)
class Startup:
    """`end` is where the steady part may begin; `events` are (what, start, end) in ns."""

    begin: int
    end: int
    events: tuple[tuple[str, int, int], ...]

    @property
    def length(self) -> int:
        return max(self.end - self.begin, 0)


def activity_span(trace: Trace, ops: Operations) -> tuple[int, int]:
    """First to last thing that the capture recorded of CUDA: calls and GPU operations; first to
    last GPU sample where it recorded none."""
    calls = trace.columns("api_calls", ("start", "end"))
    starts = [int(a.min()) for a in (ops.start, calls["start"]) if len(a)]
    ends = [int(a.max()) for a in (ops.end, calls["end"]) if len(a)]
    if not starts and trace.has("samples"):
        time = trace.columns("samples", ("time",))["time"]
        return int(time.min()), int(time.max()) + 1
    if not starts:
        return 0, 0
    return min(starts), max(ends)


def find_startup(
    trace: Trace, ops: Operations, ranges: Ranges, patterns: StepPatterns, steps: Steps
) -> Startup:
    """Library load, context creation, upload and allocation of weights at the head of the capture.

    Known by what it does, not by silence: the part ends with the last module load or weight upload
    that comes before half of the kernel time has run, or with a range that names itself so.
    """
    begin, _ = activity_span(trace, ops)
    events: list[tuple[str, int, int]] = []
    limit = _kernel_time_quantile(ops, _LATE)
    if len(steps):
        # What the steps themselves load (first-use compilation) is their warm-up, not start-up.
        limit = min(limit, int(steps.host_start[0]))
    if trace.has("api_calls"):
        calls = trace.columns("api_calls", ("start", "end", "call"))
        loads = (calls["call"] == Call.MODULE) & (calls["end"] - calls["start"] >= _MODULE_NS)
        loads &= calls["end"] <= limit
        events += _merged("library or module load", calls["start"][loads], calls["end"][loads])
        work = int(ops.start[0]) if len(ops) else limit
        prepare = (calls["call"] == Call.ALLOC) & (calls["end"] - calls["start"] >= _PREPARE_NS)
        prepare &= calls["end"] <= min(limit, work)
        events += _merged(
            "allocation or registration of memory", calls["start"][prepare], calls["end"][prepare]
        )
    events += _upload(trace, ops, limit)
    named = [i for i, role in ranges.matching(patterns.role).items() if role == "startup"]
    if named:
        rows = ranges.rows(named)
        early = rows["end"] <= limit
        events += [
            (f"range {ranges.texts[int(t)]}", int(a), int(b))
            for t, a, b in zip(rows["text"][early], rows["start"][early], rows["end"][early],
                               strict=True)
        ][:20]  # fmt: skip
    if not events:
        return Startup(begin, begin, ())
    first = min(a for _, a, _ in events)
    end = max(b for _, _, b in events)
    if len(steps) and end < steps.gpu_start[0]:
        end = min(int(steps.host_start[0]), int(steps.gpu_start[0]))
    return Startup(min(begin, first), end, tuple(sorted(events, key=lambda e: e[1])))


def _kernel_time_quantile(ops: Operations, share: float) -> int:
    """The time by which this share of the kernel time has run."""
    kernel = ops.kind == Kind.KERNEL
    if not kernel.any():
        return int(np.iinfo(np.int64).max)
    done = np.cumsum(np.maximum(ops.end - ops.start, 0)[kernel])
    return int(ops.end[kernel][np.searchsorted(done, share * done[-1])])


def _merged(what: str, start: Array, end: Array) -> list[tuple[str, int, int]]:
    spans = union(start, end)
    order = np.argsort(spans.start - spans.end)[:20]
    return [(what, int(spans.start[i]), int(spans.end[i])) for i in order]


def _upload(trace: Trace, ops: Operations, limit: int) -> list[tuple[str, int, int]]:
    """The upload of weights: most of the uploaded bytes, before the work has got going."""
    if not trace.has("copies"):
        return []
    copies = trace.columns("copies", ("start", "end", "bytes", "kind"))
    htod = copies["kind"] == HTOD
    before = _kernel_time_quantile(ops, 0.01)
    early = htod & (copies["end"] <= min(limit, before))
    moved, all_bytes = copies["bytes"][early].sum(), copies["bytes"][htod].sum()
    if moved < _UPLOAD_BYTES or moved < _UPLOAD_SHARE * all_bytes:
        return []
    start, end = copies["start"][early], copies["end"][early]
    return [(f"upload of {moved / 1e9:.2f} GB", int(start.min()), int(end.max()))]


# ---------------------------------------------------------------- damage


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
