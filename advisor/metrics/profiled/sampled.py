"""Samples of GPU metrics: how active a device is, how that comes and goes, and whether samples follow the
recorded work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.intervals import Coverage, Spans
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.stepped.window import Window
from advisor.model.arrays import Array, median_of, percentiles, run_of
from advisor.sources.schema import SAMPLE_RATIOS
from advisor.sources.trace import Trace

#: Number of samples used to find the lag; more do not change it.
_LAG_SAMPLES = 4_000
#: A lag is found to a part of a sample: one in so many.
_TICKS = 4
#: Stamps further apart than so many periods have a hole between them.
_HOLE = 3


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


def lag_of(samples: Samples, work: Sequence[Spans]) -> int:
    """By how much the stamps of samples are late against the kernels, ns (negative: early); 0 where both
    line up within half a sample, and where nothing shows it. `work`: when kernels run, and when those run
    that fill the SMs.

    At the right lag the activity of SMs or DRAM follows one of them closely, and at others it does not. A
    device that does the same all the time gives no contrast.
    """
    found = [v for v in (*map(samples.values.get, ("sm_active", "gr_active")), samples.dram) if v is not None]
    seen = [v for v in found if not np.isnan(v).any() and v.std() >= limits.recording.FLAT_DEVIATION]
    if not seen or len(samples) < limits.recording.SAMPLES:
        return 0
    count = -(-limits.recording.LAG_SAMPLE_NS // samples.period)
    until = _first_hole(samples) // count * count
    time, period = samples.time[:until:count], count * samples.period
    if len(time) < limits.recording.SAMPLES:
        return 0
    values = [v[:until].reshape(-1, count).mean(axis=1) for v in seen]
    tick = period // _TICKS
    place = np.rint((time - time[0]) / tick).astype(np.int64)
    reach = min(max(limits.recording.LAG_NS, 2 * period), len(time) * period // 4) // tick
    grid = time[0] + tick * np.arange(-reach, int(place[-1]) + reach + _TICKS + 1)
    covered = [Coverage(spans)(grid) for spans in work if len(spans)]
    occupied = [(each[_TICKS:] - each[:-_TICKS]) / period for each in covered]
    # The contrast of busy and idle time hides that between kernels, so busy samples are looked at apart.
    busy = np.max([each[place + reach] for each in occupied], axis=0, initial=0) > 0.5
    for mine in (np.ones(len(time), bool), busy):
        if np.count_nonzero(mine) >= limits.recording.SAMPLES:
            lag = _lag_in(place[mine] + reach, [v[mine] for v in values], occupied, reach)
            if lag:
                return -lag * tick
    return 0


def _lag_in(place: Array, values: Sequence[Array], occupied: Sequence[Array], reach: int) -> int:
    """The shift of the places in the `occupied` shares, up to `reach`, at which one of them follows the
    values clearly better than at none; 0 if there is none."""
    apart = [_apart(v) for v in values]

    def fit(shift: int) -> float:
        """The best correlation of any of the sampled values with any of the work."""
        of_work = [_apart(each[place + shift], limits.recording.BUSY_DEVIATION) for each in occupied]
        return max((float(one @ other) for one in of_work for other in apart), default=0.0)

    near = max(map(fit, range(-(_TICKS // 2), _TICKS // 2 + 1)))
    if near > 1 - limits.recording.LAG_MARGIN:
        return 0
    some = np.arange(-reach, reach + 1, 2)
    fits = np.array([fit(shift) for shift in some.tolist()])
    # What repeats follows as well a step later: the shortest of such distances.
    alike = some[fits >= fits.max() - limits.recording.LAG_MARGIN / 2]
    first = int(alike[np.abs(alike).argmin()])
    best = max((s for s in range(first - _TICKS, first + _TICKS + 1) if abs(s) <= reach), key=fit)
    lost, least = 1 - near**2, 1 - fit(best) ** 2  # variance that the kernels do not explain
    known = (
        fit(best) >= limits.recording.FOLLOWING_CORRELATION
        and fit(best) - near >= limits.recording.LAG_MARGIN
    )
    return best if known and lost >= limits.recording.LAG_FACTOR * least else 0


def _first_hole(samples: Samples) -> int:
    """Number of samples up to the first hole, and at most as many as a lag takes."""
    holes = np.flatnonzero(np.diff(samples.time) > _HOLE * samples.period)
    return min(int(holes[0]) + 1 if len(holes) else len(samples), _LAG_SAMPLES)


def _apart(values: Array, least: float = 0.0) -> Array:
    """The deviations from the mean, of norm 1; zeros if they vary by less than `least` or not at all."""
    own = values - values.mean()
    norm = math.sqrt(own @ own)
    return own / norm if norm > least * math.sqrt(len(own)) else np.zeros(len(own))


def time_at_level(values: Array, busy: Array, level: float) -> float:
    """Share of the sampled busy time (`busy`: of each sample, 0..1) in which activity reaches `level`."""
    known = np.nan_to_num(values)
    return float(busy[(busy > 0) & (known >= level * busy)].sum() / len(busy)) if len(busy) else 0.0


def unrecorded_ratio(samples: Samples, busy: Spans) -> float | None:
    """Share of the samples' GR Active that is further than one period from any recorded work (`busy`); None
    if it was not sampled, or not to the end of the work."""
    active = samples.values.get("gr_active")
    if active is None or not len(busy) or samples.time[-1] + 2 * samples.period < busy.end[-1]:
        return None
    near = Coverage(busy).within(samples.time - samples.period, samples.time + 2 * samples.period)
    return float(np.nan_to_num(active[near == 0]).sum() / len(active))


class Bursts(NamedTuple):
    """5th and 95th percentile of activity, 0..1, and how often it falls below the middle between them and
    comes back."""

    low: float
    high: float
    times: int


def burst_levels(samples: Samples) -> Bursts | None:
    """Levels of SM Active (else GR Active) in bins of `BURST_BIN_NS`, from the first busy bin to the last;
    None for fewer than 10 bins with a sample."""
    values = samples.values.get("sm_active", samples.values.get("gr_active"))
    if values is None:
        return None
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return None
    at = dense((samples.time[known] - samples.time[known[0]]) // limits.recording.BURST_BIN_NS)[1]
    means = np.bincount(at, values[known]) / np.bincount(at)  # bins without a sample say nothing
    middle = (means.min() + means.max()) / 2
    busy = np.flatnonzero(means >= middle)
    means = means[busy[0] : busy[-1] + 1]
    if len(means) < limits.recording.PERCENTILE_BINS:
        return None
    low, high = percentiles(means, 5, 95)
    times = int((np.diff((means > (low + high) / 2).astype(np.int8)) > 0).sum())
    return Bursts(low, high, times)
