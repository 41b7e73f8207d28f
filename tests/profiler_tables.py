"""Tables as `key_averages().table()` prints them, from known sums: every layout of torch 1.8 to 2.11."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sum:
    """One row; times in us over all calls. `gpu` rows are work of the GPU itself."""

    name: str
    count: int
    self_host: float = 0.0
    host: float = 0.0
    self_device: float = 0.0
    device: float = 0.0
    gpu: bool = False
    annotation: bool = False


def kernel(name: str, count: int, each_us: float) -> Sum:
    return Sum(name, count, self_device=count * each_us, device=count * each_us, gpu=True)


def operator(name: str, count: int, each_us: float, *, inside: float = 0.0, device: float = 0.0) -> Sum:
    """`each_us` of the host itself a call, `inside` in what it calls; `device`: us of all its kernels."""
    return Sum(name, count, count * each_us, count * (each_us + inside), device, device)


def call(name: str, count: int, each_us: float) -> Sum:
    return Sum(name, count, count * each_us, count * each_us)


def of_range(name: str, count: int, each_us: float, own_us: float = 0.0) -> Sum:
    return Sum(name, count, count * own_us, count * each_us)


def span(name: str, count: int, each_us: float) -> Sum:
    """A range as it shows on the GPU."""
    return replace(kernel(name, count, each_us), annotation=True)


def _time(us: float, unit: str | None) -> str:
    if unit == "s" or (unit is None and us >= 1e6):
        return f"{us / 1e6:.3f}s"
    if unit == "ms" or (unit is None and us >= 1e3):
        return f"{us / 1e3:.3f}ms"
    return f"{us:.3f}us"


def _share(us: float, total: float) -> str:
    return f"{us * 100 / total:.2f}%" if total else "NaN"


def totals(rows: Sequence[Sum]) -> tuple[float, float]:
    """Self CPU and self GPU time of all rows, as torch adds them up."""
    of_gpu = sum(r.self_device for r in rows if r.gpu and not r.annotation)
    legacy = of_gpu or sum(r.self_device for r in rows)
    return sum(r.self_host for r in rows), legacy


def cells(
    rows: Sequence[Sum],
    *,
    backend: str | None = "CUDA",
    memory: bool = False,
    shapes: bool = False,
    stack: bool = False,
    flops: bool = False,
    overload: bool = False,
    unit: str | None = None,
    limit: int | None = None,
    width: int = 55,
    order: Callable[[Sum], float] | None = None,
) -> list[list[str]]:
    """The cells of headings and rows."""
    head = ["Name", *(["Overload Name"] if overload else []), "Self CPU %", "Self CPU", "CPU total %"]
    head += ["CPU total", "CPU time avg"]
    if backend:
        head += [f"Self {backend}", f"Self {backend} %", f"{backend} total", f"{backend} time avg"]
    if memory:
        head += ["CPU Mem", "Self CPU Mem", *([f"{backend} Mem", f"Self {backend} Mem"] if backend else [])]
    head += ["# of Calls", *(["Input Shapes"] if shapes else []), *(["Source Location"] if stack else [])]
    head += ["Total MFLOPs"] if flops else []
    host, device = totals(rows)
    out = [head]
    for row in sorted(rows, key=order, reverse=True)[:limit] if order else rows[:limit]:
        name = row.name if len(row.name) < width - 3 else row.name[: width - 3] + "..."
        line = [name, *(["Tensor" if "::" in row.name else ""] if overload else [])]
        line += [_share(row.self_host, host), _time(row.self_host, unit), _share(row.host, host)]
        line += [_time(row.host, unit), _time(row.host / row.count, unit)]
        if backend:
            line += [_time(row.self_device, unit), _share(row.self_device, device), _time(row.device, unit)]
            line += [_time(row.device / row.count, unit)]
        if memory:
            line += ["0 B", "-4.00 KB", *(["512.00 MB", "0 B"] if backend else [])]
        line += [str(row.count), *(["[[1, 4096], [4096, 4096], []]"] if shapes else [])]
        line += ["model.py(12): forward"] if stack else []
        out.append([*line, *(["--"] if flops else [])])
    return out


def table(rows: Sequence[Sum], *, closing: bool = True, **options: Any) -> str:
    """As torch prints it."""
    lines = cells(rows, **options)
    widths = [max(12, *(len(line[i]) for line in lines)) for i in range(len(lines[0]))]
    rule = "  ".join("-" * w for w in widths) + "  "
    head, *body = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) + "  " for line in lines]
    return "\n".join([rule, head, rule, *body, rule, *(_closing(rows, **options) if closing else ()), ""])


def _closing(rows: Sequence[Sum], **options: Any) -> list[str]:
    host, device = totals(rows)
    backend = options.get("backend", "CUDA")
    lines = [f"Self CPU time total: {_time(host, options.get('unit'))}"]
    if backend:
        lines.append(f"Self {backend} time total: {_time(device, options.get('unit'))}")
    return lines


def old_table(rows: Sequence[Sum], *, closing: bool = True) -> str:
    """As torch 1.4 to 1.6 prints it: left-aligned, with the GPU time of an operator only together with what
    it calls, measured between two events, and a total that adds these up. It lists operators alone."""
    host, device = sum(r.self_host for r in rows), sum(r.device for r in rows)
    lines = [["Name", "Self CPU total %", "Self CPU total", "CPU total %", "CPU total", "CPU time avg"]]
    lines[0] += ["CUDA total %", "CUDA total", "CUDA time avg", "Number of Calls"]
    for r in rows:
        line = [r.name, _share(r.self_host, host), _time(r.self_host, None), _share(r.host, host)]
        line += [_time(r.host, None), _time(r.host / r.count, None), _share(r.device, device)]
        lines.append([*line, _time(r.device, None), _time(r.device / r.count, None), str(r.count)])
    widths = [max(15, *(len(line[i]) for line in lines)) for i in range(len(lines[0]))]
    head, *body = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + "  " for line in lines]
    rule = "  ".join("-" * w for w in widths) + "  "
    end = [f"Self CPU time total: {_time(host, None)}", f"CUDA time total: {_time(device, None)}"]
    return "\n".join([rule, head, rule, *body, rule, *(end if closing else ()), ""])


def as_markdown(rows: Sequence[Sum], **options: Any) -> str:
    head, *body = ["| " + " | ".join(line) + " |" for line in cells(rows, **options)]
    rule = "|" + "---|" * len(cells(rows, **options)[0])
    return "\n".join(["Here it is:", "", head, rule, *body, "", *_closing(rows, **options), ""])


def as_tabs(rows: Sequence[Sum], **options: Any) -> str:
    """Copied from a page."""
    return "\n".join(["\t".join(line) for line in cells(rows, **options)] + _closing(rows, **options))


def as_chat(rows: Sequence[Sum], **options: Any) -> str:
    """Copied from a window that joins spaces."""
    return "\n".join(" ".join(line.split()) for line in table(rows, **options).splitlines())


def as_log(rows: Sequence[Sum], **options: Any) -> str:
    """Each line behind what a launcher and a logger write."""
    before = "(EngineCore_DP0 pid=4711) INFO 11-05 13:22:49 [gpu_worker.py:210] "
    return "\n".join(before + line for line in table(rows, **options).splitlines())


def as_comment(rows: Sequence[Sum], **options: Any) -> str:
    return "\n".join("# " + line for line in table(rows, **options).splitlines())


def as_fenced(rows: Sequence[Sum], **options: Any) -> str:
    return f"This is slow:\n```\n>>> print(prof)\n{table(rows, **options)}\n```\nWhat can I do?\n"


def _frame(rows: Sequence[Sum], *, old: bool = False) -> list[list[object]]:
    """As pandas makes it from the attributes of the averages."""
    device = "cuda" if old else "device"
    head = ["", "key", "count", "node_id", "cpu_time_total", f"{device}_time_total", "self_cpu_time_total"]
    lines: list[list[object]] = [[*head, f"self_{device}_time_total", "device_type"]]
    for i, r in enumerate(rows):
        kind = "DeviceType.CUDA" if r.gpu else "DeviceType.CPU"
        lines.append([i, r.name, r.count, 0, r.host, r.device, r.self_host, r.self_device, kind])
    return lines


def as_csv(rows: Sequence[Sum], *, old: bool = False) -> str:
    """Exported by pandas."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(_frame(rows, old=old))
    return out.getvalue()


