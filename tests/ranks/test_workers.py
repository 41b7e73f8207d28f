"""Processes and clusters: the same result from any number of them, and from those that die."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.model.options import Options
from advisor.pipeline import workers as pipeline_workers
from advisor.pipeline.ranks import Reduced, Task, diagnose_ranks
from advisor.pipeline.workers import runner
from tests.ranks import killers
from tests.ranks.test_planted import job

Files = list[tuple[int | None, Path]]

needs_distributed = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None,
    reason="distributed is not installed: pip install 'distributed>=2024.4'",
)


def started() -> set[str]:
    """Processes that this one has started, but for what Python keeps for all."""
    found = set()
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(OSError):
                line = Path("/proc", pid, "cmdline").read_bytes().decode()
                state = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and "resource_tracker" not in line and "forkserver" not in line:
                    found.add(f"{pid} {line}")
    return found


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever dies: no process goes on, and no file stays in the temporary or the current folder."""
    scratch, here = tmp_path / "scratch", tmp_path / "here"
    scratch.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    before = started()
    yield
    deadline = time.monotonic() + 60
    while (left := started() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == set()
    # Clusters of the tests themselves keep a folder of their own there.
    assert [p.name for p in scratch.iterdir() if p.name != "dask-scratch-space"] == []
    assert list(here.iterdir()) == []


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return list(enumerate(job(3, more={2: 60}, steps=5).write(tmp_path)))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Files], str]:
    """What one process says, with the paths of the files in question."""
    folder = tmp_path_factory.mktemp("expected")
    own = list(enumerate(job(3, more={2: 60}, steps=5).write(folder)))
    text = diagnose_ranks(own).model_dump_json()
    return lambda files: text.replace(str(folder), str(files[0][1].parent))


def test_processes_say_the_same(files: Files, expected: Callable[[Files], str]) -> None:
    counted: list[tuple[int, int]] = []
    run = runner(2, count=lambda n, of: counted.append((n, of)))
    assert diagnose_ranks(files, run=run).model_dump_json() == expected(files)
    assert counted == [(1, 3), (2, 3), (3, 3)]


def test_one_process_is_this_one(files: Files, expected: Callable[[Files], str]) -> None:
    assert diagnose_ranks(files, run=runner(1)).model_dump_json() == expected(files)


@pytest.mark.parametrize(("worth_bytes", "expected_workers"), [(1 << 40, None), (1, 2)])
def test_processes_start_where_there_is_enough_to_read(
    files: Files, monkeypatch: pytest.MonkeyPatch, worth_bytes: int, expected_workers: int | None
) -> None:
    started: list[int] = []

    def note(tasks: list[Task], workers: int, *_: object) -> list[Reduced]:
        started.append(workers)
        return [Reduced(None, "not read") for _ in tasks]

    monkeypatch.setattr(pipeline_workers, "_WORTH_BYTES", worth_bytes)
    monkeypatch.setattr(pipeline_workers, "_in_processes", note)
    monkeypatch.setattr(pipeline_workers, "cores", lambda: 2)
    tasks = [Task(str(path), Options(), False) for _, path in files]
    runner()(tasks)
    assert started == ([] if expected_workers is None else [expected_workers])


@pytest.mark.slow
def test_a_process_that_dies_is_replaced(files: Files, expected: Callable[[Files], str]) -> None:
    told: list[str] = []
    found = diagnose_ranks(files, run=runner(2, work=killers.dies_once), warn=told.append)
    assert files[1][1].with_suffix(".killed").exists()
    assert told == []
    assert found.model_dump_json() == expected(files)


@pytest.mark.slow
def test_a_capture_that_kills_its_process_is_missing(files: Files) -> None:
    told: list[str] = []
    found = diagnose_ranks(files, run=runner(2, work=killers.always_dies), warn=told.append)
    assert len(told) == 1
    assert told[0].startswith(f"rank 1 is missing: {files[1][1]}: its worker was killed")
    assert [i.rank for i in found.inputs if i.format != "unreadable"] == [0, 2]
    assert "without rank 1" in found.verdict


@pytest.mark.slow
@needs_distributed
def test_a_cluster_whose_worker_dies(files: Files, expected: Callable[[Files], str]) -> None:
    """A real LocalCluster of two workers; one is killed in the middle of a capture."""
    told: list[str] = []
    run = runner(2, "local", work=killers.dies_once)
    found = diagnose_ranks(files, run=run, warn=told.append)
    assert files[1][1].with_suffix(".killed").exists()
    assert told == []
    assert found.model_dump_json() == expected(files)


