"""How the sampled activity of a device comes and goes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.metrics.activity import Samples
from advisor.metrics.kernels import dense
from advisor.model.arrays import percentiles

#: Percentiles of fewer bins than this say nothing.
_FEWEST_BINS = 10


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
    if len(means) < _FEWEST_BINS:
        return None
    low, high = percentiles(means, 5, 95)
    times = int((np.diff((means > (low + high) / 2).astype(np.int8)) > 0).sum())
    return Bursts(low, high, times)
