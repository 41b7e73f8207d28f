"""Sums by group, and the summary reports that `nsys stats` has: kernels, API, copies, NVTX, OS.

Rounding and the order of rows are those of `nsys stats` 2023.4: largest total first, equal totals
in the order of the string pool, standard deviation of the sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from advisor.metrics.intervals import Spans, union
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.profiled.stage import Profiled
from advisor.model.arrays import Array
from advisor.model.numbers import session_time
from advisor.sources.schema import MARK, MIGRATIONS, MISSING, PUSH_POP, UNIFIED_DTOH, UNIFIED_HTOD

# --- what `advisor stats` counts: rows of the whole capture or of the window, by kernel name ------

NameStyle = Literal["full", "base", "mangled", "operation"]

_KINDS = {"kernels": Kind.KERNEL, "copies": Kind.COPY, "memsets": Kind.MEMSET, "graph_runs": Kind.GRAPH_RUN}


class Query:
    """One analysis, the rows of it that count, and how kernels are named."""

    def __init__(self, a: Profiled, names: NameStyle = "full", whole: bool = False) -> None:
        """`whole`: count every row of the capture, in the window or not."""
        self.a = a
        self.names = names
        self.whole = whole

    def rows(self, table: str) -> Array:
        """Row numbers of a table that count, ascending.

        GPU work counts if it overlaps the window outside its holes. Host rows belong to the phase in whose
        host ranges they start, because the host runs ahead of the GPU.
        """
        trace = self.a.trace
        if self.whole or not trace.has(table):
            return np.arange(trace.rows(table))
        if table in _KINDS:
            ops = self.a.ops
            return np.sort(ops.row[(ops.kind == _KINDS[table]) & self.a.in_window])
        span = trace.columns(table, ("start", "end"))
        spans = self._phase_host
        if spans is not None:
            inside = spans.holds(span["start"])
        else:
            window = self.a.window
            inside = (span["end"] > window.start) & (span["start"] < window.end)
            if len(window.holes):
                inside &= ~window.holes.holds(span["start"])
        return np.flatnonzero(inside)

    def frame(self, table: str, *columns: str) -> pd.DataFrame:
        """Columns of the rows that count, by row number; `ns` is the time from start to end. Kernels
        have their `name` in the chosen style."""
        found = pd.DataFrame(self.a.trace.columns(table, ("start", "end", *columns)))
        found["ns"] = found["end"] - found["start"]
        if table == "kernels":
            found["name"] = self.all_names
        return found if self.whole else found.loc[self.rows(table)]

    def texts(self, ids: Array | pd.Series) -> Any:
        """A categorical of names in the order of their ids; equal texts are one category."""
        distinct, code = dense(np.asarray(ids))
        first: dict[str, int] = {}
        merged = [first.setdefault(t, len(first)) for t in self.a.trace.texts(distinct.tolist())]
        return pd.Categorical.from_codes(np.array(merged, np.int64)[code], pd.Index(list(first)))

    @cached_property
    def _phase_host(self) -> Spans | None:
        """Host times of the steps of the chosen phase, None if they are unknown."""
        steps, at = self.a.steps, self.a.window_steps
        known = steps.method in ("ranges", "graph launches")
        if not self.a.selection.phase or not known or len(at) == 0:
            return None
        begins = np.append(steps.host_start, max(int(steps.host_end[-1]), steps.host_start[-1] + 1))
        return union(begins[at], begins[at + 1])

    @cached_property
    def all_names(self) -> Any:
        """A categorical of the names of all kernel rows of the capture.

        A row without a base or mangled name goes by its full one, as in `nsys stats`.
        """
        if self.names == "operation":
            named = self.a.names
            return pd.Categorical(np.array(named.operations, object)[named.index])
        ids = self.a.trace.columns("kernels", ("name_id",))["name_id"]
        if self.names != "full":
            column = "short_name_id" if self.names == "base" else "mangled_name_id"
            own = self.a.trace.columns("kernels", (column,))[column]
            ids = np.where(own == MISSING, ids, own)
        return self.texts(ids)

    @property
    def scope(self) -> str:
        """Which part of the capture counts, for the header."""
        if self.whole:
            return "whole capture"
        window, choice = self.a.window, self.a.selection
        kind = "window" if choice.window or choice.nvtx else "steady window"
        phase = f", {choice.phase} steps only" if choice.phase else ""
        return (
            f"{kind} {session_time(window.start)} to {session_time(window.end)} "
            f"({window.method}{phase}; {window.length / 1e6:.3f} ms)"
        )


#: CUpti_ActivityMemcpyKind in the words of the nsys export.
COPY_OPERATIONS = {
    1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host",
    5: "Array-to-Array", 6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device",
    9: "Host-to-Host", 10: "Peer-to-Peer", 11: "Unified Host-to-Device",
    12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
#: The kind of a memset among the kinds of copies.
MEMSET = 1 << 30
BYTES_PER_MB = 1e6

#: Versions of four digits, which the reports of nsys leave out; `_v11060` and `_v2` stay.
_VERSION = re.compile(r"_v\d{4}$")


def sums(values: pd.Series, by: Any, prefix: str = "", unit: str = "ns") -> pd.DataFrame:
    """Statistics of whole numbers (ns or bytes; NA counts as absent) by group, in MB where asked for.

    Columns `Count`, `Total`, `Avg`, `Med`, `Min`, `Max` and `StdDev` with prefix and unit; the
    standard deviation is that of the sample, 0 for one value.
    """
    found = values.groupby(by, observed=True).agg(["count", "sum", "median", "min", "max", "std"])
    found.columns = pd.Index(["Count", "Total", "Med", "Min", "Max", "StdDev"])
    found["Avg"] = (found["Total"] / found["Count"]).mask(found["Count"] == 0)
    found["StdDev"] = found["StdDev"].mask(found["Count"] == 1, 0.0)
    count = found.pop("Count")
    if unit == "MB":
        found /= BYTES_PER_MB
    found.columns = pd.Index([f"{prefix}{name} ({unit})" for name in found])
    found.insert(0, f"{prefix}Count", count)
    return found


def largest_first(found: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rows by a column; equal ones stay in their order."""
    return found.sort_values(column, ascending=False, kind="stable")


