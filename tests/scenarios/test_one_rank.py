"""One rank of a job, whose collectives may hold waiting for the others: no headline promises that time."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.reports import summary
from tests.ranks.cluster import Cluster
from tests.ranks.support import diagnosed as together
from tests.scenarios.machine import ALL_REDUCE, DECODE_LAYER, GEMM, Kernel, Machine
from tests.scenarios.support import diagnosed, fact, ranked
from tests.scenarios.test_exchanges import EXPERTS
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


@pytest.mark.parametrize(("collective", "us"), [(ALL_REDUCE, 80), (ALL_REDUCE, 300), (RECEIVE, 120)])
def test_time_that_may_be_waiting_is_not_promised(tmp_path: Path, collective: Kernel, us: float) -> None:
    d = diagnosed(decoding(collective, us), tmp_path)
    assert ranked(d)[0] in ("exposed-communication", "many-small-collectives")
    headline = summary.verdict(d)
    assert PERHAPS in headline
    assert "→" not in headline


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
