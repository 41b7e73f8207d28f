"""Which nsys columns fill which of our columns, for the tables that map row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from advisor.numerals import finite, read_float
from advisor.sources.schema import MARK, MEMORY_KINDS, MISSING, PUSH_POP, START_END, Ints

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUPTI_OVERHEAD = "CUPTI_ACTIVITY_KIND_OVERHEAD"
PROFILER_OVERHEAD = "PROFILER_OVERHEAD"
NVTX = "NVTX_EVENTS"
GPU_METRICS = "GPU_METRICS"
METRIC_NAMES = "TARGET_INFO_GPU_METRICS"
MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
CPU_FAULTS, GPU_FAULTS = "CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS"
CPU_SAMPLES = "COMPOSITE_EVENTS"
CUDA_CALLCHAINS = "CUDA_CALLCHAINS"
SAMPLING_CALLCHAINS = "SAMPLING_CALLCHAINS"
DIAGNOSTICS = "DIAGNOSTIC_EVENT"
OS_RUNTIME = "OSRT_API"
CPU_SWITCHES, GPU_SWITCHES = "SCHED_EVENTS", "GPU_CONTEXT_SWITCH_EVENTS"
STRINGS = "StringIds"

#: A globalTid holds the process above these bits and the thread under this mask.
PID_SHIFT, ID_MASK = 24, 0xFFFFFF

#: CUPTI_SYNCHRONIZATION_INVALID_VALUE, an unsigned -1.
_INVALID_ID = 0xFFFFFFFF

#: CUDA backtraces and CPU samples number their call chains apart: samples start here.
SAMPLING_CHAIN_OFFSET = 1 << 32

#: NVTX event types of ranges; other types name threads, categories and domains.
NVTX_RANGES = {59: PUSH_POP, 60: START_END}
NVTX_MARK = 34

#: Memory kinds by the names of ENUM_CUDA_MEM_KIND, less their prefix.
MEMORY_CODES = {name.upper().replace(" ", "_"): code for name, code in MEMORY_KINDS.items()}

#: Labels of ENUM_CUPTI_OVERHEAD_TYPE (3.25), for exports that hold the codes only.
OVERHEAD_TYPES = {
    2: "Driver JIT compiler (CUDA)",
    3: "Buffer flush (Profiler)",
    4: "Instrumentation (Profiler)",
    5: "Resource creation/destruction (Profiler)",
    6: "Runtime module loading (CUDA)",
    7: "Lazy function loading (CUDA)",
    8: "Command buffer full (CUDA)",
}
CUDA_OVERHEADS = [code for code, label in OVERHEAD_TYPES.items() if label.endswith("(CUDA)")]
OVERHEAD_TYPE = "overheadType"


def is_nsys_table(name: str) -> bool:
    """True for a table that only an Nsight Systems export has."""
    return name in (STRINGS, "META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA") or (
        name.startswith(("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", NVTX))
    )


def number(value: Any) -> float | None:
    """A number or a text of one; None for anything else."""
    return read_float(value) if isinstance(value, str) else finite(value)


class Filled(NamedTuple):
    """A column of ours made of one or more raw columns; an absent raw column reads `MISSING`."""

    raw: tuple[str, ...]
    make: Callable[..., Ints]


def plain(column: str) -> Filled:
    return Filled((column,), lambda values: values)


def process_of(global_id: Ints) -> Ints:
    """The process in a serialised globalPid or globalTid."""
    return _bits_of(global_id, PID_SHIFT)


def thread_of(global_id: Ints) -> Ints:
    """The thread in a serialised globalTid."""
    return _bits_of(global_id, 0)


def _bits_of(global_id: Ints, shift: int) -> Ints:
    found = global_id >> shift
    found &= ID_MASK
    found[global_id == MISSING] = MISSING
    return found


def _product(x: Ints, y: Ints, z: Ints) -> Ints:
    product = x.astype(np.int64)
    for other in (y, z):
        if not (len(other) and other[0] == 1 and (other == 1).all()):  # mostly it is
            product *= other
    for one in (x, y, z):
        product[one == MISSING] = MISSING
    return product


def _shared_bytes(static: Ints, dynamic: Ints) -> Ints:
    known = np.maximum(static, 0) + np.maximum(dynamic, 0)
    known[(static == MISSING) & (dynamic == MISSING)] = MISSING
    return known


def _first_known(preferred: Ints, other: Ints) -> Ints:
    return np.where(preferred == MISSING, other, preferred)


def _range_end(end: Ints, start: Ints, kind: Ints) -> Ints:
    return np.where((kind == NVTX_MARK) & (end == MISSING), start, end)


def _columns(**raw: str | Filled) -> dict[str, Filled]:
    return {ours: plain(r) if isinstance(r, str) else r for ours, r in raw.items()}


def _if_valid(column: str) -> Filled:
    return Filled((column,), lambda ids: np.where(ids == _INVALID_ID, MISSING, ids))


#: Columns of several numbers in 64 bits, and one that is given others.
WIDE = frozenset(("globalPid", "globalTid", "deviceId"))
#: A column that nothing in an export fills.
_NONE = plain("")
_PROCESS = Filled(("globalPid",), process_of)
_THREAD_PROCESS = Filled(("globalTid",), process_of)
_THREAD = Filled(("globalTid",), thread_of)
_SAMPLED = Filled(("id",), lambda chain: chain + SAMPLING_CHAIN_OFFSET)
_GRAPH_NODE = Filled(("graphNodeId",), lambda ids: np.where(ids == MISSING, 0, ids))
_RANGE_END = Filled(("end", "start", "eventType"), _range_end)
_RANGE_STYLE = Filled(
    ("eventType",),
    lambda kind: np.select([kind == code for code in NVTX_RANGES], list(NVTX_RANGES.values()), MARK),
)

_WORK = _columns(
    start="start",
    end="end",
    device="deviceId",
    stream="streamId",
    context="contextId",
    process=_PROCESS,
    correlation="correlationId",
)

#: Ours -> (raw table, its columns). Tables that need more than this are read in `export.py`.
ROW_TABLES: dict[str, tuple[str, dict[str, Filled]]] = {
    "kernels": (
        KERNEL,
        _WORK
        | _columns(
            name_id="demangledName",
            short_name_id="shortName",
            mangled_name_id="mangledName",
            grid_x="gridX",
            grid_y="gridY",
            grid_z="gridZ",
            blocks=Filled(("gridX", "gridY", "gridZ"), _product),
            block_x="blockX",
            block_y="blockY",
            block_z="blockZ",
            threads=Filled(("blockX", "blockY", "blockZ"), _product),
            registers="registersPerThread",
            shared_bytes=Filled(("staticSharedMemory", "dynamicSharedMemory"), _shared_bytes),
            local_bytes="localMemoryPerThread",  # bytes (SQLite schema reference of the exporter)
            graph_node=_GRAPH_NODE,
            launch_type="launchType",
            cluster_blocks=Filled(("clusterX", "clusterY", "clusterZ"), _product),  # 0 without clusters
        ),
    ),
    "copies": (
        MEMCPY,
        _WORK
        | _columns(
            bytes="bytes",
            kind="copyKind",
            src_memory="srcKind",
            dst_memory="dstKind",
            graph_node=_GRAPH_NODE,
            migration_cause="migrationCause",
            address="virtualAddress",
        ),
    ),
    "memsets": (MEMSET, _WORK | _columns(bytes="bytes", memory="memKind", graph_node=_GRAPH_NODE)),
    "graph_runs": (GRAPH_TRACE, _WORK | _columns(graph=Filled(("graphId", "graphExecId"), _first_known))),
    "api_calls": (
        RUNTIME,
        _columns(
            start="start",
            end="end",
            process=_THREAD_PROCESS,
            thread=_THREAD,
            correlation="correlationId",
            call="nameId",
            name_id="nameId",
            result="returnValue",
            callchain="callchainId",
        ),
    ),
    "allocations": (
        MEMORY_USAGE,
        _columns(
            time="start",
            device="deviceId",
            process=_PROCESS,
            bytes="bytes",
            kind="memoryOperationType",
            memory="memKind",
            address="address",
            tensors=_NONE,
        ),
    ),
    "events": (
        CUDA_EVENT,
        _columns(
            time="timestamp",
            device="deviceId",
            process=_PROCESS,
            stream="streamId",
            event="eventId",
            correlation="correlationId",
            sync="eventSyncId",
        ),
    ),
    # Columns: SQLite schema reference of the exporter. `syncType` is not read: up to 2025 a stream wait
    # is 0, 2 or 3. A stream or event id that does not apply is CUPTI_SYNCHRONIZATION_INVALID_VALUE
    # (CUPTI, CUpti_ActivitySynchronization), so that the ids tell what a wait is for.
    "waits": (
        SYNCHRONIZATION,
        _WORK | _columns(stream=_if_valid("streamId"), event=_if_valid("eventId"), sync="eventSyncId"),
    ),
    "host_samples": (
        CPU_SAMPLES,
        _columns(time="start", process=_THREAD_PROCESS, thread=_THREAD, callchain=_SAMPLED),
    ),
    "host_calls": (
        OS_RUNTIME,
        _columns(start="start", end="end", process=_THREAD_PROCESS, thread=_THREAD, name_id="nameId"),
    ),
    # Columns: SQLite schema reference of the exporter. The state of a thread is "Unknown" in exports
    # seen, and absent before 2024. Contexts of other users are 0 (user guide, GPU context switch trace).
    "cpu_switches": (
        CPU_SWITCHES,
        _columns(
            time="start",
            process=_THREAD_PROCESS,
            thread=_THREAD,
            cpu="cpu",
            running="isSchedIn",
            state="threadState",
        ),
    ),
    "gpu_switches": (
        GPU_SWITCHES,
        _columns(time="timestamp", device="gpuId", context="contextId", process=_PROCESS, kind="tag"),
    ),
    # Where the id of a text is missing, the text may be in the row. No export has operands or numbers.
    "ranges": (
        NVTX,
        _columns(
            start="start",
            end=_RANGE_END,
            process=_THREAD_PROCESS,
            thread=_THREAD,
            domain="domainId",
            style=_RANGE_STYLE,
            text_id="textId",
            operands_id=_NONE,
            number=_NONE,
            payload="uint64Value",
        ),
    ),
    "diagnostics": (DIAGNOSTICS, _columns(time="timestamp", severity="severity", text_id="textId")),
}


#: A fault of the host has no duration and no device in the export.
_CPU_FAULTS = _columns(
    start="start",
    end="start",
    device="deviceId",
    process=_PROCESS,
    address="address",
    count=Filled(("start",), np.ones_like),
)
_GPU_FAULTS = _CPU_FAULTS | _columns(end="end", count="numberOfPageFaults")

_CHAINS = _columns(callchain="id", depth="stackDepth", symbol_id="symbol", module_id="module")
_OVERHEADS = _columns(
    start="start",
    end="end",
    process=_THREAD_PROCESS,
    thread=_THREAD,
    kind_id="nameId",
    overheadType=OVERHEAD_TYPE,
)

#: Ours <- several raw tables, one after the other.
JOINED_TABLES: dict[str, tuple[tuple[str, dict[str, Filled]], ...]] = {
    "callchains": ((CUDA_CALLCHAINS, _CHAINS), (SAMPLING_CALLCHAINS, _CHAINS | {"callchain": _SAMPLED})),
    "page_faults": ((CPU_FAULTS, _CPU_FAULTS), (GPU_FAULTS, _GPU_FAULTS)),
    "overheads": ((PROFILER_OVERHEAD, _OVERHEADS), (CUPTI_OVERHEAD, _OVERHEADS)),
}