def by_time(ns: pd.Series, by: Any, count: str, name: str, text: Callable[[Any], str] = str) -> pd.DataFrame:
    """The usual report: durations in ns by name, with the share of each in the total."""
    found = largest_first(sums(ns, by), "Total (ns)")
    found[name] = [text(i) for i in found.index]
    return _shares(found.rename(columns={"Total (ns)": "Total Time (ns)", "Count": count}))


def _shares(found: pd.DataFrame) -> pd.DataFrame:
    """The report with the share of each row in the total of all."""
    time = found["Total Time (ns)"]
    return found.assign(**{"Time (%)": time * 100.0 / max(int(time.sum()), 1)})


def kernels(query: Query) -> pd.DataFrame:
    """Time of kernels by name (cuda_gpu_kern_sum)."""
    rows = query.frame("kernels")
    found = by_time(rows["ns"], rows["name"], "Instances", "Name")
    runs = len(query.rows("graph_runs"))
    if runs:
        found.attrs["note"] = (
            f"CUDA graph runs recorded as one block, without their kernels: {runs} "
            "(record with --cuda-graph-trace=node)"
        )
    return found


def call_names(query: Query, ids: pd.Series) -> Any:
    """Names of API calls without their version, unless that would make two names equal."""
    names = query.texts(ids)
    short = [_VERSION.sub("", text) for text in names.categories]
    return names.rename_categories(
        [s if short.count(s) == 1 else t for s, t in zip(short, names.categories, strict=True)]
    )


def api(query: Query) -> pd.DataFrame:
    """Time in CUDA API calls by name (cuda_api_sum)."""
    calls = query.frame("api_calls", "name_id")
    return by_time(calls["ns"], call_names(query, calls["name_id"]), "Num Calls", "Name")


def api_gpu(query: Query) -> pd.DataFrame:
    """Time in CUDA API calls and in what they launched, by name (cuda_api_gpu_sum)."""
    calls, kernels = query.frame("api_calls", "name_id"), query.frame("kernels")
    moved = memory_operations(query)
    parts = {
        "CUDA_API": (calls["ns"], call_names(query, calls["name_id"])),
        "CUDA_KERNEL": (kernels["ns"], kernels["name"]),
        "MEMORY_OPER": (moved["ns"], moved["kind"].map(copy_operation)),
    }
    found = [
        by_time(ns, names, "Instances", "Operation").assign(Category=kind)
        for kind, (ns, names) in parts.items()
        if len(ns)
    ]
    if not found:
        return pd.DataFrame()
    return _shares(largest_first(pd.concat(found, ignore_index=True), "Total Time (ns)"))


