"""The reports of `advisor stats`: one table each, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from advisor.errors import InputError
from advisor.metrics.analysis import Analysis
from advisor.metrics.stats.launch import launch, nvtx_kernels
from advisor.metrics.stats.rows import NameStyle, Query
from advisor.metrics.stats.spread import budget, histogram, pace
from advisor.metrics.stats.sums import api, copies, copy_sizes, kernels, nvtx, osrt
from advisor.metrics.stats.tail import tail
from advisor.metrics.stats.trace import trace
from advisor.model.stats import StatsTable

Needs = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Report:
    """How to make a report. It needs rows in one table of each of `needs` (what people call them
    -> the tables); `flag` is the nsys option that records them. A `steady` report looks at the
    steady window, the others at the whole capture, unless the user names a part. `nsys` is the
    name of its twin in nsys."""

    make: Callable[[Query], StatsTable]
    needs: Needs
    flag: str
    nsys: str = ""
    steady: bool = False


_CUDA = "--trace=cuda"
_NODES = f"{_CUDA} --cuda-graph-trace=node"
_KERNELS: Needs = {"kernels": ("kernels",)}
_CALLS: Needs = {"CUDA API calls": ("api_calls",)}
_MEMORY: Needs = {"copies or memsets": ("copies", "memsets")}
_RANGES: Needs = {"NVTX ranges": ("ranges",)}
_WORK: Needs = {"GPU work": ("kernels", "copies", "memsets", "graph_runs")}
_OS: Needs = {"OS runtime calls": ("host_calls",)}

REPORTS: dict[str, Report] = {
    "kernels": Report(kernels, _KERNELS, _NODES, "cuda_gpu_kern_sum"),
    "tail": Report(tail, _KERNELS, _NODES, steady=True),
    "api": Report(api, _CALLS, _CUDA, "cuda_api_sum"),
    "launch": Report(launch, _KERNELS | _CALLS, _NODES, "cuda_kern_exec_sum"),
    "copies": Report(copies, _MEMORY, _CUDA, "cuda_gpu_mem_time_sum"),
    "copy-sizes": Report(copy_sizes, _MEMORY, _CUDA, "cuda_gpu_mem_size_sum"),
    "nvtx": Report(nvtx, _RANGES, "--trace=nvtx", "nvtx_sum"),
    "nvtx-kernels": Report(nvtx_kernels, _RANGES | _KERNELS | _CALLS, "--trace=cuda,nvtx", "nvtx_kern_sum"),
    "osrt": Report(osrt, _OS, "--trace=osrt", "osrt_sum"),
    "trace": Report(trace, _WORK, _CUDA, "cuda_gpu_trace"),
    "histogram": Report(histogram, _KERNELS, _NODES, "cuda_gpu_kern_hist", steady=True),
    "pace": Report(pace, _WORK, _CUDA, "cuda_gpu_kern_pace", steady=True),
    "budget": Report(budget, _WORK, _CUDA, steady=True),
}


def report_names(given: list[str]) -> list[str]:
    """Names of reports from ``A,B`` lists, each once; nsys' own names are understood.

    Raises InputError for an unknown report.
    """
    twins = {r.nsys: name for name, r in REPORTS.items() if r.nsys}
    found = []
    for word in (w for text in given for w in text.split(",") if w):
        name = twins.get(word, word)
        if name not in REPORTS:
            near = get_close_matches(word, [*REPORTS, *twins], 1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(REPORTS)}"
            raise InputError(f"--report: unknown report '{word}'; {hint}")
        found.append(name)
    return list(dict.fromkeys(found))


def make_report(a: Analysis, name: str, names: NameStyle = "full") -> StatsTable:
    """One report of a trace. An empty one says why."""
    report, choice = REPORTS[name], a.selection
    named = choice.window or choice.nvtx or choice.phase
    query = Query(a, names, whole=not report.steady and not named)
    table = replace(report.make(query), report=name, scope=query.scope)
    if len(table):
        return table
    absent = [what for what, tables in report.needs.items() if not any(map(a.trace.has, tables))]
    if absent:
        what = " and no ".join(absent)
        why = f"the capture holds no {what} (nsys records them with {report.flag})"
    else:
        why = "nothing of this kind lies in this part of the capture"
    return replace(table, note="; ".join(n for n in (why, table.note) if n))
