"""``advisor facts [TRACE]``: the catalogue of facts, or their values in one capture."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from advisor.cli.deliver import formats
from advisor.cli.settings import argument, option, takes
from advisor.config import Settings
from advisor.errors import InputError


@takes(
    "trace match window nvtx phase weight_bytes format output force",
    files=(),
    format=formats("Kind of list."),
)
def facts(
    settings: Settings,
    given: list[str],
    trace: Path | None = argument("[TRACE]", None),
    match: str = option("TEXT", "Only facts whose name holds TEXT: sync., _p50.", ""),
) -> None:
    """List the facts that rules may use; with TRACE, their values and where those come from."""
    from advisor.cli.deliver import check_output, deliver_one
    from advisor.compare.facts import EVERY_FACT
    from advisor.reports.listings import FactList, FactValues, catalogue, values

    check_output(settings, [trace] if trace else [])
    if trace is not None:
        from advisor.pipeline.diagnose import diagnose

        facts = [f for f in diagnose(trace, settings).facts if match in f.name]
        found = FactValues(capture=str(trace), facts=tuple(facts))
        deliver_one(found, partial(values, found), f"Facts of {trace.name}", settings)
        return
    if needing := [n for n in given if n not in ("format", "output", "force")]:
        raise InputError(f"--{needing[0].replace('_', '-')} needs a TRACE")
    listed = FactList.of(s for name, s in EVERY_FACT.items() if match in name)
    deliver_one(listed, partial(catalogue, listed), "Facts", settings)