def collectives(query: Query) -> pd.DataFrame:
    """Time of the kernels of collectives by name, and bytes where they are recorded (nccl_sum).
    Waiting for other ranks is part of it."""
    rows = query.frame("kernels", "process", "correlation")
    shared = query.a.names.mask(lambda k: k.family == "communication")[query.a.names.index[rows.index]]
    rows = rows[shared]
    found = by_time(rows["ns"], rows["name"], "Instances", "Name")
    sizes = pd.DataFrame(query.a.trace.columns("collectives", ("process", "correlation", "bytes")))
    sizes = sizes[sizes["bytes"] >= 0].drop_duplicates(["process", "correlation"])
    if len(sizes):
        known = rows.merge(sizes, on=["process", "correlation"])
        found["Avg (MB)"] = known.groupby("name", observed=True)["bytes"].mean() / BYTES_PER_MB
    return found


def unified(query: Query) -> pd.DataFrame:
    """Migrations of unified memory and page faults by address (um_sum), most moved first."""
    moves = query.frame("copies", "bytes", "kind", "address")
    moves = moves[moves["kind"].isin(MIGRATIONS)]
    faults = query.frame("page_faults", "device", "address", "count")
    by = moves["address"]
    found = pd.DataFrame(index=pd.Index(np.union1d(by.unique(), faults["address"].unique()), name="address"))
    for what, kind in (("HtoD", UNIFIED_HTOD), ("DtoH", UNIFIED_DTOH)):
        size = moves["bytes"].where(moves["kind"] == kind, 0).groupby(by).sum() / BYTES_PER_MB
        found[f"{what} Migration Size (MB)"] = size.reindex(found.index, fill_value=0.0)
    on_gpu = faults["device"] != MISSING
    for what, mine in (("CPU Page Faults", ~on_gpu), ("GPU PageFaults", on_gpu)):
        count = faults["count"].clip(lower=1).where(mine, 0).groupby(faults["address"]).sum()
        found[what] = count.reindex(found.index, fill_value=0).astype(np.int64)
    rate = (
        moves.groupby(by)["bytes"].sum() / BYTES_PER_MB / (moves.groupby(by)["ns"].sum().clip(lower=1) / 1e9)
    )
    found["Migration Throughput (MB/s)"] = rate.reindex(found.index)
    moved = found["HtoD Migration Size (MB)"] + found["DtoH Migration Size (MB)"]
    found = largest_first(found.assign(moved=moved), "moved")
    return found.assign(**{"Virtual Address": [f"0x{max(int(i), 0):x}" for i in found.index]})


def osrt(query: Query) -> pd.DataFrame:
    """Time in OS runtime calls by name (osrt_sum)."""
    calls = query.frame("host_calls", "name_id")
    return by_time(calls["ns"], query.texts(calls["name_id"]), "Num Calls", "Name")


def copies(query: Query) -> pd.DataFrame:
    """Time of copies and memsets by kind (cuda_gpu_mem_time_sum)."""
    rows = memory_operations(query)
    return by_time(rows["ns"], rows["kind"], "Count", "Operation", copy_operation)


def copy_sizes(query: Query) -> pd.DataFrame:
    """Sizes of copies and memsets by kind (cuda_gpu_mem_size_sum); 1 MB is 1,000,000 bytes."""
    rows = memory_operations(query)
    found = largest_first(sums(rows["bytes"].clip(lower=0), rows["kind"], unit="MB"), "Total (MB)")
    return found.assign(Operation=[copy_operation(kind) for kind in found.index])


def memory_operations(query: Query) -> pd.DataFrame:
    """Copies and memsets with `kind`, `ns` and `bytes` (MISSING if unknown)."""
    fills = query.frame("memsets", "bytes").assign(kind=MEMSET)
    return pd.concat([query.frame("copies", "bytes", "kind"), fills], ignore_index=True)


def copy_operation(kind: int) -> str:
    """How `nsys stats` names a copy: ``[CUDA memcpy Host-to-Device]``."""
    return "[CUDA memset]" if kind == MEMSET else f"[CUDA memcpy {COPY_OPERATIONS.get(kind, 'Unknown')}]"


def nvtx(query: Query) -> pd.DataFrame:
    """Time of NVTX ranges by text (nvtx_sum): host time, nested ranges counted in full."""
    rows = timed_ranges(query)
    keys = [rows["text"], rows["style"], rows["domain"]]
    label = rows.groupby(keys, observed=True)["label"].first()
    found = by_time(rows["ns"], keys, "Instances", "Range", lambda key: str(label[key]))
    return found.reset_index("style").rename(columns={"style": "Style"})


