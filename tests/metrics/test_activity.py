"""Activity inside kernels shorter than a sample: errors hold what bytes and time tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.knowledge.files import kernel_families
from advisor.metrics import limits
from advisor.metrics.intervals import Coverage, union
from advisor.metrics.loaded.kernels import Names
from advisor.metrics.profiled import activity
from advisor.metrics.profiled.activity import (
    Activity,
    Runs,
    kernel_activity,
    launch_groups,
    robust_covariance,
)
from advisor.metrics.profiled.sampled import Samples
from advisor.metrics.profiled.stage import measure
from advisor.pipeline.diagnose import open_trace

LAYERS = 500
#: Kernel, microseconds, DRAM activity by bytes over time. Small kernels work from the cache.
LARGE = ("nvjet_large", 57.0, 0.87)
MEDIUM = ("nvjet_down", 30.0, 0.82)
SHORT = ("nvjet_out", 10.8, 0.65)
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
    found = kernel_activity(samples, start, end, group, labels, name)
    assert found
    return found


def reading(found: Activity, kernel: str) -> tuple[float, float, bool]:
    """DRAM level and error of a kernel, and whether it is resolved."""
    at = next(i for i, (_, label) in enumerate(found.groups) if label.startswith(kernel))
    return found.level["dram"][at], found.error["dram"][at], bool(found.resolved("dram")[at])


@pytest.mark.parametrize("kernel", [LARGE, MEDIUM, SHORT], ids=lambda k: str(k[0]))
def test_two_errors_hold_the_bytes_over_the_time_at_any_rate(kernel: tuple[str, float, float]) -> None:
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
        for metric in found.level:
            level, error = found.level[metric], found.error[metric]
            beside = (level - error <= 0) | (level >= 1)
            assert not found.safe(metric)[beside].any()
            assert not found.resolved(metric)[beside].any()


def test_an_activity_counts_less_the_wider_its_error_is() -> None:
    """All of it where it is resolved, nothing from twice that error on, and no step between."""
    found = solved(100_000)
    for metric in found.level:
        weight, error, safe = found.weight(metric), found.error[metric], found.safe(metric)
        assert (weight[found.resolved(metric)] == 1.0).all()
        assert (weight[~safe | (error >= 2 * limits.recording.RESOLVED_ERROR)] == 0.0).all()
    wide = np.full(len(found.groups), 1.5 * limits.recording.RESOLVED_ERROR)
    half = replace(found, error={"dram": wide}, level={"dram": np.full(len(wide), 0.5)})
    assert half.weight("dram").tolist() == pytest.approx([0.5] * len(wide))


def test_known_bytes_lift_levels_that_fall_short_of_them() -> None:
    """Products that read more on average than the samples said: what is least sure moves most."""
    found = solved(100_000)
    weight = found.share * np.array([f == "gemm" for f, _ in found.groups])
    mean = float(weight @ found.level["dram"] / weight.sum())
    assert found.reading(("gemm",), mean - 0.01) is found
    more = found.reading(("gemm",), mean + 0.02)
    assert float(weight @ more.level["dram"] / weight.sum()) == pytest.approx(mean + 0.02)
    moved = {name: reading(more, name)[0] - reading(found, name)[0] for name, _, _ in (LARGE, SHORT)}
    assert moved["nvjet_out"] > moved["nvjet_large"] > 0
    assert more.level["sm"] is found.level["sm"]


def test_misfits_that_follow_each_other_count_as_fewer_samples() -> None:
    random = np.random.default_rng(2)
    design = np.ones((400, 1))
    alone = random.normal(0, 1, 400)
    related = np.repeat(random.normal(0, 1, 40), 10)
    one, ten = (float(robust_covariance(design, m - m.mean())[0, 0]) for m in (alone, related))
    assert one == pytest.approx(1 / 400, rel=0.5)
    assert ten > 4 * one


TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces" / "h200"


@pytest.mark.skipif(not TRACES.exists(), reason=f"{TRACES} is not here")
@pytest.mark.parametrize("capture", ["decode8b_graph_bs1", "decode8b_graph_bs1_100khz"])
def test_products_of_an_8b_model_read_their_weights(capture: str) -> None:
    """Weights over time over 4.8 TB/s, at 10 and at 100 kHz: fused gate and up 235 MB, down 117 MB,
    fused QKV 50 MB, output projection 34 MB. None reads less than its weights by more than a
    stated error, none is off by more than two."""
    weights = {
        "128x8_64x12_2x1_v_bz_TNT": 235e6,
        "128x8_64x12_2x1_v_bz_splitK": 117e6,
        "64x8_64x16_4x1": 50.3e6,
        "64x8_64x16_2x1": 33.6e6,
    }
    with open_trace(TRACES / f"{capture}.sqlite.xz") as trace:
        a = measure(trace)
        found = a.activity[0]
        group, labels = a.kernel_groups(0)
        at = a.device_kernels(0)
        length = (a.ops.end - a.ops.start)[at]
        assert found
        for tile, size in weights.items():
            label = next(text for _, text in found.groups if tile in text)
            mine = group == next(i for i, (_, text) in enumerate(labels) if text == label)
            read = size / float(np.median(length[mine])) / 4800
            level, error, _ = reading(found, label)
            assert read - error <= level <= read + 2 * error, (tile, read, level, error)
            if tile == "64x8_64x16_2x1":
                assert level >= 0.65


@pytest.mark.parametrize("seed", range(8))
def test_shares_are_the_same_with_and_without_a_compiler(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    start = np.cumsum(rng.integers(0, 400, 500))
    end = start + rng.integers(-2 if seed % 2 else 0, 600, 500)  # some end before they begin
    lo = np.cumsum(rng.integers(90, 110, 700)) + 5_000  # not at regular times
    runs = Runs(start, end, rng.integers(0, 5, 500), 5, np.maximum.accumulate(end))
    found = runs.shares(lo, 100)
    monkeypatch.setattr(activity, "compiled", None)
    np.testing.assert_array_equal(found, runs.shares(lo, 100))
    assert found.any()
