"""What mending a late rank and hiding transfers would win, against jobs that were made so."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import advisor
from advisor.jobs.gains import arrival_gain, transfer_gain
from advisor.jobs.waiting import reduce_ranks
from advisor.model.findings import Diagnosis, Gain
from advisor.model.gain import Span, over_all
from advisor.model.numbers import milliseconds
from advisor.reports.phrases import step_time
from tests.builder import Export
from tests.ranks.support import diagnosed, finding, rows
from tests.ranks.test_planted import LAYERS, job
from tests.scenarios.machine import ALL_REDUCE, GEMM, Kernel, Machine

ARGMAX = Kernel("at::native::reduce_kernel<512, 1, at::native::ArgMaxOps<float>>")
RANKS, LATE, MORE = 4, 2, 60.0


def step_ms(diagnosis: Diagnosis) -> float:
    return diagnosis.steps[0].mean_ms


def test_the_mended_job_is_as_fast_as_was_said(tmp_path: Path) -> None:
    """Two ways to mend it: take the surplus away, or share it out; the range is theirs."""
    for name in ("before", "without", "shared"):
        (tmp_path / name).mkdir()
    before = diagnosed(job(RANKS, more={LATE: MORE}).write(tmp_path / "before"))
    without = diagnosed(job(RANKS).write(tmp_path / "without"))
    everyone = dict.fromkeys(range(RANKS), MORE / RANKS)
    shared = diagnosed(job(RANKS, more=everyone).write(tmp_path / "shared"))
    gain = finding(before, "rank-arrival-skew").gain
    assert gain is not None
    assert gain.step_before_ms is not None
    assert gain.step_after_ms is not None
    assert (gain.measure, gain.per, gain.reason) == ("latency", "step", None)
    assert len(gain.assumptions) == 2
    assert gain.step_before_ms.mid == pytest.approx(step_ms(before), rel=0.02)
    assert gain.step_after_ms.low == pytest.approx(step_ms(without), rel=0.03)
    assert gain.step_after_ms.high == pytest.approx(step_ms(shared), rel=0.03)


def test_every_gain_of_a_job_starts_from_the_step_of_its_header(tmp_path: Path) -> None:
    """Without the profiler, the mean over the ranks, whether the estimate is of one rank or of all."""
    found = diagnosed(job(RANKS, more={LATE: MORE}, transfer=60, name="iteration").write(tmp_path))
    steps = [i.untraced_step_ms for i in found.inputs]
    step = over_all(steps)
    assert step is not None
    for cause in ("rank-arrival-skew", "exposed-communication"):
        gain = finding(found, cause).gain
        assert gain is not None
        assert gain.step_before_ms in (step, *steps), cause
    shown = step_time(found.inputs)
    assert f"about {milliseconds(step.mid)} ms" in shown


def test_waiting_that_other_kernels_hide_wins_nothing() -> None:
    """Half of each wait lies under a kernel of another stream."""
    some = [
        rows(r, [1_000.0 * i for i in range(1, 40)], 20.0 + 60.0 * (r != 1), lead=[(10.0, 5.0)] * 39)
        for r in range(3)
    ]
    whole = arrival_gain(reduce_ranks(some), 1)
    half = [replace(r, exposed=r.exposed // 2) for r in some]
    less = arrival_gain(reduce_ranks(half), 1)
    assert whole.speedup is not None
    assert less.speedup is not None
    assert 1 < less.speedup.high < whole.speedup.high


def test_lateness_before_the_window_is_no_gain() -> None:
    some = [
        rows(r, [1_000.0 * i for i in range(1, 10)], [80.0 if r != 1 and i == 0 else 20.0 for i in range(9)])
        for r in range(3)
    ]
    gain = arrival_gain(reduce_ranks(some), 1)
    assert gain.speedup is None
    assert "before its window" in (gain.reason or "")


def test_an_exposed_transfer_in_a_job(tmp_path: Path) -> None:
    found = diagnosed(job(transfer=60, name="iteration").write(tmp_path))
    gain = finding(found, "exposed-communication").gain
    assert gain is not None
    assert gain.step_before_ms is not None
    assert gain.step_after_ms is not None
    hidden = gain.step_before_ms.mid - gain.step_after_ms.mid
    assert hidden == pytest.approx(LAYERS * 0.060, rel=0.1)
    assert any("of the exposed time is transfer" in text for text in gain.assumptions)


def test_advice_of_a_job_with_a_late_rank_hides_no_waiting(tmp_path: Path) -> None:
    """The recommendation that leads and the finding are of one fix: neither hides the wait of 60 us for the
    late rank that comes before a transfer of 60 us."""
    found = diagnosed(job(more={LATE: 60}, transfer=60, name="iteration").write(tmp_path))
    told = [f for f in found.findings if f.cause == "exposed-communication"]
    assert told
    for f in told:
        own = [g for g in (f.gain, *(r.gain for r in f.recommendations)) if g is not None and g.speedup]
        assert own
        for gain in own:
            assert any("of the exposed time is transfer" in text for text in gain.assumptions)
            assert gain.step_before_ms is not None
            assert gain.step_after_ms is not None
            hidden = gain.step_before_ms.mid - gain.step_after_ms.mid
            assert hidden == pytest.approx(LAYERS * 0.060, rel=0.15)


def test_only_the_transfer_is_hidden() -> None:
    span = Span(low=10, mid=10, high=10)
    alone = Gain(
        what_if="overlap_communication",
        measure="latency",
        step_before_ms=span,
        step_after_ms=Span(low=4, mid=5, high=8),
        speedup=Span(low=1.25, mid=2, high=2.5),
    )
    gain = transfer_gain(alone, transfer=0.1, exposed=0.4)
    assert gain.step_after_ms is not None
    assert gain.step_after_ms.mid == pytest.approx(10 - 5 / 4)
    assert gain.speedup is not None
    assert gain.speedup.mid == pytest.approx(10 / 8.75)
    assert gain.what_if == "overlap_communication"
    assert transfer_gain(Gain(reason="why"), 0.1, 0.4).reason == "why"


def test_every_finding_of_a_job_has_an_estimate_or_a_reason(tmp_path: Path) -> None:
    for i, made in enumerate((job(more={1: 60}), job(transfer=60), job(host={1: 400}))):
        (tmp_path / str(i)).mkdir()
        for f in diagnosed(made.write(tmp_path / str(i))).findings:
            assert f.gain is not None
            assert bool(f.gain.reason) != (f.gain.speedup is not None), f.cause


def test_hiding_transfers_in_one_capture_keeps_the_waiting(tmp_path: Path) -> None:
    """Two GPUs of one file, of which one computes for 60 us more before each all-reduce of 10 us: what
    overlap can hide is those 10 us, on the GPU that waits as well."""
    export = Export().gpu(0).gpu(1)
    machines = [Machine(export, pid=100 + i, device=i) for i in range(2)]
    for _ in range(10):
        for _ in range(20):
            for m, us in zip(machines, (100, 160), strict=True):
                m.launch(GEMM, us)
            ready = [max(m.now + 6, m.gpu_free) for m in machines]
            for m, since in zip(machines, ready, strict=True):
                m.launch(ALL_REDUCE, max(ready) + 10 - since)
        for m in machines:
            m.launch(ARGMAX, 5)
            m.read_back()
    path = export.write(tmp_path / "both.sqlite")
    found = advisor.diagnose(path)
    gains = [f.gain.speedup for f in found.findings if f.cause == "exposed-communication" and f.gain]
    assert len(gains) == 2
    saved = advisor.whatif(path, "overlap_communication").speedup
    for one in gains:
        assert one is not None
        assert 1 <= one.low <= one.high < 1.13  # of 70 us it would be 1.6
        assert saved.high == pytest.approx(one.high, abs=0.01)
