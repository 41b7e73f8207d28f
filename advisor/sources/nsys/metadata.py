"""Metadata of an nsys export: tool, options, command, machine, devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from advisor.model.arrays import distinct
from advisor.model.capture import Capture, Device, Recorder
from advisor.numerals import read_int
from advisor.sources.nsys import table_map as nsys
from advisor.sources.ranges import compute_capability, of_device
from advisor.sources.schema import MISSING, Ints, Owner, cuda_version
from advisor.sources.trace import RawTables, rows_of

NSYS = Recorder(
    nsys_options=True,
    clock="session times, as the Nsight Systems GUI shows them",
    tables={
        **{table: raw for table, (raw, _) in nsys.ROW_TABLES.items()},
        **{table: parts[0][0] for table, parts in nsys.JOINED_TABLES.items()},
        "samples": nsys.GPU_METRICS,
    },
    # From 80 us on stacks cost next to nothing; a launch with a stack takes several times as long.
    backtraces="--cudabacktrace=kernel:80000,sync:80000,memory:80000 --sample=process-tree",
    ranges="--trace=cuda,nvtx",
    migrations=True,
)

#: What times count from in a file that is on another clock (`advisor.sources.nsys.clock`).
_OTHER_CLOCK = (
    "times from the first recorded call or kernel on: those of the file do not count from the session"
)

#: Tables that name the processes which used CUDA, so that event tables need not be scanned.
_CUDA_PROCESS_COLUMNS = (
    ("TARGET_INFO_CUDA_CONTEXT_INFO", "processId"),
    ("TARGET_INFO_CUDA_DEVICE", "pid"),
    ("TARGET_INFO_CUDA_STREAM", "processId"),
    ("TARGET_INFO_CUDA_NULL_STREAM", "processId"),
)

#: Tables of GPU work with a device and a process, in the order of preference for a scan.
_GPU_WORK = (nsys.KERNEL, nsys.GRAPH_TRACE, nsys.MEMCPY, nsys.MEMSET)

#: What `Device` has of a row of TARGET_INFO_GPU: a text, or a number that is 0 if the driver did not say.
_GPU_TEXTS = {"bus_id": "busLocation", "name": "name", "chip": "chipName"}
_GPU_NUMBERS = {"sm_count": "smCount", "memory_bytes": "totalMemory", "l2_bytes": "l2CacheSize"}
_GPU_RATES = {"bandwidth_bytes_per_s": "memoryBandwidth", "clock_hz": "clockRate"}
_GPU_OTHERS = ("cuDevice", "computeMajor", "computeMinor")

#: Options that contain a command line, an environment or names of people and machines.
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
    """(process, CUDA ordinal) -> GPU id; an ordinal alone under the process `MISSING`. Kernels carry the CUDA
    ordinal, which `CUDA_VISIBLE_DEVICES` renumbers in each process."""

    gpu: dict[tuple[int, int], int]

    @property
    def identity(self) -> bool:
        return all(cuda == gpu for (_, cuda), gpu in self.gpu.items())

    def apply(self, device: Ints, process: Ints) -> Ints:
        """GPU ids; an ordinal that the map does not contain is unchanged."""
        mapped = device.copy()
        for (pid, cuda), gpu in sorted(self.gpu.items()):  # a process's own entries come last
            rows = device == cuda
            if pid != MISSING:
                rows &= process == pid
            mapped[rows] = gpu
        return mapped


def read_capture(raw: RawTables, format_name: str, warnings: Iterable[str], zero: int) -> Capture:
    """Everything but the event data. Environment variables are kept by name only. `zero` is the file's own
    time of our 0, 0 if it counts from the session's start."""
    export = dict(_pairs(raw, "META_DATA_EXPORT") or _pairs(raw, "EXPORT_META_DATA"))
    recorded = _pairs(raw, "META_DATA_CAPTURE")
    environment = [value for key, value in recorded if key.endswith(":ENVIRONMENT_VARIABLE")]
    options = _options(recorded)
    machine = dict(_pairs(raw, "TARGET_INFO_SYSTEM_ENV"))
    cuda = machine.get("CudaDriverVersion", "")
    rank, world_size = _rank(raw, environment)
    ranks = rows_of(raw, "MPI_RANKS", globalTid=int, rank=int)
    sample_hz = nsys.number(options.get("GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY"))
    sources = _trace_sources(recorded)
    types = {s.lower() for s in sources if not s.startswith("COLLECT_")}
    mode = [v for k, v in recorded if k.endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE")]
    return Capture(
        path=str(raw.shown),
        format=format_name,
        recorder=NSYS.replaced(clock=_OTHER_CLOCK) if zero else NSYS,
        zero_ns=zero,
        size_bytes=raw.size_bytes(),
        producer=export.get("EXPORT_PRODUCT_NAME") or "NVIDIA Nsight Systems",
        producer_version=export.get("EXPORT_PRODUCT_VERSION"),
        schema_version=export.get("EXPORT_SCHEMA_VERSION"),
        start_utc_ns=None if zero else _first_int(raw, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
        utc_offset_s=_utc_offset(raw),
        duration_ns=_first_int(raw, "ANALYSIS_DETAILS", "duration"),
        driver=_driver_version(machine.get("NvDriverVersion")),
        under_wsl=_under_wsl(machine),
        cuda=cuda_version(read_int(cuda) or 0) or cuda or None,
        command=_command(recorded),
        environment_names=tuple(sorted({text.partition("=")[0] for text in environment})),
        options=options,
        trace_sources=sources,
        cuda_traced="cuda" in types if types else None,
        graph_trace_mode=mode[0].lower() if mode and mode[0] else None,
        sample_hz=sample_hz if sample_hz else None,
        world_size=world_size,
        rank=rank,
        process_ranks=tuple(sorted({int(nsys.process_of(np.array([p]))[0]): r for p, r in ranks}.items())),
        processes=_processes(raw),
        threads=_threads(raw),
        device_numbers="the GPU ids of Nsight Systems",
        warnings=tuple(warnings),
        views=tuple(sorted(filter(nsys.is_nsys_table, raw.views))),
    )


def read_owner(raw: RawTables) -> Owner:
    """What names people and machines: all settings, processes, and texts."""
    tables = ("META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SYSTEM_ENV")
    settings = [pair for table in tables for pair in _pairs(raw, table)]
    listed = (
        (nsys.STRINGS, "value"),
        ("PROCESSES", "name"),
        (nsys.NVTX, "text"),
        ("DIAGNOSTIC_EVENT", "text"),
    )
    present = ((table, column) for table, column in listed if column in raw.columns(table))
    texts = {text for t, c in present for (text,) in rows_of(raw, t, **{c: object}) if isinstance(text, str)}
    return Owner(settings, sorted(texts))


def read_devices(raw: RawTables) -> tuple[tuple[Device, ...], DeviceMap]:
    """Every GPU that the capture lists, by GPU id, and how the ids of kernels map to them."""
    gpus = {}
    names = (*_GPU_TEXTS.values(), *_GPU_NUMBERS.values(), *_GPU_RATES.values(), *_GPU_OTHERS)
    for gpu, *values in rows_of(raw, "TARGET_INFO_GPU", id=int, **dict.fromkeys(names, object)):
        gpus[gpu] = dict(zip(names, values, strict=True))
    columns = {"gpuId": int, "cudaId": int, "pid": object, "numMultiprocessors": object}
    cuda = list(rows_of(raw, "TARGET_INFO_CUDA_DEVICE", **columns))
    known: dict[tuple[int, int], int] = {}
    for gpu, ordinal, pid, _ in cuda:
        if all(other == gpu for other, same, _, _ in cuda if same == ordinal):
            known[MISSING, ordinal] = gpu  # also for processes that the table does not list
        if isinstance(pid, int):
            known[pid, ordinal] = gpu
    own = {row["cuDevice"]: gpu for gpu, row in gpus.items() if isinstance(row["cuDevice"], int)}
    if not known and len(own) == len(gpus):
        known = {(MISSING, ordinal): gpu for ordinal, gpu in own.items()}
    devices = {
        gpu: _device(gpu, row, tuple(sorted({o for (_, o), g in known.items() if g == gpu})))
        for gpu, row in gpus.items()
    }
    for gpu, _, _, count in cuda:
        devices.setdefault(gpu, Device(id=gpu, sm_count=_positive(count)))
    if not devices:
        devices = {number: Device(id=number) for number in _devices_in_use(raw)}
    return tuple(devices[number] for number in sorted(devices)), DeviceMap(known)


def _pairs(raw: RawTables, table: str) -> list[tuple[str, str]]:
    return list(rows_of(raw, table, name=str, value=str))


def _options(recorded: list[tuple[str, str]]) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in recorded:
        if not _PRIVATE_OPTION.search(key):
            options[key] = f"{options[key]},{value}" if key in options else value
    return options


def _command(recorded: list[tuple[str, str]]) -> tuple[str, ...]:
    fields = dict(recorded)
    named = ((re.fullmatch(r"PROCESS_0:ARGUMENT_(\d+)", key), value) for key, value in fields.items())
    arguments = sorted((read_int(hit[1]) or 0, value) for hit, value in named if hit)
    command = fields.get("PROCESS_0:COMMAND")
    return ((command,) if command else ()) + tuple(value for _, value in arguments)


def _trace_sources(recorded: list[tuple[str, str]]) -> tuple[str, ...]:
    """Event types that were asked for, then the COLLECT_* switches that were on."""
    types = [value for key, value in recorded if key == "CAPTURE_EVENT_TYPE"]
    switches = [key.rpartition(":")[2] for key, value in recorded if value.lower() == "true"]
    return tuple(dict.fromkeys(types + [key for key in switches if key.startswith("COLLECT_")]))


def _rank(raw: RawTables, environment: list[str]) -> tuple[int | None, int | None]:
    """Rank and world size: from MPI tables, else the numbers that the launcher exported."""
    ranks = {rank for (rank,) in rows_of(raw, "MPI_RANKS", rank=object)} - {None}
    texts = {name: value.strip('"') for name, _, value in (text.partition("=") for text in environment)}
    stated = ((texts.get(r, ""), texts.get(s, "")) for r, s in _RANK_VARIABLES)
    known = ((read_int(r), read_int(s)) for r, s in stated if r.isdigit() and s.isdigit())
    rank, size = next((pair for pair in known if None not in pair), (None, None))
    if ranks:
        rank = int(min(ranks)) if len(ranks) == 1 else None
    return rank, size


def _processes(raw: RawTables) -> tuple[tuple[int, str], ...]:
    """(pid, name) of the processes that used CUDA; machine-wide captures list hundreds more."""
    listed = (rows_of(raw, table, **{column: int}) for table, column in _CUDA_PROCESS_COLUMNS)
    pids = {pid for rows in listed for (pid,) in rows} or _processes_in_use(raw)
    names = dict(rows_of(raw, "PROCESSES", pid=int, name=str))
    return tuple((pid, names.get(pid, "")) for pid in sorted(pids - {MISSING}))


def _threads(raw: RawTables) -> tuple[tuple[int, str], ...]:
    """(thread, name) of the threads that have a name, by number; of two with one number the first."""
    if not {"globalTid", "nameId"} <= set(raw.columns("ThreadNames")):
        return ()
    ids, names = raw.read("ThreadNames", ["globalTid", "nameId"])
    texts = raw.texts(nsys.STRINGS, distinct(names).tolist())
    found: dict[int, str] = {}
    for thread, name in zip(nsys.thread_of(ids).tolist(), names.tolist(), strict=True):
        if texts.get(name):
            found.setdefault(thread, texts[name])
    return tuple(sorted(found.items()))


def _processes_in_use(raw: RawTables) -> set[int]:
    for table, column in (*((t, "globalPid") for t in _GPU_WORK), (nsys.RUNTIME, "globalTid")):
        if column in raw.columns(table):
            found = set(distinct(nsys.process_of(raw.read(table, [column])[0])).tolist()) - {MISSING}
            if found:
                return found
    return set()


def _devices_in_use(raw: RawTables) -> list[int]:
    tables = [table for table in _GPU_WORK if "deviceId" in raw.columns(table)]
    found = {d for table in tables for d in distinct(raw.read(table, ["deviceId"])[0]).tolist()}
    return sorted(found - {MISSING})


def _device(number: int, row: dict[str, Any], ordinals: tuple[int, ...]) -> Device:
    major, minor = _whole(row["computeMajor"]), _whole(row["computeMinor"])
    about: dict[str, Any] = {ours: str(row[c]) if row[c] else None for ours, c in _GPU_TEXTS.items()}
    about |= {ours: of_device(ours, _whole(row[c])) for ours, c in _GPU_NUMBERS.items()}
    about |= {
        ours: float(rate) for ours, c in _GPU_RATES.items() if (rate := of_device(ours, _whole(row[c])))
    }
    return Device(
        id=number, cuda_ordinals=ordinals, **about, compute_capability=compute_capability(major, minor)
    )


def _whole(value: object) -> int | None:
    """A number from 0 on; columnar exports may hold truth values, which Python counts as integers."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _positive(value: object) -> int | None:
    return _whole(value) or None


def _first_int(raw: RawTables, table: str, column: str) -> int | None:
    return next((value for (value,) in rows_of(raw, table, **{column: int})), None)


def _utc_offset(raw: RawTables) -> int | None:
    """Seconds by which the machine's own clock is ahead of UTC."""
    for times in rows_of(raw, "TARGET_INFO_SESSION_START_TIME", utcTime=str, localTime=str):
        try:
            utc, local = map(datetime.fromisoformat, times)
            return round((local - utc).total_seconds())
        except (ValueError, TypeError):
            return None
    return None


def _under_wsl(machine: Mapping[str, str]) -> bool | None:
    """Linux with a driver of Windows: a kernel of Microsoft's, or a branch that only Windows has.
    Branches for Linux have been multiples of five since 450 (535.54.03, 550.144.03), those of Windows any
    number (536.40, 551.23). None if neither is recorded."""
    system = f"{machine.get('KernelVersion', '')} {machine.get('OsDescription', '')}".lower()
    if "microsoft" in system or "wsl" in system:
        return True
    branch, dot, _ = machine.get("NvDriverVersion", "").partition(".")
    number = read_int(branch)
    if not dot or number is None or machine.get("SoftwarePlatform") != "L4X":
        return None
    return number > 450 and number % 5 != 0


def _driver_version(text: str | None) -> str | None:
    """2022 exports write 525.105.17 as 52510517."""
    if text and text.isdigit() and len(text) > 6:
        return f"{text[:3]}.{text[3:-2]}.{text[-2:]}"
    return text or None
