"""Names that samplers give to what they measure -> our columns, with the factor to our unit.

Utilisation of `nvidia-smi`, and DCGM's GPU_UTIL, only say that some kernel was running: that is GR
Active and never SM Active. DCGM's profiling fields do include SM activity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Field(NamedTuple):
    """Which of our columns a field fills, and its factor to our unit."""

    column: str
    factor: float


_UTILISATION, _RATIO = 0.01, 1.0
_MIB, _MHZ = 2.0**20, 1e6

#: By the sampler's name for it, in lower case and without unit; the first that a log has counts.
FIELDS: dict[str, Field] = {
    # nvidia-smi --query-gpu, old and new spellings.
    "utilization.gpu": Field("gr_active", _UTILISATION),
    "memory.used": Field("memory_used_bytes", _MIB),
    "memory.total": Field("memory_total_bytes", _MIB),
    "power.draw.instant": Field("power_w", 1),
    "power.draw": Field("power_w", 1),
    "power.draw.average": Field("power_w", 1),
    "enforced.power.limit": Field("power_limit_w", 1),
    "power.limit": Field("power_limit_w", 1),
    "clocks.sm": Field("sm_clock_hz", _MHZ),
    "clocks.current.sm": Field("sm_clock_hz", _MHZ),
    "clocks.max.sm": Field("sm_clock_max_hz", _MHZ),
    "temperature.gpu": Field("temperature_c", 1),
    # nvidia-smi dmon. The violation counters: a share of the time, and yes or no.
    "sm": Field("gr_active", _UTILISATION),
    "pwr": Field("power_w", 1),
    "gtemp": Field("temperature_c", 1),
    "temp": Field("temperature_c", 1),
    "pclk": Field("sm_clock_hz", _MHZ),
    "fb": Field("memory_used_bytes", _MIB),
    # DCGM: short names of `dcgmi dmon`, full names of CSV exports.
    "gract": Field("gr_active", _RATIO),
    "dcgm_fi_prof_gr_engine_active": Field("gr_active", _RATIO),
    "gputl": Field("gr_active", _UTILISATION),
    "dcgm_fi_dev_gpu_util": Field("gr_active", _UTILISATION),
    "smact": Field("sm_active", _RATIO),
    "dcgm_fi_prof_sm_active": Field("sm_active", _RATIO),
    "tenso": Field("tensor_active", _RATIO),
    "dcgm_fi_prof_pipe_tensor_active": Field("tensor_active", _RATIO),
    "drama": Field("dram_read", _RATIO),
    "dcgm_fi_prof_dram_active": Field("dram_read", _RATIO),
    "fbusd": Field("memory_used_bytes", _MIB),
    "dcgm_fi_dev_fb_used": Field("memory_used_bytes", _MIB),
    "fbttl": Field("memory_total_bytes", _MIB),
    "dcgm_fi_dev_fb_total": Field("memory_total_bytes", _MIB),
    "power": Field("power_w", 1),
    "dcgm_fi_dev_power_usage": Field("power_w", 1),
    "dcgm_fi_dev_power_mgmt_limit": Field("power_limit_w", 1),
    "tmptr": Field("temperature_c", 1),
    "dcgm_fi_dev_gpu_temp": Field("temperature_c", 1),
    "smclk": Field("sm_clock_hz", _MHZ),
    "dcgm_fi_dev_sm_clock": Field("sm_clock_hz", _MHZ),
    "dcgm_fi_dev_max_sm_clock": Field("sm_clock_max_hz", _MHZ),
}

#: What the size of the memory is made of, besides what is used, where a log does not tell it.
_FREE = ("memory.free", "dcgm_fi_dev_fb_free", "fbfre")
_PARTS_OF_MEMORY = (*_FREE, "memory.reserved", "dcgm_fi_dev_fb_reserved")

#: Columns that number the GPU, and others that name it when none does.
DEVICE = ("index", "gpu", "gpu_id", "gpu_index", "entity", "entity_id", "device")
IDENTITY = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "pci_bus_id", "serial")
BUS = ("pci.bus_id", "gpu_bus_id", "pci_bus_id", "dcgm_fi_dev_pci_busid")
MODEL = ("name", "gpu_name", "modelname", "product_name")
TIME = ("timestamp", "time_stamp", "datetime", "date_time", "ts", "time", "date")

_NOT_A_NUMBER = frozenset(("", "-", "n/a", "[n/a]", "[not supported]", "not supported", "nan"))
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?")
#: DCGM writes its blank values (from 0x7ffffff0, as a float 2^47 on) where it has none.
_BLANK = {0x7FFFFFF0, 0x7FFFFFF1, 0x7FFFFFF2, 0x7FFFFFF3}
_LEAST_BLANK = 2.0**47

#: Bits of nvmlClocksEventReasons that hold the clock down against the load's wish: power cap,
#: hardware and software slowdown, brake. Idle, application clocks and sync boost are a choice.
_HELD_BACK, _HEAT = 0x04 | 0x08 | 0x20 | 0x40 | 0x80, 0x20 | 0x40
_REASONS = (
    "clocks_throttle_reasons.active", "clocks_event_reasons.active",
    "dcgm_fi_dev_clock_throttle_reasons", "dcgm_fi_dev_clocks_event_reasons",
)  # fmt: skip
_REASON = re.compile(r"clocks_(?:throttle|event)_reasons\.(sw|hw)_(.+)")


def number(text: str) -> float | None:
    """``85 %`` -> 85.0, ``690,10 W`` -> 690.1; None where a tool has no value."""
    text = text.strip()
    if text.lower() in _NOT_A_NUMBER:
        return None
    found = _NUMBER.match(text)
    value = float(found[0].replace(",", ".")) if found else None
    blank = value is not None and (value in _BLANK or value >= _LEAST_BLANK)
    return None if blank else value


def measured(row: Mapping[str, str]) -> dict[str, float]:
    """Our columns, as far as one row of a log (cells by name) has them."""
    values: dict[str, float] = {}
    for name, field in FIELDS.items():
        if name in row and field.column not in values:
            value = number(row[name])
            if value is not None:
                values[field.column] = value * field.factor
    if "memory_total_bytes" not in values:
        parts = [number(row[n]) for n in _PARTS_OF_MEMORY if n in row]
        free = any(n in row for n in _FREE)
        if free and "memory_used_bytes" in values and None not in parts:
            rest = sum(p for p in parts if p is not None)
            values["memory_total_bytes"] = values["memory_used_bytes"] + rest * _MIB
    limits = _limits(row)
    if limits is not None:
        values["throttled"], values["overheated"] = map(float, limits)
    return values


def _limits(row: Mapping[str, str]) -> tuple[bool, bool] | None:
    """Whether something holds the clock down, and whether it is heat; None where nothing shows it."""
    for name in _REASONS:
        bits = _bits(row.get(name, ""))
        if bits is not None:
            return bool(bits & _HELD_BACK), bool(bits & _HEAT)
    power, heat = (number(row[n]) if n in row else None for n in ("pviol", "tviol"))
    if power is not None or heat is not None:
        return bool(power) or bool(heat), bool(heat)
    active = {
        found[2]: cell.strip().lower() == "active"
        for name, cell in row.items()
        if (found := _REASON.fullmatch(name)) and cell.strip().lower() in ("active", "not active")
    }
    if not active:
        return None
    return any(active.values()), any(on and "thermal" in what for what, on in active.items())


def _bits(text: str) -> int | None:
    """A bit mask as ``0x0000000000000004`` or as a plain number."""
    try:
        return int(text.strip(), 0)
    except ValueError:
        value = number(text)
        return None if value is None else int(value)
