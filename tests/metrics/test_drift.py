"""Steps that get longer or shorter from the first to the last, and what changes in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

import advisor
from advisor.metrics.profiled.pace import rank_correlation, trend_ratio
from advisor.model.findings import Diagnosis, Finding
from tests.scenarios.machine import DECODE_LAYER, Machine

STEPS = 41  # the first is cut off: the thirds of the rest are 13 steps


def looped(
    factor: Callable[[int, str], float] = lambda *_: 1.0,
    host: Callable[[int], float] = lambda _: 0.0,
    steps: int = STEPS,
) -> Diagnosis:
    """Steps of one replayed graph, each kernel's time by `factor(step, name)`, after `host(step)` us of
    host code."""
    m = Machine()
    for i in range(steps):
        with m.step(f"decode_step {i}"):
            if host(i):
                m.work(host(i), range="detokenize")
            m.replay(22, [(k, us * factor(i, k.name)) for k, us in DECODE_LAYER], call=20)
            m.wait()
    found = advisor.diagnose(m.write(Path(mkdtemp(prefix="drift-"))))
    assert isinstance(found, Diagnosis)
    return found


def number(d: Diagnosis, name: str) -> float:
    (fact,) = [f for f in d.facts if f.name == name]
    assert isinstance(fact.value, int | float)
    return float(fact.value)


def text(d: Diagnosis, name: str) -> object:
    return next(f.value for f in d.facts if f.name == name)


def finding(d: Diagnosis, cause: str) -> Finding | None:
    return next((f for f in d.findings if f.cause == cause), None)


@cache
def slowed() -> Diagnosis:
    return looped(lambda i, _: 1.5 if i > STEPS // 2 else 1.0)


@cache
def grown() -> Diagnosis:
    return looped(lambda i, name: 1 + i / 10 if "flash" in name else 1.0)


def test_a_clock_that_falls_changes_all_kernels() -> None:
    d = slowed()
    assert text(d, "drift.kernel_change") == "50 % longer"
    # Launching and the gaps between graph nodes keep their length.
    assert 0.4 < number(d, "drift.step_ratio") < 0.5
    assert number(d, "drift.size_ratio") == number(d, "drift.step_ratio")
    assert text(d, "drift.step_change") == f"{number(d, 'drift.step_ratio'):.0%} longer".replace("%", " %")
    # Two halves, each of equal steps: three quarters of the variance of the ranks.
    assert number(d, "drift.order_ratio") == pytest.approx(0.75**0.5, abs=0.01)
    assert number(d, "drift.kernels_ratio") == pytest.approx(1.0, abs=0.02)
    assert number(d, "drift.idle_ratio") == pytest.approx(0.0, abs=0.02)
    assert number(d, "drift.alike_ratio") == 1.0
    # Half of the steps take 1 + x of what they could, x the change: x / 2 of 1 + x / 2.
    half = number(d, "drift.step_ratio") / 2
    assert number(d, "drift.lost_ratio") == pytest.approx(half / (1 + half), abs=0.02)
    found = finding(d, "gpu-speed-drifts")
    assert found is not None
    assert found.severity == "medium"
    assert "50 % longer" in found.message
    assert finding(d, "tail-latency") is None
    assert finding(d, "host-slows-down") is None


def test_a_clock_that_rises_is_said_too() -> None:
    d = looped(lambda i, _: 1.5 if i < STEPS // 2 else 1.0)
    assert text(d, "drift.kernel_change") == "33 % shorter"
    assert number(d, "drift.step_ratio") < 0
    assert finding(d, "gpu-speed-drifts") is not None


def test_attention_that_grows_with_the_context_is_no_fault() -> None:
    d = grown()
    assert number(d, "drift.order_ratio") == pytest.approx(1.0)
    assert number(d, "drift.kernels_ratio") == pytest.approx(1.0, abs=0.02)
    # Attention alone: 4 of 39 us of a layer at first, more in the first third's mean.
    assert number(d, "drift.alike_ratio") < 0.3
    tails = {f.scope.operation: f.value for f in d.facts if f.name == "operation.trend_ratio"}
    attention = next(o for o in tails if o and "attention" in o)
    assert float(tails[attention] or 0) > 0.7
    assert not {f.cause for f in d.findings} & {"gpu-speed-drifts", "host-slows-down", "tail-latency"}


def test_a_host_that_does_more_in_every_step() -> None:
    d = looped(host=lambda i: 20.0 + 10 * i)
    assert number(d, "drift.idle_ratio") == pytest.approx(1.0, abs=0.02)
    assert number(d, "drift.kernels_ratio") == pytest.approx(0.0, abs=0.02)
    found = finding(d, "host-slows-down")
    assert found is not None
    assert "in detokenize" in found.message
    # The work has a name, and the advice about host gaps says it.
    gap = finding(d, "host-gap")
    assert gap is not None
    assert gap.recommendations[0].id == "take-host-work-off-path"
    assert "`detokenize`" in gap.recommendations[0].action
    assert text(d, "host.gap_launches_nothing") is True


def test_kernels_and_the_host_share_what_a_step_grows_by() -> None:
    d = looped(lambda i, _: 1.5 if i > STEPS // 2 else 1.0, lambda i: 20.0 if i <= STEPS // 2 else 900.0)
    assert 0.1 < number(d, "drift.kernels_ratio") < 0.9
    assert number(d, "drift.kernels_ratio") + number(d, "drift.idle_ratio") == pytest.approx(1.0, abs=0.05)


def test_a_range_that_launches_the_work_is_not_moved_elsewhere() -> None:
    m = Machine()
    for i in range(STEPS):
        with m.step(f"decode_step {i}"):
            begin = m.now
            m.work(1500)
            m.replay(22, call=20)
            m.export.range("LlamaModel.forward", round(begin * 1000), round(m.now * 1000))
            m.wait()
    found = advisor.diagnose(m.write(Path(mkdtemp(prefix="drift-"))))
    assert isinstance(found, Diagnosis)
    gap = finding(found, "host-gap")
    assert gap is not None
    assert "LlamaModel.forward" in gap.message
    assert text(found, "host.gap_launches_nothing") is False
    assert gap.recommendations[0].id == "shorten-host-code"
    assert "take-host-work-off-path" not in {r.id for r in gap.recommendations}


def test_the_last_third_counts_as_a_whole() -> None:
    """Six slow steps are most of the last quarter, but not of the last third."""
    assert number(looped(lambda i, _: 1.5 if i >= STEPS - 6 else 1.0), "drift.size_ratio") < 0.01
    assert number(looped(lambda i, _: 1.5 if i >= STEPS - 7 else 1.0), "drift.size_ratio") > 0.3


@pytest.mark.parametrize(
    ("calls", "factor", "changed"), [(11, 1.0, False), (11, 1.5, True), (12, 1.5, False)]
)
def test_kernels_are_compared_that_are_called_about_as_often(
    calls: int, factor: float, changed: bool
) -> None:
    """Up to a tenth more or less, by the time of a call."""
    m = Machine()
    (kernel, us), (other, other_us) = DECODE_LAYER[:2]
    for i in range(STEPS):
        late = i > STEPS // 2
        each = us * (factor if late else 1.0)
        with m.step(f"decode_step {i}"):
            m.replay(22, [(kernel, each)] * (calls if late else 10) + [(other, other_us)] * 10, call=20)
            m.wait()
    found = advisor.diagnose(m.write(Path(mkdtemp(prefix="drift-"))))
    assert isinstance(found, Diagnosis)
    assert str(text(found, "drift.kernel_change")).startswith("0 % ") is not changed


def test_even_steps_and_few_steps() -> None:
    d = looped()
    assert number(d, "drift.size_ratio") < 0.01
    assert {"gpu-speed-drifts", "host-slows-down"} <= {h.cause for h in d.healthy}
    few = looped(lambda i, _: 1.5 if i > 5 else 1.0, steps=12)
    assert not [f for f in few.facts if f.name.startswith("drift.") and "slow" not in f.name]
    assert "gpu-speed-drifts" in {n.cause for n in few.not_evaluated}


def test_rank_correlation() -> None:
    assert rank_correlation(np.array([1.0, 2.0, 5.0, 9.0])) == pytest.approx(1.0)
    assert rank_correlation(np.array([9.0, 5.0, 2.0, 1.0])) == pytest.approx(-1.0)
    assert rank_correlation(np.array([3.0, 3.0, 3.0])) == 0.0
    # Ranks 1.5 1.5 3.5 3.5 against 1 2 3 4: covariance 4 / 4, variances 4 / 4 and 5 / 4.
    assert rank_correlation(np.array([0.0, 0.0, 7.0, 7.0])) == pytest.approx((4 / 5) ** 0.5)
    # Ranks 1 3 3 3 5 against 1 to 5: covariance 8, variances 8 and 10.
    assert rank_correlation(np.array([1.0, 2.0, 2.0, 2.0, 9.0])) == pytest.approx(8 / (8 * 10) ** 0.5)


def test_what_a_trend_explains_of_a_tail() -> None:
    assert trend_ratio(np.ones(19)) is None
    # A few slow calls among even ones, wherever they are.
    even = np.full(80, 10.0)
    even[[7, 33, 55, 71]] = 30.0
    assert trend_ratio(even) == 0.0
    # Eight levels of ten calls: no call differs from its run.
    assert trend_ratio(np.repeat(np.arange(1.0, 9.0), 10)) == 1.0
    # Two levels around their median of 1.5, and two slow calls above the second.
    mixed = np.repeat([1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0], 10)
    mixed[[45, 75]] = (11.5, 12.0)
    assert trend_ratio(mixed) == pytest.approx(1 - (9.5 + 10) / (38 * 0.5 + 10 + 10.5))
