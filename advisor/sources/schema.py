"""The one spelling of tables and columns that every source fills, in any format.

Times are int64 ns from the capture's own zero, start inclusive, end exclusive. Ids that a row
lacks are `MISSING`; text stays an id into the trace's string pool. A sampled metric that a device
does not report is NaN. A table that a format cannot fill is absent.
`graph_node` is 0 outside of CUDA graphs. What an API call does is read from its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.model.arrays import begins_run

MISSING = -1


class Owner(NamedTuple):
    """What a file says of who recorded it, and where: its settings by name (of its environment, machine and
    command lines), and all texts of its rows. Read only to find what is private; no report shows it."""

    settings: Sequence[tuple[str, str]] = ()
    texts: Sequence[str] = ()


#: Copy directions (`copies.kind`), numbered as CUPTI and the nsys export number them.
HTOD, DTOH, DTOD, HTOH, PTOP = 1, 2, 8, 9, 10
UNIFIED_HTOD, UNIFIED_DTOH, UNIFIED_DTOD = 11, 12, 13
COPY_KIND_NAMES = {
    HTOD: "HtoD",
    DTOH: "DtoH",
    DTOD: "DtoD",
    HTOH: "HtoH",
    PTOP: "PtoP",
    UNIFIED_HTOD: "unified HtoD",
    UNIFIED_DTOH: "unified DtoH",
    UNIFIED_DTOD: "unified DtoD",
}
#: Directions by their names, also those of arrays.
COPY_KINDS = {name.lower(): kind for kind, name in COPY_KIND_NAMES.items()}
COPY_KINDS |= {"htoa": 3, "atoh": 4, "atoa": 5, "atod": 6, "dtoa": 7}
#: Migrations of unified memory: the driver moves pages without a copy call.
MIGRATIONS = (UNIFIED_HTOD, UNIFIED_DTOH, UNIFIED_DTOD)

#: `copies.migration_cause` of a prefetch that the program asked for (ENUM_CUDA_UNIF_MEM_MIGRATION).
USER_PREFETCH = 1

#: Memory kinds (`copies.src_memory`, `dst_memory`, `memsets.memory`, `allocations.memory`), as the
#: nsys export numbers them (ENUM_CUDA_MEM_KIND); CUPTI itself counts differently.
PAGEABLE, PINNED, DEVICE_MEMORY, ARRAY, MANAGED, DEVICE_STATIC, MANAGED_STATIC, UNKNOWN_MEMORY = range(8)
MEMORY_KINDS = {
    "pageable": PAGEABLE,
    "pinned": PINNED,
    "device": DEVICE_MEMORY,
    "array": ARRAY,
    "managed": MANAGED,
    "device static": DEVICE_STATIC,
    "managed static": MANAGED_STATIC,
    "unknown": UNKNOWN_MEMORY,
}

#: `kernels.launch_type` of cooperative launches on one and on several devices
#: (ENUM_CUDA_KERNEL_LAUNCH_TYPE); 1 is a regular one.
COOPERATIVE = (2, 3)

#: `gpu_switches.kind` when a context comes onto a GPU and when it has left it (ENUM_GPU_CTX_SWITCH).
CONTEXT_IN, CONTEXT_OUT = 8, 7

#: `network.kind`: bytes a second, and ticks a ms in which a card has data to send and sends none.
NIC_SENT, NIC_RECEIVED, NIC_WAITS = range(3)

#: `ranges.style`
PUSH_POP, START_END, MARK = range(3)

#: `ranges.domain` of the ranges that a profiler puts around every operator of a framework: they say
#: what runs; they do not mark a step or a phase.
OPERATIONS = -2

#: `allocations.kind`
ALLOCATED, FREED = range(2)


def cuda_version(number: int) -> str | None:
    """``12.8`` of 12080; None for an invalid version."""
    return f"{number // 1000}.{number % 1000 // 10}" if number >= 1000 else None


class Call(IntEnum):
    """What a CUDA API call does (`api_calls.call`), taken from its name and never from syncType."""

    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    SYNC = 3
    COPY = 4
    MEMSET = 5
    ALLOC = 6
    FREE = 7
    EVENT = 8
    MODULE = 9
    PROFILER = 10


#: Calls that issue GPU work.
ISSUING = (Call.LAUNCH, Call.GRAPH_LAUNCH, Call.COPY, Call.MEMSET)


class Summed(IntEnum):
    """The subject of a row of `sums` (`sums.report`). QUEUE: from launch call to kernel, by kernel.
    OPERATORS: the host's time in each operator, range and call itself. WHOLE: the host's time in operators
    and ranges with all that they called. TOTALS: rows `HOST_TOTAL` and `GPU_TOTAL`, all of the recording;
    `BY_OPERATOR` where the rows of KERNELS are operators that launched kernels, not kernels, and
    `BETWEEN_EVENTS` where their times hold the pauses between their kernels as well."""

    KERNELS = 0
    CALLS = 1
    COPIES = 2
    SIZES = 3
    RANGES = 4
    HOST_CALLS = 5
    QUEUE = 6
    OPERATORS = 7
    WHOLE = 8
    TOTALS = 9


#: Names of the rows of `Summed.TOTALS`.
HOST_TOTAL, GPU_TOTAL = "host", "GPU"
BY_OPERATOR, BETWEEN_EVENTS = "GPU, by operator", "GPU, between events"

#: `load.kind`: a line about all requests, about a step of those that decode, about prompts.
LOAD_BOTH, LOAD_DECODE, LOAD_PREFILL = range(3)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Table -> its columns. Integers unless listed in `FLOAT_COLUMNS`.
TABLES: dict[str, tuple[str, ...]] = {
    "kernels": _names(
        "start end device stream context process correlation name_id short_name_id "
        "mangled_name_id grid_x grid_y grid_z blocks block_x block_y block_z threads "
        "registers shared_bytes local_bytes graph_node launch_type cluster_blocks"
    ),
    "copies": _names(
        "start end device stream context process correlation bytes kind src_memory dst_memory "
        "graph_node migration_cause address"
    ),
    "memsets": _names("start end device stream context process correlation bytes memory graph_node"),
    "graph_runs": _names("start end device stream context process correlation graph"),
    "api_calls": _names("start end process thread correlation call name_id result callchain"),
    "python_calls": ("start", "end", "process", "thread", "text_id"),
    "python_rows": ("start", "end", "process", "thread"),
    "modules": ("start", "end", "process", "thread", "text_id"),
    # `operands_id`: sizes and types of what an operator works on, as two lists in JSON. `number`: PyTorch
    # counts its operators and annotations. `payload`: a number that the program gave with the range or
    # mark, such as the id of a request.
    "ranges": _names("start end process thread domain text_id style operands_id number payload"),
    "samples": _names(
        "time device gr_active sm_active sm_issue tensor_active dram_read dram_write pcie_rx "
        "pcie_tx nvlink_rx nvlink_tx sm_clock_hz sm_clock_max_hz power_w power_limit_w "
        "temperature_c memory_used_bytes memory_total_bytes throttled overheated slowed performance_state"
    ),
    # `tensors`: bytes of a caching allocator's memory that are in use by then.
    "allocations": _names("time device process bytes kind memory address tensors"),
    "page_faults": ("start", "end", "device", "process", "address", "count"),
    # `name_id`: what the program called; the kernel of a send, a receive and an all-to-all is one.
    "collectives": _names("start device stream process correlation name_id bytes group_id sequence"),
    "events": _names("time device process stream event correlation sync"),
    # What a wait is for: an event, or a stream, or with neither of them a whole context; both where a
    # stream waits for an event. `sync` is that of the record of the event in `events`, 0 for none.
    "waits": _names("start end device stream context process correlation event sync"),
    "host_samples": ("time", "process", "thread", "callchain"),
    "callchains": ("callchain", "depth", "symbol_id", "module_id"),
    "diagnostics": ("time", "severity", "text_id"),
    "host_calls": ("start", "end", "process", "thread", "name_id"),
    # Switches of threads to a CPU and from it, and of contexts to a GPU and from it.
    "cpu_switches": ("time", "process", "thread", "cpu", "running", "state"),
    "gpu_switches": ("time", "device", "context", "process", "kind"),
    "network": ("start", "end", "nic", "kind", "value"),
    "overheads": ("start", "end", "process", "thread", "kind_id"),
    # What a serving engine says of its load, a row a line of its log; NaN if a line does not say it. `kind`
    # is LOAD_BOTH, LOAD_DECODE or LOAD_PREFILL; shares are 0 to 1; `accepted`: tokens of one verification.
    # `in_flight`: requests that a client has sent and that are not answered yet, waiting ones included. A
    # mean of a row is over as many requests or tokens as its `_count` says. `time_s` counts from the first
    # row with a time; `stretch_s` is how long what the rates of a row are of lasted, where rows differ in it.
    # `under_load_s` is how long it was since the row before if requests ran or waited then and now, else 0.
    "load": _names(
        "kind replica running waiting fetching prompt_per_s output_per_s cache_used prefix_hit "
        "accepted acceptance graph step_ms token_ms queue_ms in_flight first_token_ms request_ms "
        "output_tokens token_count queue_count first_token_count request_count prefix_count time_s stretch_s "
        "under_load_s failed completed"
    ),
    # Of a whole recording: count, then ns (bytes of SIZES), NaN if a report lacks the column.
    "sums": _names("report name_id count total average median least most deviation"),
}

#: The columns of the large tables that an analysis needs, read in one pass over each.
NEEDED = {
    "api_calls": tuple(c for c in TABLES["api_calls"] if c != "callchain"),
    "kernels": tuple(
        c for c in TABLES["kernels"] if c not in ("mangled_name_id", "block_x", "block_y", "block_z")
    ),
    "samples": TABLES["samples"],
}

#: Ids, kinds and launch parameters, held in 32 bits or less if all fit: they are compared and counted. Code
#: that combines several into a key, or multiplies them, widens them first.
NARROW_COLUMNS = frozenset(
    _names(
        "device stream context process thread correlation call result name_id short_name_id "
        "mangled_name_id grid_x grid_y grid_z blocks block_x block_y block_z threads registers "
        "shared_bytes local_bytes graph_node launch_type cluster_blocks number"
    )
)

FLOAT_COLUMNS = frozenset(TABLES["samples"]) - {"time", "device"}

#: The samples that are a share of a peak, held as 0..1.
SAMPLE_RATIOS = (
    "gr_active",
    "sm_active",
    "sm_issue",
    "tensor_active",
    "dram_read",
    "dram_write",
    "pcie_rx",
    "pcie_tx",
    "nvlink_rx",
    "nvlink_tx",
)


# --- what a call does, by its name -----------------------------------------------------------------

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
    """For each name a code, equal for equal base names; `MISSING` for a base name that occurs once. Only
    names that share a base can belong to a call recorded in two layers (`cudaMalloc` beside
    `cudaMalloc_v3020`, nsys 2022), so an all-missing answer spares the search for such rows."""
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
    """Rows that repeat, in a lower layer, a call that another row already holds: another row of the same
    thread, correlation and base name encloses them. `thread` must be unique over processes.
    """
    rows = np.flatnonzero((base != MISSING) & (correlation != MISSING))
    order = rows[np.lexsort((-end[rows], start[rows], base[rows], correlation[rows], thread[rows]))]
    first = begins_run(thread[order], correlation[order], base[order])
    outer = order[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
    return order[~first & (start[order] >= start[outer]) & (end[order] <= end[outer])]
