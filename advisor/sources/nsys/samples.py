"""Samples of nsys: GPU metrics, long rows made one wide row per device and time; power and temperature,
of DCGM also clock and memory, by its plugins; and traffic of network cards.

Tables and columns: SQLite schema reference of the exporter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from advisor.model.arrays import distinct, median_of, merged, where
from advisor.sources.nsys.clock import began_early
from advisor.sources.nsys.table_map import GPU_METRICS, METRIC_NAMES, STRINGS
from advisor.sources.nsys.table_map import number as as_number
from advisor.sources.schema import (
    FLOAT_COLUMNS,
    MISSING,
    NIC_RECEIVED,
    NIC_SENT,
    NIC_WAITS,
    SAMPLE_RATIOS,
    TABLES,
    Ints,
)
from advisor.sources.trace import Columns, Is, Keep, RawTables, rows_of

#: The name without its unit -> our column. Metric ids differ between captures, names between
#: chips and versions: "SM Active" of 2023 is "SMs Active" later (names of 2026.4: user guide, available
#: metrics).
_COLUMN_OF_NAME = (
    (r"gr active", "gr_active"),
    (r"sms? active", "sm_active"),
    (r"sms? issue( active)?", "sm_issue"),
    (r"tensor active( / fp16 active)?", "tensor_active"),
    (r"[dv]ram read (bandwidth|throughput)", "dram_read"),
    (r"[dv]ram write (bandwidth|throughput)", "dram_write"),
    (r"pcie (rx|read)( throughput| bandwidth)?", "pcie_rx"),
    (r"pcie (tx|write)( throughput| bandwidth)?", "pcie_tx"),
    # Hopper counts requests and responses, user and protocol data apart: they add up.
    (r"nvlink (rx\b.*|bytes received)", "nvlink_rx"),
    (r"nvlink (tx\b.*|bytes transmitted)", "nvlink_tx"),
    (r"gpc clock frequency", "sm_clock_hz"),
)
_NAMES = tuple((re.compile(pattern), column) for pattern, column in _COLUMN_OF_NAME)

#: Clock values are Hz although the name says MHz; smaller values than this are MHz after all.
_LEAST_HZ = 1e6

_GPU_MASK = 0xFF


def column_of_metric(name: str) -> str | None:
    """Our column for a metric name with or without its unit in brackets; None if unused."""
    base, _, unit = name.partition("[")
    base, unit = " ".join(base.lower().split()), unit.rstrip("] ").lower()
    for pattern, column in _NAMES:
        if pattern.fullmatch(base):
            # "[Avg]" and "[Avg Warps per Cycle]" variants of a share are other quantities.
            return column if column not in SAMPLE_RATIOS or not unit or "%" in unit else None
    return None


def wanted_metrics(raw: RawTables) -> dict[tuple[int, int], str]:
    """(typeId, metricId) -> our column, for every metric of the capture that we use."""
    rows = rows_of(raw, METRIC_NAMES, typeId=int, metricId=int, metricName=str)
    return {(kind, metric): column for kind, metric, name in rows if (column := column_of_metric(name))}


def recorded(raw: RawTables) -> bool:
    """True when there are samples of GPU metrics or of a plugin."""
    return _readable(raw) or _plugin_recorded(raw)


def _readable(raw: RawTables) -> bool:
    """True when there are metric rows with a time on the session's clock and a known name."""
    times = _time_columns(raw)
    if (
        not raw.has(GPU_METRICS)
        or not times
        or not {"typeId", "metricId", "value"} <= set(raw.columns(GPU_METRICS))
    ):
        return False
    # A row counts by its first time that is set.
    begun = Is.NOT_MISSING if began_early(raw) else Is.FROM_ZERO
    late = [dict.fromkeys(times[:i], Is.NULL) | {time: begun} for i, time in enumerate(times)]
    rows = [
        {"typeId": (type_id,), "metricId": (metric,)} | each
        for type_id, metric in sorted(wanted_metrics(raw))
        for each in late
    ]
    return bool(rows) and raw.count(GPU_METRICS, rows, at_most=1) > 0


