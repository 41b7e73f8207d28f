"""`advisor diagnose` of several captures: one job or several, in words and in exit codes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.pipeline import workers
from advisor.pipeline.ranks import Reduced, Task, reduce_capture
from tests.kineto_builder import Profile
from tests.ranks.test_planted import job

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return lambda *args: main([str(a) for a in args])


def test_ranks_by_name_make_one_document(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(2, more={1: 60}, steps=5).write(tmp_path)
    assert run("rank0.sqlite", "rank1.sqlite", "--format", "json", "--jobs", "1") == 0
    document = json.loads(capsys.readouterr().out)
    assert [i["rank"] for i in document["inputs"]] == [0, 1]
    assert [i["path"] for i in document["inputs"]] == ["rank0.sqlite", "rank1.sqlite"]
    assert "rank-arrival-skew" in [f["cause"] for f in document["findings"]]


def test_a_folder_of_ranks(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In as many processes as are asked for (tests/ranks/test_workers.py starts them)."""
    folder = tmp_path / "run"
    folder.mkdir()
    job(2, steps=5).write(folder)
    asked = []

    def here(tasks: list[Task], workers: int, *_: object) -> list[Reduced]:
        asked.append(workers)
        return [reduce_capture(task) for task in tasks]

    monkeypatch.setattr(workers, "_in_processes", here)
    assert run(folder, "--jobs", "2", "-v") == 0
    assert asked == [2]
    out = capsys.readouterr().out
    assert "ranks      2 read" in out
    assert "  rank    busy" in out


