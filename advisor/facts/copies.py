"""Facts about memory copies: directions, memory kinds, sizes, what is exposed, link rates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.facts import limits
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.knowledge.gpus import gpu_of
from advisor.metrics.budgeted.budget import DeviceBudget
from advisor.metrics.budgeted.callsites import small_uploads
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import subtract, union
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.recording import Recording
from advisor.model.arrays import Array, among, begins_run, pairs, rows_at
from advisor.model.facts import Interval, Row
from advisor.sources.schema import (
    COPY_KIND_NAMES,
    DTOD,
    DTOH,
    HTOD,
    MISSING,
    PAGEABLE,
    PINNED,
    PTOP,
    UNKNOWN_MEMORY,
)

_PLACES = 50
_MEMORY_NAMES = {PAGEABLE: "pageable", PINNED: "pinned"}


@predicate
def host_memory(a: Budgeted) -> bool:
    return _memory_known(a, a.main_device)


@predicate
def known_link(a: Recording) -> bool:
    return practical_rate(a, a.main_device) is not None


class _Copies(NamedTuple):
    """The copies of one device in the window: size (bytes), direction, memory of the host, time (ns)."""

    a: Profiled
    budget: DeviceBudget
    size: Array
    kind: Array
    host_side: Array
    start: Array
    end: Array
    length: Array

    def ran(self, mine: Array) -> tuple[int, int]:
        """How long (ns) these copies run, and how long while no kernel does."""
        spans = self.budget.window.cut(union(self.start[mine], self.end[mine]))
        return spans.total, subtract(spans, self.budget.compute).total

    def rate(self, mine: Array) -> float:
        """Bytes per second of their own time."""
        return float(self.size[mine].sum()) / max(float(self.length[mine].sum()), 1.0) * 1e9

    def of_class(self, direction: int, memory: int) -> Row:
        """What is shown of the copies of one direction and memory."""
        mine = (self.kind == direction) & (self.host_side == memory)
        (time, exposed), of_host = self.ran(mine), direction in (HTOD, DTOH)
        window, steps = self.budget.program_ns, self.a.step_count
        return {
            "device": self.a.main_device,
            "kind": COPY_KIND_NAMES.get(direction, "other"),
            "memory": _MEMORY_NAMES.get(memory, "device") if of_host else "device",
            "count": int(mine.sum()),
            "per_step": float(mine.sum()) / steps if steps else None,
            "bytes": int(self.size[mine].sum()),
            "mean_bytes": float(self.size[mine].mean()),
            "time_ratio": time / window,
            "exposed_ratio": exposed / window,
            "rate_bytes_per_s": self.rate(mine) if self.length[mine].any() else None,
        }


def copy_facts(a: Profiled, device: int, out: FactWriter) -> None:
    """Without a copies table the capture recorded none: a tracer of CUDA records all copies, so
    shares are zero wherever the kernel table proves that CUDA was traced."""
    budget = a.budgets[device]
    window, busy = budget.program_ns, max(budget.busy_ns, 1)
    at = a.device_copies(device)
    size, kind, host_side = copied(a, at)
    start, end = a.ops.start[at], a.ops.end[at]
    length, crosses = end - start, (kind == HTOD) | (kind == DTOH)
    copies = _Copies(a, budget, size, kind, host_side, start, end, length)
    sized, between = not (size == MISSING).any(), length[kind == DTOD].sum()
    work, ways = budget.compute, [copies.ran(kind == way) for way in (HTOD, DTOH)]
    beside = (copies.end <= work.start.min()) | (copies.start >= work.end.max()) if len(work) else crosses
    once = bool(len(work)) and (crosses <= beside).all()
    out |= {
        "copy.once_ratio": copies.ran(crosses)[1] / window if once else 0.0,
        "copy.exposed_ratio": budget.share("htod", "dtoh"),
        "copy.one_way_ratio": max(exposed for _, exposed in ways) / window,
        "copy.over_compute": _over(max(time for time, _ in ways), budget.ns["compute"]),
        "copy.peer_exposed_ratio": copies.ran(kind == PTOP)[1] / window,
        "copy.dtod_busy_ratio": min(between / busy, 1.0),
        "copy.dtod_window_ratio": min(between / window, 1.0),
    }
    counts: dict[str, float | None] = {}
    if sized:
        tiny = crosses & (size < limits.TINY_COPY_BYTES)
        held = max(_small(a, device, out), int(length[tiny].sum()))
        counts["copy.tiny"] = float(tiny.sum())
        out |= {
            "copy.tiny_htod_ratio": (kind[tiny] == HTOD).mean() if tiny.any() else None,
            "copy.tiny_time_ratio": length[tiny].sum() / window,
            "copy.small_held_ratio": held / window,
            "copy.htod_bytes_per_step": size[kind == HTOD].sum() / a.step_count if a.step_count else None,
        }
    if _memory_known(a, device):
        large = _host_memory(copies, crosses, practical_rate(a, device), out)
        if sized:
            counts["copy.pageable_large"] = large
    out |= a.rates(device, counts)
    _places(a, out, at, kind)
    _classes(out, [copies.of_class(*one) for one in pairs(kind, host_side)])


def _over(copied: int, compute: int) -> float | None:
    """How many times as long as kernels run the copies of a direction take, if longer."""
    return copied / compute if copied > compute > 0 else None


def memset_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """Memory that the device sets to a value while it does nothing else."""
    budget, ops, at = a.budgets[device], a.ops, a.device_ops(device)
    fills = at[ops.kind[at] == Kind.MEMSET]
    exposed = size = 0
    if len(fills):
        others = at[ops.kind[at] != Kind.MEMSET]
        spans = budget.window.cut(union(ops.start[fills], ops.end[fills]))
        exposed = subtract(spans, union(ops.start[others], ops.end[others])).total
        bytes_ = a.trace.columns("memsets", ("bytes",))["bytes"][ops.row[fills]]
        size = MISSING if (bytes_ == MISSING).any() else int(bytes_.sum())
    out.put("memset.exposed_ratio", exposed / budget.program_ns)
    if a.step_count and size != MISSING:
        out.put("memset.bytes_per_step", size / a.step_count)


def _host_memory(copies: _Copies, crosses: Array, practical: float | None, out: FactWriter) -> float:
    """Facts of pageable and of pinned copies; the number of large pageable ones. `practical` is the rate
    (bytes/s) of large pinned copies on the link."""
    window, size, length = copies.budget.program_ns, copies.size, copies.length
    pageable, pinned = crosses & (copies.host_side == PAGEABLE), crosses & (copies.host_side == PINNED)
    large = pageable & (size > limits.LARGE_COPY_BYTES)  # for smaller copies latency dominates, pinned or not
    (time, exposed), slow = copies.ran(pageable), copies.ran(large)[1]
    if not (size == MISSING).any():
        saved = max(1.0 - copies.rate(large) / (practical or limits.LEAST_LINK_BYTES_PER_S), 0.0)
        out.put("copy.pageable_excess_ratio", slow / window * saved if slow or not exposed else None)
    of_link = pinned & (size >= limits.LINK_COPY_BYTES)
    linked, alone = copies.ran(of_link)
    out |= {
        "copy.pageable_ratio": time / window,
        "copy.pageable_exposed_ratio": exposed / window,
        "copy.link_time_ratio": linked / window,
        "copy.link_exposed_ratio": alone / window,
        "copy.link_rate_ratio": copies.rate(of_link) / practical
        if length[of_link].any() and practical
        else None,
    }
    return float(large.sum())


def _classes(out: FactWriter, rows: list[Row]) -> None:
    """Kinds of copies as entities, and their table; the one that takes longest first."""
    rows.sort(key=lambda r: -float(r["time_ratio"] or 0))
    out.entity("copy_class", rows)
    shown = ("kind", "memory", "count", "mean_bytes", "time_ratio", "exposed_ratio", "rate_bytes_per_s")
    out.table("copies.classes", [[r[name] for name in shown] for r in rows])


def _small(a: Budgeted, device: int, out: FactWriter) -> int:
    """How long (ns) no kernel runs while small copies to the device follow each other."""
    at, run = small_uploads(a, device)
    if not len(at):
        return 0
    first = np.flatnonzero(begins_run(run))
    begin = a.trace.columns("api_calls", ("start",))["start"][a.ops.api[at[first]]]
    end = np.maximum.reduceat(a.ops.end[at], first)
    count, mean = len(at), float(copied(a, at)[0].mean()) / 1024
    often = f"{count / a.step_count:.4g} copies a step" if a.step_count else f"{count} copies"
    out.put("copy.small_runs", f"{often} to the device, of {mean:.3g} KiB on average,")
    return a.budgets[device].without_kernels(union(begin, end))


def _memory_known(a: Budgeted, device: int) -> bool:
    """False if the kind of host memory is not recorded for most of the copy time."""
    at = a.device_copies(device)
    _, kind, host_side = copied(a, at)
    crosses = among(kind, (HTOD, DTOH))
    unknown = crosses & among(host_side, (UNKNOWN_MEMORY, MISSING))
    length = a.ops.length[at]
    return 2 * int(length[unknown].sum()) <= int(length[crosses].sum())


def copied(a: Loaded, at: Array) -> tuple[Array, Array, Array]:
    """Bytes and direction of these copies (positions in `ops`), and the kind of memory on the host's side."""
    columns = a.trace.columns("copies", ("bytes", "kind", "src_memory", "dst_memory"))
    size, kind, source, target = (values[a.ops.row[at]] for values in columns.values())
    return size, kind, np.where(kind == HTOD, source, target)


def practical_rate(a: Loaded, device: int) -> float | None:
    """The rate of large pinned copies on this device's link, bytes/s."""
    about = gpu_of(a.device(device))
    return about.htod_bytes_per_s if about is not None else None


def _places(a: Loaded, out: FactWriter, at: Array, kind: Array) -> None:
    """The longest copies of each direction, as places on the timeline."""
    length = a.ops.length[at]
    others = (kind != HTOD) & (kind != DTOH)
    for part, mine in (("htod", kind == HTOD), ("dtoh", kind == DTOH), ("other_copy", others)):
        chosen = np.flatnonzero(mine)
        chosen = at[chosen[np.argsort(-length[chosen], kind="stable")[:_PLACES]]]
        rows = rows_at(chosen, a.ops.start, a.ops.end, a.ops.stream)
        out.places(part, [Interval(lo, hi, stream, None, part) for lo, hi, stream in rows])
