"""Every GPU operation by start (cuda_gpu_trace): launch configuration, bytes, place, name."""

from __future__ import annotations

import pandas as pd

from advisor.metrics.stats.rows import Query
from advisor.metrics.stats.sums import BYTES_PER_MB, MEMSET, copy_operation
from advisor.sources.schema import MISSING

#: Memory kinds in the words of the nsys export, numbered as in `sources.schema`.
MEMORY_KINDS = (
    "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static",
    "Unknown",
)  # fmt: skip

#: Headings of the columns that are taken as they are.
_HEADINGS = {
    "start": "Start (ns)", "ns": "Duration (ns)", "correlation": "CorrId", "grid_x": "GrdX",
    "grid_y": "GrdY", "grid_z": "GrdZ", "block_x": "BlkX", "block_y": "BlkY", "block_z": "BlkZ",
    "registers": "Reg/Trd", "shared_bytes": "SMem (B)", "bytes": "Bytes (B)", "context": "Ctx",
    "stream": "Strm", "name": "Name",
}  # fmt: skip
_KERNEL = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_bytes")
_COLUMNS = {
    "kernels": _KERNEL,
    "copies": ("bytes", "kind", "src_memory", "dst_memory"),
    "memsets": ("bytes", "memory"),
    "graph_runs": ("graph",),
}


def longest(q: Query) -> pd.DataFrame:
    """The same by duration, the longest first."""
    return trace(q).sort_values("Duration (ns)", ascending=False, kind="stable")


def trace(q: Query) -> pd.DataFrame:
    """One row a kernel, copy, memset or graph run. `SMem` is static and dynamic shared memory."""
    place = ("device", "context", "stream", "correlation")
    parts = {table: q.frame(table, *place, *columns) for table, columns in _COLUMNS.items()}
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
    devices = {i: f"{q.a.device(int(i)).name or 'GPU'} ({i})" for i in found["device"].unique()}
    found["Device"] = found["device"].map(devices)
    return found.rename(columns=_HEADINGS)
