"""Facts about the memory of a device: how full it is, and whether its use grows."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.origins import find_origins
from advisor.model.arrays import Array
from advisor.model.facts import Scope
from advisor.sources.schema import ALLOCATED, MANAGED, MANAGED_STATIC, PAGEABLE, PINNED

_ROWS = 10
#: Host memory, and managed memory, which may exceed the device.
_NOT_ON_DEVICE = (PAGEABLE, PINNED, MANAGED, MANAGED_STATIC)

_RECORDED = Need(
    "the use of device memory is not recorded", needs.MEMORY,
    lambda a: len(_sampled(a, a.main_device)) > 0 or len(_allocated(a, a.main_device)[1]) > 0,
)  # fmt: skip
_SIZE = Need(
    "the size of the device memory is not known", None,
    lambda a: bool(a.device(a.main_device).memory_bytes),
)  # fmt: skip

_GROWS = Need("the use of device memory does not grow")

_USE = {"samples": "device memory_used_bytes", "allocations": "time device bytes kind memory"}

FACTS = (
    *group("device", needs.MEMORY, [
        Entry("memory.growth_ratio", "ratio", "allocations", "Growth of the device memory in use from the first to the last step, over the level at the start", "running sum of allocations, medians of the first and last quarter of the steps", columns={"allocations": "time device bytes kind"}),
        Entry("memory.growth_bytes", "bytes", "allocations", "The same in bytes", "last quarter - first quarter", columns={"allocations": "time device bytes kind"}),
        Entry("memory.growth_device_ratio", "ratio", "allocations", "The same over the size of the device memory", "memory.growth_bytes / size", columns={"allocations": "time device bytes kind"}, needs=(_SIZE,)),
        Entry("memory.full_in_ns", "ns", "allocations", "Time until the device memory is full at this growth, from the highest use in the capture", "(size - peak) / (growth / time between the middles of the quarters)", columns={"allocations": "time device bytes kind"}, needs=(_SIZE, _GROWS)),
        Entry("memory.used_ratio", "ratio", "", "Watermark of the device memory over its size, where absolute use is known", "samples of memory in use", supply=needs.SMI_LOG, columns={"samples": "time device memory_used_bytes"}, needs=(_SIZE,)),
        Entry("memory.peak_bytes", "bytes", "", "The highest use of device memory in the capture: the least that it can have been", "the larger of sampled use and the running sum of the allocations of all processes, where frees of what was allocated before the capture count as held at its start", needs=(_RECORDED,)),
        Entry("memory.least_used_ratio", "ratio", "", "The same over the size of the memory", "memory.peak_bytes / size", needs=(_RECORDED, _SIZE)),
    ], columns=_USE, needs=needs.more_steps(4, "four steps")),
)  # fmt: skip


def memory_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Sampled use of the device memory, and what the recorded allocations hold of it: those of the other
    recording where this one has none."""
    scope, size = Scope(device=device), a.device(device).memory_bytes
    there, own = _recording(a, device)
    peaks = []
    used = _sampled(a, device)
    if len(used):
        peaks.append(float(used.max()))
        if size:
            out.put("memory.used_ratio", peaks[-1] / size, scope)
    time, level = _allocated(there, own)
    if len(level):
        # Whatever was freed without an allocation in the capture was there when it began.
        peaks.append(float(level.max() - min(level.min(), 0)))
    if peaks:
        out.put("memory.peak_bytes", max(peaks), scope)
        out.put("memory.least_used_ratio", min(max(peaks) / size, 1.0) if size else None, scope)
    _places(there, own, out, scope)
    if there.trace.has("allocations") and there.step_count >= 4:
        first, last, between = _quarters(there, time, level)
        grown = last - first
        # A capture that begins mid-process misses what was allocated before it, so growth is held
        # against at least one per cent of the device.
        out.put("memory.growth_ratio", grown / max(first, 0.01 * (size or 0), 1.0), scope)
        out.put("memory.growth_bytes", grown, scope)
        if size:
            out.put("memory.growth_device_ratio", grown / size, scope)
            if grown > 0:
                left = max(size - max(peaks, default=0.0), 0.0)
                out.put("memory.full_in_ns", left / grown * between, scope)


def _recording(a: Analysis, device: int) -> tuple[Analysis, int]:
    """The recording that holds the allocations, and the number of the device there."""
    other = a.other
    if other is None or a.trace.has("allocations") or not other.trace.has("allocations"):
        return a, device
    return other, device if device in other.devices else other.main_device


def _places(a: Analysis, device: int, out: FactWriter, scope: Scope) -> None:
    """The code that was running when an allocator took memory from the device, as PyTorch records it: the
    events do not name their thread, so it is that of the launches."""
    thread = a.feeder(device)
    if thread is None or not a.trace.has("allocations") or not a.ranges.by_profiler.any():
        return
    events = a.trace.columns("allocations", ("time", "device", "bytes", "kind"))
    lo, hi = a.host_window
    inside = (events["time"] >= lo) & (events["time"] < hi) & (events["device"] == device)
    inside &= events["kind"] == ALLOCATED
    found = find_origins(a.trace, a.ranges, np.full(int(inside.sum()), thread), events["time"][inside])
    taken: dict[str, list[int]] = {}
    for i, size in enumerate(events["bytes"][inside].tolist()):
        row = taken.setdefault(found.place(i) or "-", [0, 0])
        row[0], row[1] = row[0] + 1, row[1] + size
    rows = [(place, count, size) for place, (count, size) in taken.items()]
    heads = ("allocated from", "times", "taken:bytes")
    title = "Code that makes the allocator take device memory"
    out.table("memory.places", scope, title, heads, sorted(rows, key=lambda r: -r[2])[:_ROWS])


def _sampled(a: Analysis, device: int) -> Array:
    """Sampled use of the device memory, bytes; empty where it is not recorded."""
    rows = a.trace.columns("samples", ("device", "memory_used_bytes"))
    used = rows["memory_used_bytes"][rows["device"] == device]
    return np.asarray(used[~np.isnan(used)])


def _allocated(a: Analysis, device: int) -> tuple[Array, Array]:
    """Times of the events of device memory, ns, and the bytes held after each, from 0 on."""
    events = a.trace.columns("allocations", ("time", "device", "bytes", "kind", "memory"))
    mine = (events["device"] == device) & ~np.isin(events["memory"], _NOT_ON_DEVICE)
    order = np.argsort(events["time"][mine], kind="stable")
    change = np.where(events["kind"] == ALLOCATED, events["bytes"], -events["bytes"])[mine][order]
    return events["time"][mine][order], np.cumsum(change)


def _quarters(a: Analysis, time: Array, level: Array) -> tuple[float, float, float]:
    """Bytes held in the first and in the last quarter of the steps, and ns between the two."""
    # The host allocates while it issues a step, which may be long before the device runs it.
    ends = a.steps.host_end[a.window_steps]
    at = np.searchsorted(time, ends, "right") - 1
    levels = np.where(at >= 0, level[np.maximum(at, 0)], 0) if len(level) else np.zeros(len(at))
    quarter = max(len(levels) // 4, 1)
    first, last = slice(quarter), slice(-quarter, None)
    between = float(np.median(ends[last]) - np.median(ends[first]))
    return float(np.median(levels[first])), float(np.median(levels[last])), between
