"""One rank of a job, whose collectives may hold waiting for the others: no headline promises that time."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.gain.attach import ONE_RANK
from advisor.pipeline.explain import whatif
from advisor.reports import summary
from tests.ranks.cluster import Cluster
from tests.ranks.support import diagnosed as together
from tests.scenarios.machine import ALL_REDUCE, DECODE_LAYER, GEMM, Kernel, Machine
from tests.scenarios.support import diagnosed, fact, finding, job_of, ranked
from tests.scenarios.test_exchanges import EXPERTS
from tests.scenarios.test_gradients import training
from tests.scenarios.test_recorded_causes import advice

RECEIVE = Kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 8)
PERHAPS = "part of it perhaps waiting for other ranks"


def decoding(collective: Kernel, us: float, *, call: float = 2) -> Machine:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(30):
                m.layers(1, [(kernel, 3 * us) for kernel, us in DECODE_LAYER], call=call)
                if us:
                    m.launch(collective, us, call=call)
            m.read_back()
    return m


ALONE = [(ALL_REDUCE, 80), (ALL_REDUCE, 300), (RECEIVE, 120)]


@pytest.mark.parametrize(("collective", "us"), ALONE)
def test_time_that_may_be_waiting_is_not_promised(tmp_path: Path, collective: Kernel, us: float) -> None:
    d = diagnosed(decoding(collective, us), tmp_path)
    assert ranked(d)[0] in ("exposed-communication", "many-small-collectives")
    headline = summary.verdict(d)
    assert PERHAPS in headline
    assert "→" not in headline


@pytest.mark.parametrize(("collective", "us"), ALONE)
def test_all_places_say_to_record_all_ranks_first(tmp_path: Path, collective: Kernel, us: float) -> None:
    """No number in the table, the plan, the document or the answer to a question, and nothing HIGH."""
    d = diagnosed(decoding(collective, us), tmp_path)
    assert d.headline is not None
    assert d.headline.saves is None
    assert d.combined is None
    about = [f for f in d.findings if f.part == "communication" and f.severity != "info"]
    assert about
    for f in about:
        assert f.severity in ("low", "medium")
        assert f.gain is not None
        assert f.gain.speedup is None
        assert f.gain.reason == ONE_RANK or "can hide them" in (
            f.gain.reason or ""
        )  # each layer needs its own
        assert summary.saves(f) == ""
        assert summary.first_fix(f) == "record all ranks"
        assert all(r.gain is None or r.gain.speedup is None for r in f.recommendations)
    assert d.do[0].id == "give-all-ranks"
    for asked in (about[0].code, "overlap_communication"):
        with pytest.raises(InputError, match=r"one rank alone cannot tell|can hide them"):
            whatif(tmp_path / "trace.sqlite", asked)


@pytest.mark.parametrize(("collective", "us"), ALONE)
def test_the_ranks_together_are_promised_their_transfer(
    tmp_path: Path, collective: Kernel, us: float
) -> None:
    """The same rows of two ranks, of which none waits."""
    found = job_of(decoding(collective, us), tmp_path)
    assert not any(f.gain is not None and f.gain.reason == ONE_RANK for f in found.findings)
    assert "give-all-ranks" not in advice(found, "exposed-communication")


def test_a_collective_that_follows_another_waits_for_no_rank(tmp_path: Path) -> None:
    """All ranks have met in the first: what gathering the others saves is known to one rank alone."""
    d = diagnosed(training("loop"), tmp_path)
    merged = finding(d, "unbucketed-gradients")
    assert merged.gain is not None
    assert merged.gain.speedup is not None
    with pytest.raises(InputError, match="one rank alone cannot tell"):
        whatif(tmp_path / "trace.sqlite", "overlap_communication")


@pytest.mark.parametrize(
    ("receive", "reduce", "one_process"), [(120, 0, True), (120, 60, True), (60, 120, False)]
)
def test_what_one_other_process_sends_is_received_ahead(
    tmp_path: Path, receive: float, reduce: float, one_process: bool
) -> None:
    """Most of the time decides, also in a stage of a pipeline that is split over GPUs."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(30):
                m.layers(1, [(kernel, 3 * us) for kernel, us in DECODE_LAYER], call=2)
                for kernel, us in ((RECEIVE, receive), (ALL_REDUCE, reduce)):
                    if us:
                        m.launch(kernel, us, call=2)
            m.read_back()
    d = diagnosed(m, tmp_path)
    given = advice(d, "exposed-communication")
    assert ("receive-ahead" in given) == one_process
    assert "overlap-communication" not in given  # the layers of decode steps begin with the all-reduces
    assert fact(d, "comm.point_to_point_ratio") == pytest.approx(receive / (receive + reduce), abs=0.02)


def test_tokens_for_experts_are_no_receiving(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(30):
                m.layers(1, [(kernel, 3 * us) for kernel, us in DECODE_LAYER], call=2)
                m.launch(RECEIVE, 60, call=2)
                m.launch(EXPERTS, 100, call=2)
                m.launch(RECEIVE, 60, call=2)
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert fact(d, "comm.point_to_point_ratio") == 0
    assert "receive-ahead" not in advice(d, "exposed-communication")


def test_ranks_that_were_given_together_show_what_is_transfer(tmp_path: Path) -> None:
    made = Cluster(2, seed=7)
    for i in range(14):
        with made.step(f"iteration {i}"):
            for _ in range(10):
                made.compute(GEMM, 60)
                made.collective(ALL_REDUCE, 80)
    d = together(made.write(tmp_path))
    assert ranked(d)[0] == "exposed-communication"
    headline = summary.verdict(d)
    assert PERHAPS not in headline
    assert "→" in headline


def test_other_faults_of_one_rank_are_promised(tmp_path: Path) -> None:
    """Launching one by one costs more than the collectives, which take 4 us a layer."""
    d = diagnosed(decoding(ALL_REDUCE, 4, call=40), tmp_path)
    assert ranked(d)[0] == "launch-bound"
    headline = summary.verdict(d)
    assert PERHAPS not in headline
    assert "→" in headline
