"""PyTorch profiler traces (Chrome JSON written by Kineto, torch 1.8 to 2.11) as a `Source`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from advisor.model.arrays import distinct
from advisor.reading import READING
from advisor.sources.calls import classify
from advisor.sources.kineto import join as kineto_join
from advisor.sources.kineto import metadata as kineto_metadata
from advisor.sources.kineto.columns import FOREIGN, NO_TIME, ROLES, Pool
from advisor.sources.kineto.decode import Inexact, TraceJson
from advisor.sources.kineto.join import GPU_WORK, Tables
from advisor.sources.kineto.tables import Collector
from advisor.sources.schema import MISSING
from advisor.sources.trace import Columns, InMemory

#: What Kineto writes for a call that it has no name for.
_NAMELESS = "INVALID"

_BRACKET = re.compile(r"([<>])")


class KinetoJson(InMemory):
    """Fills the tables that the trace has events for, in order of time."""

    def __init__(self, path: Path, shown: Path | None = None) -> None:
        """`shown` is the path the user gave, where `path` is a decompressed copy of it."""
        super().__init__()
        shown = shown or path
        data = path.read_bytes()
        READING.count += len(data) if path == shown else 0  # a copy is counted while it is unpacked
        trace = TraceJson(data, shown)
        del data
        head = trace.head
        amd = kineto_metadata.is_amd(head)
        collected = _collect(trace, amd)
        self._tables = tables = collected.tables()
        pool = collected.pool
        zero = 0 if collected.first == NO_TIME else collected.first
        kineto_join.from_zero(tables, zero)
        kineto_join.small_ids(tables)
        if "api_calls" in tables:
            classes = {i: int(classify(text)) for text, i in pool.items()}
            name_id = tables["api_calls"]["name_id"]
            tables["api_calls"]["call"] = np.array(list(classes.values()), np.int64)[name_id]
        if amd:
            kineto_join.join_by_external_id(tables)
        ranks = kineto_join.processes_of_ranks(tables)
        processes = kineto_join.set_processes(tables, ranks)
        kineto_join.set_launches(tables, pool.get(_NAMELESS, MISSING))
        graphs = kineto_join.set_graph_nodes(tables)
        if "kernels" in tables:
            _finish_kernels(tables["kernels"], pool, amd)
        complaints = kineto_metadata.messages(head)
        if complaints:
            tables["diagnostics"] = {
                "time": np.zeros(len(complaints), np.int64),
                "severity": np.array([severity for severity, _ in complaints], np.int64),
                "text_id": pool.ids([text for _, text in complaints]),
            }
        events = len(head.traceEvents or ())
        lost, note = trace.dropped + collected.timeless, self.ledger.note
        note("dropped", "events without a time or of no known shape", "traceEvents", lost, events)
        note("repaired", "values of another type than events have", "traceEvents", trace.loosened, events)
        note("repaired", "durations missing or below 0, read as 0", "traceEvents", collected.negative, events)
        self._texts = list(pool)
        self.devices = kineto_metadata.read_devices(head, _devices_in_use(tables))
        self.capture = kineto_metadata.read_capture(
            head, shown, collected, zero, processes, ranks, graphs, trace.dropped
        )


def _collect(trace: TraceJson, external_ids: bool) -> Collector:
    """All events as columns. Raises InputError for JSON that no PyTorch profiler wrote."""
    collected = Collector(external_ids)
    exact = False
    for events, raw in trace.parts():
        if not exact:
            try:
                collected.add(events)
                continue
            except Inexact:
                exact = True  # and so will be all that follows
        collected.add(trace.decimals(raw))
    if not collected.categories & (ROLES.keys() | FOREIGN):
        raise trace.no_profile()
    return collected


def _devices_in_use(tables: Tables) -> list[int]:
    found: set[int] = set()
    for table in GPU_WORK:
        if table in tables:
            found.update(distinct(tables[table]["device"]).tolist())
    return sorted(found - {MISSING})


def _finish_kernels(kernels: Columns, pool: Pool, amd: bool) -> None:
    """Short names; and no grids on AMD, where some launch calls count them in blocks, some in
    threads, and kernels of graphs have none."""
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
