"""The reports of `advisor stats`: one table each, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import cast, get_args

import pandas as pd
from msgspec import Struct

from advisor.errors import InputError, near
from advisor.knowledge.files import nsys_rules
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stats import launch, operators, spread, summaries
from advisor.metrics.stats.summaries import NameStyle, Query
from advisor.model.stats_table import StatsTable

Ranks = dict[str, int]
Needs = dict[str, tuple[str, ...]]


def _statistics(ranks: str, prefix: str = "", unit: str = "ns") -> Ranks:
    names = ("Avg", "Med", "Min", "Max", "StdDev")
    return {f"{prefix}{n} ({unit})": int(r) for n, r in zip(names, ranks, strict=True)}


def _times(count: str, **last: int) -> Ranks:
    return {"Time (%)": 0, "Total Time (ns)": 0, count: 0, **_statistics("01324"), **last}


def _ranks(text: str) -> Ranks:
    """Columns from ``heading rank, heading rank``."""
    pairs = (part.strip().rpartition(" ") for part in text.split(","))
    return {heading: int(rank) for heading, _, rank in pairs}


class Report(Struct, frozen=True):
    """How to make a report. `columns` maps its columns, in the order of `nsys stats`, to their rank
    (see `StatsTable`); columns of rank 6 are for programs only.

    It needs rows in one table of each of `needs` (description -> tables); `flag` is the nsys option
    that records them. A `steady` report looks at the steady window, the others at the whole capture,
    unless the user names a part. `nsys` is the name of its twin in nsys.
    """

    title: str
    make: Callable[[Query], pd.DataFrame]
    columns: Ranks
    needs: Needs
    flag: str
    nsys: str = ""
    steady: bool = False
    group: str = ""


_CUDA = "--trace=cuda"
_NODES = f"{_CUDA} --cuda-graph-trace=node"
_KERNELS: Needs = {"kernels": ("kernels",)}
_CALLS: Needs = {"CUDA API calls": ("api_calls",)}
_MEMORY: Needs = {"copies or memsets": ("copies", "memsets")}
_RANGES: Needs = {"NVTX ranges": ("ranges",)}
_WORK: Needs = {"GPU work": ("kernels", "copies", "memsets", "graph_runs")}
_OS: Needs = {"OS runtime calls": ("host_calls",)}

_TAIL = _ranks(
    "Count 0, P50 (ns) 0, P95 (ns) 0, P99 (ns) 0, Max (ns) 0, Tail (ns) 0, Max/P50 (x) 0, P99/P50 (x) 3, "
    "Share (%) 2, Flag 6, Slow 5, Alone (%) 6"
)
for _what in spread.COINCIDES.values():
    _TAIL |= {f"{_what} (%)": 6, f"{_what} of All (%)": 6}
_TAIL |= _ranks("Device 6, Grid 6, Block 6, Place 6, Places 6, Prev Kernel 6, Name 0")
_LAUNCH = _ranks("PID 5, TID 5, DevId 5, Count 0, QCount 3")
for _prefix in "TAQK":
    _LAUNCH |= _statistics("05354" if _prefix == "T" else "14354", _prefix)
_LAUNCH |= {"API Name": 2, "Kernel Name": 0}

_TRACE = _ranks(
    "Start (ns) 0, Duration (ns) 0, CorrId 6, GrdX 1, GrdY 5, GrdZ 5, BlkX 1, BlkY 5, BlkZ 5, "
    "Reg/Trd 3, SMem (B) 4, Bytes (B) 2, Throughput (MB/s) 4, SrcMemKd 6, DstMemKd 6, Device 6, "
    "Ctx 6, Strm 1, Name 0"
)

REPORTS: dict[str, Report] = {
    "kernels": Report(
        "CUDA GPU kernel summary",
        summaries.kernels,
        _times("Instances", Name=0),
        _KERNELS,
        _NODES,
        "cuda_gpu_kern_sum",
    ),
    "tail": Report("CUDA GPU kernel tails", spread.tail, _TAIL, _KERNELS, _NODES, steady=True),
    "api": Report(
        "CUDA API summary", summaries.api, _times("Num Calls", Name=0), _CALLS, _CUDA, "cuda_api_sum"
    ),
    "launch": Report(
        "CUDA kernel launch and execution summary",
        launch.launch,
        _LAUNCH,
        _KERNELS | _CALLS,
        _NODES,
        "cuda_kern_exec_sum",
    ),
    "copies": Report(
        "CUDA GPU memory operations by time",
        summaries.copies,
        _times("Count", Operation=0),
        _MEMORY,
        _CUDA,
        "cuda_gpu_mem_time_sum",
    ),
    "copy-sizes": Report(
        "CUDA GPU memory operations by size",
        summaries.copy_sizes,
        {"Total (MB)": 0, "Count": 0, **_statistics("01123", unit="MB"), "Operation": 0},
        _MEMORY,
        _CUDA,
        "cuda_gpu_mem_size_sum",
    ),
    "nvtx": Report(
        "NVTX range summary",
        summaries.nvtx,
        _times("Instances", Style=4, Range=0),
        _RANGES,
        "--trace=nvtx",
        "nvtx_sum",
    ),
    "nvtx-kernels": Report(
        "NVTX range kernel summary",
        launch.nvtx_kernels,
        _ranks("NVTX Range 0, Style 5, PID 5, TID 5, NVTX Inst 3, Kern Inst 0, Total Time (ns) 0")
        | _statistics("02314")
        | {"Kernel Name": 0},
        _RANGES | _KERNELS | _CALLS,
        "--trace=cuda,nvtx",
        "nvtx_kern_sum",
    ),
    "nvtx-pushpop": Report(
        "NVTX push and pop range summary",
        summaries.nvtx_pushpop,
        _times("Instances", Range=0),
        _RANGES,
        "--trace=nvtx",
        "nvtx_pushpop_sum",
    ),
    "nvtx-gpu": Report(
        "NVTX ranges on the GPU",
        launch.projection,
        _ranks("Range 0, Style 5, Total Proj Time (ns) 0, Total Range Time (ns) 1, Range Instances 0")
        | _statistics("02314", "Proj ")
        | _ranks("Total GPU Ops 2, Avg GPU Ops 3, Avg Range Lvl 5, Avg Num Child 5"),
        _RANGES | _WORK | _CALLS,
        "--trace=cuda,nvtx",
        "nvtx_gpu_proj_sum",
    ),
    "nvtx-gpu-trace": Report(
        "NVTX ranges on the GPU, one by one",
        launch.projection_trace,
        _ranks(
            "Name 0, Projected Start (ns) 0, Projected Duration (ns) 0, Orig Start (ns) 3, "
            "Orig Duration (ns) 1, Style 5, PID 5, TID 5, NumGPUOps 2, Lvl 4, NumChild 5, RangeId 5, "
            "ParentId 5, RangeStack 6"
        ),
        _RANGES | _WORK | _CALLS,
        "--trace=cuda,nvtx",
        "nvtx_gpu_proj_trace",
    ),
    "api-gpu": Report(
        "CUDA API and GPU summary",
        summaries.api_gpu,
        _times("Instances", Category=1, Operation=0),
        _WORK | _CALLS,
        _CUDA,
        "cuda_api_gpu_sum",
    ),
    "launch-trace": Report(
        "CUDA kernel launch and execution trace",
        launch.launch_trace,
        _ranks(
            "API Start (ns) 0, API Dur (ns) 0, Queue Start (ns) 5, Queue Dur (ns) 0, Kernel Start (ns) 2, "
            "Kernel Dur (ns) 0, Total Dur (ns) 3, PID 5, TID 5, DevId 5, API Function 4, GridXYZ 3, "
            "BlockXYZ 5, Kernel Name 0"
        ),
        _KERNELS | _CALLS,
        _NODES,
        "cuda_kern_exec_trace",
    ),
    "collectives": Report(
        "Collectives by kernel",
        summaries.collectives,
        _times("Instances", **{"Avg (MB)": 1, "Name": 0}),
        _KERNELS,
        _NODES,
        "nccl_sum",
    ),
    "operators": Report(
        "Operators and what they reach",
        operators.operators,
        _ranks(
            "Time (%) 0, Total Time (ns) 0, Calls 0, Avg (ns) 3, GFLOP 5, MB 5, TFLOP/s 0, GB/s 0, "
            "Of Peak (%) 1, Of Peak At Most (%) 6, Of DRAM (%) 2, Roofline (%) 1, Type 3, Family 6, "
            "Shape 1, Operator 0"
        ),
        _KERNELS,
        "torch.profiler.profile(record_shapes=True)",
        steady=True,
    ),
    "unified": Report(
        "Unified memory by address",
        summaries.unified,
        _ranks(
            "Virtual Address 0, HtoD Migration Size (MB) 0, DtoH Migration Size (MB) 0, CPU Page Faults 0, "
            "GPU PageFaults 0, Migration Throughput (MB/s) 1"
        ),
        {"migrations or page faults of unified memory": ("copies", "page_faults")},
        "--cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true",
        "um_sum",
    ),
    "longest": Report("CUDA GPU trace by duration", summaries.longest, _TRACE, _WORK, _CUDA),
    "modules": Report(
        "GPU time by Python module",
        spread.modules,
        _ranks("Module 0, GPU Ops 2, Self (ns) 0, Total (ns) 0, Total (%) 0, Level 6"),
        {"Python modules": ("modules",)},
        "torch.profiler.profile(with_stack=True)",
        steady=True,
    ),
    "layers": Report(
        "Kernel time by layer",
        spread.layers,
        _ranks("Layer 0, Steps 3, Total (ns) 0, Share (%) 1, Attention (ns) 0, FFN (ns) 0, Other (ns) 0"),
        _KERNELS,
        _NODES,
        steady=True,
    ),
    "heatmap": Report(
        "Activity over time",
        spread.heatmap,
        _ranks("Lane 0, Start (ns) 0, End (ns) 0, Busy (%) 0, Device 6"),
        _WORK,
        _CUDA,
        "cuda_gpu_time_util_map",
        steady=True,
        group="Lane",
    ),
    "osrt": Report(
        "OS runtime summary", summaries.osrt, _times("Num Calls", Name=0), _OS, "--trace=osrt", "osrt_sum"
    ),
    "trace": Report("CUDA GPU trace", summaries.trace, _TRACE, _WORK, _CUDA, "cuda_gpu_trace"),
    "histogram": Report(
        "CUDA GPU kernel duration histogram",
        spread.histogram,
        _ranks("Low (ns) 0, High (ns) 0, Count 0, Share (%) 0, Name 0"),
        _KERNELS,
        _NODES,
        "cuda_gpu_kern_hist",
        steady=True,
        group="Name",
    ),
    "pace": Report(
        "Pace of steps and kernels",
        spread.pace,
        _ranks(
            "Count 0, Avg (ns) 0, StdDev (ns) 0, Min (ns) 0, Med (ns) 1, Max (ns) 0, Kind 3, Device 2, Name 0"
        ),
        _WORK,
        _CUDA,
        "cuda_gpu_kern_pace",
        steady=True,
    ),
    "budget": Report(
        "Budget of the window",
        spread.budget,
        _ranks("Device 0, Phase 0, Part 0, Time (ns) 0, Share (%) 0"),
        _WORK,
        _CUDA,
        steady=True,
    ),
}


def report_names(given: list[str]) -> list[str]:
    """Names of reports from ``A,B`` lists, each once; nsys' own names are understood, and a style of
    kernel names behind a colon (``cuda_gpu_kern_sum:base``).

    Raises InputError for an unknown report or style.
    """
    twins = {r.nsys: name for name, r in REPORTS.items() if r.nsys}
    found = []
    for word in (w for text in given for w in text.split(",") if w):
        word, colon, style = word.partition(":")
        if colon and style not in get_args(NameStyle):
            raise InputError(
                f"--report: invalid names '{style}'; expected one of {', '.join(get_args(NameStyle))}"
            )
        name = twins.get(word, word)
        if name not in REPORTS:
            raise InputError(f"--report: unknown report '{word}'; {_meant(word, [*twins, *REPORTS])}")
        found.append(name + colon + style)
    return list(dict.fromkeys(found))


def _meant(word: str, known: Sequence[str]) -> str:
    """What an unknown name of a report may mean: a question that rules answer, a name of nsys that has all
    its parts in their order (`cuda_kern_sum`, `kern_sum`), or the most similar one."""
    if (cause := nsys_rules().get(word.lower())) is not None:
        return f"a rule answers it: `advisor explain {cause} --trace TRACE`"
    parts = [p for p in re.split(r"[^a-z0-9]+", word.lower()) if p]
    having = (name for name in known if parts and _in_order(parts, name.split("_")))
    if (best := next(having, None)) is not None:
        return f"did you mean '{best}'?"
    return near(word, known, f"expected one of {', '.join(REPORTS)}")


def _in_order(parts: Sequence[str], of: Sequence[str]) -> bool:
    left = iter(of)
    return all(part in left for part in parts)


def make_report(a: Profiled, name: str, names: NameStyle = "full") -> StatsTable:
    """One report of a trace. An empty one says why."""
    plain, _, style = name.partition(":")
    report, choice = REPORTS[plain], a.selection
    named = choice.window or choice.nvtx or choice.phase
    query = Query(a, cast(NameStyle, style or names), whole=not report.steady and not named)
    frame = report.make(query)
    notes = [frame.attrs["note"]] if "note" in frame.attrs else []
    if frame.empty:
        absent = [what for what, tables in report.needs.items() if not any(map(a.trace.has, tables))]
        if absent:
            what = " and no ".join(absent)
            by = "nsys" if report.flag.startswith("-") else "PyTorch"
            notes.insert(0, f"the capture holds no {what} ({by} records them with {report.flag})")
        else:
            notes.insert(0, "no such rows in this part of the capture")
    frame = frame.reindex(columns=list(report.columns)).reset_index(drop=True)
    ranks = tuple(report.columns.values())
    path = a.trace.capture.path
    return StatsTable(name, report.title, frame, query.scope, "; ".join(notes), ranks, report.group, path)
