"""The statistics of a comparison: right where something changed, silent where nothing did."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from advisor.comparison.statistics import Change, Noise, mean_change, noise_of, t_quantile, typical_change

GATE, FLOOR = 0.05, 0.02


def alarm(before: np.ndarray, after: np.ndarray, host: float = 0.0) -> bool:
    """A regression by the bars of CMP101."""
    noise = noise_of([before], [after], host)
    found = (typical_change(before, after, noise), mean_change(before, after, noise))
    return any(c is not None and c.mid >= GATE and c.least_rise >= FLOOR for c in found)


def samples(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "tight":
        return 10 + 0.01 * rng.standard_normal(n)
    if kind == "noisy":
        return 10 * np.exp(0.15 * rng.standard_normal(n))
    if kind == "two states":
        return np.where(rng.random(n) < 0.5, 30.0, 40.0) + 0.3 * rng.standard_normal(n)
    out = 10 + 0.1 * rng.standard_normal(n)  # stalls: one step in ten takes twice as long
    out[rng.random(n) < 0.1] *= 2
    return out


@pytest.mark.parametrize("kind", ["tight", "noisy", "two states", "stalls"])
def test_the_same_steps_raise_less_than_one_false_alarm_in_a_hundred(kind: str) -> None:
    rng = np.random.default_rng(5)
    runs, alarms = 0, 0
    for n, times in ((4, 30), (8, 30), (15, 30), (40, 8)):
        for _ in range(times):
            # Loops with two states are those that the host drives.
            host = 0.9 if kind == "two states" and n < 8 else 0.0
            alarms += alarm(samples(kind, n, rng), samples(kind, n, rng), host)
            runs += 1
    assert alarms / runs < 0.01


@pytest.mark.parametrize(
    ("kind", "n", "factor"), [("tight", 3, 1.1), ("tight", 5, 1.06), ("noisy", 60, 1.25), ("stalls", 40, 1.1)]
)
def test_a_real_slow_down_is_seen(kind: str, n: int, factor: float) -> None:
    rng = np.random.default_rng(6)
    runs = 20 if n < 20 else 8
    seen = [alarm(samples(kind, n, rng), factor * samples(kind, n, rng)) for _ in range(runs)]
    assert sum(seen) >= runs - 1


def test_a_few_long_stalls_move_the_mean_and_not_the_typical_step() -> None:
    before = np.full(60, 10.0) + np.linspace(-0.01, 0.01, 60)
    after = before.copy()
    after[::5] += 20.0
    typical, mean = typical_change(before, after), mean_change(before, after)
    assert typical is not None
    assert mean is not None
    assert abs(typical.mid) < 0.01
    assert mean.mid == pytest.approx(0.4, abs=0.01)
    assert mean.least_rise > FLOOR
    assert alarm(before, after)


def test_the_interval_is_the_same_again_and_holds_the_truth() -> None:
    rng = np.random.default_rng(8)
    inside = 0
    for _ in range(60):
        before, after = samples("noisy", 20, rng), 1.2 * samples("noisy", 20, rng)
        found = typical_change(before, after)
        assert found == typical_change(before, after)
        assert found is not None
        inside += found.low <= 0.2 <= found.high
    assert inside >= 57


def test_slower_and_faster_mirror_each_other() -> None:
    rng = np.random.default_rng(9)
    before, after = samples("tight", 12, rng), 1.3 * samples("tight", 12, rng)
    there, back = typical_change(before, after), typical_change(after, before)
    assert there is not None
    assert back is not None
    assert (1 + there.mid) * (1 + back.mid) == pytest.approx(1.0)
    assert there.least_rise > 0.25
    assert there.least_drop <= 0
    assert back.least_drop > 0.2
    assert there.least == there.least_rise
    assert back.least == back.least_drop


def test_repeats_of_a_host_bound_step_are_noise_until_they_are_measured() -> None:
    rng = np.random.default_rng(10)
    before = [10 + 0.05 * rng.standard_normal(20) for _ in range(5)]
    after = [11.2 + 0.05 * rng.standard_normal(20) for _ in range(5)]
    single = noise_of(before[:1], after[:1], 0.9)
    assert single.runs == pytest.approx(0.01 + 0.2 * 0.9)
    assert not alarm(before[0], after[0], host=0.9)
    assert alarm(before[0], after[0], host=0.0)
    widths = [noise_of(before[:n], after[:n], 0.9).runs for n in (1, 2, 3, 5)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.06
    found = typical_change(np.concatenate(before), np.concatenate(after), noise_of(before, after, 0.9))
    assert found is not None
    assert found.least_rise > 0.04


def test_runs_that_differ_widen_the_interval_beyond_what_is_assumed() -> None:
    flat = [np.full(5, 10.0), np.full(5, 10.0)]
    apart = [np.full(5, 8.0), np.full(5, 12.0)]
    assert noise_of(apart, apart, 0.0).runs > 5 * noise_of(flat, flat, 0.0).runs


def test_one_value_on_a_side_takes_the_usual_spread() -> None:
    noise = noise_of([np.array([10.0])], [np.array([10.5])], 0.0)
    found = typical_change(np.array([10.0]), np.array([10.5]), noise)
    assert found is not None
    assert found.low < 0.02 < found.mid < found.high
    assert typical_change(np.array([10.0]), np.empty(0)) is None
    assert mean_change(np.empty(0), np.array([10.0])) is None


def test_steps_that_resemble_their_neighbours_say_less() -> None:
    rng = np.random.default_rng(11)
    wave = 10 + np.sin(np.arange(40) / 6)
    mixed = rng.permutation(wave)
    slow, fast = typical_change(wave, wave), typical_change(mixed, mixed)
    assert slow is not None
    assert fast is not None
    assert slow.high - slow.low > 1.5 * (fast.high - fast.low)


@pytest.mark.parametrize(
    ("freedom", "level", "known"),
    [
        (1, 0.98, 31.82),
        (2, 0.98, 6.965),
        (3, 0.98, 4.541),
        (4, 0.98, 3.747),
        (10, 0.98, 2.764),
        (30, 0.98, 2.457),
        (5, 0.95, 2.571),
    ],
)
def test_quantiles_of_student(freedom: int, level: float, known: float) -> None:
    assert t_quantile(freedom, level) == pytest.approx(known, rel=0.005)


@pytest.mark.parametrize(
    ("freedom", "known", "within"),
    [(5, 2.570581836, 3e-4), (10, 2.228138852, 1e-5), (20, 2.085963447, 1e-6), (60, 2.000297822, 1e-8)],
)
def test_the_expansion_of_students_quantiles_closes_in_on_them(
    freedom: int, known: float, within: float
) -> None:
    """Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5."""
    assert t_quantile(freedom, 0.95) == pytest.approx(known, abs=within)


@pytest.mark.parametrize(("n", "wider"), [(9, False), (10, True)])
def test_from_ten_steps_on_neighbours_that_resemble_each_other_widen_the_interval(
    n: int, wider: bool
) -> None:
    """The same steps in a rising order and dealt out: below ten, likeness is taken for chance."""
    rising = 10.0 + np.linspace(0.0, 0.5, n)
    dealt = rising[np.random.default_rng(1).permutation(n)]
    widths = [
        c.high - c.low
        for side in (rising, dealt)
        if (c := mean_change(dealt, side, noise_of([dealt], [side], 0.0))) is not None
    ]
    assert (widths[0] > 1.1 * widths[1]) == wider


def every_deal(before: np.ndarray, after: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """All ways to deal the steps out to two sides of these sizes."""
    both = np.concatenate((before, after))
    chosen = [list(c) for c in combinations(range(len(both)), len(after))]
    return [(np.delete(both, c), both[c]) for c in chosen]


def wins(before: np.ndarray, after: np.ndarray) -> float:
    """Pairs in which the second is larger, a half for each tie."""
    return float((after[None] > before[:, None]).sum() + 0.5 * (after[None] == before[:, None]).sum())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1, 2, 3, 4, 5, 7), (6, 8, 9, 10, 11, 12, 13)),
        ((6, 8, 9, 10, 11, 12), (1, 2, 3, 4, 5, 7, 13)),
        ((1, 4, 5, 8, 9), (2, 3, 6, 7, 10, 11, 12, 13)),
        ((1, 2, 3, 5), (4, 6, 7, 8, 9, 10, 11, 12, 13, 14)),
        ((1, 4, 6, 7, 9, 12), (2, 3, 5, 8, 10, 11, 13)),
    ],
)
def test_chance_is_the_share_of_all_deals_that_are_as_far_apart(
    before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    b, a = np.array(before, float), np.array(after, float)
    middle, deals = len(b) * len(a) / 2, every_deal(b, a)
    far = abs(wins(b, a) - middle)
    typical, mean = typical_change(b, a), mean_change(b, a)
    assert typical is not None
    assert mean is not None
    as_far = [abs(wins(*deal) - middle) >= far for deal in deals]
    assert typical.chance == pytest.approx(sum(as_far) / len(deals))
    ratio = abs(math.log(a.mean() / b.mean()))
    as_far = [abs(math.log(y.mean() / x.mean())) >= ratio - 1e-9 for x, y in deals]
    assert mean.chance == pytest.approx(sum(as_far) / len(deals), abs=0.02)


@pytest.mark.parametrize("n", [20, 21, 60])
@pytest.mark.parametrize("steps", [1_000, 4])
def test_chance_of_many_steps_with_and_without_ties(n: int, steps: int) -> None:
    """As often as shuffled steps say, whether counted out or taken as normal."""
    rng = np.random.default_rng(n + 1)
    before = 1.0 + rng.integers(0, steps, n)
    after = 1.0 + np.maximum(rng.integers(0, steps, n + 3), rng.integers(0, steps // 2, n + 3))
    found = typical_change(before, after)
    both, far = np.concatenate((before, after)), abs(wins(before, after) - n * (n + 3) / 2)
    dealt = (rng.permutation(both) for _ in range(4_000))
    shuffled = np.mean([abs(wins(d[:n], d[n:]) - n * (n + 3) / 2) >= far for d in dealt])
    assert found is not None
    assert found.chance == pytest.approx(shuffled, abs=0.02)


@pytest.mark.parametrize("steps", [1_000, 4])
def test_chance_of_many_steps_is_that_of_ranks_with_their_variance(steps: int) -> None:
    """The sum of the ranks of m of N steps that are dealt out has the variance n m / N (N - 1) times the
    squares of the ranks about their mean."""
    rng = np.random.default_rng(5)
    before, after = 1.0 + rng.integers(0, steps, 30), 1.0 + rng.integers(steps // 4, steps, 24)
    both = np.concatenate((before, after))
    rank = np.array([(both < v).sum() + (both == v).sum() / 2 for v in both])
    variance = 30 * 24 / (54 * 53) * ((rank - rank.mean()) ** 2).sum()
    far = abs(wins(before, after) - 30 * 24 / 2) - 0.5
    found = typical_change(before, after)
    assert found is not None
    assert found.chance == pytest.approx(math.erfc(far / math.sqrt(2 * variance)), rel=1e-9)


def test_many_steps_are_represented_by_evenly_spaced_quantiles() -> None:
    """64 of them stand in the middle of as many parts: of 1 to 6,400 these are 51, 151, ... 6,351."""
    found = typical_change(np.ones(100), 1.0 + np.arange(6_400))
    assert found is not None
    assert 1 + found.mid == pytest.approx(math.sqrt(3_151 * 3_251))


def test_too_few_steps_have_no_chance() -> None:
    """Of six and six there are 924 deals, two of them perfect: 0.2 % would often be luck."""
    for n, m, judged in ((6, 6, False), (6, 7, True)):
        found = typical_change(1.0 + np.arange(n), 20.0 + np.arange(m))
        assert found is not None
        assert (found.chance > 0) is judged


def test_the_interval_of_a_mean_is_as_wide_as_that_of_student() -> None:
    rng = np.random.default_rng(13)
    before, after = 100 + rng.standard_normal(30), 100 + rng.standard_normal(20)
    found = mean_change(before, after)
    assert found is not None
    error = math.sqrt(before.var(ddof=1) / 30 + after.var(ddof=1) / 20) / 100
    assert (found.high - found.low) / 2 == pytest.approx(t_quantile(48) * error, rel=0.1)
    assert found.mid == pytest.approx(after.mean() / before.mean() - 1)


def test_what_differs_anyhow_adds_to_the_interval_as_an_independent_part() -> None:
    rng = np.random.default_rng(14)
    before, after = 100 + rng.standard_normal(30), 100 + rng.standard_normal(30)
    alone, widened = mean_change(before, after), mean_change(before, after, Noise(runs=0.02))
    assert alone is not None
    assert widened is not None
    for side in ("low", "high"):
        own = math.log1p(getattr(alone, side)) - math.log1p(alone.mid)
        all_of_it = math.log1p(getattr(widened, side)) - math.log1p(widened.mid)
        assert abs(all_of_it) == pytest.approx(math.hypot(own, 0.02))


def test_steps_that_agree_by_luck_take_a_part_of_the_usual_spread() -> None:
    """Four steps' worth of it: two sides of n equal steps stand 4 / (n + 3) of its variance apart."""
    same = np.full(5, 10.0)
    found = mean_change(same, same, Noise(steps=0.1))
    assert found is not None
    wide = t_quantile(8) * math.sqrt(2 * 4 * 0.01 / (4 + 5 - 1) / 5)
    assert math.log1p(found.high) == pytest.approx(wide)