@pytest.mark.slow
@needs_distributed
def test_a_capture_that_kills_every_worker(files: Files) -> None:
    told: list[str] = []
    run = runner(2, "local", work=killers.always_dies)
    found = diagnose_ranks(files, run=run, warn=told.append)
    assert len(told) == 1
    assert "its worker was killed" in told[0]
    assert told[0].startswith("rank 1 is missing")
    assert [i.rank for i in found.inputs if i.format != "unreadable"] == [0, 2]


@pytest.mark.slow
@needs_distributed
def test_a_running_cluster_is_used_and_left_alone(files: Files, expected: Callable[[Files], str]) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
    ) as cluster:
        run = runner(dask=cluster.scheduler_address)
        assert diagnose_ranks(files, run=run).model_dump_json() == expected(files)
        assert len(cluster.scheduler_info["workers"]) == 1


@pytest.mark.slow
@needs_distributed
def test_a_cluster_that_loses_all_workers(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody restarts a worker without a nanny: what is left is said to be missing."""
    from distributed import LocalCluster

    monkeypatch.setattr(pipeline_workers, "_LOOK_AFTER_S", 1)
    told: list[str] = []
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
    ) as cluster:

        def leave(done: int, _of: int) -> None:
            if done == 1:
                cluster.scale(0)

        run = runner(dask=cluster.scheduler_address, work=killers.slow, count=leave)
        found = diagnose_ranks(files, run=run, warn=told.append)
    assert len(told) >= 1
    assert all(line.endswith("no worker is left on the cluster") for line in told)
    assert len(told) == sum(i.format == "unreadable" for i in found.inputs)


@pytest.mark.slow
@needs_distributed
def test_a_scheduler_that_dies_in_the_middle(files: Files) -> None:
    code = (
        "from distributed import LocalCluster\n"
        "own = dict(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=':0')\n"
        "with LocalCluster(protocol='tcp', **own) as cluster:\n"
        "    print(cluster.scheduler_address, flush=True)\n"
        "    input()\n"
    )
    told: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as scheduler:
        assert scheduler.stdout is not None

        def kill(done: int, _of: int) -> None:
            if done == 1:
                scheduler.kill()

        run = runner(dask=scheduler.stdout.readline().strip(), work=killers.slow, count=kill)
        found = diagnose_ranks(files, run=run, warn=told.append)
    assert sum(i.format == "unreadable" for i in found.inputs) == len(told) == 2
    assert all(line.endswith("the connection to the scheduler was lost") for line in told)


@pytest.mark.slow
@needs_distributed
def test_workers_that_cannot_start(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process of a worker ends at once, so that its nanny gives up."""
    monkeypatch.setattr("multiprocessing.spawn._python_exe", b"/bin/false")
    with pytest.raises(
        InputError, match=r"--dask local: no workers can be started here \(Nanny failed"
    ) as error:
        diagnose_ranks(files, run=runner(2, "local"))
    assert "\n" not in str(error.value)


@needs_distributed
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://", "no such address"])
def test_no_scheduler_there(files: Files, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_workers, "_PATIENCE", "1s")
    with pytest.raises(InputError, match="--dask: no scheduler answers at"):
        diagnose_ranks(files, run=runner(dask=address))


@pytest.mark.slow
@needs_distributed
def test_workers_without_advisor(files: Files) -> None:
    with pytest.raises(InputError, match="install the same version of advisor there"):
        diagnose_ranks(files, run=runner(1, "local", work=killers.cannot_import))


def test_without_distributed_one_line_says_so(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'distributed>=2024.4'") as error:
        diagnose_ranks(files, run=runner(dask="local"))
    assert "\n" not in str(error.value)


def test_distributed_is_imported_only_when_asked_for() -> None:
    code = "import advisor.pipeline.workers, sys; print('distributed' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.slow
def test_ctrl_c_stops_the_workers(files: Files) -> None:
    def stop(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        diagnose_ranks(files, run=runner(2, count=stop))


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [None, pytest.param("local", marks=needs_distributed)])
def test_a_worker_that_is_killed_leaves_nothing_unpacked(files: Files, cluster: str | None) -> None:
    told: list[str] = []
    diagnose_ranks(files, run=runner(2, cluster, work=killers.leaves_a_copy), warn=told.append)
    assert len(told) == 1


def test_cores_are_counted() -> None:
    assert pipeline_workers.cores() >= 1


def test_a_bad_capture_is_one_line(tmp_path: Path) -> None:
    from advisor.pipeline.diagnose import Options
    from advisor.pipeline.ranks import reduce_capture

    result = reduce_capture(Task(str(tmp_path / "none.sqlite"), Options(), True))
    assert result == Reduced(None, f"{tmp_path / 'none.sqlite'}: no such file")
