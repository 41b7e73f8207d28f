"""Every GPU operation by start (cuda_gpu_trace): launch configuration, bytes, place, name."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.metrics.stats.rows import Query
from advisor.metrics.stats.sums import BYTES_PER_MB, MEMSET_OPERATION, copy_operation
from advisor.model.arrays import Array
from advisor.model.stats import Column, StatsTable
from advisor.sources.schema import MISSING

#: Memory kinds in the words of the nsys export, numbered as in `sources.schema`.
MEMORY_KINDS = (
    "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static",
    "Unknown",
)  # fmt: skip

_PLACE = ("start", "end", "device", "context", "stream", "correlation")
_KERNEL = (
    "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_bytes",
)  # fmt: skip
_TABLES = ("kernels", "copies", "memsets", "graph_runs")


def trace(q: Query) -> StatsTable:
    """One row a kernel, copy, memset or graph run. `SMem` is static and dynamic shared memory."""
    parts = {t: q.columns(t, _PLACE) for t in _TABLES}
    size = {t: len(parts[t]["start"]) for t in _TABLES}
    place = {n: np.concatenate([parts[t][n] for t in _TABLES]) for n in _PLACE}
    duration = place["end"] - place["start"]

    def spread(**found: Array) -> Array:
        """Values of some tables over the rows of all, MISSING elsewhere."""
        return np.concatenate([found.get(t, np.full(size[t], MISSING, np.int64)) for t in _TABLES])

    kernel = q.columns("kernels", _KERNEL)
    copy = q.columns("copies", ("bytes", "kind", "src_memory", "dst_memory"))
    fill = q.columns("memsets", ("bytes", "memory"))
    bytes_ = spread(copies=copy["bytes"], memsets=fill["bytes"])
    rate = bytes_ / BYTES_PER_MB / (np.maximum(duration, 1) / 1e9)
    config = [
        _known(name, spread(kernels=kernel[column]), rank, unit)
        for name, column, rank, unit in zip(
            ("GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ", "Reg/Trd", "SMem"),
            _KERNEL,
            (1, 5, 5, 1, 5, 5, 3, 4),
            ("",) * 7 + ("B",),
            strict=True,
        )
    ]
    order = np.argsort(place["start"], kind="stable")
    columns = (
        Column("Start", place["start"], "ns"),
        Column("Duration", duration, "ns"),
        _known("CorrId", place["correlation"], 6),
        *config,
        _known("Bytes", bytes_, 2, "B"),
        Column("Throughput", rate, "MB/s", 3, 4, absent=bytes_ == MISSING),
        _memory("SrcMemKd", spread(copies=copy["src_memory"])),
        _memory("DstMemKd", spread(copies=copy["dst_memory"], memsets=fill["memory"])),
        Column("Device", _devices(q, place["device"]), rank=6),
        _known("Ctx", place["context"], 6),
        _known("Strm", place["stream"], 1),
        Column("Name", _names(q, copy["kind"], size)),
    )
    return StatsTable("trace", "CUDA GPU trace", tuple(c.take(order) for c in columns))


def _known(name: str, values: Array, rank: int, unit: Any = "") -> Column:
    return Column(name, values, unit, rank=rank, absent=values == MISSING)


def _memory(name: str, kinds: Array) -> Column:
    words = np.array([*MEMORY_KINDS, ""], object)
    inside = (kinds >= 0) & (kinds < len(MEMORY_KINDS))
    return Column(name, words[np.where(inside, kinds, -1)].tolist(), rank=6)


def _devices(q: Query, device: Array) -> list[str]:
    """``NVIDIA H200 (0)``, as `nsys stats` names a device."""
    ids, code = np.unique(device, return_inverse=True)
    texts = [f"{q.a.device(int(i)).name or 'GPU'} ({i})" for i in ids]
    return [texts[i] for i in code.tolist()]


def _names(q: Query, copy_kind: Array, size: dict[str, int]) -> list[str]:
    labels = q.kernels
    out = labels.of(labels.code)
    copies = {k: copy_operation(k) for k in set(copy_kind.tolist())}
    out += [copies[k] for k in copy_kind.tolist()]
    out += [MEMSET_OPERATION] * size["memsets"]
    graph = q.columns("graph_runs", ("graph",))["graph"]
    return out + [f"[CUDA graph {g}]" for g in graph.tolist()]
