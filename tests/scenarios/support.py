"""What a scenario expects of a diagnosis: names and order of causes, never prose."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import advisor
from advisor.model.findings import Diagnosis, Finding
from tests.builder import Export
from tests.ranks.support import diagnosed as together
from tests.scenarios.machine import Machine

#: What a device that the host keeps busy must not be told at medium or above.
HOST_SIDE = frozenset(
    (
        "launch-bound",
        "launch-storm",
        "launch-queue-latency",
        "graph-replay-gaps",
        "queue-empty",
        "gpu-idle",
        "blocking-sync",
        "device-wide-sync",
        "readback-per-layer",
        "implicit-sync",
        "sync-memset",
        "host-gap",
        "python-gc",
        "gil-contention",
        "os-blocked",
        "input-preparation",
        "transfer-bound",
        "pageable-copies",
        "tiny-copies",
        "slow-link",
        "allocation-churn",
        "allocation-stalls",
    )
)
#: What no capture with GPU work in it may be told.
NOT_EMPTY = frozenset(("no-gpu-activity", "wrong-process", "damaged-capture"))


def diagnosed(script: Machine | Export, folder: Path) -> Diagnosis:
    """Through the public Python API, from a real file."""
    export = script.export if isinstance(script, Machine) else script
    return advisor.diagnose(export.write(folder / "trace.sqlite"))


def job_of(script: Machine | Export, folder: Path, ranks: int = 2) -> Diagnosis:
    """Of so many ranks that do the same at the same time, so that none waits for another."""
    export = script.export if isinstance(script, Machine) else script
    return together([export.write(folder / f"trace_rank{rank}.sqlite") for rank in range(ranks)])


def ranked(d: Diagnosis) -> list[str]:
    """Causes that cost something or invalidate the capture, in order."""
    return [f.cause for f in d.findings if f.severity != "info" or f.invalidates]


def expect(
    d: Diagnosis, *top: str, also: Collection[str] = (), never: Collection[str] = (), damaged: bool = False
) -> None:
    """`top` come first in this order, `also` are among the findings, `never` are not; and unless
    `damaged`, the capture is one with GPU work."""
    causes = [f.cause for f in d.findings]
    shown = [(f.cause, f.severity, f.impact.share if f.impact else None) for f in d.findings]
    assert ranked(d)[: len(top)] == list(top), shown
    assert set(also) <= set(causes), shown
    unwanted = set(never) if damaged else set(never) | NOT_EMPTY
    assert not unwanted & set(causes), shown


def alarms(d: Diagnosis, causes: Collection[str] = HOST_SIDE) -> list[tuple[str, str]]:
    """Findings of these causes at medium or above."""
    return [
        (f.cause, f.severity) for f in d.findings if f.cause in causes and f.severity in ("medium", "high")
    ]


def finding(d: Diagnosis, cause: str) -> Finding:
    """The only finding of a cause."""
    (found,) = (f for f in d.findings if f.cause == cause)
    return found


def severity(d: Diagnosis, cause: str) -> str | None:
    return next((f.severity for f in d.findings if f.cause == cause), None)


def fact(d: Diagnosis, name: str, device: int | None = 0) -> object:
    """A fact's value for one device (None: about the trace)."""
    found = [f.value for f in d.facts if f.name == name and f.scope.device == device]
    return found[0] if found else None


def evidence(d: Diagnosis, cause: str) -> Sequence[str]:
    """Titles of the tables that a finding shows."""
    return [e.title for f in d.findings if f.cause == cause for e in f.evidence]


def explained(d: Diagnosis, cause: str) -> set[str]:
    """Causes that this finding stands for."""
    return {s.cause for f in d.findings if f.cause == cause for s in f.explains}
