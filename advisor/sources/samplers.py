"""GPU samples from outside a trace: `nvidia-smi` CSV logs, `nvidia-smi dmon`, `dcgmi dmon`.

They fill the table `samples` and nothing else. Their utilisation only says that some kernel was
running, so it becomes GR Active and never SM Active; DCGM's profiling fields do tell SM activity.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from advisor.errors import InputError
from advisor.model.capture import Capture, Device
from advisor.sources.schema import FLOAT_COLUMNS, TABLES
from advisor.sources.trace import Columns

FORMATS = ("nvidia-smi csv", "nvidia-smi dmon", "dcgmi dmon")
#: Period of samplers that print no time: the default of both `dmon` tools.
_DEFAULT_PERIOD_NS = 1_000_000_000
_NOT_A_NUMBER = frozenset(("", "-", "n/a", "[n/a]", "[not supported]", "not supported", "nan"))

#: Reasons that hold the clock down against the load's wish (power cap, thermal, brake); idle,
#: application clocks and sync boost are somebody's choice. Bits of nvmlClocksEventReasons.
_HELD_BACK = 0x04 | 0x08 | 0x20 | 0x40 | 0x80


class Field(NamedTuple):
    """Which of our columns a field fills, and its factor to our unit."""

    column: str
    factor: float


#: `nvidia-smi --query-gpu` fields, without unit. Old and new spellings.
_SMI = {
    "utilization.gpu": Field("gr_active", 0.01),
    "memory.used": Field("memory_used_bytes", 2**20),
    "memory.total": Field("memory_total_bytes", 2**20),
    "power.draw": Field("power_w", 1),
    "power.draw.average": Field("power_w", 1),
    "power.draw.instant": Field("power_w", 1),
    "power.limit": Field("power_limit_w", 1),
    "enforced.power.limit": Field("power_limit_w", 1),
    "clocks.sm": Field("sm_clock_hz", 1e6),
    "clocks.current.sm": Field("sm_clock_hz", 1e6),
    "clocks.max.sm": Field("sm_clock_max_hz", 1e6),
    "temperature.gpu": Field("temperature_c", 1),
}
_SMI_REASONS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
#: `nvidia-smi dmon` columns.
_DMON = {
    "pwr": Field("power_w", 1), "gtemp": Field("temperature_c", 1),
    "sm": Field("gr_active", 0.01), "pclk": Field("sm_clock_hz", 1e6),
    "fb": Field("memory_used_bytes", 2**20),
}  # fmt: skip
#: `dcgmi dmon` short names and DCGM field names.
_DCGM = {
    "GPUTL": Field("gr_active", 0.01), "GRACT": Field("gr_active", 1),
    "SMACT": Field("sm_active", 1), "TENSO": Field("tensor_active", 1),
    "DRAMA": Field("dram_read", 1), "FBUSD": Field("memory_used_bytes", 2**20),
    "FBTTL": Field("memory_total_bytes", 2**20), "POWER": Field("power_w", 1),
    "TMPTR": Field("temperature_c", 1), "SMCLK": Field("sm_clock_hz", 1e6),
}  # fmt: skip
_DCGM_LONG = {
    "DCGM_FI_DEV_GPU_UTIL": "GPUTL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "GRACT",
    "DCGM_FI_PROF_SM_ACTIVE": "SMACT", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "TENSO",
    "DCGM_FI_PROF_DRAM_ACTIVE": "DRAMA", "DCGM_FI_DEV_FB_USED": "FBUSD",
    "DCGM_FI_DEV_FB_TOTAL": "FBTTL", "DCGM_FI_DEV_POWER_USAGE": "POWER",
    "DCGM_FI_DEV_GPU_TEMP": "TMPTR", "DCGM_FI_DEV_SM_CLOCK": "SMCLK",
}  # fmt: skip


class Row(NamedTuple):
    """One sample of one GPU; `time` in ns since 1970, None where the tool prints none."""

    time: int | None
    device: int
    values: dict[str, float]
    name: str | None = None


class SampleLog:
    """The samples of one log as a `Source` of its own. Times are ns since 1970, or since the
    first sample where the log has none (`absolute` is False then)."""

    def __init__(self, path: Path, format_name: str, rows: Sequence[Row]) -> None:
        if not rows:
            raise InputError(f"{path}: a {format_name} log without a single sample")
        self.absolute = all(row.time is not None for row in rows)
        self._columns = _as_columns(rows, self.absolute)
        names = {row.device: row.name for row in rows if row.name}
        total = self._columns["memory_total_bytes"]
        devices = []
        for device in sorted({row.device for row in rows}):
            mine = total[self._columns["device"] == device]
            known = mine[~np.isnan(mine)]
            devices.append(Device(id=device, name=names.get(device),
                                  memory_bytes=int(known[0]) if len(known) else None))  # fmt: skip
        self.devices = tuple(devices)
        self.capture = Capture(
            path=str(path), format=format_name,
            size_bytes=path.stat().st_size if path.exists() else 0,
            producer=format_name.split()[0], start_utc_ns=0 if self.absolute else None,
        )  # fmt: skip

    def tables(self) -> frozenset[str]:
        return frozenset({"samples"})

    def read_columns(self, table: str, columns: Sequence[str]) -> Columns:
        if table != "samples":
            raise KeyError(table)
        return {name: self._columns[name] for name in columns}

    def text(self, ids: Sequence[int]) -> list[str]:
        return [""] * len(ids)

    def close(self) -> None:
        """Nothing is held open."""


def looks_like_log(head: bytes) -> bool:
    """True when the beginning of a file is that of a sampler's log."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    return bool(lines) and any(looks(lines) for looks in (_is_dmon, _is_dcgm, _is_csv))