def _time_columns(raw: RawTables) -> tuple[str, ...]:
    """Columns with session time, the first one preferred.

    `timestamp` may be null or absent (2023.3); the raw stamp then serves if its clock is the
    session's.
    """
    times = [c for c in ("timestamp", "rawTimestamp") if c in raw.columns(GPU_METRICS)]
    sources = rows_of(raw, "GENERIC_EVENT_SOURCES", data=str)
    if "rawTimestamp" in times and not any("SessionNs" in data for (data,) in sources):
        times.remove("rawTimestamp")
    return tuple(times)


def read_samples(raw: RawTables, devices: Sequence[int]) -> Columns:
    """All columns of `samples`, in order of time; a metric that a device lacks is NaN.

    The device is the GPU's id (`typeId & 0xFF`). Stamps before the session's start are dropped, unless the
    work is dated before it as well. Samples of a plugin fill columns that GPU metrics lack, and stand alone
    without GPU metrics.
    """
    metrics = _gpu_metrics(raw) if _readable(raw) else _merged([])
    if not _plugin_recorded(raw):
        return metrics
    sampled = _plugin_samples(raw, devices)
    if len(metrics["time"]):
        return with_coarser(metrics, sampled)
    lacking = np.full(len(sampled["time"]), np.nan)
    return {name: sampled.get(name, lacking) for name in TABLES["samples"]}


def _gpu_metrics(raw: RawTables) -> Columns:
    metrics = wanted_metrics(raw)
    keep = Keep("metricId", tuple(sorted({metric for _, metric in metrics})))
    times = _time_columns(raw)
    kind, metric, value, time, *other = raw.read(
        GPU_METRICS, ["typeId", "metricId", "value", *times], keep, ("metricId", "value")
    )
    if other and (time == MISSING).any():
        time = np.where(time == MISSING, other[0], time)
    dated = time != MISSING if began_early(raw) else time >= 0
    before = int((~dated).sum())
    raw.ledger.note("dropped", "GPU samples before the session began", GPU_METRICS, before, len(time))
    kinds = sorted({type_id for type_id, _ in metrics})
    parts = []
    for type_id in kinds:
        rows = dated & (kind == type_id)
        if not rows.all():
            selected = time[rows], metric[rows], value[rows]
        else:
            selected = time, metric, value
        if len(selected[0]):
            names = {m: column for (t, m), column in metrics.items() if t == type_id}
            parts.append(_wide(*selected, names) | {"device": type_id & _GPU_MASK})
    return _merged(parts)


def _wide(time: Ints, metric: Ints, value: Ints, names: dict[int, str]) -> dict[str, Any]:
    """One device: `time` and a column per known metric."""
    places = [np.flatnonzero(metric == number) for number in names]
    each = [time[at] for at in places]
    if all(np.array_equal(one, each[0]) for one in each):  # as a sampler writes them
        times = distinct(each[0])
        rows = [np.searchsorted(times, each[0])] * len(each)
    else:
        times = merged(*each)
        rows = [np.searchsorted(times, one) for one in each]
    wide: dict[str, Any] = {"time": times}
    for column, at, row in zip(names.values(), places, rows, strict=True):
        mine = value[at]
        known = where(mine >= 0)
        one = np.full(len(times), np.nan)
        one[row[known]] = mine[known]
        so_far = wide.get(column, one)  # separately counted parts add up
        wide[column] = one if so_far is one else np.where(np.isnan(so_far), one, so_far + np.nan_to_num(one))
    for column in SAMPLE_RATIOS:
        if column in wide:
            wide[column] /= 100.0
    clock = wide.get("sm_clock_hz")
    if clock is not None and not (clock > _LEAST_HZ).any():
        clock *= 1e6
    return wide


def _merged(parts: list[dict[str, Any]]) -> Columns:
    """The devices' rows as one table in order of time."""
    sizes = [len(part["time"]) for part in parts]
    columns: Columns = {
        "time": np.concatenate([p["time"] for p in parts] or [np.empty(0, np.int64)]),
        "device": np.repeat(np.array([p["device"] for p in parts], np.int64), sizes),
    }
    for name in TABLES["samples"][2:]:
        if any(name in part for part in parts):
            each = [p.get(name, np.full(n, np.nan)) for p, n in zip(parts, sizes, strict=True)]
            columns[name] = np.concatenate(each) if len(each) > 1 else each[0]
        else:
            columns[name] = np.full(sum(sizes), np.nan)
    if len(parts) > 1:
        order = np.lexsort((columns["device"], columns["time"]))
        columns = {name: values[order] for name, values in columns.items()}
    return columns


