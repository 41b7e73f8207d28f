"""How much a step time changed, and how certain that is: bootstrap over steps, spread over runs.

Two measures, both as a ratio (0.05: five per cent slower). The *typical* change is the median over all
pairs of a step before and a step after (Hodges and Lehmann): it moves only if most steps moved. The
*mean* change also includes the few steps that stall. Their intervals hold with 98 %: one per cent of
false alarms on either side.

Steps of one capture do not show how much captures of the same program differ, so the interval also
includes the spread over runs: measured if a side has several captures, else the largest difference
between repeats of a step (calibration#compare-noise), which grows with the host's share. And few steps
may agree by luck, so their own spread is assumed to be not much less than usual.

A change counts as *certain* only if the steps also separate: by rank sums (typical) or by shuffling steps
between the sides (mean). That excludes chance under any distribution.

Everything is seeded: the same input gives the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from advisor.model.arrays import Array
from advisor.model.gain import Span

LEVEL = 0.98
RESAMPLES = 2_000
SEED = 7
#: Larger samples enter the pairs as this many quantiles of themselves.
POINTS = 64
#: Pairs held in memory at once.
_CHUNK = 1 << 20
#: Largest difference between two runs of the same step: of the GPU's part, and of the host's on top.
GPU_SPREAD, HOST_SPREAD = 0.01, 0.20
#: Usual spread of single steps within a run (one sigma), likewise.
GPU_STEPS, HOST_STEPS = 0.01, 0.15
#: A single step may be an odd one, so its spread is assumed to be at least this.
LONE_STEP = 0.05
#: Weight of those spreads against measured ones, as a number of runs and of steps.
_PRIOR_RUNS, _PRIOR_STEPS = 2, 4
#: A difference that shuffled steps reach this often counts as chance.
CHANCE = 0.002
_SHUFFLES = 4_000
#: Up to this many steps rank sums are counted exactly; above, the normal distribution is close enough.
_EXACT = 20
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)


class Noise(Struct, frozen=True):
    """Differences without a change: `runs` as log ratio of the sides, `steps` as usual sigma of single
    steps."""

    runs: float = 0.0
    steps: float = 0.0


_NO_NOISE = Noise()


class Change(Struct, frozen=True):
    """A change as a ratio with its interval; above 0 slower. `chance`: how often equal steps differ as
    much."""

    mid: float
    low: float
    high: float
    chance: float = 0.0

    @property
    def span(self) -> Span:
        return Span(low=self.low, mid=self.mid, high=self.high)

    @property
    def least_rise(self) -> float:
        """The certain slow-down; 0 or less if there may be none."""
        return self.low if self.chance <= CHANCE else min(self.low, 0.0)

    @property
    def least_drop(self) -> float:
        """The certainly saved share of the time; 0 or less if there may be none."""
        return -self.high if self.chance <= CHANCE else min(-self.high, 0.0)

    @property
    def least(self) -> float:
        """The certain size of the change, in either direction; 0 if none is."""
        return max(self.least_rise, self.least_drop, 0.0)


def typical_change(before: Array, after: Array, noise: Noise = _NO_NOISE) -> Change | None:
    """The median ratio over all pairs of steps; None if a side has none."""
    if min(len(before), len(after)) < 2:
        return _single(before, after, noise)
    b, a = np.log(before), np.log(after)
    mid = float(np.median(np.subtract.outer(_points(a[None])[0], _points(b[None])[0])))
    rng = np.random.default_rng(SEED)
    shifts = []
    for count in _chunks(RESAMPLES, POINTS * POINTS):
        pb = _points(b[rng.integers(0, len(b), (count, len(b)))])
        pa = _points(a[rng.integers(0, len(a), (count, len(a)))])
        pairs = (pa[:, :, None] - pb[:, None, :]).reshape(count, -1)
        shifts.append(np.median(pairs, axis=1))
    return _interval(mid, np.concatenate(shifts), b, a, noise, _rank_chance(b, a))


def mean_change(before: Array, after: Array, noise: Noise = _NO_NOISE) -> Change | None:
    """The ratio of the means; None if a side has no steps."""
    if min(len(before), len(after)) < 2:
        return _single(before, after, noise)
    mid = math.log(after.mean() / before.mean())
    rng = np.random.default_rng(SEED)
    draws = _means(after, rng) / _means(before, rng)
    chance = _shuffle_chance(before, after, rng)
    return _interval(mid, np.log(draws), np.log(before), np.log(after), noise, chance)


def _single(before: Array, after: Array, noise: Noise) -> Change | None:
    """One value on a side shows no spread: the usual one is assumed."""
    if not len(before) or not len(after):
        return None
    mid = math.log(float(np.median(after)) / float(np.median(before)))
    usual = max(noise.steps, LONE_STEP)
    seen = [max(float(np.std(np.log(v))), usual) ** 2 / len(v) for v in (before, after)]
    far = math.hypot(t_quantile(_PRIOR_STEPS) * math.sqrt(sum(seen)), noise.runs)
    return Change(math.expm1(mid), math.expm1(mid - far), math.expm1(mid + far))


def _points(samples: Array) -> Array:
    """Every row as at most POINTS of its quantiles."""
    if samples.shape[1] <= POINTS:
        return samples
    at = (np.arange(POINTS) + 0.5) / POINTS * samples.shape[1]
    return np.asarray(np.sort(samples, axis=1)[:, at.astype(np.int64)])


def _chunks(number: int, size: int) -> Iterator[int]:
    """How many of `number` rows of this size are held in memory at once."""
    most = max(_CHUNK // size, 1)
    yield from (min(most, number - at) for at in range(0, number, most))


def _means(values: Array, rng: np.random.Generator) -> Array:
    n = len(values)
    return np.concatenate([values[rng.integers(0, n, (k, n))].mean(1) for k in _chunks(RESAMPLES, n)])


def _interval(mid: float, draws: Array, before: Array, after: Array, noise: Noise, chance: float) -> Change:
    """Percentiles of the draws, widened for small samples, for dependent steps, and by differences
    without a change (in logs, as everything here)."""
    low, high = np.quantile(draws, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    # A bootstrap of few values is too narrow: by the lost degrees of freedom, and as Student's quantile
    # exceeds the normal one.
    fewest, student = min(len(before), len(after)), t_quantile(len(before) + len(after) - 2)
    wider = student / _Z * math.sqrt(fewest / (fewest - 1)) * _serial(before, after)
    lucky = student * math.sqrt(_unseen(before, noise.steps) + _unseen(after, noise.steps))
    down = math.hypot(max(mid - float(low), 0.0) * wider, lucky, noise.runs)
    up = math.hypot(max(float(high) - mid, 0.0) * wider, lucky, noise.runs)
    return Change(math.expm1(mid), math.expm1(mid - down), math.expm1(mid + up), chance)


def _unseen(values: Array, usual: float) -> float:
    """Variance of a mean beyond what the values show, if they agree better than usual."""
    n = len(values)
    own = float(np.var(values, ddof=1))
    likely = (_PRIOR_STEPS * usual**2 + (n - 1) * own) / (_PRIOR_STEPS + n - 1)
    return max(likely - own, 0.0) / n


def _serial(before: Array, after: Array) -> float:
    """Steps like their neighbours prove less: wider by this factor, each side by its part in the variance."""
    own = [float(np.var(v)) / len(v) for v in (before, after)]
    if sum(own) <= 0:
        return 1.0
    stretched = sum(v * _dependence(s) for v, s in zip(own, (before, after), strict=True))
    return math.sqrt(stretched / sum(own))


def _dependence(values: Array) -> float:
    """How many steps count as one, if neighbours resemble each other by more than chance."""
    n = len(values)
    if n < 10:
        return 1.0
    x = values - values.mean()
    power = float(x @ x)
    rho = float(x[1:] @ x[:-1]) / power if power > 0 else 0.0
    return 1.0 if rho < 2.0 / math.sqrt(n) else (1 + rho) / max(1 - rho, 0.1)


def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """Two-sided quantile of Student's distribution (Cornish-Fisher; exact for 1 and 2)."""
    p = 0.5 + level / 2
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) / math.sqrt(2 * p * (1 - p))
    z, v = NormalDist().inv_cdf(p), float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v**i for i, term in enumerate(terms, 1))


