"""The real command line over a stand-in for the analysis; also runs in a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from advisor.errors import InputError
from advisor.model.capture import Capture
from advisor.model.findings import Diagnosis
from advisor.model.options import Options

CALLS: list[tuple[Path, Options]] = []


def diagnose(
    path: Path,
    options: Options | None = None,
    progress: Any = None,
    drawn: bool = False,  # noqa: ARG001
) -> Diagnosis:
    """What the name of the file asks for: an error, an interruption, or the sample diagnosis."""
    from tests.reports.fixture import DIAGNOSIS

    CALLS.append((path, options or Options()))
    if "slow" in path.name:
        progress("reading kernels")
        time.sleep(1.3)
        progress("inferring")
    if "endless" in path.name:
        (path.parent / "reading").touch()
        time.sleep(60)
    if "bad" in path.name:
        raise InputError(f"{path.name}: not an Nsight Systems export")
    if "bug" in path.name:
        raise ZeroDivisionError("division by zero")
    if "stop" in path.name:
        raise KeyboardInterrupt
    if "denied" in path.name:
        raise PermissionError(13, "Permission denied", str(path))
    return DIAGNOSIS


@contextmanager
def open_trace(path: Path) -> Iterator[SimpleNamespace]:
    """Enough of a trace to see that it is one rank of no job."""
    yield SimpleNamespace(capture=Capture(path=str(path), format="nsys-sqlite"))


def module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    return made


def stand_in() -> ModuleType:
    return module("advisor.pipeline.diagnose", Options=Options, diagnose=diagnose, open_trace=open_trace)


if __name__ == "__main__":
    sys.modules["advisor.pipeline.diagnose"] = stand_in()
    # One capture is no job; what would find that out takes half of the start of a process.
    sys.modules["advisor.ranks.reduction"] = module("summary", recognise=lambda *_: (None, None))
    from advisor.cli.main import run

    run()
