"""Reports that join kernels to the API calls that launched them: launch path, NVTX and kernels.

Both have the columns, row order and attribution of `nsys stats` 2023.4.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from advisor.metrics.loaded.operations import Kind
from advisor.metrics.stats.summaries import Query, call_names, largest_first, sums, timed_ranges
from advisor.model.arrays import Array

# --- NVTX ranges on the GPU: a range there runs from the start of the first operation that it
# launched to the end of the last (nvtx_gpu_proj_sum, nvtx_gpu_proj_trace)


def projected(query: Query) -> pd.DataFrame:
    """The ranges that launched work of the GPU (kernels, copies, memsets, graph runs), a row each: when
    on the GPU and on the host, level among the ranges of the thread, children, parent."""
    ranges = timed_ranges(query).sort_values(["start", "end"], ascending=[True, False], kind="stable")
    ranges["level"], ranges["parent"] = _nesting(ranges)
    ranges["children"] = np.bincount(ranges["parent"][ranges["parent"] >= 0], minlength=len(ranges))
    ops = query.a.ops
    mine = np.flatnonzero((ops.api >= 0) & (True if query.whole else query.a.in_window))
    calls = query.a.trace.columns("api_calls", ("start", "end", "process", "thread"))
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


def projection(query: Query) -> pd.DataFrame:
    """Ranges on the GPU by text (nvtx_gpu_proj_sum), largest total first."""
    rows = projected(query)
    by = [rows["label"].rename("Range"), rows["style"].rename("Style")]
    found = sums(rows["gpu_ns"].astype("Int64"), by, "Proj ")
    group = rows.groupby(by, observed=True)
    found["Total Range Time (ns)"] = group["ns"].sum()
    found["Total GPU Ops"], found["Avg GPU Ops"] = group["ops"].sum(), group["ops"].mean()
    found["Avg Range Lvl"], found["Avg Num Child"] = group["level"].mean(), group["children"].mean()
    names = {"Proj Count": "Range Instances", "Proj Total (ns)": "Total Proj Time (ns)"}
    return largest_first(found.rename(columns=names).reset_index(), "Total Proj Time (ns)")


def projection_trace(query: Query) -> pd.DataFrame:
    """The same range by range, in the order of their starts on the GPU (nvtx_gpu_proj_trace)."""
    rows = projected(query).sort_values("gpu_start", kind="stable")
    above = dict(zip(rows["id"], rows["parent"] + 1, strict=True))

    def stack(i: int) -> str:
        return f"{stack(above[i])}:{i}" if i in above else ""

    rows["RangeStack"] = [stack(i) for i in rows["id"]]
    rows["parent"] = (rows["parent"] + 1).astype("Int64").mask(rows["parent"] < 0)
    names = {
        "label": "Name",
        "gpu_start": "Projected Start (ns)",
        "gpu_ns": "Projected Duration (ns)",
        "start": "Orig Start (ns)",
        "ns": "Orig Duration (ns)",
        "style": "Style",
        "process": "PID",
        "thread": "TID",
        "ops": "NumGPUOps",
        "level": "Lvl",
        "children": "NumChild",
        "id": "RangeId",
        "parent": "ParentId",
    }
    return rows.rename(columns=names)


def launched(query: Query) -> pd.DataFrame:
    """Kernels whose launching call was recorded, in the order of the file, with that call (`call_start`,
    `call_end`, `process`, `thread`, `api`)."""
    ops = query.a.ops
    kernel = ops.kind == Kind.KERNEL
    rows = query.frame("kernels", "device")
    rows["call"] = pd.Series(ops.api[kernel], ops.row[kernel]).reindex(rows.index, fill_value=-1)
    rows = rows[rows["call"] >= 0]
    calls = pd.DataFrame(query.a.trace.columns("api_calls", ("start", "end", "process", "thread", "name_id")))
    calls = calls.rename(columns={"start": "call_start", "end": "call_end"})
    rows = rows.join(calls.loc[np.unique(rows["call"])], on="call")
    return rows.assign(api=call_names(query, rows["name_id"]))


def launch(query: Query) -> pd.DataFrame:
    """Call, queue and kernel time by kernel, thread and device (cuda_kern_exec_sum).

    The queue time of a kernel runs from the end of its call to its start. A kernel that started
    earlier has none and is left out of the queue columns; `QCount` counts the others. The total
    runs from the start of the call until both call and kernel have ended.
    """
    rows = launched(query)
    queue = (rows["start"] - rows["call_end"]).astype("Int64")
    times = {
        "T": rows[["end", "call_end"]].max(axis=1) - rows["call_start"],
        "A": rows["call_end"] - rows["call_start"],
        "Q": queue.mask(queue < 0),
        "K": rows["ns"],
    }
    keys = {"PID": "process", "TID": "thread", "DevId": "device", "API Name": "api", "Kernel Name": "name"}
    by = [rows[column].rename(head) for head, column in keys.items()]
    found = pd.concat([sums(ns, by, prefix) for prefix, ns in times.items()], axis=1)
    found = largest_first(found.reset_index().rename(columns={"TCount": "Count"}), "TAvg (ns)")
    lost = len(query.rows("kernels")) - len(rows)
    if lost:
        found.attrs["note"] = f"kernels left out because the call that launched them was not recorded: {lost}"
    return found


def launch_trace(query: Query) -> pd.DataFrame:
    """The same launch by launch, in the order of the calls (cuda_kern_exec_trace); a kernel that began
    before its call returned was not in the queue."""
    shape = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
    rows = launched(query).sort_values("call_start", kind="stable")
    text = (
        pd.DataFrame(query.a.trace.columns("kernels", shape)).loc[rows.index].map("{:4d}".format).astype(str)
    )
    waited = (rows["start"] > rows["call_end"]).to_numpy()
    ends = rows[["end", "call_end"]].max(axis=1)
    return pd.DataFrame(
        {
            "API Start (ns)": rows["call_start"],
            "API Dur (ns)": rows["call_end"] - rows["call_start"],
            "Queue Start (ns)": rows["call_end"].astype("Int64").where(waited),
            "Queue Dur (ns)": (rows["start"] - rows["call_end"]).astype("Int64").where(waited),
            "Kernel Start (ns)": rows["start"],
            "Kernel Dur (ns)": rows["ns"],
            "Total Dur (ns)": ends - rows["call_start"],
            "PID": rows["process"],
            "TID": rows["thread"],
            "DevId": rows["device"],
            "API Function": rows["api"],
            "GridXYZ": text["grid_x"] + " " + text["grid_y"] + " " + text["grid_z"],
            "BlockXYZ": text["block_x"] + " " + text["block_y"] + " " + text["block_z"],
            "Kernel Name": rows["name"],
        }
    )


def nvtx_kernels(query: Query) -> pd.DataFrame:
    """Kernels by the NVTX ranges that launched them (nvtx_kern_sum).

    A kernel belongs to every range of its thread whose time encloses the launching call, so it
    counts in a range and in all ranges around that one. `NVTX Inst` counts the ranges of that
    text which launched the kernel.
    """
    rows, ranges = launched(query), timed_ranges(query)
    in_range, of_kernel = enclosing(ranges, rows)
    pairs = rows.iloc[of_kernel].reset_index(drop=True)
    pairs[["Style", "domain", "NVTX Range"]] = ranges[["style", "domain", "label"]].to_numpy()[in_range]
    pairs["range"] = in_range
    keys = {"PID": "process", "TID": "thread", "Kernel Name": "name"}
    by = [pairs["NVTX Range"], pairs["Style"], *(pairs[c].rename(head) for head, c in keys.items())]
    found = sums(pairs["ns"], by)
    found["NVTX Inst"] = pairs.groupby(by, observed=True)["range"].nunique()
    found = found.rename(columns={"Total (ns)": "Total Time (ns)", "Count": "Kern Inst"}).reset_index()
    order = ["NVTX Range", "Style", "PID", "TID", "Total Time (ns)"]
    return found.sort_values(order, ascending=[True] * 4 + [False], kind="stable")


def enclosing(ranges: pd.DataFrame, calls: pd.DataFrame) -> tuple[Array, Array]:
    """Positions of (range, call) pairs in which the range's time (`start`, `end`) encloses the call
    (`call_start`, `call_end`), both ends included, on one thread of one process."""
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    of_thread = ranges.groupby(["process", "thread"]).indices
    for thread, positions in calls.groupby(["process", "thread"]).indices.items():
        if thread not in of_thread:
            continue
        mine, at = np.asarray(of_thread[thread]), np.asarray(positions)
        at = at[np.argsort(calls["call_start"].to_numpy()[at], kind="stable")]
        start, end = (ranges[c].to_numpy()[mine] for c in ("start", "end"))
        call_start, call_end = (calls[c].to_numpy()[at] for c in ("call_start", "call_end"))
        first = np.searchsorted(call_start, start, "left")
        count = np.maximum(np.searchsorted(call_start, end, "right") - first, 0)
        one = np.repeat(np.arange(len(mine)), count)
        call = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count - first, count)
        inside = call_end[call] <= end[one]
        found.append((mine[one][inside], at[call[inside]]))
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])