def as_frame(rows: Sequence[Sum], *, old: bool = False) -> str:
    """The same as a notebook shows it."""
    return html_table([[str(cell) for cell in line] for line in _frame(rows, old=old)])


def html_table(lines: Sequence[Sequence[str]]) -> str:
    """The markup of a table, the first line its headings."""
    rows = []
    for i, line in enumerate(lines):
        tag = "th" if not i else "td"
        rows.append("<tr>" + "".join(f"<{tag} style='x'>{escape(c)}</{tag}>" for c in line) + "</tr>")
    return "<table border=1>\n<thead>\n" + "\n".join(rows) + "\n</table>"


def as_html(rows: Sequence[Sum], **options: Any) -> str:
    """A page with its source copied."""
    closing = "".join(f"<p>{line}</p>\n" for line in _closing(rows, **options))
    head = "<!DOCTYPE html><html><head><style>td { color: red }</style></head><body><h1>Slow</h1>"
    return f"{head}\n{html_table(cells(rows, **options))}\n{closing}</body></html>"


def as_pre(rows: Sequence[Sum], **options: Any) -> str:
    return f"<div class='output'><pre>{escape(table(rows, **options))}</pre></div>"


def as_notebook(rows: Sequence[Sum], **options: Any) -> str:
    lines = table(rows, **options).splitlines(keepends=True)
    outputs = [{"output_type": "stream", "name": "stdout", "text": lines}]
    cell = {"cell_type": "code", "source": ["print(prof)"], "outputs": outputs}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}, indent=1)


