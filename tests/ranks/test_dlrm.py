"""A real job of eight ranks (facebookresearch/param, MIT): rank 7 comes last."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from advisor.jobs.recognise import recognise
from advisor.model.findings import Diagnosis
from advisor.pipeline.ranks import diagnose_ranks
from tests.ranks.support import fact, finding, pytest_fail

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"
ARCHIVE = SHARED / "public" / "facebookresearch+param" / "dlrm_kineto.tar.gz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ARCHIVE.is_file(), reason="the captures of other people are not on this machine"),
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dlrm")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return sorted(folder.rglob("*.json"))


@pytest.fixture(scope="module")
def diagnosis(paths: list[Path]) -> Diagnosis:
    plan, hint = recognise(paths, pytest_fail)
    assert plan is not None
    assert hint is None
    return diagnose_ranks(plan.files)


def test_rank_7_is_named(diagnosis: Diagnosis) -> None:
    assert finding(diagnosis, "rank-arrival-skew").scope.rank == 7


def test_the_numbers_are_those_of_the_captures(diagnosis: Diagnosis) -> None:
    """By hand from the files: the first all-to-all takes 7,635 us on rank 1 and 10 on rank 7. The
    step of that begins 4.4 ms after rank 1 entered it, its GPU work 1.4 ms later: it is left out."""
    assert fact(diagnosis, "ranks.count") == 8
    assert fact(diagnosis, "ranks.missing_count") == 0
    assert fact(diagnosis, "ranks.matched_count") == 8
    assert fact(diagnosis, "rank.caused_ratio", 7) == pytest.approx(0.45, abs=0.005)
    assert fact(diagnosis, "rank.caused_ratio", 5) == pytest.approx(0.31, abs=0.005)
    assert fact(diagnosis, "rank.caused_ratio", 0) == 0
    assert fact(diagnosis, "rank.left_out_count", 7) == 1
    assert fact(diagnosis, "rank.began_later_ns", 7) == pytest.approx(4_413_000, abs=2_000)
    assert finding(diagnosis, "rank-began-later").scope.rank == 7


def test_clocks_of_one_machine_agree(diagnosis: Diagnosis) -> None:
    for rank in range(1, 8):
        assert abs(fact(diagnosis, "rank.clock_offset_ns", rank)) <= 2_000  # type: ignore[operator]


def test_waiting_is_not_said_to_be_transfer(diagnosis: Diagnosis) -> None:
    exposed = [f for f in diagnosis.findings if f.cause == "exposed-communication"]
    assert all((f.impact.share or 0) < 0.03 for f in exposed if f.impact is not None)


def test_half_of_the_ranks(paths: list[Path]) -> None:
    plan, _ = recognise(paths[:4], pytest_fail)
    assert plan is not None
    found = diagnose_ranks(plan.files)
    assert "8 ranks, 4 given" in finding(found, "single-rank-of-many").message
