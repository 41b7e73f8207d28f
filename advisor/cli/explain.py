"""``advisor explain CODE``: what a rule looks at and what to do; with --trace, why it fired there
or why not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import flags
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.model.options import one_of


@takes(
    "code trace window nvtx phase weight_bytes serving_engine rules param engine format output force verbose",
    format=one_of("Kind of answer, with --trace.", "text", "json"),
    verbose="Every place, branch and number.",
)
def explain(
    settings: Settings,
    given: list[str],
    code: Annotated[str, typer.Argument(metavar="CODE", hidden=True)],
    trace: Annotated[
        Path | None, typer.Option("--trace", "-t", metavar="TRACE", help="Why it fired there.")
    ] = None,
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Explain a rule, by CODE or cause: what, why, when harmless, how to fix, how to verify.

    With --trace: why it fired in that capture, down to the facts with both numbers and where they
    come from; or why not and how far it missed; or what is missing and what would supply it.
    """
    if trace is None:
        needing = [n for n in given if n not in ("rules", "verbose")]
        _page(code, settings, needing if output is None else [*needing, "output"])
        return
    answer(code, trace, settings, output, force)


def _page(code: str, settings: Settings, needing: list[str]) -> None:
    """The rule in words; reads one file and nothing else."""
    from advisor.cli.output import make_page, print_page
    from advisor.engine.load import builtin_dir, load_rule
    from advisor.errors import InputError
    from advisor.knowledge.files import references
    from advisor.reports.rule_text import explain as write

    if needing:
        raise InputError(f"--{needing[0].replace('_', '-')} asks about a capture; add --trace TRACE")
    rule = load_rule(code, builtin_dir(), *settings.rules)
    page = make_page()
    write(page, rule, references())
    print_page(page)


def answer(
    code: str, trace: Path, settings: Settings, output: Path | None, force: bool, full: bool = False
) -> None:
    """What a rule makes of a capture; in `full` with its findings."""
    from advisor.cli.deliver import check_output, deliver
    from advisor.cli.progress import Progress
    from advisor.pipeline.explain import explain
    from advisor.reports.explanation_text import explanation

    output = check_output(output, force, trace)
    with Progress(trace.name) as progress:
        found = explain(trace, code, settings, progress)
    deliver(
        found, lambda page: explanation(page, found, settings.verbosity, full), settings.format, output, force
    )