#: The last sample of coarser ones is valid for this many periods; after that the sampler was not running.
_HELD = 2.0


def with_coarser(own: Columns, other: Columns) -> Columns:
    """`own` samples; columns without values are filled from the latest of `other`, valid for two periods."""
    filled = dict(own)
    lacking = [n for n in own if n in other and n in FLOAT_COLUMNS and np.isnan(own[n]).all()]
    for device in distinct(other["device"]).tolist() if lacking else ():
        theirs = np.flatnonzero(other["device"] == device)
        mine = np.flatnonzero(own["device"] == device)
        time = other["time"][theirs]
        at = np.searchsorted(time, own["time"][mine], "right") - 1
        hold = _HELD * median_of(np.diff(time)) if len(time) > 1 else np.inf
        held = (at >= 0) & (own["time"][mine] - time[np.maximum(at, 0)] <= hold)
        for name in lacking:
            filled[name] = filled[name].copy()
            filled[name][mine[held]] = other[name][theirs[at[held]]]
    return filled


# --- plugins: generic events ---------------------------------------------------------------------
# That a value is the first one set, and the GPU the low byte of the type, is how `network_map_aws` of the
# recipes of nsys joins them; older exports hold types and events as JSON. Names and units: user guide,
# "NVML power and temperature metrics" (milliwatts, degrees Celsius) and "DCGM", whose metrics bear the
# tags of DCGM's own fields (dcgm_fields.cpp of NVIDIA/DCGM: watts, MHz, MiB); exports of the NVML plugin
# name a field `Power`.

EVENTS, DATA = "GENERIC_EVENTS", "GENERIC_EVENT_DATA"
TYPES, FIELDS = "GENERIC_EVENT_TYPES", "GENERIC_EVENT_TYPE_FIELDS"
_PLUGIN_VALUES = ("intVal", "uintVal", "floatVal", "doubleVal")
#: Names of fields without their unit -> our columns.
_PLUGIN_COLUMNS = {
    "power": "power_w",
    "power_usage": "power_w",
    "power_usage_instant": "power_w",
    "enforced_power_limit": "power_limit_w",
    "temperature": "temperature_c",
    "gpu_temp": "temperature_c",
    "sm_clock": "sm_clock_hz",
    "fb_used": "memory_used_bytes",
    "fb_total": "memory_total_bytes",
}
#: The factor of a sampled number of these columns.
_PLUGIN_UNITS = {"sm_clock_hz": 1e6, "memory_used_bytes": 2.0**20, "memory_total_bytes": 2.0**20}
#: No GPU draws that much power, and every one under load draws more milliwatts.
_MOST_W = 5_000


def _plugin_column(name: str) -> str | None:
    return _PLUGIN_COLUMNS.get(name.partition("[")[0].strip().lower())


def _plugin_fields(raw: RawTables) -> dict[tuple[int, int | str], str]:
    """(type, number or name of a field) -> our column."""
    found: dict[tuple[int, int | str], str] = {}
    rows = list(rows_of(raw, FIELDS, typeId=int, fieldIdx=int, fieldNameId=int))
    texts = raw.texts(STRINGS, sorted({text for _, _, text in rows})) if rows else {}
    for kind, index, text in rows:
        if column := _plugin_column(texts.get(text, "")):
            found[kind, index] = column
    for kind, data in rows_of(raw, TYPES, typeId=int, data=object):
        fields = _json(data).get("Fields")
        for field in fields if isinstance(fields, list) else ():
            name = str(field.get("Name", "")) if isinstance(field, dict) else ""
            if column := _plugin_column(name):
                found[kind, name] = column
    return found


def _plugin_recorded(raw: RawTables) -> bool:
    """True when events may hold power or temperature at times of the session."""
    timed = {"timestamp", "typeId"} <= set(raw.columns(EVENTS))
    return timed and raw.has(EVENTS) and bool(_plugin_fields(raw))


