"""One diagnosis of many captures: what it holds, and that it depends on nothing but them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import asdict

from advisor.engine.conclude import Conclusions
from advisor.errors import InputError
from advisor.jobs.job import listed, over_ranks
from advisor.jobs.reduction import decode
from advisor.model.facts import Scope
from advisor.model.findings import Finding, Impact
from advisor.pipeline.diagnose import Options, diagnose
from advisor.pipeline.ranks import Task, diagnose_ranks, reduce_capture
from advisor.reports.diagnosis_blocks import TextOptions
from tests.ranks.cluster import Cluster
from tests.ranks.support import diagnosed, finding, reduced_once
from tests.ranks.test_planted import job
from tests.reports.fixture import plain
from tests.scenarios.machine import ALL_REDUCE, GEMM, Machine


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return job(more={2: 60}, steps=8).write(tmp_path_factory.mktemp("job"))


def test_one_entry_a_rank(paths: list[Path]) -> None:
    found = diagnosed(paths)
    assert [i.rank for i in found.inputs] == [0, 1, 2, 3]
    assert [Path(i.path).name for i in found.inputs] == [p.name for p in paths]
    assert [(b.rank, b.device) for b in found.budget if b.phase is None] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    table = found.tables["ranks"]
    assert [row[0] for row in table.rows] == [0, 1, 2, 3]
    assert table.columns[5:7] == ("exposed_collectives:ratio", "overlap:ratio")
    assert len(found.steps) == 1
    assert found.timeline.lanes[0].name == "rank 0: collectives"
    assert "(4 ranks)" in found.verdict


def test_the_order_of_the_files_does_not_matter(paths: list[Path]) -> None:
    first = diagnosed(paths).model_dump_json()
    shuffled = list(paths)
    random.Random(3).shuffle(shuffled)
    assert shuffled != paths
    assert diagnosed(shuffled).model_dump_json() == first


def test_single_findings_keep_what_they_say(tmp_path: Path) -> None:
    """What holds on one rank alone is said as it is said of that capture."""
    paths = job(host={0: 700, 1: 720, 2: 800, 3: 710}, steps=8).write(tmp_path)
    found = diagnosed(paths)
    alone = diagnose(paths[0])
    merged = finding(found, "host-gap")
    assert "On 4 of 4 ranks, a share of 34 to 39 %; the numbers are those of rank 2." in merged.message
    assert merged.scope == Scope(device=0)
    own = next(f for f in alone.findings if f.cause == "host-gap")
    assert merged.title == own.title
    assert merged.evidence[-1].title == "Share by rank"
    assert len(merged.evidence[-1].rows) == 4


def test_facts_carry_the_rank(paths: list[Path]) -> None:
    found = diagnosed(paths)
    alone = {(f.name, f.scope.device): f.value for f in diagnose(paths[1]).facts}
    ours = {(f.name, f.scope.device): f.value for f in found.facts if f.scope.rank == 1}
    same = [k for k in ours if k in alone and not k[0].startswith(("comm.", "rank"))]
    assert len(same) > 100
    assert all(ours[k] == alone[k] for k in same)


def test_a_file_that_cannot_be_read_is_a_missing_rank(paths: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "rank4.sqlite"
    bad.write_bytes(b"SQLite format 3\0 but not really")
    told: list[str] = []
    found = diagnose_ranks([*enumerate(paths), (4, bad)], run=reduced_once, warn=told.append)
    assert len(told) == 1
    assert told[0].startswith(f"rank 4 is missing: {bad}: ")
    assert found.inputs[-1].format == "unreadable"
    assert found.inputs[-1].rank == 4
    assert "without rank 4" in found.verdict
    assert "5 ranks, 4 given" in finding(found, "single-rank-of-many").message
    assert "missing   rank 4" in plain(found, TextOptions())


def test_of_many_missing_ranks_the_first_are_listed(paths: list[Path], tmp_path: Path) -> None:
    for rank in range(4, 120):
        (tmp_path / f"rank{rank}.sqlite").write_text("")
    files = [(rank, tmp_path / f"rank{rank}.sqlite") for rank in range(4, 120)]
    found = diagnose_ranks([*enumerate(paths), *files], run=reduced_once)
    for shown in (plain(found, TextOptions()), plain(found, TextOptions(verbosity=1))):
        lines = [line.split()[0:4] for line in shown.splitlines() if line.startswith("  missing ")]
        assert [line[:3] for line in lines[:10]] == [["missing", "rank", f"{rank}:"] for rank in range(4, 14)]
        assert lines[10:] == [["missing", "and", "106", "more"]]


def test_a_rank_without_gpu_work(paths: list[Path], tmp_path: Path) -> None:
    from tests.builder import Export

    idle = Export().gpu().process(9).call("cudaMalloc_v3020", 0).call("cudaFree_v3020", 5_000)
    idle.write(tmp_path / "rank4.sqlite")
    found = diagnose_ranks([*enumerate(paths), (4, tmp_path / "rank4.sqlite")], run=reduced_once)
    assert finding(found, "no-gpu-activity").scope.rank == 4
    assert finding(found, "rank-arrival-skew").scope.rank == 2
    assert [i.rank for i in found.inputs] == [0, 1, 2, 3, 4]
    assert plain(found, TextOptions())


def test_no_file_can_be_read(tmp_path: Path) -> None:
    files = [(i, tmp_path / f"rank{i}.sqlite") for i in range(2)]
    with pytest.raises(InputError, match="rank0"):
        diagnose_ranks(files)


def test_what_travels_is_small(paths: list[Path]) -> None:
    """Facts, conclusions and a row a collective; no events."""
    data = reduce_capture(Task(str(paths[1]), Options(), False)).data
    assert data is not None
    assert len(data) < 40_000
    summary = decode(data)
    (rows,) = summary.rows
    assert len(rows) == 7 * 8
    assert sum(a.nbytes for a in asdict(rows).values() if hasattr(a, "nbytes")) < 80 * len(rows)
    assert summary.diagnosis.facts == ()
    assert summary.diagnosis.timeline.lanes == ()


def test_the_report_names_ranks(paths: list[Path]) -> None:
    text = plain(diagnosed(paths), TextOptions())
    assert "· 4 ranks" in text
    assert "COM102 rank-arrival-skew" in text
    assert max(map(len, text.splitlines())) <= 80
    full = plain(diagnosed(paths), TextOptions(verbosity=1))
    assert "COM102 rank-arrival-skew  rank 2" in full
    assert "\nRanks" in full
    assert "  rank 3  " in full


# --- captures that hold several ranks ------------------------------------------------------------


def one_file(path: Path, *, mpi: bool = False, first: int = 0) -> Path:
    """Two GPUs of two processes in one capture; the second comes late to every all-reduce."""
    a = Machine(pid=100, device=0)
    b = Machine(a.export.gpu(id=1), pid=200, device=1)
    if mpi:
        a.export.process(100).mpi_rank(first + 1)
        a.export.process(200).mpi_rank(first)
    for i in range(8):
        with a.step(f"decode_step {i}"), b.step(f"decode_step {i}"):
            for _ in range(8):
                starts = []
                for machine, us in ((a, 150), (b, 210)):
                    machine.launch(GEMM, us)
                    starts.append(max(machine.now + 6, machine.gpu_free))
                end = max(starts) + 2
                for machine, start in zip((a, b), starts, strict=True):
                    machine.launch(ALL_REDUCE, end - start)
            a.wait()
            b.wait()
    return a.write(path.parent, path.name)


def test_several_gpus_in_one_capture(tmp_path: Path) -> None:
    found = diagnose(one_file(tmp_path / "node.sqlite"))
    late = finding(found, "rank-arrival-skew")
    assert late.scope.rank == 1
    causes = {f.cause for f in found.findings}
    assert not causes & {"exposed-communication", "low-overlap", "tail-latency"}
    assert [f.value for f in found.facts if f.name == "ranks.count"] == [2]
    assert found.inputs[0].ranks == 2
    assert [row[:2] for row in found.tables["ranks"].rows] == [(0, 0), (1, 1)]


def test_mpi_tells_the_ranks_in_one_capture(tmp_path: Path) -> None:
    found = diagnose(one_file(tmp_path / "node.sqlite", mpi=True))
    assert finding(found, "rank-arrival-skew").scope.rank == 0  # the process of the second GPU


def test_captures_of_several_ranks_each(tmp_path: Path) -> None:
    """A capture a node: ranks are numbered through."""
    files = [(None, one_file(tmp_path / f"node{i}.sqlite")) for i in range(2)]
    found = diagnose_ranks(files)
    assert [i.rank for i in found.inputs] == [0, 1, 2, 3]
    assert [(b.rank, b.device) for b in found.budget if b.phase is None] == [(0, 0), (1, 1), (2, 0), (3, 1)]


def test_mpi_tells_the_ranks_of_captures(tmp_path: Path) -> None:
    files = [(None, one_file(tmp_path / f"node{i}.sqlite", mpi=True, first=2 * i)) for i in range(2)]
    found = diagnose_ranks(files)
    assert [(b.rank, b.device) for b in found.budget if b.phase is None] == [(0, 1), (1, 0), (2, 1), (3, 0)]


# --- merging -------------------------------------------------------------------------------------


def one(code: str = "ABC101", share: float = 0.2, **changes: object) -> Finding:
    known: dict[str, object] = {
        "code": code,
        "cause": code.lower(),
        "title": "T",
        "severity": "medium",
        "confidence": 0.8,
        "message": f"{share}",
        "impact": Impact(part="sync", share=share),
    }
    return Finding(**{**known, **changes})  # type: ignore[arg-type]


def merged(found: list[Finding], total: int) -> list[Finding]:
    return list(over_ranks(Conclusions(tuple(found), (), (), (), ()), {}, total).findings)


def test_most_ranks_make_it_the_jobs() -> None:
    said = [one(share=0.1 + 0.1 * r, scope=Scope(rank=r, device=r)) for r in range(3)]
    (job_wide,) = merged(said, 4)
    assert job_wide.scope == Scope()
    extent = "On 3 of 4 ranks, a share of 10 to 30 %; the numbers are those of rank 2."
    assert job_wide.message == f"0.30000000000000004 {extent}"
    assert job_wide.evidence[0].rows[0] == (2, 0.30000000000000004)


def test_few_ranks_are_named() -> None:
    said = [one(share=0.1 * r, scope=Scope(rank=r, device=0)) for r in (1, 3)]
    (worst,) = merged(said, 8)
    assert worst.scope == Scope(rank=3, device=0)
    assert worst.message.endswith("Also on rank 1.")
    (alone,) = merged(said[:1], 8)
    assert alone.scope == Scope(rank=1, device=0)
    assert alone.message == "0.1"


def test_phases_and_operations_stay_apart() -> None:
    said = [one(scope=Scope(rank=0, phase=p)) for p in ("prefill", "decode")]
    assert len(merged(said, 1)) == 2


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([1, 2], "ranks 1 and 2"),
        (list(range(12)), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more"),
    ],
)
def test_ranks_in_words(ranks: list[int], text: str) -> None:
    assert listed(ranks) == text


def test_a_cluster_keeps_its_ranks_together() -> None:
    """The helper itself: all ranks leave a collective together, on the true clock."""
    made = Cluster(2, skew_us=0)
    with made.step("decode_step 0"):
        made.compute(GEMM, 100, more={1: 50})
        made.collective(ALL_REDUCE, 10)
    free = [m.gpu_free + 1_000.0 * r for r, m in enumerate(made.machines)]
    assert free[0] == pytest.approx(free[1])
