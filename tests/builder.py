"""Writes nsys SQLite exports of any schema generation, so that tests can say what was captured.

    path = (
        Export(schema="3.7")
        .gpu(name="NVIDIA H200", sm_count=132, bandwidth=4.8e12)
        .process(100)
        .range("iteration 0", 0, 50_000)
        .launch(at=0, dur=5_000, kernel="gemm", kernel_start=7_000, kernel_dur=10_000)
        .sync(at=6_000, dur=12_000)
        .write(tmp_path / "trace.sqlite")
    )

Everything is in ns. Methods add rows and return the export; what they leave out gets a sensible
value. `process()`, `thread()` and `device()` set where the following rows happen. Correlation ids
count up per process, as CUPTI's do, so that two processes repeat each other's; string ids are
given out as texts are met. `row(table, **values)` adds anything else.

Tables appear when they have rows, as `nsys export` does (`lazy=False` makes all of them appear).
The variations of real exports are options: `without_tables`, `empty_tables`, `without_columns`,
`add_column`, `version_table`, bytes instead of str for text that is not UTF-8, and `schema`:

    2.9   2022.1   EXPORT_META_DATA, no META_DATA_CAPTURE, no ENUM_*, empty tables present
    3.1   2023.1   the same with ENUM_* and absent instead of empty tables
    3.7   2023.4   META_DATA_EXPORT and _CAPTURE, green contexts, GPU_METRICS
    3.16  2024.6   GPU_METRICS with rawTimestamp
    3.17  2025.1   TARGET_INFO_CUDA_DEVICE, copyCount, eventSyncId
    3.25  2026.2   graphId and clusters of kernels, times of CUDA events
    3.28  2026.4   eventId of NVTX events, more on the scheduling of clusters
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from tests.nsys_schema import ENUMS, TABLES, Column, columns_of, tables_of, version

KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
NO_ID = 0xFFFFFFFF
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
HOST_FAULTS, GPU_FAULTS = "CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
MIGRATIONS = {"HtoD": 11, "DtoH": 12, "DtoD": 13}
MIGRATION_CAUSES = {"prefetch": 1, "fault": 2, "speculation": 3, "eviction": 4}
MEMORY_KINDS = {"pageable": 0, "pinned": 1, "device": 2, "array": 3, "managed": 4, "unknown": 7}
RUNTIME_API, DRIVER_API, BACKTRACE_LAYER = 0, 1, 67

Text = str | bytes
Grid = tuple[int, int, int]


class Export:
    """One export to be. Attributes hold what the next row defaults to."""

    def __init__(
        self,
        schema: str = "3.7",
        *,
        tool_version: str = "2023.4.4.54",
        version_table: str | None = "auto",
        lazy: bool | None = None,
        start_utc_ns: int | None = 1_700_000_000_000_000_000,
        utc_offset_h: float = 0,
        duration: int | None = None,
    ) -> None:
        """`version_table`: META_DATA_EXPORT, EXPORT_META_DATA, None, or what the schema has.
        `utc_offset_h`: time zone of the machine."""
        self.schema = schema
        self._lazy = version(schema) >= (3, 0) if lazy is None else lazy
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._strings: dict[Text, int] = {}
        self._absent: set[str] = set()
        self._empty: set[str] = set()
        self._dropped: dict[str, set[str]] = {}
        self._added: dict[str, list[tuple[Column, Any]]] = {}
        self._correlations: dict[int, int] = {}
        self._chains = 0
        self._streams: set[tuple[int, int, int]] = set()
        self._processes: set[int] = set()
        self._kernels: dict[tuple[Text, Text | None, Text | None], tuple[int, int, int]] = {}
        self.pid = self.tid = 0
        self.device_id = 0
        self.context_id = 1
        self.correlation = 0
        if version_table == "auto":
            version_table = "META_DATA_EXPORT" if version(schema) >= (3, 7) else "EXPORT_META_DATA"
        self._chosen = {version_table or ""}  # a table that a test wants against its schema
        if version_table:
            for name, value in (
                ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
                ("EXPORT_PRODUCT_VERSION", tool_version),
                ("EXPORT_SCHEMA_VERSION", schema),
            ):
                self.row(version_table, name=name, value=value)
        if start_utc_ns is not None:
            utc = datetime.fromtimestamp(start_utc_ns // 10**9, UTC).replace(tzinfo=None)
            local = utc + timedelta(hours=utc_offset_h)
            self.row(
                "TARGET_INFO_SESSION_START_TIME",
                utcEpochNs=start_utc_ns,
                utcTime=utc.isoformat(),
                localTime=local.isoformat(),
            )
        if duration is not None:
            self.row("ANALYSIS_DETAILS", duration=duration, stopTime=duration)

    # ------------------------------------------------------------------ machine and options

    def gpu(
        self,
        id: int = 0,
        name: str | None = "NVIDIA H200",
        sm_count: int | None = 132,
        bandwidth: float | None = 4.8e12,
        memory: float | None = 150e9,
        clock: float | None = 1.98e9,
        chip: str | None = "GH100",
        capability: tuple[int, int] | None = (9, 0),
        cuda: int | None = None,
        bus: str | None = None,
    ) -> Self:
        """A GPU of the machine, used or not; `cuda` is its CUDA ordinal where not its id, `bus` its
        PCI address."""
        return self.row(
            "TARGET_INFO_GPU",
            id=id,
            name=name,
            smCount=sm_count,
            memoryBandwidth=None if bandwidth is None else int(bandwidth),
            totalMemory=None if memory is None else int(memory),
            clockRate=None if clock is None else int(clock),
            chipName=chip,
            cuDevice=id if cuda is None else cuda,
            busLocation=bus,
            computeMajor=capability and capability[0],
            computeMinor=capability and capability[1],
        )

    def cuda_device(self, cuda: int, gpu: int, pid: int | None = None, sm_count: int = 132) -> Self:
        """What CUDA ordinal `cuda` of a process (the current one) is: schema 3.17 and later."""
        return self.row(
            "TARGET_INFO_CUDA_DEVICE",
            gpuId=gpu,
            cudaId=cuda,
            pid=self.pid if pid is None else pid,
            numMultiprocessors=sm_count,
        )

    def system(self, **properties: str) -> Self:
        """Rows of TARGET_INFO_SYSTEM_ENV: `system(NvDriverVersion="580.1")`."""
        for name, value in properties.items():
            self.row("TARGET_INFO_SYSTEM_ENV", name=name, value=value)
        return self

    def option(self, name: str, value: str) -> Self:
        """A row of META_DATA_CAPTURE."""
        return self.row("META_DATA_CAPTURE", name=name, value=value)

    def command(self, *argv: str) -> Self:
        self.option("PROCESS_0:COMMAND", argv[0])
        for number, argument in enumerate(argv[1:]):
            self.option(f"PROCESS_0:ARGUMENT_{number}", argument)
        return self

    def environment(self, name: str, value: str) -> Self:
        return self.option("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')

    def traced(self, *event_types: str, graph_mode: str | None = None) -> Self:
        """What the capture was asked for: `traced("Cuda", "NvtxEvents", graph_mode="Node")`."""
        for event_type in event_types:
            self.option("CAPTURE_EVENT_TYPE", event_type)
        if graph_mode:
            self.option("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", graph_mode)
        return self

    # ------------------------------------------------------------------ where rows happen

    def process(self, pid: int, name: str = "python3", tid: int | None = None) -> Self:
        """Following rows belong to this process, and to its thread `tid` (default: the main)."""
        self.pid, self.tid = pid, pid if tid is None else tid
        self.correlation = self._correlations.get(pid, 0)
        if pid in self._processes:
            return self
        self._processes.add(pid)
        return self.row("PROCESSES", globalPid=self.global_pid, pid=pid, name=name)

    def thread(self, tid: int, name: str | None = None) -> Self:
        """Following rows belong to this thread of the current process."""
        self.tid = tid
        if name is not None:
            self.row("ThreadNames", nameId=self.string(name), priority=20, globalTid=self.global_tid)
        return self

    def device(self, id: int, context: int | None = None) -> Self:
        """Following GPU work runs on this CUDA ordinal."""
        self.device_id, self.context_id = id, id + 1 if context is None else context
        return self

    @property
    def global_pid(self) -> int:
        return 1 << 48 | self.pid << 24

    @property
    def global_tid(self) -> int:
        return self.global_pid | self.tid

    # ------------------------------------------------------------------ calls and GPU work

    def call(
        self,
        name: str,
        at: int,
        dur: int = 1_000,
        *,
        result: int = 0,
        correlation: int | None = None,
        layer: int | None = None,
        callchain: int | None = None,
    ) -> Self:
        """An API call; rows that belong to it take its id from `self.correlation`."""
        if correlation is None:
            correlation = self._correlations.get(self.pid, 0) + 1
        self._correlations[self.pid] = max(correlation, self._correlations.get(self.pid, 0))
        self.correlation = correlation
        if layer is None:
            layer = RUNTIME_API if name.startswith(("cuda", "hip")) else DRIVER_API
        return self.row(
            RUNTIME,
            start=at,
            end=at + dur,
            eventClass=layer,
            globalTid=self.global_tid,
            correlationId=correlation,
            nameId=self.string(name),
            returnValue=result,
            callchainId=callchain,
        )

    def call_in_two_layers(self, name: str, at: int, dur: int = 1_000) -> Self:
        """One call as 2022 exports hold it: `cudaMalloc` around `cudaMalloc_v3020`."""
        self.call(name, at, dur, layer=BACKTRACE_LAYER)
        return self.call(f"{name}_v3020", at + 100, dur - 200, correlation=self.correlation)

    def launch(
        self,
        at: int,
        dur: int = 5_000,
        kernel: Text = "kernel",
        kernel_start: int | None = None,
        kernel_dur: int = 10_000,
        *,
        api: str = "cudaLaunchKernel_v7000",
        **kernel_columns: Any,
    ) -> Self:
        """A launch call and its kernel, which by default starts 2 us after the call's end."""
        self.call(api, at, dur)
        start = at + dur + 2_000 if kernel_start is None else kernel_start
        return self.kernel(start, kernel_dur, kernel, **kernel_columns)

    def kernel(
        self,
        start: int,
        dur: int = 10_000,
        kernel: Text = "kernel",
        *,
        short: Text | None = None,
        mangled: Text | None = None,
        stream: int = 7,
        device: int | None = None,
        grid: Grid = (132, 1, 1),
        block: Grid = (128, 1, 1),
        registers: int = 32,
        shared: tuple[int, int] = (0, 0),
        graph_node: int | None = None,
        correlation: int | None = None,
        **columns: Any,
    ) -> Self:
        """A kernel alone, of the latest call; `correlation=` of another one, 0 for none.

        `short` is by default the name up to its template or argument list.
        """
        key = kernel, short, mangled
        full, shorter, linked = self._kernels.get(key) or self._named(*key)
        return self._work(
            KERNEL,
            start,
            dur,
            stream,
            device,
            correlation,
            {
                "demangledName": full,
                "shortName": shorter,
                "mangledName": linked,
                "launchType": 1,
                "registersPerThread": registers,
                "gridX": grid[0],
                "gridY": grid[1],
                "gridZ": grid[2],
                "blockX": block[0],
                "blockY": block[1],
                "blockZ": block[2],
                "staticSharedMemory": shared[0],
                "dynamicSharedMemory": shared[1],
                "graphNodeId": graph_node,
            }
            | columns,
        )

    def copy(
        self,
        at: int,
        dur: int = 5_000,
        kind: str = "HtoD",
        bytes: int = 1 << 20,
        memory: str = "pageable",
        copy_start: int | None = None,
        copy_dur: int = 10_000,
        *,
        api: str | None = "cudaMemcpyAsync_v3020",
        stream: int = 7,
        device: int | None = None,
        correlation: int | None = None,
        **columns: Any,
    ) -> Self:
        """A copy and its call; `memory` is the host side's. `api=None`: of the latest call."""
        if api is not None:
            self.call(api, at, dur)
        start = at + dur + 1_000 if copy_start is None else copy_start
        host, gpu = MEMORY_KINDS[memory], MEMORY_KINDS["device"]
        return self._work(
            MEMCPY,
            start,
            copy_dur,
            stream,
            device,
            correlation,
            {
                "bytes": bytes,
                "copyKind": COPY_KINDS[kind],
                "srcKind": host if kind.startswith("H") else gpu,
                "dstKind": host if kind.endswith("H") else gpu,
            }
            | columns,
        )

    def migration(
        self,
        start: int,
        dur: int = 5_000,
        kind: str = "HtoD",
        bytes: int = 1 << 16,
        cause: str = "fault",
        address: int = 0,
        device: int | None = None,
    ) -> Self:
        """Pages of unified memory that the driver moves: no call, no stream, memory unknown."""
        unknown = MEMORY_KINDS["unknown"]
        return self._work(
            MEMCPY,
            start,
            dur,
            0,
            device,
            0,
            {
                "bytes": bytes,
                "copyKind": MIGRATIONS[kind],
                "srcKind": unknown,
                "dstKind": unknown,
                "migrationCause": MIGRATION_CAUSES[cause],
                "virtualAddress": address,
            },
        )

    def gpu_fault(self, at: int, dur: int = 20_000, count: int = 1, address: int = 0) -> Self:
        """Page faults of the GPU: `--cuda-um-gpu-page-faults=true`."""
        return self.row(
            GPU_FAULTS,
            start=at,
            end=at + dur,
            globalPid=self.global_pid,
            deviceId=self.device_id,
            address=address,
            numberOfPageFaults=count,
            faultAccessType=1,
        )

    def host_fault(self, at: int, address: int = 0) -> Self:
        """A page fault of the host: `--cuda-um-cpu-page-faults=true`."""
        return self.row(
            HOST_FAULTS,
            start=at,
            globalPid=self.global_pid,
            address=address,
            CpuInstruction=self.string("fill"),
            module=self.string("a.out"),
        )

    def network(self, at: int, dur: int, nic: int, sent: int, waits: int = 0) -> Self:
        """A sample of an InfiniBand card, in bytes and ticks a ms: `--nic-metrics=lf`."""
        if "NIC_ID_MAP" not in self._rows:
            for place, name, unit in ((6, "Bytes sent", "bytes/ms"), (10, "Send waits", "ticks/ms")):
                self.row("TARGET_INFO_NETWORK_METRICS", metricsIdx=place, name=f"IB: {name}", unit=unit)
        self.row("NIC_ID_MAP", nicId=nic, globalId=(nic + 1) << 48)
        for place, value in ((6, sent), (10, waits)):
            self.row(
                "NET_NIC_METRIC",
                start=at,
                end=at + dur,
                globalId=(nic + 1) << 48,
                metricsIdx=place,
                value=value,
            )
        return self

    def cpu_switch(self, at: int, running: bool, cpu: int = 0, state: int = 0) -> Self:
        """The thread is put on a CPU, or taken from it: `--cpuctxsw=process-tree`."""
        columns = {"cpu": cpu, "isSchedIn": int(running), "threadState": state}
        return self.row("SCHED_EVENTS", start=at, globalTid=self.global_tid, **columns)

    def gpu_turn(self, at: int, dur: int, context: int, pid: int | None = None) -> Self:
        """A context is on the GPU: `--gpuctxsw=true`. `pid` of its process, None for one of another user."""
        for tag, time in ((8, at), (7, at + dur)):  # RESTORE_START, SAVE_END
            self.row(
                "GPU_CONTEXT_SWITCH_EVENTS",
                tag=tag,
                timestamp=time,
                contextId=context,
                globalPid=0 if pid is None else pid << 24,
                gpuId=self.device_id,
            )
        return self

    def memset(
        self,
        at: int,
        dur: int = 3_000,
        bytes: int = 4096,
        memset_start: int | None = None,
        memset_dur: int = 1_000,
        *,
        memory: str = "device",
        api: str | None = "cudaMemsetAsync_v3020",
        stream: int = 7,
        device: int | None = None,
        correlation: int | None = None,
        **columns: Any,
    ) -> Self:
        """A memset and its call. `api=None`: of the latest call."""
        if api is not None:
            self.call(api, at, dur)
        start = at + dur + 1_000 if memset_start is None else memset_start
        return self._work(
            MEMSET,
            start,
            memset_dur,
            stream,
            device,
            correlation,
            {"bytes": bytes, "memKind": MEMORY_KINDS[memory]} | columns,
        )

    def sync(
        self,
        at: int,
        dur: int = 10_000,
        *,
        api: str = "cudaStreamSynchronize_v3020",
        sync_type: int = 3,
        stream: int = 7,
        event: int = NO_ID,
        sync: int = 0,
        device: int | None = None,
    ) -> Self:
        """A synchronising call and its SYNCHRONIZATION row (versions disagree on `syncType`): for a
        stream or, with `stream=NO_ID`, an event (`sync` joins it to its record) or the context."""
        self.call(api, at, dur)
        columns = {"syncType": sync_type, "eventId": event, "eventSyncId": sync}
        return self._work(SYNCHRONIZATION, at, dur, stream, device, None, columns)

    def graph_launch(
        self,
        at: int,
        dur: int = 20_000,
        nodes: Sequence[tuple[Text, int, int]] = (),
        mode: str = "node",
        *,
        graph: int | None = 1,
        executable: int | None = 2,
        stream: int = 7,
        device: int | None = None,
        api: str = "cudaGraphLaunch_v10000",
        **kernel_columns: Any,
    ) -> Self:
        """A graph launch; `nodes` are (kernel, start, duration).

        With `mode="node"` they become kernels of the call, with `mode="graph"` one GRAPH_TRACE row
        from the first start to the last end: all that the real export has of them.
        """
        self.call(api, at, dur)
        if mode == "node":
            for number, (kernel, start, length) in enumerate(nodes, 1):
                self.kernel(
                    start,
                    length,
                    kernel,
                    graph_node=(graph or 0) << 32 | number,
                    stream=stream,
                    device=device,
                    **kernel_columns,
                )
        elif nodes:
            start = min(node[1] for node in nodes)
            end = max(node[1] + node[2] for node in nodes)
            self._work(
                GRAPH_TRACE,
                start,
                end - start,
                stream,
                device,
                None,
                {"graphId": graph, "graphExecId": executable},
            )
        return self

    def event(self, event: int = 1, at: int | None = None, stream: int = 7, sync: int = 0) -> Self:
        """A CUDA event record of the latest call; its time exists from schema 3.25 on."""
        columns = {"eventId": event, "timestamp": at, "eventSyncId": sync}
        return self.row("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **self._place(stream, None, None) | columns)

    def alloc(
        self,
        at: int,
        bytes: int,
        address: int = 0x7F00_0000_0000,
        *,
        kind: str = "device",
        free: bool = False,
        **columns: Any,
    ) -> Self:
        """A device memory event (`--cuda-memory-usage=true`): an allocation, or its end."""
        return self.row(
            "CUDA_GPU_MEMORY_USAGE_EVENTS",
            **{
                "start": at,
                "globalPid": self.global_pid,
                "deviceId": self.device_id,
                "contextId": self.context_id,
                "address": address,
                "bytes": bytes,
                "memKind": MEMORY_KINDS[kind],
                "memoryOperationType": int(free),
                "correlationId": self.correlation,
            }
            | columns,
        )

    # ------------------------------------------------------------------ ranges

    def range(
        self, text: Text, start: int, end: int | None, *, domain: int = 0, style: str = "push_pop"
    ) -> Self:
        """An NVTX range with its text in StringIds; `end=None` for one that never closed."""
        kind = {"push_pop": 59, "start_end": 60}[style]
        return self.nvtx(kind, start, end, textId=self.string(text), domainId=domain)

    def range_inline(
        self, text: Text, start: int, end: int | None, *, domain: int = 0, style: str = "push_pop"
    ) -> Self:
        """An NVTX range with its text in the row."""
        kind = {"push_pop": 59, "start_end": 60}[style]
        return self.nvtx(kind, start, end, text=text, domainId=domain)

    def mark(self, text: Text, at: int, *, domain: int = 0) -> Self:
        """An NVTX mark, which has no end."""
        return self.nvtx(34, at, None, text=text, domainId=domain)

    def nvtx(self, event_type: int, start: int, end: int | None = None, **columns: Any) -> Self:
        """Any NVTX row: 33 category, 34 mark, 39 thread name, 59 and 60 ranges, 75 domain."""
        row = {"start": start, "end": end, "eventType": event_type, "globalTid": self.global_tid}
        number = len(self._rows.get("NVTX_EVENTS", ())) + 1
        return self.row("NVTX_EVENTS", **row | {"eventId": number} | columns)

    # ------------------------------------------------------------------ sampling and the rest

    def gpu_metrics(
        self,
        values: Mapping[str, Sequence[int | None]],
        period_ns: int = 100_000,
        start: int = 0,
        *,
        gpu: int = 0,
        first_id: int = 0,
        null_timestamps: bool = False,
    ) -> Self:
        """Samples of several metrics at `start`, `start + period_ns`, ... of one GPU.

        A name without a unit gets one: `"SM Active"` -> `"SM Active [Throughput %]"`. None leaves a
        sample out. Metric ids count from `first_id`: they differ between captures.
        """
        type_id = 1 << 48 | 1 << 32 | gpu
        names = [
            name if "[" in name else f"{name} [{'MHz' if 'Clock' in name else 'Throughput %'}]"
            for name in values
        ]
        for number, name in enumerate(names, first_id):
            self.row(
                "TARGET_INFO_GPU_METRICS",
                typeId=type_id,
                sourceId=type_id,
                typeName="",
                metricId=number,
                metricName=name,
            )
        for step in range(max(map(len, values.values()), default=0)):
            for number, series in enumerate(values.values(), first_id):
                value = series[step] if step < len(series) else None
                if value is not None:
                    at = start + step * period_ns
                    self.row(
                        "GPU_METRICS",
                        rawTimestamp=at,
                        timestamp=None if null_timestamps else at,
                        typeId=type_id,
                        metricId=number,
                        value=value,
                    )
        return self

    def plugin_samples(
        self,
        values: Mapping[str, Sequence[float]],
        period_ns: int = 100_000_000,
        *,
        gpu: int = 0,
        source: int = 2,
        as_json: bool = False,
    ) -> Self:
        """Generic events of a plugin (`--enable=nvml_metrics`), one a period with all `values`; with
        `as_json` as older exports hold them."""
        kind = 1 << 48 | source << 32 | gpu
        fields = json.dumps({"Name": "", "Fields": [{"Name": name} for name in values]})
        self.row("GENERIC_EVENT_TYPES", typeId=kind, sourceId=kind, data=fields if as_json else None)
        for number, name in enumerate(() if as_json else values):
            self.row("GENERIC_EVENT_TYPE_FIELDS", typeId=kind, fieldIdx=number, fieldNameId=self.string(name))
        for i, sample in enumerate(zip(*values.values(), strict=True)):
            texts = json.dumps(dict(zip(values, map(str, sample), strict=True))) if as_json else None
            event = kind + i * 1000
            self.row("GENERIC_EVENTS", genericEventId=event, timestamp=i * period_ns, typeId=kind, data=texts)
            for number, value in enumerate(() if as_json else sample):
                self.row("GENERIC_EVENT_DATA", genericEventId=event, fieldIdx=number, doubleVal=value)
        return self

    def overhead(self, start: int, dur: int, name: Text = "CUDA profiling data flush", type: int = 1) -> Self:
        """What the profiler itself cost on the current thread."""
        return self.row(
            "PROFILER_OVERHEAD",
            start=start,
            end=start + dur,
            globalTid=self.global_tid,
            nameId=self.string(name),
            returnValue=0,
            overheadType=type,
        )

    def cupti_overhead(self, start: int, dur: int, type: int = 3, name: Text | None = None) -> Self:
        """The same as recorded from schema 3.25 on, where the name may be missing."""
        return self.row(
            "CUPTI_ACTIVITY_KIND_OVERHEAD",
            start=start,
            end=start + dur,
            globalTid=self.global_tid,
            overheadType=type,
            nameId=None if name is None else self.string(name),
        )

    def osrt(self, name: Text, start: int, dur: int) -> Self:
        """An OS runtime call of the current thread."""
        return self.row(
            "OSRT_API",
            start=start,
            end=start + dur,
            eventClass=27,
            globalTid=self.global_tid,
            nameId=self.string(name),
            callchainId=0,
        )

    def diagnostic(self, text: Text, at: int = 0, severity: int = 2) -> Self:
        """What the tool says: severity 1 info, 2 warning, 3 error."""
        return self.row(
            "DIAGNOSTIC_EVENT",
            timestamp=at,
            timestampType=1,
            source=1,
            severity=severity,
            text=text,
            globalPid=self.global_pid,
        )

    def callchain(self, id: int, frames: Iterable[tuple[Text, Text]]) -> Self:
        """A CUDA backtrace, innermost (symbol, module) first, for `call(..., callchain=id)`."""
        return self._frames("CUDA_CALLCHAINS", id, frames)

    def host_sample(
        self, at: int, frames: Iterable[tuple[Text, Text]], *, state: int = 1, cpu: int = 0
    ) -> Self:
        """A CPU sample of the current thread with its call chain."""
        self._chains += 1
        self.row(
            "COMPOSITE_EVENTS",
            id=self._chains,
            start=at,
            cpu=cpu,
            threadState=state,
            globalTid=self.global_tid,
            cpuCycles=1,
        )
        return self._frames("SAMPLING_CALLCHAINS", self._chains, frames)

    def mpi_rank(self, rank: int) -> Self:
        return self.row("MPI_RANKS", globalTid=self.global_tid, rank=rank)

    # ------------------------------------------------------------------ anything else

    def row(self, table: str, /, **values: Any) -> Self:
        """A row of any table. Columns that the schema lacks are left out, as the tool would."""
        self._rows.setdefault(table, []).append(values)
        return self

    def string(self, text: Text) -> int:
        """The id of a text in StringIds. Bytes are stored as they are, UTF-8 or not."""
        return self._strings.setdefault(text, len(self._strings) + 1)

    def without_tables(self, *tables: str) -> Self:
        """Leaves tables out although they have rows."""
        self._absent.update(tables)
        return self

    def empty_tables(self, *tables: str) -> Self:
        """Makes tables appear without rows."""
        self._empty.update(tables)
        return self

    def without_columns(self, table: str, *columns: str) -> Self:
        """Leaves columns out of a table, as older versions do."""
        self._dropped.setdefault(table, set()).update(columns)
        return self

    def add_column(self, table: str, name: str, value: Any = None, type: str = "TEXT") -> Self:
        """A column that a user added afterwards (ALTER TABLE), filled where `value` is given."""
        self._added.setdefault(table, []).append((Column(name, type), value))
        return self

    def write(self, path: str | Path, *, page_size: int = 4096, journal: str = "delete") -> Path:
        """Writes the file and returns its path."""
        path = Path(path)
        db = sqlite3.connect(path)
        db.execute(f"pragma page_size = {page_size}")
        # In memory it leaves the file that `delete` leaves.
        db.execute(f"pragma journal_mode = {'memory' if journal == 'delete' else journal}")
        db.execute("pragma synchronous = off")  # no test survives a loss of power
        db.execute("begin")
        rows = dict(self._rows)
        rows["StringIds"] = [{"id": i, "value": text} for text, i in self._strings.items()]
        for pid, context, stream in sorted(self._streams):
            entry = {"streamId": stream, "processId": pid, "contextId": context, "flag": 1}
            rows.setdefault("TARGET_INFO_CUDA_STREAM", []).append(entry)
        if version(self.schema) >= (3, 0):
            for table, entries in ENUMS.items():
                rows.setdefault(
                    table, [{"id": i, "name": name, "label": label} for i, name, label in entries]
                )
        known = tables_of(self.schema) | self._chosen
        names = [t for t in (*TABLES, *rows) if t in known or t not in TABLES or t in self._empty]
        for table in dict.fromkeys(names):
            filled = [] if table in self._empty else rows.get(table, [])
            if table in self._absent or (not filled and self._lazy and table not in self._empty):
                continue
            self._write_table(db, table, filled)
        db.commit()
        db.close()
        return path

    # ------------------------------------------------------------------ details

    def _work(
        self,
        table: str,
        start: int,
        dur: int,
        stream: int,
        device: int | None,
        correlation: int | None,
        columns: dict[str, Any],
    ) -> Self:
        row = {"start": start, "end": start + dur, **self._place(stream, device, correlation), **columns}
        self._rows.setdefault(table, []).append(row)
        return self

    def _named(self, kernel: Text, short: Text | None, mangled: Text | None) -> tuple[int, int, int]:
        """The ids of a kernel's names, which thousands of launches share."""
        key = kernel, short, mangled
        if short is None:
            short = kernel if isinstance(kernel, bytes) else kernel.split("<")[0].split("(")[0]
        mangled = kernel if mangled is None else mangled
        self._kernels[key] = ids = self.string(kernel), self.string(short), self.string(mangled)
        return ids

    def _place(self, stream: int, device: int | None, correlation: int | None) -> dict[str, Any]:
        context = self.context_id if device is None else device + 1
        self._streams.add((self.pid, context, stream))
        return {
            "deviceId": self.device_id if device is None else device,
            "contextId": context,
            "streamId": stream,
            "correlationId": self.correlation if correlation is None else correlation or None,
            "globalPid": self.global_pid,
        }

    def _frames(self, table: str, id: int, frames: Iterable[tuple[Text, Text]]) -> Self:
        for depth, (symbol, module) in enumerate(frames):
            self.row(table, id=id, symbol=self.string(symbol), module=self.string(module), stackDepth=depth)
        return self

    def _write_table(self, db: sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> None:
        columns = columns_of(table, self.schema) or [
            Column(name, "") for name in dict.fromkeys(name for row in rows for name in row)
        ]
        columns = [c for c in columns if c.name not in self._dropped.get(table, set())]
        keys = [c.quoted for c in columns if c.key]
        lines = [c.declaration(sole_key=len(keys) == 1) for c in columns]
        if len(keys) > 1:
            lines.append(f"PRIMARY KEY ({', '.join(keys)})")
        db.execute(f'create table "{table}" ({", ".join(lines)})')
        said = set().union(*rows)
        columns = [c for c in columns if c.name in said or c.not_null]  # null in all others
        marks = ", ".join("cast(? as text)" if c.type == "TEXT" else "?" for c in columns)
        names = ", ".join(c.quoted for c in columns)
        unsaid = [(c.name, c.value(None)) for c in columns]
        if rows:
            db.executemany(
                f'insert into "{table}" ({names}) values ({marks})',
                ([other if (given := row.get(n)) is None else given for n, other in unsaid] for row in rows),
            )
        for column, value in self._added.get(table, []):
            db.execute(f'alter table "{table}" add column {column.declaration()}')
            if value is not None:
                db.execute(f'update "{table}" set {column.quoted} = ?', (value,))
