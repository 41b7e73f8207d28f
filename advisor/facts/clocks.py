"""Facts about clocks, power and temperature while a device is busy."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.facts import needs
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.model.arrays import Array
from advisor.model.facts import Scope

#: A sample is of a busy device from this activity on.
_BUSY = 0.5
#: Power within this share of its limit counts as at the limit; samplers average over a second.
_AT_LIMIT = 0.97
_COLUMNS = (
    "time", "device", "sm_active", "gr_active", "sm_clock_hz", "sm_clock_max_hz", "power_w",
    "power_limit_w", "temperature_c", "throttled", "overheated",
)  # fmt: skip

_BUSY_SAMPLES = Need(
    f"no sample shows a device that is {100 * _BUSY:.0f} % busy", None,
    lambda a: bool(_samples(a, a.main_device)[2].any()),
)  # fmt: skip
_SAMPLED = Need("no sample of a busy device has it", needs.SMI_LOG)
_LIMITED = Need("no sample of a busy device shows a limit")

FACTS = (
    *group("device", needs.SAMPLES, [
        Entry("clock.busy_ratio", "ratio", "samples", "SM clock while the device is busy, over its highest", "mean of the samples with SM Active (else GR Active) of at least 50 %"),
        Entry("clock.lost_window_ratio", "ratio", "samples", "Share of the window that the lower clock costs, were all of it clock-bound", "(1 - clock.busy_ratio) x share of busy samples"),
        Entry("clock.power_limited_ratio", "ratio", "samples", "Share of the busy samples at the power limit", "power of at least 97 % of the limit", columns={"samples": "time device sm_active power_w power_limit_w"}),
        Entry("clock.held_back_ratio", "ratio", "samples", "Share of the busy samples whose clock the driver holds down for power or heat", "clocks_event_reasons: power cap, thermal, brake", columns={"samples": "time device sm_active throttled"}),
        Entry("clock.limited_ratio", "ratio", "samples", "Share of the busy samples at a power or heat limit", "what the driver says, else power of at least 97 % of its limit", columns={"samples": "time device sm_active throttled overheated power_w power_limit_w"}),
        Entry("clock.limit", "text", "samples", "What that limit is: power or heat", "the reason of most of these samples", columns={"samples": "time device sm_active throttled overheated power_w power_limit_w"}, needs=(_BUSY_SAMPLES, _LIMITED)),
        Entry("clock.temperature_max_c", "count", "samples", "Highest GPU temperature while busy, degrees Celsius", "max of the samples", columns={"samples": "time device sm_active temperature_c"}),
    ], columns={"samples": "time device sm_active sm_clock_hz"}, needs=(_BUSY_SAMPLES, _SAMPLED), supply=needs.SMI_LOG),
)  # fmt: skip


def _samples(a: Analysis, device: int) -> tuple[dict[str, Any], Array, Array]:
    """All samples, and masks of those of the device in the window and of the busy ones among
    them."""
    rows = a.trace.columns("samples", _COLUMNS)
    mine = (rows["device"] == device) & (rows["time"] >= a.window.start)
    mine &= rows["time"] <= a.window.end
    active = rows["sm_active"] if not np.isnan(rows["sm_active"][mine]).all() else rows["gr_active"]
    return rows, mine, mine & (np.nan_to_num(active) >= _BUSY)


def clock_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Only busy samples count: an idle GPU clocks down on purpose."""
    rows, mine, busy = _samples(a, device)
    if not busy.any():
        return
    scope = Scope(device=device)
    clock = rows["sm_clock_hz"][busy]
    top = rows["sm_clock_max_hz"][busy]
    highest = a.device(device).clock_hz if np.isnan(top).all() else float(np.nanmax(top))
    if not highest and not np.isnan(rows["sm_clock_hz"][mine]).all():
        highest = float(np.nanmax(rows["sm_clock_hz"][mine]))  # at least this one it can reach
    if highest and not np.isnan(clock).all():
        ratio = float(np.nanmean(clock)) / highest
        out.put("clock.busy_ratio", min(ratio, 1.0), scope)
        share = float(busy.sum() / max(mine.sum(), 1))
        out.put("clock.lost_window_ratio", max(1.0 - ratio, 0.0) * share, scope)
    power, limit = rows["power_w"][busy], rows["power_limit_w"][busy]
    at_limit = np.where(np.isnan(power) | np.isnan(limit), np.nan, power >= _AT_LIMIT * limit)
    out.put("clock.power_limited_ratio", _mean(at_limit), scope)
    held, heated = rows["throttled"][busy], rows["overheated"][busy]
    out.put("clock.held_back_ratio", _mean(held), scope)
    # What the driver says of a sample counts before what its power suggests.
    limited = np.where(np.isnan(held), at_limit, held)
    out.put("clock.limited_ratio", _mean(limited), scope)
    if np.nansum(limited) > 0:
        heat_share = float(np.nansum(heated) / np.nansum(limited))
        out.put("clock.limit", "heat" if heat_share >= 0.5 else "power", scope)
    heat = rows["temperature_c"][busy]
    if not np.isnan(heat).all():
        out.put("clock.temperature_max_c", float(np.nanmax(heat)), scope)
    mean_clock = _mean(clock)
    table = [
        ["SM clock while busy", None if mean_clock is None else mean_clock / 1e6, "MHz"],
        ["highest SM clock", highest / 1e6 if highest else None, "MHz"],
        ["power while busy", _mean(power), "W"],
        ["power limit", _mean(limit), "W"],
        ["held down by the driver", _percent(held), "% of samples"],
        ["highest temperature", None if np.isnan(heat).all() else float(np.nanmax(heat)), "C"],
    ]
    out.table(
        "clock.samples",
        scope,
        "Clocks, power and temperature while busy",
        ("what", "value", "unit"),
        [row for row in table if row[1] is not None],
    )


def _mean(values: Array) -> float | None:
    return None if np.isnan(values).all() else float(np.nanmean(values))


def _percent(values: Array) -> float | None:
    share = _mean(values)
    return None if share is None else 100.0 * share
