"""Samples of GPU metrics: how active a device is, how that comes and goes, and whether samples follow the
recorded work."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.intervals import Coverage, Spans
from advisor.metrics.kernels import dense
from advisor.metrics.window import Window
from advisor.model.arrays import Array, median_of, percentiles, run_of
from advisor.sources.schema import SAMPLE_RATIOS
from advisor.sources.trace import Trace

#: Number of samples used to find the lag, over the whole capture; more do not change it.
_LAG_SAMPLES = 20_000


class Samples(Struct, frozen=True):
    """Samples of one device inside a window; a stamp t covers [t, t + period)."""

    time: Array
    period: int
    values: dict[str, Array]

    def __len__(self) -> int:
        return len(self.time)

    def mean(self, name: str) -> float | None:
        """Mean of a column, 0..1; None if the device does not report it."""
        column = self.values.get(name)
        if column is None or len(column) == 0 or np.isnan(column).all():
            return None
        return float(np.nanmean(column))

    @property
    def busy(self) -> Array | None:
        """How much of each sample the device was busy, 0..1, as far as samples show it: GR Active;
        where that is not sampled, the whole of every sample in which SMs or DRAM were active."""
        if "gr_active" in self.values:
            return np.nan_to_num(self.values["gr_active"])
        found = [v for v in (self.values.get("sm_active"), self.dram) if v is not None]
        if not found:
            return None
        return np.asarray(np.max(np.nan_to_num(found), axis=0) >= limits.recording.ACTIVE_RATIO, np.float64)

    @property
    def dram(self) -> Array | None:
        """DRAM read + write, 0..1 of peak."""
        if "dram_read" not in self.values:
            return None
        write = self.values.get("dram_write")
        return self.values["dram_read"] + (0 if write is None else np.nan_to_num(write))


def device_samples(trace: Trace, device: int, window: Window) -> Samples | None:
    """Samples of a device wholly inside the window and in no hole of it; None if there are none."""
    columns = trace.columns("samples", ("time", "device", *SAMPLE_RATIOS))
    time, mine = columns["time"], columns["device"] == device
    period = int(median_of(np.diff(time[mine]))) if np.count_nonzero(mine) > 1 else 0
    if period <= 0:
        return None
    mine &= (time >= window.start) & (time + period <= window.end) & ~window.holes.holds(time)
    rows = np.flatnonzero(mine)
    if len(rows) == 0:
        return None
    inside = run_of(rows)
    values = {n: columns[n][inside] for n in SAMPLE_RATIOS if not np.isnan(columns[n][inside]).all()}
    return Samples(time[inside], period, values)


def best_lag(samples: Samples, busy: Spans) -> float:
    """Lag, in periods, at which SM activity follows occupancy best.

    A device that is busy throughout gives no contrast to align by; then the lag is 0, the documented
    meaning of the stamp (start of the interval).
    """
    values = samples.values.get("sm_active")
    if values is None or np.isnan(values).any():
        return 0.0
    some = slice(None, None, max(len(samples) // _LAG_SAMPLES, 1))
    time, values = samples.time[some], values[some]
    flat = values.std() < limits.recording.FLAT_DEVIATION
    apart = values - values.mean()
    norm = math.sqrt(apart @ apart)
    shifts = np.arange(-2.0, 3.01, 0.25)
    begin = np.array([round(shift * samples.period) for shift in shifts.tolist()])
    # All shifts of one sample at once: they are close together, so each search starts where the last one
    # ended.
    time = np.add.outer(time, begin)
    covered = Coverage(busy)(time.ravel()).reshape(time.shape).T
    correlations = []
    for until, since in zip(covered[4:], covered, strict=False):  # one period, four shifts, later
        occupied = (until - since) / samples.period
        occupied -= occupied.mean()
        spread = math.sqrt(occupied @ occupied)
        steady = spread < limits.recording.BUSY_DEVIATION * math.sqrt(len(occupied))
        correlations.append(0.0 if flat or steady else float(occupied @ apart) / (spread * norm))
    top = int(np.argmax(correlations))
    return float(shifts[top]) if correlations[top] >= limits.recording.FOLLOWING_CORRELATION else 0.0


def time_at_level(values: Array, busy: Array, level: float) -> float:
    """Share of the sampled busy time (`busy`: of each sample, 0..1) in which activity reaches `level`."""
    known = np.nan_to_num(values)
    return float(busy[(busy > 0) & (known >= level * busy)].sum() / len(busy)) if len(busy) else 0.0


def unrecorded_ratio(samples: Samples, busy: Spans) -> float | None:
    """Share of the samples' GR Active that is further than one period from any recorded work (`busy`); None
    if it was not sampled, or the samples do not follow the work in time to its end."""
    active = samples.values.get("gr_active")
    if active is None or not len(busy) or samples.time[-1] + 2 * samples.period < busy.end[-1]:
        return None
    if abs(best_lag(samples, busy)) > 1.0:
        return None
    near = Coverage(busy).within(samples.time - samples.period, samples.time + 2 * samples.period)
    return float(np.nan_to_num(active[near == 0]).sum() / len(active))


class Bursts(NamedTuple):
    """5th and 95th percentile of activity, 0..1, and how often it falls below the middle between them and
    comes back."""

    low: float
    high: float
    times: int


def burst_levels(samples: Samples, bin_ns: int = 100_000_000) -> Bursts | None:
    """Levels of SM Active (else GR Active) in bins of 100 ms, from the first busy bin to the last; None
    for fewer than 10 bins with a sample."""
    values = samples.values.get("sm_active", samples.values.get("gr_active"))
    if values is None:
        return None
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return None
    at = dense((samples.time[known] - samples.time[known[0]]) // bin_ns)[1]
    means = np.bincount(at, values[known]) / np.bincount(at)  # bins without a sample say nothing
    middle = (means.min() + means.max()) / 2
    busy = np.flatnonzero(means >= middle)
    means = means[busy[0] : busy[-1] + 1]
    if len(means) < limits.recording.PERCENTILE_BINS:
        return None
    low, high = percentiles(means, 5, 95)
    times = int((np.diff((means > (low + high) / 2).astype(np.int8)) > 0).sum())
    return Bursts(low, high, times)
