"""Command lines of advisor, each in a process of its own, that begin at the same moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

#: Imported before the processes part, so that they do their work at the same time.
_NEEDED = (
    "advisor.checklist.session",
    "advisor.cli.compare_verbs",
    "advisor.cli.review_verbs",
    "advisor.comparison.baseline",
    "advisor.pipeline.compare",
    "advisor.recording.store",
    "advisor.reports.json_report",
    "advisor.reports.review_blocks",
)


class Ended(NamedTuple):
    code: int
    err: str


def at_once(folder: Path, commands: Sequence[Sequence[str]]) -> list[Ended]:
    """How each ended, in the order of the commands. ``-c CODE`` runs Python instead."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.at_once"],
        cwd=folder,
        input=json.dumps([*map(list, commands)]),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return [Ended(*one) for one in json.loads(done.stdout)]


def _run(command: Sequence[str], begin: int) -> int:
    os.read(begin, 1)  # ends when the parent closes its end
    if command[0] == "-c":
        exec(command[1], {})
        return 0
    from advisor.cli.main import main

    return main([*command])


def _child(command: Sequence[str], begin: int, err: Path) -> None:
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT), 2)
        code = _run(command, begin)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    for name in _NEEDED:
        import_module(name)
    wanted = json.load(sys.stdin)
    if any(command[0] == "checklist" for command in wanted):
        from advisor.checklist import items

        items.checklist(items.CaptureFacts())  # reads rules and knowledge once for all
    with TemporaryDirectory() as scratch:
        files = [Path(scratch, str(i)) for i in range(len(wanted))]
        begin, let_go = os.pipe()
        children = []
        for command, file in zip(wanted, files, strict=True):
            if (child := os.fork()) == 0:
                os.close(let_go)
                _child(command, begin, file)
            children.append(child)
        os.close(let_go)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        json.dump([[c, f.read_text()] for c, f in zip(codes, files, strict=True)], sys.stdout)
