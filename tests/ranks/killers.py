"""Work for workers that some of them do not survive. Importable by other processes."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

from advisor.pipeline.ranks import Reduced, Task, reduce_capture


def dies_once(task: Task) -> Reduced:
    """The first worker that is given rank 1 is killed in the middle of it."""
    mark = Path(task.path).with_suffix(".killed")
    if Path(task.path).stem == "rank1" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    return reduce_capture(task)


def always_dies(task: Task) -> Reduced:
    """Whoever is given rank 1 is killed, as for want of memory."""
    if Path(task.path).stem == "rank1":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    return reduce_capture(task)


def leaves_a_copy(task: Task) -> Reduced:
    """Killed while its capture lies unpacked in a temporary folder."""
    Path(tempfile.mkdtemp(prefix="advisor-"), "capture").touch()
    return always_dies(task)


def slow(task: Task) -> Reduced:
    if Path(task.path).stem != "rank0":
        time.sleep(3)
    return reduce_capture(task)


def cannot_import(task: Task) -> Reduced:
    raise ModuleNotFoundError(f"No module named 'advisor' (for {task.path})")