def _too_few(n: int, m: int) -> bool:
    """Whether even a perfect separation of so few steps would often be chance."""
    return math.comb(n + m, n) < 2 / CHANCE


def _rank_chance(before: Array, after: Array) -> float:
    """Two-sided probability of the rank sum (Mann-Whitney); 0 for too few steps."""
    n, m = len(before), len(after)
    if _too_few(n, m):
        return 0.0
    both = np.concatenate((before, after))
    _, index, count = np.unique(both, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[index]
    u = float(rank[n:].sum()) - m * (m + 1) / 2
    far = abs(u - n * m / 2)
    if max(n, m) <= _EXACT:
        ways = _rank_ways(n, m)
        at = np.arange(len(ways))
        return min(float(ways[np.abs(at - n * m / 2) >= far - 1e-9].sum()), 1.0)
    ties = float((count**3 - count).sum()) / ((n + m) * (n + m - 1))
    sigma = math.sqrt(n * m / 12 * max(n + m + 1 - ties, 1e-9))
    return 2 * NormalDist().cdf(-max(far - 0.5, 0.0) / sigma)


@cache
def _rank_ways(n: int, m: int) -> Array:
    """Probability of every value of the rank-sum statistic if the sides are alike."""
    # ways[i][u]: orders of i of the n with statistic u, one of the m after another.
    ways = [np.zeros(n * m + 1) for _ in range(n + 1)]
    ways[0][0] = 1.0
    for i in range(1, n + m + 1):
        for k in range(min(i, n), 0, -1):
            shift = i - k
            if shift > m:
                continue
            ways[k][shift:] += ways[k - 1][: len(ways[k]) - shift]
    return ways[n] / math.comb(n + m, n)


def _shuffle_chance(before: Array, after: Array, rng: np.random.Generator) -> float:
    """How often randomly assigned steps differ as much in their means."""
    n, m = len(before), len(after)
    if _too_few(n, m):
        return 0.0
    both = np.concatenate((before, after))
    seen = abs(math.log(after.mean() / before.mean()))
    hits = 0
    for count in _chunks(_SHUFFLES, n + m):
        dealt = rng.permuted(np.broadcast_to(both, (count, n + m)), axis=1)
        ratio = np.log(dealt[:, n:].mean(axis=1) / dealt[:, :n].mean(axis=1))
        hits += int((np.abs(ratio) >= seen - 1e-12).sum())
    return hits / _SHUFFLES


def noise_of(before: Sequence[Array], after: Sequence[Array], host_share: float) -> Noise:
    """The noise of two sides, by the step times of their captures and the share that waits for the host."""
    share = min(max(host_share, 0.0), 1.0)
    return Noise(_run_spread(before, after, share), GPU_STEPS + HOST_STEPS * share)


def _run_spread(before: Sequence[Array], after: Sequence[Array], share: float) -> float:
    assumed = GPU_SPREAD + HOST_SPREAD * share
    runs = [[float(np.median(np.log(r))) for r in side if len(r)] for side in (before, after)]
    n, m = (max(len(side), 1) for side in runs)
    freedom = n + m - 2
    if freedom == 0:
        return assumed
    own = sum(float(np.var(side)) * len(side) for side in runs if side)
    prior = (assumed / (_Z * math.sqrt(2))) ** 2
    spread = math.sqrt((_PRIOR_RUNS * prior + own) / (_PRIOR_RUNS + freedom))
    return t_quantile(_PRIOR_RUNS + freedom) * spread * math.sqrt(1 / n + 1 / m)