FORMS: dict[str, Callable[..., str]] = {
    "printed": table,
    "markdown": as_markdown,
    "tabs": as_tabs,
    "chat": as_chat,
    "log": as_log,
    "comment": as_comment,
    "fenced": as_fenced,
    "HTML": as_html,
    "pre": as_pre,
    "notebook": as_notebook,
}

# --- the averages of a trace -----------------------------------------------------------------------

_HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "Operator", "Runtime")
_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")


def averages(path: Path) -> list[Sum]:
    """The rows of `key_averages()` of a trace in Chrome's format."""
    content = path.read_bytes()
    loaded = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    events = [
        e for e in (loaded["traceEvents"] if isinstance(loaded, dict) else loaded) if e.get("ph") == "X"
    ]
    host = [e for e in events if e.get("cat") in _HOST]
    children: dict[int, float] = defaultdict(float)
    parents: dict[int, dict[str, Any]] = {}
    by_thread: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for e in host:
        by_thread[e["tid"]].append(e)
    for mine in by_thread.values():
        mine.sort(key=lambda e: (float(e["ts"]), -float(e["dur"])))
        stack: list[dict[str, Any]] = []
        for e in mine:
            while stack and float(e["ts"]) + float(e["dur"]) > float(stack[-1]["ts"]) + float(
                stack[-1]["dur"]
            ):
                stack.pop()
            if stack:
                children[id(stack[-1])] += float(e["dur"])
                parents[id(e)] = stack[-1]
            stack.append(e)
    launched = {e["args"]["correlation"]: e for e in host if "correlation" in e.get("args", {})}
    own: dict[int, float] = defaultdict(float)
    whole: dict[int, float] = defaultdict(float)
    of_gpu: dict[str, list[float]] = defaultdict(list)
    for e in events:
        if e.get("cat") not in _GPU:
            continue
        of_gpu[e["name"]].append(float(e["dur"]))
        parent = parents.get(id(launched.get(e.get("args", {}).get("correlation"))))
        if parent is not None:
            own[id(parent)] += float(e["dur"])
        while parent is not None:
            whole[id(parent)] += float(e["dur"])
            parent = parents.get(id(parent))
    rows: dict[str, list[float]] = defaultdict(lambda: [0.0] * 5)
    for e in host:
        name = "ProfilerStep*" if e["name"].startswith("ProfilerStep#") else e["name"]
        dur = float(e["dur"])
        adds = (1, dur - children[id(e)], dur, own[id(e)], whole[id(e)])
        rows[name] = [a + b for a, b in zip(rows[name], adds, strict=True)]
    gpu = [Sum(n, len(d), self_device=sum(d), device=sum(d), gpu=True) for n, d in of_gpu.items()]
    spans: dict[str, list[float]] = defaultdict(list)
    for e in events:
        if e.get("cat") == "gpu_user_annotation":
            name = "ProfilerStep*" if e["name"].startswith("ProfilerStep#") else e["name"]
            spans[name].append(float(e["dur"]))
    marks = [replace(kernel(n, len(d), sum(d) / len(d)), annotation=True) for n, d in spans.items()]
    averaged = [Sum(n, int(v[0]), *v[1:]) for n, v in rows.items()]
    return sorted([*averaged, *marks, *gpu], key=lambda r: -r.self_device)