def test_a_folder_of_ranks_is_saved_and_compared_like_a_capture(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, more in (("even", {}), ("late", {1: 600})):
        (tmp_path / name).mkdir()
        job(2, more=more, steps=5).write(tmp_path / name)
    assert run("baseline", "save", "main", "even") == 0
    assert run("late", "--baseline", "main", "--fail-on-worse", "-q") == 1
    assert "Against main (rank0.sqlite, rank1.sqlite): Regression" in capsys.readouterr().out
    assert run("compare", "late", "main", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "improvement"
    assert run("baseline", "list", "--format", "json") == 0
    (saved,) = json.loads(capsys.readouterr().out)["baselines"]
    (entry,) = saved["entries"]
    assert (saved["name"], saved["fault"], sorted(entry)) == ("main", "", ["captures", "steps", "verdict"])
    assert entry["captures"] == ["even/rank0.sqlite", "even/rank1.sqlite"]


def test_independent_captures_stay_apart(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(2, steps=5).write(tmp_path)
    assert run("rank0.sqlite", "rank1.sqlite", "--independent", "--format", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["diagnoses"]) == 2


def test_ranks_without_numbers(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(2, steps=5).write(tmp_path, "part{}.sqlite")
    assert run("part1.sqlite", "part0.sqlite", "--format", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["diagnoses"]) == 2
    assert run("part1.sqlite", "part0.sqlite", "--ranks", "--format", "json", "--jobs", "1") == 0
    document = json.loads(capsys.readouterr().out)
    assert [(i["rank"], i["path"]) for i in document["inputs"]] == [(0, "part0.sqlite"), (1, "part1.sqlite")]


def test_metadata_tell_that_it_is_one_job(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(2, steps=5, world_size=2).write(tmp_path, "part{}.sqlite")
    assert run("part1.sqlite", "part0.sqlite", "--format", "json", "--jobs", "1") == 0
    assert [i["rank"] for i in json.loads(capsys.readouterr().out)["inputs"]] == [0, 1]


def test_the_two_choices_exclude_each_other(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(2, steps=2).write(tmp_path)
    assert run("rank0.sqlite", "rank1.sqlite", "--ranks", "--independent") == 2
    assert capsys.readouterr().err.startswith("advisor: error: --ranks and --independent")


def test_a_rank_that_cannot_be_read_is_told_and_exit_is_2(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(2, steps=5).write(tmp_path)
    (tmp_path / "rank2.sqlite").write_text("")
    assert run("rank0.sqlite", "rank1.sqlite", "rank2.sqlite", "--jobs", "1") == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("advisor: error: rank 2 is missing: rank2.sqlite: an empty file")
    assert "· 2 of 3 ranks" in shown.out
    assert "missing   rank 2" in shown.out


@pytest.mark.parametrize(
    ("how", "first"), [("--ranks", "rank 1 is missing: rank1.sqlite"), ("--independent", "rank1.sqlite")]
)
def test_many_captures_that_are_missing_share_a_line(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str, first: str
) -> None:
    job(1, steps=5).write(tmp_path)
    (tmp_path / "rank40.sqlite").write_text("")
    assert run(*(f"rank{i}.sqlite" for i in range(41)), how, "--jobs", "1") == 2
    missing, empty = capsys.readouterr().err.splitlines()
    assert missing.startswith(f"advisor: error: no such file (39 captures): {first}, ")
    assert missing.endswith("rank3.sqlite, ...")
    assert "rank40.sqlite: an empty file" in empty


@pytest.mark.parametrize(
    "content",
    [
        None,  # the packed file is cut short
        pytest.param(b"", marks=pytest.mark.slow),
        gzip.compress(b'{"schemaVersion": 1, "dis'),
        pytest.param(b"\x00\x01\x02 no trace at all", marks=pytest.mark.slow),
    ],
    ids=["packed file cut short", "empty", "json cut short", "other bytes"],
)
def test_a_folder_names_the_rank_that_cannot_be_read(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    """The same rank is missing whether the files are named or their folder is."""
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in range(3):
        profile = Profile()
        for i in range(20):
            profile.launch(at=i * 50_000)
        data = gzip.compress(profile.text().encode())
        name = folder / f"worker{rank}_step_{7 + rank}.pt.trace.json.gz"
        if rank == 1:
            data = data[:-20] if content is None else content
        name.write_bytes(data)
    (folder / "config.json").write_text("{}")
    seen = []
    for paths in ([folder], sorted(folder.glob("worker*"))):
        assert run(*paths, "--format", "json", "--jobs", "1") == 2
        shown = capsys.readouterr()
        assert shown.err.startswith("advisor: error: rank 1 is missing: ")
        document = json.loads(shown.out)
        seen.append([(i["rank"], i["format"]) for i in document["inputs"]])
        assert "(2 of 3 ranks" in document["verdict"]
        assert "On 2 of 3 ranks (1 not read)" in document["findings"][0]["message"]
    assert seen[0] == seen[1]


def test_a_hint_on_stderr(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(2, steps=3).write(tmp_path)
    (tmp_path / "rank1.sqlite").rename(tmp_path / "other.sqlite")
    assert run("rank0.sqlite", "other.sqlite", "-q") == 0
    assert capsys.readouterr().err.startswith("advisor: note: 1 of 2 captures name their rank")


def test_a_cluster_is_of_no_use_to_one_capture(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(1, steps=3).write(tmp_path)
    assert run("rank0.sqlite", "--dask", "tcp://nowhere:1", "-q") == 0
    assert capsys.readouterr().err.startswith("advisor: note: --dask reads the ranks of one job")


def test_jobs_from_the_configuration(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.pipeline import workers

    used: list[int] = []
    real = workers.runner
    monkeypatch.setattr(
        workers, "runner", lambda jobs, dask, count: used.append(jobs) or real(1, dask, count)
    )
    job(2, steps=3).write(tmp_path)
    (tmp_path / "advisor.toml").write_text("jobs = 3\n")
    assert run("rank0.sqlite", "rank1.sqlite", "-q") == 0
    assert used == [3]


@pytest.mark.parametrize(
    "format",
    [
        "text",
        "json",
        "sarif",
        *(pytest.param(f, marks=pytest.mark.slow) for f in ("markdown", "junit", "github")),
    ],
)
def test_every_format_takes_a_job(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    job(2, more={1: 60}, steps=5).write(tmp_path)
    html = tmp_path / "out.html"
    arguments = ("--format", format, "--html", html, "--jobs", "1")
    assert run("rank0.sqlite", "rank1.sqlite", *arguments) == 0
    assert "COM102" in capsys.readouterr().out
    assert "rank 1" in html.read_text()


def profile(rank: int, ranks: int = 2) -> Profile:
    """Six all-reduces with the arguments of NCCL; rank 1 comes late to each."""
    own = Profile().gpu(id=rank).process(1_000 + rank)
    own.head(distributedInfo={"backend": "nccl", "rank": rank, "world_size": ranks})
    for i in range(6):
        at = i * 200_000
        busy = 140_000 if rank == 1 else 80_000
        own.launch(at=at, kernel="gemm", kernel_start=at + 8_000, kernel_dur=busy, device=rank)
        start = at + 10_000 + busy
        own.launch(
            at=at + 20_000,
            kernel="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)",
            kernel_start=start,
            kernel_dur=at + 160_000 - start,
            device=rank,
            **{
                "Collective name": "allreduce",
                "In msg nelems": 4096,
                "Out msg nelems": 4096,
                "dtype": "BFloat16",
                "Process Group Name": "0",
                "Seq": 100 + i,
            },
        )
    return own


def test_traces_of_the_pytorch_profiler(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks by `distributedInfo`, collectives by communicator and sequence number."""
    for rank in range(2):
        profile(rank).write(tmp_path / f"trace{'ab'[rank]}.json")
    assert run("tracea.json", "traceb.json", "--format", "json", "--jobs", "1") == 0
    document = json.loads(capsys.readouterr().out)
    assert [i["rank"] for i in document["inputs"]] == [0, 1]
    late = [f for f in document["findings"] if f["cause"] == "rank-arrival-skew"]
    assert [f["scope"]["rank"] for f in late] == [1]
    facts = {f["name"]: f["value"] for f in document["facts"] if f["scope"]["rank"] is None}
    assert facts["ranks.matched_count"] == 6