def _plugin_samples(raw: RawTables, devices: Iterable[int]) -> Columns:
    """`time`, `device` and the columns that were sampled, by time; NaN if a sample lacks one."""
    fields, known = _plugin_fields(raw), list(devices)
    types = sorted({kind for kind, _ in fields})
    taken: dict[tuple[int, int], dict[str, float]] = {}
    for time, kind, field, value in _plugin_values(raw, types):
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
        columns[name] = sampled * _PLUGIN_UNITS.get(name, 1.0)
    power = columns.get("power_w")
    if power is not None and (power > _MOST_W).any():
        columns["power_w"] = power / 1e3
    return columns


def _plugin_values(raw: RawTables, types: list[int]) -> Iterator[tuple[int, int, int | str, float]]:
    """Time, type, number or name of the field, and value."""
    keep = Keep("typeId", tuple(types))
    has = set(raw.columns(EVENTS))
    if "genericEventId" in has and raw.has(DATA):
        event, time, kind = (
            c.tolist() for c in raw.read(EVENTS, ["genericEventId", "timestamp", "typeId"], keep)
        )
        when = dict(zip(event, zip(time, kind, strict=True), strict=True))
        columns = dict.fromkeys(("genericEventId", "fieldIdx", *_PLUGIN_VALUES), object)
        for number, field, *values in rows_of(raw, DATA, **columns):
            value = next((v for v in values if v is not None), None)
            if number in when and isinstance(value, int | float):
                yield *when[number], field, float(value)
    elif "data" in has:
        time, kind = (c.tolist() for c in raw.read(EVENTS, ["timestamp", "typeId"], keep))
        codes, texts = raw.text_codes(EVENTS, "data", [{"typeId": keep.values}])
        parsed = [_json(text) for text in texts]
        for one, which, code in zip(time, kind, codes.tolist(), strict=True):
            for name, value in (parsed[code] if code >= 0 else {}).items():
                if isinstance(number := as_number(value), float):
                    yield one, which, name, number


def _json(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- network cards, as `--nic-metrics` samples them ------------------------------------------------
# Names and units of the counters (bytes/ms, ticks/ms): as the network recipes of nsys select them.

NIC_METRICS, NIC_NAMES, NIC_CARDS = "NET_NIC_METRIC", "TARGET_INFO_NETWORK_METRICS", "NIC_ID_MAP"
_NIC_KINDS = {
    ("Bytes sent", "bytes/ms"): NIC_SENT,
    ("Bytes received", "bytes/ms"): NIC_RECEIVED,
    ("Send waits", "ticks/ms"): NIC_WAITS,
}
_NIC_READ = ("start", "end", "globalId", "metricsListId", "metricsIdx", "value")


def _nic_metrics(raw: RawTables) -> dict[tuple[int, int], int]:
    """(list, place in it) -> what it counts, for the counters of InfiniBand and Ethernet that are read."""
    rows = rows_of(raw, NIC_NAMES, metricsListId=int, metricsIdx=int, name=str, unit=str)
    kinds = {
        (group, place): _NIC_KINDS.get((name.partition(": ")[2], unit)) for group, place, name, unit in rows
    }
    return {key: kind for key, kind in kinds.items() if kind is not None}


def network_recorded(raw: RawTables) -> bool:
    """True when a counter that is read has samples."""
    return (
        raw.has(NIC_METRICS) and set(_NIC_READ) <= set(raw.columns(NIC_METRICS)) and bool(_nic_metrics(raw))
    )


def read_network(raw: RawTables) -> Columns:
    """All columns of `network`, in the order of the file."""
    wanted = _nic_metrics(raw)
    keep = Keep("metricsIdx", tuple(sorted({place for _, place in wanted})))
    start, end, card, group, place, value = raw.read(NIC_METRICS, list(_NIC_READ), keep)
    kind = np.full(len(start), MISSING, np.int64)
    for (one, number), what in wanted.items():
        kind[(group == one) & (place == number)] = what
    nic = card.copy()
    for number, one in rows_of(raw, NIC_CARDS, nicId=int, globalId=int):
        nic[card == one] = number
    rate = np.where(kind == NIC_WAITS, value, value * 1000)
    known = (kind != MISSING) & (value >= 0)
    columns = {"start": start, "end": end, "nic": nic, "kind": kind, "value": rate}
    return {name: values[known] for name, values in columns.items()}
