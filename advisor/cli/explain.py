"""``advisor explain CODE``: what a rule looks at and what to do; with --trace, why it fired there
or why not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import complete, flags
from advisor.cli.deliver import formats
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError, RuleError


@takes(
    "code trace together window nvtx phase weight_bytes serving_engine rules param engine redact format "
    "output force verbose",
    format=formats("Kind of answer."),
    verbose="Every place, branch and number.",
)
def explain(
    settings: Settings,
    given: list[str],
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", hidden=True, autocompletion=complete.rules)
    ] = None,
    trace: Annotated[
        list[Path] | None, typer.Option("--trace", "-t", metavar="TRACE", help="Why it fired there.")
    ] = None,
    together: flags.Together = False,
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Explain a rule, by CODE, cause or words of its title: what, why, when harmless, how to fix, how
    to verify. Without CODE: list the rules.

    With --trace: why it fired in that capture, down to the facts with both numbers and where they
    come from; or why not and how far it missed; or what is missing and what would supply it.
    """
    if not trace:
        needing = [n for n in given if n not in ("rules", "verbose", "format")]
        _page(code, settings, needing, output, force)
        return
    if code is None:
        raise InputError("--trace needs a CODE; 'advisor explain' lists them")
    answer(code, trace, settings, output, force, together=together)


def _page(code: str | None, settings: Settings, needing: list[str], output: Path | None, force: bool) -> None:
    """The rule in words, which reads one file and nothing else; or the list of rules to choose from."""
    from advisor.cli.deliver import deliver_one, target_of
    from advisor.cli.rules import deliver_list
    from advisor.engine.load import builtin_dir, load_rule, load_rules
    from advisor.knowledge.files import references
    from advisor.reports.rule import explain as blocks

    if needing:
        raise InputError(f"--{needing[0].replace('_', '-')} asks about a capture; add --trace TRACE")
    places = (builtin_dir(), *settings.rules)
    output = target_of(output, force)
    if not code:
        deliver_list(load_rules(*places).active, settings, output, force)
        return
    try:
        rule = load_rule(code, *places)
    except RuleError:
        found = load_rules(*places).with_words(code)
        if not found:
            raise
        if len(found) > 1:
            deliver_list(found, settings, output, force)
            return
        rule = found[0]
    deliver_one(rule, partial(blocks, rule, references()), rule.code, settings.format, output, force)


def answer(
    code: str,
    traces: list[Path],
    settings: Settings,
    output: Path | None,
    force: bool,
    full: bool = False,
    together: bool = False,
) -> None:
    """What a rule makes of a capture, or of two recordings of one program; in `full` with its findings."""
    from advisor.cli.deliver import check_output, deliver_one
    from advisor.cli.inputs import as_pair
    from advisor.cli.progress import Progress
    from advisor.pipeline.explain import explain
    from advisor.reports.explanation import explanation

    trace, other = as_pair(traces, together)
    settings = replace(settings, together=other)
    output = check_output(output, force, trace)
    with Progress(trace.name) as progress:
        found = explain(trace, code, settings, progress)
    blocks = partial(explanation, found, settings.verbosity, full)
    deliver_one(found, blocks, f"{found.code} {found.cause}", settings.format, output, force)
