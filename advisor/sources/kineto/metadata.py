"""What a PyTorch profiler trace says about itself: devices, rank, versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from advisor.model.capture import Capture, Device, Recorder
from advisor.sources.kineto.columns import FOREIGN, ROLES, integer, rank_order
from advisor.sources.kineto.decode import Head
from advisor.sources.kineto.tables import Collector
from advisor.sources.schema import MISSING

FORMAT = "kineto-json"
PRODUCER = "PyTorch profiler"
RECORDER = Recorder(
    clock="times from the first event of the trace on, as Perfetto shows them",
    ranges="torch.profiler.record_function(NAME) around the parts of a step",
)

#: Times from here on (2001) are Unix times; smaller ones have an unknown origin.
_EPOCH_NS = 10**18
_AMD = re.compile(r"(?i)\b(?:amd|radeon|instinct)\b|^gfx\d")
_SWITCHES = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
#: How severe the messages under a key of the head are, as nsys numbers it.
_SEVERITY = {"WARNING": 2, "ERROR": 3}


def is_amd(head: Head) -> bool:
    """True where the trace was taken through ROCm."""
    if head.hip_runtime_version is not None or head.roctracer_version is not None:
        return True
    return any(_AMD.search(str(entry.get("name") or "")) for entry in _entries(head))


def read_devices(head: Head, used: Iterable[int]) -> tuple[Device, ...]:
    """The GPUs that the trace lists, and those that its work ran on.

    ROCm numbers devices differently in events and in the list; an unlisted device is taken to be
    like the listed ones where these are all alike.
    """
    amd = is_amd(head)
    devices = {}
    for position, entry in enumerate(_entries(head)):
        number = integer(entry.get("id", position))
        if number != MISSING:
            devices[number] = _device(number, entry, amd)
    kinds = {d.replaced(id=0) for d in devices.values()}
    like = kinds.pop() if len(kinds) == 1 else Device(id=0)
    for number in used:
        devices.setdefault(number, like.replaced(id=number))
    return tuple(devices[number] for number in sorted(devices))


def read_capture(
    head: Head,
    shown: Path,
    collected: Collector,
    zero: int,
    processes: Iterable[int],
    ranks: Mapping[int, int],
    graph_nodes: bool,
    dropped: int,
) -> Capture:
    """Everything but the events. `zero` is the file's time of our 0, ns; `ranks` are the processes
    by the number of their rank's label; `dropped` counts what was no event at all."""
    begun = zero + max(integer(head.baseTimeNanoseconds), 0)
    lost = dropped + collected.timeless
    span = collected.span
    rank, size = _rank(head.distributedInfo)
    labels = sorted(collected.labels, key=rank_order)
    if len(labels) > 1:
        rank, size = None, max(size or 0, len(labels))
    options = {name: str(getattr(head, name)) for name in _SWITCHES if getattr(head, name) is not None}
    return Capture(
        path=str(shown),
        format=FORMAT,
        recorder=RECORDER,
        size_bytes=shown.stat().st_size,
        producer=PRODUCER,
        start_utc_ns=begun if begun > _EPOCH_NS else None,
        duration_ns=None if span is None else span[1] - span[0],
        zero_ns=zero,
        vendor="AMD" if is_amd(head) else "NVIDIA",
        cuda=_cuda_version(head.cuda_runtime_version),
        options=options,
        trace_sources=tuple(sorted(collected.categories & (ROLES.keys() | FOREIGN))),
        graph_trace_mode="node" if graph_nodes else None,
        rank=rank,
        world_size=size,
        process_ranks=tuple(
            (ranks[number], labels.index(text))
            for text, number in collected.labels.items()
            if number in ranks
        ),
        processes=tuple((pid, "") for pid in sorted(processes)),
        modules=tuple(sorted(collected.modules)),
        warnings=(f"events without a time or of no known shape, left out: {lost}",) if lost else (),
    )


def messages(head: Head) -> list[tuple[int, str]]:
    """Warnings and errors of the profiler, as (severity, text)."""
    found = []
    for name, severity in _SEVERITY.items():
        texts = getattr(head, name)
        found += [
            (severity, t) for t in (texts if isinstance(texts, list) else [texts]) if isinstance(t, str) and t
        ]
    return found


def _entries(head: Head) -> list[dict[str, Any]]:
    listed = head.deviceProperties or head.computeProperties
    return [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []


def _device(number: int, entry: dict[str, Any], amd: bool) -> Device:
    def first(*names: str) -> int | None:
        values = (integer(entry[name]) for name in names if name in entry)
        return next((v for v in values if v >= 0), None)

    major, minor = first("computeMajor", "major"), first("computeMinor", "minor")
    # AMD's "compute capability" is part of a gfx number, which kernel names do not carry.
    known = major and minor is not None and not amd
    return Device(
        id=number,
        name=str(entry.get("name") or "") or None,
        sm_count=first("numSms", "multiProcessorCount") or None,
        memory_bytes=first("totalGlobalMem") or None,
        compute_capability=(major, minor) if known and major and minor is not None else None,
    )


def _rank(info: Any) -> tuple[int | None, int | None]:
    if not isinstance(info, dict):
        return None, None
    rank, size = integer(info.get("rank")), integer(info.get("world_size"))
    return (rank if rank >= 0 else None), (size if size > 0 else None)


def _cuda_version(number: Any) -> str | None:
    """12090 -> 12.9"""
    version = integer(number)
    return f"{version // 1000}.{version % 1000 // 10}" if version >= 1000 else None
