"""Several captures of one job: recognised, reduced in parallel, diagnosed as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.messages import message
from advisor.config import Settings
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.model.findings import Diagnosis


def as_job(paths: Sequence[Path], settings: Settings) -> tuple[Diagnosis, bool] | None:
    """The diagnosis of the job that the captures belong to, and whether a rank of it is missing
    because it could not be read; None for captures that stand alone."""
    if settings.ranks and settings.independent:
        raise InputError("--ranks and --independent contradict each other; give one of them")
    from advisor.ranks.summary import recognise
    from advisor.sources.open import peek

    forced = True if settings.ranks else False if settings.independent else None
    plan, hint = recognise(paths, peek, forced)
    if hint is not None:
        message(f"note: {hint}")
    if plan is None:
        if settings.dask is not None:
            message("note: --dask reads the ranks of one job; these captures are read here")
        return None
    from advisor.cli.progress import Progress
    from advisor.pipeline.ranks import diagnose_ranks
    from advisor.pipeline.workers import runner

    if settings.sensitivity:
        message("note: --sensitivity looks at one capture at a time; it is left out here")
    lost: list[str] = []
    with Progress(f"{len(paths)} ranks") as progress:
        run = runner(settings.jobs, settings.dask, lambda n, of: progress(f"{n} of {of} read"))
        diagnosis = diagnose_ranks(plan.files, settings, run, lost.append)
    for line in lost:
        message(f"error: {line}")
    return diagnosis, bool(lost)
