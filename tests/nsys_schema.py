"""Tables of nsys SQLite exports through the years, in the order of the real ones.

A column reads `name`, with `!` for NOT NULL, `*` for part of the primary key, `:TEXT` for another
type than INTEGER and `@3.7` for the schema version that brought it (`<3.7`: that took it away).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_WORK = "start! end! deviceId! contextId! greenContextId@3.7 streamId! correlationId globalPid"

TABLES: dict[str, str] = {
    "StringIds": "id!* value!:TEXT",
    "ThreadNames": "nameId! priority globalTid",
    "PROCESSES": "globalPid pid name:TEXT",
    "TARGET_INFO_SYSTEM_ENV": ("globalVid devStateName!:TEXT name!:TEXT nameEnum! value!:TEXT"),
    "TARGET_INFO_SESSION_START_TIME": (
        "utcEpochNs utcTime:TEXT localTime:TEXT systemClockNs@3.25 sessionStartCntVctNs@3.28"
    ),
    "ANALYSIS_DETAILS": "globalVid! duration! startTime! stopTime!",
    "TARGET_INFO_GPU": (
        "vmId! id! name:TEXT busLocation:TEXT isDiscrete l2CacheSize totalMemory memoryBandwidth "
        "clockRate smCount pwGpuId uuid:TEXT luid chipName:TEXT cuDevice computeMajor computeMinor"
    ),
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId! pid! uuid:TEXT numMultiprocessors @3.17",
    "TARGET_INFO_CUDA_STREAM": "streamId! hwId! vmId! processId! contextId! priority! flag!",
    "EXPORT_META_DATA": "name!:TEXT value:TEXT <3.7",
    "META_DATA_EXPORT": "name!:TEXT value:TEXT @3.7",
    "META_DATA_CAPTURE": "name!:TEXT value:TEXT @3.7",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_WORK} demangledName! shortName! mangledName launchType cacheConfig "
        "registersPerThread! gridX! gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! "
        "dynamicSharedMemory! localMemoryPerThread! localMemoryTotal! gridId! sharedMemoryExecuted "
        "graphNodeId sharedMemoryLimitConfig qmdBulkReleaseDone@3.28 qmdPreexitDone@3.28 "
        "qmdLastCtaDone@3.28 graphId@3.25 clusterX@3.25 clusterY@3.25 clusterZ@3.25 "
        "clusterSchedulingPolicy@3.28 maxPotentialClusterSize@3.28 maxActiveClusters@3.28 "
        "sharedMemoryRequestedPercentage@3.28 tensorSizeMinusOneElements!:TEXT@3.25"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_WORK} bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId "
        "dstDeviceId dstContextId migrationCause graphNodeId virtualAddress copyCount@3.17"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_WORK} value! bytes! graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        f"{_WORK} deprecatedSyncType@3.17 syncType! eventId! eventSyncId@3.17"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "timestamp@3.25 deviceId! contextId! greenContextId@3.7 streamId! correlationId globalPid "
        "eventId! eventSyncId@3.17"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_WORK} graphId! graphExecId! @3.0",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": (
        "start! end! eventClass! globalTid correlationId nameId overheadType! @3.25"
    ),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": (
        "start! globalPid! deviceId! contextId! address! pc! bytes! memKind! memoryOperationType! "
        "name:TEXT correlationId streamId@3.7"
    ),
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": (
        "start! globalPid! address! originalFaultPc CpuInstruction! module! unresolvedFaultPc"
    ),
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": (
        "start! end! globalPid! deviceId! address! numberOfPageFaults! faultAccessType!"
    ),
    "CUDA_CALLCHAINS": "id!* symbol! module! unresolved originalIP stackDepth!*",
    "COMPOSITE_EVENTS": "id!* start! cpu threadState globalTid cpuCycles!",
    "SAMPLING_CALLCHAINS": (
        "id!* symbol! module! kernelMode thumbCode unresolved specialEntry originalIP unwindMethod "
        "stackDepth!*"
    ),
    "NVTX_EVENTS": (
        "start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId "
        "domainId uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL "
        "jsonTextId jsonText:TEXT binaryData:TEXT@3.16 eventId!*@3.28"
    ),
    "OSRT_API": (
        "start! end! eventClass! globalTid correlationId nameId! returnValue! nestingLevel callchainId!"
    ),
    "SCHED_EVENTS": "start! cpu! isSchedIn! globalTid threadState@3.7 threadBlock@3.7",
    "GPU_CONTEXT_SWITCH_EVENTS": "tag! vmId! seqNo! contextId! timestamp! globalPid gpuId",
    "PROFILER_OVERHEAD": "start! end! globalTid nameId! returnValue!<3.25 overheadType!@3.25",
    "DIAGNOSTIC_EVENT": "timestamp! timestampType! source! severity! text!:TEXT globalPid",
    "GENERIC_EVENT_SOURCES": "sourceId!* data!:TEXT",
    "GENERIC_EVENT_TYPES": "typeId!* sourceId! nameId!@3.16 data:TEXT",
    "GENERIC_EVENT_TYPE_FIELDS": "typeId! fieldIdx! fieldNameId! offset! size! type! @3.16",
    "GENERIC_EVENTS": "genericEventId!*@3.16 rawTimestamp! timestamp typeId! data:TEXT",
    "GENERIC_EVENT_DATA": "genericEventId! fieldIdx! intVal uintVal floatVal:REAL doubleVal:REAL @3.16",
    "TARGET_INFO_GPU_METRICS": ("typeId! sourceId! typeName!:TEXT metricId! metricName!:TEXT @3.1"),
    "GPU_METRICS": "rawTimestamp!@3.16 timestamp typeId! metricId! value! @3.1",
    "NET_NIC_METRIC": "start! end! globalId! portId! metricsListId! metricsIdx! value! @3.1",
    "TARGET_INFO_NETWORK_METRICS": "metricsListId! metricsIdx! name!:TEXT description!:TEXT unit!:TEXT @3.1",
    "NIC_ID_MAP": "nicId! globalId! @3.1",
    "MPI_RANKS": "globalTid! rank!",
}

#: ENUM tables that readers look into; 2.9 has none.
ENUMS: dict[str, list[tuple[int, str, str]]] = {
    "ENUM_CUDA_MEM_KIND": [
        (number, f"CUDA_MEMOPR_MEMORY_KIND_{name}", name.title())
        for number, name in enumerate(
            ("PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC", "UNKNOWN")
        )
    ],
    # Says one thing while the export's syncType means another, version by version.
    "ENUM_CUPTI_SYNC_TYPE": [
        (1, "EVENT_SYNCHRONIZE", "Event"),
        (2, "STREAM_WAIT_EVENT", "Stream wait"),
        (3, "STREAM_SYNCHRONIZE", "Stream"),
        (4, "CONTEXT_SYNCHRONIZE", "Context"),
    ],
}


class Column(NamedTuple):
    name: str
    type: str = "INTEGER"
    not_null: bool = False
    key: bool = False

    @property
    def quoted(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'

    def declaration(self, sole_key: bool = False) -> str:
        """The column as CREATE TABLE has it; a sole integer key is the table's rowid."""
        words = [self.quoted, self.type]
        words += ["NOT NULL"] * self.not_null + ["PRIMARY KEY"] * (self.key and sole_key)
        return " ".join(words)

    def value(self, given: Any) -> Any:
        """The value to store: what NOT NULL columns hold where a test says nothing."""
        if given is None and self.not_null:
            return "" if self.type == "TEXT" else 0
        return given


_TOKEN = re.compile(
    r"(?P<name>\w+)(?P<marks>[!*]*)(?::(?P<type>\w+))?(?:@(?P<since>[\d.]+))?(?:<(?P<until>[\d.]+))?"
)


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def columns_of(table: str, schema: str) -> list[Column]:
    """The columns of a table in this version; none for a table that is not known here."""
    columns = []
    for token in TABLES.get(table, "").split():
        match = _TOKEN.fullmatch(token)
        if match and _within(schema, match["since"], match["until"]):
            marks = match["marks"]
            columns.append(Column(match["name"], match["type"] or "INTEGER", "!" in marks, "*" in marks))
    return columns


def tables_of(schema: str) -> set[str]:
    """The tables that exist in this version."""
    present = set()
    for table, text in TABLES.items():
        last = text.split()[-1]
        since = last[1:] if last.startswith("@") else None
        until = last[1:] if last.startswith("<") else None
        if _within(schema, since, until):
            present.add(table)
    return present


def _within(schema: str, since: str | None, until: str | None) -> bool:
    now = version(schema)
    return (since is None or now >= version(since)) and (until is None or now < version(until))