def nvtx_pushpop(query: Query) -> pd.DataFrame:
    """The same for ranges that were pushed and popped (nvtx_pushpop_sum)."""
    found = nvtx(query)
    return _shares(found[found["Style"] == "PushPop"] if len(found) else found)


def timed_ranges(query: Query) -> pd.DataFrame:
    """NVTX ranges that count, without marks. A range goes by its text (`label`), and by its domain
    as well where several domains have one text: captures hold domains by number only."""
    rows = query.frame("ranges", "process", "thread", "domain", "text_id", "style")
    rows = rows[rows["style"] != MARK]
    text = query.texts(rows["text_id"])
    several = rows.groupby(text, observed=True)["domain"].transform("nunique") > 1
    domain = " (domain " + rows["domain"].astype(str) + ")"
    label = pd.Series(text, rows.index).astype(object) + domain.where(several, "")
    style = np.where(rows["style"] == PUSH_POP, "PushPop", "StartEnd")
    return rows.assign(text=text, label=label, style=style)


# --- every GPU operation by start (cuda_gpu_trace): launch configuration, bytes, place, name ------

#: Memory kinds in the words of the nsys export, numbered as in `sources.schema`.
MEMORY_KINDS = (
    "Pageable",
    "Pinned",
    "Device",
    "Array",
    "Managed",
    "Device Static",
    "Managed Static",
    "Unknown",
)

#: Headings of the columns that are taken as they are.
_HEADINGS = {
    "start": "Start (ns)",
    "ns": "Duration (ns)",
    "correlation": "CorrId",
    "grid_x": "GrdX",
    "grid_y": "GrdY",
    "grid_z": "GrdZ",
    "block_x": "BlkX",
    "block_y": "BlkY",
    "block_z": "BlkZ",
    "registers": "Reg/Trd",
    "shared_bytes": "SMem (B)",
    "bytes": "Bytes (B)",
    "context": "Ctx",
    "stream": "Strm",
    "name": "Name",
}
_KERNEL = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_bytes")
_COLUMNS = {
    "kernels": _KERNEL,
    "copies": ("bytes", "kind", "src_memory", "dst_memory"),
    "memsets": ("bytes", "memory"),
    "graph_runs": ("graph",),
}


def longest(query: Query) -> pd.DataFrame:
    """The same by duration, the longest first."""
    return trace(query).sort_values("Duration (ns)", ascending=False, kind="stable")


def trace(query: Query) -> pd.DataFrame:
    """One row a kernel, copy, memset or graph run. `SMem` is static and dynamic shared memory."""
    place = ("device", "context", "stream", "correlation")
    parts = {table: query.frame(table, *place, *columns) for table, columns in _COLUMNS.items()}
    parts["kernels"]["name"] = parts["kernels"]["name"].astype(object)
    parts["copies"]["name"] = parts["copies"]["kind"].map(copy_operation)
    parts["memsets"]["name"] = copy_operation(MEMSET)
    parts["graph_runs"]["name"] = "[CUDA graph " + parts["graph_runs"]["graph"].astype(str) + "]"
    wanted = list(dict.fromkeys(str(c) for part in parts.values() for c in part if c not in ("name", "kind")))
    found = pd.concat([part.astype({c: "Int64" for c in part if c in wanted}) for part in parts.values()])
    found = found.sort_values("start", kind="stable")
    optional = [c for c in wanted if c not in ("start", "end", "ns", "device")]
    found[optional] = found[optional].mask(found[optional] == MISSING)
    seconds = found["ns"].clip(lower=1) / 1e9
    found["Throughput (MB/s)"] = found["bytes"] / BYTES_PER_MB / seconds
    kinds = dict(enumerate(MEMORY_KINDS))
    found["SrcMemKd"] = found["src_memory"].map(kinds).fillna("")
    found["DstMemKd"] = found["dst_memory"].fillna(found["memory"]).map(kinds).fillna("")
    # As `nsys stats` names a device: ``NVIDIA H200 (0)``.
    devices = {i: f"{query.a.device(int(i)).name or 'GPU'} ({i})" for i in found["device"].unique()}
    found["Device"] = found["device"].map(devices)
    return found.rename(columns=_HEADINGS)
