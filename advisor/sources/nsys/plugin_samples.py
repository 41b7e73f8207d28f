"""Power and temperature, of DCGM also clock and memory, as the plugins of nsys sample them: generic events.

Tables: SQLite schema reference of the exporter. That a value is the first one set, and the GPU the low
byte of the type, is how `network_map_aws` of the recipes of nsys joins them; older exports hold types and
events as JSON. Names and units: user guide, "NVML power and temperature metrics" (milliwatts, degrees
Celsius) and "DCGM", whose metrics bear the tags of DCGM's own fields (dcgm_fields.cpp of NVIDIA/DCGM:
watts, MHz, MiB); exports of the NVML plugin name a field `Power`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from advisor.sources.nsys.tables import STRINGS
from advisor.sources.raw import Keep, RawTables, named_rows
from advisor.sources.trace import Columns

EVENTS, DATA = "GENERIC_EVENTS", "GENERIC_EVENT_DATA"
TYPES, FIELDS = "GENERIC_EVENT_TYPES", "GENERIC_EVENT_TYPE_FIELDS"
_VALUES = ("intVal", "uintVal", "floatVal", "doubleVal")
#: Names of fields without their unit -> our columns.
_COLUMNS = {
    "power": "power_w", "power_usage": "power_w", "power_usage_instant": "power_w",
    "enforced_power_limit": "power_limit_w", "temperature": "temperature_c", "gpu_temp": "temperature_c",
    "sm_clock": "sm_clock_hz", "fb_used": "memory_used_bytes", "fb_total": "memory_total_bytes",
}  # fmt: skip
#: What a sampled number of these columns counts.
_UNITS = {"sm_clock_hz": 1e6, "memory_used_bytes": 2.0**20, "memory_total_bytes": 2.0**20}
#: No GPU draws as much, and every one under load more milliwatts.
_MOST_W = 5_000
_GPU_MASK = 0xFF


def _column(name: str) -> str | None:
    return _COLUMNS.get(name.partition("[")[0].strip().lower())


def _fields(raw: RawTables) -> dict[tuple[int, int | str], str]:
    """(type, number or name of a field) -> our column."""
    found: dict[tuple[int, int | str], str] = {}
    rows = named_rows(raw, FIELDS, ("typeId", "fieldIdx", "fieldNameId"))
    rows = [row for row in rows if all(isinstance(value, int) for value in row.values())]
    texts = raw.texts(STRINGS, sorted({row["fieldNameId"] for row in rows})) if rows else {}
    for row in rows:
        if column := _column(texts.get(row["fieldNameId"], "")):
            found[row["typeId"], row["fieldIdx"]] = column
    for row in named_rows(raw, TYPES, ("typeId", "data")):
        fields = _json(row["data"]).get("Fields")
        for field in fields if isinstance(fields, list) else ():
            name = str(field.get("Name", "")) if isinstance(field, dict) else ""
            if (column := _column(name)) and isinstance(row["typeId"], int):
                found[row["typeId"], name] = column
    return found


def recorded(raw: RawTables) -> bool:
    """True when events may hold power or temperature at times of the session."""
    timed = {"timestamp", "typeId"} <= set(raw.columns(EVENTS))
    return timed and raw.has(EVENTS) and bool(_fields(raw))


def plugin_samples(raw: RawTables, devices: Iterable[int]) -> Columns:
    """`time`, `device` and the columns that were sampled, by time; NaN where a sample lacks one."""
    fields, known = _fields(raw), list(devices)
    types = sorted({kind for kind, _ in fields})
    taken: dict[tuple[int, int], dict[str, float]] = {}
    for time, kind, field, value in _values(raw, types):
        if time >= 0 and (column := fields.get((kind, field))):
            device = known[0] if len(known) == 1 else kind & _GPU_MASK
            taken.setdefault((time, device), {})[column] = value
    at = sorted(taken)
    columns: Columns = {
        "time": np.array([time for time, _ in at], np.int64),
        "device": np.array([device for _, device in at], np.int64),
    }
    for name in sorted(set(fields.values())):
        sampled = np.array([taken[key].get(name, np.nan) for key in at], np.float64)
        columns[name] = sampled * _UNITS.get(name, 1.0)
    power = columns.get("power_w")
    if power is not None and (power > _MOST_W).any():
        columns["power_w"] = power / 1e3
    return columns


def _values(raw: RawTables, types: list[int]) -> Iterator[tuple[int, int, int | str, float]]:
    """Time, type, number or name of the field, and value."""
    keep = Keep("typeId", tuple(types))
    has = set(raw.columns(EVENTS))
    if "genericEventId" in has and raw.has(DATA):
        event, time, kind = (
            c.tolist() for c in raw.read(EVENTS, ["genericEventId", "timestamp", "typeId"], keep)
        )
        when = dict(zip(event, zip(time, kind, strict=True), strict=True))
        for row in named_rows(raw, DATA, ("genericEventId", "fieldIdx", *_VALUES)):
            value = next((row[n] for n in _VALUES if row[n] is not None), None)
            if row["genericEventId"] in when and isinstance(value, int | float):
                yield *when[row["genericEventId"]], row["fieldIdx"], float(value)
    elif "data" in has:
        time, kind = (c.tolist() for c in raw.read(EVENTS, ["timestamp", "typeId"], keep))
        codes, texts = raw.text_codes(EVENTS, "data", [{"typeId": keep.values}])
        parsed = [_json(text) for text in texts]
        for one, which, code in zip(time, kind, codes.tolist(), strict=True):
            for name, value in (parsed[code] if code >= 0 else {}).items():
                if isinstance(number := _number(value), float):
                    yield one, which, name, number


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _json(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
