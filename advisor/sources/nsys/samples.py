"""GPU metrics: the long rows of an nsys export -> one wide row per device and time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.sources.nsys import plugin_samples
from advisor.sources.nsys.tables import GPU_METRICS, METRIC_NAMES
from advisor.sources.overlay import with_coarser
from advisor.sources.raw import Ints, Is, Keep, RawTables, named_rows
from advisor.sources.schema import MISSING, SAMPLE_RATIOS, TABLES
from advisor.sources.trace import Columns

#: The name without its unit -> our column. Metric ids differ between captures, names between
#: chips and versions: "SM Active" of 2023 is "SMs Active" later.
_COLUMN_OF_NAME = (
    (r"gr active", "gr_active"),
    (r"sms? active", "sm_active"),
    (r"sms? issue( active)?", "sm_issue"),
    (r"tensor active( / fp16 active)?", "tensor_active"),
    (r"dram read (bandwidth|throughput)", "dram_read"),
    (r"dram write (bandwidth|throughput)", "dram_write"),
    (r"pcie (rx|read)( throughput| bandwidth)?", "pcie_rx"),
    (r"pcie (tx|write)( throughput| bandwidth)?", "pcie_tx"),
    # Hopper counts requests and responses, user and protocol data apart: they add up.
    (r"nvlink rx\b.*", "nvlink_rx"),
    (r"nvlink tx\b.*", "nvlink_tx"),
    (r"gpc clock frequency", "sm_clock_hz"),
)
_NAMES = tuple((re.compile(pattern), column) for pattern, column in _COLUMN_OF_NAME)

#: Clock values are Hz although the name says MHz; values below this are MHz after all.
_LEAST_HZ = 1e6

GPU_MASK = 0xFF


def column_of_metric(name: str) -> str | None:
    """Our column for a metric name with or without its unit in brackets; None where not used."""
    base, _, unit = name.partition("[")
    base, unit = " ".join(base.lower().split()), unit.rstrip("] ").lower()
    for pattern, column in _NAMES:
        if pattern.fullmatch(base):
            # "[Avg]" and "[Avg Warps per Cycle]" variants of a share are other quantities.
            return column if column not in SAMPLE_RATIOS or not unit or "%" in unit else None
    return None


def wanted_metrics(raw: RawTables) -> dict[tuple[int, int], str]:
    """(typeId, metricId) -> our column, for every metric of the capture that we use."""
    metrics = {}
    for row in named_rows(raw, METRIC_NAMES, ("typeId", "metricId", "metricName")):
        column = column_of_metric(str(row["metricName"] or ""))
        if column and isinstance(row["typeId"], int) and isinstance(row["metricId"], int):
            metrics[row["typeId"], row["metricId"]] = column
    return metrics


def recorded(raw: RawTables) -> bool:
    """True when there are samples of GPU metrics or of a plugin."""
    return _readable(raw) or plugin_samples.recorded(raw)


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
    late = [dict.fromkeys(times[:i], Is.NULL) | {time: Is.FROM_ZERO} for i, time in enumerate(times)]
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
    if "rawTimestamp" in times:
        sources = named_rows(raw, "GENERIC_EVENT_SOURCES", ("data",))
        if not any("SessionNs" in str(row["data"]) for row in sources):
            times.remove("rawTimestamp")
    return tuple(times)


def read_samples(raw: RawTables, devices: Sequence[int]) -> Columns:
    """All columns of `samples`, in order of time; a metric that a device lacks is NaN.

    The device is the GPU's id (`typeId & 0xFF`). Stamps before the session's start are dropped. What
    a plugin sampled fills columns that GPU metrics lack, and stands alone where there are none.
    """
    metrics = _gpu_metrics(raw) if _readable(raw) else _merged([])
    if not plugin_samples.recorded(raw):
        return metrics
    sampled = plugin_samples.plugin_samples(raw, devices)
    if len(metrics["time"]):
        return with_coarser(metrics, sampled)
    lacking = np.full(len(sampled["time"]), np.nan)
    return {name: sampled.get(name, lacking) for name in TABLES["samples"]}


def _gpu_metrics(raw: RawTables) -> Columns:
    metrics = wanted_metrics(raw)
    keep = Keep("metricId", tuple(sorted({metric for _, metric in metrics})))
    times = _time_columns(raw)
    kind, metric, value, time, *other = raw.read(GPU_METRICS, ["typeId", "metricId", "value", *times], keep)
    if other and (time == MISSING).any():
        time = np.where(time == MISSING, other[0], time)
    before = int((time < 0).sum())
    raw.ledger.note("dropped", "GPU samples before the session began", GPU_METRICS, before, len(time))
    kinds = sorted({type_id for type_id, _ in metrics})
    parts = []
    for type_id in kinds:
        rows = (time >= 0) & (kind == type_id)
        if not rows.all():
            selected = time[rows], metric[rows], value[rows]
        else:
            selected = time, metric, value
        if len(selected[0]):
            names = {m: column for (t, m), column in metrics.items() if t == type_id}
            parts.append(_wide(*selected, names) | {"device": type_id & GPU_MASK})
    return _merged(parts)


def _wide(time: Ints, metric: Ints, value: Ints, names: dict[int, str]) -> dict[str, Any]:
    """One device: `time` and a column per known metric."""
    if (time[1:] < time[:-1]).any():
        times, row = np.unique(time, return_inverse=True)
    else:  # the file is in order of time, as the sampler wrote it: no sort
        new = np.ones(len(time), np.bool_)
        np.not_equal(time[1:], time[:-1], out=new[1:])
        times, row = time[new], np.cumsum(new) - 1
    wide: dict[str, Any] = {"time": times}
    for number, column in names.items():
        mine = np.flatnonzero(metric == number)
        mine = mine[value[mine] >= 0]
        one = np.full(len(times), np.nan)
        one[row[mine]] = value[mine]
        so_far = wide.get(column, one)  # what is counted apart adds up
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
        else:  # of no device: a column that takes no memory
            columns[name] = np.broadcast_to(np.nan, sum(sizes))
    if len(parts) > 1:
        order = np.lexsort((columns["device"], columns["time"]))
        columns = {name: values[order] for name, values in columns.items()}
    return columns
