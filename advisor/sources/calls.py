"""API names -> call classes, and the one row of a call that the tool recorded once per layer."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.model.arrays import begins_run
from advisor.sources.schema import MISSING, Call

Ints = NDArray[np.int64]

#: `_v7000`, `_v3020`, `_v2` and the per-thread default stream variants. They may be stacked.
_SUFFIX = re.compile(r"(_v\d{1,9}|_ptsz|_ptds){1,9}$")

_API = r"^(?:cuda|cu|hip)(?:Drv|Ext|Hcc)?"

#: First match wins. Names begin with a runtime, driver or HIP prefix, so that graph-node and
#: attribute calls that merely mention a verb (cudaGraphAddMemcpyNode) stay OTHER.
_RULES: tuple[tuple[Call, re.Pattern[str]], ...] = tuple(
    (call, re.compile(f"{_API}(?:{pattern})"))
    for call, pattern in (
        (Call.PROFILER, r"Profiler"),
        (Call.GRAPH_LAUNCH, r"GraphLaunch"),
        (Call.OTHER, r"LaunchHostFunc"),
        (Call.LAUNCH, r"(?:Module)?Launch"),
        # cudaStreamWaitEvent queues a wait on the device, the host does not wait.
        (Call.EVENT, r"Event(?:Record|Query)|StreamWaitEvent|StreamQuery"),
        (Call.SYNC, r"(?:Device|Stream|Event|Ctx|Thread)Synchronize"),
        (Call.COPY, r"Memcpy"),
        (Call.MEMSET, r"Memset"),
        (Call.FREE, r"(?:Host)?Free|MemFree|HostUnregister|MemHostUnregister"),
        (Call.FREE, r"Mem(?:Unmap|Release|AddressFree)"),
        (Call.ALLOC, r"(?:Host)?Malloc|HostAlloc|HostRegister|MallocHost"),
        (Call.ALLOC, r"Mem(?:Alloc|HostAlloc|HostRegister|Create|Map|SetAccess|AddressReserve)"),
        (Call.MODULE, r"(?:Library|Module)(?:Load|Unload|GetKernel|GetFunction|GetModule)"),
        (Call.MODULE, r"Link(?:Create|Add|Complete|Destroy)"),
    )
)


def base_name(name: str) -> str:
    """The name without its version: `cudaLaunchKernel_v7000` -> `cudaLaunchKernel`."""
    return _SUFFIX.sub("", name)


def classify(name: str) -> Call:
    """The class of a CUDA or HIP call, runtime or driver API, with or without version suffix."""
    base = base_name(name)
    for call, pattern in _RULES:
        if pattern.match(base):
            return call
    return Call.OTHER


def shared_bases(names: Sequence[str]) -> list[int]:
    """For each name a code, equal where base names are; `MISSING` where no other name shares it.

    Only names that share a base can belong to a call recorded in two layers (`cudaMalloc` beside
    `cudaMalloc_v3020`, nsys 2022), so an all-missing answer spares the search for such rows.
    """
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        groups.setdefault(base_name(name), []).append(index)
    codes = [MISSING] * len(names)
    for code, members in enumerate(groups.values()):
        if len(members) > 1:
            for index in members:
                codes[index] = code
    return codes


def inner_rows(thread: Ints, correlation: Ints, base: Ints, start: Ints, end: Ints) -> Ints:
    """Rows that repeat, in a lower layer, a call that another row already holds.

    A row is one if another of the same thread, correlation and base name encloses it. `thread`
    must be unique over processes.
    """
    rows = np.flatnonzero((base != MISSING) & (correlation != MISSING))
    order = rows[np.lexsort((-end[rows], start[rows], base[rows], correlation[rows], thread[rows]))]
    first = begins_run(thread[order], correlation[order], base[order])
    outer = order[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
    return order[~first & (start[order] >= start[outer]) & (end[order] <= end[outer])]
