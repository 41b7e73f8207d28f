"""Work that comes in some steps only: spread is no doubt about the mean, and warm-up is no outlier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from advisor.gain.attach import assumptions
from advisor.gain.estimate import Replayer
from advisor.gain.whatifs import make_fix
from advisor.metrics.profiled.stage import measure
from advisor.model.findings import Finding
from advisor.pipeline.diagnose import open_trace
from tests.scenarios.machine import ALL_REDUCE, DECODE_LAYER, Machine
from tests.scenarios.support import diagnosed, ranked

#: What costs a step so many us, as often as it comes.
Cost = Callable[[Machine, float], None]
COSTS: dict[str, Cost] = {
    "host-gap": lambda m, us: m.work(us),
    "python-gc": lambda m, us: m.work(us, "gc.collect"),
    "os-blocked": lambda m, us: m.blocked(us, "read"),
    "transfer-bound": lambda m, us: m.copy("HtoD", us * 20e3 / 1024, "pageable", gb_per_s=20),
}


def serve(cost: Cost, us: float, every: int, steps: int) -> Machine:
    """Replayed steps of some 4 ms each; every so many cost so many us more."""
    m = Machine()
    for i in range(steps):
        with m.step(f"decode_step {i}"):
            if i % every == every - 1:
                cost(m, us)
            m.replay(82)
            m.wait()
    return m


def found(cost: str, us: float, every: int, steps: int, folder: Path) -> Finding:
    folder.mkdir()
    d = diagnosed(serve(COSTS[cost], us, every, steps), folder)
    first = next((f for f in d.findings if f.cause == cost), None)
    assert first is not None, ranked(d)
    assert ranked(d)[0] in (cost, "pageable-copies")
    return first


@pytest.mark.parametrize(
    "cost",
    [pytest.param(c, marks=[] if c in ("host-gap", "transfer-bound") else pytest.mark.slow) for c in COSTS],
)
@pytest.mark.parametrize("us", [600, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("every", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_the_same_mean_step_with_the_same_work_to_remove_is_the_same_finding(
    tmp_path: Path, cost: str, us: float, every: int
) -> None:
    """So many us in every step, or four times as many in every fourth."""
    steps = 1 + 5 * every
    even, rare = (found(cost, us * n, n, steps, tmp_path / f"every {n}") for n in (1, every))
    assert even.gain is not None
    assert rare.gain is not None
    one, other = even.gain.speedup, rare.gain.speedup
    assert one is not None
    assert other is not None
    assert other.mid == pytest.approx(one.mid, rel=0.02)
    assert other.high / other.low == pytest.approx(one.high / one.low, rel=0.05)
    assert rare.severity == even.severity
    assert rare.ranking is not None
    assert even.ranking is not None
    assert rare.ranking.saved == pytest.approx(even.ranking.saved, abs=0.01)
    assert rare.confidence == pytest.approx(even.confidence, abs=0.03)


CAUSES_OF_SLOW_STEPS = {"step-outliers", "gpu-slower-at-times"}


def slow_at(places: Sequence[int], folder: Path) -> set[str]:
    """What is told of slow steps, of 24 of a millisecond of which some take four."""
    m = Machine()
    for i in range(24):
        with m.step(f"decode_step {i}"):
            m.replay(22, [(kernel, us * (4 if i in places else 1)) for kernel, us in DECODE_LAYER])
            m.wait()
    return {f.cause for f in diagnosed(m, folder).findings} & CAUSES_OF_SLOW_STEPS


def test_slow_steps_at_the_beginning_are_warm_up(tmp_path: Path) -> None:
    assert slow_at((0, 1, 2), tmp_path) == set()


def test_slow_steps_among_even_ones_are_outliers(tmp_path: Path) -> None:
    assert slow_at((0, 9, 10), tmp_path) != set()


@pytest.mark.parametrize(("reduce", "told"), [(400, True), (4, False)])
def test_a_larger_batch_says_what_it_leaves_out(tmp_path: Path, reduce: float, told: bool) -> None:
    """All-reduces that hold a third of the step carry more with more sequences; some us say nothing."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, [*DECODE_LAYER, (ALL_REDUCE, reduce / 22)])
            m.wait()
    replayed = Replayer(measure(open_trace(m.write(tmp_path))))
    said = " ".join(assumptions(replayed, [make_fix("batch", {"n": 4})]))
    assert ("collectives and exchanges between GPUs are" in said) is told
