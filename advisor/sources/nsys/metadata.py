"""What an nsys export says about itself: tool, options, command, machine, devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from advisor.model.arrays import distinct
from advisor.model.capture import Capture, Device, Recorder
from advisor.sources.nsys.tables import (
    DIAGNOSTICS,
    GPU_METRICS,
    GRAPH_TRACE,
    JOINED_TABLES,
    KERNEL,
    MEMCPY,
    MEMSET,
    NVTX,
    ROW_TABLES,
    RUNTIME,
    is_nsys_table,
    process_of,
)
from advisor.sources.raw import Ints, RawTables, named_rows
from advisor.sources.schema import MISSING

NSYS = Recorder(
    nsys_options=True,
    clock="session times, as the Nsight Systems GUI shows them",
    tables={
        **{table: raw for table, (raw, _) in ROW_TABLES.items()},
        **{table: parts[0][0] for table, parts in JOINED_TABLES.items()},
        "ranges": NVTX,
        "samples": GPU_METRICS,
        "diagnostics": DIAGNOSTICS,
    },
    # Calls under the threshold of 80 us have no backtrace by default; launches last 5 us.
    backtraces="--cudabacktrace=kernel:1000,sync:1000,memory:1000 --sample=process-tree",
    ranges="--trace=cuda,nvtx",
    migrations=True,
)


#: Tables that name the processes which used CUDA, so that event tables need not be scanned.
_CUDA_PROCESS_COLUMNS = (
    ("TARGET_INFO_CUDA_CONTEXT_INFO", "processId"),
    ("TARGET_INFO_CUDA_DEVICE", "pid"),
    ("TARGET_INFO_CUDA_STREAM", "processId"),
    ("TARGET_INFO_CUDA_NULL_STREAM", "processId"),
)

#: Tables of GPU work with a device and a process, in the order of preference for a scan.
_GPU_WORK = (KERNEL, GRAPH_TRACE, MEMCPY, MEMSET)

_GPU_COLUMNS = (
    "id", "cuDevice", "busLocation", "name", "chipName", "smCount", "totalMemory", "memoryBandwidth",
    "clockRate", "l2CacheSize", "computeMajor", "computeMinor",
)  # fmt: skip

#: Options that carry a command line, an environment or names of people and machines.
_PRIVATE_OPTION = re.compile(
    r"(ENVIRONMENT|:ARGUMENT_\d+$|:COMMAND$|WORKING_DIR|USER_NAME|DEVICE_DISPLAY_NAME)"
)

#: The only environment variables whose value is read, as a number: (rank, size) of launchers.
_RANK_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


class DeviceMap(NamedTuple):
    """(process, CUDA ordinal) -> GPU id; an ordinal alone under the process `MISSING`.

    Kernels carry the CUDA ordinal, which `CUDA_VISIBLE_DEVICES` renumbers in each process.
    """

    gpu: dict[tuple[int, int], int]

    @property
    def identity(self) -> bool:
        return all(cuda == gpu for (_, cuda), gpu in self.gpu.items())

    def apply(self, device: Ints, process: Ints) -> Ints:
        """GPU ids; an ordinal that the map does not know stays as it is."""
        mapped = device.copy()
        for (pid, cuda), gpu in sorted(self.gpu.items()):  # what a process says comes last
            rows = device == cuda
            if pid != MISSING:
                rows &= process == pid
            mapped[rows] = gpu
        return mapped


def read_capture(raw: RawTables, format_name: str, warnings: Iterable[str]) -> Capture:
    """Everything but the event data. Environment variables are kept by name only."""
    export = dict(_pairs(raw, "META_DATA_EXPORT") or _pairs(raw, "EXPORT_META_DATA"))
    recorded = _pairs(raw, "META_DATA_CAPTURE")
    environment = [value for key, value in recorded if key.endswith(":ENVIRONMENT_VARIABLE")]
    options = _options(recorded)
    machine = dict(_pairs(raw, "TARGET_INFO_SYSTEM_ENV"))
    rank, world_size = _rank(raw, environment)
    sample_hz = _number(options.get("GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY"))
    sources = _trace_sources(recorded)
    types = {s.lower() for s in sources if not s.startswith("COLLECT_")}
    mode = [v for k, v in recorded if k.endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE")]
    return Capture(
        path=str(raw.shown),
        format=format_name,
        recorder=NSYS,
        size_bytes=raw.size_bytes(),
        producer=export.get("EXPORT_PRODUCT_NAME") or "NVIDIA Nsight Systems",
        producer_version=export.get("EXPORT_PRODUCT_VERSION"),
        schema_version=export.get("EXPORT_SCHEMA_VERSION"),
        start_utc_ns=_first_int(raw, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
        utc_offset_s=_utc_offset(raw),
        duration_ns=_first_int(raw, "ANALYSIS_DETAILS", "duration"),
        driver=_driver_version(machine.get("NvDriverVersion")),
        under_wsl=_under_wsl(machine),
        cuda=_cuda_version(machine.get("CudaDriverVersion")),
        command=_command(recorded),
        environment_names=tuple(sorted({text.partition("=")[0] for text in environment})),
        options=options,
        trace_sources=sources,
        cuda_traced="cuda" in types if types else None,
        graph_trace_mode=mode[0].lower() if mode and mode[0] else None,
        sample_hz=sample_hz if sample_hz else None,
        world_size=world_size,
        rank=rank,
        process_ranks=_process_ranks(raw),
        processes=_processes(raw),
        device_numbers="the GPU ids of Nsight Systems",
        warnings=tuple(warnings),
        views=tuple(sorted(filter(is_nsys_table, raw.views))),
    )


def read_devices(raw: RawTables) -> tuple[tuple[Device, ...], DeviceMap]:
    """Every GPU that the capture lists, by GPU id, and how the ids of kernels map to them."""
    gpus = [row for row in named_rows(raw, "TARGET_INFO_GPU", _GPU_COLUMNS) if isinstance(row["id"], int)]
    cuda = [
        row
        for row in named_rows(
            raw, "TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid", "numMultiprocessors")
        )
        if isinstance(row["gpuId"], int) and isinstance(row["cudaId"], int)
    ]
    known: dict[tuple[int, int], int] = {}
    for row in cuda:
        ordinal, gpu = row["cudaId"], row["gpuId"]
        if all(other["gpuId"] == gpu for other in cuda if other["cudaId"] == ordinal):
            known[MISSING, ordinal] = gpu  # also for processes that the table does not list
        if isinstance(row["pid"], int):
            known[row["pid"], ordinal] = gpu
    if not known and len({row["cuDevice"] for row in gpus if isinstance(row["cuDevice"], int)}) == len(gpus):
        known = {(MISSING, row["cuDevice"]): row["id"] for row in gpus}
    ordinals_of = {
        row["id"]: tuple(sorted({o for (_, o), gpu in known.items() if gpu == row["id"]})) for row in gpus
    }
    devices = {row["id"]: _device(row, ordinals_of[row["id"]]) for row in gpus}
    for row in cuda:
        devices.setdefault(
            row["gpuId"], Device(id=row["gpuId"], sm_count=_positive(row["numMultiprocessors"]))
        )
    if not devices:
        devices = {number: Device(id=number) for number in _devices_in_use(raw)}
    return tuple(devices[number] for number in sorted(devices)), DeviceMap(known)


def _pairs(raw: RawTables, table: str) -> list[tuple[str, str]]:
    rows = named_rows(raw, table, ("name", "value"))
    return [(str(r["name"]), "" if r["value"] is None else str(r["value"])) for r in rows]


def _options(recorded: list[tuple[str, str]]) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in recorded:
        if not _PRIVATE_OPTION.search(key):
            options[key] = f"{options[key]},{value}" if key in options else value
    return options


def _command(recorded: list[tuple[str, str]]) -> tuple[str, ...]:
    fields = dict(recorded)
    arguments = [
        (int(key.rpartition("_")[2]), value)
        for key, value in fields.items()
        if re.fullmatch(r"PROCESS_0:ARGUMENT_\d+", key)
    ]
    command = fields.get("PROCESS_0:COMMAND")
    return ((command,) if command else ()) + tuple(value for _, value in sorted(arguments))


def _trace_sources(recorded: list[tuple[str, str]]) -> tuple[str, ...]:
    """Event types that were asked for, then the COLLECT_* switches that were on."""
    types = [value for key, value in recorded if key == "CAPTURE_EVENT_TYPE"]
    switches = [key.rpartition(":")[2] for key, value in recorded if value.lower() == "true"]
    return tuple(dict.fromkeys(types + [key for key in switches if key.startswith("COLLECT_")]))


def _rank(raw: RawTables, environment: list[str]) -> tuple[int | None, int | None]:
    """Rank and world size: MPI tables, else the numbers that the launcher exported."""
    ranks = {row["rank"] for row in named_rows(raw, "MPI_RANKS", ("rank",))} - {None}
    values = {
        name: int(value.strip('"'))
        for name, _, value in (text.partition("=") for text in environment)
        if any(name in pair for pair in _RANK_VARIABLES) and value.strip('"').isdigit()
    }
    rank, size = next(
        ((values[r], values[s]) for r, s in _RANK_VARIABLES if r in values and s in values), (None, None)
    )
    if ranks:
        rank = int(min(ranks)) if len(ranks) == 1 else None
    return rank, size


def _process_ranks(raw: RawTables) -> tuple[tuple[int, int], ...]:
    """(process, MPI rank) of every rank that was recorded."""
    rows = named_rows(raw, "MPI_RANKS", ("globalPid", "rank"))
    known = {
        int(process_of(np.array([row["globalPid"]]))[0]): row["rank"]
        for row in rows
        if isinstance(row["globalPid"], int) and isinstance(row["rank"], int)
    }
    return tuple(sorted(known.items()))


def _processes(raw: RawTables) -> tuple[tuple[int, str], ...]:
    """(pid, name) of the processes that used CUDA; machine-wide captures list hundreds more."""
    pids: set[int] = set()
    for table, column in _CUDA_PROCESS_COLUMNS:
        found = (row[column] for row in named_rows(raw, table, (column,)))
        pids.update(pid for pid in found if isinstance(pid, int))
    if not pids:
        pids.update(_processes_in_use(raw))
    names = {
        row["pid"]: str(row["name"] or "")
        for row in named_rows(raw, "PROCESSES", ("pid", "name"))
        if isinstance(row["pid"], int)
    }
    return tuple((pid, names.get(pid, "")) for pid in sorted(pids - {MISSING}))


def _processes_in_use(raw: RawTables) -> set[int]:
    for table, column in (*((t, "globalPid") for t in _GPU_WORK), (RUNTIME, "globalTid")):
        if column in raw.columns(table):
            found = set(distinct(process_of(raw.read(table, [column])[0])).tolist()) - {MISSING}
            if found:
                return found
    return set()


def _devices_in_use(raw: RawTables) -> list[int]:
    found: set[int] = set()
    for table in _GPU_WORK:
        if "deviceId" in raw.columns(table):
            found.update(distinct(raw.read(table, ["deviceId"])[0]).tolist())
    return sorted(found - {MISSING})


def _device(row: dict[str, Any], ordinals: tuple[int, ...]) -> Device:
    capability = (row["computeMajor"], row["computeMinor"])
    return Device(
        id=row["id"],
        bus_id=str(row["busLocation"]) if row["busLocation"] else None,
        cuda_ordinals=ordinals,
        name=str(row["name"]) if row["name"] else None,
        chip=str(row["chipName"]) if row["chipName"] else None,
        sm_count=_positive(row["smCount"]),
        memory_bytes=_positive(row["totalMemory"]),
        bandwidth_bytes_per_s=_positive(row["memoryBandwidth"]),
        clock_hz=_positive(row["clockRate"]),
        l2_bytes=_positive(row["l2CacheSize"]),
        compute_capability=capability if all(isinstance(n, int) for n in capability) else None,
    )


def _positive(value: object) -> int | None:
    """A zero in these tables means that the driver did not say."""
    return value if isinstance(value, int) and value > 0 else None


def _first_int(raw: RawTables, table: str, column: str) -> int | None:
    rows = named_rows(raw, table, (column,))
    return rows[0][column] if rows and isinstance(rows[0][column], int) else None


def _utc_offset(raw: RawTables) -> int | None:
    """Seconds by which the machine's own clock is ahead of UTC."""
    for row in named_rows(raw, "TARGET_INFO_SESSION_START_TIME", ("utcTime", "localTime")):
        try:
            utc, local = (datetime.fromisoformat(str(row[n])) for n in ("utcTime", "localTime"))
            return round((local - utc).total_seconds())
        except (ValueError, TypeError):
            return None
    return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _cuda_version(text: str | None) -> str | None:
    """12080 -> 12.8"""
    if text and text.isdigit() and int(text) >= 1000:
        return f"{int(text) // 1000}.{int(text) % 1000 // 10}"
    return text or None


def _under_wsl(machine: Mapping[str, str]) -> bool | None:
    """Linux with a driver of Windows: a kernel of Microsoft's, or a branch that only Windows has.
    Branches for Linux have been multiples of five since 450 (535.54.03, 550.144.03), those of
    Windows any number (536.40, 551.23). None where neither is recorded."""
    system = f"{machine.get('KernelVersion', '')} {machine.get('OsDescription', '')}".lower()
    if "microsoft" in system or "wsl" in system:
        return True
    branch, dot, _ = machine.get("NvDriverVersion", "").partition(".")
    if not dot or not branch.isdigit() or machine.get("SoftwarePlatform") != "L4X":
        return None
    return int(branch) > 450 and int(branch) % 5 != 0


def _driver_version(text: str | None) -> str | None:
    """2022 exports write 525.105.17 as 52510517."""
    if text and text.isdigit() and len(text) > 6:
        return f"{text[:3]}.{text[3:-2]}.{text[-2:]}"
    return text or None
