"""Rows of ranks made by hand, and what the tests ask of a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advisor.jobs.align import UNKNOWN, RankRows
from advisor.jobs.recognise import recognise
from advisor.model.findings import Diagnosis, Finding
from advisor.pipeline.diagnose import Options
from advisor.pipeline.ranks import Reduced, Task, diagnose_ranks, reduce_capture

ZERO = 1_700_000_000_000_000_000
LEADS = ("kernels", "idle, host code")


def rows(
    rank: int,
    ends: Sequence[float],
    durations: Sequence[float] | float = 20.0,
    *,
    kinds: Sequence[str] | str = "all-reduce",
    zero: int | None = ZERO,
    groups: Sequence[str] | None = None,
    sequence: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    lead: Sequence[tuple[float, float]] | None = None,
    device: int = 0,
) -> RankRows:
    """Times in us of the rank's own session."""
    count = len(ends)
    names = [kinds] * count if isinstance(kinds, str) else list(kinds)
    length = [durations] * count if isinstance(durations, int | float) else list(durations)
    end = np.rint(np.array(ends, float) * 1_000).astype(np.int64)
    duration = np.rint(np.array(length, float) * 1_000).astype(np.int64)
    order = np.argsort(end - duration, kind="stable")
    known = sorted(set(names))
    told = sorted(set(groups or ()))
    none = np.full(count, UNKNOWN, np.int64)
    leads = np.full((count, len(LEADS)), UNKNOWN, np.int64)
    if lead is not None:
        leads[:] = np.rint(np.array(lead) * 1_000)
    window = (int((end - duration).min(initial=0)), int(end.max(initial=0)))
    return RankRows(
        rank=rank,
        device=device,
        zero=zero,
        window=window,
        window_ns=max(window[1] - window[0], 1),
        steps=10,
        kinds=tuple(known),
        groups=tuple(told),
        leads=LEADS,
        kind=np.array([known.index(n) for n in names], np.int64)[order],
        stream=np.zeros(count, np.int64),
        start=(end - duration)[order],
        duration=duration[order],
        exposed=duration[order],
        place=none,
        bytes=none if sizes is None else np.array(sizes, np.int64)[order],
        group=none if groups is None else np.array([told.index(g) for g in groups], np.int64)[order],
        sequence=none if sequence is None else np.array(sequence, np.int64)[order],
        lead=leads[order],
    )


def diagnosed(paths: Sequence[Path], options: Options | None = None) -> Diagnosis:
    """As the command does it, in this process."""
    plan, _ = recognise(paths, lambda path: pytest_fail(path))
    assert plan is not None
    return diagnose_ranks(plan.files, options, run=reduced_once)


_REDUCED: dict[tuple[bytes, str], Reduced] = {}


def reduced_once(tasks: Sequence[Task]) -> list[Reduced]:
    """Each capture is read once, however many tests join it with others: half of their time. Copies
    of a capture count as one; a job's inputs then have the path of the first."""
    done = []
    for task in tasks:
        key = Path(task.path).read_bytes(), repr(task._replace(path=""))
        if key not in _REDUCED:
            _REDUCED[key] = reduce_capture(task)
        done.append(_REDUCED[key])
    return done


def pytest_fail(path: Path) -> None:  # type: ignore[return]
    raise AssertionError(f"names tell; {path} need not be opened")


def finding(diagnosis: Diagnosis, cause: str) -> Finding:
    found = [f for f in diagnosis.findings if f.cause == cause]
    assert len(found) == 1, [f.cause for f in diagnosis.findings]
    return found[0]


def communication(diagnosis: Diagnosis) -> dict[str, str]:
    """Cause -> severity of what is said about ranks and collectives."""
    about = ("COM", "KRN102", "KRN103", "CAP115")
    return {f.cause: f.severity for f in diagnosis.findings if f.code.startswith(about)}


def fact(diagnosis: Diagnosis, name: str, rank: int | None = None) -> object:
    found = [f.value for f in diagnosis.facts if f.name == name and f.scope.rank == rank]
    assert len(found) <= 1
    return found[0] if found else None