def test_one_value_on_a_side_in_numbers() -> None:
    """Student's quantile of four steps times the root of both variances, 5 % at least."""
    many = np.array([9.0, 10.0, 11.0, 10.0])
    found = typical_change(np.array([10.0]), many, Noise(runs=0.03))
    assert found is not None
    error = math.hypot(0.05, np.log(many).std() / 2)
    assert math.log1p(found.high) == pytest.approx(math.hypot(t_quantile(4) * error, 0.03))
    assert mean_change(np.array([10.0]), many, Noise(runs=0.03)) == found
    assert typical_change(np.array([10.0]), many) is not None


def test_two_values_on_a_side_show_a_spread() -> None:
    lone, two = np.array([10.0]), np.array([10.0, 10.001])
    for change in (typical_change, mean_change):
        found, assumed = change(two, two), change(lone, two)
        assert found is not None
        assert assumed is not None
        assert found.high < 0.01 < assumed.high


def test_how_far_repeats_widen_in_numbers() -> None:
    """What is assumed is worth two runs of each kind against those that are there."""
    assert noise_of([], [], -1.0) == Noise(0.01, 0.01)
    most = noise_of([], [], 2.0)
    assert (most.runs, most.steps) == pytest.approx((0.21, 0.16))
    one, two = [np.array([10.0])], [np.array([10.0]), np.array([10.0])]
    prior = 0.01 / (t_quantile(10**9) * math.sqrt(2))
    expected = t_quantile(3) * math.sqrt(2 * prior**2 / 3) * math.sqrt(1 + 1 / 2)
    assert noise_of(one, two, 0.0).runs == pytest.approx(expected)
    apart = [np.array([10.0]), np.array([11.0])]
    spread = math.sqrt((2 * prior**2 + math.log(1.1) ** 2 / 2) / 3)
    assert noise_of(one, apart, 0.0).runs == pytest.approx(t_quantile(3) * spread * math.sqrt(1.5))


def test_separation_needs_more_than_luck() -> None:
    """Two groups that agree within themselves by luck are no change while few steps are seen."""
    low, high = np.array([30.0, 30.2, 30.1]), np.array([40.0, 40.1, 39.9, 40.2])
    assert not alarm(low, high, host=0.9)
    assert alarm(np.repeat(low, 4) + 0.01 * np.arange(12), np.repeat(high, 3) + 0.01 * np.arange(12))


def test_large_samples_are_worked_out_quickly_and_alike() -> None:
    rng = np.random.default_rng(12)
    before, after = (10 + rng.standard_normal(2_000) for _ in range(2))
    found = typical_change(before, after)
    assert found is not None
    assert found.high - found.low < 0.03
    assert math.isfinite(found.chance)


def test_what_is_certain_is_never_more_than_the_near_end() -> None:
    change = Change(0.2, 0.1, 0.3, chance=0.5)
    assert change.least_rise == 0.0
    assert Change(0.2, 0.1, 0.3).least_rise == 0.1
    assert Change(-0.2, -0.3, -0.1, chance=0.5).least_drop == 0.0
    assert Noise() == Noise(0.0, 0.0)
