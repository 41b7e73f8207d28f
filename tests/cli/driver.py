"""The real command line over a stand-in for the analysis; also runs in a process of its own."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

from advisor.errors import InputError
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


#: The names of the analysis that it stands in for.
ANALYSES = ("advisor.pipeline.diagnose.diagnose", "advisor.pipeline.inputs.diagnose")

if __name__ == "__main__":
    for name in ANALYSES:
        module, _, attribute = name.rpartition(".")
        setattr(import_module(module), attribute, diagnose)
    from advisor.cli.main import run

    run()
