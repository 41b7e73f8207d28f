"""Logs without a line for every sample in columns -> rows of cells by the names of `rows.FIELDS`: screens of
nvidia-smi, lines of tegrastats, one metric a line as monitoring stores it, and tables of scripts around NVML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Row = dict[str, str]

# ------------------------------------------------------------------ screens of nvidia-smi

SCREEN = re.compile(r"^\s*\| NVIDIA-SMI \d")
_DATE = re.compile(r"^\s*((?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} +\d{1,2} \d\d:\d\d:\d\d \d{4})\s*$")
_GPU = re.compile(
    r"^\s*\|\s+(\d{1,3})\s+(\S.{0,60}?)\s+(?:On|Off|N/A|WDDM|TCC|MCDM)\s*\|\s*([0-9A-Fa-f:.]{7,16})\s"
)
_STATE = re.compile(
    r"^\s*\|\s*\S{1,5}\s+(\d{1,3})C\s+(P\d{1,2})\s+(\S{1,8}?)W?\s*/\s*(\S{1,8}?)W?\s*\|"
    r"\s*(\d{1,8})MiB\s*/\s*(\d{1,8})MiB\s*\|\s*(\d{1,3}|N/A)"
)
_STATE_FIELDS = (
    "temperature.gpu",
    "pstate",
    "power.draw",
    "power.limit",
    "memory.used",
    "memory.total",
    "utilization.gpu",
)


def of_screens(lines: Sequence[str]) -> Iterator[Row]:
    """One row a GPU and screen: what `nvidia-smi -l` or `watch` prints again and again."""
    date, gpu = "", {}
    for line in lines:
        if hit := _DATE.match(line):
            date = hit[1]
        elif hit := _GPU.match(line):
            gpu = {"index": hit[1], "name": hit[2], "pci.bus_id": hit[3]}
        elif gpu and (hit := _STATE.match(line)):
            when = {"timestamp": date} if date else {}
            yield {**when, **gpu, **dict(zip(_STATE_FIELDS, hit.groups(), strict=True))}
            gpu = {}


_PROCESS = re.compile(
    r"^\s*\|\s+\d{1,3}(?:\s+\S{1,8}){2}\s+\d{1,9}\s+[CGM+]{1,4}\s+(\S.{0,80}?)\s+(?:\d{1,8}MiB|N/A)\s*\|"
)


def processes(lines: Sequence[str]) -> list[str]:
    """The names of the processes that the screens list, each once."""
    return list(dict.fromkeys(hit[1] for line in lines if (hit := _PROCESS.match(line))))


# ------------------------------------------------------------------ tegrastats, of Jetson

_TEGRA_MEMORY = re.compile(r"\bRAM (\d{1,7})/(\d{1,7})MB\b")
_TEGRA_BUSY = re.compile(r"\bGR3D_FREQ (\d{1,3}(?:\.\d{1,3})?)%(?:@\[?(\d{1,5}))?")
_TEGRA_TIME = re.compile(r"^(\d\d)-(\d\d)-(\d{4}) (\d\d:\d\d:\d\d)\b")
_TEGRA_HEAT = re.compile(r"(?i)\bgpu@(\d{1,3}(?:\.\d{1,3})?)C")


def is_tegrastats(line: str) -> bool:
    """True for a line of it."""
    return bool(_TEGRA_MEMORY.search(line) and _TEGRA_BUSY.search(line))


def of_tegrastats(lines: Sequence[str]) -> Iterator[Row]:
    """One row a line. The memory is that of the board, which CPU and GPU share."""
    for line in lines:
        memory, busy = _TEGRA_MEMORY.search(line), _TEGRA_BUSY.search(line)
        if memory is None or busy is None:
            continue
        row = {"index": "0", "memory.used": memory[1], "memory.total": memory[2], "utilization.gpu": busy[1]}
        if busy[2]:
            row["clocks.sm"] = busy[2]
        if time := _TEGRA_TIME.match(line):
            row["timestamp"] = f"{time[3]}-{time[1]}-{time[2]} {time[4]}"
        if heat := _TEGRA_HEAT.search(line):
            row["temperature.gpu"] = heat[1]
        yield row


# ------------------------------------------------------------------ one metric a line

_METRIC = ("metric_name", "metric", "field_name", "field")
_VALUE = ("value", "values")


def is_long(names: Sequence[str]) -> bool:
    """True for headings of a table with one metric a line."""
    return any(n in names for n in _METRIC) and any(n in names for n in _VALUE)


def joined(
    rows: Iterator[Row], time: Sequence[str], device: Sequence[str], identity: Sequence[str]
) -> Iterator[Row]:
    """One row a GPU and time. GPUs of several machines share their numbers: their identity is used there."""
    found: dict[tuple[str, ...], Row] = {}
    by_number: dict[str, set[str]] = {}
    for row in rows:
        metric = next(row[n] for n in _METRIC if n in row).strip().lower()
        value = next(row[n] for n in _VALUE if n in row)
        keep = {n: c for n, c in row.items() if n not in (*_METRIC, *_VALUE)}
        key = tuple(keep.get(n, "") for n in (*time, *device, *identity))
        found.setdefault(key, keep)[metric] = value
        number = " ".join(keep.get(n, "") for n in device)
        by_number.setdefault(number, set()).add(" ".join(keep.get(n, "") for n in identity))
    several = any(len(gpus) > 1 for gpus in by_number.values())
    for row in found.values():
        yield {n: c for n, c in row.items() if not (several and n in device)}


# ------------------------------------------------------------------ tables of scripts around NVML

_UNITS = {
    **dict.fromkeys(("%", "pct", "percent"), "%"),
    **dict.fromkeys(("mib", "mb"), "mib"),
    **dict.fromkeys(("gib", "gb"), "gib"),
    **dict.fromkeys(("b", "bytes"), "bytes"),
    **dict.fromkeys(("w", "watt", "watts"), "w"),
    "mw": "mw",
    "mhz": "mhz",
    **dict.fromkeys(("c", "celsius", "degc"), "c"),
    "ratio": "ratio",
}
#: Heading without `gpu` and unit -> what it measures.
_MEANINGS = {
    **dict.fromkeys(("util", "utilization", "utilisation", "usage", "load", "util_rate"), "util"),
    **dict.fromkeys(
        (
            "memory_used",
            "mem_used",
            "used_memory",
            "vram_used",
            "memory_usage",
            "mem_usage",
            "vram",
            "used_mem",
        ),
        "used",
    ),
    **dict.fromkeys(("memory_total", "mem_total", "total_memory", "vram_total", "total_mem"), "total"),
    **dict.fromkeys(("power", "power_draw", "power_usage"), "power"),
    **dict.fromkeys(("power_limit",), "limit"),
    **dict.fromkeys(("temp", "temperature"), "temp"),
    **dict.fromkeys(("sm_clock", "clock_sm", "clocks_sm", "core_clock", "graphics_clock"), "clock"),
    **dict.fromkeys(("sm_active", "sm_activity"), "sm_active"),
    **dict.fromkeys(("tensor_active", "tensor_activity"), "tensor_active"),
    **dict.fromkeys(("dram_active", "dram_activity"), "dram_active"),
}
#: Meaning and unit -> the name in `rows.FIELDS`; the first unit is that of a heading without one.
_NAMES = {
    "util": {"%": "own.util"},
    "used": {"mib": "memory.used", "gib": "own.used_gib", "bytes": "own.used_bytes"},
    "total": {"mib": "memory.total", "gib": "own.total_gib", "bytes": "own.total_bytes"},
    "power": {"w": "power.draw", "mw": "own.power_mw"},
    "limit": {"w": "power.limit"},
    "temp": {"c": "temperature.gpu"},
    "clock": {"mhz": "clocks.sm"},
    "sm_active": {"ratio": "own.sm_active", "%": "own.sm_active"},
    "tensor_active": {"ratio": "own.tensor_active", "%": "own.tensor_active"},
    "dram_active": {"ratio": "own.dram_active", "%": "own.dram_active"},
}
#: What says that a table is of a GPU, beside the word in a heading.
_OF_GPUS = frozenset(("own.util", "own.sm_active"))
_BRACKETED = re.compile(r"^([^\[(]*)[\[(](.*)[\])]$")


def own_name(heading: str) -> str | None:
    """The name of a heading such as ``GPU Util (%)`` or ``mem_used_mib`` in `rows.FIELDS`."""
    text, unit = heading.strip().strip('"').lower(), ""
    if hit := _BRACKETED.match(text):
        text, unit = hit[1].rstrip(), re.sub(r"[^a-z%]", "", hit[2])
    words = [w for w in re.split(r"[\s_.\-]+", text) if w and w not in ("gpu", "nvidia")]
    if not unit and len(words) > 1 and words[-1] in _UNITS:
        unit = words.pop()
    names = _NAMES.get(_MEANINGS.get("_".join(words), ""))
    if names is None:
        return None
    return names.get(_UNITS.get(unit, "")) if unit else next(iter(names.values()))


def own_names(headings: Sequence[str]) -> list[str | None]:
    """Of each heading; all None if the table is not that of a GPU's samples."""
    names = [own_name(h) for h in headings]
    known = {n for n in names if n}
    about = any("gpu" in h.lower() for h in headings) and any(n in _OF_GPUS for n in known)
    return names if about and len(known) > 1 else [None] * len(headings)


# ------------------------------------------------------------------ metrics of the DCGM exporter

EXPORTER = re.compile(r"^(?:# (?:HELP|TYPE) )?DCGM_FI_\w+(?: \w|\{)")
_EXPORTED = re.compile(r"^(DCGM_FI_\w+)\{([^}]*)\}\s+([-+.\deE]+)(?:\s+\d+)?\s*$")
_LABEL = re.compile(r'\b(\w+)="([^"]*)"')


def of_exporter(lines: Sequence[str]) -> Iterator[Row]:
    """One row a GPU and scrape of `/metrics`: a metric that comes again begins the next scrape."""
    found: dict[str, Row] = {}
    for line in lines:
        hit = _EXPORTED.match(line.strip())
        if hit is None:
            continue
        labels, metric = dict(_LABEL.findall(hit[2])), hit[1].lower()
        gpu = labels.get("gpu", "0")
        if metric in found.get(gpu, {}):
            yield from found.values()
            found = {}
        row = found.setdefault(gpu, {"gpu": gpu, "name": labels.get("modelName", "")})
        row.setdefault(metric, hit[3])
    yield from found.values()
