"""PyTorch profiler traces (Chrome JSON written by Kineto, torch 1.8 to 2.11) as a `Source`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from advisor.model.arrays import distinct
from advisor.model.capture import Capture, Device, Recorder
from advisor.reading import READING
from advisor.sources.kineto import columns as kineto
from advisor.sources.kineto.decode import Head, Inexact, TraceJson
from advisor.sources.kineto.event_tables import Collector
from advisor.sources.kineto.pieces import LARGE, InPieces, NotPlain
from advisor.sources.ranges import compute_capability, of_device
from advisor.sources.schema import MISSING, Owner, classify, cuda_version
from advisor.sources.trace import TIMELESS, Columns, InMemory, narrowed

#: What Kineto writes for a call without a known name.
_NAMELESS = "INVALID"

#: Of a large trace, settings are looked for within this many bytes.
_HEAD_BYTES = 4 << 20

_BRACKET = re.compile(r"([<>])")


class KinetoJson(InMemory):
    """Fills the tables that the trace has events for, in order of time."""

    def __init__(self, path: Path, shown: Path | None = None) -> None:
        """`shown` is the path the user gave, where `path` is a decompressed copy of it."""
        super().__init__()
        shown = shown or path
        READING.count += path.stat().st_size if path == shown else 0  # a copy is counted while it is unpacked
        self._path = path
        trace, collected = _read(path, shown)
        head = trace.head
        amd = is_amd(head)
        self._tables = tables = collected.tables()
        pool = collected.pool
        zero = 0 if collected.first == kineto.NO_TIME else collected.first
        kineto.from_zero(tables, zero)
        kineto.small_ids(tables)
        if "api_calls" in tables:
            classes = {i: int(classify(text)) for text, i in pool.items()}
            name_id = tables["api_calls"]["name_id"]
            tables["api_calls"]["call"] = np.array(list(classes.values()), np.int64)[name_id]
        if amd:
            kineto.join_by_external_id(tables)
        ranks = kineto.processes_of_ranks(tables)
        processes = kineto.set_processes(tables, ranks)
        kineto.set_launches(tables, pool.get(_NAMELESS, MISSING))
        graphs = kineto.set_graph_nodes(tables)
        if "kernels" in tables:
            _finish_kernels(tables["kernels"], pool, amd)
        complaints = _messages(head)
        if complaints:
            tables["diagnostics"] = {
                "time": np.zeros(len(complaints), np.int64),
                "severity": np.array([severity for severity, _ in complaints], np.int64),
                "text_id": pool.ids([text for _, text in complaints]),
            }
        events = trace.entries
        lost, note = trace.dropped + collected.timeless, self.ledger.note
        for table, count in collected.timeless_rows.items():
            rows = len(tables[table]["start"]) if table in tables else 0
            note("dropped", TIMELESS, table, count, rows + count)
            lost -= count
        note("dropped", "events without a time or of no known shape", "traceEvents", lost, events)
        note("repaired", "values of another type than events have", "traceEvents", trace.loosened, events)
        note("repaired", "durations missing or below 0, read as 0", "traceEvents", collected.negative, events)
        for table, columns in tables.items():
            tables[table] = narrowed(columns)
        self._texts = list(pool)
        self.devices = read_devices(head, _devices_in_use(tables))
        self.capture = read_capture(head, shown, collected, zero, processes, ranks, graphs, trace.dropped)

    def owner(self) -> Owner:
        return Owner(tuple(_settings(_around_the_events(self._path))), self._texts)


def _around_the_events(path: Path) -> Any:
    """What stands around the events, of a large trace before them; nothing if the JSON needs repair."""
    with suppress(ValueError, RecursionError, OSError):
        if path.stat().st_size < LARGE:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
            return {k: msgspec.json.decode(v) for k, v in found.items() if k != "traceEvents"}
        with path.open("rb") as file:
            first = file.read(_HEAD_BYTES)
        return msgspec.json.decode(first[: first.index(b'"traceEvents"')] + b'"traceEvents":[]}')
    return {}


def _settings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Texts in what stands around the events, by their key."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _settings(inside, str(key))
    elif isinstance(value, list):
        for inside in value:
            yield from _settings(inside, name)
    elif isinstance(value, str):
        yield name, value


def _read(path: Path, shown: Path) -> tuple[TraceJson, Collector]:
    """The trace, and all events as columns. Raises InputError for JSON that no PyTorch profiler wrote."""
    if path.stat().st_size >= LARGE:
        with suppress(NotPlain):
            trace = InPieces(path, shown)
            amd = is_amd(trace.head)
            collected = _collect(trace, amd)
            if is_amd(trace.head) == amd:  # nothing behind the events says otherwise
                return trace, collected
    whole = TraceJson(path.read_bytes(), shown)
    return whole, _collect(whole, is_amd(whole.head))


def _collect(trace: TraceJson, external_ids: bool) -> Collector:
    """All events as columns."""
    collected = Collector(external_ids)
    exact = False
    for events, raw in trace.parts():
        if not exact:
            try:
                collected.add(events)
                continue
            except Inexact:
                exact = True  # and so will be the rest
        collected.add(trace.decimals(raw))
    if not collected.categories & kineto.KNOWN:
        raise trace.no_profile()
    return collected


def _devices_in_use(tables: kineto.Tables) -> list[int]:
    columns = [tables[table]["device"] for table in kineto.GPU_WORK if table in tables]
    return sorted({device for ids in columns for device in distinct(ids).tolist()} - {MISSING})


def _finish_kernels(kernels: Columns, pool: kineto.Pool, amd: bool) -> None:
    """Short names; and no grids on AMD, where some calls count blocks, some threads, and graphs have none."""
    texts = list(pool)
    ids, at = np.unique(kernels["name_id"], return_inverse=True)
    kernels["short_name_id"] = pool.ids([short_name(texts[i]) for i in ids.tolist()])[at]
    if amd:
        for name in ("grid_x", "grid_y", "grid_z", "blocks"):
            kernels[name] = np.full(len(at), MISSING, np.int64)


def short_name(kernel: str) -> str:
    """`void at::native::copy<4, float>(int)` -> `copy`, as nsys has it."""
    text = kernel.replace("(anonymous namespace)::", "")
    parts: list[str] = []
    opened: list[int] = []
    for part in _BRACKET.split(text):
        if part == ">" and opened:
            del parts[opened.pop() :]
            continue
        if part == "<":
            opened.append(len(parts))
        parts.append(part)
    text = "".join(parts)
    name = text.partition("(")[0].strip().rpartition(" ")[2].rpartition("::")[2]
    return name or kernel


# --- what a trace says about itself: devices, rank, versions ---------------------------------------

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
    """True if the trace was recorded through ROCm."""
    if head.hip_runtime_version is not None or head.roctracer_version is not None:
        return True
    return any(_AMD.search(str(entry.get("name") or "")) for entry in _entries(head))


def read_devices(head: Head, used: Iterable[int]) -> tuple[Device, ...]:
    """The GPUs listed in the trace, and those that its work ran on. ROCm numbers devices differently in
    events and in the list; an unlisted device is assumed to be like the listed ones if these are all
    alike."""
    amd = is_amd(head)
    devices = {}
    for position, entry in enumerate(_entries(head)):
        number = kineto.integer(entry.get("id", position))
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
    """Everything but the events. `zero` is the file's time of our 0, ns; `ranks` are the processes by the
    number of their rank's label; `dropped` counts invalid entries."""
    begun = zero + max(kineto.integer(head.baseTimeNanoseconds), 0)
    lost = dropped + collected.timeless - collected.timeless_rows.total()
    span = collected.span
    rank, size = _rank(head.distributedInfo)
    labels = sorted(collected.labels, key=kineto.rank_order)
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
        cuda=cuda_version(kineto.integer(head.cuda_runtime_version)),
        options=options,
        trace_sources=tuple(sorted(collected.categories & kineto.KNOWN)),
        graph_trace_mode="node" if graph_nodes else None,
        gpus_listed=len(_entries(head)) if isinstance(head.deviceProperties, list) else None,
        memory_of=tuple(name for d, name in kineto.MEMORY_OF.items() if d in collected.memory_devices),
        rank=rank,
        world_size=size,
        process_ranks=tuple((ranks[n], labels.index(t)) for t, n in collected.labels.items() if n in ranks),
        processes=tuple((pid, collected.processes.get(pid, "")) for pid in sorted(processes)),
        threads=tuple(sorted(collected.threads.items())),
        modules=tuple(sorted(collected.modules)),
        warnings=(f"events without a time or of no known shape, left out: {lost}",) if lost else (),
    )


