"""Ends the processes of a recording when the process that started it is gone, however it ended.

Run as a program of its own, which knows the standard library alone: `python guard.py MARK` reads the ids of
processes from its standard input, a line each, and after its end kills them, their groups and every process
whose environment holds the mark, unless the last line is `over`. The other end of the pipe is in one process
only, so the system closes it with that process, also after SIGKILL, whichever thread started the guard."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: By this variable the processes of a recording are known, wherever their parents have gone.
MARK = "ADVISOR_RECORDING"
#: The last line of a recording that ended.
OVER = "over"
#: What a process is given to end by itself after SIGTERM, and how often is looked, in seconds.
GRACE_S, LOOK_S = 3.0, 0.05


def marked(mark: str) -> Iterator[int]:
    """The processes whose environment holds the mark, where the system shows environments."""
    wanted = f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError, ValueError):
            if wanted in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)


def end_all(pids: list[int], mark: str) -> None:
    """End the processes, the groups that they lead, and those with the mark: SIGTERM, later SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        begun = time.monotonic()
        while left := [*_groups(pids), *marked(mark)]:
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            if time.monotonic() - begun > GRACE_S:
                break
            time.sleep(LOOK_S)


def _groups(pids: list[int]) -> Iterator[int]:
    """The groups that the processes lead and that are not empty, as `os.kill` names them."""
    for pid in pids:
        with suppress(OSError):
            os.killpg(pid, 0)
            yield -pid


def main() -> None:
    """Wait for the end of the input."""
    lines = sys.stdin.read().split()
    if lines[-1:] != [OVER]:
        end_all([int(line) for line in lines if line.isdecimal()], sys.argv[1])


if __name__ == "__main__":
    main()
