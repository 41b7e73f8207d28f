"""NVTX ranges on the GPU: a range there runs from the start of the first operation that it launched
to the end of the last (nvtx_gpu_proj_sum, nvtx_gpu_proj_trace)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from advisor.metrics.stats.launch import enclosing
from advisor.metrics.stats.rows import Query
from advisor.metrics.stats.sums import largest_first, sums, timed_ranges
from advisor.model.arrays import Array


def projected(q: Query) -> pd.DataFrame:
    """The ranges that launched work of the GPU (kernels, copies, memsets, graph runs), a row each: when
    on the GPU and on the host, level among the ranges of the thread, children, parent."""
    ranges = timed_ranges(q).sort_values(["start", "end"], ascending=[True, False], kind="stable")
    ranges["level"], ranges["parent"] = _nesting(ranges)
    children = np.bincount(ranges["parent"].to_numpy()[ranges["parent"] >= 0], minlength=len(ranges))
    ranges["children"] = children
    ops = q.a.ops
    mine = np.flatnonzero((ops.api >= 0) & (True if q.whole else q.a.in_window))
    calls = q.a.trace.columns("api_calls", ("start", "end", "process", "thread"))
    api = ops.api[mine]
    work = {"call_start": "start", "call_end": "end", "process": "process", "thread": "thread"}
    launched = pd.DataFrame({name: calls[column][api] for name, column in work.items()})
    of_range, of_op = enclosing(ranges, launched)
    pairs = pd.DataFrame({"range": of_range, "start": ops.start[mine[of_op]], "end": ops.end[mine[of_op]]})
    found = pairs.groupby("range").agg(
        gpu_start=("start", "min"), gpu_end=("end", "max"), ops=("end", "size")
    )
    rows = ranges.reset_index(drop=True).join(found, how="inner")
    return rows.assign(gpu_ns=rows["gpu_end"] - rows["gpu_start"], id=rows.index + 1)


def _nesting(ranges: pd.DataFrame) -> tuple[Array, Array]:
    """Level (0: outermost) and position of the parent of each range, by start on its thread."""
    level, parent = np.zeros(len(ranges), np.int64), np.full(len(ranges), -1, np.int64)
    end = ranges["end"].to_numpy()
    for positions in ranges.groupby(["process", "thread"]).indices.values():
        open_: list[int] = []
        for i in sorted(np.asarray(positions).tolist()):
            while open_ and end[open_[-1]] < end[i]:
                open_.pop()
            level[i] = len(open_)
            parent[i] = open_[-1] if open_ else -1
            open_.append(i)
    return level, parent


def projection(q: Query) -> pd.DataFrame:
    """Ranges on the GPU by text (nvtx_gpu_proj_sum), largest total first."""
    rows = projected(q)
    by = [rows["label"].rename("Range"), rows["style"].rename("Style")]
    found = sums(rows["gpu_ns"].astype("Int64"), by, "Proj ")
    group = rows.groupby(by, observed=True)
    found["Total Range Time (ns)"] = group["ns"].sum()
    found["Total GPU Ops"], found["Avg GPU Ops"] = group["ops"].sum(), group["ops"].mean()
    found["Avg Range Lvl"], found["Avg Num Child"] = group["level"].mean(), group["children"].mean()
    names = {"Proj Count": "Range Instances", "Proj Total (ns)": "Total Proj Time (ns)"}
    return largest_first(found.rename(columns=names).reset_index(), "Total Proj Time (ns)")


def projection_trace(q: Query) -> pd.DataFrame:
    """The same range by range, in the order of their starts on the GPU (nvtx_gpu_proj_trace)."""
    rows = projected(q).sort_values("gpu_start", kind="stable")
    above = dict(zip(rows["id"], rows["parent"] + 1, strict=True))

    def stack(i: int) -> str:
        return f"{stack(above[i])}:{i}" if i in above else ""

    rows["RangeStack"] = [stack(i) for i in rows["id"]]
    rows["parent"] = (rows["parent"] + 1).astype("Int64").mask(rows["parent"] < 0)
    names = {
        "label": "Name", "gpu_start": "Projected Start (ns)", "gpu_ns": "Projected Duration (ns)",
        "start": "Orig Start (ns)", "ns": "Orig Duration (ns)", "style": "Style", "process": "PID",
        "thread": "TID", "ops": "NumGPUOps", "level": "Lvl", "children": "NumChild", "id": "RangeId",
        "parent": "ParentId",
    }  # fmt: skip
    return rows.rename(columns=names)
