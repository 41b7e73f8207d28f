"""A cost is judged as a share of the step as it runs without the profiler: what the profiler took counts
neither above nor below the line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.scenarios.machine import Machine
from tests.scenarios.support import diagnosed, fact, ranked

#: What costs a step so many us, by the finding that a tenth of the step makes.
COSTS: dict[str, Callable[[Machine, float], None]] = {
    "host-gap": lambda m, us: m.work(us),
    "transfer-bound": lambda m, us: m.copy("HtoD", us * 50e3 / 1024),
}
SHARES = {"host-gap": "host.gap_ratio", "transfer-bound": "copy.exposed_ratio"}


#: Each way in which the profiler takes time, and each in which steps are known, once.
LOOKED_AT = {("flushes", "ranges"), ("long launches", "no steps")}
#: How long the profiler takes in a mean step, us.
TAKEN = 800


def serve(cost: str, us: float, profiler: str, how: str) -> Machine:
    """Replayed steps of some 3.5 ms and of so many us that the cost takes. The profiler makes each launch
    longer, because it traces the nodes, or writes in every fourth step what it has collected, or neither."""
    m = Machine()
    for i in range(25):
        layers = 82 if how != "no steps" else (50, 110, 74, 94, 82)[i * i % 7 % 5]
        with m.step(f"decode_step {i}") if how == "ranges" else nullcontext():
            COSTS[cost](m, us)
            if profiler == "flushes" and i % 4 == 3:
                m.export.overhead(round(m.now * 1e3), round(4e3 * TAKEN))
                m.work(4 * TAKEN)
            m.replay(layers, call=70 + (TAKEN if profiler == "long launches" else 0))
            m.wait()
    return m


@pytest.mark.parametrize(
    ("profiler", "how"),
    [
        pytest.param(profiler, how, marks=[] if (profiler, how) in LOOKED_AT else [pytest.mark.slow])
        for profiler in ("long launches", "flushes", "none")
        for how in ("ranges", "no ranges", "no steps")
    ],
)
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(("us", "share", "fires"), [(440, 0.112, True), (330, 0.087, False)])
def test_the_profiler_is_no_part_of_the_whole(
    tmp_path: Path, cost: str, us: float, share: float, fires: bool, profiler: str, how: str
) -> None:
    d = diagnosed(serve(cost, us, profiler, how), tmp_path)
    assert fact(d, SHARES[cost]) == pytest.approx(share, abs=0.006)
    assert (cost in ranked(d)) == fires, ranked(d)


@pytest.mark.parametrize(
    "profiler", ["long launches", "flushes", pytest.param("none", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("cost", COSTS)
def test_the_profiler_is_in_no_estimate(tmp_path: Path, cost: str, profiler: str) -> None:
    """What a fix wins, and how severe the cause is, are those of the step of 3.91 ms without the profiler;
    steps in which it wrote are no slow steps."""
    d = diagnosed(serve(cost, 440, profiler, "ranges"), tmp_path)
    first = next(f for f in d.findings if f.cause == cost)
    assert first.severity == "medium"
    assert first.gain is not None
    assert first.gain.step_before_ms is not None
    assert first.gain.step_after_ms is not None
    assert first.gain.step_before_ms.mid == pytest.approx(3.91, rel=0.02)
    assert first.gain.step_after_ms.mid == pytest.approx(3.47, rel=0.03)
    assert not {"step-outliers", "gpu-speed-drifts"} & {f.cause for f in d.findings}
    said = any("wrote its records" in text for text in first.gain.assumptions)
    assert said == (profiler == "flushes")


@pytest.mark.parametrize("profiler", ["flushes", "none"])
def test_slow_steps_are_told_beside_the_profiler(tmp_path: Path, profiler: str) -> None:
    """Every eighth step takes 4 ms more on the host, wherever the profiler writes."""
    m = Machine()
    for i in range(41):
        with m.step(f"decode_step {i}"):
            if i % 8 == 5:
                m.work(4000)
            if profiler == "flushes" and i % 4 == 3:
                m.export.overhead(round(m.now * 1e3), round(4e3 * TAKEN))
                m.work(4 * TAKEN)
            m.replay(82, call=70)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "host.step_outliers") == 5
    assert fact(d, "host.step_outlier_time_ratio") == pytest.approx(5 * 4.0 / (40 * 3.46 + 5 * 4.0), rel=0.03)
