"""``advisor.ranks``: the captures of one job, diagnosed as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import Options
from advisor.pipeline.ranks import diagnose_ranks
from advisor.pipeline.workers import runner
from advisor.ranks.recognise import recognise
from advisor.sources.peek import peek


def ranks(paths: Sequence[str | Path], options: Options | None = None, jobs: int = 1) -> Diagnosis:
    """Diagnose the captures of one job: who comes late, who waits. `jobs` are processes that read
    them (0: one a core), for scripts with a main guard.

    Raises InputError for fewer than two captures, and where none can be read.
    """
    plan, _ = recognise([Path(p) for p in paths], peek, forced=True)
    if plan is None:
        raise InputError("ranks takes the captures of at least two ranks")
    return diagnose_ranks(plan.files, options, runner(jobs))
