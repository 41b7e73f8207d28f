"""Runs command lines of the `advisor` that this Python imports, each in a process of its own.

usage: python -P benchmarks/freeze_server.py   (started by freeze.py)

Reads one JSON object a line: `words`, `folder` to run in, `out` and `err` (files), `seconds` (a limit).
Prints one number a line, the exit code. All modules are imported once, before the first command: a process is
then a copy of this one, which takes a fifth of the time of starting Python for each.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import runpy
import signal
import sys
from typing import Any, NoReturn


def main() -> None:
    import advisor

    for module in pkgutil.walk_packages(advisor.__path__, "advisor."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # it needs an optional package
                importlib.import_module(module.name)
    for line in sys.stdin:
        job = json.loads(line)
        if (child := os.fork()) == 0:
            _run(job)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(job: dict[str, Any]) -> NoReturn:
    code: Any = 70
    try:
        signal.alarm(job["seconds"])
        os.chdir(job["folder"])
        for number, path, mode in (
            (0, os.devnull, os.O_RDONLY),
            (1, job["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (2, job["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ):
            os.dup2(os.open(path, mode), number)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.argv = ["advisor", *job["words"]]
        runpy.run_module("advisor", run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 70)


if __name__ == "__main__":
    main()