def read_log(path: Path, shown: Path | None = None) -> SampleLog:
    """Recognise and read a sampler's log; `shown` is how the user named it. Raises InputError, in
    one line, for anything else."""
    shown = shown or path
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError as fault:
        raise InputError(f"{path}: cannot be read ({fault.strerror or fault})") from fault
    lines = [line for line in lines if line.strip()]
    for format_name, looks, read in (
        ("nvidia-smi dmon", _is_dmon, _read_dmon),
        ("dcgmi dmon", _is_dcgm, _read_dcgm),
        ("nvidia-smi csv", _is_csv, _read_csv),
    ):
        if lines and looks(lines):
            return SampleLog(shown, format_name, list(read(lines)))
    raise InputError(
        f"{shown}: no sampler log that is known here; make one with `nvidia-smi --query-gpu="
        "timestamp,index,utilization.gpu,clocks.sm,power.draw,memory.used --format=csv -lms 100`"
    )


def _as_columns(rows: Sequence[Row], absolute: bool) -> Columns:
    count: dict[int, int] = {}
    times = np.empty(len(rows), np.int64)
    for i, row in enumerate(rows):
        seen = count.get(row.device, 0)
        count[row.device] = seen + 1
        times[i] = row.time if absolute and row.time is not None else seen * _DEFAULT_PERIOD_NS
    columns: Columns = {
        "time": times, "device": np.array([row.device for row in rows], np.int64)
    }  # fmt: skip
    for name in TABLES["samples"]:
        if name in FLOAT_COLUMNS:
            columns[name] = np.array([row.values.get(name, np.nan) for row in rows])
    order = np.argsort(times, kind="stable")
    return {name: values[order] for name, values in columns.items()}


def _number(text: str) -> float | None:
    """``85 %`` -> 85.0; None for what the tools print where a value is not to be had."""
    text = text.strip()
    if text.lower() in _NOT_A_NUMBER:
        return None
    found = re.match(r"[-+]?\d+(?:\.\d+)?", text)
    return float(found[0]) if found else None


def _filled(pairs: Iterable[tuple[Field, str]]) -> dict[str, float]:
    values = {}
    for field, text in pairs:
        number = _number(text)
        if number is not None:
            values[field.column] = number * field.factor
    return values


# ---------------------------------------------------------------- nvidia-smi --format=csv


def _csv_names(line: str) -> list[str]:
    return [re.sub(r"\s*\[.*", "", cell.strip().lower()) for cell in line.split(",")]


def _is_csv(lines: Sequence[str]) -> bool:
    return bool(set(_csv_names(lines[0])) & set(_SMI))


def _read_csv(lines: Sequence[str]) -> Iterable[Row]:
    names = _csv_names(lines[0])
    for cells in csv.reader(lines[1:], skipinitialspace=True):
        if len(cells) != len(names) or _csv_names(",".join(cells)) == names:
            continue  # a torn last line, or a header that a restart wrote again
        row = dict(zip(names, cells, strict=True))
        values = _filled((field, row[name]) for name, field in _SMI.items() if name in row)
        for name in _SMI_REASONS:
            if name in row:
                held = re.match(r"\s*(0x[0-9a-fA-F]+)", row[name])
                if held:
                    values["throttled"] = float(bool(int(held[1], 16) & _HELD_BACK))
        yield Row(_stamp(row.get("timestamp", "")), int(_number(row.get("index", "0")) or 0),
                  values, row.get("name"))  # fmt: skip


def _stamp(text: str) -> int | None:
    """``2026/11/20 14:04:16.123``; the tool prints local time, taken as UTC unless it says more."""
    text = text.strip().replace("/", "-")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + moment.microsecond * 1_000


# ---------------------------------------------------------------- dmon


def _is_dmon(lines: Sequence[str]) -> bool:
    words = lines[0].lstrip("#").lower().split()
    return lines[0].startswith("#") and "gpu" in words and bool({"pwr", "sm", "pclk"} & set(words))


def _read_dmon(lines: Sequence[str]) -> Iterable[Row]:
    names = lines[0].lstrip("#").lower().split()
    for line in lines[1:]:
        if line.startswith("#"):
            continue
        cells = line.split()
        if len(cells) != len(names):
            continue
        row = dict(zip(names, cells, strict=True))
        device = _number(row.get("gpu", ""))
        if device is None:
            continue
        stamp = None
        if "date" in row and "time" in row:
            day = row["date"]
            stamp = _stamp(f"{day[:4]}-{day[4:6]}-{day[6:8]} {row['time']}")
        values = _filled((field, row[name]) for name, field in _DMON.items() if name in row)
        yield Row(stamp, int(device), values)


def _is_dcgm(lines: Sequence[str]) -> bool:
    return any(_dcgm_names(line) for line in lines[:5])


def _dcgm_names(line: str) -> list[str]:
    """Short field names of a header line; empty for other lines."""
    words = [_DCGM_LONG.get(w, w) for w in re.split(r"[\s,]+", line.lstrip("#").strip())]
    return words if len(set(words) & set(_DCGM)) >= 1 and words[0].lower() != "gpu" else []


def _read_dcgm(lines: Sequence[str]) -> Iterable[Row]:
    names: list[str] = []
    for line in lines:
        header = _dcgm_names(line)
        if header:
            names = [n for n in header if n in _DCGM]
            continue
        found = re.match(r"\s*GPU[\s,]+(\d+)[\s,]+(.*)", line)
        if not found or not names:
            continue
        cells = re.split(r"[\s,]+", found[2].strip())
        if len(cells) < len(names):
            continue
        yield Row(None, int(found[1]), _filled(
            (_DCGM[name], cell) for name, cell in zip(names, cells[-len(names):], strict=True)
        ))  # fmt: skip
