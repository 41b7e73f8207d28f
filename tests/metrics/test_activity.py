"""Activity inside kernels shorter than a sample: errors hold what bytes and time tell."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.knowledge.files import kernel_families
from advisor.metrics.activity import (
    Activity,
    Samples,
    kernel_activity,
    launch_groups,
    robust_covariance,
)
from advisor.metrics.intervals import Coverage, union
from advisor.metrics.kernels import Names

LAYERS = 500
#: Kernel, microseconds, DRAM activity by bytes over time. Small kernels work from the cache.
LARGE, MEDIUM, SHORT = ("nvjet_large", 57.0, 0.87), ("nvjet_down", 30.0, 0.82), (
    "nvjet_out", 10.8, 0.65)  # fmt: skip
SMALL = [(f"at::native::elementwise_kernel<{i}>", 1.8, 0.02) for i in range(4)]
NORM = ("rms_norm_kernel", 5.9, 0.02)
LAYER = [NORM, *SMALL, SHORT, *SMALL, NORM, LARGE, *SMALL[:2], MEDIUM, *SMALL[2:]]


def solved(period_ns: int) -> Activity:
    """Activity of such layers in a row. Traffic of a kernel starts 1.5 us late and ends 0.5 us
    early, samples are stamped 1 us early."""
    random = np.random.default_rng(1)
    kernels = LAYER * LAYERS
    duration = np.array([us * 1e3 for _, us, _ in kernels])
    duration = (duration * random.normal(1, 0.02, len(kernels))).astype(np.int64)
    end = np.cumsum(duration + 300)
    start = end - duration
    texts = sorted({name for name, _, _ in LAYER})
    name = np.array([texts.index(k) for k, _, _ in kernels])
    level = np.array([dram for _, _, dram in kernels])
    begin, finish = start + np.minimum(1_500, duration // 4), end - np.minimum(500, duration // 8)
    plateau = np.minimum(level * duration / (finish - begin), 1)
    time = np.arange(0, int(end[-1]) - 2 * period_ns, period_ns)
    dram = np.zeros(len(time))
    for i in range(len(texts)):
        mine = name == i
        covered = Coverage(union(begin[mine], finish[mine])).within(time, time + period_ns)
        dram += covered / period_ns * plateau[mine].mean()
    busy = union(start, end)
    sm = Coverage(busy).within(time, time + period_ns) / period_ns
    dram = np.clip(dram + random.normal(0, 0.005, len(time)), 0, 1)
    samples = Samples(time - 1_000, period_ns, {"dram_read": dram, "sm_active": sm})
    names = Names(np.arange(len(texts)), texts, texts, name, kernel_families().classify(texts))
    group, labels = launch_groups(names, name, np.ones(len(name), np.int64))
    found = kernel_activity(samples, busy, start, end, group, labels, name)
    assert found
    return found


def reading(found: Activity, kernel: str) -> tuple[float, float, bool]:
    """DRAM level and error of a kernel, and whether it is resolved."""
    at = next(i for i, (_, label) in enumerate(found.groups) if label.startswith(kernel))
    return found.level["dram"][at], found.error["dram"][at], bool(found.resolved("dram")[at])


@pytest.mark.parametrize("kernel", [LARGE, MEDIUM, SHORT], ids=lambda k: str(k[0]))
def test_two_errors_hold_the_bytes_over_the_time_at_any_rate(
    kernel: tuple[str, float, float],
) -> None:
    slow, fast = (reading(solved(period), kernel[0]) for period in (100_000, 10_000))
    for level, error, _ in (slow, fast):
        assert abs(level - kernel[2]) <= 2 * error
    assert abs(slow[0] - fast[0]) <= 2 * (slow[1] + fast[1])


def test_errors_grow_as_kernels_get_shorter_than_a_sample() -> None:
    found = solved(100_000)
    errors = [reading(found, name)[1] for name, _, _ in (LARGE, MEDIUM, SHORT)]
    assert errors == sorted(errors)
    assert errors[2] > 2 * errors[0]


def test_nothing_is_read_at_a_bound() -> None:
    for period in (100_000, 10_000):
        found = solved(period)
        for measure in found.level:
            level, error = found.level[measure], found.error[measure]
            beside = (level - error <= 0) | (level >= 1)
            assert not found.safe(measure)[beside].any()
            assert not found.resolved(measure)[beside].any()


def test_misfits_that_follow_each_other_count_as_fewer_samples() -> None:
    random = np.random.default_rng(2)
    design = np.ones((400, 1))
    alone = random.normal(0, 1, 400)
    related = np.repeat(random.normal(0, 1, 40), 10)
    one, ten = (float(robust_covariance(design, m - m.mean())[0, 0]) for m in (alone, related))
    assert one == pytest.approx(1 / 400, rel=0.5)
    assert ten > 4 * one