def _messages(head: Head) -> list[tuple[int, str]]:
    """Warnings and errors of the profiler, as (severity, text)."""
    held = ((severity, getattr(head, name)) for name, severity in _SEVERITY.items())
    listed = ((severity, texts if isinstance(texts, list) else [texts]) for severity, texts in held)
    return [(severity, t) for severity, texts in listed for t in texts if isinstance(t, str) and t]


def _entries(head: Head) -> list[dict[str, Any]]:
    listed = head.deviceProperties or head.computeProperties
    return [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []


def _device(number: int, entry: dict[str, Any], amd: bool) -> Device:
    def first(*names: str) -> int | None:
        values = (kineto.integer(entry[name]) for name in names if name in entry)
        return next((v for v in values if v >= 0), None)

    major, minor = first("computeMajor", "major"), first("computeMinor", "minor")
    # AMD's "compute capability" is part of a gfx number, which kernel names do not carry.
    known = major and minor is not None and not amd
    return Device(
        id=number,
        name=str(entry.get("name") or "") or None,
        sm_count=of_device("sm_count", first("numSms", "multiProcessorCount")),
        memory_bytes=of_device("memory_bytes", first("totalGlobalMem")),
        compute_capability=compute_capability(major, minor) if known else None,
    )


def _rank(info: Any) -> tuple[int | None, int | None]:
    if not isinstance(info, dict):
        return None, None
    rank, size = kineto.integer(info.get("rank")), kineto.integer(info.get("world_size"))
    return (rank if rank >= 0 else None), (size if size > 0 else None)
