"""Where captures are reduced: here, in a process for each core, or on a Dask cluster."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

from advisor.errors import InputError
from advisor.pipeline.ranks import Reduced, Run, Task, reduce_capture
from advisor.reading import Scratch

#: Called with the number of captures that are done, and of all.
Count = Callable[[int, int], None]
#: The work of a worker on one capture; importable, so that other processes can run it.
Work = Callable[[Task], Reduced]

#: How long a scheduler may take to answer, and after how many seconds without a result its workers are
#: counted.
_PATIENCE, _LOOK_AFTER_S = "10s", 20
#: How often a capture is tried whose worker dies.
_TRIES = 2
#: A worker takes as long to start (about a second) as one that runs takes to analyse a SQLite
#: export of this size; measured on eight captures of 1 to 6 MB.
_WORTH_BYTES = 4_000_000
#: How many times as large a capture is unpacked; 5 to 12 in the captures at hand.
_PACKED = 8
_KILLED = "{path}: its worker was killed (out of memory?); give more memory, fewer --jobs, or a --window"
_LOST = "the connection to the scheduler was lost"


def cores() -> int:
    """How many processes may run at once."""
    if hasattr(os, "sched_getaffinity"):
        return max(len(os.sched_getaffinity(0)), 1)
    return os.cpu_count() or 1


def runner(
    jobs: int = 0, dask: str | None = None, count: Count | None = None, work: Work = reduce_capture
) -> Run:
    """Reduces the captures: on the cluster named by `dask`, else in `jobs` processes (0: one a core, or
    none if the captures are small). The result does not depend on the choice."""

    def run(tasks: Sequence[Task]) -> Sequence[Reduced]:
        progress = count or (lambda _done, _of: None)
        workers = min(jobs or cores(), len(tasks))
        if dask is not None:
            return _on_cluster(tasks, dask, workers, progress, work)
        if jobs == 0:
            workers = min(workers, _worth(tasks))
        if workers <= 1:
            return _here(tasks, progress, work)
        with Scratch() as folder:
            return _in_processes(tasks, workers, progress, partial(_in_scratch, str(folder), work))

    return run


def _worth(tasks: Sequence[Task]) -> int:
    """How many workers have so much to read that starting them is worth its time."""
    total = 0
    for task in tasks:
        path = Path(task.path)
        if not path.is_file():  # a folder of an export, or an error for the worker to report
            return len(tasks)
        total += path.stat().st_size * (_PACKED if path.suffix in (".xz", ".gz") else 1)
    return max(total // _WORTH_BYTES, 1)


def _here(tasks: Sequence[Task], count: Count, work: Work) -> list[Reduced]:
    out: list[Reduced] = []
    for task in tasks:
        count(len(out), len(tasks))
        out.append(work(task))
    return out


def _in_scratch(folder: str, work: Work, task: Task) -> Reduced:
    tempfile.tempdir = folder
    return work(task)


def _in_processes(tasks: Sequence[Task], workers: int, count: Count, work: Work) -> list[Reduced]:
    """Each worker is a pool of its own: a process that dies loses only its capture, which is tried again."""
    left = deque(range(len(tasks)))
    done: dict[int, Reduced] = {}
    stop = Event()
    pools: list[ProcessPoolExecutor] = []

    def lane() -> None:
        _hold_ctrl_c(signal.SIG_BLOCK)  # inherited by the processes that start from here
        pool: ProcessPoolExecutor | None = None
        while left and not stop.is_set():
            try:
                i = left.popleft()
            except IndexError:
                break
            for _ in range(_TRIES):
                if pool is None:
                    pool = _pool()
                    pools.append(pool)
                try:
                    done[i] = pool.submit(work, tasks[i]).result()
                    break
                except BrokenProcessPool:
                    pool.shutdown(wait=False)
                    pool = None
                    if stop.is_set():
                        return
            else:
                done[i] = Reduced(None, _KILLED.format(path=tasks[i].path))
            count(len(done), len(tasks))
        if pool is not None:
            pool.shutdown()

    with ThreadPoolExecutor(workers) as threads:
        try:
            for each in [threads.submit(lane) for _ in range(workers)]:
                each.result()
        except BaseException:  # Ctrl-C as well: nobody needs what still runs
            stop.set()
            for pool in pools:
                for process in (getattr(pool, "_processes", None) or {}).values():
                    process.terminate()
            raise
    return [done[i] for i in range(len(tasks))]


def _pool() -> ProcessPoolExecutor:
    # Spawned: a forked child would share open files and threads of the parent.
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=_ready)


def _ready() -> None:
    """Ctrl-C ends a worker silently: the parent reports it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _hold_ctrl_c(signal.SIG_UNBLOCK)


