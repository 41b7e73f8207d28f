"""Operators by their sizes: what they compute and move, how fast, and how near to what the GPU can do."""

from __future__ import annotations

from typing import Any

import pandas as pd

from advisor.metrics.profiled.rates import OperatorRate, family_times
from advisor.metrics.stats.summaries import BYTES_PER_MB, Query
from advisor.model.numbers import percent

_NO_SIZES = "no sizes of operands are recorded: torch.profiler.profile(record_shapes=True) records them"


def operators(query: Query) -> pd.DataFrame:
    """Operators of the main device with recorded sizes, each with its rates, and the other kernels by family.
    Times are those of kernels; shares add up to all kernels of the window."""
    a = query.a
    device = a.main_device
    at = a.device_kernels(device)
    if not len(at):
        return pd.DataFrame()
    found = a.operator_rates(device)
    rows = [] if found is None else [_row(rate) for rate in found.rates]
    for family, kernels, time in family_times(a, at if found is None else found.others):
        named = {"Operator": f"other {family} kernels", "Family": family, "Shape": "", "Type": ""}
        rows.append(named | {"Calls": kernels, "Total Time (ns)": time})
    frame = pd.DataFrame(rows).sort_values("Total Time (ns)", ascending=False, kind="stable")
    frame["Avg (ns)"] = frame["Total Time (ns)"] / frame["Calls"]
    frame["Time (%)"] = 100.0 * frame["Total Time (ns)"] / frame["Total Time (ns)"].sum()
    notes = [_NO_SIZES] if found is None else []
    impossible = [] if found is None else [rate for rate in found.rates if rate.is_impossible]
    if impossible:
        share = sum(rate.time_ns for rate in impossible) / max(float(frame["Total Time (ns)"].sum()), 1.0)
        notes.append(
            f"{len(impossible)} operators ({percent(share)} of the kernel time) ran faster than the GPU can: "
            "their times or sizes are damaged, and their rates are left out"
        )
    if notes:
        frame.attrs["note"] = "; ".join(notes)
    return frame


def _row(rate: OperatorRate) -> dict[str, Any]:
    work, known = rate.work, not rate.is_impossible
    row: dict[str, Any] = {
        "Operator": rate.name,
        "Shape": work.shape,
        "Family": work.family,
        "Type": work.precision or "",
        "Calls": rate.calls,
        "Total Time (ns)": rate.time_ns,
        "GFLOP": work.flop / 1e9,
    }
    if work.bytes is not None:
        row["MB"] = work.bytes / BYTES_PER_MB
    if not known:
        return row
    if work.matrix:
        row["TFLOP/s"] = rate.flop_per_s / 1e12
    if rate.bytes_per_s is not None:
        row["GB/s"] = rate.bytes_per_s / 1e9
    if rate.of_peak is not None:
        row["Of Peak (%)"], row["Of Peak At Most (%)"] = (100.0 * share for share in rate.of_peak)
    if rate.of_bandwidth is not None:
        row["Of DRAM (%)"] = 100.0 * rate.of_bandwidth
    if rate.of_roofline is not None:
        row["Roofline (%)"] = 100.0 * rate.of_roofline
    return row
