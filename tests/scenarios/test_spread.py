"""Work to remove that comes in some steps only: spread, which is no doubt about the mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.model.findings import Finding
from tests.scenarios.machine import Machine
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


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("us", [600, 1_000])
@pytest.mark.parametrize("every", [3, 4])
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