def _hold_ctrl_c(how: int) -> None:
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(how, {signal.SIGINT})


def _on_cluster(tasks: Sequence[Task], address: str, workers: int, count: Count, work: Work) -> list[Reduced]:
    """The scheduler gives the work of a dead worker to another one, a few times."""
    distributed = _distributed()
    tasks = [_absolute(task) for task in tasks]
    done: dict[int, Reduced] = {}
    with Scratch() as folder, _client(distributed, address, workers, str(folder)) as client:
        if address == "local":
            work = partial(_in_scratch, str(folder), work)
        futures = {client.submit(work, task, pure=False): i for i, task in enumerate(tasks)}
        left = set(futures)
        while left:
            try:
                with client.as_current():
                    waited = distributed.wait(left, timeout=_LOOK_AFTER_S, return_when="FIRST_COMPLETED")
            except (TimeoutError, CancelledError) as error:
                # The scheduler's knowledge of the work dies with it.
                if gone := _LOST if isinstance(error, CancelledError) else _gone(client):
                    done |= {futures[f]: Reduced(None, f"{tasks[futures[f]].path}: {gone}") for f in left}
                    break
                continue
            for future in waited.done:
                i = futures[future]
                done[i] = _outcome(future, tasks[i], address)
                future.release()
                count(len(done), len(tasks))
            left -= set(waited.done)
    return [done[i] for i in range(len(tasks))]


def _gone(client: Any) -> str | None:
    """Why no more results can come; None while a worker is alive."""
    if client.status != "running":
        return _LOST
    return None if client.nthreads() else "no worker is left on the cluster"


def _absolute(task: Task) -> Task:
    """Workers run in other folders, and may run on other machines that share the files."""
    given = task.options
    samples, log = (path and path.absolute() for path in (given.gpu_metrics, given.log))
    rules = tuple(folder.absolute() for folder in given.rules)
    options = replace(given, rules=rules, gpu_metrics=samples, log=log)
    return task._replace(path=str(Path(task.path).absolute()), options=options)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        what = f"--dask needs the package distributed ({error})"
        raise InputError(f"{what}; pip install 'distributed>=2024.4'") from None
    return distributed


@contextmanager
def _client(distributed: Any, address: str, workers: int, folder: str) -> Iterator[Any]:
    if address == "local":
        try:
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",  # ":0" would answer to every machine
                silence_logs="CRITICAL",
                local_directory=folder,
            )
        except (OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"--dask local: no workers can be started here ({reason}); read the captures with --jobs"
            ) from None
        with cluster, distributed.Client(cluster, set_as_default=False) as client:
            yield client
        return
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"--dask: no scheduler answers at {address} ({type(error).__name__}); "
            "start one with 'dask scheduler', or use --dask local"
        ) from None
    with client:
        if not client.nthreads():
            raise InputError(
                f"--dask: the scheduler at {address} has no workers; start one with 'dask worker {address}'"
            )
        yield client


def _outcome(future: Any, task: Task, address: str) -> Reduced:
    try:
        result = future.result()
    except ImportError as error:
        raise InputError(
            f"--dask: the workers of {address} cannot import what they need ({error}); "
            "install the same version of advisor there"
        ) from None
    except Exception as error:
        if type(error).__name__ == "KilledWorker":
            return Reduced(None, _KILLED.format(path=task.path))
        return Reduced(None, f"{task.path}: {type(error).__name__}: {error}".splitlines()[0])
    assert isinstance(result, Reduced)
    return result
