"""Many captures: each diagnosed, or all as the ranks of one job; and `advisor.ranks`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import NamedTuple

from advisor.errors import AdvisorError
from advisor.model.findings import Diagnosis
from advisor.model.options import Options
from advisor.pipeline.inputs import How, Input, Saved, as_job, job

_log = logging.getLogger(__name__)


class Diagnosed(NamedTuple):
    """The diagnoses, one line on each capture that could not be read, and whether the captures are the ranks
    of one job, which has one diagnosis."""

    diagnoses: list[Diagnosis]
    errors: list[str]
    job: bool


def diagnose_all(
    inputs: Sequence[Input], how: How, ranks: bool = False, independent: bool = False
) -> Diagnosed:
    """A diagnosis of each input, or one of the job whose ranks they are. Raises InputError if the only one,
    or no rank, can be read; of several the others are diagnosed."""
    if (found := as_job(inputs, ranks, independent)) is not None:
        if how.options.sensitivity:
            _log.warning("--sensitivity looks at one capture at a time; it is left out here")
        read = found.read(how)
        return Diagnosed([*read.diagnoses], [*read.lost], True)
    if how.dask is not None and not any(isinstance(each, Saved) for each in inputs):
        _log.warning("--dask reads the ranks of one job; these captures are read here")
    done: list[Diagnosis] = []
    unread: list[str] = []
    for each in inputs:
        try:
            done += each.read(how).diagnoses
        except AdvisorError as error:
            if len(inputs) == 1:
                raise
            unread.append(str(error))  # one bad file must not hide the results of the others
            continue
        if isinstance(each, Saved) and _is_set(how.options):
            _log.warning("%s: a saved diagnosis; options of the analysis do not change it", each.path)
    return Diagnosed(done, unread, False)


def _is_set(options: Options) -> bool:
    """Whether an option of the analysis was given."""
    known = (field for field in fields(Options) if field.default is not MISSING)
    return any(getattr(options, field.name) != field.default for field in known)


def ranks(paths: Sequence[str | Path], options: Options | None = None, jobs: int = 1) -> Diagnosis:
    """Diagnose the captures of one job: who comes late, who waits. `jobs` are processes that read them
    (0: one a core), for scripts with a main guard.

    Raises InputError for fewer than two captures, and if none can be read.
    """
    return job(paths).read(How(options or Options(), jobs=jobs)).diagnoses[0]
